//! Connections to other members, in TLS or, with the secret, without.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use store::{HttpPeer, HttpTimeouts, PeerConnector, PeerStream, StoreError};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::credentials::Credentials;
use crate::listen::tune;
use crate::tls::{Role, WatchedStream, of_client};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(3);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connects to the member at an address, which has to have that role.
///
/// # Errors
/// A sentence whose subject is the member.
pub(crate) async fn connect(
    credentials: &Credentials,
    role: Role,
    address: &str,
) -> Result<Box<dyn PeerStream>, String> {
    let stream = match timeout(CONNECT, TcpStream::connect(address)).await {
        Ok(stream) => stream.map_err(|error| format!("cannot be reached: {error}"))?,
        Err(_) => {
            let after = CONNECT.as_secs();
            return Err(format!("cannot be reached: no connection within {after} s"));
        }
    };
    tune(&stream);
    let Credentials::Tls(certificates) = credentials else {
        return Ok(Box::new(stream));
    };
    let name = role.server_name().ok_or("has no name for TLS")?;
    let loaded = certificates.loaded();
    let handshake = loaded.connector().connect(name, stream);
    match timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => {
            let shown = stream.get_ref().1.peer_certificates();
            let shown = { shown.into_iter().flatten() }
                .map(|it| it.clone().into_owned())
                .collect();
            let refused = Arc::clone(certificates).until_refused(loaded, shown);
            Ok(Box::new(WatchedStream::new(stream, address, refused)))
        }
        Ok(Err(error)) => Err(of_client(&error).unwrap_or_else(|| {
            format!("closed the connection before there was TLS ({error}): its log may say why")
        })),
        Err(_) => {
            let after = HANDSHAKE.as_secs();
            Err(format!("does not speak TLS: nothing came within {after} s"))
        }
    }
}

/// Other members, to read ranges of their files.
#[derive(Debug)]
pub(crate) struct Peers {
    credentials: Credentials,
    role: Role,
    timeouts: HttpTimeouts,
    known: Mutex<HashMap<String, Arc<HttpPeer>>>,
}

impl Peers {
    /// Members that have this role.
    pub fn new(credentials: Credentials, role: Role, timeouts: HttpTimeouts) -> Self {
        Self {
            credentials,
            role,
            timeouts,
            known: Mutex::default(),
        }
    }

    /// The member at an address, whose connections are kept for the next request.
    ///
    /// # Errors
    /// That is no address.
    pub fn at(&self, address: &str) -> Result<Arc<HttpPeer>, StoreError> {
        // Every change is a single one, so that a panic elsewhere leaves it whole.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(peer) = known.get(address) {
            return Ok(Arc::clone(peer));
        }
        let peer = HttpPeer::new(address, self.timeouts)?;
        let peer = match &self.credentials {
            Credentials::Secret(secret) => peer.authorized_by(secret.authorization()),
            Credentials::Tls(_) => peer.connected_by(Arc::new(MemberConnector {
                credentials: self.credentials.clone(),
                role: self.role,
            })),
        };
        known.insert(address.to_owned(), Arc::clone(&peer));
        Ok(peer)
    }
}

/// Connects to members that have a role.
#[derive(Debug)]
struct MemberConnector {
    credentials: Credentials,
    role: Role,
}

#[async_trait]
impl PeerConnector for MemberConnector {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn PeerStream>> {
        let connected = connect(&self.credentials, self.role, address).await;
        connected.map_err(|why| {
            io::Error::new(io::ErrorKind::ConnectionRefused, format!("{address} {why}"))
        })
    }
}
