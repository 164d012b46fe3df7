//! Values of a VOTable in BINARY2: big-endian, row by row, each row led by a bit for each column that says whether it is NULL; all
//! of it in base64.
//!
//! Source: VOTable 1.4, section 5.4.

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, ListArray,
    PrimitiveArray, RecordBatch, StringArray,
};
use arrow::datatypes::{
    Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, ToByteSlice, UInt8Type,
};
use arrow::error::ArrowError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::columns::{ItemForm, TableColumn, ValueForm};
use super::votable::in_form;

/// Appends rows. `carry` are bytes that wait for others before they make a group of three.
pub(super) fn rows(
    columns: &[TableColumn],
    batch: &RecordBatch,
    carry: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), ArrowError> {
    let arrays = in_form(columns, batch)?;
    let cells: Vec<Box<dyn Cells + '_>> = columns
        .iter()
        .zip(&arrays)
        .map(|(column, array)| cells(column.form, array))
        .collect();
    for row in 0..batch.num_rows() {
        let map = carry.len();
        carry.resize(map + cells.len().div_ceil(8), 0);
        for (at, (column, array)) in cells.iter().zip(&arrays).enumerate() {
            if array.is_null(row) {
                carry[map + at / 8] |= 0x80 >> (at % 8);
                column.put_null(carry);
            } else {
                column.put(row, carry);
            }
        }
    }
    let whole = carry.len() / 3 * 3;
    encode(&carry[..whole], out);
    carry.drain(..whole);
    Ok(())
}

/// Appends what still waits.
pub(super) fn rest(carry: &mut Vec<u8>, out: &mut Vec<u8>) {
    encode(carry, out);
    carry.clear();
}

fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    out.resize(begin + bytes.len().div_ceil(3) * 4, 0);
    // There is room for it.
    let written = STANDARD.encode_slice(bytes, &mut out[begin..]).unwrap_or(0);
    out.truncate(begin + written);
}

/// The values of a column.
trait Cells {
    fn put(&self, row: usize, out: &mut Vec<u8>);

    /// Appends what stands in the place of a value.
    fn put_null(&self, out: &mut Vec<u8>);
}

fn cells(form: ValueForm, array: &ArrayRef) -> Box<dyn Cells + '_> {
    match form {
        ValueForm::Boolean => Box::new(array.as_boolean()),
        ValueForm::UnsignedByte => numbers::<UInt8Type>(array),
        ValueForm::Short => numbers::<Int16Type>(array),
        ValueForm::Int => numbers::<Int32Type>(array),
        ValueForm::Long => numbers::<Int64Type>(array),
        ValueForm::Float => numbers::<Float32Type>(array),
        ValueForm::Double => numbers::<Float64Type>(array),
        ValueForm::Bytes => Box::new(array.as_binary::<i32>()),
        ValueForm::Text | ValueForm::Timestamp => Box::new(array.as_string::<i32>()),
        ValueForm::Unicode => Box::new(Unicode(array.as_string())),
        ValueForm::Numbers(item, length) => {
            let lists = array.as_list::<i32>();
            let (items, missing): (_, &[u8]) = match item {
                ItemForm::Long => (numbers::<Int64Type>(lists.values()), &[0; 8]),
                ItemForm::Double => (numbers::<Float64Type>(lists.values()), &NAN),
            };
            Box::new(Numbers {
                lists,
                items,
                missing,
                length,
            })
        }
    }
}

fn numbers<T: ArrowPrimitiveType>(array: &ArrayRef) -> Box<dyn Cells + '_> {
    Box::new(array.as_primitive::<T>())
}

impl<T: ArrowPrimitiveType> Cells for &PrimitiveArray<T> {
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        let value = self.value(row);
        let own = value.to_byte_slice();
        if cfg!(target_endian = "little") {
            out.extend(own.iter().rev());
        } else {
            out.extend_from_slice(own);
        }
    }

    fn put_null(&self, out: &mut Vec<u8>) {
        out.resize(out.len() + size_of::<T::Native>(), 0);
    }
}

impl Cells for &BooleanArray {
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        out.push(if self.value(row) { b'T' } else { b'F' });
    }

    fn put_null(&self, out: &mut Vec<u8>) {
        out.push(b'?');
    }
}

/// NaN as it is sent.
const NAN: [u8; 8] = f64::NAN.to_be_bytes();

/// Arrays of numbers: their number is in front unless it is the same in every row.
struct Numbers<'a> {
    lists: &'a ListArray,
    items: Box<dyn Cells + 'a>,
    /// What stands in the place of each number of an array of so many that is NULL.
    missing: &'a [u8],
    length: Option<u32>,
}

impl Cells for Numbers<'_> {
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        let offsets = self.lists.value_offsets();
        let numbers = offsets[row] as usize..offsets[row + 1] as usize;
        if self.length.is_none() {
            put_length(numbers.len(), out);
        }
        for at in numbers {
            self.items.put(at, out);
        }
    }

    fn put_null(&self, out: &mut Vec<u8>) {
        match self.length {
            None => put_length(0, out),
            Some(length) => (0..length).for_each(|_| out.extend_from_slice(self.missing)),
        }
    }
}

fn put_length(length: usize, out: &mut Vec<u8>) {
    // An Arrow array of one column of a batch has less than 2^31 bytes.
    out.extend_from_slice(&(length as u32).to_be_bytes());
}

impl Cells for &BinaryArray {
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        put_length(self.value(row).len(), out);
        out.extend_from_slice(self.value(row));
    }

    fn put_null(&self, out: &mut Vec<u8>) {
        put_length(0, out);
    }
}

impl Cells for &StringArray {
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        put_length(self.value(row).len(), out);
        out.extend_from_slice(self.value(row).as_bytes());
    }

    fn put_null(&self, out: &mut Vec<u8>) {
        put_length(0, out);
    }
}

/// Texts in 16 bits for each character, with their number of these in front.
struct Unicode<'a>(&'a StringArray);

impl Cells for Unicode<'_> {
    fn put(&self, row: usize, out: &mut Vec<u8>) {
        let text = self.0.value(row);
        put_length(text.encode_utf16().count(), out);
        for unit in text.encode_utf16() {
            out.extend_from_slice(&unit.to_be_bytes());
        }
    }

    fn put_null(&self, out: &mut Vec<u8>) {
        put_length(0, out);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float32Array, Int64Array};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::super::columns::Role;
    use super::*;

    /// By hand from the standard's rules, in batches of every size.
    #[test]
    fn rows_are_those_of_the_standard() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("flux", DataType::Float32, true),
            Field::new("name", DataType::Utf8, true),
        ]));
        let columns: Vec<TableColumn> = [Role::Identifier, Role::Other, Role::Other]
            .into_iter()
            .zip(schema.fields())
            .map(|(role, field)| TableColumn::new(field, role))
            .collect();
        let batch = RecordBatch::try_new(
            Arc::clone(&schema),
            vec![
                Arc::new(Int64Array::from(vec![12, -3])),
                Arc::new(Float32Array::from(vec![None, Some(1.5)])),
                Arc::new(StringArray::from(vec![Some("ä"), None])),
            ],
        )
        .unwrap();
        let known: Vec<u8> = [
            &[
                0x40, 0, 0, 0, 2, b'1', b'2', 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xe4,
            ][..],
            &[0x20, 0, 0, 0, 2, b'-', b'3', 0x3f, 0xc0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        for split in 0..=2 {
            let (mut carry, mut out) = (Vec::new(), Vec::new());
            rows(&columns, &batch.slice(0, split), &mut carry, &mut out).unwrap();
            rows(
                &columns,
                &batch.slice(split, 2 - split),
                &mut carry,
                &mut out,
            )
            .unwrap();
            rest(&mut carry, &mut out);
            assert_eq!(STANDARD.decode(&out).unwrap(), known);
        }
    }
}
