//! The optimizer rule that has workers merge what many pieces give.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr::{Distribution, Partitioning, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::LocalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::InterleaveExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::exec::{BucketScanExec, ChunkPhaseExec, ShuffleExec};
use crate::shuffle::{ShuffleId, can_be_hashed};

/// Puts a [`ShuffleExec`] above whatever merges the rows of a phase by a hash of some columns: a final aggregate or a window, with the operators above it
/// that work on each hash partition by itself.
///
/// ```text
///   SortPreservingMergeExec: fetch=5          SortExec: fetch=5
///     SortExec: TopK(5)                         ShuffleExec
///       FilterExec (HAVING)           ──►         SortExec: TopK(5)
///         AggregateExec: FinalPartitioned           …
///           RepartitionExec: Hash
///             ChunkPhaseExec
/// ```
///
/// Runs last, on the plan as it will be executed.
#[derive(Debug)]
pub(crate) struct CutShuffles {
    /// Phases that touch chunks of no more rows are merged where the plan runs.
    pub most_rows: u64,
}

impl PhysicalOptimizerRule for CutShuffles {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Buckets have no order, and are one partition. A plan that would need another stays as it is.
        let cut = self.cut(&plan, false, config);
        let checked = cut.and_then(|cut| match Arc::ptr_eq(&cut, &plan) {
            true => Ok(cut),
            false => SanityCheckPlan::new().optimize(cut, config),
        });
        match checked {
            Ok(cut) => Ok(cut),
            Err(error) => {
                tracing::debug!(%error, "a plan is not shuffled");
                Ok(plan)
            }
        }
    }

    fn name(&self) -> &str {
        "cut_shuffles"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl CutShuffles {
    /// The plan with its shuffles; `is_merged` if what is above brings its partitions into one order, which it has.
    fn cut(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        is_merged: bool,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let keeps_order =
            plan.output_ordering().is_some() && plan.output_partitioning().partition_count() == 1;
        // Rows that are only shared out would go to workers and come back as many.
        if (is_merged || !keeps_order)
            && !plan.is::<RepartitionExec>()
            && let Some(columns) = self.hashed(plan, is_merged, false)?
            && works_on_hash_partitions(plan, &columns, config)?
        {
            let merging = merging(plan)?;
            let input = Arc::clone(plan);
            let shuffle = ShuffleExec::new(input, merging, columns.into(), self.most_rows);
            return Ok(Arc::new(shuffle));
        }
        if let Some(merge) = plan.downcast_ref::<SortPreservingMergeExec>() {
            let input = self.cut(merge.input(), merge.fetch().is_some(), config)?;
            if input.is::<ShuffleExec>() {
                let sort = SortExec::new(merge.expr().clone(), input);
                return Ok(Arc::new(sort.with_fetch(merge.fetch())));
            }
            return replace_children_if_necessary(Arc::clone(plan), vec![input]);
        }
        let children = plan.children().into_iter();
        let children = children.map(|child| self.cut(child, false, config));
        let mut children = children.collect::<Result<Vec<_>>>()?;
        if children.len() > 1 {
            bring_into_partitions(plan, &mut children)?;
        }
        replace_children_if_necessary(Arc::clone(plan), children)
    }

    /// The columns of the one phase below, if each partition of a plan may depend on nothing but the rows that are alike in a hash of these:
    /// [`works_on_hash_partitions`] tells. The plan may be asked for an order by the window above it.
    fn hashed(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        is_merged: bool,
        is_of_window: bool,
    ) -> Result<Option<Vec<usize>>> {
        if let Some(columns) = self.hashed_phase(plan) {
            return Ok(columns);
        }
        let works = match plan.downcast_ref::<SortExec>() {
            // The first rows of all are among the first of each. What sorts all rows has to do so again above the buckets.
            Some(sort) => is_of_window || is_merged && sort.fetch().is_some(),
            None => works_on_partitions(plan),
        };
        // With one partition nobody above may limit the rows once more.
        let limits_all =
            plan.fetch().is_some() && plan.output_partitioning().partition_count() == 1;
        if !works || limits_all || has_subquery(plan)? {
            return Ok(None);
        }
        match plan.children().as_slice() {
            [child] => self.hashed(child, is_merged, is_window(plan)),
            _ => Ok(None),
        }
    }

    /// What brings the rows of a phase together: by which columns, if they can be shuffled by these.
    fn hashed_phase(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<Option<Vec<usize>>> {
        let (phase, columns) = if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
            let Partitioning::Hash(by, _) = repartition.partitioning() else {
                return Some(None);
            };
            (repartition.input(), columns_of(by.iter()))
        } else if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            // Where there is one partition, nothing is above the phase but the final half.
            let groups = aggregate.group_expr();
            let is_final = matches!(
                aggregate.mode(),
                AggregateMode::Final | AggregateMode::FinalPartitioned
            );
            if !is_final || !aggregate.input().is::<ChunkPhaseExec>() || !groups.is_single() {
                return None;
            }
            let by = groups.expr().iter().map(|(expr, _)| expr);
            (aggregate.input(), columns_of(by))
        } else {
            return None;
        };
        let Some(phase) = phase.downcast_ref::<ChunkPhaseExec>() else {
            return Some(None);
        };
        let columns = columns.filter(|it| !it.is_empty() && phase.rows() > self.most_rows);
        let schema = phase.schema();
        let fits = |columns: &Vec<usize>| {
            let by = columns.iter().map(|at| schema.field(*at).data_type());
            by.into_iter().all(can_be_hashed)
                && !schema.flattened_fields().iter().any(|field| {
                    matches!(
                        field.data_type(),
                        DataType::Dictionary(..) | DataType::RunEndEncoded(..)
                    )
                })
        };
        Some(columns.filter(fits))
    }
}

/// Shares the rows of children out again as they were, that have one partition now, where the operator works on partitions of the same hash: joins do.
fn bring_into_partitions(
    plan: &Arc<dyn ExecutionPlan>,
    children: &mut [Arc<dyn ExecutionPlan>],
) -> Result<()> {
    let needed = plan.input_distribution_requirements().into_per_child();
    for ((child, before), needed) in children.iter_mut().zip(plan.children()).zip(needed) {
        let partitioning = before.output_partitioning();
        let partitions = child.output_partitioning().partition_count();
        if (plan.is::<InterleaveExec>() || matches!(needed, Distribution::KeyPartitioned(_)))
            && matches!(partitioning, Partitioning::Hash(..))
            && partitioning.partition_count() != partitions
        {
            let again = RepartitionExec::try_new(Arc::clone(child), partitioning.clone())?;
            *child = Arc::new(again);
        }
    }
    Ok(())
}

/// The numbers of columns, if expressions are nothing else.
fn columns_of<'a>(exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>) -> Option<Vec<usize>> {
    exprs
        .map(|expr| Some(expr.downcast_ref::<Column>()?.index()))
        .collect()
}

/// Whether an operator works on each partition of its input by itself, and needs nothing of their order among each other.
fn works_on_partitions(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return match aggregate.mode() {
            AggregateMode::Partial | AggregateMode::FinalPartitioned => true,
            AggregateMode::Final => !aggregate.group_expr().is_true_no_grouping(),
            _ => false,
        };
    }
    is_window(plan)
        || plan.is::<CooperativeExec>()
        || plan.is::<FilterExec>()
        || plan.is::<LocalLimitExec>()
        || plan.is::<ProjectionExec>()
}

fn is_window(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<BoundedWindowAggExec>() || plan.is::<WindowAggExec>()
}

/// Whether an operator computes with the value of a scalar subquery, which another execution of the plan may find anew.
fn has_subquery(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(&mut |expr| {
        found |= expr.exists(|part| Ok(part.is::<ScalarSubqueryExpr>()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The scan of a bucket, if it stands in the place of an operator.
fn bucket_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<Arc<dyn ExecutionPlan>> {
    let unknown = ShuffleId {
        front_end: 0,
        number: 0,
    };
    (plan.is::<ChunkPhaseExec>() || plan.is::<RepartitionExec>())
        .then(|| BucketScanExec::new(unknown, Arc::default(), plan.schema()))
        .map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>)
}

/// The plan that reads a bucket in the place of the phase.
fn merging(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = bucket_scan(plan) {
        return Ok(scan);
    }
    let children = plan.children().into_iter().map(merging);
    let children = children.collect::<Result<Vec<_>>>()?;
    replace_children_if_necessary(Arc::clone(plan), children)
}

/// Whether a plan gives the same rows if it is executed for the partitions of its phase's rows, by a hash of these columns, one after the other: whether
/// DataFusion would execute it so. A plan for one thread does not tell, since one partition has all that any operator needs.
fn works_on_hash_partitions(
    plan: &Arc<dyn ExecutionPlan>,
    columns: &[usize],
    config: &ConfigOptions,
) -> Result<bool> {
    let partitioned = above_hash(plan, columns, false)?;
    let checked = SanityCheckPlan::new().optimize(partitioned, config);
    if let Err(error) = &checked {
        tracing::debug!(%error, "an operator does not work on hash partitions");
    }
    Ok(checked.is_ok())
}

/// The plan above partitions by a hash, whose operators say that they are on partitions, as those of a plan for one thread do not. It may be asked for
/// an order by the window above it.
fn above_hash(
    plan: &Arc<dyn ExecutionPlan>,
    columns: &[usize],
    is_of_window: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    /// More than one.
    const PARTITIONS: usize = 2;
    if let Some(scan) = bucket_scan(plan) {
        let schema = scan.schema();
        let by = columns.iter().map(|at| {
            let column = Column::new(schema.field(*at).name(), *at);
            Arc::new(column) as Arc<dyn PhysicalExpr>
        });
        let by = Partitioning::Hash(by.collect(), PARTITIONS);
        return Ok(Arc::new(RepartitionExec::try_new(scan, by)?));
    }
    let children = plan.children().into_iter();
    let children = children.map(|child| above_hash(child, columns, is_window(plan)));
    let children = children.collect::<Result<Vec<_>>>()?;
    let plan = replace_children_if_necessary(Arc::clone(plan), children)?;
    if let Some(sort) = plan.downcast_ref::<SortExec>()
        && is_of_window
    {
        let sort = sort.clone().with_preserve_partitioning(true);
        return Ok(Arc::new(sort));
    }
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>()
        && *aggregate.mode() == AggregateMode::Final
    {
        let partitioned = AggregateExec::try_new(
            AggregateMode::FinalPartitioned,
            aggregate.group_expr().clone(),
            aggregate.aggr_expr().to_vec(),
            aggregate.filter_expr().to_vec(),
            Arc::clone(aggregate.input()),
            aggregate.input_schema(),
        )?;
        return Ok(Arc::new(partitioned));
    }
    Ok(plan)
}
