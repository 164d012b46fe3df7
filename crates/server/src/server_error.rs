//! Why a server cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ::queries::QueryError;
use ::users::UsersError;
use cluster::ClusterError;
use engine::EngineError;

use crate::tls::TlsError;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The data directory cannot be opened.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The users cannot be read.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The stored queries cannot be read.
    #[error(transparent)]
    Queries(#[from] QueryError),
    /// The server cannot be the front end of a cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The address cannot be resolved.
    #[error("{address} is no address to listen on: write it as in 127.0.0.1:4040")]
    NoAddress {
        /// The configured address.
        address: String,
    },
    /// The address is reachable from other machines.
    #[error(
        "{address} can be reached from other machines: whoever connected could read everything, or read along. Add users with \
         `meridian user add` and give a certificate with --tls-cert and --tls-key; or listen on 127.0.0.1, and let others in through a \
         tunnel, as with `ssh -L`; or give --insecure, where the network is trusted"
    )]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// Another program listens at the address.
    #[error(
        "{address} is taken by another program: end that one, or choose another port with {option}"
    )]
    InUse {
        /// The address.
        address: SocketAddr,
        /// The option that configures the address.
        option: &'static str,
    },
    /// Another program listens at the socket.
    #[error(
        "another program listens at {}: end that one, or choose another file with --mysql-socket",
        path.display()
    )]
    SocketInUse {
        /// The path of the socket.
        path: PathBuf,
    },
    /// The path of the socket is too long for the operating system.
    #[error(
        "{} is too long for a socket, whose path may have {most} bytes: choose a shorter one with --mysql-socket",
        path.display()
    )]
    SocketTooLong {
        /// The path of the socket.
        path: PathBuf,
        /// The number of bytes that a path may have.
        most: usize,
    },
    /// The path exists and is not a socket.
    #[error(
        "{} is there already, and is no socket: choose another file with --mysql-socket",
        path.display()
    )]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// No listener is configured.
    #[error(
        "every listener is off: give at least one of --mysql, --mysql-socket and --http an address"
    )]
    NoListener,
    /// The metrics cannot be registered.
    #[error("the metrics cannot be set up, which is a bug of the server: {0}")]
    Metrics(#[from] prometheus::Error),
    /// An operation of the operating system failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The operation, as a verb.
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
}
