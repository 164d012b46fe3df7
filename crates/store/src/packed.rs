//! The directory of a packed file: which rows belong to which chunk, and within it to which sub-chunk.

use std::ops::Range;

use sky::ChunkId;

use crate::block_file::len;
use crate::{Directory, StoreError};

/// One chunk of a packed file.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkSection {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its rows, at least one.
    pub rows: u64,
    /// Which of them belong to which sub-chunk, by their numbers within the chunk; empty if they belong to none.
    pub directory: Directory,
}

/// The chunks of a packed file as they are stored: directories of sub-chunks are decoded when they are wanted.
///
/// There is at least one chunk. Their numbers ascend strictly, and their rows follow each other without a gap, none without rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackedDirectory {
    chunks: Vec<PackedChunk>,
    sections: Vec<u8>,
}

/// Where a chunk is in a packed file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PackedChunk {
    pub chunk: ChunkId,
    /// Its rows, as numbers within the file.
    pub rows: Range<u64>,
    /// Its directory among the sections.
    section: Range<usize>,
}

/// Bytes before the first chunk's number, and for each chunk.
const HEADER_LEN: usize = 8;
const ENTRY_LEN: usize = 4 + 8 + 8;

impl PackedDirectory {
    /// The directory of these chunks, or what rule they break.
    pub fn new(sections: &[ChunkSection]) -> Result<Self, StoreError> {
        let mut packed = Self {
            chunks: Vec::with_capacity(sections.len()),
            sections: Vec::new(),
        };
        for ChunkSection {
            chunk,
            rows,
            directory,
        } in sections
        {
            if !directory.entries().is_empty() && directory.rows() != *rows {
                return Err(StoreError::WrongDirectory(format!(
                    "that of chunk {chunk} covers {} of its {rows} rows",
                    directory.rows()
                )));
            }
            let first = packed.rows();
            let start = packed.sections.len();
            packed.sections.extend_from_slice(&directory.encode());
            packed.chunks.push(PackedChunk {
                chunk: *chunk,
                rows: first..first.saturating_add(*rows),
                section: start..packed.sections.len(),
            });
        }
        packed.check().map_err(StoreError::WrongDirectory)?;
        Ok(packed)
    }

    fn check(&self) -> Result<(), String> {
        if self.chunks.is_empty() {
            return Err("it has no chunk".to_owned());
        }
        for pair in self.chunks.windows(2) {
            if pair[0].chunk >= pair[1].chunk {
                let chunk = pair[1].chunk;
                return Err(format!(
                    "chunk {chunk} does not come after the one before it"
                ));
            }
        }
        match self.chunks.iter().find(|chunk| chunk.rows.is_empty()) {
            Some(empty) => Err(format!("chunk {} has no rows", empty.chunk)),
            None => Ok(()),
        }
    }

    /// The chunks, ascending.
    pub fn chunks(&self) -> &[PackedChunk] {
        &self.chunks
    }

    /// Rows of all of them.
    pub fn rows(&self) -> u64 {
        self.chunks.last().map_or(0, |chunk| chunk.rows.end)
    }

    /// The place of a chunk among them.
    pub fn find(&self, chunk: ChunkId) -> Option<usize> {
        let found = self.chunks.binary_search_by_key(&chunk, |it| it.chunk);
        found.ok()
    }

    /// The directory of one chunk, or what is wrong with it.
    pub fn directory(&self, at: usize) -> Result<Directory, String> {
        let chunk = self.chunks.get(at).ok_or("it has no such chunk")?;
        let section = self.sections.get(chunk.section.clone());
        let directory = Directory::decode(section.unwrap_or_default())?;
        let rows = chunk.rows.end - chunk.rows.start;
        match directory.rows() {
            covered if directory.entries().is_empty() || covered == rows => Ok(directory),
            covered => Err(format!("it covers {covered} of {rows} rows")),
        }
    }

    /// The directory as it is stored; see `docs/chunk-file.md`.
    pub fn encode(&self) -> Vec<u8> {
        let count = u32::try_from(self.chunks.len()).unwrap_or(u32::MAX);
        let mut bytes =
            Vec::with_capacity(HEADER_LEN + self.chunks.len() * ENTRY_LEN + self.sections.len());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&0_u32.to_le_bytes());
        for chunk in &self.chunks {
            bytes.extend_from_slice(&chunk.chunk.0.to_le_bytes());
        }
        for chunk in &self.chunks {
            bytes.extend_from_slice(&chunk.rows.end.to_le_bytes());
        }
        for chunk in &self.chunks {
            bytes.extend_from_slice(&(chunk.section.end as u64).to_le_bytes());
        }
        bytes.extend_from_slice(&self.sections);
        bytes
    }

    /// The directory from its stored form, or what is wrong with that.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (header, body) = bytes
            .split_first_chunk::<HEADER_LEN>()
            .ok_or("it has no header")?;
        let count = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        if header[4..] != [0; 4] {
            return Err("its header is not as it must be".to_owned());
        }
        let table = count.checked_mul(ENTRY_LEN);
        let Some((table, sections)) = table.and_then(|len| body.split_at_checked(len)) else {
            return Err(format!("it has {} bytes for {count} chunks", body.len()));
        };
        let (ids, ends) = table.split_at(count * 4);
        let (row_ends, section_ends) = ends.as_chunks::<8>().0.split_at(count);
        let mut chunks: Vec<PackedChunk> = Vec::with_capacity(count);
        let (mut row, mut byte) = (0, 0);
        let ends = row_ends.iter().zip(section_ends);
        for (id, (row_end, section_end)) in ids.as_chunks::<4>().0.iter().zip(ends) {
            let rows = row..u64::from_le_bytes(*row_end);
            let section = byte..len(&(0..u64::from_le_bytes(*section_end)));
            (row, byte) = (rows.end, section.end);
            chunks.push(PackedChunk {
                chunk: ChunkId(i32::from_le_bytes(*id)),
                rows,
                section,
            });
        }
        let in_order = chunks.is_sorted_by_key(|chunk| chunk.section.end);
        if !in_order || byte != sections.len() {
            return Err("the directories of its chunks do not follow each other".to_owned());
        }
        let packed = Self {
            chunks,
            sections: sections.to_vec(),
        };
        packed.check()?;
        Ok(packed)
    }
}

/// The part of a file's bytes that is counted for some of its rows: the parts of all rows add up to the whole, which is that of none
/// where there are none.
pub(crate) fn share_of_bytes(bytes: u64, rows: &Range<u64>, all_rows: u64) -> u64 {
    if all_rows == 0 {
        return bytes;
    }
    let up_to = |row: u64| {
        let part = u128::from(bytes) * u128::from(row) / u128::from(all_rows);
        u64::try_from(part).unwrap_or(bytes)
    };
    up_to(rows.end).saturating_sub(up_to(rows.start))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sky::SubChunkId;

    use super::*;
    use crate::DirectoryBuilder;

    fn section(chunk: i32, sub_chunks: &[(i32, u64)]) -> ChunkSection {
        let mut directory = DirectoryBuilder::default();
        for (sub_chunk, rows) in sub_chunks {
            directory.push(SubChunkId(*sub_chunk), *rows, None);
        }
        ChunkSection {
            chunk: ChunkId(chunk),
            rows: sub_chunks.iter().map(|(_, rows)| rows).sum(),
            directory: directory.finish().unwrap(),
        }
    }

    #[test]
    fn each_chunk_has_its_rows() {
        let sections = [
            section(-1, &[(0, 3)]),
            section(5, &[(0, 1), (7, 9)]),
            section(6, &[(2, 2)]),
        ];
        let packed = PackedDirectory::new(&sections).unwrap();
        assert_eq!(packed.rows(), 15);
        assert_eq!(packed.find(ChunkId(5)), Some(1));
        assert_eq!(packed.find(ChunkId(4)), None);
        assert_eq!(packed.chunks()[1].rows, 3..13);
        assert_eq!(packed.directory(1).unwrap(), sections[1].directory);
        assert!(packed.directory(3).is_err());
    }

    #[test]
    fn disorder_is_rejected() {
        let mut uncovered = section(1, &[(0, 3)]);
        uncovered.rows = 4;
        for wrong in [
            vec![],
            vec![section(1, &[(0, 3)]), section(1, &[(1, 3)])],
            vec![section(2, &[(0, 3)]), section(1, &[(0, 3)])],
            vec![section(1, &[])],
            vec![uncovered],
        ] {
            let error = PackedDirectory::new(&wrong).unwrap_err();
            assert!(matches!(error, StoreError::WrongDirectory(_)), "{error}");
        }
    }

    fn sections() -> impl Strategy<Value = Vec<ChunkSection>> {
        let sub_chunks = prop::collection::btree_map(any::<i32>(), 1_u64..1000, 1..6);
        prop::collection::btree_map(any::<i32>(), sub_chunks, 1..12).prop_map(|chunks| {
            let chunks = chunks.into_iter();
            let of = |(chunk, sub_chunks): (i32, std::collections::BTreeMap<i32, u64>)| {
                section(chunk, &sub_chunks.into_iter().collect::<Vec<_>>())
            };
            chunks.map(of).collect()
        })
    }

    proptest! {
        #[test]
        fn stored_form_gives_the_directory_back(sections in sections()) {
            let packed = PackedDirectory::new(&sections).unwrap();
            let read = PackedDirectory::decode(&packed.encode()).unwrap();
            prop_assert_eq!(&read, &packed);
            let mut row = 0;
            for (at, section) in sections.iter().enumerate() {
                let chunk = &read.chunks()[at];
                prop_assert_eq!(chunk.chunk, section.chunk);
                prop_assert_eq!(chunk.rows.clone(), row..row + section.rows);
                prop_assert_eq!(&read.directory(at).unwrap(), &section.directory);
                row += section.rows;
            }
        }

        /// Checksums find damage before this does; it must not panic all the same.
        #[test]
        fn what_is_changed_is_rejected_or_keeps_the_rules(
            sections in sections(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in 0_usize..3
        ) {
            let mut bytes = PackedDirectory::new(&sections).unwrap().encode();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut);
            if let Ok(packed) = PackedDirectory::decode(&bytes) {
                prop_assert!(packed.check().is_ok());
                for chunk in 0..packed.chunks().len() {
                    let _ = packed.directory(chunk);
                }
            }
        }

        #[test]
        fn shares_add_up(bytes in any::<u64>(), rows in prop::collection::vec(1_u64..1 << 40, 1..20)) {
            let all: u64 = rows.iter().sum();
            let mut start = 0;
            let shares = rows.iter().map(|rows| {
                start += rows;
                share_of_bytes(bytes, &(start - rows..start), all)
            });
            prop_assert_eq!(shares.sum::<u64>(), bytes);
        }
    }
}
