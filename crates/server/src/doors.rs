//! Addresses on which somebody is let in: listening, and letting in no more than there is room for.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{ServerError, Shared, http, metrics, mysql, noted};

/// How long nobody is let in where the system has no room for another connection.
const PAUSE: Duration = Duration::from_millis(100);

/// What is spoken behind a door.
#[derive(Debug)]
pub(crate) enum Entrance {
    MySql,
    Http(Router),
}

/// An address on which somebody is let in.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    address: SocketAddr,
    entrance: Entrance,
    max_connections: usize,
}

impl Door {
    pub(crate) fn new(
        (listener, address): (TcpListener, SocketAddr),
        entrance: Entrance,
        max_connections: usize,
    ) -> Self {
        Self {
            listener,
            address,
            entrance,
            max_connections,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn entrance(&self) -> &Entrance {
        &self.entrance
    }

    /// By what its connections are counted.
    fn counted_as(&self) -> metrics::Door {
        match self.entrance {
            Entrance::MySql => metrics::Door::Mysql,
            Entrance::Http(_) => metrics::Door::Http,
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
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, address)) => self.let_in(&shared, &mut connections, stream, address),
                    Err(error) => {
                        warn!(%error, "a connection could not be accepted");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    fn let_in(
        &self,
        shared: &Arc<Shared>,
        connections: &mut JoinSet<()>,
        stream: TcpStream,
        address: SocketAddr,
    ) {
        // Answers go as soon as they are there, and clients that vanish without a word are found out; without either it works too.
        let _ = stream.set_nodelay(true);
        let _ = SockRef::from(&stream).set_keepalive(true);
        let full = connections.len() >= self.max_connections;
        if full {
            warn!(%address, "turned away: there are as many connections as may be");
            shared.metrics.turned_away(self.counted_as());
        }
        let counted = (!full).then(|| shared.metrics.connected(self.counted_as()));
        let shared = Arc::clone(shared);
        match &self.entrance {
            Entrance::MySql if full => {
                drop(tokio::spawn(mysql::turn_away(stream, self.max_connections)));
            }
            Entrance::Http(_) if full => drop(tokio::spawn(http::turn_away(stream))),
            Entrance::MySql => {
                let served = Box::pin(mysql::serve(shared, stream, address));
                connections.spawn(async move {
                    let _counted = counted;
                    served.await;
                });
            }
            Entrance::Http(router) => {
                let router = router.clone();
                let served = Box::pin(http::serve(shared, router, stream, address));
                connections.spawn(async move {
                    let _counted = counted;
                    served.await;
                });
            }
        }
    }
}

/// Takes an address of this machine alone; none where none is wanted. `option` is what says where.
pub(crate) async fn listen(
    wanted: Option<&str>,
    option: &'static str,
) -> Result<Option<(TcpListener, SocketAddr)>, ServerError> {
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
    Ok(Some((listener, address)))
}
