//! Which parts of a table are merged.
//!
//! Parts are merged by size, as log-structured stores do it: a run of parts that follow each other in the list is worth merging if
//! none of them is larger than all the others together. So a row is in a part of at least twice the size after every merge that
//! rewrites it, which happens to it no more often than the logarithm of the table's size. Runs of fewer than [`SHORTEST_RUN`] parts
//! wait for more. Where sizes are such that no run is worth it and a table has more than [`MOST_PARTS`] all the same, the run is
//! merged whose rows are fewest.

use std::ops::Range;

/// Parts of a run that is merged while the table has few.
const SHORTEST_RUN: usize = 4;
/// Parts that a table has at most afterwards.
pub(crate) const MOST_PARTS: usize = 24;
/// Bytes that every part counts at least: opening its files takes as long as reading so many.
const SMALLEST_PART: u64 = 256 << 10;

/// The runs of parts that become one part each, by their places in the list, ascending; `bytes` are the sizes of all parts in the
/// order of the list. What would be merged again afterwards is merged at once.
pub(crate) fn runs_to_merge(bytes: &[u64]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = (0..bytes.len()).map(|at| at..at + 1).collect();
    let mut sizes: Vec<u64> = bytes.iter().map(|size| *size.max(&SMALLEST_PART)).collect();
    while let Some(run) = next_run(&sizes) {
        let merged = runs[run.start].start..runs[run.end - 1].end;
        let size = sizes[run.clone()].iter().sum();
        runs.splice(run.clone(), [merged]);
        sizes.splice(run, [size]);
    }
    runs.retain(|run| run.len() > 1);
    runs
}

/// The run that is merged next: of those that are worth it the longest, and of these the one with the fewest bytes.
fn next_run(sizes: &[u64]) -> Option<Range<usize>> {
    let mut best: Option<(usize, u64, usize)> = None;
    for start in 0..sizes.len() {
        let (mut sum, mut largest) = (0_u64, 0);
        for (length, size) in (1..).zip(&sizes[start..]) {
            sum = sum.saturating_add(*size);
            largest = largest.max(*size);
            let longest = best.map_or(SHORTEST_RUN, |(length, ..)| length);
            let is_worth_it = largest <= sum - largest;
            let is_better = best.is_none_or(|best| (length, best.1) > (best.0, sum));
            if length >= longest && is_worth_it && is_better {
                best = Some((length, sum, start));
            }
        }
    }
    let worth_it = best.map(|(length, _, start)| start..start + length);
    worth_it.or_else(|| smallest_run(sizes, sizes.len().checked_sub(MOST_PARTS)? + 1))
}

/// The run of so many parts that has the fewest bytes; `None` if that is one part.
pub(crate) fn smallest_run(sizes: &[u64], length: usize) -> Option<Range<usize>> {
    let runs = sizes.windows(length.max(2)).zip(0..);
    let bytes = |run: &[u64]| {
        run.iter()
            .fold(0, |sum: u64, size| sum.saturating_add(*size))
    };
    let smallest = runs
        .min_by_key(|(run, _)| bytes(run))
        .filter(|_| length > 1);
    smallest.map(|(run, start)| start..start + run.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The first and the last part of each run.
    fn merged(mebibytes: &[u64]) -> Vec<(usize, usize)> {
        let bytes: Vec<u64> = mebibytes.iter().map(|size| size * MIB).collect();
        ends(&bytes)
    }

    fn ends(bytes: &[u64]) -> Vec<(usize, usize)> {
        let runs = runs_to_merge(bytes).into_iter();
        runs.map(|run| (run.start, run.end - 1)).collect()
    }

    #[test]
    fn small_parts_are_merged_and_a_large_one_is_left() {
        let mut sizes = vec![10_000];
        sizes.extend([1; 30]);
        assert_eq!(merged(&sizes), [(1, 30)]);
        // However small they are.
        assert_eq!(ends(&[MIB << 10, 10, 4000, 300, 20]), [(1, 4)]);
        assert!(merged(&[10_000, 30, 1, 1, 1]).is_empty());
        assert_eq!(merged(&[10_000, 30, 1, 1, 1, 32]), [(1, 5)]);
    }

    #[test]
    fn few_parts_wait_for_more() {
        for few in [&[][..], &[5], &[1, 1], &[1, 1, 1], &[100, 1, 1, 1]] {
            assert!(merged(few).is_empty(), "{few:?}");
        }
        assert_eq!(merged(&[1, 1, 1, 1]), [(0, 3)]);
    }

    #[test]
    fn equal_parts_become_one() {
        assert_eq!(merged(&[7; 100]), [(0, 99)]);
        let mut two = vec![1; 10];
        two.push(1 << 20);
        two.extend([2; 6]);
        assert_eq!(merged(&two), [(0, 9), (11, 16)]);
    }

    /// Each is larger than all before it, so that no run is worth merging.
    #[test]
    fn a_table_never_has_more_parts_than_a_few_dozen() {
        let growing: Vec<u64> = (0..40).map(|power| MIB << (power / 2 * 3 / 2)).collect();
        for sizes in [growing.clone(), growing.into_iter().rev().collect()] {
            let runs = runs_to_merge(&sizes);
            let left = sizes.len() - runs.iter().map(|run| run.len() - 1).sum::<usize>();
            assert!(left <= MOST_PARTS, "{left}: {runs:?}");
        }
    }

    /// Appends of one size, with a compaction after each: how often a row is written anew.
    #[test]
    fn rows_are_rewritten_no_more_often_than_the_logarithm() {
        let (mut sizes, mut written, appends) = (Vec::new(), 0, 4096_u64);
        for _ in 0..appends {
            sizes.push(MIB);
            for run in runs_to_merge(&sizes).into_iter().rev() {
                let size: u64 = sizes[run.clone()].iter().sum();
                written += size;
                sizes.splice(run, [size]);
            }
            assert!(sizes.len() <= MOST_PARTS, "{sizes:?}");
        }
        assert_eq!(sizes.iter().sum::<u64>(), appends * MIB);
        assert!(written <= 12 * appends * MIB, "{}", written / MIB);
    }
}
