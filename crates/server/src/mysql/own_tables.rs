//! Tables of users' own: `CREATE TABLE`, `INSERT` and `DROP TABLE`; what changes their rows and columns is in `own_changes`.
//!
//! A user's tables are in the database of the user's name, where nobody else changes them; an administrator changes those of any
//! database. The rows of the query are written to a file first and loaded as `meridian load` does, so that readers see all of them or
//! none. The tables are replicated ones, with positions where there are columns for them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use catalog::{Column, LoadId, TableKind, fold_name};
use engine::{Archive, LoadedTable};
use futures::StreamExt;
use ingest::{IngestError, LoadRequest, Progress};
use result_formats::{ResultFormat, ResultWriter};
use sql::mysql::{TableCommand, TargetTable};
use sql::{Connection, ErrorCode};

use ::users::Limit;

use super::capabilities::Capabilities;
use super::connection::Client;
use super::own_changes::{self, TableChange};
use super::watch::{Interruption, Watch};
use crate::ClientError;
use crate::sessions::Sessions;
use crate::usage::{self, Usage};

/// Memory of one load.
const MEMORY: u64 = 256 << 20;
/// Threads of one load: others have queries.
const THREADS: usize = 1;
/// The names of columns that are taken for positions.
const POSITIONS: [(&str, &str); 3] = [("ra", "dec"), ("ra", "decl"), ("ra_ps", "decl_ps")];

impl Client {
    /// Executes a statement that changes a table. Returns the number of rows.
    pub(super) async fn change_table(
        &mut self,
        command: TableCommand,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let changing = match command {
            TableCommand::Create {
                table,
                if_not_exists,
                query,
            } => {
                let table = self.own(table)?;
                if table.is_there().await? {
                    if if_not_exists {
                        return Ok(0);
                    }
                    return Err(table.exists().into());
                }
                self.filling(table, query, Filling::New)
            }
            TableCommand::Insert {
                table,
                columns,
                query,
            } => {
                let table = self.own(table)?;
                let columns = table.columns(columns).await?;
                self.filling(table, query, Filling::More(columns))
            }
            TableCommand::Declare {
                table,
                if_not_exists,
                columns,
            } => {
                let table = self.own(table)?;
                if table.is_there().await? {
                    return match if_not_exists {
                        true => Ok(0),
                        false => Err(table.exists().into()),
                    };
                }
                let declared = columns
                    .iter()
                    .map(|it| own_changes::declared(&it.name, &it.ty));
                let declared: Vec<Column> = declared.collect::<Result<_, _>>()?;
                self.filling(table, no_rows(&declared), Filling::Declared(declared))
            }
            TableCommand::Drop { tables, if_exists } => {
                return self.drop_tables(tables, if_exists, watch).await;
            }
            TableCommand::Update {
                table,
                alias,
                assigned,
                condition,
            } => {
                let change = TableChange::Update {
                    alias,
                    assigned,
                    condition,
                    counts_matched: self.capabilities.has(Capabilities::FOUND_ROWS),
                };
                return self.rewrite(table, change, watch).await;
            }
            TableCommand::Delete {
                table,
                alias,
                condition,
            } => {
                let change = TableChange::Delete { alias, condition };
                return self.rewrite(table, change, watch).await;
            }
            TableCommand::Truncate(table) => {
                return self.rewrite(table, TableChange::Truncate, watch).await;
            }
            TableCommand::Alter { table, changes } => {
                return self
                    .rewrite(table, TableChange::Alter(changes), watch)
                    .await;
            }
        };
        let mut computed = self.shared.query_runtime.compute(changing.run());
        Ok(watch
            .during(&mut self.incoming, computed.recv_one())
            .await??)
    }

    pub(super) fn filling(&self, table: OwnTable, query: String, filling: Filling) -> Change {
        Change {
            sessions: Arc::clone(&self.shared.sessions),
            connection: Arc::clone(&self.connection),
            usage: Arc::clone(&self.shared.usage),
            table,
            query,
            filling,
        }
    }

    /// The table, if the user may change it.
    pub(super) fn own(&self, target: TargetTable) -> Result<OwnTable, ClientError> {
        let TargetTable { database, table } = target;
        let Some(user) = &self.shared.user else {
            let sentence = "tables are made by `meridian load`: users have tables of their own where there are users (`meridian user add`)";
            return Err(ClientError::new(ErrorCode::READ_ONLY, sentence));
        };
        let database = database.or_else(|| self.connection.database.clone());
        let database = database.unwrap_or_else(|| user.name.clone());
        if !user.is_admin && fold_name(&database) != fold_name(&user.name) {
            let sentence = format!(
                "you may change tables of your own database alone: write it as in `{}`.{table}",
                user.name
            );
            return Err(ClientError::new(ErrorCode::TABLE_DENIED, sentence));
        }
        Ok(OwnTable {
            archive: Arc::clone(self.shared.sessions.archive()),
            database,
            table,
        })
    }

    async fn drop_tables(
        &mut self,
        tables: Vec<TargetTable>,
        if_exists: bool,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        let mut dropped = Vec::new();
        for target in tables {
            let table = self.own(target)?;
            match table.is_there().await? {
                true => dropped.push(table),
                false if if_exists => {}
                false => {
                    let sentence = format!("there is no table {}", table.shown());
                    return Err(ClientError::new(ErrorCode::NO_TABLE_TO_DROP, sentence).into());
                }
            }
        }
        let dropping = async move {
            for table in dropped {
                ingest::drop_table(table.data_dir(), &table.database, &table.table)
                    .await
                    .map_err(of_load)?;
            }
            Ok(0)
        };
        let mut computed = self.shared.query_runtime.compute(dropping);
        Ok(watch
            .during(&mut self.incoming, computed.recv_one())
            .await??)
    }
}

/// A table that the user may change.
#[derive(Debug, Clone)]
pub(super) struct OwnTable {
    archive: Arc<Archive>,
    database: String,
    table: String,
}

impl OwnTable {
    pub(super) fn shown(&self) -> String {
        format!("{}.{}", self.database, self.table)
    }

    /// The name as a statement has it.
    pub(super) fn quoted(&self) -> String {
        let names = [&self.database, &self.table].map(|name| own_changes::quoted(name));
        names.join(".")
    }

    fn exists(&self) -> ClientError {
        let sentence = format!(
            "there is a table {} already: DROP TABLE removes it",
            self.shown()
        );
        ClientError::new(ErrorCode::TABLE_EXISTS, sentence)
    }

    /// The table as it is now.
    pub(super) async fn find(&self) -> Result<Arc<LoadedTable>, ClientError> {
        let found = self.archive.table(&self.database, &self.table).await?;
        found.ok_or_else(|| {
            let sentence = format!("there is no table {}: CREATE TABLE makes it", self.shown());
            ClientError::new(ErrorCode::NO_TABLE, sentence)
        })
    }

    fn data_dir(&self) -> &Path {
        self.archive.catalog().data_dir()
    }

    async fn is_there(&self) -> Result<bool, ClientError> {
        let found = self.archive.table(&self.database, &self.table).await?;
        Ok(found.is_some())
    }

    /// The columns that get values, under the names that they were declared with.
    async fn columns(&self, named: Vec<String>) -> Result<Vec<String>, ClientError> {
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
        named.iter().map(column).collect()
    }
}

/// How a table gets rows.
#[derive(Debug)]
pub(super) enum Filling {
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
pub(super) struct Change {
    sessions: Arc<Sessions>,
    connection: Arc<Connection>,
    usage: Arc<Usage>,
    table: OwnTable,
    query: String,
    filling: Filling,
}

/// Rows that are in a file.
#[derive(Debug, Default)]
pub(super) struct WrittenRows {
    /// How many there are.
    pub(super) rows: u64,
    /// How many match the condition of the statement.
    pub(super) matched: u64,
    /// How many of these change.
    pub(super) changed: u64,
}

/// The file's name in its directory.
pub(super) const ROWS: &str = "rows.parquet";

impl Change {
    /// Executes the query and loads its rows. Returns their number.
    async fn run(mut self) -> Result<u64, ClientError> {
        let directory = tempfile::tempdir().map_err(of_file)?;
        let named = match &self.filling {
            Filling::More(columns) => Some(columns.clone()),
            Filling::Declared(columns) => Some(columns.iter().map(|it| it.name.clone()).collect()),
            Filling::New | Filling::Instead { .. } => None,
        };
        let path = directory.path().join(ROWS);
        let (names, _) = self.write(&self.query, &path, named, false).await?;
        self.check_room(&path, 0).await?;
        let filling = std::mem::replace(&mut self.filling, Filling::New);
        self.load(directory.path(), &names, filling)
            .await
            .map_err(of_load)
    }

    /// The rows of a query in a file of a new directory, under the names of the table's columns.
    pub(super) async fn written(
        &self,
        query: &str,
        columns: &[Column],
        has_marks: bool,
    ) -> Result<(tempfile::TempDir, WrittenRows), ClientError> {
        let directory = tempfile::tempdir().map_err(of_file)?;
        let path = directory.path().join(ROWS);
        let names = columns.iter().map(|it| it.name.clone()).collect();
        let (_, written) = self.write(query, &path, Some(names), has_marks).await?;
        Ok((directory, written))
    }

    /// Loads the rows of a file. Returns their number.
    pub(super) async fn load(
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
    pub(super) async fn check_room(&self, path: &Path, replaced: u64) -> Result<(), ClientError> {
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

    /// Writes the rows of a query to a file, under these names or those of the query. Returns the names. With marks, the last two columns
    /// say of each row whether it matches and whether it changes.
    async fn write(
        &self,
        query: &str,
        path: &Path,
        named: Option<Vec<String>>,
        has_marks: bool,
    ) -> Result<(Vec<String>, WrittenRows), ClientError> {
        let session = self
            .sessions
            .of(self.connection.database.as_deref())
            .await?;
        // A limit of what a client shows would cut the table short without a word.
        let mut connection = Connection::clone(&self.connection);
        connection.variables.set("sql_select_limit", None)?;
        connection.most_rows = None;
        let mut result = session.execute_for(query, &connection).await?;
        let marks = if has_marks { 2 } else { 0 };
        let width = result.schema.fields().len().saturating_sub(marks);
        let schema = self.schema(&result.schema.fields()[..width], named)?;
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
            let columns = batch.columns()[..width].to_vec();
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(of_file)?;
            writer.write(&batch).map_err(of_file)?;
        }
        let mut out = writer.finish().map_err(of_file)?;
        out.flush().map_err(of_file)?;
        let names = schema.fields().iter().map(|field| field.name().clone());
        Ok((names.collect(), written))
    }

    /// The columns of the file: those of the query, under the names of the columns that get them; any may be NULL.
    fn schema(
        &self,
        fields: &[FieldRef],
        named: Option<Vec<String>>,
    ) -> Result<SchemaRef, ClientError> {
        let names = named.unwrap_or_else(|| {
            let names = fields.iter().map(|field| field.name().clone());
            names.collect()
        });
        if names.len() != fields.len() {
            let sentence = format!(
                "{} values are given for {} columns of {}",
                fields.len(),
                names.len(),
                self.table.shown()
            );
            return Err(ClientError::new(ErrorCode::WRONG_VALUE_COUNT, sentence));
        }
        let named = fields
            .iter()
            .zip(names)
            .map(|(field, name)| Field::new(name, field.data_type().clone(), true));
        Ok(Arc::new(Schema::new(named.collect::<Vec<_>>())))
    }
}

/// How many rows have a 1 in a column.
fn ones(batch: &RecordBatch, column: usize) -> Result<u64, ClientError> {
    let numbers = cast(batch.column(column), &DataType::Int64).map_err(of_file)?;
    let sum = arrow::compute::sum(numbers.as_primitive::<Int64Type>());
    Ok(sum.unwrap_or(0).unsigned_abs())
}

/// A query of columns without rows.
fn no_rows(columns: &[Column]) -> String {
    let nothing = columns.iter();
    let nothing =
        nothing.map(|it| format!("CAST(NULL AS CHAR) AS {}", own_changes::quoted(&it.name)));
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

pub(super) fn of_load(error: IngestError) -> ClientError {
    let code = match &error {
        IngestError::Abandoned => ErrorCode::INTERRUPTED,
        _ => ErrorCode::OTHER,
    };
    ClientError::new(code, error.to_string())
}

fn of_file(error: impl std::error::Error) -> ClientError {
    let sentence = format!("the rows cannot be written to a file for the load: {error}");
    ClientError::new(ErrorCode::STORAGE, sentence)
}
