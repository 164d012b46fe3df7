//! The pieces of a phase that are not started yet.

use std::collections::BTreeMap;

/// Pieces in the order of their chunks, of which some are left. It takes 4 bytes for each piece and some 20 for each gap
/// between those left, of which there are few while they are taken in order.
pub(super) struct Pieces {
    /// The first chunk of each piece. Invariant: it never descends.
    chunks: Box<[u32]>,
    /// What is left, as disjoint ranges [start, end) that do not touch: each start with its end.
    left: BTreeMap<usize, usize>,
    count: usize,
}

impl Pieces {
    /// All of them are left.
    pub(super) fn new(mut chunks: Vec<u32>) -> Self {
        let mut largest = 0;
        for chunk in &mut chunks {
            largest = largest.max(*chunk);
            *chunk = largest;
        }
        let count = chunks.len();
        let left = if count == 0 {
            BTreeMap::new()
        } else {
            BTreeMap::from([(0, count)])
        };
        Self {
            chunks: chunks.into_boxed_slice(),
            left,
            count,
        }
    }

    /// How many are left.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// About how much memory this takes. A node of the tree is at least about half full.
    pub(super) fn bytes(&self) -> usize {
        const RANGE: usize = 2 * size_of::<(usize, usize)>() + size_of::<usize>();
        size_of_val(&*self.chunks) + self.left.len() * RANGE
    }

    /// How many ranges they form.
    #[cfg(test)]
    fn ranges(&self) -> usize {
        self.left.len()
    }

    pub(super) fn chunk_of(&self, piece: usize) -> u32 {
        self.chunks[piece]
    }

    /// How many pieces of its chunk come before a piece.
    pub(super) fn rank_in_chunk(&self, piece: usize) -> usize {
        let chunk = self.chunks[piece];
        piece - self.chunks.partition_point(|other| *other < chunk)
    }

    /// The first piece that is left.
    pub(super) fn first(&self) -> Option<usize> {
        self.left.first_key_value().map(|(start, _)| *start)
    }

    /// The first piece that is left of those from this one on.
    pub(super) fn first_from(&self, piece: usize) -> Option<usize> {
        let before = self.left.range(..=piece).next_back();
        if before.is_some_and(|(_, end)| piece < *end) {
            return Some(piece);
        }
        self.left.range(piece..).next().map(|(start, _)| *start)
    }

    /// The first piece of this chunk that is left.
    pub(super) fn first_of(&self, chunk: u32) -> Option<usize> {
        self.first_at_or_after(chunk)
            .filter(|piece| self.chunks[*piece] == chunk)
    }

    /// The first piece that is left of the chunks from this one on.
    pub(super) fn first_at_or_after(&self, chunk: u32) -> Option<usize> {
        self.first_from(self.chunks.partition_point(|other| *other < chunk))
    }

    /// The first piece that is left of the chunks after this one.
    pub(super) fn first_after(&self, chunk: u32) -> Option<usize> {
        self.first_from(self.chunks.partition_point(|other| *other <= chunk))
    }

    /// Takes a piece out. It is false if the piece was not left.
    pub(super) fn take(&mut self, piece: usize) -> bool {
        let Some((&start, &end)) = self.left.range(..=piece).next_back() else {
            return false;
        };
        if piece >= end {
            return false;
        }
        self.left.remove(&start);
        if start < piece {
            self.left.insert(start, piece);
        }
        if piece + 1 < end {
            self.left.insert(piece + 1, end);
        }
        self.count -= 1;
        true
    }

    /// Puts back a piece that was taken.
    pub(super) fn put_back(&mut self, piece: usize) {
        debug_assert!(piece < self.chunks.len() && self.first_from(piece) != Some(piece));
        let before = self.left.range(..piece).next_back();
        let start = match before {
            Some((&start, &end)) if end == piece => start,
            _ => piece,
        };
        let end = self.left.remove(&(piece + 1)).unwrap_or(piece + 1);
        self.left.insert(start, end);
        self.count += 1;
    }

    /// Takes all of them out.
    pub(super) fn clear(&mut self) {
        self.left.clear();
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_chunk_smaller_than_the_one_before_counts_as_that_one() {
        let pieces = Pieces::new(vec![3, 1, 7, 5]);
        assert_eq!(
            [0, 1, 2, 3].map(|piece| pieces.chunk_of(piece)),
            [3, 3, 7, 7]
        );
    }

    #[test]
    fn no_pieces_are_none() {
        let pieces = Pieces::new(vec![]);
        assert_eq!(
            (
                pieces.count(),
                pieces.first(),
                pieces.first_of(0),
                pieces.first_after(0)
            ),
            (0, None, None, None)
        );
    }

    proptest! {
        /// A set of numbers is the oracle.
        #[test]
        fn pieces_are_a_set(mut chunks in prop::collection::vec(0_u32..20, 1..40), taken in prop::collection::vec((0_usize..40, any::<bool>()), 0..120)) {
            chunks.sort_unstable();
            let mut pieces = Pieces::new(chunks.clone());
            let mut model: BTreeSet<usize> = (0..chunks.len()).collect();
            for (piece, take) in taken {
                let piece = piece % chunks.len();
                if take {
                    prop_assert_eq!(pieces.take(piece), model.remove(&piece));
                } else if model.insert(piece) {
                    pieces.put_back(piece);
                }
                prop_assert_eq!(pieces.count(), model.len());
                prop_assert_eq!(pieces.first(), model.first().copied());
                for from in 0..chunks.len() {
                    prop_assert_eq!(pieces.first_from(from), model.range(from..).next().copied());
                }
                for chunk in 0..21 {
                    prop_assert_eq!(pieces.first_of(chunk), model.iter().copied().find(|left| chunks[*left] == chunk));
                    prop_assert_eq!(pieces.first_after(chunk), model.iter().copied().find(|left| chunks[*left] > chunk));
                }
            }
            let gaps = model.iter().filter(|left| !model.contains(&(**left + 1))).count();
            prop_assert_eq!(pieces.ranges(), gaps);
        }
    }
}
