//! Laws of the director index, with a map as the oracle.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use sky::{ChunkId, Location, SubChunkId};

use super::page::PAGE;
use super::*;
use crate::{DecodedBlocks, StoreError};

/// Bytes in which all pages of the tests have room.
const PLENTY: u64 = 64 << 20;

fn room(bytes: u64) -> Arc<DecodedBlocks> {
    Arc::new(DecodedBlocks::new(bytes))
}

fn location(chunk: i32, sub_chunk: i32) -> Location {
    Location {
        chunk: ChunkId(chunk),
        sub_chunk: SubChunkId(sub_chunk),
    }
}

/// Writes records in the order of their keys, of equal keys the first.
fn write(dir: &Path, records: &[(i64, i32, i32, bool)]) -> IndexSummary {
    let mut sorted = records.to_vec();
    sorted.sort_by_key(|record| record.0);
    sorted.dedup_by_key(|record| record.0);
    let mut writer = IndexWriter::create(dir).unwrap();
    for (key, chunk, sub_chunk, orphan) in sorted {
        writer
            .push(key, location(chunk, sub_chunk), orphan)
            .unwrap();
    }
    writer.finish().unwrap()
}

fn names_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn check_against_map(records: &[(i64, i32, i32, bool)], others: &[i64]) {
    let dir = tempfile::tempdir().unwrap();
    let summary = write(dir.path(), records);
    let mut oracle = BTreeMap::new();
    for (key, chunk, sub_chunk, orphan) in records {
        let entry = IndexEntry {
            location: location(*chunk, *sub_chunk),
            orphan: *orphan,
        };
        oracle.entry(*key).or_insert(entry);
    }
    assert_eq!(names_in(dir.path()), ["keys.mri"]);
    assert_eq!(summary.entries, oracle.len() as u64);
    assert_eq!(
        summary.bytes,
        fs::metadata(dir.path().join("keys.mri")).unwrap().len()
    );

    let index = DirectorIndex::open(dir.path()).unwrap();
    index.verify().unwrap();
    assert_eq!(index.len(), oracle.len() as u64);
    let all: Vec<_> = index.iter().map(Result::unwrap).collect();
    assert_eq!(all, oracle.clone().into_iter().collect::<Vec<_>>());
    let mut keys: Vec<i64> = records.iter().map(|record| record.0).collect();
    keys.extend_from_slice(others);
    keys.extend(others.iter().map(|key| key.saturating_add(1)));
    let found = index.lookup(&keys).unwrap();
    for (key, entry) in keys.iter().zip(&found) {
        assert_eq!(entry.as_ref(), oracle.get(key), "{key}");
    }
    let keeping = DirectorIndex::open_keeping(dir.path(), room(PLENTY)).unwrap();
    for (key, entry) in keys.iter().zip(&found).step_by(keys.len() / 50 + 1) {
        assert_eq!(index.get(*key).unwrap(), *entry, "{key}");
        for time in ["read", "kept"] {
            assert_eq!(keeping.get(*key).unwrap(), *entry, "{key}, {time}");
        }
    }
}

fn any_record() -> impl Strategy<Value = (i64, i32, i32, bool)> {
    let key = prop_oneof![any::<i64>(), -50_i64..50, Just(i64::MIN), Just(i64::MAX)];
    let chunk = prop_oneof![any::<i32>(), 0..9000];
    (key, chunk, prop_oneof![0..=i32::MAX, 0..400], any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn finds_what_a_map_finds(
        records in prop::collection::vec(any_record(), 0..3000),
        others in prop::collection::vec(any::<i64>(), 0..20),
    ) {
        check_against_map(&records, &others);
    }
}

/// Keys as a survey gives them, over several levels of fences.
#[test]
fn a_large_index_is_small_and_complete() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(dir.path()).unwrap();
    let count = 1_500_000;
    // Every third number.
    for n in 0..count {
        let here = location((n / 2500) as i32, (n / 50 % 50) as i32);
        writer.push(n * 3, here, false).unwrap();
    }
    let summary = writer.finish().unwrap();
    assert_eq!(summary.entries, count as u64);
    // Sorted keys of one step and neighbours in one chunk: far below 16 bytes each.
    assert!(summary.bytes < 3 * count as u64, "{} bytes", summary.bytes);

    let index = DirectorIndex::open(dir.path()).unwrap();
    index.verify().unwrap();
    let keys: Vec<i64> = (-1..3 * 2000).rev().collect();
    for (key, entry) in keys.iter().zip(index.lookup(&keys).unwrap()) {
        let n = key / 3;
        let expected = location((n / 2500) as i32, (n / 50 % 50) as i32);
        assert_eq!(
            entry.map(|e| e.location),
            (key % 3 == 0).then_some(expected),
            "{key}"
        );
    }
    assert!(index.get((count - 1) * 3).unwrap().is_some());
    assert_eq!(index.get(count * 3).unwrap(), None);
}

/// Random keys and places do not compress; then there are many pages, and levels that are not kept
/// in memory must be searched on disk.
#[test]
fn fences_on_disk_are_searched() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = 1_u64;
    let mut next = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let records: Vec<(i64, i32, i32, bool)> = (0..300_000)
        .map(|_| {
            let (key, place) = (next().cast_signed(), next());
            (
                key,
                (place >> 33) as i32,
                (place & 0x7fff_ffff) as i32,
                place % 7 == 0,
            )
        })
        .collect();
    write(dir.path(), &records);
    let (highest, lowest) = (1, u64::MAX);
    // In the least memory that is used some of the segments have room, so that they take each other's place.
    for (resident_pages, kept) in [
        (highest, None),
        (lowest, None),
        (highest, Some(PLENTY)),
        (highest, Some(4 << 20)),
        (highest, Some(1 << 20)),
        (highest, Some(0)),
    ] {
        let decoded = kept.map(room);
        let index = DirectorIndex::open_with(dir.path(), resident_pages, decoded.clone()).unwrap();
        index.verify().unwrap();
        for records in records.chunks(5000).take(10) {
            let keys: Vec<i64> = records.iter().map(|record| record.0).collect();
            for (record, entry) in records.iter().zip(index.lookup(&keys).unwrap()) {
                let expected = IndexEntry {
                    location: location(record.1, record.2),
                    orphan: record.3,
                };
                assert_eq!(entry, Some(expected));
            }
            // The neighbours of random keys are not there.
            let others: Vec<i64> = keys.iter().map(|key| key.wrapping_add(1)).collect();
            assert!(index.lookup(&others).unwrap().iter().all(Option::is_none));
        }
        for record in records.iter().step_by(300).cycle().take(2000) {
            let entry = index.get(record.0).unwrap().unwrap();
            assert_eq!(entry.location, location(record.1, record.2));
            assert_eq!(entry.orphan, record.3);
            assert_eq!(index.get(record.0.wrapping_add(1)).unwrap(), None);
        }
        assert_eq!(index.get(i64::MIN).unwrap(), None);
        if let Some(decoded) = decoded {
            assert!(decoded.num_bytes() <= decoded.budget());
            assert_eq!(decoded.is_empty(), kept < Some(4 << 20), "{kept:?}");
        }
    }
}

/// Pages are read once for all who request single keys, and each index has its own.
#[test]
fn kept_pages_need_no_disk() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = |chunk: i32| -> Vec<_> { (0..5000).map(|n| (n * 3, chunk, 7, false)).collect() };
    write(one.path(), &records(1));
    write(other.path(), &records(2));
    let decoded = room(PLENTY);
    let indexes = [(&one, 1), (&other, 2)].map(|(dir, chunk)| {
        let opened = DirectorIndex::open_keeping(dir.path(), Arc::clone(&decoded));
        (dir, chunk, opened.unwrap())
    });
    let check = |index: &DirectorIndex, chunk| {
        for key in 0..15_000 {
            let expected = (key % 3 == 0).then(|| location(chunk, 7));
            let found = index.get(key).unwrap();
            assert_eq!(found.map(|entry| entry.location), expected, "{key}");
        }
    };
    for (_, chunk, index) in &indexes {
        check(index, *chunk);
    }
    for (dir, chunk, index) in &indexes {
        fs::write(dir.path().join("keys.mri"), b"").unwrap();
        check(index, *chunk);
        assert!(index.verify().is_err(), "what is checked is the file");
    }
}

#[test]
fn a_damaged_page_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &[(1, 2, 3, false), (5, 6, 7, true)]);
    let path = dir.path().join("keys.mri");
    let good = fs::read(&path).unwrap();
    let index = DirectorIndex::open_keeping(dir.path(), room(PLENTY)).unwrap();
    let mut bad = good.clone();
    bad[40] ^= 1;
    fs::write(&path, bad).unwrap();
    for _ in 0..2 {
        assert!(matches!(index.get(5), Err(StoreError::Damaged { .. })));
    }
    fs::write(&path, good).unwrap();
    let found = index.get(5).unwrap().unwrap();
    assert_eq!((found.location, found.orphan), (location(6, 7), true));
}

/// Pages are read together; those that are sound are found whatever is wrong with another.
#[test]
fn a_damaged_page_hides_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..40_000_i64)
        .map(|n| (n << 40, n as i32 * 991, 3, false))
        .collect();
    write(dir.path(), &records);
    let path = dir.path().join("keys.mri");
    let good = fs::read(&path).unwrap();
    let whole = DirectorIndex::open(dir.path()).unwrap();
    let keys = records.iter().map(|record| record.0);
    let pages: Vec<u64> = keys.map(|key| whole.data_page_of(key)).collect();
    let damaged = pages[pages.len() / 2];
    let mut bad = good.clone();
    bad[damaged as usize * PAGE + 100] ^= 1;
    fs::write(&path, bad).unwrap();
    let index = DirectorIndex::open_keeping(dir.path(), room(PLENTY)).unwrap();
    for (record, page) in records.iter().zip(&pages) {
        match index.get(record.0) {
            Ok(found) => {
                assert_ne!(*page, damaged);
                assert_eq!(found.unwrap().location, location(record.1, 3));
            }
            Err(error) => {
                assert_eq!(*page, damaged);
                let named = format!("offset {}:", damaged * PAGE as u64);
                assert!(error.to_string().contains(&named), "{error}");
            }
        }
    }
    assert!(pages.iter().any(|page| *page + 1 == damaged));
    fs::write(&path, good).unwrap();
    for record in &records {
        assert_eq!(
            index.get(record.0).unwrap().unwrap().location,
            location(record.1, 3)
        );
    }
}

#[test]
fn keys_out_of_order_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(dir.path()).unwrap();
    writer.push(7, location(1, 2), false).unwrap();
    for key in [7, 6, i64::MIN] {
        let error = writer.push(key, location(1, 2), false).unwrap_err();
        assert!(
            matches!(error, StoreError::KeyOutOfOrder { last: 7, .. }),
            "{error}"
        );
    }
    writer.push(8, location(1, 2), false).unwrap();
    assert_eq!(writer.finish().unwrap().entries, 2);
}

#[test]
fn an_index_may_be_empty() {
    check_against_map(&[], &[0, 1, i64::MIN]);
}

#[test]
fn a_negative_sub_chunk_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(dir.path()).unwrap();
    let error = writer.push(1, location(3, -1), false).unwrap_err();
    assert!(matches!(error, StoreError::WrongLocation(-1)), "{error}");
}

#[test]
fn an_unfinished_writer_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = IndexWriter::create(dir.path()).unwrap();
    for key in 0..5000 {
        writer.push(key, location(1, 2), false).unwrap();
    }
    assert!(!names_in(dir.path()).is_empty());
    drop(writer);
    assert!(names_in(dir.path()).is_empty());
    assert!(matches!(
        DirectorIndex::open(dir.path()),
        Err(StoreError::Missing { .. })
    ));
}

/// Every page is damaged in turn: opening, looking up or verifying must notice, and name the page.
#[test]
fn a_flipped_byte_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..3000_i64)
        .map(|n| (n << 40, n as i32 * 991, 3, n % 2 == 0))
        .collect();
    write(dir.path(), &records);
    let path = dir.path().join("keys.mri");
    let good = fs::read(&path).unwrap();
    let keys: Vec<i64> = records.iter().map(|record| record.0).collect();
    for at in (0..good.len()).step_by(257).chain([good.len() - 1]) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&path, &bad).unwrap();
        let result = DirectorIndex::open(dir.path()).and_then(|index| {
            let all = index.lookup(&keys).map(|_| ());
            assert!(index.verify().is_err(), "byte {at}");
            all
        });
        let error = result.unwrap_err();
        assert!(error.to_string().contains("damaged"), "byte {at}: {error}");
    }
    for len in [0, 1, PAGE, good.len() - PAGE, good.len() - 1] {
        fs::write(&path, &good[..len]).unwrap();
        assert!(DirectorIndex::open(dir.path()).is_err(), "{len} bytes");
    }
}

/// Pages carry their place in their checksum: two sound pages that changed places are found out.
#[test]
fn swapped_pages_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..3000_i64)
        .map(|n| (n << 40, n as i32 * 991, 3, false))
        .collect();
    write(dir.path(), &records);
    let path = dir.path().join("keys.mri");
    let mut bytes = fs::read(&path).unwrap();
    let (first, second) = bytes.split_at_mut(PAGE);
    first.swap_with_slice(&mut second[..PAGE]);
    fs::write(&path, &bytes).unwrap();
    let result = DirectorIndex::open(dir.path()).and_then(|index| index.verify());
    assert!(matches!(result, Err(StoreError::Damaged { .. })));
}
