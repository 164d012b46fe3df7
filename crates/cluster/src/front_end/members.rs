//! The workers that a front end knows: when each was last heard of, and what it holds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use catalog::LoadId;
use sky::ChunkId;

use super::parts::PartKey;
use crate::messages::{MemberReport, PartFiles, WorkerEnd};

/// A worker that has said nothing for so long gets no pieces.
pub(crate) const SILENT_AFTER: Duration = Duration::from_secs(4);

/// What a worker holds: the files of each part.
pub(crate) type Holdings = HashMap<PartKey, HashSet<ChunkId>>;

/// A worker.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// What it last said.
    pub report: MemberReport,
    /// When.
    pub heard: Instant,
    /// Whether it has said since that it ends. It is lost no sooner for that: it may be started again.
    pub has_ended: bool,
    /// What it holds.
    pub holdings: Arc<Holdings>,
    /// The version of these, with the process that counts it; `None` before it has told.
    pub holdings_version: Option<(u64, u64)>,
}

impl Member {
    /// Whether pieces are sent to it.
    pub fn is_live(&self, now: Instant) -> bool {
        !self.has_ended && self.is_heard(now)
    }

    /// Whether it has reported lately, even if it has ended since.
    fn is_heard(&self, now: Instant) -> bool {
        now.duration_since(self.heard) < SILENT_AFTER
    }

    /// Whether it holds files of chunks, which replicated tables have none of.
    pub fn holds_chunks(&self) -> bool {
        let mut files = self.holdings.values().flatten();
        files.any(|file| file.0 >= 0)
    }

    /// The number of the assignment that it follows, if that is of this epoch.
    pub fn follows(&self, epoch: Option<u64>) -> Option<u64> {
        (epoch == Some(self.report.epoch)).then_some(self.report.assignment)
    }

    /// Whether it holds a file.
    pub fn holds(&self, part: PartKey, file: ChunkId) -> bool {
        self.holdings
            .get(&part)
            .is_some_and(|files| files.contains(&file))
    }
}

/// The workers of a cluster, by name.
#[derive(Debug, Default)]
pub(crate) struct Members {
    members: Mutex<BTreeMap<String, Member>>,
}

impl Members {
    /// Takes what a worker says of itself. Returns the version of its holdings that is known now, and whether something has changed
    /// that decides what others shall hold.
    pub fn report(&self, name: &str, mut report: MemberReport) -> (Option<u64>, bool) {
        let now = Instant::now();
        let told = report.holdings.take();
        let version = (report.process, report.holdings_version);
        let mut members = self.lock();
        if let Some(known) = members.get(name)
            && known.report.process == report.process
            && report.number < known.report.number
        {
            // It was under way while this process was asleep.
            return (None, false);
        }
        let before = members.remove(name);
        let is_new = before.as_ref().is_none_or(|before| !before.is_live(now));
        let (mut holdings, mut known) = match before {
            Some(before) => (before.holdings, before.holdings_version),
            None => (Arc::default(), None),
        };
        let has_told = told.is_some();
        if let Some(told) = told {
            holdings = Arc::new(holdings_of(&told));
            known = Some(version);
        }
        let known_version = known.filter(|known| *known == version).map(|(_, it)| it);
        let member = Member {
            report,
            heard: now,
            has_ended: false,
            holdings,
            holdings_version: known,
        };
        members.insert(name.to_owned(), member);
        (known_version, is_new || has_told)
    }

    /// Takes a worker's word that it ends. Whether it is news: another process of its name may have reported before that has come.
    pub fn end(&self, name: &str, end: WorkerEnd) -> bool {
        let mut members = self.lock();
        let known = members.get_mut(name);
        let Some(known) = known.filter(|it| it.report.process == end.process) else {
            return false;
        };
        known.report.number = known.report.number.max(end.number);
        !std::mem::replace(&mut known.has_ended, true)
    }

    /// Whether any worker reaches this front end, or has until it ended.
    pub fn has_heard_any(&self) -> bool {
        let now = Instant::now();
        self.lock().values().any(|member| member.is_heard(now))
    }

    /// The workers at this moment.
    pub fn all(&self) -> BTreeMap<String, Member> {
        self.lock().clone()
    }

    /// The workers that hold a file, by name.
    pub fn holders(&self, part: PartKey, file: ChunkId) -> Vec<(String, Member)> {
        let members = self.lock();
        let holders = members.iter().filter(|(_, it)| it.holds(part, file));
        holders
            .map(|(name, member)| (name.clone(), member.clone()))
            .collect()
    }

    /// The workers to which pieces are sent, by name.
    pub fn live(&self) -> Vec<(String, Member)> {
        let now = Instant::now();
        let members = self.lock();
        let live = members.iter().filter(|(_, member)| member.is_live(now));
        live.map(|(name, member)| (name.clone(), member.clone()))
            .collect()
    }

    /// Whether pieces are sent to a worker, and it is still the process that it was.
    pub fn is_live(&self, name: &str, process: u64) -> bool {
        let members = self.lock();
        let member = members.get(name);
        member.is_some_and(|it| it.report.process == process && it.is_live(Instant::now()))
    }

    /// Forgets a worker.
    pub fn remove(&self, name: &str) -> bool {
        self.lock().remove(name).is_some()
    }

    /// Every change is a single one, so that a panic elsewhere leaves it whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn holdings_of(told: &[PartFiles]) -> Holdings {
    let files = |files: &[i32]| files.iter().copied().map(ChunkId).collect();
    let parts = told.iter();
    parts.map(|it| (it.key(), files(&it.files))).collect()
}

impl PartFiles {
    /// The part.
    pub(crate) fn key(&self) -> PartKey {
        PartKey {
            part: LoadId(self.part),
            digest: self.digest,
        }
    }
}

/// Holdings as a worker tells them.
pub(crate) fn part_files(holdings: &Holdings) -> Vec<PartFiles> {
    let mut parts: Vec<PartFiles> = holdings
        .iter()
        .map(|(part, files)| {
            let mut files: Vec<i32> = files.iter().map(|file| file.0).collect();
            files.sort_unstable();
            PartFiles {
                part: part.part.0,
                digest: part.digest,
                files,
            }
        })
        .collect();
    parts.sort_by_key(|part| part.part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn report(
        process: u64,
        version: u64,
        holdings: Option<Vec<PartFiles>>,
    ) -> MemberReport {
        MemberReport {
            address: "127.0.0.1:1".to_owned(),
            version: "0".to_owned(),
            archive: None,
            process,
            number: 0,
            threads: 2,
            disk_bytes: 1000,
            free_bytes: 500,
            user_disks: None,
            disk_limit: crate::messages::DISK_LIMIT,
            epoch: 0,
            assignment: 0,
            holdings_version: version,
            holdings,
            missing_bytes: 0,
            copy_rate: 0,
            trouble: None,
            damaged: 0,
            pieces: 0,
            shares: 0,
            plans_decoded: 0,
            certificate_ends: None,
            revoked: crate::tls::ListNews::default(),
        }
    }

    #[test]
    fn holdings_are_told_when_they_have_changed_and_after_a_start() {
        let members = Members::default();
        let some = vec![PartFiles {
            part: 3,
            digest: 8,
            files: vec![5, 9],
        }];
        assert_eq!(members.report("a", report(1, 4, None)), (None, true));
        assert_eq!(
            members.report("a", report(1, 4, Some(some.clone()))),
            (Some(4), true)
        );
        assert_eq!(members.report("a", report(1, 4, None)), (Some(4), false));
        let part = |digest: u64| PartKey {
            part: LoadId(3),
            digest,
        };
        assert!(members.all()["a"].holds(part(8), ChunkId(9)));
        assert!(!members.all()["a"].holds(part(7), ChunkId(9)));
        assert_eq!(
            members.report("a", report(1, 5, None)),
            (None, false),
            "another version"
        );
        assert_eq!(
            members.report("a", report(2, 4, None)),
            (None, false),
            "another process"
        );
        assert_eq!(part_files(&members.all()["a"].holdings), some);
        assert!(members.is_live("a", 2) && !members.is_live("a", 1) && !members.is_live("b", 2));
    }

    /// For 4 s after its end a worker counted as running: it could not be removed, and got pieces.
    #[test]
    fn a_worker_that_has_said_that_it_ends_is_not_live() {
        let members = Members::default();
        let numbered = |process: u64, number: u64| MemberReport {
            number,
            ..report(process, 1, None)
        };
        let end = |process, number| WorkerEnd { process, number };
        assert!(!members.end("a", end(1, 9)) && members.all().is_empty());
        members.report("a", numbered(1, 7));
        let heard = members.all()["a"].heard;
        assert!(members.end("a", end(1, 9)) && !members.end("a", end(1, 9)));
        assert!(!members.is_live("a", 1) && members.live().is_empty());
        assert!(members.has_heard_any());
        assert_eq!(members.all()["a"].heard, heard, "when it is lost");
        // A report that was under way.
        assert_eq!(members.report("a", numbered(1, 8)), (None, false));
        assert!(!members.is_live("a", 1));
        // It is back at once, and what it said before comes late.
        assert_eq!(members.report("a", numbered(2, 1)), (None, true));
        assert!(!members.end("a", end(1, 9)) && members.is_live("a", 2));
    }

    /// A front end that was asleep read what had been sent to it meanwhile in no order, and took files for held that had been given up.
    #[test]
    fn an_older_report_does_not_count_after_a_newer_one() {
        let members = Members::default();
        let files = |files: &[i32]| {
            Some(vec![PartFiles {
                part: 3,
                digest: 8,
                files: files.to_vec(),
            }])
        };
        let numbered = |number: u64, version: u64, held: Option<Vec<PartFiles>>| MemberReport {
            number,
            ..report(1, version, held)
        };
        members.report("a", numbered(7, 2, files(&[5])));
        assert_eq!(
            members.report("a", numbered(6, 1, files(&[5, 9]))),
            (None, false)
        );
        let part = PartKey {
            part: LoadId(3),
            digest: 8,
        };
        assert!(!members.all()["a"].holds(part, ChunkId(9)));
        let restarted = MemberReport {
            number: 1,
            ..report(2, 1, files(&[9]))
        };
        members.report("a", restarted);
        assert!(members.all()["a"].holds(part, ChunkId(9)));
    }
}
