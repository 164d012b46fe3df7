//! The formats in which results are written to files, pipes and HTTP clients: CSV, TSV, lines of JSON, Parquet, Arrow and FITS.
//!
//! May depend on Arrow, Parquet and an XML library alone; knows nothing of queries. Invariant: whatever is written in CSV or TSV is read back by
//! `meridian load` as it was, NULL and the empty text included. (Lists are written as texts.)

mod delimited;
mod field_element;
mod fits;
pub mod nested;
mod plain_texts;
mod shown;
mod value_form;
mod voparquet;

use std::collections::HashSet;
use std::io::{self, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::{LineDelimited, WriterBuilder};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use delimited::DelimitedWriter;
pub use field_element::{FieldElement, attribute, escaped};
use fits::FitsWriter;
use plain_texts::{plain_batches, plain_schema};
pub use value_form::{ItemForm, ValueForm};
pub use voparquet::{TableWords, votable_metadata};

/// Encoded bytes of a row group of Parquet that are held in memory before they are written.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// A format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ResultFormat {
    /// Comma-separated values with a header (RFC 4180); NULL is an empty field and empty text is `""`.
    Csv,
    /// Tab-separated values with a header, as MySQL writes them: backslash escapes, NULL is `\N`.
    Tsv,
    /// One JSON object a line. Of columns with the same name readers see the last.
    JsonLines,
    /// Apache Parquet, compressed with Zstandard.
    Parquet,
    /// An Apache Arrow IPC stream.
    Arrow,
    /// A FITS file with a binary table. An empty text comes back as NULL.
    Fits,
}

impl ResultFormat {
    /// All formats.
    pub const ALL: [Self; 6] = [
        Self::Csv,
        Self::Tsv,
        Self::JsonLines,
        Self::Parquet,
        Self::Arrow,
        Self::Fits,
    ];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Tsv => "tsv",
            Self::JsonLines => "jsonl",
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::Fits => "fits",
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv;header=present;charset=utf-8",
            Self::Tsv => "text/tab-separated-values;header=present;charset=utf-8",
            Self::JsonLines => "application/jsonl",
            Self::Parquet => "application/vnd.apache.parquet",
            Self::Arrow => "application/vnd.apache.arrow.stream",
            Self::Fits => "application/fits",
        }
    }
}

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output cannot be written to.
    #[error(transparent)]
    Io(io::Error),
    /// A value has no form in the format.
    #[error(transparent)]
    Arrow(ArrowError),
    /// A column has no form in the format.
    #[error("{0}")]
    Unfit(String),
    /// A value has no form in Parquet.
    #[error(transparent)]
    Parquet(#[from] ParquetError),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ArrowError> for WriteError {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::IoError(_, error) => Self::Io(error),
            other => Self::Arrow(other),
        }
    }
}

/// Rejects columns of one name in a format whose readers go by names: of two such columns of Parquet some see one alone, and others none.
///
/// # Errors
/// Two columns have one name.
pub fn check_names(format: ResultFormat, schema: &Schema) -> Result<(), WriteError> {
    if format != ResultFormat::Parquet {
        return Ok(());
    }
    let mut names = HashSet::new();
    let mut fields = schema.fields().iter();
    match fields.find(|field| !names.insert(field.name())) {
        None => Ok(()),
        Some(twice) => Err(WriteError::Unfit(format!(
            "two columns are named {0}, which readers of Parquet cannot tell apart: give one another name, as in {0} AS {0}_2",
            twice.name()
        ))),
    }
}

/// Writes one result in a format.
pub struct ResultWriter<W: Write + Send>(Encoder<W>);

enum Encoder<W: Write + Send> {
    Delimited(DelimitedWriter<W>),
    Json(arrow::json::Writer<W, LineDelimited>),
    Parquet(Box<ArrowWriter<W>>),
    Arrow(Box<StreamWriter<W>>),
    Fits(Box<FitsWriter<W>>),
}

impl<W: Write + Send> ResultWriter<W> {
    /// Begins a result of these columns.
    ///
    /// # Errors
    /// The output cannot be written to, or a column has no form in the format.
    pub fn new(format: ResultFormat, schema: &SchemaRef, out: W) -> Result<Self, WriteError> {
        Ok(Self(match format {
            ResultFormat::Csv => Encoder::Delimited(DelimitedWriter::csv(out, schema)?),
            ResultFormat::Tsv => Encoder::Delimited(DelimitedWriter::tsv(out, schema)?),
            ResultFormat::JsonLines => {
                let builder = WriterBuilder::new().with_explicit_nulls(true);
                Encoder::Json(builder.build(out))
            }
            ResultFormat::Parquet => {
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .set_key_value_metadata(Some(votable_metadata(None, schema)))
                    .build();
                let schema = plain_schema(schema);
                let writer = ArrowWriter::try_new(out, schema, Some(properties))?;
                Encoder::Parquet(Box::new(writer))
            }
            ResultFormat::Arrow => {
                let schema = plain_schema(schema);
                Encoder::Arrow(Box::new(StreamWriter::try_new(out, &schema)?))
            }
            ResultFormat::Fits => Encoder::Fits(Box::new(FitsWriter::new(schema, out)?)),
        }))
    }

    /// Writes rows.
    ///
    /// # Errors
    /// The output cannot be written to, or a value has no form in the format.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        match &mut self.0 {
            Encoder::Delimited(writer) => writer.write(batch)?,
            Encoder::Json(writer) => writer.write(batch)?,
            Encoder::Parquet(writer) => {
                for batch in plain_batches(batch)? {
                    writer.write(&batch)?;
                    if writer.in_progress_size() >= ROW_GROUP_BYTES {
                        writer.flush()?;
                    }
                }
            }
            Encoder::Arrow(writer) => {
                for batch in plain_batches(batch)? {
                    writer.write(&shown::only_shown(&batch)?)?;
                }
            }
            Encoder::Fits(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    /// Writes some of what a format holds back until all rows are there; whether there is more. [`finish`](Self::finish) writes all of it.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn write_more(&mut self) -> Result<bool, WriteError> {
        match &mut self.0 {
            Encoder::Fits(writer) => writer.more(),
            _ => Ok(false),
        }
    }

    /// Notes, where the format has a place for it, that there are more rows than are written.
    pub fn cut_off(&mut self) {
        match &mut self.0 {
            Encoder::Fits(writer) => writer.cut_off(),
            Encoder::Parquet(writer) => {
                let overflow = KeyValue::new("overflow".to_owned(), "true".to_owned());
                writer.append_key_value_metadata(overflow);
            }
            Encoder::Delimited(_) | Encoder::Json(_) | Encoder::Arrow(_) => {}
        }
    }

    /// Writes what is left, and returns the output. A result that is not finished is not whole.
    ///
    /// # Errors
    /// The output cannot be written to.
    pub fn finish(self) -> Result<W, WriteError> {
        Ok(match self.0 {
            Encoder::Delimited(writer) => writer.into_inner(),
            Encoder::Json(mut writer) => {
                writer.finish()?;
                writer.into_inner()
            }
            Encoder::Parquet(writer) => writer.into_inner()?,
            Encoder::Fits(writer) => writer.finish()?,
            Encoder::Arrow(mut writer) => {
                writer.finish()?;
                writer.into_inner()?
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, NullArray, StringArray};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn written(format: ResultFormat) -> Vec<u8> {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some(""), None]));
        let batch = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let mut writer = ResultWriter::new(format, &batch.schema(), Vec::new()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn columns_of_one_name_are_told() {
        let fields = ["a", "b", "a"].map(|name| Field::new(name, DataType::Int64, true));
        let schema = Schema::new(fields.to_vec());
        let error = check_names(ResultFormat::Parquet, &schema).unwrap_err();
        assert!(
            error.to_string().contains("two columns are named a"),
            "{error}"
        );
        assert!(check_names(ResultFormat::Arrow, &schema).is_ok());
        assert!(check_names(ResultFormat::Parquet, &schema.project(&[0, 1]).unwrap()).is_ok());
    }

    #[test]
    fn null_and_empty_text_stay_apart() {
        let text = |format| String::from_utf8(written(format)).unwrap();
        assert_eq!(
            text(ResultFormat::Csv),
            "n,t\n9223372036854775807,\"\"\n,\n"
        );
        assert_eq!(
            text(ResultFormat::Tsv),
            "n\tt\n9223372036854775807\t\n\\N\t\\N\n"
        );
        assert_eq!(
            text(ResultFormat::JsonLines),
            "{\"n\":9223372036854775807,\"t\":\"\"}\n{\"n\":null,\"t\":null}\n"
        );
    }

    /// A column of the type NULL, as `SELECT NULL` has it, was written as empty texts: it has no bitmap of its NULLs.
    #[test]
    fn columns_of_nulls_alone_are_null() {
        let nothing: ArrayRef = Arc::new(NullArray::new(2));
        let batch = RecordBatch::try_from_iter([("a", nothing.clone()), ("b", nothing)]).unwrap();
        let written = |format| {
            let mut writer = ResultWriter::new(format, &batch.schema(), Vec::new()).unwrap();
            writer.write(&batch).unwrap();
            String::from_utf8(writer.finish().unwrap()).unwrap()
        };
        assert_eq!(written(ResultFormat::Csv), "a,b\n,\n,\n");
        assert_eq!(written(ResultFormat::Tsv), "a\tb\n\\N\t\\N\n\\N\t\\N\n");
    }

    #[test]
    fn binary_formats_are_known_by_their_beginning_and_end() {
        let parquet = written(ResultFormat::Parquet);
        assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
        let arrow = written(ResultFormat::Arrow);
        assert!(arrow.starts_with(&[0xff; 4]) && arrow.ends_with(&[0; 4]));
    }
}
