//! Columns of Arrow's and Parquet's files with texts and bytes of the types that all readers compute with: `string` and `binary` in place of
//! `string_view` and `binary_view`, which pyarrow can hardly filter, sort or compare.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, GenericListArray, OffsetSizeTrait, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;

/// Bytes of a column's texts in one batch at most: offsets have 31 bits.
const MOST_BYTES: usize = 1 << 30;

/// The columns of a file, with what is said of them.
pub(crate) fn plain_schema(schema: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(plain_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The rows of a batch in the columns of [`plain_schema`]: as one batch, or several where its texts are too long for one.
pub(crate) fn plain_batches(batch: &RecordBatch) -> Result<Vec<RecordBatch>, ArrowError> {
    let schema = plain_schema(batch.schema_ref());
    if schema == *batch.schema_ref() {
        return Ok(vec![batch.clone()]);
    }
    let rows = batch.num_rows();
    let is_long = |column| text_bytes(column) > MOST_BYTES;
    if rows > 1 && batch.columns().iter().any(is_long) {
        let half = rows / 2;
        let mut batches = plain_batches(&batch.slice(0, half))?;
        batches.extend(plain_batches(&batch.slice(half, rows - half))?);
        return Ok(batches);
    }
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    let columns = columns.collect::<Result<_, _>>()?;
    Ok(vec![RecordBatch::try_new(schema, columns)?])
}

fn plain_field(field: &FieldRef) -> FieldRef {
    let plain = plain_type(field.data_type());
    match plain == *field.data_type() {
        true => Arc::clone(field),
        false => Arc::new(Field::clone(field).with_data_type(plain)),
    }
}

fn plain_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(item) => DataType::List(plain_field(item)),
        DataType::LargeList(item) => DataType::LargeList(plain_field(item)),
        DataType::FixedSizeList(item, length) => {
            DataType::FixedSizeList(plain_field(item), *length)
        }
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(plain_field(entries), *is_sorted),
        DataType::Dictionary(key, values) => {
            DataType::Dictionary(key.clone(), Box::new(plain_type(values)))
        }
        other => other.clone(),
    }
}

/// Bytes of the texts that a column has, or that lists and structures in it have.
fn text_bytes(array: &ArrayRef) -> usize {
    /// The length is the first 32 bits of a view.
    fn of_views(views: &[u128]) -> usize {
        views.iter().map(|view| *view as u32 as usize).sum()
    }
    fn of_lists<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> usize {
        let offsets = lists.value_offsets();
        let [first, end] = [offsets[0], offsets[lists.len()]].map(|it| it.as_usize());
        text_bytes(&lists.values().slice(first, end - first))
    }
    match array.data_type() {
        DataType::Utf8View => of_views(array.as_string_view().views()),
        DataType::BinaryView => of_views(array.as_binary_view().views()),
        DataType::List(_) => of_lists(array.as_list::<i32>()),
        DataType::LargeList(_) => of_lists(array.as_list::<i64>()),
        DataType::FixedSizeList(..) => text_bytes(array.as_fixed_size_list().values()),
        DataType::Struct(_) => array.as_struct().columns().iter().map(text_bytes).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BinaryViewArray, Int64Array, ListArray, StringArray, StringViewArray, StructArray,
    };
    use arrow::buffer::OffsetBuffer;
    use arrow::ipc::reader::StreamReader;

    use super::*;
    use crate::{ResultFormat, ResultWriter};

    /// pyarrow has no kernels for `string_view`: filters and `sort_by` of exports ended with an error.
    #[test]
    fn texts_and_bytes_are_plain_at_any_depth() {
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![
            Some("a text of some length"),
            None,
            Some("b"),
        ]));
        let bytes: ArrayRef = Arc::new(BinaryViewArray::from(vec![Some(&b"\0"[..]), None, None]));
        let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let offsets = OffsetBuffer::from_lengths([2, 0, 1]);
        let lists = ListArray::new(item, offsets, Arc::clone(&views), None);
        let field = |name| Arc::new(Field::new(name, DataType::Utf8View, true));
        let parts = StructArray::from(vec![(field("x"), Arc::clone(&views))]);
        let columns: [(&str, ArrayRef); 5] = [
            ("texts", views),
            ("bytes", bytes),
            ("lists", Arc::new(lists)),
            ("parts", Arc::new(parts)),
            ("numbers", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer =
            ResultWriter::new(ResultFormat::Arrow, &batch.schema(), Vec::new()).unwrap();
        writer.write(&batch).unwrap();
        let written = writer.finish().unwrap();
        let read = StreamReader::try_new(&written[..], None).unwrap().next();
        let read = read.unwrap().unwrap();
        let texts = StringArray::from(vec![Some("a text of some length"), None, Some("b")]);
        assert_eq!(read.column(0).as_string::<i32>(), &texts);
        assert_eq!(read.column(1).data_type(), &DataType::Binary);
        assert_eq!(read.column(2).as_list::<i32>().values().as_string(), &texts);
        assert_eq!(read.column(3).as_struct().column(0).as_string(), &texts);
        assert_eq!(read.column(4), batch.column(4));
    }

    #[test]
    fn all_texts_of_a_column_are_counted() {
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("four"), None, Some("a")]));
        assert_eq!(text_bytes(&views), 5);
        let item = Arc::new(Field::new_list_field(DataType::Utf8View, true));
        let lists = ListArray::new(item, OffsetBuffer::from_lengths([1, 2]), views, None);
        let lists: ArrayRef = Arc::new(lists);
        assert_eq!(text_bytes(&lists), 5);
        assert_eq!(text_bytes(&lists.slice(1, 1)), 1);
    }
}
