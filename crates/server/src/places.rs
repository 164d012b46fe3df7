//! The places at a listener: as many connections as there may be, of which no address has more than its share. Where there are no
//! more, the connection that has waited longest without asking anything gives way to the next.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::doors::Peer;

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    pub(crate) all: usize,
    /// From one address; programs that connect by a file of the system count as one.
    pub(crate) of_an_address: usize,
}

/// The connections at a listener.
#[derive(Debug)]
pub(crate) struct Places {
    limits: ConnectionLimits,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    places: HashMap<u64, Arc<Waiting>>,
}

/// Whether a connection waits to be asked something.
#[derive(Debug)]
struct Waiting {
    address: Option<IpAddr>,
    /// Since when, if it does. From a time to come on: where it is busy now and counts as waiting if it is so for long.
    since: Mutex<Option<Instant>>,
    give_way: CancellationToken,
}

/// There is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// There are as many connections as may be.
    All(usize),
    /// There are as many from that address.
    OfAnAddress(usize),
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All(most) => write!(
                f,
                "there are {most} connections already, which is as many as may be"
            ),
            Self::OfAnAddress(most) => write!(
                f,
                "there are {most} connections from this address already, which is as many as may be"
            ),
        }
    }
}

impl Places {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            taken: Mutex::default(),
        })
    }

    /// A place for a connection, which waits from now on.
    ///
    /// # Errors
    /// There is none, and nobody who could give way.
    pub(crate) fn take(self: &Arc<Self>, peer: Peer) -> Result<Place, Full> {
        let address = peer.address();
        let mut taken = lock(&self.taken);
        let same = |waiting: &Waiting| waiting.address == address;
        let of_address = taken.places.values().filter(|it| same(it)).count();
        let is_full = taken.places.len() >= self.limits.all;
        if of_address >= self.limits.of_an_address && !taken.make_room(same) {
            return Err(match is_full {
                true => Full::All(self.limits.all),
                false => Full::OfAnAddress(self.limits.of_an_address),
            });
        }
        if taken.places.len() >= self.limits.all && !taken.make_room(|_| true) {
            return Err(Full::All(self.limits.all));
        }
        let waiting = Arc::new(Waiting {
            address,
            since: Mutex::new(Some(Instant::now())),
            give_way: CancellationToken::new(),
        });
        let number = taken.next;
        taken.next += 1;
        taken.places.insert(number, Arc::clone(&waiting));
        Ok(Place {
            number,
            waiting,
            places: Arc::clone(self),
        })
    }
}

impl Taken {
    /// Ends the connection that has waited longest of some.
    fn make_room(&mut self, of: impl Fn(&Waiting) -> bool) -> bool {
        let now = Instant::now();
        let since = |(number, waiting): (&u64, &Arc<Waiting>)| {
            let since = lock(&waiting.since).filter(|since| *since <= now)?;
            of(waiting).then_some((since, *number))
        };
        let Some((_, longest)) = self.places.iter().filter_map(since).min() else {
            return false;
        };
        if let Some(waiting) = self.places.remove(&longest) {
            waiting.give_way.cancel();
        }
        true
    }
}

/// A connection's place, for as long as it is held.
#[derive(Debug)]
pub(crate) struct Place {
    number: u64,
    waiting: Arc<Waiting>,
    places: Arc<Places>,
}

impl Place {
    /// The connection waits from now on: it may give way.
    pub(crate) fn waits(&self) {
        *lock(&self.waiting.since) = Some(Instant::now());
    }

    /// It is busy, or for another reason does not give way.
    pub(crate) fn is_busy(&self) {
        *lock(&self.waiting.since) = None;
    }

    /// It may give way if it is still so after a while.
    pub(crate) fn waits_after(&self, a_while: Duration) {
        *lock(&self.waiting.since) = Some(Instant::now() + a_while);
    }

    /// Ends when another connection needs the place.
    pub(crate) async fn is_needed(&self) {
        self.waiting.give_way.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.taken).places.remove(&self.number);
    }
}

/// A panic elsewhere leaves what is locked whole: every change is a single one.
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

    fn is_needed(place: &Place) -> bool {
        place.is_needed().now_or_never().is_some()
    }

    #[test]
    fn who_has_waited_longest_gives_way() {
        let places = Places::new(ConnectionLimits {
            all: 3,
            of_an_address: 3,
        });
        let taken: Vec<Place> = (0..3).map(|_| places.take(peer(1)).unwrap()).collect();
        taken[0].is_busy();
        taken[2].waits_after(Duration::from_secs(60));
        let fourth = places.take(peer(1)).unwrap();
        assert_eq!(
            taken.iter().map(is_needed).collect::<Vec<_>>(),
            [false, true, false]
        );
        fourth.is_busy();
        assert_eq!(places.take(peer(1)).unwrap_err(), Full::All(3));
        drop(fourth);
        places.take(peer(1)).unwrap();
    }

    #[test]
    fn an_address_has_no_more_than_its_share() {
        let places = Places::new(ConnectionLimits {
            all: 10,
            of_an_address: 2,
        });
        let of_one = [(); 2].map(|()| places.take(peer(1)).unwrap());
        let of_other = places.take(peer(2)).unwrap();
        of_one.iter().for_each(Place::is_busy);
        assert_eq!(places.take(peer(1)).unwrap_err(), Full::OfAnAddress(2));
        of_one[0].waits();
        let third = places.take(peer(1)).unwrap();
        assert!(is_needed(&of_one[0]) && !is_needed(&of_other) && !is_needed(&third));
        let _by_file = [(); 2].map(|()| places.take(Peer::Socket).unwrap());
    }
}
