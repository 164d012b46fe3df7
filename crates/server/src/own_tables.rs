//! Tables of users' own: which of them a user may change, and how they get rows.
//!
//! A user's tables are in the database of the user's name, where nobody else changes them; an administrator changes those of any
//! database. The rows of a query are written to a file first and loaded as `meridian load` does, so that readers see all of them or
//! none. The tables are replicated ones, with positions where there are columns for them.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use ::users::Limit;
use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use catalog::{Column, ColumnType, LoadId, TableKind, fold_name};
use engine::{Archive, LoadedTable, NO_DATABASE};
use futures::StreamExt;
use ingest::{IngestError, LoadRequest, Progress};
use result_formats::{ResultFormat, ResultWriter};
use sql::{Assignment, Connection, ErrorCode};

use crate::sessions::Sessions;
use crate::usage::{self, Usage};
use crate::{ClientError, Shared};

/// Memory of one load.
const MEMORY: u64 = 256 << 20;
/// Threads of one load: others have queries.
const THREADS: usize = 1;
/// The names of columns that are taken for positions.
const POSITIONS: [(&str, &str); 3] = [("ra", "dec"), ("ra", "decl"), ("ra_ps", "decl_ps")];

/// A table that the user may change.
#[derive(Debug, Clone)]
pub(crate) struct OwnTable {
    archive: Arc<Archive>,
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
        let Some(user) = &shared.user else {
            let sentence = "tables are made by `meridian load`: users have tables of their own where there are users (`meridian user add`)";
            return Err(ClientError::new(ErrorCode::READ_ONLY, sentence));
        };
        let database = database.unwrap_or_else(|| user.name.clone());
        if !user.is_admin && fold_name(&database) != fold_name(&user.name) {
            let sentence = format!(
                "you may change tables of your own database alone: write it as in `{}`.{table}",
                user.name
            );
            return Err(ClientError::new(ErrorCode::TABLE_DENIED, sentence));
        }
        Ok(Self {
            archive: Arc::clone(shared.sessions.archive()),
            database,
            table,
        })
    }

    /// Drops the table, which is there.
    ///
    /// # Errors
    /// It cannot be dropped.
    pub(crate) async fn drop_it(&self) -> Result<(), ClientError> {
        let dropped = ingest::drop_table(self.data_dir(), &self.database, &self.table).await;
        dropped.map(drop).map_err(of_load)
    }

    pub(crate) fn shown(&self) -> String {
        format!("{}.{}", self.database, self.table)
    }

    /// The name as a statement has it.
    pub(crate) fn quoted(&self) -> String {
        let names = [&self.database, &self.table].map(|name| quoted(name));
        names.join(".")
    }

    pub(crate) fn exists(&self) -> ClientError {
        let sentence = format!(
            "there is a table {} already: DROP TABLE removes it",
            self.shown()
        );
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

    /// The columns of these names, as they were declared.
    async fn declared(&self, names: &[String]) -> Result<Vec<Column>, ClientError> {
        let found = self.find().await?;
        let columns = &found.spec().columns;
        let declared = names
            .iter()
            .filter_map(|name| columns.iter().find(|column| column.name == *name));
        Ok(declared.cloned().collect())
    }
}

/// How a table gets rows.
#[derive(Debug)]
pub(crate) enum Filling {
    /// It is made.
    New,
    /// It is made with these columns.
    Declared(Vec<Column>),
    /// It gets these in the place of those that it has, of which they were made.
    Instead {
        columns: Vec<Column>,
        made_of: Vec<LoadId>,
    },
    /// More of them, in these columns.
    More(Vec<String>),
}

/// A table that is filled by a query.
#[derive(Debug)]
pub(crate) struct Change {
    sessions: Arc<Sessions>,
    connection: Arc<Connection>,
    usage: Arc<Usage>,
    table: OwnTable,
    query: String,
    filling: Filling,
    /// Whether the query, which is the server's own, names uploaded files.
    names_files: bool,
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
    /// Of a query with which a table is filled.
    pub(crate) fn new(
        shared: &Shared,
        connection: Arc<Connection>,
        table: OwnTable,
        query: String,
        filling: Filling,
    ) -> Self {
        Self {
            sessions: Arc::clone(&shared.sessions),
            connection,
            usage: Arc::clone(&shared.usage),
            table,
            query,
            filling,
            names_files: false,
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

    /// Executes the query and loads its rows. Returns their number.
    pub(crate) async fn run(mut self) -> Result<u64, ClientError> {
        let directory = tempfile::tempdir().map_err(of_file)?;
        let columns = match &self.filling {
            Filling::More(names) => Some(self.table.declared(names).await?),
            Filling::Declared(columns) => Some(columns.clone()),
            Filling::New | Filling::Instead { .. } => None,
        };
        let path = directory.path().join(ROWS);
        let (names, _) = self
            .write(&self.query, &path, columns.as_deref(), false)
            .await?;
        self.check_room(&path, 0).await?;
        let filling = std::mem::replace(&mut self.filling, Filling::New);
        self.load(directory.path(), &names, filling)
            .await
            .map_err(of_load)
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
        names: &[String],
        filling: Filling,
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
        let is_new = !matches!(filling, Filling::More(_));
        match filling {
            Filling::New => {}
            Filling::Declared(columns) => request.declared = Some(columns),
            Filling::Instead { columns, made_of } => {
                request.declared = Some(columns);
                request.replace = true;
                request.made_of = Some(made_of);
            }
            Filling::More(_) => request.append = true,
        }
        if is_new {
            request.kind = Some(TableKind::Replicated);
            if let Some((ra, dec)) = positions(names) {
                (request.ra, request.dec) = (Some(ra), Some(dec));
            }
        }
        let progress = Arc::new(Progress::default());
        // Whoever gives the statement up ends the load, which then leaves nothing.
        let _guard = Cancelling(Arc::clone(&progress));
        let report = tokio::spawn(ingest::load(request, progress)).await;
        Ok(report.unwrap_or(Err(IngestError::Internal))?.rows_loaded)
    }

    /// Whether the rows of a file fit into what the user may store, in the place of so many bytes.
    pub(crate) async fn check_room(&self, path: &Path, replaced: u64) -> Result<(), ClientError> {
        let Some(most) = self.usage.limit(Limit::Stored) else {
            return Ok(());
        };
        let stored = engine::stored_bytes(&self.table.archive, &self.table.database).await?;
        // Chunk files take about as much as this one.
        let more = std::fs::metadata(path).map_err(of_file)?.len();
        if stored.saturating_sub(replaced).saturating_add(more) <= most {
            return Ok(());
        }
        let remedy = format!("this statement would add about {more}; DROP TABLE makes room");
        Err(ClientError {
            retry_after: None,
            ..usage::reached(Limit::Stored, stored, most, &remedy)
        })
    }

    /// Writes the rows of a query to a file: what these columns store of them, or as they are. Returns the columns' names. With marks, the
    /// last two columns say of each row whether it matches and whether it changes.
    async fn write(
        &self,
        query: &str,
        path: &Path,
        stored: Option<&[Column]>,
        has_marks: bool,
    ) -> Result<(Vec<String>, WrittenRows), ClientError> {
        let session = match self.names_files {
            true => self.sessions.reading_files(NO_DATABASE).await?,
            false => {
                self.sessions
                    .of(self.connection.database.as_deref())
                    .await?
            }
        };
        // A limit of what a client shows would cut the table short without a word.
        let mut connection = Connection::clone(&self.connection);
        connection.variables.set("sql_select_limit", None)?;
        connection.most_rows = None;
        let mut result = session.execute_for(query, &connection).await?;
        let marks = if has_marks { 2 } else { 0 };
        let width = result.schema.fields().len().saturating_sub(marks);
        let (schema, assignments) = self.schema(&result.schema.fields()[..width], stored)?;
        let out = BufWriter::new(File::create(path).map_err(of_file)?);
        let mut writer = ResultWriter::new(ResultFormat::Parquet, &schema, out).map_err(of_file)?;
        let mut written = WrittenRows::default();
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            written.rows += batch.num_rows() as u64;
            if has_marks {
                written.matched += ones(&batch, width)?;
                written.changed += ones(&batch, width + 1)?;
            }
            let columns = batch.columns()[..width].iter().zip(&assignments);
            let first = written.rows - batch.num_rows() as u64;
            let columns = columns.map(|(column, assignment)| match assignment {
                None => Ok(Arc::clone(column)),
                Some(assignment) => assignment.of(column).map_err(|(row, why)| {
                    let row = first + row as u64 + 1;
                    let sentence = format!(
                        "a row cannot be stored, and nothing has changed. Row {row}: {why}"
                    );
                    ClientError::new(ErrorCode::WRONG_ROW, sentence)
                }),
            });
            let columns = columns.collect::<Result<_, _>>()?;
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(of_file)?;
            writer.write(&batch).map_err(of_file)?;
        }
        let mut out = writer.finish().map_err(of_file)?;
        out.flush().map_err(of_file)?;
        let names = schema.fields().iter().map(|field| field.name().clone());
        Ok((names.collect(), written))
    }

    /// The columns of the file: those of the query, under the names of the columns that get them; any may be NULL. And what has to be done
    /// with the values of each.
    fn schema(
        &self,
        fields: &[FieldRef],
        stored: Option<&[Column]>,
    ) -> Result<(SchemaRef, Vec<Option<Assignment>>), ClientError> {
        let names: Vec<&String> = match stored {
            Some(columns) => columns.iter().map(|column| &column.name).collect(),
            None => fields.iter().map(|field| field.name()).collect(),
        };
        if names.len() != fields.len() {
            let sentence = format!(
                "{} values are given for {} columns of {}",
                fields.len(),
                names.len(),
                self.table.shown()
            );
            return Err(ClientError::new(ErrorCode::WRONG_VALUE_COUNT, sentence));
        }
        let assignments: Vec<Option<Assignment>> = match stored {
            Some(columns) => { fields.iter().zip(columns) }
                .map(|(field, column)| Assignment::between(field.data_type(), &stored_as(column)))
                .collect(),
            None => vec![None; fields.len()],
        };
        let named =
            { fields.iter().zip(names).zip(&assignments) }.map(|((field, name), assignment)| {
                let ty = assignment.map(Assignment::data_type);
                Field::new(name, ty.unwrap_or_else(|| field.data_type().clone()), true)
            });
        let schema = Arc::new(Schema::new(named.collect::<Vec<_>>()));
        Ok((schema, assignments))
    }
}

/// The kind of values that a column stores; integers of all sizes and decimals are alike here.
fn stored_as(column: &Column) -> DataType {
    match column.ty {
        ColumnType::Text => DataType::Utf8,
        ColumnType::Binary => DataType::Binary,
        ColumnType::Date => DataType::Date32,
        ColumnType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        ColumnType::Boolean => DataType::Boolean,
        ColumnType::Float32 => DataType::Float32,
        ColumnType::Float64 | ColumnType::Decimal { .. } => DataType::Float64,
        _ => DataType::Int64,
    }
}

/// How many rows have a 1 in a column.
fn ones(batch: &RecordBatch, column: usize) -> Result<u64, ClientError> {
    let numbers = cast(batch.column(column), &DataType::Int64).map_err(of_file)?;
    let sum = arrow::compute::sum(numbers.as_primitive::<Int64Type>());
    Ok(sum.unwrap_or(0).unsigned_abs())
}

/// A query of columns without rows.
pub(crate) fn no_rows(columns: &[Column]) -> String {
    let nothing = columns.iter();
    let nothing = nothing.map(|it| format!("CAST(NULL AS CHAR) AS {}", quoted(&it.name)));
    let nothing: Vec<String> = nothing.collect();
    format!(
        "SELECT {} FROM (SELECT 1 AS one) AS t WHERE one = 0",
        nothing.join(", ")
    )
}

/// Cancels a load when it is dropped.
struct Cancelling(Arc<Progress>);

impl Drop for Cancelling {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The columns with positions, if there are some under usual names.
fn positions(names: &[String]) -> Option<(String, String)> {
    let find = |wanted: &str| names.iter().find(|name| fold_name(name) == wanted).cloned();
    POSITIONS
        .iter()
        .find_map(|(ra, dec)| find(ra).zip(find(dec)))
}

/// The error of a load. Its file is the server's own: rows are known by their numbers.
pub(crate) fn of_load(error: IngestError) -> ClientError {
    let code = match &error {
        IngestError::Abandoned => ErrorCode::INTERRUPTED,
        IngestError::TooManyRejected { .. } | IngestError::AllRejected { .. } => {
            ErrorCode::WRONG_ROW
        }
        IngestError::DiskFull { .. }
        | IngestError::Damaged { .. }
        | IngestError::Catalog(_)
        | IngestError::Store(_) => ErrorCode::STORAGE,
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

fn of_file(error: impl std::error::Error) -> ClientError {
    let sentence = format!("the rows cannot be written to a file for the load: {error}");
    ClientError::new(ErrorCode::STORAGE, sentence)
}

/// A column as it is declared.
pub(crate) fn declared_column(name: &str, ty: &str) -> Result<Column, ClientError> {
    ingest::declared_column(name, ty).map_err(|reason| {
        ClientError::new(ErrorCode::SYNTAX, format!("the column {name}: {reason}"))
    })
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
