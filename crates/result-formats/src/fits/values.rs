//! The values of a FITS table's columns as they are kept until all are there, and what its header has to know of them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Field, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow::error::ArrowError;

use crate::nested;

/// What the header has to know of a column's values.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnSummary {
    pub has_nulls: bool,
    pub least: i128,
    pub largest: i128,
    pub longest: usize,
    /// The shortest and the longest list; `None` while there is none.
    pub lengths: Option<(usize, usize)>,
}

impl ColumnSummary {
    /// What is known of a column before its values.
    pub fn of(data_type: &DataType) -> Self {
        let lengths = match data_type {
            DataType::FixedSizeList(_, length) => Some((*length as usize, *length as usize)),
            _ => None,
        };
        Self {
            has_nulls: false,
            least: i128::MAX,
            largest: i128::MIN,
            longest: 0,
            lengths,
        }
    }
}

/// The type in which a column's values are kept: truths, numbers, texts and lists of numbers; none for what has no form.
pub(super) fn kept_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        kept @ (DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Float32
        | DataType::Float64) => kept.clone(),
        DataType::Float16 => DataType::Float32,
        decimal if decimal.is_decimal() => DataType::Float64,
        DataType::Dictionary(_, values) => return kept_type(values),
        nested if nested.is_nested() => {
            let item = kept_type(nested::numbers_of(nested)?.data_type())?;
            DataType::List(Arc::new(Field::new_list_field(item, true)))
        }
        _ => DataType::Utf8,
    })
}

pub(super) fn kept_array(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let kept = kept_type(array.data_type()).unwrap_or(DataType::Utf8);
    match array.data_type() {
        given if *given == kept => Ok(Arc::clone(array)),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => {
            let bytes = cast(array, &DataType::Binary)?;
            let digits = |bytes: &[u8]| -> String {
                bytes.iter().map(|byte| format!("{byte:02X}")).collect()
            };
            let texts = bytes.as_binary::<i32>().iter();
            let texts: StringArray = texts.map(|bytes| bytes.map(digits)).collect();
            Ok(Arc::new(texts))
        }
        _ => cast(array, &kept),
    }
}

impl ColumnSummary {
    pub fn look(&mut self, array: &ArrayRef) {
        self.has_nulls |= array.null_count() > 0;
        if let Some(lists) = array.as_list_opt::<i32>() {
            return self.look_at_lists(lists);
        }
        macro_rules! integers {
            ($type:ty) => {{
                let array = array.as_primitive::<$type>();
                if let (Some(least), Some(largest)) =
                    (arrow::compute::min(array), arrow::compute::max(array))
                {
                    self.least = self.least.min(least.into());
                    self.largest = self.largest.max(largest.into());
                }
            }};
        }
        match array.data_type() {
            DataType::Int8 => integers!(Int8Type),
            DataType::Int16 => integers!(Int16Type),
            DataType::Int32 => integers!(Int32Type),
            DataType::Int64 => integers!(Int64Type),
            DataType::UInt8 => integers!(UInt8Type),
            DataType::UInt16 => integers!(UInt16Type),
            DataType::UInt32 => integers!(UInt32Type),
            DataType::UInt64 => integers!(UInt64Type),
            DataType::Utf8 => {
                let texts = array.as_string::<i32>().iter().flatten();
                let longest = texts.map(str::len).max().unwrap_or(0);
                self.longest = self.longest.max(longest);
            }
            _ => {}
        }
    }
}

impl ColumnSummary {
    fn look_at_lists(&mut self, lists: &ListArray) {
        let lengths = lists.offsets().lengths().enumerate();
        for (_, length) in lengths.filter(|(row, _)| lists.is_valid(*row)) {
            let (shortest, longest) = self.lengths.unwrap_or((length, length));
            self.lengths = Some((shortest.min(length), longest.max(length)));
        }
        let offsets = lists.value_offsets();
        if let (Some(first), Some(end)) = (offsets.first(), offsets.last()) {
            let (first, end) = (*first as usize, *end as usize);
            self.look(&lists.values().slice(first, end - first));
        }
    }
}
