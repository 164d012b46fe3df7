//! Tasks that wait on the scheduler: every piece goes to one of them, whatever they do.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use queries::scheduler::{
    Class, EnrolledPhase, LaneTable, PhaseDemand, PieceOutcome, PieceScheduler, SchedulerOptions,
    Turn,
};

const SCAN: Class = Class::Scan { rating: 1 };

fn scheduler(threads: usize) -> Arc<PieceScheduler> {
    let lanes = LaneTable::default();
    PieceScheduler::new(SchedulerOptions {
        threads,
        interactive_threads: 1,
        memory_bytes: 1000,
        lanes,
    })
}

fn enroll(scheduler: &Arc<PieceScheduler>, query: u64, class: Class, pieces: u32) -> EnrolledPhase {
    scheduler.enroll(PhaseDemand {
        query,
        class,
        chunks: (0..pieces).collect(),
        bytes_per_piece: 1,
    })
}

/// One poll, without anybody to wake.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready(phase: &EnrolledPhase) -> Turn {
    match poll(&mut phase.next()) {
        Poll::Ready(Some(turn)) => turn,
        Poll::Ready(None) => panic!("no piece is left"),
        Poll::Pending => panic!("no thread is free"),
    }
}

/// Threads of which none is held, and memory of which none is used.
fn assert_nothing_is_held(scheduler: &PieceScheduler) {
    let status = scheduler.status();
    assert_eq!(
        (
            status.memory_used,
            status.interactive.running,
            status.interactive.queued
        ),
        (0, 0, 0)
    );
    assert!(
        status
            .lanes
            .iter()
            .all(|lane| lane.running + lane.waiting + lane.paused + lane.queries == 0),
        "{status:?}"
    );
    assert_eq!(scheduler.query_statuses(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_piece_goes_to_one_task_and_no_more_run_than_threads_are_there() {
    let scheduler = scheduler(3);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    let mut all_seen = Vec::new();
    for query in 0..6 {
        let phase = Arc::new(enroll(&scheduler, query, SCAN, 200));
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        all_seen.push(Arc::clone(&seen));
        for _ in 0..4 {
            let (phase, seen, running, most) = (
                Arc::clone(&phase),
                Arc::clone(&seen),
                Arc::clone(&running),
                Arc::clone(&most),
            );
            tasks.push(tokio::spawn(async move {
                while let Some(mut turn) = phase.next().await {
                    assert!(
                        seen.lock().unwrap().insert(turn.piece()),
                        "a piece was given out twice"
                    );
                    most.fetch_max(running.fetch_add(1, Relaxed) + 1, Relaxed);
                    tokio::task::yield_now().await;
                    running.fetch_sub(1, Relaxed);
                    if turn.piece().is_multiple_of(3) {
                        let paused = turn.pause();
                        tokio::task::yield_now().await;
                        turn = paused.resume().await.expect("the phase is not cancelled");
                    }
                    turn.finish(PieceOutcome::Done);
                }
            }));
        }
    }
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(60), task)
            .await
            .expect("a task waits for ever")
            .unwrap();
    }
    assert!(
        all_seen
            .iter()
            .all(|seen| seen.lock().unwrap().len() == 200)
    );
    assert!(most.load(Relaxed) <= 3);
    assert_nothing_is_held(&scheduler);
}

#[test]
fn a_piece_meant_for_a_future_that_is_dropped_goes_to_another() {
    let scheduler = scheduler(1);
    let phase = enroll(&scheduler, 1, SCAN, 2);
    let first = ready(&phase);
    let (mut dropped, mut other) = (phase.next(), phase.next());
    assert!(poll(&mut dropped).is_pending() && poll(&mut other).is_pending());
    // The last piece is granted to `dropped`, which never takes it. The other task must not be told before that none is left.
    first.finish(PieceOutcome::Done);
    assert!(poll(&mut other).is_pending());
    drop(dropped);
    let Poll::Ready(Some(turn)) = poll(&mut other) else {
        panic!("the piece is lost");
    };
    assert_eq!(turn.piece(), 1);
    drop(turn);
    assert!(matches!(poll(&mut phase.next()), Poll::Ready(None)));
    let pieces = scheduler.query_status(1).unwrap().pieces;
    assert_eq!((pieces.done, pieces.failed), (1, 1));
    drop(other);
    drop(phase);
    assert_nothing_is_held(&scheduler);
}

#[test]
fn cancelling_gives_everything_back_but_the_threads_of_what_runs() {
    let scheduler = scheduler(2);
    let phase = enroll(&scheduler, 1, SCAN, 10);
    let (turn, paused) = (ready(&phase), ready(&phase).pause());
    let second = ready(&phase);
    let mut waiting = phase.next();
    let mut resumed = paused.resume();
    assert!(poll(&mut waiting).is_pending() && poll(&mut resumed).is_pending());
    phase.cancel();
    assert!(
        matches!(poll(&mut waiting), Poll::Ready(None))
            && matches!(poll(&mut resumed), Poll::Ready(None))
    );
    assert_eq!(scheduler.query_status(1).unwrap().pieces.waiting, 0);
    let other = enroll(&scheduler, 2, SCAN, 1);
    let mut next = other.next();
    assert!(poll(&mut next).is_pending(), "both threads are busy");
    drop((second, resumed, waiting));
    assert!(matches!(poll(&mut next), Poll::Ready(Some(_))));
    drop(phase);
    drop(next);
    drop(other);
    turn.finish(PieceOutcome::Done);
    assert_nothing_is_held(&scheduler);
}

#[test]
fn a_paused_piece_comes_before_those_that_have_not_started() {
    let scheduler = scheduler(1);
    let (pausing, other) = (
        enroll(&scheduler, 1, SCAN, 1),
        enroll(&scheduler, 2, SCAN, 2),
    );
    let paused = ready(&pausing).pause();
    let running = ready(&other);
    let (mut next, mut resumed) = (other.next(), paused.resume());
    assert!(poll(&mut next).is_pending() && poll(&mut resumed).is_pending());
    running.finish(PieceOutcome::Done);
    assert!(poll(&mut next).is_pending());
    let Poll::Ready(Some(turn)) = poll(&mut resumed) else {
        panic!("the paused piece waits behind one that has not started");
    };
    turn.finish(PieceOutcome::Done);
    assert!(matches!(poll(&mut next), Poll::Ready(Some(_))));
}

#[test]
fn a_paused_piece_that_is_dropped_frees_its_memory() {
    let scheduler = scheduler(1);
    let phase = enroll(&scheduler, 1, SCAN, 3);
    let paused = ready(&phase).pause();
    assert_eq!((paused.piece(), scheduler.status().memory_used), (0, 1));
    let running = ready(&phase);
    let mut resumed = paused.resume();
    assert!(poll(&mut resumed).is_pending());
    drop(resumed);
    assert_eq!(scheduler.status().memory_used, 1);
    drop((running, phase));
    assert_nothing_is_held(&scheduler);
}

#[test]
fn an_interactive_piece_runs_beside_a_full_lane() {
    let scheduler = scheduler(1);
    let scan = enroll(&scheduler, 1, SCAN, 5);
    let running = ready(&scan);
    let lookup = enroll(&scheduler, 2, Class::Interactive, 1);
    let turn = ready(&lookup);
    let other = enroll(&scheduler, 3, Class::Interactive, 1);
    let mut next = other.next();
    assert!(
        poll(&mut next).is_pending(),
        "interactive pieces have threads of their own number"
    );
    let status = scheduler.query_status(3).unwrap();
    assert_eq!((status.lane, status.place_in_queue), (None, Some(1)));
    turn.finish(PieceOutcome::Done);
    assert!(matches!(poll(&mut next), Poll::Ready(Some(_))));
    drop(running);
}

#[test]
fn the_status_tells_who_comes_next() {
    let scheduler = scheduler(1);
    let scans: Vec<EnrolledPhase> = (1..=3)
        .map(|query| enroll(&scheduler, query, SCAN, 4))
        .collect();
    let running = ready(&scans[0]);
    let mut waiting: Vec<_> = scans[1..].iter().map(EnrolledPhase::next).collect();
    assert!(waiting.iter_mut().all(|next| poll(next).is_pending()));
    let places: Vec<_> = scheduler
        .query_statuses()
        .into_iter()
        .map(|query| query.place_in_queue)
        .collect();
    assert_eq!(places, [None, Some(1), Some(2)]);
    let lane = &scheduler.status().lanes[0];
    assert_eq!(
        (
            lane.position,
            lane.queries,
            lane.running,
            lane.waiting,
            lane.reserved_threads
        ),
        (Some(0), 3, 1, 11, 1)
    );
    running.finish(PieceOutcome::Done);
    assert!(matches!(poll(&mut waiting[0]), Poll::Ready(Some(_))));
}

#[test]
fn a_held_query_keeps_its_counts_between_its_phases() {
    let scheduler = scheduler(1);
    let held = scheduler.hold_query(7, 0);
    for _ in 0..2 {
        let phase = enroll(&scheduler, 7, SCAN, 1);
        ready(&phase).finish(PieceOutcome::Done);
    }
    assert_eq!(held.status().unwrap().pieces.done, 2);
    drop(held);
    assert_eq!(scheduler.query_status(7), None);
}

#[test]
fn a_phase_without_pieces_is_over_at_once() {
    let scheduler = scheduler(1);
    let phase = enroll(&scheduler, 1, SCAN, 0);
    assert!(matches!(poll(&mut phase.next()), Poll::Ready(None)));
}
