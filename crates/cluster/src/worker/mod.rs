//! A worker: holds replicas of chunk files, runs pieces of queries on them, and serves them to other workers.

mod bandwidth;
mod disks;
mod fetch;
mod fetch_queue;
mod front_ends;
mod holdings;
mod load_parts;
mod loads;
mod orders;
mod plans;
mod report;
mod scrub;
mod share;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Router, body::Body, middleware};
use catalog::LoadId;
use engine::{Archive, NO_DATABASE, Replicas, Session, SessionOptions};
use queries::scheduler::{LaneTable, PieceScheduler, SchedulerOptions};
use sky::ChunkId;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use crate::ClusterError;
use crate::client::MemberClient;
use crate::credentials::{CredentialFiles, Credentials, only, require_member};
use crate::file_service::serve;
use crate::listen::{bind, serve as serve_port};
use crate::scrubs::Scrubs;
use crate::shuffle::{self, BucketFetcher, KeptShuffles};
use crate::tls::{MemberName, Role, in_words};
use disks::Disks;
use front_ends::FrontEnds;
use holdings::HeldFiles;

/// The stack of a thread that runs pieces: plans are as deep here as at the front end.
const STACK: usize = 32 << 20;

/// The configuration of a worker.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The directories of its replicas, each on a disk of its own.
    pub data: Vec<PathBuf>,
    /// Those of the replicas of users' own tables, if these shall be on disks of their own.
    pub user_data: Vec<PathBuf>,
    /// Where all front ends listen, `host:port` each.
    pub join: Vec<String>,
    /// Where it listens: `host:port`; port 0 takes a free port.
    pub address: String,
    /// The address that others are told; the one where it listens by default.
    pub advertise: Option<String>,
    /// Its name, which it keeps for life.
    pub name: String,
    /// What makes it a member.
    pub credentials: CredentialFiles,
    /// Threads that run pieces.
    pub threads: NonZeroUsize,
    /// Bytes of memory for all pieces together.
    pub memory: usize,
    /// Bytes of disk for what all pieces together spill; 100 GiB by default.
    pub spilled: Option<u64>,
    /// Bytes of decoded columns that are kept for later pieces.
    pub cache: u64,
    /// Percent of the disk that may be in use, by whomever, before it takes no more files.
    pub disk_limit: u8,
    /// Bytes a second with which replicas are copied; none for as fast as they come.
    pub repair_bandwidth: Option<u64>,
    /// The directories from which it loads files.
    pub load_from: Vec<PathBuf>,
    /// Whether the address may be one that other machines reach, though what members say is not encrypted, which it is in TLS.
    pub is_insecure: bool,
}

/// A worker that listens.
#[derive(Debug)]
pub struct Worker {
    pub(crate) name: String,
    /// The address that others are told.
    pub(crate) address: String,
    /// A number of this process.
    pub(crate) process: u64,
    pub(crate) options: WorkerOptions,
    pub(crate) held: Arc<HeldFiles>,
    pub(crate) session: Session,
    pub(crate) scheduler: Arc<PieceScheduler>,
    pub(crate) pieces: AtomicU64,
    pub(crate) shares: AtomicU64,
    /// Counts the reports to all front ends.
    reports: AtomicU64,
    orders: orders::Orders,
    scrubs: Scrubs,
    loads: loads::Loads,
    /// The rows of pieces that it keeps for shuffles.
    shuffles: KeptShuffles,
    /// The threads that run pieces; ends when the worker does, without waiting for them.
    compute: Option<Runtime>,
    bound: SocketAddr,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(compute) = self.compute.take() {
            compute.shutdown_background();
        }
    }
}

impl Worker {
    /// Opens the directory and binds the address.
    ///
    /// # Errors
    /// The credentials or the directory cannot be read, another worker uses the directory, or the address cannot be bound.
    pub async fn bind(options: WorkerOptions) -> Result<(Arc<Self>, TcpListener), ClusterError> {
        let credentials = Credentials::read(&options.credentials, &[Role::Worker])?;
        check_name(&credentials, &options)?;
        let may_be_reached = options.is_insecure || credentials.is_encrypted();
        let listener = bind(&options.address, may_be_reached).await?;
        let failed = |why: std::io::Error| ClusterError::Listen {
            address: options.address.clone(),
            why: why.to_string(),
        };
        let bound = listener.local_addr().map_err(failed)?;
        if bound.ip().is_unspecified() && options.advertise.is_none() {
            let why = "others cannot connect to it under this address: say with --advertise under which they can";
            return Err(failed(std::io::Error::other(why)));
        }
        let client = Arc::new(MemberClient::new(credentials));
        let disks = Disks::open(&options.data, &options.user_data)?;
        let replicas = disks.home().to_owned();
        let loads = loads::Loads::open(&replicas, &options.load_from)?;
        let held = HeldFiles::open(
            disks,
            options.name.clone(),
            FrontEnds::new(&options.join),
            client,
            options.repair_bandwidth,
        )?;
        let files = Arc::clone(&held) as Arc<dyn Replicas>;
        let archive = Archive::open_replicas(&replicas, options.cache, files).await?;
        held.close_files_of(&archive);
        engine::bound_memory(&archive, options.memory);
        let session_options = SessionOptions {
            database: Some(NO_DATABASE.to_owned()),
            cores: Some(options.threads),
            runtime: Some(engine::runtime(Some(options.memory), options.spilled)?),
            bucket_reader: Some(Arc::new(BucketFetcher::new(Arc::clone(held.client())))),
            ..SessionOptions::default()
        };
        let compute = Builder::new_multi_thread()
            .worker_threads(options.threads.get())
            .thread_name("meridian-piece")
            .thread_stack_size(STACK)
            .enable_all()
            .build()
            .map_err(failed)?;
        let worker = Self {
            name: options.name.clone(),
            address: options
                .advertise
                .clone()
                .unwrap_or_else(|| bound.to_string()),
            process: crate::random()?,
            session: Session::new(archive, &session_options).await?,
            scheduler: PieceScheduler::new(SchedulerOptions {
                threads: options.threads.get(),
                interactive_threads: options.threads.get(),
                memory_bytes: options.memory as u64,
                lanes: LaneTable::default(),
            }),
            held,
            pieces: AtomicU64::new(0),
            shares: AtomicU64::new(0),
            reports: AtomicU64::new(1),
            orders: orders::Orders::default(),
            scrubs: Scrubs::default(),
            loads,
            shuffles: KeptShuffles::default(),
            compute: Some(compute),
            bound,
            options,
        };
        Ok((Arc::new(worker), listener))
    }

    /// Where it listens.
    pub fn bound_address(&self) -> SocketAddr {
        self.bound
    }

    /// Joins the cluster, and runs pieces until it is stopped. Shares that run are then cut off, and run elsewhere; front ends are told.
    ///
    /// # Errors
    /// The disk that is its home has failed: it finds another one when it starts again.
    pub async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> Result<(), ClusterError> {
        let router = router(Arc::clone(&self));
        let outcome = tokio::select! {
            () = serve_port(listener, router, self.held.client().credentials(), stop) => Ok(()),
            () = report::keep_reporting(&self) => Ok(()),
            () = report::keep_fetching(&self) => Ok(()),
            () = scrub::keep_scrubbing(&self) => Ok(()),
            () = scrub::run_scrubs(&self) => Ok(()),
            () = loads::keep_ending(&self) => Ok(()),
            failure = report::keep_checking_disks(&self) => Err(failure),
        };
        report::tell_end(&self).await;
        outcome
    }

    fn compute(&self) -> Option<&Runtime> {
        self.compute.as_ref()
    }

    fn count_piece(&self) {
        self.pieces.fetch_add(1, Relaxed);
    }
}

/// In TLS a worker has the name that its certificate says.
fn check_name(credentials: &Credentials, options: &WorkerOptions) -> Result<(), ClusterError> {
    let Credentials::Tls(certificates) = credentials else {
        return Ok(());
    };
    let names = certificates.names();
    let is_it = |it: &MemberName| it.role == Role::Worker && it.name == options.name;
    match (names.iter().any(is_it), &options.credentials) {
        (false, CredentialFiles::Tls(dir)) => Err(ClusterError::Certificates {
            dir: dir.clone(),
            why: format!(
                "the certificate is that of {}, and --name says {:?}: leave --name out",
                in_words(&names),
                options.name
            ),
        }),
        _ => Ok(()),
    }
}

fn router(worker: Arc<Worker>) -> Router {
    let credentials = worker.held.client().credentials().clone();
    let front_ends = &[Role::FrontEnd];
    let readers = &[Role::Worker, Role::FrontEnd];
    Router::new()
        .route("/shares", only(front_ends, post(share::run)))
        .route("/parts/{part}/files/{chunk}", only(readers, get(file)))
        .route("/shuffles/bucket", only(readers, post(bucket)))
        .route("/shuffles/missing", only(front_ends, post(missing)))
        .route(
            "/scrub",
            only(front_ends, post(scrub::begin).get(scrub::latest)),
        )
        .route(
            "/loads/{number}",
            only(
                front_ends,
                post(loads::begin).get(loads::state).delete(loads::end),
            ),
        )
        .route(
            "/loads/{number}/runs/{run}",
            only(front_ends, post(loads::take_run)),
        )
        .route(
            "/loads/{number}/files/{name}",
            only(front_ends, get(loads::file)),
        )
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(credentials, require_member))
        .with_state(worker)
}

/// The rows of a bucket that it keeps.
async fn bucket(
    State(worker): State<Arc<Worker>>,
    request: Request,
) -> Result<Response<Body>, (StatusCode, String)> {
    shuffle::bucket(&worker.shuffles, request).await
}

/// Which rows it does not keep any more.
async fn missing(
    State(worker): State<Arc<Worker>>,
    request: Request,
) -> Result<Response<Body>, (StatusCode, String)> {
    shuffle::missing(&worker.shuffles, request).await
}

/// A chunk file that it holds.
async fn file(
    State(worker): State<Arc<Worker>>,
    Path((part, chunk)): Path<(i64, i32)>,
    request: Request,
) -> Response<Body> {
    match worker.held.path(LoadId(part), ChunkId(chunk)) {
        Some(path) => serve(&path, request).await,
        None => {
            let why = format!("file {chunk} of part {part} is not here");
            (StatusCode::NOT_FOUND, why).into_response()
        }
    }
}
