//! The scheduler's decisions, without threads or waiting: events go in, pieces to start come out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use super::clock::ThreadClock;
use super::interactive::{Entry, InteractiveQueue, QueuedPiece};
use super::lane::{Lane, LaneKeys, NextPiece, PhaseRank};
use super::pieces::Pieces;
use super::turns::Turn;
use super::{
    Class, LaneChange, LaneTable, PhaseDemand, PhaseId, PieceCounts, SchedulerOptions, TurnId,
};

/// How many chunks a lane takes for decoded besides one for each thread.
const CHUNKS_KEPT: usize = 4;

/// An estimate beyond this counts as this, which no machine has: so that sums of estimates cannot overflow.
const MOST_BYTES: u64 = 1 << 44;

/// A piece that starts, or goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The phase that it belongs to.
    pub phase: PhaseId,
    /// Its turn, which must be finished, paused or given back.
    pub turn: TurnId,
    /// Its index among the pieces that the phase has enrolled with.
    pub piece: usize,
    /// Whether it was paused and goes on.
    pub resumed: bool,
    /// How many other phases of its lane have the same part of the same chunk before them.
    pub sharers: u32,
}

pub(super) struct Phase {
    pub(super) query: u64,
    /// The lane of a scan; an interactive phase has none.
    pub(super) lane: Option<usize>,
    rating: u8,
    pub(super) bytes_per_piece: u64,
    pub(super) pieces: Pieces,
    /// How many tasks wait for a piece.
    pub(super) asking: usize,
    pub(super) keys: LaneKeys,
    /// An interactive phase's pieces in the queue, at most one for each task that waits.
    queued: BTreeSet<Entry>,
    /// Its turns that are not over.
    pub(super) turns: usize,
    pub(super) counts: PieceCounts,
    /// Dropped or cancelled: it remains until its turns are over.
    pub(super) closed: bool,
}

impl Phase {
    pub(super) fn counts(&self) -> PieceCounts {
        PieceCounts {
            waiting: self.pieces.count() + self.queued.len(),
            ..self.counts
        }
    }

    /// Whether its lane should have it in its order.
    pub(super) fn should_wait(&self) -> bool {
        self.lane.is_some() && !self.closed && self.asking > 0 && self.pieces.count() > 0
    }

    fn ranked(&self, id: PhaseId, query: Option<&Query>, lane: usize) -> PhaseRank<'_> {
        PhaseRank {
            phase: id,
            user: query.map_or(0, |query| query.user),
            rating: self.rating,
            running: query.map_or(0, |query| query.lanes[lane].clock.running()),
            pieces: &self.pieces,
        }
    }

    fn is_exhausted(&self) -> bool {
        self.pieces.count() == 0 && self.queued.is_empty()
    }
}

/// What a query has of a lane.
#[derive(Clone, Copy, Default)]
pub(super) struct LaneUse {
    pub(super) clock: ThreadClock,
    /// Pieces started in the lane or brought along to it.
    pub(super) started: u64,
}

#[derive(Default)]
pub(super) struct Query {
    /// Whose it is, by number.
    pub(super) user: u64,
    pub(super) phases: BTreeSet<PhaseId>,
    /// How many hold the query's record, besides its phases.
    holders: usize,
    /// The fastest lane that it may use.
    pub(super) floor: usize,
    pub(super) lanes: Vec<LaneUse>,
    pub(super) total: ThreadClock,
    /// The pieces of phases that are gone.
    pub(super) past: PieceCounts,
    /// The slowest lane of these.
    pub(super) past_lane: Option<usize>,
    pub(super) lane_changes: Vec<LaneChange>,
}

/// Decides which piece starts next, by the rules in the module's documentation.
///
/// The caller reports events and the time of each, which must not go back, and then takes what starts from
/// [`start_pieces`](Self::start_pieces). Times are since the scheduler started.
pub struct LaneScheduler {
    pub(super) options: SchedulerOptions,
    pub(super) lanes: Vec<Lane>,
    pub(super) queue: InteractiveQueue,
    /// Interactive pieces that were paused and want to go on, by when they asked.
    pub(super) interactive_resuming: BTreeSet<(u64, TurnId)>,
    interactive_resumed_in_a_row: u32,
    pub(super) interactive_running: usize,
    pub(super) memory_used: u64,
    pub(super) phases: HashMap<PhaseId, Phase>,
    pub(super) turns: HashMap<TurnId, Turn>,
    pub(super) queries: BTreeMap<u64, Query>,
    last_id: u64,
    pub(super) next_review: Duration,
    /// How often a phase was given its place in a lane.
    pub(super) placements: u64,
}

impl LaneScheduler {
    /// A scheduler with nothing enrolled.
    pub fn new(mut options: SchedulerOptions) -> Self {
        options.threads = options.threads.max(1);
        options.interactive_threads = options.interactive_threads.max(1);
        let most_opened = options.threads + CHUNKS_KEPT;
        let lanes = options.lanes.lanes().iter();
        let lanes = lanes
            .map(|lane| Lane::new(lane.weight, most_opened))
            .collect();
        Self {
            options,
            lanes,
            queue: InteractiveQueue::default(),
            interactive_resuming: BTreeSet::new(),
            interactive_resumed_in_a_row: 0,
            interactive_running: 0,
            memory_used: 0,
            phases: HashMap::new(),
            turns: HashMap::new(),
            queries: BTreeMap::new(),
            last_id: 0,
            next_review: Duration::ZERO,
            placements: 0,
        }
    }

    /// Its lanes.
    pub fn lane_table(&self) -> &LaneTable {
        &self.options.lanes
    }

    pub(super) fn new_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Keeps the query's record (its lane, its counts, its lane changes) until it is released, also while it has no phases. The user
    /// whose query it is has a number, too; queries that nobody holds are those of user 0.
    pub fn hold_query(&mut self, query: u64, user: u64) {
        let record = self.query_mut(query);
        debug_assert!(
            record.phases.is_empty() || record.user == user,
            "a query changes its user"
        );
        record.holders += 1;
        record.user = user;
    }

    /// The opposite of [`hold_query`](Self::hold_query).
    pub fn release_query(&mut self, query: u64) {
        if let Some(record) = self.queries.get_mut(&query) {
            record.holders = record.holders.saturating_sub(1);
            self.forget_if_unused(query);
        }
    }

    fn query_mut(&mut self, query: u64) -> &mut Query {
        let lanes = self.lanes.len();
        self.queries.entry(query).or_insert_with(|| Query {
            lanes: vec![LaneUse::default(); lanes],
            ..Query::default()
        })
    }

    fn forget_if_unused(&mut self, query: u64) {
        if self
            .queries
            .get(&query)
            .is_some_and(|record| record.holders == 0 && record.phases.is_empty())
        {
            self.queries.remove(&query);
        }
    }

    /// A phase joins its lane at the lane's position.
    pub fn enroll(&mut self, demand: PhaseDemand) -> PhaseId {
        let id = PhaseId(self.new_id());
        let lane = match demand.class {
            Class::Interactive => None,
            Class::Scan { rating } => Some(
                self.options
                    .lanes
                    .lane_of(rating)
                    .max(self.query_mut(demand.query).floor),
            ),
        };
        let rating = match demand.class {
            Class::Interactive => 0,
            Class::Scan { rating } => rating,
        };
        self.query_mut(demand.query).phases.insert(id);
        let phase = Phase {
            query: demand.query,
            lane,
            rating,
            bytes_per_piece: demand.bytes_per_piece.min(MOST_BYTES),
            pieces: Pieces::new(demand.chunks),
            asking: 0,
            keys: LaneKeys::default(),
            queued: BTreeSet::new(),
            turns: 0,
            counts: PieceCounts::default(),
            closed: false,
        };
        self.join_lane(&phase);
        self.phases.insert(id, phase);
        id
    }

    /// The lane counts the phase's pieces, and turns to them if it has no others.
    pub(super) fn join_lane(&mut self, phase: &Phase) {
        let Some(lane) = phase.lane.map(|lane| &mut self.lanes[lane]) else {
            return;
        };
        if let Some(first) = phase.pieces.first() {
            if lane.waiting == 0 && !lane.is_busy() {
                lane.restart(phase.pieces.chunk_of(first));
            }
            lane.waiting += phase.pieces.count();
        }
    }

    /// A task waits for one piece of the phase.
    pub fn request(&mut self, id: PhaseId, now: Duration) {
        let Some(phase) = self.phases.get_mut(&id).filter(|phase| !phase.closed) else {
            return;
        };
        phase.asking += 1;
        match phase.lane {
            Some(lane) => {
                self.note_demand(lane, now);
                self.place(id);
            }
            None => self.queue_piece(id),
        }
    }

    /// A task no longer waits.
    pub fn withdraw(&mut self, id: PhaseId) {
        let Some(phase) = self.phases.get_mut(&id).filter(|phase| phase.asking > 0) else {
            return;
        };
        phase.asking -= 1;
        if phase.lane.is_some() {
            self.place(id);
        } else if phase.queued.len() > phase.asking
            && let Some(queued) = phase
                .queued
                .pop_last()
                .and_then(|entry| self.queue.remove(entry))
        {
            phase.pieces.put_back(queued.piece);
        }
    }

    pub(super) fn queue_piece(&mut self, id: PhaseId) {
        if let Some(phase) = self.phases.get_mut(&id)
            && phase.queued.len() < phase.asking
            && let Some(piece) = phase.pieces.first()
        {
            phase.pieces.take(piece);
            let chunk = phase.pieces.chunk_of(piece);
            phase.queued.insert(self.queue.push(QueuedPiece {
                phase: id,
                piece,
                chunk,
            }));
        }
    }

    /// The lane is about to have something to run: it has no claim to the time before.
    pub(super) fn note_demand(&mut self, lane: usize, now: Duration) {
        if !self.lanes[lane].is_busy() {
            let busy = self.lanes.iter().filter(|lane| lane.is_busy());
            if let Some(least) = busy.map(|lane| lane.virtual_time(now)).min() {
                self.lanes[lane].catch_up(least, now);
            }
        }
    }

    /// Gives the phase the place in its lane that it has now.
    pub(super) fn place(&mut self, id: PhaseId) {
        let Some(phase) = self.phases.get_mut(&id) else {
            return;
        };
        let Some(index) = phase.lane else {
            return;
        };
        self.placements += 1;
        let lane = &mut self.lanes[index];
        lane.unplace(std::mem::take(&mut phase.keys));
        if phase.asking > 0 && !phase.closed {
            let query = self.queries.get(&phase.query);
            phase.keys = lane.place(&phase.ranked(id, query, index));
        }
    }

    /// What a lane orders the phase by.
    pub(super) fn rank_of<'a>(&self, id: PhaseId, phase: &'a Phase, lane: usize) -> PhaseRank<'a> {
        phase.ranked(id, self.queries.get(&phase.query), lane)
    }

    /// Places the phases of a query anew that wait, as more or fewer of its pieces run.
    pub(super) fn place_query(&mut self, query: u64) {
        let phases = self.queries.get(&query).map(|query| &query.phases);
        let phases: Vec<PhaseId> = phases.into_iter().flatten().copied().collect();
        for phase in phases {
            if self
                .phases
                .get(&phase)
                .is_some_and(|phase| phase.keys.is_waiting())
            {
                self.place(phase);
            }
        }
    }

    /// What free threads start now. Each grant of a new piece satisfies one [`request`](Self::request) of its phase.
    pub fn start_pieces(&mut self, now: Duration) -> Vec<Grant> {
        self.review(now);
        let mut grants = Vec::new();
        while self.interactive_running < self.options.interactive_threads
            && let Some(grant) = self.start_interactive(now)
        {
            grants.push(grant);
        }
        while self.scans_running() < self.options.threads
            && let Some((lane, next)) = self.choose(now)
        {
            let granted = match next {
                NextPiece::Resume(turn) => self.start_again(turn, now),
                NextPiece::Start { phase, chunk } => self.start_scan(lane, phase, chunk, now),
                NextPiece::Outdated(_) => None,
            };
            debug_assert!(
                granted.is_some(),
                "a lane offered a piece that is not there"
            );
            match granted {
                Some(grant) => grants.push(grant),
                None => break,
            }
        }
        grants
    }

    fn start_interactive(&mut self, now: Duration) -> Option<Grant> {
        let resumed = self.interactive_resuming.first().map(|(_, turn)| *turn);
        let queued = self.queue.len() > 0;
        if let Some(turn) = resumed
            && (!queued || self.interactive_resumed_in_a_row < super::lane::RESUMES_IN_A_ROW)
        {
            self.interactive_resumed_in_a_row = self.interactive_resumed_in_a_row.saturating_add(1);
            return self.start_again(turn, now);
        }
        self.interactive_resumed_in_a_row = 0;
        let (entry, queued) = self.queue.pop()?;
        let phase = self.phases.get_mut(&queued.phase)?;
        phase.queued.remove(&entry);
        Some(self.begin_turn(queued.phase, queued.piece, now))
    }

    fn start_scan(&mut self, lane: usize, id: PhaseId, chunk: u32, now: Duration) -> Option<Grant> {
        let phase = self.phases.get_mut(&id)?;
        let piece = phase.pieces.first_of(chunk)?;
        phase.pieces.take(piece);
        let rank = phase.pieces.rank_in_chunk(piece);
        self.lanes[lane].waiting -= 1;
        let passed = self.lanes[lane].start(chunk);
        let sharers = self.sharers(lane, chunk, rank, id);
        let grant = Grant {
            sharers,
            ..self.begin_turn(id, piece, now)
        };
        // The phase itself waits no longer with the place that it had, whatever else its query does.
        self.place(id);
        for phase in passed {
            self.place(phase);
        }
        Some(grant)
    }

    /// How many phases of the lane, other than this one, have the piece of this place in a chunk before them; and how many are at it.
    fn sharers(&self, lane: usize, chunk: u32, rank: usize, but: PhaseId) -> u32 {
        let wants = |(id, phase): &(&PhaseId, &Phase)| {
            let first = || phase.pieces.first_of(chunk);
            **id != but
                && phase.lane == Some(lane)
                && first().is_some_and(|piece| phase.pieces.rank_in_chunk(piece) <= rank)
        };
        let reads = |turn: &&Turn| {
            let is_there = |phase: &Phase| {
                let pieces = &phase.pieces;
                phase.lane == Some(lane)
                    && pieces.chunk_of(turn.piece) == chunk
                    && pieces.rank_in_chunk(turn.piece) == rank
            };
            turn.phase != but && self.phases.get(&turn.phase).is_some_and(is_there)
        };
        let waiting = self.phases.iter().filter(wants).count();
        let running = self.turns.values().filter(reads).count();
        u32::try_from(waiting + running).unwrap_or(u32::MAX)
    }

    pub(super) fn set_ready(&mut self, lane: usize, chunk: u32) {
        for phase in self.lanes[lane].set_ready(chunk) {
            if self
                .phases
                .get(&phase)
                .is_some_and(|phase| phase.pieces.first_of(chunk).is_some())
            {
                self.place(phase);
            }
        }
    }

    /// None of the phase's pieces starts any more, and nobody waits for them. Its turns keep their threads until they end.
    pub fn close(&mut self, id: PhaseId) {
        let Some(phase) = self.phases.get_mut(&id).filter(|phase| !phase.closed) else {
            return;
        };
        phase.closed = true;
        phase.asking = 0;
        for entry in std::mem::take(&mut phase.queued) {
            self.queue.remove(entry);
        }
        phase
            .lane
            .inspect(|lane| self.lanes[*lane].waiting -= phase.pieces.count());
        phase.pieces.clear();
        self.place(id);
        self.remove_if_over(id);
    }

    /// A closed phase whose turns are over is no more.
    pub(super) fn remove_if_over(&mut self, id: PhaseId) {
        let Some(phase) = self
            .phases
            .get(&id)
            .filter(|phase| phase.closed && phase.turns == 0)
        else {
            return;
        };
        let (number, counts, lane) = (phase.query, phase.counts, phase.lane);
        self.phases.remove(&id);
        if let Some(query) = self.queries.get_mut(&number) {
            query.phases.remove(&id);
            query.past_lane = query.past_lane.max(lane);
            query.past.done += counts.done;
            query.past.failed += counts.failed;
        }
        self.forget_if_unused(number);
    }

    /// Whether no piece of the phase is left to start.
    pub fn is_exhausted(&self, id: PhaseId) -> bool {
        self.phases
            .get(&id)
            .is_none_or(|phase| phase.closed || phase.is_exhausted())
    }

    pub(super) fn bytes_per_piece(&self, phase: PhaseId) -> u64 {
        self.phases
            .get(&phase)
            .map_or(0, |phase| phase.bytes_per_piece)
    }

    pub(super) fn scans_running(&self) -> usize {
        self.lanes.iter().map(|lane| lane.clock.running()).sum()
    }
}
