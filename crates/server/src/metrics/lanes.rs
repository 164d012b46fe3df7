//! The metrics of the queue of submitted queries and of the scheduler of pieces.

use std::fmt;

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};
use queries::scheduler::{LaneStatus, SchedulerStatus};

use super::registered;

/// The lane's label of pieces that are in none.
const INTERACTIVE: &str = "interactive";

/// What the query service counts.
#[derive(Debug, Clone)]
pub(crate) struct QueryCounts {
    /// Submitted queries that wait.
    pub queued: usize,
    /// The lanes.
    pub scheduler: SchedulerStatus,
}

/// The metrics that tell what the query service counts, whenever somebody reads them.
pub(super) struct LaneMetrics {
    counts: Box<dyn Fn() -> QueryCounts + Send + Sync>,
    queued: IntGauge,
    queries: IntGaugeVec,
    pieces: IntGaugeVec,
    rounds: IntGaugeVec,
    threads: IntGaugeVec,
    memory: IntGauge,
    memory_limit: IntGauge,
}

impl fmt::Debug for LaneMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneMetrics").finish_non_exhaustive()
    }
}

impl LaneMetrics {
    pub(super) fn register(
        registry: &Registry,
        counts: impl Fn() -> QueryCounts + Send + Sync + 'static,
    ) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| registered(registry, IntGauge::new(name, help)?);
        let by = |labels: &[&str], name: &str, help: &str| {
            registered(registry, IntGaugeVec::new(Opts::new(name, help), labels)?)
        };
        Ok(Self {
            counts: Box::new(counts),
            queued: gauge("meridian_queries_queued", "Submitted queries that wait.")?,
            queries: by(
                &["lane"],
                "meridian_lane_queries",
                "Queries that scan, by lane.",
            )?,
            pieces: by(
                &["lane", "state"],
                "meridian_lane_pieces",
                "Pieces that wait for a thread, run, or wait for their reader, by lane.",
            )?,
            rounds: by(
                &["lane"],
                "meridian_lane_rounds",
                "How often a lane has begun its way over the chunks.",
            )?,
            threads: by(
                &["lane"],
                "meridian_lane_reserved_threads",
                "Threads that a lane has for certain now.",
            )?,
            memory: gauge(
                "meridian_scheduler_memory_bytes",
                "Bytes of memory that the started pieces are taken to need.",
            )?,
            memory_limit: gauge(
                "meridian_scheduler_memory_limit_bytes",
                "Bytes of memory that started pieces may take together.",
            )?,
        })
    }

    pub(super) fn look(&self) {
        let QueryCounts { queued, scheduler } = (self.counts)();
        self.queued.set(queued as i64);
        for lane in &scheduler.lanes {
            self.look_at(lane);
        }
        let interactive = scheduler.interactive;
        self.set_pieces(INTERACTIVE, "waiting", interactive.queued);
        self.set_pieces(INTERACTIVE, "running", interactive.running);
        set(&self.threads, INTERACTIVE, interactive.threads);
        self.memory.set(scheduler.memory_used as i64);
        self.memory_limit.set(scheduler.memory_bytes as i64);
    }

    fn look_at(&self, lane: &LaneStatus) {
        set(&self.queries, &lane.name, lane.queries);
        set(&self.rounds, &lane.name, lane.round as usize);
        set(&self.threads, &lane.name, lane.reserved_threads);
        self.set_pieces(&lane.name, "waiting", lane.waiting);
        self.set_pieces(&lane.name, "running", lane.running);
        self.set_pieces(&lane.name, "paused", lane.paused);
    }

    fn set_pieces(&self, lane: &str, state: &str, pieces: usize) {
        let gauge = self.pieces.with_label_values(&[lane, state]);
        gauge.set(pieces as i64);
    }
}

fn set(gauges: &IntGaugeVec, lane: &str, value: usize) {
    gauges.with_label_values(&[lane]).set(value as i64);
}
