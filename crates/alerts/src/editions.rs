//! Editions, as they are read to be published: tables of rows that are never changed any more.
//!
//! What changes of a row later is a row of another table or another row: the end of a version, the withdrawal of a forced source (both
//! happen once); and the row as it has become, with a note that it replaces one. Each row has the time when its edition was closed
//! ([`PUBLISHED`]), so that the rows which were there at a time can be told.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;

use crate::error::{AlertsError, Result};
use crate::follow::FollowState;
use crate::reads::{FORCED_COLUMNS, Reader, SOURCE_COLUMNS};
use crate::schema::{AlertSchema, AlertTable, Column, ColumnType, TableSchema, names};
use crate::statements as sql;
use crate::store::{Kind, Values};
use crate::transaction::is_over;

/// The column with the time when a row's edition was closed, in microseconds since 1970 (UTC).
pub const PUBLISHED: &str = "meridian_published";
/// The column with that of the row which is replaced.
pub const REPLACES: &str = "meridian_replaces";
/// What an edition's number and times are called in [`EditionTable::Edition`].
const EDITION: &str = "edition";
const PUBLISHED_AT: &str = "publishedAt";
const CHUNKS: &str = "replicaChunks";
const EDITION_BEFORE: &str = "edition_before";
const OBJECT_BEFORE: &str = "object_before";

/// What was committed between two closings.
#[derive(Debug, Clone)]
pub struct Edition {
    /// Its number: 1, 2, 3 and so on.
    pub number: i64,
    /// When it was closed, in microseconds since 1970 (UTC): later than the one before.
    pub closed_us: i64,
    /// The numbers of its chunks, and their ids, of those that were not deleted.
    pub chunks: Vec<(i64, Option<i64>)>,
    /// When each edition was closed.
    closings: Arc<BTreeMap<i64, i64>>,
}

impl Edition {
    /// The ids of its replica chunks, in words.
    pub fn chunk_ids(&self) -> String {
        let ids: Vec<String> = (self.chunks.iter())
            .filter_map(|(_, id)| id.map(|id| id.to_string()))
            .collect();
        ids.join(" ")
    }
}

/// What waits to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenChunks {
    /// Chunks of no edition.
    pub open: u64,
    /// Those among them in which nothing is expected any more.
    pub over: u64,
}

/// A table that editions add rows to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EditionTable {
    /// Each object once, where its first version was.
    Home,
    /// Versions of objects without their ends; once more when their numbers of sources change.
    Versions,
    /// The ends of versions.
    Ends,
    /// Which rows of `Versions` count no longer.
    ReplacedVersions,
    /// Sources; once more when they change.
    Sources,
    /// Which rows of `Sources` count no longer, of those that have an object.
    ReplacedSources,
    /// The same of those that have none.
    ReplacedLooseSources,
    /// Forced sources.
    Forced,
    /// Withdrawals of forced sources.
    WithdrawnForced,
    /// The editions.
    Edition,
}

impl EditionTable {
    /// All of them; the first one places the rows of the others.
    pub const ALL: [Self; 10] = [
        Self::Home,
        Self::Versions,
        Self::Ends,
        Self::ReplacedVersions,
        Self::Sources,
        Self::ReplacedSources,
        Self::ReplacedLooseSources,
        Self::Forced,
        Self::WithdrawnForced,
        Self::Edition,
    ];

    /// The name that it is published under.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Home => "DiaObjectHome",
            Self::Versions => "DiaObjectVersion",
            Self::Ends => "DiaObjectEnd",
            Self::ReplacedVersions => "DiaObjectReplaced",
            Self::Sources => "DiaSourceStored",
            Self::ReplacedSources => "DiaSourceReplaced",
            Self::ReplacedLooseSources => "DiaSourceReplacedLoose",
            Self::Forced => "DiaForcedSourceStored",
            Self::WithdrawnForced => "DiaForcedSourceWithdrawn",
            Self::Edition => "Edition",
        }
    }

    /// The table whose rows, with their columns, these are.
    const fn of(self) -> Option<AlertTable> {
        match self {
            Self::Versions => Some(AlertTable::DiaObject),
            Self::Sources => Some(AlertTable::DiaSource),
            Self::Forced => Some(AlertTable::DiaForcedSource),
            _ => None,
        }
    }

    /// Its columns.
    pub fn columns(self, schema: &AlertSchema) -> SchemaRef {
        let plain = |name: &str, ty: DataType| Field::new(name, ty, true);
        let key = |name: &str, ty: DataType| Field::new(name, ty, false);
        let (int, real) = (DataType::Int64, DataType::Float64);
        let object = || key(names::DIA_OBJECT, DataType::Int64);
        let start = || key(names::VALIDITY_START, DataType::Float64);
        let mut fields = match self {
            Self::Home => vec![
                object(),
                key(names::RA, real.clone()),
                key(names::DEC, real),
            ],
            Self::Versions | Self::Sources | Self::Forced => {
                let table = self.of().map(|table| schema.table(table));
                let columns = table.map_or(&[] as &[Column], |table| &table.columns);
                let field = |column: &Column| match self {
                    Self::Versions if column.name == names::VALIDITY_END => None,
                    Self::Versions | Self::Forced if column.name == names::DIA_OBJECT => {
                        Some(object())
                    }
                    _ => Some(plain(&column.name, column.column_type.arrow())),
                };
                columns.iter().filter_map(field).collect()
            }
            Self::Ends => vec![object(), start(), key(names::VALIDITY_END, real)],
            Self::ReplacedVersions => vec![object(), start(), key(REPLACES, int)],
            Self::ReplacedSources => vec![
                object(),
                key(names::DIA_SOURCE, int.clone()),
                key(REPLACES, int),
            ],
            Self::ReplacedLooseSources => {
                vec![key(names::DIA_SOURCE, int.clone()), key(REPLACES, int)]
            }
            Self::WithdrawnForced => vec![
                object(),
                key(names::VISIT, int.clone()),
                key(names::DETECTOR, int),
                key(names::WITHDRAWN, real),
            ],
            Self::Edition => vec![
                key(EDITION, int),
                key(
                    PUBLISHED_AT,
                    DataType::Timestamp(TimeUnit::Microsecond, None),
                ),
                key(CHUNKS, DataType::Utf8),
            ],
        };
        fields.push(key(PUBLISHED, DataType::Int64));
        Arc::new(Schema::new(fields))
    }

    /// In how many parts an edition's rows of it are read.
    pub fn parts(self, edition: &Edition) -> usize {
        match self {
            Self::Home | Self::Forced => edition.chunks.len().max(1),
            // What was changed is the last one.
            Self::Versions | Self::Ends | Self::Sources => edition.chunks.len() + 1,
            _ => 1,
        }
    }
}

impl Reader {
    /// The editions, in their order.
    pub(crate) async fn editions(&mut self, after: i64) -> Result<Vec<Edition>> {
        let kinds = [Kind::Int, Kind::Int];
        let found = self.connection.fetch(sql::EDITIONS, &[], &kinds).await?;
        let closings: BTreeMap<i64, i64> = pairs(found)
            .into_iter()
            .filter_map(|(number, closed)| Some((number?, closed?)))
            .collect();
        let closings = Arc::new(closings);
        let mut editions = Vec::new();
        for (&number, &closed_us) in closings.range(after + 1..) {
            let rows = [Values::ints([number])];
            let chunks = self
                .connection
                .fetch(sql::EDITION_CHUNKS, &rows, &kinds)
                .await?;
            let chunks = pairs(chunks)
                .into_iter()
                .filter_map(|(number, id)| Some((number?, id)));
            editions.push(Edition {
                number,
                closed_us,
                chunks: chunks.collect(),
                closings: Arc::clone(&closings),
            });
        }
        Ok(editions)
    }

    /// What is of no edition yet, at a time in microseconds since 1970 (UTC).
    pub(crate) async fn open_chunks(&mut self, now_us: i64) -> Result<OpenChunks> {
        let span = self.definition.replica_seconds.unwrap_or_default();
        let kinds = [Kind::Int, Kind::Int];
        let found = self.connection.fetch(sql::OPEN_CHUNKS, &[], &kinds).await?;
        let ids: Vec<Option<i64>> = pairs(found).into_iter().map(|(_, id)| id).collect();
        let over = match self.definition.follows {
            true if FollowState::read(self.connection.as_mut())
                .await?
                .is_complete =>
            {
                ids.len()
            }
            true => 0,
            false => ids.iter().filter(|id| is_over(**id, span, now_us)).count(),
        };
        Ok(OpenChunks {
            open: ids.len() as u64,
            over: over as u64,
        })
    }

    /// The rows of a part of a table of an edition, in its columns.
    pub(crate) async fn edition_rows(
        &mut self,
        edition: &Edition,
        table: EditionTable,
        part: usize,
    ) -> Result<Vec<RecordBatch>> {
        let chunk = edition.chunks.get(part).map(|(number, _)| *number);
        match (table, chunk) {
            (EditionTable::Home, Some(chunk)) => self.homes(edition, chunk).await,
            (EditionTable::Home | EditionTable::Forced, None) => Ok(Vec::new()),
            (EditionTable::Versions, Some(chunk)) => {
                let columns = [names::DIA_OBJECT, names::VALIDITY_START, names::N_SOURCES];
                let kinds = [Kind::Int, Kind::Real, Kind::Int];
                self.stored(
                    edition,
                    table,
                    sql::EDITION_OBJECTS,
                    chunk,
                    &columns,
                    &kinds,
                )
                .await
            }
            (EditionTable::Versions, None) => self.changed_versions(edition, table).await,
            (EditionTable::Sources, Some(chunk)) => {
                self.stored(
                    edition,
                    table,
                    sql::EDITION_SOURCES,
                    chunk,
                    &SOURCE_COLUMNS,
                    &SOURCE_KINDS,
                )
                .await
            }
            (EditionTable::Forced, Some(chunk)) => {
                self.stored(
                    edition,
                    table,
                    sql::EDITION_FORCED,
                    chunk,
                    &FORCED_COLUMNS,
                    &FORCED_KINDS,
                )
                .await
            }
            // Where another database is followed, all ends are among those of the edition.
            (EditionTable::Ends, Some(_)) if self.definition.follows => Ok(Vec::new()),
            (EditionTable::Ends, Some(chunk)) => {
                self.ends(edition, sql::SUCCEEDED_VERSIONS, chunk).await
            }
            (EditionTable::Ends, None) => {
                self.ends(edition, sql::EDITION_CLOSES, edition.number)
                    .await
            }
            (EditionTable::ReplacedVersions, _) => self.changed_versions(edition, table).await,
            (EditionTable::Sources, None)
            | (EditionTable::ReplacedSources | EditionTable::ReplacedLooseSources, _) => {
                self.changed_sources(edition, table).await
            }
            (EditionTable::WithdrawnForced, _) => self.withdrawals(edition).await,
            (EditionTable::Edition, _) => Ok(vec![self.itself(edition)?]),
        }
    }

    /// Rows as they were stored in a chunk, and were when the edition was closed.
    async fn stored(
        &mut self,
        edition: &Edition,
        table: EditionTable,
        statement: &str,
        chunk: i64,
        columns: &[&'static str],
        kinds: &[Kind],
    ) -> Result<Vec<RecordBatch>> {
        let rows = [Values::ints([chunk])];
        let found = self.found(statement, &rows, columns, kinds).await?;
        let batches = match table.of() {
            Some(of) => found.assembled(
                self.definition.schema.table(of),
                &self.definition.layouts,
                None,
                None,
            )?,
            None => Vec::new(),
        };
        self.shaped(edition, table, &batches)
    }

    async fn homes(&mut self, edition: &Edition, chunk: i64) -> Result<Vec<RecordBatch>> {
        let rows = [Values::ints([chunk])];
        let columns = [names::DIA_OBJECT, names::VALIDITY_START];
        let kinds = [Kind::Int, Kind::Real];
        let found = self
            .found(sql::FIRST_VERSIONS, &rows, &columns, &kinds)
            .await?;
        let mut objects = self.definition.schema.table(AlertTable::DiaObject).clone();
        let wanted = [names::DIA_OBJECT, names::RA, names::DEC];
        objects
            .columns
            .retain(|column| wanted.contains(&column.name.as_str()));
        let batches = found.assembled(&objects, &self.definition.layouts, None, None)?;
        self.shaped(edition, EditionTable::Home, &batches)
    }

    async fn ends(
        &mut self,
        edition: &Edition,
        statement: &str,
        number: i64,
    ) -> Result<Vec<RecordBatch>> {
        let rows = [Values::ints([number])];
        let kinds = [Kind::Int, Kind::Real, Kind::Real];
        let columns = [
            names::DIA_OBJECT,
            names::VALIDITY_START,
            names::VALIDITY_END,
        ];
        let found = self.connection.fetch(statement, &rows, &kinds).await?;
        let batch = plain_batch(&columns, found)?;
        self.shaped(edition, EditionTable::Ends, &[batch])
    }

    /// Versions whose numbers of sources have changed, or which rows these replace.
    async fn changed_versions(
        &mut self,
        edition: &Edition,
        table: EditionTable,
    ) -> Result<Vec<RecordBatch>> {
        let rows = [Values::ints([edition.number])];
        let columns = [
            names::DIA_OBJECT,
            names::VALIDITY_START,
            names::N_SOURCES,
            EDITION_BEFORE,
        ];
        let kinds = [Kind::Int, Kind::Real, Kind::Int, Kind::Int];
        let found = self
            .found(sql::CHANGED_OBJECTS, &rows, &columns, &kinds)
            .await?;
        let objects = self.definition.schema.table(AlertTable::DiaObject);
        let layouts = &self.definition.layouts;
        let batches =
            found.assembled(&with_longs(objects, &[EDITION_BEFORE]), layouts, None, None)?;
        self.shaped(edition, table, &batches)
    }

    /// Sources that have changed, or which rows these replace: those of rows with an object, or without one.
    async fn changed_sources(
        &mut self,
        edition: &Edition,
        table: EditionTable,
    ) -> Result<Vec<RecordBatch>> {
        let rows = [Values::ints([edition.number])];
        let extra = [EDITION_BEFORE, OBJECT_BEFORE];
        let columns = [&SOURCE_COLUMNS[..], &extra[..]].concat();
        let kinds = [&SOURCE_KINDS[..], &[Kind::Int, Kind::Int]].concat();
        let found = self
            .found(sql::CHANGED_SOURCES, &rows, &columns, &kinds)
            .await?;
        let sources = self.definition.schema.table(AlertTable::DiaSource);
        let layouts = &self.definition.layouts;
        let batches = found.assembled(&with_longs(sources, &extra), layouts, None, None)?;
        if table == EditionTable::Sources {
            return self.shaped(edition, table, &batches);
        }
        let is_loose = table == EditionTable::ReplacedLooseSources;
        let mut before = Vec::with_capacity(batches.len());
        for batch in &batches {
            before.push(with_object_before(batch, is_loose).map_err(damaged)?);
        }
        self.shaped(edition, table, &before)
    }

    async fn withdrawals(&mut self, edition: &Edition) -> Result<Vec<RecordBatch>> {
        let rows = [Values::ints([edition.number])];
        let found = self
            .found(
                sql::EDITION_WITHDRAWALS,
                &rows,
                &FORCED_COLUMNS,
                &FORCED_KINDS,
            )
            .await?;
        let forced = self.definition.schema.table(AlertTable::DiaForcedSource);
        let batches = found.assembled(forced, &self.definition.layouts, None, None)?;
        self.shaped(edition, EditionTable::WithdrawnForced, &batches)
    }

    fn itself(&self, edition: &Edition) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![edition.number])),
            Arc::new(TimestampMicrosecondArray::from(vec![edition.closed_us])),
            Arc::new(StringArray::from(vec![edition.chunk_ids()])),
            Arc::new(Int64Array::from(vec![edition.closed_us])),
        ];
        let schema = EditionTable::Edition.columns(&self.definition.schema);
        RecordBatch::try_new(schema, columns).map_err(damaged)
    }

    /// The columns of a table of editions out of batches that have them under their names, with the times of editions.
    fn shaped(
        &self,
        edition: &Edition,
        table: EditionTable,
        batches: &[RecordBatch],
    ) -> Result<Vec<RecordBatch>> {
        let schema = table.columns(&self.definition.schema);
        let shape = |batch: &RecordBatch| {
            let rows = batch.num_rows();
            let column = |field: &Arc<Field>| -> Result<ArrayRef> {
                match field.name().as_str() {
                    PUBLISHED => Ok(Arc::new(Int64Array::from(vec![edition.closed_us; rows]))),
                    REPLACES => edition.closings_of(batch),
                    name => {
                        let found = batch.column_by_name(name).ok_or_else(|| {
                            AlertsError::Damaged(format!("an edition has no column {name}"))
                        })?;
                        arrow::compute::cast(found, field.data_type()).map_err(damaged)
                    }
                }
            };
            let columns: Result<Vec<ArrayRef>> = schema.fields().iter().map(column).collect();
            RecordBatch::try_new(Arc::clone(&schema), columns?).map_err(damaged)
        };
        batches.iter().map(shape).collect()
    }
}

impl Edition {
    /// When the editions were closed of which the rows were before.
    fn closings_of(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let missing =
            || AlertsError::Damaged("a change is of a row that no edition has".to_owned());
        let before = batch.column_by_name(EDITION_BEFORE).ok_or_else(missing)?;
        let before = before.as_primitive_opt::<Int64Type>().ok_or_else(missing)?;
        let closing = |number: Option<i64>| {
            let closed = number.and_then(|number| self.closings.get(&number).copied());
            closed.ok_or_else(missing)
        };
        let closings: Result<Vec<i64>> = before.iter().map(closing).collect();
        Ok(Arc::new(Int64Array::from(closings?)))
    }
}

const SOURCE_KINDS: [Kind; 6] = [
    Kind::Int,
    Kind::Int,
    Kind::Int,
    Kind::Real,
    Kind::Real,
    Kind::Real,
];
const FORCED_KINDS: [Kind; 5] = [Kind::Int, Kind::Int, Kind::Int, Kind::Real, Kind::Real];

fn pairs(found: Vec<Values>) -> Vec<(Option<i64>, Option<i64>)> {
    let mut found = found.into_iter().map(Values::into_ints);
    let first = found.next().unwrap_or_default();
    first
        .into_iter()
        .zip(found.next().unwrap_or_default())
        .collect()
}

/// A table with further columns of whole numbers.
fn with_longs(table: &TableSchema, extra: &[&str]) -> TableSchema {
    let mut table = table.clone();
    table.columns.extend(extra.iter().map(|name| Column {
        name: (*name).to_owned(),
        column_type: ColumnType::Long,
        nullable: true,
        default: None,
    }));
    table
}

/// The sources that had an object before (or none), with that in the place of their object.
fn with_object_before(
    batch: &RecordBatch,
    is_loose: bool,
) -> std::result::Result<RecordBatch, ArrowError> {
    let schema = batch.schema();
    let before = batch.column(schema.index_of(OBJECT_BEFORE)?);
    let objects = before.as_primitive::<Int64Type>();
    let no_object =
        |object: Option<i64>| object.is_none_or(|it| it == crate::transaction::NO_OBJECT);
    let keeps: BooleanArray = objects
        .iter()
        .map(|object| Some(no_object(object) == is_loose))
        .collect();
    let mut columns = batch.columns().to_vec();
    columns[schema.index_of(names::DIA_OBJECT)?] = Arc::clone(before);
    filter_record_batch(
        &RecordBatch::try_new(as_nullable(&schema), columns)?,
        &keeps,
    )
}

fn as_nullable(schema: &Schema) -> SchemaRef {
    let nullable = |field: &Arc<Field>| field.as_ref().clone().with_nullable(true);
    Arc::new(Schema::new(
        schema.fields().iter().map(nullable).collect::<Vec<_>>(),
    ))
}

/// Columns of numbers under these names.
fn plain_batch(columns: &[&str], found: Vec<Values>) -> Result<RecordBatch> {
    let array = |values: Values| -> ArrayRef {
        match values {
            Values::Real(values) => Arc::new(arrow::array::Float64Array::from(values)),
            other => Arc::new(Int64Array::from(other.into_ints())),
        }
    };
    let arrays: Vec<(&str, ArrayRef)> = columns
        .iter()
        .copied()
        .zip(found.into_iter().map(array))
        .collect();
    RecordBatch::try_from_iter(arrays).map_err(damaged)
}

fn damaged(error: ArrowError) -> AlertsError {
    AlertsError::Damaged(error.to_string())
}
