//! How the columns of a row that SQL never looks at are kept: in one value, the row's payload.
//!
//! A payload has a bit for each column (1: it has a value), then a slot of a fixed width for each column, then the bytes of texts. All
//! numbers are little-endian; the slot of a text has the offset at which its bytes end, counted from the end of the slots. Because the
//! slots of a column are at the same place in every row of a layout, rows are decoded column by column. A row names its layout, so that
//! rows from before a column was added are read as they were written.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BooleanBuilder, PrimitiveArray, PrimitiveBuilder,
    StringBuilder, new_null_array,
};
use arrow::datatypes::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use serde::{Deserialize, Serialize};

use crate::error::{AlertsError, Result};
use crate::schema::ColumnType;

/// A column in a layout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LayoutColumn {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) column_type: ColumnType,
}

/// The columns of a payload, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    columns: Vec<LayoutColumn>,
    /// Where each column's slot begins.
    slots: Vec<usize>,
    /// Bytes before the texts.
    width: usize,
}

const fn slot_width(column_type: ColumnType) -> usize {
    match column_type {
        ColumnType::Long | ColumnType::Double | ColumnType::Timestamp => 8,
        ColumnType::Int | ColumnType::Float | ColumnType::Text | ColumnType::Binary => 4,
        ColumnType::Short => 2,
        ColumnType::Byte | ColumnType::Boolean => 1,
    }
}

/// A number of a slot.
trait Slot: ArrowPrimitiveType {
    const WIDTH: usize;
    fn put(value: Self::Native, slot: &mut [u8]);
    fn get(slot: &[u8]) -> Self::Native;
}

macro_rules! slots {
    ($($arrow:ty: $native:ty),*) => {$(
        impl Slot for $arrow {
            const WIDTH: usize = size_of::<$native>();

            fn put(value: $native, slot: &mut [u8]) {
                slot.copy_from_slice(&value.to_le_bytes());
            }

            fn get(slot: &[u8]) -> $native {
                let mut bytes = [0; size_of::<$native>()];
                bytes.copy_from_slice(slot);
                <$native>::from_le_bytes(bytes)
            }
        }
    )*};
}

slots!(Int64Type: i64, Int32Type: i32, Int16Type: i16, Int8Type: i8, Float64Type: f64, Float32Type: f32, TimestampMicrosecondType: i64);

impl Layout {
    pub(crate) fn new(columns: Vec<LayoutColumn>) -> Self {
        let mut end = columns.len().div_ceil(8);
        let mut slots = Vec::with_capacity(columns.len());
        for column in &columns {
            slots.push(end);
            end += slot_width(column.column_type);
        }
        Self {
            columns,
            slots,
            width: end,
        }
    }

    pub(crate) fn columns(&self) -> &[LayoutColumn] {
        &self.columns
    }

    /// The payloads of rows, whose columns are in the order of the layout.
    pub(crate) fn encode(&self, columns: &[ArrayRef], rows: usize) -> Vec<Vec<u8>> {
        let mut payloads = vec![vec![0; self.width]; rows];
        for (index, column) in columns.iter().enumerate() {
            for (row, payload) in payloads.iter_mut().enumerate() {
                if column.is_valid(row) {
                    payload[index / 8] |= 1 << (index % 8);
                }
            }
            match self.columns[index].column_type {
                ColumnType::Long => self.put::<Int64Type>(index, column, &mut payloads),
                ColumnType::Int => self.put::<Int32Type>(index, column, &mut payloads),
                ColumnType::Short => self.put::<Int16Type>(index, column, &mut payloads),
                ColumnType::Byte => self.put::<Int8Type>(index, column, &mut payloads),
                ColumnType::Double => self.put::<Float64Type>(index, column, &mut payloads),
                ColumnType::Float => self.put::<Float32Type>(index, column, &mut payloads),
                ColumnType::Timestamp => {
                    self.put::<TimestampMicrosecondType>(index, column, &mut payloads)
                }
                ColumnType::Boolean => {
                    let values = column.as_boolean();
                    for (row, payload) in payloads.iter_mut().enumerate() {
                        payload[self.slots[index]] =
                            u8::from(values.is_valid(row) && values.value(row));
                    }
                }
                ColumnType::Text => {
                    let values = column.as_string::<i32>();
                    let bytes = |row| values.is_valid(row).then(|| values.value(row).as_bytes());
                    self.put_bytes(index, bytes, &mut payloads);
                }
                ColumnType::Binary => {
                    let values = column.as_binary::<i32>();
                    let bytes = |row| values.is_valid(row).then(|| values.value(row));
                    self.put_bytes(index, bytes, &mut payloads);
                }
            }
        }
        payloads
    }

    fn put<T: Slot>(&self, index: usize, column: &ArrayRef, payloads: &mut [Vec<u8>]) {
        let values: &PrimitiveArray<T> = column.as_primitive();
        let slot = self.slots[index]..self.slots[index] + T::WIDTH;
        for (row, payload) in payloads.iter_mut().enumerate() {
            if values.is_valid(row) {
                T::put(values.value(row), &mut payload[slot.clone()]);
            }
        }
    }

    /// Texts follow in the order of their columns, so that a text begins where the one before ends.
    fn put_bytes<'a>(
        &self,
        index: usize,
        bytes: impl Fn(usize) -> Option<&'a [u8]>,
        payloads: &mut [Vec<u8>],
    ) {
        let slot = self.slots[index]..self.slots[index] + 4;
        for (row, payload) in payloads.iter_mut().enumerate() {
            payload.extend_from_slice(bytes(row).unwrap_or_default());
            // A batch in Arrow has less than 2 GiB of text.
            let end = (payload.len() - self.width) as u32;
            payload[slot.clone()].copy_from_slice(&end.to_le_bytes());
        }
    }

    /// Whether each payload is as long as the layout says; else it cannot be decoded.
    ///
    /// # Errors
    /// One is not.
    pub(crate) fn check(&self, payloads: &[&[u8]]) -> Result<()> {
        let texts = self.columns.iter().zip(&self.slots);
        let texts: Vec<usize> = texts
            .filter(|(column, _)| {
                matches!(column.column_type, ColumnType::Text | ColumnType::Binary)
            })
            .map(|(_, &slot)| slot)
            .collect();
        let is_whole = |payload: &&[u8]| {
            let Some(bytes) = payload.len().checked_sub(self.width) else {
                return false;
            };
            let mut before = 0;
            texts.iter().all(|&slot| {
                let end = text_end(payload, slot);
                let is_whole = before <= end && end <= bytes;
                before = end;
                is_whole
            })
        };
        match payloads.iter().all(is_whole) {
            true => Ok(()),
            false => Err(AlertsError::Damaged(
                "the payload of a row is cut off".to_owned(),
            )),
        }
    }

    /// A column of checked payloads; NULL everywhere if the layout does not have it.
    ///
    /// # Errors
    /// A text is no text.
    pub(crate) fn decode(
        &self,
        name: &str,
        column_type: ColumnType,
        payloads: &[&[u8]],
    ) -> Result<ArrayRef> {
        let index = self.columns.iter().position(|column| column.name == name);
        let Some(index) = index.filter(|&index| self.columns[index].column_type == column_type)
        else {
            return Ok(new_null_array(&column_type.arrow(), payloads.len()));
        };
        Ok(match column_type {
            ColumnType::Long => self.get::<Int64Type>(index, payloads),
            ColumnType::Int => self.get::<Int32Type>(index, payloads),
            ColumnType::Short => self.get::<Int16Type>(index, payloads),
            ColumnType::Byte => self.get::<Int8Type>(index, payloads),
            ColumnType::Double => self.get::<Float64Type>(index, payloads),
            ColumnType::Float => self.get::<Float32Type>(index, payloads),
            ColumnType::Timestamp => self.get::<TimestampMicrosecondType>(index, payloads),
            ColumnType::Boolean => {
                let mut values = BooleanBuilder::with_capacity(payloads.len());
                for payload in payloads {
                    values.append_option(
                        has(payload, index).then(|| payload[self.slots[index]] != 0),
                    );
                }
                Arc::new(values.finish())
            }
            ColumnType::Text => {
                let mut values = StringBuilder::with_capacity(payloads.len(), 0);
                for payload in payloads {
                    let text = self.bytes(index, payload).map(str::from_utf8).transpose();
                    values.append_option(
                        text.map_err(|error| AlertsError::Damaged(error.to_string()))?,
                    );
                }
                Arc::new(values.finish())
            }
            ColumnType::Binary => {
                let mut values = BinaryBuilder::with_capacity(payloads.len(), 0);
                for payload in payloads {
                    values.append_option(self.bytes(index, payload));
                }
                Arc::new(values.finish())
            }
        })
    }

    fn get<T: Slot>(&self, index: usize, payloads: &[&[u8]]) -> ArrayRef {
        let slot = self.slots[index]..self.slots[index] + T::WIDTH;
        let mut values = PrimitiveBuilder::<T>::with_capacity(payloads.len());
        for payload in payloads {
            values.append_option(has(payload, index).then(|| T::get(&payload[slot.clone()])));
        }
        Arc::new(values.finish())
    }

    fn bytes<'a>(&self, index: usize, payload: &'a [u8]) -> Option<&'a [u8]> {
        if !has(payload, index) {
            return None;
        }
        let mut before = self.columns[..index].iter().zip(&self.slots).rev();
        let before = before.find(|(column, _)| {
            matches!(column.column_type, ColumnType::Text | ColumnType::Binary)
        });
        let begin = before.map_or(0, |(_, &slot)| text_end(payload, slot));
        Some(&payload[self.width + begin..self.width + text_end(payload, self.slots[index])])
    }
}

fn has(payload: &[u8], index: usize) -> bool {
    payload[index / 8] & (1 << (index % 8)) != 0
}

fn text_end(payload: &[u8], slot: usize) -> usize {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&payload[slot..slot + 4]);
    u32::from_le_bytes(bytes) as usize
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryArray, BooleanArray, Float32Array, Int16Array, Int64Array, StringArray,
    };
    use proptest::prelude::*;

    use super::*;

    fn layout(types: &[ColumnType]) -> Layout {
        let columns = types
            .iter()
            .enumerate()
            .map(|(at, &column_type)| LayoutColumn {
                name: format!("c{at}"),
                column_type,
            });
        Layout::new(columns.collect())
    }

    const TYPES: [ColumnType; 6] = [
        ColumnType::Text,
        ColumnType::Long,
        ColumnType::Float,
        ColumnType::Binary,
        ColumnType::Boolean,
        ColumnType::Short,
    ];

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            rows in proptest::collection::vec(
                (
                    any::<Option<String>>(),
                    any::<Option<i64>>(),
                    any::<Option<f32>>(),
                    any::<Option<Vec<u8>>>(),
                    any::<Option<bool>>(),
                    any::<Option<i16>>(),
                ),
                0..20,
            )
        ) {
            let texts: StringArray = rows.iter().map(|row| row.0.as_deref()).collect();
            let longs: Int64Array = rows.iter().map(|row| row.1).collect();
            let floats: Float32Array = rows.iter().map(|row| row.2.filter(|value| !value.is_nan())).collect();
            let bytes: BinaryArray = rows.iter().map(|row| row.3.as_deref()).collect();
            let flags: BooleanArray = rows.iter().map(|row| row.4).collect();
            let shorts: Int16Array = rows.iter().map(|row| row.5).collect();
            let columns: [ArrayRef; 6] = [
                Arc::new(texts), Arc::new(longs), Arc::new(floats), Arc::new(bytes), Arc::new(flags), Arc::new(shorts),
            ];
            let layout = layout(&TYPES);
            let payloads = layout.encode(&columns, rows.len());
            let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
            layout.check(&payloads).unwrap();
            for (at, column) in columns.iter().enumerate() {
                let decoded = layout.decode(&format!("c{at}"), TYPES[at], &payloads).unwrap();
                prop_assert_eq!(decoded.as_ref(), column.as_ref());
            }
            let missing = layout.decode("later", ColumnType::Double, &payloads).unwrap();
            prop_assert_eq!(missing.null_count(), rows.len());
        }

        #[test]
        fn damaged_payloads_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let layout = layout(&TYPES);
            let payloads = [bytes.as_slice()];
            if layout.check(&payloads).is_ok() {
                for (at, &column_type) in TYPES.iter().enumerate() {
                    let _ = layout.decode(&format!("c{at}"), column_type, &payloads);
                }
            }
        }
    }
}
