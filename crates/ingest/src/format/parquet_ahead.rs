//! Reading ahead in a Parquet file. The columns of a row group are read side by side, a page of each in turn, which the system does
//! not take for an order in which to read ahead by itself: from a cold disk a load would wait for every page.

use std::fs::File;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use parquet::arrow::ProjectionMask;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

/// Bytes that are requested before they are read: what a disk of 300 MB/s gives while its first answer and some slow ones come.
pub(crate) const WINDOW: u64 = 32 * 1024 * 1024;
/// Bytes for which it is worth asking, so that requests do not become tiny.
const STEP: u64 = WINDOW / 8;

/// How far a file has been requested.
pub(super) struct ReadAhead {
    file: File,
    groups: Vec<Group>,
    /// Of each row group the bytes of its wanted columns that were requested.
    asked: Mutex<Vec<u64>>,
}

/// Where the wanted columns of a row group lie.
struct Group {
    columns: Vec<Range<u64>>,
    bytes: u64,
}

impl Group {
    fn of(group: &RowGroupMetaData, wanted: &ProjectionMask) -> Self {
        let leaves = group.columns().iter().enumerate();
        let columns: Vec<Range<u64>> = leaves
            .filter(|(leaf, _)| wanted.leaf_included(*leaf))
            .map(|(_, column)| {
                let (start, length) = column.byte_range();
                start..start.saturating_add(length)
            })
            .collect();
        let bytes = columns.iter().map(|column| column.end - column.start).sum();
        Self { columns, bytes }
    }

    /// The slices of the columns that lie between two amounts of the group's bytes: every column is read as fast as the others,
    /// by its own measure.
    fn slices(&self, bytes: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let [from, to] = [bytes.start, bytes.end].map(|at| at as f64 / self.bytes as f64);
        self.columns.iter().map(move |column| {
            let length = (column.end - column.start) as f64;
            let [from, to] = [from, to].map(|part| column.start + (length * part) as u64);
            from..to
        })
    }
}

impl ReadAhead {
    pub(super) fn new(file: File, metadata: &ParquetMetaData, wanted: &ProjectionMask) -> Self {
        let groups: Vec<Group> = metadata
            .row_groups()
            .iter()
            .map(|group| Group::of(group, wanted))
            .collect();
        Self {
            file,
            asked: Mutex::new(vec![0; groups.len()]),
            groups,
        }
    }

    /// Asks for what comes next, when the given part of a row group's rows has been read.
    pub(super) fn reading(&self, group: usize, part: f64) {
        for range in self.due(group, part) {
            store::read_ahead(&self.file, &range);
        }
    }

    /// What is within the window and was not requested.
    fn due(&self, group: usize, part: f64) -> Vec<Range<u64>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = Vec::new();
        let Some(first) = self.groups.get(group) else {
            return due;
        };
        let mut window = (first.bytes as f64 * part) as u64 + WINDOW;
        for (group, asked) in self.groups.iter().zip(asked.iter_mut()).skip(group) {
            let reach = group.bytes.min(window);
            let is_worth_it = reach == group.bytes || reach >= *asked + STEP;
            if reach > *asked && is_worth_it {
                due.extend(group.slices(&(*asked..reach)));
                *asked = reach;
            }
            window -= reach;
            if window == 0 {
                break;
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// Row groups of the given sizes, of two columns with another between them that is not wanted.
    fn ahead(sizes: &[u64]) -> ReadAhead {
        let mut start = 4;
        let groups: Vec<Group> = sizes
            .iter()
            .map(|bytes| {
                let columns = vec![
                    start..start + bytes / 4,
                    start + bytes..start + bytes + (bytes - bytes / 4),
                ];
                start += 3 * bytes;
                Group {
                    columns,
                    bytes: *bytes,
                }
            })
            .collect();
        ReadAhead {
            file: tempfile::tempfile().unwrap(),
            asked: Mutex::new(vec![0; groups.len()]),
            groups,
        }
    }

    fn bytes(ranges: &[Range<u64>]) -> u64 {
        ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Sorted and with neighbours joined; a byte requested twice fails.
    fn together(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                last => {
                    assert!(last.is_none_or(|last| last.end < range.start));
                    joined.push(range);
                }
            }
        }
        joined
    }

    fn read_whole(sizes: &[u64], batches: u64) {
        let ahead = ahead(sizes);
        let mut asked = Vec::new();
        let mut read = 0;
        for (number, size) in sizes.iter().enumerate() {
            for batch in 0..batches {
                let part = batch as f64 / batches as f64;
                let due = ahead.due(number, part);
                assert!(due.is_empty() || bytes(&due) > 0);
                asked.extend(due);
                let at = read + (*size as f64 * part) as u64;
                let left = sizes.iter().sum::<u64>() - at;
                // What is read next was requested, and nothing beyond the window.
                assert!(bytes(&asked) >= at + left.min(WINDOW - STEP));
                assert!(bytes(&asked) <= at + WINDOW + 2);
            }
            read += size;
        }
        let wanted = ahead.groups.iter().flat_map(|group| group.columns.clone());
        assert_eq!(together(asked), together(wanted.collect()));
    }

    #[test]
    fn every_wanted_byte_is_asked_for_once_within_the_window() {
        read_whole(&[500 * MIB, 300 * MIB + 7], 1000);
        read_whole(&[MIB; 200], 10);
        read_whole(&[3, 100 * MIB, 1, 0, 17 * MIB], 64);
        read_whole(&[0], 1);
        read_whole(&[], 1);
    }

    #[test]
    fn groups_that_are_read_at_once_are_asked_for_apart() {
        let ahead = ahead(&[500 * MIB; 3]);
        assert_eq!(bytes(&ahead.due(0, 0.0)), WINDOW);
        assert_eq!(bytes(&ahead.due(1, 0.0)), WINDOW);
        assert_eq!(bytes(&ahead.due(1, 0.001)), 0);
        assert_eq!(bytes(&ahead.due(0, 0.1)), 50 * MIB);
        // Near the end of a group the next one's beginning is due.
        assert_eq!(bytes(&ahead.due(1, 1.0)), 468 * MIB + WINDOW);
        assert_eq!(bytes(&ahead.due(2, 0.0)), 0);
    }
}
