//! Ballista's scheduler on a port of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ballista_core::config::TaskSchedulingPolicy;
use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::cluster::memory::InMemoryJobState;
use ballista_scheduler::config::SchedulerConfig;
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use ballista_scheduler::scheduler_server::SchedulerServer;
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;

use crate::ClusterError;
use crate::config::{MESSAGE_BYTES, member_config, member_state};
use crate::node::Node;
use crate::slots::Slots;

/// Seconds without a sign of life after which an executor counts as lost.
const EXECUTOR_TIMEOUT: u64 = 5;
/// Seconds between two looks for lost executors.
const EXPIRY_INTERVAL: u64 = 1;
/// Seconds for which the results of a finished query wait to be fetched.
const RESULT_LIFETIME: u64 = 300;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;

type Server = SchedulerServer<LogicalPlanNode, PhysicalPlanNode>;

/// A scheduler that pushes tasks to its executors.
pub(crate) struct Scheduler {
    address: SocketAddr,
    server: Server,
    slots: Arc<Slots>,
    node: Node,
}

impl Scheduler {
    /// Starts one on a free port of this machine.
    pub(crate) async fn start(
        codec: Arc<dyn PhysicalExtensionCodec>,
    ) -> Result<Arc<Self>, ClusterError> {
        let node = Node::start("scheduler", 1)?;
        let slots = Arc::new(Slots::default());
        let (address, server) = node.run(serve(codec, Arc::clone(&slots))).await?;
        Ok(Arc::new(Self {
            address,
            server,
            slots,
            node,
        }))
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as clients need it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Tells of every executor that is lost.
    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.slots.losses()
    }

    /// Ends the jobs of this name, without waiting for it.
    pub(crate) fn cancel(&self, job_name: String) {
        let server = self.server.clone();
        self.node.spawn(async move {
            let jobs = server.state.task_manager.get_running_jobs().await.unwrap_or_default();
            for job in jobs.into_iter().filter(|job| job.job_name == job_name) {
                if let Err(error) = server.cancel_job(job.job_id).await {
                    tracing::warn!(job = job_name, %error, "a query that nobody waits for could not be cancelled");
                }
            }
        });
    }
}

async fn serve(
    codec: Arc<dyn PhysicalExtensionCodec>,
    slots: Arc<Slots>,
) -> Result<(SocketAddr, Server), ClusterError> {
    let failed = |error: &dyn std::fmt::Display| ClusterError::start("scheduler", error);
    let listener = listen().map_err(|error| failed(&error))?;
    let address = listener.local_addr().map_err(|error| failed(&error))?;
    let config = config(address, codec);
    let jobs = InMemoryJobState::new(
        config.scheduler_id.clone(),
        Arc::new(member_state),
        Arc::new(member_config),
    );
    let cluster = BallistaCluster::new(slots, Arc::new(jobs));
    let server: Server = create_scheduler(cluster, Arc::new(config))
        .await
        .map_err(|error| failed(&error))?;
    let serving = server.clone();
    tokio::spawn(async move {
        if let Err(error) = start_grpc_service_with_listener(listener, serving).await {
            tracing::error!(%error, "the scheduler no longer listens");
        }
    });
    Ok((address, server))
}

/// A listening socket whose connections send at once: they take this over from the socket that listens. Otherwise each
/// answer waits for the acknowledgement of the one before, which the other side delays by 40 ms.
fn listen() -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_nodelay(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(BACKLOG)
}

fn config(address: SocketAddr, codec: Arc<dyn PhysicalExtensionCodec>) -> SchedulerConfig {
    SchedulerConfig {
        scheduling_policy: TaskSchedulingPolicy::PushStaged,
        bind_host: address.ip().to_string(),
        external_host: address.ip().to_string(),
        bind_port: address.port(),
        override_physical_codec: Some(codec),
        grpc_server_max_decoding_message_size: MESSAGE_BYTES,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES,
        grpc_client_max_message_size: MESSAGE_BYTES,
        executor_timeout_seconds: EXECUTOR_TIMEOUT,
        expire_dead_executor_interval_seconds: EXPIRY_INTERVAL,
        no_executors_grace_period_seconds: EXECUTOR_TIMEOUT,
        finished_job_data_clean_up_interval_seconds: RESULT_LIFETIME,
        finished_job_state_clean_up_interval_seconds: RESULT_LIFETIME,
        // A stage whose input cannot be fetched is not run again by itself: the session asks anew.
        stage_max_failures: 1,
        ..SchedulerConfig::default()
    }
}
