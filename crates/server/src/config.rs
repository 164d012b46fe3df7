//! The configuration of a server.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use cluster::ClusterOptions;
use queries::QueryLimits;

use crate::audit::AuditOptions;
use crate::oidc::OidcOptions;
use crate::tls::TlsFiles;

/// The default address for MySQL clients.
pub const DEFAULT_MYSQL_ADDRESS: &str = "127.0.0.1:4040";
/// The default address for HTTP clients.
pub const DEFAULT_HTTP_ADDRESS: &str = "127.0.0.1:8080";

/// The configuration of a server: what it serves, where it listens and which resources it may use.
#[derive(Debug, Clone)]
pub struct Config {
    /// The data directory.
    pub data: PathBuf,
    /// Where MySQL clients connect: `host:port`; a loopback address, unless there are users and TLS. Port 0 takes a free port. `None`: the server does not listen for them.
    pub mysql: Option<String>,
    /// A Unix-domain socket for MySQL clients on this machine, instead of an address or in addition.
    pub mysql_socket: Option<PathBuf>,
    /// Where HTTP clients connect, in the same form.
    pub http: Option<String>,
    /// The columns that cone searches return of a table, by the names of database and table; all columns of a table that is not listed.
    pub cone_columns: HashMap<(String, String), Vec<String>>,
    /// The number of threads that execute queries.
    pub threads: NonZeroUsize,
    /// Bytes of memory for all queries together.
    pub memory: usize,
    /// Bytes of disk for what all queries together spill; 100 GiB by default.
    pub spilled: Option<u64>,
    /// Bytes of decoded columns that are cached for later queries.
    pub cache: u64,
    /// Concurrent connections at each listener.
    pub max_connections: usize,
    /// Concurrent connections from one address at each listener; `max_connections` by default.
    pub max_connections_per_address: Option<usize>,
    /// Host names, besides those of this machine, under which HTTP clients may address the server.
    pub http_hosts: Vec<String>,
    /// How long the head of an HTTP request may take to arrive, and how long its body may pause.
    pub http_patience: Duration,
    /// How long statements may run on after the shutdown has begun.
    pub grace: Duration,
    /// The certificate for clients that request TLS; `None`: the server does not offer TLS.
    pub tls: Option<TlsFiles>,
    /// Whether the server may listen at addresses that other machines reach, without users or without TLS.
    pub is_insecure: bool,
    /// Whether users whose passwords were set for it log in by `mysql_native_password`, besides `caching_sha2_password`.
    pub native_password: bool,
    /// The identity provider whose tokens let users in, if there is one.
    pub oidc: Option<OidcOptions>,
    /// Statements that take longer are logged with their text.
    pub slow: Option<Duration>,
    /// Where each statement, request and login is written; `None`: nowhere.
    pub audit: Option<AuditOptions>,
    /// The limits of queries that are submitted to run without a connection.
    pub queries: QueryLimits,
    /// Results of statements that took at least so long answer equal ones; `None`: none do.
    pub result_cache: Option<Duration>,
    /// The cluster whose front end the server is, if it is one.
    pub cluster: Option<ClusterOptions>,
}

impl Config {
    /// A server that listens at both default addresses and uses little memory.
    pub fn new(data: impl Into<PathBuf>, threads: NonZeroUsize) -> Self {
        Self {
            data: data.into(),
            mysql: Some(DEFAULT_MYSQL_ADDRESS.to_owned()),
            mysql_socket: None,
            http: Some(DEFAULT_HTTP_ADDRESS.to_owned()),
            cone_columns: HashMap::new(),
            threads,
            memory: 256 << 20,
            spilled: None,
            cache: 64 << 20,
            max_connections: 500,
            max_connections_per_address: None,
            http_hosts: Vec::new(),
            http_patience: Duration::from_secs(15),
            grace: Duration::from_secs(30),
            tls: None,
            is_insecure: false,
            native_password: false,
            oidc: None,
            slow: None,
            audit: None,
            queries: QueryLimits::default(),
            result_cache: None,
            cluster: None,
        }
    }
}
