//! A connection from its first byte to its last: it is greeted, asks one thing after another, and leaves.

use std::str::Utf8Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ingest::Reservation;
use sql::connection::Variables;
use sql::{Connection, ErrorCode};
use tokio::time::timeout;
use tracing::{Instrument, debug, info_span};

use super::answers::{Status, end_of_rows, ok, refused};
use super::capabilities::Capabilities;
use super::columns::define_with_default;
use super::handshake::{
    Introduction, NATIVE_PASSWORD, Proof, Scramble, ask_in_a_way, asks_for_tls, confirm, greet,
    has_password, in_handshake, no_tls,
};
use super::packets::{Halves, Incoming, NoPacket, Outgoing, Sending};
use super::prepared::PreparedStatements;
use super::wire::{Malformed, Reader};
use crate::doors::Peer;
use crate::metrics::Door;
use crate::places::{Full, Place};
use crate::running::Entered;
use crate::tls::Tls;
use crate::{Refusal, Shared};

/// The longest that the first words may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes of a packet from somebody who is not let in yet.
const LONGEST_INTRODUCTION: usize = 16 << 10;
/// Bytes of a packet from everybody else (`max_allowed_packet`).
pub(crate) const LONGEST_COMMAND: usize = 64 << 20;
/// The longest that the last words may take.
const FAREWELL: Duration = Duration::from_secs(2);

/// Commands by their numbers in the protocol.
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

/// A client and what is known of it.
pub(crate) struct Client {
    pub(super) shared: Arc<Shared>,
    pub(super) entered: Entered,
    pub(super) incoming: Incoming,
    pub(super) sending: Sending,
    /// Packets of the present answer that are not sent yet.
    pub(super) outgoing: Outgoing,
    pub(super) capabilities: Capabilities,
    pub(super) connection: Arc<Connection>,
    pub(super) prepared: PreparedStatements,
}

/// The connection is over: the client has gone, or is to go.
#[derive(Debug)]
pub(super) struct Over;

/// What a command comes to: done, refused, or the end of the connection.
pub(super) type Done = Result<Result<(), Refusal>, Over>;

/// Serves a client until it leaves.
pub(crate) async fn serve(shared: Arc<Shared>, stream: Halves, peer: Peer, place: Place) {
    let entered = shared.running.enter(peer);
    let span = info_span!("connection", id = entered.id);
    async {
        let mut client = Client::new(Arc::clone(&shared), entered, stream, peer);
        let end = client.entered.end();
        let let_in = tokio::select! {
            () = shared.closing.cancelled() => return,
            () = end.cancelled() => return,
            () = place.is_needed() => {
                debug!(address = %peer, "gave way to others before it introduced itself");
                return;
            }
            let_in = timeout(HANDSHAKE, client.let_in()) => let_in,
        };
        match let_in {
            Ok(Ok(Ok(()))) => {
                // It has a state that it would miss.
                place.is_busy();
                debug!(user = client.connection.user, address = %peer, "connected");
                client.attend().await;
                debug!("left");
            }
            Ok(Ok(Err(refusal))) => client.say_farewell(&refusal).await,
            Ok(Err(Over)) => debug!(address = %peer, "left without introducing itself"),
            Err(_) => debug!(address = %peer, "did not introduce itself in time"),
        }
    }
    .instrument(span)
    .await;
}

/// Tells somebody for whom there is no room.
pub(crate) async fn turn_away((_, write): Halves, full: Full) {
    let sentence = format!("Too many connections: {full}");
    let refusal = Refusal::new(ErrorCode::TOO_MANY_CONNECTIONS, sentence);
    let mut outgoing = Outgoing::from_number(0);
    outgoing.add(|bytes| refused(bytes, &refusal));
    let mut sending = Sending::new(write);
    sending.put(outgoing.take());
    // Whoever does not listen is not told.
    let _ = timeout(FAREWELL, sending.flush()).await;
}

impl Client {
    fn new(shared: Arc<Shared>, entered: Entered, (read, write): Halves, peer: Peer) -> Self {
        let connection = Connection {
            id: entered.id,
            user: String::new(),
            host: peer.host(),
            database: None,
            variables: Variables::default(),
            found_rows: 0,
            warnings: vec![],
            row_count: 0,
            surroundings: Arc::clone(&shared.surroundings),
        };
        let sent = shared.metrics.bytes(Door::Mysql);
        let room = Reservation::of(&shared.packets);
        Self {
            prepared: PreparedStatements::new(Reservation::of(&shared.packets)),
            shared,
            entered,
            incoming: Incoming::new(read, room),
            sending: Sending::new(write).counted(sent),
            outgoing: Outgoing::default(),
            capabilities: Capabilities::OURS,
            connection: Arc::new(connection),
        }
    }

    /// Greets the client and hears who it is.
    async fn let_in(&mut self) -> Done {
        let Ok(scramble) = Scramble::random() else {
            let sentence = "the system has no random numbers";
            return Ok(Err(Refusal::new(ErrorCode::HANDSHAKE, sentence)));
        };
        let id = self.connection.id;
        let door = self.shared.tls.as_ref().map(Tls::for_mysql);
        let tls = door.is_some();
        self.outgoing.add(|bytes| greet(bytes, id, &scramble, tls));
        let mut packet = match self.hear().await? {
            Ok(packet) => packet,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if asks_for_tls(&packet) {
            let Some(door) = door else {
                return Ok(Err(no_tls()));
            };
            self.encrypt(&door).await?;
            packet = match self.hear().await? {
                Ok(packet) => packet,
                Err(refusal) => return Ok(Err(refusal)),
            };
        }
        match Introduction::read(&packet) {
            Ok(introduction) => {
                self.capabilities = introduction.capabilities;
                self.welcome(introduction, &scramble).await
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Lets in whoever has introduced itself.
    async fn welcome(&mut self, introduction: Introduction, scramble: &Scramble) -> Done {
        if let Err(refusal) = self.prove(introduction.proof, scramble).await? {
            return Ok(Err(refusal));
        }
        let connection = Arc::make_mut(&mut self.connection);
        connection.user = introduction.user;
        connection.database = None;
        self.entered.introduce(&connection.user, None);
        if let Some(database) = introduction.database
            && let Err(refusal) = self.choose(&database).await
        {
            return Ok(Err(refusal));
        }
        let status = self.status();
        self.outgoing.add(|bytes| ok(bytes, status));
        self.send_all().await?;
        Ok(Ok(()))
    }

    /// Says whatever a client wants to hear before it believes that it has proved who it is.
    async fn prove(&mut self, proof: Proof, scramble: &Scramble) -> Done {
        let way = match proof {
            Proof::Given => return Ok(Ok(())),
            Proof::ToBeConfirmed => {
                self.outgoing.add(confirm);
                return Ok(Ok(()));
            }
            Proof::InTheWay(way) => way,
        };
        self.outgoing
            .add(|bytes| ask_in_a_way(bytes, way, scramble));
        let response = match self.hear().await? {
            Ok(response) => response,
            Err(refusal) => return Ok(Err(refusal)),
        };
        if way != NATIVE_PASSWORD && has_password(&response) {
            self.outgoing.add(confirm);
        }
        Ok(Ok(()))
    }

    /// Sends what waits to be sent, and hears the packet that answers it.
    async fn hear(&mut self) -> Result<Result<Bytes, Refusal>, Over> {
        self.send_all().await?;
        self.incoming.number = self.outgoing.number;
        let packet = self.incoming.next(LONGEST_INTRODUCTION).await;
        self.outgoing.number = self.incoming.number;
        match packet {
            Ok(packet) => Ok(Ok(packet)),
            Err(NoPacket::Gone) => Err(Over),
            Err(_) => Ok(Err(in_handshake())),
        }
    }

    /// The state of the connection that ends its answers.
    pub(super) fn status(&self) -> Status {
        Status::of(self.connection.variables.autocommit())
    }

    async fn send_all(&mut self) -> Result<(), Over> {
        self.sending.put(self.outgoing.take());
        self.sending.flush().await.map_err(|_| Over)
    }

    /// Answers command after command.
    async fn attend(&mut self) {
        loop {
            self.entered.sleep();
            self.prepared.settle();
            self.incoming.number = 0;
            let variables = &self.connection.variables;
            let idle = Duration::from_secs(variables.idle_seconds());
            self.incoming.patience = Duration::from_secs(variables.read_seconds());
            let packet = tokio::select! {
                biased;
                () = self.shared.closing.cancelled() => {
                    let refusal = Refusal::new(ErrorCode::SERVER_ENDS, "the server ends");
                    self.outgoing.number = 0;
                    return self.say_farewell(&refusal).await;
                }
                () = self.entered.ended() => return,
                packet = command(&mut self.incoming, idle) => packet,
            };
            self.outgoing.number = self.incoming.number;
            let packet = match packet {
                Ok(packet) => packet,
                Err(NoPacket::Gone) => return,
                Err(refused @ (NoPacket::TooLong | NoPacket::NoRoom)) => {
                    self.say_farewell(&refused.into()).await;
                    // It hears that only when it has said what it has to say. Whoever never ends is not waited for.
                    let _ = timeout(FAREWELL, self.incoming.ignore()).await;
                    return;
                }
                Err(refused) => return self.say_farewell(&refused.into()).await,
            };
            match self.answer(&packet).await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => {
                    debug!(%refusal, "refused");
                    self.outgoing.add(|bytes| refused(bytes, &refusal));
                }
                Err(Over) => return,
            }
            if self.flush().await.is_err() || self.entered.is_ended() {
                return;
            }
        }
    }

    /// Sends what waits; a client that does not read for long is left.
    pub(super) async fn flush(&mut self) -> Result<(), Over> {
        let patience = Duration::from_secs(self.connection.variables.write_seconds());
        self.sending.put(self.outgoing.take());
        let sent = tokio::select! {
            biased;
            () = self.shared.ended.cancelled() => None,
            () = self.entered.ended() => None,
            sent = timeout(patience, self.sending.flush()) => Some(sent),
        };
        match sent {
            Some(Ok(Ok(()))) => Ok(()),
            Some(_) => Err(Over),
            None => self.flush_shortly().await,
        }
    }

    /// The same of a connection that ends.
    async fn flush_shortly(&mut self) -> Result<(), Over> {
        self.sending.put(self.outgoing.take());
        match timeout(FAREWELL, self.sending.flush()).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Over),
        }
    }

    /// Says why the connection ends.
    async fn say_farewell(&mut self, refusal: &Refusal) {
        debug!(%refusal, "the connection ends");
        self.outgoing.add(|bytes| refused(bytes, refusal));
        self.sending.put(self.outgoing.take());
        // Whoever does not listen is not told.
        let _ = timeout(FAREWELL, self.sending.close()).await;
    }

    /// Answers a command.
    async fn answer(&mut self, packet: &[u8]) -> Done {
        let Some((command, rest)) = packet.split_first() else {
            return Ok(Err(Refusal::malformed("it is empty")));
        };
        let mut reader = Reader::new(rest);
        match *command {
            commands::QUIT => return Err(Over),
            commands::QUERY => return self.query(rest).await,
            commands::PROCESS_INFO => return self.query(b"SHOW PROCESSLIST").await,
            commands::PREPARE => return self.prepare(rest).await,
            commands::EXECUTE => return self.execute(&mut reader).await,
            commands::CHANGE_USER => return self.change_user(rest).await,
            commands::FIELD_LIST => return self.list_fields(reader.terminated()).await,
            commands::SEND_LONG_DATA => {
                // No answer to it is expected, whatever it is.
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
                let line = self.shared.running.in_a_line();
                self.outgoing
                    .add(|bytes| bytes.extend_from_slice(line.as_bytes()));
                return Ok(Ok(()));
            }
            _ => {}
        }
        let done = self.do_shortly(*command, &mut reader).await;
        if done.is_ok() && *command != commands::SET_OPTION {
            let status = self.status();
            self.outgoing.add(|bytes| ok(bytes, status));
        }
        Ok(done)
    }

    /// Does what a command says whose answer is that it is done.
    async fn do_shortly(&mut self, command: u8, reader: &mut Reader<'_>) -> Result<(), Refusal> {
        let malformed = |_: Malformed| Refusal::malformed("it ends too early");
        match command {
            commands::PING => Ok(()),
            commands::INIT_DB => {
                let name = text(reader.rest())?;
                self.choose(name).await
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
                    _ => return Err(Refusal::malformed("there is no such option")),
                };
                let several = Capabilities::MULTI_STATEMENTS;
                self.capabilities = self.capabilities.with(several, !off);
                let (capabilities, status) = (self.capabilities, self.status());
                self.outgoing
                    .add(|bytes| end_of_rows(bytes, capabilities, status, 0));
                Ok(())
            }
            commands::FETCH => {
                let sentence = "no rows wait to be fetched: prepared statements are answered with all of them at once";
                Err(Refusal::new(ErrorCode::NO_CURSOR, sentence))
            }
            commands::SHUTDOWN => {
                let sentence = "the server is ended by whoever started it, with Ctrl-C or SIGTERM";
                Err(Refusal::new(ErrorCode::ACCESS_DENIED, sentence))
            }
            other => {
                let sentence = format!("command {other} of the protocol is not known here");
                Err(Refusal::new(ErrorCode::UNKNOWN_COMMAND, sentence))
            }
        }
    }

    /// Makes the connection what it was at its start, but for who asks and the database.
    fn reset(&mut self) {
        let connection = Arc::make_mut(&mut self.connection);
        connection.variables = Variables::default();
        (connection.found_rows, connection.row_count) = (0, 0);
        connection.warnings.clear();
        self.prepared = PreparedStatements::new(Reservation::of(&self.shared.packets));
    }

    /// Lets the client be somebody else. Where that fails it is neither, and has to connect anew.
    async fn change_user(&mut self, packet: &[u8]) -> Done {
        let introduction = match Introduction::changed(packet, self.capabilities) {
            Ok(introduction) => introduction,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Ok(scramble) = Scramble::random() else {
            return Err(Over);
        };
        self.reset();
        match timeout(HANDSHAKE, self.welcome(introduction, &scramble)).await {
            Ok(Ok(Err(refusal))) => {
                self.say_farewell(&refusal).await;
                Err(Over)
            }
            Ok(done) => done,
            Err(_) => Err(Over),
        }
    }

    /// The columns of a table, as an old command asks for them.
    async fn list_fields(&mut self, table: &[u8]) -> Done {
        let described = match text(table) {
            Ok(table) => {
                let table = table.replace('`', "``");
                let statement = format!("SELECT * FROM `{table}` LIMIT 0");
                self.describe("Field List", statement, vec![]).await?
            }
            Err(refusal) => Err(refusal),
        };
        Ok(described.map(|described| {
            for (name, column) in &described.columns {
                self.outgoing
                    .add(|bytes| define_with_default(bytes, name, *column));
            }
            let (capabilities, status) = (self.capabilities, self.status());
            self.outgoing
                .add(|bytes| end_of_rows(bytes, capabilities, status, 0));
        }))
    }
}

impl From<NoPacket> for Refusal {
    fn from(refused: NoPacket) -> Self {
        match refused {
            NoPacket::TooLong => {
                let sentence = format!(
                    "a packet may have {LONGEST_COMMAND} bytes at most (max_allowed_packet)"
                );
                Self::new(ErrorCode::PACKET_TOO_LARGE, sentence)
            }
            NoPacket::NoRoom => {
                let sentence = "the server has no room for this packet now, as the packets of other connections take it all: send it \
                                again in a while";
                Self::new(ErrorCode::OUT_OF_RESOURCES, sentence)
            }
            NoPacket::OutOfOrder | NoPacket::Gone => {
                let sentence =
                    "a packet's number is not the next: the two sides have lost each other";
                Self::new(ErrorCode::OUT_OF_ORDER, sentence)
            }
            NoPacket::Idle(idle) => {
                let sentence = format!("nothing was asked for {} s (wait_timeout)", idle.as_secs());
                Self::new(ErrorCode::IDLE, sentence)
            }
            NoPacket::Stalled(patience) => {
                let seconds = patience.as_secs();
                let sentence = format!(
                    "a packet began, and nothing more of it came for {seconds} s (net_read_timeout)"
                );
                Self::new(ErrorCode::STALLED, sentence)
            }
        }
    }
}

/// The next command, which has to begin within some time.
async fn command(incoming: &mut Incoming, idle: Duration) -> Result<Bytes, NoPacket> {
    incoming.wait(idle).await?;
    incoming.next(LONGEST_COMMAND).await
}

/// A name that a client sent.
fn text(bytes: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(bytes).map_err(no_text)
}

/// What a client is told whose text is none.
pub(super) fn no_text(error: Utf8Error) -> Refusal {
    let sentence = format!(
        "the text is not UTF-8 (at byte {}): set the connection's character set to utf8mb4, and write bytes that are no text as \
         x'00ff' or _binary'...', which Python's drivers do with binary_prefix=True",
        error.valid_up_to() + 1
    );
    Refusal::new(ErrorCode::NO_TEXT, sentence)
}
