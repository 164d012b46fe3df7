//! A cached plan: the plan of statements that differ only in the values of their parameters.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use catalog::CatalogState;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::{self, BoxStream, StreamExt};
use sql::{Interrupt, RowWarnings, Warning};

use super::binding::{Binding, BoundPhase, is_bindable};
use super::cheap::is_cheap;
use super::key_lookup::KeyLookup;
use crate::exec::{ChunkPhaseExec, PieceScanExec, bind_to_piece};
use crate::{Archive, EngineError, PreparedQuery, attempts, estimate};

/// A plan with unbound parameters. It never runs itself.
#[derive(Debug)]
pub(super) struct CachedPlan {
    /// The state of the catalog for which it is valid.
    pub state: CatalogState,
    plan: Arc<dyn ExecutionPlan>,
    /// The look-up that replaces the plan, if the statement only selects the rows of one key.
    key_lookup: Option<KeyLookup>,
    /// Whether each scanned row takes little time.
    is_cheap: bool,
    /// The columns of the result under their headings.
    schema: SchemaRef,
    /// The warnings of the statement, which do not depend on its parameters.
    warnings: Vec<Warning>,
}

/// A running result.
pub(crate) struct CachedResult {
    /// The columns under their headings.
    pub schema: SchemaRef,
    /// The rows, whose columns have the plan's names.
    pub batches: BoxStream<'static, datafusion::common::Result<RecordBatch>>,
    /// The plan that produces them.
    pub plan: Arc<dyn ExecutionPlan>,
    /// The warnings of the statement.
    pub warnings: Vec<Warning>,
    /// Those about values of rows.
    pub row_warnings: Arc<RowWarnings>,
}

impl CachedPlan {
    /// The plan of a statement in a state of the catalog; `None` if it cannot be run again, or depends on more than the statement's text.
    pub fn of(prepared: PreparedQuery, state: CatalogState) -> Option<Self> {
        if depends_on_the_moment(&prepared.logical) || !is_bindable(&prepared.plan) {
            return None;
        }
        // Nothing remains above the pieces.
        let phase = prepared.plan.downcast_ref::<ChunkPhaseExec>();
        Some(Self {
            state,
            key_lookup: phase.map(ChunkPhaseExec::inner).and_then(KeyLookup::of),
            is_cheap: is_cheap(phase.map_or(&prepared.plan, ChunkPhaseExec::inner)),
            plan: prepared.plan,
            schema: prepared.schema,
            warnings: prepared.warnings,
        })
    }

    /// Starts the plan with these values. With a bound on the scanned rows, only if they come from a single chunk that has no more of
    /// them, or from none, and each takes little time. `None` if the statement has to be planned.
    pub async fn execute(
        &self,
        values: &[ScalarValue],
        archive: &Arc<Archive>,
        most_rows: Option<u64>,
        context: impl FnOnce() -> Arc<TaskContext>,
    ) -> Result<Option<CachedResult>, EngineError> {
        if most_rows.is_some() && !self.is_cheap {
            return Ok(None);
        }
        if let Some(lookup) = &self.key_lookup
            && let Some(rows) = lookup.rows(values, archive, most_rows).await?
        {
            estimate::admit_piece(1)?;
            let batches = stream::iter((rows.num_rows() > 0).then_some(Ok(rows))).boxed();
            return Ok(Some(self.result(batches, Arc::clone(&self.plan))));
        }
        let mut binding = Binding::new(values, archive);
        let Some(phase) = self.plan.downcast_ref::<ChunkPhaseExec>() else {
            // The number of rows is unknown if the plan reads rows above the pieces.
            if most_rows.is_some() && !reads_nothing(&self.plan) {
                return Ok(None);
            }
            let plan = binding.plan(&self.plan).await?;
            return self.start(&binding, plan, context).await;
        };
        let BoundPhase { pieces, inner } = binding.phase(phase).await?;
        if binding.needs_planning() {
            return Ok(None);
        }
        let [piece] = pieces.as_slice() else {
            if most_rows.is_some() {
                return Ok(None);
            }
            let plan = phase.of(&pieces, inner).map_err(failed)?;
            return self.start(&binding, Arc::new(plan), context).await;
        };
        if let Some(most_rows) = most_rows {
            let ([slice], Some(scan)) = (piece.slices().as_ref(), only_scan(&inner)) else {
                return Ok(None);
            };
            if scan.rows_looked_at(slice).await? > most_rows {
                return Ok(None);
            }
        }
        // On the caller's thread: a piece that reads a row takes less time than starting a task.
        let bound = bind_to_piece(&inner, piece).map_err(failed)?;
        estimate::admit_piece(piece.slices().len())?;
        self.run(&bound, context, inner).map(Some)
    }

    async fn start(
        &self,
        binding: &Binding<'_>,
        plan: Arc<dyn ExecutionPlan>,
        context: impl FnOnce() -> Arc<TaskContext>,
    ) -> Result<Option<CachedResult>, EngineError> {
        if binding.needs_planning() {
            return Ok(None);
        }
        estimate::admit(binding.archive(), &plan).await?;
        self.run(&plan, context, Arc::clone(&plan)).map(Some)
    }

    /// Runs a plan, or that of the only piece of one.
    fn run(
        &self,
        bound: &Arc<dyn ExecutionPlan>,
        context: impl FnOnce() -> Arc<TaskContext>,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<CachedResult, EngineError> {
        let interrupt = Interrupt::current_or_new();
        let _guard = interrupt.enter();
        let batches = attempts::execute(bound, context()).map_err(failed)?;
        Ok(CachedResult {
            row_warnings: Arc::clone(interrupt.warnings()),
            ..self.result(batches.boxed(), plan)
        })
    }

    fn result(
        &self,
        batches: BoxStream<'static, datafusion::common::Result<RecordBatch>>,
        plan: Arc<dyn ExecutionPlan>,
    ) -> CachedResult {
        CachedResult {
            schema: Arc::clone(&self.schema),
            batches,
            plan,
            warnings: self.warnings.clone(),
            row_warnings: Arc::default(),
        }
    }
}

fn failed(error: datafusion::common::DataFusionError) -> EngineError {
    EngineError::from_run(&error)
}

/// Whether no leaf of the plan reads rows, as for a `count(*)` that was taken from the catalog.
fn reads_nothing(plan: &Arc<dyn ExecutionPlan>) -> bool {
    !plan.is::<ChunkPhaseExec>() && plan.children().into_iter().all(reads_nothing)
}

/// The only scan of a plan without branches.
fn only_scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&PieceScanExec> {
    let mut node = plan;
    loop {
        if let Some(scan) = node.downcast_ref::<PieceScanExec>() {
            return Some(scan);
        }
        node = match node.children().as_slice() {
            [child] => child,
            _ => return None,
        };
    }
}

/// Whether planning may have evaluated a function of the plan, such as `current_date()`.
fn depends_on_the_moment(plan: &LogicalPlan) -> bool {
    let of_the_moment = |expr: &Expr| {
        Ok(match expr {
            Expr::ScalarFunction(call) => call.func.signature().volatility != Volatility::Immutable,
            _ => false,
        })
    };
    let mut found = false;
    let walked = plan.apply_with_subqueries(|node| {
        let mut expressions = node.expressions().into_iter();
        found |= expressions.any(|expr| expr.exists(of_the_moment).unwrap_or(true));
        Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
    });
    found || walked.is_err()
}
