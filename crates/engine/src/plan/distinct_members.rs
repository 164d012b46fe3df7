//! The optimizer rule that gives semi and anti joins what they see of their inner side once.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{JoinSide, JoinType, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode, PhysicalGroupBy};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{
    HashJoinExec, HashJoinExecBuilder, NestedLoopJoinExec, NestedLoopJoinExecBuilder,
};

use super::engine_rules::{Rules, place_of_rule};
use super::recognise_neighbours::FoundNeighbours;

/// Puts an aggregate below the inner side of semi, anti and mark joins that gives its keys once, or where there are none the values that
/// its condition sees.
///
/// Such a join asks of each outer row only whether there is an inner row. DataFusion's hash join goes over all pairs of equal keys to
/// find out, so that a membership in a million rows of six values took as long as 10^11 pairs; its nested loop goes over all pairs of
/// rows, of which a NOT IN of a set that depends on the row outside is one. The aggregate is a partial one: it need not be complete, and
/// lets rows through as they are where nearly all keys differ.
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
        plan.transform_up(|node| {
            let joined = if let Some(join) = node.downcast_ref::<HashJoinExec>() {
                by_distinct_keys(join)?
            } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
                match FoundNeighbours::of(&node)? {
                    // Around positions it reads rows where they lie.
                    Some(_) => None,
                    None => over_distinct_values(join)?,
                }
            } else {
                None
            };
            Ok(match joined {
                Some(join) => Transformed::yes(join),
                None => Transformed::no(node),
            })
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

/// The side of which a join asks only whether there is a row.
fn inner_side(join_type: JoinType) -> Option<JoinSide> {
    match join_type {
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => Some(JoinSide::Right),
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => Some(JoinSide::Left),
        JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => None,
    }
}

/// The rows of `input` with what is different in these expressions, once; or oftener, where nearly all are.
fn distinct(
    input: &Arc<dyn ExecutionPlan>,
    exprs: Vec<(Arc<dyn PhysicalExpr>, String)>,
) -> Result<Arc<dyn ExecutionPlan>> {
    Ok(Arc::new(AggregateExec::try_new(
        AggregateMode::Partial,
        PhysicalGroupBy::new_single(exprs),
        Vec::new(),
        Vec::new(),
        Arc::clone(input),
        input.schema(),
    )?))
}

fn by_distinct_keys(join: &HashJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // A condition beside the keys sees other columns, and then all rows count.
    let Some(side) = inner_side(*join.join_type()).filter(|_| join.filter().is_none()) else {
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
    *inner = distinct(inner, keys)?;
    let joined = HashJoinExecBuilder::new(left, right, on, *join.join_type())
        .with_projection_ref(join.projection.clone())
        .with_partition_mode(*join.partition_mode())
        .with_null_equality(join.null_equality())
        .with_null_aware(join.null_aware)
        .with_fetch(join.fetch())
        .build_exec()?;
    Ok(Some(joined))
}

fn over_distinct_values(join: &NestedLoopJoinExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (Some(side), Some(filter)) = (inner_side(*join.join_type()), join.filter()) else {
        return Ok(None);
    };
    let (mut left, mut right) = (Arc::clone(join.left()), Arc::clone(join.right()));
    let inner = match side {
        JoinSide::Left => &mut left,
        _ => &mut right,
    };
    let schema = inner.schema();
    let mut values = Vec::new();
    let mut places = BTreeMap::new();
    let mut columns = filter.column_indices().to_vec();
    for ColumnIndex { index, .. } in columns.iter_mut().filter(|column| column.side == side) {
        *index = *places.entry(*index).or_insert_with(|| {
            let column: Arc<dyn PhysicalExpr> =
                Arc::new(Column::new(schema.field(*index).name(), *index));
            values.push((column, format!("value_{}", values.len())));
            values.len() - 1
        });
    }
    if values.is_empty() {
        return Ok(None);
    }
    *inner = distinct(inner, values)?;
    let filter = JoinFilter::new(
        Arc::clone(filter.expression()),
        columns,
        Arc::clone(filter.schema()),
    );
    let joined = NestedLoopJoinExecBuilder::new(left, right, *join.join_type())
        .with_projection_ref(join.projection().clone())
        .with_filter(Some(filter))
        .build()?;
    Ok(Some(Arc::new(joined)))
}
