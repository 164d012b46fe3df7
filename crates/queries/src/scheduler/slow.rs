//! Queries that hold their lane up, and their move to a slower one.
//!
//! A query shares a lane well if its pieces take about as long as the lane's others do, and if it is over about as soon. Two
//! bounds of each lane say what that is. Both are compared with the query's own thread time in the lane, running pieces
//! included, so that neither waiting for others nor a loaded machine makes a query slow:
//!
//! - **Mean**: the query's thread time is more than `mean_piece_time` for each piece that it has started in the lane, counting
//!   at least [`FEWEST_PIECES`]. So a few costly pieces among cheap ones move nobody, one piece that never ends does.
//! - **Total**: its thread time is more than `total_time` of all threads.
//!
//! What a query takes is counted afresh in its new lane, so that it goes down one lane at a time and only if it is too slow there
//! too. It never goes up again: a query that alternated between two lanes would lose what it shares in both.

use std::time::Duration;

use super::core::LaneScheduler;
use super::turns::TurnState;
use super::{LaneChange, PhaseId, SlowReason, TurnId};

/// By how many pieces a query is judged at least.
pub(super) const FEWEST_PIECES: u64 = 8;

/// How often queries are judged whose pieces do not end.
const REVIEW_INTERVAL: Duration = Duration::from_secs(1);

impl LaneScheduler {
    /// Judges all queries, if that is due.
    pub(super) fn review(&mut self, now: Duration) {
        if now < self.next_review {
            return;
        }
        self.next_review = now + REVIEW_INTERVAL;
        let queries: Vec<u64> = self.queries.keys().copied().collect();
        for query in queries {
            self.review_query(query, now);
        }
    }

    /// Moves the query out of each lane that it is too slow for.
    pub(super) fn review_query(&mut self, query: u64, now: Duration) {
        for lane in 0..self.lanes.len() - 1 {
            if let Some(reason) = self.too_slow(query, lane, now) {
                self.move_query(query, lane, reason, now);
            }
        }
    }

    fn too_slow(&self, query: u64, lane: usize, now: Duration) -> Option<SlowReason> {
        let share = self.queries.get(&query)?.lanes[lane];
        let options = &self.options.lanes.lanes()[lane];
        if share.started == 0 {
            return None;
        }
        let used = share.clock.used_until(now);
        let pieces = u32::try_from(share.started.max(FEWEST_PIECES)).unwrap_or(u32::MAX);
        if used > options.mean_piece_time.saturating_mul(pieces) {
            let started = u32::try_from(share.started).unwrap_or(u32::MAX);
            return Some(SlowReason::MeanPieceTime {
                mean: used / started,
                bound: options.mean_piece_time,
            });
        }
        let threads = u32::try_from(self.options.threads).unwrap_or(u32::MAX);
        let bound = options.total_time.saturating_mul(threads);
        (used > bound).then_some(SlowReason::TotalTime { used, bound })
    }

    fn move_query(&mut self, number: u64, from: usize, reason: SlowReason, now: Duration) {
        let names = self.options.lanes.lanes();
        let change = LaneChange {
            at: now,
            from: names[from].name.clone(),
            to: names[from + 1].name.clone(),
            reason,
        };
        let Some(query) = self.queries.get_mut(&number) else {
            return;
        };
        query.lane_changes.push(change);
        query.floor = query.floor.max(from + 1);
        let floor = query.floor;
        let phases: Vec<PhaseId> = query.phases.iter().copied().collect();
        for &phase in &phases {
            let lane = self.phases.get(&phase).and_then(|phase| phase.lane);
            if let Some(lane) = lane.filter(|lane| *lane < floor) {
                self.move_phase(phase, lane, floor, now);
            }
        }
        // What it took in the lanes that it will not see again is no longer of interest.
        if let Some(query) = self.queries.get_mut(&number) {
            for share in &mut query.lanes[..floor] {
                debug_assert_eq!(share.clock.running(), 0, "a piece stayed behind");
                share.started = 0;
            }
        }
        for phase in phases {
            self.place(phase);
        }
    }

    /// The phase, its turns with it, goes to another lane and joins it at its position.
    fn move_phase(&mut self, id: PhaseId, from: usize, to: usize, now: Duration) {
        self.note_demand(to, now);
        // Out of the map, so that the lane that it joins does not count it yet.
        let Some(mut phase) = self.phases.remove(&id) else {
            return;
        };
        self.lanes[from].unplace(std::mem::take(&mut phase.keys));
        self.lanes[from].waiting -= phase.pieces.count();
        phase.lane = Some(to);
        self.join_lane(&phase);
        self.phases.insert(id, phase);
        let turns = self.turns.iter().filter(|(_, turn)| turn.phase == id);
        let turns: Vec<TurnId> = turns.map(|(turn, _)| *turn).collect();
        for turn in turns {
            self.move_turn(turn, from, to, now);
        }
    }

    fn move_turn(&mut self, id: TurnId, from: usize, to: usize, now: Duration) {
        let Some(turn) = self.turns.get_mut(&id) else {
            return;
        };
        let Some(phase) = self.phases.get(&turn.phase) else {
            return;
        };
        match &mut turn.state {
            TurnState::Running { since } => {
                // Its time so far is the old lane's, the rest the new one's.
                let started = std::mem::replace(since, now);
                let (query, chunk) = (phase.query, phase.pieces.chunk_of(turn.piece));
                self.stop_clocks(query, Some(from), started, now);
                self.start_clocks(query, Some(to), now);
                if let Some(query) = self.queries.get_mut(&query) {
                    query.lanes[to].started += 1;
                }
                // The old lane no longer waits for what it decodes.
                self.set_ready(from, chunk);
                return;
            }
            TurnState::Resuming(ticket) => {
                self.lanes[from].remove_resuming(*ticket, id);
                self.lanes[to].add_resuming(*ticket, id);
            }
            TurnState::Paused => {}
        }
        self.lanes[from].paused -= 1;
        self.lanes[to].paused += 1;
    }
}
