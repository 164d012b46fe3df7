//! `count(*)` without groups, counted without values.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

use crate::exec::CountRowsExec;

/// Puts [`CountRowsExec`] in the places of aggregates that only count rows. Partial ones stay partial: what they give of their
/// rows is the number, too.
pub(super) fn count_rows(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    plan.transform_up(|node| {
        let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
            return Ok(Transformed::no(node));
        };
        let of_rows = matches!(
            aggregate.mode(),
            AggregateMode::Partial | AggregateMode::Single
        );
        let grouped = !aggregate.group_expr().is_true_no_grouping();
        let filtered = aggregate.filter_expr().iter().any(Option::is_some);
        let counts = !aggregate.aggr_expr().is_empty()
            && aggregate
                .aggr_expr()
                .iter()
                .all(|aggregate| counts_rows(aggregate));
        if !of_rows || grouped || filtered || !counts {
            return Ok(Transformed::no(node));
        }
        let counted = CountRowsExec::try_new(Arc::clone(aggregate.input()), aggregate.schema())?;
        Ok(Transformed::yes(Arc::new(counted) as Arc<dyn ExecutionPlan>))
    })
    .data()
}

/// Whether an aggregate is `count(*)`, or `count` of something that is never NULL.
fn counts_rows(aggregate: &AggregateFunctionExpr) -> bool {
    aggregate.fun().name() == "count"
        && !aggregate.is_distinct()
        && aggregate.expressions().iter().all(|expr| {
            let literal = expr.downcast_ref::<Literal>();
            literal.is_some_and(|literal| !literal.value().is_null())
        })
}
