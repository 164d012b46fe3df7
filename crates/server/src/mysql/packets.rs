//! Packets: what goes over the wire in one piece each, with its length and its number before it.
//!
//! A payload of 16 MiB or more goes in several packets, of which all but the last have the greatest length. A client's first packet
//! of a command has number 0; every packet after it, whoever sends it, the next.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// The length of a packet that another one continues.
const LONGEST_PACKET: usize = 0xff_ffff;
const HEADER: usize = 4;
/// Bytes that are read at once at least, which most commands do not have.
const USUAL_COMMAND: usize = 2 << 10;
/// Bytes that are read ahead of a command's end while a statement runs.
const READ_AHEAD: usize = 64 << 10;
/// How long a packet may keep us waiting for more of it, unless the client has chosen another time.
const PATIENCE: Duration = Duration::from_secs(30);

/// Packets that are put one after another to be sent.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    bytes: Vec<u8>,
    /// The number of the next packet.
    pub(crate) number: u8,
}

impl Outgoing {
    /// Packets of which the first has a number.
    pub(crate) fn from_number(number: u8) -> Self {
        Self {
            bytes: Vec::new(),
            number,
        }
    }

    /// Adds a payload that `write` appends.
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
        // An empty one, too, tells that the one before was the last of its length.
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

    /// Adds packets that were made elsewhere from our next number on; `number` comes after them.
    pub(crate) fn append(&mut self, packets: Bytes, number: u8) {
        if self.bytes.is_empty() {
            // The usual way, by which nothing is copied.
            self.bytes = packets.into();
        } else {
            self.bytes.extend_from_slice(&packets);
        }
        self.number = number;
    }

    /// How many bytes wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes, to be sent; the next packets go on with the numbers.
    pub(crate) fn take(&mut self) -> Bytes {
        std::mem::take(&mut self.bytes).into()
    }
}

/// Why there is no packet.
#[derive(Debug)]
pub(crate) enum NoPacket {
    /// The client has gone, or the network is broken.
    Gone,
    /// It is longer than it may be.
    TooLong,
    /// Its number is not the next.
    OutOfOrder,
    /// Nothing was said for so long.
    Idle(Duration),
    /// It has begun, and for so long nothing more of it came.
    Stalled(Duration),
}

/// Where bytes come from: clear text or TLS.
pub(crate) type Source = Box<dyn AsyncRead + Send + Unpin>;
/// Where bytes go.
pub(crate) type Sink = Box<dyn AsyncWrite + Send + Unpin>;

/// Both ways of a connection.
pub(crate) type Halves = (Source, Sink);

/// The client's packets.
pub(crate) struct Incoming {
    stream: Source,
    bytes: BytesMut,
    /// The number that the next packet must have.
    pub(crate) number: u8,
    /// How long a packet that has begun may keep us waiting for more of it.
    pub(crate) patience: Duration,
}

impl Incoming {
    pub(crate) fn new(stream: impl AsyncRead + Send + Unpin + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            bytes: BytesMut::new(),
            number: 0,
            patience: PATIENCE,
        }
    }

    /// What has come and was not taken yet, and where more comes from.
    pub(crate) fn into_parts(self) -> (Bytes, Source) {
        (self.bytes.freeze(), self.stream)
    }

    /// Ends when something has come, if it does within a time.
    pub(crate) async fn wait(&mut self, idle: Duration) -> Result<(), NoPacket> {
        if !self.bytes.is_empty() {
            return Ok(());
        }
        // Else it would hold the memory of the longest packet for as long as the client stays.
        self.bytes = BytesMut::new();
        match timeout(idle, self.read_some()).await {
            Ok(read) => read.map_err(|_| NoPacket::Gone),
            Err(_) => Err(NoPacket::Idle(idle)),
        }
    }

    /// The next payload, of at most so many bytes. Memory is taken as bytes come, whatever length a packet claims.
    pub(crate) async fn next(&mut self, longest: usize) -> Result<Bytes, NoPacket> {
        let mut payload = BytesMut::new();
        loop {
            self.fill(HEADER).await?;
            let (length, number) = match self.bytes[..] {
                [a, b, c, number, ..] => (u32::from_le_bytes([a, b, c, 0]) as usize, number),
                _ => return Err(NoPacket::Gone),
            };
            if number != self.number {
                return Err(NoPacket::OutOfOrder);
            }
            self.number = self.number.wrapping_add(1);
            if payload.len() + length > longest {
                return Err(NoPacket::TooLong);
            }
            self.fill(HEADER + length).await?;
            self.bytes.advance(HEADER);
            let piece = self.bytes.split_to(length);
            if payload.is_empty() {
                payload = piece;
            } else {
                payload.extend_from_slice(&piece);
            }
            if length < LONGEST_PACKET {
                return Ok(payload.freeze());
            }
        }
    }

    async fn fill(&mut self, wanted: usize) -> Result<(), NoPacket> {
        while self.bytes.len() < wanted {
            match timeout(self.patience, self.read_some()).await {
                Ok(read) => read.map_err(|_| NoPacket::Gone)?,
                Err(_) => return Err(NoPacket::Stalled(self.patience)),
            }
        }
        Ok(())
    }

    /// Takes what the client says and forgets it, until it has said all.
    pub(crate) async fn ignore(&mut self) {
        loop {
            self.bytes.clear();
            if self.read_some().await.is_err() {
                return;
            }
        }
    }

    async fn read_some(&mut self) -> io::Result<()> {
        if self.bytes.capacity() == self.bytes.len() {
            self.bytes.reserve(USUAL_COMMAND);
        }
        match self.stream.read_buf(&mut self.bytes).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Ends when the client has hung up. What it sends meanwhile is kept for later; where that is much, it is not watched on.
    pub(crate) async fn hung_up(&mut self) {
        while self.bytes.len() < READ_AHEAD {
            if self.read_some().await.is_err() {
                return;
            }
        }
        std::future::pending().await
    }
}

/// The way to the client. What waits stays to be sent, in order and whole, whatever interrupts the sending.
pub(crate) struct Sending {
    stream: Sink,
    waiting: VecDeque<Bytes>,
    /// Where the bytes are counted that are sent.
    sent: Option<IntCounter>,
}

impl Sending {
    pub(crate) fn new(stream: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self {
            stream: Box::new(stream),
            waiting: VecDeque::new(),
            sent: None,
        }
    }

    /// The same, whose bytes are counted.
    pub(crate) fn counted(self, sent: IntCounter) -> Self {
        Self {
            sent: Some(sent),
            ..self
        }
    }

    /// Where bytes go. What waits is lost.
    pub(crate) fn into_sink(self) -> Sink {
        self.stream
    }

    /// Puts packets behind those that wait.
    pub(crate) fn put(&mut self, packets: Bytes) {
        if !packets.is_empty() {
            self.waiting.push_back(packets);
        }
    }

    /// Sends what waits.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        while let Some(first) = self.waiting.front_mut() {
            let written = self.stream.write_buf(first).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            if let Some(sent) = &self.sent {
                sent.inc_by(written as u64);
            }
            if first.is_empty() {
                self.waiting.pop_front();
            }
        }
        // TLS may still hold some of it, also from before, where the sending was interrupted.
        self.stream.flush().await
    }

    /// Sends what waits, and that nothing comes after it.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.stream.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// A client's end, and the server's.
    async fn connected() -> (TcpStream, Incoming, Sending) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, server) = tokio::join!(client, listener.accept());
        let (read, write) = server.unwrap().0.into_split();
        (client.unwrap(), Incoming::new(read), Sending::new(write))
    }

    fn packets(payload: &[u8], number: u8) -> Bytes {
        let mut outgoing = Outgoing::from_number(number);
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
            let mut outgoing = Outgoing::from_number(254);
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
    async fn what_is_too_long_is_refused_before_it_has_come() {
        let (mut client, mut incoming, _sending) = connected().await;
        client.write_all(b"\xff\xff\xff\0").await.unwrap();
        assert!(matches!(
            incoming.next(1 << 20).await,
            Err(NoPacket::TooLong)
        ));
        let (mut client, mut incoming, _sending) = connected().await;
        client.write_all(b"\x01\0\0\x05a").await.unwrap();
        assert!(matches!(
            incoming.next(1 << 20).await,
            Err(NoPacket::OutOfOrder)
        ));
    }

    #[tokio::test]
    async fn who_says_nothing_and_who_stops_within_a_packet_are_told_apart() {
        let short = Duration::from_millis(20);
        let (mut client, mut incoming, _sending) = connected().await;
        assert!(matches!(incoming.wait(short).await, Err(NoPacket::Idle(_))));
        incoming.patience = short;
        client.write_all(b"\x03\0\0\0ab").await.unwrap();
        incoming.wait(Duration::from_secs(60)).await.unwrap();
        assert!(matches!(
            incoming.next(100).await,
            Err(NoPacket::Stalled(_))
        ));
    }

    #[tokio::test]
    async fn hanging_up_is_seen_and_what_comes_before_it_kept() {
        let (mut client, mut incoming, _sending) = connected().await;
        client.write_all(b"\x01\0\0\0a").await.unwrap();
        drop(client);
        incoming.hung_up().await;
        assert_eq!(incoming.next(10).await.unwrap(), "a");
        assert!(matches!(incoming.next(10).await, Err(NoPacket::Gone)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]
        #[test]
        fn any_bytes_end_in_packets_or_a_refusal(bytes: Vec<u8>) {
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
