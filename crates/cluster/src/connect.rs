//! Connections to other members, in TLS or, with the secret, without.

use std::io;
use std::time::Duration;

use async_trait::async_trait;
use store::{PeerConnector, PeerStream};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::credentials::Credentials;
use crate::listen::tune;
use crate::tls::{Role, of_client};

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
    let handshake = certificates.connector().connect(name, stream);
    match timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(of_client(&error).unwrap_or_else(|| {
            format!("closed the connection before there was TLS ({error}): its log may say why")
        })),
        Err(_) => {
            let after = HANDSHAKE.as_secs();
            Err(format!("does not speak TLS: nothing came within {after} s"))
        }
    }
}

/// Connects to front ends to read ranges of their files.
#[derive(Debug)]
pub(crate) struct FrontEndConnector(pub Credentials);

#[async_trait]
impl PeerConnector for FrontEndConnector {
    async fn connect(&self, address: &str) -> io::Result<Box<dyn PeerStream>> {
        let connected = connect(&self.0, Role::FrontEnd, address).await;
        connected.map_err(|why| {
            io::Error::new(io::ErrorKind::ConnectionRefused, format!("{address} {why}"))
        })
    }
}
