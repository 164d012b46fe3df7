//! What workers were told to hold, and what they hold for sure as long as they are told nothing else.
//!
//! A worker gives a file up only under an assignment that does not list it. It follows the one that it acknowledged last, or one that it was
//! told since. So it keeps what all of these list, whatever is under way.
//!
//! The first assignment has it give up nothing: it may hold files that this front end has not heard of, which another one counts on that led until
//! now. What it holds is told with the acknowledgement, and the next assignment is made of that.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use catalog::LoadId;

use super::members::{Holdings, part_files};
use crate::messages::PartFiles;

/// What each worker was told to hold, by name.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    workers: HashMap<String, SentAssignment>,
    /// The number that was given last.
    version: u64,
}

/// What a worker shall hold.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The number of the assignment.
    pub version: u64,
    pub files: Arc<Vec<PartFiles>>,
    /// The parts of these that are of users' own tables.
    pub user_parts: Arc<Vec<i64>>,
    /// Whether it shall give nothing up.
    pub keeps_all: bool,
}

/// What a worker was told to hold.
#[derive(Debug)]
struct SentAssignment {
    /// The number of the assignment.
    version: u64,
    /// That of the first one, as long as none was acknowledged.
    first: Option<u64>,
    files: Arc<Vec<PartFiles>>,
    user_parts: Arc<Vec<i64>>,
    holdings: Arc<Holdings>,
    /// What this assignment and all earlier ones list that the worker may still follow.
    sure: Arc<Holdings>,
}

impl Orders {
    /// None yet. Their numbers go on from this one.
    pub fn new(version: u64) -> Self {
        Self {
            workers: HashMap::new(),
            version,
        }
    }

    /// The assignment of a worker.
    pub fn of(&self, worker: &str) -> Option<Order> {
        let told = self.workers.get(worker)?;
        Some(Order {
            version: told.version,
            files: Arc::clone(&told.files),
            user_parts: Arc::clone(&told.user_parts),
            keeps_all: told.first.is_some(),
        })
    }

    /// Notes which assignment a worker follows, before the next ones are made.
    pub fn acknowledge(&mut self, worker: &str, version: u64) {
        let Some(told) = self.workers.get_mut(worker) else {
            return;
        };
        if told.version == version {
            told.sure = Arc::clone(&told.holdings);
        }
        if told
            .first
            .is_some_and(|first| (first..=told.version).contains(&version))
        {
            told.first = None;
            // It may list the same, and has it give up the rest.
            self.version += 1;
            told.version = self.version;
        }
    }

    /// The files that each worker keeps if it holds them, by its name.
    pub fn sure(&self) -> HashMap<String, Arc<Holdings>> {
        let sure =
            |(name, told): (&String, &SentAssignment)| (name.clone(), Arc::clone(&told.sure));
        self.workers.iter().map(sure).collect()
    }

    /// Tells workers what they shall hold, where that has changed, and which of the parts are of users' own tables.
    pub fn tell(
        &mut self,
        latest: &BTreeMap<String, Arc<Holdings>>,
        user_parts: &BTreeSet<LoadId>,
    ) {
        for (name, holdings) in latest {
            let known = self.workers.get(name);
            let user_parts = user_parts_of(holdings, user_parts);
            if known.is_some_and(|it| it.holdings == *holdings && *it.user_parts == user_parts) {
                continue;
            }
            self.version += 1;
            let sure = known.map(|known| common(&known.sure, holdings));
            let told = SentAssignment {
                version: self.version,
                first: known.map_or(Some(self.version), |known| known.first),
                files: Arc::new(part_files(holdings)),
                user_parts: Arc::new(user_parts),
                holdings: Arc::clone(holdings),
                sure: Arc::new(sure.unwrap_or_default()),
            };
            self.workers.insert(name.clone(), told);
        }
    }
}

/// The numbers of the parts that are of users' own tables, ascending.
fn user_parts_of(holdings: &Holdings, user_parts: &BTreeSet<LoadId>) -> Vec<i64> {
    let mut found: Vec<i64> = { holdings.keys() }
        .filter(|it| user_parts.contains(&it.part))
        .map(|it| it.part.0)
        .collect();
    found.sort_unstable();
    found
}

/// The files that both list.
fn common(left: &Holdings, right: &Holdings) -> Holdings {
    let both = left.iter().filter_map(|(part, files)| {
        let others = right.get(part)?;
        Some((*part, files.intersection(others).copied().collect()))
    });
    both.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use catalog::LoadId;
    use sky::ChunkId;

    use super::super::parts::PartKey;
    use super::*;

    fn listing(files: &[i32]) -> BTreeMap<String, Arc<Holdings>> {
        let part = PartKey {
            part: LoadId(1),
            digest: 1,
        };
        let files: HashSet<ChunkId> = files.iter().copied().map(ChunkId).collect();
        BTreeMap::from([("w".to_owned(), Arc::new(HashMap::from([(part, files)])))])
    }

    #[test]
    fn a_worker_gives_nothing_up_before_it_has_told_what_it_holds() {
        let mut orders = Orders::new(10);
        orders.tell(&listing(&[1]), &BTreeSet::new());
        orders.tell(&listing(&[1, 2]), &BTreeSet::new());
        let first = orders.of("w").unwrap();
        assert!(first.keeps_all && first.version == 12);
        for other in [10, 13, 900] {
            orders.acknowledge("w", other);
            assert!(
                orders.of("w").unwrap().keeps_all,
                "it follows another front end's"
            );
        }
        orders.acknowledge("w", 11);
        let second = orders.of("w").unwrap();
        assert!(!second.keeps_all && second.version == 13);
        assert_eq!(second.files, first.files);
        orders.tell(&listing(&[2]), &BTreeSet::new());
        let third = orders.of("w").unwrap();
        assert!(!third.keeps_all && third.version == 14);
    }
}
