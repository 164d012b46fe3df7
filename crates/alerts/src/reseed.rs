//! Putting a release in the place of everything that was published before a time, beside pipelines that store.
//!
//! Whoever does it prepares everything next to what is there: the archive's tables as files that nobody sees, and the store's tables of
//! latest versions beside the present ones. Then the archive is changed in one transaction, and the store in one ([`ReseedStep::Switch`]). The
//! first of the two decides: whoever finds the archive changed and the store not, changes the store; whoever finds neither, and nobody at it
//! any more, forgets what was prepared. In between nothing is read of rows that only the archive has, since store and archive each say how many
//! releases they have had ([`Through::release`](crate::Through)).
//!
//! Stores go on meanwhile. What they store is of no edition, and stays; it has to be of visits from the release's cut on. Other changes are
//! refused until it is over: a row that they change might be replaced.
//!
//! The changes of the store are short operations, for each of which the server that stores into it lets go of it: a [`Turn`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::array::RecordBatch;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::database::AlertDatabase;
use crate::error::{AlertsError, Result};
use crate::operation::{Operation, Outcome};
use crate::reads::Reader;
use crate::reseed_statements::{RESEEDED, SETTING};
use crate::rows::conformed;
use crate::schema::{AlertSchema, AlertTable, names};
use crate::store::{Connection, Kind, StoreTurn, Values, first};

/// How long a turn lasts while others wait, and how long they have the database in between.
const SLICE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(300);

/// A part of it that is done in one transaction.
#[derive(Debug)]
pub enum ReseedStep {
    /// Close an edition, and make tables for what is prepared; tells the number of the last edition.
    Begin {
        /// The time of the release, as MJD (TAI): rows from then on stay.
        cut: f64,
        /// The time, in microseconds since 1970 (UTC).
        now_us: i64,
        /// Where the store is.
        is_postgres: bool,
    },
    /// Prepare the last versions of objects, in the columns of the schema.
    Objects(RecordBatch),
    /// Prepare the numbers of sources, in their order, with their positions.
    Sources(RecordBatch),
    /// Prepare exposures that the archive will have, as pairs of a visit and a detector.
    Visits(Vec<(i64, i64)>),
    /// See that what was stored meanwhile fits, and say from when on users see the release, in microseconds since 1970 (UTC).
    Ready {
        /// The time.
        shown_us: i64,
    },
    /// Put what is prepared in the place of what is there: the archive has the release.
    Switch,
    /// Forget what is prepared.
    Abandon,
}

/// A reseeding that has begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReseedState {
    /// The time of the release, as MJD (TAI).
    pub cut: f64,
    /// The edition that the release will be.
    pub edition: i64,
    /// When that was closed, in microseconds since 1970 (UTC): the time of its rows.
    pub closed_us: i64,
    /// The number of the release: 1, 2, 3 and so on.
    pub release: i64,
    /// A replica chunk that stands for the rows of the release.
    pub(crate) chunk: i64,
    /// From when on users see it.
    pub shown_us: Option<i64>,
}

/// A setting of a store.
pub(crate) async fn setting(connection: &mut dyn Connection, name: &str) -> Result<Option<String>> {
    let row = [Values::texts([name.to_owned()])];
    let found = connection.fetch(SETTING, &row, &[Kind::Text]).await?;
    let found = first(found).into_texts();
    Ok(found.into_iter().next().flatten())
}

/// The reseeding that is going on.
pub(crate) async fn state(connection: &mut dyn Connection) -> Result<Option<ReseedState>> {
    let text = setting(connection, crate::reseed_statements::RESEED).await?;
    let state = text.map(|text| serde_json::from_str(&text)).transpose();
    state.map_err(|error| AlertsError::Damaged(error.to_string()))
}

/// From when on users see the last release.
pub(crate) async fn reseeded(connection: &mut dyn Connection) -> Result<Option<i64>> {
    let text = setting(connection, RESEEDED).await?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Rows of a release in the columns of the schema, in its order. Columns that the schema does not have are left out; versions that are valid
/// for ever have no end.
///
/// # Errors
/// A value does not fit, or is NULL where it may not be.
pub fn release_rows(
    schema: &AlertSchema,
    table: AlertTable,
    rows: &RecordBatch,
) -> Result<RecordBatch> {
    let mut columns = schema.table(table).clone();
    for column in &mut columns.columns {
        column.nullable |= column.name == names::VALIDITY_END;
    }
    let fields = rows.schema();
    let known: Vec<usize> = (fields.fields().iter().enumerate())
        .filter(|(_, field)| columns.column(field.name()).is_some())
        .map(|(at, _)| at)
        .collect();
    let rows = rows
        .project(&known)
        .map_err(|error| AlertsError::Invalid(error.to_string()))?;
    let rows = conformed(&columns, &[rows], &[])?;
    match table {
        AlertTable::DiaObject => crate::rows::without_infinite(&rows, names::VALIDITY_END),
        _ => Ok(rows),
    }
}

impl Reader {
    pub(crate) async fn reseed_state(&mut self) -> Result<Option<ReseedState>> {
        state(self.connection.as_mut()).await
    }

    pub(crate) async fn reseeded(&mut self) -> Result<Option<i64>> {
        reseeded(self.connection.as_mut()).await
    }
}

/// A turn at changing a database, beside the server that stores into it. It is taken for each operation, and given back soon.
pub struct Turn<'a> {
    database: &'a AlertDatabase,
    held: Arc<Mutex<Option<Held>>>,
}

struct Held {
    since: Instant,
    /// Whether it lasts however long it takes.
    is_kept: bool,
    visits: Arc<AtomicBool>,
    _turn: Box<dyn StoreTurn>,
}

impl Held {
    fn is_over(&self) -> bool {
        !self.is_kept && self.since.elapsed() >= SLICE
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.visits.store(false, Ordering::Relaxed);
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a turn at {}", self.database.name())
    }
}

impl<'a> Turn<'a> {
    pub(crate) fn new(database: &'a AlertDatabase) -> Self {
        Self {
            database,
            held: Arc::default(),
        }
    }

    /// Keeps it until it is given back: pipelines wait meanwhile.
    ///
    /// # Errors
    /// Another process has it for long.
    pub async fn keep(&mut self) -> Result<()> {
        let mut held = self.held.lock().await;
        self.take(&mut held).await?;
        if let Some(held) = held.as_mut() {
            held.is_kept = true;
        }
        Ok(())
    }

    /// Lets pipelines go on.
    pub async fn give_back(&mut self) {
        *self.held.lock().await = None;
    }

    async fn take(&self, held: &mut Option<Held>) -> Result<()> {
        if held.is_some() {
            return Ok(());
        }
        let turn = self.database.store.turn().await?;
        let visits = Arc::clone(&self.database.visits);
        visits.store(true, Ordering::Relaxed);
        // Whoever has nothing to do for long does not keep it.
        let later = Arc::clone(&self.held);
        tokio::spawn(async move {
            sleep(SLICE).await;
            let mut held = later.lock().await;
            if held.as_ref().is_some_and(Held::is_over) {
                *held = None;
            }
        });
        *held = Some(Held {
            since: Instant::now(),
            is_kept: false,
            visits,
            _turn: turn,
        });
        Ok(())
    }

    /// Does an operation.
    ///
    /// # Errors
    /// As for [`AlertDatabase::apply`].
    pub async fn apply(&mut self, operation: Operation) -> Result<Outcome> {
        let mut held = self.held.lock().await;
        self.take(&mut held).await?;
        let outcome = self.database.apply(operation).await;
        if held.as_ref().is_some_and(Held::is_over) {
            *held = None;
            drop(held);
            sleep(PAUSE).await;
        }
        outcome
    }

    /// Does a step.
    ///
    /// # Errors
    /// As for [`AlertDatabase::apply`].
    pub async fn step(&mut self, step: ReseedStep) -> Result<Outcome> {
        self.apply(Operation::Reseed(Box::new(step))).await
    }

    /// Removes what is published in an edition or before from the store.
    ///
    /// # Errors
    /// As for [`AlertDatabase::empty`].
    pub async fn empty(&mut self, through: i64) -> Result<()> {
        let step = None;
        self.apply(Operation::Empty { through, step }).await?;
        for step in self.database.empty_steps(through).await? {
            while self.apply(step.operation(through)).await?.count > 0 {}
        }
        self.give_back().await;
        Ok(())
    }
}

impl AlertDatabase {
    /// What is at it to put a release in the place of what is published.
    pub fn turn(&self) -> Turn<'_> {
        Turn::new(self)
    }
}
