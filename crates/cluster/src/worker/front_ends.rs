//! The front ends that a worker reports to and reads from: those that it was given, and those of which they tell it.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// One that has not answered a report for so long is asked after the others.
const SILENT_AFTER: Duration = Duration::from_secs(4);
/// One that the worker was not given is forgotten when no front end has listed it for so long, nor it has answered.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// The front ends that a worker knows.
#[derive(Debug)]
pub(crate) struct FrontEnds {
    known: Mutex<Vec<KnownFrontEnd>>,
    changed: Notify,
}

#[derive(Debug)]
struct KnownFrontEnd {
    /// Where the worker reaches it.
    address: String,
    /// What it calls itself, which may be another spelling.
    own_address: Option<String>,
    /// Whether the worker was given it: then it is never forgotten.
    is_given: bool,
    /// When it last answered a report, unless it has failed since.
    heard: Option<Instant>,
    /// When a front end last listed it.
    listed: Instant,
}

impl KnownFrontEnd {
    fn new(address: &str, is_given: bool) -> Self {
        Self {
            address: address.to_owned(),
            own_address: None,
            is_given,
            heard: None,
            listed: Instant::now(),
        }
    }

    fn is_at(&self, address: &str) -> bool {
        self.address == address || self.own_address.as_deref() == Some(address)
    }

    fn is_there(&self) -> bool {
        self.heard.is_some_and(|it| it.elapsed() < SILENT_AFTER)
    }
}

impl FrontEnds {
    /// Those at some addresses, each once.
    pub fn new(addresses: &[String]) -> Self {
        let mut known: Vec<KnownFrontEnd> = Vec::new();
        for address in addresses {
            if !known.iter().any(|it| it.address == *address) {
                known.push(KnownFrontEnd::new(address, true));
            }
        }
        Self {
            known: Mutex::new(known),
            changed: Notify::new(),
        }
    }

    /// Their addresses.
    pub fn addresses(&self) -> Vec<String> {
        self.lock().iter().map(|it| it.address.clone()).collect()
    }

    /// Whether one is known by this address.
    pub fn is_known(&self, address: &str) -> bool {
        self.lock().iter().any(|it| it.address == address)
    }

    /// Waits until others are known than before.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Notes whether one has answered a report.
    pub fn note(&self, address: &str, has_answered: bool) {
        let mut known = self.lock();
        if let Some(it) = known.iter_mut().find(|it| it.address == address) {
            it.heard = has_answered.then(Instant::now);
        }
    }

    /// Notes what the front end at an address says of the addresses of all, its own first. Gives those that are new.
    pub fn learn(&self, from: &str, told: &[String]) -> Vec<String> {
        let Some((own, others)) = told.split_first() else {
            return Vec::new();
        };
        let mut known = self.lock();
        let before = known.len();
        if let Some(it) = known.iter_mut().find(|it| it.address == from) {
            it.own_address = Some(own.clone());
            it.listed = Instant::now();
        }
        // Another one may have told of it before it has said that it is one that was given.
        let is_given = known.iter().any(|it| it.is_given && it.is_at(own));
        known.retain(|it| it.is_given || it.address != *own || !is_given);
        let mut new = Vec::new();
        for address in others {
            let mut is_known = false;
            for it in known.iter_mut().filter(|it| it.is_at(address)) {
                it.listed = Instant::now();
                is_known = true;
            }
            if !is_known && can_be_reached(address) {
                known.push(KnownFrontEnd::new(address, false));
                new.push(address.clone());
            }
        }
        known.retain(|it| it.is_given || it.is_there() || it.listed.elapsed() < FORGOTTEN_AFTER);
        if !new.is_empty() || known.len() != before {
            self.changed.notify_one();
        }
        new
    }

    /// Their addresses in the order in which they are asked: those first that have just answered. The others are asked, too, so that nothing fails for
    /// what they alone have.
    pub fn in_order(&self) -> Vec<String> {
        let known = self.lock();
        let mut order: Vec<&KnownFrontEnd> = known.iter().collect();
        // The sort is stable.
        order.sort_by_key(|it| !it.is_there());
        order.into_iter().map(|it| it.address.clone()).collect()
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Vec<KnownFrontEnd>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an address leads somewhere: a front end that listens at all addresses of its machine does not know which others use.
fn can_be_reached(address: &str) -> bool {
    match address.parse::<SocketAddr>() {
        Ok(address) => !address.ip().is_unspecified() && address.port() != 0,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(addresses: &[&str]) -> Vec<String> {
        addresses.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn those_that_answer_are_asked_first() {
        let front_ends = FrontEnds::new(&strings(&["a:1", "b:1", "a:1", "c:1"]));
        assert_eq!(front_ends.in_order(), ["a:1", "b:1", "c:1"]);
        front_ends.note("b:1", true);
        front_ends.note("c:1", true);
        assert_eq!(front_ends.in_order(), ["b:1", "c:1", "a:1"]);
        front_ends.note("b:1", false);
        assert_eq!(front_ends.in_order(), ["c:1", "a:1", "b:1"]);
        let long_ago = Instant::now().checked_sub(SILENT_AFTER);
        front_ends.lock()[2].heard = long_ago;
        assert_eq!(front_ends.in_order(), ["a:1", "b:1", "c:1"]);
    }

    #[test]
    fn front_ends_that_start_later_are_learned_and_forgotten_when_they_are_gone() {
        let front_ends = FrontEnds::new(&strings(&["one:7600"]));
        let told = strings(&["10.0.0.1:7600", "10.0.0.2:7600", "0.0.0.0:7600", "nonsense"]);
        assert_eq!(front_ends.learn("one:7600", &told), ["10.0.0.2:7600"]);
        assert_eq!(front_ends.learn("one:7600", &told), [""; 0]);
        // The new one knows the first one by its own name, which is no third.
        let other = strings(&["10.0.0.2:7600", "10.0.0.1:7600"]);
        assert_eq!(front_ends.learn("10.0.0.2:7600", &other), [""; 0]);
        assert_eq!(front_ends.addresses(), ["one:7600", "10.0.0.2:7600"]);
        assert!(front_ends.is_known("10.0.0.2:7600"));
        let long_ago = Instant::now().checked_sub(FORGOTTEN_AFTER).unwrap();
        let alone = strings(&["10.0.0.1:7600"]);
        front_ends.learn("one:7600", &alone);
        assert!(
            front_ends.is_known("10.0.0.2:7600"),
            "it may only have lost PostgreSQL"
        );
        front_ends.lock()[1].listed = long_ago;
        front_ends.note("10.0.0.2:7600", true);
        front_ends.learn("one:7600", &alone);
        assert!(front_ends.is_known("10.0.0.2:7600"), "it answers");
        front_ends.note("10.0.0.2:7600", false);
        front_ends.learn("one:7600", &alone);
        assert_eq!(front_ends.addresses(), ["one:7600"]);
    }

    #[test]
    fn one_that_was_given_under_another_name_is_known_once() {
        let front_ends = FrontEnds::new(&strings(&["one:7600", "two:7600"]));
        let told = strings(&["10.0.0.1:7600", "10.0.0.2:7600"]);
        assert_eq!(front_ends.learn("one:7600", &told), ["10.0.0.2:7600"]);
        front_ends.learn("two:7600", &strings(&["10.0.0.2:7600", "10.0.0.1:7600"]));
        assert_eq!(front_ends.addresses(), ["one:7600", "two:7600"]);
        assert_eq!(front_ends.learn("one:7600", &told), [""; 0]);
    }
}
