//! `meridian worker`: a worker of a cluster, until a signal ends it.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use cluster::{CredentialFiles, Role, Worker, WorkerOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::cluster_credentials::CredentialArguments;
use crate::console::tell;
use crate::failure::Failure;
use crate::serve::{self, DEFAULT_LOG};
use crate::temporary::{TemporaryFolder, half_of_free, within};

/// Threads for the network, which only hand on what others compute.
const NETWORK_THREADS: usize = 2;

/// A worker of a cluster.
#[derive(Args)]
pub struct WorkerArguments {
    /// Where front ends listen for members, separated by commas: all that share the worker.
    #[arg(
        long,
        value_name = "ADDR",
        env = "MERIDIAN_JOIN",
        value_delimiter = ',',
        value_parser = member_address,
        required = true
    )]
    join: Vec<String>,
    /// The directory for replicas, which is made if it is not there; each worker has its own. Given several times, one for each disk, a disk
    /// that fails costs its own replicas alone.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA", required = true)]
    data: Vec<PathBuf>,
    /// A directory, on a disk of its own, for replicas of users' own tables: they are then in none of --data, and nothing else is here. Given
    /// several times, one for each disk.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_USER_DATA")]
    user_data: Vec<PathBuf>,
    #[command(flatten)]
    credentials: CredentialArguments,
    /// Where front ends and other workers connect; port 0 takes a free port.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: String,
    /// The address that others are told, if it is another than that of --listen.
    #[arg(long, value_name = "ADDR")]
    advertise: Option<String>,
    /// The worker's name, which it has to keep: it decides which files it holds. That of its certificate by default, and with a secret the
    /// name of this machine with that of the directory.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Threads that run pieces; one for each core by default.
    #[arg(long, value_name = "N", env = "MERIDIAN_THREADS")]
    threads: Option<NonZeroUsize>,
    /// Memory for all pieces together, such as 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size, env = "MERIDIAN_MEMORY")]
    memory: Option<u64>,
    /// Where temporary files are written, as what sorts and groups spill; by default the folder tmp of the first directory of replicas.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_TEMP_DIR")]
    temp_dir: Option<PathBuf>,
    /// Bytes that all pieces together may spill there, such as 200G; by default half of what is free at the start.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size, env = "MERIDIAN_TEMP_SIZE")]
    temp_size: Option<u64>,
    /// Memory for decoded columns, kept for the next pieces, such as 2G, or 0 for none; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = crate::sql::cache_size, env = "MERIDIAN_CACHE")]
    cache: Option<u64>,
    /// Percent of its disk that may be in use, by whomever, before the worker takes no more files.
    #[arg(long, value_name = "PERCENT", default_value_t = cluster::DISK_LIMIT, value_parser = clap::value_parser!(u8).range(1..=100), env = "MERIDIAN_DISK_LIMIT")]
    disk_limit: u8,
    /// Bytes a second with which replicas are copied from other members, such as 100M, 1M at least; as fast as they come by default.
    #[arg(long, value_name = "SIZE", value_parser = bandwidth, env = "MERIDIAN_REPAIR_BANDWIDTH")]
    repair_bandwidth: Option<u64>,
    /// A directory from which the worker loads files that `meridian load --cluster` names, with all below it; may be given several times.
    /// Without it the worker loads from URLs alone.
    #[arg(long, value_name = "DIR")]
    load_from: Vec<PathBuf>,
    /// Listen where other machines connect, too, without TLS: only where the network is trusted.
    #[arg(long)]
    insecure: bool,
    /// The level of the log on standard error: error, warn, info, debug or trace; or directives as in RUST_LOG.
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", default_value = DEFAULT_LOG)]
    log: String,
}

/// Runs the worker.
pub fn run(arguments: WorkerArguments) -> Result<(), Failure> {
    let filter = serve::log_filter(&arguments.log).map_err(Failure::new)?;
    serve::log_to_stderr(filter);
    let temp_dir = arguments.temp_dir.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(NETWORK_THREADS)
        .thread_name("meridian-net")
        .enable_all()
        .build()?;
    let options = arguments.into_options()?;
    let outcome = runtime.block_on(work(options, temp_dir));
    // Pieces that still run are of no use to anybody.
    runtime.shutdown_background();
    outcome
}

async fn work(mut options: WorkerOptions, temp_dir: Option<PathBuf>) -> Result<(), Failure> {
    // Before anything else, so that nothing that has begun is cut off.
    let signals = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let listed = |dirs: &[PathBuf]| {
        let dirs = dirs.iter().map(|it| it.display().to_string());
        dirs.collect::<Vec<String>>().join(", ")
    };
    let mut data = listed(&options.data);
    if !options.user_data.is_empty() {
        data += &format!(" and of users' tables in {}", listed(&options.user_data));
    }
    let name = options.name.clone();
    let join = options.join.join(", ");
    let temp_dirs = match temp_dir {
        Some(dir) => vec![dir],
        None => options.data.iter().map(|dir| within(dir)).collect(),
    };
    let first = temp_dirs.first();
    options.spilled = options.spilled.or_else(|| half_of_free(first?));
    let (worker, listener) = Worker::bind(options).await?;
    let _temporary = of_first_usable(&temp_dirs)?;
    let address = worker.bound_address();
    tell(&format!(
        "Meridian {} worker {name} listens at {address}, holds its replicas in {data}, and joins the cluster at {join}\n",
        env!("CARGO_PKG_VERSION")
    ))?;
    info!(version = env!("CARGO_PKG_VERSION"), name, data, address = %address, "started");
    let stop = CancellationToken::new();
    crate::parent::end_with_parent(&stop);
    tokio::spawn(serve::stop_at_signals(signals, stop.clone()));
    Arc::clone(&worker).run(listener, stop).await?;
    info!("ended");
    Ok(())
}

impl WorkerArguments {
    fn into_options(self) -> Result<WorkerOptions, Failure> {
        if let Some(twice) = self.user_data.iter().find(|dir| self.data.contains(dir)) {
            let sentence = format!(
                "{} is given with --data and with --user-data: users' own tables are in directories of their own",
                twice.display()
            );
            return Err(Failure::new(sentence));
        }
        let cores = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let credentials = self.credentials.files()?;
        let name = match (self.name, &credentials) {
            (Some(name), _) => name,
            (None, CredentialFiles::Tls(dir)) => cluster::certified_name(dir, Role::Worker)?,
            (None, CredentialFiles::Secret(_)) => {
                usual_name(self.data.first().map_or(Path::new("."), PathBuf::as_path))?
            }
        };
        let is_name = !name.is_empty() && name.len() <= 100 && !name.contains(char::is_control);
        if !is_name {
            let sentence = format!("{name:?} is no name of a worker: give 1 to 100 characters");
            return Err(Failure::new(sentence));
        }
        Ok(WorkerOptions {
            data: self.data,
            user_data: self.user_data,
            join: self.join,
            address: self.listen,
            advertise: self.advertise,
            name,
            credentials,
            threads: self.threads.unwrap_or_else(cores),
            memory: self.memory.unwrap_or_else(ingest::default_memory) as usize,
            spilled: self.temp_size,
            cache: self.cache.unwrap_or_else(crate::sql::default_cache),
            disk_limit: self.disk_limit,
            repair_bandwidth: self.repair_bandwidth,
            load_from: self.load_from,
            is_insecure: self.insecure,
        })
    }
}

/// The folder for temporary files, in the first of some directories that takes it.
fn of_first_usable(directories: &[PathBuf]) -> Result<TemporaryFolder, Failure> {
    let mut failure = Failure::new("no directory was given");
    for directory in directories {
        match TemporaryFolder::make(directory) {
            Ok(folder) => return Ok(folder),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// Where a member of a cluster listens, as `host:port`.
pub(crate) fn member_address(text: &str) -> Result<String, String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|it| it > 0) => {
            Ok(text.to_owned())
        }
        _ => Err("it is no address of a front end: write it as in 127.0.0.1:7600".to_owned()),
    }
}

/// Less than this would have members give up what they send each other.
const LEAST_BANDWIDTH: u64 = 1_000_000;

/// Bytes a second.
fn bandwidth(text: &str) -> Result<u64, String> {
    match ingest::parse_size(text)? {
        bytes if bytes >= LEAST_BANDWIDTH => Ok(bytes),
        _ => Err("it is too little for files of chunks: give 1M or more bytes a second".to_owned()),
    }
}

/// The name of this machine with that of the directory.
fn usual_name(data: &Path) -> Result<String, Failure> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let machine = machine.map_err(|error| {
        Failure::new(format!(
            "the name of this machine is not known ({error}): give --name"
        ))
    })?;
    let data = std::path::absolute(data)?;
    let directory = data.file_name().unwrap_or_default().to_string_lossy();
    Ok(format!("{}:{directory}", machine.trim()))
}
