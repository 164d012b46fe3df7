//! Small INSERTs into one table that wait for each other are stored together: one load, one part, one transaction for all of them.
//!
//! ```text
//!   INSERT ──► its rows as the columns store them ──► the table's group ──┐
//!   INSERT ──► ...                                                        ├──► one part ──► each is told
//!   INSERT ──► ...     (while the group before is written)                ┘
//! ```
//!
//! A group is what has come while the one before was written: nobody waits for others that may come. If a group cannot be stored, each of
//! its statements is stored by itself, so that a mistake is told to whoever has made it. A table that has got many parts is compacted.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use catalog::{Column, fold_name};
use ingest::{CompactRequest, MANY_PARTS, Progress};
use tokio::sync::{Mutex as Turn, oneshot};

use super::rows::RowFile;
use super::{Change, OwnTable, ROWS, of_file, of_load, stored_column};
use crate::ClientError;

/// Rows of a statement that are stored with others'; more are worth a part of their own.
pub(super) const MOST_ROWS: usize = 1000;
/// Rows of a group.
const MOST_ROWS_OF_GROUP: usize = 20_000;

/// What became of a statement in a group.
#[derive(Debug)]
pub(super) enum Stored {
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
    /// The columns that the table had.
    columns: Vec<Column>,
    rows: Vec<ArrayRef>,
    /// Who is told.
    told: oneshot::Sender<Stored>,
    /// How the statement would store them.
    change: Arc<Change>,
}

impl WaitingRows {
    fn len(&self) -> usize {
        self.rows.first().map_or(0, |column| column.len())
    }
}

/// The statements that wait, by the tables that they insert into. A table that is here has somebody who stores what waits.
#[derive(Debug, Default)]
pub(crate) struct InsertGroups {
    waiting: Mutex<HashMap<String, Vec<WaitingRows>>>,
    /// Tables that are being compacted.
    compacted: Mutex<HashSet<String>>,
}

impl InsertGroups {
    /// Stores rows, with those of others if some are being stored.
    pub(super) async fn store(
        self: &Arc<Self>,
        change: Arc<Change>,
        columns: Vec<Column>,
        rows: Vec<ArrayRef>,
    ) -> Result<Stored, ClientError> {
        let (told, answer) = oneshot::channel();
        let table = change.table.clone();
        let name = fold_name(&table.shown());
        let turn = change.turns.of(&name);
        let waiting = WaitingRows {
            columns,
            rows,
            told,
            change,
        };
        let is_first = {
            let mut groups = lock(&self.waiting);
            let is_first = !groups.contains_key(&name);
            groups.entry(name.clone()).or_default().push(waiting);
            is_first
        };
        if is_first {
            // Whoever gives the first statement up does not give up the others.
            let groups = Arc::clone(self);
            tokio::spawn(async move { groups.store_all(&name, &table, &turn).await });
        }
        answer
            .await
            .map_err(|_| of_load(ingest::IngestError::Internal))
    }

    /// Stores what waits for a table, group by group, until nothing does.
    async fn store_all(self: Arc<Self>, name: &str, table: &OwnTable, turn: &Turn<()>) {
        let _end = EndOfGroups {
            groups: &self,
            name,
        };
        loop {
            // A change of the rows that are there goes on when this group is stored, and not after all that may come.
            let _turn = turn.lock().await;
            let Some(group) = self.next_group(name) else {
                return;
            };
            store_group(table, group).await;
            self.compact_if_needed(table).await;
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
            min_parts: 0,
            dry_run: false,
            rate: None,
            memory: Some(super::MEMORY),
            threads: Some(super::THREADS),
        };
        let groups = Arc::clone(self);
        tokio::spawn(async move {
            let compacted = ingest::compact(request, Arc::new(Progress::default())).await;
            let failure = match compacted {
                Ok(report) => report.failures.into_iter().next().map(|(_, error)| error),
                Err(error) => Some(error),
            };
            if let Some(error) = failure {
                tracing::warn!(table = name, %error, "a table with many parts could not be compacted");
            }
            lock(&groups.compacted).remove(&name);
        });
    }
}

/// Forgets a table whose groups nobody stores any more, also where a panic is the reason: who waits is told then.
struct EndOfGroups<'a> {
    groups: &'a InsertGroups,
    name: &'a str,
}

impl Drop for EndOfGroups<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(&self.groups.waiting).remove(self.name);
        }
    }
}

/// Stores the rows of some statements, together if that can be.
async fn store_group(table: &OwnTable, group: Vec<WaitingRows>) {
    let columns = match table.find().await {
        Ok(found) => found.spec().columns.clone(),
        Err(error) => return tell_all(group, &|| Stored::Rejected(error.clone())),
    };
    let (group, changed): (Vec<_>, Vec<_>) =
        group.into_iter().partition(|it| it.columns == columns);
    tell_all(changed, &|| Stored::Changed);
    let together: Vec<&WaitingRows> = group.iter().collect();
    if together.len() > 1 {
        match store(&columns, &together).await {
            Stored::Done => return tell_all(group, &|| Stored::Done),
            Stored::Changed => return tell_all(group, &|| Stored::Changed),
            Stored::Rejected(_) => {}
        }
    }
    for statement in group {
        let stored = store(&columns, &[&statement]).await;
        let _ = statement.told.send(stored);
    }
}

fn tell_all(group: Vec<WaitingRows>, stored: &dyn Fn() -> Stored) {
    for statement in group {
        // Who has gone is not told.
        let _ = statement.told.send(stored());
    }
}

/// Stores the rows of statements as one part.
async fn store(columns: &[Column], statements: &[&WaitingRows]) -> Stored {
    let Some(first) = statements.first() else {
        return Stored::Done;
    };
    let stored = async {
        let directory = tempfile::tempdir().map_err(of_file)?;
        let path = directory.path().join(ROWS);
        write(columns, statements, &path)?;
        for (at, statement) in statements.iter().enumerate() {
            // Of an administrator and the user there are two.
            let usage = &statement.change.usage;
            let mut before = statements[..at].iter();
            if !before.any(|it| Arc::ptr_eq(&it.change.usage, usage)) {
                statement.change.check_room(&path, 0).await?;
            }
        }
        match first.change.append(directory.path(), columns).await {
            Ok(_) => Ok(Stored::Done),
            Err(error) if error.is_change() => Ok(Stored::Changed),
            Err(error) => Err(of_load(error)),
        }
    };
    stored.await.unwrap_or_else(Stored::Rejected)
}

fn write(columns: &[Column], statements: &[&WaitingRows], path: &Path) -> Result<(), ClientError> {
    let named = columns.iter().map(|column| {
        let stored = stored_column(column);
        (stored.name, stored.ty.data_type())
    });
    let mut file = RowFile::create(path, named)?;
    let together = (0..columns.len()).map(|at| {
        let parts: Vec<&dyn Array> = { statements.iter() }
            .map(|it| it.rows[at].as_ref())
            .collect();
        concat(&parts).map_err(of_file)
    });
    file.write(together.collect::<Result<_, _>>()?)?;
    file.finish()
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change of what is behind it is a single operation.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
