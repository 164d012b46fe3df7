//! The optimizer rule that makes chunk phases of whatever can run piece by piece.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, WindowExpr};

use super::crossmatch_locality::{MatchPlace, plan_crossmatch};
use super::join_locality::{JoinShape, are_co_located, join_locality};
use super::locality::{Locality, groups_whole, through};
use super::neighbour_locality::plan_neighbours;
use super::phase;
use super::recognise_neighbours::FoundNeighbours;
use crate::FileScanExec;
use crate::exec::{BarrierExec, CrossmatchExec, TableScanExec};

/// Cuts a plan into chunk phases and what merges them.
///
/// Runs once, on the plan as it was first made: before operators are distributed over partitions and before the partial
/// and final halves of an aggregate are combined.
#[derive(Debug, Default)]
pub(crate) struct CutChunkPhases {
    /// From [`most_first_rows`](super::most_first_rows).
    pub most_first_rows: usize,
}

impl PhysicalOptimizerRule for CutChunkPhases {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let cut = Cut {
            config,
            // Pieces keep their first rows side by side.
            most_first_rows: self.most_first_rows / config.execution.target_partitions.max(1),
        };
        cut.close(cut.node(plan, &[])?)
    }

    fn name(&self) -> &str {
        "cut_chunk_phases"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// A subtree and where it can run. While it can run piece by piece its scans are still uncut.
struct Node {
    plan: Arc<dyn ExecutionPlan>,
    locality: Locality,
}

struct Cut<'a> {
    config: &'a ConfigOptions,
    /// How many first rows a piece keeps in memory at most.
    most_first_rows: usize,
}

impl Cut<'_> {
    /// `groups`: the columns of the plan by which what is above it groups, as far as that is known.
    fn node(&self, plan: Arc<dyn ExecutionPlan>, groups: &[usize]) -> Result<Node> {
        if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
            let locality = Locality::of_scan(scan);
            return Ok(Node { plan, locality });
        }
        let below = groups_below(&plan, groups);
        let mut children = plan
            .children()
            .into_iter()
            .map(|child| self.node(Arc::clone(child), &below))
            .collect::<Result<Vec<_>>>()?;
        if let Some(file) = plan.downcast_ref::<FileScanExec>()
            && file.is_small()
        {
            let locality = Locality::Anywhere;
            return Ok(Node { plan, locality });
        }
        if children.is_empty() {
            return Ok(Node {
                plan,
                locality: Locality::Global,
            });
        }
        self.run_once(&mut children)?;
        if let Some(matched) = plan.downcast_ref::<CrossmatchExec>() {
            return self.crossmatch(matched, children);
        }
        if let [left, right] = children.as_slice()
            && !joins_same_keys(&plan, left, right)
            && let Some(found) = FoundNeighbours::of(&plan)?
        {
            let localities = [&left.locality, &right.locality];
            let inputs = [&left.plan, &right.plan];
            let grouped = found.side_of(groups, left.plan.schema().fields().len());
            let local = plan_neighbours(&found, inputs, localities, grouped)?;
            let join: Arc<dyn ExecutionPlan> = Arc::new(local.join);
            return match local.locality {
                Locality::Global => self.above(join, children),
                locality => Ok(Node {
                    plan: join,
                    locality,
                }),
            };
        }
        match self.locality(&plan, &children) {
            Locality::Global => self.above(plan, children),
            locality => {
                let inner = children.drain(..).map(|child| child.plan).collect();
                Ok(Node {
                    plan: replace_children_if_necessary(plan, inner)?,
                    locality,
                })
            }
        }
    }

    /// Makes phases of children that could run in any piece but had better run once: what reads around the rows of a replicated
    /// table gives the same in every piece of another table, and would do the same work in each.
    fn run_once(&self, children: &mut [Node]) -> Result<()> {
        let pieces = |child: &Node| matches!(child.locality, Locality::Pieces { .. });
        if !children.iter().any(pieces) {
            return Ok(());
        }
        for child in children {
            if matches!(child.locality, Locality::Anywhere) && reads_around(&child.plan)? {
                child.plan = phase::replicated_phase(&child.plan, self.config)?;
                child.locality = Locality::Global;
            }
        }
        Ok(())
    }

    /// A crossmatch in the pieces of its probe rows, or above them.
    fn crossmatch(&self, matched: &CrossmatchExec, children: Vec<Node>) -> Result<Node> {
        let inputs = children.iter().map(|child| (&child.plan, &child.locality));
        match plan_crossmatch(matched, &inputs.collect::<Vec<_>>())? {
            MatchPlace::InPieces { inputs, locality } => Ok(Node {
                plan: Arc::new(matched.over(inputs)),
                locality,
            }),
            MatchPlace::Above { around } => {
                let mut inputs = Vec::with_capacity(children.len());
                for (child, around) in children.into_iter().zip(around) {
                    inputs.push(match around {
                        Some(around) => phase::uncut_near(&around, self.config)?,
                        None => self.close(child)?,
                    });
                }
                Ok(Node {
                    plan: Arc::new(matched.over(inputs).spread()),
                    locality: Locality::Global,
                })
            }
        }
    }

    /// Where an operator can run, given where its children can.
    fn locality(&self, plan: &Arc<dyn ExecutionPlan>, children: &[Node]) -> Locality {
        match children {
            [child] => unary(plan, &child.locality),
            [left, right] => binary(plan, left, right),
            _ => Locality::Global,
        }
    }

    /// Puts an operator above its children, each of which becomes a phase if it can. A limit or a sort that keeps the first
    /// few rows also goes into the phase, where it spares work.
    fn above(&self, plan: Arc<dyn ExecutionPlan>, children: Vec<Node>) -> Result<Node> {
        let children = children
            .into_iter()
            .map(|child| self.close(self.first_rows(&plan, child)?))
            .collect::<Result<Vec<_>>>()?;
        Ok(Node {
            plan: replace_children_if_necessary(plan, children)?,
            locality: Locality::Global,
        })
    }

    /// What of a limit or a first-few sort can be done to each piece beforehand.
    fn first_rows(&self, above: &Arc<dyn ExecutionPlan>, child: Node) -> Result<Node> {
        let partial = matches!(
            child.locality,
            Locality::Global | Locality::Pieces { partial: true, .. }
        );
        if partial {
            return Ok(child);
        }
        let Node { plan, locality } = child;
        if let Some(sort) = above.downcast_ref::<SortExec>()
            && let Some(fetch) = sort.fetch()
        {
            if fetch > self.most_first_rows {
                return Ok(Node { plan, locality });
            }
            let sort = SortExec::new(sort.expr().clone(), plan)
                .with_fetch(Some(fetch))
                .with_preserve_partitioning(true);
            return Ok(Node {
                plan: Arc::new(sort),
                locality,
            });
        }
        let fetch = match above.downcast_ref::<GlobalLimitExec>() {
            Some(limit) => limit
                .fetch()
                .map(|fetch| fetch.saturating_add(limit.skip())),
            None => above
                .downcast_ref::<LocalLimitExec>()
                .map(LocalLimitExec::fetch),
        };
        match fetch {
            Some(fetch) => Ok(Node {
                plan: Arc::new(LocalLimitExec::new(plan, fetch)),
                locality,
            }),
            None => Ok(Node { plan, locality }),
        }
    }

    /// Makes a chunk phase of a subtree that can be one.
    fn close(&self, node: Node) -> Result<Arc<dyn ExecutionPlan>> {
        match node.locality {
            Locality::Global => Ok(node.plan),
            Locality::Anywhere => phase::replicated_phase(&node.plan, self.config),
            Locality::Pieces {
                variants, partial, ..
            } => phase::chunk_phase(&node.plan, &variants, partial, self.config),
        }
    }
}

/// The columns of an operator's only input by which is grouped, if it or what is above it groups by `groups`.
fn groups_below(plan: &Arc<dyn ExecutionPlan>, groups: &[usize]) -> Vec<usize> {
    let columns = |exprs: &mut dyn Iterator<Item = &Arc<dyn PhysicalExpr>>| {
        let all = exprs.flat_map(collect_columns);
        all.map(|column| column.index()).collect()
    };
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return columns(&mut aggregate.group_expr().expr().iter().map(|(expr, _)| expr));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let exprs = projection.expr();
        return columns(&mut groups.iter().map(|at| &exprs[*at].expr));
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        return match filter.projection().as_ref() {
            Some(projection) => groups.iter().map(|at| projection[*at]).collect(),
            None => groups.to_vec(),
        };
    }
    if let Some(barrier) = plan.downcast_ref::<BarrierExec>() {
        return groups.iter().map(|at| barrier.columns()[*at]).collect();
    }
    match plan.is::<CoalescePartitionsExec>() {
        true => groups.to_vec(),
        false => Vec::new(),
    }
}

fn reads_around(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    plan.exists(|node| {
        let scan = node.downcast_ref::<TableScanExec>();
        Ok(scan.is_some_and(TableScanExec::is_near))
    })
}

fn unary(plan: &Arc<dyn ExecutionPlan>, child: &Locality) -> Locality {
    if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
        return aggregate_locality(aggregate, child);
    }
    if matches!(
        child,
        Locality::Global | Locality::Pieces { partial: true, .. }
    ) {
        return Locality::Global;
    }
    if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_ref().map(|p| p.to_vec());
        return child.clone().map_columns(|columns| match &projection {
            Some(projection) => projection
                .iter()
                .map(|at| columns.get(*at).cloned().flatten())
                .collect(),
            None => columns.to_vec(),
        });
    }
    if let Some(barrier) = plan.downcast_ref::<BarrierExec>() {
        return child.clone().map_columns(|columns| {
            let given = barrier.columns().iter();
            given
                .map(|at| columns.get(*at).cloned().flatten())
                .collect()
        });
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        return child
            .clone()
            .map_columns(|columns| through(projection.expr().iter().map(|e| &e.expr), columns));
    }
    if plan.is::<CoalescePartitionsExec>() && plan.output_partitioning().partition_count() == 1 {
        return child.clone();
    }
    if let Some(window) = plan.downcast_ref::<WindowAggExec>() {
        return window_locality(window.window_expr(), child);
    }
    if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>() {
        return window_locality(window.window_expr(), child);
    }
    Locality::Global
}

/// A partial aggregate can always run in a piece and is merged above it; a whole one only where whole groups are there.
fn aggregate_locality(aggregate: &AggregateExec, child: &Locality) -> Locality {
    let groups = aggregate.group_expr();
    let keys: Vec<_> = groups
        .expr()
        .iter()
        .map(|(expr, _)| Arc::clone(expr))
        .collect();
    let single = groups.is_single() && !keys.is_empty();
    match (aggregate.mode(), child.clone()) {
        (
            AggregateMode::Partial,
            Locality::Pieces {
                cut,
                variants,
                partial: false,
            },
        ) => {
            let mapped = Locality::Pieces {
                cut,
                variants,
                partial: true,
            };
            // Of several grouping sets some leave the key out: their groups have NULL in its place, and rows in all pieces.
            mapped.map_columns(|columns| match groups.is_single() {
                true => through(keys.iter(), columns),
                false => vec![None; keys.len()],
            })
        }
        (AggregateMode::Partial, Locality::Anywhere) => Locality::Anywhere,
        // The partial half below has been let in; its group columns come first in what it gives.
        (
            AggregateMode::Final | AggregateMode::FinalPartitioned,
            Locality::Pieces {
                cut,
                variants,
                partial: true,
            },
        ) if single => {
            let whole = Locality::Pieces {
                cut,
                variants,
                partial: true,
            }
            .retain(|variant| groups_whole(keys.iter(), &variant.columns));
            match whole {
                Locality::Pieces { cut, variants, .. } => Locality::Pieces {
                    cut,
                    variants,
                    partial: false,
                }
                .map_columns(|columns| through(keys.iter(), columns)),
                other => other,
            }
        }
        (
            AggregateMode::Single | AggregateMode::SinglePartitioned,
            Locality::Pieces {
                cut,
                variants,
                partial: false,
            },
        ) if single => Locality::Pieces {
            cut,
            variants,
            partial: false,
        }
        .retain(|variant| groups_whole(keys.iter(), &variant.columns))
        .map_columns(|columns| through(keys.iter(), columns)),
        _ => Locality::Global,
    }
}

/// A window can run in a piece if every one of its partitions is whole there. Its own columns come last.
fn window_locality(windows: &[Arc<dyn WindowExpr>], child: &Locality) -> Locality {
    match child {
        Locality::Pieces { partial: false, .. } => child.clone().retain(|variant| {
            windows
                .iter()
                .all(|w| groups_whole(w.partition_by().iter(), &variant.columns))
        }),
        _ => Locality::Global,
    }
}

fn binary(plan: &Arc<dyn ExecutionPlan>, left: &Node, right: &Node) -> Locality {
    match shape(plan, left, right) {
        Some(shape) => join_locality(&shape, left.locality.clone(), right.locality.clone()),
        None => Locality::Global,
    }
}

/// Whether an operator joins rows with the same key, which are in the same piece.
fn joins_same_keys(plan: &Arc<dyn ExecutionPlan>, left: &Node, right: &Node) -> bool {
    shape(plan, left, right)
        .is_some_and(|shape| are_co_located(&shape, &left.locality, &right.locality))
}

/// What matters of an operator that is a join.
fn shape<'a>(plan: &'a Arc<dyn ExecutionPlan>, left: &Node, right: &Node) -> Option<JoinShape<'a>> {
    let widths = (
        left.plan.schema().fields().len(),
        right.plan.schema().fields().len(),
    );
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        Some(JoinShape {
            join_type: *join.join_type(),
            on: join.on(),
            nulls_equal: join.null_equality(),
            null_aware: join.null_aware,
            widths,
            projection: join.projection.as_deref(),
        })
    } else if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
        Some(JoinShape {
            join_type: *join.join_type(),
            on: &[],
            nulls_equal: datafusion::common::NullEquality::NullEqualsNothing,
            null_aware: false,
            widths,
            projection: join.projection().as_deref(),
        })
    } else if plan.is::<CrossJoinExec>() {
        Some(JoinShape {
            join_type: datafusion::common::JoinType::Inner,
            on: &[],
            nulls_equal: datafusion::common::NullEquality::NullEqualsNothing,
            null_aware: false,
            widths,
            projection: None,
        })
    } else {
        None
    }
}
