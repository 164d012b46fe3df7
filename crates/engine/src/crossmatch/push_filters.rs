//! Conditions above a crossmatch: which of them go below it, and to which side.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Extension, Filter, LogicalPlan, Operator, binary_expr,
};
use datafusion::optimizer::{ApplyOrder, Optimizer, OptimizerConfig, OptimizerRule};
use sql::rules::{
    DistinctWindows, JoinSubqueries, KeepListsApart, KeysOfGroups, LiteralUnions, RecogniseGeometry,
};

use super::node::CrossmatchNode;
use crate::plan::place_of;
use crate::provider::unique_key;
use crate::{EngineError, barrier};

/// DataFusion's filter pushdown, which does not know crossmatches, with what is right for these.
///
/// Conditions that name only columns of the probe side go below: they decide which rows partners are looked for, and nothing
/// else. From there they go on to the scan, which reads off them which part of the sky is wanted. All others stay above: the
/// nearest of all rows is to fulfil them, not the nearest of those that do. (DataFusion 55 puts a condition without columns,
/// such as `random() < 0.1`, on every input of a node that it does not know.)
#[derive(Debug)]
pub(crate) struct PushProbeFilters {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
}

impl PushProbeFilters {
    /// DataFusion's rules with this in the place of its filter pushdown, and with ours beside them.
    ///
    /// # Errors
    /// This version of DataFusion lacks one of the rules that ours go by.
    pub fn among_rules() -> Result<Vec<Arc<dyn OptimizerRule + Send + Sync>>, EngineError> {
        let mut rules = Optimizer::new().rules;
        let place = |rules: &[Arc<dyn OptimizerRule + Send + Sync>], name| {
            let found = place_of(rules.iter().map(|rule| rule.name()), name);
            found.map_err(|error| EngineError::from_run(&error))
        };
        let simplified = place(&rules, "simplify_expressions")?;
        rules.insert(simplified + 1, Arc::new(RecogniseGeometry));
        rules.insert(simplified + 1, Arc::new(LiteralUnions));
        rules.insert(simplified, Arc::new(KeepListsApart));
        let decorrelated = place(&rules, "decorrelate_predicate_subquery")?;
        let joined = JoinSubqueries::new(unique_key);
        rules.insert(decorrelated, Arc::new(joined));
        let common = place(&rules, "common_sub_expression_eliminate")?;
        rules.insert(common, Arc::new(DistinctWindows));
        let pushed = place(&rules, "push_down_filter")?;
        let rule = Arc::clone(&rules[pushed]);
        rules[pushed] = Arc::new(Self { rule });
        for by_keys in KeysOfGroups::RULES {
            let at = place(&rules, by_keys)?;
            rules.insert(at, Arc::new(KeysOfGroups));
        }
        Ok(rules)
    }
}

impl OptimizerRule for PushProbeFilters {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> datafusion::common::Result<Transformed<LogicalPlan>> {
        if let Some(restricted) = barrier::restricted(&plan)? {
            return Ok(restricted);
        }
        if is_above_total(&plan) {
            return Ok(Transformed::no(plan));
        }
        let mut conditions = Vec::new();
        match filtered_crossmatch(&plan, &mut conditions) {
            Some(node) if !conditions.is_empty() => push(node, conditions, &plan),
            _ => self.rule.rewrite(with_constants_right(plan)?, config),
        }
    }
}

/// Whether a plan is a condition on the only row of an aggregate without groups. DataFusion would push below it what names no column, as it
/// does with groups: the row, of no rows then, would be there all the same.
fn is_above_total(plan: &LogicalPlan) -> bool {
    let LogicalPlan::Filter(filter) = plan else {
        return false;
    };
    matches!(filter.input.as_ref(), LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty())
}

fn is_equality_or_bound(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    matches!(op, Eq | Gt | GtEq | Lt | LtEq)
}

/// Filters whose comparisons have constants on the right. DataFusion's rule takes equalities of a column with constants for a contradiction
/// unless they are written alike, as `k = 1` and `1 = k` are not, and of bounds that are not it may keep the wider one.
fn with_constants_right(plan: LogicalPlan) -> datafusion::common::Result<LogicalPlan> {
    let LogicalPlan::Filter(filter) = plan else {
        return Ok(plan);
    };
    let input = with_constants_right(Arc::unwrap_or_clone(filter.input))?;
    let predicate = filter.predicate.transform_up(|expr| {
        Ok(match expr {
            Expr::BinaryExpr(BinaryExpr { left, op, right })
                if is_equality_or_bound(op)
                    && left.as_literal().is_some()
                    && right.as_literal().is_none() =>
            {
                match op.swap() {
                    Some(swapped) => Transformed::yes(binary_expr(*right, swapped, *left)),
                    None => Transformed::no(binary_expr(*left, op, *right)),
                }
            }
            other => Transformed::no(other),
        })
    });
    let filter = Filter::try_new(predicate.data()?, Arc::new(input))?;
    Ok(LogicalPlan::Filter(filter))
}

/// The crossmatch that stands below filters and nothing else, and their conditions.
fn filtered_crossmatch<'a>(
    plan: &'a LogicalPlan,
    conditions: &mut Vec<Expr>,
) -> Option<&'a CrossmatchNode> {
    match plan {
        LogicalPlan::Filter(filter) => {
            conditions.extend(split_conjunction_owned(filter.predicate.clone()));
            filtered_crossmatch(&filter.input, conditions)
        }
        LogicalPlan::Extension(extension) => {
            extension.node.as_any().downcast_ref::<CrossmatchNode>()
        }
        _ => None,
    }
}

fn push(
    node: &CrossmatchNode,
    conditions: Vec<Expr>,
    plan: &LogicalPlan,
) -> datafusion::common::Result<Transformed<LogicalPlan>> {
    let (below, above): (Vec<Expr>, Vec<Expr>) = conditions
        .into_iter()
        .partition(|condition| is_of_probe(condition, node));
    let below = conjunction(below).filter(|_| node.probe_may_be_filtered());
    let Some(below) = below else {
        return Ok(Transformed::no(plan.clone()));
    };
    let probe = Arc::new(node.probe().plan.clone());
    let probe = LogicalPlan::Filter(Filter::try_new(below, probe)?);
    let node = Arc::new(node.with_probe(probe)?);
    let matched = LogicalPlan::Extension(Extension { node });
    Ok(Transformed::yes(match conjunction(above) {
        Some(above) => LogicalPlan::Filter(Filter::try_new(above, Arc::new(matched))?),
        None => matched,
    }))
}

/// Whether a condition is on columns of the probe side, and is deterministic.
fn is_of_probe(condition: &Expr, node: &CrossmatchNode) -> bool {
    let columns = condition.column_refs();
    let schema = node.probe().plan.schema();
    !columns.is_empty()
        && columns.iter().all(|column| schema.has_column(column))
        && !condition.is_volatile()
}
