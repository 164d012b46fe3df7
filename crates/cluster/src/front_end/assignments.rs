//! What each worker shall hold: computed anew from the parts that there are, the workers that there are, and what these hold.
//!
//! ```text
//!   chunk of a file ──► workers in the order of placement ──► the first r: targets ──► assigned
//!                                                              other holders ──► assigned until all targets hold the file
//! ```
//!
//! 1. A replica is given up only when all targets hold the file. A file of several small chunks has the targets of each of them, so
//!    that whoever holds a chunk of one table holds that of every other.
//! 2. Files of tables that are the same in every piece are assigned to every worker.
//! 3. A worker whose disk is as full as it may be gets nothing more, and keeps what it has.
//! 4. Equal inputs give equal assignments, so that front ends agree.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use sky::ChunkId;

use super::members::{Holdings, Member};
use super::parts::KnownPart;
use crate::placement::{Candidate, rank};

/// The share of its disk that a worker fills at most.
const FULLEST: f64 = 0.8;

/// What decides the assignments.
pub(crate) struct Inputs<'a> {
    /// The parts that tables show.
    pub parts: &'a [Arc<KnownPart>],
    /// The workers that are not lost, by name.
    pub members: &'a BTreeMap<String, Member>,
    /// The names of those that shall give everything up.
    pub draining: &'a HashSet<String>,
    /// Replicas of each file.
    pub replicas: usize,
}

/// What the workers shall hold.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Assignments {
    /// The files of each worker, by name.
    pub workers: BTreeMap<String, Holdings>,
    /// Replicas that lack, over all files of partitioned tables.
    pub missing_replicas: u64,
    /// Bytes of these.
    pub missing_bytes: u64,
    /// Files that no worker holds.
    pub unheld_files: u64,
    /// Replicas that have no place, because there are too few workers or their disks are full.
    pub unplaced_replicas: u64,
    /// Files of partitioned tables.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
}

/// A worker while files are assigned.
struct Place<'a> {
    name: &'a str,
    member: &'a Member,
    is_draining: bool,
    /// Bytes that it may still get.
    room: u64,
}

/// Computes what the workers shall hold.
pub(crate) fn assign(inputs: &Inputs<'_>) -> Assignments {
    let mut places: Vec<Place<'_>> = inputs
        .members
        .iter()
        .map(|(name, member)| Place {
            name,
            member,
            is_draining: inputs.draining.contains(name),
            room: room(member),
        })
        .collect();
    let candidates: Vec<Candidate> = places
        .iter()
        .map(|place| Candidate::new(place.name, place.member.report.disk_bytes))
        .collect();
    let mut found = Assignments::default();
    let mut assigned: Vec<Holdings> = places.iter().map(|_| HashMap::new()).collect();
    let mut ranks: HashMap<(&str, ChunkId), Vec<usize>> = HashMap::new();
    for part in inputs.parts {
        for file in &part.files {
            let mut give = |place: usize| {
                assigned[place]
                    .entry(part.key)
                    .or_default()
                    .insert(file.file);
            };
            if file.is_replicated() {
                (0..places.len()).for_each(give);
                continue;
            }
            found.files += 1;
            found.bytes += file.bytes;
            let holds = |place: &Place<'_>| place.member.holds(part.key, file.file);
            let mut targets: BTreeSet<usize> = BTreeSet::new();
            let mut unplaced = 0;
            for chunk in &file.chunks {
                let ranked = ranks
                    .entry((&part.database, *chunk))
                    .or_insert_with(|| rank(&part.database, *chunk, &candidates));
                let mut of_chunk = 0;
                for at in ranked.iter().copied() {
                    let place = &mut places[at];
                    if place.is_draining || of_chunk == inputs.replicas {
                        continue;
                    }
                    if !targets.contains(&at) && !holds(place) {
                        if place.room < file.bytes {
                            continue;
                        }
                        place.room -= file.bytes;
                    }
                    targets.insert(at);
                    of_chunk += 1;
                }
                unplaced = unplaced.max(inputs.replicas - of_chunk);
            }
            targets.iter().copied().for_each(&mut give);
            let lacking = targets.iter().filter(|at| !holds(&places[**at]));
            let missing = (lacking.count() + unplaced) as u64;
            found.missing_replicas += missing;
            found.missing_bytes += missing * file.bytes;
            found.unplaced_replicas += unplaced as u64;
            let holders = (0..places.len()).filter(|at| holds(&places[*at]));
            found.unheld_files += u64::from(holders.clone().next().is_none());
            if missing > 0 {
                // They are needed until others have the file, and others can get it from them.
                holders.for_each(give);
            }
        }
    }
    let names = places.iter().map(|place| place.name.to_owned());
    found.workers = names.zip(assigned).collect();
    found
}

/// Bytes that a worker may still get.
fn room(member: &Member) -> u64 {
    let report = &member.report;
    let used = report.disk_bytes.saturating_sub(report.free_bytes);
    // The float is exact enough for a share of a disk.
    ((report.disk_bytes as f64 * FULLEST) as u64).saturating_sub(used)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Instant;

    use catalog::{LoadId, REPLICATED_CHUNK};
    use proptest::prelude::*;

    use super::super::parts::{PartFile, PartKey};
    use super::*;
    use crate::messages::MemberReport;

    const PART: PartKey = part_key(7);

    const fn part_key(part: i64) -> PartKey {
        PartKey {
            part: LoadId(part),
            digest: 1,
        }
    }

    fn part(files: i32) -> Arc<KnownPart> {
        let file = |file| PartFile {
            file,
            bytes: 10,
            chunks: vec![file],
        };
        let chunks = (0..files).map(|chunk| file(ChunkId(chunk)));
        Arc::new(KnownPart {
            key: PART,
            database: "db".to_owned(),
            dir: PathBuf::new(),
            files: chunks.chain([file(REPLICATED_CHUNK)]).collect(),
        })
    }

    fn member(holds: impl IntoIterator<Item = i32>, free_bytes: u64) -> Member {
        let files: HashSet<ChunkId> = holds.into_iter().map(ChunkId).collect();
        Member {
            report: MemberReport {
                address: String::new(),
                version: String::new(),
                archive: None,
                process: 1,
                threads: 1,
                disk_bytes: 10_000,
                free_bytes,
                assignment: 0,
                holdings_version: 0,
                holdings: None,
                missing_bytes: 0,
                copy_rate: 0,
                trouble: None,
                damaged: 0,
                pieces: 0,
                shares: 0,
                plans_decoded: 0,
            },
            heard: Instant::now(),
            holdings: Arc::new(HashMap::from([(PART, files)])),
            holdings_version: None,
        }
    }

    fn members(all: Vec<Member>) -> BTreeMap<String, Member> {
        let named = all.into_iter().enumerate();
        named
            .map(|(at, member)| (format!("w{at}"), member))
            .collect()
    }

    fn assigned(
        members: &BTreeMap<String, Member>,
        draining: &HashSet<String>,
        replicas: usize,
    ) -> Assignments {
        let parts = [part(200)];
        assign(&Inputs {
            parts: &parts,
            members,
            draining,
            replicas,
        })
    }

    fn holders(assignments: &Assignments, file: i32) -> usize {
        let workers = assignments.workers.values();
        workers
            .filter(|it| it[&PART].contains(&ChunkId(file)))
            .count()
    }

    /// What the workers hold once they have done what they shall.
    fn carried_out(assignments: &Assignments) -> BTreeMap<String, Member> {
        let holdings = assignments.workers.iter();
        let done = |held: &Holdings| member(held[&PART].iter().map(|chunk| chunk.0), 9_000);
        holdings
            .map(|(name, held)| (name.clone(), done(held)))
            .collect()
    }

    #[test]
    fn each_file_has_its_replicas_and_small_tables_are_everywhere() {
        let empty = members((0..5).map(|_| member([], 9_000)).collect());
        let first = assigned(&empty, &HashSet::new(), 3);
        assert!((0..200).all(|file| holders(&first, file) == 3));
        assert_eq!(holders(&first, REPLICATED_CHUNK.0), 5);
        assert_eq!(
            (first.files, first.missing_replicas, first.unheld_files),
            (200, 600, 200)
        );
        let then = assigned(&carried_out(&first), &HashSet::new(), 3);
        assert_eq!((then.missing_replicas, then.unplaced_replicas), (0, 0));
        assert_eq!(then.workers, first.workers);
    }

    /// A director whose small chunks shared files was placed by the first chunk of each, and its sources' chunks each by itself.
    #[test]
    fn a_file_of_several_chunks_is_wherever_one_of_them_is() {
        let workers = members((0..6).map(|_| member([], 9_000)).collect());
        let shared = KnownPart {
            key: part_key(8),
            database: "db".to_owned(),
            dir: PathBuf::new(),
            files: vec![PartFile {
                file: ChunkId(10),
                bytes: 10,
                chunks: vec![ChunkId(10), ChunkId(11), ChunkId(12)],
            }],
        };
        let parts = [part(20), Arc::new(shared)];
        let found = assign(&Inputs {
            parts: &parts,
            members: &workers,
            draining: &HashSet::new(),
            replicas: 2,
        });
        for held in found.workers.values() {
            let holds = |part: i64, chunk: i32| {
                let files = held.get(&part_key(part));
                files.is_some_and(|files| files.contains(&ChunkId(chunk)))
            };
            let any = (10..=12).any(|chunk| holds(7, chunk));
            assert_eq!(holds(8, 10), any);
        }
    }

    #[test]
    fn a_drained_worker_keeps_what_nobody_else_has_yet() {
        let full = carried_out(&assigned(
            &members((0..3).map(|_| member([], 9_000)).collect()),
            &HashSet::new(),
            2,
        ));
        let draining = HashSet::from(["w1".to_owned()]);
        let first = assigned(&full, &draining, 2);
        assert_eq!(
            first.workers["w1"][&PART], full["w1"].holdings[&PART],
            "nothing is given up yet"
        );
        let then = assigned(&carried_out(&first), &draining, 2);
        assert_eq!(then.missing_replicas, 0);
        assert_eq!(then.workers["w1"][&PART].len(), 1, "the small table alone");
    }

    #[test]
    fn full_disks_and_too_few_workers_are_told() {
        let two = members(vec![member([], 9_000), member([], 1_000)]);
        let found = assigned(&two, &HashSet::new(), 2);
        assert_eq!(found.unplaced_replicas, 200, "the second has no room");
        let found = assigned(&BTreeMap::new(), &HashSet::new(), 2);
        assert_eq!((found.unplaced_replicas, found.unheld_files), (400, 200));
    }

    proptest! {
        /// Nothing is given up before all targets hold it, whoever comes, goes, drains or is full.
        #[test]
        fn the_last_replicas_are_kept(
            held in prop::collection::vec((prop::collection::btree_set(0i32..200, 0..200), any::<bool>(), any::<bool>()), 1..6),
            replicas in 1usize..4,
        ) {
            let all = held.iter().map(|(files, _, full)| member(files.iter().copied(), if *full { 0 } else { 9_000 }));
            let members = members(all.collect());
            let draining: HashSet<String> = held.iter().enumerate()
                .filter(|(_, (_, drains, _))| *drains)
                .map(|(at, _)| format!("w{at}"))
                .collect();
            let found = assigned(&members, &draining, replicas);
            for file in 0..200 {
                let before = members.values().filter(|it| it.holds(PART, ChunkId(file))).count();
                let kept = members.iter()
                    .filter(|(name, it)| it.holds(PART, ChunkId(file)) && found.workers[*name][&PART].contains(&ChunkId(file)))
                    .count();
                prop_assert!(kept >= before.min(replicas), "file {file}: {kept} of {before}");
            }
        }
    }
}
