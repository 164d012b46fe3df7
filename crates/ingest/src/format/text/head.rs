//! The first lines of a text file: the names of its columns, and where its rows begin.

use std::collections::HashMap;
use std::path::Path;

use catalog::Column;

use super::super::{FieldDescription, Names};
use super::block::{BlockReader, Sample};
use super::dialect::{CANDIDATES, Dialect};
use super::part::FieldMap;
use super::record::{Fields, RecordEnd};
use super::{ecsv, prelude};
use crate::error::{IngestError, nearest};

/// The first lines of a file and what they tell.
#[derive(Debug, Clone)]
pub(super) struct Head {
    /// Whether a line holds the names of the fields.
    pub is_header: bool,
    /// Whether nobody said so or that it does not.
    pub is_guessed: bool,
    /// Lines before the first row.
    pub lines: u64,
    /// The fields' names: those of the header, or `column1`, `column2` and so on. Empty for an empty file.
    pub names: Vec<String>,
    /// The columns that the file itself declares, as ECSV does.
    pub declared: Option<Vec<Column>>,
    /// What the file says of its columns, by their names.
    pub descriptions: Vec<(String, FieldDescription)>,
    /// The mean length of a record in the sample.
    pub bytes_per_row: Option<f64>,
    /// The number of rows, if the sample is the whole file.
    pub rows_if_whole: Option<u64>,
}

/// The option that helps where a row was taken for a header, or a header for a row.
pub(super) const NO_HEADER: &str = ", or --no-header if the line is a row";

impl Head {
    pub(super) fn read(
        path: &Path,
        sample: &Sample,
        dialect: &Dialect,
        header: Option<bool>,
        declared: Option<&[Column]>,
    ) -> Result<Self, IngestError> {
        let bytes = &sample.bytes;
        let (comments, start) = prelude::leading_comments(bytes, dialect.comments);
        let of_ecsv =
            ecsv::columns(&comments).map_err(|reason| IngestError::layout(path, reason))?;
        if bytes.len() == start {
            return Ok(Self::of_no_rows(header));
        }
        let body = &bytes[start..];
        let (first, first_end) = fields_of(body, dialect);
        if let Some(declared) = declared {
            check_width(path, first.len(), body, dialect, declared.len())?;
        }
        let header = header.or(of_ecsv.as_ref().map(|_| true));
        let is_header = header.unwrap_or_else(|| looks_like_header(&first, declared));
        let in_comment = || commented_header(&comments, dialect, first.len(), declared);
        let (named, rows_at) = match is_header {
            true => (
                Some(first.clone()),
                start + first_end.max(behind_ruler(body)),
            ),
            false if header.is_none() => (in_comment(), start),
            false => (None, start),
        };
        if let Some(names) = &named {
            check_names(path, names)?;
        }
        let is_header = named.is_some();
        let numbered = || (1..=first.len()).map(|i| format!("column{i}")).collect();
        let names = named.unwrap_or_else(numbered);
        let rows = &bytes[rows_at..];
        let records = count_records(rows, dialect);
        Ok(Self {
            is_header,
            is_guessed: header.is_none(),
            lines: count_lines(&bytes[..rows_at]),
            names,
            declared: of_ecsv,
            descriptions: ecsv::descriptions(&comments),
            bytes_per_row: (records > 0).then(|| rows.len() as f64 / records as f64),
            rows_if_whole: sample.whole.then_some(records as u64),
        })
    }

    fn of_no_rows(header: Option<bool>) -> Self {
        Self {
            is_header: false,
            is_guessed: header.is_none(),
            lines: 0,
            names: Vec::new(),
            declared: None,
            descriptions: Vec::new(),
            bytes_per_row: None,
            rows_if_whole: Some(0),
        }
    }

    /// Passes over the lines before the first row of a file that was just opened.
    pub(super) fn skip(&self, reader: &mut BlockReader) -> Result<(), IngestError> {
        (0..self.lines).try_for_each(|_| reader.skip_line())
    }

    /// Which field of a record goes into which column.
    pub(super) fn map_columns(
        &self,
        path: &Path,
        dialect: &Dialect,
        columns: &[Column],
    ) -> Result<FieldMap, IngestError> {
        let in_files = columns
            .iter()
            .filter(|it| it.text_key_of().is_none())
            .count();
        if self.names.is_empty() || (!self.is_header && self.names.len() == in_files) {
            // What is computed is in no file.
            let mut field = 0..in_files;
            let mut field_of =
                |it: &Column| it.text_key_of().map_or_else(|| field.next(), |_| None);
            let fields = columns.iter().map(&mut field_of).collect();
            return Ok(FieldMap::new(in_files, fields));
        }
        let known = Names::of(columns.iter().map(|c| c.name.as_str()));
        let unknown = |name: &&String| known.position(name).is_none();
        if !self.is_header && self.names.iter().any(|name| unknown(&name)) {
            // Rows of another length are rejected one by one; a first line of another length is the file's fault.
            let (have, want) = (self.names.len(), in_files);
            let by = describe_byte(dialect.delimiter);
            let reason = format!(
                "its first line has {have} fields (separated by {by}) where the table has {want} columns"
            );
            return Err(IngestError::layout(path, reason));
        }
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

/// The fields of the first record, and the byte behind it.
fn fields_of(bytes: &[u8], dialect: &Dialect) -> (Vec<String>, usize) {
    let mut fields = Fields::default();
    let end = match fields.split_record(bytes, 0, dialect) {
        RecordEnd::Whole(end) => end,
        RecordEnd::BytesEnded => bytes.len(),
    };
    let text = |number| String::from_utf8_lossy(fields.bytes(bytes, number).unwrap_or_default());
    let fields = (0..fields.width()).map(|number| text(number).trim().to_owned());
    (fields.collect(), end)
}

/// The byte behind the ruler between header and rows; 0 if there is none.
fn behind_ruler(body: &[u8]) -> usize {
    let Some(ruler) = prelude::ruler(body) else {
        return 0;
    };
    let ends = memchr::memchr_iter(b'\n', body);
    ends.map(|end| end + 1).nth(ruler).unwrap_or(body.len())
}

/// The names in the last comment before the rows, as in `# id ra dec`, if there are as many as the rows have fields.
fn commented_header(
    comments: &[&[u8]],
    dialect: &Dialect,
    width: usize,
    declared: Option<&[Column]>,
) -> Option<Vec<String>> {
    let (mark, last) = comments.last()?.split_first()?;
    let text = last.trim_ascii_start();
    let text = text
        .strip_prefix(&[*mark])
        .unwrap_or(text)
        .trim_ascii_start();
    let (names, _) = fields_of(text, dialect);
    let fits = width > 1 && names.len() == width && looks_like_header(&names, declared);
    fits.then_some(names)
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

/// With a schema: no field is a number and at least half of them are declared names, or all declared names are there. Without: no field is empty or a
/// number. (A name that is there twice makes it a header with a fault, not a row.)
fn looks_like_header(first: &[String], declared: Option<&[Column]>) -> bool {
    let is_word =
        |field: &String| !field.is_empty() && field.parse::<f64>().is_err() && field != "\\N";
    if !first.iter().all(is_word) {
        return false;
    }
    match declared {
        Some(columns) => {
            let names = Names::of(columns.iter().map(|c| c.name.as_str()));
            let known = |f: &&String| names.position(f).is_some();
            let known = first.iter().filter(known).count();
            // A schema may declare some columns alone.
            known * 2 >= first.len() || known == columns.len()
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
                 whatever their case): give one another name"
            );
            return Err(IngestError::layout(path, reason).or_option(NO_HEADER));
        }
    }
    Ok(())
}

/// Lines of a text that begins with a line. The last one may have no end, if nothing comes behind it.
fn count_lines(bytes: &[u8]) -> u64 {
    let ends = memchr::memchr_iter(b'\n', bytes).count();
    let is_cut = bytes.last().is_some_and(|byte| *byte != b'\n');
    (ends + usize::from(is_cut)) as u64
}

fn count_records(bytes: &[u8], dialect: &Dialect) -> usize {
    let mut fields = Fields::default();
    let (mut at, mut records) = (0, 0);
    while at < bytes.len() {
        fields.clear();
        match fields.split_record(bytes, at, dialect) {
            RecordEnd::Whole(end) => at = end,
            RecordEnd::BytesEnded => at = bytes.len(),
        }
        records += usize::from(fields.width() > 0);
    }
    records
}
