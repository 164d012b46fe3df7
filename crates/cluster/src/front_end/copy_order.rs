//! In which order a worker gets the files that it lacks: those first of which there are the fewest copies.
//!
//! Files that are lost with the next worker are safe before others move. The order is told with each response to a worker's report, because the
//! copies of a file change while what the worker shall hold does not.

use sky::ChunkId;

use super::parts::PartKey;
use crate::messages::PartFiles;

/// Files that a worker is told at a time: more than it gets within a second.
const MOST_TOLD: usize = 512;

/// A file that a worker shall get and does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LackingFile {
    pub part: PartKey,
    pub file: ChunkId,
    /// Workers that hold it and report.
    pub live_replicas: usize,
    /// Whether the front end has it, too.
    pub is_at_front_end: bool,
    /// Whether every worker shall hold it: pieces of all chunks may read it.
    pub is_everywhere: bool,
}

impl LackingFile {
    fn copies(&self) -> usize {
        self.live_replicas + usize::from(self.is_at_front_end)
    }

    /// Lower ones come first. Copies beyond those that there shall be count for nothing.
    fn rank(&self, replicas: usize) -> (usize, bool, bool) {
        let enough = replicas + usize::from(self.is_at_front_end);
        let moves_only = self.live_replicas >= replicas;
        (self.copies().min(enough), moves_only, !self.is_everywhere)
    }
}

/// The files that a worker gets first, in their order. Those of which nobody has a copy that can be reached are not among them.
pub(super) fn first_to_copy(mut lacking: Vec<LackingFile>, replicas: usize) -> Vec<PartFiles> {
    lacking.retain(|it| it.copies() > 0);
    // The sort is stable: equal ones stay in the order of their parts.
    lacking.sort_by_key(|it| it.rank(replicas));
    let mut told: Vec<PartFiles> = Vec::new();
    for LackingFile { part, file, .. } in lacking.into_iter().take(MOST_TOLD) {
        match told.last_mut().filter(|it| it.key() == part) {
            Some(last) => last.files.push(file.0),
            None => told.push(PartFiles {
                part: part.part.0,
                digest: part.digest,
                files: vec![file.0],
            }),
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use catalog::LoadId;
    use proptest::prelude::*;

    use super::*;

    fn file(part: i64, file: i32, live_replicas: usize, is_at_front_end: bool) -> LackingFile {
        LackingFile {
            part: PartKey {
                part: LoadId(part),
                digest: 1,
            },
            file: ChunkId(file),
            live_replicas,
            is_at_front_end,
            is_everywhere: false,
        }
    }

    fn order(lacking: Vec<LackingFile>, replicas: usize) -> Vec<(i64, i32)> {
        let told = first_to_copy(lacking, replicas);
        let of_part = |it: PartFiles| it.files.into_iter().map(move |file| (it.part, file));
        told.into_iter().flat_map(of_part).collect()
    }

    #[test]
    fn files_with_the_fewest_copies_come_first_and_those_that_only_move_last() {
        let mut everywhere = file(1, 9, 5, true);
        everywhere.is_everywhere = true;
        let lacking = vec![
            file(1, 1, 3, true),
            file(1, 2, 2, true),
            file(1, 3, 1, true),
            file(2, 4, 1, false),
            file(2, 5, 0, true),
            file(2, 6, 0, false),
            file(3, 7, 9, true),
            everywhere,
        ];
        let expected = [(2, 4), (2, 5), (1, 3), (1, 2), (1, 9), (1, 1), (3, 7)];
        assert_eq!(order(lacking, 3), expected);
    }

    proptest! {
        /// Whatever lacks: no file is told before one of which there are fewer copies, and all are told that can be had.
        #[test]
        fn nothing_comes_before_what_is_scarcer(files in prop::collection::vec((0usize..6, any::<bool>()), 0..60), replicas in 1usize..4) {
            let numbered = files.iter().zip(0..);
            let lacking: Vec<LackingFile> = numbered.map(|((live, own), number)| file(1, number, *live, *own)).collect();
            let told = order(lacking, replicas);
            let copies = |number: i32| {
                let (live, own) = files[number as usize];
                (live + usize::from(own)).min(replicas + usize::from(own))
            };
            prop_assert!(told.windows(2).all(|pair| copies(pair[0].1) <= copies(pair[1].1)));
            let reachable = files.iter().filter(|(live, own)| *live > 0 || *own).count();
            prop_assert_eq!(told.len(), reachable);
        }
    }
}
