//! Rows as they are sent: as text, or for prepared statements as the bytes of their values.

use std::io::Write;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Date32Array, Float32Array,
    Float64Array, GenericByteArray, GenericByteViewArray, PrimitiveArray, RecordBatch, StringArray,
    StringViewArray,
};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowNativeType, ByteArrayType, ByteViewType, DataType, Date32Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use sql::Moment;
use sql::connection::CharacterSet;

use super::columns::fraction_digits;
use super::numbers::{put_double, put_float};
use super::wire::{Reader, put_bytes, put_null};

/// How the values of a row are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// All as text: what COM_QUERY gives.
    Text,
    /// Each by its type: what COM_STMT_EXECUTE gives.
    Binary,
}

/// The rows of a batch.
pub(crate) struct Rows<'a> {
    columns: Vec<Box<dyn Values + 'a>>,
    form: Form,
}

impl<'a> Rows<'a> {
    /// With texts in a character set, or else in UTF-8.
    ///
    /// # Errors
    /// A column of a type that cannot be shown.
    pub(crate) fn new(
        batch: &'a RecordBatch,
        form: Form,
        set: Option<&'static CharacterSet>,
    ) -> Result<Self, ArrowError> {
        let schema = batch.schema_ref();
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns.map(|(array, field)| {
            match field.metadata().contains_key(sql::functions::TIME) {
                true => times(array),
                false => values(array, fraction_digits(field), set),
            }
        });
        Ok(Self {
            columns: columns.collect::<Result<_, _>>()?,
            form,
        })
    }

    /// Appends a row.
    pub(crate) fn put(&self, row: usize, bytes: &mut Vec<u8>) {
        match self.form {
            Form::Text => self.put_text(row, bytes),
            Form::Binary => self.put_binary(row, bytes),
        }
    }

    /// The values of a row as text, in the order of the columns; `None` for NULL. `scratch` is overwritten.
    pub(crate) fn texts(
        &self,
        row: usize,
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(usize, Option<&[u8]>),
    ) {
        for (at, column) in self.columns.iter().enumerate() {
            scratch.clear();
            if column.is_null(row) {
                each(at, None);
                continue;
            }
            column.put_text(row, scratch);
            each(at, Reader::new(scratch).sized().ok());
        }
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        for column in &self.columns {
            match column.is_null(row) {
                true => put_null(bytes),
                false => column.put_text(row, bytes),
            }
        }
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        /// The first two bits of the map of NULLs are no column's.
        const OFFSET: usize = 2;
        bytes.push(0);
        let map = bytes.len();
        bytes.resize(map + (self.columns.len() + OFFSET).div_ceil(8), 0);
        for (at, column) in self.columns.iter().enumerate() {
            if column.is_null(row) {
                bytes[map + (at + OFFSET) / 8] |= 1 << ((at + OFFSET) % 8);
            } else {
                column.put_binary(row, bytes);
            }
        }
    }
}

/// The values of a column.
trait Values {
    fn is_null(&self, row: usize) -> bool;

    /// Appends a value that is not NULL with its length.
    fn put_text(&self, row: usize, bytes: &mut Vec<u8>);

    /// Appends a value that is not NULL by its type.
    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        self.put_text(row, bytes);
    }
}

/// Of a column, whose times all have so many digits of a second if that is known.
fn values<'a>(
    array: &'a ArrayRef,
    digits: Option<u8>,
    set: Option<&'static CharacterSet>,
) -> Result<Box<dyn Values + 'a>, ArrowError> {
    use DataType as D;
    if let (D::Utf8 | D::LargeUtf8 | D::Utf8View, Some(set)) = (array.data_type(), set) {
        let texts = cast(array, &D::Utf8View)?.as_string_view().clone();
        return Ok(Box::new(TextConverter { texts, set }));
    }
    Ok(match array.data_type() {
        D::Null => Box::new(Nothing),
        D::Boolean => Box::new(Truths(array.as_boolean())),
        D::Int8 => integers::<Int8Type>(array),
        D::Int16 => integers::<Int16Type>(array),
        D::Int32 => integers::<Int32Type>(array),
        D::Int64 => integers::<Int64Type>(array),
        D::UInt8 => integers::<UInt8Type>(array),
        D::UInt16 => integers::<UInt16Type>(array),
        D::UInt32 => integers::<UInt32Type>(array),
        D::UInt64 => integers::<UInt64Type>(array),
        D::Float16 => Box::new(Floats(cast(array, &D::Float32)?.as_primitive().clone())),
        D::Float32 => Box::new(Floats(array.as_primitive().clone())),
        D::Float64 => Box::new(Doubles(array.as_primitive())),
        D::Date32 => Box::new(Dates(array.as_primitive::<Date32Type>().clone())),
        D::Date64 => Box::new(Dates(cast(array, &D::Date32)?.as_primitive().clone())),
        D::Timestamp(..) => {
            let micros = cast(array, &D::Timestamp(TimeUnit::Microsecond, None))?;
            Box::new(Moments {
                micros: micros.as_primitive().clone(),
                digits,
            })
        }
        D::Utf8 => Box::new(array.as_string::<i32>()),
        D::LargeUtf8 => Box::new(array.as_string::<i64>()),
        D::Utf8View => Box::new(array.as_string_view()),
        D::Binary => Box::new(array.as_binary::<i32>()),
        D::LargeBinary => Box::new(array.as_binary::<i64>()),
        D::BinaryView => Box::new(array.as_binary_view()),
        D::FixedSizeBinary(_) => {
            let binary = cast(array, &D::Binary)?;
            Box::new(binary.as_binary::<i32>().clone())
        }
        // Decimals, which are text in both forms, and what MySQL has no type for.
        _ => Box::new(FormattedValues {
            array,
            formatter: ArrayFormatter::try_new(array.as_ref(), &SHOWN)?,
        }),
    })
}

const SHOWN: FormatOptions<'static> = FormatOptions::new();

/// Appends what `write` appends, which is shorter than 251 bytes, with its length.
fn put_short(bytes: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.push(0);
    write(bytes);
    bytes[start] = (bytes.len() - start - 1) as u8;
}

struct Nothing;

impl Values for Nothing {
    fn is_null(&self, _: usize) -> bool {
        true
    }

    fn put_text(&self, _: usize, bytes: &mut Vec<u8>) {
        put_null(bytes);
    }
}

/// Columns of TINYINT(1): 1 and 0.
struct Truths<'a>(&'a BooleanArray);

impl Values for Truths<'_> {
    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_bytes(bytes, if self.0.value(row) { b"1" } else { b"0" });
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self.0.value(row)));
    }
}

struct Integers<'a, T: ArrowPrimitiveType>(&'a PrimitiveArray<T>);

fn integers<'a, T>(array: &'a ArrayRef) -> Box<dyn Values + 'a>
where
    T: ArrowPrimitiveType,
    T::Native: itoa::Integer,
{
    Box::new(Integers(array.as_primitive::<T>()))
}

impl<T> Values for Integers<'_, T>
where
    T: ArrowPrimitiveType,
    T::Native: itoa::Integer,
{
    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_bytes(
            bytes,
            itoa::Buffer::new().format(self.0.value(row)).as_bytes(),
        );
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        let width = size_of::<T::Native>();
        // Two's complement, cut to its width: the sign goes with it.
        let value = match self.0.value(row).to_i64() {
            Some(value) => value as u64,
            None => self.0.value(row).as_usize() as u64,
        };
        bytes.extend_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// Numbers of 32 bits. Infinite ones, which MySQL does not have, are NULL.
struct Floats(Float32Array);

impl Values for Floats {
    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row) || !self.0.value(row).is_finite()
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_short(bytes, |bytes| put_float(bytes, self.0.value(row)));
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.0.value(row).to_le_bytes());
    }
}

/// Numbers of 64 bits. Infinite ones, which MySQL does not have, are NULL.
struct Doubles<'a>(&'a Float64Array);

impl Values for Doubles<'_> {
    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row) || !self.0.value(row).is_finite()
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_short(bytes, |bytes| put_double(bytes, self.0.value(row)));
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.0.value(row).to_le_bytes());
    }
}

const MICROS_OF_DAY: i64 = 86_400_000_000;

struct Dates(Date32Array);

impl Dates {
    fn value(&self, row: usize) -> Moment {
        Moment::of_micros(i64::from(self.0.value(row)) * MICROS_OF_DAY)
    }
}

impl Values for Dates {
    fn is_null(&self, row: usize) -> bool {
        self.0.is_null(row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_short(bytes, |bytes| put_date(bytes, &self.value(row)));
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        bytes.push(4);
        put_date_bytes(bytes, &self.value(row));
    }
}

struct Moments {
    micros: PrimitiveArray<TimestampMicrosecondType>,
    /// The digits of a second that all of them have.
    digits: Option<u8>,
}

impl Values for Moments {
    fn is_null(&self, row: usize) -> bool {
        self.micros.is_null(row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        let moment = Moment::of_micros(self.micros.value(row));
        put_short(bytes, |bytes| {
            put_date(bytes, &moment);
            bytes.push(b' ');
            put_time(bytes, &moment, self.digits);
        });
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        let moment = Moment::of_micros(self.micros.value(row));
        let micros = moment.micros != 0;
        let time = micros || (moment.hour, moment.minute, moment.second) != (0, 0, 0);
        bytes.push(if micros {
            11
        } else if time {
            7
        } else {
            4
        });
        put_date_bytes(bytes, &moment);
        if time {
            put_time_bytes(bytes, &moment);
        }
        if micros {
            bytes.extend_from_slice(&(moment.micros as u32).to_le_bytes());
        }
    }
}

/// Times of day and spans of time, as the texts that the engine makes of them.
struct Times(StringArray);

fn times<'a>(texts: &ArrayRef) -> Result<Box<dyn Values + 'a>, ArrowError> {
    let texts = cast(texts, &DataType::Utf8)?;
    Ok(Box::new(Times(texts.as_string().clone())))
}

impl Values for Times {
    fn is_null(&self, row: usize) -> bool {
        Array::is_null(&self.0, row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_bytes(bytes, self.0.value(row).as_bytes());
    }

    fn put_binary(&self, row: usize, bytes: &mut Vec<u8>) {
        let text = self.0.value(row);
        let span = text.trim_start_matches('-');
        let (whole, fraction) = span.split_once('.').unwrap_or((span, ""));
        let mut numbers = whole.split(':').map(|part| part.parse().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let (hours, minutes, seconds): (u32, u32, u32) = (next(), next(), next());
        let micros: u32 = format!("{fraction:0<6}").parse().unwrap_or(0);
        if (hours, minutes, seconds, micros) == (0, 0, 0, 0) {
            bytes.push(0);
            return;
        }
        bytes.push(if micros != 0 { 12 } else { 8 });
        bytes.push(u8::from(text.starts_with('-')));
        bytes.extend_from_slice(&(hours / 24).to_le_bytes());
        bytes.extend_from_slice(&[(hours % 24) as u8, minutes as u8, seconds as u8]);
        if micros != 0 {
            bytes.extend_from_slice(&micros.to_le_bytes());
        }
    }
}

fn put_date(bytes: &mut Vec<u8>, moment: &Moment) {
    // A list of bytes takes all.
    let _ = write!(
        bytes,
        "{:04}-{:02}-{:02}",
        moment.year, moment.month, moment.day
    );
}

/// With so many digits of a fraction; with all where there are more, or where that is not known and there is one.
fn put_time(bytes: &mut Vec<u8>, moment: &Moment, digits: Option<u8>) {
    let (hour, minute, second) = (moment.hour, moment.minute, moment.second);
    let _ = write!(bytes, "{hour:02}:{minute:02}:{second:02}");
    if moment.micros == 0 && digits.unwrap_or(0) == 0 {
        return;
    }
    let fraction = format!("{:06}", moment.micros);
    let known = fraction.len().min(digits.unwrap_or(0).into());
    let shown = match fraction[known..].bytes().all(|digit| digit == b'0') {
        true => &fraction[..known],
        false => &fraction,
    };
    if !shown.is_empty() {
        let _ = write!(bytes, ".{shown}");
    }
}

fn put_date_bytes(bytes: &mut Vec<u8>, moment: &Moment) {
    bytes.extend_from_slice(&(moment.year as u16).to_le_bytes());
    bytes.extend_from_slice(&[moment.month as u8, moment.day as u8]);
}

fn put_time_bytes(bytes: &mut Vec<u8>, moment: &Moment) {
    bytes.extend_from_slice(&[moment.hour as u8, moment.minute as u8, moment.second as u8]);
}

impl<T: ByteArrayType> Values for &GenericByteArray<T> {
    fn is_null(&self, row: usize) -> bool {
        Array::is_null(*self, row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_bytes(bytes, self.value(row).as_ref());
    }
}

impl<T: ByteArrayType> Values for GenericByteArray<T> {
    fn is_null(&self, row: usize) -> bool {
        Array::is_null(self, row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_bytes(bytes, self.value(row).as_ref());
    }
}

impl<T: ByteViewType + ?Sized> Values for &GenericByteViewArray<T> {
    fn is_null(&self, row: usize) -> bool {
        Array::is_null(*self, row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_bytes(bytes, self.value(row).as_ref());
    }
}

/// Texts for a client that does not read UTF-8.
struct TextConverter {
    texts: StringViewArray,
    set: &'static CharacterSet,
}

impl Values for TextConverter {
    fn is_null(&self, row: usize) -> bool {
        self.texts.is_null(row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        put_bytes(bytes, &self.set.encode(self.texts.value(row)));
    }
}

/// What is written as Arrow shows it.
struct FormattedValues<'a> {
    array: &'a ArrayRef,
    formatter: ArrayFormatter<'a>,
}

impl Values for FormattedValues<'_> {
    fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row)
    }

    fn put_text(&self, row: usize, bytes: &mut Vec<u8>) {
        // A value that cannot be shown is shown as nothing.
        let text = self
            .formatter
            .value(row)
            .try_to_string()
            .unwrap_or_default();
        put_bytes(bytes, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, Decimal128Array, Int32Array, NullArray, TimestampMicrosecondArray, UInt64Array,
    };
    use arrow::datatypes::{Field, Schema};

    use super::*;

    fn batch() -> RecordBatch {
        let decimals = Decimal128Array::from(vec![Some(-1234), None]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a", Arc::new(Int32Array::from(vec![Some(-7), None]))),
            ("b", Arc::new(UInt64Array::from(vec![Some(u64::MAX), None]))),
            (
                "c",
                Arc::new(Float64Array::from(vec![Some(0.5), Some(f64::INFINITY)])),
            ),
            (
                "d",
                Arc::new(decimals.with_precision_and_scale(10, 2).unwrap()),
            ),
            ("e", Arc::new(Date32Array::from(vec![Some(14_775), None]))),
            (
                "f",
                Arc::new(TimestampMicrosecondArray::from(vec![
                    Some(1_276_563_723_000_250),
                    None,
                ])),
            ),
            ("g", Arc::new(StringArray::from(vec![Some("é"), None]))),
            (
                "h",
                Arc::new(StringViewArray::from(vec![
                    Some("a longer text than fits"),
                    None,
                ])),
            ),
            (
                "i",
                Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None])),
            ),
            ("j", Arc::new(BooleanArray::from(vec![Some(true), None]))),
            ("k", Arc::new(NullArray::new(2))),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn row(form: Form, row: usize) -> Vec<u8> {
        let batch = batch();
        let mut bytes = vec![];
        Rows::new(&batch, form, None).unwrap().put(row, &mut bytes);
        bytes
    }

    #[test]
    fn text_has_its_length_before_it() {
        let mut expected = vec![];
        for text in [
            "-7",
            "18446744073709551615",
            "0.5",
            "-12.34",
            "2010-06-15",
            "2010-06-15 01:02:03.000250",
            "é",
            "a longer text than fits",
        ] {
            put_bytes(&mut expected, text.as_bytes());
        }
        expected.extend_from_slice(b"\x02\x00\xff\x011\xfb");
        assert_eq!(row(Form::Text, 0), expected);
        assert_eq!(row(Form::Text, 1), [0xfb; 11]);
    }

    #[test]
    fn spans_have_a_sign_and_days() {
        let texts = StringArray::from(vec!["-838:59:59.000001", "11:07:15", "00:00:00"]);
        let mark = [(sql::functions::TIME.to_owned(), String::new())];
        let field = Field::new("t", DataType::Utf8, true).with_metadata(mark.into());
        let schema = Arc::new(Schema::new(vec![field]));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(texts)]).unwrap();
        let rows = Rows::new(&batch, Form::Binary, None).unwrap();
        let bytes = |row| {
            let mut bytes = vec![];
            rows.put(row, &mut bytes);
            bytes
        };
        assert_eq!(bytes(0), [0, 0, 12, 1, 34, 0, 0, 0, 22, 59, 59, 1, 0, 0, 0]);
        assert_eq!(bytes(1), [0, 0, 8, 0, 0, 0, 0, 0, 11, 7, 15]);
        assert_eq!(bytes(2), [0, 0, 0]);
        let mut text = vec![];
        Rows::new(&batch, Form::Text, None)
            .unwrap()
            .put(0, &mut text);
        assert_eq!(text, b"\x11-838:59:59.000001");
    }

    #[test]
    fn bytes_are_those_of_the_values() {
        let mut expected = vec![0, 0, 0b0001_0000];
        expected.extend_from_slice(&(-7_i32).to_le_bytes());
        expected.extend_from_slice(&u64::MAX.to_le_bytes());
        expected.extend_from_slice(&0.5_f64.to_le_bytes());
        put_bytes(&mut expected, b"-12.34");
        expected.extend_from_slice(&[4, 0xda, 7, 6, 15]);
        expected.extend_from_slice(&[11, 0xda, 7, 6, 15, 1, 2, 3, 250, 0, 0, 0]);
        put_bytes(&mut expected, "é".as_bytes());
        put_bytes(&mut expected, b"a longer text than fits");
        expected.extend_from_slice(b"\x02\x00\xff\x01");
        assert_eq!(row(Form::Binary, 0), expected);
        assert_eq!(row(Form::Binary, 1), [0, 0b1111_1100, 0b0001_1111]);
    }
}
