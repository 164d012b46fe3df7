//! Where the keys of a part go, in their order: into its index, or into memory while other parts may become one with it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use sky::Location;
use store::{Durability, IndexWriter};

use crate::error::IngestError;
use crate::row_batch::Place;

/// A key as an index has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexedKey {
    pub key: i64,
    pub place: Place,
    /// Whether it is the key of a child's rows that the director lacks.
    pub orphan: bool,
}

/// Keys that are kept in memory.
pub(crate) type KeptKeys = Arc<Mutex<Vec<IndexedKey>>>;

/// Where the keys go.
#[derive(Debug, Clone)]
pub(crate) enum IndexTarget {
    /// Into an index in this directory.
    Directory(PathBuf),
    /// Into memory.
    Memory(KeptKeys),
}

impl IndexTarget {
    /// Begins with the first key.
    pub(crate) fn begin(&self) -> Result<KeyRun, IngestError> {
        let sink = match self {
            Self::Directory(dir) => KeySink::Index(IndexWriter::create(dir)?),
            Self::Memory(kept) => KeySink::Memory(Vec::new(), Arc::clone(kept)),
        };
        Ok(KeyRun { sink, entries: 0 })
    }
}

/// Takes keys in their order.
pub(crate) struct KeyRun {
    sink: KeySink,
    entries: u64,
}

enum KeySink {
    Index(IndexWriter),
    Memory(Vec<IndexedKey>, KeptKeys),
}

impl KeyRun {
    /// Adds a key, which is larger than those before, and where its rows are.
    pub(crate) fn push(
        &mut self,
        key: i64,
        location: Location,
        orphan: bool,
    ) -> Result<(), IngestError> {
        self.entries += 1;
        match &mut self.sink {
            KeySink::Index(index) => index.push(key, location, orphan)?,
            KeySink::Memory(keys, _) => keys.push(IndexedKey {
                key,
                place: location.into(),
                orphan,
            }),
        }
        Ok(())
    }

    /// The keys that were added.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// Ends it. Gives the bytes of the index; none where the keys are kept in memory.
    pub(crate) fn finish(self) -> Result<u64, IngestError> {
        match self.sink {
            KeySink::Index(index) => Ok(index.finish_with(Durability::WithName)?.bytes),
            KeySink::Memory(keys, kept) => {
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = keys;
                Ok(0)
            }
        }
    }
}
