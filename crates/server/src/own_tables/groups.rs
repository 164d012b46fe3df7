//! Small INSERTs into one table that wait for each other are stored together: one part, one transaction for all of them.
//!
//! ```text
//!   INSERT ──► its rows as the columns store them ──► the table's group ──┐
//!   INSERT ──► ...                                                        ├──► one part ──► each is told
//!   INSERT ──► ...     (while the group before is written)                ┘
//! ```
//!
//! A group is what has come while the one before was written, and, where that one had several statements, in the moment after it: those who
//! are told mostly come again, and without that wait half of them would always miss the group of the others. A statement with a row that cannot
//! be stored is told so, and the others are stored.
//!
//! Rows are appended from memory ([`SmallAppends`]). A table that has got many parts is compacted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{Field, Schema};
use catalog::{Catalog, Column, Rights, fold_name};
use ingest::{CompactRequest, IngestError, MANY_PARTS, Progress, SmallAppends, SmallRows};
use sql::ErrorCode;
use tokio::sync::{Mutex as Turn, oneshot};
use tokio::time::sleep;

use super::{Change, OwnTable, ROWS, of_file, of_load, stored_column};
use crate::ClientError;
use crate::background_threads::BackgroundThreads;

/// Rows of a statement that are stored with others'; more are worth a part of their own.
pub(super) const MOST_ROWS: usize = 1000;
/// Rows of a group.
const MOST_ROWS_OF_GROUP: usize = 20_000;
/// Tables of which the last rows are kept in memory, so that others are added to their part.
const MOST_TABLES: usize = 32;
/// How long is waited at most for those who come again, and how often it is looked whether they are there.
const MOST_WAIT: Duration = Duration::from_millis(5);
const LOOK: Duration = Duration::from_millis(1);
/// The threads that store groups and compact tables, which mostly wait for the disk.
const THREADS: usize = 2;
/// What the rows of INSERTs come from, in the list of parts.
const SOURCE: &str = "INSERT";

/// What became of a statement in a group.
#[derive(Debug, Clone)]
pub(super) enum StoreOutcome {
    /// Its rows are on the disk.
    Done,
    /// The table has other columns than those for which the rows were made.
    Changed,
    /// They cannot be stored.
    Rejected(ClientError),
}

/// The rows of a statement that waits.
#[derive(Debug)]
struct WaitingRows {
    rows: SmallRows,
    /// Who is told.
    told: oneshot::Sender<StoreOutcome>,
    /// Whose they are.
    change: Arc<Change>,
}

impl WaitingRows {
    fn len(&self) -> usize {
        self.rows.rows.num_rows()
    }

    /// What the values take.
    fn bytes(&self) -> u64 {
        let columns = self.rows.rows.columns().iter();
        let bytes = columns.map(|it| it.to_data().get_slice_memory_size().unwrap_or(0));
        bytes.sum::<usize>() as u64
    }
}

/// The statements that wait, by the tables that they insert into. A table that is here has somebody who stores what waits.
#[derive(Debug)]
pub(crate) struct InsertGroups {
    waiting: Mutex<HashMap<String, Vec<WaitingRows>>>,
    /// Those who append to tables, by the tables, the last used one last.
    appending: Mutex<Vec<(String, Arc<Turn<SmallAppends>>)>>,
    /// Tables that are being compacted.
    compacted: Mutex<HashSet<String>>,
    /// Not those of statements: whoever gives the first statement of a group up, or loses the threads that it runs on, does not give up the
    /// others.
    threads: BackgroundThreads,
}

impl Default for InsertGroups {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            appending: Mutex::default(),
            compacted: Mutex::default(),
            threads: BackgroundThreads::new("meridian-inserts", THREADS),
        }
    }
}

impl InsertGroups {
    /// Stores rows, with those of others if some are being stored.
    pub(super) async fn store(
        self: &Arc<Self>,
        change: Arc<Change>,
        columns: Vec<Column>,
        rows: Vec<ArrayRef>,
    ) -> Result<StoreOutcome, ClientError> {
        let (told, answer) = oneshot::channel();
        let rows = SmallRows {
            rows: in_columns(&columns, rows)?,
            columns,
            name: ROWS.to_owned(),
            source: SOURCE.to_owned(),
        };
        let table = change.table.clone();
        let name = fold_name(&table.shown());
        let turn = change.turns.of(&name);
        let waiting = WaitingRows { rows, told, change };
        let is_first = {
            let mut groups = lock(&self.waiting);
            let is_first = !groups.contains_key(&name);
            groups.entry(name.clone()).or_default().push(waiting);
            is_first
        };
        if is_first {
            let (groups, of) = (Arc::clone(self), name.clone());
            let storing = async move { groups.store_all(&of, &table, &turn).await };
            if let Err(error) = self.threads.spawn(storing) {
                // Nobody stores what waits: who has joined meanwhile is told, and the next one tries again.
                lock(&self.waiting).remove(&name);
                return Err(of_file(error));
            }
        }
        answer.await.map_err(|_| of_load(IngestError::Internal))
    }

    /// Stores what waits for a table, group by group, until nothing does.
    async fn store_all(self: Arc<Self>, name: &str, table: &OwnTable, turn: &Turn<()>) {
        let mut end = EndOfGroups {
            groups: &self,
            name,
            is_regular: false,
        };
        let appending = self.appending_to(name, table);
        // Those who stored the groups before may be at their end still.
        let mut appending = appending.lock().await;
        loop {
            // A change of the rows that are there goes on when this group is stored, and not after all that may come.
            let held = turn.lock().await;
            let Some(group) = self.next_group(name) else {
                end.is_regular = true;
                break;
            };
            let (begun, statements) = (Instant::now(), group.len());
            store_group(group, &mut appending).await;
            let stored_in = begun.elapsed();
            if let Err(error) = appending.prepare().await {
                tracing::debug!(table = name, %error, "the next rows begin their loads one by one");
            }
            if appending.parts() > MANY_PARTS {
                self.compact_if_needed(table).await;
            }
            let prepared_in = begun.elapsed() - stored_in;
            tracing::debug!(
                table = name,
                statements,
                ?stored_in,
                ?prepared_in,
                "statements are stored"
            );
            drop(held);
            self.wait_for_others(name, statements, begun.elapsed())
                .await;
        }
        if let Err(error) = appending.pause().await {
            tracing::warn!(table = name, %error, "the next load of the table removes loads that were begun");
        }
    }

    /// Who appends to a table.
    fn appending_to(&self, name: &str, table: &OwnTable) -> Arc<Turn<SmallAppends>> {
        let mut appending = lock(&self.appending);
        let known = appending.iter().position(|(of, _)| of == name);
        let found = match known {
            Some(at) => appending.remove(at),
            None => {
                if appending.len() >= MOST_TABLES {
                    appending.remove(0);
                }
                let appends = SmallAppends::new(&all_of(table), &table.database, &table.table);
                (name.to_owned(), Arc::new(Turn::new(appends)))
            }
        };
        let appends = Arc::clone(&found.1);
        appending.push(found);
        appends
    }

    /// Waits a moment for those who were told and come again. A single one does not wait: nobody else is there.
    async fn wait_for_others(&self, name: &str, told: usize, stored_in: Duration) {
        if told < 2 {
            return;
        }
        let waiting = || lock(&self.waiting).get(name).map_or(0, Vec::len);
        let (begun, all) = (Instant::now(), told + waiting());
        let most = (stored_in / 4).min(MOST_WAIT);
        while waiting() < all && begun.elapsed() < most {
            sleep(LOOK).await;
        }
    }

    /// The statements that are stored next; `None`, and the table is forgotten, if none waits.
    fn next_group(&self, name: &str) -> Option<Vec<WaitingRows>> {
        let mut groups = lock(&self.waiting);
        let waiting = groups.get_mut(name)?;
        // Those that were given up meanwhile leave nothing.
        waiting.retain(|it| !it.told.is_closed());
        let mut rows = 0;
        let fits = |it: &&WaitingRows| {
            rows += it.len();
            rows <= MOST_ROWS_OF_GROUP
        };
        let count = waiting.iter().take_while(fits).count();
        if count == 0 {
            groups.remove(name);
            return None;
        }
        Some(waiting.drain(..count).collect())
    }

    /// Begins a compaction of a table that has many parts, unless there is one.
    pub(super) async fn compact_if_needed(self: &Arc<Self>, table: &OwnTable) {
        let name = fold_name(&table.shown());
        let parts = match table.find().await {
            Ok(found) => found.table.parts.len(),
            Err(_) => 0,
        };
        if parts <= MANY_PARTS || !lock(&self.compacted).insert(name.clone()) {
            return;
        }
        let request = CompactRequest {
            data_dir: table.data_dir().to_owned(),
            database: Some(table.database.clone()),
            table: Some(table.table.clone()),
            all: false,
            months: ingest::MonthSort::default(),
            min_parts: 0,
            dry_run: false,
            rate: None,
            memory: Some(super::MEMORY),
            threads: Some(super::THREADS),
        };
        let (groups, catalog) = (Arc::clone(self), all_of(table));
        let begun = self.threads.spawn(async move {
            let progress = Arc::new(Progress::default());
            let compacted = ingest::compact_with(&catalog, request, progress).await;
            let failure = match compacted {
                Ok(report) => report.failures.into_iter().next().map(|(_, error)| error),
                Err(error) => Some(error),
            };
            if let Some(error) = failure {
                tracing::warn!(table = name, %error, "a table with many parts could not be compacted");
            }
            lock(&groups.compacted).remove(&name);
        });
        if let Err(error) = begun {
            tracing::warn!(%error, "a table with many parts could not be compacted");
        }
    }
}

/// Forgets a table whose groups nobody stores any more for another reason than that none waits, as a panic: who waits is told then.
struct EndOfGroups<'a> {
    groups: &'a InsertGroups,
    name: &'a str,
    is_regular: bool,
}

impl Drop for EndOfGroups<'_> {
    fn drop(&mut self) {
        if !self.is_regular {
            lock(&self.groups.waiting).remove(self.name);
        }
    }
}

/// The whole catalog, whatever the user sees of it.
fn all_of(table: &OwnTable) -> Catalog {
    table.archive.catalog().seen_with(Arc::new(Rights::All))
}

/// Stores the rows of some statements together, and tells each what has become of its own.
async fn store_group(mut group: Vec<WaitingRows>, appending: &mut SmallAppends) {
    for (at, error) in statements_without_room(&group).await.into_iter().rev() {
        let _ = group.remove(at).told.send(StoreOutcome::Rejected(error));
    }
    let rows = group.iter().map(|it| it.rows.clone()).collect();
    match appending.append(rows).await {
        Ok(outcomes) => {
            for (statement, outcome) in group.into_iter().zip(outcomes) {
                // Who has gone is not told.
                let _ = statement.told.send(of_outcome(outcome));
            }
        }
        Err(error) => match of_outcome(Err(error)) {
            // Nothing is wrong with the disk or the catalog, where it may not be known whether the rows are there.
            StoreOutcome::Rejected(error)
                if error.code != ErrorCode::STORAGE && group.len() > 1 =>
            {
                for statement in group {
                    let stored = appending.append(vec![statement.rows]).await;
                    let outcome = stored.and_then(|it| it.into_iter().collect());
                    let _ = statement.told.send(of_outcome(outcome));
                }
            }
            stored => {
                for statement in group {
                    let _ = statement.told.send(stored.clone());
                }
            }
        },
    }
}

/// The statements whose rows do not fit into what their users may store, by their places.
async fn statements_without_room(group: &[WaitingRows]) -> Vec<(usize, ClientError)> {
    let mut full = Vec::new();
    for (at, statement) in group.iter().enumerate() {
        // Of an administrator and the user there are two.
        let usage = &statement.change.usage;
        let is_theirs = |it: &&WaitingRows| Arc::ptr_eq(&it.change.usage, usage);
        if group[..at].iter().any(|it| is_theirs(&it)) {
            continue;
        }
        let all = group.iter().filter(is_theirs).map(WaitingRows::bytes).sum();
        if statement.change.check_room(all, 0).await.is_ok() {
            continue;
        }
        let mut before = 0;
        for (at, theirs) in group.iter().enumerate().filter(|(_, it)| is_theirs(it)) {
            let bytes = before + theirs.bytes();
            match theirs.change.check_room(bytes, 0).await {
                Ok(()) => before = bytes,
                Err(error) => full.push((at, error)),
            }
        }
    }
    full.sort_by_key(|(at, _)| *at);
    full
}

fn of_outcome(outcome: Result<(), IngestError>) -> StoreOutcome {
    match outcome {
        Ok(()) => StoreOutcome::Done,
        Err(error) if error.is_change() => StoreOutcome::Changed,
        Err(error) => StoreOutcome::Rejected(of_load(error)),
    }
}

/// The values of columns, under the names of these.
fn in_columns(columns: &[Column], rows: Vec<ArrayRef>) -> Result<RecordBatch, ClientError> {
    let fields = columns.iter().map(|column| {
        let stored = stored_column(column);
        Field::new(stored.name, stored.ty.data_type(), true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, rows).map_err(of_file)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of what is behind it is a single operation.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
