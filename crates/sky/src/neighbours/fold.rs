//! All partners of left rows in slices, to compute with at the speed of memory.

use std::ops::Range;

use super::Search;
use super::chords::{LANES, SquaredChords, squared_chords};
use super::windows::{Probe, Runs};

/// Partners in one slice at most.
const SLICE: usize = 256;

/// How many places are tested at a time.
const AT_A_TIME: usize = 64;

/// Some of the partners of a left row.
#[derive(Debug, Clone, Copy)]
pub struct Partners<'a> {
    /// The left row.
    pub left: u32,
    /// The right rows, at least one, in any order.
    pub right: &'a [u32],
    squared_chords: SquaredChords<'a>,
}

impl Partners<'_> {
    /// Puts the separations from the left row, in degrees, into `out` (replacing what it held).
    ///
    /// They come from the squared chords of unit vectors, whose separations are within 13 · 2⁻⁵² radians (6e-10 arcseconds) of
    /// the truth as long as they are below 90 degrees, and within 3e-8 radians near the antipode, where the chord says
    /// least. They are not to the last bit those of [`crate::separation_degrees`], which is right to the last few bits at
    /// every distance; [`super::PairBuffer::separations`] are.
    pub fn separations(&self, out: &mut Vec<f64>) {
        self.squared_chords.separations(out);
    }

    /// The sum of [`Self::separations`], in degrees, added up in any order.
    pub fn sum_of_separations(&self) -> f64 {
        self.squared_chords.sum_of_separations()
    }
}

/// Partners of one left row that are found one by one, gathered to make slices worth a call.
struct PartnerBatch {
    right: [u32; SLICE],
    squared_chords: [f64; SLICE],
    len: usize,
    /// The squared chords of the places at hand: here, so that they are not cleared each time.
    buffer: [[f64; LANES]; SLICE / LANES],
}

impl Search<'_> {
    /// Calls `f` with all partners of each of the left rows, in slices: one row after the other, its partners in any order.
    ///
    /// A row without a partner has no slice.
    pub fn for_each_run(
        &self,
        rows: impl IntoIterator<Item = u32>,
        mut f: impl FnMut(Partners<'_>),
    ) {
        let mut runs = Runs::default();
        let mut gathered = PartnerBatch {
            right: [0; SLICE],
            squared_chords: [0.0; SLICE],
            len: 0,
            buffer: [[0.0; LANES]; SLICE / LANES],
        };
        for probe in rows.into_iter().filter_map(|row| self.probe(row)) {
            runs.find(self.index, &probe);
            for run in &runs.runs {
                self.fold_inner(&probe, run.inner.clone(), &mut gathered.buffer, &mut f);
                for edge in run.edges() {
                    self.gather(&probe, edge, &mut gathered, &mut f);
                }
            }
            gathered.flush(&probe, &mut f);
        }
    }

    /// Hands on places that are partners, all of them.
    #[inline]
    fn fold_inner(
        &self,
        probe: &Probe,
        places: Range<usize>,
        buffer: &mut [[f64; LANES]],
        f: &mut impl FnMut(Partners<'_>),
    ) {
        let mut start = places.start;
        while start < places.end {
            let some = start..places.end.min(start + SLICE);
            start = some.end;
            let largest = squared_chords(self.index.blocks_of(&some), probe.vector, buffer);
            let all = &buffer.as_flattened()[..some.len()];
            f(Partners {
                left: probe.row,
                right: self.index.rows(some),
                squared_chords: SquaredChords { all, largest },
            });
        }
    }

    /// Gathers the partners among the places.
    #[inline]
    fn gather(
        &self,
        probe: &Probe,
        places: Range<usize>,
        gathered: &mut PartnerBatch,
        f: &mut impl FnMut(Partners<'_>),
    ) {
        let mut start = places.start;
        while start < places.end {
            let some = start..places.end.min(start + AT_A_TIME);
            start = some.end;
            if gathered.len + some.len() > SLICE {
                gathered.flush(probe, f);
            }
            self.take_in(probe, some, gathered);
        }
    }

    /// Gathers the partners among the places, at most [`AT_A_TIME`], for which there is room.
    #[inline]
    fn take_in(&self, probe: &Probe, places: Range<usize>, gathered: &mut PartnerBatch) {
        let buffer = &mut gathered.buffer;
        squared_chords(self.index.blocks_of(&places), probe.vector, buffer);
        let squared = &buffer.as_flattened()[..places.len()];
        let rows = self.index.rows(places.clone());
        let (right, chords) = (&mut gathered.right, &mut gathered.squared_chords);
        let limits = &probe.limits;
        let (mut len, mut in_doubt) = (gathered.len, false);
        // Written always and kept at times: without a branch that nobody could foresee.
        for at in 0..rows.len() {
            (right[len], chords[len]) = (rows[at], squared[at]);
            let possibly = squared[at] <= limits.possibly;
            len += usize::from(possibly);
            in_doubt |= possibly & (squared[at] >= limits.surely);
        }
        if in_doubt {
            len = gathered.len;
            for at in 0..rows.len() {
                (right[len], chords[len]) = (rows[at], squared[at]);
                let is_pair = squared[at] < limits.surely
                    || (squared[at] <= limits.possibly && self.is_pair(probe, places.start + at));
                len += usize::from(is_pair);
            }
        }
        gathered.len = len;
    }
}

impl PartnerBatch {
    fn flush(&mut self, probe: &Probe, f: &mut impl FnMut(Partners<'_>)) {
        if self.len > 0 {
            f(Partners {
                left: probe.row,
                right: &self.right[..self.len],
                squared_chords: SquaredChords {
                    all: &self.squared_chords[..self.len],
                    largest: probe.limits.possibly,
                },
            });
            self.len = 0;
        }
    }
}
