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
//! 3. A worker whose disk is as full as it may be gets nothing more, and keeps what it has. If it has disks for users' own tables alone, these
//!    count for such tables, and the others for the rest.
//! 4. Of parts that no table shows any more, but somebody may still read, workers keep what they have, if the front end has given files of
//!    them up.
//! 5. Equal inputs give equal assignments, so that front ends agree.
//! 6. Each worker is told, too, which of the files that it lacks it gets first ([`super::copy_order`]).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use catalog::{LoadId, fold_name};
use sky::ChunkId;

use super::copy_order::{LackingFile, first_to_copy};
use super::members::{Holdings, Member};
use super::parts::{KnownPart, PartFile, PartKey};
use crate::messages::{DiskSpace, MemberReport, PartFiles};
use crate::placement::{Candidate, rank};

/// What decides the assignments.
pub(crate) struct Inputs<'a> {
    /// The parts that tables show.
    pub parts: &'a [Arc<KnownPart>],
    /// Those that no table shows any more, though somebody may read them, and of which files are at workers alone.
    pub superseded: &'a [Arc<KnownPart>],
    /// The workers that are not lost, by name.
    pub members: &'a BTreeMap<String, Member>,
    /// The names of those that report.
    pub live: &'a HashSet<String>,
    /// The folded names of users' and groups' own databases.
    pub user_databases: &'a HashSet<String>,
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
    /// The parts that are of users' own tables.
    pub user_parts: BTreeSet<LoadId>,
    /// The files that each worker gets first of those that it lacks, in their order, by its name.
    pub first: BTreeMap<String, Vec<PartFiles>>,
    /// Replicas that lack, over all files of partitioned tables.
    pub missing_replicas: u64,
    /// Bytes of these.
    pub missing_bytes: u64,
    /// Copies that there are fewer than there shall be, over all files of partitioned tables.
    pub short_replicas: u64,
    /// Those of them that have a place, and a copy to be made from.
    pub repairable_replicas: u64,
    /// Bytes of these.
    pub repairable_bytes: u64,
    /// Replicas that workers shall get and do not hold, of all tables, which can be had.
    pub coming_replicas: u64,
    /// Bytes of these.
    pub coming_bytes: u64,
    /// Replicas that workers hold and give up as soon as the targets hold them.
    pub surplus_replicas: u64,
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

    /// Counts replicas of a file that workers get.
    fn count_coming(&mut self, file: &PartFile, coming: u64) {
        self.coming_replicas += coming;
        self.coming_bytes += coming * file.bytes;
    }

    /// Counts the copies of a file that there are too few, and the replicas of it that workers get.
    fn count_short(&mut self, file: &PartFile, short: usize, coming: u64) {
        self.count_coming(file, coming);
        let short = short as u64;
        self.short_replicas += short;
        self.repairable_replicas += short.min(coming);
        self.repairable_bytes += short.min(coming) * file.bytes;
    }
}

/// A worker while files are assigned.
struct Place<'a> {
    name: &'a str,
    member: &'a Member,
    is_live: bool,
    is_draining: bool,
    /// Bytes that it may still get.
    room: u64,
    /// Those of users' own tables, if it has disks for these alone.
    user_room: Option<u64>,
    /// What it keeps if it holds it.
    sure: Option<&'a Holdings>,
}

impl Place<'_> {
    /// Bytes that it may still get of a table.
    fn room(&mut self, of_user: bool) -> &mut u64 {
        match &mut self.user_room {
            Some(room) if of_user => room,
            _ => &mut self.room,
        }
    }

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
    let mut computation = Computation::new(inputs);
    computation.found.user_parts = user_parts(inputs);
    for part in inputs.parts {
        let away = part.away();
        for file in &part.files {
            match file.is_replicated() {
                true => computation.add_replicated(part, file, &away),
                false => computation.add_partitioned(part, file, &away),
            }
        }
    }
    computation.into_assignments()
}

/// The parts that are of users' own tables, those too that no table shows any more.
fn user_parts(inputs: &Inputs<'_>) -> BTreeSet<LoadId> {
    let all = inputs.parts.iter().chain(inputs.superseded);
    let of_users = all.filter(|part| {
        let database = fold_name(&part.database);
        inputs.user_databases.contains(&database)
    });
    of_users.map(|part| part.key.part).collect()
}

/// What is computed, file by file; lists of workers are in the order of their names.
struct Computation<'a> {
    inputs: &'a Inputs<'a>,
    places: Vec<Place<'a>>,
    candidates: Vec<Candidate>,
    /// The workers by their ranks for a chunk of a family.
    ranks: HashMap<(&'a str, ChunkId), Vec<usize>>,
    found: Assignments,
    assigned: Vec<Holdings>,
    to_copy: Vec<Vec<LackingFile>>,
}

/// The workers that shall have a file.
struct Targets {
    places: BTreeSet<usize>,
    /// Replicas for which there is no worker with room.
    unplaced: usize,
}

impl<'a> Computation<'a> {
    fn new(inputs: &'a Inputs<'a>) -> Self {
        let place = |(name, member): (&'a String, &'a Member)| Place {
            name,
            member,
            is_live: inputs.live.contains(name),
            is_draining: inputs.draining.contains(name),
            room: room(&member.report, disks(&member.report)),
            user_room: { member.report.user_disks }.map(|disks| room(&member.report, disks)),
            sure: inputs.sure.get(name).map(Arc::as_ref),
        };
        let places: Vec<Place<'_>> = inputs.members.iter().map(place).collect();
        let candidate =
            |place: &Place<'_>| Candidate::new(place.name, place.member.report.disk_bytes);
        Self {
            inputs,
            candidates: places.iter().map(candidate).collect(),
            ranks: HashMap::new(),
            found: Assignments::default(),
            assigned: places.iter().map(|_| HashMap::new()).collect(),
            to_copy: places.iter().map(|_| Vec::new()).collect(),
            places,
        }
    }

    fn give(&mut self, part: &KnownPart, file: &PartFile, place: usize) {
        let held = self.assigned[place].entry(part.key).or_default();
        held.insert(file.file);
    }

    /// A file of a table that each worker has whole.
    fn add_replicated(&mut self, part: &KnownPart, file: &PartFile, away: &HashSet<ChunkId>) {
        let all = 0..self.places.len();
        let lacks = |at: &usize| !self.places[*at].holds(part.key, file.file);
        let lacking: Vec<usize> = all.clone().filter(lacks).collect();
        self.found.count_coming(file, lacking.len() as u64);
        self.have_copied(part, file, away, &lacking);
        all.for_each(|at| self.give(part, file, at));
    }

    /// A file of chunks: its replicas go to the first workers of each of them.
    fn add_partitioned(&mut self, part: &'a KnownPart, file: &PartFile, away: &HashSet<ChunkId>) {
        let targets = self.targets(part, file);
        let holds = |at: &usize| self.places[*at].holds(part.key, file.file);
        let lacking: Vec<usize> = { targets.places.iter().copied() }
            .filter(|at| !holds(at))
            .collect();
        let holders: Vec<usize> = (0..self.places.len()).filter(holds).collect();
        let is_away = away.contains(&file.file);
        self.have_copied(part, file, away, &lacking);
        self.count(part, file, is_away, (&targets, &holders, lacking.len()));
        { targets.places.iter() }.for_each(|at| self.give(part, file, *at));
        let keep = |at: &usize| self.places[*at].keeps(part.key, file.file);
        let is_replicated = targets.unplaced == 0 && targets.places.iter().all(keep);
        if !is_replicated {
            // They are needed until others have the file for good, and others can get it from them.
            holders.iter().for_each(|at| self.give(part, file, *at));
        } else if !is_away && self.found.replicated.len() < MOST_LISTED {
            let name = |at: &usize| self.places[*at].name.to_owned();
            self.found.replicated.push(ReplicatedFile {
                part: part.key,
                file: file.file,
                bytes: file.bytes,
                holders: targets.places.iter().map(name).collect(),
            });
        }
    }

    /// The workers that shall have a file of chunks, whose room for it is taken.
    fn targets(&mut self, part: &'a KnownPart, file: &PartFile) -> Targets {
        let replicas = self.inputs.replicas;
        let of_user = self.found.user_parts.contains(&part.key.part);
        let mut targets = Targets {
            places: BTreeSet::new(),
            unplaced: 0,
        };
        for chunk in &file.chunks {
            let ranked = (self.ranks)
                .entry((&part.family, *chunk))
                .or_insert_with(|| rank(&part.family, *chunk, &self.candidates));
            let mut of_chunk = 0;
            for at in ranked.iter().copied() {
                let place = &mut self.places[at];
                if place.is_draining || of_chunk == replicas {
                    continue;
                }
                if !targets.places.contains(&at) && !place.holds(part.key, file.file) {
                    let room = place.room(of_user);
                    if *room < file.bytes {
                        continue;
                    }
                    *room -= file.bytes;
                }
                targets.places.insert(at);
                of_chunk += 1;
            }
            targets.unplaced = targets.unplaced.max(replicas - of_chunk);
        }
        targets
    }

    /// Has workers copy a file.
    fn have_copied(
        &mut self,
        part: &KnownPart,
        file: &PartFile,
        away: &HashSet<ChunkId>,
        lacking: &[usize],
    ) {
        if lacking.is_empty() {
            return;
        }
        let lacks = lacking_file(part, file, &self.places, away);
        { lacking.iter() }.for_each(|at| self.to_copy[*at].push(lacks.clone()));
    }

    /// Counts the replicas of a file of chunks: those that shall be, those that are, and how many of the workers that shall have it lack it.
    fn count(
        &mut self,
        part: &KnownPart,
        file: &PartFile,
        is_away: bool,
        (targets, holders, lacking): (&Targets, &[usize], usize),
    ) {
        let (found, unplaced) = (&mut self.found, targets.unplaced);
        let missing = (lacking + unplaced) as u64;
        found.missing_replicas += missing;
        found.missing_bytes += missing * file.bytes;
        found.unplaced_replicas += unplaced as u64;
        found.count(part, file, is_away, holders.len());
        let is_lost = is_away && holders.is_empty();
        let coming = if is_lost { 0 } else { lacking as u64 };
        let copies = targets.places.len() + unplaced;
        found.count_short(file, copies.saturating_sub(holders.len()), coming);
        let is_surplus = |at: &&usize| unplaced == 0 && !targets.places.contains(at);
        found.surplus_replicas += holders.iter().filter(is_surplus).count() as u64;
    }

    fn into_assignments(mut self) -> Assignments {
        keep_superseded(self.inputs.superseded, &self.places, &mut self.assigned);
        let names = self.places.iter().map(|place| place.name.to_owned());
        let to_copy = self.to_copy.into_iter();
        let first = to_copy.map(|it| first_to_copy(it, self.inputs.replicas));
        let mut found = self.found;
        found.first = names.clone().zip(first).collect();
        found.workers = names.zip(self.assigned.into_iter().map(Arc::new)).collect();
        found
    }
}

/// A file that a worker shall get.
fn lacking_file(
    part: &KnownPart,
    file: &PartFile,
    places: &[Place<'_>],
    away: &HashSet<ChunkId>,
) -> LackingFile {
    let live = { places.iter() }.filter(|it| it.is_live && it.holds(part.key, file.file));
    LackingFile {
        part: part.key,
        file: file.file,
        live_replicas: live.count(),
        is_at_front_end: !away.contains(&file.file),
        is_everywhere: file.is_replicated(),
    }
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

/// The disks of a worker that are not for users' own tables alone.
fn disks(report: &MemberReport) -> DiskSpace {
    DiskSpace {
        bytes: report.disk_bytes,
        free: report.free_bytes,
    }
}

/// Bytes that a worker may still get on some disks.
fn room(report: &MemberReport, disks: DiskSpace) -> u64 {
    let used = disks.bytes.saturating_sub(disks.free);
    let usable = u128::from(disks.bytes) * u128::from(report.disk_limit) / 100;
    u64::try_from(usable)
        .unwrap_or(u64::MAX)
        .saturating_sub(used)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::time::Instant;

    use catalog::{LoadId, REPLICATED_CHUNK};
    use proptest::prelude::*;

    use super::super::orders::{Order, Orders};
    use super::super::room::to_give_up;
    use super::*;
    use crate::messages::DISK_LIMIT;

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
                number: 0,
                threads: 1,
                disk_bytes: 10_000,
                free_bytes,
                user_disks: None,
                disk_limit: DISK_LIMIT,
                epoch: 0,
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
                certificate_ends: None,
                revoked: crate::tls::ListNews::default(),
            },
            heard: Instant::now(),
            has_ended: false,
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

    fn names(members: &BTreeMap<String, Member>) -> HashSet<String> {
        members.keys().cloned().collect()
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
            live: &names(members),
            user_databases: &HashSet::new(),
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
            live: &names(&workers),
            user_databases: &HashSet::new(),
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

    /// A worker got the files of two that were lost by the numbers of their chunks, those with one copy left after those with two.
    #[test]
    fn files_with_the_fewest_live_copies_are_told_first() {
        let none = HashSet::new();
        let new = members((0..7).map(|_| member([], 9_000)).collect());
        let full = carried_out(&assigned(&new, &none, 3));
        let mut left = full.clone();
        left.remove("w1");
        left.remove("w2");
        let mut live = names(&left);
        // It is silent, and not lost yet: what it has cannot be had now.
        live.remove("w3");
        let lost = assign(&Inputs {
            parts: &[part(200)],
            superseded: &[],
            members: &left,
            live: &live,
            user_databases: &HashSet::new(),
            draining: &none,
            replicas: 3,
            sure: &all_sure(&left),
        });
        let copies = |file: i32| {
            let holders = left
                .iter()
                .filter(|(name, it)| live.contains(*name) && it.holds(PART, ChunkId(file)));
            holders.count()
        };
        let mut counts = HashSet::new();
        for (name, first) in &lost.first {
            let told: Vec<i32> = first.iter().flat_map(|it| it.files.clone()).collect();
            let lacks = |file: &ChunkId| !left[name].holds(PART, *file);
            let lacking = lost.workers[name][&PART].iter().filter(|it| lacks(it));
            assert_eq!(told.len(), lacking.count(), "{name}");
            let of_file: Vec<usize> = told.iter().map(|file| copies(*file)).collect();
            assert!(of_file.is_sorted(), "{name}: {of_file:?}");
            counts.extend(of_file);
        }
        assert_eq!(
            counts,
            HashSet::from([0, 1, 2]),
            "the front end has all files"
        );
    }

    #[test]
    fn copies_that_are_too_few_and_files_that_move_are_told_apart() {
        let none = HashSet::new();
        let new = members((0..4).map(|_| member([], 9_000)).collect());
        let full = carried_out(&assigned(&new, &none, 2));
        let counts = |it: &Assignments| {
            let (short, repairable) = (it.short_replicas, it.repairable_replicas);
            (short, repairable, it.coming_replicas, it.surplus_replicas)
        };
        // The file of the small table comes to all four.
        assert_eq!(counts(&assigned(&new, &none, 2)), (400, 400, 404, 0));
        assert_eq!(counts(&assigned(&full, &none, 2)), (0, 0, 0, 0));
        let mut more = full.clone();
        more.insert("w4".to_owned(), member([], 9_000));
        let (short, repairable, coming, surplus) = counts(&assigned(&more, &none, 2));
        assert_eq!((short, repairable), (0, 0));
        assert!(surplus > 20 && coming == surplus + 1, "{coming} {surplus}");
        let drained = assigned(&full, &HashSet::from(["w1".to_owned()]), 2);
        let of_worker = full["w1"].holdings[&PART].len() as u64 - 1;
        assert_eq!(counts(&drained), (0, 0, of_worker, of_worker));
        let mut fewer = full.clone();
        fewer.remove("w1");
        let lost = assigned(&fewer, &none, 2);
        assert_eq!(counts(&lost), (of_worker, of_worker, of_worker, 0));
        assert_eq!(lost.repairable_bytes, of_worker * 10);
        // The second copies have no place.
        fewer.retain(|name, _| name == "w2");
        let held = fewer["w2"].holdings[&PART].len() as u64 - 1;
        let alone = assigned(&fewer, &none, 2);
        let lacking = 200 - held;
        assert_eq!(
            counts(&alone),
            (200 + lacking, lacking, lacking, 0),
            "{held} files are there"
        );
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

    /// Of three workers two have disks for users' own tables, one of them a full one.
    #[test]
    fn disks_for_users_tables_take_these_alone() {
        let with_disks = |free_bytes, user_free: Option<u64>| {
            let mut member = member([], free_bytes);
            member.report.user_disks = user_free.map(|free| DiskSpace {
                bytes: 10_000,
                free,
            });
            member
        };
        let members = members(vec![
            with_disks(9_000, Some(1_000)),
            with_disks(1_000, Some(9_000)),
            with_disks(9_000, None),
        ]);
        let parts = [part(20)];
        let assign_to = |user_databases: &[&str]| {
            assign(&Inputs {
                parts: &parts,
                superseded: &[],
                members: &members,
                live: &names(&members),
                user_databases: &user_databases.iter().map(|it| (*it).to_owned()).collect(),
                draining: &HashSet::new(),
                replicas: 2,
                sure: &HashMap::new(),
            })
        };
        let chunks_of = |found: &Assignments, worker: &str| {
            let files = found.workers[worker].values().flatten();
            files.filter(|file| file.0 >= 0).count()
        };
        let of_catalogue = assign_to(&["other"]);
        let of_user = assign_to(&["other", "db"]);
        let chunks = |found: &Assignments| ["w0", "w1", "w2"].map(|it| chunks_of(found, it));
        assert_eq!(chunks(&of_catalogue), [20, 0, 20]);
        assert_eq!(chunks(&of_user), [0, 20, 20]);
        assert!(of_catalogue.user_parts.is_empty());
        assert_eq!(of_user.user_parts, BTreeSet::from([PART.part]));
    }

    #[test]
    fn full_disks_and_too_few_workers_are_told() {
        let two = members(vec![member([], 9_000), member([], 1_000)]);
        let found = assigned(&two, &HashSet::new(), 2);
        assert_eq!(found.unplaced_replicas, 200, "the second has no room");
        let mut fuller = two;
        fuller.get_mut("w1").unwrap().report.disk_limit = 100;
        let found = assigned(&fuller, &HashSet::new(), 2);
        assert_eq!(
            found.unplaced_replicas, 100,
            "it may fill its disk: half of them fit"
        );
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
            live: &names(&holding),
            user_databases: &HashSet::new(),
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

        /// A front end gives files up, and workers follow what they were told a while ago, join, drain and come back; another front end leads, which
        /// knows of workers what they told it a while ago, and the one before goes on as if it led: there are always as many replicas of what has been
        /// given up as there shall be.
        #[test]
        fn what_the_front_end_has_given_up_keeps_its_replicas(
            steps in prop::collection::vec((0usize..11, 0usize..5, 0usize..3), 1..600),
            num_front_ends in 1usize..4,
            replicas in 1usize..4,
            kept in prop::sample::select(vec![0u64, 50, 150]),
        ) {
            let mut model = Model::new(num_front_ends, replicas, kept);
            for (step, worker, front_end) in steps {
                model.step(step, worker, front_end % num_front_ends);
                for file in model.parts[0].away().iter() {
                    let holders = model.workers.values().filter(|it| it.files.contains(file)).count();
                    prop_assert!(holders >= replicas, "file {file}: {holders} holders");
                }
            }
        }
    }

    /// Files of each worker are given up by whoever leads, and by nobody else, so that leaders that follow each other come to the same end.
    #[test]
    fn whoever_leads_next_moves_nothing() {
        let mut model = Model::new(2, 2, 1_000);
        let settle = |model: &mut Model, leader: usize| {
            for _ in 0..6 {
                for worker in 0..5 {
                    for front_end in 0..2 {
                        model.report(&format!("w{worker}"), front_end);
                        model.deliver(&format!("w{worker}"), front_end);
                    }
                    model.work(&format!("w{worker}"), true);
                }
                model.assign(leader);
            }
        };
        settle(&mut model, 0);
        let before: BTreeMap<String, HashSet<ChunkId>> = model.held();
        assert!(before.values().all(|files| files.len() > 1));
        model.lead(1);
        settle(&mut model, 1);
        assert_eq!(model.held(), before);
        assert!(model.workers.values().all(|it| it.follows.0 == 2));
    }

    /// A worker as it is, whatever front ends know of it.
    #[derive(Default)]
    struct ModelWorker {
        files: HashSet<ChunkId>,
        /// The assignment that it follows, by epoch and number.
        follows: (u64, u64),
        /// What that lists.
        listed: HashSet<ChunkId>,
        keeps_all: bool,
    }

    /// A front end, which may take itself for the leader after another one has become that.
    struct ModelFrontEnd {
        epoch: Option<u64>,
        /// What it knows of the workers.
        members: BTreeMap<String, Member>,
        orders: Orders,
        latest: Assignments,
        /// What it has said to each worker that has not heard it yet.
        said: HashMap<String, (u64, Order)>,
    }

    /// Front ends and workers that hear of each other now and then.
    struct Model {
        parts: Vec<Arc<KnownPart>>,
        workers: BTreeMap<String, ModelWorker>,
        front_ends: Vec<ModelFrontEnd>,
        /// The epoch of the leader that has the lease.
        epoch: u64,
        draining: HashSet<String>,
        replicas: usize,
        kept: u64,
    }

    impl Model {
        /// The first front end leads.
        fn new(num_front_ends: usize, replicas: usize, kept: u64) -> Self {
            let front_end = |_| ModelFrontEnd {
                epoch: None,
                members: BTreeMap::new(),
                orders: Orders::new(0),
                latest: Assignments::default(),
                said: HashMap::new(),
            };
            let mut model = Self {
                parts: vec![part(20)],
                workers: BTreeMap::new(),
                front_ends: (0..num_front_ends).map(front_end).collect(),
                epoch: 0,
                draining: HashSet::new(),
                replicas,
                kept,
            };
            model.lead(0);
            model
        }

        fn step(&mut self, step: usize, number: usize, front_end: usize) {
            let name = format!("w{number}");
            match step {
                0 | 1 => self.report(&name, front_end),
                2 | 3 => self.deliver(&name, front_end),
                4 | 5 => self.assign(front_end),
                6 => self.make_room(front_end),
                7 if self.draining.remove(&name) => {}
                7 => {
                    self.draining.insert(name);
                }
                8 => self.lead(front_end),
                _ => self.work(&name, step == 9),
            }
        }

        /// A front end gets the lease, with an epoch of its own.
        fn lead(&mut self, front_end: usize) {
            self.epoch += 1;
            let front_end = &mut self.front_ends[front_end];
            front_end.epoch = Some(self.epoch);
            front_end.orders = Orders::new(100);
            front_end.latest = Assignments::default();
        }

        /// A worker tells what it holds and which assignment it follows, and what it is told is under way.
        fn report(&mut self, name: &str, front_end: usize) {
            let worker = self.workers.entry(name.to_owned()).or_default();
            let mut known = member(worker.files.iter().map(|file| file.0), 9_000);
            (known.report.epoch, known.report.assignment) = worker.follows;
            let front_end = &mut self.front_ends[front_end];
            front_end.members.insert(name.to_owned(), known);
            front_end.said.remove(name);
            if let (Some(epoch), Some(order)) = (front_end.epoch, front_end.orders.of(name)) {
                front_end.said.insert(name.to_owned(), (epoch, order));
            }
        }

        /// A worker hears what it was told, and follows it from now on, unless it follows a newer leader.
        fn deliver(&mut self, name: &str, front_end: usize) {
            let said = self.front_ends[front_end].said.remove(name);
            let (Some((epoch, order)), Some(worker)) = (said, self.workers.get_mut(name)) else {
                return;
            };
            if epoch >= worker.follows.0 && (epoch, order.version) != worker.follows {
                let listed = order.files.iter().flat_map(|part| &part.files);
                worker.listed = listed.copied().map(ChunkId).collect();
                worker.follows = (epoch, order.version);
                worker.keeps_all = order.keeps_all;
            }
        }

        fn assign(&mut self, front_end: usize) {
            let front_end = &mut self.front_ends[front_end];
            if front_end.epoch.is_none() {
                return;
            }
            for (name, known) in &front_end.members {
                if let Some(number) = known.follows(front_end.epoch) {
                    front_end.orders.acknowledge(name, number);
                }
            }
            front_end.latest = assign(&Inputs {
                parts: &self.parts,
                superseded: &[],
                members: &front_end.members,
                live: &names(&front_end.members),
                user_databases: &HashSet::new(),
                draining: &self.draining,
                replicas: self.replicas,
                sure: &front_end.orders.sure(),
            });
            let latest = &front_end.latest;
            front_end.orders.tell(&latest.workers, &latest.user_parts);
        }

        /// The leader gives files up: one that has lost its lease does not.
        fn make_room(&mut self, front_end: usize) {
            let front_end = &self.front_ends[front_end];
            if front_end.epoch == Some(self.epoch) {
                let chosen = to_give_up(&front_end.latest, self.kept, self.replicas, |_| true);
                let chosen = chosen.into_iter().map(|(_, file)| file);
                self.parts[0].away().extend(chosen);
            }
        }

        /// A worker gets some of the files that it lacks, or all; and if it has all, it gives up what it shall not hold.
        fn work(&mut self, name: &str, all: bool) {
            let Some(worker) = self.workers.get_mut(name).filter(|it| it.follows.0 > 0) else {
                return;
            };
            let lacking: Vec<ChunkId> = worker.listed.difference(&worker.files).copied().collect();
            let some = if all {
                lacking.len()
            } else {
                lacking.len() / 2
            };
            worker.files.extend(&lacking[..some]);
            if some == lacking.len() && !worker.keeps_all {
                worker.files = worker.listed.clone();
            }
        }

        fn held(&self) -> BTreeMap<String, HashSet<ChunkId>> {
            let workers = self.workers.iter();
            workers
                .map(|(name, worker)| (name.clone(), worker.files.clone()))
                .collect()
        }
    }
}
