//! Phases of whole clusters in virtual time: what [`Shares`] decides with hundreds of workers, of which some are slow and some die.
//!
//! ```text
//!   Shares ──► share ──► its worker's threads, each piece for as long as it takes ──► PieceDone, ShareEnd ──► Shares
//! ```
//!
//! Run with `--nocapture`, the tests print the curves that `docs/scale.md` shows.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::time::{Duration, Instant};

use sky::ChunkId;

use super::shares::Shares;
use crate::placement::{Candidate, rank};

const REPLICAS: usize = 3;
const THREADS: usize = 16;
/// From the sending of a share to the beginning of its first piece, and back.
const LATENCY: Duration = Duration::from_millis(1);
const TICK: Duration = Duration::from_millis(250);
/// From the death of a worker to the moment at which it is silent.
const NOTICED_AFTER: Duration = Duration::from_secs(4);

/// A phase and its workers.
#[derive(Debug, Clone)]
struct Scenario {
    workers: usize,
    pieces: usize,
    /// How long a piece takes a thread.
    piece: Duration,
    /// Workers that take so many times as long.
    slow: Vec<(usize, u32)>,
    /// Workers that die at a time.
    deaths: Vec<(usize, Duration)>,
}

impl Scenario {
    fn new(workers: usize, pieces: usize, piece: Duration) -> Self {
        Self {
            workers,
            pieces,
            piece,
            slow: Vec::new(),
            deaths: Vec::new(),
        }
    }

    /// The time that the threads need if none ever waits.
    fn ideal(&self) -> Duration {
        let threads = (self.workers * THREADS) as f64;
        self.piece.mul_f64(self.pieces as f64 / threads)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    PieceDone {
        run: u64,
        worker: usize,
        piece: usize,
    },
    ShareEnd {
        run: u64,
        worker: usize,
    },
    Tick,
    Noticed {
        worker: usize,
    },
}

/// What came of a scenario.
#[derive(Debug)]
struct Outcome {
    took: Duration,
    /// Pieces that the front end ran.
    local: usize,
    /// Pieces that were run, of which some counted for nothing.
    runs: usize,
    /// The time that the decisions took of a real processor.
    decisions: Duration,
}

fn simulate(scenario: &Scenario) -> Outcome {
    let candidates: Vec<Candidate> = (0..scenario.workers)
        .map(|at| Candidate {
            name: format!("worker-{at}"),
            weight: 1.0,
        })
        .collect();
    let holders = |piece: usize| {
        let chunk = ChunkId(i32::try_from(piece % 20_000).unwrap());
        let mut ranked = rank("sky", chunk, &candidates);
        ranked.truncate(REPLICAS);
        ranked
    };
    let chunks: Vec<Vec<usize>> = (0..scenario.pieces.min(20_000)).map(holders).collect();
    let held = (0..scenario.pieces).map(|piece| chunks[piece % chunks.len()].clone());
    let mut decisions = Duration::ZERO;
    let held: Vec<Vec<usize>> = held.collect();
    let began = Instant::now();
    let mut shares = Shares::new(held, &vec![THREADS; scenario.workers]);
    decisions += began.elapsed();
    let slowness = |worker: usize| {
        let slow = scenario.slow.iter().find(|(at, _)| *at == worker);
        slow.map_or(1, |(_, times)| *times)
    };
    let dies = |worker: usize| scenario.deaths.iter().find(|(at, _)| *at == worker);
    let mut free = vec![vec![Duration::ZERO; THREADS]; scenario.workers];
    let mut happenings = BinaryHeap::from([Reverse((TICK, Happening::Tick))]);
    for (worker, at) in &scenario.deaths {
        let noticed = Happening::Noticed { worker: *worker };
        happenings.push(Reverse((*at + NOTICED_AFTER, noticed)));
    }
    let (mut now, mut local, mut runs) = (Duration::ZERO, 0, 0);
    let mut done: HashSet<usize> = HashSet::new();
    loop {
        let began = Instant::now();
        let next: Vec<_> = std::iter::from_fn(|| shares.next_share(now)).collect();
        decisions += began.elapsed();
        for share in next {
            let worker = share.worker;
            let mut last = now;
            for piece in &share.pieces {
                let thread = (0..THREADS).min_by_key(|at| free[worker][*at]).unwrap();
                let begins = free[worker][thread].max(now + LATENCY);
                let ends = begins + scenario.piece * slowness(worker);
                free[worker][thread] = ends;
                last = last.max(ends);
                if dies(worker).is_none_or(|(_, at)| ends <= *at) {
                    let done = Happening::PieceDone {
                        run: share.run,
                        worker,
                        piece: *piece,
                    };
                    happenings.push(Reverse((ends, done)));
                    runs += 1;
                }
            }
            if dies(worker).is_none_or(|(_, at)| last <= *at) {
                let end = Happening::ShareEnd {
                    run: share.run,
                    worker,
                };
                happenings.push(Reverse((last, end)));
            }
        }
        local += shares.take_local().len();
        if shares.is_over() {
            break;
        }
        let Reverse((at, happening)) = happenings.pop().unwrap();
        now = at;
        let began = Instant::now();
        match happening {
            Happening::PieceDone { run, piece, .. } => {
                if shares.finish_piece(run, piece, now) {
                    assert!(done.insert(piece), "a piece counted twice");
                }
            }
            Happening::ShareEnd { run, .. } => shares.end_run(run, now),
            Happening::Noticed { worker } => drop(shares.lose_worker(worker, now)),
            Happening::Tick => {
                shares.double_late(now);
                happenings.push(Reverse((now + TICK, Happening::Tick)));
            }
        }
        decisions += began.elapsed();
    }
    assert_eq!(done.len() + local, scenario.pieces);
    Outcome {
        took: now,
        local,
        runs,
        decisions,
    }
}

#[allow(
    clippy::print_stdout,
    reason = "whoever runs the simulation wants to see its curves"
)]
fn report(name: &str, scenario: &Scenario, outcome: &Outcome) {
    println!(
        "{name}: {} workers, {} pieces: {:.2} s, {:.2} times the ideal; {:.2} runs a piece, {} at the front end; {:.1} µs of decisions a piece",
        scenario.workers,
        scenario.pieces,
        outcome.took.as_secs_f64(),
        outcome.took.as_secs_f64() / scenario.ideal().as_secs_f64(),
        outcome.runs as f64 / scenario.pieces as f64,
        outcome.local,
        outcome.decisions.as_secs_f64() * 1e6 / scenario.pieces as f64,
    );
}

/// So much longer than the ideal a phase takes at most.
fn check(name: &str, scenario: &Scenario, most: f64) {
    let outcome = simulate(scenario);
    report(name, scenario, &outcome);
    let times = outcome.took.as_secs_f64() / scenario.ideal().as_secs_f64();
    assert!(
        times <= most,
        "{name}: {times} times the ideal: {outcome:?}"
    );
}

#[test]
fn all_workers_are_busy_to_the_end() {
    for workers in [3, 30, 100, 300, 1000] {
        // Of a catalogue that grows with the cluster, and of one that does not.
        let grows = Scenario::new(workers, workers * 200, Duration::from_millis(100));
        check("weak scaling", &grows, 1.25);
    }
    for workers in [3, 30, 100] {
        let fixed = Scenario::new(workers, 20_000, Duration::from_millis(100));
        check("strong scaling", &fixed, 1.25);
    }
}

#[test]
fn a_slow_worker_does_not_hold_the_others_up() {
    for workers in [4, 100] {
        let mut scenario = Scenario::new(workers, workers * 2000, Duration::from_millis(100));
        scenario.slow.push((1, 10));
        check("a straggler", &scenario, 1.5);
    }
}

#[test]
fn deaths_cost_what_was_not_done() {
    let mut scenario = Scenario::new(300, 20_000, Duration::from_secs(2));
    for worker in 0..15 {
        scenario.deaths.push((worker * 20, Duration::from_secs(3)));
    }
    let outcome = simulate(&scenario);
    report("deaths", &scenario, &outcome);
    // A few pieces lose all three replicas.
    assert!(outcome.local < 10, "{outcome:?}");
    let extra = outcome.took.saturating_sub(scenario.ideal());
    assert!(extra < Duration::from_secs(14), "{outcome:?}");
}

/// A million pieces with a thousand workers take half a minute of a debug program; the decisions are the same for fewer.
#[test]
fn many_pieces_of_a_chunk() {
    let scenario = Scenario::new(100, 200_000, Duration::from_millis(20));
    check("many pieces", &scenario, 1.25);
}
