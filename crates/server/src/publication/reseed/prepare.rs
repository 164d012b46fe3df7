//! What a release becomes: rows of the published tables, and what the store has of it.

use std::fs::read_dir;
use std::path::PathBuf;
use std::sync::Arc;

use alerts::{
    AlertTable, EditionTable, PUBLISHED, ReseedState, ReseedStep, Turn, names, release_rows,
};
use arrow::array::{
    ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use engine::EngineError;
use ingest::RowSource;

use super::super::PublicationError;
use super::super::rows::NoRows;
use super::files::{Scratch, failed, in_columns};
use super::rows::{FileRows, MemoryRows};
use super::{RELEASES, ReseedReport, ReseedRequest};

/// Rows that are prepared in the store in one operation.
const TOGETHER: usize = 4096;

/// The versions of objects with the beginnings of those before and after them.
fn versions(scratch: &Scratch) -> String {
    let (object, start) = (names::DIA_OBJECT, names::VALIDITY_START);
    format!(
        "SELECT {}, LAG({start}) OVER (PARTITION BY {object} ORDER BY {start}) AS meridian_before, \
         LEAD({start}) OVER (PARTITION BY {object} ORDER BY {start}) AS meridian_after FROM {}",
        scratch.quoted(AlertTable::DiaObject),
        scratch.table(AlertTable::DiaObject.name())
    )
}

/// Prepares the store.
pub(super) async fn store(scratch: &Scratch, turn: &mut Turn<'_>) -> Result<(), PublicationError> {
    let (visit, detector) = (names::VISIT, names::DETECTOR);
    let [_, sources, forced] = AlertTable::ALL.map(|table| scratch.table(table.name()));
    let statement = format!(
        "SELECT {visit}, {detector} FROM {sources} UNION SELECT {visit}, {detector} FROM {forced}"
    );
    let visits = async |batch: RecordBatch| {
        for at in (0..batch.num_rows()).step_by(TOGETHER) {
            let batch = batch.slice(at, TOGETHER.min(batch.num_rows() - at));
            let (visits, detectors) = (ints(batch.column(0))?, ints(batch.column(1))?);
            let pairs = visits.iter().zip(detectors.iter());
            let pairs = pairs.filter_map(|(visit, detector)| visit.zip(detector));
            turn.step(ReseedStep::Visits(pairs.collect())).await?;
        }
        Ok::<(), PublicationError>(())
    };
    scratch.each(&statement, visits).await?;
    let statement = format!(
        "SELECT {}, ra, `dec` FROM {sources} ORDER BY {}",
        names::DIA_SOURCE,
        names::DIA_SOURCE
    );
    let columns: SchemaRef = Arc::new(Schema::new(vec![
        Field::new(names::DIA_SOURCE, DataType::Int64, true),
        Field::new(names::RA, DataType::Float64, true),
        Field::new(names::DEC, DataType::Float64, true),
    ]));
    let sources = async |batch: RecordBatch| {
        let batch = in_columns(&batch, &columns)?;
        for at in (0..batch.num_rows()).step_by(TOGETHER) {
            let batch = batch.slice(at, TOGETHER.min(batch.num_rows() - at));
            turn.step(ReseedStep::Sources(batch)).await?;
        }
        Ok::<(), PublicationError>(())
    };
    scratch.each(&statement, sources).await?;
    let statement = format!(
        "SELECT {} FROM ({}) AS v WHERE meridian_after IS NULL",
        scratch.quoted(AlertTable::DiaObject),
        versions(scratch)
    );
    let objects = async |batch: RecordBatch| {
        let batch = release_rows(&scratch.schema, AlertTable::DiaObject, &batch)?;
        for at in (0..batch.num_rows()).step_by(TOGETHER) {
            let batch = batch.slice(at, TOGETHER.min(batch.num_rows() - at));
            turn.step(ReseedStep::Objects(batch)).await?;
        }
        Ok::<(), PublicationError>(())
    };
    scratch.each(&statement, objects).await
}

/// The rows of a published table, all of the time of one edition.
pub(super) async fn rows_of(
    scratch: &Scratch,
    table: EditionTable,
    closed_us: i64,
) -> Result<Arc<dyn RowSource>, PublicationError> {
    let columns = table.columns(&scratch.schema);
    let (object, start, end) = (
        names::DIA_OBJECT,
        names::VALIDITY_START,
        names::VALIDITY_END,
    );
    let files = match table {
        EditionTable::Home => {
            let statement = format!(
                "SELECT {object}, ra, `dec` FROM ({}) AS v WHERE meridian_before IS NULL",
                versions(scratch)
            );
            vec![derived(scratch, &statement, "homes.parquet", &columns).await?]
        }
        EditionTable::Ends => {
            let statement = format!(
                "SELECT {object}, {start}, COALESCE({end}, meridian_after) AS {end} FROM ({}) AS v \
                 WHERE {end} IS NOT NULL OR meridian_after IS NOT NULL",
                versions(scratch)
            );
            vec![derived(scratch, &statement, "ends.parquet", &columns).await?]
        }
        EditionTable::Versions => files_in(scratch, AlertTable::DiaObject)?,
        EditionTable::Sources => files_in(scratch, AlertTable::DiaSource)?,
        EditionTable::Forced => files_in(scratch, AlertTable::DiaForcedSource)?,
        _ => return Ok(Arc::new(NoRows(columns))),
    };
    Ok(Arc::new(FileRows::open(files, columns, closed_us)?))
}

/// Writes the rows of a statement, without the times of editions.
async fn derived(
    scratch: &Scratch,
    statement: &str,
    name: &str,
    columns: &SchemaRef,
) -> Result<PathBuf, PublicationError> {
    let fields = columns.fields().iter();
    let fields: Vec<_> = fields
        .filter(|field| field.name() != PUBLISHED)
        .cloned()
        .collect();
    let columns: SchemaRef = Arc::new(Schema::new(fields));
    scratch.write(statement, name, &columns).await?;
    Ok(scratch.path(name))
}

fn files_in(scratch: &Scratch, table: AlertTable) -> Result<Vec<PathBuf>, PublicationError> {
    let directory = scratch.path(table.name());
    let entries = read_dir(&directory).map_err(|error| failed(&directory, &error))?;
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|it| Ok(it?.path())).collect();
    let mut paths = paths.map_err(|error| failed(&directory, &error))?;
    paths.sort();
    Ok(paths)
}

/// The table of editions, with that of the release behind the others.
pub(super) async fn editions(
    scratch: &Scratch,
    state: &ReseedState,
    shown_us: i64,
) -> Result<Arc<dyn RowSource>, PublicationError> {
    let schema = EditionTable::Edition.columns(&scratch.schema);
    let row: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![state.edition])),
        Arc::new(TimestampMicrosecondArray::from(vec![shown_us])),
        Arc::new(StringArray::from(vec![String::new()])),
        Arc::new(Int64Array::from(vec![shown_us])),
    ];
    with_row(scratch, EditionTable::Edition.name(), schema, row).await
}

/// The columns of the table of releases.
pub(super) fn release_columns() -> SchemaRef {
    let key = |name: &str, ty: DataType| Field::new(name, ty, false);
    Arc::new(Schema::new(vec![
        key("releaseNumber", DataType::Int64),
        key("edition", DataType::Int64),
        key(
            "publishedAt",
            DataType::Timestamp(TimeUnit::Microsecond, None),
        ),
        key("cutMjdTai", DataType::Float64),
        key("source", DataType::Utf8),
        key("rowsOfRelease", DataType::Int64),
        key("rowsThatStayed", DataType::Int64),
        key(PUBLISHED, DataType::Int64),
    ]))
}

/// The table of releases, with this one behind the others.
pub(super) async fn releases(
    scratch: &Scratch,
    request: &ReseedRequest,
    state: &ReseedState,
    report: &ReseedReport,
    shown_us: i64,
) -> Result<Arc<dyn RowSource>, PublicationError> {
    let rows: u64 = report.tables.iter().map(|table| table.release).sum();
    let kept: u64 = report.tables.iter().map(|table| table.kept).sum();
    let row: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![state.release])),
        Arc::new(Int64Array::from(vec![state.edition])),
        Arc::new(TimestampMicrosecondArray::from(vec![shown_us])),
        Arc::new(Float64Array::from(vec![request.cut])),
        Arc::new(StringArray::from(vec![
            request.release.display().to_string(),
        ])),
        Arc::new(Int64Array::from(vec![rows.cast_signed()])),
        Arc::new(Int64Array::from(vec![kept.cast_signed()])),
        Arc::new(Int64Array::from(vec![shown_us])),
    ];
    with_row(scratch, RELEASES, release_columns(), row).await
}

/// The rows of a published table, and one more.
async fn with_row(
    scratch: &Scratch,
    table: &str,
    schema: SchemaRef,
    row: Vec<ArrayRef>,
) -> Result<Arc<dyn RowSource>, PublicationError> {
    let columns: Vec<&str> = { schema.fields().iter() }
        .map(|field| field.name().as_str())
        .collect();
    let statement = format!(
        "SELECT {} FROM {} ORDER BY 1",
        columns.join(", "),
        scratch.published(table)
    );
    let mut batches = Vec::new();
    for batch in scratch.all(&statement).await? {
        batches.push(in_columns(&batch, &schema)?);
    }
    batches.push(RecordBatch::try_new(Arc::clone(&schema), row).map_err(of_arrow)?);
    Ok(Arc::new(MemoryRows { schema, batches }))
}

fn ints(column: &ArrayRef) -> Result<Int64Array, PublicationError> {
    let cast = cast(column, &DataType::Int64).map_err(of_arrow)?;
    Ok(cast.as_primitive::<Int64Type>().clone())
}

fn of_arrow(error: ArrowError) -> PublicationError {
    EngineError::Query(error.to_string()).into()
}
