//! What a front end does as one of several that share the workers: one of them leads, and each knows what was said to any of them.

use std::collections::HashSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use catalog::{SharedDatabase, since_boot};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::members::SILENT_AFTER;
use super::routes::ClientError;
use super::settings::Settings;
use super::shared::{Identity, KnownFrontEnd, LeaseRequest, SharedCluster, SharedState};
use super::{FrontEnd, lock};
use crate::ClusterError;
use crate::messages::FrontEndStatus;

/// How often a front end renews what it has, and looks what others have changed.
const BEAT: Duration = Duration::from_secs(1);
/// How long that may take.
const RENEWAL: Duration = Duration::from_secs(3);
/// How often a process looks whether it was asleep.
const NOTICE: Duration = Duration::from_millis(500);

/// What a front end shares with others.
#[derive(Debug)]
pub(super) struct Several {
    shared: SharedCluster,
    process: u64,
    known: Mutex<LatestState>,
}

/// What was learned last.
#[derive(Debug, Default)]
struct LatestState {
    front_ends: Vec<KnownFrontEnd>,
    leader: Option<u64>,
    /// Whether this front end was told another number of replicas than the leader.
    disagrees: bool,
    /// Counts what was changed here of what drains: a look that began before may not know it.
    changes: u64,
}

impl Several {
    /// Takes part in what front ends of a data directory share.
    ///
    /// # Errors
    /// Those of [`SharedCluster::open`]; the settings cannot be written.
    pub async fn open(
        database: SharedDatabase,
        me: Identity,
        settings: &mut Settings,
    ) -> Result<Self, ClusterError> {
        let process = me.process;
        let shared =
            SharedCluster::open(database, me, settings.archive(), settings.draining()).await?;
        let state = shared.beat(LeaseRequest::None, 0).await?;
        settings.join(shared.archive(), state.draining)?;
        Ok(Self {
            shared,
            process,
            known: Mutex::default(),
        })
    }

    /// Whether there is no other front end, as far as it is known.
    pub fn is_alone(&self) -> bool {
        let known = lock(&self.known);
        known.front_ends.iter().all(|it| it.process == self.process) && !known.front_ends.is_empty()
    }

    /// The front ends that are there.
    pub fn front_ends(&self) -> Vec<FrontEndStatus> {
        let known = lock(&self.known);
        let front_ends = known.front_ends.iter();
        front_ends
            .map(|it| FrontEndStatus {
                address: it.address.clone(),
                leads: known.leader == Some(it.process),
            })
            .collect()
    }
}

impl FrontEnd {
    /// Keeps or takes the lease of a leader, and learns what was said to other front ends, until the front end ends.
    pub(super) async fn keep_leading(&self) {
        let Some(several) = &self.several else {
            return std::future::pending().await;
        };
        let mut was_reached = true;
        loop {
            let beat = timeout(RENEWAL, self.beat(several)).await;
            let failed = match beat {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("PostgreSQL does not answer in time".to_owned()),
            };
            if let Some(error) = &failed
                && was_reached
            {
                warn!(
                    error,
                    "what front ends share cannot be renewed: trying once a second"
                );
            }
            was_reached = failed.is_none();
            sleep(BEAT).await;
        }
    }

    async fn beat(&self, several: &Several) -> Result<(), ClusterError> {
        let (asked, before) = (since_boot(), self.leadership.epoch());
        let changes = lock(&several.known).changes;
        // One that no worker reaches leaves it to others.
        let may_lead = self.has_settled() && self.members.has_heard_any();
        let lease = match (may_lead, before) {
            (false, _) => LeaseRequest::None,
            (true, Some(epoch)) => LeaseRequest::Keep(epoch),
            (true, None) => LeaseRequest::Take,
        };
        if lease == LeaseRequest::None {
            // Before the lease is another one's.
            self.leadership.lose();
        }
        let state = several.shared.beat(lease, self.leadership.heard()).await?;
        match state.epoch {
            Some(epoch) => self.leadership.hold(epoch, asked),
            None => self.leadership.lose(),
        }
        self.apply(several, state, before, changes);
        Ok(())
    }

    /// Takes over what was said to other front ends.
    fn apply(&self, several: &Several, state: SharedState, before: Option<u64>, changes: u64) {
        for worker in &state.removed {
            let members = self.members.all();
            match members.get(worker) {
                Some(member) if member.is_live(Instant::now()) => {
                    warn!(
                        worker,
                        "it was removed at another front end, and reports to this one: it stays"
                    );
                }
                _ => {
                    self.members.remove(worker);
                }
            }
        }
        let has_changed = self.settings.draining() != state.draining || !state.removed.is_empty();
        {
            let known = lock(&several.known);
            if known.changes == changes {
                self.settings.set_draining(state.draining);
            }
        }
        if let Some(epoch) = state.epoch {
            if has_changed || before != Some(epoch) {
                self.write_down();
            }
            if before != Some(epoch) {
                info!(epoch, "this front end decides what workers hold");
                if let Err(error) = self.service.announce(self.archive.catalog().data_dir()) {
                    warn!(%error, "commands that run beside the server may not find files that are at workers");
                }
            }
        } else if let Some(epoch) = before {
            info!(epoch, "another front end decides what workers hold");
        }
        self.note(several, state.front_ends, state.leader);
        if has_changed || state.epoch != before {
            self.changed.notify_one();
        }
    }

    fn note(&self, several: &Several, front_ends: Vec<KnownFrontEnd>, leader: Option<u64>) {
        let leading = front_ends.iter().find(|it| Some(it.process) == leader);
        let disagrees = leading.is_some_and(|it| it.replicas != self.options.replicas);
        let mut known = lock(&several.known);
        if let Some(leading) = leading.filter(|_| disagrees && !known.disagrees) {
            warn!(
                replicas = self.options.replicas,
                leader = leading.address,
                replicas_there = leading.replicas,
                "the front end that leads was told another number of replicas, which counts: give all front ends the same --replicas"
            );
        }
        *known = LatestState {
            front_ends,
            leader,
            disagrees,
            changes: known.changes,
        };
    }

    /// Has workers report anew after the process was stopped or the machine slept: all of them would be taken for lost.
    pub(super) async fn notice_sleep(&self) {
        loop {
            let before = since_boot();
            sleep(NOTICE).await;
            let slept = since_boot().saturating_sub(before);
            if slept > SILENT_AFTER {
                warn!(
                    seconds = slept.as_secs(),
                    "the process was asleep: workers have to report again"
                );
                *lock(&self.awake) = Instant::now();
            }
        }
    }

    /// Another front end leads at once.
    pub(super) async fn leave(&self) {
        let Some(several) = &self.several else {
            return;
        };
        let epoch = self.leadership.epoch();
        self.leadership.lose();
        let left = timeout(RENEWAL, several.shared.leave(epoch)).await;
        if !matches!(left, Ok(Ok(()))) {
            warn!("another front end leads in some seconds: the lease could not be given back");
        }
    }

    /// Has a worker give everything up, or take its share again.
    pub(super) async fn set_draining(&self, name: &str, drains: bool) -> Result<(), ClientError> {
        let check = drains.then(|| self.drain_check(name));
        let check = move |draining: &HashSet<String>| match check {
            Some(check) => check.passes(draining),
            None => Ok(()),
        };
        match &self.several {
            None => {
                check(&self.settings.draining())?;
                self.settings.drain(name, drains).map_err(failed)?;
            }
            Some(several) => {
                let drained = several.shared.drain(name, drains, check);
                self.drains_now(several, drained.await.map_err(unreachable)??);
            }
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Has every front end forget a worker.
    pub(super) async fn forget_worker(&self, name: &str) -> Result<(), ClientError> {
        match &self.several {
            None => self.settings.drain(name, false).map_err(failed)?,
            Some(several) => {
                let removed = several.shared.remove(name);
                self.drains_now(several, removed.await.map_err(unreachable)?);
            }
        }
        self.members.remove(name);
        self.changed.notify_one();
        Ok(())
    }

    fn drains_now(&self, several: &Several, draining: HashSet<String>) {
        {
            let mut known = lock(&several.known);
            known.changes += 1;
            self.settings.set_draining(draining);
        }
        self.write_down();
    }

    /// Writes down what drains: a catalog that moves to SQLite finds it there.
    fn write_down(&self) {
        if let Err(error) = self.settings.write_down() {
            warn!(%error, "what drains could not be written into the data directory");
        }
    }

    /// Whether it may give up files of the data directory: those of others would miss them.
    pub(super) fn may_give_up(&self) -> bool {
        let is_alone = self.several.as_ref().is_none_or(Several::is_alone);
        is_alone && self.leadership.epoch().is_some() && self.has_settled()
    }
}

fn failed(error: ClusterError) -> ClientError {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

fn unreachable(error: ClusterError) -> ClientError {
    let why = format!("what front ends share cannot be changed now: {error}");
    (StatusCode::SERVICE_UNAVAILABLE, why)
}
