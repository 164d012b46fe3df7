//! Keys of which more than one share has rows. The runs of keys are sorted, so that they are found by one look at all of them together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;

use store::{DirectorIndex, IndexEntries, IndexEntry, IndexWriter};

use crate::error::IngestError;

/// What shares have to be written again with.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// For each share the directory of a run of keys, if there are any: keys of a director whose rows it has to reject, or orphans with
    /// the places that they have to have.
    pub runs: Vec<Option<PathBuf>>,
    /// Keys in all of these.
    pub keys: u64,
    /// The first of them, and the share that it is of.
    pub first: Option<(i64, usize)>,
    /// Different keys in all shares.
    pub distinct: u64,
}

/// What becomes of a key that several shares have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The first has it, and the others reject their rows.
    OnlyOnce,
    /// The others put their rows where the first has put its own.
    InOnePlace,
}

/// Finds the conflicts. `older` are runs of what the table has already; the shares come in the order of the inputs, each with the
/// directory of its run, if it has one. New runs are written below `directories`, one for each share. It looks no further once there are
/// more than `most` keys.
pub(crate) fn find_conflicts(
    rule: Rule,
    older: &[PathBuf],
    shares: &[Option<PathBuf>],
    directories: &[PathBuf],
    most: u64,
) -> Result<Conflicts, IngestError> {
    let all = older.iter().map(Some);
    let mut merged = MergedRuns::open(all.chain(shares.iter().map(Option::as_ref)))?;
    let mut writers: Vec<Option<IndexWriter>> = shares.iter().map(|_| None).collect();
    let mut conflicts = Conflicts::default();
    let mut holder: Option<(i64, IndexEntry)> = None;
    while let Some((key, source, entry)) = merged.next()? {
        let first = match holder {
            Some((known, first)) if known == key => first,
            _ => {
                holder = Some((key, entry));
                conflicts.distinct += u64::from(source >= older.len());
                continue;
            }
        };
        let Some(share) = source.checked_sub(older.len()) else {
            continue;
        };
        if rule == Rule::InOnePlace && first.location == entry.location {
            continue;
        }
        conflicts.keys += 1;
        conflicts.first = conflicts.first.or(Some((key, share)));
        if conflicts.keys > most {
            break;
        }
        let (Some(writer), Some(directory)) = (writers.get_mut(share), directories.get(share))
        else {
            return Err(IngestError::Internal);
        };
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(IndexWriter::create(directory)?),
        };
        writer.push(key, first.location, rule == Rule::InOnePlace)?;
    }
    for (writer, directory) in writers.into_iter().zip(directories) {
        let written = writer.map(|writer| writer.finish()).transpose()?;
        conflicts.runs.push(written.map(|_| directory.clone()));
    }
    Ok(conflicts)
}

/// Several runs in one order: by key, and by the number of the run. Some numbers have none.
struct MergedRuns {
    runs: Vec<Option<IndexEntries>>,
    /// The next entry of each run.
    entries: Vec<Option<IndexEntry>>,
    /// The keys of these, with the numbers of the runs.
    next: BinaryHeap<Reverse<(i64, usize)>>,
}

impl MergedRuns {
    fn open<'a>(
        directories: impl Iterator<Item = Option<&'a PathBuf>>,
    ) -> Result<Self, IngestError> {
        let mut runs = Vec::new();
        for directory in directories {
            let opened = directory.map(|it| DirectorIndex::open(it)).transpose()?;
            runs.push(opened.map(|index| index.iter()));
        }
        let mut merged = Self {
            entries: runs.iter().map(|_| None).collect(),
            runs,
            next: BinaryHeap::new(),
        };
        for number in 0..merged.runs.len() {
            merged.advance(number)?;
        }
        Ok(merged)
    }

    /// Looks at the next entry of a run.
    fn advance(&mut self, number: usize) -> Result<(), IngestError> {
        let run = self.runs.get_mut(number).and_then(Option::as_mut);
        if let Some((key, entry)) = run.and_then(Iterator::next).transpose()? {
            self.next.push(Reverse((key, number)));
            self.entries[number] = Some(entry);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(i64, usize, IndexEntry)>, IngestError> {
        let Some(Reverse((key, number))) = self.next.pop() else {
            return Ok(None);
        };
        let entry = self.entries[number].take().ok_or(IngestError::Internal)?;
        self.advance(number)?;
        Ok(Some((key, number, entry)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use proptest::prelude::*;
    use sky::{ChunkId, Location, SubChunkId};

    use super::*;

    fn at(chunk: i32) -> Location {
        Location {
            chunk: ChunkId(chunk),
            sub_chunk: SubChunkId(0),
        }
    }

    fn write(dir: &Path, keys: &BTreeMap<i64, i32>) -> PathBuf {
        let mut writer = IndexWriter::create(dir).unwrap();
        for (key, chunk) in keys {
            writer.push(*key, at(*chunk), false).unwrap();
        }
        writer.finish().unwrap();
        dir.to_owned()
    }

    type Run = BTreeMap<i64, i32>;

    fn runs() -> impl Strategy<Value = Vec<Run>> {
        let run = prop::collection::btree_map(-9i64..9, 0i32..3, 0..9);
        prop::collection::vec(run, 1..5)
    }

    /// What each share has to be written again with, by looking at every pair of runs.
    fn expected(rule: Rule, older: &[Run], shares: &[Run]) -> Vec<Run> {
        let of_share = |share: usize| {
            let before = || older.iter().chain(&shares[..share]);
            let in_conflict = |(key, chunk): (&i64, &i32)| {
                let first = before().find_map(|run| run.get(key))?;
                let differs = rule == Rule::OnlyOnce || first != chunk;
                differs.then_some((*key, *first))
            };
            shares[share].iter().filter_map(in_conflict).collect()
        };
        (0..shares.len()).map(of_share).collect()
    }

    proptest! {
        #[test]
        fn later_shares_give_way(older in runs(), shares in runs(), once: bool) {
            let rule = if once { Rule::OnlyOnce } else { Rule::InOnePlace };
            let dir = tempfile::tempdir().unwrap();
            let place = |name: String| dir.path().join(name);
            let old: Vec<PathBuf> = (older.iter().enumerate())
                .map(|(number, run)| write(&place(format!("old{number}")), run))
                .collect();
            let new: Vec<Option<PathBuf>> = (shares.iter().enumerate())
                .map(|(number, run)| (!run.is_empty()).then(|| write(&place(format!("new{number}")), run)))
                .collect();
            let into: Vec<PathBuf> = (0..shares.len()).map(|number| place(format!("into{number}"))).collect();
            let found = find_conflicts(rule, &old, &new, &into, u64::MAX).unwrap();
            let expected = expected(rule, &older, &shares);
            let read = |dir: &Option<PathBuf>| -> Run {
                let Some(dir) = dir else { return Run::new() };
                let entries = DirectorIndex::open(dir).unwrap().iter();
                entries.map(|it| it.map(|(key, entry)| (key, entry.location.chunk.0)).unwrap()).collect()
            };
            let runs: Vec<Run> = found.runs.iter().map(read).collect();
            prop_assert_eq!(&runs, &expected);
            prop_assert_eq!(found.keys, expected.iter().map(|run| run.len() as u64).sum::<u64>());
        }
    }
}
