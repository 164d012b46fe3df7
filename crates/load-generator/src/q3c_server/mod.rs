//! `q3c-server`: what Meridian's cone searches are measured beside, the least that a PostgreSQL with q3c needs to answer them over
//! HTTP.
//!
//! It is meant to be as quick as such a server can be: prepared statements over a Unix socket, numbers in PostgreSQL's binary
//! format, which are BINARY2's own, handed on as they come, the frame of the response made once.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use pool::{Cluster, Pool};
use service::Service;

mod columns;
mod cone_query;
mod pool;
mod service;

/// Why the peer cannot serve, or cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// PostgreSQL's own words, which its driver keeps apart.
    #[error("PostgreSQL: {}", .0.as_db_error().map_or_else(|| .0.to_string(), |error| error.message().to_owned()))]
    Postgres(#[from] tokio_postgres::Error),
    /// A name that would have to be quoted.
    #[error("{0:?} is no plain name: give letters, digits and underscores")]
    NoName(String),
    /// A column that this server cannot send.
    #[error("the column {column} is of type {kind}: name columns of numbers alone with --columns")]
    NoNumber {
        /// Its name.
        column: String,
        /// PostgreSQL's name of its type.
        kind: String,
    },
    /// A value that is not as long as its type is.
    #[error("PostgreSQL sent a value of another length than its type has")]
    WrongLength,
    /// No connection is there, or none any more.
    #[error("the connections to PostgreSQL are closed")]
    Closed,
    /// A request that is no cone.
    #[error("{0}")]
    NoCone(String),
    /// The network does not play along.
    #[error("no HTTP at {address}: {error}")]
    Network {
        /// Where it should have been.
        address: SocketAddr,
        /// What happened.
        error: std::io::Error,
    },
    /// The runtime or the signals cannot be set up.
    #[error("the server cannot be set up: {0}")]
    Setup(#[from] std::io::Error),
}

/// How PostgreSQL plans the prepared statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PlanMode {
    /// As it sees fit, after five times.
    Auto,
    /// Once for all cones.
    Generic,
    /// For each cone anew.
    Custom,
}

/// Answers cone searches over HTTP from PostgreSQL with q3c: the peer of the benchmark.
///
/// `GET /?RA=..&DEC=..&SR=..` (degrees, any path) gives a VOTable in BINARY2, or CSV with RESPONSEFORMAT=csv. It says where it listens
/// and goes on until Ctrl-C or SIGTERM.
#[derive(Args)]
pub struct Q3cServerArguments {
    /// The directory with PostgreSQL's Unix socket.
    #[arg(long, value_name = "DIR")]
    socket: PathBuf,
    /// PostgreSQL's user.
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    user: String,
    /// Its database.
    #[arg(long, value_name = "NAME", default_value = "postgres")]
    database: String,
    /// The table, with an index on q3c_ang2ipix of its positions.
    #[arg(long, value_name = "NAME", default_value = "object")]
    table: String,
    /// Its column of right ascensions.
    #[arg(long, value_name = "COLUMN", default_value = "ra_ps")]
    ra: String,
    /// Its column of declinations.
    #[arg(long, value_name = "COLUMN", default_value = "decl_ps")]
    dec: String,
    /// Columns of the answers, separated by commas (default: all).
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    columns: Vec<String>,
    /// Connections to PostgreSQL.
    #[arg(long, value_name = "N", default_value = "4")]
    pool: NonZeroUsize,
    /// How PostgreSQL plans the statement.
    #[arg(long, value_enum, default_value_t = PlanMode::Auto)]
    plan: PlanMode,
    /// Threads of the server itself.
    #[arg(long, value_name = "N", default_value = "2")]
    threads: NonZeroUsize,
    /// Where it listens; port 0 takes a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    http: SocketAddr,
}

/// Runs the command.
///
/// # Errors
/// PostgreSQL is not there, or the address is taken.
pub fn run(arguments: Q3cServerArguments) -> Result<(), PeerError> {
    let mut builder = match arguments.threads.get() {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(arguments.threads.get())
        .enable_all()
        .build()?;
    runtime.block_on(serve(arguments))
}

async fn serve(arguments: Q3cServerArguments) -> Result<(), PeerError> {
    let text = statement(&arguments)?;
    let cluster = Cluster {
        socket: &arguments.socket,
        user: &arguments.user,
        database: &arguments.database,
        plan: arguments.plan,
    };
    let pool = Pool::open(&cluster, arguments.pool.get(), &text).await?;
    let service = Arc::new(Service::new(pool, &arguments.columns)?);
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let address = arguments.http;
    let network = |error| PeerError::Network { address, error };
    let listener = TcpListener::bind(address).await.map_err(network)?;
    announce(listener.local_addr().map_err(network)?);
    tokio::select! {
        outcome = accept(listener, service) => outcome.map_err(network),
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

async fn accept(listener: TcpListener, service: Arc<Service>) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            let service = &*service;
            let answer = service_fn(move |request| async move {
                Ok::<_, Infallible>(service.answer(&request).await)
            });
            // A client that hangs up is no error of ours.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .await;
        });
    }
}

/// The statement. Its names stand in it as they are: PostgreSQL folds them to lower case, as it did when the table was made.
fn statement(arguments: &Q3cServerArguments) -> Result<String, PeerError> {
    let Q3cServerArguments {
        table,
        ra,
        dec,
        columns,
        ..
    } = arguments;
    for name in columns.iter().chain([table, ra, dec]) {
        let is_plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if name.is_empty() || !is_plain {
            return Err(PeerError::NoName(name.clone()));
        }
    }
    let wanted = if columns.is_empty() {
        "*".to_owned()
    } else {
        columns.join(", ")
    };
    Ok(format!(
        "SELECT {wanted} FROM {table} WHERE q3c_radial_query({ra}, {dec}, $1::float8, $2::float8, $3::float8)"
    ))
}

#[expect(
    clippy::print_stdout,
    reason = "where the server is has to be known to whoever started it"
)]
fn announce(address: SocketAddr) {
    println!("Cones of PostgreSQL with q3c: HTTP clients connect to http://{address}");
}
