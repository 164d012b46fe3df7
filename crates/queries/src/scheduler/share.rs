//! Which lane gets a free thread.

use std::time::Duration;

use super::core::LaneScheduler;
use super::lane::NextPiece;

impl LaneScheduler {
    /// The lane that gets a free thread, and what it does with it.
    pub(super) fn choose(&mut self, now: Duration) -> Option<(usize, NextPiece)> {
        let startable =
            (0..self.lanes.len()).filter_map(|lane| Some((lane, self.startable(lane)?)));
        // At most one for each lane.
        let startable: Vec<(usize, NextPiece)> = startable.collect();
        let quotas = self.quotas();
        let below_quota = startable
            .iter()
            .filter(|(lane, _)| self.lanes[*lane].clock.running() < quotas[*lane]);
        let chosen = if quotas.iter().sum::<usize>() <= self.options.threads {
            below_quota.min_by_key(|(lane, _)| *lane)
        } else {
            below_quota.min_by_key(|(lane, _)| (self.lanes[*lane].virtual_time(now), *lane))
        };
        chosen.or(startable.first()).copied()
    }

    /// The threads of each lane that nobody else takes while it has that much to run: by weight among the busy lanes, and at
    /// least one for each. With more busy lanes than threads this is more than there is.
    pub(super) fn quotas(&self) -> Vec<usize> {
        let weight = |lane: &&super::lane::Lane| u64::from(lane.weight);
        let total: u64 = self
            .lanes
            .iter()
            .filter(|lane| lane.is_busy())
            .map(|lane| weight(&lane))
            .sum();
        let quota = |lane: &super::lane::Lane| {
            if !lane.is_busy() {
                return 0;
            }
            let threads = self.options.threads as u64 * weight(&lane) / total.max(1);
            usize::try_from(threads).unwrap_or(usize::MAX).max(1)
        };
        self.lanes.iter().map(quota).collect()
    }

    /// What the lane would do with a free thread, within the memory that is left.
    fn startable(&mut self, lane: usize) -> Option<NextPiece> {
        loop {
            match self.lanes[lane].next()? {
                NextPiece::Outdated(phase) => self.place(phase),
                NextPiece::Start { phase, .. } if !self.fits(lane, phase) => {
                    return self.lanes[lane].next_resumed();
                }
                next => return Some(next),
            }
        }
    }

    /// Whether there is memory for one more piece of the phase, or its lane may do without.
    fn fits(&self, lane: usize, phase: super::PhaseId) -> bool {
        let bytes = self.bytes_per_piece(phase);
        self.lanes[lane].clock.running() == 0
            || self.memory_used.saturating_add(bytes) <= self.options.memory_bytes
    }
}
