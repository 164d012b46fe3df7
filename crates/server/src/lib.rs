//! The front doors: who is connected, what they have chosen, what runs for them, MySQL's protocol, and cone searches over HTTP.
//!
//! May depend on `sql` and `engine`; knows nothing of chunks, files or plans. Invariants: the network has threads of its own, which
//! do no more than look at a few rows, so that a busy server still lets in, answers pings and obeys KILL; memory for an answer is
//! bounded whatever its size, because rows are made as fast as the client takes them; no byte that a client sends can make
//! the server panic, and a panic in a question is an error of that question alone.

mod doors;
mod formats;
mod heartbeat;
mod http;
mod journal;
mod local;
pub mod metrics;
mod mysql;
mod places;
mod refusal;
mod running;
mod sessions;
mod tls;
mod workshop;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::{Archive, ConeTable, EngineError};
use ingest::BytePool;
use sql::connection::{Process, Surroundings, VariableValue};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use doors::{Door, Entrance, Peer};
use http::{HttpState, ListRoom, OwnNames};
use metrics::Metrics;
use places::ConnectionLimits;
pub use refusal::Refusal;
use running::{Listed, Running};
use sessions::Sessions;
use tls::Tls;
pub use tls::{TlsError, TlsFiles};
use workshop::Workshop;

/// The longest that stopped statements may take to end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How many clients are told at a time that there is no place.
const MOST_TURNED_AWAY: usize = 64;

/// Where clients of MySQL connect unless somebody says otherwise.
pub const USUAL_MYSQL: &str = "127.0.0.1:4040";
/// Where clients of HTTP connect unless somebody says otherwise.
pub const USUAL_HTTP: &str = "127.0.0.1:8080";

/// What is served, where, and how much of the machine that may take.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory.
    pub data: PathBuf,
    /// Where clients of MySQL connect: `host:port`, of this machine alone. Port 0 takes a free one. Nowhere if there is none.
    pub mysql: Option<String>,
    /// A file by which clients of MySQL on this machine connect, instead of an address or beside it.
    pub mysql_socket: Option<PathBuf>,
    /// Where clients of HTTP connect, as those of MySQL.
    pub http: Option<String>,
    /// The columns that cone searches give of a table, by the names of its database and of itself; all where it is not listed.
    pub cone_columns: HashMap<(String, String), Vec<String>>,
    /// Threads that work on questions.
    pub threads: NonZeroUsize,
    /// Bytes of memory for the sorts, groups and joins of all questions together.
    pub memory: usize,
    /// Bytes of decoded columns that are kept for later questions.
    pub cache: u64,
    /// Connections at once, at each door.
    pub max_connections: usize,
    /// Of these, those from one address; as many as there may be where nothing is said.
    pub max_connections_per_address: Option<usize>,
    /// Names other than those of this machine by which clients ask over HTTP.
    pub http_hosts: Vec<String>,
    /// How long the head of a request may take to come, and how long its body may pause.
    pub http_patience: Duration,
    /// How long statements may go on when the server is to end.
    pub grace: Duration,
    /// What clients that ask for TLS are shown; without it there is none.
    pub tls: Option<TlsFiles>,
    /// Statements that take longer are logged with their text.
    pub slow: Option<Duration>,
}

impl Config {
    /// Both doors at their usual ports, and no more than a little memory.
    pub fn new(data: impl Into<PathBuf>, threads: NonZeroUsize) -> Self {
        Self {
            data: data.into(),
            mysql: Some(USUAL_MYSQL.to_owned()),
            mysql_socket: None,
            http: Some(USUAL_HTTP.to_owned()),
            cone_columns: HashMap::new(),
            threads,
            memory: 256 << 20,
            cache: 64 << 20,
            max_connections: 500,
            max_connections_per_address: None,
            http_hosts: Vec::new(),
            http_patience: Duration::from_secs(15),
            grace: Duration::from_secs(30),
            tls: None,
            slow: None,
        }
    }
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
        "{address} is taken by another program: end that one, or choose another port with {option}"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The option that says where.
        option: &'static str,
    },
    /// Somebody else listens at that file.
    #[error(
        "another program listens at {}: end that one, or choose another file with --mysql-socket",
        path.display()
    )]
    SocketInUse {
        /// The file.
        path: PathBuf,
    },
    /// The system has no room for the path.
    #[error(
        "{} is too long for a socket, whose path may have {most} bytes: choose a shorter one with --mysql-socket",
        path.display()
    )]
    SocketTooLong {
        /// The file.
        path: PathBuf,
        /// How many bytes there may be.
        most: usize,
    },
    /// The file is there and something else.
    #[error(
        "{} is there already, and is no socket: choose another file with --mysql-socket",
        path.display()
    )]
    NoSocket {
        /// The file.
        path: PathBuf,
    },
    /// Nobody could connect.
    #[error("every door is off: there is nothing to serve")]
    NoDoor,
    /// What is counted cannot be shown.
    #[error("the metrics cannot be set up, which is a mistake of the server's: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The system said no.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, as a verb.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// How often a server looks whether tables that it holds have changed.
const RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) workshop: Workshop,
    pub(crate) running: Arc<Running>,
    pub(crate) surroundings: Arc<dyn Surroundings>,
    /// Where MySQL's clients connect.
    pub(crate) mysql_port: Option<u16>,
    /// For clients that ask for it.
    pub(crate) tls: Option<Tls>,
    pub(crate) metrics: Metrics,
    /// Statements that take longer are logged with their text.
    pub(crate) slow: Option<Duration>,
    /// How long the head of a request over HTTP may take to come.
    pub(crate) http_patience: Duration,
    /// Room for packets and prepared statements of MySQL's clients.
    pub(crate) packets: Arc<BytePool>,
    /// Room for telling clients that there is no place.
    pub(crate) turned_away: Arc<Semaphore>,
    /// No new question is answered.
    pub(crate) closing: CancellationToken,
    /// No question is answered to its end.
    pub(crate) ended: CancellationToken,
}

impl Shared {
    /// Lists work that is not a statement of a connection of MySQL's among those, so that it is seen and can be ended.
    pub(crate) fn list(
        &self,
        peer: Peer,
        database: &str,
        command: &'static str,
        text: &str,
    ) -> Listed {
        let entered = self.running.enter(peer);
        entered.introduce("http", Some(database));
        Listed::new(entered, command, text, self.ended.clone())
    }
}

/// A server that listens and does not answer yet.
#[derive(Debug)]
pub struct Server {
    doors: Vec<Door>,
    archive: Arc<Archive>,
    shared: Arc<Shared>,
    grace: Duration,
}

impl Server {
    /// Opens the data and takes the addresses.
    ///
    /// # Errors
    /// Either of them cannot be had.
    pub async fn bind(config: Config) -> Result<Self, ServerError> {
        let tls = config.tls.as_ref().map(Tls::read).transpose()?;
        let mysql = doors::listen(config.mysql.as_deref(), "--mysql").await?;
        let mysql_socket = config
            .mysql_socket
            .as_deref()
            .map(doors::listen_at)
            .transpose()?;
        let http = doors::listen(config.http.as_deref(), "--http").await?;
        let archive = Archive::open_keeping(&config.data, config.cache).await?;
        engine::bound_memory(&archive, config.memory);
        let sessions = Sessions::new(Arc::clone(&archive), config.threads, config.memory)?;
        let workshop = Workshop::new(config.threads);
        let workshop = workshop.map_err(|source| ServerError::System {
            what: format!("start {} threads", config.threads),
            source,
        })?;
        let counted = Arc::clone(&archive);
        let running = Running::new();
        let mysql_port = mysql.as_ref().map(|listening| listening.address.port());
        let surroundings = Known {
            running: Arc::clone(&running),
            port: mysql_port.unwrap_or(0),
            socket: config.mysql_socket,
            max_connections: config.max_connections as u64,
            tls: tls.is_some(),
        };
        let shared = Arc::new(Shared {
            sessions: Arc::new(sessions),
            running,
            surroundings: Arc::new(surroundings),
            mysql_port,
            tls,
            metrics: Metrics::new(move || counted.usage(), workshop.health())?,
            workshop,
            slow: config.slow,
            http_patience: config.http_patience,
            packets: BytePool::new(room_for_packets(config.memory as u64)),
            turned_away: Arc::new(Semaphore::new(MOST_TURNED_AWAY)),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        let received = Arc::clone(shared.sessions.received());
        let lists = ListRoom::new(config.memory as u64, received, config.http_patience);
        let state = HttpState::new(
            Arc::clone(&shared),
            Arc::clone(&archive),
            config.cone_columns,
            lists,
        );
        let http = http.map(|listening| {
            let names = OwnNames::new(listening.address, &config.http_hosts);
            let router = http::router(Arc::new(state), names);
            Entrance::Http(listening, router)
        });
        let doors = [
            mysql.map(Entrance::MySql),
            mysql_socket.map(Entrance::MySqlSocket),
            http,
        ];
        let limits = ConnectionLimits {
            all: config.max_connections,
            of_an_address: config
                .max_connections_per_address
                .unwrap_or(config.max_connections),
        };
        let doors: Vec<Door> = doors
            .into_iter()
            .flatten()
            .map(|entrance| Door::new(entrance, limits))
            .collect();
        if doors.is_empty() {
            return Err(ServerError::NoDoor);
        }
        Ok(Self {
            doors,
            archive,
            shared,
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

    /// A database, a table of it and a place where this has rows, to be shown as an example: of all tables with positions the one
    /// with the most rows among directors.
    ///
    /// # Errors
    /// The catalog or the table cannot be read.
    pub async fn example_cone(&self) -> Result<Option<(String, String, [f64; 2])>, ServerError> {
        let catalog = self.archive.catalog();
        let mut largest: Option<catalog::Table> = None;
        for database in catalog.databases().await.map_err(EngineError::from)? {
            let tables = catalog.tables(&database.name).await;
            for table in tables.map_err(EngineError::from)? {
                let is_larger = largest
                    .as_ref()
                    .is_none_or(|known| known.rows() < table.rows());
                if table.spec.kind == catalog::TableKind::Director && is_larger {
                    largest = Some(table);
                }
            }
        }
        let Some(spec) = largest.map(|table| table.spec) else {
            return Ok(None);
        };
        let place = ConeTable::example(&self.archive, &spec.database, &spec.name).await?;
        Ok(place.map(|place| (spec.database, spec.name, place)))
    }

    /// Where clients of MySQL connect.
    pub fn mysql_address(&self) -> Option<SocketAddr> {
        self.entrances().find_map(|entrance| match entrance {
            Entrance::MySql(listening) => Some(listening.address),
            _ => None,
        })
    }

    /// The file by which clients of MySQL connect.
    pub fn mysql_socket(&self) -> Option<&Path> {
        self.entrances().find_map(|entrance| match entrance {
            Entrance::MySqlSocket(socket) => Some(socket.path.as_path()),
            _ => None,
        })
    }

    /// Where clients of HTTP connect.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.entrances().find_map(|entrance| match entrance {
            Entrance::Http(listening, _) => Some(listening.address),
            _ => None,
        })
    }

    fn entrances(&self) -> impl Iterator<Item = &Entrance> {
        self.doors.iter().map(Door::entrance)
    }

    /// Answers until `stop` is cancelled. Statements that run then may go on for a while.
    pub async fn serve(self, stop: CancellationToken) {
        let releasing = tokio::spawn(release_changed_tables(self.archive, stop.clone()));
        let open = self.doors.into_iter();
        let open = open.map(|door| door.keep_open(Arc::clone(&self.shared), stop.clone()));
        let mut connections: Vec<JoinSet<()>> = futures::future::join_all(open).await;
        info!(
            connections = count(&connections),
            grace = self.grace.as_secs(),
            "ending"
        );
        self.shared.closing.cancel();
        if timeout(self.grace, all(&mut connections)).await.is_err() {
            info!(
                connections = count(&connections),
                "statements that still run are stopped"
            );
            self.shared.ended.cancel();
            // Those that do not end even so are left.
            let _ = timeout(LAST_WORDS, all(&mut connections)).await;
        }
        releasing.abort();
        info!("ended");
    }
}

/// Lets go of tables that were dropped or changed, so that the files of their former parts can be removed although nobody asks
/// for these tables any more.
async fn release_changed_tables(archive: Arc<Archive>, stop: CancellationToken) {
    while timeout(RELEASE_INTERVAL, stop.cancelled()).await.is_err() {
        if let Err(error) = archive.release_changed_tables().await {
            tracing::warn!(%error, "changed tables could not be looked up");
        }
    }
}

/// Bytes of packets and prepared statements of all connections together: half as much as their statements may take.
fn room_for_packets(memory: u64) -> u64 {
    (memory / 2).max(2 * mysql::LONGEST_COMMAND as u64)
}

fn count(connections: &[JoinSet<()>]) -> usize {
    connections.iter().map(JoinSet::len).sum()
}

async fn all(connections: &mut [JoinSet<()>]) {
    for of_door in connections {
        while let Some(left) = of_door.join_next().await {
            noted(left);
        }
    }
}

/// A connection that stumbled has ended alone; whoever keeps the server has to know.
pub(crate) fn noted(left: Result<(), JoinError>) {
    if let Err(error) = left {
        error!(%error, "a connection made the server stumble");
    }
}

/// What statements may ask of the server.
#[derive(Debug)]
struct Known {
    running: Arc<Running>,
    port: u16,
    socket: Option<PathBuf>,
    max_connections: u64,
    tls: bool,
}

impl Surroundings for Known {
    fn variable(&self, name: &str) -> Option<VariableValue> {
        match name {
            "port" => Some(VariableValue::Number(self.port.into())),
            "socket" => {
                let socket = self.socket.as_ref()?;
                Some(VariableValue::Text(socket.display().to_string()))
            }
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
