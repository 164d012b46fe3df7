//! What a worker shall hold, as far as it knows, and which of several front ends it believes.
//!
//! One front end at a time leads, in an epoch of its own. A worker follows the newest epoch that it was told of, and in it the assignment
//! that it was told last: a front end that led before and was asleep may still say what does not count any more.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catalog::LoadId;

use crate::messages::{Assignment, PartFiles};

/// An assignment, by the epoch of the leader that made it and its number there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct AssignmentNumber {
    pub epoch: u64,
    pub number: u64,
}

/// What a worker shall hold.
#[derive(Debug, Default)]
pub(super) struct Orders {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// The assignment that is followed.
    pub follows: AssignmentNumber,
    /// What it lists; none before the worker was told anything.
    pub parts: Option<Arc<Vec<PartFiles>>>,
    /// The parts of these that are of users' own tables.
    pub user_parts: Arc<HashSet<LoadId>>,
    /// Whether nothing is given up that it does not list.
    pub keeps_all: bool,
    /// The files of it that come first, in this order, as the leader said last.
    pub first: Arc<Vec<PartFiles>>,
    /// Why a file of it could not be got.
    pub trouble: Option<String>,
}

impl Orders {
    /// Every change is a single one, so that a panic elsewhere leaves it whole.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Follows an assignment from now on, unless it is of an older epoch than the one that is followed, or lists nothing.
    pub fn take(&mut self, told: Assignment) {
        if let Some(first) = told.next
            && told.epoch >= self.follows.epoch
        {
            self.first = Arc::new(first);
        }
        let Some(parts) = told.parts else {
            return;
        };
        if self.parts.is_some() && told.epoch < self.follows.epoch {
            tracing::debug!(
                epoch = told.epoch,
                newer = self.follows.epoch,
                "what a front end says that leads no more does not count"
            );
            return;
        }
        self.follows = AssignmentNumber {
            epoch: told.epoch,
            number: told.assignment,
        };
        self.parts = Some(Arc::new(parts));
        self.user_parts = Arc::new(told.user_parts.into_iter().map(LoadId).collect());
        self.keeps_all = told.keeps_all;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(epoch: u64, assignment: u64, files: Option<Vec<i32>>) -> Assignment {
        let part = |files| PartFiles {
            part: 1,
            digest: 1,
            files,
        };
        Assignment {
            archive: String::new(),
            known_holdings: None,
            epoch,
            assignment,
            parts: files.map(|files| vec![part(files)]),
            user_parts: Vec::new(),
            keeps_all: false,
            next: None,
            front_ends: Vec::new(),
            revoked: crate::tls::ListNews::default(),
            shuffles: None,
        }
    }

    #[test]
    fn whoever_led_before_is_not_followed_any_more() {
        let mut state = State::default();
        state.take(told(0, 7, None));
        assert!(state.parts.is_none());
        state.take(told(0, 7, Some(vec![1, 2])));
        state.take(told(2, 3, Some(vec![1, 2, 3])));
        state.take(told(1, 900, Some(Vec::new())));
        state.take(told(3, 1, None));
        let follows = AssignmentNumber {
            epoch: 2,
            number: 3,
        };
        assert_eq!(state.follows, follows);
        assert_eq!(state.parts.as_ref().unwrap()[0].files, [1, 2, 3]);
        // Within an epoch it is what was told last.
        state.take(told(2, 4, Some(vec![1])));
        assert_eq!(state.parts.as_ref().unwrap()[0].files, [1]);
    }

    proptest! {
        /// Whatever arrives in whatever order: what is followed is of the newest epoch of all that was told.
        #[test]
        fn the_newest_epoch_counts(all in prop::collection::vec((0u64..6, 0u64..50, prop::option::of(prop::collection::vec(0i32..9, 0..4))), 0..60)) {
            let mut state = State::default();
            let mut newest: Option<(u64, u64, Vec<i32>)> = None;
            for (epoch, number, files) in all {
                state.take(told(epoch, number, files.clone()));
                if let Some(files) = files
                    && newest.as_ref().is_none_or(|(known, ..)| epoch >= *known)
                {
                    newest = Some((epoch, number, files));
                }
                match &newest {
                    None => prop_assert!(state.parts.is_none()),
                    Some((epoch, number, files)) => {
                        prop_assert_eq!(state.follows, AssignmentNumber { epoch: *epoch, number: *number });
                        prop_assert_eq!(&state.parts.as_ref().unwrap()[0].files, files);
                    }
                }
            }
        }
    }
}
