//! How many partners left rows have, and whether they have any.
//!
//! Partners that are surely within the radius are counted by where they end in a zone; only those at the edge of
//! the circle are looked at.

use std::ops::Range;

use super::chords::{LANES, squared_chord, tally};
use super::windows::{Probe, Run, Runs};
use super::{NeighbourIndex, Positions, Radii, Radius, Search};

/// How many blocks are listed at a time, without asking how many there are.
const LISTED: usize = 4;

/// What it takes to count the partners of a left row: made once for all of them.
#[derive(Debug, Default)]
struct Counter {
    runs: Runs,
    blocks: BlockList,
}

/// The blocks whose places are to be tested, of all runs: one long loop over them instead of many short ones, the ends of
/// which no processor could foresee.
#[derive(Debug, Default)]
struct BlockList {
    /// The first `len` are listed; at least [`LISTED`] follow.
    blocks: Vec<u32>,
    len: usize,
}

impl BlockList {
    /// Lists what is to be tested of the runs.
    fn list(&mut self, runs: &[Run]) {
        self.len = 0;
        for run in runs {
            let blocks = (run.end - run.start) / LANES;
            if self.blocks.len() < self.len + blocks + 2 * LISTED {
                self.blocks.resize(2 * (self.len + blocks + LISTED), 0);
            }
            for edge in run.edges() {
                self.push(edge.start / LANES, edge.len() / LANES);
            }
        }
    }

    /// Lists `count` blocks from the first on. For few of them there is no branch.
    #[inline]
    fn push(&mut self, mut first: usize, mut count: usize) {
        loop {
            let room = &mut self.blocks[self.len..self.len + LISTED];
            for (place, block) in room.iter_mut().zip(first as u32..) {
                *place = block;
            }
            if count <= LISTED {
                self.len += count;
                return;
            }
            self.len += LISTED;
            first += LISTED;
            count -= LISTED;
        }
    }

    fn listed(&self) -> &[u32] {
        &self.blocks[..self.len]
    }
}

impl NeighbourIndex {
    /// How many pairs the rows of the index make with each other within the radius: in either order, and each row with itself
    /// (leave out [`Self::len`] for those, if the radius admits 0). Most pairs are looked for
    /// once, not from both ends as in a search with the same rows on its left.
    ///
    /// The count is the sum of those of disjoint parts of [`Self::parts`], so that the work can be divided.
    pub fn count_own_pairs(&self, radius: Radius, part: Range<usize>) -> u64 {
        let nothing = Positions::from_degrees(&[], &[]);
        let search = Search::new(self, nothing, Radii::common(radius));
        let mut counter = Counter::default();
        let places = part.start..part.end.min(self.parts().end);
        places
            .map(|place| search.count_from(place, &mut counter))
            .sum()
    }
}

impl Search<'_> {
    /// Puts into `counts` (replacing what it held) how many partners each of the left rows has.
    pub fn counts(&self, rows: impl IntoIterator<Item = u32>, counts: &mut Vec<u64>) {
        let mut counter = Counter::default();
        counts.clear();
        counts.extend(rows.into_iter().map(|row| self.count_of(row, &mut counter)));
    }

    /// How many pairs the left rows have: the sum of [`Self::counts`].
    pub fn count(&self, rows: impl IntoIterator<Item = u32>) -> u64 {
        let mut counter = Counter::default();
        rows.into_iter()
            .map(|row| self.count_of(row, &mut counter))
            .sum()
    }

    /// Puts into `any` (replacing what it held) whether each of the left rows has a partner.
    pub fn any(&self, rows: impl IntoIterator<Item = u32>, any: &mut Vec<bool>) {
        let mut counter = Counter::default();
        any.clear();
        any.extend(
            rows.into_iter()
                .map(|row| self.has_partner(row, &mut counter)),
        );
    }

    fn count_of(&self, row: u32, counter: &mut Counter) -> u64 {
        let Some(probe) = self.probe(row) else {
            return 0;
        };
        counter.runs.find(self.index, &probe);
        self.count_in(&probe, &counter.runs.runs, &mut counter.blocks)
    }

    /// The ordered pairs of a place of the index with those of its own zone, and twice those with the zones north of it, whose
    /// own pairs with this zone are then not counted.
    fn count_from(&self, place: usize, counter: &mut Counter) -> u64 {
        let (Some(position), Some(limits)) = (self.index.position(place), self.common) else {
            return 0;
        };
        let probe = Probe::with_vector(position, self.index.vector(place), limits);
        let zone = self.index.layout.zone(position.north);
        let runs = &mut counter.runs;
        runs.find_from(self.index, &probe, zone);
        let end = self.index.places_of(zone).end;
        let in_zone = runs.runs.partition_point(|run| run.start < end);
        let (own, north) = runs.runs.split_at(in_zone);
        let count = self.count_in(&probe, own, &mut counter.blocks);
        count + 2 * self.count_in(&probe, north, &mut counter.blocks)
    }

    /// How many partners are in the runs.
    #[inline]
    fn count_in(&self, probe: &Probe, runs: &[Run], blocks: &mut BlockList) -> u64 {
        let surely: usize = runs.iter().map(|run| run.inner.len()).sum();
        blocks.list(runs);
        surely as u64 + self.count_tested(probe, blocks.listed())
    }

    /// How many places of the blocks are those of partners.
    #[inline]
    fn count_tested(&self, probe: &Probe, blocks: &[u32]) -> u64 {
        let tally = tally(self.index.blocks(), blocks, probe.vector, &probe.limits);
        if tally.in_doubt {
            return self.count_asked(probe, blocks);
        }
        tally.near
    }

    /// The same where some are in doubt.
    #[cold]
    fn count_asked(&self, probe: &Probe, blocks: &[u32]) -> u64 {
        let mut count = 0;
        for block in blocks {
            for lane in 0..LANES {
                count += u64::from(self.is_partner(probe, *block as usize, lane));
            }
        }
        count
    }

    /// Whether a lane of a block is the place of a partner.
    fn is_partner(&self, probe: &Probe, block: usize, lane: usize) -> bool {
        let squared = squared_chord(&self.index.blocks()[block], lane, probe.vector);
        squared < probe.limits.surely
            || (squared <= probe.limits.possibly && self.is_pair(probe, LANES * block + lane))
    }

    fn has_partner(&self, row: u32, counter: &mut Counter) -> bool {
        /// How many blocks are tested before one asks whether there was a partner.
        const AT_A_TIME: usize = 16;
        let Some(probe) = self.probe(row) else {
            return false;
        };
        counter.runs.find(self.index, &probe);
        let runs = &counter.runs.runs;
        if runs.iter().any(|run| !run.inner.is_empty()) {
            return true;
        }
        counter.blocks.list(runs);
        let mut some = counter.blocks.listed().chunks(AT_A_TIME);
        some.any(|blocks| self.count_tested(&probe, blocks) > 0)
    }
}
