//! GROUP_CONCAT of different values: the texts of a list's rows, each kind of row once, in an order, joined.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, LargeStringBuilder, StructArray};
use arrow::compute::{SortColumn, SortOptions, cast, lexsort_to_indices};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::row_function::{LONGEST_VALUE, too_long};
use crate::interrupt::check_now_and_then;

/// Name of the function.
///
/// It takes lists of structs, whose fields are a row's text, the values that make the row different from others, and the
/// values by which rows are ordered; a letter for each of the last, `a` for ascending, `d` for descending; and what stands
/// between texts. NULL lists give NULL.
pub(super) const JOINED: &str = "mysql_joined";

#[derive(Debug, PartialEq, Eq, Hash)]
struct JoinedText {
    signature: Signature,
}

pub(super) fn joined() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(JoinedText {
        signature: Signature::any(3, Volatility::Immutable),
    }))
}

impl ScalarUDFImpl for JoinedText {
    fn name(&self) -> &str {
        JOINED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::LargeUtf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [
            rows,
            ColumnarValue::Scalar(directions),
            ColumnarValue::Scalar(separator),
        ] = args.args.as_slice()
        else {
            return exec_err!("{JOINED} takes a list and two constant texts");
        };
        let constant = |text: &ScalarValue| text.try_as_str().flatten().unwrap_or("").to_owned();
        let (directions, separator) = (constant(directions), constant(separator));
        let lists = rows.to_array(args.number_rows)?;
        let Some(lists) = lists.as_list_opt::<i32>() else {
            return exec_err!("{JOINED} takes no {}", lists.data_type());
        };
        let mut texts = LargeStringBuilder::new();
        for list in lists.iter() {
            match list.as_ref().map(|list| list.as_struct_opt()) {
                None => texts.append_null(),
                Some(Some(rows)) => texts.append_value(joined_rows(rows, &directions, &separator)?),
                Some(None) => return exec_err!("{JOINED} takes lists of structs"),
            }
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}

/// The rows' texts in their order, without the rows that say what one before them has said.
fn joined_rows(rows: &StructArray, directions: &str, separator: &str) -> Result<String> {
    let Some((text, others)) = rows.columns().split_first() else {
        return exec_err!("{JOINED} takes structs with a text");
    };
    let Some(values) = others.len().checked_sub(directions.len()) else {
        return exec_err!("{JOINED} takes a value for each direction");
    };
    let (values, keys) = others.split_at(values);
    let text = cast(text, &DataType::LargeUtf8)?;
    let text = text.as_string::<i64>();
    let order = order(keys, directions, values)?;
    let kinds = kinds(values)?;
    let mut seen = HashSet::new();
    let mut result = String::new();
    for row in order {
        check_now_and_then()?;
        if !seen.insert(kinds.row(row)) {
            continue;
        }
        if seen.len() > 1 {
            result.push_str(separator);
        }
        result.push_str(text.value(row));
        if result.len() > LONGEST_VALUE {
            return exec_err!("{}", too_long("GROUP_CONCAT"));
        }
    }
    Ok(result)
}

/// The rows' numbers in their order. Rows whose keys are equal are ordered by their values, so that the order is always one.
fn order(keys: &[ArrayRef], directions: &str, values: &[ArrayRef]) -> Result<Vec<usize>> {
    let keys = keys
        .iter()
        .zip(directions.chars().map(|letter| letter == 'd'));
    let columns: Vec<SortColumn> = keys
        .chain(values.iter().map(|value| (value, false)))
        .map(|(values, descending)| SortColumn {
            values: Arc::clone(values),
            options: Some(SortOptions {
                descending,
                nulls_first: !descending,
            }),
        })
        .collect();
    let order = lexsort_to_indices(&columns, None)?;
    Ok(order.values().iter().map(|row| *row as usize).collect())
}

/// The values of each row as comparable bytes.
fn kinds(values: &[ArrayRef]) -> Result<arrow::row::Rows> {
    let fields = values
        .iter()
        .map(|value| SortField::new(value.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?.convert_columns(values)?)
}
