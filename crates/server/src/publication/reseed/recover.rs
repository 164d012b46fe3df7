//! Who is at a release, and what becomes of one at which nobody is any more.

use std::fs::{File, TryLockError};

use alerts::{AlertDatabase, AlertsError, Operation, ReseedStep, Turn};
use catalog::Catalog;
use tracing::info;

use super::super::PublicationError;
use super::releases;

const LOCK: &str = "reseed.lock";

/// The lock of whoever is at it, which the system gives back however a process ends.
pub(super) struct ReseedLock {
    _file: File,
}

impl ReseedLock {
    /// Takes it; `None` if somebody has it.
    pub(super) fn take(database: &AlertDatabase) -> Result<Option<Self>, AlertsError> {
        let path = database.directory().join(LOCK);
        let failed = |source| AlertsError::File {
            path: path.clone(),
            source,
        };
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// Ends what somebody has begun who was killed: the store follows the archive.
pub(in super::super) async fn recover(
    catalog: &Catalog,
    database: &AlertDatabase,
) -> Result<(), PublicationError> {
    if database.reseed_state().await?.is_none() {
        return Ok(());
    }
    match ReseedLock::take(database)? {
        None => Ok(()),
        Some(_lock) => settle(catalog, database, None).await,
    }
}

/// Has the store follow the archive: with the release if that has it, else without it. Whoever does this has the lock.
pub(super) async fn settle(
    catalog: &Catalog,
    database: &AlertDatabase,
    turn: Option<&mut Turn<'_>>,
) -> Result<(), PublicationError> {
    let Some(state) = database.reseed_state().await? else {
        return Ok(());
    };
    let is_shown = releases(catalog, database.name()).await? >= state.release;
    let step = match is_shown {
        true => ReseedStep::Switch,
        false => ReseedStep::Abandon,
    };
    match turn {
        Some(turn) => turn.step(step).await?,
        None => database.apply(Operation::Reseed(Box::new(step))).await?,
    };
    let database = database.name();
    match is_shown {
        true => info!(database, release = state.release, "reseeded"),
        false => info!(database, "a release was given up: everything is as it was"),
    }
    Ok(())
}
