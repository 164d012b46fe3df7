//! The nearest partners of left rows.
//!
//! Chords choose who is asked: where the k-th nearest so far has a certain squared chord, only those are requested their
//! separation whose squared chord is not surely larger. Around a row the radius grows until enough are found, so that a
//! large radius costs little where neighbours are many.

use std::ops::Range;

use super::Search;
use super::chords::{LANES, squared_chords};
use super::limits::{Limits, Radius};
use super::windows::{Probe, Runs};
use crate::Angle;

/// How many places are looked at before the bound is lowered.
const AT_A_TIME: usize = 64;

/// From one attempt to the next the radius grows by this, and the area by its square.
const GROWTH: f64 = 3.0;

/// The first attempt is with this part of the radius at least, so that there are few.
const LEAST_PART: f64 = 1.0 / 729.0;

/// A partner and how far it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Neighbour {
    /// The right row.
    pub right: u32,
    /// What [`crate::separation_degrees`] gives for the pair.
    pub separation: Angle,
}

/// The nearest partners of one left row so far.
#[derive(Debug, Default)]
struct Nearest {
    /// From the nearest on, and of equal ones from the lower row number on; at most `most`.
    found: Vec<Neighbour>,
    /// The squared chords of these.
    squared_chords: Vec<f64>,
    most: usize,
    /// The squared chords of the places at hand: here, so that they are not cleared each time.
    buffer: [[f64; LANES]; AT_A_TIME / LANES],
}

impl Search<'_> {
    /// Puts into `nearest` (replacing what it held) the nearest partner of each of the left rows, the one with the lowest row number
    /// of those equally near.
    ///
    /// Where both sides are the same rows, the nearest of a row is mostly itself: see [`Self::nearest_few`].
    pub fn nearest(
        &self,
        rows: impl IntoIterator<Item = u32>,
        nearest: &mut Vec<Option<Neighbour>>,
    ) {
        let (mut runs, mut of_row) = (Runs::default(), Nearest::new(1));
        nearest.clear();
        nearest.extend(rows.into_iter().map(|row| {
            self.find_nearest(row, &mut runs, &mut of_row);
            of_row.found.first().copied()
        }));
    }

    /// Calls `f` with each of the left rows and its nearest partners: `most` of them, or all where there are fewer, from the
    /// nearest on, of equally near ones from the lower row number on.
    ///
    /// Where both sides are the same rows, a row is among its own partners; for the nearest `k` others request `k + 1`
    /// and leave out the row, or the last one if the row is not among them.
    pub fn nearest_few(
        &self,
        most: usize,
        rows: impl IntoIterator<Item = u32>,
        mut f: impl FnMut(u32, &[Neighbour]),
    ) {
        let (mut runs, mut of_row) = (Runs::default(), Nearest::new(most));
        for row in rows {
            self.find_nearest(row, &mut runs, &mut of_row);
            f(row, &of_row.found);
        }
    }

    /// Finds the nearest partners of a left row.
    fn find_nearest(&self, row: u32, runs: &mut Runs, nearest: &mut Nearest) {
        nearest.clear();
        let Some(mut probe) = self.probe(row) else {
            return;
        };
        let whole = probe.limits;
        let sizes = self.index.sizes().and(probe.place.sizes());
        let expected = self.index.layout.radius_of_rows(nearest.most);
        let mut degrees = expected.max(whole.radius.degrees() * LEAST_PART);
        while degrees < whole.radius.degrees() {
            let part = Radius::at_most(Angle::from_degrees(degrees));
            let Some(limits) = Limits::new(part, sizes) else {
                break;
            };
            probe.limits = limits;
            self.find_nearest_within(&probe, runs, nearest);
            if nearest.is_full() {
                return;
            }
            nearest.clear();
            degrees *= GROWTH;
        }
        probe.limits = whole;
        self.find_nearest_within(&probe, runs, nearest);
    }

    /// Finds the nearest partners within the limits of the probe.
    #[inline]
    fn find_nearest_within(&self, probe: &Probe, runs: &mut Runs, nearest: &mut Nearest) {
        runs.find(self.index, probe);
        let mut bound = probe.limits.possibly;
        for run in &runs.runs {
            let mut start = run.start;
            while start < run.end {
                let end = run.end.min(start + AT_A_TIME);
                self.look_at(probe, start..end, &mut bound, nearest);
                start = end;
            }
        }
    }

    /// Takes from the places, at most [`AT_A_TIME`], those among the nearest, and lowers the bound of their squared chords.
    #[inline]
    fn look_at(&self, probe: &Probe, places: Range<usize>, bound: &mut f64, nearest: &mut Nearest) {
        squared_chords(
            self.index.blocks_of(&places),
            probe.vector,
            &mut nearest.buffer,
        );
        let rows = self.index.rows(places.clone());
        for (at, row) in rows.iter().enumerate() {
            let squared = nearest.buffer[at / LANES][at % LANES];
            if squared > *bound {
                continue;
            }
            let separation = self.separation(probe, places.start + at);
            if probe.limits.radius.admits(separation) {
                nearest.offer(*row, separation, squared);
                if let Some(last) = nearest.last_squared_chord() {
                    *bound = bound.min(probe.limits.surely_farther(last));
                }
            }
        }
    }
}

impl Nearest {
    fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    fn clear(&mut self) {
        self.found.clear();
        self.squared_chords.clear();
    }

    fn is_full(&self) -> bool {
        self.found.len() == self.most
    }

    /// The squared chord of the farthest one, if there are as many as wanted.
    #[inline]
    fn last_squared_chord(&self) -> Option<f64> {
        self.is_full()
            .then(|| self.squared_chords.last().copied().unwrap_or(0.0))
    }

    /// Takes a partner in if it is among the nearest.
    #[inline]
    fn offer(&mut self, right: u32, separation: f64, squared_chord: f64) {
        let separation = Angle::from_degrees(separation);
        let at = self
            .found
            .partition_point(|other| (other.separation, other.right) < (separation, right));
        if at == self.most {
            return;
        }
        if self.is_full() {
            self.found.pop();
            self.squared_chords.pop();
        }
        self.found.insert(at, Neighbour { right, separation });
        self.squared_chords.insert(at, squared_chord);
    }
}
