//! What each worker shall hold: computed anew from the parts that there are, the workers that there are, and what these hold.
//!
//! ```text
//!   chunk of a file ──► workers in the order of placement ──► the first r: targets ──► assigned
//!                                                              other holders ──► assigned until all targets hold the file
//! ```
//!
//! 1. A replica is given up only when all targets hold the file and have acknowledged that they shall. A file of several small chunks
//!    has the targets of each of them, so that whoever holds a chunk of one table holds that of every other.
//! 2. Files of tables that are the same in every piece are assigned to every worker.
//! 3. A worker whose disk is as full as it may be gets nothing more, and keeps what it has.
//! 4. Of parts that no table shows any more, but somebody may still read, workers keep what they have, if the front end has given files of
//!    them up.
//! 5. Equal inputs give equal assignments, so that front ends agree.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use sky::ChunkId;

use super::members::{Holdings, Member};
use super::parts::{KnownPart, PartFile, PartKey};
use crate::placement::{Candidate, rank};

/// The share of its disk that a worker fills at most.
const FULLEST: f64 = 0.8;

/// What decides the assignments.
pub(crate) struct Inputs<'a> {
    /// The parts that tables show.
    pub parts: &'a [Arc<KnownPart>],
    /// Those that no table shows any more, though somebody may read them, and of which files are at workers alone.
    pub superseded: &'a [Arc<KnownPart>],
    /// The workers that are not lost, by name.
    pub members: &'a BTreeMap<String, Member>,
    /// The names of those that shall give everything up.
    pub draining: &'a HashSet<String>,
    /// Replicas of each file.
    pub replicas: usize,
    /// The files that workers keep if they hold them, whatever they are told now, by name.
    pub sure: &'a HashMap<String, Arc<Holdings>>,
}

/// What the workers shall hold.
#[derive(Debug, Default, Clone, PartialEq)]
pub(crate) struct Assignments {
    /// The files of each worker, by name.
    pub workers: BTreeMap<String, Arc<Holdings>>,
    /// Replicas that lack, over all files of partitioned tables.
    pub missing_replicas: u64,
    /// Bytes of these.
    pub missing_bytes: u64,
    /// Files that the front end alone holds.
    pub unheld_files: u64,
    /// Replicas that have no place, because there are too few workers or their disks are full.
    pub unplaced_replicas: u64,
    /// Files of partitioned tables.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes of those that the front end has itself.
    pub local_bytes: u64,
    /// Bytes of all replicas of them.
    pub replica_bytes: u64,
    /// Those that are at workers alone.
    pub away_files: u64,
    /// Bytes of these.
    pub away_bytes: u64,
    /// Those of which there is one copy alone, at one worker.
    pub single_files: u64,
    /// Those that neither the front end nor a worker has.
    pub lost_files: u64,
    /// Some of these, in words.
    pub lost: Vec<String>,
    /// Files that the front end has and need not keep, some thousands at most.
    pub replicated: Vec<ReplicatedFile>,
}

/// A file that the front end has, as have all workers that shall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicatedFile {
    pub part: PartKey,
    pub file: ChunkId,
    pub bytes: u64,
    /// The workers that shall hold it, and do.
    pub holders: Vec<String>,
}

/// Replicated files that are listed at most.
const MOST_LISTED: usize = 10_000;
/// Lost files that are named.
const MOST_NAMED: usize = 5;

impl Assignments {
    /// Counts a file of a partitioned table that so many workers hold.
    fn count(&mut self, part: &KnownPart, file: &PartFile, is_away: bool, holders: usize) {
        self.files += 1;
        self.bytes += file.bytes;
        self.replica_bytes += file.bytes * holders as u64;
        if !is_away {
            self.local_bytes += file.bytes;
            self.unheld_files += u64::from(holders == 0);
            return;
        }
        self.away_files += 1;
        self.away_bytes += file.bytes;
        self.single_files += u64::from(holders == 1);
        self.lost_files += u64::from(holders == 0);
        if holders == 0 && self.lost.len() < MOST_NAMED {
            self.lost.push(part.name_of(file.file));
        }
    }
}

/// A worker while files are assigned.
struct Place<'a> {
    name: &'a str,
    member: &'a Member,
    is_draining: bool,
    /// Bytes that it may still get.
    room: u64,
    /// What it keeps if it holds it.
    sure: Option<&'a Holdings>,
}

impl Place<'_> {
    fn holds(&self, part: PartKey, file: ChunkId) -> bool {
        self.member.holds(part, file)
    }

    /// Whether it holds a file, and no order that is under way has it give that up.
    fn keeps(&self, part: PartKey, file: ChunkId) -> bool {
        let sure = self.sure.and_then(|sure| sure.get(&part));
        sure.is_some_and(|files| files.contains(&file)) && self.holds(part, file)
    }
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
            sure: inputs.sure.get(name).map(Arc::as_ref),
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
        let away = part.away();
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
            let holds = |place: &Place<'_>| place.holds(part.key, file.file);
            let mut targets: BTreeSet<usize> = BTreeSet::new();
            let mut unplaced = 0;
            for chunk in &file.chunks {
                let ranked = ranks
                    .entry((&part.family, *chunk))
                    .or_insert_with(|| rank(&part.family, *chunk, &candidates));
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
            let is_away = away.contains(&file.file);
            found.count(part, file, is_away, holders.clone().count());
            let keep = |at: &usize| places[*at].keeps(part.key, file.file);
            let is_replicated = unplaced == 0 && targets.iter().all(keep);
            if !is_replicated {
                // They are needed until others have the file for good, and others can get it from them.
                holders.for_each(give);
            } else if !is_away && found.replicated.len() < MOST_LISTED {
                found.replicated.push(ReplicatedFile {
                    part: part.key,
                    file: file.file,
                    bytes: file.bytes,
                    holders: targets
                        .iter()
                        .map(|at| places[*at].name.to_owned())
                        .collect(),
                });
            }
        }
    }
    keep_superseded(inputs.superseded, &places, &mut assigned);
    let names = places.iter().map(|place| place.name.to_owned());
    found.workers = names.zip(assigned.into_iter().map(Arc::new)).collect();
    found
}

/// Has workers keep what they have of parts that no table shows any more.
fn keep_superseded(parts: &[Arc<KnownPart>], places: &[Place<'_>], assigned: &mut [Holdings]) {
    for part in parts {
        for (place, assigned) in places.iter().zip(assigned.iter_mut()) {
            let files = part.files.iter().map(|it| it.file);
            let held: HashSet<ChunkId> = files.filter(|it| place.holds(part.key, *it)).collect();
            if !held.is_empty() {
                assigned.entry(part.key).or_default().extend(held);
            }
        }
    }
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
    use std::sync::Mutex;
    use std::time::Instant;

    use catalog::{LoadId, REPLICATED_CHUNK};
    use proptest::prelude::*;

    use super::super::orders::Orders;
    use super::super::room::to_give_up;
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
            checksum: 0,
        };
        let chunks = (0..files).map(|chunk| file(ChunkId(chunk)));
        Arc::new(KnownPart {
            key: PART,
            family: "db".to_owned(),
            database: "db".to_owned(),
            table: "t".to_owned(),
            dir: PathBuf::new(),
            files: chunks.chain([file(REPLICATED_CHUNK)]).collect(),
            away: Mutex::default(),
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
            superseded: &[],
            members,
            draining,
            replicas,
            sure: &all_sure(members),
        })
    }

    /// Workers that keep all that they hold.
    fn all_sure(members: &BTreeMap<String, Member>) -> HashMap<String, Arc<Holdings>> {
        let sure = members.iter();
        sure.map(|(name, member)| (name.clone(), Arc::clone(&member.holdings)))
            .collect()
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
        let done = |held: &Arc<Holdings>| member(held[&PART].iter().map(|chunk| chunk.0), 9_000);
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
            family: "db".to_owned(),
            database: "db".to_owned(),
            table: "t".to_owned(),
            dir: PathBuf::new(),
            files: vec![PartFile {
                file: ChunkId(10),
                bytes: 10,
                chunks: vec![ChunkId(10), ChunkId(11), ChunkId(12)],
                checksum: 0,
            }],
            away: Mutex::default(),
        };
        let parts = [part(20), Arc::new(shared)];
        let found = assign(&Inputs {
            parts: &parts,
            superseded: &[],
            members: &workers,
            draining: &HashSet::new(),
            replicas: 2,
            sure: &HashMap::new(),
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

    /// A statement that had begun before its table was replaced lost the files that its front end had given up.
    #[test]
    fn what_is_read_of_replaced_parts_stays_at_workers() {
        let holding = members(vec![member(0..5, 9_000), member(3..9, 9_000)]);
        let found = assign(&Inputs {
            parts: &[],
            superseded: &[part(20)],
            members: &holding,
            draining: &HashSet::from(["w1".to_owned()]),
            replicas: 1,
            sure: &HashMap::new(),
        });
        for (name, files) in [("w0", 0..5), ("w1", 3..9)] {
            let files: HashSet<ChunkId> = files.map(ChunkId).collect();
            assert_eq!(found.workers[name][&PART], files, "{name}");
        }
        assert_eq!((found.files, found.lost_files), (0, 0));
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

        /// A front end gives files up, and workers follow what they were told a while ago, join, drain and come back: there are always as many
        /// replicas of what the front end has given up as there shall be.
        #[test]
        fn what_the_front_end_has_given_up_keeps_its_replicas(
            steps in prop::collection::vec((0usize..8, 0usize..5), 1..400),
            replicas in 1usize..4,
            kept in prop::sample::select(vec![0u64, 50, 150]),
        ) {
            let mut model = Model::new(replicas, kept);
            for (step, worker) in steps {
                model.step(step, worker);
                for file in model.parts[0].away().iter() {
                    let holders = model.workers.values().filter(|it| it.files.contains(file)).count();
                    prop_assert!(holders >= replicas, "file {file}: {holders} holders");
                }
            }
        }
    }

    /// A worker as it is, whatever the front end knows of it.
    #[derive(Default)]
    struct ModelWorker {
        files: HashSet<ChunkId>,
        /// The assignment that it follows.
        follows: (u64, HashSet<ChunkId>),
    }

    /// A front end and workers that hear of each other now and then.
    struct Model {
        parts: Vec<Arc<KnownPart>>,
        workers: BTreeMap<String, ModelWorker>,
        /// What the front end knows of the workers.
        members: BTreeMap<String, Member>,
        draining: HashSet<String>,
        orders: Orders,
        latest: Assignments,
        replicas: usize,
        kept: u64,
    }

    impl Model {
        fn new(replicas: usize, kept: u64) -> Self {
            Self {
                parts: vec![part(20)],
                workers: BTreeMap::new(),
                members: BTreeMap::new(),
                draining: HashSet::new(),
                orders: Orders::new(100),
                latest: Assignments::default(),
                replicas,
                kept,
            }
        }

        fn step(&mut self, step: usize, number: usize) {
            let name = format!("w{number}");
            match step {
                0 | 1 => self.report(&name),
                2 | 3 => self.assign(),
                4 => self.make_room(),
                5 if self.draining.remove(&name) => {}
                5 => {
                    self.draining.insert(name);
                }
                _ => self.work(&name, step == 6),
            }
        }

        /// A worker tells what it holds and which assignment it follows, and is told the newest one, from which on it follows that.
        fn report(&mut self, name: &str) {
            let worker = self.workers.entry(name.to_owned()).or_default();
            let mut known = member(worker.files.iter().map(|file| file.0), 9_000);
            known.report.assignment = worker.follows.0;
            self.members.insert(name.to_owned(), known);
            if let Some((version, files)) = self.orders.of(name) {
                let listed = files.iter().flat_map(|part| &part.files);
                worker.follows = (version, listed.copied().map(ChunkId).collect());
            }
        }

        fn assign(&mut self) {
            for (name, known) in &self.members {
                self.orders.acknowledge(name, known.report.assignment);
            }
            self.latest = assign(&Inputs {
                parts: &self.parts,
                superseded: &[],
                members: &self.members,
                draining: &self.draining,
                replicas: self.replicas,
                sure: &self.orders.sure(),
            });
            self.orders.tell(&self.latest.workers);
        }

        fn make_room(&mut self) {
            let chosen = to_give_up(&self.latest, self.kept, self.replicas, |_| true);
            self.parts[0]
                .away()
                .extend(chosen.into_iter().map(|(_, file)| file));
        }

        /// A worker gets some of the files that it lacks, or all; and if it has all, it gives up what it shall not hold.
        fn work(&mut self, name: &str, all: bool) {
            let Some(worker) = self.workers.get_mut(name).filter(|it| it.follows.0 > 0) else {
                return;
            };
            let lacking: Vec<ChunkId> = worker
                .follows
                .1
                .difference(&worker.files)
                .copied()
                .collect();
            let some = if all {
                lacking.len()
            } else {
                lacking.len() / 2
            };
            worker.files.extend(&lacking[..some]);
            if some == lacking.len() {
                worker.files = worker.follows.1.clone();
            }
        }
    }
}
