//! The director index: from the key of a director's row to the chunk and sub-chunk that hold it.
//!
//! One immutable file of sorted keys in pages of 4 KiB, with a tree of fences (the first key of
//! each page) between them. A lookup searches the fences that are always in memory, at most a
//! megabyte, and reads one page for each level below these; pages by which single keys were found may
//! stay in memory (see [`DirectorIndex::open_keeping`]). `docs/director-index.md` describes the file
//! byte by byte.

mod filter;
mod page;
mod read;
mod tree;
mod write;

use std::path::{Path, PathBuf};

use sky::{ChunkId, Location, SubChunkId};

pub use read::{DirectorIndex, IndexEntries};
pub use write::{IndexSummary, IndexWriter};

/// Where a key's rows are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The chunk and sub-chunk of the rows of this key.
    pub location: Location,
    /// Whether the key has no row in the director, but only in a child.
    pub orphan: bool,
}

/// The file of the index in its directory.
fn index_path(dir: &Path) -> PathBuf {
    dir.join("keys.mri")
}

/// A key with its entry, as small as it gets in memory. The sub-chunk is not negative, which
/// [`Record::new`] sees to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    key: i64,
    chunk: i32,
    /// The sub-chunk shifted left by one, and 1 for an orphan.
    place: u32,
}

impl Record {
    /// None if the sub-chunk is negative.
    fn new(key: i64, location: Location, orphan: bool) -> Option<Self> {
        let sub_chunk = u32::try_from(location.sub_chunk.0).ok()?;
        Some(Self {
            key,
            chunk: location.chunk.0,
            place: sub_chunk << 1 | u32::from(orphan),
        })
    }

    fn sub_chunk(self) -> u32 {
        self.place >> 1
    }

    fn orphan(self) -> bool {
        self.place & 1 == 1
    }

    fn entry(self) -> IndexEntry {
        IndexEntry {
            location: Location {
                chunk: ChunkId(self.chunk),
                // 31 bits, so it fits.
                sub_chunk: SubChunkId(i32::try_from(self.sub_chunk()).unwrap_or(i32::MAX)),
            },
            orphan: self.orphan(),
        }
    }
}

#[cfg(test)]
mod tests;
