//! Rows that a program makes instead of reading them from files. Each part stands where a file stands otherwise: it has
//! a number and a name, and one thread at a time takes rows from it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use catalog::Column;

use super::{Part, ReadContext, Source, TableFile, columns_of};
use crate::error::IngestError;
use crate::normalise;
use crate::rejected_rows::RowId;
use crate::row_batch::RowBatch;

const ROWS_PER_BATCH: usize = 8192;
/// Rows of each part that a partitioning is chosen from.
const SAMPLED_ROWS: usize = 2048;

/// The rows of one part in batches; an error is a sentence.
pub type MadeBatches = Box<dyn Iterator<Item = Result<RecordBatch, String>> + Send>;

/// Rows that are made while they are loaded. Parts are made by several threads at once.
pub trait RowSource: fmt::Debug + Send + Sync {
    /// The columns of every batch.
    fn schema(&self) -> SchemaRef;

    /// The number of parts: as for files, fewer than 16 million, each of fewer than 10¹² rows.
    fn parts(&self) -> usize;

    /// What a part is called in messages.
    fn part_name(&self, part: usize) -> String;

    /// About how many rows a part has.
    fn part_rows(&self, part: usize) -> u64;

    /// Makes the rows of a part: the same ones whenever it is asked.
    fn make_part(&self, part: usize) -> MadeBatches;
}

/// One part of a source.
pub(crate) struct MadePart {
    source: Arc<dyn RowSource>,
    part: usize,
}

/// The parts of a source, as a load takes files.
pub(crate) fn open(source: &Arc<dyn RowSource>) -> Vec<Box<dyn TableFile>> {
    let part = |part| -> Box<dyn TableFile> {
        Box::new(MadePart {
            source: source.clone(),
            part,
        })
    };
    (0..source.parts()).map(part).collect()
}

impl MadePart {
    fn name(&self) -> PathBuf {
        self.source.part_name(self.part).into()
    }

    fn rows(&self, number: usize, context: &Arc<ReadContext>) -> MadeRows {
        MadeRows {
            batches: self.source.make_part(self.part),
            waiting: None,
            next_row: RowId::new(number, 1),
            context: context.clone(),
        }
    }
}

impl TableFile for MadePart {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        columns_of(&self.source.schema(), &self.name())
    }

    fn estimated_rows(&self) -> u64 {
        self.source.part_rows(self.part)
    }

    /// In rows.
    fn work(&self) -> u64 {
        self.estimated_rows()
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        let schema = self.source.schema();
        let known = |column: &Column| schema.column_with_name(&column.name).is_some();
        if let Some(column) = context.columns.iter().find(|c| !known(c) && !c.nullable) {
            let reason = format!("it lacks the column {:?}, which is NOT NULL", column.name);
            return Err(IngestError::layout(&self.name(), reason));
        }
        Ok(Box::new(MadeSource(Some(Box::new(
            self.rows(number, context),
        )))))
    }

    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        let mut rows = self.rows(0, context);
        let first = rows.next_rows(SAMPLED_ROWS)?;
        Ok(first.into_iter().collect())
    }
}

/// A part is its own only part.
struct MadeSource(Option<Box<dyn Part>>);

impl Source for MadeSource {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        Ok(self.0.take())
    }
}

struct MadeRows {
    batches: MadeBatches,
    /// What is left of the last batch.
    waiting: Option<RecordBatch>,
    next_row: RowId,
    context: Arc<ReadContext>,
}

impl MadeRows {
    fn next_rows(&mut self, most: usize) -> Result<Option<RowBatch>, IngestError> {
        let batch = match self.waiting.take() {
            Some(batch) => batch,
            None => match self.batches.next() {
                Some(batch) => batch.map_err(IngestError::Making)?,
                None => return Ok(None),
            },
        };
        let count = batch.num_rows().min(most);
        if count < batch.num_rows() {
            self.waiting = Some(batch.slice(count, batch.num_rows() - count));
        }
        let batch = batch.slice(0, count);
        let end = RowId(self.next_row.0 + count as u64);
        let rows = (self.next_row.0..end.0).collect();
        self.next_row = end;
        let column = |column: &Column| batch.column_by_name(&column.name).cloned();
        let arrays: Vec<Option<ArrayRef>> = self.context.columns.iter().map(column).collect();
        Ok(Some(normalise::to_rows(&arrays, rows, &self.context)?))
    }
}

impl Part for MadeRows {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        let rows = self.next_rows(ROWS_PER_BATCH)?;
        if let Some(rows) = &rows {
            let progress = &self.context.progress;
            progress.advance(rows.rows.len() as u64);
            let bytes = crate::row_batch::batch_bytes(&rows.columns);
            progress.read(0, bytes);
        }
        Ok(rows)
    }
}
