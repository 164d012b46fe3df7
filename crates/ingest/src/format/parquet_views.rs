//! Texts that lie in a Parquet file's pages once and stand in many rows: as views of these pages they take sixteen bytes each,
//! however long they are, until somebody makes copies. Of a stranger's file only few rows are copied at a time.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

/// Bytes of texts that are copied at a time.
const COPIED: u64 = 4 << 20;

/// The same columns with views in the place of texts and bytes.
pub(super) fn with_views(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8View))
        }
        DataType::Binary | DataType::LargeBinary => {
            Arc::new(field.as_ref().clone().with_data_type(DataType::BinaryView))
        }
        _ => Arc::clone(field),
    };
    let fields: Vec<_> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new(fields))
}

/// How many of the first rows are copied at once: as many as have room, and one at least.
pub(super) fn rows_to_copy(batch: &RecordBatch) -> usize {
    let views: Vec<&[u128]> = batch.columns().iter().filter_map(views).collect();
    let mut bytes = 0;
    for row in 0..batch.num_rows() {
        // The length of a text is in the lowest bits of its view (Arrow columnar format, "Variable-size Binary View Layout").
        let length = |views: &&[u128]| u64::from(views[row] as u32);
        bytes += views.iter().map(length).sum::<u64>();
        if bytes > COPIED && row > 0 {
            return row;
        }
    }
    batch.num_rows()
}

fn views(array: &Arc<dyn Array>) -> Option<&[u128]> {
    match array.data_type() {
        DataType::Utf8View => Some(array.as_string_view().views()),
        DataType::BinaryView => Some(array.as_binary_view().views()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, StringViewArray};

    use super::*;

    #[test]
    fn long_texts_are_copied_a_few_at_a_time() {
        let long = "x".repeat(1 << 20);
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(vec![&long; 9]));
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1; 9]));
        let batch = RecordBatch::try_from_iter([("t", texts), ("n", numbers.clone())]).unwrap();
        assert_eq!(rows_to_copy(&batch), 4);
        let batch = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        assert_eq!(rows_to_copy(&batch), 9);
    }
}
