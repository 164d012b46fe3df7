//! Files in which a release and the rows that stay are brought into one form, to be checked and loaded, and what is asked of them.

use std::fs::{File, create_dir_all, read_dir};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alerts::{AlertSchema, AlertTable, names, release_rows};
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use engine::{Archive, EngineError, FileAccess, Session, SessionOptions};
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use tempfile::TempDir;

use super::super::PublicationError;
use super::{ReseedReport, ReseedRequest, quoted};

/// Rows of a file are read so many at a time.
const ROWS_PER_BATCH: usize = 8192;
/// Before the year 1800: no time of a row.
const FIRST_TIME: f64 = -20_000.0;

/// A directory with files of the three tables, of one form each, and a session that reads them.
pub(super) struct Scratch {
    directory: TempDir,
    session: Session,
    archive: Arc<Archive>,
    pub(super) schema: Arc<AlertSchema>,
    database: String,
}

impl Scratch {
    /// Makes the directory among the temporary files of the process.
    pub(super) async fn make(
        archive: &Arc<Archive>,
        database: &str,
        schema: &Arc<AlertSchema>,
        request: &ReseedRequest,
    ) -> Result<Self, PublicationError> {
        let options = SessionOptions {
            memory: Some(request.memory),
            spilled: Some(request.spilled),
            files: FileAccess::Everything,
            database: Some(engine::NO_DATABASE.to_owned()),
            ..SessionOptions::default()
        };
        let directory = tempfile::tempdir().map_err(|error| failed(Path::new("."), &error))?;
        for table in AlertTable::ALL {
            let path = directory.path().join(table.name());
            create_dir_all(&path).map_err(|error| failed(&path, &error))?;
        }
        Ok(Self {
            directory,
            session: Session::new(Arc::clone(archive), &options).await?,
            archive: Arc::clone(archive),
            schema: Arc::clone(schema),
            database: database.to_owned(),
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file or a directory of files, as a table of a statement.
    pub(super) fn table(&self, name: &str) -> String {
        let path = self.path(name).display().to_string();
        let path = path.replace('\\', "\\\\").replace('\'', "''");
        format!("read_parquet('{path}')")
    }

    /// The rows of a statement, given to `take` as they come.
    pub(super) async fn each(
        &self,
        statement: &str,
        mut take: impl AsyncFnMut(RecordBatch) -> Result<(), PublicationError>,
    ) -> Result<(), PublicationError> {
        let mut result = self.session.execute(statement).await?;
        while let Some(batch) = result.batches.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                take(batch).await?;
            }
        }
        Ok(())
    }

    /// The rows of a statement that has few.
    pub(super) async fn all(&self, statement: &str) -> Result<Vec<RecordBatch>, PublicationError> {
        let mut found = Vec::new();
        let keep = async |batch: RecordBatch| {
            found.push(batch);
            Ok::<(), PublicationError>(())
        };
        self.each(statement, keep).await?;
        Ok(found)
    }

    /// Writes the rows of a statement into a file, in these columns, by their names.
    pub(super) async fn write(
        &self,
        statement: &str,
        name: &str,
        columns: &SchemaRef,
    ) -> Result<u64, PublicationError> {
        let mut file = NewFile::create(self.path(name), columns)?;
        let write = async |batch: RecordBatch| file.write(&in_columns(&batch, columns)?);
        self.each(statement, write).await?;
        file.finish()
    }

    /// The columns of a table here.
    pub(super) fn columns(&self, table: AlertTable) -> Result<SchemaRef, PublicationError> {
        let empty = RecordBatch::new_empty(self.schema.table(table).arrow());
        Ok(release_rows(&self.schema, table, &empty)?.schema())
    }

    /// Copies the files of a release, and checks what can be seen of a row alone.
    pub(super) async fn copy_release(
        &self,
        request: &ReseedRequest,
        report: &mut ReseedReport,
    ) -> Result<(), PublicationError> {
        for (at, table) in AlertTable::ALL.into_iter().enumerate() {
            for (number, path) in files_of(&request.release, table)?.into_iter().enumerate() {
                let to = self.path(&format!("{}/release-{number:06}.parquet", table.name()));
                let columns = self.columns(table)?;
                let (schema, cut) = (Arc::clone(&self.schema), request.cut);
                let copy = move || copy(&schema, table, &path, NewFile::create(to, &columns)?, cut);
                let copied = tokio::task::spawn_blocking(copy).await;
                report.tables[at].release += copied.map_err(|error| {
                    PublicationError::Release(format!("the release could not be read: {error}"))
                })??;
            }
        }
        Ok(())
    }

    /// Copies the published rows that stay, as they have become.
    pub(super) async fn copy_kept(
        &self,
        cut: f64,
        report: &mut ReseedReport,
    ) -> Result<(), PublicationError> {
        let database = &self.database;
        for (at, table) in AlertTable::ALL.into_iter().enumerate() {
            let columns = self.columns(table)?;
            let path = self.path(&format!("{}/stays.parquet", table.name()));
            let mut file = NewFile::create(path, &columns)?;
            let statement = format!(
                "SELECT * FROM `{database}`.`{}` WHERE {} >= {cut:e}",
                table.name(),
                time_of(table)
            );
            let keep =
                async |batch: RecordBatch| file.write(&release_rows(&self.schema, table, &batch)?);
            // Nothing may be published yet.
            if self.is_there(table).await? {
                self.each(&statement, keep).await?;
            }
            report.tables[at].kept = file.finish()?;
        }
        Ok(())
    }

    async fn is_there(&self, table: AlertTable) -> Result<bool, PublicationError> {
        let catalog = self.archive.catalog();
        Ok((catalog.view(&self.database, table.name()).await?).is_some())
    }

    /// All columns of a table, quoted.
    pub(super) fn quoted(&self, table: AlertTable) -> String {
        quoted(&self.schema, table)
    }

    /// The published table of editions, in a statement.
    pub(super) fn published(&self, table: &str) -> String {
        format!("`{}`.`{table}`", self.database)
    }
}

/// The column of a row's time.
pub(super) const fn time_of(table: AlertTable) -> &'static str {
    match table {
        AlertTable::DiaObject => names::VALIDITY_START,
        AlertTable::DiaSource | AlertTable::DiaForcedSource => names::MIDPOINT,
    }
}

/// The Parquet files of a table of a release: those of its directory, or one of its name.
fn files_of(release: &Path, table: AlertTable) -> Result<Vec<PathBuf>, PublicationError> {
    let single = release.join(format!("{}.parquet", table.name()));
    if single.is_file() {
        return Ok(vec![single]);
    }
    let directory = release.join(table.name());
    let entries = read_dir(&directory).map_err(|error| {
        PublicationError::Release(format!(
            "{}: {error}; a release is a directory with directories DiaObject, DiaSource and DiaForcedSource of Parquet files",
            directory.display()
        ))
    })?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(&directory, &error))?.path();
        if path.extension().is_some_and(|it| it == "parquet") {
            files.push(path);
        }
    }
    files.sort();
    match files.is_empty() {
        false => Ok(files),
        true => Err(PublicationError::Release(format!(
            "{} has no file *.parquet",
            directory.display()
        ))),
    }
}

/// Copies a file of a release, and tells how many rows it has.
fn copy(
    schema: &AlertSchema,
    table: AlertTable,
    path: &Path,
    mut to: NewFile,
    cut: f64,
) -> Result<u64, PublicationError> {
    let file = File::open(path).map_err(|error| failed(path, &error))?;
    let unreadable = |error: ParquetError| failed(path, &error);
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).map_err(unreadable)?;
    let columns = schema.table(table).columns.iter();
    let missing: Vec<&str> = columns
        .map(|column| column.name.as_str())
        .filter(|name| reader.schema().column_with_name(name).is_none())
        .collect();
    if !missing.is_empty() {
        return Err(PublicationError::Release(format!(
            "{} lacks columns of {} in the schema of the database: {}",
            path.display(),
            table.name(),
            missing.join(", ")
        )));
    }
    let reader = reader.with_batch_size(ROWS_PER_BATCH);
    let mut rows = 0;
    for batch in reader.build().map_err(unreadable)? {
        let batch = batch.map_err(|error| failed(path, &error))?;
        let batch = release_rows(schema, table, &batch)
            .map_err(|error| failed(path, &format!("rows from {} on: {error}", rows + 1)))?;
        if let Some((row, reason)) = wrong_row(table, &batch, cut)? {
            let row = rows + row as u64 + 1;
            return Err(failed(path, &format!("row {row}: {reason}")));
        }
        to.write(&batch)?;
        rows += batch.num_rows() as u64;
    }
    to.finish()
}

/// A row that cannot be, and why.
fn wrong_row(
    table: AlertTable,
    batch: &RecordBatch,
    cut: f64,
) -> Result<Option<(usize, String)>, PublicationError> {
    let doubles = |name: &str| -> Result<arrow::array::Float64Array, PublicationError> {
        let column = batch.column_by_name(name);
        let column = column.and_then(|it| it.as_any().downcast_ref());
        column.cloned().ok_or_else(|| {
            PublicationError::Release(format!("{} has no column {name}", table.name()))
        })
    };
    let (ra, dec) = (doubles(names::RA)?, doubles(names::DEC)?);
    let times = doubles(time_of(table))?;
    let ends = match table {
        AlertTable::DiaObject => Some(doubles(names::VALIDITY_END)?),
        _ => None,
    };
    for row in 0..batch.num_rows() {
        let (ra, dec, time) = (ra.value(row), dec.value(row), times.value(row));
        if !ra.is_finite() || !(-90.0..=90.0).contains(&dec) {
            return Ok(Some((row, format!("ra {ra}, dec {dec} is no position"))));
        }
        let name = time_of(table);
        if !(FIRST_TIME..cut).contains(&time) {
            let reason = format!(
                "{name} is {time}, and a release has what is from before its cut, {cut} (MJD, TAI)"
            );
            return Ok(Some((row, reason)));
        }
        let Some(ends) = ends.as_ref().filter(|ends| ends.is_valid(row)) else {
            continue;
        };
        let end = ends.value(row);
        if !(end > time && end <= cut) {
            let reason = format!(
                "a version is valid from {time} until {end}: its end has to be later than its beginning, and not later than the cut, {cut} (MJD, TAI)"
            );
            return Ok(Some((row, reason)));
        }
    }
    Ok(None)
}

pub(super) fn failed(path: &Path, error: &impl ToString) -> PublicationError {
    PublicationError::Release(format!("{}: {}", path.display(), error.to_string()))
}

/// Rows in these columns and types, by their names.
pub(super) fn in_columns(
    batch: &RecordBatch,
    columns: &SchemaRef,
) -> Result<RecordBatch, PublicationError> {
    let column = |field: &Arc<arrow::datatypes::Field>| {
        let found = batch.column_by_name(field.name());
        let found = found.ok_or_else(|| {
            ArrowError::SchemaError(format!("there is no column {}", field.name()))
        })?;
        arrow::compute::cast(found, field.data_type())
    };
    let arrays: Result<Vec<_>, ArrowError> = columns.fields().iter().map(column).collect();
    let made = arrays.and_then(|arrays| RecordBatch::try_new(Arc::clone(columns), arrays));
    made.map_err(|error| EngineError::Query(error.to_string()).into())
}

/// A file that is being written.
pub(super) struct NewFile {
    path: PathBuf,
    writer: ArrowWriter<File>,
    rows: u64,
}

impl NewFile {
    pub(super) fn create(path: PathBuf, columns: &SchemaRef) -> Result<Self, PublicationError> {
        let file = File::create(&path).map_err(|error| failed(&path, &error))?;
        let writer = ArrowWriter::try_new(file, Arc::clone(columns), None);
        let writer = writer.map_err(|error| failed(&path, &error))?;
        Ok(Self {
            path,
            writer,
            rows: 0,
        })
    }

    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), PublicationError> {
        self.rows += batch.num_rows() as u64;
        let written = self.writer.write(batch);
        written.map_err(|error| failed(&self.path, &error))
    }

    pub(super) fn finish(self) -> Result<u64, PublicationError> {
        let closed = self.writer.close();
        closed.map_err(|error| failed(&self.path, &error))?;
        Ok(self.rows)
    }
}
