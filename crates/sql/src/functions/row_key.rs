//! The key of a row of several values, by which COUNT(DISTINCT a, b) tells rows apart.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, BinaryArray, BinaryBuilder};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// Name of the function that gives the key of a row.
pub(crate) const ROW_KEY: &str = "meridian_row_key";

/// The function named [`ROW_KEY`]: bytes which are equal where all its arguments are, and NULL where any of them is. DataFusion's
/// structs would do, but each of their values is accounted for with the whole batch that it came in.
pub(super) fn row_key() -> Arc<ScalarUDF> {
    static ROW_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::new_from_impl(RowKey {
            signature: Signature::variadic_any(Volatility::Immutable),
        }))
    });
    Arc::clone(&ROW_KEY)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RowKey {
    signature: Signature,
}

impl ScalarUDFImpl for RowKey {
    fn name(&self) -> &str {
        ROW_KEY
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let columns = ColumnarValue::values_to_arrays(&args.args)?;
        Ok(ColumnarValue::Array(Arc::new(keys(&columns)?)))
    }
}

/// A key for each row of `columns`, which are of one length.
fn keys(columns: &[ArrayRef]) -> Result<BinaryArray> {
    let fields = columns
        .iter()
        .map(|it| SortField::new(it.data_type().clone()));
    let rows = RowConverter::new(fields.collect())?.convert_columns(columns)?;
    let nulls = columns.iter().fold(None, |nulls, column| {
        NullBuffer::union(nulls.as_ref(), column.logical_nulls().as_ref())
    });
    let mut keys = BinaryBuilder::with_capacity(rows.num_rows(), rows.size());
    for at in 0..rows.num_rows() {
        match nulls.as_ref().is_some_and(|nulls| nulls.is_null(at)) {
            true => keys.append_null(),
            false => keys.append_value(rows.row(at)),
        }
    }
    Ok(keys.finish())
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int64Array, NullArray, StringArray};

    use super::*;

    #[test]
    fn equal_rows_have_equal_keys_and_rows_with_null_none() {
        let numbers = Int64Array::from(vec![Some(1), Some(1), Some(2), None, Some(1)]);
        let names = StringArray::from(vec![Some("a"), Some("a"), Some("a"), Some("a"), None]);
        let keys = keys(&[Arc::new(numbers), Arc::new(names)]).expect("keys");
        assert_eq!(keys.value(0), keys.value(1));
        assert_ne!(keys.value(0), keys.value(2));
        assert!(!keys.is_null(2) && keys.is_null(3) && keys.is_null(4));
    }

    #[test]
    fn values_do_not_run_into_each_other() {
        let left = StringArray::from(vec!["a", "ab", ""]);
        let right = StringArray::from(vec!["bc", "c", "abc"]);
        let keys = keys(&[Arc::new(left), Arc::new(right)]).expect("keys");
        assert_ne!(keys.value(0), keys.value(1));
        assert_ne!(keys.value(1), keys.value(2));
    }

    #[test]
    fn a_column_of_nulls_has_no_keys() {
        let keys = keys(&[Arc::new(NullArray::new(3))]).expect("keys");
        assert_eq!(keys.null_count(), 3);
    }
}
