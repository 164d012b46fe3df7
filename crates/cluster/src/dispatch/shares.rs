//! Which worker runs which pieces of a phase, and what becomes of those that fail: decisions alone, without clocks or connections.
//!
//! ```text
//!   pieces ──► queues, one for a worker ──► shares, at most two a worker at a time ──► done
//!                 ▲                             │
//!                 └── the next replica ◄────────┘  failed, late, or the worker is lost;  no replica left ──► runs locally
//! ```
//!
//! 1. A piece is done once: of all its runs the first that is told to be done counts.
//! 2. A piece that is not done is in a queue, in a run, or was given back to run locally.
//! 3. No piece is sent twice to a worker that failed it.
//! 4. At first a piece goes to its preferred worker, unless that has more than its part already: a plan with the same pieces is shared out
//!    in the same way, so that workers find blocks decoded.
//! 5. A worker with nothing left takes pieces from the queues of others, if it holds them, too.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// Shares that a worker has at a time: while one ends, the next is there already.
const SHARES_AT_ONCE: usize = 2;
/// Pieces of a share for each thread of its worker, at first.
const FIRST_PIECES: usize = 2;
const MOST_PIECES: usize = 1024;
/// A share that takes less becomes larger.
const SHORT: Duration = Duration::from_millis(500);
/// A share that takes more becomes smaller.
const LONG: Duration = Duration::from_secs(2);
/// How long at least a run may say nothing before it is late.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long it may say nothing while no piece of the phase is done.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// How many times the longest silence so far is late.
const LATE: u32 = 3;
/// How much more than its part a worker gets of the pieces that prefer it: 5 %, and one.
const PREFERENCE: f64 = 1.05;

/// Pieces that are sent to a worker together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// The number of the run.
    pub run: u64,
    /// The worker, by its place in the list.
    pub worker: usize,
    /// The pieces, ascending.
    pub pieces: Vec<usize>,
}

/// The decisions of one phase.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    pieces: Vec<PieceState>,
    workers: Vec<WorkerState>,
    runs: HashMap<u64, Run>,
    next_run: u64,
    /// Pieces that are neither done nor given back.
    open: usize,
    local: Vec<usize>,
    /// The workers that may be able to take a share.
    ready: BTreeSet<usize>,
    /// Those that had nothing left when they were last looked at.
    idle: BTreeSet<usize>,
    /// The longest that a run which then went on has said nothing.
    longest_silence: Option<Duration>,
}

#[derive(Debug)]
struct PieceState {
    /// The workers that hold it and were not tried yet, the last one first.
    untried: Vec<usize>,
    /// The worker in whose queue it is.
    queued_at: Option<usize>,
    runs: usize,
    is_open: bool,
}

#[derive(Debug)]
struct WorkerState {
    queue: VecDeque<usize>,
    /// The pieces that it holds and that went to others at first.
    held: Vec<usize>,
    threads: usize,
    shares: usize,
    share_size: usize,
    is_lost: bool,
}

#[derive(Debug)]
struct Run {
    worker: usize,
    /// Those that it has not told to be done.
    pieces: Vec<usize>,
    began: Duration,
    /// When it last said that a piece is done.
    heard: Duration,
    /// When it last said that it goes on.
    went_on: Duration,
    is_doubled: bool,
}

impl Shares {
    /// A phase whose pieces are held by these workers each, the preferred one first; the workers have so many threads.
    pub fn new(holders: Vec<Vec<usize>>, threads: &[usize]) -> Self {
        let mut shares = Self {
            workers: threads
                .iter()
                .map(|threads| WorkerState::new(*threads))
                .collect(),
            open: holders.len(),
            ready: (0..threads.len()).collect(),
            ..Self::default()
        };
        let all: usize = shares.workers.iter().map(|worker| worker.threads).sum();
        let part = |worker: &WorkerState| {
            let of_threads = worker.threads as f64 / all.max(1) as f64;
            (holders.len() as f64 * of_threads * PREFERENCE) as usize + 1
        };
        let parts: Vec<usize> = shares.workers.iter().map(part).collect();
        for (piece, mut untried) in holders.into_iter().enumerate() {
            let has_room = |worker: &usize| shares.workers[*worker].queue.len() < parts[*worker];
            let fullness = |worker: &usize| shares.workers[*worker].queue.len() / parts[*worker];
            let first = untried.iter().copied().find(has_room);
            let first = first.or_else(|| untried.iter().copied().min_by_key(fullness));
            untried.retain(|worker| Some(*worker) != first);
            for worker in &untried {
                shares.workers[*worker].held.push(piece);
            }
            // The last one is tried first.
            untried.reverse();
            untried.extend(first);
            shares.pieces.push(PieceState {
                untried,
                queued_at: None,
                runs: 0,
                is_open: true,
            });
            shares.queue_at_next(piece, false);
        }
        shares
    }

    /// Whether each piece is done or was given back.
    pub fn is_over(&self) -> bool {
        self.open == 0
    }

    /// The pieces that nobody else can run, since this was last asked.
    pub fn take_local(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.local)
    }

    /// How many pieces wait for each worker.
    pub fn queued(&self) -> impl Iterator<Item = usize> {
        self.workers.iter().map(|worker| worker.queue.len())
    }

    /// Whether rows that a run gives of a piece may come to count.
    pub fn wants(&self, run: u64, piece: usize) -> bool {
        self.runs.contains_key(&run) && self.pieces[piece].is_open
    }

    /// Whether a worker was given up.
    pub fn is_lost(&self, worker: usize) -> bool {
        self.workers[worker].is_lost
    }

    /// The next share to send.
    pub fn next_share(&mut self, now: Duration) -> Option<Share> {
        while let Some(worker) = self.ready.first().copied() {
            let state = &self.workers[worker];
            if state.is_lost || state.shares >= SHARES_AT_ONCE {
                self.ready.remove(&worker);
                continue;
            }
            let mut pieces = self.take_queued(worker);
            if pieces.is_empty() && self.workers[worker].shares == 0 {
                pieces = self.take_from_others(worker);
            }
            if pieces.is_empty() {
                self.ready.remove(&worker);
                self.idle.insert(worker);
                continue;
            }
            pieces.sort_unstable();
            for piece in &pieces {
                self.pieces[*piece].runs += 1;
            }
            self.workers[worker].shares += 1;
            let run = self.next_run;
            self.next_run += 1;
            let started = Run {
                worker,
                pieces: pieces.clone(),
                began: now,
                heard: now,
                went_on: now,
                is_doubled: false,
            };
            self.runs.insert(run, started);
            return Some(Share {
                run,
                worker,
                pieces,
            });
        }
        None
    }

    /// Notes that a run has given all rows of a piece. Returns whether they count.
    pub fn finish_piece(&mut self, run: u64, piece: usize, now: Duration) -> bool {
        let Some(running) = self.runs.get_mut(&run) else {
            return false;
        };
        let Some(at) = running.pieces.iter().position(|it| *it == piece) else {
            return false;
        };
        running.pieces.swap_remove(at);
        let silence = now.saturating_sub(running.heard);
        running.heard = now;
        running.went_on = now;
        self.longest_silence = self.longest_silence.max(Some(silence));
        let state = &mut self.pieces[piece];
        state.runs -= 1;
        let counts = std::mem::replace(&mut state.is_open, false);
        self.open -= usize::from(counts);
        counts
    }

    /// Notes that a run goes on.
    pub fn go_on(&mut self, run: u64, now: Duration) {
        if let Some(running) = self.runs.get_mut(&run) {
            running.went_on = now;
        }
    }

    /// The workers that have a run of which for so long nothing was heard, not even that it goes on.
    pub fn stalled_workers(&self, now: Duration, limit: Duration) -> BTreeSet<usize> {
        let stalls = |run: &&Run| now.saturating_sub(run.went_on) > limit;
        let stalled = self.runs.values().filter(stalls);
        stalled.map(|run| run.worker).collect()
    }

    /// Notes that a run has come to its end, or has failed. What it has not done goes to the next replica.
    pub fn end_run(&mut self, run: u64, now: Duration) {
        let Some(ended) = self.runs.remove(&run) else {
            return;
        };
        self.ready.insert(ended.worker);
        let worker = &mut self.workers[ended.worker];
        worker.shares -= 1;
        let took = now.saturating_sub(ended.began);
        if ended.pieces.is_empty() && took < SHORT {
            worker.share_size = (worker.share_size * 2).min(MOST_PIECES);
        } else if took > LONG {
            worker.share_size = (worker.share_size / 2).max(1);
        }
        for piece in ended.pieces {
            self.pieces[piece].runs -= 1;
            self.queue_at_next(piece, true);
        }
    }

    /// Notes that a worker does not answer. Returns its runs, which have ended.
    pub fn lose_worker(&mut self, worker: usize, now: Duration) -> Vec<u64> {
        self.workers[worker].is_lost = true;
        let of_worker = self.runs.iter().filter(|(_, run)| run.worker == worker);
        let mut runs: Vec<u64> = of_worker.map(|(number, _)| *number).collect();
        runs.sort_unstable();
        for run in &runs {
            self.end_run(*run, now);
        }
        for piece in std::mem::take(&mut self.workers[worker].queue) {
            if self.pieces[piece].queued_at == Some(worker) {
                self.pieces[piece].queued_at = None;
                self.queue_at_next(piece, false);
            }
        }
        runs
    }

    /// Has the pieces of runs that have said nothing for long run at another replica, too, and idle workers look for work. To be called
    /// a few times a second. Returns how many pieces are late.
    pub fn double_late(&mut self, now: Duration) -> usize {
        self.ready.append(&mut self.idle);
        let patience = match self.longest_silence {
            Some(longest) => PATIENCE.max(longest * LATE),
            None => FIRST_PATIENCE,
        };
        let late = |run: &&mut Run| !run.is_doubled && now.saturating_sub(run.heard) > patience;
        let mut doubled = Vec::new();
        for run in self.runs.values_mut().filter(late) {
            run.is_doubled = true;
            doubled.extend_from_slice(&run.pieces);
        }
        doubled.sort_unstable();
        let queued = doubled
            .iter()
            .filter(|piece| self.queue_at_another(**piece));
        queued.count()
    }

    /// Puts an open piece that no run works on into the queue of its next replica, or gives it back.
    fn queue_at_next(&mut self, piece: usize, first: bool) {
        let state = &self.pieces[piece];
        if !state.is_open || state.runs > 0 {
            return;
        }
        if self.queue_at_another_from(piece, first) {
            return;
        }
        self.pieces[piece].is_open = false;
        self.open -= 1;
        self.local.push(piece);
    }

    /// Whether there is another replica, which then has the piece in its queue.
    fn queue_at_another(&mut self, piece: usize) -> bool {
        self.pieces[piece].is_open && self.queue_at_another_from(piece, true)
    }

    fn queue_at_another_from(&mut self, piece: usize, first: bool) -> bool {
        while let Some(worker) = self.pieces[piece].untried.pop() {
            let state = &mut self.workers[worker];
            if state.is_lost {
                continue;
            }
            match first {
                true => state.queue.push_front(piece),
                false => state.queue.push_back(piece),
            }
            self.pieces[piece].queued_at = Some(worker);
            self.ready.insert(worker);
            return true;
        }
        false
    }

    /// The next pieces of a worker's queue: half of what is left at most, so that all come to an end at about the same time.
    fn take_queued(&mut self, worker: usize) -> Vec<usize> {
        let state = &mut self.workers[worker];
        let half = state.queue.len().div_ceil(2).max(state.threads);
        let most = state.share_size.min(half);
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(piece) = state.queue.pop_front() else {
                break;
            };
            let known = &mut self.pieces[piece];
            if known.queued_at == Some(worker) {
                known.queued_at = None;
                if known.is_open {
                    taken.push(piece);
                }
            }
        }
        taken
    }

    /// Pieces that wait in the queues of others: the last of those that the worker holds.
    fn take_from_others(&mut self, worker: usize) -> Vec<usize> {
        let state = &mut self.workers[worker];
        let most = state.threads;
        let mut taken = Vec::new();
        while taken.len() < most {
            let Some(piece) = state.held.pop() else {
                break;
            };
            let known = &mut self.pieces[piece];
            let place = known.untried.iter().position(|it| *it == worker);
            let (Some(place), Some(other)) = (place, known.queued_at) else {
                continue;
            };
            if !known.is_open || known.runs > 0 {
                continue;
            }
            // The other one has not tried it: it stays a replica to try.
            known.untried[place] = other;
            known.queued_at = None;
            taken.push(piece);
        }
        taken
    }
}

impl WorkerState {
    fn new(threads: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            held: Vec::new(),
            threads: threads.max(1),
            shares: 0,
            share_size: (threads * FIRST_PIECES).max(1),
            is_lost: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_lost_worker_costs_what_it_has_not_done() {
        let mut shares = Shares::new(vec![vec![0, 1], vec![0, 1], vec![1]], &[2, 2]);
        let first = shares.next_share(SECOND).unwrap();
        assert_eq!(
            (first.worker, first.pieces.as_slice()),
            (0, [0, 1].as_slice())
        );
        let second = shares.next_share(SECOND).unwrap();
        assert_eq!(
            (second.worker, second.pieces.as_slice()),
            (1, [2].as_slice())
        );
        assert!(shares.finish_piece(first.run, 0, SECOND));
        assert_eq!(shares.lose_worker(0, SECOND), [first.run]);
        assert!(
            !shares.finish_piece(first.run, 1, SECOND),
            "the run has ended"
        );
        let again = shares.next_share(SECOND).unwrap();
        assert_eq!((again.worker, again.pieces.as_slice()), (1, [1].as_slice()));
        assert_eq!(shares.lose_worker(1, SECOND).len(), 2);
        assert!(shares.is_over());
        assert_eq!(shares.take_local(), [2, 1]);
    }

    #[test]
    fn the_first_of_two_runs_of_a_late_piece_counts() {
        let mut shares = Shares::new(vec![vec![0, 1]], &[1, 1]);
        let slow = shares.next_share(Duration::ZERO).unwrap();
        assert_eq!(shares.double_late(FIRST_PATIENCE), 0);
        assert_eq!(shares.double_late(FIRST_PATIENCE + SECOND), 1);
        assert_eq!(
            shares.double_late(FIRST_PATIENCE + SECOND * 9),
            0,
            "once is enough"
        );
        let doubled = shares.next_share(FIRST_PATIENCE + SECOND).unwrap();
        assert_eq!(doubled.worker, 1);
        assert!(shares.finish_piece(doubled.run, 0, FIRST_PATIENCE + SECOND));
        assert!(!shares.finish_piece(slow.run, 0, FIRST_PATIENCE + SECOND));
        assert!(shares.is_over());
    }

    #[test]
    fn a_run_that_says_nothing_has_stalled() {
        let mut shares = Shares::new(vec![vec![0], vec![1]], &[1, 1]);
        let first = shares.next_share(Duration::ZERO).unwrap();
        let second = shares.next_share(Duration::ZERO).unwrap();
        assert_eq!((first.worker, second.worker), (0, 1));
        shares.go_on(second.run, SECOND * 5);
        assert!(shares.stalled_workers(SECOND * 6, SECOND * 6).is_empty());
        assert_eq!(
            shares.stalled_workers(SECOND * 7, SECOND * 6),
            BTreeSet::from([0])
        );
        assert_eq!(shares.lose_worker(0, SECOND * 7), [first.run]);
        assert_eq!(shares.take_local(), [0]);
        assert!(!shares.finish_piece(first.run, 0, SECOND * 8));
        assert!(shares.finish_piece(second.run, 1, SECOND * 8));
        assert!(shares.is_over());
    }

    #[test]
    fn a_worker_with_nothing_left_takes_from_the_others() {
        let mut shares = Shares::new(vec![vec![0, 1]; 20], &[1, 1]);
        let mut of_second = 0;
        while let Some(share) = shares.next_share(SECOND) {
            if share.worker == 1 {
                of_second += share.pieces.len();
                for piece in &share.pieces {
                    assert!(shares.finish_piece(share.run, *piece, SECOND));
                }
                shares.end_run(share.run, SECOND);
            }
        }
        // All but the two shares of the first, which has not begun.
        assert_eq!(of_second, 16);
    }

    #[test]
    fn pieces_are_shared_out_evenly_and_in_the_same_way() {
        // All prefer the first, and half of them could be at the second or third.
        let holders = |piece: usize| match piece % 2 {
            0 => vec![0, 1 + piece / 2 % 2],
            _ => vec![0],
        };
        let holders: Vec<Vec<usize>> = (0..120).map(holders).collect();
        let queues = |shares: &Shares| -> Vec<Vec<usize>> {
            let workers = shares.workers.iter();
            workers
                .map(|it| it.queue.iter().copied().collect())
                .collect()
        };
        let first = queues(&Shares::new(holders.clone(), &[2, 2, 2]));
        let lengths: Vec<usize> = first.iter().map(Vec::len).collect();
        assert!(lengths[1] + lengths[2] > 35, "{lengths:?}");
        assert_eq!(queues(&Shares::new(holders, &[2, 2, 2])), first);
    }

    #[derive(Debug, Clone)]
    enum Happening {
        Finish(usize, usize),
        End(usize),
        Lose(usize),
        Late,
    }

    fn happenings() -> impl Strategy<Value = Vec<Happening>> {
        let one = prop_oneof![
            8 => (0usize..8, 0usize..8).prop_map(|(run, piece)| Happening::Finish(run, piece)),
            4 => (0usize..8).prop_map(Happening::End),
            1 => (0usize..4).prop_map(Happening::Lose),
            1 => Just(Happening::Late),
        ];
        prop::collection::vec(one, 0..300)
    }

    proptest! {
        /// Whatever happens, each piece is done once or given back once, and all of them are in the end.
        #[test]
        fn every_piece_comes_to_one_end(
            holders in prop::collection::vec(prop::collection::btree_set(0usize..4, 0..4), 0..60),
            happenings in happenings(),
        ) {
            let count = holders.len();
            let holders: Vec<Vec<usize>> = holders.into_iter().map(|set| set.into_iter().collect()).collect();
            let mut shares = Shares::new(holders.clone(), &[1, 2, 1, 1]);
            let (mut now, mut ends) = (Duration::ZERO, vec![0; count]);
            let mut running: Vec<Share> = Vec::new();
            let mut sent: BTreeSet<(usize, usize)> = BTreeSet::new();
            for happening in happenings {
                now += SECOND;
                while let Some(share) = shares.next_share(now) {
                    for piece in &share.pieces {
                        prop_assert!(holders[*piece].contains(&share.worker));
                        prop_assert!(sent.insert((*piece, share.worker)), "sent twice");
                    }
                    running.push(share);
                }
                match happening {
                    Happening::Finish(run, piece) if !running.is_empty() => {
                        let share = &running[run % running.len()];
                        let piece = share.pieces[piece % share.pieces.len()];
                        ends[piece] += usize::from(shares.finish_piece(share.run, piece, now));
                    }
                    Happening::End(run) if !running.is_empty() => {
                        let at = run % running.len();
                        shares.end_run(running.swap_remove(at).run, now);
                    }
                    Happening::Lose(worker) => {
                        let lost = shares.lose_worker(worker, now);
                        running.retain(|share| !lost.contains(&share.run));
                    }
                    Happening::Late => {
                        now += FIRST_PATIENCE * 20;
                        shares.double_late(now);
                    }
                    _ => {}
                }
                for piece in shares.take_local() {
                    ends[piece] += 1;
                }
            }
            for worker in 0..4 {
                shares.lose_worker(worker, now);
            }
            for piece in shares.take_local() {
                ends[piece] += 1;
            }
            prop_assert!(shares.is_over());
            prop_assert!(ends.iter().all(|ends| *ends == 1), "{ends:?}");
        }
    }
}
