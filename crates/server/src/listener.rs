//! Listeners: they accept connections at TCP addresses and at a Unix-domain socket, within the limits of their connection slots.

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream, UnixListener, lookup_host};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::connection_slots::{ConnectionLimits, ConnectionSlots, LimitReached};
use crate::{ServerError, Shared, http, log_panic, metrics, mysql, unix_socket};

/// How long a listener pauses after the operating system could not accept a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a socket's path on Linux, without the terminating zero (`sun_path`); other systems have a few less and report an error.
const MAX_PATH_BYTES: usize = 107;
/// The socket's permissions: its owner and group may connect.
const SOCKET_MODE: u32 = 0o660;

/// What a listener listens on, and the protocol spoken there.
#[derive(Debug)]
pub(crate) enum Endpoint {
    /// MySQL's protocol, at a TCP address.
    MySql(TcpEndpoint),
    /// MySQL's protocol, at a Unix-domain socket.
    MySqlSocket(UnixEndpoint),
    /// HTTP, at a TCP address.
    Http(TcpEndpoint, Router),
}

/// A bound TCP address.
#[derive(Debug)]
pub(crate) struct TcpEndpoint {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// A bound Unix-domain socket, whose file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct UnixEndpoint {
    listener: UnixListener,
    pub(crate) path: PathBuf,
    /// The device and inode of the file: another server may have replaced it.
    identity: (u64, u64),
}

impl Drop for UnixEndpoint {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // If this fails, the next server that listens here removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The client's side of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    Address(SocketAddr),
    /// A program of this machine, connected by the Unix-domain socket.
    Socket,
}

impl Peer {
    /// The host, as MySQL names it.
    pub(crate) fn host(self) -> String {
        match self {
            Self::Address(address) => address.ip().to_string(),
            Self::Socket => "localhost".to_owned(),
        }
    }
}

impl Peer {
    /// The IP address, if the client has one.
    pub(crate) fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address.ip()),
            Self::Socket => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Socket => f.write_str("localhost"),
        }
    }
}

/// An accepted connection.
enum Accepted<'a> {
    MySql(mysql::Halves, Peer),
    Http(TcpStream, SocketAddr, &'a Router),
}

impl Endpoint {
    async fn accept(&self) -> io::Result<Accepted<'_>> {
        Ok(match self {
            Self::MySql(listening) => {
                let (stream, address) = listening.accept().await?;
                let (read, write) = stream.into_split();
                Accepted::MySql((Box::new(read), Box::new(write)), Peer::Address(address))
            }
            Self::MySqlSocket(socket) => {
                let (read, write) = unix_socket::split(socket.listener.accept().await?.0)?;
                Accepted::MySql((Box::new(read), Box::new(write)), Peer::Socket)
            }
            Self::Http(listening, router) => {
                let (stream, address) = listening.accept().await?;
                Accepted::Http(stream, address, router)
            }
        })
    }
}

impl TcpEndpoint {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.listener.accept().await?;
        // Small packets are sent without delay, and vanished clients are detected. The connection works without either.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_keepalive(true);
        Ok((stream, address))
    }
}

/// An endpoint with its connection slots.
#[derive(Debug)]
pub(crate) struct Listener {
    endpoint: Endpoint,
    slots: Arc<ConnectionSlots>,
}

impl Listener {
    pub(crate) fn new(endpoint: Endpoint, limits: ConnectionLimits) -> Self {
        Self {
            endpoint,
            slots: ConnectionSlots::new(limits),
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The protocol under which the metrics count its connections.
    fn protocol(&self) -> metrics::Protocol {
        match self.endpoint {
            Endpoint::MySql(_) | Endpoint::MySqlSocket(_) => metrics::Protocol::Mysql,
            Endpoint::Http(..) => metrics::Protocol::Http,
        }
    }

    /// Accepts connections until `stop` is cancelled; returns those that are open then.
    pub(crate) async fn accept_loop(
        self,
        shared: Arc<Shared>,
        stop: CancellationToken,
    ) -> JoinSet<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return connections,
                Some(left) = connections.join_next(), if !connections.is_empty() => log_panic(left),
                accepted = self.endpoint.accept() => match accepted {
                    Ok(accepted) => self.accept(&shared, &mut connections, accepted),
                    Err(error) => {
                        warn!(%error, "a connection could not be accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    fn accept(&self, shared: &Arc<Shared>, connections: &mut JoinSet<()>, accepted: Accepted<'_>) {
        let slot = match self.slots.take(accepted.peer()) {
            Ok(slot) => slot,
            Err(full) => return self.reject(shared, accepted, full),
        };
        let counted = shared.metrics.connected(self.protocol());
        let shared = Arc::clone(shared);
        match accepted {
            Accepted::MySql(stream, peer) => {
                let served = Box::pin(mysql::serve(shared, stream, peer, slot));
                connections.spawn(async move {
                    let _counted = counted;
                    served.await;
                });
            }
            Accepted::Http(stream, address, router) => {
                let served = Box::pin(http::serve(shared, router.clone(), stream, address, slot));
                connections.spawn(async move {
                    let _counted = counted;
                    served.await;
                });
            }
        }
    }

    /// Tells a client that the limit is reached. If many clients are being told already, the connection is closed without a message.
    fn reject(&self, shared: &Arc<Shared>, accepted: Accepted<'_>, full: LimitReached) {
        warn!(address = %accepted.peer(), "rejected: {full}");
        shared.metrics.rejected(self.protocol());
        let Ok(permit) = Arc::clone(&shared.rejected).try_acquire_owned() else {
            return;
        };
        match accepted {
            Accepted::MySql(stream, _) => drop(tokio::spawn(async move {
                mysql::reject(stream, full).await;
                drop(permit);
            })),
            Accepted::Http(stream, ..) => drop(tokio::spawn(async move {
                http::reject(stream, full).await;
                drop(permit);
            })),
        }
    }
}

impl Accepted<'_> {
    fn peer(&self) -> Peer {
        match self {
            Self::MySql(_, peer) => *peer,
            Self::Http(_, address, _) => Peer::Address(*address),
        }
    }
}

/// Binds an address, which has to be of this machine alone unless the server is guarded; `None` if none is configured. `option` is the
/// option that configures it.
pub(crate) async fn bind_tcp(
    wanted: Option<&str>,
    option: &'static str,
    is_guarded: bool,
) -> Result<Option<TcpEndpoint>, ServerError> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
    let no_address = || ServerError::NoAddress {
        address: wanted.to_owned(),
    };
    let found = lookup_host(wanted).await.map_err(|_| no_address())?;
    // A name that resolves to several addresses means 127.0.0.1 rather than ::1, which clients try in this order.
    let address = found.min_by_key(SocketAddr::is_ipv6);
    let address = address.ok_or_else(no_address)?;
    if !is_guarded && !address.ip().is_loopback() {
        return Err(ServerError::NotLoopback { address });
    }
    let rejected = |source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ServerError::InUse { address, option },
        _ => ServerError::System {
            what: format!("listen on {address}"),
            source,
        },
    };
    let listener = TcpListener::bind(address).await.map_err(rejected)?;
    let address = listener.local_addr().map_err(rejected)?;
    Ok(Some(TcpEndpoint { listener, address }))
}

/// Binds a Unix-domain socket, unless another program listens there.
pub(crate) fn bind_unix(path: &Path) -> Result<UnixEndpoint, ServerError> {
    let rejected = |source: io::Error| ServerError::System {
        what: format!("listen at {}", path.display()),
        source,
    };
    if path.as_os_str().len() > MAX_PATH_BYTES {
        return Err(ServerError::SocketTooLong {
            path: path.to_owned(),
            most: MAX_PATH_BYTES,
        });
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ServerError::NoSocket {
                path: path.to_owned(),
            });
        }
        Ok(_) if BlockingUnixStream::connect(path).is_ok() => {
            return Err(ServerError::SocketInUse {
                path: path.to_owned(),
            });
        }
        // A server that was killed has left the file.
        Ok(_) => fs::remove_file(path).map_err(rejected)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(rejected)?;
    let socket = UnixEndpoint {
        listener,
        path: path.to_owned(),
        identity: identity(path).map_err(rejected)?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE)).map_err(rejected)?;
    Ok(socket)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_and_goes_with_its_server() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mysql.sock");
        let socket = bind_unix(&path).unwrap();
        assert_eq!(mode(&path), SOCKET_MODE);
        let taken = bind_unix(&path).unwrap_err();
        assert!(matches!(taken, ServerError::SocketInUse { .. }), "{taken}");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_a_killed_server_has_left_is_no_hindrance() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mysql.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let socket = bind_unix(&path).unwrap();
        // A file of another program is not removed.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        drop(socket);
        assert!(path.exists());
        let no_socket = bind_unix(&path).unwrap_err();
        assert!(
            matches!(no_socket, ServerError::NoSocket { .. }),
            "{no_socket}"
        );
    }
}
