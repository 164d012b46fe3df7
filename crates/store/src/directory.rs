//! The directory of a chunk file: which rows belong to which sub-chunk.

use std::ops::Range;

use sky::{SubChunkId, SubChunks};

use crate::StoreError;

/// The rows of one sub-chunk in a chunk file.
#[derive(Debug, Clone, PartialEq)]
pub struct SubChunkRange {
    /// The sub-chunk.
    pub sub_chunk: SubChunkId,
    /// Its rows, as numbers within the file, half-open.
    pub rows: Range<u64>,
    /// The bounds of the rows' own positions in degrees: `ra_min, dec_min, ra_max, dec_max`, where
    /// `ra_min > ra_max` wraps through 0. None if the rows have no positions or if these lie in the
    /// sub-chunk anyway.
    pub bounds: Option<[f64; 4]>,
}

/// All sub-chunks of a chunk file that have rows, in ascending order.
///
/// Either empty (a file whose rows belong to no sub-chunk, or that has no rows), or its ranges
/// follow each other without a gap from row 0 on, none of them empty, sub-chunks ascending strictly.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Directory {
    entries: Vec<SubChunkRange>,
}

impl Directory {
    /// A directory of these entries, or what rule they break.
    pub fn new(entries: Vec<SubChunkRange>) -> Result<Self, StoreError> {
        let mut row = 0;
        let mut previous: Option<SubChunkId> = None;
        for entry in &entries {
            let sub_chunk = entry.sub_chunk;
            if previous.is_some_and(|p| p >= sub_chunk) {
                return Err(StoreError::WrongDirectory(format!(
                    "sub-chunk {sub_chunk} does not come after the one before it"
                )));
            }
            if entry.rows.start != row || entry.rows.end <= row {
                return Err(StoreError::WrongDirectory(format!(
                    "sub-chunk {sub_chunk} has rows {}..{}, but must have at least one row and start at row {row}",
                    entry.rows.start, entry.rows.end
                )));
            }
            row = entry.rows.end;
            previous = Some(sub_chunk);
        }
        Ok(Self { entries })
    }

    /// The entries, ascending.
    pub fn entries(&self) -> &[SubChunkRange] {
        &self.entries
    }

    /// How many rows the entries cover.
    pub fn rows(&self) -> u64 {
        self.entries.last().map_or(0, |entry| entry.rows.end)
    }

    /// The entry of one sub-chunk, if it has rows here.
    pub fn get(&self, sub_chunk: SubChunkId) -> Option<&SubChunkRange> {
        let at = self
            .entries
            .partition_point(|entry| entry.sub_chunk < sub_chunk);
        self.entries
            .get(at)
            .filter(|entry| entry.sub_chunk == sub_chunk)
    }

    /// The entry that holds a row.
    pub fn entry_of_row(&self, row: u64) -> Option<&SubChunkRange> {
        let at = self.entries.partition_point(|entry| entry.rows.end <= row);
        self.entries.get(at)
    }

    /// The row ranges of all or some sub-chunks, sorted, disjoint, and merged where they meet.
    pub fn rows_of(&self, sub_chunks: &SubChunks) -> Vec<Range<u64>> {
        match sub_chunks {
            SubChunks::All => self.rows_where(|_| true),
            SubChunks::Some(wanted) => {
                let entries = wanted.iter().filter_map(|id| self.get(*id));
                let mut ranges: Vec<_> = entries.map(|entry| entry.rows.clone()).collect();
                // They come sorted, or nearly so; a merge of unsorted ranges would lose rows.
                ranges.sort_by_key(|range| range.start);
                merge(ranges.into_iter())
            }
        }
    }

    /// The row range of the sub-chunks from `first` to `last`, both included; empty if they have
    /// no rows here.
    pub fn rows_between(&self, first: SubChunkId, last: SubChunkId) -> Range<u64> {
        let start = self
            .entries
            .partition_point(|entry| entry.sub_chunk < first);
        let end = self
            .entries
            .partition_point(|entry| entry.sub_chunk <= last);
        match self.entries.get(start..end) {
            Some([only]) => only.rows.clone(),
            Some([first, .., last]) => first.rows.start..last.rows.end,
            _ => 0..0,
        }
    }

    /// The row ranges of the entries that `keep` accepts, sorted, disjoint, merged where they meet.
    pub fn rows_where(&self, mut keep: impl FnMut(&SubChunkRange) -> bool) -> Vec<Range<u64>> {
        merge(
            self.entries
                .iter()
                .filter(|entry| keep(entry))
                .map(|entry| entry.rows.clone()),
        )
    }

    /// The row ranges of the sub-chunks whose numbers are in closed intervals, which are sorted and disjoint; sorted, disjoint, merged
    /// where they meet.
    pub fn rows_in(&self, intervals: &[(i32, i32)]) -> Vec<Range<u64>> {
        let rows = intervals
            .iter()
            .map(|(first, last)| self.rows_between(SubChunkId(*first), SubChunkId(*last)));
        merge(rows.filter(|rows| !rows.is_empty()))
    }

    /// The same of the entries that `keep` accepts.
    pub fn rows_within(
        &self,
        intervals: &[(i32, i32)],
        mut keep: impl FnMut(&SubChunkRange) -> bool,
    ) -> Vec<Range<u64>> {
        let within = intervals.iter().flat_map(|(first, last)| {
            let start = self.entries.partition_point(|e| e.sub_chunk.0 < *first);
            let entries = self.entries[start..].iter();
            entries.take_while(|entry| entry.sub_chunk.0 <= *last)
        });
        let kept = within.filter(|entry| keep(entry));
        merge(kept.map(|entry| entry.rows.clone()))
    }

    /// The directory as it is stored; see `docs/chunk-file.md`.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let has_bounds = self.entries.iter().any(|entry| entry.bounds.is_some());
        let mut bytes = Vec::with_capacity(8 + self.entries.len() * 44);
        let count = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.extend_from_slice(&u32::from(has_bounds).to_le_bytes());
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.sub_chunk.0.to_le_bytes());
        }
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.rows.end.to_le_bytes());
        }
        if has_bounds {
            for corner in self
                .entries
                .iter()
                .flat_map(|entry| entry.bounds.unwrap_or([f64::NAN; 4]))
            {
                bytes.extend_from_slice(&corner.to_le_bytes());
            }
        }
        bytes
    }

    /// The directory from its stored form, or what is wrong with that.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let (header, body) = bytes.split_first_chunk::<8>().ok_or("it has no header")?;
        let count = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let has_bounds = match u32::from_le_bytes([header[4], header[5], header[6], header[7]]) {
            0 => false,
            1 => true,
            other => return Err(format!("its bounds flag is {other}")),
        };
        let entry_len = if has_bounds { 44 } else { 12 };
        if count.checked_mul(entry_len) != Some(body.len()) {
            return Err(format!("it has {} bytes for {count} entries", body.len()));
        }
        let (ids, rest) = body.split_at(count * 4);
        let (ends, corners) = rest.split_at(count * 8);
        let ends = ends
            .as_chunks::<8>()
            .0
            .iter()
            .map(|end| u64::from_le_bytes(*end));
        let mut bounds = corners.as_chunks::<32>().0.iter().map(decode_bounds);
        let mut row = 0;
        let mut entries = Vec::with_capacity(count);
        for (id, end) in ids.as_chunks::<4>().0.iter().zip(ends) {
            entries.push(SubChunkRange {
                sub_chunk: SubChunkId(i32::from_le_bytes(*id)),
                rows: row..end,
                bounds: bounds.next().flatten(),
            });
            row = end;
        }
        Self::new(entries).map_err(|error| error.to_string())
    }
}

/// NaN in all four corners stands for "no bounds".
fn decode_bounds(bytes: &[u8; 32]) -> Option<[f64; 4]> {
    let mut corners = [0.0; 4];
    for (corner, bytes) in corners.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *corner = f64::from_le_bytes(*bytes);
    }
    (!corners.iter().any(|corner| corner.is_nan())).then_some(corners)
}

/// Joins ranges that meet; they come sorted.
fn merge(ranges: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Makes a directory while the rows of a file go by.
#[derive(Debug, Default)]
pub struct DirectoryBuilder {
    entries: Vec<SubChunkRange>,
}

impl DirectoryBuilder {
    /// Counts `rows` more rows, all of `sub_chunk`. Call it in the order of the rows; any number of
    /// times for the same sub-chunk. `bounds` are those of all rows of the sub-chunk so far: the
    /// last ones given stay.
    pub fn push(&mut self, sub_chunk: SubChunkId, rows: u64, bounds: Option<[f64; 4]>) {
        if rows == 0 {
            return;
        }
        match self.entries.last_mut() {
            Some(last) if last.sub_chunk == sub_chunk => {
                last.rows.end += rows;
                last.bounds = bounds.or(last.bounds);
            }
            last => {
                let start = last.map_or(0, |entry| entry.rows.end);
                self.entries.push(SubChunkRange {
                    sub_chunk,
                    rows: start..start + rows,
                    bounds,
                });
            }
        }
    }

    /// Counts one row for each of these sub-chunks, without bounds.
    pub fn extend(&mut self, sub_chunks: impl IntoIterator<Item = SubChunkId>) {
        for sub_chunk in sub_chunks {
            self.push(sub_chunk, 1, None);
        }
    }

    /// The directory, or why the rows were not in the order of their sub-chunks.
    pub fn finish(self) -> Result<Directory, StoreError> {
        Directory::new(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn directory(parts: &[(i32, u64)]) -> Directory {
        let mut builder = DirectoryBuilder::default();
        for (id, rows) in parts {
            builder.push(SubChunkId(*id), *rows, None);
        }
        builder.finish().unwrap()
    }

    fn some(ids: &[i32]) -> SubChunks {
        SubChunks::Some(ids.iter().map(|id| SubChunkId(*id)).collect())
    }

    #[test]
    fn neighbouring_ranges_are_merged() {
        let directory = directory(&[(2, 10), (3, 5), (7, 1), (9, 4)]);
        assert_eq!(directory.rows(), 20);
        assert_eq!(directory.rows_of(&SubChunks::All), vec![0..20]);
        assert_eq!(directory.rows_of(&some(&[2, 3, 9])), vec![0..15, 16..20]);
        // 3 and 7 are neighbours here although 4, 5 and 6 lie between them: those have no rows.
        assert_eq!(directory.rows_of(&some(&[3, 5, 7, 8])), vec![10..16]);
        assert!(directory.rows_of(&some(&[0, 100])).is_empty());
        assert_eq!(directory.rows_of(&some(&[9, 2, 3, 2])), vec![0..15, 16..20]);
        assert_eq!(directory.rows_between(SubChunkId(3), SubChunkId(8)), 10..16);
        assert!(
            directory
                .rows_between(SubChunkId(4), SubChunkId(6))
                .is_empty()
        );
        assert_eq!(directory.rows_where(|e| e.sub_chunk.0 > 3), vec![15..20]);
        for intervals in [
            &[(-5, 0), (2, 3), (9, 9)][..],
            &[(2, 3), (4, 8)],
            &[(0, 100)],
            &[(4, 6)],
            &[],
        ] {
            assert_eq!(
                directory.rows_in(intervals),
                directory.rows_within(intervals, |_| true)
            );
        }
        assert_eq!(
            directory.rows_within(&[(-5, 0), (2, 3), (9, 9)], |_| true),
            directory.rows_where(|e| matches!(e.sub_chunk.0, -5..=0 | 2..=3 | 9))
        );
        assert_eq!(
            directory.rows_within(&[(0, 3)], |e| e.rows.start > 0).len(),
            1
        );
        assert_eq!(directory.entry_of_row(14).unwrap().sub_chunk, SubChunkId(3));
        assert!(directory.entry_of_row(20).is_none());
    }

    #[test]
    fn disorder_is_rejected() {
        let entry = |id, rows| SubChunkRange {
            sub_chunk: SubChunkId(id),
            rows,
            bounds: None,
        };
        for wrong in [
            vec![entry(1, 0..5), entry(1, 5..6)],
            vec![entry(2, 0..5), entry(1, 5..6)],
            vec![entry(1, 1..5)],
            vec![entry(1, 0..5), entry(2, 6..7)],
            vec![entry(1, 0..0)],
        ] {
            assert!(matches!(
                Directory::new(wrong),
                Err(StoreError::WrongDirectory(_))
            ));
        }
        let mut builder = DirectoryBuilder::default();
        builder.extend([SubChunkId(1), SubChunkId(0), SubChunkId(1)]);
        assert!(builder.finish().is_err());
    }

    proptest! {
        #[test]
        fn stored_form_gives_the_directory_back(
            parts in prop::collection::btree_map(
                any::<i32>(),
                (1_u64..1000, prop::option::of([0.0..360.0, -90.0..90.0, 0.0..360.0, -90.0..90.0])),
                0..50,
            )
        ) {
            let mut builder = DirectoryBuilder::default();
            for (id, (rows, bounds)) in parts {
                builder.push(SubChunkId(id), rows, bounds);
            }
            let directory = builder.finish().unwrap();
            prop_assert_eq!(Directory::decode(&directory.encode()), Ok(directory));
        }

        #[test]
        fn garbage_is_no_directory_or_a_valid_one(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(directory) = Directory::decode(&bytes) {
                prop_assert!(Directory::new(directory.entries().to_vec()).is_ok());
            }
        }
    }
}
