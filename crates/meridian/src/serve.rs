//! `meridian serve`: answers the clients of MySQL, and cone searches over HTTP, until it is told to end.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use server::{Config, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::failure::Failure;
use crate::sql::cache_size;

/// Threads for the network, which only hand on what others compute.
const NETWORK_THREADS: usize = 2;
/// Statements that take longer are logged with their text.
const SLOW: Duration = Duration::from_secs(10);
/// What is logged unless somebody wants more.
const USUAL_LOG: &str = "warn,meridian=info,meridian_server=info";
/// In the place of an address: that door stays shut.
const OFF: &str = "off";
/// The radius in degrees of the cone that is given as an example.
const EXAMPLE_RADIUS: f64 = 0.01;
/// Exit status after a second Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

/// Answers the clients of MySQL, which connect as to any MySQL server, and cone searches over HTTP.
///
/// Listens on this machine alone: there are no users yet, and whoever connects is let in. Ctrl-C or SIGTERM ends it when the
/// statements that run are done, a second one at once.
#[derive(Args)]
pub struct ServeArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// Where clients of MySQL connect; port 0 takes a free one, `off` none.
    #[arg(
        long,
        value_name = "ADDR",
        env = "MERIDIAN_MYSQL",
        default_value = "127.0.0.1:4040"
    )]
    mysql: String,
    /// Where clients of HTTP connect, for cone searches; port 0 takes a free one, `off` none.
    #[arg(
        long,
        value_name = "ADDR",
        env = "MERIDIAN_HTTP",
        default_value = "127.0.0.1:8080"
    )]
    http: String,
    /// Processor cores to use; all by default.
    #[arg(long, value_name = "N", env = "MERIDIAN_THREADS")]
    threads: Option<NonZeroUsize>,
    /// Memory for the sorts, groups and joins of all statements together, for example 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", env = "MERIDIAN_MEMORY", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// Memory for decoded columns, kept for the next statements, for example 2G, or 0 for none; a quarter of the machine's by
    /// default.
    #[arg(long, value_name = "SIZE", env = "MERIDIAN_CACHE", value_parser = cache_size)]
    cache: Option<u64>,
    /// Connections at once.
    #[arg(
        long,
        value_name = "N",
        env = "MERIDIAN_MAX_CONNECTIONS",
        default_value = "500"
    )]
    max_connections: NonZeroUsize,
    /// Seconds that statements may go on when the server is to end.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "MERIDIAN_GRACE",
        default_value_t = 30
    )]
    grace: u64,
    /// What is logged on standard error: error, warn, info, debug or trace, or more finely as RUST_LOG has it.
    #[arg(long, value_name = "LEVEL", env = "RUST_LOG", default_value = USUAL_LOG)]
    log: String,
}

/// Runs the command.
pub fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(&arguments.log)
        .map_err(|error| Failure::new(format!("--log {}: {error}", arguments.log)))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(NETWORK_THREADS)
        .thread_name("meridian-net")
        .enable_all()
        .build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: ServeArguments) -> Result<(), Failure> {
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let cache = arguments.cache;
    // Before anything else, so that nothing that has begun is cut off.
    let signals = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let server = Server::bind(Config {
        data: arguments.data.clone(),
        mysql: door(arguments.mysql),
        http: door(arguments.http),
        cone_columns: HashMap::new(),
        threads: arguments.threads.unwrap_or(cores),
        memory: arguments.memory.unwrap_or_else(ingest::default_memory) as usize,
        cache: cache.unwrap_or_else(|| ingest::machine_memory() / 4),
        max_connections: arguments.max_connections.get(),
        grace: Duration::from_secs(arguments.grace),
        slow: Some(SLOW),
    })
    .await?;
    announce(&arguments.data.display().to_string(), &server).await?;
    let stop = CancellationToken::new();
    tokio::spawn(stop_at_signals(signals, stop.clone()));
    server.serve(stop).await;
    Ok(())
}

/// Cancels at the first signal and leaves at the second.
async fn stop_at_signals(
    (mut interrupt, mut terminate): (Signal, Signal),
    stop: CancellationToken,
) {
    for first in [true, false] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if !first {
            tracing::warn!("ended at once");
            std::process::exit(INTERRUPTED);
        }
        stop.cancel();
    }
}

/// Says what is served and where, and how to get there.
#[expect(
    clippy::print_stdout,
    reason = "where the server is has to be known to whoever started it"
)]
async fn announce(data: &str, server: &Server) -> Result<(), Failure> {
    let databases = server.databases().await?;
    let of = match databases.len() {
        0 => format!("nothing yet of {data}: load something with `meridian load`"),
        1 => format!("the database {} of {data}", databases.join("")),
        _ => format!("the databases {} of {data}", databases.join(", ")),
    };
    println!("Meridian {} serves {of}", env!("CARGO_PKG_VERSION"));
    if let Some(address) = server.mysql_address() {
        let chosen = databases.first().map(|name| format!(" {name}"));
        let (host, port, chosen) = (address.ip(), address.port(), chosen.unwrap_or_default());
        println!("MySQL clients connect to {address}, as with");
        println!("  mysql -h {host} -P {port}{chosen}");
    }
    if let Some(address) = server.http_address() {
        println!("HTTP clients connect to http://{address}, as with");
        match server.example_cone().await? {
            Some((database, table, [ra, dec])) => println!(
                "  curl 'http://{address}/scs/{database}/{table}?RA={ra:.4}&DEC={dec:.4}&SR={EXAMPLE_RADIUS}&RESPONSEFORMAT=csv'"
            ),
            None => println!("  curl http://{address}/"),
        }
    }
    Ok(())
}

/// Where a door is; none where it is off.
fn door(address: String) -> Option<String> {
    (address != OFF).then_some(address)
}
