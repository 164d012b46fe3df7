//! Writing a director index from keys in ascending order, without holding them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use sky::Location;

use super::page::{DataPage, FENCES_PER_PAGE, PAGE, PageBuffer, Trailer, fence_page, seal};
use super::tree::Tree;
use super::{Record, index_path};
use crate::StoreError;
use crate::durable::{Durability, TemporaryFile};

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexSummary {
    /// Keys in the index.
    pub entries: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

/// Takes keys in ascending order and makes them an index. An unfinished writer leaves nothing behind when it is dropped.
#[derive(Debug)]
pub struct IndexWriter {
    tree: TreeWriter,
    last: Option<i64>,
}

impl IndexWriter {
    /// A writer of the index in `dir`, which is made if need be.
    ///
    /// # Errors
    ///
    /// Those of making files.
    pub fn create(dir: &Path) -> Result<Self, StoreError> {
        catalog::make_directories(dir).map_err(StoreError::io("create", dir))?;
        Ok(Self {
            tree: TreeWriter::create(&index_path(dir))?,
            last: None,
        })
    }

    /// Adds a key and where its rows are.
    ///
    /// # Errors
    ///
    /// [`StoreError::KeyOutOfOrder`] unless the key is greater than the one before, [`StoreError::WrongLocation`] for a negative
    /// sub-chunk, and those of writing.
    pub fn push(&mut self, key: i64, location: Location, orphan: bool) -> Result<(), StoreError> {
        let record = Record::new(key, location, orphan)
            .ok_or(StoreError::WrongLocation(location.sub_chunk.0))?;
        if let Some(last) = self.last.filter(|last| *last >= key) {
            return Err(StoreError::KeyOutOfOrder { key, last });
        }
        self.last = Some(key);
        self.tree.push(record)
    }

    /// Writes what is left. The index is synced and appears complete or not at all, replacing one that was there.
    ///
    /// # Errors
    ///
    /// [`StoreError::DiskFull`], [`StoreError::Io`].
    pub fn finish(self) -> Result<IndexSummary, StoreError> {
        self.finish_with(Durability::WithName)
    }

    /// The same, synced when this says.
    ///
    /// # Errors
    ///
    /// Those of [`Self::finish`].
    pub fn finish_with(self, durability: Durability) -> Result<IndexSummary, StoreError> {
        let (entries, bytes) = self.tree.finish(durability)?;
        Ok(IndexSummary { entries, bytes })
    }
}

/// Writes records in ascending order of their keys as the pages of the file.
#[derive(Debug)]
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
    fn finish(mut self, durability: Durability) -> Result<(u64, u64), StoreError> {
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
        self.temporary.publish_with(&file, durability)?;
        Ok((self.entries, self.pages * PAGE as u64))
    }
}
