//! When tables of users and groups expire: the time that each has in the catalog, who may change it, who is warned, and that the tables go.
//!
//! A table gets its time when it is made, by the limit of its owner at that time; one that has none gets one as soon as its owner has
//! such a limit. From then on the time is the table's own: a limit that changes moves nothing, so that nothing goes which nobody was
//! warned of. A table goes as by DROP TABLE, in a transaction that looks whether its time is still the same.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::users::{DatabaseOwner, User};
use catalog::{CatalogError, CatalogState, Expiry, Table, fold_name, utc_text};
use engine::Archive;
use ingest::IngestError;
use sql::mysql::TableExpiry;
use sql::{ErrorCode, Warning};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::OwnTable;
use crate::ClientError;
use crate::authenticator::Authenticator;

const DAY: u64 = 86_400;
/// A hundred years, beyond which nobody looks.
const MOST_DAYS: u64 = 36_525;
/// How often a server looks whether tables have expired, if that takes little time.
const INTERVAL: Duration = Duration::from_secs(5);
/// The share of its time for which a server looks, where there are many tables: one part in so many.
const PART_OF_TIME: u32 = 50;

/// Seconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0, |since| since.as_secs())
}

/// Tables that expire soon, with the times of that, by the folded names of their owners.
pub(crate) type ExpiringTables = HashMap<String, Vec<(String, String)>>;

/// The time of a table that expires within some days.
fn time_if_soon(table: &Table) -> Option<&str> {
    let soon = utc_text(now() + Expiry::NOTICE);
    table.expires_at.as_deref().filter(|time| *time <= &*soon)
}

/// What the owner of a table is told that expires soon.
pub(crate) fn sentence(table: &str, time: &str) -> String {
    format!("{table} is removed after {time}: ALTER TABLE {table} EXPIRE DEFAULT keeps it longer")
}

/// The same as a warning of a statement.
pub(crate) fn warning(table: &str, time: &str) -> Warning {
    Warning {
        code: ErrorCode::OTHER,
        sentence: sentence(table, time),
    }
}

/// The tables in the user's own database and in those of the groups, with the times at which they expire, and whether these are near.
///
/// # Errors
/// The catalog cannot be read.
pub(crate) async fn tables_of(
    archive: &Archive,
    user: &User,
) -> Result<Vec<(Table, bool)>, ClientError> {
    let catalog = archive.catalog();
    let failed = |error: CatalogError| ClientError::from(engine::EngineError::from(error));
    let mut all = Vec::new();
    for name in user.own_databases() {
        let database = catalog.database(name).await.map_err(failed)?;
        if database.is_none() {
            continue;
        }
        let tables = catalog.tables(name).await.map_err(failed)?;
        all.extend(tables.into_iter().map(|table| {
            let is_soon = time_if_soon(&table).is_some();
            (table, is_soon)
        }));
    }
    Ok(all)
}

impl OwnTable {
    /// The warning that the table expires soon, if it does.
    pub(crate) async fn expiry_warning(&self) -> Option<Warning> {
        let found = self.archive.table(&self.database, &self.table).await;
        let found = found.ok()??;
        let time = time_if_soon(&found.table)?;
        Some(warning(&self.shown(), time))
    }

    /// Gives a table that was made now the time that its owner's limit says. One that is not given it here, as the server is killed, gets
    /// it by [`remove_expired_tables`].
    pub(crate) async fn set_default_expiry(&self) {
        let set = async {
            let list = self.users().await?;
            let owner = list.owner_of(&self.database);
            match owner.and_then(|owner| owner.lifetime()) {
                Some(days) => self.change_expiry(Expiry::by_default_at(after(days))).await,
                None => Ok(()),
            }
        };
        if let Err(error) = set.await {
            warn!(table = self.shown(), %error, "a table has no time of expiry yet");
        }
    }

    /// Says until when the table is kept. Returns the time; `None` if it is kept for ever.
    ///
    /// # Errors
    /// There is no such table, it is none of a user's own, or would be kept for longer than its owner may.
    pub(crate) async fn set_expiry(
        &self,
        expiry: TableExpiry,
    ) -> Result<Option<String>, ClientError> {
        self.check_still_own().await?;
        self.find().await?;
        let list = self.users().await?;
        let Some(owner) = list.owner_of(&self.database) else {
            let sentence = format!(
                "{} is no table of a user's or a group's own, and does not expire",
                self.shown()
            );
            return Err(ClientError::new(ErrorCode::NOT_SUPPORTED, sentence));
        };
        let days = owner.lifetime();
        // An administrator may keep others' tables for longer than these may.
        let most = days.filter(|_| self.is_own);
        let at = match expiry {
            TableExpiry::Default => days.map(after),
            TableExpiry::Never => None,
            TableExpiry::After(seconds) => Some(now().saturating_add(seconds)),
        };
        if let Some(most) = most
            && at.is_none_or(|at| at > after(most))
        {
            let sentence = format!(
                "you may keep a table for {most} days from now on, and this would be longer: ALTER TABLE {} EXPIRE DEFAULT keeps it for {most}, as often as you say it; SHOW LIMITS tells all limits",
                self.shown()
            );
            return Err(ClientError::new(ErrorCode::LIMIT_REACHED, sentence));
        }
        self.change_expiry(Expiry::at(at)).await?;
        Ok(at.map(utc_text))
    }

    async fn change_expiry(&self, expiry: Expiry) -> Result<(), ClientError> {
        let catalog = self.archive.catalog();
        let set = catalog
            .set_expiry(&self.database, &self.table, expiry)
            .await;
        set.map(drop).map_err(|error| match error {
            CatalogError::NoTable { .. } => {
                ClientError::new(ErrorCode::NO_TABLE, error.to_string())
            }
            error => engine::EngineError::from(error).into(),
        })
    }
}

/// The time in so many days.
fn after(days: u64) -> u64 {
    now() + days.min(MOST_DAYS) * DAY
}

/// Removes tables that have expired, and gives those a time that have none and whose owners have a limit, until the server ends.
pub(crate) async fn remove_expired_tables(
    archive: Arc<Archive>,
    authenticator: Arc<Authenticator>,
    stop: CancellationToken,
) {
    let mut sweeper = Sweeper {
        archive,
        authenticator,
        seen: None,
        problems: HashSet::new(),
    };
    let mut pause = INTERVAL;
    while tokio::time::timeout(pause, stop.cancelled()).await.is_err() {
        let begun = Instant::now();
        sweeper.sweep().await;
        pause = INTERVAL.max(begun.elapsed() * PART_OF_TIME);
    }
}

/// What has to change before anything is to be done.
struct SweepState {
    catalog: CatalogState,
    users: ::users::UsersState,
    /// When the next table expires, or its owner is to be warned.
    next: Option<u64>,
}

struct Sweeper {
    archive: Arc<Archive>,
    authenticator: Arc<Authenticator>,
    seen: Option<SweepState>,
    /// Problems that were told of.
    problems: HashSet<String>,
}

impl Sweeper {
    async fn sweep(&mut self) {
        let catalog = self.archive.catalog().state();
        let users = self.authenticator.users().state();
        let (Some(catalog), Ok(users)) = (catalog, users) else {
            // A change is being committed, or nobody can log in: the next time.
            return;
        };
        let is_same = self.seen.as_ref().is_some_and(|seen| {
            let is_due = seen.next.is_some_and(|next| next <= now());
            (&seen.catalog, &seen.users) == (&catalog, &users) && !is_due
        });
        if is_same {
            return;
        }
        match self.sweep_users().await {
            Ok(next) => {
                self.seen = Some(SweepState {
                    catalog,
                    users,
                    next,
                });
            }
            Err(error) => self.complain("expired tables cannot be looked up", &error),
        }
    }

    /// Looks at the tables of all users and groups. Returns when something is to be done again; now if something is left to be done.
    async fn sweep_users(&mut self) -> Result<Option<u64>, String> {
        let list = self.authenticator.users().list().await;
        let list = list.map_err(|error| error.to_string())?;
        let mut expiring = ExpiringTables::new();
        let mut next: Option<u64> = None;
        let mut due = |at: u64| next = Some(next.map_or(at, |next| next.min(at)));
        let databases = self.archive.catalog().databases().await;
        for database in databases.map_err(|error| error.to_string())? {
            let folded = fold_name(&database.name);
            let Some(owner) = list.owner_of(&database.name) else {
                continue;
            };
            // What is published of an alert database is nobody's, also where a user has its name.
            let data_dir = self.archive.catalog().data_dir();
            if alerts::is_one(data_dir, &database.name).map_err(|error| error.to_string())? {
                continue;
            }
            let tables = self.archive.catalog().tables(&database.name).await;
            let tables = tables.map_err(|error| error.to_string())?;
            self.give_times(&tables, owner.lifetime()).await;
            let time = utc_text(now());
            let has_expired =
                |table: &&Table| table.expires_at.as_ref().is_some_and(|it| *it <= time);
            let (expired, others): (Vec<&Table>, Vec<&Table>) =
                tables.iter().partition(has_expired);
            if !self.drop_tables(&expired, owner).await {
                due(now());
            }
            for table in others {
                let Some(time) = &table.expires_at else {
                    continue;
                };
                match time_if_soon(table) {
                    Some(_) => {
                        let named = (table.spec.full_name(), time.clone());
                        expiring.entry(folded.clone()).or_default().push(named);
                        due(seconds_of(time).unwrap_or_else(now));
                    }
                    None => due(seconds_of(time)
                        .unwrap_or_else(now)
                        .saturating_sub(Expiry::NOTICE)),
                }
            }
        }
        self.authenticator.set_expiring(expiring);
        Ok(next)
    }

    /// Gives those tables a time that have none.
    async fn give_times(&mut self, tables: &[Table], lifetime: Option<u64>) {
        let Some(days) = lifetime else {
            return;
        };
        for table in tables.iter().filter(|table| table.expires_at.is_none()) {
            let (database, name) = (&table.spec.database, &table.spec.name);
            let expiry = Expiry::by_default_at(after(days));
            match self
                .archive
                .catalog()
                .set_expiry(database, name, expiry)
                .await
            {
                Ok(_) | Err(CatalogError::NoTable { .. }) => {}
                Err(error) => self.complain("a table has no time of expiry", &error.to_string()),
            }
        }
    }

    /// Drops tables of one owner: children before their directors. Returns whether all are gone.
    async fn drop_tables(&mut self, expired: &[&Table], owner: DatabaseOwner<'_>) -> bool {
        let mut left: Vec<&Table> = expired.to_vec();
        loop {
            let before = left.len();
            let mut stay = Vec::new();
            for table in left {
                let (database, name) = (&table.spec.database, &table.spec.name);
                let full_name = table.spec.full_name();
                match ingest::drop_expired(self.archive.catalog(), database, name).await {
                    Ok(dropped) => {
                        info!(
                            table = full_name,
                            rows = dropped.rows,
                            "an expired table is removed"
                        );
                        self.authenticator
                            .audit_expiry(owner.name(), &full_name, dropped.rows);
                    }
                    // Somebody was faster: its owner, who keeps it or has dropped it, or another server.
                    Err(IngestError::Catalog(
                        CatalogError::NoTable { .. } | CatalogError::TableChanged { .. },
                    )) => {}
                    Err(error) => stay.push((table, error)),
                }
            }
            if stay.is_empty() || stay.len() == before {
                for (_, error) in &stay {
                    self.complain("an expired table stays", &error.to_string());
                }
                return stay.is_empty();
            }
            left = stay.into_iter().map(|(table, _)| table).collect();
        }
    }

    /// Tells of a problem once.
    fn complain(&mut self, what: &'static str, problem: &str) {
        if self.problems.insert(problem.to_owned()) {
            warn!(problem, what, "tables of users");
        }
    }
}

/// Seconds since 1970 of a time in the catalog; `None` if it is none.
fn seconds_of(time: &str) -> Option<u64> {
    // Up to the year 9999 texts are ordered as times are.
    let (mut low, mut high) = (0_u64, 253_402_300_800);
    while low < high {
        let middle = u64::midpoint(low, high);
        match utc_text(middle).as_str() < time {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    (utc_text(low) == time).then_some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for seconds in [0, 59, 951_782_399, 1_700_000_000, 4_107_542_400] {
            assert_eq!(seconds_of(&utc_text(seconds)), Some(seconds));
        }
        for text in ["", "2026", "2026-02-30T00:00:00Z", "tomorrow"] {
            assert_eq!(seconds_of(text), None, "{text}");
        }
    }
}
