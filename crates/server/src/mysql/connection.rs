//! A MySQL connection: the handshake, the command loop, and the error packet that closes it.

use std::borrow::Cow;
use std::str::Utf8Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ingest::Reservation;
use sql::connection::{ServerInfo, UserVariables, Variables};
use sql::{Connection, ErrorCode};
use tokio::time::timeout;
use tracing::{Instrument, debug, info_span};

use super::capabilities::Capabilities;
use super::columns::define_with_default;
use super::compression::{Algorithm, Number};
use super::handshake::{
    CACHING_SHA2, HandshakeResponse, NATIVE_PASSWORD, Scramble, handshake_error, is_ssl_request,
    put_handshake, tls_not_offered,
};
use super::packets::{
    Halves, LONGEST_COMMAND, PacketBuffer, PacketError, PacketReader, PacketWriter,
};
use super::prepared::PreparedStatements;
use super::responses::{Status, changed, end_of_rows, err, ok};
use super::wire::{MalformedPacket, Reader};
use crate::audit;
use crate::authenticator::{LoginPolicy, Principal};
use crate::connection_slots::{ConnectionSlot, LimitReached};
use crate::listener::Peer;
use crate::metrics::Protocol;
use crate::own_tables::warning;
use crate::process_list::ConnectionGuard;
use crate::tls::Tls;
use crate::usage::TakenShare;
use crate::{ClientError, Shared};

/// How long the handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a packet before the client is authenticated.
const MAX_HANDSHAKE_PACKET: usize = 16 << 10;
/// How long the server tries to send the error that closes a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The numbers of the commands in the protocol.
mod commands {
    pub(super) const QUIT: u8 = 0x01;
    pub(super) const INIT_DB: u8 = 0x02;
    pub(super) const QUERY: u8 = 0x03;
    pub(super) const FIELD_LIST: u8 = 0x04;
    pub(super) const SHUTDOWN: u8 = 0x08;
    pub(super) const STATISTICS: u8 = 0x09;
    pub(super) const PROCESS_INFO: u8 = 0x0a;
    pub(super) const PROCESS_KILL: u8 = 0x0c;
    pub(super) const PING: u8 = 0x0e;
    pub(super) const CHANGE_USER: u8 = 0x11;
    pub(super) const PREPARE: u8 = 0x16;
    pub(super) const EXECUTE: u8 = 0x17;
    pub(super) const SEND_LONG_DATA: u8 = 0x18;
    pub(super) const CLOSE_STATEMENT: u8 = 0x19;
    pub(super) const RESET_STATEMENT: u8 = 0x1a;
    pub(super) const SET_OPTION: u8 = 0x1b;
    pub(super) const FETCH: u8 = 0x1c;
    pub(super) const RESET_CONNECTION: u8 = 0x1f;
}

/// A client and the state of its connection.
pub(crate) struct Client {
    pub(super) shared: Arc<Shared>,
    /// Who has logged in.
    pub(super) principal: Option<Arc<Principal>>,
    pub(super) peer: Peer,
    /// What the client's answer to the handshake went by.
    scramble: Option<Scramble>,
    /// What the server tells of itself to whoever may know all.
    pub(super) server_info: Option<Arc<dyn ServerInfo>>,
    /// The place among the user's connections.
    pub(super) taken: Option<TakenShare>,
    /// Whether nobody between can read what the client sends.
    pub(super) is_private: bool,
    pub(super) guard: ConnectionGuard,
    pub(super) incoming: PacketReader,
    pub(super) sending: PacketWriter,
    /// Packets of the current result that have not been sent.
    pub(super) outgoing: PacketBuffer,
    pub(super) capabilities: Capabilities,
    /// The collation that stands for the character set of which the client has told in the handshake.
    collation: u8,
    pub(super) connection: Arc<Connection>,
    pub(super) prepared: PreparedStatements,
}

/// The client has disconnected, or the server is to close the connection.
#[derive(Debug)]
pub(super) struct Disconnected;

/// The result of a command: success, an error for the client, or the end of the connection.
pub(super) type CommandResult = Result<Result<(), ClientError>, Disconnected>;

/// Serves a client until it disconnects.
pub(crate) async fn serve(shared: Arc<Shared>, stream: Halves, peer: Peer, slot: ConnectionSlot) {
    let guard = shared.processes.register(peer);
    let span = info_span!("connection", id = guard.id);
    async {
        let mut client = Client::new(Arc::clone(&shared), guard, stream, peer);
        let end = client.guard.end();
        let handshake = tokio::select! {
            () = shared.closing.cancelled() => return,
            () = end.cancelled() => return,
            () = slot.eviction_requested() => {
                debug!(address = %peer, "evicted before the handshake was complete");
                return;
            }
            handshake = timeout(HANDSHAKE_TIMEOUT, client.handshake()) => handshake,
        };
        match handshake {
            Ok(Ok(Ok(()))) => {
                // The connection has a state that the client would lose.
                slot.set_busy();
                debug!(user = client.connection.user, address = %peer, "connected");
                client.command_loop().await;
                debug!("left");
            }
            Ok(Ok(Err(error))) => client.close_with_error(&error).await,
            Ok(Err(Disconnected)) => debug!(address = %peer, "disconnected during the handshake"),
            Err(_) => debug!(address = %peer, "the handshake timed out"),
        }
    }
    .instrument(span)
    .await;
}

/// Tells a client that the connection limit is reached.
pub(crate) async fn reject((_, write): Halves, full: LimitReached) {
    let sentence = format!("Too many connections: {full}");
    let error = ClientError::new(ErrorCode::TOO_MANY_CONNECTIONS, sentence);
    let mut outgoing = PacketBuffer::from_number(0);
    outgoing.add(|bytes| err(bytes, &error, None));
    let mut sending = PacketWriter::new(write);
    sending.put(outgoing.take());
    // The client may not read it.
    let _ = timeout(CLOSE_TIMEOUT, sending.flush()).await;
}

impl Client {
    fn new(shared: Arc<Shared>, guard: ConnectionGuard, (read, write): Halves, peer: Peer) -> Self {
        let connection = Connection {
            id: guard.id,
            user: String::new(),
            host: peer.host(),
            database: None,
            variables: Variables::default(),
            user_variables: UserVariables::default(),
            most_rows: None,
            most_bytes: None,
            inserts: false,
            found_rows: 0,
            warnings: vec![],
            row_count: 0,
            server_info: Arc::clone(&shared.server_info),
        };
        let sent = shared.metrics.bytes(Protocol::Mysql);
        let room = Reservation::of(&shared.packets);
        Self {
            prepared: PreparedStatements::new(Reservation::of(&shared.packets)),
            principal: None,
            peer,
            scramble: None,
            server_info: None,
            taken: None,
            is_private: matches!(peer, Peer::Socket),
            shared,
            guard,
            incoming: PacketReader::new(read, room),
            sending: PacketWriter::new(write).counted(sent),
            outgoing: PacketBuffer::default(),
            capabilities: Capabilities::OURS,
            collation: 0,
            connection: Arc::new(connection),
        }
    }

    /// Performs the handshake.
    async fn handshake(&mut self) -> CommandResult {
        let Ok(scramble) = Scramble::random() else {
            let sentence = "the operating system has no random numbers";
            return Ok(Err(ClientError::new(ErrorCode::HANDSHAKE, sentence)));
        };
        self.scramble = Some(scramble.clone());
        let login_policy = match self.shared.authenticator.login_policy().await {
            Ok(login_policy) => login_policy,
            Err(error) => return Ok(Err(error)),
        };
        let plugin = match &login_policy {
            LoginPolicy::Open(_) => NATIVE_PASSWORD,
            LoginPolicy::Required(_) => CACHING_SHA2,
        };
        let id = self.connection.id;
        let acceptor = self.shared.tls.as_ref().map(Tls::for_mysql);
        let tls = acceptor.is_some();
        self.outgoing
            .add(|bytes| put_handshake(bytes, id, &scramble, tls, plugin));
        let mut packet = match self.read_packet().await? {
            Ok(packet) => packet,
            Err(error) => return Ok(Err(error)),
        };
        if is_ssl_request(&packet) {
            let Some(acceptor) = acceptor else {
                return Ok(Err(tls_not_offered()));
            };
            self.encrypt(&acceptor).await?;
            self.is_private = true;
            packet = match self.read_packet().await? {
                Ok(packet) => packet,
                Err(error) => return Ok(Err(error)),
            };
        }
        match HandshakeResponse::read(&packet) {
            Ok(handshake_response) => {
                self.capabilities = handshake_response.capabilities;
                let level = handshake_response.zstd_level;
                let done = self.finish_handshake(handshake_response, &scramble).await?;
                if done.is_ok()
                    && let Some(algorithm) = Algorithm::of(self.capabilities, level)
                {
                    let number = Number::default();
                    let room = Reservation::of(&self.shared.packets);
                    self.incoming
                        .decompress(Arc::clone(&number), algorithm, room);
                    self.sending.compress(number, algorithm);
                }
                Ok(done)
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// Authenticates the client and selects its database.
    async fn finish_handshake(
        &mut self,
        handshake_response: HandshakeResponse,
        scramble: &Scramble,
    ) -> CommandResult {
        let principal = match self.shared.authenticator.login_policy().await {
            Ok(LoginPolicy::Open(principal)) => self
                .authenticate(handshake_response.step, scramble)
                .await?
                .map(|()| principal),
            Ok(LoginPolicy::Required(list)) => {
                self.log_in(&list, &handshake_response, scramble).await?
            }
            Err(error) => Err(error),
        };
        let principal = match principal {
            Ok(principal) => principal,
            Err(error) => return Ok(Err(error)),
        };
        let connection = Arc::make_mut(&mut self.connection);
        connection.user = match &principal.user {
            Some(user) => user.name.clone(),
            None => handshake_response.user,
        };
        connection.database = None;
        if let Some(collation) = handshake_response.collation {
            self.collation = collation;
            connection.variables.set_names_by_number(collation);
        }
        self.guard.set_identity(&connection.user, None);
        if let Some(audit) = self.shared.authenticator.audit() {
            audit.add(&audit::login("mysql", &connection.user, self.peer, None));
        }
        self.set_principal(principal);
        // Before a new place is taken, the one of the former user is free.
        self.taken = None;
        match self.shared.usage.connection() {
            Ok(taken) => self.taken = Some(taken),
            Err(error) => return Ok(Err(error)),
        }
        if let Some(database) = handshake_response.database
            && let Err(error) = self.use_database(&database).await
        {
            return Ok(Err(error));
        }
        self.warn_of_expiry();
        let (status, warnings) = (self.status(), self.count_warnings());
        self.outgoing
            .add(|bytes| changed(bytes, status, 0, warnings));
        self.send_all().await?;
        Ok(Ok(()))
    }

    /// Warns of the user's tables that expire soon: SHOW WARNINGS tells them until the first statement that has others.
    fn warn_of_expiry(&mut self) {
        let expiring = match &self.shared.user {
            Some(user) => self.shared.authenticator.expiring_of(user),
            None => return,
        };
        let warnings = expiring.iter().map(|(table, time)| warning(table, time));
        self.add_warnings(warnings.collect());
    }

    /// Sends the buffered packets and reads the client's next packet.
    pub(super) async fn read_packet(&mut self) -> Result<Result<Bytes, ClientError>, Disconnected> {
        self.send_all().await?;
        self.incoming.number = self.outgoing.number;
        let packet = self.incoming.next(MAX_HANDSHAKE_PACKET).await;
        self.outgoing.number = self.incoming.number;
        match packet {
            Ok(packet) => Ok(Ok(packet)),
            Err(PacketError::Disconnected) => Err(Disconnected),
            Err(_) => Ok(Err(handshake_error())),
        }
    }

    /// The status flags of the packet that ends a result.
    pub(super) fn status(&self) -> Status {
        Status::of(self.connection.variables.autocommit())
    }

    async fn send_all(&mut self) -> Result<(), Disconnected> {
        self.sending.put(self.outgoing.take());
        self.sending.flush().await.map_err(|_| Disconnected)
    }

    /// Reads and executes commands until the connection ends.
    async fn command_loop(&mut self) {
        loop {
            self.guard.sleep();
            self.prepared.release_unused();
            self.incoming.number = 0;
            let variables = &self.connection.variables;
            let idle = Duration::from_secs(variables.idle_seconds());
            self.incoming.patience = Duration::from_secs(variables.read_seconds());
            let packet = tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => {
                    let error = ClientError::new(ErrorCode::SERVER_ENDS, "the server ends");
                    self.outgoing.number = 0;
                    return self.close_with_error(&error).await;
                }
                () = self.guard.ended() => return,
                packet = command(&mut self.incoming, idle) => packet,
            };
            self.outgoing.number = self.incoming.number;
            let packet = match packet {
                Ok(packet) => packet,
                Err(PacketError::Disconnected) => return,
                Err(rejected @ (PacketError::TooLong | PacketError::NoRoom)) => {
                    self.close_with_error(&rejected.into()).await;
                    // The client reads the error only after it has sent its packet. The server waits only for so long.
                    let _ = timeout(CLOSE_TIMEOUT, self.incoming.ignore()).await;
                    return;
                }
                Err(rejected) => return self.close_with_error(&rejected.into()).await,
            };
            match self.dispatch(&packet).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    debug!(%error, "rejected");
                    let set = self.connection.variables.results_character_set();
                    self.outgoing.add(|bytes| err(bytes, &error, set));
                }
                Err(Disconnected) => return,
            }
            if self.flush().await.is_err() || self.guard.is_ended() {
                return;
            }
        }
    }

    /// Sends the buffered packets; a client that does not read for `net_write_timeout` is disconnected.
    pub(super) async fn flush(&mut self) -> Result<(), Disconnected> {
        let patience = Duration::from_secs(self.connection.variables.write_seconds());
        self.sending.put(self.outgoing.take());
        let sent = tokio::select! {
            biased;
            () = self.shared.ended.cancelled() => None,
            () = self.guard.ended() => None,
            sent = timeout(patience, self.sending.flush()) => Some(sent),
        };
        match sent {
            Some(Ok(Ok(()))) => Ok(()),
            Some(_) => Err(Disconnected),
            None => self.flush_before_close().await,
        }
    }

    /// Sends the buffered packets of a connection that ends.
    async fn flush_before_close(&mut self) -> Result<(), Disconnected> {
        self.sending.put(self.outgoing.take());
        match timeout(CLOSE_TIMEOUT, self.sending.flush()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Disconnected),
        }
    }

    /// Sends the error for which the connection is closed.
    async fn close_with_error(&mut self, error: &ClientError) {
        debug!(%error, "the connection ends");
        let set = self.connection.variables.results_character_set();
        self.outgoing.add(|bytes| err(bytes, error, set));
        self.sending.put(self.outgoing.take());
        // The client may not read it.
        let _ = timeout(CLOSE_TIMEOUT, self.sending.close()).await;
    }

    /// Executes a command.
    async fn dispatch(&mut self, packet: &[u8]) -> CommandResult {
        let Some((command, rest)) = packet.split_first() else {
            return Ok(Err(ClientError::malformed("it is empty")));
        };
        if let Err(error) = self.renew_rights().await {
            self.close_with_error(&error).await;
            return Err(Disconnected);
        }
        let mut reader = Reader::new(rest);
        match *command {
            commands::QUIT => return Err(Disconnected),
            commands::QUERY => return self.execute_query(rest).await,
            commands::PROCESS_INFO => return self.execute_query(b"SHOW PROCESSLIST").await,
            commands::PREPARE => return self.prepare(rest).await,
            commands::EXECUTE => return self.execute_prepared(&mut reader).await,
            commands::CHANGE_USER => return self.change_user(rest).await,
            commands::FIELD_LIST => return self.list_fields(reader.terminated()).await,
            commands::SEND_LONG_DATA => {
                // The protocol has no response to this command.
                if let (Ok(number), Ok(parameter)) = (reader.u32(), reader.u16()) {
                    self.prepared.add_ahead(number, parameter, reader.rest());
                }
                return Ok(Ok(()));
            }
            commands::CLOSE_STATEMENT => {
                if let Ok(number) = reader.u32() {
                    self.prepared.close(number);
                }
                return Ok(Ok(()));
            }
            commands::STATISTICS => {
                let line = self.shared.processes.status_line();
                self.outgoing
                    .add(|bytes| bytes.extend_from_slice(line.as_bytes()));
                return Ok(Ok(()));
            }
            _ => {}
        }
        let done = self.execute_simple_command(*command, &mut reader).await;
        if done.is_ok() && *command != commands::SET_OPTION {
            let status = self.status();
            self.outgoing.add(|bytes| ok(bytes, status));
        }
        Ok(done)
    }

    /// Executes a command whose only response is an OK packet.
    async fn execute_simple_command(
        &mut self,
        command: u8,
        reader: &mut Reader<'_>,
    ) -> Result<(), ClientError> {
        let malformed = |_: MalformedPacket| ClientError::malformed("it ends too early");
        match command {
            commands::PING => Ok(()),
            commands::INIT_DB => {
                let name = self.text(reader.rest())?;
                self.use_database(&name).await
            }
            commands::PROCESS_KILL => {
                let id = reader.u32().map_err(malformed)?;
                self.kill(id.into(), false)
            }
            commands::RESET_STATEMENT => {
                let number = reader.u32().map_err(malformed)?;
                self.prepared.find(number).map(|prepared| prepared.reset())
            }
            commands::RESET_CONNECTION => {
                self.reset();
                Ok(())
            }
            commands::SET_OPTION => {
                let off = match reader.u16().map_err(malformed)? {
                    0 => false,
                    1 => true,
                    _ => return Err(ClientError::malformed("there is no such option")),
                };
                let several = Capabilities::MULTI_STATEMENTS;
                self.capabilities = self.capabilities.with(several, !off);
                let (capabilities, status) = (self.capabilities, self.status());
                self.outgoing
                    .add(|bytes| end_of_rows(bytes, capabilities, status, 0));
                Ok(())
            }
            commands::FETCH => {
                let sentence =
                    "there is no cursor: the server sends all rows of a prepared statement at once";
                Err(ClientError::new(ErrorCode::NO_CURSOR, sentence))
            }
            commands::SHUTDOWN => {
                let sentence = "a client cannot shut down the server: send it SIGTERM";
                Err(ClientError::new(ErrorCode::ACCESS_DENIED, sentence))
            }
            other => {
                let sentence = format!("command {other} of the protocol is not supported");
                Err(ClientError::new(ErrorCode::UNKNOWN_COMMAND, sentence))
            }
        }
    }

    /// A name that the client sent.
    fn text<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, str>, ClientError> {
        match self.connection.variables.client_character_set() {
            Some(set) => Ok(set.decode(bytes)),
            None => std::str::from_utf8(bytes)
                .map(Cow::Borrowed)
                .map_err(not_utf8),
        }
    }

    /// Resets the session state, but for the user, the database and the character set that the client has told.
    fn reset(&mut self) {
        let collation = self.collation;
        let connection = Arc::make_mut(&mut self.connection);
        connection.variables = Variables::default();
        connection.variables.set_names_by_number(collation);
        connection.user_variables = UserVariables::default();
        (connection.found_rows, connection.row_count) = (0, 0);
        connection.warnings.clear();
        self.prepared = PreparedStatements::new(Reservation::of(&self.shared.packets));
    }

    /// Authenticates the client anew as another user (COM_CHANGE_USER). If that fails, the connection is closed.
    async fn change_user(&mut self, packet: &[u8]) -> CommandResult {
        let handshake_response = match HandshakeResponse::changed(packet, self.capabilities) {
            Ok(handshake_response) => handshake_response,
            Err(error) => return Ok(Err(error)),
        };
        // Clients answer to the one of the handshake.
        let Some(scramble) = self.scramble.clone() else {
            return Err(Disconnected);
        };
        self.reset();
        match timeout(
            HANDSHAKE_TIMEOUT,
            self.finish_handshake(handshake_response, &scramble),
        )
        .await
        {
            Ok(Ok(Err(error))) => {
                self.close_with_error(&error).await;
                Err(Disconnected)
            }
            Ok(done) => done,
            Err(_) => Err(Disconnected),
        }
    }

    /// The columns of a table, for COM_FIELD_LIST.
    async fn list_fields(&mut self, table: &[u8]) -> CommandResult {
        let name = self.text(table).map(Cow::into_owned);
        let described = match name {
            Ok(table) => {
                let table = table.replace('`', "``");
                let statement = format!("SELECT * FROM `{table}` LIMIT 0");
                self.describe("Field List", statement, vec![]).await?
            }
            Err(error) => Err(error),
        };
        let set = self.connection.variables.results_character_set();
        Ok(described.map(|described| {
            for column in &described.columns {
                self.outgoing
                    .add(|bytes| define_with_default(bytes, column, set));
            }
            let (capabilities, status) = (self.capabilities, self.status());
            self.outgoing
                .add(|bytes| end_of_rows(bytes, capabilities, status, 0));
        }))
    }
}

/// Reads the next command, which has to begin within `idle`.
async fn command(incoming: &mut PacketReader, idle: Duration) -> Result<Bytes, PacketError> {
    incoming.wait(idle).await?;
    incoming.next(LONGEST_COMMAND).await
}

/// The error for a text that is not UTF-8.
pub(super) fn not_utf8(error: Utf8Error) -> ClientError {
    let sentence = format!(
        "the text is not UTF-8 (at byte {}): set the connection's character set to utf8mb4, and write bytes that are no text as \
         x'00ff' or _binary'...', which Python's drivers do with binary_prefix=True",
        error.valid_up_to() + 1
    );
    ClientError::new(ErrorCode::NO_TEXT, sentence)
}
