//! Which part of the sky's partition a query needs: chunks, and sub-chunks within them.

use std::collections::BTreeMap;
use std::fmt;

use sky::{ChunkId, SubChunkId, SubChunks};

/// Sub-chunks of one chunk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SubChunkSet {
    /// All of them.
    All,
    /// Closed intervals of sub-chunk numbers, sorted, disjoint and not adjacent; none at all means none.
    Intervals(Vec<(i32, i32)>),
}

impl SubChunkSet {
    /// The set of these sub-chunks.
    pub fn of(sub_chunks: impl IntoIterator<Item = SubChunkId>) -> Self {
        let mut numbers: Vec<i32> = sub_chunks.into_iter().map(|s| s.0).collect();
        numbers.sort_unstable();
        Self::merged(numbers.into_iter().map(|n| (n, n)))
    }

    /// Joins sorted intervals that touch or overlap.
    fn merged(sorted: impl IntoIterator<Item = (i32, i32)>) -> Self {
        let mut merged: Vec<(i32, i32)> = Vec::new();
        for (first, last) in sorted {
            match merged.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => merged.push((first, last)),
            }
        }
        Self::Intervals(merged)
    }

    /// Whether a sub-chunk is in the set.
    pub fn contains(&self, sub_chunk: SubChunkId) -> bool {
        match self {
            Self::All => true,
            Self::Intervals(intervals) => {
                let after = intervals.partition_point(|&(first, _)| first <= sub_chunk.0);
                after > 0 && sub_chunk.0 <= intervals[after - 1].1
            }
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Intervals(intervals) if intervals.is_empty())
    }

    /// Sub-chunks in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let (a, b) = match (self, other) {
            (Self::All, set) | (set, Self::All) => return set.clone(),
            (Self::Intervals(a), Self::Intervals(b)) => (a, b),
        };
        let (mut i, mut j, mut common) = (0, 0, Vec::new());
        while i < a.len() && j < b.len() {
            let (first, last) = (a[i].0.max(b[j].0), a[i].1.min(b[j].1));
            if first <= last {
                common.push((first, last));
            }
            if a[i].1 < b[j].1 { i += 1 } else { j += 1 }
        }
        Self::Intervals(common)
    }

    /// Sub-chunks in either.
    pub fn union(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Intervals(a), Self::Intervals(b)) => {
                let mut all: Vec<(i32, i32)> = a.iter().chain(b).copied().collect();
                all.sort_unstable();
                Self::merged(all)
            }
        }
    }
}

impl From<SubChunks> for SubChunkSet {
    fn from(sub_chunks: SubChunks) -> Self {
        match sub_chunks {
            SubChunks::All => Self::All,
            SubChunks::Some(some) => Self::of(some),
        }
    }
}

/// `*` for all, else intervals as in `3-5,9`. [`SubChunkSet::parse`] reads it back.
impl fmt::Display for SubChunkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let intervals = match self {
            Self::All => return f.write_str("*"),
            Self::Intervals(intervals) => intervals,
        };
        for (at, (first, last)) in intervals.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl SubChunkSet {
    /// Reads what `Display` wrote; `None` if it is nothing of the kind.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::All);
        }
        let intervals: Option<Vec<(i32, i32)>> = text
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| match part.split_once('-') {
                Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
                None => part.parse().ok().map(|only| (only, only)),
            })
            .collect();
        intervals.map(Self::Intervals)
    }
}

/// Chunks and sub-chunks outside of which there is no row that a query wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Coverage {
    /// No restriction is known.
    Everything,
    /// Only these; a chunk that is not listed is not needed.
    Only(BTreeMap<ChunkId, SubChunkSet>),
}

impl Coverage {
    /// Nothing at all.
    pub fn nothing() -> Self {
        Self::Only(BTreeMap::new())
    }

    /// These chunks and sub-chunks; what is listed twice counts for both.
    pub fn of(parts: impl IntoIterator<Item = (ChunkId, SubChunkSet)>) -> Self {
        let mut only: BTreeMap<ChunkId, SubChunkSet> = BTreeMap::new();
        for (chunk, set) in parts {
            if set.is_empty() {
                continue;
            }
            only.entry(chunk)
                .and_modify(|known| *known = known.union(&set))
                .or_insert(set);
        }
        Self::Only(only)
    }

    /// What both cover.
    pub fn intersection(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everything, coverage) | (coverage, Self::Everything) => coverage.clone(),
            (Self::Only(a), Self::Only(b)) => Self::of(a.iter().filter_map(|(chunk, set)| {
                b.get(chunk).map(|with| (*chunk, set.intersection(with)))
            })),
        }
    }

    /// What either covers.
    pub fn union(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Everything, _) | (_, Self::Everything) => Self::Everything,
            (Self::Only(a), Self::Only(b)) => {
                Self::of(a.iter().chain(b).map(|(c, s)| (*c, s.clone())))
            }
        }
    }

    /// How many chunks it lists; `None` if it lists none because it covers everything.
    pub fn chunks(&self) -> Option<usize> {
        match self {
            Self::Everything => None,
            Self::Only(only) => Some(only.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[i32]) -> SubChunkSet {
        SubChunkSet::of(numbers.iter().map(|n| SubChunkId(*n)))
    }

    #[test]
    fn intervals_behave_like_sets() {
        let numbers: Vec<Vec<i32>> = (0..64_i32)
            .map(|bits| {
                (0..6)
                    .filter(|b| bits & (1 << b) != 0)
                    .map(|b| b * 2 + b % 2)
                    .collect()
            })
            .collect();
        for a in &numbers {
            for b in &numbers {
                let both: Vec<i32> = a.iter().filter(|n| b.contains(n)).copied().collect();
                let either: Vec<i32> = a.iter().chain(b).copied().collect();
                assert_eq!(set(a).intersection(&set(b)), set(&both));
                assert_eq!(set(a).union(&set(b)), set(&either));
            }
            assert!((-1..14).all(|n| set(a).contains(SubChunkId(n)) == a.contains(&n)));
            assert_eq!(SubChunkSet::parse(&set(a).to_string()), Some(set(a)));
        }
        assert_eq!(set(&[3, 4, 5, 9]).to_string(), "3-5,9");
        assert_eq!(SubChunkSet::parse("*"), Some(SubChunkSet::All));
    }

    #[test]
    fn coverage_combines_by_chunk() {
        let a = Coverage::of([(ChunkId(1), set(&[1, 2])), (ChunkId(2), SubChunkSet::All)]);
        let b = Coverage::of([(ChunkId(1), set(&[2, 3])), (ChunkId(3), SubChunkSet::All)]);
        assert_eq!(a.intersection(&b), Coverage::of([(ChunkId(1), set(&[2]))]));
        assert_eq!(a.union(&b).chunks(), Some(3));
        assert_eq!(a.intersection(&Coverage::Everything), a);
        assert_eq!(a.union(&Coverage::Everything), Coverage::Everything);
        assert_eq!(Coverage::of([(ChunkId(1), set(&[]))]), Coverage::nothing());
    }
}
