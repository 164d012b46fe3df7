//! How many partners left rows have, and whether they have any.
//!
//! Partners that are surely within the radius are counted by where they end in a zone; only those at the edge of
//! the circle are looked at.

use std::ops::Range;

use super::Search;
use super::chords::{Tally, tally};
use super::windows::{Probe, Runs};

impl Search<'_> {
    /// Puts into `counts` (replacing what it held) how many partners each of the left rows has.
    pub fn counts(&self, rows: impl IntoIterator<Item = u32>, counts: &mut Vec<u64>) {
        let mut runs = Runs::default();
        counts.clear();
        counts.extend(rows.into_iter().map(|row| self.count_of(row, &mut runs)));
    }

    /// How many pairs the left rows have: the sum of [`Self::counts`].
    pub fn count(&self, rows: impl IntoIterator<Item = u32>) -> u64 {
        let mut runs = Runs::default();
        rows.into_iter()
            .map(|row| self.count_of(row, &mut runs))
            .sum()
    }

    /// Puts into `any` (replacing what it held) whether each of the left rows has a partner.
    pub fn any(&self, rows: impl IntoIterator<Item = u32>, any: &mut Vec<bool>) {
        let mut runs = Runs::default();
        any.clear();
        any.extend(rows.into_iter().map(|row| self.has_partner(row, &mut runs)));
    }

    fn count_of(&self, row: u32, runs: &mut Runs) -> u64 {
        let Some(probe) = self.probe(row) else {
            return 0;
        };
        runs.find(self.index, &probe);
        let mut count = 0;
        for run in &runs.runs {
            count += run.inner.len() as u64;
            for edge in run.edges() {
                count += self.count_tested(&probe, edge);
            }
        }
        count
    }

    /// How many of the places are partners.
    #[inline]
    fn count_tested(&self, probe: &Probe, places: Range<usize>) -> u64 {
        if places.is_empty() {
            return 0;
        }
        let blocks = self.index.blocks_of(&places);
        let Tally { surely, possibly } = tally(blocks, probe.vector, &probe.limits);
        if surely == possibly {
            return surely;
        }
        self.count_asked(probe, places)
    }

    /// The same where some are in doubt. Those that are not in doubt need no asking, but such places are few.
    #[cold]
    fn count_asked(&self, probe: &Probe, places: Range<usize>) -> u64 {
        places.filter(|place| self.is_pair(probe, *place)).count() as u64
    }

    fn has_partner(&self, row: u32, runs: &mut Runs) -> bool {
        let Some(probe) = self.probe(row) else {
            return false;
        };
        runs.find(self.index, &probe);
        runs.runs.iter().any(|run| !run.inner.is_empty())
            || runs.runs.iter().any(|run| {
                let mut edges = run.edges().into_iter();
                edges.any(|edge| self.has_partner_among(&probe, edge))
            })
    }

    /// Whether one of the places is a partner, looking at no more of them than it takes, but for a few.
    fn has_partner_among(&self, probe: &Probe, places: Range<usize>) -> bool {
        const AT_A_TIME: usize = 64;
        places.clone().step_by(AT_A_TIME).any(|start| {
            let some = start..places.end.min(start + AT_A_TIME);
            let blocks = self.index.blocks_of(&some);
            let Tally { surely, possibly } = tally(blocks, probe.vector, &probe.limits);
            surely > 0 || (possibly > 0 && some.into_iter().any(|place| self.is_pair(probe, place)))
        })
    }
}
