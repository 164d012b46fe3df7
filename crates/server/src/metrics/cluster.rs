//! The metrics of the cluster whose front end the server is.

use std::fmt;
use std::sync::Arc;

use cluster::FrontEnd;
use cluster::messages::WorkerStatus;
use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

use super::registered;

/// The states that workers have.
const STATES: [&str; 5] = ["live", "draining", "drained", "silent", "lost"];

/// The metrics that tell of workers and replicas, whenever somebody reads them.
pub(super) struct ClusterMetrics {
    front_end: Arc<FrontEnd>,
    workers: IntGaugeVec,
    pieces: IntGaugeVec,
    shares: IntGaugeVec,
    plans: IntGaugeVec,
    missing: IntGauge,
    missing_bytes: IntGauge,
    unheld: IntGauge,
    front_end_bytes: IntGauge,
    worker_bytes: IntGauge,
    away: IntGauge,
    away_bytes: IntGauge,
    single: IntGauge,
    lost: IntGauge,
    damaged: IntGauge,
    leads: IntGauge,
    remote_pieces: IntGauge,
}

impl fmt::Debug for ClusterMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterMetrics").finish_non_exhaustive()
    }
}

impl ClusterMetrics {
    pub(super) fn register(
        registry: &Registry,
        front_end: Arc<FrontEnd>,
    ) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| registered(registry, IntGauge::new(name, help)?);
        let by = |label: &str, name: &str, help: &str| {
            registered(registry, IntGaugeVec::new(Opts::new(name, help), &[label])?)
        };
        Ok(Self {
            front_end,
            workers: by(
                "state",
                "meridian_cluster_workers",
                "Workers of the cluster, by state.",
            )?,
            pieces: by(
                "worker",
                "meridian_cluster_worker_pieces",
                "Pieces that a worker has run since it started.",
            )?,
            shares: by(
                "worker",
                "meridian_cluster_worker_shares",
                "Shares of pieces that a worker has got since it started.",
            )?,
            plans: by(
                "worker",
                "meridian_cluster_worker_plans_decoded",
                "Plans that a worker has decoded since it started: one for all shares of a phase.",
            )?,
            missing: gauge(
                "meridian_cluster_missing_replicas",
                "Replicas of chunk files that lack.",
            )?,
            missing_bytes: gauge(
                "meridian_cluster_missing_replica_bytes",
                "Bytes of the replicas that lack.",
            )?,
            unheld: gauge(
                "meridian_cluster_files_without_replica",
                "Chunk files that the front end alone has.",
            )?,
            front_end_bytes: gauge(
                "meridian_cluster_front_end_file_bytes",
                "Bytes of the chunk files that the front end has itself.",
            )?,
            worker_bytes: gauge(
                "meridian_cluster_worker_file_bytes",
                "Bytes of all replicas at workers.",
            )?,
            away: gauge(
                "meridian_cluster_files_at_workers_alone",
                "Chunk files that the front end has given up.",
            )?,
            away_bytes: gauge(
                "meridian_cluster_bytes_at_workers_alone",
                "Bytes of the chunk files that the front end has given up.",
            )?,
            single: gauge(
                "meridian_cluster_files_with_one_copy",
                "Chunk files that one worker alone has.",
            )?,
            lost: gauge(
                "meridian_cluster_files_lost",
                "Chunk files that neither the front end nor a worker has that can be reached.",
            )?,
            damaged: gauge(
                "meridian_cluster_front_end_files_damaged",
                "Chunk files of the front end that are damaged, and that no worker has given anew yet.",
            )?,
            leads: gauge(
                "meridian_cluster_leads",
                "Whether this front end decides what the workers hold (1) or another one does (0).",
            )?,
            remote_pieces: gauge(
                "meridian_cluster_remote_pieces",
                "Pieces of this front end's queries that workers have run since it started.",
            )?,
        })
    }

    pub(super) fn look(&self) {
        let status = self.front_end.status();
        for state in STATES {
            let count = status.workers.iter().filter(|it| it.state == state);
            let gauge = self.workers.with_label_values(&[state]);
            gauge.set(count.count() as i64);
        }
        // Workers that are forgotten are not told of any more.
        for (gauges, count) in [
            (&self.pieces, (|it| it.pieces) as fn(&WorkerStatus) -> u64),
            (&self.shares, |it| it.shares),
            (&self.plans, |it| it.plans_decoded),
        ] {
            gauges.reset();
            for worker in &status.workers {
                let gauge = gauges.with_label_values(&[worker.name.as_str()]);
                gauge.set(count(worker) as i64);
            }
        }
        self.missing.set(status.missing_replicas as i64);
        self.missing_bytes.set(status.missing_bytes as i64);
        for (gauge, value) in [
            (&self.unheld, status.files_without_replica),
            (&self.front_end_bytes, status.front_end_bytes),
            (&self.worker_bytes, status.worker_bytes),
            (&self.away, status.away_files),
            (&self.away_bytes, status.away_bytes),
            (&self.single, status.single_copy_files),
            (&self.lost, status.lost_files),
            (&self.damaged, status.damaged_files),
            (&self.leads, u64::from(status.leads)),
            (&self.remote_pieces, status.remote_pieces),
        ] {
            gauge.set(value as i64);
        }
    }
}
