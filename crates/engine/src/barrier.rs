//! Barriers in logical plans: below one is what a view hides, above it what its reader wrote.
//!
//! ```text
//!   Filter: mag < 15 AND 1 / (flux - 3) > 0            Filter: mag < 15 AND 1 / (flux - 3) > 0
//!     Barrier                                   ──►      Barrier
//!       the view's plan                                    Filter: mag < 15
//!                                                            the view's plan
//! ```
//!
//! A view is read through a barrier by those who may not read what it is made of: no rule puts anything below it, so that what a reader
//! writes is computed on rows of the view alone. What can neither fail nor have effects, whatever the row ([`is_harmless`]), is evaluated
//! below it a second time, since it tells where the wanted rows are; from there it goes on to the scans.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, DFSchemaRef, ExprSchema, Result, internal_err};
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Extension, Filter, LogicalPlan, Operator,
    UserDefinedLogicalNodeCore,
};

use crate::restriction::{Restriction, Roles};

/// Gives the rows of its input, and lets nothing from above through.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BarrierNode {
    input: LogicalPlan,
    /// What is evaluated below it, too.
    copied: Vec<Expr>,
}

impl BarrierNode {
    /// The plan of a view as its readers get it.
    pub fn above(input: LogicalPlan) -> LogicalPlan {
        let node = Arc::new(Self {
            input,
            copied: vec![],
        });
        LogicalPlan::Extension(Extension { node })
    }

    /// The barrier that a plan is.
    pub fn of(plan: &LogicalPlan) -> Option<&Self> {
        match plan {
            LogicalPlan::Extension(extension) => extension.node.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// What is below it.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }
}

impl PartialOrd for BarrierNode {
    /// No node is before another.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

impl UserDefinedLogicalNodeCore for BarrierNode {
    fn name(&self) -> &str {
        "Barrier"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Barrier")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 1]>::try_from(inputs) {
            Ok([input]) => Ok(Self {
                input,
                copied: self.copied.clone(),
            }),
            Err(inputs) => internal_err!("a barrier above {} inputs", inputs.len()),
        }
    }

    fn necessary_children_exprs(&self, wanted: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![wanted.to_vec()])
    }
}

/// A condition on a barrier, of which what is harmless is evaluated below it, too; `None` for any other plan. Nothing else may be done to
/// such a plan by who moves conditions: DataFusion puts those without columns on every input of a node that it does not know.
pub(crate) fn restricted(plan: &LogicalPlan) -> Result<Option<Transformed<LogicalPlan>>> {
    let LogicalPlan::Filter(filter) = plan else {
        return Ok(None);
    };
    let Some(barrier) = BarrierNode::of(&filter.input) else {
        return Ok(None);
    };
    let schema = barrier.schema();
    let conditions = split_conjunction(&filter.predicate).into_iter();
    let new: Vec<Expr> = conditions
        .filter(|it| is_harmless(it, schema) && !barrier.copied.contains(it))
        .cloned()
        .collect();
    let Some(below) = conjunction(new.clone()) else {
        return Ok(Some(Transformed::no(plan.clone())));
    };
    let input = Filter::try_new(below, Arc::new(barrier.input.clone()))?;
    let barrier = BarrierNode {
        input: LogicalPlan::Filter(input),
        copied: barrier.copied.iter().cloned().chain(new).collect(),
    };
    let node = Arc::new(barrier);
    let input = LogicalPlan::Extension(Extension { node });
    let same = Filter::try_new(filter.predicate.clone(), Arc::new(input))?;
    Ok(Some(Transformed::yes(LogicalPlan::Filter(same))))
}

/// Whether a condition can be evaluated on any row without an error, a warning or an effect: comparisons of columns and constants of one
/// type, and regions of the sky.
fn is_harmless(expr: &Expr, schema: &DFSchema) -> bool {
    let harmless = |expr: &Expr| is_harmless(expr, schema);
    let alike = |values: &[&Expr]| are_alike(values, schema);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::And | Operator::Or => harmless(left) && harmless(right),
            Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq => alike(&[left, right]) || is_region(expr, schema),
            _ => false,
        },
        Expr::Between(between) => alike(&[&between.expr, &between.low, &between.high]),
        Expr::InList(list) => {
            let values: Vec<&Expr> = std::iter::once(&*list.expr).chain(&list.list).collect();
            alike(&values)
        }
        Expr::Not(inner) => harmless(inner),
        Expr::IsNull(value) | Expr::IsNotNull(value) => alike(&[value]),
        _ => false,
    }
}

/// Whether these are columns and constants, all of one type.
fn are_alike(values: &[&Expr], schema: &DFSchema) -> bool {
    let type_of = |value: &Expr| match value {
        Expr::Column(_) | Expr::Literal(..) => value.get_type(schema).ok(),
        _ => None,
    };
    let mut types = values.iter().map(|value| type_of(value));
    let first = types.next().flatten();
    first.is_some() && types.all(|other| other == first)
}

/// Whether a comparison says that the position of two columns is in a region: then its constants have been tested.
fn is_region(comparison: &Expr, schema: &DFSchema) -> bool {
    let columns: Vec<_> = comparison.column_refs().into_iter().collect();
    let [one, other] = columns.as_slice() else {
        return false;
    };
    let is_double = |column: &&&datafusion::common::Column| {
        let field = schema.field_from_column(column);
        field.is_ok_and(|field| *field.data_type() == DataType::Float64)
    };
    let both = [one, other];
    if !both.iter().all(is_double) {
        return false;
    }
    [[one, other], [other, one]].into_iter().any(|[ra, dec]| {
        let roles = Roles {
            position: Some((ra.name.clone(), dec.name.clone())),
            keys: vec![],
            texts: vec![],
        };
        let restriction = roles.restriction(std::slice::from_ref(comparison));
        matches!(restriction, Restriction::Region(_))
    })
}
