//! From directors' keys to places: the runs of a director index, held in memory while a table is loaded if the budget allows.

use std::path::PathBuf;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use store::DirectorIndex;

use crate::error::IngestError;
use crate::row_batch::Place;
use crate::row_errors::{RowErrors, class};

/// What [`KeyMap::lookup`] gives for a key that is not there. No place has this number.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// Bytes that an entry takes in memory, its share of the buckets included.
const BYTES_PER_ENTRY: u64 = 18;
/// Keys for each bucket, if they are spread evenly.
const KEYS_PER_BUCKET: u64 = 4;

/// Finds the place of keys.
#[derive(Debug)]
pub(crate) enum KeyMap {
    Memory(SortedKeys),
    Files(Vec<DirectorIndex>),
}

impl KeyMap {
    /// Opens the runs of an index in `dirs`; reads them whole if that takes no more than `memory` bytes. A key that is in several
    /// runs is in one place.
    pub(crate) fn open(dirs: &[PathBuf], memory: u64) -> Result<Self, IngestError> {
        let runs: Vec<DirectorIndex> = (dirs.iter())
            .map(|dir| DirectorIndex::open(dir))
            .collect::<Result<_, _>>()?;
        let entries: u64 = runs.iter().map(DirectorIndex::len).sum();
        // Entries of several runs are sorted before they are taken apart, which takes about as much once more.
        let bytes = entries * BYTES_PER_ENTRY * if runs.len() > 1 { 2 } else { 1 };
        if bytes > memory || entries >= u64::from(u32::MAX) {
            return Ok(Self::Files(runs));
        }
        let mut pairs = Vec::with_capacity(entries as usize);
        for entry in runs.iter().flat_map(DirectorIndex::iter) {
            let (key, entry) = entry?;
            pairs.push((key, Place::from(entry.location).0));
        }
        if runs.len() > 1 {
            pairs.sort_unstable_by_key(|(key, _)| *key);
            pairs.dedup_by_key(|(key, _)| *key);
        }
        let (keys, places) = pairs.into_iter().unzip();
        Ok(Self::Memory(SortedKeys::new(keys, places)))
    }

    /// Whether it has no key at all.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Memory(sorted) => sorted.keys.is_empty(),
            Self::Files(runs) => runs.iter().all(DirectorIndex::is_empty),
        }
    }

    /// For each key its place's number, or [`NOWHERE`].
    pub(crate) fn lookup(&self, keys: &[i64], out: &mut Vec<u64>) -> Result<(), IngestError> {
        out.clear();
        match self {
            Self::Memory(sorted) => out.extend(keys.iter().map(|key| sorted.get(*key))),
            Self::Files(runs) => {
                out.resize(keys.len(), NOWHERE);
                for run in runs {
                    for (place, entry) in out.iter_mut().zip(run.lookup(keys)?) {
                        if let (NOWHERE, Some(entry)) = (*place, entry) {
                            *place = Place::from(entry.location).0;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Ascending keys with a table of where each stretch of the key range begins: one or two cache misses to find a key
/// where keys are spread evenly, a binary search where they are not.
#[derive(Debug)]
pub(crate) struct SortedKeys {
    keys: Vec<i64>,
    places: Vec<u64>,
    /// `buckets[b]..buckets[b + 1]` are the keys whose distance from the first, shifted, is `b`.
    buckets: Vec<u32>,
    shift: u32,
}

impl SortedKeys {
    fn new(keys: Vec<i64>, places: Vec<u64>) -> Self {
        let range = match (keys.first(), keys.last()) {
            (Some(first), Some(last)) => last.wrapping_sub(*first) as u64,
            _ => 0,
        };
        let wanted = (keys.len() as u64 / KEYS_PER_BUCKET).max(1);
        let mut shift = 0;
        while shift < 63 && range >> shift > wanted {
            shift += 1;
        }
        let mut buckets = vec![0; (range >> shift) as usize + 2];
        for key in &keys {
            buckets[(key.wrapping_sub(keys[0]) as u64 >> shift) as usize + 1] += 1;
        }
        let mut sum = 0;
        for bucket in &mut buckets {
            sum += *bucket;
            *bucket = sum;
        }
        Self {
            keys,
            places,
            buckets,
            shift,
        }
    }

    #[inline]
    fn get(&self, key: i64) -> u64 {
        let Some(first) = self.keys.first().filter(|first| **first <= key) else {
            return NOWHERE;
        };
        let bucket = (key.wrapping_sub(*first) as u64 >> self.shift) as usize;
        let Some(&[start, end]) = self.buckets.get(bucket..bucket + 2) else {
            return NOWHERE;
        };
        let (start, end) = (start as usize, end as usize);
        match self.keys[start..end].binary_search(&key) {
            Ok(at) => self.places[start + at],
            Err(_) => NOWHERE,
        }
    }
}

/// The keys in a column of integers, and for each row whether it has one. NULL has none; neither has a number beyond
/// the 64-bit signed integers, which no index holds.
pub(crate) fn keys_of(array: &ArrayRef) -> Result<(Vec<i64>, Vec<bool>), IngestError> {
    let cast_array = cast(array, &DataType::Int64)?;
    let keys = cast_array.as_primitive::<Int64Type>();
    let valid = match keys.nulls() {
        Some(nulls) => nulls.iter().collect(),
        None => vec![true; keys.len()],
    };
    Ok((keys.values().to_vec(), valid))
}

/// Rejects rows with a key beyond the 64-bit signed integers: it is not NULL, but no index can hold it.
pub(crate) fn reject_large_keys(
    array: &ArrayRef,
    row_errors: &mut RowErrors<'_>,
) -> Result<(), IngestError> {
    if *array.data_type() != DataType::UInt64 {
        return Ok(());
    }
    let (_, has_key) = keys_of(array)?;
    for row in (0..array.len()).filter(|row| array.is_valid(*row) && !has_key[*row]) {
        row_errors.reject(row, class::LARGE_KEY.to_owned(), || {
            "the key does not fit into a signed 64-bit integer".to_owned()
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(mut keys: Vec<i64>, asked: &[i64]) {
        keys.sort_unstable();
        keys.dedup();
        let places: Vec<u64> = (0..keys.len() as u64).collect();
        let map = SortedKeys::new(keys.clone(), places);
        for key in keys.iter().chain(asked) {
            let expected = keys.binary_search(key).map_or(NOWHERE, |at| at as u64);
            assert_eq!(map.get(*key), expected, "{key}");
        }
    }

    #[test]
    fn extremes() {
        check(vec![], &[0, i64::MIN, i64::MAX]);
        check(vec![i64::MIN, i64::MAX], &[0, -1, i64::MIN + 1]);
        check(vec![7], &[6, 7, 8, i64::MIN]);
        // A dense stretch and one key far away: everything in one bucket.
        check(
            (0..10_000).chain([i64::MAX]).collect(),
            &[-1, 10_000, i64::MAX - 1],
        );
    }

    proptest! {
        #[test]
        fn finds_what_is_there(keys: Vec<i64>, asked: Vec<i64>, near in proptest::collection::vec(-50..50i64, 0..40)) {
            check(keys, &asked);
            check(near, &asked);
        }
    }
}
