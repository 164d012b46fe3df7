//! Arrow IPC: files and streams. A part is a record batch, which is in memory as a whole.
//!
//! Only files of the machine that loads them are read so: how much a batch takes is bounded by the file's bytes and not by a budget.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::{FileReader, StreamReader};
use catalog::Column;

use super::arrow_lengths::check_lengths;
use super::parquet::{described, map_columns, names_of};
use super::{FieldDescription, Part, ReadContext, Source, TableFile, columns_of};
use crate::error::IngestError;
use crate::normalise;
use crate::rejected_rows::RowId;
use crate::row_batch::RowBatch;

const ROWS_PER_BATCH: usize = 8192;
/// The last bytes of a stream: a message of no length.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Batches from which rows are sampled, and rows of each.
const SAMPLED_BATCHES: u64 = 32;
const SAMPLED_ROWS: usize = 2048;

/// An Arrow file or stream whose schema has been read.
pub(crate) struct ArrowFile {
    path: PathBuf,
    is_stream: bool,
    schema: SchemaRef,
    bytes: u64,
    /// Rows of the first batch, and about how many batches there are.
    first_rows: u64,
    batches: u64,
}

impl ArrowFile {
    pub(crate) fn open(path: &Path, is_stream: bool) -> Result<Self, IngestError> {
        let file = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
        let about = file.metadata();
        let bytes = about.map_err(|e| IngestError::io("read", path, e))?.len();
        check_lengths(&file, path, bytes, is_stream)?;
        let mut batches = Batches::open(path, is_stream)?;
        let schema = batches.schema();
        let first = batches.next()?;
        let first_rows = first.as_ref().map_or(0, |batch| batch.num_rows() as u64);
        let batches = match &batches.reader {
            Reader::File(reader) => reader.num_batches() as u64,
            Reader::Stream(_) => {
                let size = first.map_or(0, |batch| batch.get_array_memory_size() as u64);
                bytes / size.max(1) + 1
            }
        };
        Ok(Self {
            path: path.to_path_buf(),
            is_stream,
            schema,
            bytes,
            first_rows,
            batches,
        })
    }

    fn batches(&self) -> Result<Batches, IngestError> {
        Batches::open(&self.path, self.is_stream)
    }
}

impl TableFile for ArrowFile {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        columns_of(&self.schema, &self.path)
    }

    fn column_names(&self) -> Result<Option<Vec<String>>, IngestError> {
        Ok(Some(names_of(&self.schema)))
    }

    fn described(&self, column: usize) -> Option<FieldDescription> {
        Some(described(self.schema.fields().get(column)?))
    }

    fn descriptions(&self) -> Vec<(String, FieldDescription)> {
        let fields = self.schema.fields().iter();
        fields
            .map(|field| (field.name().clone(), described(field)))
            .collect()
    }

    fn estimated_rows(&self) -> u64 {
        self.first_rows * self.batches
    }

    fn work(&self) -> u64 {
        self.bytes
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        Ok(Box::new(ArrowSource {
            batches: self.batches()?,
            wanted: map_columns(&self.schema, &context.columns, &self.path)?.into(),
            next_row: RowId::new(number, 1),
            context: Arc::clone(context),
        }))
    }

    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        let wanted = map_columns(&self.schema, &context.columns, &self.path)?;
        let mut batches = self.batches()?;
        let step = self.batches.div_ceil(SAMPLED_BATCHES).max(1);
        let (mut at, mut sampled) = (0, Vec::new());
        while let Some(batch) = batches.next()? {
            if at % step == 0 {
                let batch = batch.slice(0, batch.num_rows().min(SAMPLED_ROWS));
                let rows = 1..=batch.num_rows() as u64;
                let rows = rows.map(|line| RowId::new(0, line).0).collect();
                let arrays = arrays(&batch, &wanted);
                sampled.push(normalise::to_rows(&arrays, rows, context)?);
            }
            at += 1;
        }
        Ok(sampled)
    }
}

/// The batches of a file in their order.
struct Batches {
    path: PathBuf,
    reader: Reader,
    /// The file as it is read, for where that is.
    file: File,
    /// How many bytes had been read.
    read: u64,
}

enum Reader {
    File(Box<FileReader<BufReader<File>>>),
    Stream(Box<StreamReader<BufReader<File>>>),
}

impl Batches {
    fn open(path: &Path, is_stream: bool) -> Result<Self, IngestError> {
        let io = |e| IngestError::io("open", path, e);
        let file = File::open(path).map_err(io)?;
        let buffered = BufReader::new(file.try_clone().map_err(io)?);
        let reader = reading(path, || {
            Ok(match is_stream {
                true => Reader::Stream(Box::new(StreamReader::try_new(buffered, None)?)),
                false => Reader::File(Box::new(FileReader::try_new(buffered, None)?)),
            })
        })?;
        Ok(Self {
            path: path.to_path_buf(),
            reader,
            file,
            read: 0,
        })
    }

    fn schema(&self) -> SchemaRef {
        match &self.reader {
            Reader::File(reader) => reader.schema(),
            Reader::Stream(reader) => reader.schema(),
        }
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, IngestError> {
        let reader = &mut self.reader;
        let batch = reading(&self.path, || match reader {
            Reader::File(reader) => reader.next().transpose(),
            Reader::Stream(reader) => reader.next().transpose(),
        })?;
        if let (None, Reader::Stream(reader)) = (&batch, &mut self.reader) {
            let ended =
                at_end(reader.get_mut()).map_err(|e| IngestError::io("read", &self.path, e))?;
            if let Err(reason) = ended {
                let reason = reason.to_owned();
                let path = self.path.clone();
                return Err(IngestError::Damaged { path, reason });
            }
        }
        Ok(batch)
    }

    /// Bytes that were read since this was asked before.
    fn newly_read(&mut self) -> u64 {
        let at = self.file.stream_position().unwrap_or(self.read);
        let newly = at.saturating_sub(self.read);
        self.read = self.read.max(at);
        newly
    }
}

/// Whether a stream that has no more batches ended with its mark, and the file with it: else rows may be missing.
fn at_end(stream: &mut BufReader<File>) -> io::Result<Result<(), &'static str>> {
    let end = stream.stream_position()?;
    let bytes = stream.seek(SeekFrom::End(0))?;
    if end < bytes {
        return Ok(Err(
            "something follows the end of its stream; give each stream in a file of its own",
        ));
    }
    let mut mark = [0; END.len()];
    stream.seek(SeekFrom::Start(bytes.saturating_sub(mark.len() as u64)))?;
    stream.read_exact(&mut mark)?;
    Ok(match mark == END {
        true => Ok(()),
        false => Err("it is cut off: the mark of the stream's end is missing"),
    })
}

/// Lets the library read. Where it panics over bytes that make no sense, that is damage.
fn reading<T>(path: &Path, read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, IngestError> {
    let damaged = |reason: String| IngestError::Damaged {
        path: path.to_path_buf(),
        reason,
    };
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(outcome) => outcome.map_err(|error| damaged(error.to_string())),
        Err(_) => Err(damaged("its bytes make no sense".to_owned())),
    }
}

fn arrays(batch: &RecordBatch, wanted: &[Option<usize>]) -> Vec<Option<ArrayRef>> {
    let array = |column: &Option<usize>| column.map(|at| Arc::clone(batch.column(at)));
    wanted.iter().map(array).collect()
}

struct ArrowSource {
    batches: Batches,
    wanted: Arc<[Option<usize>]>,
    next_row: RowId,
    context: Arc<ReadContext>,
}

impl Source for ArrowSource {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        let Some(batch) = self.batches.next()? else {
            return Ok(None);
        };
        let part = ArrowPart {
            wanted: Arc::clone(&self.wanted),
            next_row: self.next_row,
            work: self.batches.newly_read(),
            context: Arc::clone(&self.context),
            given: 0,
            batch,
        };
        self.next_row = RowId(self.next_row.0 + part.batch.num_rows() as u64);
        Ok(Some(Box::new(part)))
    }
}

struct ArrowPart {
    batch: RecordBatch,
    wanted: Arc<[Option<usize>]>,
    /// Rows that were given.
    given: usize,
    next_row: RowId,
    /// Bytes of the file that the batch is.
    work: u64,
    context: Arc<ReadContext>,
}

impl Part for ArrowPart {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        let left = self.batch.num_rows() - self.given;
        if left == 0 {
            return Ok(None);
        }
        let rows = left.min(ROWS_PER_BATCH);
        let batch = self.batch.slice(self.given, rows);
        self.given += rows;
        let count = rows as u64;
        let numbers = (self.next_row.0..self.next_row.0 + count).collect();
        self.next_row = RowId(self.next_row.0 + count);
        let all = self.batch.num_rows() as u64;
        let progress = &self.context.progress;
        progress.advance(self.work * count / all);
        progress.read(0, batch.get_array_memory_size() as u64 * count / all);
        let arrays = arrays(&batch, &self.wanted);
        Ok(Some(normalise::to_rows(&arrays, numbers, &self.context)?))
    }
}
