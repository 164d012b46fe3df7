//! How many tasks each executor may still be given.
//!
//! Ballista counts an executor's slots down when it gives out tasks and up when their results arrive. Tasks that it cancels
//! because the stage they belong to has to run again (its input went with a lost executor) are never counted up: an executor
//! with one slot would get no task any more, and the query would wait for ever. Here the count is not kept but taken: what
//! an executor has, less what the jobs at hand say is running on it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use ballista_core::JobId;
use ballista_core::error::Result;
use ballista_core::serde::protobuf::ExecutorHeartbeat;
use ballista_core::serde::scheduler::{ExecutorData, ExecutorMetadata};
use ballista_scheduler::cluster::memory::InMemoryClusterState;
use ballista_scheduler::cluster::{BoundTask, ClusterState, ClusterStateEventStream, ExecutorSlot};
use ballista_scheduler::config::TaskDistributionPolicy;
use ballista_scheduler::state::task_manager::JobInfoCache;
use tokio::sync::{Mutex, watch};

type Jobs = Arc<HashMap<JobId, JobInfoCache>>;

/// The state of the executors, with slots that cannot get lost.
#[derive(Default)]
pub(crate) struct Slots {
    state: InMemoryClusterState,
    executors: Mutex<HashMap<String, Count>>,
    /// How many executors have been lost so far.
    losses: watch::Sender<u64>,
}

/// Slots of one executor.
#[derive(Clone, Copy)]
struct Count {
    /// How many it has.
    all: u32,
    /// How many the state below takes for free.
    free: u32,
}

impl Slots {
    /// Tells of every executor that is lost, before anything is done about it.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }

    /// Makes the state below take for free what is free. It cannot be less than it takes for free already: it is told of
    /// nothing that ends but here.
    async fn count(&self, executors: &mut HashMap<String, Count>, jobs: &Jobs) -> Result<()> {
        let taken = taken(jobs).await;
        let mut freed = Vec::new();
        for (executor, count) in executors.iter_mut() {
            let free = count
                .all
                .saturating_sub(taken.get(executor).copied().unwrap_or(0));
            if free > count.free {
                freed.push((executor.clone(), free - count.free));
                count.free = free;
            }
        }
        self.state.unbind_tasks(freed).await
    }
}

/// Slots that running tasks take, by executor.
async fn taken(jobs: &Jobs) -> HashMap<String, u32> {
    let mut taken: HashMap<String, u32> = HashMap::new();
    for job in jobs.values() {
        let graph = job.execution_graph.read().await;
        for task in graph.running_tasks() {
            let slots = graph.task_vcores(task.stage_id, task.task_id).unwrap_or(1);
            *taken.entry(task.executor_id).or_default() += slots;
        }
    }
    taken
}

#[async_trait]
impl ClusterState for Slots {
    async fn init(&self) -> Result<()> {
        self.state.init().await
    }

    async fn bind_schedulable_tasks(
        &self,
        distribution: TaskDistributionPolicy,
        active_jobs: Jobs,
        executors: Option<HashSet<String>>,
    ) -> Result<Vec<BoundTask>> {
        let mut counts = self.executors.lock().await;
        self.count(&mut counts, &active_jobs).await?;
        let bound = self
            .state
            .bind_schedulable_tasks(distribution, active_jobs, executors)
            .await?;
        for (executor, task) in &bound {
            if let Some(count) = counts.get_mut(executor) {
                count.free = count.free.saturating_sub(task.vcores_consumed);
            }
        }
        Ok(bound)
    }

    /// Nothing to do: what has ended is seen when slots are next given out.
    async fn unbind_tasks(&self, _: Vec<ExecutorSlot>) -> Result<()> {
        Ok(())
    }

    async fn register_executor(
        &self,
        metadata: ExecutorMetadata,
        spec: ExecutorData,
    ) -> Result<()> {
        let (executor, count) = (
            spec.executor_id.clone(),
            Count {
                all: spec.total_vcores,
                free: spec.available_vcores,
            },
        );
        self.state.register_executor(metadata, spec).await?;
        self.executors.lock().await.insert(executor, count);
        Ok(())
    }

    async fn save_executor_metadata(&self, metadata: ExecutorMetadata) -> Result<()> {
        self.state.save_executor_metadata(metadata).await
    }

    async fn get_executor_metadata(&self, executor_id: &str) -> Result<ExecutorMetadata> {
        self.state.get_executor_metadata(executor_id).await
    }

    async fn registered_executor_metadata(&self) -> Vec<ExecutorMetadata> {
        self.state.registered_executor_metadata().await
    }

    async fn save_executor_heartbeat(&self, heartbeat: ExecutorHeartbeat) -> Result<()> {
        self.state.save_executor_heartbeat(heartbeat).await
    }

    async fn remove_executor(&self, executor_id: &str) -> Result<()> {
        self.losses.send_modify(|losses| *losses += 1);
        self.executors.lock().await.remove(executor_id);
        self.state.remove_executor(executor_id).await
    }

    fn executor_heartbeats(&self) -> HashMap<String, ExecutorHeartbeat> {
        self.state.executor_heartbeats()
    }

    fn get_executor_heartbeat(&self, executor_id: &str) -> Option<ExecutorHeartbeat> {
        self.state.get_executor_heartbeat(executor_id)
    }

    async fn cluster_state_events(&self) -> Result<ClusterStateEventStream> {
        self.state.cluster_state_events().await
    }
}
