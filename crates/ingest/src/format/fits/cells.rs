//! Cells of rows as columns of Arrow.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BooleanBuilder, PrimitiveArray, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::datatypes::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};

use super::column::{Descriptor, FitsColumn, Kind, Scaling};
use super::damaged;
use crate::budget::DecodeMeter;
use crate::error::IngestError;
use crate::format::elements::{Element, put_array};
use crate::format::text::timestamp;
use crate::format::times::no_time;

/// Arrays behind the rows.
pub(super) struct Heap<'a> {
    pub file: &'a File,
    pub begin: u64,
    pub bytes: u64,
}

/// Rows that were read.
pub(super) struct Rows<'a> {
    pub path: &'a Path,
    pub bytes: &'a [u8],
    pub row_bytes: usize,
    pub count: usize,
    pub heap: Option<Heap<'a>>,
    /// The number of the first one, from 1.
    pub first: u64,
    /// Texts that were no UTF-8.
    pub latin1: Cell<u64>,
    /// Bytes that the text of an array may have.
    pub longest_text: u64,
}

impl Rows<'_> {
    /// The cells of a column.
    pub fn cells(
        &self,
        column: &FitsColumn,
        meter: &mut DecodeMeter,
    ) -> Result<ArrayRef, IngestError> {
        if column.is_one_value() {
            return Ok(self.values(column));
        }
        let mut texts = StringBuilder::with_capacity(self.count, self.count * 8);
        self.each_text(column, meter, |_, text| {
            match text.is_empty() {
                true => texts.append_null(),
                false => texts.append_value(text),
            }
            Ok(())
        })?;
        Ok(Arc::new(texts.finish()))
    }

    /// The cells of a column of times, which are texts in the file.
    pub fn times(
        &self,
        column: &FitsColumn,
        meter: &mut DecodeMeter,
    ) -> Result<ArrayRef, IngestError> {
        let mut times = TimestampMicrosecondBuilder::with_capacity(self.count);
        self.each_text(column, meter, |row, text| {
            let text = text.trim();
            let time = timestamp(text.as_bytes()).map_err(|_| {
                let told = no_time(text, &column.name);
                damaged(self.path, format!("row {row}: {told}"))
            })?;
            times.append_option(time);
            Ok(())
        })?;
        Ok(Arc::new(times.finish()))
    }

    /// Gives the text of each cell of a column with the number of its row.
    fn each_text(
        &self,
        column: &FitsColumn,
        meter: &mut DecodeMeter,
        mut take: impl FnMut(u64, &str) -> Result<(), IngestError>,
    ) -> Result<(), IngestError> {
        let mut text = String::new();
        for (number, cell) in (self.first..).zip(self.raw(column)) {
            text.clear();
            match column.in_heap {
                None => {
                    self.check_text(column, column.repeat)?;
                    self.put_text(column, cell, column.repeat as usize, &mut text);
                }
                Some(descriptor) => {
                    let (bytes, count) = self.of_heap(column, descriptor, cell, number, meter)?;
                    self.check_text(column, count as u64)?;
                    self.put_text(column, &bytes, count, &mut text);
                }
            }
            meter.add(text.len() as u64)?;
            take(number, &text)?;
        }
        Ok(())
    }

    /// The bytes of each row's cell.
    fn raw<'r>(&'r self, column: &FitsColumn) -> impl Iterator<Item = &'r [u8]> {
        // The header's columns take the bytes of a row exactly.
        let (begin, end) = (
            column.offset as usize,
            (column.offset + column.bytes) as usize,
        );
        let rows = self.bytes.chunks_exact(self.row_bytes.max(1));
        rows.map(move |row| &row[begin..end])
    }

    /// Cells of one number or truth.
    fn values(&self, column: &FitsColumn) -> ArrayRef {
        match (column.kind, column.scaling) {
            (Kind::Logical | Kind::Bit, _) => {
                let mut truths = BooleanBuilder::with_capacity(self.count);
                for cell in self.raw(column) {
                    truths.append_option(match column.kind {
                        Kind::Bit => Some(cell[0] & 0x80 != 0),
                        _ => truth(cell[0]),
                    });
                }
                Arc::new(truths.finish())
            }
            (Kind::Float, Scaling::Nothing) => {
                self.numbers::<Float32Type, 4>(column, |raw| Some(f32::from_be_bytes(raw)))
            }
            (Kind::Double, Scaling::Nothing) => {
                self.numbers::<Float64Type, 8>(column, |raw| Some(f64::from_be_bytes(raw)))
            }
            (Kind::Float, Scaling::Linear { zero, scale }) => self
                .numbers::<Float64Type, 4>(column, |raw| {
                    Some(zero + scale * f64::from(f32::from_be_bytes(raw)))
                }),
            (Kind::Double, Scaling::Linear { zero, scale }) => self
                .numbers::<Float64Type, 8>(column, |raw| {
                    Some(zero + scale * f64::from_be_bytes(raw))
                }),
            _ => self.integers(column),
        }
    }

    fn integers(&self, column: &FitsColumn) -> ArrayRef {
        let null = column.null;
        macro_rules! integers {
            ($raw:ty, $bytes:literal, $same:ty, $other:ty, $of_other:ty) => {{
                // What no number of the type is stands for none.
                let null = null.and_then(|null| <$raw>::try_from(null).ok());
                let raw = |bytes: [u8; $bytes]| {
                    let number = <$raw>::from_be_bytes(bytes);
                    (Some(number) != null).then_some(number)
                };
                match column.scaling {
                    Scaling::Nothing => self.numbers::<$same, $bytes>(column, raw),
                    Scaling::OtherSign => self.numbers::<$other, $bytes>(column, |bytes| {
                        let flipped =
                            |number: $raw| (number ^ (1 << (<$raw>::BITS - 1))) as $of_other;
                        raw(bytes).map(flipped)
                    }),
                    Scaling::Plus(zero) => self.numbers::<Int64Type, $bytes>(column, |bytes| {
                        raw(bytes).map(|number| zero + number as i64)
                    }),
                    Scaling::Linear { zero, scale } => self
                        .numbers::<Float64Type, $bytes>(column, |bytes| {
                            raw(bytes).map(|number| zero + scale * number as f64)
                        }),
                }
            }};
        }
        match column.kind {
            Kind::Byte => integers!(u8, 1, UInt8Type, Int8Type, i8),
            Kind::Short => integers!(i16, 2, Int16Type, UInt16Type, u16),
            Kind::Int => integers!(i32, 4, Int32Type, UInt32Type, u32),
            _ => integers!(i64, 8, Int64Type, UInt64Type, u64),
        }
    }

    fn numbers<T: ArrowPrimitiveType, const N: usize>(
        &self,
        column: &FitsColumn,
        number: impl Fn([u8; N]) -> Option<T::Native>,
    ) -> ArrayRef {
        let cells = self.raw(column).map(|cell| {
            let mut bytes = [0; N];
            bytes.copy_from_slice(&cell[..N]);
            number(bytes)
        });
        Arc::new(match column.null {
            Some(_) => cells.collect::<PrimitiveArray<T>>(),
            None => PrimitiveArray::<T>::from_iter_values(cells.map(Option::unwrap_or_default)),
        })
    }

    /// The text that stands for a cell of several elements, or of characters.
    fn put_text(&self, column: &FitsColumn, cell: &[u8], count: usize, to: &mut String) {
        if column.kind == Kind::Ascii {
            let width = column.text_width.unwrap_or(cell.len()).max(1);
            for part in cell.chunks(width) {
                if !to.is_empty() {
                    to.push(' ');
                }
                self.put_characters(part, to);
            }
            return;
        }
        let elements =
            (0..count).flat_map(|at| elements_at(column, cell, at).into_iter().flatten());
        put_array(elements, to);
    }

    /// Whether the text of so many elements may become too long.
    fn check_text(&self, column: &FitsColumn, elements: u64) -> Result<(), IngestError> {
        if elements.saturating_mul(column.kind.longest_text()) <= self.longest_text {
            return Ok(());
        }
        let reason = format!(
            "an array of its column {:?} has {elements} elements, which is too many",
            column.name
        );
        Err(IngestError::too_large(self.path, reason))
    }

    /// A text ends at the first zero byte; blanks at its end fill it up.
    fn put_characters(&self, bytes: &[u8], to: &mut String) {
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        let bytes = bytes[..end].trim_ascii_end();
        match std::str::from_utf8(bytes) {
            Ok(text) => to.push_str(text),
            Err(_) => {
                self.latin1.set(self.latin1.get() + 1);
                to.extend(bytes.iter().copied().map(char::from));
            }
        }
    }

    /// The bytes of an array behind the rows, and how many elements it has.
    fn of_heap(
        &self,
        column: &FitsColumn,
        descriptor: Descriptor,
        cell: &[u8],
        row: u64,
        meter: &mut DecodeMeter,
    ) -> Result<(Vec<u8>, usize), IngestError> {
        let wrong = |what: &str| {
            let name = &column.name;
            damaged(
                self.path,
                format!("row {row}: the array of the column {name:?} {what}"),
            )
        };
        let (count, place) = match descriptor {
            Descriptor::P => (integer::<4>(cell, 0), integer::<4>(cell, 4)),
            Descriptor::Q => (integer::<8>(cell, 0), integer::<8>(cell, 8)),
        };
        let (Ok(count), Ok(place)) = (u64::try_from(count), u64::try_from(place)) else {
            return Err(wrong("has a negative length or place"));
        };
        let heap = self.heap.as_ref();
        let heap = heap.ok_or_else(|| wrong("is not there in a packed file"))?;
        let bytes = column.kind.bytes(count);
        let fits = |bytes: &u64| {
            bytes
                .checked_add(place)
                .is_some_and(|end| end <= heap.bytes)
        };
        let bytes = bytes
            .filter(fits)
            .ok_or_else(|| wrong("ends behind the file's data"))?;
        meter.add(bytes)?;
        let length = usize::try_from(bytes).map_err(|_| wrong("is too long"))?;
        let mut array = vec![0; length];
        heap.file
            .read_exact_at(&mut array, heap.begin + place)
            .map_err(|error| IngestError::io("read", self.path, error))?;
        Ok((array, count as usize))
    }
}

/// `T`, `F`, and anything else for no truth.
fn truth(byte: u8) -> Option<bool> {
    match byte {
        b'T' => Some(true),
        b'F' => Some(false),
        _ => None,
    }
}

/// A signed integer of some bytes of a cell.
fn integer<const N: usize>(cell: &[u8], at: usize) -> i64 {
    let bytes = &cell[at..at + N];
    let sign = if bytes[0] & 0x80 == 0 { 0 } else { -1 };
    bytes
        .iter()
        .fold(sign, |number, byte| number << 8 | i64::from(*byte))
}

/// An element of an array: two numbers of a complex one.
fn elements_at(column: &FitsColumn, cell: &[u8], at: usize) -> [Option<Element>; 2] {
    let float = |at: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&cell[4 * at..4 * at + 4]);
        f32::from_be_bytes(bytes)
    };
    let double = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&cell[8 * at..8 * at + 8]);
        f64::from_be_bytes(bytes)
    };
    let scaled = |number: f64| match column.scaling {
        Scaling::Linear { zero, scale } => zero + scale * number,
        _ => number,
    };
    let whole = |number: i64, bits: u32| {
        if column.null == Some(number) {
            return Element::Null;
        }
        match column.scaling {
            Scaling::Nothing => Element::Integer(number),
            Scaling::OtherSign if bits == 64 => Element::Unsigned((number as u64) ^ (1 << 63)),
            // A byte has no sign here, the others have.
            Scaling::OtherSign if bits == 8 => Element::Integer(number - 128),
            Scaling::OtherSign => Element::Integer(number + (1 << (bits - 1))),
            Scaling::Plus(zero) => Element::Integer(zero + number),
            Scaling::Linear { .. } => Element::Double(scaled(number as f64)),
        }
    };
    let only = match column.kind {
        Kind::ComplexFloat => {
            return [2 * at, 2 * at + 1].map(|at| Some(Element::Float(float(at))));
        }
        Kind::ComplexDouble => {
            return [2 * at, 2 * at + 1].map(|at| Some(Element::Double(double(at))));
        }
        Kind::Logical => truth(cell[at]).map_or(Element::Null, Element::Truth),
        Kind::Bit => Element::Integer(i64::from(cell[at / 8] >> (7 - at % 8) & 1)),
        Kind::Byte | Kind::Ascii => whole(i64::from(cell[at]), 8),
        Kind::Short => whole(integer::<2>(cell, 2 * at), 16),
        Kind::Int => whole(integer::<4>(cell, 4 * at), 32),
        Kind::Long => whole(integer::<8>(cell, 8 * at), 64),
        Kind::Float if column.scaling == Scaling::Nothing => Element::Float(float(at)),
        Kind::Float => Element::Double(scaled(f64::from(float(at)))),
        Kind::Double => Element::Double(scaled(double(at))),
    };
    [Some(only), None]
}
