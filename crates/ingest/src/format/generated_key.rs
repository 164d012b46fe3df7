//! A file whose rows get generated keys: unique in the table, and the same whenever the same files are loaded.
//!
//! The key of a row is its line (or row) in its file, plus 2⁴⁰ for each file before that one in all loads of the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use arrow::array::{ArrayRef, Int64Array};
use arrow::record_batch::RecordBatch;
use catalog::Column;

use super::{FileColumns, Part, ReadContext, Source, TableFile};
use crate::error::IngestError;
use crate::rejected_rows::{LINE_BITS, RowId};
use crate::row_batch::RowBatch;

/// Where the generated keys of a load begin. It is set when it is known which keys the table has, before any row is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyStart(Arc<AtomicI64>);

impl KeyStart {
    /// Lets the keys begin as if so many files came before the load's first one.
    pub(crate) fn set(&self, files: i64) {
        self.0.store(files, Relaxed);
    }

    /// The key of a row; `None` beyond 64 bits, after eight million files.
    fn key_of(&self, row: RowId) -> Option<i64> {
        let files = self.0.load(Relaxed).checked_add(row.file() as i64)?;
        let first = files.checked_mul(1 << LINE_BITS)?;
        first.checked_add(row.line() as i64)
    }
}

/// How many files come before those of a load whose keys lie behind the largest one that the table has.
pub(crate) fn files_behind(largest: Option<i64>) -> i64 {
    let files = largest.map_or(0, |largest| (largest >> LINE_BITS) + 1);
    files.max(0)
}

/// A file, and the column that gets the keys.
pub(crate) struct FileWithKeys {
    file: Box<dyn TableFile>,
    column: usize,
    start: KeyStart,
}

impl FileWithKeys {
    /// The file with keys in a column, which it lacks itself.
    pub(crate) fn new(file: Box<dyn TableFile>, column: usize, start: KeyStart) -> Self {
        Self {
            file,
            column,
            start,
        }
    }
}

impl TableFile for FileWithKeys {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        self.file.columns()
    }

    fn columns_found(&self) -> Result<FileColumns, IngestError> {
        self.file.columns_found()
    }

    fn header_names(&self) -> Option<&[String]> {
        self.file.header_names()
    }

    fn position(&self) -> Option<[String; 2]> {
        self.file.position()
    }

    fn estimated_rows(&self) -> u64 {
        self.file.estimated_rows()
    }

    fn work(&self) -> u64 {
        self.file.work()
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        Ok(Box::new(SourceWithKeys {
            source: self.file.open(number, context)?,
            column: self.column,
            start: self.start.clone(),
        }))
    }

    fn read_ahead(&self, context: &ReadContext) {
        self.file.read_ahead(context);
    }

    /// A sample is for positions alone: it needs no keys.
    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        self.file.sample(context)
    }
}

struct SourceWithKeys {
    source: Box<dyn Source>,
    column: usize,
    start: KeyStart,
}

impl Source for SourceWithKeys {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        let Some(part) = self.source.next_part()? else {
            return Ok(None);
        };
        Ok(Some(Box::new(PartWithKeys {
            part,
            column: self.column,
            start: self.start.clone(),
        })))
    }
}

struct PartWithKeys {
    part: Box<dyn Part>,
    column: usize,
    start: KeyStart,
}

impl Part for PartWithKeys {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        let Some(RowBatch { columns, rows }) = self.part.next_batch()? else {
            return Ok(None);
        };
        // A row without a key is rejected where it is placed.
        let keys = rows.iter().map(|row| self.start.key_of(RowId(*row)));
        let keys: ArrayRef = Arc::new(keys.collect::<Int64Array>());
        let mut arrays = columns.columns().to_vec();
        arrays[self.column] = keys;
        let columns = RecordBatch::try_new(columns.schema(), arrays)?;
        Ok(Some(RowBatch { columns, rows }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_those_of_the_table() {
        let start = KeyStart::default();
        let key = |file, line| start.key_of(RowId::new(file, line));
        assert_eq!(key(0, 2), Some(2));
        assert_eq!(key(1, 2), Some((1 << 40) + 2));
        start.set(files_behind(Some((1 << 40) + 5)));
        assert_eq!(key(0, 2), Some((2 << 40) + 2));
        start.set(files_behind(Some(-7)));
        assert_eq!(key(0, 2), Some(2));
        start.set(files_behind(Some(i64::MAX)));
        assert_eq!(key(0, 2), None);
    }
}
