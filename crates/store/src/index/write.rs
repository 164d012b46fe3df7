//! Writing a director index from keys in any order, with bounded memory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use sky::Location;

use super::page::{DataPage, FENCES_PER_PAGE, PAGE, PageBuffer, Trailer, fence_page, seal};
use super::spill::{Merge, Run};
use super::tree::Tree;
use super::{Record, index_path};
use crate::StoreError;
use crate::durable::TemporaryFile;

/// How many of the keys that occur more than once are named.
pub const MAX_EXAMPLES: usize = 10;

/// Memory for each record while it is sorted: itself, and half of it again for the sort.
const BYTES_PER_RECORD: usize = size_of::<Record>() * 3 / 2;

/// How many runs are merged at a time, each of them an open file.
const MAX_FAN_IN: usize = 128;

/// What to do about a key that was pushed more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Duplicates {
    /// [`IndexWriter::finish`] fails and leaves no index.
    #[default]
    Refuse,
    /// The entry that was pushed first stays; the summary tells of the others.
    KeepFirst,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexSummary {
    /// Keys in the index.
    pub entries: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Entries that were pushed beyond the first of their key.
    pub duplicates: u64,
    /// The first [`MAX_EXAMPLES`] keys that occurred more than once, ascending.
    pub examples: Vec<i64>,
}

/// Takes keys in any order and makes them an index.
///
/// Records are sorted in memory; when that is full they go to a temporary file beside the index, and
/// all of these are merged in the end. An unfinished writer leaves nothing behind when it is dropped.
#[derive(Debug)]
pub struct IndexWriter {
    dir: PathBuf,
    memory_bytes: usize,
    duplicates: Duplicates,
    records: Vec<Record>,
    runs: Vec<Run>,
    runs_written: usize,
}

impl IndexWriter {
    /// A writer of the index in `dir`, which is made if need be. It holds no more than about
    /// `memory_bytes` (at least some megabytes) at a time.
    pub fn create(dir: &Path, memory_bytes: usize) -> Result<Self, StoreError> {
        fs::create_dir_all(dir).map_err(StoreError::io("create", dir))?;
        Ok(Self {
            dir: dir.to_owned(),
            memory_bytes: memory_bytes.max(BYTES_PER_RECORD * 1024),
            duplicates: Duplicates::default(),
            records: Vec::new(),
            runs: Vec::new(),
            runs_written: 0,
        })
    }

    /// What to do about keys that are pushed more than once; without this they are refused.
    pub fn duplicates(mut self, duplicates: Duplicates) -> Self {
        self.duplicates = duplicates;
        self
    }

    /// Adds a key and where its rows are.
    ///
    /// # Errors
    ///
    /// [`StoreError::WrongLocation`] for a negative sub-chunk, and those of writing when memory is
    /// full.
    pub fn push(&mut self, key: i64, location: Location, orphan: bool) -> Result<(), StoreError> {
        let record = Record::new(key, location, orphan)
            .ok_or(StoreError::WrongLocation(location.sub_chunk.0))?;
        let room = self.memory_bytes / BYTES_PER_RECORD;
        if self.records.len() >= room {
            self.spill()?;
        }
        if self.records.len() == self.records.capacity() {
            // Doubling, as a vector does by itself, but never beyond the room there is.
            let more = self.records.len().max(1024).min(room - self.records.len());
            self.records.reserve_exact(more);
        }
        self.records.push(record);
        Ok(())
    }

    /// Sorts what is left, merges and writes the index. It is synced and appears complete or not at
    /// all, replacing one that was there.
    ///
    /// # Errors
    ///
    /// [`StoreError::DuplicateKeys`] unless told otherwise, [`StoreError::DiskFull`],
    /// [`StoreError::Io`].
    pub fn finish(mut self) -> Result<IndexSummary, StoreError> {
        let mut output = TreeWriter::create(&index_path(&self.dir))?;
        let mut unique = Unique::default();
        if self.runs.is_empty() {
            self.records.sort_by_key(|record| record.key);
            for record in self.records.drain(..) {
                if unique.is_new(record.key) {
                    output.push(record)?;
                }
            }
        } else {
            self.spill()?;
            self.records = Vec::new();
            for record in self.merged()? {
                let record = record?;
                if unique.is_new(record.key) {
                    output.push(record)?;
                }
            }
        }
        if unique.duplicates > 0 && self.duplicates == Duplicates::Refuse {
            return Err(StoreError::DuplicateKeys {
                count: unique.duplicates,
                examples: unique.examples,
            });
        }
        let (entries, bytes) = output.finish()?;
        Ok(IndexSummary {
            entries,
            bytes,
            duplicates: unique.duplicates,
            examples: unique.examples,
        })
    }

    /// Moves the records in memory to a run. The sort is stable and runs are merged in the order in
    /// which they were written, so the first of equal keys stays the first.
    fn spill(&mut self) -> Result<(), StoreError> {
        self.records.sort_by_key(|record| record.key);
        let path = self.next_run_path();
        let run = Run::write(path, self.records.drain(..).map(Ok))?;
        self.runs.push(run);
        Ok(())
    }

    fn next_run_path(&mut self) -> PathBuf {
        self.runs_written += 1;
        self.dir.join(format!("run_{}.tmp", self.runs_written))
    }

    /// All runs as one, after merging them by groups while there are too many to be open at a time.
    fn merged(&mut self) -> Result<Merge, StoreError> {
        let mut runs = std::mem::take(&mut self.runs);
        while runs.len() > MAX_FAN_IN {
            let mut rest = runs.into_iter();
            let mut fewer = Vec::new();
            loop {
                let group: Vec<Run> = rest.by_ref().take(MAX_FAN_IN).collect();
                if group.is_empty() {
                    break;
                }
                let path = self.next_run_path();
                fewer.push(Run::write(path, Merge::new(group, self.memory_bytes)?)?);
            }
            runs = fewer;
        }
        Merge::new(runs, self.memory_bytes)
    }
}

/// Finds keys that come more than once in an ascending sequence.
#[derive(Debug, Default)]
struct Unique {
    last: Option<i64>,
    duplicates: u64,
    examples: Vec<i64>,
}

impl Unique {
    fn is_new(&mut self, key: i64) -> bool {
        if self.last.replace(key) != Some(key) {
            return true;
        }
        self.duplicates += 1;
        if self.examples.len() < MAX_EXAMPLES && self.examples.last() != Some(&key) {
            self.examples.push(key);
        }
        false
    }
}

/// Writes records in ascending order of their keys as the pages of the file.
struct TreeWriter {
    output: BufWriter<File>,
    temporary: TemporaryFile,
    data: DataPage,
    /// For each level above the data, the first keys of the pages below that have no page yet.
    fences: Vec<Vec<i64>>,
    entries: u64,
    data_pages: u64,
    pages: u64,
}

impl TreeWriter {
    fn create(path: &Path) -> Result<Self, StoreError> {
        let (temporary, file) = TemporaryFile::create(path)?;
        Ok(Self {
            output: BufWriter::with_capacity(1 << 20, file),
            temporary,
            data: DataPage::default(),
            fences: Vec::new(),
            entries: 0,
            data_pages: 0,
            pages: 0,
        })
    }

    fn push(&mut self, record: Record) -> Result<(), StoreError> {
        if !self.data.push(record) {
            self.write_data_page()?;
            // An empty page has room for any record.
            self.data.push(record);
        }
        self.entries += 1;
        Ok(())
    }

    /// Writes the data page and every fence page that is full with it.
    fn write_data_page(&mut self) -> Result<(), StoreError> {
        let Some(mut first_key) = self.data.first_key() else {
            return Ok(());
        };
        let page = self.data.take();
        self.write_page(page)?;
        self.data_pages += 1;
        for level in 0.. {
            if self.fences.len() <= level {
                self.fences.push(Vec::new());
            }
            self.fences[level].push(first_key);
            if self.fences[level].len() < FENCES_PER_PAGE {
                break;
            }
            first_key = self.fences[level][0];
            self.write_fence_page(level)?;
        }
        Ok(())
    }

    fn write_fence_page(&mut self, level: usize) -> Result<(), StoreError> {
        let page = fence_page(&self.fences[level]);
        self.fences[level].clear();
        self.write_page(page)
    }

    fn write_page(&mut self, mut page: PageBuffer) -> Result<(), StoreError> {
        seal(&mut page, self.pages);
        self.pages += 1;
        self.output
            .write_all(&page[..PAGE])
            .map_err(StoreError::io("write", self.temporary.target()))
    }

    /// Writes what is pending on every level and the trailer. Gives entries and bytes.
    fn finish(mut self) -> Result<(u64, u64), StoreError> {
        if !self.data.is_empty() {
            self.write_data_page()?;
        }
        let tree = Tree::new(self.data_pages);
        for level in 0..tree.height().saturating_sub(1) {
            if let Some(first_key) = self.fences[level].first().copied() {
                self.write_fence_page(level)?;
                if self.fences.len() <= level + 1 {
                    self.fences.push(Vec::new());
                }
                self.fences[level + 1].push(first_key);
            }
        }
        debug_assert_eq!(self.pages, tree.total());
        let trailer = Trailer {
            entries: self.entries,
            data_pages: self.data_pages,
        };
        self.write_page(trailer.encode())?;
        let failed = StoreError::io("write", self.temporary.target());
        let file = self
            .output
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        self.temporary.publish(&file)?;
        Ok((self.entries, self.pages * PAGE as u64))
    }
}
