//! Iteration over many rows in slices that take a short time whatever a row costs.

use std::ops::Range;
use std::time::{Duration, Instant};

/// A slice that took less is followed by one of twice the rows.
const SHORT: Duration = Duration::from_millis(2);
/// A slice that took more is followed by one of half the rows.
const LONG: Duration = Duration::from_millis(8);
/// Rows of the first slice.
const FIRST: u32 = 64;

/// Yields ranges of rows that take some milliseconds each, so that the caller can check between two of them whether the result is still
/// needed. A row may have no partner or millions, which is not known beforehand.
pub(super) struct TimeSlices {
    rows: u32,
    next: u32,
    length: u32,
    began: Option<Instant>,
}

impl TimeSlices {
    pub fn of(rows: u32) -> Self {
        Self {
            rows,
            next: 0,
            length: FIRST,
            began: None,
        }
    }
}

impl Iterator for TimeSlices {
    type Item = Range<u32>;

    fn next(&mut self) -> Option<Range<u32>> {
        if self.next == self.rows {
            return None;
        }
        let now = Instant::now();
        if let Some(began) = self.began {
            let taken = now - began;
            if taken < SHORT {
                self.length = self.length.saturating_mul(2);
            } else if taken > LONG {
                self.length = (self.length / 2).max(1);
            }
        }
        self.began = Some(now);
        let turn = self.next..self.next.saturating_add(self.length).min(self.rows);
        self.next = turn.end;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_one_turn() {
        for rows in [0, 1, 63, 64, 65, 100_000] {
            let all: Vec<u32> = TimeSlices::of(rows).flatten().collect();
            assert_eq!(all, (0..rows).collect::<Vec<_>>());
        }
    }

    #[test]
    fn turns_grow_while_they_are_short_and_shrink_when_they_are_long() {
        let mut time_slices = TimeSlices::of(1_000_000);
        let first = time_slices.next().map(|turn| turn.len());
        let second = time_slices.next().map(|turn| turn.len());
        assert_eq!((first, second), (Some(64), Some(128)));
        std::thread::sleep(2 * LONG);
        assert_eq!(time_slices.next().map(|turn| turn.len()), Some(64));
    }
}
