//! FITS: a binary table, the first of the file or the one that is asked for (FITS Standard 4.0, section 7.3).
//!
//! ```text
//!   primary header, its data │ header of an extension, its data │ ... │ header of the table │ rows, all equally long │ heap
//! ```
//!
//! Headers are read by the crate `fitsio-pure`. Rows are read here: that crate takes a file as one slice of memory and knows no NULL of
//! truths and integers, and the arithmetic with sizes that a header declares has to be checked for files of strangers.
//!
//! A row's place follows from its number, so that any number of threads read parts of a file; a gzipped one is read from front to end.
//! An array of numbers becomes a text with blanks between them; so does a complex number. A text whose TXTYPn is `timestamp` is a time. A text
//! that is empty is NULL, as is a number that TNULLn says stands for none.

mod cells;
mod column;
mod header;
mod headers;

use std::cell::Cell;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::ArrayRef;
use catalog::{Column, ColumnType};
use flate2::read::MultiGzDecoder;

pub use self::headers::FitsHeaders;

use self::cells::{Heap, Rows};
use self::column::FitsColumn;
use self::header::Table;
use super::{FieldDescription, Names, Part, ReadContext, Source, TableFile};
use crate::budget::{DecodeBudget, DecodeMeter};
use crate::error::IngestError;
use crate::normalise;
use crate::rejected_rows::RowId;
use crate::row_batch::RowBatch;

/// Rows of a batch, and the bytes of a file that it takes at most.
const ROWS_PER_BATCH: u64 = 8192;
const BYTES_PER_BATCH: u64 = 4 << 20;
/// Bytes of the longest row.
const MOST_ROW_BYTES: usize = 1 << 28;
/// Batches of a part.
const BATCHES_OF_A_PART: u64 = 16;
/// Places from which rows are sampled, and rows of each.
const SAMPLED_PLACES: u64 = 32;
const SAMPLED_ROWS: u64 = 2048;

/// A FITS file whose table was found.
pub(crate) struct FitsFile {
    path: PathBuf,
    is_gzipped: bool,
    table: Arc<Table>,
    budget: DecodeBudget,
}

impl FitsFile {
    /// Looks for the table: the first of the file, or that of the extension's name or number.
    pub(crate) fn open(
        path: &Path,
        is_gzipped: bool,
        extension: Option<&str>,
        budget: &DecodeBudget,
    ) -> Result<Self, IngestError> {
        let file = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
        let length = file
            .metadata()
            .map_err(|e| IngestError::io("read", path, e))?
            .len();
        let mut meter = budget.meter(path);
        let mut table = match is_gzipped {
            true => {
                let mut unpacked = BufReader::new(MultiGzDecoder::new(BufReader::new(file)));
                header::find(
                    &mut header::Passing(&mut unpacked),
                    path,
                    extension,
                    &mut meter,
                )?
            }
            false => header::find(&mut BufReader::new(file), path, extension, &mut meter)?,
        };
        // A header may promise more than there is.
        table.heap.end = table.heap.end.min(length.saturating_sub(table.begin));
        budget.check_columns(path, table.columns.len())?;
        let most = budget.row_bytes(MOST_ROW_BYTES);
        if table.row_bytes > most as u64 {
            let reason = format!(
                "one of its rows takes {} bytes, and may take {most}",
                table.row_bytes
            );
            return Err(IngestError::too_large(path, reason));
        }
        let found = Self {
            path: path.to_path_buf(),
            is_gzipped,
            table: Arc::new(table),
            budget: budget.clone(),
        };
        match is_gzipped {
            true => found.check_unpacked()?,
            false => found.check_length(length)?,
        }
        Ok(found)
    }

    /// A file that ends before its last row is cut off.
    fn check_length(&self, length: u64) -> Result<(), IngestError> {
        let table = &self.table;
        let whole = (length.saturating_sub(table.begin)) / table.row_bytes.max(1);
        if whole < table.rows {
            let reason = format!(
                "it has {} rows by its header and ends behind {whole} of them",
                table.rows
            );
            return Err(damaged(&self.path, reason));
        }
        Ok(())
    }

    /// What only a file that is not packed can have.
    fn check_unpacked(&self) -> Result<(), IngestError> {
        let arrays = self.table.columns.iter().find(|column| column.is_in_heap());
        match arrays {
            None => Ok(()),
            Some(column) => Err(IngestError::layout(
                &self.path,
                format!(
                    "its column {:?} has arrays of different lengths, which are behind the rows: unpack the file first, with gunzip",
                    column.name
                ),
            )),
        }
    }

    /// For each column of the table the column of the file; `None` if the file lacks it.
    fn map_columns(&self, columns: &[Column]) -> Result<Vec<Option<usize>>, IngestError> {
        let names = Names::of(self.table.columns.iter().map(|column| column.name.as_str()));
        let find = |column: &Column| match names.position(&column.name) {
            None if !column.nullable => Err(IngestError::layout(
                &self.path,
                format!("it lacks the column {:?}, which is NOT NULL", column.name),
            )),
            found => Ok(found),
        };
        columns.iter().map(find).collect()
    }

    /// What reads rows.
    fn reader(&self, context: &Arc<ReadContext>) -> Result<RowReader, IngestError> {
        let file = File::open(&self.path).map_err(|e| IngestError::io("open", &self.path, e))?;
        let bytes = match self.is_gzipped {
            false => Bytes::Plain(file),
            true => {
                let mut unpacked = BufReader::new(MultiGzDecoder::new(BufReader::new(file)));
                let begin = self.table.begin;
                let skipped = std::io::copy(&mut (&mut unpacked).take(begin), &mut std::io::sink());
                match skipped {
                    Ok(skipped) if skipped == begin => {}
                    Ok(_) => return Err(damaged(&self.path, "it ends before its rows".to_owned())),
                    Err(error) => return Err(IngestError::io("read", &self.path, error)),
                }
                Bytes::Unpacked(Box::new(unpacked))
            }
        };
        Ok(RowReader {
            path: self.path.clone(),
            table: Arc::clone(&self.table),
            mapped: self.map_columns(&context.columns)?.into(),
            bytes,
            buffer: Vec::new(),
            meter: self.budget.meter(&self.path),
            longest_text: self.budget.row_bytes(usize::MAX) as u64,
            context: Arc::clone(context),
        })
    }
}

impl TableFile for FitsFile {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        Ok(self.table.columns.iter().map(FitsColumn::column).collect())
    }

    fn described(&self, column: usize) -> Option<FieldDescription> {
        let column = self.table.columns.get(column)?;
        Some(column.described.clone())
    }

    fn descriptions(&self) -> Vec<(String, FieldDescription)> {
        let columns = self.table.columns.iter();
        columns
            .map(|column| (column.name.clone(), column.described.clone()))
            .collect()
    }

    fn shape(&self, column: usize) -> Option<&str> {
        self.table.columns.get(column)?.shape()
    }

    fn position(&self) -> Option<[String; 2]> {
        let columns = self.table.columns.iter();
        let described = columns.map(|it| (it.name.as_str(), it.described.ucd.as_str()));
        super::position_by_ucd(described)
    }

    fn estimated_rows(&self) -> u64 {
        self.table.rows
    }

    fn work(&self) -> u64 {
        self.table.bytes()
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        let batch = rows_of_a_batch(self.table.row_bytes);
        Ok(Box::new(FitsSource {
            number,
            next_row: 0,
            rows: self.table.rows,
            // What is unpacked comes from front to end, as one part.
            rows_of_a_part: match self.is_gzipped {
                true => self.table.rows.max(1),
                false => batch * BATCHES_OF_A_PART,
            },
            batch,
            open: self.opener(context),
        }))
    }

    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        let mut reader = self.reader(context)?;
        let rows = self.table.rows;
        let batch = SAMPLED_ROWS.min(rows_of_a_batch(self.table.row_bytes));
        let places = match self.is_gzipped {
            true => 1,
            false => SAMPLED_PLACES,
        };
        let step = rows.div_ceil(places).max(batch).max(1);
        let mut batches = Vec::new();
        let mut begin = 0;
        while begin < rows && (batches.len() as u64) < places {
            let count = batch.min(rows - begin);
            batches.push(reader.read(begin, count, 0)?);
            begin += step;
        }
        Ok(batches)
    }
}

impl FitsFile {
    /// What opens the file anew for each part.
    fn opener(&self, context: &Arc<ReadContext>) -> Opener {
        let file = Self {
            path: self.path.clone(),
            is_gzipped: self.is_gzipped,
            table: Arc::clone(&self.table),
            budget: self.budget.clone(),
        };
        let context = Arc::clone(context);
        Box::new(move || file.reader(&context))
    }
}

type Opener = Box<dyn Fn() -> Result<RowReader, IngestError> + Send>;

fn rows_of_a_batch(row_bytes: u64) -> u64 {
    (BYTES_PER_BATCH / row_bytes.max(1)).clamp(1, ROWS_PER_BATCH)
}

/// A file that is being read.
struct FitsSource {
    number: usize,
    next_row: u64,
    rows: u64,
    rows_of_a_part: u64,
    batch: u64,
    open: Opener,
}

impl Source for FitsSource {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        if self.next_row >= self.rows {
            return Ok(None);
        }
        let begin = self.next_row;
        let end = begin.saturating_add(self.rows_of_a_part).min(self.rows);
        self.next_row = end;
        Ok(Some(Box::new(FitsPart {
            reader: (self.open)()?,
            rows: begin..end,
            batch: self.batch,
            number: self.number,
        })))
    }
}

/// Consecutive rows of a file.
struct FitsPart {
    reader: RowReader,
    rows: std::ops::Range<u64>,
    batch: u64,
    number: usize,
}

impl Part for FitsPart {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let begin = self.rows.start;
        let count = self.batch.min(self.rows.end - begin);
        self.rows.start += count;
        let batch = self.reader.read(begin, count, self.number)?;
        let bytes = count * self.reader.table.row_bytes;
        let progress = &self.reader.context.progress;
        progress.advance(bytes);
        progress.read(0, bytes);
        Ok(Some(batch))
    }
}

/// Where bytes come from.
enum Bytes {
    /// From any place.
    Plain(File),
    /// From one row to the next.
    Unpacked(Box<dyn Read + Send>),
}

/// Reads rows of a file's table.
struct RowReader {
    path: PathBuf,
    table: Arc<Table>,
    /// For each column of the loaded table that of the file.
    mapped: Arc<[Option<usize>]>,
    bytes: Bytes,
    buffer: Vec<u8>,
    meter: DecodeMeter,
    /// Bytes that the text of an array may have.
    longest_text: u64,
    context: Arc<ReadContext>,
}

impl RowReader {
    /// So many rows from a row on, which is the next one where the file is unpacked.
    fn read(&mut self, begin: u64, count: u64, number: usize) -> Result<RowBatch, IngestError> {
        let table = Arc::clone(&self.table);
        let bytes = usize::try_from(count * table.row_bytes).map_err(|_| self.too_long(begin))?;
        self.meter.add(bytes as u64)?;
        self.buffer.resize(bytes, 0);
        let read = match &mut self.bytes {
            Bytes::Plain(file) => {
                file.read_exact_at(&mut self.buffer, table.begin + begin * table.row_bytes)
            }
            Bytes::Unpacked(unpacked) => unpacked.read_exact(&mut self.buffer),
        };
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => damaged(
                &self.path,
                format!("it has {} rows by its header and ends before", table.rows),
            ),
            _ => IngestError::io("read", &self.path, error),
        })?;
        let heap = match &self.bytes {
            Bytes::Plain(file) => Some(Heap {
                file,
                begin: table.begin + table.heap.start,
                // A file may end before the heap begins.
                bytes: table.heap.end.saturating_sub(table.heap.start),
            }),
            Bytes::Unpacked(_) => None,
        };
        let rows = Rows {
            path: &self.path,
            latin1: Cell::new(0),
            longest_text: self.longest_text,
            bytes: &self.buffer,
            row_bytes: bytes / count.max(1) as usize,
            count: count as usize,
            heap,
            first: begin + 1,
        };
        let mut arrays: Vec<Option<ArrayRef>> = Vec::with_capacity(self.mapped.len());
        for (wanted, column) in self.context.columns.iter().zip(self.mapped.iter()) {
            let column = column.map(|at| &table.columns[at]);
            arrays.push(match column {
                None => None,
                // Where a schema declares another type, they are the texts that they are.
                Some(column) if column.is_time && wanted.ty == ColumnType::Timestamp => {
                    Some(rows.times(column, &mut self.meter)?)
                }
                Some(column) => Some(rows.cells(column, &mut self.meter)?),
            });
        }
        self.context.note_latin1(rows.latin1.get());
        let first = RowId::new(number, begin + 1).0;
        let numbers = (first..first + count).collect();
        normalise::to_rows(&arrays, numbers, &self.context)
    }

    fn too_long(&self, row: u64) -> IngestError {
        damaged(&self.path, format!("its row {} is too long", row + 1))
    }
}

fn damaged(path: &Path, reason: String) -> IngestError {
    IngestError::Damaged {
        path: path.to_path_buf(),
        reason,
    }
}

#[cfg(test)]
mod tests;
