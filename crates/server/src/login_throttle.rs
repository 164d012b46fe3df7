//! How many guesses of passwords there are: so many of one name from one address, and so many of one address, which come back evenly.
//!
//! Whoever has none left is refused before anything is verified, whatever password they send. All servers of a data directory count
//! together, and after a restart goes on what was counted before: what fails is noted in memory, and once in a second added to the file
//! that they share. No login waits for that. Tokens are not guessed, and not counted.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ::users::{FailedLoginState, FailedLoginStore, FailedLogins, fingerprint};
use sql::ErrorCode;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::ClientError;
use crate::authenticator::Authenticator;
use crate::listener::Peer;

/// How often what has failed is added to the file, and what others have added is read.
const INTERVAL: Duration = Duration::from_secs(1);
/// Keys in memory.
const MOST: usize = 20_000;

/// How many logins may fail, and how many of them are forgotten in a second.
#[derive(Debug, Clone, Copy)]
struct Allowance {
    most: f64,
    forgotten: f64,
}

/// Of one name from one address.
const OF_NAME: Allowance = Allowance {
    most: 10.0,
    forgotten: 1.0 / 30.0,
};
/// Of one address, with whatever names: several people may share it.
const OF_ADDRESS: Allowance = Allowance {
    most: 100.0,
    forgotten: 1.0 / 3.0,
};

/// The failed logins that count.
#[derive(Debug)]
pub(crate) struct LoginThrottle {
    store: FailedLoginStore,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// All that count, with those that are to be added.
    all: HashMap<[u8; 32], FailedLogins>,
    /// What the file does not have yet.
    new: HashMap<[u8; 32], FailedLogins>,
    /// The state of the file that was read.
    state: Option<FailedLoginState>,
    /// The problem that was told of.
    problem: String,
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// What one client is counted by: the address, of IPv6 the network that one client has, with the name and without. On this machine only
/// names count: whoever is behind a proxy there has its address.
fn keys(peer: Peer, name: &str) -> Vec<([u8; 32], Allowance)> {
    let host = match peer.address() {
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_none() => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64")
        }
        Some(address) => address.to_canonical().to_string(),
        None => peer.host(),
    };
    let is_remote = { peer.address() }.is_some_and(|it| !it.to_canonical().is_loopback());
    let mut keys = vec![(fingerprint(&["name", &host, name]), OF_NAME)];
    if is_remote {
        keys.push((fingerprint(&["address", &host]), OF_ADDRESS));
    }
    keys
}

impl LoginThrottle {
    /// That of a data directory, with what has failed before.
    pub(crate) async fn of(data_dir: &Path) -> Self {
        let throttle = Self {
            store: FailedLoginStore::of(data_dir),
            counts: Mutex::default(),
        };
        throttle.exchange().await;
        throttle
    }

    /// Whether a password of this name may be tried from there.
    ///
    /// # Errors
    /// Too many were wrong.
    pub(crate) fn check(&self, peer: Peer, name: &str) -> Result<(), ClientError> {
        self.check_at(peer, name, now())
    }

    fn check_at(&self, peer: Peer, name: &str, now: f64) -> Result<(), ClientError> {
        let counts = self.counts();
        let waits = keys(peer, name).into_iter().filter_map(|(key, allowed)| {
            let failed = counts.all.get(&key)?.remaining(now);
            let beyond = failed + 1.0 - allowed.most;
            (beyond > 0.0).then(|| beyond / allowed.forgotten)
        });
        let wait = waits.fold(0.0, f64::max);
        if wait <= 0.0 {
            return Ok(());
        }
        let wait = wait.ceil().max(1.0);
        let sentence = format!(
            "too many logins from your address have failed: try again in {wait} s, or log in with a token (`meridian user token`), which MySQL's clients send as the password in TLS"
        );
        let error = ClientError::new(ErrorCode::LOGIN_BLOCKED, sentence);
        Err(error.retried_after(Duration::from_secs_f64(wait)))
    }

    /// Notes that a password of this name was wrong.
    pub(crate) fn failed(&self, peer: Peer, name: &str) {
        self.failed_at(peer, name, now());
    }

    fn failed_at(&self, peer: Peer, name: &str, now: f64) {
        let mut counts = self.counts();
        for (key, allowed) in keys(peer, name) {
            let Counts { all, new, .. } = &mut *counts;
            for map in [all, new] {
                if map.len() >= MOST && !map.contains_key(&key) {
                    continue;
                }
                let logins = map.entry(key).or_insert(FailedLogins {
                    key,
                    failed: 0.0,
                    forgotten: allowed.forgotten,
                    at: now,
                });
                logins.failed = logins.remaining(now) + 1.0;
                logins.at = now;
            }
        }
    }

    /// Adds what has failed here to the file, and reads what has failed with other servers.
    pub(crate) async fn exchange(&self) {
        if let Err(problem) = self.try_exchange().await {
            let mut counts = self.counts();
            if counts.problem != problem {
                warn!(
                    problem,
                    "failed logins are counted by this server alone, until it ends"
                );
                counts.problem = problem;
            }
        }
    }

    async fn try_exchange(&self) -> Result<(), String> {
        let of_store = |error: ::users::UsersError| error.to_string();
        // Before the rows are read: a later change makes the next look see another state.
        let state = self.store.state().map_err(of_store)?;
        let added: Vec<FailedLogins> = {
            let counts = self.counts();
            if counts.new.is_empty() && counts.state == Some(state) {
                return Ok(());
            }
            counts.new.values().copied().collect()
        };
        let now = now();
        let read = match added.is_empty() {
            true => self.store.all().await,
            false => self.store.add(&added, now).await,
        };
        let read = read.map_err(of_store)?;
        let mut counts = self.counts();
        // What has failed meanwhile is added the next time.
        for logins in added {
            if let Some(new) = counts.new.get_mut(&logins.key) {
                new.failed -= logins.remaining(new.at);
                if new.failed < 0.5 {
                    counts.new.remove(&logins.key);
                }
            }
        }
        let mut all: HashMap<_, _> = read.into_iter().map(|it| (it.key, it)).collect();
        for logins in counts.new.values() {
            let before = all
                .get(&logins.key)
                .map_or(0.0, |it| it.remaining(logins.at));
            let failed = before + logins.failed;
            all.insert(logins.key, FailedLogins { failed, ..*logins });
        }
        counts.all = all;
        counts.state = Some(state);
        counts.problem.clear();
        Ok(())
    }

    /// A panic in another thread leaves these whole enough: they are counts.
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Shares the failed logins with the other servers, until the server ends.
pub(crate) async fn share(authenticator: Arc<Authenticator>, stop: CancellationToken) {
    loop {
        let is_over = timeout(INTERVAL, stop.cancelled()).await.is_ok();
        authenticator.throttle().exchange().await;
        if is_over {
            return;
        }
    }
}

/// A wrong response of a MySQL client that may still go on: with another plugin, or with the password itself. Unless it does, this was a
/// failed login, also where the client leaves.
pub(crate) struct WrongResponse {
    authenticator: Arc<Authenticator>,
    name: String,
    peer: Peer,
    counts: bool,
}

impl WrongResponse {
    /// Of a client that gives this name.
    pub(crate) fn new(authenticator: &Arc<Authenticator>, name: &str, peer: Peer) -> Self {
        Self {
            authenticator: Arc::clone(authenticator),
            name: name.to_owned(),
            peer,
            counts: true,
        }
    }

    /// The client goes on, and what comes of that counts.
    pub(crate) fn goes_on(mut self) {
        self.counts = false;
    }
}

impl Drop for WrongResponse {
    fn drop(&mut self) {
        if self.counts {
            self.authenticator.throttle().failed(self.peer, &self.name);
            self.authenticator
                .note_failed_login("mysql", &self.name, self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::Address(SocketAddr::new(address.parse().unwrap(), 1))
    }

    async fn throttle(directory: &Path) -> LoginThrottle {
        LoginThrottle::of(directory).await
    }

    #[tokio::test]
    async fn guesses_of_a_name_from_an_address_are_few() {
        let directory = tempfile::tempdir().unwrap();
        let throttle = throttle(directory.path()).await;
        let here = peer("192.0.2.1");
        for _ in 0..10 {
            throttle.check_at(here, "ann", 1000.0).unwrap();
            throttle.failed_at(here, "ann", 1000.0);
        }
        let error = throttle.check_at(here, "ann", 1000.0).unwrap_err();
        assert_eq!(error.code, ErrorCode::LOGIN_BLOCKED);
        assert_eq!(error.retry_after, Some(Duration::from_secs(30)));
        // Others of the address, and the same name from elsewhere, are not held up.
        throttle.check_at(here, "bob", 1000.0).unwrap();
        throttle.check_at(peer("192.0.2.2"), "ann", 1000.0).unwrap();
        throttle.check_at(Peer::Socket, "ann", 1000.0).unwrap();
        throttle.check_at(here, "ann", 1030.5).unwrap();
        throttle.failed_at(here, "ann", 1030.5);
        assert!(throttle.check_at(here, "ann", 1030.5).is_err());
    }

    #[tokio::test]
    async fn so_are_those_of_an_address() {
        let directory = tempfile::tempdir().unwrap();
        let throttle = throttle(directory.path()).await;
        for n in 0..100_u128 {
            let network = (0x2001_0db8_0000_0001_u128 << 64) + n;
            let here = Peer::Address(SocketAddr::new(IpAddr::from(network.to_be_bytes()), 1));
            throttle.check_at(here, &format!("u{n}"), 1000.0).unwrap();
            throttle.failed_at(here, &format!("u{n}"), 1000.0);
        }
        let error = throttle.check_at(peer("2001:db8:0:1::ffff"), "new", 1000.0);
        assert_eq!(error.unwrap_err().retry_after, Some(Duration::from_secs(3)));
        throttle
            .check_at(peer("2001:db8:0:2::1"), "new", 1000.0)
            .unwrap();
        // Of IPv4 in IPv6 each address is one.
        for _ in 0..10 {
            throttle.failed_at(peer("::ffff:192.0.2.1"), "ann", 1000.0);
        }
        assert!(throttle.check_at(peer("192.0.2.1"), "ann", 1000.0).is_err());
        throttle
            .check_at(peer("::ffff:192.0.2.2"), "ann", 1000.0)
            .unwrap();
    }

    #[tokio::test]
    async fn servers_count_together_and_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (
            throttle(directory.path()).await,
            throttle(directory.path()).await,
        );
        let here = peer("192.0.2.1");
        for server in [&one, &other] {
            for _ in 0..5 {
                server.check(here, "ann").unwrap();
                server.failed(here, "ann");
            }
            server.exchange().await;
        }
        assert!(other.check(here, "ann").is_err());
        one.exchange().await;
        assert!(one.check(here, "ann").is_err());
        assert!(one.counts().new.is_empty());
        let restarted = throttle(directory.path()).await;
        assert!(restarted.check(here, "ann").is_err() && restarted.check(here, "bob").is_ok());
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let throttle = throttle(directory.path()).await;
        for n in 0..MOST + 1000 {
            let here = Peer::Address(SocketAddr::from(((n as u32).to_be_bytes(), 1)));
            throttle.failed_at(here, "ann", now());
        }
        assert_eq!(throttle.counts().all.len(), MOST);
        throttle.exchange().await;
        assert!(throttle.counts().all.len() <= MOST / 2);
    }

    #[tokio::test]
    async fn without_the_file_a_server_counts_alone() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("failed_logins.sqlite"), [7; 4096]).unwrap();
        let throttle = throttle(directory.path()).await;
        for _ in 0..10 {
            throttle.failed(peer("192.0.2.1"), "ann");
        }
        throttle.exchange().await;
        assert!(throttle.check(peer("192.0.2.1"), "ann").is_err());
    }
}
