//! Lists as texts: their numbers with a space between them, as the Virtual Observatory writes arrays (VOTable 1.4, section 2.2; DALI 1.1,
//! section 3.3).

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// The type of the items of lists of numbers; none of other types.
pub fn numbers_of(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            item.data_type().is_numeric().then_some(item)
        }
        _ => None,
    }
}

/// Lists of numbers of one length or several as lists of any length of another type of numbers.
///
/// # Errors
/// They are no lists of numbers, or a number is not one of that type.
pub fn lists_of(array: &ArrayRef, item: DataType) -> Result<ListArray, ArrowError> {
    let lists = DataType::List(Arc::new(Field::new_list_field(item, true)));
    Ok(cast(array, &lists)?.as_list::<i32>().clone())
}

/// A column whose values are no lists: those that are become texts.
///
/// # Errors
/// A value cannot be shown.
pub fn flat(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !array.data_type().is_nested() || matches!(array.data_type(), DataType::Dictionary(..)) {
        return Ok(Arc::clone(array));
    }
    let options = FormatOptions::new();
    if let Some(item) = numbers_of(array.data_type()) {
        let lists = lists_of(array, item.data_type().clone())?;
        let missing = options.with_null("NaN");
        let shown = ArrayFormatter::try_new(lists.values().as_ref(), &missing)?;
        let texts =
            (0..lists.len()).map(|row| lists.is_valid(row).then(|| spaced(&lists, &shown, row)));
        return Ok(Arc::new(texts.collect::<StringArray>()));
    }
    let shown = ArrayFormatter::try_new(array.as_ref(), &options)?;
    let nulls = array.logical_nulls();
    let texts = (0..array.len()).map(|row| {
        let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        (!is_null).then(|| shown.value(row).to_string())
    });
    Ok(Arc::new(texts.collect::<StringArray>()))
}

fn spaced(lists: &ListArray, shown: &ArrayFormatter<'_>, row: usize) -> String {
    let offsets = lists.value_offsets();
    let mut text = String::new();
    for at in offsets[row]..offsets[row + 1] {
        let space = if at == offsets[row] { "" } else { " " };
        // A String takes whatever is written.
        let _ = write!(text, "{space}{}", shown.value(at as usize));
    }
    text
}

#[cfg(test)]
mod tests {
    use arrow::array::FixedSizeListArray;
    use arrow::datatypes::{Float64Type, Int64Type};

    use super::*;

    #[test]
    fn lists_are_numbers_with_spaces() {
        let points = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(
            [
                Some([Some(1.5), None]),
                None,
                Some([Some(0.0), Some(-1e-300)]),
            ],
            2,
        );
        let counts = ListArray::from_iter_primitive::<Int64Type, _, _>([
            Some(vec![Some(1), Some(-2)]),
            Some(vec![]),
            None,
        ]);
        let shown = |array: ArrayRef| -> Vec<Option<String>> {
            let texts = flat(&array).unwrap();
            texts
                .as_string::<i32>()
                .iter()
                .map(|it| it.map(str::to_owned))
                .collect()
        };
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            shown(Arc::new(points.clone())),
            [text("1.5 NaN"), None, text("0.0 -1e-300")]
        );
        assert_eq!(shown(Arc::new(points.slice(2, 1))), [text("0.0 -1e-300")]);
        assert_eq!(shown(Arc::new(counts)), [text("1 -2"), text(""), None]);
    }
}
