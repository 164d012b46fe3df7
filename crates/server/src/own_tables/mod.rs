//! Tables of users' own: which of them a user may change, and how they get rows.
//!
//! A user's tables are in the database of the user's name, where nobody else changes them, and a group's in that of the group, where its
//! members do; an administrator changes those of any database. The rows of a query are written to a file first and loaded as
//! `meridian load` does, so that readers see all of them or none. Where the rows go, `layout` decides.

mod assignments;
mod change_check;
mod changes;
mod columns;
mod columns_of_rows;
mod expiry;
mod filling;
mod groups;
mod insertion;
mod layout;
mod made_with_columns;
mod rename;
mod rows;
mod statements;
mod submitted;
mod text_rows;
mod updates;
mod whose;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::users::{DatabaseOwner, GroupDatabase, Limit, User, UserList};
use catalog::{CatalogError, Column, LoadId, Rights, Table, fold_name};
use engine::{Archive, LoadedTable, StoredRows};
use ingest::{IngestError, LoadRequest, Progress, Rejection};
use sql::connection::CharacterSet;
use sql::mysql::{FileForm, InsertedRows, InsertedValue, LoadedField, TablePartition};
use sql::{Connection, ErrorCode};
use tokio::time::sleep;

pub(crate) use self::assignments::Assignments;
pub(crate) use self::changes::TableTurns;
pub(crate) use self::columns::{declared_column, default_of, stored_column};
pub(crate) use self::expiry::{
    ExpiringTables, remove_expired_tables, sentence, tables_of, warning,
};
pub(crate) use self::groups::InsertGroups;
pub(crate) use self::layout::{Layout, names_of};
pub(crate) use self::statements::TableStatements;
pub(crate) use self::submitted::make_table;
use self::whose::not_own;
use crate::authenticator::Authenticator;
use crate::sessions::Sessions;
use crate::usage::{self, Usage};
use crate::{ClientError, Shared};

/// Memory of one load.
const MEMORY: u64 = 256 << 20;
/// How long a statement waits for others who write the table that it drops, and how often it looks.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// Threads of one load: others have queries.
const THREADS: usize = 1;
/// How often a statement starts anew because of others.
pub(crate) const ATTEMPTS: usize = 20;

/// A table that the user may change.
#[derive(Debug, Clone)]
pub(crate) struct OwnTable {
    archive: Arc<Archive>,
    authenticator: Arc<Authenticator>,
    /// Whether it is in a database of whoever changes it: the own one, or that of one of their groups.
    is_own: bool,
    /// The database of the group, if it is in that of one to which whoever changes it belongs.
    of_group: Option<GroupDatabase>,
    /// Who changes it.
    user: String,
    database: String,
    table: String,
}

impl OwnTable {
    /// The table of a name, by default in the user's own database.
    ///
    /// # Errors
    /// The user may not change it, or there are no users.
    pub(crate) fn of(
        shared: &Shared,
        database: Option<String>,
        table: String,
    ) -> Result<Self, ClientError> {
        let Shared {
            user,
            authenticator,
            sessions,
            ..
        } = shared;
        Self::of_user(user.as_deref(), authenticator, sessions, database, table)
    }

    /// The table of a name, by default in the user's own database.
    ///
    /// # Errors
    /// The user may not change it, or there are no users.
    pub(crate) fn of_user(
        user: Option<&User>,
        authenticator: &Arc<Authenticator>,
        sessions: &Sessions,
        database: Option<String>,
        table: String,
    ) -> Result<Self, ClientError> {
        let Some(user) = user else {
            let sentence = "tables are made by `meridian load`: users have tables of their own where there are users (`meridian user add`)";
            return Err(ClientError::new(ErrorCode::READ_ONLY, sentence));
        };
        let database = database.unwrap_or_else(|| user.name.clone());
        let is_own = user.owns(&database);
        if !user.is_admin && !is_own {
            return Err(not_own(user, &table));
        }
        let data_dir = sessions.archive().catalog().data_dir();
        let is_published = alerts::is_one(data_dir, &database);
        if is_published.map_err(|error| ClientError::new(ErrorCode::STORAGE, error.to_string()))? {
            let sentence = format!(
                "{database} is an alert database: its tables are what was published of it, and publishing alone changes them"
            );
            return Err(ClientError::new(ErrorCode::READ_ONLY, sentence));
        }
        Ok(Self {
            archive: Arc::clone(sessions.archive()),
            authenticator: Arc::clone(authenticator),
            is_own,
            of_group: user.group_database(&database).cloned(),
            user: user.name.clone(),
            database,
            table,
        })
    }

    /// Whether the user may still change the table: what is sent or computed for it takes its time, and who has left the group meanwhile
    /// changes nothing of it any more.
    ///
    /// # Errors
    /// The user may not, or the users cannot be read.
    pub(crate) async fn check_still_own(&self) -> Result<(), ClientError> {
        if !self.is_own {
            return Ok(());
        }
        let principal = self.authenticator.of(&self.user).await?;
        match principal.user.as_deref() {
            Some(user) if !user.is_admin && !user.owns(&self.database) => {
                Err(not_own(user, &self.table))
            }
            _ => Ok(()),
        }
    }

    /// The users as they are now.
    async fn users(&self) -> Result<UserList, ClientError> {
        let list = self.authenticator.users().list().await;
        list.map_err(|error| ClientError::new(ErrorCode::STORAGE, error.to_string()))
    }

    /// Whether the table is in the database of a user or a group, not in one of the catalogue's.
    ///
    /// # Errors
    /// The users cannot be read.
    pub(crate) async fn is_of_a_user(&self) -> Result<bool, ClientError> {
        if self.is_own {
            return Ok(true);
        }
        Ok(self.users().await?.owner_of(&self.database).is_some())
    }

    /// The database of a group in which the table is, also where an administrator changes it who does not belong to the group.
    async fn group_database(&self) -> Result<Option<GroupDatabase>, ClientError> {
        if self.is_own {
            return Ok(self.of_group.clone());
        }
        Ok(match self.users().await?.owner_of(&self.database) {
            Some(DatabaseOwner::Group(group)) => group.database(),
            _ => None,
        })
    }

    /// Drops the table, which is there.
    ///
    /// # Errors
    /// It cannot be dropped.
    pub(crate) async fn drop_it(&self) -> Result<(), ClientError> {
        let begun = Instant::now();
        loop {
            self.check_still_own().await?;
            let dropped = ingest::drop_table(self.data_dir(), &self.database, &self.table).await;
            match dropped {
                // A compaction, mostly, which ends soon.
                Err(IngestError::Catalog(CatalogError::Locked { .. }))
                    if begun.elapsed() < LOCK_PATIENCE =>
                {
                    sleep(LOCK_PAUSE).await;
                }
                dropped => return dropped.map(drop).map_err(of_load),
            }
        }
    }

    pub(crate) fn shown(&self) -> String {
        format!("{}.{}", self.database, self.table)
    }

    /// The name as a statement has it.
    pub(crate) fn quoted(&self) -> String {
        let names = [&self.database, &self.table].map(|name| quoted(name));
        names.join(".")
    }

    /// Whether another table is in the same database.
    pub(crate) fn shares_database(&self, other: &Self) -> bool {
        fold_name(&self.database) == fold_name(&other.database)
    }

    /// The error for a statement that others have kept from its end again and again.
    pub(crate) fn is_busy(&self) -> ClientError {
        let sentence = format!(
            "{} is changed by others all the time: try again when they have ended",
            self.shown()
        );
        ClientError::new(ErrorCode::LOCK_WAIT, sentence)
    }

    pub(crate) fn exists(&self) -> ClientError {
        let table = self.shown();
        let sentence = format!("there is a table {table} already: DROP TABLE removes it");
        ClientError::new(ErrorCode::TABLE_EXISTS, sentence)
    }

    /// The table as it is now.
    pub(crate) async fn find(&self) -> Result<Arc<LoadedTable>, ClientError> {
        let found = self.archive.table(&self.database, &self.table).await?;
        found.ok_or_else(|| {
            let sentence = format!("there is no table {}: CREATE TABLE makes it", self.shown());
            ClientError::new(ErrorCode::NO_TABLE, sentence)
        })
    }

    fn data_dir(&self) -> &Path {
        self.archive.catalog().data_dir()
    }

    pub(crate) async fn is_there(&self) -> Result<bool, ClientError> {
        let found = self.archive.table(&self.database, &self.table).await?;
        Ok(found.is_some())
    }

    /// The columns that get values, under the names that they were declared with.
    pub(crate) async fn columns(&self, named: Vec<String>) -> Result<Vec<String>, ClientError> {
        let found = self.find().await?;
        let declared = found.spec().columns.iter().map(|column| &column.name);
        if named.is_empty() {
            return Ok(declared.cloned().collect());
        }
        let column = |name: &String| {
            let mut declared = declared.clone();
            let found = declared.find(|it| fold_name(it) == fold_name(name));
            found.cloned().ok_or_else(|| {
                let sentence = format!("{} has no column {name}", self.shown());
                ClientError::new(ErrorCode::NO_COLUMN, sentence)
            })
        };
        let columns: Vec<String> = named.iter().map(column).collect::<Result<_, _>>()?;
        let mut known = HashSet::new();
        match columns.iter().find(|name| !known.insert(name.as_str())) {
            Some(twice) => {
                let sentence = format!("the column {twice} is named twice: it can get one value");
                Err(ClientError::new(ErrorCode::NAMED_TWICE, sentence))
            }
            None => Ok(columns),
        }
    }
}

/// How a table gets rows.
#[derive(Debug, Clone)]
pub(crate) enum Filling {
    /// It is made, and spread as this says.
    New(Option<TablePartition>),
    /// It is made with these columns, and with more if its rows are those of a query that has others.
    Declared(Vec<Column>, Option<TablePartition>),
    /// It gets these in the place of those that it has, of which they were made.
    Instead {
        columns: Vec<Column>,
        made_of: Vec<LoadId>,
    },
    /// It gets the name of another, whose rows they are.
    Renamed {
        columns: Vec<Column>,
        former: Box<Table>,
    },
    /// More of them, in these columns.
    More(Vec<String>),
    /// Rows that are in a file are added to a table that has these columns.
    Appended(Vec<Column>),
}

/// Where the rows of a table come from.
#[derive(Debug)]
pub(crate) enum RowSource {
    /// A query.
    Query(String),
    /// The rows of VALUES.
    Values(Vec<Vec<InsertedValue>>),
    /// A file that the client has sent.
    File(TextFile),
    /// The stored result of a query.
    Stored(StoredRows),
}

impl RowSource {
    /// No rows.
    pub(crate) const NONE: Self = Self::Values(Vec::new());
}

impl From<InsertedRows> for RowSource {
    fn from(rows: InsertedRows) -> Self {
        match rows {
            InsertedRows::Query(query) => Self::Query(query),
            InsertedRows::Values(rows) => Self::Values(rows),
        }
    }
}

impl From<TextFile> for RowSource {
    fn from(file: TextFile) -> Self {
        Self::File(file)
    }
}

/// Variables with the fields that they got.
pub(crate) type LastFields = Mutex<Vec<(String, Option<String>)>>;

/// A file of lines and fields.
#[derive(Debug)]
pub(crate) struct TextFile {
    pub(crate) file: tempfile::NamedTempFile,
    pub(crate) form: FileForm,
    /// UTF-8 if there is none.
    pub(crate) character_set: Option<&'static CharacterSet>,
    /// What gets the fields of a line.
    pub(crate) fields: Vec<LoadedField>,
    /// What columns get beside.
    pub(crate) assigned: Assignments,
    /// The fields that variables got of the last row.
    pub(crate) last: Arc<LastFields>,
}

/// A table that is filled.
#[derive(Debug)]
pub(crate) struct Change {
    sessions: Arc<Sessions>,
    connection: Arc<Connection>,
    usage: Arc<Usage>,
    table: OwnTable,
    rows: RowSource,
    filling: Filling,
    /// Whether the query, which is the server's own, names uploaded files.
    names_files: bool,
    /// What the rows are said to be from.
    source: Option<String>,
    /// Who changes which table.
    turns: Arc<TableTurns>,
}

/// Rows that are in a file.
#[derive(Debug, Default)]
pub(crate) struct WrittenRows {
    /// How many there are.
    pub(crate) rows: u64,
    /// How many match the condition of the statement.
    pub(crate) matched: u64,
    /// How many of these change.
    pub(crate) changed: u64,
}

/// The file's name in its directory.
pub(crate) const ROWS: &str = "rows.parquet";

impl Change {
    /// Of rows with which a table is filled.
    pub(crate) fn new(
        shared: &Shared,
        connection: Arc<Connection>,
        table: OwnTable,
        rows: impl Into<RowSource>,
        filling: Filling,
    ) -> Self {
        Self {
            sessions: Arc::clone(&shared.sessions),
            connection,
            usage: Arc::clone(&shared.usage),
            table,
            rows: rows.into(),
            filling,
            names_files: false,
            source: None,
            turns: Arc::clone(&shared.table_turns),
        }
    }

    /// The same, whose query is the server's own and names uploaded files.
    #[must_use]
    pub(crate) fn naming_files(self) -> Self {
        Self {
            names_files: true,
            ..self
        }
    }

    /// The rows of a query in a file of a new directory, under the names of the table's columns.
    pub(crate) async fn written(
        &self,
        query: &str,
        columns: &[Column],
        has_marks: bool,
    ) -> Result<(tempfile::TempDir, WrittenRows), ClientError> {
        let directory = tempfile::tempdir().map_err(of_file)?;
        let path = directory.path().join(ROWS);
        let (_, written) = self.write(query, &path, Some(columns), has_marks).await?;
        Ok((directory, written))
    }

    /// Loads the rows of a file. Returns their number.
    pub(crate) async fn load(
        &self,
        directory: &Path,
        filling: Filling,
        layout: Layout,
    ) -> Result<u64, IngestError> {
        let mut request = LoadRequest::new(
            self.table.data_dir(),
            &self.table.database,
            &self.table.table,
        );
        request.files = vec![directory.join(ROWS)];
        request.memory = Some(MEMORY);
        request.threads = Some(THREADS);
        request.allow_empty = true;
        request.waits = true;
        request.source.clone_from(&self.source);
        match filling {
            Filling::New(_) => {}
            Filling::Declared(columns, _) => request.declared = Some(columns),
            Filling::Instead { columns, made_of } => {
                request.declared = Some(columns);
                request.replace = true;
                request.made_of = Some(made_of);
            }
            Filling::Renamed { columns, former } => {
                request.declared = Some(columns);
                request.renames = Some(former);
            }
            Filling::More(_) => request.append = true,
            Filling::Appended(columns) => {
                request.append = true;
                request.declared = Some(columns);
            }
        }
        if !request.append {
            layout.request(&mut request);
        }
        let progress = Arc::new(Progress::default());
        // Whoever gives the statement up ends the load, which then leaves nothing.
        let _guard = CancelOnDrop(Arc::clone(&progress));
        // What is read and shown is the whole catalog, whatever the user sees of it.
        let catalog = self
            .table
            .archive
            .catalog()
            .seen_with(Arc::new(Rights::All));
        let load = async move { ingest::load_with(&catalog, request, progress).await };
        let report = tokio::spawn(Box::pin(load)).await;
        Ok(report.unwrap_or(Err(IngestError::Internal))?.rows_loaded)
    }

    /// Whether the rows of a file fit into what the user may store, in the place of so many bytes.
    pub(crate) async fn check_room_for(
        &self,
        path: &Path,
        replaced: u64,
    ) -> Result<(), ClientError> {
        // Chunk files take about as much as this one.
        let more = std::fs::metadata(path).map_err(of_file)?.len();
        self.check_room(more, replaced).await
    }

    /// Whether so many bytes more fit into what the user may store, in the place of others.
    pub(crate) async fn check_room(&self, more: u64, replaced: u64) -> Result<(), ClientError> {
        let group = self.table.group_database().await?;
        let most = match &group {
            Some(group) => group.limits.stored,
            None => self.usage.limit(Limit::Stored),
        };
        let Some(most) = most else {
            return Ok(());
        };
        let stored = engine::stored_bytes(&self.table.archive, &self.table.database).await?;
        if stored.saturating_sub(replaced).saturating_add(more) <= most {
            return Ok(());
        }
        let remedy = format!("this statement would add about {more}; DROP TABLE makes room");
        let reached = match &group {
            Some(group) => usage::limit_reached(&group.meaning(), stored, most, &remedy),
            None => usage::reached(Limit::Stored, stored, most, &remedy),
        };
        Err(ClientError {
            retry_after: None,
            ..reached
        })
    }
}

/// Cancels a load when it is dropped.
struct CancelOnDrop(Arc<Progress>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The error of a load. Its file is the server's own: rows are known by their numbers.
pub(crate) fn of_load(error: IngestError) -> ClientError {
    let code = match &error {
        IngestError::Abandoned => ErrorCode::INTERRUPTED,
        IngestError::TooManyRejected { why, .. } | IngestError::AllRejected { why, .. } => {
            match why {
                Rejection::Duplicate => ErrorCode::DUPLICATE_KEY,
                Rejection::Missing => ErrorCode::NULL_VALUE,
                Rejection::OutOfRange => ErrorCode::VALUE_OUT_OF_RANGE,
                Rejection::Value => ErrorCode::WRONG_ROW,
            }
        }
        IngestError::Catalog(CatalogError::HasDependents { .. }) => ErrorCode::HAS_CHILDREN,
        IngestError::DiskFull { .. }
        | IngestError::Damaged { .. }
        | IngestError::Catalog(_)
        | IngestError::Store(_) => ErrorCode::STORAGE,
        IngestError::RepeatedColumn { .. } => ErrorCode::COLUMN_TWICE,
        IngestError::Fault(_) => ErrorCode::INTERNAL,
        _ => ErrorCode::OTHER,
    };
    let sentence = match &error {
        IngestError::TooManyRejected { examples, .. }
        | IngestError::AllRejected { examples, .. } => {
            format!(
                "a row cannot be stored, and nothing has changed. {}",
                without_file(examples)
            )
        }
        IngestError::RepeatedColumn { name, .. } => {
            format!("the column {name} occurs twice (names are the same whatever their case)")
        }
        IngestError::Layout { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    ClientError::new(code, sentence)
}

/// Examples of rejected rows with `row 3:` in the places of `/.../rows.parquet:3:`.
fn without_file(examples: &str) -> String {
    let words = examples.split(' ').map(|word| {
        let row = word
            .strip_suffix(':')
            .and_then(|word| word.rsplit_once(ROWS)?.1.strip_prefix(':'));
        match row {
            Some(row) => format!("row {row}:"),
            None => word.to_owned(),
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

pub(crate) fn of_file(error: impl std::error::Error) -> ClientError {
    let sentence = format!("the rows cannot be written to a file for the load: {error}");
    ClientError::new(ErrorCode::STORAGE, sentence)
}

/// A name as a statement has it.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_known_by_their_numbers() {
        let examples = "First: /tmp/.tmpX/rows.parquet:3: column \"id\": \"many\" is out of range; /tmp/.tmpX/rows.parquet:14: x";
        assert_eq!(
            without_file(examples),
            "First: row 3: column \"id\": \"many\" is out of range; row 14: x"
        );
    }
}
