//! The optimizer rule that gives semi and anti joins each key of their inner side once.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::{HashJoinExec, HashJoinExecBuilder};

use super::engine_rules::{Rules, place_of_rule};

/// Puts an aggregate below the inner side of semi, anti and mark joins that gives its keys once.
///
/// Such a join asks of each outer row only whether there is an inner row. DataFusion's hash join goes over all pairs of equal keys to
/// find out, so that a membership in a million rows of six values took as long as 10^11 pairs. The aggregate is a partial one: it
/// need not be complete, and lets rows through as they are where nearly all keys differ.
#[derive(Debug)]
struct DistinctMembers;

/// Puts the rule among `rules`: after the sides of joins are chosen, before their rows are distributed.
pub(super) fn insert(rules: &mut Rules) -> Result<()> {
    let at = place_of_rule(rules, "join_selection")?;
    rules.insert(at + 1, Arc::new(DistinctMembers));
    Ok(())
}

impl PhysicalOptimizerRule for DistinctMembers {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| match node.downcast_ref::<HashJoinExec>() {
            Some(join) => Ok(match with_distinct_members(join)? {
                Some(join) => Transformed::yes(join),
                None => Transformed::no(node),
            }),
            None => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "distinct_members"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The side of which only the keys matter. A condition beside the keys sees other columns of it, and then all its rows count.
fn inner_side(join: &HashJoinExec) -> Option<JoinSide> {
    if join.filter().is_some() {
        return None;
    }
    match join.join_type() {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => Some(JoinSide::Right),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => Some(JoinSide::Left),
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => None,
    }
}

fn with_distinct_members(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some(side) = inner_side(join) else {
        return Ok(None);
    };
    let (mut left, mut right) = (Arc::clone(join.left()), Arc::clone(join.right()));
    let mut on = join.on().to_vec();
    let inner = match side {
        JoinSide::Left => &mut left,
        _ => &mut right,
    };
    let mut keys = Vec::with_capacity(on.len());
    for (at, pair) in on.iter_mut().enumerate() {
        let key = match side {
            JoinSide::Left => &mut pair.0,
            _ => &mut pair.1,
        };
        let name = format!("key_{at}");
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&name, at));
        keys.push((std::mem::replace(key, column), name));
    }
    let schema = inner.schema();
    *inner = Arc::new(AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(keys),
        Vec::new(),
        Vec::new(),
        Arc::clone(inner),
        schema,
    )?);
    let joined = HashJoinExecBuilder::new(left, right, on, *join.join_type())
        .with_projection_ref(join.projection.clone())
        .with_partition_mode(*join.partition_mode())
        .with_null_equality(join.null_equality())
        .with_null_aware(join.null_aware)
        .with_fetch(join.fetch())
        .build_exec()?;
    Ok(Some(joined))
}
