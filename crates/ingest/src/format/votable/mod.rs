//! VOTable: the first table of the document, written as TABLEDATA, BINARY or BINARY2 within it.
//!
//! ```text
//!   <VOTABLE><RESOURCE><TABLE> FIELD FIELD ... <DATA><TABLEDATA> TR TR ...     header, then cells
//!                                              <DATA><BINARY2><STREAM> base64  header, then bytes
//! ```
//!
//! A document is read from its beginning by one thread, a row at a time, in the encoding that it declares. An array of numbers becomes a
//! text with blanks between them; so does a complex number. A text whose FIELD has the xtype `timestamp` is a time. A cell that is empty is
//! NULL, as is a number that its FIELD says stands for none. A table without DATA has no rows.

mod binary;
mod document;
mod encoding;
mod field;
mod header;
mod metered;
mod tabledata;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::ArrayRef;
use catalog::{Column, ColumnType};
use quick_xml::Reader;

use self::binary::BinaryRows;
use self::document::Document;
pub use self::document::open_document;
use self::field::{Field, Values};
pub(super) use self::header::described_columns;
use self::header::{Header, Serialization};
use self::metered::MeteredReader;
use self::tabledata::TableDataRows;
use super::{FieldDescription, Names, Part, ReadContext, Source, TableFile};
use crate::budget::DecodeBudget;
use crate::error::IngestError;
use crate::normalise;
use crate::rejected_rows::RowId;
use crate::row_batch::RowBatch;

const ROWS_PER_BATCH: usize = 8192;
/// Bytes of values from which on a batch has enough rows.
const BYTES_PER_BATCH: usize = 4 << 20;
/// Bytes that a cell takes on average: for a guess at the number of rows where the document does not say it.
const BYTES_OF_A_CELL: u64 = 16;

/// A document, from where something is read on.
type Xml = Reader<MeteredReader>;

/// A VOTable whose header has been read.
pub(crate) struct VoTableFile {
    path: PathBuf,
    bytes: u64,
    header: Header,
    budget: DecodeBudget,
}

impl VoTableFile {
    pub(crate) fn open(path: &Path, budget: &DecodeBudget) -> Result<Self, IngestError> {
        let metadata = std::fs::metadata(path).map_err(|e| IngestError::io("open", path, e))?;
        let (_, header) = Header::read(path, budget)?;
        Ok(Self {
            path: path.to_path_buf(),
            bytes: metadata.len(),
            header,
            budget: budget.clone(),
        })
    }

    /// For each column of the table the field of the document; `None` if it lacks it.
    fn map_columns(&self, columns: &[Column]) -> Result<Vec<Option<usize>>, IngestError> {
        let fields = Names::of(self.header.fields.iter().map(|field| field.name.as_str()));
        let find = |column: &Column| match fields.position(&column.name) {
            None if !column.nullable => Err(IngestError::layout(
                &self.path,
                format!("it lacks the column {:?}, which is NOT NULL", column.name),
            )),
            found => Ok(found),
        };
        columns.iter().map(find).collect()
    }

    fn rows(&self, number: usize, context: &Arc<ReadContext>) -> Result<VoTableRows, IngestError> {
        let mapped = self.map_columns(&context.columns)?;
        let (xml, mut header) = Header::read(&self.path, &self.budget)?;
        let document = Document {
            path: self.path.clone(),
        };
        let mut wanted = vec![false; header.fields.len()];
        for at in mapped.iter().flatten() {
            wanted[*at] = true;
        }
        let columns = context.columns.iter().zip(&mapped);
        keep_texts(
            &mut header.fields,
            columns.map(|(column, at)| (column.ty, *at)),
        );
        let cells: Box<dyn Cells> = match header.serialization {
            Serialization::NoData => Box::new(NoRows),
            Serialization::TableData => Box::new(TableDataRows::new(xml, document)),
            Serialization::Binary { nulls_flagged } => {
                let row_bytes = self.budget.row_bytes(usize::MAX);
                Box::new(BinaryRows::new(xml, document, nulls_flagged, row_bytes))
            }
        };
        Ok(VoTableRows {
            cells,
            wanted,
            fields: header.fields,
            mapped,
            next_row: RowId::new(number, 1),
            context: context.clone(),
            ended: false,
            noted_latin1: 0,
            bytes: self.bytes,
        })
    }
}

impl TableFile for VoTableFile {
    fn columns(&self) -> Result<Vec<Column>, IngestError> {
        Ok(self.header.fields.iter().map(Field::column).collect())
    }

    fn described(&self, column: usize) -> Option<FieldDescription> {
        self.header
            .fields
            .get(column)
            .map(|field| field.described.clone())
    }

    fn shape(&self, column: usize) -> Option<&str> {
        self.header.fields.get(column)?.shape()
    }

    fn descriptions(&self) -> Vec<(String, FieldDescription)> {
        let fields = self.header.fields.iter();
        fields
            .map(|field| (field.name.clone(), field.described.clone()))
            .collect()
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

/// Leaves texts that the document says are times as they are, where they do not go into a column of times.
fn keep_texts(fields: &mut [Field], into: impl Iterator<Item = (ColumnType, Option<usize>)>) {
    let mut is_time = vec![false; fields.len()];
    for (ty, field) in into {
        if let Some(field) = field {
            is_time[field] = ty == ColumnType::Timestamp;
        }
    }
    for (field, is_time) in fields.iter_mut().zip(is_time) {
        field.is_time &= is_time;
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

    /// How many texts so far were no UTF-8 and were taken as Latin-1.
    fn latin1_values(&self) -> u64 {
        0
    }
}

/// The cells of a table without DATA.
struct NoRows;

impl Cells for NoRows {
    fn next_row(&mut self, _: &[Field], _: &[bool], _: &mut [Values]) -> Result<bool, IngestError> {
        Ok(false)
    }
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
    /// How many texts that were taken as Latin-1 the context knows of.
    noted_latin1: u64,
    /// The work of the document, for when it is done.
    bytes: u64,
}

impl Part for VoTableRows {
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError> {
        let mut values: Vec<Values> = self.fields.iter().map(Values::of).collect();
        let mut count = 0;
        while count < ROWS_PER_BATCH && !self.ended && !is_enough(count, &values) {
            let more = self
                .cells
                .next_row(&self.fields, &self.wanted, &mut values)?;
            self.ended = !more;
            count += usize::from(more);
        }
        let latin1 = self.cells.latin1_values();
        self.context.note_latin1(latin1 - self.noted_latin1);
        self.noted_latin1 = latin1;
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

/// Whether so many rows are enough for a batch, by what their values take.
fn is_enough(rows: usize, values: &[Values]) -> bool {
    let texts: usize = values.iter().map(Values::text_bytes).sum();
    texts + rows * values.len() * size_of::<f64>() >= BYTES_PER_BATCH
}

#[cfg(test)]
mod tests;
