//! The keywords in the headers of FITS files as rows: `meridian load --headers`.
//!
//! A row is a keyword of one header. Long texts (CONTINUE) are one, and long keywords (HIERARCH) are called as they are written.

use std::fmt;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Float64Builder, Int32Builder, RecordBatch, StringBuilder};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use fitsio_pure::header::Card;
use fitsio_pure::value::Value;
use flate2::read::MultiGzDecoder;

use super::damaged;
use super::header::{Header, Passing, Skip, none_found, parsed_cards, read_header};
use crate::budget::DecodeBudget;
use crate::error::IngestError;
use crate::format::made::{MadeBatches, RowSource};
use crate::format::{Magic, magic};
use crate::inputs::InputFiles;

/// Rows of a file's headers where nobody has counted them.
const USUAL_ROWS: u64 = 100;

/// The keywords of the headers of files.
pub struct FitsHeaders {
    files: Vec<PathBuf>,
    /// The names or numbers of the headers that are read; none for all of them.
    extensions: Vec<String>,
    schema: SchemaRef,
}

impl fmt::Debug for FitsHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the headers of {} files", self.files.len())
    }
}

impl FitsHeaders {
    /// Looks for the files, which may be named by patterns. Without names or numbers of extensions all headers are read; 0 is the first
    /// one, which is no extension's.
    ///
    /// # Errors
    /// A file is not there, or none of FITS.
    pub fn of(inputs: &[PathBuf], extensions: &[String]) -> Result<Self, IngestError> {
        let mut files = Vec::new();
        for input in inputs {
            files.extend(InputFiles::of(input)?.files);
        }
        for path in &files {
            if !matches!(magic(path)?, Magic::Fits | Magic::GzipFits) {
                let reason = "it is no FITS file, and --headers is for these alone";
                return Err(IngestError::layout(path, reason));
            }
        }
        let field = |name, ty, nullable| Field::new(name, ty, nullable);
        let schema = Schema::new(vec![
            field("file", DataType::Utf8, false),
            field("extension", DataType::Int32, false),
            field("extname", DataType::Utf8, true),
            field("card", DataType::Int32, false),
            field("keyword", DataType::Utf8, false),
            field("value", DataType::Utf8, true),
            field("number", DataType::Float64, true),
            field("comment", DataType::Utf8, true),
        ]);
        Ok(Self {
            files,
            extensions: extensions.to_vec(),
            schema: Arc::new(schema),
        })
    }

    fn read(&self, path: &Path) -> Result<RecordBatch, IngestError> {
        let file = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
        let mut rows = HeaderRows::default();
        let name = path.display().to_string();
        match magic(path)? {
            Magic::GzipFits => {
                let mut unpacked = BufReader::new(MultiGzDecoder::new(BufReader::new(file)));
                self.read_all(&mut Passing(&mut unpacked), path, &name, &mut rows)?;
            }
            _ => self.read_all(&mut BufReader::new(file), path, &name, &mut rows)?,
        }
        rows.finish(&self.schema)
    }

    fn read_all(
        &self,
        file: &mut dyn Skip,
        path: &Path,
        name: &str,
        rows: &mut HeaderRows,
    ) -> Result<(), IngestError> {
        let mut meter = DecodeBudget::unlimited().meter(path);
        let mut missing: Vec<&String> = self.extensions.iter().collect();
        let mut found = Vec::new();
        for number in 0_usize.. {
            let Some(bytes) = read_header(file, path, &mut meter)? else {
                break;
            };
            let failed = |reason| damaged(path, format!("its header {number}: {reason}"));
            let cards = parsed_cards(&bytes).map_err(failed)?;
            let header = Header::of(&cards);
            let is_meant =
                |wanted: &String| header.is_called(wanted) || wanted.trim().parse() == Ok(number);
            if self.extensions.is_empty() || self.extensions.iter().any(is_meant) {
                let place = (name, i32::try_from(number).unwrap_or(i32::MAX));
                rows.add(place, header.text("EXTNAME"), &cards);
            }
            missing.retain(|wanted| !is_meant(wanted));
            if number > 0 {
                found.push(header.describe(number));
            }
            let data = header.data_bytes();
            let data = data.ok_or_else(|| failed("it declares impossible sizes".to_owned()))?;
            file.skip(data)
                .map_err(|error| IngestError::io("read", path, error))?;
        }
        match missing.first() {
            None => Ok(()),
            Some(wanted) => Err(IngestError::layout(
                path,
                none_found(Some(wanted.as_str()), &found),
            )),
        }
    }
}

impl RowSource for FitsHeaders {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn parts(&self) -> usize {
        self.files.len()
    }

    fn part_name(&self, part: usize) -> String {
        let file = self.files.get(part);
        file.map_or_else(String::new, |file| file.display().to_string())
    }

    fn part_rows(&self, _: usize) -> u64 {
        USUAL_ROWS
    }

    fn make_part(&self, part: usize) -> MadeBatches {
        let batch = self.files.get(part).map(|file| self.read(file));
        Box::new(
            batch
                .into_iter()
                .map(|batch| batch.map_err(|error| error.to_string())),
        )
    }
}

/// The columns of the rows.
#[derive(Default)]
struct HeaderRows {
    file: StringBuilder,
    extension: Int32Builder,
    extname: StringBuilder,
    card: Int32Builder,
    keyword: StringBuilder,
    value: StringBuilder,
    number: Float64Builder,
    comment: StringBuilder,
}

impl HeaderRows {
    /// The cards of a header: that of this number in a file.
    fn add(&mut self, (file, extension): (&str, i32), extname: Option<&str>, cards: &[Card]) {
        for (card, place) in cards.iter().zip(1..) {
            let Some(row) = Keyword::of(card) else {
                continue;
            };
            self.file.append_value(file);
            self.extension.append_value(extension);
            self.extname.append_option(extname.map(str::trim));
            self.card.append_value(place);
            self.keyword.append_value(row.keyword);
            self.value.append_option(row.value);
            self.number.append_option(row.number);
            self.comment.append_option(row.comment);
        }
    }

    fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, IngestError> {
        Ok(RecordBatch::try_new(
            Arc::clone(schema),
            vec![
                Arc::new(self.file.finish()),
                Arc::new(self.extension.finish()),
                Arc::new(self.extname.finish()),
                Arc::new(self.card.finish()),
                Arc::new(self.keyword.finish()),
                Arc::new(self.value.finish()),
                Arc::new(self.number.finish()),
                Arc::new(self.comment.finish()),
            ],
        )?)
    }
}

/// A keyword with its value.
#[derive(Debug, PartialEq)]
struct Keyword {
    keyword: String,
    value: Option<String>,
    /// The value, if it is a number.
    number: Option<f64>,
    comment: Option<String>,
}

impl Keyword {
    /// The keyword of a card, if it has one.
    fn of(card: &Card) -> Option<Self> {
        let keyword = card.keyword_str();
        if keyword.is_empty() || keyword == "END" {
            return None;
        }
        let comment = card.comment.as_deref().unwrap_or_default();
        if keyword == "HIERARCH"
            && let Some(long) = Self::of_hierarchy(comment)
        {
            return Some(long);
        }
        let (value, number) = match &card.value {
            Some(value) => shown(value),
            None => (None, None),
        };
        Some(Self {
            keyword: keyword.to_owned(),
            value,
            number,
            comment: words(comment),
        })
    }

    /// A long keyword: `ESO DET NAME = 'CCD 1' / the detector`.
    fn of_hierarchy(text: &str) -> Option<Self> {
        let (keyword, rest) = text.split_once('=')?;
        let rest = rest.trim();
        let (value, number, comment) = match rest.strip_prefix('\'') {
            Some(quoted) => {
                let (value, rest) = of_quoted(quoted)?;
                (
                    Some(value),
                    None,
                    rest.split_once('/').map_or("", |it| it.1),
                )
            }
            None => {
                let (value, comment) = rest.split_once('/').unwrap_or((rest, ""));
                let number = value.trim().replace(['D', 'd'], "E").parse().ok();
                (
                    words(value),
                    number.filter(|it: &f64| it.is_finite()),
                    comment,
                )
            }
        };
        Some(Self {
            keyword: keyword.split_whitespace().collect::<Vec<_>>().join(" "),
            value,
            number,
            comment: words(comment),
        })
    }
}

/// The text of what is quoted, and what follows the quote at its end. A doubled quote is one.
fn of_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('\'')?;
        value.push_str(before);
        match after.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return Some((value.trim_end().to_owned(), after)),
        }
    }
}

fn words(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// A value as a text, and as a number if it is one.
fn shown(value: &Value) -> (Option<String>, Option<f64>) {
    match value {
        Value::Logical(truth) => (Some(if *truth { "T" } else { "F" }.to_owned()), None),
        Value::Integer(number) => (Some(number.to_string()), Some(*number as f64)),
        Value::Float(number) => (
            Some(format!("{number:?}")),
            Some(*number).filter(|it| it.is_finite()),
        ),
        Value::String(text) => (Some(text.trim_end().to_owned()), None),
        Value::ComplexInt(re, im) => (Some(format!("{re} {im}")), None),
        Value::ComplexFloat(re, im) => (Some(format!("{re:?} {im:?}")), None),
        Value::Undefined => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;

    use super::*;

    #[test]
    fn long_keywords_are_called_as_they_are_written() {
        let long = |text: &str| Keyword::of_hierarchy(text).unwrap();
        let text = long("ESO DET NAME = 'CCD ''1''  ' / the / detector");
        assert_eq!(text.keyword, "ESO DET NAME");
        assert_eq!(text.value.as_deref(), Some("CCD '1'"));
        assert_eq!(text.comment.as_deref(), Some("the / detector"));
        let number = long("ESO TEL ALT=1.5D2 / [deg]");
        assert_eq!(
            (number.value.as_deref(), number.number),
            (Some("1.5D2"), Some(150.0))
        );
        assert_eq!(long("A B = T").value.as_deref(), Some("T"));
        for none in ["no value", "A = 'unclosed"] {
            assert_eq!(Keyword::of_hierarchy(none), None, "{none}");
        }
    }

    /// A header of these cards, in one block.
    fn header(cards: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for card in cards.iter().chain(&["END"]) {
            bytes.extend(format!("{card:<80}").into_bytes());
        }
        bytes.resize(2880, b' ');
        bytes
    }

    /// The keywords of a file of these bytes, each with its value.
    fn keywords(bytes: &[u8]) -> Result<Vec<(String, Option<String>)>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let headers = FitsHeaders::of(&[file.path().to_path_buf()], &[]);
        let headers = headers.map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        for batch in headers.make_part(0) {
            let batch = batch?;
            let texts = |name: &str| {
                let column = batch.column_by_name(name).unwrap();
                column.as_string::<i32>().clone()
            };
            let (names, values) = (texts("keyword"), texts("value"));
            for (name, value) in names.iter().zip(values.iter()) {
                found.push((name.unwrap().to_owned(), value.map(str::to_owned)));
            }
        }
        Ok(found)
    }

    #[test]
    fn whatever_the_bytes_there_are_rows_or_a_sentence() {
        let whole = header(&[
            "SIMPLE  =                    T / standard",
            "BITPIX  =                    8",
            "NAXIS   =                    0",
            "EXPTIME =                 30.5 / [s]",
            "OBJECT  = 'Barnard''s star'",
            "HIERARCH ESO DET ID = 'CCD' / detector",
            "LONG    = 'begins &'",
            "CONTINUE  'and ends'",
            "COMMENT what it is",
        ]);
        let found = keywords(&whole).unwrap();
        let value = |name: &str| found.iter().find(|it| it.0 == name).unwrap().1.clone();
        assert_eq!(value("EXPTIME").as_deref(), Some("30.5"));
        assert_eq!(value("OBJECT").as_deref(), Some("Barnard's star"));
        assert_eq!(value("ESO DET ID").as_deref(), Some("CCD"));
        assert_eq!(value("LONG").as_deref(), Some("begins and ends"));
        assert_eq!(value("COMMENT"), None);
        let mut random = 7_u64;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        for _ in 0..500 {
            let mut bytes = whole.clone();
            for _ in 0..4 {
                let at = 8 + next(900);
                bytes[at] = next(256) as u8;
            }
            bytes.truncate(2880 - next(2) * next(2880));
            // It does not panic.
            let _ = keywords(&bytes);
        }
    }
}
