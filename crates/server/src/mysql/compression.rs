//! Compression: the stream of packets in compressed packets, each with its lengths and a number of its own before it.
//!
//! Source: *MySQL Source Code Documentation*, "Compression". The packets within are as they are without it, but for their numbers, which
//! nobody checks there: those of the compressed packets take their place.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use tokio::io::{AsyncRead, ReadBuf};

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

/// The number of the next compressed packet, from either side.
pub(super) type Number = Arc<AtomicU8>;

/// The stream of packets in a stream of compressed packets.
pub(super) struct Decompressing<R> {
    stream: R,
    number: Number,
    header: [u8; HEADER],
    step: Step,
    inflate: Decompress,
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

impl<R> Decompressing<R> {
    pub(super) fn new(stream: R, number: Number) -> Self {
        Self {
            stream,
            number,
            header: [0; HEADER],
            step: Step::Header(0),
            inflate: Decompress::new(true),
            input: vec![0; READ_CHUNK].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    /// Begins with the content of a packet whose header has come.
    fn begin(&mut self) {
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
                self.inflate.reset(true);
                Step::Compressed { unread, within }
            }
        };
    }

    /// Decompresses from what has been read, at most `within` bytes; returns how many.
    fn inflate(&mut self, within: usize, buffer: &mut ReadBuf<'_>) -> io::Result<usize> {
        let room = within.min(buffer.remaining());
        let output = buffer.initialize_unfilled_to(room);
        let (read, written) = (self.inflate.total_in(), self.inflate.total_out());
        let input = &self.input[self.start..self.end];
        self.inflate
            .decompress(input, output, FlushDecompress::None)?;
        // Neither is more than the buffers have.
        self.start += (self.inflate.total_in() - read) as usize;
        let written = (self.inflate.total_out() - written) as usize;
        buffer.advance(written);
        Ok(written)
    }
}

fn malformed() -> io::Error {
    let why = "a compressed packet has less in it than it says";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<R: AsyncRead + Unpin> AsyncRead for Decompressing<R> {
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
                Step::Header(HEADER) => this.begin(),
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
                } => {
                    (this.start, this.end) = (0, 0);
                    this.step = Step::Header(0);
                }
                Step::Compressed { unread, within } => {
                    if within == 0 {
                        (this.start, this.end) = (0, 0);
                    }
                    if this.start < this.end {
                        let written = this.inflate(within, buffer)?;
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
    deflate: Compress,
    /// Bytes of a packet that the last piece had no room for.
    rest: usize,
}

impl Compressor {
    pub(super) fn new(number: Number) -> Self {
        Self {
            number,
            deflate: Compress::new(Compression::fast(), true),
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
        let within = match self.deflated(bytes, &mut packet) {
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

    /// Appends the bytes in compressed form, if they then are fewer and fit.
    fn deflated(&mut self, bytes: &[u8], packet: &mut Vec<u8>) -> bool {
        if bytes.len() < WORTH_COMPRESSING {
            return false;
        }
        self.deflate.reset();
        let status = self
            .deflate
            .compress_vec(bytes, packet, FlushCompress::Finish);
        matches!(status, Ok(Status::StreamEnd))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    }

    fn compressed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let mut compressor = Compressor::new(Number::default());
        let pieces = bytes.chunks(piece);
        pieces
            .flat_map(|piece| compressor.packet(piece).to_vec())
            .collect()
    }

    fn decompressed(packets: &[u8]) -> io::Result<(Vec<u8>, u8)> {
        let number = Number::default();
        let mut stream = Decompressing::new(packets, Arc::clone(&number));
        let mut bytes = vec![];
        runtime().block_on(stream.read_to_end(&mut bytes))?;
        Ok((bytes, number.load(Relaxed)))
    }

    #[test]
    fn what_is_repeated_becomes_shorter_and_what_is_short_stays() {
        assert_eq!(compressed(b"abc", 9), b"\x03\0\0\0\0\0\0abc");
        let packets = compressed(&[7; 60_000], PIECE);
        assert!(packets.len() < 1000);
        assert_eq!(packets[3..7], [0, 0x60, 0xea, 0]);
        assert_eq!(decompressed(&packets).unwrap(), (vec![7; 60_000], 1));
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
            let mut compressor = Compressor::new(Number::default());
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
        let mut packet = compressed(&[0; PIECE], PIECE);
        // It says that it has 100 bytes in it.
        packet[4..7].copy_from_slice(&[100, 0, 0]);
        assert_eq!(decompressed(&packet).unwrap().0, [0; 100]);
        // Or more than it has.
        packet[4..7].copy_from_slice(&[1, 0, 2]);
        assert!(decompressed(&packet).is_err());
    }

    proptest! {
        #[test]
        fn packets_come_as_they_were(
            words in prop::collection::vec(prop::sample::select(vec!["", "1", "2.5", "\0\0\x03", "longer words"]), 0..600),
            piece in 1..PIECE
        ) {
            let bytes = words.concat().into_bytes();
            let packets = compressed(&bytes, piece);
            let (read, number) = decompressed(&packets).unwrap();
            prop_assert_eq!(&read, &bytes);
            prop_assert_eq!(usize::from(number), bytes.len().div_ceil(piece) % 256);
        }

        #[test]
        fn any_bytes_are_read_or_rejected(bytes: Vec<u8>) {
            let _ = decompressed(&bytes);
            let mut packet = vec![bytes.len() as u8, 0, 0, 0, 200, 0, 0];
            packet.extend(bytes);
            let _ = decompressed(&packet);
        }
    }
}
