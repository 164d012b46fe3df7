//! What pipelines read of an alert database that is only in the archive.
//!
//! It is what the views would give, as of the edition up to which the store was emptied, read without SQL: the rows, then the notes of their
//! objects, which are in the same places. Threads of its own do it, so that users' queries do not hold pipelines up.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use alerts::{
    AlertTable, AlertsError, EditionTable, PUBLISHED, PublishedRequest, PublishedRows,
    PublishedSelection, REPLACES, Through, names,
};
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, new_null_array,
};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef};
use async_trait::async_trait;
use engine::{Archive, EngineError, RowPlaces, RowReader, ValueTest};
use futures::TryStreamExt;
use sky::Region;

use super::reseed;
use crate::ClientError;
use crate::query_runtime::QueryRuntime;
use crate::sessions::Sessions;

/// Rows that are read at a time, as of the store.
const MOST_ROWS: usize = 2_000_000;

/// The published tables of an archive.
#[derive(Debug)]
pub(crate) struct ArchiveRows {
    sessions: Arc<Sessions>,
    threads: NonZeroUsize,
    runtime: OnceLock<QueryRuntime>,
}

impl ArchiveRows {
    pub(crate) fn new(sessions: Arc<Sessions>, threads: NonZeroUsize) -> Self {
        Self {
            sessions,
            threads,
            runtime: OnceLock::new(),
        }
    }

    fn runtime(&self) -> Result<&QueryRuntime, AlertsError> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let started = QueryRuntime::new(self.threads);
        let started = started.map_err(|error| AlertsError::Archive(error.to_string()))?;
        Ok(self.runtime.get_or_init(|| started))
    }

    /// Sees that an edition is published, and that no release has taken its place.
    async fn check_has(&self, database: &str, through: Through) -> Result<(), AlertsError> {
        let catalog = self.sessions.archive().catalog();
        let releases = reseed::releases(catalog, database).await;
        let releases = releases.map_err(|error| AlertsError::Archive(error.to_string()))?;
        if releases > through.release {
            return Err(AlertsError::Archive(
                "a release is taking its place just now: send it again in a moment".to_owned(),
            ));
        }
        if releases < through.release {
            return Err(AlertsError::Archive(format!(
                "the archive has had {releases} releases, and the rows of release {} are nowhere else: restore it from a backup",
                through.release
            )));
        }
        let editions = catalog.table(database, EditionTable::Edition.name()).await;
        let editions = editions.map_err(|error| AlertsError::Archive(error.to_string()))?;
        let last = editions.map_or(0, |table| table.rows().cast_signed());
        match last >= through.edition {
            true => Ok(()),
            false => Err(AlertsError::Archive(format!(
                "the archive has the editions through {last}, and those through {} are nowhere else: restore it from a backup",
                through.edition
            ))),
        }
    }
}

#[async_trait]
impl PublishedRows for ArchiveRows {
    async fn rows(&self, request: PublishedRequest<'_>) -> Result<Vec<RecordBatch>, AlertsError> {
        self.check_has(request.database, request.through).await?;
        let stored = match request.table {
            AlertTable::DiaSource => EditionTable::Sources,
            AlertTable::DiaForcedSource => EditionTable::Forced,
            // The last version of each stays in the store.
            AlertTable::DiaObject => return Ok(Vec::new()),
        };
        let declared = request.columns.columns.iter();
        let declared = declared.map(|it| (it.name.as_str(), it.column_type.arrow()));
        let fields = declared.chain([(PUBLISHED, DataType::Int64)]);
        let fields: Vec<Field> = fields
            .map(|(name, ty)| Field::new(name, ty, true))
            .collect();
        let read = ArchiveRead {
            archive: Arc::clone(self.sessions.archive()),
            database: request.database.to_owned(),
            stored,
            schema: Arc::new(Schema::new(fields)),
            until: request.through.closed_us,
            since: request.since,
            selection: Selection::of(request.selection),
        };
        let runtime = self.runtime()?;
        let found = runtime.compute(Box::pin(read.rows())).recv_one().await;
        // What was read while a release took its place is of neither.
        self.check_has(request.database, request.through).await?;
        match found {
            Ok(Some(batches)) => Ok(batches),
            Ok(None) => Err(AlertsError::TooMany { most: MOST_ROWS }),
            Err(error) => Err(AlertsError::Archive(error.sentence)),
        }
    }
}

/// Which rows are wanted.
enum Selection {
    In(Box<Region>),
    Of(Arc<[i64]>),
    /// With the circles in which they are, if that is known.
    Sources(Arc<[i64]>, Option<Vec<Region>>),
}

impl Selection {
    fn of(selection: PublishedSelection<'_>) -> Self {
        match selection {
            PublishedSelection::In(region) => Self::In(Box::new(region.clone())),
            PublishedSelection::Of(objects) => Self::Of(sorted(objects.iter().copied())),
            PublishedSelection::Sources(sources, circles) => Self::Sources(
                sorted(sources.iter().copied()),
                circles.map(<[Region]>::to_vec),
            ),
        }
    }
}

/// Numbers in order, each once.
fn sorted(numbers: impl Iterator<Item = i64>) -> Arc<[i64]> {
    let numbers: BTreeSet<i64> = numbers.collect();
    numbers.into_iter().collect()
}

/// One read of the archive.
struct ArchiveRead {
    archive: Arc<Archive>,
    database: String,
    /// The table whose rows are wanted.
    stored: EditionTable,
    /// The columns of the result.
    schema: SchemaRef,
    /// When the last edition was closed that counts.
    until: i64,
    since: Option<f64>,
    selection: Selection,
}

impl ArchiveRead {
    /// The rows; `None` if there are too many.
    async fn rows(self) -> Result<Option<Vec<RecordBatch>>, ClientError> {
        let Some(batches) = self.stored_rows().await? else {
            return Ok(None);
        };
        let batches = match self.stored {
            EditionTable::Forced => self.withdrawn(batches).await?,
            _ => self.not_replaced(batches).await?,
        };
        Ok(Some(batches))
    }

    async fn reader(&self, table: EditionTable) -> Result<RowReader, EngineError> {
        let found = RowReader::open(&self.archive, &self.database, table.name()).await?;
        let missing = || {
            let (database, table) = (&self.database, table.name());
            EngineError::Query(format!("{database}.{table} is not there any more"))
        };
        found.ok_or_else(missing)
    }

    /// The rows as they were stored or became once, in the columns of the result.
    async fn stored_rows(&self) -> Result<Option<Vec<RecordBatch>>, EngineError> {
        let table = self.reader(self.stored).await?;
        let column = |name| number(&table, name);
        let mut tests = vec![(column(PUBLISHED)?, ValueTest::AtMost(self.until))];
        if let Some(since) = self.since {
            tests.push((column(names::MIDPOINT)?, ValueTest::AtLeast(since)));
        }
        let places = match &self.selection {
            Selection::In(region) => RowPlaces::Region(region),
            Selection::Of(objects) => {
                let test = ValueTest::Among(Arc::clone(objects));
                tests.push((column(names::DIA_OBJECT)?, test));
                RowPlaces::Keys(objects)
            }
            Selection::Sources(sources, circles) => {
                let test = ValueTest::Among(Arc::clone(sources));
                tests.push((column(names::DIA_SOURCE)?, test));
                (circles.as_deref()).map_or(RowPlaces::Anywhere, RowPlaces::Around)
            }
        };
        let mut wanted = Vec::new();
        let mut sources: Vec<Option<usize>> = Vec::new();
        for field in self.schema.fields() {
            // A column that came later than the last edition is NULL in all rows from before.
            let found = table.column(field.name());
            sources.push(found.map(|_| wanted.len()));
            wanted.extend(found);
        }
        let mut batches = table.rows(places, tests, &wanted).await?;
        let (mut found, mut rows) = (Vec::new(), 0);
        while let Some(batch) = batches.try_next().await? {
            rows += batch.num_rows();
            if rows > MOST_ROWS {
                return Ok(None);
            }
            let columns = sources.iter().zip(self.schema.fields());
            let columns = columns.map(|(source, field)| match source {
                Some(at) => cast(batch.column(*at), field.data_type()),
                None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            });
            let columns: Result<Vec<ArrayRef>, _> = columns.collect();
            let made =
                columns.and_then(|columns| RecordBatch::try_new(Arc::clone(&self.schema), columns));
            found.push(made.map_err(of_arrow)?);
        }
        Ok(Some(found))
    }

    /// Rows of numbers of a table of notes, of which each has those of these columns: of the objects of rows, where it is a child.
    async fn notes(
        &self,
        table: EditionTable,
        (key, wanted): (&str, Arc<[i64]>),
        columns: &[&str],
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let notes = self.reader(table).await?;
        if wanted.is_empty() || notes.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let places = match key {
            names::DIA_OBJECT => RowPlaces::Keys(&wanted),
            _ => RowPlaces::Anywhere,
        };
        let tests = vec![
            (number(&notes, PUBLISHED)?, ValueTest::AtMost(self.until)),
            (number(&notes, key)?, ValueTest::Among(Arc::clone(&wanted))),
        ];
        let columns = columns.iter().map(|name| number(&notes, name));
        let columns: Vec<usize> = columns.collect::<Result<_, _>>()?;
        notes
            .rows(places, tests, &columns)
            .await?
            .try_collect()
            .await
    }

    /// The sources of which no note says that others have taken their places.
    async fn not_replaced(
        &self,
        batches: Vec<RecordBatch>,
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let (mut objects, mut loose) = (BTreeSet::new(), BTreeSet::new());
        for batch in &batches {
            let owners = ints(batch, names::DIA_OBJECT)?;
            let sources = ints(batch, names::DIA_SOURCE)?;
            for (owner, source) in owners.iter().zip(&sources) {
                match owner {
                    Some(owner) => objects.extend([owner]),
                    None => loose.extend(source),
                }
            }
        }
        // A row has one note at most, of its source and the time of its edition.
        let mut replaced: HashSet<(i64, i64)> = HashSet::new();
        let columns = [names::DIA_SOURCE, REPLACES];
        for (table, key) in [
            (
                EditionTable::ReplacedSources,
                (names::DIA_OBJECT, objects.into_iter().collect()),
            ),
            (
                EditionTable::ReplacedLooseSources,
                (names::DIA_SOURCE, loose.into_iter().collect()),
            ),
        ] {
            for batch in self.notes(table, key, &columns).await? {
                let sources = ints(&batch, columns[0])?;
                let times = ints(&batch, columns[1])?;
                let pairs = sources.iter().zip(&times);
                replaced.extend(pairs.filter_map(|(source, time)| source.zip(time)));
            }
        }
        if replaced.is_empty() {
            return Ok(batches);
        }
        let keep = |batch: &RecordBatch| {
            let sources = ints(batch, names::DIA_SOURCE)?;
            let times = ints(batch, PUBLISHED)?;
            let pairs = sources.iter().zip(&times);
            let is_kept = |(source, time): (Option<i64>, Option<i64>)| {
                let row = source.zip(time);
                Some(row.is_none_or(|row| !replaced.contains(&row)))
            };
            let kept: BooleanArray = pairs.map(is_kept).collect();
            filter_record_batch(batch, &kept).map_err(of_arrow)
        };
        batches.iter().map(keep).collect()
    }

    /// The forced sources with the times of their withdrawals.
    async fn withdrawn(&self, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, EngineError> {
        let Some((at, _)) = self.schema.column_with_name(names::WITHDRAWN) else {
            return Ok(batches);
        };
        let mut objects = BTreeSet::new();
        for batch in &batches {
            objects.extend(ints(batch, names::DIA_OBJECT)?.iter().flatten());
        }
        let key = (names::DIA_OBJECT, objects.into_iter().collect());
        let columns = [
            names::DIA_OBJECT,
            names::VISIT,
            names::DETECTOR,
            names::WITHDRAWN,
        ];
        let mut times: HashMap<[Option<i64>; 3], Option<f64>> = HashMap::new();
        let table = EditionTable::WithdrawnForced;
        for batch in self.notes(table, key, &columns).await? {
            let of = doubles(&batch, names::WITHDRAWN)?;
            times.extend(forced_keys(&batch)?.zip(of.iter()));
        }
        if times.is_empty() {
            return Ok(batches);
        }
        let with_times = |batch: &RecordBatch| {
            let own = doubles(batch, names::WITHDRAWN)?;
            let rows = forced_keys(batch)?.zip(own.iter());
            let time = |(key, own): ([Option<i64>; 3], Option<f64>)| {
                times.get(&key).copied().flatten().or(own)
            };
            let column: Float64Array = rows.map(time).collect();
            let mut columns = batch.columns().to_vec();
            columns[at] = Arc::new(column);
            RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(of_arrow)
        };
        batches.iter().map(with_times).collect()
    }
}

/// The number of a column that is there.
fn number(table: &RowReader, name: &str) -> Result<usize, EngineError> {
    let missing = || EngineError::Query(format!("a published table has no column {name}"));
    table.column(name).ok_or_else(missing)
}

/// A column of whole numbers, in 64 bits.
fn ints(batch: &RecordBatch, name: &str) -> Result<Int64Array, EngineError> {
    let column = cast(named(batch, name)?, &DataType::Int64).map_err(of_arrow)?;
    Ok(column.as_primitive::<Int64Type>().clone())
}

fn doubles(batch: &RecordBatch, name: &str) -> Result<Float64Array, EngineError> {
    let column = cast(named(batch, name)?, &DataType::Float64).map_err(of_arrow)?;
    Ok(column.as_primitive::<Float64Type>().clone())
}

fn named<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef, EngineError> {
    let missing = || EngineError::Query(format!("published rows have no column {name}"));
    batch.column_by_name(name).ok_or_else(missing)
}

/// Object, visit and detector of forced sources.
fn forced_keys(
    batch: &RecordBatch,
) -> Result<impl Iterator<Item = [Option<i64>; 3]> + use<>, EngineError> {
    let objects = ints(batch, names::DIA_OBJECT)?;
    let visits = ints(batch, names::VISIT)?;
    let detectors = ints(batch, names::DETECTOR)?;
    let value = |array: &Int64Array, row| array.is_valid(row).then(|| array.value(row));
    let key = move |row| {
        [
            value(&objects, row),
            value(&visits, row),
            value(&detectors, row),
        ]
    };
    Ok((0..batch.num_rows()).map(key))
}

fn of_arrow(error: arrow::error::ArrowError) -> EngineError {
    EngineError::Query(error.to_string())
}
