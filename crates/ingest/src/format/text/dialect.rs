//! How a text file is written: separators, quotes, escapes, comments; found out from its beginning.

use std::path::Path;

use super::block::Sample;
use super::ecsv;
use super::prelude::{self, Blanks};
use super::record::{Fields, RecordEnd};
use crate::error::IngestError;

/// What options and schema say about text files; what they do not say is detected for each file.
#[derive(Debug, Clone, Default)]
pub(crate) struct TextLayout {
    pub delimiter: Option<u8>,
    pub quote: Option<Option<u8>>,
    pub escapes: Option<bool>,
    /// Whether fields are separated by any number of blanks and tabs.
    pub blanks: bool,
    /// The texts that stand for NULL; none if nothing is said.
    pub nulls: Vec<String>,
    pub header: Option<bool>,
    /// The character that begins a comment line; `Some(None)` for no comments.
    pub comment: Option<Option<u8>>,
}

impl TextLayout {
    /// Which lines of a file that begins so are comments.
    fn comments(&self, sample: &[u8]) -> Comments {
        match self.comment {
            Some(None) => Comments::Nowhere,
            Some(Some(byte)) => Comments::Lines(byte),
            None => prelude::guessed_comments(sample),
        }
    }
}

/// Which lines are comments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comments {
    /// None.
    Nowhere,
    /// Lines that begin with this byte.
    Lines(u8),
    /// Lines that begin with this byte and have another number of fields than a row: nothing says that the file has comments.
    NoRows(u8),
}

/// How one text file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub delimiter: u8,
    /// A field that begins with this byte ends at its next single occurrence.
    pub quote: Option<u8>,
    /// Whether a backslash escapes the byte after it, and `\N` is NULL.
    pub escapes: bool,
    /// Whether fields are separated by any number of blanks and tabs; the delimiter is a blank then.
    pub blanks: bool,
    /// An unquoted field of exactly one of these texts is NULL.
    pub nulls: Vec<Vec<u8>>,
    /// Whether blanks around unquoted fields are padding.
    pub trims: bool,
    /// Which lines are comments.
    pub comments: Comments,
    /// Whether lines end in CR LF.
    pub crlf: bool,
}

pub(super) const CANDIDATES: [u8; 4] = [b',', b'\t', b';', b'|'];

impl Dialect {
    /// The dialect of a file that begins with `sample`.
    pub(super) fn detect(
        path: &Path,
        sample: &Sample,
        layout: &TextLayout,
    ) -> Result<Self, IngestError> {
        let comments = layout.comments(&sample.bytes);
        let (leading, start) = prelude::leading_comments(&sample.bytes, comments);
        let body = &sample.bytes[start..];
        let first_line = body.split(|b| *b == b'\n').next().unwrap_or_default();
        let (delimiter, blanks) = match (layout.delimiter, ecsv::delimiter(&leading)) {
            _ if layout.blanks => (b' ', true),
            (Some(given), _) => (given, false),
            (None, Some(b' ')) => (b' ', true),
            (None, Some(of_ecsv)) => (of_ecsv, false),
            (None, None) => guessed_delimiter(path, body, first_line)?,
        };
        let nulls: Vec<Vec<u8>> = layout.nulls.iter().map(|it| it.clone().into()).collect();
        let escapes = layout.escapes.unwrap_or_else(|| {
            let quoted = matches!(layout.quote, Some(Some(_)));
            let says_mysql = nulls.iter().any(|null| null == b"\\N");
            (says_mysql && !quoted) || (nulls.is_empty() && has_null_field(body, delimiter))
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
            blanks,
            nulls,
            trims: prelude::ruler(body).is_some(),
            comments,
            crlf: first_line.ends_with(b"\r"),
        })
    }

    /// Whether an unquoted field stands for NULL.
    #[inline]
    pub(super) fn is_null(&self, field: &[u8]) -> bool {
        self.nulls.iter().any(|null| null == field)
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

/// The delimiter of a file of which nobody says it, and whether fields are separated by any number of blanks.
fn guessed_delimiter(
    path: &Path,
    body: &[u8],
    first_line: &[u8],
) -> Result<(u8, bool), IngestError> {
    let found = delimiter_by_name(path).or_else(|| most_frequent(first_line));
    if found == Some(b'|') {
        prelude::reject_undelimited_rows(path, body)?;
    }
    match found {
        Some(found) => Ok((found, false)),
        None if separated_by_blanks(path, body)? => Ok((b' ', true)),
        None => Ok((b',', false)),
    }
}

/// What the file's name says.
fn delimiter_by_name(path: &Path) -> Option<u8> {
    let name = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
        .to_ascii_lowercase();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    if stem.ends_with(".tsv") || stem.ends_with(".tab") {
        return Some(b'\t');
    }
    stem.ends_with(".csv").then_some(b',')
}

/// The candidate that a line has most of.
fn most_frequent(line: &[u8]) -> Option<u8> {
    let count = |byte: u8| line.iter().filter(|b| **b == byte).count();
    let best = CANDIDATES.into_iter().rev().max_by_key(|byte| count(*byte));
    best.filter(|byte| count(*byte) > 0)
}

/// Whether the fields of a file without delimiters are separated by blanks.
///
/// # Errors
/// They seem to be, but the rows differ in how many there are, as where columns of fixed width have empty cells.
fn separated_by_blanks(path: &Path, body: &[u8]) -> Result<bool, IngestError> {
    match prelude::blanks(body) {
        Blanks::Separate => Ok(true),
        Blanks::DoNot => Ok(false),
        Blanks::Unevenly { fewest, most } => {
            let reason = format!(
                "its rows have {fewest} to {most} fields when they are split at blanks, as in a table of columns of fixed width with \
                 empty cells or texts of several words; its first line has {}: convert it to CSV, ECSV or VOTable",
                prelude::words_of_first_line(body)
            );
            Err(IngestError::layout(path, reason).or_option(", or give --delimiter"))
        }
    }
}

/// Whether some field is exactly `\N`: the mark of a MySQL dump.
fn has_null_field(bytes: &[u8], delimiter: u8) -> bool {
    let is_end = |b: Option<&u8>| b.is_none_or(|b| *b == delimiter || *b == b'\n' || *b == b'\r');
    memchr::memmem::find_iter(bytes, b"\\N").any(|at| {
        let before = at.checked_sub(1).and_then(|i| bytes.get(i));
        is_end(before) && is_end(bytes.get(at + 2))
    })
}
