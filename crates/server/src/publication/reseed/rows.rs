//! Rows of files and of memory as the input of a load.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alerts::PUBLISHED;
use arrow::array::{ArrayRef, Int64Array, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use ingest::{MadeBatches, RowSource};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::super::PublicationError;
use super::files::failed;

/// The rows of files, each of them a part, with the time of an edition.
pub(super) struct FileRows {
    files: Vec<(PathBuf, u64)>,
    schema: SchemaRef,
    published_us: i64,
}

impl FileRows {
    pub(super) fn open(
        files: Vec<PathBuf>,
        schema: SchemaRef,
        published_us: i64,
    ) -> Result<Self, PublicationError> {
        let mut counted = Vec::with_capacity(files.len());
        for path in files {
            let reader = open(&path).map_err(|error| failed(&path, &error))?;
            let rows = reader.metadata().file_metadata().num_rows();
            counted.push((path, rows.unsigned_abs()));
        }
        Ok(Self {
            files: counted,
            schema,
            published_us,
        })
    }
}

fn open(path: &Path) -> Result<ParquetRecordBatchReaderBuilder<File>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| error.to_string())
}

impl fmt::Debug for FileRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a release")
    }
}

impl RowSource for FileRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn parts(&self) -> usize {
        self.files.len()
    }

    fn part_name(&self, part: usize) -> String {
        self.files[part].0.display().to_string()
    }

    fn part_rows(&self, part: usize) -> u64 {
        self.files[part].1.max(1)
    }

    fn make_part(&self, part: usize) -> MadeBatches {
        let (schema, published) = (Arc::clone(&self.schema), self.published_us);
        let reader = open(&self.files[part].0)
            .and_then(|reader| reader.build().map_err(|error| error.to_string()));
        match reader {
            Err(error) => Box::new(std::iter::once(Err(error))),
            Ok(reader) => Box::new(reader.map(move |batch| {
                let shaped = batch.and_then(|batch| shaped(&batch, &schema, published));
                shaped.map_err(|error| error.to_string())
            })),
        }
    }
}

fn shaped(
    batch: &RecordBatch,
    schema: &SchemaRef,
    published: i64,
) -> Result<RecordBatch, ArrowError> {
    let rows = batch.num_rows();
    let column = |field: &Arc<arrow::datatypes::Field>| -> Result<ArrayRef, ArrowError> {
        match batch.column_by_name(field.name()) {
            _ if field.name() == PUBLISHED => Ok(Arc::new(Int64Array::from(vec![published; rows]))),
            Some(found) => cast(found, field.data_type()),
            None => Ok(new_null_array(field.data_type(), rows)),
        }
    };
    let columns: Result<Vec<ArrayRef>, ArrowError> = schema.fields().iter().map(column).collect();
    RecordBatch::try_new(Arc::clone(schema), columns?)
}

/// Rows that are in memory.
pub(super) struct MemoryRows {
    pub(super) schema: SchemaRef,
    pub(super) batches: Vec<RecordBatch>,
}

impl fmt::Debug for MemoryRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a release")
    }
}

impl RowSource for MemoryRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn parts(&self) -> usize {
        1
    }

    fn part_name(&self, _: usize) -> String {
        "a release".to_owned()
    }

    fn part_rows(&self, _: usize) -> u64 {
        1
    }

    fn make_part(&self, _: usize) -> MadeBatches {
        Box::new(self.batches.clone().into_iter().map(Ok))
    }
}
