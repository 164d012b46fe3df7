//! Columns without what a result does not show.
//!
//! An Arrow array has a value behind a NULL, too, which Arrow's formats would carry to a reader, who may be the one from whom a `CASE` was to keep it.
//! (An array of views has all texts of the arrays from which its own were taken; views are not written.)

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, RecordBatch, Scalar, new_null_array};
use arrow::compute::is_not_null;
use arrow::compute::kernels::zip::zip;
use arrow::error::ArrowError;

/// A batch with the values that it shows, and no others in its buffers.
pub(crate) fn only_shown(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let has_more = |column: &ArrayRef| column.null_count() > 0;
    if !batch.columns().iter().any(has_more) {
        return Ok(batch.clone());
    }
    let columns = { batch.columns().iter() }.map(|column| match has_more(column) {
        true => shown(column),
        false => Ok(Arc::clone(column)),
    });
    RecordBatch::try_new(batch.schema(), columns.collect::<Result<_, _>>()?)
}

fn shown(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let nothing = Scalar::new(new_null_array(column.data_type(), 1));
    zip(&is_not_null(column)?, column, &nothing)
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Decimal128Array, Float64Array, Int16Array, StringArray, StringViewArray,
    };
    use arrow::buffer::NullBuffer;
    use arrow::compute::filter_record_batch;
    use arrow::ipc::reader::StreamReader;

    use super::*;
    use crate::plain_texts::plain_batches;
    use crate::{ResultFormat, ResultWriter};

    const SECRET: &str = "nobody is to read this text";

    fn written(batch: &RecordBatch) -> Vec<u8> {
        let out = Vec::new();
        let mut writer = ResultWriter::new(ResultFormat::Arrow, &batch.schema(), out).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap()
    }

    fn has(bytes: &[u8], wanted: &[u8]) -> bool {
        bytes.windows(wanted.len()).any(|window| window == wanted)
    }

    /// A `CASE` that gave NULL sent the value along in Arrow.
    #[test]
    fn values_behind_nulls_are_not_written() {
        let nulls = || Some(NullBuffer::from(vec![true, false, true]));
        let doubles = Float64Array::new(vec![1.0, 123.456, 2.0].into(), nulls());
        let shorts = Int16Array::new(vec![1, 0x5a5b, 2].into(), nulls());
        let decimals = Decimal128Array::new(vec![1, 0x1234_5678_9abc, 2].into(), nulls());
        let decimals = decimals.with_precision_and_scale(30, 2).unwrap();
        let texts = StringArray::from(vec!["a", SECRET, "b"]);
        let (offsets, values, _) = texts.into_parts();
        let texts = StringArray::new(offsets, values, nulls());
        let views = StringViewArray::from(vec!["a text of some length", SECRET, "b"]);
        let (views, buffers, _) = views.into_parts();
        let views = StringViewArray::new(views, buffers, nulls());
        let whole: ArrayRef = Arc::new(BooleanArray::from(vec![true, false, true]));
        let columns: [(&str, ArrayRef); 6] = [
            ("doubles", Arc::new(doubles)),
            ("shorts", Arc::new(shorts)),
            ("decimals", Arc::new(decimals)),
            ("texts", Arc::new(texts)),
            ("views", Arc::new(views)),
            ("whole", whole),
        ];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let bytes = written(&batch);
        assert!(!has(&bytes, SECRET.as_bytes()));
        assert!(!has(&bytes, &123.456_f64.to_le_bytes()));
        assert!(!has(&bytes, &0x5a5b_i16.to_le_bytes()));
        assert!(!has(&bytes, &0x1234_5678_9abc_i128.to_le_bytes()));
        let read: Vec<_> = StreamReader::try_new(&bytes[..], None).unwrap().collect();
        assert_eq!(read.len(), 1);
        let batch = plain_batches(&batch).unwrap();
        assert_eq!(read[0].as_ref().unwrap(), &batch[0]);
    }

    #[test]
    fn texts_of_other_rows_are_not_written() {
        let views: ArrayRef =
            Arc::new(StringViewArray::from(vec![SECRET, "a text of some length"]));
        let batch = RecordBatch::try_from_iter([("views", views)]).unwrap();
        let kept = BooleanArray::from(vec![false, true]);
        let batch = filter_record_batch(&batch, &kept).unwrap();
        let bytes = written(&batch);
        assert!(!has(&bytes, SECRET.as_bytes()) && has(&bytes, b"a text of some length"));
        let read = StreamReader::try_new(&bytes[..], None).unwrap().next();
        let texts = StringArray::from(vec!["a text of some length"]);
        assert_eq!(read.unwrap().unwrap().column(0).as_ref(), &texts);
    }
}
