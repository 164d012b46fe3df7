//! All partners of left rows in slices, to compute with at the speed of memory.

use std::ops::Range;

use super::Search;
use super::chords::{self, LANES, squared_chords};
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
    squared_chords: &'a [f64],
}

impl Partners<'_> {
    /// Puts the separations from the left row, in degrees, into `out` (replacing what it held).
    ///
    /// They come from the squared chords of unit vectors, whose separations are within 13 · 2⁻⁵² radians (6e-10 arcseconds) of
    /// the truth as long as they are below 90 degrees, and within 3e-8 radians near the antipode, where the chord says
    /// least. They are not to the last bit those of [`crate::separation_degrees`], which is right to the last few bits at
    /// every distance; [`super::PairBuffer::separations`] are.
    pub fn separations(&self, out: &mut Vec<f64>) {
        chords::separations(self.squared_chords, out);
    }

    /// The sum of [`Self::separations`], in degrees, added up in any order.
    pub fn sum_of_separations(&self) -> f64 {
        chords::sum_of_separations(self.squared_chords)
    }
}

/// Partners of one left row that are found one by one, gathered to make slices worth a call.
struct Gathered {
    right: [u32; SLICE],
    squared_chords: [f64; SLICE],
    len: usize,
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
        let mut gathered = Gathered {
            right: [0; SLICE],
            squared_chords: [0.0; SLICE],
            len: 0,
        };
        for probe in rows.into_iter().filter_map(|row| self.probe(row)) {
            runs.find(self.index, &probe);
            for run in &runs.runs {
                self.fold_inner(&probe, run.inner.clone(), &mut f);
                for edge in run.edges() {
                    self.gather(&probe, edge, &mut gathered, &mut f);
                }
            }
            gathered.flush(probe.row, &mut f);
        }
    }

    /// Hands on places that are partners, all of them.
    #[inline]
    fn fold_inner(&self, probe: &Probe, places: Range<usize>, f: &mut impl FnMut(Partners<'_>)) {
        let mut buffer = [[0.0; LANES]; SLICE / LANES];
        let mut start = places.start;
        while start < places.end {
            let some = start..places.end.min(start + SLICE);
            start = some.end;
            squared_chords(self.index.blocks_of(&some), probe.vector, &mut buffer);
            f(Partners {
                left: probe.row,
                squared_chords: &buffer.as_flattened()[..some.len()],
                right: self.index.rows(some),
            });
        }
    }

    /// Gathers the partners among the places.
    #[inline]
    fn gather(
        &self,
        probe: &Probe,
        places: Range<usize>,
        gathered: &mut Gathered,
        f: &mut impl FnMut(Partners<'_>),
    ) {
        let mut start = places.start;
        while start < places.end {
            let some = start..places.end.min(start + AT_A_TIME);
            start = some.end;
            if gathered.len + some.len() > SLICE {
                gathered.flush(probe.row, f);
            }
            self.take_in(probe, some, gathered);
        }
    }

    /// Gathers the partners among the places, at most [`AT_A_TIME`], for which there is room.
    #[inline]
    fn take_in(&self, probe: &Probe, places: Range<usize>, gathered: &mut Gathered) {
        let mut buffer = [[0.0; LANES]; AT_A_TIME / LANES];
        squared_chords(self.index.blocks_of(&places), probe.vector, &mut buffer);
        let squared = &buffer.as_flattened()[..places.len()];
        let rows = self.index.rows(places.clone());
        for at in 0..rows.len() {
            gathered.right[gathered.len] = rows[at];
            gathered.squared_chords[gathered.len] = squared[at];
            let is_pair = squared[at] < probe.limits.surely
                || (squared[at] <= probe.limits.possibly && self.is_pair(probe, places.start + at));
            gathered.len += usize::from(is_pair);
        }
    }
}

impl Gathered {
    fn flush(&mut self, left: u32, f: &mut impl FnMut(Partners<'_>)) {
        if self.len > 0 {
            f(Partners {
                left,
                right: &self.right[..self.len],
                squared_chords: &self.squared_chords[..self.len],
            });
            self.len = 0;
        }
    }
}
