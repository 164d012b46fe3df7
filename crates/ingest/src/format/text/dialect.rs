//! How a text file is written: separators, quotes, escapes, header; found out from its beginning.

use std::collections::HashMap;
use std::path::Path;

use catalog::Column;

use super::super::Names;
use super::block::Sample;
use super::part::FieldMap;
use super::record::{Fields, RecordEnd};
use crate::error::{IngestError, nearest};

/// What options and schema say about text files; what they do not say is detected for each file.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextLayout {
    pub delimiter: Option<u8>,
    pub quote: Option<Option<u8>>,
    pub escapes: Option<bool>,
    pub null: Option<String>,
    pub header: Option<bool>,
}

/// How one text file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub delimiter: u8,
    /// A field that begins with this byte ends at its next single occurrence.
    pub quote: Option<u8>,
    /// Whether a backslash escapes the byte after it, and `\N` is NULL.
    pub escapes: bool,
    /// An unquoted field of exactly these bytes is NULL.
    pub null: Option<Vec<u8>>,
    /// Whether lines end in CR LF.
    pub crlf: bool,
}

const CANDIDATES: [u8; 4] = [b',', b'\t', b';', b'|'];

impl Dialect {
    /// The dialect of a file that begins with `sample`.
    pub(super) fn detect(
        path: &Path,
        sample: &Sample,
        layout: &TextLayout,
    ) -> Result<Self, IngestError> {
        let first_line = sample
            .bytes
            .split(|b| *b == b'\n')
            .next()
            .unwrap_or_default();
        let delimiter = layout
            .delimiter
            .unwrap_or_else(|| delimiter_of(path, first_line));
        let null = layout.null.clone().map(String::into_bytes);
        let escapes = layout.escapes.unwrap_or_else(|| {
            let quoted = matches!(layout.quote, Some(Some(_)));
            let says_mysql = null.as_deref() == Some(b"\\N");
            (says_mysql && !quoted) || (null.is_none() && has_null_field(&sample.bytes, delimiter))
        });
        // A dump with backslash escapes needs no quotes, and its text may hold any number of them.
        let quote = layout
            .quote
            .unwrap_or(if escapes { None } else { Some(b'"') });
        if quote == Some(delimiter) || delimiter == b'\n' {
            return Err(IngestError::layout(
                path,
                "the delimiter and the quote must be two different characters",
            ));
        }
        Ok(Self {
            delimiter,
            quote,
            escapes,
            null,
            crlf: first_line.ends_with(b"\r"),
        })
    }

    /// Where the last whole record of these bytes ends; they begin with a record.
    pub(super) fn last_record_end(&self, bytes: &[u8]) -> Option<usize> {
        match self.quote {
            Some(quote) if memchr::memchr(quote, bytes).is_some() => {
                self.last_end_among_quotes(bytes)
            }
            _ if self.escapes => last_unescaped_newline(bytes),
            _ => memchr::memrchr(b'\n', bytes).map(|at| at + 1),
        }
    }

    /// Goes through all records: only so is a newline within quotes told from one that ends a record.
    fn last_end_among_quotes(&self, bytes: &[u8]) -> Option<usize> {
        let mut fields = Fields::default();
        let (mut at, mut last) = (0, None);
        while at < bytes.len() {
            fields.clear();
            match fields.split_record(bytes, at, self) {
                RecordEnd::Whole(end) => {
                    at = end;
                    last = Some(end);
                }
                RecordEnd::BytesEnded => break,
            }
        }
        last
    }
}

/// The newline at the end of the last line that does not end in an odd number of backslashes.
fn last_unescaped_newline(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    while let Some(at) = memchr::memrchr(b'\n', &bytes[..end]) {
        let backslashes = bytes[..at]
            .iter()
            .rev()
            .take_while(|b| **b == b'\\')
            .count();
        if backslashes % 2 == 0 {
            return Some(at + 1);
        }
        end = at;
    }
    None
}

/// By the name if it says so, else the candidate that the first line has most of.
fn delimiter_of(path: &Path, first_line: &[u8]) -> u8 {
    let name = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
        .to_ascii_lowercase();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    if stem.ends_with(".tsv") || stem.ends_with(".tab") {
        return b'\t';
    }
    if stem.ends_with(".csv") {
        return b',';
    }
    let count = |byte: u8| first_line.iter().filter(|b| **b == byte).count();
    let best = CANDIDATES.into_iter().rev().max_by_key(|byte| count(*byte));
    best.filter(|byte| count(*byte) > 0).unwrap_or(b',')
}

/// Whether some field is exactly `\N`: the mark of a MySQL dump.
fn has_null_field(bytes: &[u8], delimiter: u8) -> bool {
    let is_end = |b: Option<&u8>| b.is_none_or(|b| *b == delimiter || *b == b'\n' || *b == b'\r');
    memchr::memmem::find_iter(bytes, b"\\N").any(|at| {
        let before = at.checked_sub(1).and_then(|i| bytes.get(i));
        is_end(before) && is_end(bytes.get(at + 2))
    })
}

/// The first line of a file and what it tells.
#[derive(Debug, Clone)]
pub(super) struct Head {
    /// Whether the first line holds the names of the fields.
    pub is_header: bool,
    /// Whether nobody said so or that it does not.
    pub is_guessed: bool,
    /// The fields' names: those of the header, or `column1`, `column2` and so on. Empty for an empty file.
    pub names: Vec<String>,
    /// The mean length of a record in the sample.
    pub bytes_per_row: Option<f64>,
    /// The number of rows, if the sample is the whole file.
    pub rows_if_whole: Option<u64>,
}

impl Head {
    pub(super) fn read(
        path: &Path,
        sample: &Sample,
        dialect: &Dialect,
        header: Option<bool>,
        declared: Option<&[Column]>,
    ) -> Result<Self, IngestError> {
        let mut fields = Fields::default();
        fields.split_record(&sample.bytes, 0, dialect);
        let first: Vec<String> = (0..fields.width())
            .map(|i| {
                String::from_utf8_lossy(fields.bytes(&sample.bytes, i).unwrap_or_default())
                    .trim()
                    .to_owned()
            })
            .collect();
        if sample.bytes.is_empty() {
            return Ok(Self {
                is_header: false,
                is_guessed: header.is_none(),
                names: Vec::new(),
                bytes_per_row: None,
                rows_if_whole: Some(0),
            });
        }
        if let Some(declared) = declared {
            check_width(path, first.len(), &sample.bytes, dialect, declared.len())?;
        }
        let is_header = header.unwrap_or_else(|| looks_like_header(&first, declared));
        let names = if is_header {
            first
        } else {
            (1..=first.len()).map(|i| format!("column{i}")).collect()
        };
        if is_header {
            check_names(path, &names)?;
        }
        let records = count_records(&sample.bytes, dialect);
        Ok(Self {
            is_header,
            is_guessed: header.is_none(),
            names,
            bytes_per_row: (records > 0).then(|| sample.bytes.len() as f64 / records as f64),
            rows_if_whole: sample
                .whole
                .then(|| (records as u64).saturating_sub(u64::from(is_header))),
        })
    }

    /// Which field of a record goes into which column.
    pub(super) fn map_columns(
        &self,
        path: &Path,
        dialect: &Dialect,
        columns: &[Column],
    ) -> Result<FieldMap, IngestError> {
        if self.names.is_empty() || (!self.is_header && self.names.len() == columns.len()) {
            return Ok(FieldMap::in_order(columns.len()));
        }
        if !self.is_header {
            // Rows of another length are rejected one by one; a first line of another length is the file's fault.
            let (have, want) = (self.names.len(), columns.len());
            let by = describe_byte(dialect.delimiter);
            let reason = format!(
                "its first line has {have} fields (separated by {by}) where the table has {want} columns"
            );
            return Err(IngestError::layout(path, reason));
        }
        let known = Names::of(columns.iter().map(|c| c.name.as_str()));
        let unknown = |name: &&String| known.position(name).is_none();
        if let Some(name) = self.names.iter().find(unknown) {
            let hint = nearest(name, columns.iter().map(|c| c.name.as_str()));
            let hint = hint.map_or(String::new(), |near| format!(": is it {near:?}?"));
            return Err(IngestError::layout(
                path,
                format!("its header has a column {name:?} that the table does not have{hint}"),
            ));
        }
        let fields = Names::of(self.names.iter().map(String::as_str));
        let field_of = |column: &Column| fields.position(&column.name);
        let fields: Vec<Option<usize>> = columns.iter().map(field_of).collect();
        let missing = columns
            .iter()
            .zip(&fields)
            .find(|(column, field)| field.is_none() && !column.nullable);
        if let Some((column, _)) = missing {
            let reason = format!(
                "its header lacks the column {:?}, which is NOT NULL",
                column.name
            );
            return Err(IngestError::layout(path, reason));
        }
        Ok(FieldMap::new(self.names.len(), fields))
    }
}

/// A single field where several columns are declared means that the delimiter is wrong.
fn check_width(
    path: &Path,
    width: usize,
    sample: &[u8],
    dialect: &Dialect,
    declared: usize,
) -> Result<(), IngestError> {
    if width != 1 || declared == 1 {
        return Ok(());
    }
    let line = sample.split(|b| *b == b'\n').next().unwrap_or_default();
    let count = |byte: &u8| line.iter().filter(|b| *b == byte).count();
    let other = CANDIDATES
        .iter()
        .filter(|b| **b != dialect.delimiter)
        .max_by_key(|b| count(b));
    let hint = match other.filter(|b| count(b) > 0) {
        Some(byte) => format!(
            "it seems to be separated by {}: give --delimiter",
            describe_byte(*byte)
        ),
        None => "give the right --delimiter".to_owned(),
    };
    let by = describe_byte(dialect.delimiter);
    let reason = format!(
        "there is only one field in its first line when split at {by}, where the table has {declared} columns; {hint}"
    );
    Err(IngestError::layout(path, reason))
}

/// A byte as a person would name it.
pub(super) fn describe_byte(byte: u8) -> String {
    match byte {
        b'\t' => "a tab".to_owned(),
        b' ' => "a space".to_owned(),
        b',' => "a comma".to_owned(),
        b';' => "a semicolon".to_owned(),
        _ => format!("{:?}", char::from(byte)),
    }
}

/// With a schema: no field is a number and at least half of them are declared names. Without: no field is empty or a
/// number. (A name that is there twice makes it a header with a fault, not a row.)
fn looks_like_header(first: &[String], declared: Option<&[Column]>) -> bool {
    let is_word =
        |field: &String| !field.is_empty() && field.parse::<f64>().is_err() && field != "\\N";
    if !first.iter().all(is_word) {
        return false;
    }
    match declared {
        Some(columns) => {
            let columns = Names::of(columns.iter().map(|c| c.name.as_str()));
            let known = |f: &&String| columns.position(f).is_some();
            first.iter().filter(known).count() * 2 >= first.len()
        }
        None => true,
    }
}

fn check_names(path: &Path, names: &[String]) -> Result<(), IngestError> {
    let mut fields: HashMap<String, usize> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() {
            let reason = format!("its header has no name for field {}: give it one", at + 1);
            return Err(IngestError::layout(path, reason));
        }
        if let Some(first) = fields.insert(name.to_lowercase(), at) {
            let (first, second) = (first + 1, at + 1);
            let reason = format!(
                "its first line names the column {name:?} twice, in fields {first} and {second} (names are the same \
                 whatever their case): give one another name, or --no-header if the line is a row"
            );
            return Err(IngestError::layout(path, reason));
        }
    }
    Ok(())
}

fn count_records(sample: &[u8], dialect: &Dialect) -> usize {
    let mut fields = Fields::default();
    let (mut at, mut records) = (0, 0);
    while at < sample.len() {
        fields.clear();
        match fields.split_record(sample, at, dialect) {
            RecordEnd::Whole(end) => at = end,
            RecordEnd::BytesEnded => at = sample.len(),
        }
        records += 1;
    }
    records
}
