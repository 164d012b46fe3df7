//! From clear text to TLS, for a client that asks for it.

use std::io::Cursor;
use std::sync::Arc;

use ingest::Reservation;
use rustls::ProtocolVersion;
use sql::connection::{Process, Surroundings, VariableValue};
use tokio::io::{AsyncReadExt, empty, join, sink, split};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::connection::{Client, Over};
use super::packets::{Incoming, Sending};

impl Client {
    /// Goes on in TLS. Nothing may wait to be sent.
    pub(super) async fn encrypt(&mut self, door: &TlsAcceptor) -> Result<(), Over> {
        let incoming = {
            let nothing = Incoming::new(empty(), Reservation::of(&self.shared.packets));
            std::mem::replace(&mut self.incoming, nothing)
        };
        let sending = std::mem::replace(&mut self.sending, Sending::new(sink()));
        let number = incoming.number;
        let (came, source, room) = incoming.into_parts();
        // Whatever came behind the wish for TLS is the beginning of TLS, and nothing that was said in the clear.
        let stream = join(Cursor::new(came).chain(source), sending.into_sink());
        let stream = Box::pin(door.accept(stream)).await.map_err(|error| {
            debug!(%error, "TLS was not agreed upon");
            Over
        })?;
        let connection = Arc::make_mut(&mut self.connection);
        connection.surroundings = Arc::new(Encrypted::new(&stream, &connection.surroundings));
        let (read, write) = split(stream);
        self.incoming = Incoming::new(read, room);
        self.incoming.number = number;
        self.sending = Sending::new(write);
        Ok(())
    }
}

/// What statements may ask of the server by a connection in TLS.
#[derive(Debug)]
struct Encrypted {
    version: &'static str,
    cipher: String,
    server: Arc<dyn Surroundings>,
}

impl Encrypted {
    fn new<T>(stream: &TlsStream<T>, server: &Arc<dyn Surroundings>) -> Self {
        let session = stream.get_ref().1;
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        };
        let suite = session.negotiated_cipher_suite().map(|it| it.suite());
        let suite = suite.and_then(|it| it.as_str().map(str::to_owned));
        Self {
            version,
            // As the standard has the names.
            cipher: suite.unwrap_or_default().replacen("TLS13_", "TLS_", 1),
            server: Arc::clone(server),
        }
    }
}

impl Surroundings for Encrypted {
    fn variable(&self, name: &str) -> Option<VariableValue> {
        self.server.variable(name)
    }

    fn status(&self) -> Vec<(&'static str, String)> {
        let mut status = self.server.status();
        for (name, value) in &mut status {
            match *name {
                "Ssl_cipher" => value.clone_from(&self.cipher),
                "Ssl_version" => self.version.clone_into(value),
                _ => {}
            }
        }
        status
    }

    fn processes(&self) -> Vec<Process> {
        self.server.processes()
    }
}
