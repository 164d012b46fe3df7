//! The database that is followed, as it is read: tables of the field's own alert databases in SQL, in SQLite or in PostgreSQL.
//!
//! Beside the tables of rows there is a table of replica chunks, one for each table of rows that tells the keys of the rows of a chunk, and
//! one of updates. It is only read, by transactions that cannot write. In PostgreSQL these lock nothing. In a SQLite file that is not in
//! write-ahead mode whoever reads keeps others from committing: so no transaction lasts longer than it takes to read.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, BinaryArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Field, Schema};
use tokio::time::timeout;

use super::place::{Follows, Place};
use super::state::FollowedChunk;
use crate::error::{AlertsError, Result};
use crate::schema::{AlertSchema, AlertTable, Column, ColumnType, names};
use crate::statements::Dialect;
use crate::store::{Connection, Kind, Values, first, open_foreign_postgres, open_foreign_sqlite};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest that one read may take.
const READ_TIMEOUT: Duration = Duration::from_secs(1800);
/// Rows that are read at a time of a whole table.
pub(super) const PAGE: usize = 10_000;
const CHUNKS: &str = "ApdbReplicaChunks";
const UPDATES: &str = "ApdbUpdateRecordChunks";
const CHUNK: &str = "apdb_replica_chunk";
/// A column by which the field's software finds rows of regions; it is in no schema file.
const PIXEL: &str = "pixelId";

/// A table of rows there, in the columns of the schema.
#[derive(Debug)]
struct AttachedTable {
    columns: Vec<Column>,
}

/// A connection to the database that is followed.
pub(super) struct AttachedConnection {
    connection: Box<dyn Connection>,
    dialect: Dialect,
    schema: Option<String>,
    tables: Vec<AttachedTable>,
    /// Whether it tells when an object of the solar system was found for a source.
    pub(super) has_reassigned: bool,
    /// Columns that are there and not in the schema here, or the other way.
    pub(super) differences: Vec<String>,
}

const fn key(table: AlertTable) -> &'static [(&'static str, Kind)] {
    match table {
        AlertTable::DiaObject => &[
            (names::DIA_OBJECT, Kind::Int),
            (names::VALIDITY_START, Kind::Real),
        ],
        AlertTable::DiaSource => &[(names::DIA_SOURCE, Kind::Int)],
        AlertTable::DiaForcedSource => &[
            (names::DIA_OBJECT, Kind::Int),
            (names::VISIT, Kind::Int),
            (names::DETECTOR, Kind::Int),
        ],
    }
}

const fn at(table: AlertTable) -> usize {
    match table {
        AlertTable::DiaObject => 0,
        AlertTable::DiaSource => 1,
        AlertTable::DiaForcedSource => 2,
    }
}

fn kind_of(column_type: ColumnType) -> Kind {
    match column_type {
        ColumnType::Long
        | ColumnType::Int
        | ColumnType::Short
        | ColumnType::Byte
        | ColumnType::Boolean => Kind::Int,
        ColumnType::Double | ColumnType::Float => Kind::Real,
        // Times are read as they are written.
        ColumnType::Text | ColumnType::Timestamp => Kind::Text,
        ColumnType::Binary => Kind::Bytes,
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl AttachedConnection {
    /// Connects, and sees that the tables are there with what storing their rows needs.
    ///
    /// # Errors
    /// It cannot be reached, or is no database of this kind.
    pub(super) async fn open(follows: &Follows, schema: &AlertSchema) -> Result<Self> {
        let connecting = async {
            match follows.place()? {
                Place::File(path) if !path.is_file() => Err(AlertsError::Followed(format!(
                    "there is no file {}",
                    path.display()
                ))),
                Place::File(path) => {
                    let connection = open_foreign_sqlite(&path).await.map_err(failed)?;
                    Ok((connection, Dialect::Sqlite))
                }
                Place::Postgres(options) => {
                    let connection = open_foreign_postgres(*options).await.map_err(failed)?;
                    Ok((connection, Dialect::Postgres))
                }
            }
        };
        let connected = timeout(CONNECT_TIMEOUT, connecting).await;
        let (connection, dialect) = connected.unwrap_or_else(|_| {
            let seconds = CONNECT_TIMEOUT.as_secs();
            let sentence = format!("no connection within {seconds} seconds");
            Err(AlertsError::Followed(sentence))
        })?;
        let mut attached = Self {
            connection,
            dialect,
            schema: follows.schema.clone(),
            tables: Vec::new(),
            has_reassigned: false,
            differences: Vec::new(),
        };
        for name in [CHUNKS, UPDATES] {
            if attached.columns_of(name).await?.is_empty() {
                return Err(AlertsError::Followed(format!(
                    "it has no table {name}: it can be followed if it was made with replica chunks (enable_replica), by a version that writes updates down"
                )));
            }
        }
        for table in AlertTable::ALL {
            let found = attached.columns_of(table.name()).await?;
            attached.check_columns(schema, table, &found)?;
        }
        Ok(attached)
    }

    async fn fetch(
        &mut self,
        statement: &str,
        rows: &[Values],
        kinds: &[Kind],
    ) -> Result<Vec<Values>> {
        let fetched = timeout(READ_TIMEOUT, self.connection.fetch(statement, rows, kinds)).await;
        let fetched = fetched.unwrap_or_else(|_| {
            let seconds = READ_TIMEOUT.as_secs();
            let sentence = format!("a read took more than {seconds} seconds");
            Err(AlertsError::Followed(sentence))
        });
        fetched.map_err(failed)
    }

    async fn columns_of(&mut self, table: &str) -> Result<Vec<String>> {
        let (statement, rows) = match self.dialect {
            Dialect::Sqlite => (
                "WITH r(name) AS ({rows}) SELECT c.name FROM r CROSS JOIN pragma_table_info(r.name) c",
                vec![Values::texts([table.to_owned()])],
            ),
            Dialect::Postgres => (
                "WITH r(name, space) AS ({rows}) SELECT c.column_name::text FROM r JOIN information_schema.columns c \
                 ON c.table_name = r.name AND c.table_schema = COALESCE(r.space, current_schema()) ORDER BY c.ordinal_position",
                vec![
                    Values::texts([table.to_owned()]),
                    Values::Text(vec![self.schema.clone()]),
                ],
            ),
        };
        let found = self.fetch(statement, &rows, &[Kind::Text]).await?;
        Ok(first(found).into_texts().into_iter().flatten().collect())
    }

    fn check_columns(
        &mut self,
        schema: &AlertSchema,
        table: AlertTable,
        found: &[String],
    ) -> Result<()> {
        let name = table.name();
        if found.is_empty() {
            return Err(AlertsError::Followed(format!("it has no table {name}")));
        }
        self.has_reassigned |=
            table == AlertTable::DiaSource && found.iter().any(|it| it == names::SS_REASSIGNED);
        let declared = &schema.table(table).columns;
        let mut columns = Vec::new();
        for column in declared {
            let is_key = key(table).iter().any(|(name, _)| *name == column.name);
            if found.contains(&column.name) {
                columns.push(column.clone());
            } else if column.nullable && !is_key {
                let told = format!("{name}.{} is not there, and NULL here", column.name);
                self.differences.push(told);
            } else {
                return Err(AlertsError::Followed(format!(
                    "its table {name} has no column {}, which may not be NULL in the schema here",
                    column.name
                )));
            }
        }
        for other in found {
            if other != PIXEL && !declared.iter().any(|column| column.name == *other) {
                let told = format!("{name}.{other} is not in the schema here, and left out");
                self.differences.push(told);
            }
        }
        self.tables.push(AttachedTable { columns });
        Ok(())
    }

    /// From now on everything that is read is of one moment.
    pub(super) async fn begin(&mut self) -> Result<()> {
        let begin = match self.dialect {
            Dialect::Sqlite => "BEGIN",
            Dialect::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        self.connection.run(begin).await.map_err(failed)
    }

    /// Lets go of that moment.
    pub(super) async fn end(&mut self) -> Result<()> {
        self.connection.run("COMMIT").await.map_err(failed)
    }

    fn table(&self, name: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(name)),
            None => quoted(name),
        }
    }

    /// The number of a column, in PostgreSQL as one of 64 bits.
    fn long(&self, alias: &str, name: &str) -> String {
        let column = format!("{alias}.{}", quoted(name));
        match self.dialect {
            Dialect::Sqlite => column,
            Dialect::Postgres => format!("{column}::bigint"),
        }
    }

    /// The columns of a table, each in the type in which it is read.
    fn selected(&self, table: AlertTable) -> String {
        let column = |column: &Column| {
            let name = format!("t.{}", quoted(&column.name));
            if self.dialect == Dialect::Sqlite {
                return name;
            }
            match column.column_type {
                ColumnType::Boolean => format!("{name}::int::bigint"),
                ColumnType::Timestamp => {
                    format!("to_char({name} AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')")
                }
                other => match kind_of(other) {
                    Kind::Int => format!("{name}::bigint"),
                    Kind::Real => format!("{name}::double precision"),
                    Kind::Text => format!("{name}::text"),
                    Kind::Bytes => name,
                },
            }
        };
        let columns = self.tables[at(table)].columns.iter().map(column);
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Runs a statement that selects the columns of a table.
    async fn rows(
        &mut self,
        table: AlertTable,
        statement: &str,
        rows: &[Values],
    ) -> Result<RecordBatch> {
        let columns = &self.tables[at(table)].columns;
        let kinds: Vec<Kind> = columns.iter().map(|it| kind_of(it.column_type)).collect();
        let found = self.fetch(statement, rows, &kinds).await?;
        let columns = &self.tables[at(table)].columns;
        let arrays: Vec<ArrayRef> = found.into_iter().map(array).collect();
        let field = |(column, array): (&Column, &ArrayRef)| {
            Field::new(&column.name, array.data_type().clone(), true)
        };
        let fields: Vec<Field> = columns.iter().zip(&arrays).map(field).collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
            .map_err(|error| AlertsError::Followed(error.to_string()))
    }

    /// The replica chunks and how many updates each has; of those that were deleted only the updates are left.
    pub(super) async fn chunks(&mut self) -> Result<Vec<FollowedChunk>> {
        let mut chunks = self.listed_chunks().await?;
        let statement = format!(
            "SELECT {}, COUNT(*) FROM {} u GROUP BY 1",
            self.long("u", CHUNK),
            self.table(UPDATES)
        );
        let found = self.fetch(&statement, &[], &[Kind::Int, Kind::Int]).await?;
        let mut found = found.into_iter().map(Values::into_ints);
        let ids = found.next().unwrap_or_default().into_iter();
        for (id, count) in ids.zip(found.next().unwrap_or_default()) {
            let (Some(id), Some(updates)) = (id, count) else {
                continue;
            };
            match chunks.binary_search_by_key(&id, |chunk| chunk.id) {
                Ok(found) => chunks[found].updates = updates,
                Err(place) => chunks.insert(
                    place,
                    FollowedChunk {
                        id,
                        unique_id: None,
                        updates,
                    },
                ),
            }
        }
        Ok(chunks)
    }

    /// The replica chunks, in the order of their numbers, without their updates.
    pub(super) async fn listed_chunks(&mut self) -> Result<Vec<FollowedChunk>> {
        let unique = match self.dialect {
            Dialect::Sqlite => "c.unique_id",
            Dialect::Postgres => "c.unique_id::text",
        };
        let statement = format!(
            "SELECT {}, {unique} FROM {} c ORDER BY 1",
            self.long("c", CHUNK),
            self.table(CHUNKS)
        );
        let found = self
            .fetch(&statement, &[], &[Kind::Int, Kind::Text])
            .await?;
        let mut found = found.into_iter();
        let ids = found.next().map(Values::into_ints).unwrap_or_default();
        let unique = found.next().map(Values::into_texts).unwrap_or_default();
        let chunk = |(id, unique_id): (Option<i64>, Option<String>)| {
            Some(FollowedChunk {
                id: id?,
                unique_id: Some(unique_id.unwrap_or_default()),
                updates: 0,
            })
        };
        Ok(ids.into_iter().zip(unique).filter_map(chunk).collect())
    }

    /// How many rows a chunk has in the three tables together.
    pub(super) async fn rows_of_chunk(&mut self, id: i64) -> Result<i64> {
        let counts = AlertTable::ALL.map(|table| {
            let chunks = self.table(&format!("{}Chunks", table.name()));
            format!("(SELECT COUNT(*) FROM {chunks} c WHERE c.{CHUNK} = r.id)")
        });
        let statement = format!(
            "WITH r(id) AS ({{rows}}) SELECT {} FROM r",
            counts.join(" + ")
        );
        let found = self
            .fetch(&statement, &[Values::ints([id])], &[Kind::Int])
            .await?;
        Ok(first(found)
            .into_ints()
            .first()
            .copied()
            .flatten()
            .unwrap_or(0))
    }

    /// The rows of a table that were stored in a chunk.
    pub(super) async fn chunk_rows(&mut self, table: AlertTable, id: i64) -> Result<RecordBatch> {
        let equal = key(table).iter().map(|(name, _)| {
            let name = quoted(name);
            format!("t.{name} = c.{name}")
        });
        let statement = format!(
            "WITH r(id) AS ({{rows}}) SELECT {} FROM r CROSS JOIN {} c CROSS JOIN {} t WHERE c.{CHUNK} = r.id AND {}",
            self.selected(table),
            self.table(&format!("{}Chunks", table.name())),
            self.table(table.name()),
            equal.collect::<Vec<_>>().join(" AND ")
        );
        self.rows(table, &statement, &[Values::ints([id])]).await
    }

    /// The updates of chunks, as they are written.
    pub(super) async fn updates(&mut self, ids: &[i64]) -> Result<Vec<String>> {
        let text = match self.dialect {
            Dialect::Sqlite => "u.update_payload",
            Dialect::Postgres => "u.update_payload::text",
        };
        let statement = format!(
            "WITH r(id) AS ({{rows}}) SELECT {text} FROM r CROSS JOIN {} u WHERE u.{CHUNK} = r.id",
            self.table(UPDATES)
        );
        let rows = [Values::ints(ids.iter().copied())];
        let found = self.fetch(&statement, &rows, &[Kind::Text]).await?;
        Ok(first(found).into_texts().into_iter().flatten().collect())
    }

    /// Rows whose columns of these names have given values. Versions of objects that have ended come first of them.
    pub(super) async fn rows_with(
        &mut self,
        table: AlertTable,
        columns: &[&str],
        values: &[Values],
    ) -> Result<RecordBatch> {
        let given: Vec<String> = (0..columns.len()).map(|at| format!("v{at}")).collect();
        let equal = columns
            .iter()
            .zip(&given)
            .map(|(name, given)| format!("t.{} = r.{given}", quoted(name)));
        let order = match table {
            AlertTable::DiaObject => {
                format!(" ORDER BY t.{} IS NULL", quoted(names::VALIDITY_END))
            }
            _ => String::new(),
        };
        let statement = format!(
            "WITH r({}) AS ({{rows}}) SELECT {} FROM r CROSS JOIN {} t WHERE {}{order}",
            given.join(", "),
            self.selected(table),
            self.table(table.name()),
            equal.collect::<Vec<_>>().join(" AND ")
        );
        self.rows(table, &statement, values).await
    }

    /// The next rows of a whole table behind a key, in the order of the keys; the first ones without one.
    pub(super) async fn page(
        &mut self,
        table: AlertTable,
        after: Option<&[Values]>,
    ) -> Result<RecordBatch> {
        let keys: Vec<String> = key(table)
            .iter()
            .map(|(name, _)| format!("t.{}", quoted(name)))
            .collect();
        let (with, condition) = match after {
            None => (String::new(), String::new()),
            Some(_) => {
                let given: Vec<String> = (0..keys.len()).map(|at| format!("v{at}")).collect();
                let values = given.iter().map(|name| format!("(SELECT {name} FROM r)"));
                let condition = format!(
                    " WHERE ({}) > ({})",
                    keys.join(", "),
                    values.collect::<Vec<_>>().join(", ")
                );
                (
                    format!("WITH r({}) AS ({{rows}}) ", given.join(", ")),
                    condition,
                )
            }
        };
        let statement = format!(
            "{with}SELECT {} FROM {} t{condition} ORDER BY {} LIMIT {PAGE}",
            self.selected(table),
            self.table(table.name()),
            keys.join(", ")
        );
        self.rows(table, &statement, after.unwrap_or_default())
            .await
    }

    /// How many rows the three tables have.
    pub(super) async fn counts(&mut self) -> Result<[i64; 3]> {
        let mut counts = [0; 3];
        for (count, table) in counts.iter_mut().zip(AlertTable::ALL) {
            let statement = format!("SELECT COUNT(*) FROM {}", self.table(table.name()));
            let found = self.fetch(&statement, &[], &[Kind::Int]).await?;
            *count = first(found)
                .into_ints()
                .first()
                .copied()
                .flatten()
                .unwrap_or(0);
        }
        Ok(counts)
    }

    /// Of the sources for which an object of the solar system was found: when that was last, and for how many it was before a time.
    pub(super) async fn reassigned(&mut self, before: f64) -> Result<(Option<f64>, i64)> {
        let column = format!("t.{}", quoted(names::SS_REASSIGNED));
        let last = match self.dialect {
            Dialect::Sqlite => format!("MAX({column})"),
            Dialect::Postgres => format!("MAX({column})::double precision"),
        };
        let sources = self.table(AlertTable::DiaSource.name());
        let statement = format!(
            "WITH r(before) AS ({{rows}}) SELECT (SELECT {last} FROM {sources} t), \
             (SELECT COUNT(*) FROM {sources} t WHERE {column} < r.before) FROM r"
        );
        let rows = [Values::reals([before])];
        let found = self
            .fetch(&statement, &rows, &[Kind::Real, Kind::Int])
            .await?;
        let mut found = found.into_iter();
        let last = found.next().map(Values::into_reals).unwrap_or_default();
        let count = found.next().map(Values::into_ints).unwrap_or_default();
        Ok((
            last.first().copied().flatten(),
            count.first().copied().flatten().unwrap_or(0),
        ))
    }

    /// Sources for which an object of the solar system was found since a time.
    pub(super) async fn reassigned_since(&mut self, since: f64) -> Result<RecordBatch> {
        let table = AlertTable::DiaSource;
        let statement = format!(
            "WITH r(since) AS ({{rows}}) SELECT {} FROM r CROSS JOIN {} t WHERE t.{} >= r.since",
            self.selected(table),
            self.table(table.name()),
            quoted(names::SS_REASSIGNED)
        );
        self.rows(table, &statement, &[Values::reals([since])])
            .await
    }
}

/// The key of the last row of a batch.
pub(super) fn last_key(table: AlertTable, batch: &RecordBatch) -> Vec<Values> {
    let last = batch.num_rows().saturating_sub(1);
    let value = |(name, kind): &(&str, Kind)| match kind {
        Kind::Real => Values::Real(vec![
            crate::rows::reals(batch, name).get(last).copied().flatten(),
        ]),
        _ => Values::Int(vec![
            crate::rows::ints(batch, name).get(last).copied().flatten(),
        ]),
    };
    key(table).iter().map(value).collect()
}

fn array(values: Values) -> ArrayRef {
    match values {
        Values::Int(values) => Arc::new(Int64Array::from(values)),
        Values::Real(values) => Arc::new(Float64Array::from(values)),
        Values::Text(values) => Arc::new(StringArray::from(values)),
        Values::Bytes(values) => Arc::new(BinaryArray::from_iter(values)),
    }
}

/// What went wrong there.
fn failed(error: AlertsError) -> AlertsError {
    match error {
        AlertsError::Storage(error) => AlertsError::Followed(error.to_string()),
        AlertsError::TooMany { most } => AlertsError::Followed(format!(
            "a replica chunk of it has more than {most} rows of a table, which cannot be read"
        )),
        other => other,
    }
}
