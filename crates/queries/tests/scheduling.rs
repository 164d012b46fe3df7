//! The laws of the piece scheduler, on a machine with virtual time.
//!
//! Random loads are the same few hundred each time, or as many others as `PROPTEST_CASES` says:
//! `PROPTEST_CASES=10000 cargo test --test scheduling random`.

mod simulation;

use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use queries::scheduler::{
    Class, Grant, LaneOptions, LaneScheduler, LaneTable, PhaseDemand, PhaseId, PieceOutcome,
    SchedulerOptions, SlowReason,
};
use simulation::{Load, Simulation};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

const fn us(microseconds: u64) -> Duration {
    Duration::from_micros(microseconds)
}

fn options(threads: usize) -> SchedulerOptions {
    SchedulerOptions {
        threads,
        interactive_threads: 2,
        memory_bytes: 1 << 40,
        lanes: LaneTable::default(),
    }
}

fn time_of(threads: usize, loads: Vec<Load>) -> (Duration, usize) {
    let all = 0..loads.len();
    let mut simulation = Simulation::new(options(threads), loads);
    simulation.checks = false;
    simulation.run();
    assert!(
        simulation
            .outcomes
            .iter()
            .all(|outcome| outcome.starts.iter().all(|starts| *starts == 1))
    );
    (simulation.end_of(all), simulation.decodes)
}

#[test]
fn fifty_equal_scans_take_little_longer_than_one() {
    // Whether what is decoded is shared does not depend on how many users they are of.
    for users in [1, 50] {
        for threads in [1, 2, 8] {
            let scan = |query| Load {
                user: query % users,
                ..Load::scan(query, 400, ms(10), us(40))
            };
            let (one, decodes) = time_of(threads, vec![scan(0)]);
            assert_eq!(decodes, 400);
            let (fifty, decodes) = time_of(threads, (0..50).map(scan).collect());
            assert!(
                fifty <= one.mul_f64(1.3),
                "{threads} threads, {users} users: one takes {one:?}, fifty {fifty:?}"
            );
            assert!(
                decodes <= 480,
                "{threads} threads, {users} users: fifty scans of 400 chunks decode {decodes}"
            );
        }
    }
}

/// The thread time of each user while all of them want threads.
fn times_of_users(threads: usize, queries: &[u64], piece: Duration) -> Vec<Duration> {
    let mut loads = Vec::new();
    for (user, queries) in (0..).zip(queries) {
        for _ in 0..*queries {
            loads.push(Load {
                user,
                // Each reads something else: nobody's work helps another.
                table: loads.len() as u32,
                ..Load::scan(loads.len() as u64, 4500, ms(0), piece)
            });
        }
    }
    let users: Vec<u64> = loads.iter().map(|load| load.user).collect();
    let mut simulation = Simulation::new(options(threads), loads);
    simulation.checks = false;
    simulation.run_until(Duration::from_secs(10));
    let mut times = vec![Duration::ZERO; queries.len()];
    for (user, outcome) in users.into_iter().zip(&simulation.outcomes) {
        times[user as usize] += outcome.thread_time;
    }
    times
}

#[test]
fn a_user_with_fifty_scans_has_as_many_threads_as_one_with_one() {
    for threads in [1, 2, 3, 8] {
        for queries in [&[50, 1][..], &[50, 1, 1], &[7, 50, 3, 1]] {
            let times = times_of_users(threads, queries, ms(20));
            let fair = 10.0 * threads as f64 / queries.len() as f64;
            for (queries, time) in queries.iter().zip(&times) {
                let part = time.as_secs_f64() / fair;
                assert!(
                    (0.9..=1.1).contains(&part),
                    "{threads} threads: a user with {queries} queries has {part:.3} of a fair share: {times:?}"
                );
            }
        }
    }
}

/// Whoever cannot use what is theirs leaves it to the others.
#[test]
fn threads_that_a_user_does_not_want_go_to_the_others() {
    let scan = |query, user, tasks| Load {
        user,
        tasks,
        table: query as u32,
        ..Load::scan(query, 100_000, ms(0), ms(20))
    };
    let loads = vec![scan(0, 0, 1), scan(1, 1, 8), scan(2, 1, 8)];
    let mut simulation = Simulation::new(options(8), loads);
    simulation.run_until(Duration::from_secs(10));
    let times: Vec<f64> = { simulation.outcomes.iter() }
        .map(|outcome| outcome.thread_time.as_secs_f64())
        .collect();
    assert!((9.9..=10.1).contains(&times[0]), "{times:?}");
    assert!(times[1] + times[2] > 69.0, "{times:?}");
}

#[test]
fn scans_that_come_one_after_the_other_share_what_is_left_of_the_round() {
    let scan = |query| Load {
        arrives: ms(100 * query),
        ..Load::scan(query, 400, ms(10), us(40))
    };
    let (end, decodes) = time_of(2, (0..20).map(scan).collect());
    // The last comes after 1.9 s; the chunks that it has missed are decoded once more for all that have missed them.
    assert!(decodes <= 800, "{decodes} decodes");
    assert!(
        end <= ms(1900) + Load::scan(0, 400, ms(10), us(40)).decode * 400,
        "{end:?}"
    );
}

#[test]
fn no_lane_starves_with_fewer_threads_than_lanes() {
    let lanes = [(1, 2), (11, 5), (21, 20), (255, 60)];
    let load = |(query, (rating, time)): (usize, &(u8, u64))| Load {
        class: Class::Scan { rating: *rating },
        table: u32::from(*rating),
        ..Load::scan(query as u64, 100_000, ms(0), ms(*time))
    };
    for threads in [1, 2, 3] {
        let mut simulation = Simulation::new(
            options(threads),
            lanes.iter().enumerate().map(load).collect(),
        );
        simulation.checks = false;
        simulation.run_until(Duration::from_secs(30));
        for (weight, outcome) in [4.0, 3.0, 2.0, 1.0].into_iter().zip(&simulation.outcomes) {
            let part = outcome.thread_time.as_secs_f64() / (30.0 * threads as f64);
            assert!(
                part > weight / 10.0 * 0.8,
                "{threads} threads: the lane of weight {weight} has {part:.3} of the time"
            );
        }
    }
}

#[test]
fn a_slow_query_is_moved_out_and_holds_nobody_up() {
    let mut loads: Vec<Load> = (0..10)
        .map(|query| Load::scan(query, 2000, ms(20), ms(2)))
        .collect();
    let (alone, decodes) = time_of(8, loads.clone());
    loads.push(Load {
        table: 9,
        ..Load::scan(10, 2000, ms(20), Duration::from_secs(3))
    });
    let mut simulation = Simulation::new(options(8), loads);
    simulation.checks = false;
    simulation.run_until(Duration::from_secs(60));
    let beside = simulation.end_of(0..10);
    // The fast lane has 4 of 8 threads for certain beside a medium or slow one.
    assert!(
        beside <= alone * 2,
        "{alone:?} without the slow query, {beside:?} with it"
    );
    assert!(simulation.decodes <= decodes + decodes / 10 + simulation.outcomes[10].finished + 8);
    let changes = &simulation.outcomes[10].lane_changes;
    let lanes: Vec<(&str, &str)> = changes
        .iter()
        .map(|change| (change.from.as_str(), change.to.as_str()))
        .collect();
    assert_eq!(lanes, [("fast", "medium"), ("medium", "slow")]);
    assert!(matches!(changes[0].reason, SlowReason::MeanPieceTime { mean, .. } if mean > ms(500)));
    assert!(changes[0].at <= Duration::from_secs(10), "{changes:?}");
    assert!(
        changes[0]
            .reason
            .to_string()
            .contains("on average, more than 500.0ms"),
        "{}",
        changes[0].reason
    );
    assert!(
        simulation.outcomes[..10]
            .iter()
            .all(|outcome| outcome.lane_changes.is_empty())
    );
    let status = simulation
        .core
        .query_status(10, Duration::from_secs(60))
        .unwrap();
    assert_eq!(status.lane.as_deref(), Some("slow"));
}

/// Starts a piece of a scan in the fast lane.
fn one_piece_runs(core: &mut LaneScheduler, now: Duration) -> Grant {
    let class = Class::Scan { rating: 1 };
    let phase = core.enroll(PhaseDemand {
        query: 1,
        class,
        chunks: vec![0, 1, 2],
        bytes_per_piece: 1,
    });
    core.request(phase, now);
    core.start_pieces(now)[0]
}

/// A piece is told how many others of its lane have its chunk before them or under way.
#[test]
fn a_piece_knows_who_else_wants_its_chunk() {
    let mut core = LaneScheduler::new(options(2));
    let mut enroll = |query, rating, chunks: &[u32]| {
        let phase = core.enroll(PhaseDemand {
            query,
            class: Class::Scan { rating },
            chunks: chunks.to_vec(),
            bytes_per_piece: 1,
        });
        core.request(phase, Duration::ZERO);
        phase
    };
    // Three of the fast lane, of which the last has another chunk, and one of a slower lane.
    let first = enroll(1, 1, &[5, 6]);
    let second = enroll(2, 1, &[5]);
    enroll(3, 1, &[6, 7]);
    enroll(4, 35, &[5]);
    let now = Duration::ZERO;
    let grants = core.start_pieces(now);
    assert_eq!(grants.len(), 2);
    let fast: Vec<_> = (grants.iter())
        .filter(|grant| grant.phase == first)
        .map(|grant| (grant.piece, grant.sharers))
        .collect();
    assert_eq!(
        fast,
        [(0, 1)],
        "the second one waits for chunk 5: {grants:?}"
    );
    // The first one still runs when the second one comes to its chunk.
    let other = grants.iter().find(|grant| grant.phase != first).unwrap();
    core.finish(other.turn, PieceOutcome::Done, now);
    let mut later = Vec::new();
    for _ in 0..4 {
        let started = core.start_pieces(now);
        later.extend(started.iter().copied());
        for grant in started {
            core.finish(grant.turn, PieceOutcome::Done, now);
        }
    }
    let second = later.iter().find(|grant| grant.phase == second).unwrap();
    assert_eq!(second.sharers, 1, "{later:?}");
    core.assert_consistent();
}

/// A scan of a large chunk of three pieces and a small one, with as many tasks as pieces.
fn large_and_small(core: &mut LaneScheduler, query: u64) -> PhaseId {
    let phase = core.enroll(PhaseDemand {
        query,
        class: Class::Scan { rating: 1 },
        chunks: vec![5, 5, 5, 6],
        bytes_per_piece: 1,
    });
    (0..4).for_each(|_| core.request(phase, Duration::ZERO));
    phase
}

/// Queries go through the pieces of a large chunk together, so that the first of them decodes each for the others.
#[test]
fn a_large_chunk_is_read_piece_by_piece() {
    let mut core = LaneScheduler::new(options(1));
    let now = Duration::ZERO;
    let phases: Vec<_> = (0..3)
        .map(|query| large_and_small(&mut core, query))
        .collect();
    let mut seen = Vec::new();
    while let [grant] = core.start_pieces(now)[..] {
        seen.push((grant.piece, grant.sharers));
        core.finish(grant.turn, PieceOutcome::Done, now);
    }
    let of_piece = |piece| [(piece, 2), (piece, 1), (piece, 0)];
    assert_eq!(seen, (0..4).flat_map(of_piece).collect::<Vec<_>>());
    assert!(phases.iter().all(|phase| core.is_exhausted(*phase)));
}

/// The same where a chunk behind it, which is small, is decoded before the large one's first piece.
#[test]
fn a_large_chunk_is_read_piece_by_piece_beside_a_small_one() {
    let mut core = LaneScheduler::new(options(2));
    let now = Duration::ZERO;
    (0..4).for_each(|query| _ = large_and_small(&mut core, query));
    let first = core.start_pieces(now);
    assert_eq!([first[0].piece, first[1].piece], [0, 3]);
    // Two go through the small one while the large one is decoded.
    core.finish(first[1].turn, PieceOutcome::Done, now);
    let small = core.start_pieces(now)[0];
    assert_eq!((small.piece, small.phase == first[1].phase), (3, false));
    core.assert_consistent();
    core.finish(first[0].turn, PieceOutcome::Done, now);
    core.finish(small.turn, PieceOutcome::Done, now);
    core.assert_consistent();
    let mut seen = Vec::new();
    loop {
        let started = core.start_pieces(now);
        if started.is_empty() {
            break;
        }
        for grant in started {
            seen.push(grant.piece);
            core.finish(grant.turn, PieceOutcome::Done, now);
            core.assert_consistent();
        }
    }
    // The other three at the first piece, then all at each of the next; then who has not had the small one.
    let of_large = [0; 3].into_iter().chain([1; 4]).chain([2; 4]);
    assert_eq!(seen, of_large.chain([3; 2]).collect::<Vec<_>>());
}

#[test]
fn a_piece_that_does_not_end_is_judged_while_it_runs() {
    let mut core = LaneScheduler::new(options(4));
    core.hold_query(1, 0);
    let grant = one_piece_runs(&mut core, Duration::ZERO);
    let lane = |core: &LaneScheduler, now| core.query_status(1, now).unwrap().lane;
    // A query may take the time of eight pieces of 500 ms before it is judged.
    assert_eq!(core.start_pieces(ms(4000)), []);
    assert_eq!(lane(&core, ms(4000)).as_deref(), Some("fast"));
    assert_eq!(core.start_pieces(ms(5001)), []);
    assert_eq!(lane(&core, ms(5001)).as_deref(), Some("medium"));
    core.assert_consistent();
    // What it took in the fast lane does not count in the next: its sixteen seconds begin anew.
    assert_eq!(core.start_pieces(ms(21_000)), []);
    assert_eq!(lane(&core, ms(21_000)).as_deref(), Some("medium"));
    core.finish(grant.turn, PieceOutcome::Done, ms(21_500));
    assert_eq!(lane(&core, ms(21_500)).as_deref(), Some("slow"));
    core.close(grant.phase);
    // Its later phases do not begin in the lane that it was too slow for.
    one_piece_runs(&mut core, ms(21_500));
    let status = core.query_status(1, ms(21_500)).unwrap();
    assert_eq!(
        (
            status.lane.as_deref(),
            status.lane_changes.len(),
            status.pieces.running
        ),
        (Some("slow"), 2, 1)
    );
    assert_eq!(status.thread_time, ms(21_500));
    core.assert_consistent();
}

#[test]
fn a_query_that_takes_more_than_its_class_is_moved() {
    let lanes = [
        ("short", 1, Duration::from_secs(10)),
        ("long", 2, Duration::MAX),
    ];
    let lanes = lanes.map(|(name, rating_to, total_time)| LaneOptions {
        name: name.to_owned(),
        rating_to,
        weight: 1,
        mean_piece_time: Duration::MAX,
        total_time,
    });
    let lanes = LaneTable::new(lanes.to_vec()).unwrap();
    let mut simulation = Simulation::new(
        SchedulerOptions {
            lanes,
            ..options(2)
        },
        vec![Load::scan(1, 1000, ms(0), ms(100))],
    );
    simulation.run();
    // Two threads for ten seconds are twenty seconds of thread time.
    let changes = &simulation.outcomes[0].lane_changes;
    assert_eq!(changes.len(), 1);
    assert_eq!(
        (
            changes[0].from.as_str(),
            changes[0].to.as_str(),
            changes[0].at
        ),
        ("short", "long", ms(10_100))
    );
    assert!(
        matches!(changes[0].reason, SlowReason::TotalTime { used, bound } if used > bound && bound == ms(20_000))
    );
}

#[test]
fn interactive_pieces_never_wait_for_scans() {
    let mut loads: Vec<Load> = (0..50)
        .map(|query| Load::scan(query, 100, ms(100), ms(100)))
        .collect();
    loads.extend((0..200).map(|number| Load {
        class: Class::Interactive,
        arrives: ms(3 * number),
        chunks: vec![number as u32 % 7],
        table: 1,
        ..Load::scan(1000 + number, 1, ms(0), ms(5))
    }));
    // Little memory, too, is the scans' concern.
    let mut simulation = Simulation::new(
        SchedulerOptions {
            memory_bytes: 4,
            ..options(4)
        },
        loads,
    );
    simulation.run_until(Duration::from_secs(2));
    for outcome in &simulation.outcomes[50..] {
        assert_eq!(
            (outcome.finished, outcome.longest_wait),
            (1, Duration::ZERO)
        );
    }
}

#[test]
fn a_lane_whose_piece_is_larger_than_the_memory_goes_on_piece_by_piece() {
    let large = |query, rating| Load {
        class: Class::Scan { rating },
        bytes_per_piece: 1000,
        ..Load::scan(query, 20, ms(1), ms(1))
    };
    let mut simulation = Simulation::new(
        SchedulerOptions {
            memory_bytes: 10,
            ..options(8)
        },
        vec![large(0, 1), large(1, 255)],
    );
    simulation.run();
    assert_eq!(simulation.end_of([0, 1]), ms(40));
}

/// Two pieces that pause in turns always have one of them that wants to go on. A piece that has not started must come all the same.
#[test]
fn pieces_that_pause_again_and_again_starve_none_that_has_not_started() {
    let enroll = |core: &mut LaneScheduler, query, class| {
        core.enroll(PhaseDemand {
            query,
            class,
            chunks: vec![0, 1],
            bytes_per_piece: 1,
        })
    };
    for class in [Class::Scan { rating: 1 }, Class::Interactive] {
        let mut core = LaneScheduler::new(SchedulerOptions {
            interactive_threads: 1,
            ..options(1)
        });
        let (pausing, other) = (enroll(&mut core, 1, class), enroll(&mut core, 2, class));
        let mut turns = Vec::new();
        for _ in 0..2 {
            core.request(pausing, Duration::ZERO);
            turns.push(core.start_pieces(Duration::ZERO)[0].turn);
            core.pause(turns[turns.len() - 1], Duration::ZERO);
        }
        core.request_resume(turns[0], Duration::ZERO);
        core.request(other, Duration::ZERO);
        let mut resumes = 0;
        loop {
            let grant = core.start_pieces(Duration::ZERO)[0];
            if grant.phase == other {
                break;
            }
            assert!(grant.resumed);
            resumes += 1;
            assert!(resumes <= 3, "{class:?} starves");
            let paused = if grant.turn == turns[0] {
                turns[1]
            } else {
                turns[0]
            };
            core.request_resume(paused, Duration::ZERO);
            core.pause(grant.turn, Duration::ZERO);
        }
    }
}

/// What is in flight is a million pieces: their memory, and the work for each event.
#[test]
fn a_million_pieces_take_little_memory_and_work() {
    let mut core = LaneScheduler::new(options(8));
    let phases: Vec<_> = (0..125)
        .map(|query| {
            let class = Class::Scan {
                rating: (query % 4 * 10) as u8,
            };
            core.enroll(PhaseDemand {
                query,
                class,
                chunks: (0..8000).collect(),
                bytes_per_piece: 1,
            })
        })
        .collect();
    let mut now = Duration::ZERO;
    for phase in &phases {
        (0..2).for_each(|_| core.request(*phase, now));
    }
    assert!(core.cost().bytes <= 16 << 20, "{:?}", core.cost());
    let mut running = std::collections::VecDeque::new();
    let placed = core.cost().placements;
    let mut events = 0;
    while events < 40_000 {
        running.extend(core.start_pieces(now));
        now += us(100);
        // The youngest of a few, so that pieces end out of order.
        let grant = running.remove(events % 3).unwrap();
        core.finish(grant.turn, PieceOutcome::Done, now);
        core.request(grant.phase, now);
        events += 1;
    }
    let cost = core.cost();
    let for_each = (cost.placements - placed) / events as u64;
    assert!(for_each <= 12, "a piece takes {for_each} placements");
    assert!(cost.bytes <= 16 << 20, "{cost:?}");
    for phase in phases {
        core.close(phase);
    }
    for grant in running {
        core.finish(grant.turn, PieceOutcome::Failed, now);
    }
    core.assert_consistent();
    assert_eq!(core.query_statuses(now), []);
}

fn seed() -> RngSeed {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => RngSeed::Random,
        None => RngSeed::Fixed(23),
    }
}

fn cases() -> u32 {
    let given = std::env::var("PROPTEST_CASES").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(300)
}

prop_compose! {
    fn any_load()(
        query in 0_u64..8,
        class in prop_oneof![1 => Just(Class::Interactive), 4 => (0_u8..40).prop_map(|rating| Class::Scan { rating })],
        arrives in 0_u64..500,
        start in 0_u32..20,
        steps in prop::collection::vec(0_u32..3, 1..25),
        bytes_per_piece in 1_u64..5,
        tasks in 1_usize..6,
        table in 0_u32..2,
        decode in 0_u64..20,
        compute in prop_oneof![8 => 0_u64..10, 1 => 200_u64..3000],
        pauses_every in prop::option::of(1_usize..6),
        leaves_after in prop_oneof![3 => Just(None), 1 => (0_u64..1000).prop_map(Some)],
    ) -> Load {
        let chunks = steps.iter().scan(start, |chunk, step| { *chunk += step; Some(*chunk) }).collect();
        Load {
            query, user: 0, class, arrives: ms(arrives), chunks, bytes_per_piece, tasks, table, decode: ms(decode), compute: ms(compute),
            pauses_every, leaves_after: leaves_after.map(ms),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: seed(),
        ..ProptestConfig::with_cases(cases())
    })]

    /// The simulation itself checks each decision: nothing starts twice, no thread is free beside a piece that waits for one, no
    /// query waits for more than a round.
    #[test]
    fn random_loads_all_end(threads in 1_usize..9, interactive_threads in 1_usize..3, memory_bytes in prop_oneof![Just(6_u64), Just(1000)], users in 1_u64..4, loads in prop::collection::vec(any_load(), 1..11)) {
        let loads: Vec<Load> = { loads.into_iter() }.map(|load| Load { user: load.query % users, ..load }).collect();
        let options = SchedulerOptions { threads, interactive_threads, memory_bytes, lanes: LaneTable::default() };
        let mut simulation = Simulation::new(options, loads.clone());
        simulation.run();
        for (load, outcome) in loads.iter().zip(&simulation.outcomes) {
            prop_assert!(outcome.ended.is_some());
            prop_assert!(load.leaves_after.is_some() || outcome.starts.iter().all(|starts| *starts == 1));
        }
        let status = simulation.core.status();
        prop_assert_eq!(status.memory_used, 0);
        prop_assert!(status.lanes.iter().all(|lane| lane.queries + lane.waiting + lane.running + lane.paused + lane.reserved_threads == 0));
    }
}
