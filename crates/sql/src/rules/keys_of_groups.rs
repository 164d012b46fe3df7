//! Which columns are a key of what an aggregate groups.
//!
//! DataFusion tells for each plan which columns determine which (its functional dependencies). It takes what determines one of the
//! columns that an aggregate groups by for what determines all of them:
//!
//! ```text
//! Aggregate: GROUP BY g.n, w.a        a row for each n and a; to DataFusion one for each n
//!   Join
//!     g: Aggregate: GROUP BY n        n determines what is in this row
//!     w: TableScan
//! ```
//!
//! By that the planner adds `a` to a `GROUP BY n` of these rows, and the optimizer leaves `a` out of a `GROUP BY n, a` of which `a` is not
//! selected, takes joins out and leaves sort keys out. The same holds wherever a key is in several rows of a join: that of DISTINCT, and
//! the number that `ROW_NUMBER()` gives.
//!
//! An aggregate has a row for each combination of what it groups by: these columns together are a key, or those which determine them all.

use std::cell::Cell;

use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{Dependency, FunctionalDependence, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::TableFactor;

/// Says of aggregates which columns are a key of their rows: to the planner for each relation in FROM, before it groups; to the optimizer
/// before each rule that goes by it ([`KeysOfGroups::RULES`]). It has to be the first of the relation planners.
#[derive(Debug, Default)]
pub struct KeysOfGroups;

impl KeysOfGroups {
    /// DataFusion's optimizer rules that go by what determines what.
    pub const RULES: [&str; 4] = [
        "replace_distinct_aggregate",
        "eliminate_join",
        "eliminate_duplicated_expr",
        "optimize_projections",
    ];
}

impl OptimizerRule for KeysOfGroups {
    fn name(&self) -> &str {
        "keys_of_groups"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        with_keys(plan)
    }
}

thread_local! {
    /// Whether the planner has been given a relation to plan it as it would without us.
    static IS_PLANNED: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for KeysOfGroups {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        // The planner asks again, for this relation first, when it is told to plan it.
        if IS_PLANNED.replace(false) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_PLANNED.set(true);
        let plan = with_keys(context.plan(relation)?)?.data;
        let planned = PlannedRelation::new(plan, None);
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

/// The plan whose aggregates, and what is above them, have the keys that they have.
fn with_keys(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has_wrong_keys(&plan)? {
        return Ok(Transformed::no(plan));
    }
    plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Aggregate(mut aggregate) => {
            let keys = keys_of(&aggregate);
            if *aggregate.schema.functional_dependencies() == keys {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            }
            let schema = aggregate.schema.as_ref().clone();
            aggregate.schema = schema.with_functional_dependencies(keys)?.into();
            Ok(Transformed::yes(LogicalPlan::Aggregate(aggregate)))
        }
        other => above(other),
    })
}

fn has_wrong_keys(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        if let LogicalPlan::Aggregate(aggregate) = plan {
            found |= *aggregate.schema.functional_dependencies() != keys_of(aggregate);
        }
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// A plan above others whose keys may have become other ones.
fn above(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if plan.schema().functional_dependencies().is_empty() {
        // No plan but an aggregate determines more than its inputs do.
        return Ok(Transformed::no(plan));
    }
    let computed = plan.clone().recompute_schema()?;
    let (old, new) = (plan.schema(), computed.schema());
    Ok(
        match old.functional_dependencies() == new.functional_dependencies() {
            true => Transformed::no(plan),
            false => Transformed::yes(computed),
        },
    )
}

/// The keys of the rows of an aggregate: those of its input which determine all that it groups by, or else all that together.
fn keys_of(aggregate: &Aggregate) -> FunctionalDependencies {
    let groups = &aggregate.group_expr;
    let is_set = |expr: &Expr| matches!(expr, Expr::GroupingSet(_));
    if groups.is_empty() || groups.iter().any(is_set) {
        return FunctionalDependencies::empty();
    }
    let input = aggregate.input.schema();
    let columns: Vec<Option<usize>> = groups
        .iter()
        .map(|group| input.maybe_index_of_column(group.try_as_col()?))
        .collect();
    let all = || (0..aggregate.schema.fields().len()).collect();
    let key = |source: Vec<usize>, is_nullable| {
        FunctionalDependence::new(source, all(), is_nullable).with_mode(Dependency::Single)
    };
    let keys = input.functional_dependencies().iter().filter_map(|known| {
        let place = |source: &usize| columns.iter().position(|column| *column == Some(*source));
        let source: Option<Vec<usize>> = known.source_indices.iter().map(place).collect();
        let is_determined = |column: &usize| {
            known.target_indices.contains(column) || known.source_indices.contains(column)
        };
        let are_all = columns
            .iter()
            .all(|column| column.as_ref().is_some_and(is_determined));
        source
            .filter(|_| are_all)
            .map(|source| key(source, known.nullable))
    });
    let keys: Vec<FunctionalDependence> = keys.collect();
    if !keys.is_empty() {
        return FunctionalDependencies::new(keys);
    }
    let is_nullable = (0..groups.len()).any(|at| aggregate.schema.field(at).is_nullable());
    FunctionalDependencies::new(vec![key((0..groups.len()).collect(), is_nullable)])
}

#[cfg(test)]
mod tests {
    use datafusion::functions_aggregate::expr_fn::count;
    use datafusion::logical_expr::{LogicalPlanBuilder, col, lit};

    use super::*;

    /// Two rows with columns of these names.
    fn rows(names: [&str; 2]) -> LogicalPlanBuilder {
        let values = vec![vec![lit(1), lit(2)], vec![lit(3), lit(4)]];
        let values = LogicalPlanBuilder::values(values).unwrap();
        let [one, two] = names;
        let columns = [col("column1").alias(one), col("column2").alias(two)];
        values.project(columns).unwrap()
    }

    /// Groups and how many rows each has, as `counted`.
    fn grouped(plan: LogicalPlanBuilder, by: &[&str], counted: &str) -> LogicalPlanBuilder {
        let groups = by.iter().map(|name| col(*name));
        let counted = [count(lit(1)).alias(counted)];
        plan.aggregate(groups, counted).unwrap()
    }

    /// Of the keys that are found: the columns.
    fn keys(plan: LogicalPlanBuilder) -> Vec<Vec<usize>> {
        let plan = with_keys(plan.build().unwrap()).unwrap().data;
        let all = (0..plan.schema().fields().len()).collect::<Vec<_>>();
        let known = plan.schema().functional_dependencies().iter();
        let keys = known.map(|known| {
            assert_eq!(known.mode, Dependency::Single);
            assert_eq!(known.target_indices, all);
            known.source_indices.clone()
        });
        keys.collect()
    }

    #[test]
    fn groups_are_a_key_together() {
        assert_eq!(
            keys(grouped(rows(["a", "b"]), &["a", "b"], "rows")),
            [[0, 1]]
        );
        let once = grouped(rows(["a", "b"]), &["a"], "counted").project([col("a")]);
        let once = once.unwrap().build().unwrap();
        let joined = rows(["x", "y"]).cross_join(once).unwrap();
        let above = grouped(joined, &["a", "x"], "counted");
        let wrong = above.schema().functional_dependencies();
        assert_eq!(wrong[0].source_indices, [0], "DataFusion may be right now");
        assert_eq!(keys(above.clone()), [[0, 1]]);
        // What is above is told, too.
        assert_eq!(keys(above.clone().alias("q").unwrap()), [[0, 1]]);
        assert_eq!(keys(grouped(above, &["a", "counted"], "rows")), [[0, 1]]);
    }

    #[test]
    fn a_key_of_all_that_is_grouped_by_is_one() {
        let once = grouped(rows(["a", "b"]), &["a"], "counted");
        assert_eq!(
            keys(grouped(once.clone(), &["counted", "a"], "rows")),
            [[1]]
        );
        let once = once.build().unwrap();
        let joined = rows(["x", "y"]).cross_join(once).unwrap();
        assert_eq!(keys(grouped(joined, &["a", "counted"], "rows")), [[0]]);
    }
}
