//! Ballista's executor, to which the scheduler pushes tasks.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::ids::new_instance_id;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::protobuf::ExecutorRegistration;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::scheduler::{
    ExecutorOperatingSystemSpecification, ExecutorSpecification,
};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_core::utils::{
    GrpcClientConfig, GrpcServerConfig, create_grpc_client_connection, create_grpc_server,
    create_grpc_server_incoming,
};
use ballista_core::{ConfigProducer, RuntimeProducer};
use ballista_executor::execution_engine::DefaultExecutionEngine;
use ballista_executor::executor::Executor;
use ballista_executor::executor_process::ExecutorProcessConfig;
use ballista_executor::executor_server;
use ballista_executor::flight_service::BallistaFlightService;
use ballista_executor::health::ExecutorHealth;
use ballista_executor::metrics::LoggingMetricsCollector;
use ballista_executor::shutdown::ShutdownNotifier;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion_proto::physical_plan::PhysicalExtensionCodec;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::ClusterError;
use crate::config::{MESSAGE_BYTES, member_config, member_state};
use crate::node::Node;

/// Seconds between two signs of life.
const HEARTBEAT_INTERVAL: u64 = 1;
/// How often a port is chosen anew when somebody else takes it before the executor does.
const PORT_TRIES: usize = 5;
/// How long a stopping executor may take.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What an executor is to be.
#[derive(Clone)]
pub(crate) struct ExecutorPlan {
    /// Where its scheduler listens.
    pub scheduler: SocketAddr,
    /// How many tasks it runs at once.
    pub slots: usize,
    /// Bytes of memory for all its tasks; `None` for no limit.
    pub memory: Option<usize>,
    /// Reads the plans that it is given.
    pub codec: Arc<dyn PhysicalExtensionCodec>,
}

/// An executor that has registered with its scheduler.
pub(crate) struct ExecutorMember {
    shutdown: ShutdownNotifier,
    node: Node,
    /// Where its results lie; removed with it.
    work_dir: TempDir,
}

impl ExecutorMember {
    /// Starts an executor on free ports of this machine.
    pub(crate) async fn start(plan: ExecutorPlan) -> Result<Self, ClusterError> {
        let node = Node::start("executor", 1)?;
        let work_dir = TempDir::with_prefix("meridian-executor-").map_err(failed)?;
        let path = work_dir.path().to_owned();
        let shutdown = node.run(async move { serve(&plan, &path).await }).await?;
        Ok(Self {
            shutdown,
            node,
            work_dir,
        })
    }

    /// Lets the executor's services end, then removes what it wrote.
    pub(crate) async fn stop(self) {
        let ShutdownNotifier {
            notify_shutdown,
            mut shutdown_complete_rx,
            shutdown_complete_tx,
            ..
        } = self.shutdown;
        // Nobody listens if all has ended already.
        let _ = notify_shutdown.send(());
        drop((notify_shutdown, shutdown_complete_tx));
        if tokio::time::timeout(STOP_PATIENCE, shutdown_complete_rx.recv())
            .await
            .is_err()
        {
            tracing::warn!("an executor did not stop in time and was ended");
        }
        drop(self.node);
        if let Err(error) = self.work_dir.close() {
            tracing::warn!(%error, "an executor's temporary directory could not be removed");
        }
    }
}

async fn serve(plan: &ExecutorPlan, work_dir: &Path) -> Result<ShutdownNotifier, ClusterError> {
    let work_dir = work_dir.to_string_lossy().into_owned();
    let flight_port = serve_results(&work_dir)?;
    let runtime = runtime(plan.memory, &work_dir)?;
    let functions: Arc<BallistaFunctionRegistry> =
        Arc::new((&member_state(member_config()).map_err(failed)?).into());
    let mut tries = 0;
    loop {
        tries += 1;
        let port = free_port()?;
        let executor = executor(plan, &work_dir, (flight_port, port), &runtime, &functions);
        match register(plan, executor).await {
            Ok(shutdown) => return Ok(shutdown),
            Err(error) if tries == PORT_TRIES => return Err(error),
            Err(_) => {}
        }
    }
}

/// Serves results to clients and other executors; gives the port.
fn serve_results(work_dir: &str) -> Result<u16, ClusterError> {
    let config = GrpcServerConfig::default();
    let incoming =
        create_grpc_server_incoming((Ipv4Addr::LOCALHOST, 0).into(), &config).map_err(failed)?;
    let port = incoming.local_addr().map_err(failed)?.port();
    let service = FlightServiceServer::new(BallistaFlightService::new(work_dir.to_owned()))
        .max_decoding_message_size(MESSAGE_BYTES as usize)
        .max_encoding_message_size(MESSAGE_BYTES as usize);
    let serving = create_grpc_server(&config)
        .add_service(service)
        .serve_with_incoming(incoming);
    tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "an executor no longer serves its results");
        }
    });
    Ok(port)
}

/// A port that nobody listens on at the moment: the executor's own server can only be told a number.
fn free_port() -> Result<u16, ClusterError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

/// One environment for all tasks of the executor, so that they share its memory.
fn runtime(memory: Option<usize>, work_dir: &str) -> Result<Arc<RuntimeEnv>, ClusterError> {
    let mut runtime = RuntimeEnvBuilder::new().with_temp_file_path(work_dir);
    if let Some(memory) = memory {
        runtime = runtime.with_memory_pool(Arc::new(FairSpillPool::new(memory)));
    }
    runtime.build_arc().map_err(failed)
}

fn executor(
    plan: &ExecutorPlan,
    work_dir: &str,
    (flight_port, port): (u16, u16),
    runtime: &Arc<RuntimeEnv>,
    functions: &Arc<BallistaFunctionRegistry>,
) -> Executor {
    let registration = ExecutorRegistration {
        id: new_instance_id(),
        host: Some(Ipv4Addr::LOCALHOST.to_string()),
        port: flight_port.into(),
        grpc_port: port.into(),
        specification: Some(
            ExecutorSpecification::default()
                .with_vcores(u32::try_from(plan.slots).unwrap_or(u32::MAX))
                .into(),
        ),
        os_info: Some(ExecutorOperatingSystemSpecification::default().into()),
        ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
    };
    let runtime = Arc::clone(runtime);
    let runtimes: RuntimeProducer = Arc::new(move |_| Ok(Arc::clone(&runtime)));
    let configs: ConfigProducer = Arc::new(member_config);
    Executor::new(
        registration,
        work_dir,
        runtimes,
        configs,
        Arc::clone(functions),
        Arc::new(LoggingMetricsCollector::default()),
        plan.slots,
        Arc::new(DefaultExecutionEngine::new()),
    )
}

/// Starts the server that takes tasks, and tells the scheduler of it.
async fn register(
    plan: &ExecutorPlan,
    executor: Executor,
) -> Result<ShutdownNotifier, ClusterError> {
    let config = ExecutorProcessConfig {
        bind_host: Ipv4Addr::LOCALHOST.to_string(),
        executor_heartbeat_interval_seconds: HEARTBEAT_INTERVAL,
        grpc_max_decoding_message_size: MESSAGE_BYTES,
        grpc_max_encoding_message_size: MESSAGE_BYTES,
        ..ExecutorProcessConfig::default()
    };
    let connection = create_grpc_client_connection(
        format!("http://{}", plan.scheduler),
        &GrpcClientConfig::default(),
    )
    .await
    .map_err(failed)?;
    let scheduler = SchedulerGrpcClient::new(connection)
        .max_decoding_message_size(MESSAGE_BYTES as usize)
        .max_encoding_message_size(MESSAGE_BYTES as usize);
    let codec: BallistaCodec<LogicalPlanNode, PhysicalPlanNode> = BallistaCodec::new(
        Arc::new(BallistaLogicalExtensionCodec::default()),
        Arc::clone(&plan.codec),
    );
    let shutdown = ShutdownNotifier::new();
    let (stop, mut stops) = mpsc::channel(1);
    executor_server::startup(
        scheduler,
        Arc::new(config),
        Arc::new(executor),
        codec,
        stop,
        &shutdown,
        ExecutorHealth::new(),
    )
    .await
    .map_err(failed)?;
    let notify = shutdown.notify_shutdown.clone();
    tokio::spawn(async move {
        // The scheduler asks an executor to stop that it has given up.
        while stops.recv().await.is_some() {
            let _ = notify.send(());
        }
    });
    Ok(shutdown)
}

fn failed(error: impl std::fmt::Display) -> ClusterError {
    ClusterError::start("executor", error)
}
