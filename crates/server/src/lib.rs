//! The front doors: who is connected, what they have chosen, what runs for them, and MySQL's protocol.
//!
//! May depend on `sql` and `engine`; knows nothing of chunks, files or plans. Invariants: the network has threads of its own and
//! never waits for a processor, so that a busy server still lets in, answers pings and obeys KILL; memory for an answer is
//! bounded whatever its size, because rows are made as fast as the client takes them; no byte that a client sends can make
//! the server panic, and a panic in a question is an error of that question alone.

mod mysql;
mod refusal;
mod running;
mod sessions;
mod tls;
mod workshop;

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use engine::{Archive, EngineError};
use socket2::SockRef;
use sql::connection::{Process, Surroundings, VariableValue};
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use refusal::Refusal;
use running::Running;
use sessions::Sessions;
use tls::Tls;
pub use tls::{TlsError, TlsFiles};
use workshop::Workshop;

/// The longest that stopped statements may take to end.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long nobody is let in where the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// What is served, where, and how much of the machine that may take.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory.
    pub data: PathBuf,
    /// Where clients of MySQL connect: `host:port`, of this machine alone. Port 0 takes a free one.
    pub mysql: String,
    /// Threads that work on questions.
    pub threads: NonZeroUsize,
    /// Bytes of memory for the sorts, groups and joins of all questions together.
    pub memory: usize,
    /// Bytes of decoded columns that are kept for later questions.
    pub cache: u64,
    /// Connections at once.
    pub max_connections: usize,
    /// How long statements may go on when the server is to end.
    pub grace: Duration,
    /// What clients that ask for TLS are shown; without it there is none.
    pub tls: Option<TlsFiles>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The data cannot be opened.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no TLS, which was asked for.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address is none.
    #[error("{address} is no address to listen on: write it as in 127.0.0.1:4040")]
    NoAddress {
        /// What was given.
        address: String,
    },
    /// Others than this machine's users could connect.
    #[error(
        "{address} can be reached from other machines, and there are no users and passwords here yet: whoever connected could read \
         everything. Listen on 127.0.0.1, and let others in through a tunnel, as with `ssh -L`"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// Somebody else listens there.
    #[error(
        "{address} is taken by another program: end that one, or choose another port with --mysql"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The system said no.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, as a verb.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) workshop: Workshop,
    pub(crate) running: Arc<Running>,
    pub(crate) surroundings: Arc<dyn Surroundings>,
    /// For clients that ask for it.
    pub(crate) tls: Option<Tls>,
    /// No new question is answered.
    pub(crate) closing: CancellationToken,
    /// No question is answered to its end.
    pub(crate) ended: CancellationToken,
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    max_connections: usize,
    grace: Duration,
}

impl Server {
    /// Opens the data and takes the address.
    ///
    /// # Errors
    /// Either of them cannot be had.
    pub async fn bind(config: Config) -> Result<Self, ServerError> {
        let tls = config.tls.as_ref().map(Tls::read).transpose()?;
        let (listener, address) = listen(&config.mysql).await?;
        let archive = Archive::open_keeping(&config.data, config.cache).await?;
        let sessions = Sessions::new(archive, config.threads, config.memory)?;
        let workshop = Workshop::new(config.threads);
        let workshop = workshop.map_err(|source| ServerError::System {
            what: format!("start {} threads", config.threads),
            source,
        })?;
        let running = Running::new();
        let surroundings = Known {
            running: Arc::clone(&running),
            port: address.port(),
            max_connections: config.max_connections as u64,
            tls: tls.is_some(),
        };
        Ok(Self {
            listener,
            address,
            shared: Arc::new(Shared {
                sessions: Arc::new(sessions),
                workshop,
                running,
                surroundings: Arc::new(surroundings),
                tls,
                closing: CancellationToken::new(),
                ended: CancellationToken::new(),
            }),
            max_connections: config.max_connections,
            grace: config.grace,
        })
    }

    /// The databases that are served, by name.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn databases(&self) -> Result<Vec<String>, ServerError> {
        Ok(self.shared.sessions.databases().await?)
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` is cancelled. Statements that run then may go on for a while.
    pub async fn serve(self, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(left) = connections.join_next(), if !connections.is_empty() => noted(left),
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => self.let_in(&mut connections, stream, address),
                    Err(error) => {
                        warn!(%error, "a connection could not be accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        let left = connections.len();
        info!(connections = left, grace = self.grace.as_secs(), "ending");
        self.shared.closing.cancel();
        if timeout(self.grace, all(&mut connections)).await.is_err() {
            info!(
                connections = connections.len(),
                "statements that still run are stopped"
            );
            self.shared.ended.cancel();
            // Those that do not end even so are left.
            let _ = timeout(LAST_WORDS, all(&mut connections)).await;
        }
        info!("ended");
    }

    fn let_in(&self, connections: &mut JoinSet<()>, stream: TcpStream, address: SocketAddr) {
        // Answers go as soon as they are there, and clients that vanish without a word are found out; without either it works too.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_keepalive(true);
        if connections.len() >= self.max_connections {
            warn!(%address, "turned away: there are as many connections as may be");
            drop(tokio::spawn(mysql::turn_away(stream, self.max_connections)));
            return;
        }
        connections.spawn(Box::pin(mysql::serve(
            Arc::clone(&self.shared),
            stream,
            address,
        )));
    }
}

async fn all(connections: &mut JoinSet<()>) {
    while let Some(left) = connections.join_next().await {
        noted(left);
    }
}

/// A connection that stumbled has ended alone; whoever keeps the server has to know.
fn noted(left: Result<(), JoinError>) {
    if let Err(error) = left {
        error!(%error, "a connection made the server stumble");
    }
}

/// Takes an address of this machine alone.
async fn listen(wanted: &str) -> Result<(TcpListener, SocketAddr), ServerError> {
    let no_address = || ServerError::NoAddress {
        address: wanted.to_owned(),
    };
    let found = lookup_host(wanted).await.map_err(|_| no_address())?;
    // A name that stands for several is meant as clients mean it, who try 127.0.0.1 before ::1.
    let address = found.min_by_key(SocketAddr::is_ipv6);
    let address = address.ok_or_else(no_address)?;
    if !address.ip().is_loopback() {
        return Err(ServerError::NotLoopback { address });
    }
    let refused = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServerError::InUse { address },
        _ => ServerError::System {
            what: format!("listen on {address}"),
            source,
        },
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok((listener, address))
}

/// What statements may ask of the server.
#[derive(Debug)]
struct Known {
    running: Arc<Running>,
    port: u16,
    max_connections: u64,
    tls: bool,
}

impl Surroundings for Known {
    fn variable(&self, name: &str) -> Option<VariableValue> {
        match name {
            "port" => Some(VariableValue::Number(self.port.into())),
            "max_connections" => Some(VariableValue::Number(self.max_connections)),
            "max_allowed_packet" => Some(VariableValue::Number(mysql::LONGEST_COMMAND as u64)),
            "have_ssl" | "have_openssl" if self.tls => Some(VariableValue::Text("YES".to_owned())),
            _ => None,
        }
    }

    fn status(&self) -> Vec<(&'static str, String)> {
        self.running.status()
    }

    fn processes(&self) -> Vec<Process> {
        self.running.processes()
    }
}
