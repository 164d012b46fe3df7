//! Mathematical functions whose answer, outside of their domain, is NULL here and an error in DataFusion.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

use super::formula::Formula;

static FORMULAS: [Formula; 1] = [Formula {
    name: "sqrt",
    arity: 1,
    of: |a| a[0].sqrt(),
}];

/// The functions that take the place of DataFusion's.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    FORMULAS
        .iter()
        .map(|formula| formula.udf(formula.name.to_owned(), vec![]))
        .collect()
}
