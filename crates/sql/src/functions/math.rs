//! Mathematical functions whose result, outside of their domain, is NULL here and an error in DataFusion.

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;

use super::formula::Formula;

static FORMULAS: [(Formula, &[&str]); 2] = [
    (
        Formula {
            name: "sqrt",
            arity: 1,
            of: |a| a[0].sqrt(),
        },
        &[],
    ),
    (
        Formula {
            name: "power",
            arity: 2,
            of: |a| a[0].powf(a[1]),
        },
        &["pow"],
    ),
];

/// The functions that take the place of DataFusion's.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    FORMULAS
        .iter()
        .map(|(formula, aliases)| {
            let aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
            formula.udf(formula.name.to_owned(), aliases)
        })
        .collect()
}
