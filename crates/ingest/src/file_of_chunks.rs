//! Which chunks of a load go into which file.
//!
//! Where chunks are small, a file for each would cost more than its rows: opening it, its metadata, its place on the disk. There,
//! chunks share files that have about as many rows as a chunk of a large table. A large chunk among small ones has a file of its
//! own all the same.

use std::collections::{BTreeMap, HashMap};

use catalog::Chunk;
use sky::ChunkId;
use store::ROWS_PER_BLOCK;

use crate::sort::ChunkSize;

/// The mean of rows from which on chunks of a load are not small, and the rows of a chunk that is not: less than a block is read
/// and decoded as one.
const SMALL_ROWS: u64 = ROWS_PER_BLOCK as u64;
/// Rows of a file of several chunks from which on no other is added.
const PACKED_ROWS: u64 = 1 << 18;
/// Chunks of a file.
const PACKED_CHUNKS: usize = 4096;

/// Chunks whose rows go into one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileOfChunks {
    /// The chunk after which the file is named; the first one of which rows are left if `None`.
    pub name: Option<ChunkId>,
    /// The chunks, ascending.
    pub chunks: Vec<ChunkId>,
    /// Whether the file says which chunks it holds.
    pub is_packed: bool,
    /// What the rows take in memory.
    pub bytes: u64,
    rows: u64,
}

impl FileOfChunks {
    /// A file of one chunk.
    pub(crate) fn of_one(size: &ChunkSize) -> Self {
        Self {
            name: Some(size.chunk),
            chunks: vec![size.chunk],
            is_packed: false,
            bytes: size.bytes,
            rows: size.rows,
        }
    }

    fn add(&mut self, size: &ChunkSize) {
        self.chunks.push(size.chunk);
        self.bytes += size.bytes;
        self.rows += size.rows;
        self.is_packed = true;
        // All rows of the first chunk may be rejected later.
        self.name = None;
    }

    fn has_room(&self) -> bool {
        self.rows < PACKED_ROWS && self.chunks.len() < PACKED_CHUNKS
    }
}

/// The files of chunks of these sizes, which come in the order of the chunks.
pub(crate) fn in_files(sizes: &[ChunkSize]) -> Vec<FileOfChunks> {
    let rows: u64 = sizes.iter().map(|size| size.rows).sum();
    let are_small = rows < SMALL_ROWS.saturating_mul(sizes.len() as u64);
    let mut files: Vec<FileOfChunks> = Vec::new();
    // The file to which small chunks are added, by its place.
    let mut open: Option<usize> = None;
    for size in sizes {
        let is_small = are_small && size.rows < SMALL_ROWS;
        match open.filter(|at| is_small && files[*at].has_room()) {
            Some(at) => files[at].add(size),
            None => {
                if is_small {
                    open = Some(files.len());
                }
                files.push(FileOfChunks::of_one(size));
            }
        }
    }
    files
}

/// The files of the overlaps of chunks that are written: they are together as the chunks are.
pub(crate) fn overlaps_in_files(chunks: &[Chunk], sizes: &[ChunkSize]) -> Vec<FileOfChunks> {
    let mut in_file: HashMap<ChunkId, usize> = HashMap::new();
    for chunk in chunks {
        *in_file.entry(chunk.file).or_default() += 1;
    }
    let file_of: HashMap<ChunkId, ChunkId> = chunks.iter().map(|it| (it.chunk, it.file)).collect();
    let mut files: BTreeMap<ChunkId, FileOfChunks> = BTreeMap::new();
    for size in sizes {
        let Some(name) = file_of.get(&size.chunk) else {
            continue;
        };
        match files.get_mut(name) {
            Some(file) => file.add(size),
            None => {
                files.insert(*name, FileOfChunks::of_one(size));
            }
        }
    }
    let named = |(name, file): (ChunkId, FileOfChunks)| FileOfChunks {
        name: Some(name),
        is_packed: in_file.get(&name).is_some_and(|chunks| *chunks > 1),
        ..file
    };
    files.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sizes(rows: &[u64]) -> Vec<ChunkSize> {
        let size = |(chunk, rows): (i32, &u64)| ChunkSize {
            chunk: ChunkId(chunk),
            rows: *rows,
            bytes: rows * 10,
        };
        (10..).zip(rows).map(size).collect()
    }

    fn chunks_in(files: &[FileOfChunks]) -> Vec<Vec<i32>> {
        let ids = |file: &FileOfChunks| file.chunks.iter().map(|chunk| chunk.0).collect();
        files.iter().map(ids).collect()
    }

    #[test]
    fn small_chunks_share_files_and_large_ones_do_not() {
        let together = in_files(&sizes(&[5, 7, 9]));
        assert_eq!(chunks_in(&together), [[10, 11, 12]]);
        assert!(together[0].is_packed && together[0].name.is_none());
        // Of a large table each has its own, the small ones too.
        let apart = in_files(&sizes(&[500_000, 7, 400_000]));
        assert_eq!(chunks_in(&apart), [[10], [11], [12]]);
        assert!(apart.iter().all(|file| !file.is_packed));
        let mixed = in_files(&sizes(&[5, 20_000, 9, 4]));
        assert_eq!(chunks_in(&mixed), [vec![10, 12, 13], vec![11]]);
        assert!(in_files(&[]).is_empty());
        let one = in_files(&sizes(&[3]));
        assert_eq!((one.len(), one[0].is_packed), (1, false));
    }

    #[test]
    fn overlaps_lie_as_their_chunks_do() {
        let chunk = |id, file| Chunk {
            chunk: ChunkId(id),
            file: ChunkId(file),
            rows: 1,
            strays: 0,
            bytes: 1,
            checksum: 1,
            overlap: None,
            bounds: None,
        };
        let chunks = [
            chunk(9, 9),
            chunk(10, 10),
            chunk(11, 11),
            chunk(12, 10),
            chunk(13, 10),
        ];
        // 9 has no overlap; 14 has one, but no rows of its own.
        let files = overlaps_in_files(&chunks, &sizes(&[3, 4, 5, 0, 6]));
        assert_eq!(chunks_in(&files), [vec![10, 12, 13], vec![11]]);
        let only = overlaps_in_files(&chunks, &sizes(&[1, 1, 1])[2..]);
        assert_eq!(only[0].name, Some(ChunkId(10)));
        assert!(only[0].is_packed);
    }

    proptest! {
        #[test]
        fn every_chunk_is_in_one_file_of_bounded_size(
            rows in prop::collection::vec(prop_oneof![1_u64..50, 1..20_000_u64, 10_000..200_000_u64], 0..6000)
        ) {
            let sizes = sizes(&rows);
            let files = in_files(&sizes);
            let mut all: Vec<ChunkId> = files.iter().flat_map(|file| file.chunks.clone()).collect();
            all.sort();
            prop_assert_eq!(all, sizes.iter().map(|size| size.chunk).collect::<Vec<_>>());
            for file in &files {
                prop_assert!(file.chunks.is_sorted_by(|a, b| a < b));
                prop_assert!(file.chunks.len() <= PACKED_CHUNKS);
                prop_assert!(file.chunks.len() == 1 || file.rows < PACKED_ROWS + SMALL_ROWS);
                prop_assert_eq!(file.is_packed, file.chunks.len() > 1);
            }
        }
    }
}
