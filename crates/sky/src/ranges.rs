//! Sorted, disjoint ranges of cell numbers.

use std::ops::Range;

/// Sorts the ranges and joins those that touch or overlap.
pub(crate) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_and_overlapping_ranges_join() {
        assert_eq!(merged(vec![5..7, 0..2, 2..3, 6..9]), vec![0..3, 5..9]);
        assert_eq!(merged(vec![0..9, 1..2]), vec![0..9]);
        assert!(merged(Vec::new()).is_empty());
    }
}
