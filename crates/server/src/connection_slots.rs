//! The connection slots of a listener: how many connections may be open, in total and from one address. When no slot is free, a new
//! connection takes the slot of the connection that has been idle longest.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::listener::Peer;

/// How many connections a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    /// The limit for one address; all clients of the Unix socket count as one address.
    pub(crate) of_an_address: usize,
}

/// The connections of one listener.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    limits: ConnectionLimits,
    table: Mutex<SlotTable>,
}

#[derive(Debug, Default)]
struct SlotTable {
    next: u64,
    slots: HashMap<u64, Arc<SlotState>>,
}

/// Whether a connection is idle.
#[derive(Debug)]
struct SlotState {
    address: Option<IpAddr>,
    /// Since when it is idle. A time in the future: the connection is busy now and counts as idle from then on.
    since: Mutex<Option<Instant>>,
    evict: CancellationToken,
}

/// A limit on connections that was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitReached {
    /// As many connections are open as the listener allows.
    All(usize),
    /// As many connections are open from this address as are allowed.
    OfAnAddress(usize),
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(most) => write!(
                f,
                "there are {most} connections already, which is the limit"
            ),
            Self::OfAnAddress(most) => write!(
                f,
                "there are {most} connections from this address already, which is the limit"
            ),
        }
    }
}

impl ConnectionSlots {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            table: Mutex::default(),
        })
    }

    /// Takes a slot for a connection, which counts as idle at first.
    ///
    /// # Errors
    /// No slot is free and no connection is idle.
    pub(crate) fn take(self: &Arc<Self>, peer: Peer) -> Result<ConnectionSlot, LimitReached> {
        let address = peer.address();
        let mut table = lock(&self.table);
        let same = |state: &SlotState| state.address == address;
        let of_address = table.slots.values().filter(|it| same(it)).count();
        let is_full = table.slots.len() >= self.limits.all;
        if of_address >= self.limits.of_an_address && !table.evict_longest_idle(same) {
            return Err(match is_full {
                true => LimitReached::All(self.limits.all),
                false => LimitReached::OfAnAddress(self.limits.of_an_address),
            });
        }
        if table.slots.len() >= self.limits.all && !table.evict_longest_idle(|_| true) {
            return Err(LimitReached::All(self.limits.all));
        }
        let state = Arc::new(SlotState {
            address,
            since: Mutex::new(Some(Instant::now())),
            evict: CancellationToken::new(),
        });
        let number = table.next;
        table.next += 1;
        table.slots.insert(number, Arc::clone(&state));
        Ok(ConnectionSlot {
            number,
            state,
            slots: Arc::clone(self),
        })
    }
}

impl SlotTable {
    /// Evicts the connection that has been idle longest among those that `of` selects.
    fn evict_longest_idle(&mut self, of: impl Fn(&SlotState) -> bool) -> bool {
        let now = Instant::now();
        let since = |(number, state): (&u64, &Arc<SlotState>)| {
            let since = lock(&state.since).filter(|since| *since <= now)?;
            of(state).then_some((since, *number))
        };
        let Some((_, longest)) = self.slots.iter().filter_map(since).min() else {
            return false;
        };
        if let Some(state) = self.slots.remove(&longest) {
            state.evict.cancel();
        }
        true
    }
}

/// The slot of a connection, which is released when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    number: u64,
    state: Arc<SlotState>,
    slots: Arc<ConnectionSlots>,
}

impl ConnectionSlot {
    /// Marks the connection as idle: it may be evicted.
    pub(crate) fn set_idle(&self) {
        *lock(&self.state.since) = Some(Instant::now());
    }

    /// Marks the connection as busy, or as one that must not be evicted for another reason.
    pub(crate) fn set_busy(&self) {
        *lock(&self.state.since) = None;
    }

    /// Marks the connection as idle from a later time on.
    pub(crate) fn set_idle_after(&self, a_while: Duration) {
        *lock(&self.state.since) = Some(Instant::now() + a_while);
    }

    /// Completes when another connection needs the slot.
    pub(crate) async fn eviction_requested(&self) {
        self.state.evict.cancelled().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        lock(&self.slots.table).slots.remove(&self.number);
    }
}

/// A panic in another thread leaves the state consistent, because every change is a single operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address(([127, 0, 0, last], 5000).into())
    }

    fn eviction_requested(slot: &ConnectionSlot) -> bool {
        slot.eviction_requested().now_or_never().is_some()
    }

    #[test]
    fn who_has_waited_longest_gives_way() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            all: 3,
            of_an_address: 3,
        });
        let table: Vec<ConnectionSlot> = (0..3).map(|_| slots.take(peer(1)).unwrap()).collect();
        table[0].set_busy();
        table[2].set_idle_after(Duration::from_secs(60));
        let fourth = slots.take(peer(1)).unwrap();
        assert_eq!(
            table.iter().map(eviction_requested).collect::<Vec<_>>(),
            [false, true, false]
        );
        fourth.set_busy();
        assert_eq!(slots.take(peer(1)).unwrap_err(), LimitReached::All(3));
        drop(fourth);
        slots.take(peer(1)).unwrap();
    }

    #[test]
    fn an_address_has_no_more_than_its_share() {
        let slots = ConnectionSlots::new(ConnectionLimits {
            all: 10,
            of_an_address: 2,
        });
        let of_one = [(); 2].map(|()| slots.take(peer(1)).unwrap());
        let of_other = slots.take(peer(2)).unwrap();
        of_one.iter().for_each(ConnectionSlot::set_busy);
        assert_eq!(
            slots.take(peer(1)).unwrap_err(),
            LimitReached::OfAnAddress(2)
        );
        of_one[0].set_idle();
        let third = slots.take(peer(1)).unwrap();
        assert!(
            eviction_requested(&of_one[0])
                && !eviction_requested(&of_other)
                && !eviction_requested(&third)
        );
        let _by_file = [(); 2].map(|()| slots.take(Peer::Socket).unwrap());
    }
}
