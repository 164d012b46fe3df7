//! The order in which a worker gets the files that it lacks.

use std::collections::{HashSet, VecDeque};

use sky::ChunkId;

use crate::front_end::PartKey;
use crate::messages::PartFiles;

/// A file that lacks.
pub(super) type FileKey = (PartKey, ChunkId);

/// Files that lack under an assignment, each of which is taken once.
#[derive(Debug)]
pub(super) struct FetchQueue {
    /// Those that were not taken yet.
    waiting: HashSet<FileKey>,
    /// All of them, in the order in which they come if the leader says nothing else.
    rest: VecDeque<FileKey>,
}

impl FetchQueue {
    pub fn new(missing: Vec<FileKey>) -> Self {
        Self {
            waiting: missing.iter().copied().collect(),
            rest: missing.into(),
        }
    }

    /// Takes the next one: the first that the leader lists now, or else the first of all. `None` if there is none.
    pub fn take(&mut self, first: &[PartFiles]) -> Option<FileKey> {
        let keys = |it: &'_ PartFiles| {
            let part = it.key();
            let files = it.files.clone();
            files.into_iter().map(move |file| (part, ChunkId(file)))
        };
        let told = first
            .iter()
            .flat_map(keys)
            .find(|it| self.waiting.remove(it));
        told.or_else(|| {
            while let Some(next) = self.rest.pop_front() {
                if self.waiting.remove(&next) {
                    return Some(next);
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use catalog::LoadId;
    use proptest::prelude::*;

    use super::*;

    fn key(file: i32) -> FileKey {
        let part = PartKey {
            part: LoadId(1),
            digest: 1,
        };
        (part, ChunkId(file))
    }

    fn told(files: &[i32]) -> Vec<PartFiles> {
        let of_file = |file: &i32| PartFiles {
            part: 1,
            digest: 1,
            files: vec![*file],
        };
        files.iter().map(of_file).collect()
    }

    /// A worker went through its files by their numbers, whatever became of their copies meanwhile.
    #[test]
    fn what_has_become_scarce_meanwhile_comes_next() {
        let mut queue = FetchQueue::new((0..6).map(key).collect());
        assert_eq!(queue.take(&[]), Some(key(0)));
        assert_eq!(queue.take(&told(&[4, 0, 2])), Some(key(4)));
        assert_eq!(queue.take(&told(&[3, 4])), Some(key(3)));
        assert_eq!(queue.take(&told(&[9])), Some(key(1)), "9 does not lack");
        assert_eq!(queue.take(&told(&[3])), Some(key(2)));
        assert_eq!(queue.take(&[]), Some(key(5)));
        assert_eq!(queue.take(&told(&[5])), None);
    }

    proptest! {
        /// Whatever the leader says each time: each file is taken once, and the first of those that it lists and that lack.
        #[test]
        fn each_file_is_taken_once(missing in prop::collection::hash_set(0i32..40, 0..40), orders in prop::collection::vec(prop::collection::vec(0i32..60, 0..8), 50)) {
            let mut left = missing.clone();
            let mut queue = FetchQueue::new(missing.iter().copied().map(key).collect());
            for order in orders {
                let expected = order.iter().find(|it| left.contains(it));
                match queue.take(&told(&order)) {
                    Some((_, file)) => {
                        prop_assert!(expected.is_none_or(|it| *it == file.0));
                        prop_assert!(left.remove(&file.0));
                    }
                    None => prop_assert!(left.is_empty()),
                }
            }
            prop_assert!(left.is_empty());
        }
    }
}
