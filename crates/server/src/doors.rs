//! Where somebody is let in: listening at addresses and at a file of the system, and letting in no more than there is room for.

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

use crate::places::{ConnectionLimits, Full, Places};
use crate::{ServerError, Shared, http, local, metrics, mysql, noted};

/// How long nobody is let in where the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a socket's path that Linux has room for, besides the one that ends it (`sun_path`); others have a few less, and say so.
const LONGEST_PATH: usize = 107;
/// Who may connect to the file: its owner and those of its group.
const SOCKET_MODE: u32 = 0o660;

/// What is spoken behind a door, and where it is.
#[derive(Debug)]
pub(crate) enum Entrance {
    /// MySQL's protocol, at an address.
    MySql(Listening),
    /// The same, at a file.
    MySqlSocket(Socket),
    /// HTTP.
    Http(Listening, Router),
}

/// An address that is listened on.
#[derive(Debug)]
pub(crate) struct Listening {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

/// A file by which programs of this machine connect (a Unix-domain socket). It goes when nobody listens any more.
#[derive(Debug)]
pub(crate) struct Socket {
    listener: UnixListener,
    pub(crate) path: PathBuf,
    /// The file's device and number: another server may have put its own in its place.
    identity: (u64, u64),
}

impl Drop for Socket {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Whoever listens here next removes what is left.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Where somebody connects from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Peer {
    Address(SocketAddr),
    /// A program of this machine, by a file.
    Socket,
}

impl Peer {
    /// The machine, as MySQL names it.
    pub(crate) fn host(self) -> String {
        match self {
            Self::Address(address) => address.ip().to_string(),
            Self::Socket => "localhost".to_owned(),
        }
    }
}

impl Peer {
    /// Its address, if it has one.
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

/// Somebody who has come to a door.
enum Arrival<'a> {
    MySql(mysql::Halves, Peer),
    Http(TcpStream, SocketAddr, &'a Router),
}

impl Entrance {
    async fn accept(&self) -> io::Result<Arrival<'_>> {
        Ok(match self {
            Self::MySql(listening) => {
                let (stream, address) = listening.accept().await?;
                let (read, write) = stream.into_split();
                Arrival::MySql((Box::new(read), Box::new(write)), Peer::Address(address))
            }
            Self::MySqlSocket(socket) => {
                let (read, write) = local::split(socket.listener.accept().await?.0)?;
                Arrival::MySql((Box::new(read), Box::new(write)), Peer::Socket)
            }
            Self::Http(listening, router) => {
                let (stream, address) = listening.accept().await?;
                Arrival::Http(stream, address, router)
            }
        })
    }
}

impl Listening {
    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.listener.accept().await?;
        // Answers go as soon as they are there, and clients that vanish without a word are found out; without either it works too.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_keepalive(true);
        Ok((stream, address))
    }
}

/// An entrance with so many places behind it.
#[derive(Debug)]
pub(crate) struct Door {
    entrance: Entrance,
    places: Arc<Places>,
}

impl Door {
    pub(crate) fn new(entrance: Entrance, limits: ConnectionLimits) -> Self {
        Self {
            entrance,
            places: Places::new(limits),
        }
    }

    pub(crate) fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// By what its connections are counted.
    fn counted_as(&self) -> metrics::Door {
        match self.entrance {
            Entrance::MySql(_) | Entrance::MySqlSocket(_) => metrics::Door::Mysql,
            Entrance::Http(..) => metrics::Door::Http,
        }
    }

    /// Lets in until `stop` is cancelled; gives the connections that there are then.
    pub(crate) async fn keep_open(
        self,
        shared: Arc<Shared>,
        stop: CancellationToken,
    ) -> JoinSet<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return connections,
                Some(left) = connections.join_next(), if !connections.is_empty() => noted(left),
                accepted = self.entrance.accept() => match accepted {
                    Ok(arrival) => self.let_in(&shared, &mut connections, arrival),
                    Err(error) => {
                        warn!(%error, "a connection could not be accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    fn let_in(&self, shared: &Arc<Shared>, connections: &mut JoinSet<()>, arrival: Arrival<'_>) {
        let place = match self.places.take(arrival.peer()) {
            Ok(place) => place,
            Err(full) => return self.turn_away(shared, arrival, full),
        };
        let counted = shared.metrics.connected(self.counted_as());
        let shared = Arc::clone(shared);
        match arrival {
            Arrival::MySql(stream, peer) => {
                let served = Box::pin(mysql::serve(shared, stream, peer, place));
                connections.spawn(async move {
                    let _counted = counted;
                    served.await;
                });
            }
            Arrival::Http(stream, address, router) => {
                let served = Box::pin(http::serve(shared, router.clone(), stream, address, place));
                connections.spawn(async move {
                    let _counted = counted;
                    served.await;
                });
            }
        }
    }

    /// Tells somebody that there is no place. Where very many are told already, they find it out by themselves.
    fn turn_away(&self, shared: &Arc<Shared>, arrival: Arrival<'_>, full: Full) {
        warn!(address = %arrival.peer(), "turned away: {full}");
        shared.metrics.turned_away(self.counted_as());
        let Ok(told) = Arc::clone(&shared.turned_away).try_acquire_owned() else {
            return;
        };
        match arrival {
            Arrival::MySql(stream, _) => drop(tokio::spawn(async move {
                mysql::turn_away(stream, full).await;
                drop(told);
            })),
            Arrival::Http(stream, ..) => drop(tokio::spawn(async move {
                http::turn_away(stream, full).await;
                drop(told);
            })),
        }
    }
}

impl Arrival<'_> {
    fn peer(&self) -> Peer {
        match self {
            Self::MySql(_, peer) => *peer,
            Self::Http(_, address, _) => Peer::Address(*address),
        }
    }
}

/// Takes an address of this machine alone; none where none is wanted. `option` is what says where.
pub(crate) async fn listen(
    wanted: Option<&str>,
    option: &'static str,
) -> Result<Option<Listening>, ServerError> {
    let Some(wanted) = wanted else {
        return Ok(None);
    };
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
        io::ErrorKind::AddrInUse => ServerError::InUse { address, option },
        _ => ServerError::System {
            what: format!("listen on {address}"),
            source,
        },
    };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    Ok(Some(Listening { listener, address }))
}

/// Listens at a file, where nobody else does.
pub(crate) fn listen_at(path: &Path) -> Result<Socket, ServerError> {
    let refused = |source: io::Error| ServerError::System {
        what: format!("listen at {}", path.display()),
        source,
    };
    if path.as_os_str().len() > LONGEST_PATH {
        return Err(ServerError::SocketTooLong {
            path: path.to_owned(),
            most: LONGEST_PATH,
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
        // What a server has left that was killed.
        Ok(_) => fs::remove_file(path).map_err(refused)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(refused)?;
    let socket = Socket {
        listener,
        path: path.to_owned(),
        identity: identity(path).map_err(refused)?,
    };
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE)).map_err(refused)?;
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
        let socket = listen_at(&path).unwrap();
        assert_eq!(mode(&path), SOCKET_MODE);
        let taken = listen_at(&path).unwrap_err();
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
        let socket = listen_at(&path).unwrap();
        // Somebody else's file stays.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        drop(socket);
        assert!(path.exists());
        let no_socket = listen_at(&path).unwrap_err();
        assert!(
            matches!(no_socket, ServerError::NoSocket { .. }),
            "{no_socket}"
        );
    }
}
