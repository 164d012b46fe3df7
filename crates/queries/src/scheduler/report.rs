//! What the scheduler tells of its state. This goes over all phases: it is for people and metrics, not for decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::core::{LaneScheduler, Phase, Query};
use super::{
    InteractiveStatus, LaneStatus, PieceCounts, QueryStatus, SchedulerCost, SchedulerStatus,
};

impl LaneScheduler {
    /// The lanes and the memory.
    pub fn status(&self) -> SchedulerStatus {
        let quotas = self.quotas();
        let lanes = self
            .lanes
            .iter()
            .zip(self.options.lanes.lanes())
            .enumerate();
        let lane_status =
            |(index, (lane, options)): (usize, (&super::lane::Lane, &super::LaneOptions))| {
                let phases = self
                    .phases
                    .values()
                    .filter(|phase| phase.lane == Some(index));
                let queries: BTreeSet<u64> = phases.map(|phase| phase.query).collect();
                LaneStatus {
                    name: options.name.clone(),
                    position: lane.position().map(|place| place.chunk),
                    round: lane.position().map_or(0, |place| place.round),
                    queries: queries.len(),
                    waiting: lane.waiting,
                    running: lane.clock.running(),
                    paused: lane.paused,
                    reserved_threads: quotas[index],
                }
            };
        SchedulerStatus {
            lanes: lanes.map(lane_status).collect(),
            interactive: InteractiveStatus {
                queued: self.queue.len() + self.interactive_resuming.len(),
                running: self.interactive_running,
                threads: self.options.interactive_threads,
            },
            threads: self.options.threads,
            memory_used: self.memory_used,
            memory_bytes: self.options.memory_bytes,
        }
    }

    /// One query, if it has phases or its record is held.
    pub fn query_status(&self, query: u64, now: Duration) -> Option<QueryStatus> {
        self.queries
            .get(&query)
            .map(|record| self.describe(query, record, now))
    }

    /// All queries that have phases or whose records are held, by number.
    pub fn query_statuses(&self, now: Duration) -> Vec<QueryStatus> {
        self.queries
            .iter()
            .map(|(number, query)| self.describe(*number, query, now))
            .collect()
    }

    fn describe(&self, number: u64, query: &Query, now: Duration) -> QueryStatus {
        let phases = || {
            query
                .phases
                .iter()
                .filter_map(|phase| self.phases.get(phase))
        };
        let mut pieces = query.past;
        for counts in phases().map(Phase::counts) {
            pieces = PieceCounts {
                waiting: pieces.waiting + counts.waiting,
                running: pieces.running + counts.running,
                paused: pieces.paused + counts.paused,
                done: pieces.done + counts.done,
                failed: pieces.failed + counts.failed,
            };
        }
        let lane = phases().filter_map(|phase| phase.lane).max();
        let waits = pieces.running == 0 && pieces.waiting > 0;
        QueryStatus {
            query: number,
            lane: lane
                .max(query.past_lane)
                .map(|lane| self.options.lanes.lanes()[lane].name.clone()),
            pieces,
            thread_time: query.total.used_until(now),
            place_in_queue: waits.then(|| self.place_in_queue(number, lane)).flatten(),
            lane_changes: query.lane_changes.clone(),
        }
    }

    fn place_in_queue(&self, number: u64, lane: Option<usize>) -> Option<usize> {
        let mut queries: Vec<u64> = match lane {
            Some(lane) => self.waiting_queries(lane),
            None => self
                .queue
                .iter()
                .filter_map(|queued| Some(self.phases.get(&queued.phase)?.query))
                .collect(),
        };
        let mut seen = BTreeSet::new();
        queries.retain(|query| seen.insert(*query));
        queries
            .iter()
            .position(|query| *query == number)
            .map(|before| before + 1)
    }

    /// The queries whose tasks wait in the lane, by when they get a thread as far as that is known.
    fn waiting_queries(&self, lane: usize) -> Vec<u64> {
        let phases = self
            .phases
            .iter()
            .filter(|(_, phase)| phase.lane == Some(lane) && phase.keys.is_waiting());
        let order: BTreeMap<_, u64> = phases
            .map(|(id, phase)| ((phase.keys.rank(), *id), phase.query))
            .collect();
        order.into_values().collect()
    }

    /// What scheduling itself takes.
    pub fn cost(&self) -> SchedulerCost {
        let phases = self
            .phases
            .values()
            .map(|phase| size_of::<Phase>() + phase.pieces.bytes());
        SchedulerCost {
            bytes: phases.sum(),
            placements: self.placements,
        }
    }

    /// Panics if what is counted twice is not the same. Tests call this after each event; it goes over everything.
    pub fn assert_consistent(&self) {
        let options = &self.options;
        assert!(
            self.scans_running() <= options.threads,
            "more scans run than threads are there"
        );
        assert!(
            self.interactive_running <= options.interactive_threads,
            "more interactive pieces run than threads are there"
        );
        for (index, lane) in self.lanes.iter().enumerate() {
            let phases = || {
                self.phases
                    .values()
                    .filter(|phase| phase.lane == Some(index))
            };
            let sum = |count: fn(PieceCounts) -> usize| {
                phases().map(|phase| count(phase.counts())).sum::<usize>()
            };
            assert_eq!(
                lane.waiting,
                sum(|counts| counts.waiting),
                "waiting pieces of lane {index}"
            );
            assert_eq!(
                lane.clock.running(),
                sum(|counts| counts.running),
                "running pieces of lane {index}"
            );
            assert_eq!(
                lane.paused,
                sum(|counts| counts.paused),
                "paused pieces of lane {index}"
            );
            let shares = self
                .queries
                .values()
                .map(|query| query.lanes[index].clock.running());
            assert_eq!(
                lane.clock.running(),
                shares.sum::<usize>(),
                "shares of lane {index}"
            );
            let users: BTreeSet<u64> = self.queries.values().map(|query| query.user).collect();
            let of_users = users.into_iter().map(|user| lane.running_of(user));
            assert_eq!(
                lane.clock.running(),
                of_users.sum::<usize>(),
                "users' shares of lane {index}"
            );
            let waits = phases().any(|phase| phase.keys.is_waiting());
            assert!(lane.has_demand() || !waits, "lane {index} has lost a phase");
        }
        let interactive = self.phases.values().filter(|phase| phase.lane.is_none());
        assert_eq!(
            self.interactive_running,
            interactive
                .map(|phase| phase.counts().running)
                .sum::<usize>()
        );
        assert_eq!(
            self.memory_used,
            self.memory_of_turns(),
            "memory of started pieces"
        );
        for (id, phase) in &self.phases {
            assert!(
                self.queries.contains_key(&phase.query),
                "query {} is forgotten too early",
                phase.query
            );
            if let Some(lane) = phase.lane.filter(|_| phase.keys.is_waiting()) {
                assert!(
                    self.lanes[lane].is_up_to_date(&phase.keys, &self.rank_of(*id, phase, lane)),
                    "query {} has the place in lane {lane} that it had before",
                    phase.query
                );
            }
            assert_eq!(
                phase.keys.is_waiting(),
                phase.should_wait(),
                "a phase that waits has a place in its lane"
            );
        }
    }
}
