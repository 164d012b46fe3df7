//! When the work of a query was handed out, begun, gave its first rows and was done: piece by piece where this process runs them, share
//! by share where workers do.
//!
//! Invariant: a query has at most [`MOST`] milestones that have ended, whatever it runs; what there is beyond is merged with what ran beside
//! it, so that together they always account for all pieces.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milestones of a query, at most, but for those of what runs at the moment.
pub const MOST: usize = 64;
/// Who runs the pieces of this process.
pub const HERE: &str = "here";
/// Who has run pieces of several.
pub const SEVERAL: &str = "several";

/// Some pieces of a phase that were handed out together. Times are microseconds since 1970 in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Milestone {
    /// The number of the phase among those of the query, from 1 on.
    pub phase: u32,
    /// Who runs them: [`HERE`], a worker, or [`SEVERAL`].
    pub runner: String,
    /// How many pieces.
    pub pieces: u64,
    /// Those of them whose rows count.
    pub pieces_done: u64,
    /// When the first of them was given to its lane or sent to its worker.
    pub handed_out: i64,
    /// When the first of them began.
    pub started: Option<i64>,
    /// When the first rows came.
    pub first_rows: Option<i64>,
    /// When the last of them was done.
    pub committed: Option<i64>,
}

impl Milestone {
    fn merge(&mut self, other: Self) {
        let earlier = |one: Option<i64>, other: Option<i64>| one.into_iter().chain(other).min();
        if self.runner != other.runner {
            SEVERAL.clone_into(&mut self.runner);
        }
        self.phase = self.phase.min(other.phase);
        self.pieces += other.pieces;
        self.pieces_done += other.pieces_done;
        self.handed_out = self.handed_out.min(other.handed_out);
        self.started = earlier(self.started, other.started);
        self.first_rows = earlier(self.first_rows, other.first_rows);
        self.committed = self.committed.max(other.committed);
    }
}

/// Pieces that were handed out and have not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HandedOut(u64);

/// The milestones of one query.
#[derive(Debug, Default)]
pub struct Milestones(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    phases: u32,
    next: u64,
    running: BTreeMap<HandedOut, Milestone>,
    ended: Vec<Milestone>,
}

impl Milestones {
    /// The number of a phase that begins.
    pub(crate) fn begin_phase(&self) -> u32 {
        self.with(|state| {
            state.phases += 1;
            state.phases
        })
    }

    /// Notes that so many pieces of a phase have been handed out at a moment.
    pub fn hand_out(&self, phase: u32, runner: &str, pieces: usize, at: i64) -> HandedOut {
        let milestone = Milestone {
            phase,
            runner: runner.to_owned(),
            pieces: pieces as u64,
            pieces_done: 0,
            handed_out: at,
            started: None,
            first_rows: None,
            committed: None,
        };
        self.with(|state| {
            let handed_out = HandedOut(state.next);
            state.next += 1;
            state.running.insert(handed_out, milestone);
            handed_out
        })
    }

    /// Notes that the first of them has begun.
    pub fn start(&self, what: HandedOut) {
        self.change(what, |milestone| {
            milestone.started.get_or_insert_with(now);
        });
    }

    /// Notes that rows have come.
    pub fn rows(&self, what: HandedOut) {
        self.change(what, |milestone| {
            milestone.first_rows.get_or_insert_with(now);
        });
    }

    /// Notes that a piece is done.
    pub fn piece_done(&self, what: HandedOut) {
        self.change(what, |milestone| {
            milestone.pieces_done += 1;
            milestone.committed = Some(now());
        });
    }

    /// Notes that nothing more comes of them.
    pub fn end(&self, what: HandedOut) {
        self.with(|state| {
            if let Some(milestone) = state.running.remove(&what) {
                state.ended.push(milestone);
                if state.ended.len() > MOST {
                    state.ended = merged(std::mem::take(&mut state.ended), MOST / 2);
                }
            }
        });
    }

    /// All of them, in the order of their phases and of when they were started.
    pub fn all(&self) -> Vec<Milestone> {
        let all = self.with(|state| {
            [
                state.ended.clone(),
                state.running.values().cloned().collect(),
            ]
        });
        merged(all.concat(), MOST)
    }

    fn change(&self, what: HandedOut, change: impl FnOnce(&mut Milestone)) {
        self.with(|state| {
            if let Some(milestone) = state.running.get_mut(&what) {
                change(milestone);
            }
        });
    }

    /// A panic elsewhere leaves it consistent: each change is a single one.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The same in their order, as few as `most`: neighbours are merged, first of the same runner, then of the same phase, then any.
pub fn merged(mut milestones: Vec<Milestone>, most: usize) -> Vec<Milestone> {
    let same: [fn(&Milestone, &Milestone) -> bool; 3] = [
        |one, other| (one.phase, &one.runner) == (other.phase, &other.runner),
        |one, other| one.phase == other.phase,
        |_, _| true,
    ];
    for (level, may_merge) in same.into_iter().enumerate() {
        milestones.sort_by(|one, other| {
            let runner = |it: &Milestone| (level == 0).then(|| it.runner.clone());
            let key = |it: &Milestone| (it.phase, runner(it), it.started.unwrap_or(i64::MAX));
            key(one).cmp(&key(other))
        });
        while milestones.len() > most.max(1) {
            let before = milestones.len();
            milestones = merge_pairs(milestones, most, may_merge);
            if milestones.len() == before {
                break;
            }
        }
    }
    milestones.sort_by_key(|it| (it.phase, it.started.unwrap_or(i64::MAX), it.handed_out));
    milestones
}

/// Merges each with the one behind it where that may be, until there are as few as wanted.
fn merge_pairs(
    milestones: Vec<Milestone>,
    most: usize,
    may_merge: fn(&Milestone, &Milestone) -> bool,
) -> Vec<Milestone> {
    let mut too_many = milestones.len().saturating_sub(most.max(1));
    let mut merged: Vec<Milestone> = Vec::with_capacity(milestones.len());
    let mut is_merged = false;
    for milestone in milestones {
        match merged.last_mut() {
            Some(last) if too_many > 0 && !is_merged && may_merge(last, &milestone) => {
                last.merge(milestone);
                too_many -= 1;
                is_merged = true;
            }
            _ => {
                merged.push(milestone);
                is_merged = false;
            }
        }
    }
    merged
}

/// Microseconds since 1970.
pub fn now() -> i64 {
    // A clock before 1970 was never set.
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(elapsed.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(milestones: &Milestones, phase: u32, runner: &str, pieces: usize) {
        let what = milestones.hand_out(phase, runner, pieces, now());
        milestones.start(what);
        milestones.rows(what);
        (0..pieces).for_each(|_| milestones.piece_done(what));
        milestones.end(what);
    }

    #[test]
    fn what_runs_has_no_end_yet() {
        let milestones = Milestones::default();
        let phase = milestones.begin_phase();
        let handed_out = milestones.hand_out(phase, "w1", 3, 5);
        let [only] = <[_; 1]>::try_from(milestones.all()).unwrap();
        assert_eq!((only.phase, only.handed_out, only.started), (1, 5, None));
        milestones.start(handed_out);
        milestones.piece_done(handed_out);
        let [only] = <[_; 1]>::try_from(milestones.all()).unwrap();
        assert!(only.started.is_some() && only.first_rows.is_none());
        assert_eq!((only.pieces, only.pieces_done), (3, 1));
        milestones.end(handed_out);
        // What comes later is of a run that counts for nothing.
        milestones.piece_done(handed_out);
        assert_eq!(milestones.all()[0].pieces_done, 1);
    }

    #[test]
    fn many_are_merged_and_account_for_all_pieces() {
        let milestones = Milestones::default();
        for phase in 1..=3 {
            assert_eq!(milestones.begin_phase(), phase);
            for number in 0..5_000 {
                run(&milestones, phase, ["w1", "w2"][number % 2], 2);
            }
        }
        let all = milestones.all();
        assert!(all.len() <= MOST, "{}", all.len());
        assert_eq!(all.iter().map(|it| it.pieces).sum::<u64>(), 30_000);
        assert_eq!(all.iter().map(|it| it.pieces_done).sum::<u64>(), 30_000);
        let phases: std::collections::BTreeSet<u32> = all.iter().map(|it| it.phase).collect();
        assert_eq!(phases.len(), 3);
        assert!(
            all.iter().all(|it| it.runner != SEVERAL),
            "workers are told apart"
        );
        for it in &all {
            assert!(Some(it.handed_out) <= it.started && it.started <= it.first_rows);
            assert!(it.first_rows <= it.committed);
        }
    }

    #[test]
    fn more_workers_and_phases_than_there_may_be_are_merged_too() {
        let milestones = Milestones::default();
        for phase in 1..=200 {
            for worker in 0..200 {
                run(&milestones, phase, &format!("w{worker}"), 1);
            }
        }
        let all = milestones.all();
        assert!(all.len() <= MOST);
        assert_eq!(all.iter().map(|it| it.pieces_done).sum::<u64>(), 40_000);
        assert!(all.iter().any(|it| it.runner == SEVERAL));
        assert_eq!(merged(all, 1).len(), 1);
        assert!(merged(vec![], 1).is_empty());
    }
}
