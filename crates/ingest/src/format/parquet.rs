//! Parquet files. A part is a row group; several threads decode several of them.

use std::collections::HashMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, FieldRef, Schema};
use catalog::Column;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::Length;

use super::parquet_ahead::ReadAhead;
use super::parquet_bounds::{check_footer, check_places, rows_at_once};
use super::parquet_place::{ParquetBytes, ParquetPlace};
use super::parquet_views::{rows_to_copy, with_views};
use super::{FieldDescription, Names, Part, ReadContext, Source, TableFile, columns_of, votable};
use crate::budget::{DecodeBudget, DecodeMeter};
use crate::error::{IngestError, nearest};
use crate::normalise;
use crate::rejected_rows::RowId;
use crate::row_batch::RowBatch;

/// The key of the VOTable in a footer (VOParquet 1.0).
const VOTABLE_KEY: &str = "IVOA.VOTable-Parquet.content";
const ROWS_PER_BATCH: usize = 8192;
/// Row groups from which rows are sampled, and rows of each.
const SAMPLED_GROUPS: usize = 32;
const SAMPLED_ROWS: usize = 2048;
/// Bytes of a row group that are fetched at a time for these, where they are fetched.
const SAMPLED_WINDOW: u64 = 4 << 20;

/// A Parquet file whose footer has been read.
pub(crate) struct ParquetFile {
    place: ParquetPlace,
    metadata: ArrowReaderMetadata,
    bytes: u64,
    /// What its footer says of each column.
    described: Vec<FieldDescription>,
    budget: DecodeBudget,
}

impl ParquetFile {
    pub(crate) fn open(place: ParquetPlace, budget: &DecodeBudget) -> Result<Self, IngestError> {
        let path = place.path();
        let file = place.open()?;
        let bytes = file.len();
        let metadata = match (&file, budget.is_limited()) {
            (ParquetBytes::Local(file), true) => foreign_metadata(file, path, bytes, budget)?,
            (file, _) => place.explain(reading(path, || {
                ArrowReaderMetadata::load(file, ArrowReaderOptions::new())
            }))?,
        };
        // Whoever reads a column counts on it.
        for group in metadata.metadata().row_groups() {
            check_places(path, bytes, group)?;
        }
        Ok(Self {
            place,
            described: described_columns(&metadata),
            metadata,
            bytes,
            budget: budget.clone(),
        })
    }

    fn map_columns(&self, columns: &[Column]) -> Result<Vec<Option<usize>>, IngestError> {
        map_columns(self.metadata.schema(), columns, self.place.path())
    }

    /// A reader of the first rows of a row group.
    fn reader(
        &self,
        group: usize,
        wanted: &[Option<usize>],
    ) -> Result<ParquetRecordBatchReader, IngestError> {
        let path = self.place.path();
        let meter = &mut self.budget.meter(path);
        let rows = rows_per_batch(path, &self.metadata, group, wanted, meter)?;
        let place = self.place.with_window(SAMPLED_WINDOW);
        open_group(&place, &self.metadata, (group, rows), wanted)
    }

    /// What reads ahead in a local file.
    fn ahead(&self, wanted: &[Option<usize>]) -> Result<Option<ReadAhead>, IngestError> {
        let Some(file) = self.place.local_file()? else {
            return Ok(None);
        };
        let wanted = mask(&self.metadata, wanted);
        let ahead = ReadAhead::new(file, self.metadata.metadata(), &wanted);
        Ok(Some(ahead))
    }
}

impl TableFile for ParquetFile {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        columns_of(self.metadata.schema(), self.place.path())
    }

    fn column_names(&self) -> Result<Option<Vec<String>>, IngestError> {
        Ok(Some(names_of(self.metadata.schema())))
    }

    fn described(&self, column: usize) -> Option<FieldDescription> {
        self.described.get(column).cloned()
    }

    fn descriptions(&self) -> Vec<(String, FieldDescription)> {
        let names = names_of(self.metadata.schema()).into_iter();
        names.zip(self.described.iter().cloned()).collect()
    }

    fn estimated_rows(&self) -> u64 {
        self.metadata.metadata().file_metadata().num_rows().max(0) as u64
    }

    fn work(&self) -> u64 {
        self.bytes
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        let wanted = self.map_columns(&context.columns)?;
        Ok(Box::new(ParquetSource {
            place: self.place.clone(),
            metadata: self.metadata.clone(),
            ahead: self.ahead(&wanted)?.map(Arc::new),
            wanted: wanted.into(),
            number,
            group: 0,
            first_row: 1,
            pages: self.budget.meter(self.place.path()),
            context: context.clone(),
        }))
    }

    fn read_ahead(&self, context: &ReadContext) {
        // What is wrong with the file is told when it is opened.
        let ahead = self.map_columns(&context.columns);
        if let Ok(Some(ahead)) = ahead.and_then(|wanted| self.ahead(&wanted)) {
            ahead.reading(0, 0.0);
        }
    }

    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        let wanted = self.map_columns(&context.columns)?;
        let groups = self.metadata.metadata().num_row_groups();
        let step = groups.div_ceil(SAMPLED_GROUPS).max(1);
        let mut batches = Vec::new();
        for group in (0..groups).step_by(step) {
            let mut reader = self.reader(group, &wanted)?;
            let Some(batch) = reader.next() else {
                continue;
            };
            let batch = self.place.explain(batch.map_err(IngestError::from))?;
            let batch = batch.slice(0, batch.num_rows().min(SAMPLED_ROWS));
            let rows = (1..=batch.num_rows() as u64)
                .map(|line| RowId::new(0, line).0)
                .collect();
            let arrays = arrays_in_order(&batch, &wanted);
            batches.push(normalise::to_rows(&arrays, rows, context)?);
        }
        Ok(batches)
    }
}

/// For each column of the table the column of a file with this schema; `None` if the file lacks it.
pub(super) fn map_columns(
    schema: &Schema,
    columns: &[Column],
    path: &Path,
) -> Result<Vec<Option<usize>>, IngestError> {
    let fields = schema.fields();
    let names = Names::of(fields.iter().map(|f| f.name().as_str()));
    let find = |column: &Column| {
        let found = names.position(&column.name);
        if found.is_none() && !column.nullable {
            let near = nearest(&column.name, fields.iter().map(|f| f.name().as_str()));
            let hint = near.map_or(String::new(), |near| format!(": is it {near:?}?"));
            let reason = format!(
                "it lacks the column {:?}, which is NOT NULL{hint}",
                column.name
            );
            return Err(IngestError::layout(path, reason));
        }
        Ok(found)
    };
    let mapped: Vec<Option<usize>> = columns.iter().map(find).collect::<Result<_, _>>()?;
    if mapped.iter().all(Option::is_none) {
        return Err(IngestError::layout(
            path,
            "it has none of the table's columns",
        ));
    }
    Ok(mapped)
}

/// The names of all columns, also of those of types that cannot be loaded.
pub(super) fn names_of(schema: &Schema) -> Vec<String> {
    let fields = schema.fields().iter();
    fields.map(|field| field.name().clone()).collect()
}

/// What the metadata of a field say of it, under the names that results have.
pub(super) fn described(field: &Field) -> FieldDescription {
    let word = |name: &str| field.metadata().get(name).cloned().unwrap_or_default();
    FieldDescription {
        unit: word("unit"),
        ucd: word("ucd"),
        xtype: word("xtype"),
        utype: word("utype"),
        description: word("description"),
    }
}

/// What a file says of each of its columns: the VOTable in its footer (VOParquet), and else the metadata of Arrow's fields. A footer whose
/// VOTable cannot be read says nothing by it.
fn described_columns(metadata: &ArrowReaderMetadata) -> Vec<FieldDescription> {
    let fields = metadata.schema().fields();
    let entries = metadata.metadata().file_metadata().key_value_metadata();
    let document = entries
        .into_iter()
        .flatten()
        .find(|entry| entry.key == VOTABLE_KEY)
        .and_then(|entry| entry.value.as_deref());
    let told = document.and_then(|document| votable::described_columns(document, fields.len()));
    let mut told: HashMap<String, FieldDescription> =
        told.unwrap_or_default().into_iter().collect();
    let words = |field: &FieldRef| {
        let own = described(field);
        match told.remove(field.name()) {
            Some(told) => told.or(own),
            None => own,
        }
    };
    fields.iter().map(words).collect()
}

/// The footer of a stranger's file: it is looked at before it is read, and texts come as views, so that no batch takes much.
fn foreign_metadata(
    file: &File,
    path: &Path,
    bytes: u64,
    budget: &DecodeBudget,
) -> Result<ArrowReaderMetadata, IngestError> {
    check_footer(file, path, bytes, budget)?;
    let metadata = reading(path, || {
        ArrowReaderMetadata::load(
            file,
            ArrowReaderOptions::new().with_skip_arrow_metadata(true),
        )
    })?;
    budget.check_columns(path, metadata.parquet_schema().num_columns())?;
    let options = ArrowReaderOptions::new()
        .with_skip_arrow_metadata(true)
        .with_schema(with_views(metadata.schema()));
    reading(path, || {
        ArrowReaderMetadata::try_new(metadata.metadata().clone(), options)
    })
}

/// Lets the library read. Where it panics over bytes that make no sense, that is damage.
fn reading<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, ParquetError>,
) -> Result<T, IngestError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(outcome) => outcome.map_err(|error| damaged(path, &error)),
        Err(_) => Err(IngestError::Damaged {
            path: path.to_path_buf(),
            reason: "its bytes make no sense".to_owned(),
        }),
    }
}

/// How many rows of a row group are read at once, which follows from its pages where there is a budget.
fn rows_per_batch(
    path: &Path,
    metadata: &ArrowReaderMetadata,
    group: usize,
    wanted: &[Option<usize>],
    meter: &mut DecodeMeter,
) -> Result<usize, IngestError> {
    if !meter.is_limited() {
        return Ok(ROWS_PER_BATCH);
    }
    let file = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
    let row_group = metadata.metadata().row_group(group);
    rows_at_once((&file, path), row_group, &mask(metadata, wanted), meter)
}

/// A file cut off or damaged is told apart from one that cannot be read for another reason.
fn damaged(path: &Path, error: &ParquetError) -> IngestError {
    let reason = match error {
        ParquetError::EOF(what) | ParquetError::General(what) => what.clone(),
        other => other.to_string(),
    };
    IngestError::Damaged {
        path: path.to_path_buf(),
        reason,
    }
}

/// The leaves of the wanted columns.
fn mask(metadata: &ArrowReaderMetadata, wanted: &[Option<usize>]) -> ProjectionMask {
    let roots = wanted.iter().flatten().copied();
    ProjectionMask::roots(metadata.parquet_schema(), roots)
}

fn open_group(
    place: &ParquetPlace,
    metadata: &ArrowReaderMetadata,
    (group, rows): (usize, usize),
    wanted: &[Option<usize>],
) -> Result<ParquetRecordBatchReader, IngestError> {
    let mask = mask(metadata, wanted);
    let bytes = place.open_group(metadata.metadata().row_group(group), &mask)?;
    place.explain(reading(place.path(), || {
        ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata.clone())
            .with_row_groups(vec![group])
            .with_projection(mask)
            .with_batch_size(rows)
            .build()
    }))
}

/// The batch's columns in the order of the table's; the reader gives them in the order of the file.
fn arrays_in_order(
    batch: &RecordBatch,
    wanted: &[Option<usize>],
) -> Vec<Option<arrow::array::ArrayRef>> {
    let mut in_file: Vec<usize> = wanted.iter().flatten().copied().collect();
    in_file.sort_unstable();
    let array = |column: &Option<usize>| {
        let at = in_file.binary_search(&(*column)?).ok()?;
        Some(batch.column(at).clone())
    };
    wanted.iter().map(array).collect()
}

struct ParquetSource {
    place: ParquetPlace,
    metadata: ArrowReaderMetadata,
    ahead: Option<Arc<ReadAhead>>,
    wanted: Arc<[Option<usize>]>,
    number: usize,
    group: usize,
    /// The number of the group's first row in the file, from 1.
    first_row: u64,
    /// The pages so far.
    pages: DecodeMeter,
    context: Arc<ReadContext>,
}

impl Source for ParquetSource {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        let groups = self.metadata.metadata().num_row_groups();
        if self.group >= groups {
            return Ok(None);
        }
        let rows_at_once = rows_per_batch(
            self.place.path(),
            &self.metadata,
            self.group,
            &self.wanted,
            &mut self.pages,
        )?;
        let group = self.metadata.metadata().row_group(self.group);
        let part = ParquetPart {
            place: self.place.clone(),
            metadata: self.metadata.clone(),
            ahead: self.ahead.clone(),
            wanted: self.wanted.clone(),
            group: self.group,
            rows_at_once,
            reader: None,
            rest: None,
            next_row: RowId::new(self.number, self.first_row),
            rows: group.num_rows().max(0) as u64,
            rows_read: 0,
            compressed: group.compressed_size().max(0) as u64,
            context: self.context.clone(),
        };
        self.first_row += part.rows;
        self.group += 1;
        Ok(Some(Box::new(part)))
    }
}

struct ParquetPart {
    place: ParquetPlace,
    metadata: ArrowReaderMetadata,
    ahead: Option<Arc<ReadAhead>>,
    wanted: Arc<[Option<usize>]>,
    group: usize,
    rows_at_once: usize,
    reader: Option<ParquetRecordBatchReader>,
    /// Rows that were read and not given yet.
    rest: Option<RecordBatch>,
    next_row: RowId,
    rows: u64,
    rows_read: u64,
    compressed: u64,
    context: Arc<ReadContext>,
}

impl ParquetPart {
    fn read(&mut self) -> Result<Option<RecordBatch>, IngestError> {
        let part = self.rows_read as f64 / self.rows.max(1) as f64;
        if let Some(ahead) = &self.ahead {
            ahead.reading(self.group, part);
        }
        let reader = match &mut self.reader {
            Some(reader) => reader,
            empty => empty.insert(open_group(
                &self.place,
                &self.metadata,
                (self.group, self.rows_at_once),
                &self.wanted,
            )?),
        };
        let read = reading(self.place.path(), || Ok(reader.next().transpose()?));
        self.place.explain(read)
    }
}

impl Part for ParquetPart {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.read()? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let copied = rows_to_copy(&batch);
        if copied < batch.num_rows() {
            self.rest = Some(batch.slice(copied, batch.num_rows() - copied));
        }
        let batch = batch.slice(0, copied);
        let count = batch.num_rows() as u64;
        let rows = (self.next_row.0..self.next_row.0 + count).collect();
        self.next_row = RowId(self.next_row.0 + count);
        self.rows_read += count;
        let arrays = arrays_in_order(&batch, &self.wanted);
        let progress = &self.context.progress;
        progress.advance(self.compressed * count / self.rows.max(1));
        progress.read(0, batch.get_array_memory_size() as u64);
        Ok(Some(normalise::to_rows(&arrays, rows, &self.context)?))
    }
}
