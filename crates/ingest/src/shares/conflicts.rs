//! Keys of which more than one share has rows. The runs of keys are sorted, so that they are found by one look at all of them together.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};

use store::{DirectorIndex, IndexEntries, IndexEntry, IndexWriter};

use crate::error::IngestError;

/// The directories of the runs of keys that a share has together with the table, and with shares before it.
const WITH: [&str; 2] = ["table", "shares"];

/// What shares have to be written again with.
#[derive(Debug, Default)]
pub(crate) struct Conflicts {
    /// What each share has to know.
    pub shares: Vec<ShareConflicts>,
    /// Keys in all of these.
    pub keys: u64,
    /// The first of them, and the share that it is of.
    pub first: Option<(i64, usize)>,
    /// Different keys in all shares.
    pub distinct: u64,
}

/// The keys of a share that something before it has: of a director those whose rows it has to reject, or orphans with the places that they have
/// to have. Each is the directory of a run, if there are any.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShareConflicts {
    /// Those that the table has.
    pub with_table: Option<PathBuf>,
    /// Those of earlier shares.
    pub with_shares: Option<PathBuf>,
}

impl ShareConflicts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.with_table.is_none() && self.with_shares.is_none()
    }
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
/// directory of its run, if it has one. New runs are written below `directories`, one directory for each share. It looks no further once there
/// are more than `most` keys.
pub(crate) fn find_conflicts(
    rule: Rule,
    older: &[PathBuf],
    shares: &[Option<PathBuf>],
    directories: &[PathBuf],
    most: u64,
) -> Result<Conflicts, IngestError> {
    let all = older.iter().map(Some);
    let mut merged = MergedRuns::open(all.chain(shares.iter().map(Option::as_ref)))?;
    let mut writers: Vec<[Option<IndexWriter>; 2]> = shares.iter().map(|_| [None, None]).collect();
    let mut conflicts = Conflicts::default();
    let mut holder: Option<(i64, usize, IndexEntry)> = None;
    while let Some((key, source, entry)) = merged.next()? {
        let (holder_at, first) = match holder {
            Some((known, at, first)) if known == key => (at, first),
            _ => {
                holder = Some((key, source, entry));
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
        let with = usize::from(holder_at >= older.len());
        let writer = &mut writer[with];
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(IndexWriter::create(&directory.join(WITH[with]))?),
        };
        writer.push(key, first.location, rule == Rule::InOnePlace)?;
    }
    for ([with_table, with_shares], directory) in writers.into_iter().zip(directories) {
        conflicts.shares.push(ShareConflicts {
            with_table: finished(with_table, &directory.join(WITH[0]))?,
            with_shares: finished(with_shares, &directory.join(WITH[1]))?,
        });
    }
    Ok(conflicts)
}

/// The directory of a run, if there is one.
fn finished(writer: Option<IndexWriter>, directory: &Path) -> Result<Option<PathBuf>, IngestError> {
    let written = writer.map(|writer| writer.finish()).transpose()?;
    Ok(written.map(|_| directory.to_owned()))
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

    /// What each share has to be written again with, by looking at every pair of runs: the keys of the table, and those of other shares.
    fn expected(rule: Rule, older: &[Run], shares: &[Run]) -> Vec<[Run; 2]> {
        let of_share = |share: usize| {
            let mut found = [Run::new(), Run::new()];
            for (key, chunk) in &shares[share] {
                let of_table = older.iter().find_map(|run| run.get(key));
                let of_share = shares[..share].iter().find_map(|run| run.get(key));
                let first = of_table.or(of_share);
                let differs = |first: &&i32| rule == Rule::OnlyOnce || *first != chunk;
                if let Some(first) = first.filter(differs) {
                    found[usize::from(of_table.is_none())].insert(*key, *first);
                }
            }
            found
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
            let runs: Vec<[Run; 2]> = (found.shares.iter())
                .map(|it| [read(&it.with_table), read(&it.with_shares)])
                .collect();
            prop_assert_eq!(&runs, &expected);
            prop_assert_eq!(found.keys, expected.iter().flatten().map(|run| run.len() as u64).sum::<u64>());
        }
    }
}
