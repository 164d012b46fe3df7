//! Compression: the stream of packets in compressed packets, each with its lengths and a number of its own before it.
//!
//! Source: *MySQL Source Code Documentation*, "Compression". The packets within are as they are without it, but for their numbers, which
//! nobody checks there: those of the compressed packets take their place. What is compressed is a stream of zlib, or a frame of Zstandard.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use ingest::Reservation;
use tokio::io::{AsyncRead, ReadBuf};
use zstd::stream::raw::{DParameter, Decoder, Operation};

use super::capabilities::Capabilities;
use super::packets::{self, LONGEST_PACKET};

/// The length of a compressed packet's content, its number, and the length of what it contains; 0 if that is not compressed.
const HEADER: usize = 7;
/// Bytes of compressed data that are read at a time.
const READ_CHUNK: usize = 8 << 10;
/// Bytes that are compressed at a time, which takes less than a millisecond, unless a packet is longer.
const PIECE: usize = 64 << 10;
/// Bytes that a compressed packet can have in it.
const LONGEST: usize = LONGEST_PACKET;
/// Fewer bytes than this do not become fewer.
const WORTH_COMPRESSING: usize = 50;

/// The level of Zstandard for clients that wish for none.
const USUAL_LEVEL: u8 = 3;
/// Higher levels take several milliseconds for a piece, and others wait meanwhile. A client reads what any level wrote.
const HIGHEST_LEVEL: u8 = 6;
/// The logarithm of the longest distance within a frame: no packet has more bytes in it.
const WINDOW_LOG: u32 = 24;
/// For more bytes than this a compressor or a decompressor takes much memory, which is given back at the packet's end.
const MUCH: usize = 1 << 20;

/// The number of the next compressed packet, from either side.
pub(super) type Number = Arc<AtomicU8>;

/// How packets are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Zlib,
    /// Zstandard, at this level.
    Zstd(u8),
}

impl Algorithm {
    /// What a client with these capabilities speaks after its login, and the level that it wishes for.
    pub(super) fn of(capabilities: Capabilities, level: Option<u8>) -> Option<Self> {
        if capabilities.has(Capabilities::COMPRESS) {
            return Some(Self::Zlib);
        }
        let level = level.unwrap_or(USUAL_LEVEL).clamp(1, HIGHEST_LEVEL);
        capabilities
            .has(Capabilities::ZSTD)
            .then_some(Self::Zstd(level))
    }
}

/// Decompresses the content of one packet after another.
enum Decompressor {
    Zlib(Decompress),
    Zstd(Option<Box<Decoder<'static>>>),
}

impl Decompressor {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Zlib => Self::Zlib(Decompress::new(true)),
            Algorithm::Zstd(_) => Self::Zstd(None),
        }
    }

    /// Begins with a packet.
    fn begin(&mut self) -> io::Result<()> {
        match self {
            Self::Zlib(inflate) => inflate.reset(true),
            Self::Zstd(Some(decoder)) => decoder.reinit()?,
            Self::Zstd(decoder) => {
                let mut new = Decoder::new()?;
                new.set_parameter(DParameter::WindowLogMax(WINDOW_LOG))?;
                *decoder = Some(Box::new(new));
            }
        }
        Ok(())
    }

    /// Gives back the memory that a long packet took.
    fn shrink(&mut self) {
        if let Self::Zstd(decoder) = self {
            *decoder = None;
        }
    }

    /// Decompresses; how many bytes were read, and how many written.
    fn step(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<(usize, usize)> {
        match self {
            Self::Zlib(inflate) => {
                let before = (inflate.total_in(), inflate.total_out());
                inflate.decompress(input, output, FlushDecompress::None)?;
                // Neither is more than the buffers have.
                let read = (inflate.total_in() - before.0) as usize;
                Ok((read, (inflate.total_out() - before.1) as usize))
            }
            Self::Zstd(None) => Err(malformed()),
            Self::Zstd(Some(decoder)) => {
                let status = decoder.run_on_buffers(input, output)?;
                Ok((status.bytes_read, status.bytes_written))
            }
        }
    }
}

/// The stream of packets in a stream of compressed packets.
pub(super) struct DecompressingReader<R> {
    stream: R,
    number: Number,
    header: [u8; HEADER],
    step: Step,
    decompressor: Decompressor,
    /// The memory of a decompressor that needs much.
    room: Reservation,
    /// Whether the decompressor may have bytes that the last buffer had no room for.
    has_more: bool,
    /// Compressed data; what was read and not decompressed lies at `start..end`.
    input: Box<[u8]>,
    start: usize,
    end: usize,
}

/// What comes next.
#[derive(Clone, Copy)]
enum Step {
    /// The rest of a header, of which so many bytes are there.
    Header(usize),
    /// So many bytes as they are.
    Plain(usize),
    /// So many bytes of compressed data that have not been read, which have so many in them.
    Compressed { unread: usize, within: usize },
}

impl<R> DecompressingReader<R> {
    pub(super) fn new(stream: R, number: Number, algorithm: Algorithm, room: Reservation) -> Self {
        Self {
            stream,
            number,
            header: [0; HEADER],
            step: Step::Header(0),
            decompressor: Decompressor::new(algorithm),
            room,
            has_more: false,
            input: vec![0; READ_CHUNK].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// Begins with the content of a packet whose header has come.
    fn begin(&mut self) -> io::Result<()> {
        let [a, b, c, number, d, e, f] = self.header;
        let length = |bytes: [u8; 3]| {
            let [a, b, c] = bytes;
            u32::from_le_bytes([a, b, c, 0]) as usize
        };
        self.number.store(number.wrapping_add(1), Relaxed);
        self.step = match (length([a, b, c]), length([d, e, f])) {
            (0, _) => Step::Header(0),
            (length, 0) => Step::Plain(length),
            (unread, within) => {
                if within > MUCH && matches!(self.decompressor, Decompressor::Zstd(_)) {
                    let held = self.room.resize(within as u64);
                    held.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
                }
                self.decompressor.begin()?;
                self.has_more = false;
                Step::Compressed { unread, within }
            }
        };
        Ok(())
    }

    /// Ends with a packet that was compressed.
    fn end(&mut self) {
        (self.start, self.end) = (0, 0);
        self.step = Step::Header(0);
        if self.room.bytes() > 0 {
            self.decompressor.shrink();
            // It never fails to hold less.
            let _ = self.room.resize(0);
        }
    }

    /// Decompresses from what has been read, at most `within` bytes; returns how many.
    fn decompress(&mut self, within: usize, buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        let room = within.min(buffer.remaining());
        let output = buffer.initialize_unfilled_to(room);
        let input = &self.input[self.start..self.end];
        let (read, written) = self.decompressor.step(input, output)?;
        self.start += read;
        self.has_more = written == room;
        buffer.advance(written);
        Ok(written)
    }
}

fn malformed() -> io::Error {
    let why = "a compressed packet has less in it than it says";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<R: AsyncRead + Unpin> AsyncRead for DecompressingReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            match this.step {
                Step::Header(HEADER) => this.begin()?,
                Step::Header(filled) => {
                    let mut rest = ReadBuf::new(&mut this.header[filled..]);
                    ready!(Pin::new(&mut this.stream).poll_read(context, &mut rest))?;
                    let read = rest.filled().len();
                    if read == 0 {
                        // The end, of which the reader makes what it has to.
                        return Poll::Ready(Ok(()));
                    }
                    this.step = Step::Header(filled + read);
                }
                Step::Plain(left) => {
                    let room = left.min(buffer.remaining());
                    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
                    ready!(Pin::new(&mut this.stream).poll_read(context, &mut part))?;
                    let read = part.filled().len();
                    buffer.advance(read);
                    this.step = match left - read {
                        0 => Step::Header(0),
                        left => Step::Plain(left),
                    };
                    return Poll::Ready(Ok(()));
                }
                // What follows the last byte is a checksum.
                Step::Compressed {
                    unread: 0,
                    within: 0,
                } => this.end(),
                Step::Compressed { unread, within } => {
                    if within == 0 {
                        (this.start, this.end) = (0, 0);
                    }
                    if this.start < this.end || (this.has_more && within > 0) {
                        let written = this.decompress(within, buffer)?;
                        let within = within - written;
                        this.step = Step::Compressed { unread, within };
                        if written > 0 {
                            return Poll::Ready(Ok(()));
                        }
                        if this.start < this.end {
                            return Poll::Ready(Err(malformed()));
                        }
                    }
                    if unread == 0 {
                        return Poll::Ready(Err(malformed()));
                    }
                    let most = unread.min(READ_CHUNK);
                    let mut input = ReadBuf::new(&mut this.input[..most]);
                    ready!(Pin::new(&mut this.stream).poll_read(context, &mut input))?;
                    (this.start, this.end) = (0, input.filled().len());
                    if this.end == 0 {
                        return Poll::Ready(Ok(()));
                    }
                    let unread = unread - this.end;
                    this.step = Step::Compressed { unread, within };
                }
            }
        }
    }
}

/// Makes compressed packets.
pub(super) struct Compressor {
    number: Number,
    coder: Coder,
    /// Bytes of a packet that the last piece had no room for.
    rest: usize,
}

/// Compresses the content of one packet after another.
enum Coder {
    Zlib(Compress),
    Zstd {
        level: u8,
        kept: Option<zstd::bulk::Compressor<'static>>,
    },
}

impl Coder {
    /// Appends the bytes in compressed form, if they then are fewer.
    fn append(&mut self, bytes: &[u8], packet: &mut Vec<u8>) -> bool {
        match self {
            Self::Zlib(deflate) => {
                deflate.reset();
                // The packet has room for as many bytes.
                let status = deflate.compress_vec(bytes, packet, FlushCompress::Finish);
                matches!(status, Ok(Status::StreamEnd))
            }
            Self::Zstd { level, kept } => {
                let begun = packet.len();
                packet.resize(begun + bytes.len(), 0);
                let compressor = match kept.take() {
                    Some(compressor) => Ok(compressor),
                    None => zstd::bulk::Compressor::new(i32::from(*level)),
                };
                let Ok(mut compressor) = compressor else {
                    return false;
                };
                let written = compressor.compress_to_buffer(bytes, &mut packet[begun..]);
                if bytes.len() <= MUCH {
                    *kept = Some(compressor);
                }
                match written {
                    Ok(length) => {
                        packet.truncate(begun + length);
                        length < bytes.len()
                    }
                    // They become no fewer.
                    Err(_) => false,
                }
            }
        }
    }
}

impl Compressor {
    pub(super) fn new(number: Number, algorithm: Algorithm) -> Self {
        let coder = match algorithm {
            Algorithm::Zlib => Coder::Zlib(Compress::new(Compression::fast(), true)),
            Algorithm::Zstd(level) => Coder::Zstd { level, kept: None },
        };
        Self {
            number,
            coder,
            rest: 0,
        }
    }

    /// How many bytes of these packets the next compressed one should have: whole packets as far as possible, since there are clients
    /// that look for the rest of one in the next compressed packet alone (MySQL's connector for Python).
    pub(super) fn next_piece(&mut self, packets: &[u8]) -> usize {
        let mut end = std::mem::take(&mut self.rest);
        while end < PIECE
            && let Some([a, b, c, _]) = packets.get(end..end + packets::HEADER)
        {
            let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
            let next = end + packets::HEADER + length;
            if next > PIECE && end > 0 {
                break;
            }
            end = next;
        }
        let end = match end {
            0 => packets.len(),
            end => end.min(packets.len()),
        };
        self.rest = end.saturating_sub(LONGEST);
        end.min(LONGEST)
    }

    /// A compressed packet with these bytes.
    pub(super) fn packet(&mut self, bytes: &[u8]) -> Bytes {
        let number = self.number.fetch_add(1, Relaxed);
        let mut packet = Vec::with_capacity(HEADER + bytes.len());
        packet.resize(HEADER, 0);
        let is_worth_it = bytes.len() >= WORTH_COMPRESSING;
        let within = match is_worth_it && self.coder.append(bytes, &mut packet) {
            true => bytes.len(),
            false => {
                packet.truncate(HEADER);
                packet.extend_from_slice(bytes);
                0
            }
        };
        let [a, b, c, ..] = ((packet.len() - HEADER) as u32).to_le_bytes();
        let [d, e, f, ..] = (within as u32).to_le_bytes();
        packet[..HEADER].copy_from_slice(&[a, b, c, number, d, e, f]);
        packet.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::chance::feed;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    }

    const ALGORITHMS: [Algorithm; 3] = [
        Algorithm::Zlib,
        Algorithm::Zstd(1),
        Algorithm::Zstd(HIGHEST_LEVEL),
    ];

    fn compressed(algorithm: Algorithm, bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut compressor = Compressor::new(Number::default(), algorithm);
        let pieces = bytes.chunks(piece);
        pieces
            .flat_map(|piece| compressor.packet(piece).to_vec())
            .collect()
    }

    fn decompressed(algorithm: Algorithm, packets: &[u8]) -> io::Result<(Vec<u8>, u8)> {
        let room = Reservation::of(&ingest::BytePool::new(1 << 30));
        let number = Number::default();
        let mut stream = DecompressingReader::new(packets, Arc::clone(&number), algorithm, room);
        let mut bytes = vec![];
        runtime().block_on(stream.read_to_end(&mut bytes))?;
        Ok((bytes, number.load(Relaxed)))
    }

    #[test]
    fn the_client_says_how() {
        let both = Capabilities(Capabilities::COMPRESS.0 | Capabilities::ZSTD.0);
        assert_eq!(Algorithm::of(both, Some(9)), Some(Algorithm::Zlib));
        let zstd = |level| Algorithm::of(Capabilities::ZSTD, level);
        assert_eq!(zstd(None), Some(Algorithm::Zstd(USUAL_LEVEL)));
        assert_eq!(zstd(Some(0)), Some(Algorithm::Zstd(1)));
        assert_eq!(zstd(Some(22)), Some(Algorithm::Zstd(HIGHEST_LEVEL)));
        assert_eq!(Algorithm::of(Capabilities::TLS, Some(3)), None);
    }

    #[test]
    fn what_is_repeated_becomes_shorter_and_what_is_short_stays() {
        for algorithm in ALGORITHMS {
            assert_eq!(compressed(algorithm, b"abc", 9), b"\x03\0\0\0\0\0\0abc");
            let packets = compressed(algorithm, &[7; 60_000], PIECE);
            assert!(packets.len() < 1000);
            assert_eq!(packets[3..7], [0, 0x60, 0xea, 0]);
            let (bytes, number) = decompressed(algorithm, &packets).unwrap();
            assert_eq!((bytes, number), (vec![7; 60_000], 1));
        }
    }

    #[test]
    fn a_long_packet_takes_its_memory_from_the_pool() {
        let algorithm = Algorithm::Zstd(3);
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at / 7 % 251) as u8).collect();
        let packets = [
            compressed(algorithm, &bytes, LONGEST),
            compressed(algorithm, &[1; 99], LONGEST),
        ]
        .concat();
        let read = |room| {
            let room = Reservation::of(&ingest::BytePool::new(room));
            let mut stream =
                DecompressingReader::new(&packets[..], Number::default(), algorithm, room);
            let mut read = vec![];
            let outcome = runtime().block_on(stream.read_to_end(&mut read));
            outcome.map(|_| (read, stream.room.bytes()))
        };
        let (whole, held) = read(1 << 24).unwrap();
        assert!(whole.len() == 3_000_099 && whole[..3_000_000] == bytes && held == 0);
        let refused = read(1 << 20).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    }

    #[test]
    fn packets_are_compressed_whole_where_they_fit() {
        let of_lengths = |lengths: &[usize]| -> Vec<u8> {
            let packet = |&length: &usize| {
                let [a, b, c, ..] = (length as u32).to_le_bytes();
                [vec![a, b, c, 0], vec![1; length]].concat()
            };
            lengths.iter().flat_map(packet).collect()
        };
        let pieces = |lengths: &[usize]| {
            let mut compressor = Compressor::new(Number::default(), Algorithm::Zlib);
            let packets = of_lengths(lengths);
            let (mut pieces, mut at) = (vec![], 0);
            while at < packets.len() {
                pieces.push(compressor.next_piece(&packets[at..]));
                at += pieces[pieces.len() - 1];
            }
            pieces
        };
        assert_eq!(pieces(&[10, 20, 30]), [72]);
        assert_eq!(
            pieces(&[40_000, 40_000, 90_000, 0]),
            [40_004, 40_004, 90_004, 4]
        );
        let longest = LONGEST_PACKET;
        assert_eq!(pieces(&[5, longest, 0, 7]), [9, longest, 4 + 4 + 11]);
        assert_eq!(pieces(&[longest, longest, 3]), [longest, 4, longest, 4 + 7]);
    }

    #[test]
    fn a_bomb_gives_no_more_than_it_says() {
        for algorithm in ALGORITHMS {
            let mut packet = compressed(algorithm, &[0; PIECE], PIECE);
            // It says that it has 100 bytes in it.
            packet[4..7].copy_from_slice(&[100, 0, 0]);
            assert_eq!(decompressed(algorithm, &packet).unwrap().0, [0; 100]);
            // Or more than it has.
            packet[4..7].copy_from_slice(&[1, 0, 2]);
            assert!(decompressed(algorithm, &packet).is_err());
        }
    }

    proptest! {
        #[test]
        fn packets_come_as_they_were(
            words in prop::collection::vec(prop::sample::select(vec!["", "1", "2.5", "\0\0\x03", "longer words"]), 0..600),
            piece in 1..PIECE,
            algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        ) {
            let bytes = words.concat().into_bytes();
            let packets = compressed(algorithm, &bytes, piece);
            let (read, number) = decompressed(algorithm, &packets).unwrap();
            prop_assert_eq!(&read, &bytes);
            prop_assert_eq!(usize::from(number), bytes.len().div_ceil(piece) % 256);
        }

        #[test]
        fn any_bytes_are_read_or_rejected(
            bytes: Vec<u8>,
            algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        ) {
            let _ = decompressed(algorithm, &bytes);
            let mut packet = vec![bytes.len() as u8, 0, 0, 0, 200, 0, 0];
            packet.extend(bytes);
            let _ = decompressed(algorithm, &packet);
        }
    }

    #[test]
    fn strange_compressed_packets_do_no_harm() {
        for algorithm in [Algorithm::Zlib, Algorithm::Zstd(3)] {
            let runs = compressed(algorithm, &[7; 3000], PIECE);
            let counts: Vec<u8> = (0..400_u16).flat_map(u16::to_le_bytes).collect();
            let counted = compressed(algorithm, &counts, 300);
            let plain = compressed(algorithm, b"\x05\0\0\0\x03SELE", PIECE);
            let runtime = runtime();
            feed("compressed packets", &[&runs, &counted, &plain], |bytes| {
                let room = Reservation::of(&ingest::BytePool::new(1 << 20));
                let number = Number::default();
                let mut stream = DecompressingReader::new(bytes, number, algorithm, room);
                let mut read = vec![];
                let _ = runtime.block_on(stream.read_to_end(&mut read));
            });
        }
    }
}
