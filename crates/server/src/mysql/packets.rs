//! Packets: the units of the protocol, each with its length and its sequence number before it.
//!
//! A payload of 16 MiB or more is split into several packets, of which all but the last have the maximum length. The first packet of a
//! command has number 0; every further packet, from either side, has the next number.

use std::collections::VecDeque;
use std::io::{self, Cursor};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use ingest::Reservation;
use prometheus::IntCounter;
use sql::ErrorCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, empty};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::compression::{Algorithm, Compressor, DecompressingReader, Number};
use super::statements::aside;
use crate::ClientError;

/// The length of a packet that another packet continues.
pub(super) const LONGEST_PACKET: usize = 0xff_ffff;
/// Bytes of a packet before its payload: the length of that, and the packet's number.
pub(super) const HEADER: usize = 4;
/// Bytes of a command (`max_allowed_packet`).
pub(crate) const LONGEST_COMMAND: usize = 64 << 20;
/// The minimum size of a read, which holds most commands.
const READ_CHUNK: usize = 2 << 10;
/// Bytes that are read ahead while a statement runs.
const READ_AHEAD: usize = 64 << 10;
/// Bytes of packets that every connection may hold; more are taken from the pool that all connections share.
const OWN_ROOM: usize = 16 << 10;
/// Bytes per second that a packet has to arrive with.
const LEAST_RATE: u64 = 1 << 10;
/// How long a packet may pause, unless the client has set `net_read_timeout`.
const PATIENCE: Duration = Duration::from_secs(30);

/// A buffer of packets to be sent.
#[derive(Debug, Default)]
pub(crate) struct PacketBuffer {
    bytes: Vec<u8>,
    /// The number of the next packet.
    pub(crate) number: u8,
}

impl PacketBuffer {
    /// A buffer whose first packet has this number.
    pub(crate) fn from_number(number: u8) -> Self {
        Self {
            bytes: Vec::new(),
            number,
        }
    }

    /// Appends a packet with the payload that `write` appends.
    pub(crate) fn add<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEADER]);
        let told = write(&mut self.bytes);
        let length = self.bytes.len() - start - HEADER;
        if length < LONGEST_PACKET {
            self.head(start, length);
            return told;
        }
        let payload = self.bytes.split_off(start + HEADER);
        self.bytes.truncate(start);
        let mut pieces = payload.chunks_exact(LONGEST_PACKET);
        for piece in pieces.by_ref() {
            self.add_piece(piece);
        }
        // The last packet is shorter than the maximum, and may be empty.
        self.add_piece(pieces.remainder());
        told
    }

    fn add_piece(&mut self, piece: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; HEADER]);
        self.bytes.extend_from_slice(piece);
        self.head(start, piece.len());
    }

    fn head(&mut self, start: usize, length: usize) {
        let [a, b, c, ..] = (length as u32).to_le_bytes();
        self.bytes[start..start + HEADER].copy_from_slice(&[a, b, c, self.number]);
        self.number = self.number.wrapping_add(1);
    }

    /// Appends packets that were built elsewhere, beginning with our next number; `number` follows them.
    pub(crate) fn append(&mut self, packets: Bytes, number: u8) {
        if self.bytes.is_empty() {
            // The usual case, in which nothing is copied.
            self.bytes = packets.into();
        } else {
            self.bytes.extend_from_slice(&packets);
        }
        self.number = number;
    }

    /// The number of buffered bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Takes the buffered bytes; the numbers continue.
    pub(crate) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).into()
    }
}

/// Why no packet could be read.
#[derive(Debug)]
pub(crate) enum PacketError {
    /// The client has disconnected, or the network failed.
    Disconnected,
    /// The packet is longer than allowed.
    TooLong,
    /// The pool of all connections has no memory for it.
    NoRoom,
    /// Its number is out of sequence.
    OutOfOrder,
    /// Nothing has arrived for this long.
    Idle(Duration),
    /// Part of it has arrived, and nothing more for this long.
    Stalled(Duration),
}

impl From<PacketError> for ClientError {
    fn from(rejected: PacketError) -> Self {
        match rejected {
            PacketError::TooLong => {
                let sentence = format!(
                    "a packet may have {LONGEST_COMMAND} bytes at most (max_allowed_packet)"
                );
                Self::new(ErrorCode::PACKET_TOO_LARGE, sentence)
            }
            PacketError::NoRoom => {
                let sentence = "the server has no room for this packet now, as the packets of other connections take it all: send it \
                                again in a while";
                Self::new(ErrorCode::OUT_OF_RESOURCES, sentence)
            }
            PacketError::OutOfOrder | PacketError::Disconnected => {
                let sentence = "a packet's number is out of sequence";
                Self::new(ErrorCode::OUT_OF_ORDER, sentence)
            }
            PacketError::Idle(idle) => {
                let sentence = format!(
                    "the connection was idle for {} s (wait_timeout)",
                    idle.as_secs()
                );
                Self::new(ErrorCode::IDLE, sentence)
            }
            PacketError::Stalled(patience) => {
                let seconds = patience.as_secs();
                let sentence = format!(
                    "a packet began, and nothing more of it came for {seconds} s (net_read_timeout)"
                );
                Self::new(ErrorCode::STALLED, sentence)
            }
        }
    }
}

/// The read half of a stream: clear text or TLS.
pub(crate) type Source = Box<dyn AsyncRead + Send + Unpin>;
/// The write half.
pub(crate) type Sink = Box<dyn AsyncWrite + Send + Unpin>;

/// Both halves of a connection.
pub(crate) type Halves = (Source, Sink);

/// Reads the client's packets.
pub(crate) struct PacketReader {
    stream: Source,
    bytes: BytesMut,
    /// The number that the next packet must have.
    pub(crate) number: u8,
    /// How long a packet may pause.
    pub(crate) patience: Duration,
    /// Bytes of the current command, or of those packets of it that have arrived.
    whole: usize,
    /// The memory of both beyond the connection's own.
    room: Reservation,
    /// Whether the packets come in compressed ones, whose numbers take the place of theirs.
    is_compressed: bool,
}

impl PacketReader {
    pub(crate) fn new(stream: impl AsyncRead + Send + Unpin + 'static, room: Reservation) -> Self {
        Self {
            stream: Box::new(stream),
            bytes: BytesMut::new(),
            whole: 0,
            room,
            is_compressed: false,
            number: 0,
            patience: PATIENCE,
        }
    }

    /// Takes what comes from now on for compressed packets.
    pub(super) fn decompress(&mut self, number: Number, algorithm: Algorithm, room: Reservation) {
        let came = std::mem::take(&mut self.bytes).freeze();
        let stream = std::mem::replace(&mut self.stream, Box::new(empty()));
        let stream = AsyncReadExt::chain(Cursor::new(came), stream);
        self.stream = Box::new(DecompressingReader::new(stream, number, algorithm, room));
        self.is_compressed = true;
    }

    /// The bytes that have arrived and were not read, and the rest of the stream.
    pub(crate) fn into_parts(self) -> (Bytes, Source, Reservation) {
        (self.bytes.freeze(), self.stream, self.room)
    }

    /// Waits until bytes have arrived, with a timeout.
    pub(crate) async fn wait(&mut self, idle: Duration) -> Result<(), PacketError> {
        // The previous command is done.
        self.whole = 0;
        if !self.bytes.is_empty() {
            return self.hold(self.bytes.capacity());
        }
        // Otherwise the buffer of the longest packet would stay allocated as long as the client is connected.
        self.bytes = BytesMut::new();
        self.hold(0)?;
        match timeout(idle, self.read_some(READ_CHUNK)).await {
            Ok(read) => read,
            Err(_) => Err(PacketError::Idle(idle)),
        }
    }

    /// Reads the next payload of at most `longest` bytes. Memory is allocated as bytes arrive, whatever length a packet claims.
    pub(crate) async fn next(&mut self, longest: usize) -> Result<Bytes, PacketError> {
        let mut payload = BytesMut::new();
        let begun = Instant::now();
        loop {
            self.fill(HEADER, begun).await?;
            let (length, number) = match self.bytes[..] {
                [a, b, c, number, ..] => (u32::from_le_bytes([a, b, c, 0]) as usize, number),
                _ => return Err(PacketError::Disconnected),
            };
            if number != self.number && !self.is_compressed {
                return Err(PacketError::OutOfOrder);
            }
            self.number = number.wrapping_add(1);
            if payload.len() + length > longest {
                return Err(PacketError::TooLong);
            }
            self.fill(HEADER + length, begun).await?;
            self.bytes.advance(HEADER);
            let piece = self.bytes.split_to(length);
            self.whole = payload.len() + length;
            if payload.is_empty() {
                payload = piece;
            } else {
                self.hold(self.whole + self.bytes.capacity())?;
                let mut both = BytesMut::with_capacity(self.whole);
                both.extend_from_slice(&payload);
                both.extend_from_slice(&piece);
                payload = both;
            }
            if length < LONGEST_PACKET {
                return Ok(payload.freeze());
            }
        }
    }

    async fn fill(&mut self, wanted: usize, begun: Instant) -> Result<(), PacketError> {
        while self.bytes.len() < wanted {
            match timeout(self.patience, self.read_some(wanted)).await {
                Ok(read) => read?,
                Err(_) => return Err(PacketError::Stalled(self.patience)),
            }
            // A client that sends a byte now and then must not hold the memory for long.
            let slow = begun.elapsed().saturating_sub(self.patience).as_secs();
            if ((self.whole + self.bytes.len()) as u64) < slow * LEAST_RATE {
                return Err(PacketError::Stalled(self.patience));
            }
        }
        Ok(())
    }

    /// Sets how many bytes the connection holds.
    fn hold(&mut self, bytes: usize) -> Result<(), PacketError> {
        let beyond = bytes.saturating_sub(OWN_ROOM);
        let held = self.room.resize(beyond as u64);
        held.map_err(|_| PacketError::NoRoom)
    }

    /// Makes room for more bytes of a packet: doubles the buffer, up to the size that the packet needs.
    fn make_room(&mut self, wanted: usize) -> Result<(), PacketError> {
        let length = self.bytes.len();
        if self.bytes.capacity() > length {
            return Ok(());
        }
        let capacity = (length * 2).min(wanted).max(length + READ_CHUNK);
        self.hold(self.whole + capacity)?;
        let mut larger = BytesMut::with_capacity(capacity);
        larger.extend_from_slice(&self.bytes);
        self.bytes = larger;
        Ok(())
    }

    /// Reads and discards what the client sends, until it closes its side.
    pub(crate) async fn ignore(&mut self) {
        (self.whole, self.bytes) = (0, BytesMut::new());
        loop {
            self.bytes.clear();
            if self.read_some(READ_CHUNK).await.is_err() {
                return;
            }
        }
    }

    async fn read_some(&mut self, wanted: usize) -> Result<(), PacketError> {
        self.make_room(wanted)?;
        match self.stream.read_buf(&mut self.bytes).await {
            Ok(0) | Err(_) => Err(PacketError::Disconnected),
            Ok(_) => Ok(()),
        }
    }

    /// Completes when the client has hung up. It buffers what the client sends meanwhile, and stops watching when that is much.
    pub(crate) async fn hung_up(&mut self) {
        while self.bytes.len() < READ_AHEAD {
            match self.read_some(READ_AHEAD).await {
                Ok(()) => {}
                Err(PacketError::NoRoom) => break,
                Err(_) => return,
            }
        }
        std::future::pending().await
    }
}

/// Writes packets to the client. Cancelling a write loses nothing: what was not sent stays queued, in order.
pub(crate) struct PacketWriter {
    stream: Sink,
    waiting: VecDeque<Bytes>,
    /// What is being sent of these.
    leaving: Bytes,
    compressor: Option<Compressor>,
    /// The counter of sent bytes.
    sent: Option<IntCounter>,
}

impl PacketWriter {
    pub(crate) fn new(stream: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            waiting: VecDeque::new(),
            leaving: Bytes::new(),
            compressor: None,
            sent: None,
        }
    }

    /// Compresses what is queued from now on. Nothing may be queued.
    pub(super) fn compress(&mut self, number: Number, algorithm: Algorithm) {
        self.compressor = Some(Compressor::new(number, algorithm));
    }

    /// The same with a counter of its bytes.
    pub(crate) fn counted(self, sent: IntCounter) -> Self {
        Self {
            sent: Some(sent),
            ..self
        }
    }

    /// The write half. Queued bytes are lost.
    pub(crate) fn into_sink(self) -> Sink {
        self.stream
    }

    /// Queues packets.
    pub(crate) fn put(&mut self, packets: Bytes) {
        if !packets.is_empty() {
            self.waiting.push_back(packets);
        }
    }

    /// Sends the queued packets.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        while self.take_next() {
            let written = self.stream.write_buf(&mut self.leaving).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            if let Some(sent) = &self.sent {
                sent.inc_by(written as u64);
            }
            if self.compressor.is_some() {
                // Others have their turn before the next piece is compressed.
                yield_now().await;
            }
        }
        // TLS may buffer part of them, also from an earlier write that was cancelled.
        self.stream.flush().await
    }

    /// Takes the next bytes of the queue, unless there are some that were not sent; whether there are any.
    fn take_next(&mut self) -> bool {
        if !self.leaving.is_empty() {
            return true;
        }
        let Some(first) = self.waiting.front_mut() else {
            return false;
        };
        self.leaving = match &mut self.compressor {
            None => std::mem::take(first),
            Some(compressor) => {
                let piece = first.split_to(compressor.next_piece(first));
                aside(piece.len(), || compressor.packet(&piece))
            }
        };
        if first.is_empty() {
            self.waiting.pop_front();
        }
        true
    }

    /// Sends the queued packets and closes the write half.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use ingest::BytePool;
    use proptest::prelude::*;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// The two ends of a connection.
    async fn connected() -> (TcpStream, PacketReader, PacketWriter) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        let (read, write) = server.unwrap().0.into_split();
        let room = Reservation::of(&BytePool::new(1 << 28));
        (
            client.unwrap(),
            PacketReader::new(read, room),
            PacketWriter::new(write),
        )
    }

    fn packets(payload: &[u8], number: u8) -> Bytes {
        let mut outgoing = PacketBuffer::from_number(number);
        outgoing.add(|bytes| bytes.extend_from_slice(payload));
        outgoing.take()
    }

    #[test]
    fn a_packet_has_its_length_and_number_before_it() {
        assert_eq!(&packets(b"abc", 7)[..], b"\x03\0\0\x07abc");
        assert_eq!(&packets(b"", 255)[..], b"\0\0\0\xff");
    }

    #[test]
    fn payloads_of_16_mebibytes_go_in_several_packets() {
        for (length, headers) in [
            (LONGEST_PACKET - 1, 1),
            (LONGEST_PACKET, 2),
            (LONGEST_PACKET + 1, 2),
            (2 * LONGEST_PACKET, 3),
        ] {
            let mut outgoing = PacketBuffer::from_number(254);
            outgoing.add(|bytes| bytes.resize(bytes.len() + length, 1));
            assert_eq!(outgoing.number, 254_u8.wrapping_add(headers));
            assert_eq!(outgoing.len(), length + usize::from(headers) * HEADER);
        }
    }

    #[tokio::test]
    async fn what_is_sent_is_read() {
        let (mut client, mut incoming, mut sending) = connected().await;
        for length in [0, 1, 1000, LONGEST_PACKET, LONGEST_PACKET + 5] {
            let payload = vec![3; length];
            let sent = packets(&payload, 0);
            incoming.number = 0;
            let (written, read) = tokio::join!(client.write_all(&sent), incoming.next(1 << 26));
            written.unwrap();
            assert_eq!(read.unwrap(), payload, "{length}");
        }
        sending.put(packets(b"answer", 1));
        sending.flush().await.unwrap();
        let mut answer = [0; 10];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"\x06\0\0\x01answer");
    }

    #[tokio::test]
    async fn what_is_too_long_is_rejected_before_it_has_come() {
        let (mut client, mut incoming, _sending) = connected().await;
        client.write_all(b"\xff\xff\xff\0").await.unwrap();
        assert!(matches!(
            incoming.next(1 << 20).await,
            Err(PacketError::TooLong)
        ));
        let (mut client, mut incoming, _sending) = connected().await;
        client.write_all(b"\x01\0\0\x05a").await.unwrap();
        assert!(matches!(
            incoming.next(1 << 20).await,
            Err(PacketError::OutOfOrder)
        ));
    }

    #[tokio::test]
    async fn who_says_nothing_and_who_stops_within_a_packet_are_told_apart() {
        let short = Duration::from_millis(20);
        let (mut client, mut incoming, _sending) = connected().await;
        assert!(matches!(
            incoming.wait(short).await,
            Err(PacketError::Idle(_))
        ));
        incoming.patience = short;
        client.write_all(b"\x03\0\0\0ab").await.unwrap();
        incoming.wait(Duration::from_secs(60)).await.unwrap();
        assert!(matches!(
            incoming.next(100).await,
            Err(PacketError::Stalled(_))
        ));
    }

    #[tokio::test]
    async fn hanging_up_is_seen_and_what_comes_before_it_kept() {
        let (mut client, mut incoming, _sending) = connected().await;
        client.write_all(b"\x01\0\0\0a").await.unwrap();
        drop(client);
        incoming.hung_up().await;
        assert_eq!(incoming.next(10).await.unwrap(), "a");
        assert!(matches!(
            incoming.next(10).await,
            Err(PacketError::Disconnected)
        ));
    }

    #[tokio::test]
    async fn packets_of_all_connections_share_the_room() {
        let pool = BytePool::new(1 << 20);
        let (mut client, mut incoming, _sending) = connected().await;
        incoming.room = Reservation::of(&pool);
        let (mut other_client, mut other, _other_sending) = connected().await;
        other.room = Reservation::of(&pool);
        let payload = vec![1; 900 << 10];
        let sent = packets(&payload, 0);
        let (written, read) = tokio::join!(client.write_all(&sent), incoming.next(1 << 26));
        written.unwrap();
        assert_eq!(read.unwrap().len(), payload.len());
        assert!(pool.used() > 800 << 10);
        // Small packets always have room; large ones have it once the first is released.
        other_client.write_all(&packets(b"small", 0)).await.unwrap();
        assert_eq!(other.next(1 << 26).await.unwrap(), "small");
        other.number = 0;
        let (_, read) = tokio::join!(
            other_client.write_all(&sent[..300 << 10]),
            other.next(1 << 26)
        );
        assert!(matches!(read, Err(PacketError::NoRoom)), "{read:?}");
        assert!(matches!(
            incoming.wait(Duration::from_millis(1)).await,
            Err(PacketError::Idle(_))
        ));
        drop(other);
        assert_eq!(pool.used(), 0);
    }

    #[tokio::test]
    async fn a_packet_that_trickles_is_not_waited_for() {
        let (mut client, mut incoming, _sending) = connected().await;
        incoming.patience = Duration::from_millis(300);
        client.write_all(b"\xff\xff\0\0").await.unwrap();
        let trickle = async {
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let read = tokio::select! {
            () = trickle => unreachable!("the server's end is open"),
            read = incoming.next(1 << 20) => read,
        };
        assert!(matches!(read, Err(PacketError::Stalled(_))), "{read:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn any_bytes_end_in_packets_or_a_rejection(bytes: Vec<u8>) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (mut client, mut incoming, _sending) = connected().await;
                client.write_all(&bytes).await.unwrap();
                drop(client);
                while let Ok(payload) = incoming.next(100).await {
                    assert!(payload.len() <= 100);
                }
            });
        }
    }
}
