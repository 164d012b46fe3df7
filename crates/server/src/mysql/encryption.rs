//! The switch of a connection from clear text to TLS.

use std::io::Cursor;
use std::sync::Arc;

use ingest::Reservation;
use rustls::ProtocolVersion;
use sql::connection::{LimitInfo, ProcessInfo, ServerInfo, VariableValue};
use tokio::io::{AsyncReadExt, empty, join, sink, split};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::connection::{Client, Disconnected};
use super::packets::{PacketReader, PacketWriter};

impl Client {
    /// Performs the TLS handshake. No packet may be buffered.
    pub(super) async fn encrypt(&mut self, acceptor: &TlsAcceptor) -> Result<(), Disconnected> {
        let incoming = {
            let nothing = PacketReader::new(empty(), Reservation::of(&self.shared.packets));
            std::mem::replace(&mut self.incoming, nothing)
        };
        let sending = std::mem::replace(&mut self.sending, PacketWriter::new(sink()));
        let number = incoming.number;
        let (came, source, room) = incoming.into_parts();
        // Bytes that arrived after the SSL request belong to the TLS handshake; none of them are a command in clear text.
        let stream = join(Cursor::new(came).chain(source), sending.into_sink());
        let stream = Box::pin(acceptor.accept(stream)).await.map_err(|error| {
            debug!(%error, "TLS was not agreed upon");
            Disconnected
        })?;
        let connection = Arc::make_mut(&mut self.connection);
        connection.server_info = Arc::new(TlsServerInfo::new(&stream, &connection.server_info));
        let (read, write) = split(stream);
        self.incoming = PacketReader::new(read, room);
        self.incoming.number = number;
        self.sending = PacketWriter::new(write);
        Ok(())
    }
}

/// The server's information as statements of a TLS connection see it.
#[derive(Debug)]
struct TlsServerInfo {
    version: &'static str,
    cipher: String,
    server: Arc<dyn ServerInfo>,
}

impl TlsServerInfo {
    fn new<T>(stream: &TlsStream<T>, server: &Arc<dyn ServerInfo>) -> Self {
        let session = stream.get_ref().1;
        let version = match session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        };
        let suite = session.negotiated_cipher_suite().map(|it| it.suite());
        let suite = suite.and_then(|it| it.as_str().map(str::to_owned));
        Self {
            version,
            // Under the names of the standard.
            cipher: suite.unwrap_or_default().replacen("TLS13_", "TLS_", 1),
            server: Arc::clone(server),
        }
    }
}

impl ServerInfo for TlsServerInfo {
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

    fn processes(&self) -> Vec<ProcessInfo> {
        self.server.processes()
    }

    fn limits(&self) -> Vec<LimitInfo> {
        self.server.limits()
    }

    fn groups(&self) -> Vec<String> {
        self.server.groups()
    }

    fn own_databases(&self) -> Vec<String> {
        self.server.own_databases()
    }
}
