//! The SELECTs that UNIONs put together. A column has one type in all of them:
//!
//! ```text
//! SELECT 1 UNION SELECT '007' UNION ALL SELECT 1.5
//!
//!   Union                two by two the first ones would meet as numbers or as texts before
//!     Distinct           the third is seen
//!       Union
//!         1
//!         '007'
//!     1.5
//! ```
//!
//! One that stands on the right is in parentheses, and has types of its own.

use std::cell::RefCell;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Union};

/// Rewrites a plan and its subqueries from the leaves up: each UNION that is not a part of another one with all of its branches by `unite`, and what
/// is no UNION by `rewrite`.
pub(super) fn rewrite_unions(
    plan: LogicalPlan,
    mut rewrite: impl FnMut(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
    mut unite: impl FnMut(Union) -> Result<Transformed<LogicalPlan>>,
) -> Result<LogicalPlan> {
    let above: RefCell<Vec<Place>> = RefCell::default();
    let rewritten = plan.transform_down_up_with_subqueries(
        |plan| {
            let mut above = above.borrow_mut();
            let is_part = above.last_mut().is_some_and(Place::has_left_part);
            let has_left = match plan {
                LogicalPlan::Union(_) => true,
                LogicalPlan::Distinct(Distinct::All(_)) => is_part,
                _ => false,
            };
            above.push(Place { is_part, has_left });
            Ok(Transformed::no(plan))
        },
        |plan| {
            let place = above.borrow_mut().pop();
            match plan {
                LogicalPlan::Union(union) if place.is_some_and(|it| it.is_part) => {
                    let union = Union::try_new_with_loose_types(union.inputs)?;
                    Ok(Transformed::yes(LogicalPlan::Union(union)))
                }
                LogicalPlan::Union(union) => unite(union),
                other => rewrite(other),
            }
        },
    )?;
    Ok(rewritten.data)
}

/// Where a node is.
struct Place {
    /// Whether it is the left part of a UNION.
    is_part: bool,
    /// Whether the next node below is.
    has_left: bool,
}

impl Place {
    fn has_left_part(&mut self) -> bool {
        std::mem::take(&mut self.has_left)
    }
}

/// The fields of each column of a UNION, one of each branch.
pub(super) fn fields_of_columns(union: &Union) -> Vec<Vec<FieldRef>> {
    let mut branches = Vec::new();
    gather(union, &mut branches);
    let field = |at: usize| {
        let fields = branches.iter().map(|it| it.schema().fields().get(at));
        fields.flatten().cloned().collect()
    };
    (0..union.schema.fields().len()).map(field).collect()
}

/// A column of a branch.
pub(super) struct BranchColumn<'a> {
    /// The number of the branch, in the order of [`fields_of_columns`].
    pub branch: usize,
    /// The number of the column.
    pub at: usize,
    pub column: &'a Expr,
    /// The columns of the branch.
    pub schema: &'a DFSchema,
}

/// What is given in the place of a column; the column itself if nothing is.
type Made<'a> = dyn Fn(BranchColumn<'_>) -> Result<Option<Expr>> + 'a;

/// A UNION in whose branches some columns are others.
pub(super) fn with_columns(union: Union, made: &Made<'_>) -> Result<LogicalPlan> {
    changed(LogicalPlan::Union(union), &mut 0, made)
}

fn changed(plan: LogicalPlan, number: &mut usize, made: &Made<'_>) -> Result<LogicalPlan> {
    match plan {
        LogicalPlan::Union(union) => {
            let mut inputs = Vec::with_capacity(union.inputs.len());
            for input in union.inputs {
                let input = Arc::unwrap_or_clone(input);
                inputs.push(Arc::new(match inputs.is_empty() {
                    true => changed(input, number, made)?,
                    false => next_projected(input, number, made)?,
                }));
            }
            Union::try_new_with_loose_types(inputs).map(LogicalPlan::Union)
        }
        LogicalPlan::Distinct(Distinct::All(input)) if nested(&input).is_some() => {
            let input = changed(Arc::unwrap_or_clone(input), number, made)?;
            Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(input))))
        }
        branch => next_projected(branch, number, made),
    }
}

/// The next branch, whose number is `next`.
fn next_projected(branch: LogicalPlan, next: &mut usize, made: &Made<'_>) -> Result<LogicalPlan> {
    let number = *next;
    *next += 1;
    let schema = Arc::clone(branch.schema());
    let mut is_changed = false;
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (at, (relation, field)) in schema.iter().enumerate() {
        let column = Expr::Column(Column::from((relation, field)));
        let given = BranchColumn {
            branch: number,
            at,
            column: &column,
            schema: &schema,
        };
        let other = made(given)?.filter(|other| *other != column);
        is_changed |= other.is_some();
        columns.push(match other {
            Some(other) => other.alias_qualified(relation.cloned(), field.name()),
            None => column,
        });
    }
    match is_changed {
        true => LogicalPlanBuilder::from(branch).project(columns)?.build(),
        false => Ok(branch),
    }
}

/// The UNION that the left part of one is.
fn nested(plan: &LogicalPlan) -> Option<&Union> {
    match plan {
        LogicalPlan::Union(union) => Some(union),
        LogicalPlan::Distinct(Distinct::All(input)) => nested(input),
        _ => None,
    }
}

fn gather<'a>(union: &'a Union, branches: &mut Vec<&'a LogicalPlan>) {
    for (at, input) in union.inputs.iter().enumerate() {
        match nested(input).filter(|_| at == 0) {
            Some(union) => gather(union, branches),
            None => branches.push(input),
        }
    }
}
