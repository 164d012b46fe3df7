//! VOTable: the first table of the document, written as TABLEDATA, BINARY or BINARY2 within it.
//!
//! ```text
//!   <VOTABLE><RESOURCE><TABLE> FIELD FIELD ... <DATA><TABLEDATA> TR TR ...     header, then cells
//!                                              <DATA><BINARY2><STREAM> base64  header, then bytes
//! ```
//!
//! A document is read from its beginning by one thread, a row at a time. An array of numbers becomes a text with
//! blanks between them; so does a complex number. A cell that is empty is NULL, as is a number that its FIELD says
//! stands for none.

mod binary;
mod field;
mod header;
mod tabledata;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::ArrayRef;
use catalog::Column;
use quick_xml::Reader;

use self::binary::BinaryRows;
use self::field::{Field, Values};
use self::header::{Header, Serialization};
use self::tabledata::TableDataRows;
use super::{Part, ReadContext, Source, TableFile};
use crate::error::IngestError;
use crate::normalise;
use crate::refusal::RowId;
use crate::row_batch::RowBatch;

const ROWS_PER_BATCH: usize = 8192;
/// Bytes that a cell takes on average: for a guess at the number of rows where the document does not say it.
const BYTES_OF_A_CELL: u64 = 16;

/// A document, from where something is read on.
type Xml = Reader<BufReader<File>>;

/// A VOTable whose header has been read.
pub(crate) struct VoTableFile {
    path: PathBuf,
    bytes: u64,
    header: Header,
}

impl VoTableFile {
    pub(crate) fn open(path: &Path) -> Result<Self, IngestError> {
        let metadata = std::fs::metadata(path).map_err(|e| IngestError::io("open", path, e))?;
        let (_, header) = Header::read(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            bytes: metadata.len(),
            header,
        })
    }

    /// For each column of the table the field of the document; `None` if it lacks it.
    fn map_columns(&self, columns: &[Column]) -> Result<Vec<Option<usize>>, IngestError> {
        let fields = &self.header.fields;
        let find = |column: &Column| {
            let same = |field: &Field| field.name.eq_ignore_ascii_case(&column.name);
            match fields.iter().position(same) {
                None if !column.nullable => Err(IngestError::layout(
                    &self.path,
                    format!("it lacks the column {:?}, which is NOT NULL", column.name),
                )),
                found => Ok(found),
            }
        };
        columns.iter().map(find).collect()
    }

    fn rows(&self, number: usize, context: &Arc<ReadContext>) -> Result<VoTableRows, IngestError> {
        let mapped = self.map_columns(&context.columns)?;
        let (xml, header) = Header::read(&self.path)?;
        let document = Document {
            path: self.path.clone(),
        };
        let cells: Box<dyn Cells> = match header.serialization {
            Serialization::TableData => Box::new(TableDataRows::new(xml, document)),
            Serialization::Binary { nulls_flagged } => {
                Box::new(BinaryRows::new(xml, document, nulls_flagged))
            }
        };
        Ok(VoTableRows {
            cells,
            wanted: (0..header.fields.len())
                .map(|at| mapped.contains(&Some(at)))
                .collect(),
            fields: header.fields,
            mapped,
            next_row: RowId::new(number, 1),
            context: context.clone(),
            ended: false,
            bytes: self.bytes,
        })
    }
}

impl TableFile for VoTableFile {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        Ok(self.header.fields.iter().map(Field::column).collect())
    }

    fn position(&self) -> Option<[String; 2]> {
        self.header.position()
    }

    fn estimated_rows(&self) -> u64 {
        let of_a_row = (self.header.fields.len() as u64).max(1) * BYTES_OF_A_CELL;
        self.header.rows.unwrap_or(self.bytes / of_a_row)
    }

    fn work(&self) -> u64 {
        self.bytes
    }

    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError> {
        Ok(Box::new(OnlyPart(Some(self.rows(number, context)?))))
    }

    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError> {
        let first = self.rows(0, context)?.next_batch()?;
        Ok(first.into_iter().collect())
    }
}

/// A document is its own only part.
struct OnlyPart(Option<VoTableRows>);

impl Source for OnlyPart {
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError> {
        Ok(self.0.take().map(|rows| Box::new(rows) as Box<dyn Part>))
    }
}

/// Where the cells of a table are read from.
trait Cells: Send {
    /// Puts the cells of the next row into the values of its fields, where `wanted`. `false` at the end of the table.
    fn next_row(
        &mut self,
        fields: &[Field],
        wanted: &[bool],
        values: &mut [Values],
    ) -> Result<bool, IngestError>;
}

/// The rows of a document on their way.
struct VoTableRows {
    cells: Box<dyn Cells>,
    fields: Vec<Field>,
    wanted: Vec<bool>,
    /// For each column of the table its field.
    mapped: Vec<Option<usize>>,
    next_row: RowId,
    context: Arc<ReadContext>,
    /// Whether the last row has been read.
    ended: bool,
    /// The work of the document, for when it is done.
    bytes: u64,
}

impl Part for VoTableRows {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        let mut values: Vec<Values> = self.fields.iter().map(Values::of).collect();
        let mut count = 0;
        while count < ROWS_PER_BATCH && !self.ended {
            let more = self
                .cells
                .next_row(&self.fields, &self.wanted, &mut values)?;
            self.ended = !more;
            count += usize::from(more);
        }
        if count == 0 {
            self.context
                .progress
                .advance(std::mem::take(&mut self.bytes));
            return Ok(None);
        }
        let arrays: Vec<ArrayRef> = values.into_iter().map(Values::finish).collect();
        let of_column = |field: &Option<usize>| field.map(|at| arrays[at].clone());
        let arrays: Vec<Option<ArrayRef>> = self.mapped.iter().map(of_column).collect();
        let end = self.next_row.0 + count as u64;
        let rows = (self.next_row.0..end).collect();
        self.next_row = RowId(end);
        let read = arrays.iter().flatten().map(|a| a.get_array_memory_size());
        self.context.progress.read(0, read.sum::<usize>() as u64);
        Ok(Some(normalise::to_rows(&arrays, rows, &self.context)?))
    }
}

/// A document, in messages.
struct Document {
    path: PathBuf,
}

impl Document {
    /// What is wrong at a byte of the document, told with its line.
    fn wrong(&self, byte: u64, what: &str) -> IngestError {
        let line = File::open(&self.path).and_then(|file| {
            let mut before = Vec::new();
            file.take(byte).read_to_end(&mut before)?;
            Ok(memchr::memchr_iter(b'\n', &before).count() + 1)
        });
        match line {
            Ok(line) => IngestError::Unreadable(format!("{}:{line}: {what}", self.path.display())),
            Err(error) => IngestError::io("read", &self.path, error),
        }
    }
}

#[cfg(test)]
mod tests;
