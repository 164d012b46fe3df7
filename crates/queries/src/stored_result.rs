//! The stored result of a query: a block file whose first block has the columns and whose others have the rows, in their order.
//!
//! It is written under another name and renamed when it is whole and on the disk, so a result that is there is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use engine::{EngineError, RowStream, StoredRows};
use futures::stream::{self, StreamExt};
use sql::Warning;

use crate::block_file::{Block, BlockFile, BlockWriter, Tag};
use crate::journal::rows_of_blocks;
use crate::stored_warnings;

const COLUMNS: u32 = 1;
const ROWS: u32 = 2;

const fn tag(kind: u32) -> Tag {
    Tag {
        kind,
        phase: 0,
        piece: 0,
        run: 0,
        rows: 0,
    }
}

/// A result that is being written.
#[derive(Debug)]
pub(crate) struct ResultWriter {
    path: PathBuf,
    file: Arc<BlockFile>,
    writer: BlockWriter,
    rows: u64,
}

/// The size of a stored result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResultSize {
    pub rows: u64,
    pub bytes: u64,
    pub warnings: u64,
}

impl ResultWriter {
    /// Begins the result that will be at `path`.
    pub(crate) fn create(path: &Path, schema: &SchemaRef) -> Result<Self, EngineError> {
        let unfinished = unfinished(path);
        // Of a process that was killed.
        let _ = fs::remove_file(&unfinished);
        let (file, _) = BlockFile::append_to(&unfinished)?;
        let file = Arc::new(file);
        file.append_rows(tag(COLUMNS), schema, &[])?;
        Ok(Self {
            path: path.to_owned(),
            writer: BlockWriter::new(Arc::clone(&file), tag(ROWS)),
            file,
            rows: 0,
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch)
    }

    /// Bytes so far.
    pub(crate) fn num_bytes(&self) -> u64 {
        self.writer.num_bytes()
    }

    pub(crate) fn num_rows(&self) -> u64 {
        self.rows
    }

    /// Makes the result visible, with the warnings of its statement.
    pub(crate) fn finish(self, warnings: &[Warning]) -> Result<ResultSize, EngineError> {
        self.writer.finish()?;
        self.file.sync()?;
        stored_warnings::write(&self.path, warnings)?;
        let renamed = fs::rename(unfinished(&self.path), &self.path);
        renamed.map_err(|error| {
            EngineError::storage(format!("cannot write {}: {error}", self.path.display()))
        })?;
        Ok(ResultSize {
            rows: self.rows,
            bytes: self.file.len(),
            warnings: warnings.len() as u64,
        })
    }
}

fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("unfinished")
}

/// The size of a stored result.
pub(crate) fn size(path: &Path) -> Result<ResultSize, EngineError> {
    let (file, blocks) = BlockFile::open(path)?;
    Ok(ResultSize {
        rows: blocks.iter().map(|block| block.tag.rows).sum(),
        bytes: file.len(),
        warnings: stored_warnings::read(path)?.len() as u64,
    })
}

/// Opens a stored result without its first `skip` rows, as far as these are whole blocks; returns how many of these it still has. It can
/// then be read any number of times, by several readers at once, even if its file is removed meanwhile.
pub(crate) fn open_from(path: &Path, skip: u64) -> Result<(StoredRows, u64), EngineError> {
    let (file, blocks) = BlockFile::open(path)?;
    let damaged = || {
        let sentence = format!(
            "the stored result in {} is damaged: submit the query again",
            path.display()
        );
        EngineError::storage(sentence)
    };
    let Some((columns, rows)) = blocks.split_first() else {
        return Err(damaged());
    };
    let body = file.read(columns)?;
    let schema = arrow_ipc::reader::StreamReader::try_new(body.as_slice(), None)
        .map_err(|_| damaged())?
        .schema();
    let mut skip = skip;
    let first = rows.iter().position(|block| {
        let rest = skip.checked_sub(block.tag.rows);
        skip = rest.unwrap_or(skip);
        rest.is_none()
    });
    let rows = &rows[first.unwrap_or(rows.len())..];
    let (file, rows): (_, Arc<[Block]>) = (Arc::new(file), rows.into());
    let stored = StoredRows {
        schema,
        warnings: stored_warnings::read(path)?.into(),
        open: Arc::new(move || read(Arc::clone(&file), Arc::clone(&rows))),
    };
    Ok((stored, skip))
}

fn read(file: Arc<BlockFile>, blocks: Arc<[Block]>) -> RowStream {
    stream::iter(rows_of_blocks(file, blocks, 0)).boxed()
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use futures::{FutureExt, TryStreamExt};

    use super::*;

    #[test]
    fn results_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result");
        let column = |n: i64| Arc::new(Int64Array::from_iter_values(n..n + 1_000)) as _;
        let batch = |n| RecordBatch::try_from_iter([("n", column(n))]).unwrap();
        let mut writer = ResultWriter::create(&path, &batch(0).schema()).unwrap();
        for n in 0..300 {
            writer.write(&batch(n * 1_000)).unwrap();
        }
        let open = |path: &Path| Ok::<_, EngineError>(open_from(path, 0)?.0);
        assert!(open(&path).is_err(), "an unfinished result is visible");
        let size = writer.finish(&[]).unwrap();
        assert_eq!(size.rows, 300_000);
        assert_eq!(size.bytes, fs::metadata(&path).unwrap().len());
        let stored = open(&path).unwrap();
        for skip in [0, 1, 999, 150_000, 299_999, 300_000, 400_000] {
            let (rest, more) = open_from(&path, skip).unwrap();
            let rows = (rest.open)().try_collect::<Vec<_>>().now_or_never();
            let rows = rows.unwrap().unwrap();
            let rows: usize = rows.iter().map(RecordBatch::num_rows).sum();
            let left = 300_000_u64.saturating_sub(skip);
            assert_eq!((rows as u64).saturating_sub(more), left, "without {skip}");
        }
        fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            let rows = (stored.open)().try_collect::<Vec<_>>().now_or_never();
            let rows = rows.unwrap().unwrap();
            assert_eq!(
                rows.iter().map(RecordBatch::num_rows).sum::<usize>(),
                300_000
            );
            assert_eq!(rows[7], batch(7_000));
        }
        let writer = ResultWriter::create(&path, &batch(0).schema()).unwrap();
        writer.finish(&[]).unwrap();
        assert_eq!(open(&path).unwrap().schema, batch(0).schema());
    }
}
