//! A lane: the way of several scans over the chunks, and whose piece comes next.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use super::clock::ThreadClock;
use super::pieces::Pieces;
use super::{PhaseId, TurnId};

/// How many pieces that are resumed may follow each other while another piece waits to be started.
pub(super) const RESUMES_IN_A_ROW: u32 = 3;

/// A chunk on the way of a lane, which goes over the chunks round after round. Places are ordered along the way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The round.
    pub round: u64,
    /// The chunk's number.
    pub chunk: u32,
}

/// A chunk that the lane has opened and that is presumably still decoded.
struct OpenedChunk {
    chunk: u32,
    /// Counts the chunks that the lane has opened.
    number: u64,
    /// Whether a piece of it has ended, so that what the next one reads is decoded.
    ready: bool,
}

/// Orders pieces of opened chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct OpenedKey {
    running: usize,
    in_flight: bool,
    number: u64,
    /// The place of the piece among those of its chunk.
    rank: usize,
    rating: Reverse<u8>,
    phase: PhaseId,
}

/// Orders pieces of chunks that are to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct AheadKey {
    place: Place,
    running: usize,
    rating: Reverse<u8>,
    phase: PhaseId,
}

/// Beyond so many users a lane forgets those who have nothing in it.
const MOST_USERS: usize = 1024;

/// What a user has of a lane, and wants.
#[derive(Default)]
struct UserShare {
    running: usize,
    /// Pieces started or resumed, and what the user was given for the time without any.
    starts: u64,
    opened: BTreeSet<OpenedKey>,
    /// Invariant: no place is before the lane's `from`.
    ahead: BTreeSet<AheadKey>,
}

impl UserShare {
    fn waits(&self) -> bool {
        !(self.opened.is_empty() && self.ahead.is_empty())
    }

    fn is_busy(&self) -> bool {
        self.running > 0 || self.waits()
    }
}

/// Where a phase is in the order of its lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LaneKeys {
    user: u64,
    opened: Option<OpenedKey>,
    ahead: Option<AheadKey>,
}

impl LaneKeys {
    /// Whether the phase waits in the lane's order.
    pub(super) fn is_waiting(&self) -> bool {
        self.opened.is_some() || self.ahead.is_some()
    }

    /// Orders the phases of a lane by when they get a thread, as far as that is known.
    pub(super) fn rank(&self) -> impl Ord + use<> {
        let opened = self.opened.map(|key| (key.running, key.number));
        let ahead = self.ahead.map(|key| (key.running, key.place));
        (opened.is_none(), opened, ahead)
    }
}

/// What of a phase its lane orders it by.
pub(super) struct PhaseRank<'a> {
    pub(super) phase: PhaseId,
    pub(super) user: u64,
    pub(super) rating: u8,
    /// How many pieces of its query run in this lane.
    pub(super) running: usize,
    pub(super) pieces: &'a Pieces,
}

/// What a lane does with a free thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NextPiece {
    Resume(TurnId),
    Start {
        phase: PhaseId,
        chunk: u32,
    },
    /// This phase's keys speak of a chunk that is no longer opened: place it anew, then ask again.
    Outdated(PhaseId),
}

/// See the rules in the module's documentation.
pub(super) struct Lane {
    pub(super) weight: u32,
    pub(super) clock: ThreadClock,
    /// Added to the lane's virtual time, so that it has no claim to the time in which it had nothing to run. In ns.
    handicap: u128,
    /// Pieces of its phases that are not started.
    pub(super) waiting: usize,
    pub(super) paused: usize,
    /// Where the lane's way goes on: the first place that it can open.
    from: Place,
    /// The place that it has opened last.
    position: Option<Place>,
    /// Oldest first. Invariant: every chunk is there once; more than `most_opened` are there only if none is ready.
    window: VecDeque<OpenedChunk>,
    most_opened: usize,
    opened_so_far: u64,
    /// By the users' numbers.
    users: BTreeMap<u64, UserShare>,
    /// Paused pieces that want to go on, by when they asked.
    resuming: BTreeSet<(u64, TurnId)>,
    resumed_in_a_row: u32,
}

impl Lane {
    pub(super) fn new(weight: u32, most_opened: usize) -> Self {
        Self {
            weight: weight.max(1),
            clock: ThreadClock::default(),
            handicap: 0,
            waiting: 0,
            paused: 0,
            from: Place::default(),
            position: None,
            window: VecDeque::new(),
            most_opened,
            opened_so_far: 0,
            users: BTreeMap::new(),
            resuming: BTreeSet::new(),
            resumed_in_a_row: 0,
        }
    }

    pub(super) fn position(&self) -> Option<Place> {
        self.position
    }

    /// Whether a piece runs, or a free thread would find one.
    pub(super) fn is_busy(&self) -> bool {
        self.clock.running() > 0 || self.has_demand()
    }

    pub(super) fn has_demand(&self) -> bool {
        !self.resuming.is_empty() || self.users.values().any(UserShare::waits)
    }

    /// A piece of the user gets a thread.
    pub(super) fn start_clock(&mut self, user: u64, now: Duration) {
        self.clock.start(now);
        if self.users.len() >= MOST_USERS {
            self.users.retain(|_, share| share.is_busy());
        }
        let share = self.users.entry(user).or_default();
        share.running += 1;
        share.starts += 1;
    }

    /// A piece of the user gives up the thread that it has had since then.
    pub(super) fn stop_clock(&mut self, user: u64, since: Duration, now: Duration) {
        self.clock.stop(since, now);
        if let Some(share) = self.users.get_mut(&user) {
            debug_assert!(share.running > 0, "more pieces stop than started");
            share.running = share.running.saturating_sub(1);
        }
    }

    /// How many pieces of a user run.
    pub(super) fn running_of(&self, user: u64) -> usize {
        self.users.get(&user).map_or(0, |share| share.running)
    }

    /// How many starts of users count as equally many: about those that the chunks of the window are good for, so that users who read the
    /// same chunks stay together.
    fn equal_starts(&self) -> u64 {
        2 * self.most_opened as u64
    }

    /// A user who had nothing here has no claim to the time in which others had.
    fn catch_up_user(&mut self, user: u64) {
        let busy = self.users.values().filter(|share| share.is_busy());
        let least = busy.map(|share| share.starts).min().unwrap_or(0);
        let least = least.saturating_sub(self.equal_starts());
        let share = self.users.entry(user).or_default();
        if !share.is_busy() {
            share.starts = share.starts.max(least);
        }
    }

    /// The users of whom one gets the next free thread: those with the fewest pieces running, and of these those with the fewest starts.
    fn next_users(&self) -> impl Iterator<Item = &UserShare> + Clone {
        let equal = self.equal_starts();
        let order = move |share: &UserShare| (share.running, share.starts / equal);
        let waiting = self.users.values().filter(|share| share.waits());
        let first = waiting.clone().map(order).min();
        waiting.filter(move |share| Some(order(share)) == first)
    }

    /// The thread time that the lane has taken, by its weight, in ns.
    pub(super) fn virtual_time(&self, now: Duration) -> u128 {
        self.clock.nanos_until(now) / u128::from(self.weight) + self.handicap
    }

    /// Raises the virtual time to at least this.
    pub(super) fn catch_up(&mut self, virtual_time: u128, now: Duration) {
        self.handicap += virtual_time.saturating_sub(self.virtual_time(now));
    }

    /// No phase has a piece left: the lane's way goes on at this chunk, in a new round.
    pub(super) fn restart(&mut self, chunk: u32) {
        debug_assert!(!self.has_demand() && self.clock.running() == 0);
        self.window.clear();
        let round = self.position.map_or(0, |position| position.round + 1);
        self.from = Place { round, chunk };
    }

    /// Where the phase comes in the lane's order. It is not there yet.
    pub(super) fn place(&mut self, ranked: &PhaseRank) -> LaneKeys {
        let keys = LaneKeys {
            user: ranked.user,
            opened: self.opened_key(ranked),
            ahead: self.ahead_key(ranked),
        };
        self.catch_up_user(ranked.user);
        let share = self.users.entry(ranked.user).or_default();
        share.opened.extend(keys.opened);
        share.ahead.extend(keys.ahead);
        debug_assert!(keys.is_waiting() || ranked.pieces.count() == 0);
        keys
    }

    pub(super) fn unplace(&mut self, keys: LaneKeys) {
        if let Some(share) = self.users.get_mut(&keys.user) {
            keys.opened.inspect(|key| _ = share.opened.remove(key));
            keys.ahead.inspect(|key| _ = share.ahead.remove(key));
        }
    }

    /// The oldest ready chunk with a piece of the phase, or else the oldest one in flight.
    fn opened_key(&self, ranked: &PhaseRank) -> Option<OpenedKey> {
        let mut found: Option<&OpenedChunk> = None;
        for opened in &self.window {
            let is_better = found.is_none() || opened.ready;
            if is_better && ranked.pieces.first_of(opened.chunk).is_some() {
                found = Some(opened);
                if opened.ready {
                    break;
                }
            }
        }
        let found = found?;
        let piece = ranked.pieces.first_of(found.chunk)?;
        Some(OpenedKey {
            rank: ranked.pieces.rank_in_chunk(piece),
            running: ranked.running,
            in_flight: !found.ready,
            number: found.number,
            rating: Reverse(ranked.rating),
            phase: ranked.phase,
        })
    }

    /// The first place of the lane's further way that is not opened and has a piece of the phase.
    fn ahead_key(&self, ranked: &PhaseRank) -> Option<AheadKey> {
        let pieces = ranked.pieces;
        let unopened = |mut next: Option<usize>| {
            while let Some(piece) = next {
                let chunk = pieces.chunk_of(piece);
                if !self.is_opened(chunk) {
                    return Some(chunk);
                }
                next = pieces.first_after(chunk);
            }
            None
        };
        let Place { round, chunk } = self.from;
        let place = match unopened(pieces.first_at_or_after(chunk)) {
            Some(chunk) => Place { round, chunk },
            // All from there on are opened, so what is found now is before it.
            None => Place {
                round: round + 1,
                chunk: unopened(pieces.first())?,
            },
        };
        Some(AheadKey {
            place,
            running: ranked.running,
            rating: Reverse(ranked.rating),
            phase: ranked.phase,
        })
    }

    fn is_opened(&self, chunk: u32) -> bool {
        self.window.iter().any(|opened| opened.chunk == chunk)
    }

    /// What a free thread does here.
    pub(super) fn next(&self) -> Option<NextPiece> {
        let resumed = self
            .resuming
            .first()
            .map(|(_, turn)| NextPiece::Resume(*turn));
        if resumed.is_some() && self.resumed_in_a_row < RESUMES_IN_A_ROW {
            return resumed;
        }
        self.next_start().or(resumed)
    }

    /// The paused piece that goes on next.
    pub(super) fn next_resumed(&self) -> Option<NextPiece> {
        self.resuming
            .first()
            .map(|(_, turn)| NextPiece::Resume(*turn))
    }

    /// Of the query of the next users with the fewest pieces running: a piece of a ready chunk, else of the chunk that is opened next, else of one
    /// in flight.
    fn next_start(&self) -> Option<NextPiece> {
        let users = self.next_users();
        let opened = users.clone().filter_map(|user| user.opened.first()).min();
        let ahead = users.filter_map(|user| user.ahead.first()).min();
        let opens = match (opened, ahead) {
            // In flight comes after being opened, ready before.
            (Some(opened), Some(ahead)) if opened.in_flight => ahead.running <= opened.running,
            (Some(opened), Some(ahead)) => ahead.running < opened.running,
            (opened, _) => opened.is_none(),
        };
        if opens {
            return ahead.map(|key| NextPiece::Start {
                phase: key.phase,
                chunk: key.place.chunk,
            });
        }
        opened.map(
            |key| match self.window.iter().find(|chunk| chunk.number == key.number) {
                Some(found) => NextPiece::Start {
                    phase: key.phase,
                    chunk: found.chunk,
                },
                None => NextPiece::Outdated(key.phase),
            },
        )
    }

    /// A piece of the chunk starts. The phases that are returned waited to open it: place them anew.
    pub(super) fn start(&mut self, chunk: u32) -> Vec<PhaseId> {
        self.resumed_in_a_row = 0;
        if self.is_opened(chunk) {
            return Vec::new();
        }
        let round = self.from.round + u64::from(chunk < self.from.chunk);
        let place = Place { round, chunk };
        debug_assert!(self.position < Some(place), "a lane goes forward alone");
        self.position = Some(place);
        self.from = match chunk.checked_add(1) {
            Some(chunk) => Place { round, chunk },
            None => Place {
                round: round + 1,
                chunk: 0,
            },
        };
        self.open(chunk);
        let of_user = |share: &UserShare| -> Vec<PhaseId> {
            let passed = share.ahead.iter().take_while(|key| key.place <= place);
            passed.map(|key| key.phase).collect()
        };
        self.users.values().flat_map(of_user).collect()
    }

    fn open(&mut self, chunk: u32) {
        self.opened_so_far += 1;
        self.window.push_back(OpenedChunk {
            chunk,
            number: self.opened_so_far,
            ready: false,
        });
        if self.window.len() > self.most_opened
            && let Some(oldest) = self.window.iter().position(|opened| opened.ready)
        {
            self.window.remove(oldest);
        }
    }

    /// A piece of the chunk has ended or paused. If that makes the chunk ready, the phases that are returned have no older one ready so
    /// far: place those anew that have a piece of it.
    pub(super) fn set_ready(&mut self, chunk: u32) -> Vec<PhaseId> {
        let found = self
            .window
            .iter_mut()
            .find(|opened| opened.chunk == chunk && !opened.ready);
        let Some(found) = found else {
            return Vec::new();
        };
        found.ready = true;
        let number = found.number;
        let opened = self.users.values().flat_map(|share| &share.opened);
        let older = opened.filter(|key| !key.in_flight && key.number < number);
        let older: HashSet<PhaseId> = older.map(|key| key.phase).collect();
        let mut others: Vec<PhaseId> = self
            .waiting_phases()
            .filter(|phase| !older.contains(phase))
            .collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// The phases in the lane's order, some of them twice.
    fn waiting_phases(&self) -> impl Iterator<Item = PhaseId> {
        let of_user = |share: &UserShare| {
            let opened = share.opened.iter().map(|key| key.phase);
            let ahead = share.ahead.iter().map(|key| key.phase);
            opened.chain(ahead).collect::<Vec<_>>()
        };
        self.users.values().flat_map(of_user)
    }

    /// Whether keys are those that the phase would be given now; but a phase may still be at a chunk that has left the window.
    pub(super) fn is_up_to_date(&self, keys: &LaneKeys, ranked: &PhaseRank) -> bool {
        let is_outdated = |key: &OpenedKey| {
            let mut window = self.window.iter();
            !window.any(|opened| opened.number == key.number)
        };
        keys.opened.as_ref().is_some_and(is_outdated)
            || (keys.opened == self.opened_key(ranked) && keys.ahead == self.ahead_key(ranked))
    }

    pub(super) fn add_resuming(&mut self, ticket: u64, turn: TurnId) {
        self.resuming.insert((ticket, turn));
    }

    pub(super) fn remove_resuming(&mut self, ticket: u64, turn: TurnId) {
        self.resuming.remove(&(ticket, turn));
    }

    /// A paused piece goes on.
    pub(super) fn resume(&mut self, ticket: u64, turn: TurnId) {
        self.resuming.remove(&(ticket, turn));
        self.resumed_in_a_row = self.resumed_in_a_row.saturating_add(1);
    }
}
