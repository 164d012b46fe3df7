//! FITS: one binary table (FITS Standard 4.0, section 7.3).
//!
//! Its header says how many rows follow and how long the longest text is. So rows are kept in a temporary file, as Arrow, until all are there.
//!
//! Integers have a number for NULL (TNULLn) that no row has; of truths it is a zero byte, of floating-point numbers NaN, of texts an empty
//! one. Unsigned integers, and signed ones of 8 bits, are written with an offset (TZEROn), and where there are NULLs among them as the next
//! longer ones. Dates and times are texts of ISO 8601 with the xtype `timestamp`, decimals are doubles, bytes are texts of hexadecimal digits.
//! Lists of numbers are arrays, which have one length in all rows of a column.
//!
//! A header has ASCII alone. What is said of a column may be longer than a card (CONTINUE); its name may not.

mod names;
mod values;

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int32Array, ListArray, RecordBatch};
use arrow::compute::take;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema, SchemaRef, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use fitsio_pure::header::{Card, serialize_header};
use fitsio_pure::value::Value;

use self::names::header_names;
use self::values::{ColumnSummary, kept_array, kept_type};
use crate::{ValueForm, WriteError};

/// Bytes of which headers and data are made up.
const BLOCK: usize = 2880;
/// The key of how texts are to be read, which those of times tell without it.
const XTYPE: &str = "xtype";
/// Keys of a field's metadata, and the keywords of what they say.
const DESCRIPTIONS: [(&str, &str); 4] = [
    ("unit", "TUNIT"),
    ("ucd", "TUCD"),
    (XTYPE, "TXTYP"),
    ("utype", "TUTYP"),
];
/// The key of what a column means, in words.
const MEANING: &str = "description";

pub(crate) struct FitsWriter<W> {
    /// The columns as they were given, for their descriptions.
    given: SchemaRef,
    kept: Kept,
    /// The columns as they are kept.
    schema: SchemaRef,
    columns: Vec<ColumnSummary>,
    rows: u64,
    is_cut_off: bool,
    out: W,
}

/// The rows that wait for the header.
enum Kept {
    Written(Box<StreamWriter<BufWriter<File>>>),
    Read(Box<StreamReader<BufReader<File>>>, Vec<Form>),
    Done,
}

impl<W: Write> FitsWriter<W> {
    pub fn new(schema: &SchemaRef, out: W) -> Result<Self, WriteError> {
        let fields = schema.fields().iter();
        let fields: Vec<Field> = fields
            .map(|field| match kept_type(field.data_type()) {
                Some(kept) => Ok(Field::new(field.name(), kept, true)),
                None => Err(without_form(field.name())),
            })
            .collect::<Result<_, _>>()?;
        let file = BufWriter::new(tempfile::tempfile()?);
        let schema_kept = Arc::new(Schema::new(fields));
        Ok(Self {
            given: Arc::clone(schema),
            columns: (schema.fields().iter())
                .map(|field| ColumnSummary::of(field.data_type()))
                .collect(),
            kept: Kept::Written(Box::new(StreamWriter::try_new(file, &schema_kept)?)),
            schema: schema_kept,
            rows: 0,
            is_cut_off: false,
            out,
        })
    }

    /// Notes that there are more rows than are written.
    pub fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), WriteError> {
        let Kept::Written(writer) = &mut self.kept else {
            let ended = "rows come behind the end of a table";
            return Err(ArrowError::InvalidArgumentError(ended.to_owned()).into());
        };
        let mut arrays = Vec::with_capacity(batch.num_columns());
        for (array, seen) in batch.columns().iter().zip(&mut self.columns) {
            let array = kept_array(array)?;
            seen.look(&array);
            arrays.push(array);
        }
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), arrays)?;
        writer.write(&batch)?;
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// Writes the header, and then some rows each time; whether there is more.
    pub fn more(&mut self) -> Result<bool, WriteError> {
        match std::mem::replace(&mut self.kept, Kept::Done) {
            Kept::Done => Ok(false),
            Kept::Written(writer) => {
                let columns = self.schema.fields().iter().zip(&self.columns);
                let forms = columns.map(|(field, seen)| Form::of(field, seen));
                let forms: Vec<Form> = forms.collect::<Result<_, _>>()?;
                self.out.write_all(&self.header(&forms)?)?;
                let mut file = finished(*writer)?;
                file.rewind()?;
                let reader = StreamReader::try_new(BufReader::new(file), None)?;
                self.kept = Kept::Read(Box::new(reader), forms);
                Ok(true)
            }
            Kept::Read(mut reader, forms) => {
                let Some(batch) = reader.next().transpose()? else {
                    let row_bytes: usize = forms.iter().map(Form::bytes).sum();
                    let bytes = self.rows as usize * row_bytes;
                    let padding = bytes.next_multiple_of(BLOCK) - bytes;
                    self.out.write_all(&vec![0; padding])?;
                    return Ok(false);
                };
                self.out.write_all(&encoded(&batch, &forms)?)?;
                self.kept = Kept::Read(reader, forms);
                Ok(true)
            }
        }
    }

    pub fn finish(mut self) -> Result<W, WriteError> {
        while self.more()? {}
        Ok(self.out)
    }

    fn header(&self, forms: &[Form]) -> Result<Vec<u8>, WriteError> {
        let mut bytes = block(vec![
            card("SIMPLE", Value::Logical(true)),
            card("BITPIX", Value::Integer(8)),
            card("NAXIS", Value::Integer(0)),
            card("EXTEND", Value::Logical(true)),
        ])?;
        let integer = |number: usize| Value::Integer(number as i64);
        let row_bytes = forms.iter().map(Form::bytes).sum();
        let mut cards = vec![
            card("XTENSION", text("BINTABLE")),
            card("BITPIX", Value::Integer(8)),
            card("NAXIS", Value::Integer(2)),
            card("NAXIS1", integer(row_bytes)),
            card("NAXIS2", integer(self.rows as usize)),
            card("PCOUNT", Value::Integer(0)),
            card("GCOUNT", Value::Integer(1)),
            card("TFIELDS", integer(forms.len())),
        ];
        let fields = self.given.fields();
        let names = header_names(fields.iter().map(|field| field.name().as_str()));
        for (at, ((field, name), form)) in fields.iter().zip(&names).zip(forms).enumerate() {
            let number = at + 1;
            let mut add = |word: &str, value| cards.push(card(&format!("{word}{number}"), value));
            add("TTYPE", text(&name.name));
            add("TFORM", text(&form.tform()));
            if let Some(null) = form.null {
                add("TNULL", Value::Integer(null));
            }
            if let Some(zero) = form.kind.zero() {
                add("TSCAL", Value::Integer(1));
                add("TZERO", zero);
            }
            for (key, keyword) in DESCRIPTIONS {
                let known = field.metadata().get(key).map(String::as_str);
                let word = match key {
                    XTYPE => ValueForm::of(field.data_type()).xtype().or(known),
                    _ => known,
                };
                match word {
                    Some(word) if !word.is_empty() => add(keyword, text(word)),
                    _ => {}
                }
            }
            let meaning = field.metadata().get(MEANING).map(String::as_str);
            if let Some(comment) = name.comment(meaning) {
                add("TCOMM", text(&comment));
            }
        }
        if self.is_cut_off {
            cards.push(card("OVERFLOW", Value::Logical(true)));
        }
        bytes.extend(block(cards)?);
        Ok(bytes)
    }
}

/// The file behind a writer that has written all.
fn finished(mut writer: StreamWriter<BufWriter<File>>) -> Result<File, WriteError> {
    writer.finish()?;
    let file = writer.into_inner()?.into_inner();
    file.map_err(|error| WriteError::Io(error.into_error()))
}

fn text(text: &str) -> Value {
    // A header has the printable characters of ASCII alone, and lines have no ends in it.
    let plain = |c: char| match c {
        ' '..='~' => c,
        other if other.is_whitespace() => ' ',
        _ => '?',
    };
    Value::String(text.chars().map(plain).collect())
}

fn card(keyword: &str, value: Value) -> Result<Card, WriteError> {
    Card::new(keyword, value).map_err(of_header)
}

fn block(cards: Vec<Result<Card, WriteError>>) -> Result<Vec<u8>, WriteError> {
    let cards: Vec<Card> = cards.into_iter().collect::<Result<_, _>>()?;
    serialize_header(&cards).map_err(of_header)
}

fn of_header(error: fitsio_pure::Error) -> WriteError {
    let sentence = format!("the header of a FITS file cannot be written: {error}");
    ArrowError::InvalidArgumentError(sentence).into()
}

fn without_form(column: &str) -> WriteError {
    WriteError::Unfit(format!(
        "the column {column} has values that are made of others, and FITS has no form for these; VOTable, JSON and Parquet do"
    ))
}

/// What an element of a column is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Logical,
    /// An integer of so many bytes; with an offset if it is of the other sign than FITS has for it.
    Integer {
        bytes: usize,
        has_offset: bool,
    },
    Float,
    Double,
    Text {
        width: usize,
    },
}

/// How a column is written.
#[derive(Debug, Clone, Copy)]
struct Form {
    kind: Kind,
    /// The number that stands for NULL, as it is in the file.
    null: Option<i64>,
    /// How many elements a value has.
    repeat: usize,
}

impl Kind {
    /// The next integer with room for all that one of so many bytes can be.
    fn longer_integer(bytes: usize) -> Self {
        Self::Integer {
            bytes: 2 * bytes,
            has_offset: false,
        }
    }

    /// The numbers that an integer of this kind can be.
    fn range(self) -> (i128, i128) {
        let Self::Integer { bytes, has_offset } = self else {
            return (0, 0);
        };
        let values = 1_i128 << (8 * bytes);
        match (bytes == 1) != has_offset {
            true => (0, values - 1),
            false => (-values / 2, values / 2 - 1),
        }
    }

    /// What is taken away of a number before it is written.
    fn offset(self) -> i128 {
        match self {
            Self::Integer {
                bytes: 1,
                has_offset: true,
            } => -128,
            Self::Integer {
                bytes,
                has_offset: true,
            } => 1 << (8 * bytes - 1),
            _ => 0,
        }
    }

    fn zero(self) -> Option<Value> {
        match self.offset() {
            0 => None,
            offset => Some(match i64::try_from(offset) {
                Ok(zero) => Value::Integer(zero),
                Err(_) => Value::Float(offset as f64),
            }),
        }
    }
}

impl Form {
    fn of(field: &Field, seen: &ColumnSummary) -> Result<Self, WriteError> {
        let DataType::List(item) = field.data_type() else {
            return Ok(Self::of_element(field.data_type(), seen));
        };
        let element = Self::of_element(item.data_type(), seen);
        match seen.lengths {
            Some((shortest, longest)) if shortest != longest => Err(WriteError::Unfit(format!(
                "the column {} has lists of {shortest} to {longest} numbers, and in FITS all are of one length; VOTable, JSON and Parquet \
                 have room for them, or select those of one length",
                field.name()
            ))),
            lengths => Ok(Self {
                repeat: lengths.map_or(0, |(length, _)| length),
                ..element
            }),
        }
    }

    fn of_element(data_type: &DataType, seen: &ColumnSummary) -> Self {
        let integer = |bytes, has_offset| Kind::Integer { bytes, has_offset };
        let kind = match data_type {
            DataType::Boolean => Kind::Logical,
            DataType::Int8 => integer(1, true),
            DataType::Int16 => integer(2, false),
            DataType::Int32 => integer(4, false),
            DataType::Int64 => integer(8, false),
            DataType::UInt8 => integer(1, false),
            DataType::UInt16 => integer(2, true),
            DataType::UInt32 => integer(4, true),
            DataType::UInt64 => integer(8, true),
            DataType::Float32 => Kind::Float,
            DataType::Float64 => Kind::Double,
            _ => Kind::Text {
                width: seen.longest.max(1),
            },
        };
        match kind {
            Kind::Integer { .. } if seen.has_nulls => Self::with_null(kind, seen),
            _ => Self {
                kind,
                null: None,
                repeat: 1,
            },
        }
    }

    /// A form that has a number for NULL which no row has: of the same kind, of a longer one, or else a text. One with an offset is not
    /// tried where there is a longer one: astropy takes TNULLn for a number to which the offset was added.
    fn with_null(kind: Kind, seen: &ColumnSummary) -> Self {
        const LONGEST_INTEGER: usize = 20;
        let mut tried = match kind {
            Kind::Integer {
                bytes,
                has_offset: true,
            } if bytes < 8 => Kind::longer_integer(bytes),
            kind => kind,
        };
        loop {
            let (least, largest) = tried.range();
            let free = match (seen.least > least, seen.largest < largest) {
                (true, _) => Some(least),
                (false, true) => Some(largest),
                (false, false) => None,
            };
            if let Some(free) = free {
                return Self {
                    kind: tried,
                    null: i64::try_from(free - tried.offset()).ok(),
                    repeat: 1,
                };
            }
            tried = match tried {
                Kind::Integer { bytes, .. } if bytes < 8 => Kind::longer_integer(bytes),
                _ => {
                    let width = LONGEST_INTEGER;
                    return Self {
                        kind: Kind::Text { width },
                        null: None,
                        repeat: 1,
                    };
                }
            };
        }
    }

    fn bytes(&self) -> usize {
        self.repeat * self.element_bytes()
    }

    fn element_bytes(&self) -> usize {
        match self.kind {
            Kind::Logical => 1,
            Kind::Integer { bytes, .. } => bytes,
            Kind::Float => 4,
            Kind::Double => 8,
            Kind::Text { width } => width,
        }
    }

    fn tform(&self) -> String {
        let letter = match self.kind {
            Kind::Logical => 'L',
            Kind::Integer { bytes: 1, .. } => 'B',
            Kind::Integer { bytes: 2, .. } => 'I',
            Kind::Integer { bytes: 4, .. } => 'J',
            Kind::Integer { .. } => 'K',
            Kind::Float => 'E',
            Kind::Double => 'D',
            // Of several texts the whole width comes first.
            Kind::Text { width } if self.repeat == 1 => return format!("{width}A"),
            Kind::Text { width } => return format!("{}A{width}", self.repeat * width),
        };
        format!("{}{letter}", self.repeat)
    }

    /// Puts the values of an array into their places of rows, from a byte of each on.
    fn put(
        &self,
        array: &ArrayRef,
        rows: &mut [u8],
        row_bytes: usize,
        begin: usize,
    ) -> Result<(), ArrowError> {
        let width = self.element_bytes();
        let all = self.bytes();
        let cells = rows
            .chunks_exact_mut(row_bytes)
            .flat_map(|row| row[begin..begin + all].chunks_exact_mut(width));
        let elements = match array.as_list_opt::<i32>() {
            Some(lists) => &self.elements(lists)?,
            None => array,
        };
        let array = elements;
        match array.data_type() {
            DataType::Boolean => {
                for (cell, value) in cells.zip(array.as_boolean()) {
                    cell[0] = match value {
                        Some(true) => b'T',
                        Some(false) => b'F',
                        None => 0,
                    };
                }
            }
            DataType::Int8 => self.put_integers::<Int8Type>(array, cells),
            DataType::Int16 => self.put_integers::<Int16Type>(array, cells),
            DataType::Int32 => self.put_integers::<Int32Type>(array, cells),
            DataType::Int64 => self.put_integers::<Int64Type>(array, cells),
            DataType::UInt8 => self.put_integers::<UInt8Type>(array, cells),
            DataType::UInt16 => self.put_integers::<UInt16Type>(array, cells),
            DataType::UInt32 => self.put_integers::<UInt32Type>(array, cells),
            DataType::UInt64 => self.put_integers::<UInt64Type>(array, cells),
            DataType::Float32 => {
                for (cell, value) in cells.zip(array.as_primitive::<Float32Type>()) {
                    cell.copy_from_slice(&value.unwrap_or(f32::NAN).to_be_bytes());
                }
            }
            DataType::Float64 => {
                for (cell, value) in cells.zip(array.as_primitive::<Float64Type>()) {
                    cell.copy_from_slice(&value.unwrap_or(f64::NAN).to_be_bytes());
                }
            }
            _ => {
                for (cell, value) in cells.zip(array.as_string::<i32>()) {
                    let text = value.unwrap_or_default().as_bytes();
                    cell[..text.len()].copy_from_slice(text);
                }
            }
        }
        Ok(())
    }

    /// The elements of all lists one after another, as many of each row; those of NULL are NULL.
    fn elements(&self, lists: &ListArray) -> Result<ArrayRef, ArrowError> {
        let offsets = lists.value_offsets();
        let repeat = self.repeat as i32;
        let indices = (0..lists.len()).flat_map(|row| {
            let known = lists.is_valid(row);
            (0..repeat).map(move |at| known.then_some(offsets[row] + at))
        });
        take(lists.values(), &indices.collect::<Int32Array>(), None)
    }

    fn put_integers<'r, T: ArrowPrimitiveType<Native: Into<i128>>>(
        &self,
        array: &ArrayRef,
        cells: impl Iterator<Item = &'r mut [u8]>,
    ) {
        let offset = self.kind.offset();
        for (cell, value) in cells.zip(array.as_primitive::<T>()) {
            let value: Option<i128> = value.map(Into::into);
            if let Kind::Text { .. } = self.kind {
                let digits = value.map_or_else(String::new, |value| value.to_string());
                cell[..digits.len()].copy_from_slice(digits.as_bytes());
                continue;
            }
            let written = match value {
                Some(value) => value - offset,
                None => self.null.unwrap_or_default().into(),
            };
            let bytes = written.to_be_bytes();
            cell.copy_from_slice(&bytes[bytes.len() - cell.len()..]);
        }
    }
}

fn encoded(batch: &RecordBatch, forms: &[Form]) -> Result<Vec<u8>, ArrowError> {
    let row_bytes: usize = forms.iter().map(Form::bytes).sum();
    let mut rows = vec![0; batch.num_rows() * row_bytes];
    let mut begin = 0;
    for (array, form) in batch.columns().iter().zip(forms) {
        if row_bytes > 0 {
            form.put(array, &mut rows, row_bytes, begin)?;
        }
        begin += form.bytes();
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int8Array, Int64Array, UInt8Array, UInt16Array, UInt32Array, UInt64Array};

    use super::*;

    fn form(array: ArrayRef) -> (String, Option<i64>) {
        let mut seen = ColumnSummary::of(array.data_type());
        seen.look(&array);
        let form = Form::of(&Field::new("", array.data_type().clone(), true), &seen).unwrap();
        (form.tform(), form.null)
    }

    /// The cards of the table's header, those of long texts one after another.
    fn cards(schema: Schema) -> Vec<String> {
        let writer = FitsWriter::new(&Arc::new(schema), Vec::<u8>::new()).unwrap();
        let written = writer.finish().unwrap();
        let header = String::from_utf8(written[BLOCK..].to_vec()).unwrap();
        let cards = header.as_bytes().chunks(80);
        cards
            .map(|card| String::from_utf8_lossy(card).trim_end().to_owned())
            .collect()
    }

    /// Descriptions and utypes were read from files and never written.
    #[test]
    fn columns_are_described() {
        let said = |words: &[(&str, &str)]| {
            let words = words.iter();
            words
                .map(|(word, text)| ((*word).to_owned(), (*text).to_owned()))
                .collect()
        };
        let flux = Field::new("flux", DataType::Float64, true).with_metadata(said(&[
            ("unit", "Jy"),
            ("utype", "phot:flux"),
            ("description", "the flux,\nin the star's \u{3bc}-band"),
        ]));
        let long = "f".repeat(70);
        let error = Field::new(&long, DataType::Float64, true)
            .with_metadata(said(&[("description", "its error")]));
        let seen = Field::new("seen", DataType::Date32, true);
        let cards = cards(Schema::new(vec![flux, error, seen]));
        let has = |card: &str| assert!(cards.iter().any(|it| it == card), "{card}: {cards:?}");
        has("TTYPE1  = 'flux    '");
        has("TXTYP3  = 'timestamp'");
        has("TUNIT1  = 'Jy      '");
        has("TUTYP1  = 'phot:flux'");
        has("TCOMM1  = 'the flux, in the star''s ?-band'");
        has(&format!("TTYPE2  = '{}'", &long[..64]));
        has(&format!("TCOMM2  = '{}&'", &long[..67]));
        has("CONTINUE  'fff: its error'");
    }

    #[test]
    fn null_is_a_number_that_no_row_has() {
        let bytes = |values: Vec<Option<u8>>| Arc::new(UInt8Array::from(values)) as ArrayRef;
        assert_eq!(
            form(bytes(vec![Some(0), Some(255)])),
            ("1B".to_owned(), None)
        );
        assert_eq!(form(bytes(vec![Some(1), None])), ("1B".to_owned(), Some(0)));
        assert_eq!(
            form(bytes(vec![Some(0), None])),
            ("1B".to_owned(), Some(255))
        );
        let all = bytes(vec![Some(0), Some(255), None]);
        assert_eq!(form(all), ("1I".to_owned(), Some(-32768)));
        let signed = Arc::new(Int8Array::from(vec![Some(-128), None]));
        // astropy read the NULL of a column with an offset as a number.
        assert_eq!(form(signed), ("1I".to_owned(), Some(-32768)));
        let shorts = Arc::new(UInt16Array::from(vec![Some(65535), None]));
        assert_eq!(form(shorts), ("1J".to_owned(), Some(i32::MIN.into())));
        let longs = Arc::new(UInt32Array::from(vec![Some(u32::MAX), None]));
        assert_eq!(form(longs), ("1K".to_owned(), Some(i64::MIN)));
        let whole = Arc::new(UInt16Array::from(vec![Some(65535)]));
        assert_eq!(form(whole), ("1I".to_owned(), None));
        let longest = Arc::new(UInt64Array::from(vec![Some(1), None]));
        assert_eq!(form(longest), ("1K".to_owned(), Some(i64::MIN)));
        let ends = Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None]);
        assert_eq!(form(Arc::new(ends)), ("20A".to_owned(), None));
        assert_eq!(
            form(Arc::new(Int64Array::from(vec![None]))),
            ("1K".to_owned(), Some(i64::MIN))
        );
    }
}
