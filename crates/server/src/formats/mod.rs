//! Writers for tables sent over HTTP: VOTable, CSV, TSV, JSON, and files in Parquet and FITS, batch by batch.
//!
//! A [`TableWriter`] is given the beginning, each batch and the end of a table, and appends bytes to a buffer; it retains at most a few
//! bytes of the rows. To add a format, add a file here and a variant of [`Format`].

mod binary2;
mod columns;
mod delimited;
mod file;
mod json;
mod votable;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use sql::ErrorCode;

use crate::ClientError;

pub(crate) use columns::{Role, TableColumn};
pub(crate) use file::{FileWriter, SharedBuffer, cannot_be_written};
pub(crate) use votable::{error_document, metadata_document};

/// The format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// VOTable, values in BINARY2.
    Binary2,
    /// VOTable, values as elements of XML.
    TableData,
    /// Comma-separated values with a line of names.
    Csv,
    /// Tab-separated values with a line of names.
    Tsv,
    /// An object with the columns' descriptions and an array for each row.
    Json,
}

/// What clients call the formats, in RESPONSEFORMAT.
const NAMES: [(&str, Format); 11] = [
    ("votable", Format::Binary2),
    ("votable/b2", Format::Binary2),
    ("application/x-votable+xml", Format::Binary2),
    ("text/xml", Format::Binary2),
    ("votable/td", Format::TableData),
    ("csv", Format::Csv),
    ("text/csv", Format::Csv),
    ("tsv", Format::Tsv),
    ("text/tab-separated-values", Format::Tsv),
    ("json", Format::Json),
    ("application/json", Format::Json),
];

impl Format {
    /// The format of this name, or of this media type with its parameters (RFC 9110, section 8.3.1), without regard to case.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let plain = name.to_ascii_lowercase();
        let mut parts = plain.split(';').map(str::trim);
        let kind = parts.next()?;
        let (_, format) = *NAMES.iter().find(|(known, _)| *known == kind)?;
        let mut parameters = parts.filter(|part| !part.is_empty());
        parameters.try_fold(format, |format, parameter| {
            let (name, value) = parameter.split_once('=')?;
            let value = value.trim();
            let quoted = value.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            format.with_parameter(name.trim(), quoted.unwrap_or(value))
        })
    }

    /// What a parameter of the media type, in lower case, makes of the format; what is done anyway changes nothing.
    fn with_parameter(self, name: &str, value: &str) -> Option<Self> {
        match (self, name, value) {
            (Self::Binary2 | Self::TableData, "serialization", "binary2") => Some(Self::Binary2),
            (Self::Binary2 | Self::TableData, "serialization", "tabledata") => {
                Some(Self::TableData)
            }
            (Self::Csv | Self::Tsv, "header", "present") => Some(self),
            (_, "charset", "utf-8" | "utf8") => Some(self),
            _ => None,
        }
    }

    /// Its media type.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Binary2 => "application/x-votable+xml",
            Self::TableData => "application/x-votable+xml;serialization=tabledata",
            Self::Csv => "text/csv;header=present;charset=utf-8",
            Self::Tsv => "text/tab-separated-values;header=present;charset=utf-8",
            Self::Json => "application/json",
        }
    }

    pub(crate) fn is_votable(self) -> bool {
        matches!(self, Self::Binary2 | Self::TableData)
    }
}

/// How a table ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableEnd<'a> {
    /// All rows were written.
    Whole,
    /// More rows exist than the client requested.
    Overflow,
    /// An error occurred before all rows were written. Only VOTable can express this.
    Failed(&'a str),
}

/// Writes one table: what stands before its rows, batches of these, what is left, and the end.
pub(crate) trait RowWriter: Send {
    /// Appends what stands before the rows.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// Appends the rows of a batch, whose columns are those of the table in their order.
    ///
    /// # Errors
    /// A column of a type that the format has no form for.
    fn rows(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ClientError>;

    /// Appends some of what the format has held back, once there are no more rows. Returns whether there is more.
    ///
    /// # Errors
    /// It cannot be written.
    fn more(&mut self, _: TableEnd<'_>, _: &mut Vec<u8>) -> Result<bool, ClientError> {
        Ok(false)
    }

    /// Appends what follows the rows. Returns whether the output tells how the table ended.
    fn end(&mut self, ending: TableEnd<'_>, out: &mut Vec<u8>) -> bool;
}

impl RowWriter for TableWriter<'_> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        TableWriter::begin(self, out);
    }

    fn rows(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ClientError> {
        TableWriter::rows(self, batch, out)
            .map_err(|error| ClientError::new(ErrorCode::INTERNAL, error.to_string()))
    }

    fn end(&mut self, ending: TableEnd<'_>, out: &mut Vec<u8>) -> bool {
        TableWriter::end(self, ending, out)
    }
}

/// Writes one table.
#[derive(Debug)]
pub(crate) struct TableWriter<'a> {
    format: Format,
    table: &'a str,
    columns: &'a [TableColumn],
    /// What is to be told beside the rows, where the format has a place for it.
    warnings: Vec<String>,
    /// Bytes of BINARY2 that do not yet make three.
    carry: Vec<u8>,
    /// Rows that were written.
    rows: u64,
}

impl<'a> TableWriter<'a> {
    /// Of a table of this name and these columns.
    pub(crate) fn new(format: Format, table: &'a str, columns: &'a [TableColumn]) -> Self {
        Self {
            format,
            table,
            columns,
            warnings: Vec::new(),
            carry: Vec::new(),
            rows: 0,
        }
    }

    /// The same with sentences that are told beside the rows.
    pub(crate) fn with_warnings(self, warnings: Vec<String>) -> Self {
        Self { warnings, ..self }
    }

    /// Appends what stands before the rows.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        match self.format {
            Format::Binary2 | Format::TableData => {
                votable::begin(self.format, self.table, self.columns, &self.warnings, out);
            }
            Format::Csv => delimited::begin(b',', self.columns, out),
            Format::Tsv => delimited::begin(b'\t', self.columns, out),
            Format::Json => json::begin(self.columns, out),
        }
    }

    /// Appends the rows of a batch, whose columns are those of the table in their order.
    ///
    /// # Errors
    /// A column of a type that the format has no form for.
    pub(crate) fn rows(
        &mut self,
        batch: &RecordBatch,
        out: &mut Vec<u8>,
    ) -> Result<(), ArrowError> {
        match self.format {
            Format::Binary2 => binary2::rows(self.columns, batch, &mut self.carry, out)?,
            Format::TableData => votable::rows(self.columns, batch, out)?,
            Format::Csv => delimited::rows(b',', self.columns, batch, out)?,
            Format::Tsv => delimited::rows(b'\t', self.columns, batch, out)?,
            Format::Json => json::rows(self.columns, batch, self.rows == 0, out)?,
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Appends what follows the rows. Returns whether the output tells how the table ended.
    pub(crate) fn end(&mut self, ending: TableEnd<'_>, out: &mut Vec<u8>) -> bool {
        match self.format {
            Format::Binary2 | Format::TableData => {
                binary2::rest(&mut self.carry, out);
                votable::end(self.format, ending, out);
                true
            }
            Format::Json => {
                json::end(ending, out);
                !matches!(ending, TableEnd::Failed(_))
            }
            Format::Csv | Format::Tsv => !matches!(ending, TableEnd::Failed(_)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_names_that_clients_know() {
        assert_eq!(Format::named("VOTable"), Some(Format::Binary2));
        let spaced = "application/x-votable+xml; serialization=TABLEDATA";
        assert_eq!(Format::named(spaced), Some(Format::TableData));
        assert_eq!(Format::named("text/csv; header=present"), Some(Format::Csv));
        assert_eq!(Format::named("fits"), None);
        for (name, format) in NAMES {
            assert_eq!(Format::named(name), Some(format));
        }
    }

    /// Media types with a charset, or with quotes, were not known, the service's own among them.
    #[test]
    fn media_types_may_have_parameters() {
        use Format::*;
        for format in [Binary2, TableData, Csv, Tsv, Json] {
            assert_eq!(Format::named(format.media_type()), Some(format));
        }
        for (name, format) in [
            (
                "application/x-votable+xml; serialization=\"TABLEDATA\"",
                TableData,
            ),
            (
                "application/x-votable+xml ; Serialization = \"binary2\" ;charset=UTF-8",
                Binary2,
            ),
            ("text/xml;charset=\"utf-8\"", Binary2),
            ("text/csv; charset=utf-8", Csv),
            ("text/csv;charset=UTF-8;header=PRESENT;", Csv),
            ("text/tab-separated-values;header=\"present\"", Tsv),
            ("application/json; charset=utf-8", Json),
        ] {
            assert_eq!(Format::named(name), Some(format), "{name}");
        }
        // What is not done is not said to be.
        for name in [
            "",
            ";",
            "text/csv;header=absent",
            "text/csv;charset=latin1",
            "text/csv;header",
            "text/csv;charset=\"utf-8",
            "text/csv;serialization=tabledata",
            "application/x-votable+xml;serialization=binary",
            "application/json;header=present",
        ] {
            assert_eq!(Format::named(name), None, "{name}");
        }
    }
}
