//! The files of a catalogue: the rows of a tile, and what all files have in common.

use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use catalog::Table;
use engine::{DESCRIPTION, QueryResult, UCD, UNIT, UTYPE, XTYPE};
use futures::StreamExt;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, ParquetMetaData, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::WriterProperties;
use result_formats::{TableWords, votable_metadata};

use crate::catalogue::CELL_COLUMN;
use crate::error::HatsError;

/// Encoded bytes of a row group that are held in memory before they are written.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Writes the rows of a tile.
pub struct TileWriter<W: Write + Send> {
    writer: ArrowWriter<W>,
    schema: SchemaRef,
    rows: u64,
}

impl<W: Write + Send> TileWriter<W> {
    /// Begins the file of a tile of a table, whose rows are this result.
    ///
    /// # Errors
    /// A column has no form in Parquet.
    pub fn new(table: &Table, result: &QueryResult, out: W) -> Result<Self, HatsError> {
        let schema = file_schema(&result.schema);
        Ok(Self {
            writer: writer(table, &schema, out)?,
            schema,
            rows: 0,
        })
    }

    /// Writes all rows of a result. Returns how many there are, and the file's footer.
    ///
    /// # Errors
    /// They cannot be read or written.
    pub async fn write_all(
        mut self,
        mut result: QueryResult,
    ) -> Result<(u64, ParquetMetaData), HatsError> {
        while let Some(batch) = result.batches.next().await {
            let batch = as_in_file(&batch?, &self.schema)?;
            self.rows += batch.num_rows() as u64;
            self.write(&batch)?;
        }
        let footer = self.writer.close()?;
        Ok((self.rows, footer))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ParquetError> {
        self.writer.write(batch)?;
        if self.writer.in_progress_size() >= ROW_GROUP_BYTES {
            self.writer.flush()?;
        }
        Ok(())
    }
}

fn writer<W: Write + Send>(
    table: &Table,
    schema: &SchemaRef,
    out: W,
) -> Result<ArrowWriter<W>, ParquetError> {
    let words = TableWords {
        name: &table.spec.name,
        description: table.metadata.description.as_deref(),
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(votable_metadata(Some(words), schema)))
        .build();
    ArrowWriter::try_new(out, Arc::clone(schema), Some(properties))
}

/// The columns of the files: what is said of them, and types that all readers know.
fn file_schema(schema: &Schema) -> SchemaRef {
    let field = |field: &FieldRef| {
        let ty = match field.data_type() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            other => other.clone(),
        };
        let is_nullable = field.name() != CELL_COLUMN;
        let said = field.metadata().iter();
        let said = said
            .filter(|(word, _)| [UNIT, UCD, UTYPE, XTYPE, DESCRIPTION].contains(&word.as_str()));
        let said = said
            .map(|(word, text)| (word.clone(), text.clone()))
            .collect();
        Field::new(field.name(), ty, is_nullable).with_metadata(said)
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(field).collect::<Vec<_>>(),
    ))
}

fn as_in_file(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, HatsError> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(
        |(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast(column, field.data_type()),
        },
    );
    let made = columns
        .collect::<Result<Vec<_>, _>>()
        .and_then(|columns| RecordBatch::try_new(Arc::clone(schema), columns));
    made.map_err(|error| HatsError::Unfit(error.to_string()))
}

/// The file `_common_metadata` of a table: the columns of a result, without rows.
///
/// # Errors
/// A column has no form in Parquet.
pub fn common_metadata(table: &Table, result: &QueryResult) -> Result<Vec<u8>, HatsError> {
    Ok(writer(table, &file_schema(&result.schema), Vec::new())?.into_inner()?)
}

/// The footers of the files of a catalogue, for the file `_metadata`.
#[derive(Debug, Default)]
pub(crate) struct Footers {
    /// The first one, with the row groups of all.
    first: Option<ParquetMetaData>,
    groups: Vec<RowGroupMetaData>,
    rows: u64,
}

impl Footers {
    /// Column chunks so far.
    pub fn column_chunks(&self) -> usize {
        self.groups.iter().map(RowGroupMetaData::num_columns).sum()
    }

    /// Adds the footer of the file of this path below `dataset`.
    pub fn add(&mut self, footer: ParquetMetaData, path: &str) -> Result<(), ParquetError> {
        for group in footer.row_groups() {
            self.groups.push(in_file(group, path)?);
        }
        self.rows += u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0);
        self.first.get_or_insert(footer);
        Ok(())
    }

    /// Writes the file.
    pub fn write(self, mut out: impl Write) -> Result<(), ParquetError> {
        let Some(first) = self.first else {
            return Ok(());
        };
        let file = first.file_metadata();
        let file = FileMetaData::new(
            file.version(),
            i64::try_from(self.rows).unwrap_or(i64::MAX),
            file.created_by().map(str::to_owned),
            file.key_value_metadata().cloned(),
            file.schema_descr_ptr(),
            file.column_orders().cloned(),
        );
        let all = ParquetMetaData::new(file, self.groups);
        out.write_all(b"PAR1")?;
        ParquetMetaDataWriter::new(out, &all).finish()
    }
}

/// A row group as another file tells of it. What lies beside the rows (indexes of pages) is not told.
fn in_file(group: &RowGroupMetaData, path: &str) -> Result<RowGroupMetaData, ParquetError> {
    let columns = group.columns().iter().map(|column| {
        (column.clone().into_builder())
            .set_file_path(path.to_owned())
            .set_offset_index_offset(None)
            .set_offset_index_length(None)
            .set_column_index_offset(None)
            .set_column_index_length(None)
            .build()
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let group = group.clone().into_builder();
    group.set_column_metadata(columns).build()
}
