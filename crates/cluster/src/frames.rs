//! The result of a share: a sequence of frames, of which the last says whether it is whole.
//!
//! | frame | content | meaning |
//! |---|---|---|
//! | `R` | piece (u32), then messages of one Arrow IPC stream that goes through all frames `R` | rows of a piece |
//! | `W` | piece (u32), pairs of a number and a sentence in JSON | warnings about values of rows, which count if the piece does |
//! | `D` | piece (u32), rows (u64) | the piece has given all its rows, so many |
//! | `K` | piece (u32), rows (u64) | the piece has given all its rows, so many, which are kept here for a shuffle |
//! | `P` | nothing | the share goes on: its pieces compute, or wait for their turns |
//! | `E` | [`ShareFailure`] in JSON | the share has failed: there is no frame after it |
//! | `F` | pieces (u32) | the footer: so many pieces are done, and there is no frame after it |
//!
//! A frame is its letter, the length of its content (u32), a checksum of letter and content (u64, XXH3), and the content; numbers are
//! little-endian. Rows of a piece count only with its frame `D`, whose number of rows has to be that of the rows that came.

use std::collections::HashMap;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::error::ArrowError;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use bytes::{Buf, Bytes, BytesMut};
use sql::{ErrorCode, Warning};
use xxhash_rust::xxh3::Xxh3;

use crate::messages::ShareFailure;

/// Bytes of a frame before its content.
const HEAD: usize = 13;
/// Bytes that a frame may have.
const LONGEST: usize = 1 << 30;

/// Writes the frames of a share.
#[derive(Default)]
pub(crate) struct FrameWriter {
    /// From the first rows on.
    stream: Option<StreamWriter<Vec<u8>>>,
    pieces: u32,
}

impl FrameWriter {
    /// Some rows of a piece.
    pub fn rows(&mut self, piece: u32, batch: &RecordBatch) -> Result<Bytes, ArrowError> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => StreamWriter::try_new(Vec::new(), &batch.schema())?,
        };
        stream.write(&queries::without_unused_bytes(batch))?;
        let messages = std::mem::take(stream.get_mut());
        self.stream = Some(stream);
        Ok(frame(b'R', &[&piece.to_le_bytes(), &messages]))
    }

    /// Some rows of a piece, in messages of the Arrow stream that were encoded before.
    pub fn encoded_rows(piece: u32, messages: &[&[u8]]) -> Bytes {
        let piece = piece.to_le_bytes();
        let content: Vec<&[u8]> = [piece.as_slice()]
            .into_iter()
            .chain(messages.iter().copied())
            .collect();
        frame(b'R', &content)
    }

    /// A piece has given all its rows, which are kept.
    pub fn kept(&mut self, piece: u32, rows: u64) -> Bytes {
        self.pieces += 1;
        frame(b'K', &[&piece.to_le_bytes(), &rows.to_le_bytes()])
    }

    /// Warnings of a piece that is not done yet.
    pub fn warnings(piece: u32, warnings: &[Warning]) -> Bytes {
        let told = warnings.iter().map(|it| (it.code.number, &it.sentence));
        // Texts and numbers always have a JSON.
        let json = serde_json::to_vec(&told.collect::<Vec<_>>()).unwrap_or_default();
        frame(b'W', &[&piece.to_le_bytes(), &json])
    }

    /// A piece has given all its rows.
    pub fn done(&mut self, piece: u32, rows: u64) -> Bytes {
        self.pieces += 1;
        frame(b'D', &[&piece.to_le_bytes(), &rows.to_le_bytes()])
    }

    /// All pieces are done.
    pub fn footer(&self) -> Bytes {
        frame(b'F', &[&self.pieces.to_le_bytes()])
    }
}

/// The share goes on.
pub(crate) fn progress() -> Bytes {
    frame(b'P', &[])
}

/// The share has failed.
pub(crate) fn failure(failure: &ShareFailure) -> Bytes {
    // A structure of texts and numbers always has a JSON.
    let json = serde_json::to_vec(failure).unwrap_or_default();
    frame(b'E', &[&json])
}

fn frame(letter: u8, content: &[&[u8]]) -> Bytes {
    let length: usize = content.iter().map(|part| part.len()).sum();
    let mut bytes = Vec::with_capacity(HEAD + length);
    bytes.push(letter);
    bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&checksum(letter, content).to_le_bytes());
    content
        .iter()
        .for_each(|part| bytes.extend_from_slice(part));
    bytes.into()
}

fn checksum(letter: u8, content: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&[letter]);
    content.iter().for_each(|part| hasher.update(part));
    hasher.digest()
}

/// What a share says.
#[derive(Debug, PartialEq)]
pub(crate) enum Frame {
    /// Rows of a piece.
    Rows(u32, RecordBatch),
    /// Warnings of a piece.
    Warned(u32, Vec<Warning>),
    /// All rows of the piece have come.
    Done(u32),
    /// The worker keeps the rows of the piece, so many.
    Kept(u32, u64),
    /// The share goes on.
    Progress,
    /// The share has failed.
    Failed(ShareFailure),
    /// All pieces are done.
    Footer,
}

/// Reads the frames of a share as bytes come, and checks that what they say fits together.
#[derive(Default)]
pub(crate) struct FrameReader {
    bytes: BytesMut,
    decoder: StreamDecoder,
    /// Rows that have come of each piece that is not done.
    rows: HashMap<u32, u64>,
    pieces: u32,
}

impl FrameReader {
    /// Takes bytes that have come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next frame; `None` while it has not come whole.
    ///
    /// # Errors
    /// What came is not what a worker sends.
    pub fn next(&mut self) -> Result<Option<Frame>, String> {
        if self.bytes.len() < HEAD {
            return Ok(None);
        }
        let mut head = &self.bytes[..HEAD];
        let letter = head.get_u8();
        let length = head.get_u32_le() as usize;
        let told = head.get_u64_le();
        if length > LONGEST {
            return Err(format!("a frame of {length} bytes came"));
        }
        if self.bytes.len() < HEAD + length {
            return Ok(None);
        }
        self.bytes.advance(HEAD);
        let content = self.bytes.split_to(length).freeze();
        // Nothing is decoded that did not come as it was sent.
        if checksum(letter, &[&content]) != told {
            return Err("a frame came damaged".to_owned());
        }
        self.read(letter, content).map(Some)
    }

    fn read(&mut self, letter: u8, mut content: Bytes) -> Result<Frame, String> {
        let short = || "a frame came that is too short".to_owned();
        match letter {
            b'R' => {
                let piece = content.try_get_u32_le().map_err(|_| short())?;
                let batch = self.decode(content)?;
                *self.rows.entry(piece).or_default() += batch.num_rows() as u64;
                Ok(Frame::Rows(piece, batch))
            }
            b'D' => {
                let piece = content.try_get_u32_le().map_err(|_| short())?;
                let rows = content.try_get_u64_le().map_err(|_| short())?;
                let came = self.rows.remove(&piece).unwrap_or(0);
                self.pieces += 1;
                match came == rows {
                    true => Ok(Frame::Done(piece)),
                    false => Err(format!("{came} rows of a piece came, and {rows} were sent")),
                }
            }
            b'K' => {
                let piece = content.try_get_u32_le().map_err(|_| short())?;
                let rows = content.try_get_u64_le().map_err(|_| short())?;
                self.pieces += 1;
                match self.rows.contains_key(&piece) {
                    false => Ok(Frame::Kept(piece, rows)),
                    true => Err("rows came of a piece whose rows are kept".to_owned()),
                }
            }
            b'W' => {
                let piece = content.try_get_u32_le().map_err(|_| short())?;
                let told: Vec<(u16, String)> = serde_json::from_slice(&content)
                    .map_err(|error| format!("warnings came that cannot be read: {error}"))?;
                let warnings = told.into_iter().map(|(number, sentence)| Warning {
                    code: ErrorCode::of_number(number),
                    sentence,
                });
                Ok(Frame::Warned(piece, warnings.collect()))
            }
            b'P' => Ok(Frame::Progress),
            b'E' => serde_json::from_slice(&content)
                .map(Frame::Failed)
                .map_err(|error| format!("a failure came that cannot be read: {error}")),
            b'F' => {
                let pieces = content.try_get_u32_le().map_err(|_| short())?;
                match self.pieces == pieces {
                    true => Ok(Frame::Footer),
                    false => Err(format!(
                        "{} pieces came, and {pieces} were sent",
                        self.pieces
                    )),
                }
            }
            other => Err(format!("a frame of an unknown kind {other} came")),
        }
    }

    /// The one batch in the messages of a frame.
    fn decode(&mut self, messages: Bytes) -> Result<RecordBatch, String> {
        let mut buffer = Buffer::from(messages);
        let mut found = None;
        while !buffer.is_empty() {
            let decoded = self.decoder.decode(&mut buffer);
            let decoded =
                decoded.map_err(|error| format!("rows came that cannot be read: {error}"))?;
            if let Some(batch) = decoded
                && found.replace(batch).is_some()
            {
                return Err("a frame came with rows of two batches".to_owned());
            }
        }
        if found.is_none() {
            // The message of rows without columns has no body, which the decoder looks at when more comes. It takes nothing of that.
            let mut more = Buffer::from(vec![0_u8]);
            found = self.decoder.decode(&mut more).unwrap_or_default();
        }
        found.ok_or_else(|| "a frame came without rows".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatchOptions, StringArray};
    use arrow::datatypes::Schema;
    use proptest::prelude::*;

    use super::*;
    use crate::messages::ErrorClass;

    fn batch(rows: i64) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let texts: ArrayRef = Arc::new(StringArray::from_iter(
            (0..rows).map(|n| (n % 3 > 0).then(|| n.to_string())),
        ));
        RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap()
    }

    fn share() -> Vec<Bytes> {
        let mut writer = FrameWriter::default();
        vec![
            writer.rows(7, &batch(100)).unwrap(),
            writer.rows(3, &batch(1)).unwrap(),
            writer.rows(7, &batch(20)).unwrap(),
            writer.done(7, 120),
            writer.done(3, 1),
            writer.done(4, 0),
            writer.footer(),
        ]
    }

    fn read(bytes: &[u8], step: usize) -> (Vec<Frame>, Option<String>) {
        let mut reader = FrameReader::default();
        let mut frames = Vec::new();
        for some in bytes.chunks(step) {
            reader.push(some);
            loop {
                match reader.next() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    #[test]
    fn what_is_written_is_read_however_it_comes() {
        let bytes = share().concat();
        for step in [1, 7, 1000, bytes.len()] {
            let (frames, error) = read(&bytes, step);
            assert_eq!(error, None);
            assert_eq!(frames.len(), 7);
            assert_eq!(frames[0], Frame::Rows(7, batch(100)));
            assert_eq!(frames[2], Frame::Rows(7, batch(20)));
            assert_eq!(frames[6], Frame::Footer);
        }
    }

    #[test]
    fn progress_may_be_told_at_any_time() {
        let frames = share();
        for at in 0..frames.len() {
            let mut told = frames.clone();
            told.insert(at, progress());
            let (read, error) = read(&told.concat(), 100);
            assert_eq!((read.len(), error), (8, None));
            assert_eq!((&read[at], &read[7]), (&Frame::Progress, &Frame::Footer));
        }
    }

    /// As they are of what counts rows alone: a share that sent them was taken for broken, and its pieces ran at the front end.
    #[test]
    fn rows_without_columns_come() {
        let rows = |rows: usize| {
            let options = RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options).unwrap()
        };
        let mut writer = FrameWriter::default();
        let sent = [
            writer.rows(1, &rows(3)).unwrap(),
            writer.rows(1, &rows(40)).unwrap(),
            writer.done(1, 43),
            writer.footer(),
        ];
        let (frames, error) = read(&sent.concat(), 5);
        assert_eq!(error, None);
        assert_eq!(
            frames[..2],
            [Frame::Rows(1, rows(3)), Frame::Rows(1, rows(40))]
        );
        assert_eq!(frames.last(), Some(&Frame::Footer));
    }

    #[test]
    fn rows_of_a_piece_come_or_are_kept() {
        let mut writer = FrameWriter::default();
        let frames = [writer.kept(5, 120), writer.done(6, 0), writer.footer()];
        let (read_frames, error) = read(&frames.concat(), 9);
        let expected = vec![Frame::Kept(5, 120), Frame::Done(6), Frame::Footer];
        assert_eq!((read_frames, error), (expected, None));
        let rows = writer.rows(5, &batch(1)).unwrap();
        let (_, error) = read(&[rows, writer.kept(5, 1)].concat(), 100);
        assert!(error.unwrap().contains("whose rows are kept"));
    }

    #[test]
    fn warnings_come_with_their_piece() {
        let warnings = vec![Warning {
            code: ErrorCode::of_number(1292),
            sentence: "Truncated incorrect INTEGER value: 'x'".to_owned(),
        }];
        let bytes = FrameWriter::warnings(7, &warnings);
        let (frames, error) = read(&bytes, 9);
        assert_eq!((frames, error), (vec![Frame::Warned(7, warnings)], None));
    }

    #[test]
    fn a_failure_says_why() {
        let told = ShareFailure {
            class: ErrorClass::Worker,
            code: 1030,
            sentence: "chunk_3.mrd is damaged".to_owned(),
        };
        let (frames, error) = read(&failure(&told), 5);
        assert_eq!((frames, error), (vec![Frame::Failed(told)], None));
    }

    /// Rows that were lost on the way must not pass for all rows.
    #[test]
    fn a_frame_that_is_left_out_is_noticed() {
        let whole = share();
        for left_out in 0..whole.len() {
            let kept = whole.iter().enumerate().filter(|(at, _)| *at != left_out);
            let bytes: Vec<u8> = kept.flat_map(|(_, frame)| frame.iter().copied()).collect();
            let (frames, error) = read(&bytes, bytes.len());
            let is_whole = error.is_none() && frames.last() == Some(&Frame::Footer);
            assert!(!is_whole, "without frame {left_out}");
        }
    }

    proptest! {
        #[test]
        fn damage_is_noticed(at in 0usize..4000, bit in 0u32..8) {
            let mut bytes = share().concat();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let (frames, error) = read(&bytes, 100);
            prop_assert!(error.is_some() || frames.last() != Some(&Frame::Footer));
        }
    }
}
