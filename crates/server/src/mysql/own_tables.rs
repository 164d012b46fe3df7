//! Tables of users' own: `CREATE TABLE ... AS SELECT`, `INSERT` and `DROP TABLE`.
//!
//! A user's tables are in the database of the user's name, where nobody else changes them; an administrator changes those of any
//! database. The rows of the query are written to a file first and loaded as `meridian load` does, so that readers see all of them or
//! none. The tables are replicated ones, with positions where there are columns for them.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use catalog::{TableKind, fold_name};
use engine::Archive;
use futures::StreamExt;
use ingest::{IngestError, LoadRequest, Progress};
use result_formats::{ResultFormat, ResultWriter};
use sql::mysql::{TableCommand, TargetTable};
use sql::{Connection, ErrorCode};

use ::users::Limit;

use super::connection::Client;
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
                    let sentence = format!(
                        "there is a table {} already: DROP TABLE removes it",
                        table.shown()
                    );
                    return Err(ClientError::new(ErrorCode::TABLE_EXISTS, sentence).into());
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
            TableCommand::Drop { tables, if_exists } => {
                return self.drop_tables(tables, if_exists, watch).await;
            }
        };
        let mut computed = self.shared.query_runtime.compute(changing.run());
        Ok(watch
            .during(&mut self.incoming, computed.recv_one())
            .await??)
    }

    fn filling(&self, table: OwnTable, query: String, filling: Filling) -> Change {
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
    fn own(&self, target: TargetTable) -> Result<OwnTable, ClientError> {
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
struct OwnTable {
    archive: Arc<Archive>,
    database: String,
    table: String,
}

impl OwnTable {
    fn shown(&self) -> String {
        format!("{}.{}", self.database, self.table)
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
        let found = self.archive.table(&self.database, &self.table).await?;
        let Some(found) = found else {
            let sentence = format!(
                "there is no table {}: CREATE TABLE ... AS SELECT makes it",
                self.shown()
            );
            return Err(ClientError::new(ErrorCode::NO_TABLE, sentence));
        };
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
enum Filling {
    /// It is made.
    New,
    /// More of them, in these columns.
    More(Vec<String>),
}

/// A table that is filled by a query.
#[derive(Debug)]
struct Change {
    sessions: Arc<Sessions>,
    connection: Arc<Connection>,
    usage: Arc<Usage>,
    table: OwnTable,
    query: String,
    filling: Filling,
}

impl Change {
    /// Executes the query and loads its rows. Returns their number.
    async fn run(self) -> Result<u64, ClientError> {
        let directory = tempfile::tempdir().map_err(of_file)?;
        let path = directory.path().join("rows.parquet");
        let names = self.write(&path).await?;
        self.check_room(&path).await?;
        let mut request = LoadRequest::new(
            self.table.data_dir(),
            &self.table.database,
            &self.table.table,
        );
        request.files = vec![path];
        request.memory = Some(MEMORY);
        request.threads = Some(THREADS);
        request.allow_empty = true;
        match self.filling {
            Filling::New => {
                request.kind = Some(TableKind::Replicated);
                if let Some((ra, dec)) = positions(&names) {
                    (request.ra, request.dec) = (Some(ra), Some(dec));
                }
            }
            Filling::More(_) => request.append = true,
        }
        let progress = Arc::new(Progress::default());
        // Whoever gives the statement up ends the load, which then leaves nothing.
        let _guard = Cancelling(Arc::clone(&progress));
        let load = tokio::spawn(ingest::load(request, progress));
        let report = load.await.map_err(|error| {
            ClientError::new(ErrorCode::INTERNAL, format!("the load broke off: {error}"))
        })?;
        Ok(report.map_err(of_load)?.rows_loaded)
    }

    /// Whether the rows of a file fit into what the user may store.
    async fn check_room(&self, path: &Path) -> Result<(), ClientError> {
        let Some(most) = self.usage.limit(Limit::Stored) else {
            return Ok(());
        };
        let stored = engine::stored_bytes(&self.table.archive, &self.table.database).await?;
        // Chunk files take about as much as this one.
        let more = std::fs::metadata(path).map_err(of_file)?.len();
        if stored.saturating_add(more) <= most {
            return Ok(());
        }
        let remedy = format!("this statement would add about {more}; DROP TABLE makes room");
        Err(ClientError {
            retry_after: None,
            ..usage::reached(Limit::Stored, stored, most, &remedy)
        })
    }

    /// Writes the rows of the query to a file. Returns the names of the columns.
    async fn write(&self, path: &Path) -> Result<Vec<String>, ClientError> {
        let session = self
            .sessions
            .of(self.connection.database.as_deref())
            .await?;
        // A limit of what a client shows would cut the table short without a word.
        let mut connection = Connection::clone(&self.connection);
        connection.variables.set("sql_select_limit", None)?;
        connection.most_rows = None;
        let mut result = session.execute_for(&self.query, &connection).await?;
        let schema = self.schema(&result.schema)?;
        let out = BufWriter::new(File::create(path).map_err(of_file)?);
        let mut writer = ResultWriter::new(ResultFormat::Parquet, &schema, out).map_err(of_file)?;
        while let Some(batch) = result.batches.next().await {
            let columns = batch?.columns().to_vec();
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).map_err(of_file)?;
            writer.write(&batch).map_err(of_file)?;
        }
        let mut out = writer.finish().map_err(of_file)?;
        out.flush().map_err(of_file)?;
        let names = schema.fields().iter().map(|field| field.name().clone());
        Ok(names.collect())
    }

    /// The columns of the file: those of the query, under the names of the columns that get them; any may be NULL.
    fn schema(&self, rows: &SchemaRef) -> Result<SchemaRef, ClientError> {
        let fields = rows.fields();
        let names: Vec<&String> = match &self.filling {
            Filling::New => fields.iter().map(|field| field.name()).collect(),
            Filling::More(columns) => columns.iter().collect(),
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
        let named = fields
            .iter()
            .zip(names)
            .map(|(field, name)| Field::new(name, field.data_type().clone(), true));
        Ok(Arc::new(Schema::new(named.collect::<Vec<_>>())))
    }
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

fn of_load(error: IngestError) -> ClientError {
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
