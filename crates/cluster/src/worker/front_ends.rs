//! The front ends that a worker reports to and reads from.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One that has not answered a report for so long is asked after the others.
const SILENT_AFTER: Duration = Duration::from_secs(4);

/// The front ends that a worker was told of.
#[derive(Debug)]
pub(crate) struct FrontEnds {
    addresses: Vec<String>,
    /// When each last answered a report.
    heard: Mutex<Vec<Option<Instant>>>,
}

impl FrontEnds {
    /// Those at some addresses, each once.
    pub fn new(addresses: &[String]) -> Self {
        let mut known: Vec<String> = Vec::new();
        for address in addresses {
            if !known.contains(address) {
                known.push(address.clone());
            }
        }
        Self {
            heard: Mutex::new(vec![None; known.len()]),
            addresses: known,
        }
    }

    /// Their addresses.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Notes whether one has answered a report.
    pub fn note(&self, at: usize, has_answered: bool) {
        if let Some(heard) = self.lock().get_mut(at) {
            *heard = has_answered.then(Instant::now);
        }
    }

    /// Their addresses in the order in which they are asked: those first that have just answered. The others are asked, too, so that nothing fails for
    /// what they alone have.
    pub fn in_order(&self) -> Vec<&str> {
        let heard = self.lock();
        let is_there = |at: &usize| heard[*at].is_some_and(|heard| heard.elapsed() < SILENT_AFTER);
        let mut order: Vec<usize> = (0..self.addresses.len()).collect();
        // The sort is stable.
        order.sort_by_key(|at| !is_there(at));
        order
            .into_iter()
            .map(|at| self.addresses[at].as_str())
            .collect()
    }

    /// Every change is a single one, so that a panic elsewhere leaves it whole.
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Option<Instant>>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_answer_are_asked_first() {
        let addresses = ["a:1", "b:1", "a:1", "c:1"].map(str::to_owned);
        let front_ends = FrontEnds::new(&addresses);
        assert_eq!(front_ends.in_order(), ["a:1", "b:1", "c:1"]);
        front_ends.note(1, true);
        front_ends.note(2, true);
        assert_eq!(front_ends.in_order(), ["b:1", "c:1", "a:1"]);
        front_ends.note(1, false);
        assert_eq!(front_ends.in_order(), ["c:1", "a:1", "b:1"]);
        let long_ago = Instant::now().checked_sub(SILENT_AFTER);
        front_ends.lock()[2] = long_ago;
        assert_eq!(front_ends.in_order(), ["a:1", "b:1", "c:1"]);
    }
}
