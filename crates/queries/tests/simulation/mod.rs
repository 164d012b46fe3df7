//! A machine with virtual time that runs made-up pieces as the scheduler says, and checks each decision.
#![allow(clippy::unwrap_used, reason = "a failure is a test's own message")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use queries::scheduler::{
    Class, Grant, LaneChange, LaneScheduler, PhaseDemand, PhaseId, PieceOutcome, SchedulerOptions,
    TurnId,
};

/// A phase that comes at some time.
#[derive(Debug, Clone)]
pub struct Load {
    pub query: u64,
    /// Whose query it is.
    pub user: u64,
    pub class: Class,
    pub arrives: Duration,
    pub chunks: Vec<u32>,
    pub bytes_per_piece: u64,
    /// How many tasks ask for pieces at once.
    pub tasks: usize,
    /// What it reads: loads with one table find decoded what another has decoded a short while ago.
    pub table: u32,
    pub decode: Duration,
    pub compute: Duration,
    /// A piece pauses half-way if its number is a multiple of this.
    pub pauses_every: Option<usize>,
    /// Its user leaves so long after it came.
    pub leaves_after: Option<Duration>,
}

impl Load {
    /// A scan of all chunks below a number with one piece each.
    pub fn scan(query: u64, chunks: u32, decode: Duration, compute: Duration) -> Self {
        Self {
            query,
            user: 0,
            class: Class::Scan { rating: 1 },
            arrives: Duration::ZERO,
            chunks: (0..chunks).collect(),
            bytes_per_piece: 1,
            tasks: 8,
            table: 0,
            decode,
            compute,
            pauses_every: None,
            leaves_after: None,
        }
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(usize),
    End(TurnId),
    Pause(TurnId),
    Resume(TurnId),
    Leave(usize),
}

/// What has become of a load.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// When it was over, by completion or because its user left.
    pub ended: Option<Duration>,
    /// How often each piece was started.
    pub starts: Vec<u32>,
    pub finished: usize,
    /// The longest time that a task waited for a piece.
    pub longest_wait: Duration,
    pub thread_time: Duration,
    pub lane_changes: Vec<LaneChange>,
}

struct PhaseQueue {
    phase: PhaseId,
    /// When the tasks that wait asked, oldest first.
    asked: VecDeque<Duration>,
    left: usize,
    is_open: bool,
}

/// A wait of a query for its first thread: the lane and the round in which it began.
type Wait = (String, u64);

pub struct Simulation {
    pub core: LaneScheduler,
    options: SchedulerOptions,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    sequence: u64,
    loads: Vec<Load>,
    enrolled: Vec<Option<PhaseQueue>>,
    pub outcomes: Vec<Outcome>,
    load_of: HashMap<PhaseId, usize>,
    /// Each turn's load, piece, and remaining time after a pause.
    turns: HashMap<TurnId, (usize, usize, Duration)>,
    waits: HashMap<u64, Wait>,
    /// What is decoded, oldest first, with the time from which it is.
    cache: VecDeque<((u32, u32), Duration)>,
    pub cached_chunks: usize,
    pub decodes: usize,
    /// Whether everything is checked after each event, which takes time in proportion to the number of phases.
    pub checks: bool,
}

impl Simulation {
    pub fn new(options: SchedulerOptions, loads: Vec<Load>) -> Self {
        let mut simulation = Self {
            core: LaneScheduler::new(options.clone()),
            cached_chunks: 2 * options.threads + 8,
            options,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            sequence: 0,
            enrolled: loads.iter().map(|_| None).collect(),
            outcomes: vec![Outcome::default(); loads.len()],
            loads,
            load_of: HashMap::new(),
            turns: HashMap::new(),
            waits: HashMap::new(),
            cache: VecDeque::new(),
            decodes: 0,
            checks: true,
        };
        for index in 0..simulation.loads.len() {
            let load = &simulation.loads[index];
            let (arrives, leaves) = (load.arrives, load.leaves_after);
            simulation.core.hold_query(load.query, load.user);
            simulation.schedule(arrives, Event::Arrive(index));
            if let Some(after) = leaves {
                simulation.schedule(arrives + after, Event::Leave(index));
            }
        }
        simulation
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Runs until everything is over or, if that is earlier, until a time.
    pub fn run_until(&mut self, end: Duration) {
        while let Some(Reverse((at, ..))) = self.events.peek()
            && *at <= end
            && let Some(Reverse((at, _, event))) = self.events.pop()
        {
            self.now = at;
            self.apply(event);
            if self.checks {
                self.note_waits();
            }
            for grant in self.core.start_pieces(self.now) {
                self.start(grant);
            }
            if self.checks {
                self.core.assert_consistent();
                self.assert_work_conserving();
            }
        }
        for (load, outcome) in self.loads.iter().zip(&mut self.outcomes) {
            let status = self.core.query_status(load.query, self.now).unwrap();
            outcome.lane_changes = status.lane_changes;
        }
    }

    pub fn run(&mut self) {
        self.run_until(Duration::MAX);
    }

    /// The time at which the last of these loads was over.
    pub fn end_of(&self, loads: impl IntoIterator<Item = usize>) -> Duration {
        let ends = loads
            .into_iter()
            .map(|load| self.outcomes[load].ended.expect("it is not over"));
        ends.max().unwrap()
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Arrive(index) => self.arrive(index),
            Event::End(turn) => self.end(turn),
            Event::Pause(turn) => {
                self.core.pause(turn, self.now);
                self.schedule(self.now + Duration::from_millis(7), Event::Resume(turn));
            }
            Event::Resume(turn) => self.core.request_resume(turn, self.now),
            Event::Leave(index) => self.leave(index),
        }
    }

    fn arrive(&mut self, index: usize) {
        let load = &self.loads[index];
        let phase = self.core.enroll(PhaseDemand {
            query: load.query,
            class: load.class,
            chunks: load.chunks.clone(),
            bytes_per_piece: load.bytes_per_piece,
        });
        self.load_of.insert(phase, index);
        self.outcomes[index].starts = vec![0; load.chunks.len()];
        let left = load.chunks.len();
        self.enrolled[index] = Some(PhaseQueue {
            phase,
            asked: VecDeque::new(),
            left,
            is_open: true,
        });
        for _ in 0..self.loads[index].tasks.min(left) {
            self.request(index);
        }
    }

    fn request(&mut self, index: usize) {
        let now = self.now;
        let enrolled = self.enrolled[index].as_mut().unwrap();
        if enrolled.is_open && enrolled.left > enrolled.asked.len() {
            enrolled.asked.push_back(now);
            self.core.request(enrolled.phase, now);
        }
    }

    fn leave(&mut self, index: usize) {
        let enrolled = self.enrolled[index].as_mut().unwrap();
        if enrolled.is_open {
            enrolled.is_open = false;
            enrolled.asked.clear();
            self.core.close(enrolled.phase);
            self.outcomes[index].ended.get_or_insert(self.now);
        }
    }

    fn end(&mut self, turn: TurnId) {
        let (index, ..) = self.turns.remove(&turn).unwrap();
        self.core.finish(turn, PieceOutcome::Done, self.now);
        self.outcomes[index].finished += 1;
        if self.outcomes[index].finished == self.loads[index].chunks.len() {
            self.leave(index);
        }
        self.request(index);
    }

    fn start(&mut self, grant: Grant) {
        let index = self.load_of[&grant.phase];
        if grant.resumed {
            let rest = self.turns[&grant.turn].2;
            return self.schedule(self.now + rest, Event::End(grant.turn));
        }
        let enrolled = self.enrolled[index].as_mut().unwrap();
        assert!(
            enrolled.is_open,
            "a piece of a phase that is closed was started"
        );
        let asked = enrolled
            .asked
            .pop_front()
            .expect("nobody asked for this piece");
        enrolled.left -= 1;
        let outcome = &mut self.outcomes[index];
        outcome.longest_wait = outcome.longest_wait.max(self.now - asked);
        outcome.starts[grant.piece] += 1;
        assert_eq!(outcome.starts[grant.piece], 1, "a piece was started twice");
        let time = self.time_of(index, grant.piece);
        self.outcomes[index].thread_time += time;
        self.check_wait(self.loads[index].query);
        if self.loads[index]
            .pauses_every
            .is_some_and(|every| grant.piece.is_multiple_of(every))
        {
            self.turns
                .insert(grant.turn, (index, grant.piece, time / 2));
            self.schedule(self.now + time / 2, Event::Pause(grant.turn));
        } else {
            self.turns
                .insert(grant.turn, (index, grant.piece, Duration::ZERO));
            self.schedule(self.now + time, Event::End(grant.turn));
        }
    }

    /// A piece decodes its chunk, or waits until another one has, or finds it decoded; then it computes.
    fn time_of(&mut self, index: usize, piece: usize) -> Duration {
        let load = &self.loads[index];
        let key = (load.table, load.chunks[piece]);
        let found = self.cache.iter().position(|(cached, _)| *cached == key);
        let ready = match found.and_then(|at| self.cache.remove(at)) {
            Some((_, ready)) => ready.max(self.now),
            None => {
                self.decodes += 1;
                self.now + load.decode
            }
        };
        self.cache.push_back((key, ready));
        if self.cache.len() > self.cached_chunks {
            self.cache.pop_front();
        }
        ready - self.now + load.compute
    }

    /// No thread is free while a piece could run in it.
    fn assert_work_conserving(&self) {
        let status = self.core.status();
        let asked = |lane: bool| {
            let loads = self.loads.iter().zip(&self.enrolled);
            let of_kind =
                loads.filter(move |(load, _)| matches!(load.class, Class::Scan { .. }) == lane);
            of_kind
                .filter_map(|(load, enrolled)| Some((load, enrolled.as_ref()?)))
                .filter(|(_, enrolled)| !enrolled.asked.is_empty())
        };
        if status.interactive.running < self.options.interactive_threads {
            assert_eq!(
                asked(false).count(),
                0,
                "an interactive piece waits beside a free thread"
            );
            assert_eq!(status.interactive.queued, 0);
        }
        let running: usize = status.lanes.iter().map(|lane| lane.running).sum();
        if running < self.options.threads {
            let most = asked(true)
                .map(|(load, _)| load.bytes_per_piece)
                .max()
                .unwrap_or(0);
            assert!(
                most == 0 || status.memory_used + most > status.memory_bytes,
                "a scan waits beside a free thread and free memory"
            );
            // Memory is short: a lane with nothing running may start one piece all the same.
            for (load, _) in asked(true) {
                let lane = &status.lanes[self.lane_of(load)];
                assert!(
                    lane.running > 0,
                    "lane {} waits for memory with nothing running",
                    lane.name
                );
            }
        }
    }

    /// The lane of a scan: that of its rating, or the one that its query was moved to.
    fn lane_of(&self, load: &Load) -> usize {
        let Class::Scan { rating } = load.class else {
            panic!("an interactive phase has no lane");
        };
        let query = self.core.query_status(load.query, self.now).unwrap();
        let moved = query.lane_changes.last().map(|change| &change.to);
        let lanes = self.options.lanes.lanes();
        let floor = lanes.iter().position(|lane| Some(&lane.name) == moved);
        self.options.lanes.lane_of(rating).max(floor.unwrap_or(0))
    }

    /// Notes in which round the queries that have nothing running begin to wait.
    fn note_waits(&mut self) {
        let lanes = self.core.status().lanes;
        for query in self.core.query_statuses(self.now) {
            let asks = self
                .loads
                .iter()
                .zip(&self.enrolled)
                .any(|(load, enrolled)| {
                    // Interactive pieces of the same query wait elsewhere.
                    load.query == query.query
                        && matches!(load.class, Class::Scan { .. })
                        && enrolled
                            .as_ref()
                            .is_some_and(|enrolled| !enrolled.asked.is_empty())
                });
            let lane = query.lane.filter(|_| asks && query.pieces.running == 0);
            let Some(lane) = lane.and_then(|name| lanes.iter().find(|lane| lane.name == name))
            else {
                self.waits.remove(&query.query);
                continue;
            };
            let wait = self
                .waits
                .entry(query.query)
                .or_insert_with(|| (lane.name.clone(), lane.round));
            if wait.0 != lane.name {
                *wait = (lane.name.clone(), lane.round);
            }
            let of = |number: u64| self.loads.iter().find(|load| load.query == number);
            let user = of(query.query).map(|load| load.user);
            let is_alone = self.loads.iter().all(|load| Some(load.user) == user);
            assert!(
                lane.round <= wait.1 + 2 || !is_alone,
                "query {} waits while its lane goes round twice",
                query.query
            );
        }
    }

    fn check_wait(&mut self, query: u64) {
        self.waits.remove(&query);
    }
}
