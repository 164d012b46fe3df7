//! Somebody who asks a cluster.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ballista_core::execution_plans::execute_physical_plan;
use ballista_core::extension::SessionConfigExt;
use ballista_core::planner::scans_only_information_schema;
use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use datafusion_proto::protobuf::PhysicalPlanNode;
use engine::{Answer, Archive, EngineError, Prepared, Session, SessionOptions};
use futures::stream::{self, StreamExt};
use sql::Parsed;

use crate::ClusterError;
use crate::config::plan_for_cluster;
use crate::scheduler::Scheduler;
use crate::share_out::share_out;

/// Partitions of a phase for each slot of the cluster: with more than one, a slow task holds up less, and what is lost with
/// an executor is less.
const PARTITIONS_FOR_A_SLOT: usize = 2;

/// How often a question is asked before executors that get lost make it fail.
const TRIES: usize = 5;
/// Batches of an answer that are fetched before any is given out.
const FETCHED_AT_ONCE: usize = 16;

/// Asks questions of an archive that a cluster answers.
pub struct ClusterSession {
    session: Session,
    codec: Arc<dyn PhysicalExtensionCodec>,
    scheduler: Arc<Scheduler>,
}

impl std::fmt::Debug for ClusterSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ClusterSession({:?}, {})",
            self.session,
            self.scheduler.url()
        )
    }
}

impl ClusterSession {
    pub(crate) async fn new(
        archive: Arc<Archive>,
        codec: Arc<dyn PhysicalExtensionCodec>,
        scheduler: Arc<Scheduler>,
        slots: usize,
        options: &SessionOptions,
    ) -> Result<Self, ClusterError> {
        let options = SessionOptions {
            cores: NonZeroUsize::new(slots),
            phase_partitions: (slots * PARTITIONS_FOR_A_SLOT).max(2),
            ..options.clone()
        };
        let session = Session::new(archive, &options).await?;
        plan_for_cluster(session.context());
        Ok(Self {
            session,
            codec,
            scheduler,
        })
    }

    /// The session that reads and plans the questions.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Answers the only statement of `text`. Returns when the executors have all of the answer; the rows are fetched from
    /// them as they are asked for. Dropping the future ends the query.
    pub async fn ask(&self, text: &str) -> Result<Answer, ClusterError> {
        let parsed = self.session.parse_one(text).await?;
        self.run(text, parsed).await
    }

    /// Answers a statement of `text`.
    pub async fn run(&self, text: &str, parsed: Parsed) -> Result<Answer, ClusterError> {
        let prepared = self.session.prepare(text, parsed).await?;
        if answered_here(&prepared.logical)? || recurs(&prepared.plan) {
            return Ok(self.session.start(prepared)?);
        }
        let plan = share_out(Arc::clone(&prepared.plan))
            .map_err(|error| ClusterError::from_run(&error))?;
        let batches = self.distribute(&plan).await?;
        Ok(Prepared { plan, ..prepared }.answer(batches))
    }

    /// Runs a plan on the executors; from the start again if one of them is lost meanwhile.
    ///
    /// Ballista would run again what was lost. But where it takes back a stage that was running, the results that tasks of
    /// this stage had given already stay with the next one, and are counted twice.
    async fn distribute(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<SendableRecordBatchStream, ClusterError> {
        let mut losses = self.scheduler.losses();
        for _ in 0..TRIES {
            losses.mark_unchanged();
            let ended = tokio::select! {
                // An error here means that the scheduler has ended: the query will say so itself.
                Ok(()) = losses.changed() => continue,
                ended = self.submit(plan) => ended,
            };
            match ended {
                // Lost in the very last moment: the answer may be the one to distrust.
                _ if losses.has_changed().unwrap_or(false) => {}
                Err(ClusterError::Lost(said)) => tracing::warn!(said, "a query is asked again"),
                ended => return ended,
            }
        }
        Err(ClusterError::Lost(format!("in each of {TRIES} attempts")))
    }

    /// Runs a plan once. When it returns, the first rows have arrived, of a small answer all: an executor may be lost even
    /// after it has answered, and until then the question can be asked again.
    async fn submit(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<SendableRecordBatchStream, ClusterError> {
        static JOBS: AtomicU64 = AtomicU64::new(1);
        let context = self.session.context();
        let name = format!(
            "{}-{}",
            context.session_id(),
            JOBS.fetch_add(1, Ordering::Relaxed)
        );
        let config = context.copied_config().with_ballista_job_name(&name);
        let mut job = Job {
            scheduler: &self.scheduler,
            name,
            ended: false,
        };
        let batches = execute_physical_plan::<PhysicalPlanNode>(
            self.scheduler.url(),
            &config.ballista_config(),
            Arc::clone(plan),
            self.codec.as_ref(),
            context.session_id(),
            config.clone(),
        )
        .await;
        job.ended = true;
        let mut batches = batches.map_err(|error| ClusterError::from_run(&error))?;
        let mut first = Vec::new();
        while first.len() < FETCHED_AT_ONCE
            && let Some(batch) = batches.next().await
        {
            first.push(Ok(
                batch.map_err(|error| ClusterError::Lost(error.strip_backtrace()))?
            ));
        }
        let batches = stream::iter(first).chain(batches);
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            plan.schema(),
            batches,
        )))
    }
}

/// A query on its way, which ends with the one who waits for it.
struct Job<'a> {
    scheduler: &'a Scheduler,
    name: String,
    ended: bool,
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.scheduler.cancel(std::mem::take(&mut self.name));
        }
    }
}

/// Whether a plan feeds its own result back, which it can only in one process.
fn recurs(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<RecursiveQueryExec>() || plan.children().into_iter().any(recurs)
}

/// Whether a plan is answered in this process: what it asks is only here (the names of tables, the plan itself).
fn answered_here(plan: &LogicalPlan) -> Result<bool, ClusterError> {
    match plan {
        LogicalPlan::Explain(_) | LogicalPlan::DescribeTable(_) => Ok(true),
        LogicalPlan::Analyze(_) => Err(ClusterError::NotDistributed(
            "EXPLAIN ANALYZE measures one process".to_owned(),
        )),
        _ => scans_only_information_schema(plan).map_err(|error| match error {
            DataFusionError::NotImplemented(_) => ClusterError::NotDistributed(
                "information_schema is known to the front end alone, the other tables to the executors".to_owned(),
            ),
            other => ClusterError::Engine(EngineError::Query(other.strip_backtrace())),
        }),
    }
}
