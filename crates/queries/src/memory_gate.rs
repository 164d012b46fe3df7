//! The gate before the memory of statements: a query that gathers rows takes its least share before it begins, and waits in a queue while
//! there is no room.
//!
//! Invariants: who comes first is admitted first; whoever is alone is admitted, however much it wants; a share is given back when whoever
//! holds it is dropped, also while it waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use crate::registry::lock;

/// The memory of a process's statements.
#[derive(Debug)]
pub(crate) struct MemoryGate {
    bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    tickets: u64,
    queue: VecDeque<MemoryTicket>,
}

#[derive(Debug)]
struct MemoryTicket {
    ticket: u64,
    bytes: u64,
    admit: oneshot::Sender<MemoryShare>,
}

/// A share of the memory. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    gate: Arc<MemoryGate>,
    bytes: u64,
}

/// A place in the queue. Dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct MemoryPlace {
    gate: Arc<MemoryGate>,
    ticket: u64,
    admitted: oneshot::Receiver<MemoryShare>,
}

impl MemoryShare {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is all the memory.
    pub(crate) fn is_all(&self) -> bool {
        self.bytes >= self.gate.bytes
    }
}

impl MemoryGate {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes,
            state: Mutex::default(),
        })
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Joins the queue for a share, which may be there at once.
    pub(crate) fn request(self: &Arc<Self>, bytes: u64) -> MemoryPlace {
        let (admit, admitted) = oneshot::channel();
        let ticket = {
            let mut state = lock(&self.state);
            state.tickets += 1;
            let ticket = state.tickets;
            state.queue.push_back(MemoryTicket {
                ticket,
                bytes: bytes.min(self.bytes),
                admit,
            });
            ticket
        };
        self.admit();
        MemoryPlace {
            gate: Arc::clone(self),
            ticket,
            admitted,
        }
    }

    /// The place of a ticket among those that wait, from 1 on.
    pub(crate) fn place(&self, ticket: u64) -> Option<u64> {
        let state = lock(&self.state);
        let at = state.queue.iter().position(|it| it.ticket == ticket)?;
        Some(at as u64 + 1)
    }

    /// Admits the first in the queue for whom there is room.
    fn admit(self: &Arc<Self>) {
        loop {
            let (admit, share) = {
                let mut state = lock(&self.state);
                let taken = state.taken;
                let has_room = |bytes: u64| taken == 0 || taken + bytes <= self.bytes;
                let Some(first) = state.queue.pop_front_if(|first| has_room(first.bytes)) else {
                    return;
                };
                state.taken += first.bytes;
                let share = MemoryShare {
                    gate: Arc::clone(self),
                    bytes: first.bytes,
                };
                (first.admit, share)
            };
            // Whoever has gone meanwhile gives it back at once.
            drop(admit.send(share));
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        lock(&self.gate.state).taken -= self.bytes;
        self.gate.admit();
    }
}

impl MemoryPlace {
    /// The number by which the gate knows the place.
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The share, when its turn has come.
    pub(crate) async fn admitted(&mut self) -> Option<MemoryShare> {
        // The gate lives as long as its places.
        (&mut self.admitted).await.ok()
    }
}

impl Drop for MemoryPlace {
    fn drop(&mut self) {
        let left = {
            let mut state = lock(&self.gate.state);
            let at = state.queue.iter().position(|it| it.ticket == self.ticket);
            at.and_then(|at| state.queue.remove(at))
        };
        if left.is_some() {
            // Those behind it may need less.
            self.gate.admit();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    fn share(place: &mut MemoryPlace) -> Option<MemoryShare> {
        place.admitted().now_or_never().flatten()
    }

    #[test]
    fn who_comes_first_is_admitted_first() {
        let gate = MemoryGate::new(10);
        let mut first = gate.request(6);
        let held = share(&mut first).unwrap();
        let (mut large, mut small) = (gate.request(5), gate.request(1));
        assert!(share(&mut large).is_none());
        assert!(share(&mut small).is_none(), "it would pass the large one");
        assert_eq!(gate.place(large.ticket()), Some(1));
        assert_eq!(gate.place(small.ticket()), Some(2));
        drop(held);
        let both = (share(&mut large).unwrap(), share(&mut small).unwrap());
        assert_eq!(gate.place(large.ticket()), None);
        drop(both);
        assert_eq!(lock(&gate.state).taken, 0);
    }

    #[test]
    fn who_leaves_makes_room() {
        let gate = MemoryGate::new(10);
        let held = share(&mut gate.request(8)).unwrap();
        let large = gate.request(9);
        let mut small = gate.request(2);
        drop(large);
        assert!(share(&mut small).is_some());
        // Admitted, and gone before it knew.
        let unread = gate.request(1);
        drop(unread);
        drop((held, small));
        assert_eq!(lock(&gate.state).taken, 0);
    }

    #[test]
    fn whoever_is_alone_is_admitted() {
        let gate = MemoryGate::new(10);
        assert!(share(&mut gate.request(u64::MAX)).is_some());
        let none = MemoryGate::new(0);
        let held = share(&mut none.request(7)).unwrap();
        drop(held);
        assert!(share(&mut none.request(7)).is_some());
    }

    proptest! {
        /// Whatever comes, goes and ends: never more than there is, unless one is alone; and nobody waits while there is room for the first.
        #[test]
        fn shares_fit(steps in proptest::collection::vec((0_u8..4, 0_u64..14, 0_usize..8), 1..200)) {
            let gate = MemoryGate::new(10);
            let (mut waiting, mut held): (Vec<MemoryPlace>, Vec<MemoryShare>) = (vec![], vec![]);
            for (what, bytes, at) in steps {
                match what {
                    0 | 1 => waiting.push(gate.request(bytes)),
                    2 if at < waiting.len() => drop(waiting.remove(at)),
                    3 if at < held.len() => drop(held.remove(at)),
                    _ => {}
                }
                let mut left = vec![];
                for mut place in waiting {
                    match share(&mut place) {
                        Some(share) => held.push(share),
                        None => left.push(place),
                    }
                }
                waiting = left;
                let state = lock(&gate.state);
                let taken: u64 = held.iter().map(|it| it.bytes).sum();
                prop_assert_eq!(state.taken, taken);
                prop_assert!(taken <= 10);
                prop_assert_eq!(state.queue.len(), waiting.len());
                if let Some(first) = state.queue.front() {
                    prop_assert!(taken > 0 && taken + first.bytes > 10);
                }
            }
            drop((waiting, held));
            prop_assert_eq!(lock(&gate.state).taken, 0);
        }
    }
}
