//! Turns: what a started piece holds, from its start to its end, through its pauses.

use std::time::Duration;

use super::core::{Grant, LaneScheduler, Phase};
use super::{PhaseId, PieceOutcome, TurnId};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnState {
    Running {
        since: Duration,
    },
    Paused,
    /// Wants to go on; with the number by which those are ordered.
    Resuming(u64),
}

pub(super) struct Turn {
    pub(super) phase: PhaseId,
    pub(super) piece: usize,
    pub(super) state: TurnState,
}

impl LaneScheduler {
    /// A paused turn wants to go on.
    pub fn request_resume(&mut self, id: TurnId, now: Duration) {
        let ticket = self.new_id();
        let Some(turn) = self
            .turns
            .get_mut(&id)
            .filter(|turn| turn.state == TurnState::Paused)
        else {
            return;
        };
        turn.state = TurnState::Resuming(ticket);
        match self.phases[&turn.phase].lane {
            Some(lane) => {
                self.note_demand(lane, now);
                self.lanes[lane].add_resuming(ticket, id);
            }
            None => _ = self.interactive_resuming.insert((ticket, id)),
        }
    }

    pub(super) fn begin_turn(&mut self, id: PhaseId, piece: usize, now: Duration) -> Grant {
        let turn = TurnId(self.new_id());
        self.turns.insert(
            turn,
            Turn {
                phase: id,
                piece,
                state: TurnState::Paused,
            },
        );
        if let Some(phase) = self.phases.get_mut(&id) {
            debug_assert!(phase.asking > 0, "nobody asked for this piece");
            phase.asking = phase.asking.saturating_sub(1);
            phase.turns += 1;
            self.memory_used += phase.bytes_per_piece;
            if let (Some(lane), Some(query)) = (phase.lane, self.queries.get_mut(&phase.query)) {
                query.lanes[lane].started += 1;
            }
        }
        self.occupy_thread(turn, now);
        Grant {
            phase: id,
            turn,
            piece,
            resumed: false,
            sharers: 0,
        }
    }

    pub(super) fn start_again(&mut self, id: TurnId, now: Duration) -> Option<Grant> {
        let turn = self.turns.get(&id)?;
        let (phase, piece, state) = (turn.phase, turn.piece, turn.state);
        let TurnState::Resuming(ticket) = state else {
            return None;
        };
        let counted = self.phases.get_mut(&phase)?;
        counted.counts.paused -= 1;
        match counted.lane {
            Some(lane) => {
                self.lanes[lane].paused -= 1;
                self.lanes[lane].resume(ticket, id);
            }
            None => _ = self.interactive_resuming.remove(&(ticket, id)),
        }
        self.occupy_thread(id, now);
        Some(Grant {
            phase,
            turn: id,
            piece,
            resumed: true,
            sharers: 0,
        })
    }

    fn occupy_thread(&mut self, id: TurnId, now: Duration) {
        let Some(turn) = self.turns.get_mut(&id) else {
            return;
        };
        turn.state = TurnState::Running { since: now };
        let Some(phase) = self.phases.get_mut(&turn.phase) else {
            return;
        };
        phase.counts.running += 1;
        let (query, lane) = (phase.query, phase.lane);
        self.start_clocks(query, lane, now);
        self.place_query(query);
    }

    pub(super) fn start_clocks(&mut self, query: u64, lane: Option<usize>, now: Duration) {
        let user = self.user_of(query);
        match lane {
            Some(lane) => self.lanes[lane].start_clock(user, now),
            None => self.interactive_running += 1,
        }
        if let Some(query) = self.queries.get_mut(&query) {
            query.total.start(now);
            lane.inspect(|lane| query.lanes[*lane].clock.start(now));
        }
    }

    pub(super) fn user_of(&self, query: u64) -> u64 {
        self.queries.get(&query).map_or(0, |query| query.user)
    }

    pub(super) fn stop_clocks(
        &mut self,
        query: u64,
        lane: Option<usize>,
        since: Duration,
        now: Duration,
    ) {
        let user = self.user_of(query);
        match lane {
            Some(lane) => self.lanes[lane].stop_clock(user, since, now),
            None => self.interactive_running -= 1,
        }
        if let Some(query) = self.queries.get_mut(&query) {
            query.total.stop(since, now);
            lane.inspect(|lane| query.lanes[*lane].clock.stop(since, now));
        }
    }

    /// A running turn's thread is free.
    fn vacate_thread(&mut self, id: TurnId, since: Duration, now: Duration) {
        let Some(turn) = self.turns.get(&id) else {
            return;
        };
        let (piece, id) = (turn.piece, turn.phase);
        let Some(phase) = self.phases.get_mut(&id) else {
            return;
        };
        phase.counts.running -= 1;
        let (query, lane, chunk) = (phase.query, phase.lane, phase.pieces.chunk_of(piece));
        self.stop_clocks(query, lane, since, now);
        if let Some(lane) = lane {
            self.set_ready(lane, chunk);
        }
        self.place_query(query);
    }

    /// The piece of a turn has ended, whether the turn runs or is paused.
    pub fn finish(&mut self, id: TurnId, outcome: PieceOutcome, now: Duration) {
        self.end_turn(id, now, |phase, _| match outcome {
            PieceOutcome::Done => phase.counts.done += 1,
            PieceOutcome::Failed => phase.counts.failed += 1,
        });
    }

    /// Nobody has taken the turn: its piece is as if it had not started.
    pub fn give_back(&mut self, id: TurnId, now: Duration) {
        let ended = self.end_turn(id, now, |phase, piece| {
            if phase.closed {
                phase.counts.failed += 1;
            } else {
                phase.pieces.put_back(piece);
            }
        });
        let Some((id, piece)) = ended else {
            return;
        };
        let Some(phase) = self.phases.get(&id).filter(|phase| !phase.closed) else {
            return;
        };
        match phase.lane {
            Some(lane) => {
                let chunk = phase.pieces.chunk_of(piece);
                if self.lanes[lane].waiting == 0 && !self.lanes[lane].is_busy() {
                    self.lanes[lane].restart(chunk);
                }
                self.lanes[lane].waiting += 1;
                self.note_demand(lane, now);
                self.place(id);
            }
            None => self.queue_piece(id),
        }
    }

    fn end_turn(
        &mut self,
        id: TurnId,
        now: Duration,
        count: impl FnOnce(&mut Phase, usize),
    ) -> Option<(PhaseId, usize)> {
        let turn = self.turns.get(&id)?;
        let (phase_id, piece) = (turn.phase, turn.piece);
        match turn.state {
            TurnState::Running { since } => self.vacate_thread(id, since, now),
            state => self.leave_pause(phase_id, id, state),
        }
        self.turns.remove(&id);
        let phase = self.phases.get_mut(&phase_id)?;
        phase.turns -= 1;
        self.memory_used -= phase.bytes_per_piece;
        count(phase, piece);
        let query = phase.query;
        self.remove_if_over(phase_id);
        self.review_query(query, now);
        Some((phase_id, piece))
    }

    fn leave_pause(&mut self, phase: PhaseId, id: TurnId, state: TurnState) {
        let Some(phase) = self.phases.get_mut(&phase) else {
            return;
        };
        phase.counts.paused -= 1;
        phase.lane.inspect(|lane| self.lanes[*lane].paused -= 1);
        if let TurnState::Resuming(ticket) = state {
            match phase.lane {
                Some(lane) => self.lanes[lane].remove_resuming(ticket, id),
                None => _ = self.interactive_resuming.remove(&(ticket, id)),
            }
        }
    }

    /// The turn gives its thread up; its piece keeps its memory.
    pub fn pause(&mut self, id: TurnId, now: Duration) {
        let Some(&Turn {
            phase,
            state: TurnState::Running { since },
            ..
        }) = self.turns.get(&id)
        else {
            return;
        };
        self.vacate_thread(id, since, now);
        if let Some(turn) = self.turns.get_mut(&id) {
            turn.state = TurnState::Paused;
        }
        if let Some(phase) = self.phases.get_mut(&phase) {
            phase.counts.paused += 1;
            phase.lane.inspect(|lane| self.lanes[*lane].paused += 1);
            let query = phase.query;
            self.review_query(query, now);
        }
    }

    /// The memory of all turns, counted anew.
    pub(super) fn memory_of_turns(&self) -> u64 {
        self.turns
            .values()
            .map(|turn| self.bytes_per_piece(turn.phase))
            .sum()
    }
}
