//! What workers were told to hold, and what they hold for sure as long as they are told nothing else.
//!
//! A worker gives a file up only under an assignment that does not list it. It follows the one that it acknowledged last, or one that it was
//! told since. So it keeps what all of these list, whatever is under way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::members::{Holdings, part_files};
use crate::messages::PartFiles;

/// What each worker was told to hold, by name.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    workers: HashMap<String, Told>,
    /// The number that was given last.
    version: u64,
}

/// What a worker was told to hold.
#[derive(Debug)]
struct Told {
    /// The number of the assignment.
    version: u64,
    files: Arc<Vec<PartFiles>>,
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

    /// The assignment of a worker, and its number.
    pub fn of(&self, worker: &str) -> Option<(u64, &Arc<Vec<PartFiles>>)> {
        let told = self.workers.get(worker)?;
        Some((told.version, &told.files))
    }

    /// Notes which assignment a worker follows.
    pub fn acknowledge(&mut self, worker: &str, version: u64) {
        if let Some(told) = self.workers.get_mut(worker)
            && told.version == version
        {
            told.sure = Arc::clone(&told.holdings);
        }
    }

    /// The files that each worker keeps if it holds them, by its name.
    pub fn sure(&self) -> HashMap<String, Arc<Holdings>> {
        let sure = |(name, told): (&String, &Told)| (name.clone(), Arc::clone(&told.sure));
        self.workers.iter().map(sure).collect()
    }

    /// Tells workers what they shall hold, where that has changed.
    pub fn tell(&mut self, latest: &BTreeMap<String, Arc<Holdings>>) {
        for (name, holdings) in latest {
            let known = self.workers.get(name);
            if known.is_some_and(|known| known.holdings == *holdings) {
                continue;
            }
            self.version += 1;
            let sure = known.map(|known| common(&known.sure, holdings));
            let told = Told {
                version: self.version,
                files: Arc::new(part_files(holdings)),
                holdings: Arc::clone(holdings),
                sure: Arc::new(sure.unwrap_or_default()),
            };
            self.workers.insert(name.clone(), told);
        }
    }
}

/// The files that both list.
fn common(left: &Holdings, right: &Holdings) -> Holdings {
    let both = left.iter().filter_map(|(part, files)| {
        let others = right.get(part)?;
        Some((*part, files.intersection(others).copied().collect()))
    });
    both.collect()
}
