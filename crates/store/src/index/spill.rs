//! Sorting more records than fit into memory: sorted runs in temporary files, and their merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use super::Record;
use crate::StoreError;

/// Bytes of a record in a run: key, chunk, place, little-endian.
const RECORD: usize = 16;

/// A sorted run on disk, deleted when it is dropped.
#[derive(Debug)]
pub(super) struct Run {
    path: PathBuf,
    file: File,
}

impl Run {
    /// Writes records, which come in order, to a new file.
    pub fn write(
        path: PathBuf,
        records: impl Iterator<Item = Result<Record, StoreError>>,
    ) -> Result<Self, StoreError> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(StoreError::io("create", &path))?;
        // From here on the file is removed whatever happens.
        let run = Self { path, file };
        let mut writer = BufWriter::with_capacity(1 << 20, &run.file);
        for record in records {
            let record = record?;
            let mut bytes = [0; RECORD];
            bytes[..8].copy_from_slice(&record.key.to_le_bytes());
            bytes[8..12].copy_from_slice(&record.chunk.to_le_bytes());
            bytes[12..].copy_from_slice(&record.place.to_le_bytes());
            writer
                .write_all(&bytes)
                .map_err(StoreError::io("write", &run.path))?;
        }
        writer.flush().map_err(StoreError::io("write", &run.path))?;
        drop(writer);
        Ok(run)
    }

    fn read(mut self, buffer: usize) -> Result<RunReader, StoreError> {
        self.file
            .rewind()
            .map_err(StoreError::io("read", &self.path))?;
        let file = self
            .file
            .try_clone()
            .map_err(StoreError::io("read", &self.path))?;
        Ok(RunReader {
            input: BufReader::with_capacity(buffer, file),
            run: self,
        })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a temporary file");
        }
    }
}

struct RunReader {
    input: BufReader<File>,
    run: Run,
}

impl RunReader {
    fn path(&self) -> &Path {
        &self.run.path
    }

    fn next(&mut self) -> Result<Option<Record>, StoreError> {
        let at_end = self.input.buffer().is_empty()
            && std::io::BufRead::fill_buf(&mut self.input)
                .map_err(StoreError::io("read", &self.run.path))?
                .is_empty();
        if at_end {
            return Ok(None);
        }
        let (mut key, mut chunk, mut place) = ([0; 8], [0; 4], [0; 4]);
        self.input
            .read_exact(&mut key)
            .and_then(|()| self.input.read_exact(&mut chunk))
            .and_then(|()| self.input.read_exact(&mut place))
            .map_err(StoreError::io("read", self.path()))?;
        Ok(Some(Record {
            key: i64::from_le_bytes(key),
            chunk: i32::from_le_bytes(chunk),
            place: u32::from_le_bytes(place),
        }))
    }
}

/// The records of several runs in one order; of equal keys, those of earlier runs come first.
pub(super) struct Merge {
    readers: Vec<RunReader>,
    /// The next record of each run that has one, by key and then run.
    heads: BinaryHeap<Reverse<(i64, usize, i32, u32)>>,
}

impl Merge {
    /// Merges runs with `memory_bytes` for all their buffers together.
    pub fn new(runs: Vec<Run>, memory_bytes: usize) -> Result<Self, StoreError> {
        let buffer = (memory_bytes / runs.len().max(1)).clamp(64 << 10, 4 << 20);
        let mut merge = Self {
            readers: Vec::new(),
            heads: BinaryHeap::new(),
        };
        for run in runs {
            merge.readers.push(run.read(buffer)?);
        }
        for at in 0..merge.readers.len() {
            if let Some(record) = merge.readers[at].next()? {
                merge
                    .heads
                    .push(Reverse((record.key, at, record.chunk, record.place)));
            }
        }
        Ok(merge)
    }

    fn advance(&mut self) -> Result<Option<Record>, StoreError> {
        let Some(mut head) = self.heads.peek_mut() else {
            return Ok(None);
        };
        let Reverse((key, at, chunk, place)) = *head;
        match self.readers[at].next()? {
            Some(next) => *head = Reverse((next.key, at, next.chunk, next.place)),
            None => {
                PeekMut::pop(head);
            }
        }
        Ok(Some(Record { key, chunk, place }))
    }
}

impl Iterator for Merge {
    type Item = Result<Record, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance().transpose()
    }
}
