//! The pairs themselves, a buffer full at a time.

use std::ops::Range;

use super::Search;
use super::chords::{LANES, squared_chords};
use super::windows::{Probe, Runs};
use crate::separation::separations_from;

/// How many places are tested at a time.
const AT_A_TIME: usize = 64;

/// Room for the squared chords of so many places, and of those in the same blocks.
type ChordBuffer = [[f64; LANES]; AT_A_TIME / LANES + 1];

/// Where a [`PairCursor`] puts pairs: as many as it has room for.
#[derive(Debug)]
pub struct PairBuffer {
    /// As long as there is room; the first `len` entries are pairs. The same for the columns below.
    left: Vec<u32>,
    right: Vec<u32>,
    separations: Option<Vec<f64>>,
    len: usize,
}

impl PairBuffer {
    /// A buffer for so many pairs (at least one), without their separations: 8 bytes a pair.
    pub fn new(capacity: usize) -> Self {
        Self {
            left: vec![0; capacity.max(1)],
            right: vec![0; capacity.max(1)],
            separations: None,
            len: 0,
        }
    }

    /// The same with their separations: 16 bytes a pair, and the time to compute them.
    pub fn with_separations(capacity: usize) -> Self {
        Self {
            separations: Some(vec![0.0; capacity.max(1)]),
            ..Self::new(capacity)
        }
    }

    /// How many pairs there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no pair.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The left row of each pair.
    pub fn left(&self) -> &[u32] {
        &self.left[..self.len]
    }

    /// The right row of each pair.
    pub fn right(&self) -> &[u32] {
        &self.right[..self.len]
    }

    /// The separation of each pair in degrees, which [`crate::separation_degrees`] gives to the last bit; empty unless
    /// requested.
    pub fn separations(&self) -> &[f64] {
        self.separations
            .as_ref()
            .map_or(&[], |separations| &separations[..self.len])
    }

    /// The columns themselves: left rows, right rows, and separations if requested.
    pub fn into_columns(mut self) -> (Vec<u32>, Vec<u32>, Option<Vec<f64>>) {
        self.left.truncate(self.len);
        self.right.truncate(self.len);
        if let Some(separations) = &mut self.separations {
            separations.truncate(self.len);
        }
        (self.left, self.right, self.separations)
    }

    fn room(&self) -> usize {
        self.left.len() - self.len
    }
}

/// Goes through the pairs of some left rows, one row after the other in the order given, the partners of each in any order.
#[derive(Debug)]
pub struct PairCursor<'a, I> {
    search: Search<'a>,
    rows: I,
    runs: Runs,
    /// The left row at hand.
    probe: Option<Probe>,
    /// The squared chords of the places at hand: here, so that they are not cleared each time.
    buffer: ChordBuffer,
    /// The next of `runs`, and the next place in it.
    run: usize,
    place: usize,
}

/// Places of one run, all of them partners or all to be tested.
struct Stretch {
    places: Range<usize>,
    surely: bool,
}

impl<'a> Search<'a> {
    /// A cursor over the pairs of the left rows.
    pub fn pairs<I>(&self, rows: I) -> PairCursor<'a, I::IntoIter>
    where
        I: IntoIterator<Item = u32>,
    {
        PairCursor {
            search: *self,
            rows: rows.into_iter(),
            runs: Runs::default(),
            probe: None,
            buffer: ChordBuffer::default(),
            run: 0,
            place: 0,
        }
    }

    /// Puts the partners among the places into the buffer, which has room for all of them.
    #[inline]
    fn put_partners(
        &self,
        probe: &Probe,
        stretch: &Stretch,
        buffer: &mut ChordBuffer,
        out: &mut PairBuffer,
    ) {
        let (first, places) = (out.len, &stretch.places);
        if out.separations.is_some() {
            self.put_with_separations(probe, places.clone(), buffer, out);
        } else if stretch.surely {
            let end = first + places.len();
            out.right[first..end].copy_from_slice(self.index.rows(places.clone()));
            out.len = end;
        } else {
            let mut start = places.start;
            while start < places.end {
                let end = places.end.min(start + AT_A_TIME);
                self.put_tested(probe, start..end, buffer, out);
                start = end;
            }
        }
        out.left[first..out.len].fill(probe.row);
    }

    /// Puts the right rows of partners into the buffer, at most [`AT_A_TIME`].
    #[inline]
    fn put_tested(
        &self,
        probe: &Probe,
        places: Range<usize>,
        buffer: &mut ChordBuffer,
        out: &mut PairBuffer,
    ) {
        let squared = self.squared_chords(probe, &places, buffer);
        let limits = &probe.limits;
        let rows = self.index.rows(places.clone());
        let room = &mut out.right[out.len..out.len + places.len()];
        let (mut found, mut in_doubt) = (0, false);
        // Written always and kept at times: without a branch that nobody could foresee.
        for at in 0..rows.len() {
            room[found] = rows[at];
            let possibly = squared[at] <= limits.possibly;
            found += usize::from(possibly);
            in_doubt |= possibly & (squared[at] >= limits.surely);
        }
        if in_doubt {
            found = 0;
            for at in 0..rows.len() {
                room[found] = rows[at];
                let is_pair = squared[at] < limits.surely
                    || (squared[at] <= limits.possibly && self.is_pair(probe, places.start + at));
                found += usize::from(is_pair);
            }
        }
        out.len += found;
    }

    /// The squared chords of places, at most [`AT_A_TIME`], from whichever on.
    #[inline]
    fn squared_chords<'b>(
        &self,
        probe: &Probe,
        places: &Range<usize>,
        buffer: &'b mut ChordBuffer,
    ) -> &'b [f64] {
        squared_chords(self.index.blocks_of(places), probe.vector, buffer);
        let first = places.start % LANES;
        &buffer.as_flattened()[first..first + places.len()]
    }

    /// Puts right rows and separations of partners into the buffer. The separation decides, where the chord does not.
    fn put_with_separations(
        &self,
        probe: &Probe,
        places: Range<usize>,
        buffer: &mut ChordBuffer,
        out: &mut PairBuffer,
    ) {
        let Some(separations) = &mut out.separations else {
            return;
        };
        let mut computed = [0.0; AT_A_TIME];
        let mut start = places.start;
        while start < places.end {
            let some = start..places.end.min(start + AT_A_TIME);
            start = some.end;
            let squared = self.squared_chords(probe, &some, buffer);
            if squared.iter().all(|chord| *chord > probe.limits.possibly) {
                continue;
            }
            let computed = &mut computed[..some.len()];
            let (ras, decs) = self.index.columns(some.clone());
            separations_from(probe.place.ra, probe.place.dec, ras, decs, computed);
            let rows = self.index.rows(some);
            // Written always and kept at times: without a branch that nobody could foresee.
            let room = out.len..out.len + rows.len();
            let (right, kept) = (&mut out.right[room.clone()], &mut separations[room]);
            let mut found = 0;
            for at in 0..rows.len() {
                (right[found], kept[found]) = (rows[at], computed[at]);
                found += usize::from(probe.limits.radius.admits(computed[at]));
            }
            out.len += found;
        }
    }
}

impl<I: Iterator<Item = u32>> PairCursor<'_, I> {
    /// Puts the next pairs into the buffer (replacing what it held) until it is full or all left rows are done. Returns
    /// whether there may be more.
    pub fn fill(&mut self, out: &mut PairBuffer) -> bool {
        out.len = 0;
        while out.room() > 0 {
            let Some(probe) = self.probe.or_else(|| self.next_probe()) else {
                return false;
            };
            match self.next_stretch(out.room()) {
                Some(stretch) => {
                    let buffer = &mut self.buffer;
                    self.search.put_partners(&probe, &stretch, buffer, out);
                }
                None => self.probe = None,
            }
        }
        true
    }

    /// The next left row that can have partners, with its runs.
    fn next_probe(&mut self) -> Option<Probe> {
        let probe = self.rows.find_map(|row| self.search.probe(row))?;
        self.runs.find(self.search.index, &probe);
        self.run = 0;
        self.place = self.runs.runs.first().map_or(0, |run| run.start);
        self.probe = Some(probe);
        Some(probe)
    }

    /// The next places of the left row, at most so many.
    #[inline]
    fn next_stretch(&mut self, most: usize) -> Option<Stretch> {
        let mut run = self.runs.runs.get(self.run)?;
        while self.place == run.end {
            self.run += 1;
            run = self.runs.runs.get(self.run)?;
            self.place = run.start;
        }
        let surely = run.inner.contains(&self.place);
        let end = if surely {
            run.inner.end
        } else if self.place < run.inner.start {
            run.inner.start
        } else {
            run.end
        };
        let places = self.place..end.min(self.place + most);
        self.place = places.end;
        Some(Stretch { places, surely })
    }
}
