//! A whole cluster in this process.

use std::sync::Arc;

use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use engine::{Archive, PlanCodec, SessionOptions};

use crate::executor::{ExecutorMember, ExecutorPlan};
use crate::scheduler::Scheduler;
use crate::{ClusterError, ClusterSession};

/// How large a cluster is.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// How many executors, at least one.
    pub executors: usize,
    /// How many tasks each of them runs at once, at least one.
    pub slots: usize,
    /// Bytes of memory for the tasks of each executor; by default unlimited.
    pub memory: Option<usize>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            executors: 2,
            slots: 1,
            memory: None,
        }
    }
}

/// A scheduler and executors on ports of this machine that the system chose. They end when it is dropped.
pub struct LocalCluster {
    archive: Arc<Archive>,
    codec: Arc<dyn PhysicalExtensionCodec>,
    scheduler: Arc<Scheduler>,
    executors: Vec<ExecutorMember>,
    /// Tasks that run at once on all executors together, when all are there.
    slots: usize,
}

impl std::fmt::Debug for LocalCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "LocalCluster({}, {} executors)",
            self.scheduler.url(),
            self.executors.len()
        )
    }
}

impl LocalCluster {
    /// Starts a cluster that answers questions of an archive.
    pub async fn start(
        archive: Arc<Archive>,
        options: &ClusterOptions,
    ) -> Result<Self, ClusterError> {
        let codec: Arc<dyn PhysicalExtensionCodec> = Arc::new(
            PlanCodec::new(Arc::clone(&archive))
                .with_others(Arc::new(BallistaPhysicalExtensionCodec::default())),
        );
        let scheduler = Scheduler::start(Arc::clone(&codec)).await?;
        let slots = options.slots.max(1);
        let plan = ExecutorPlan {
            scheduler: scheduler.address(),
            slots,
            memory: options.memory,
            codec: Arc::clone(&codec),
        };
        let mut executors = Vec::with_capacity(options.executors.max(1));
        for _ in 0..options.executors.max(1) {
            executors.push(ExecutorMember::start(plan.clone()).await?);
        }
        let slots = slots * executors.len();
        Ok(Self {
            archive,
            codec,
            scheduler,
            executors,
            slots,
        })
    }

    /// A session whose questions the cluster answers. Of the options only the database counts: cores and memory are the
    /// executors'.
    pub async fn session(&self, options: &SessionOptions) -> Result<ClusterSession, ClusterError> {
        let (archive, codec) = (Arc::clone(&self.archive), Arc::clone(&self.codec));
        ClusterSession::new(
            archive,
            codec,
            Arc::clone(&self.scheduler),
            self.slots,
            options,
        )
        .await
    }

    /// How many executors there are.
    pub fn executors(&self) -> usize {
        self.executors.len()
    }

    /// Ends an executor at once and without a word, as when its machine fails; says whether there was one left.
    pub fn lose_executor(&mut self) -> bool {
        self.executors.pop().is_some()
    }

    /// Ends all members in order and removes what they wrote.
    pub async fn stop(self) {
        for executor in self.executors {
            executor.stop().await;
        }
    }
}
