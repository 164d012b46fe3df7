//! What a column stores of many values at once.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type};

use super::super::row_function::column_of;
use super::super::value::{Value, canonical_type, value_at};
use super::{GivenValue, Longest, StoredColumn, StoredType};
use crate::SqlError;

/// A row, from 0, whose value a column cannot hold, and why.
pub type RowFault = (usize, SqlError);

impl StoredColumn {
    /// What the column stores of each value of a column of any type.
    ///
    /// # Errors
    /// The first row whose value it cannot hold.
    pub fn of_column(&self, values: &ArrayRef) -> Result<ArrayRef, RowFault> {
        if self.keeps(values.data_type()) && (self.nullable || values.null_count() == 0) {
            return Ok(Arc::clone(values));
        }
        let canonical = canonical(values, self.ty).map_err(|error| (0, error))?;
        let stored = (0..canonical.len()).map(|row| {
            let value = value_at(&canonical, row).map_err(|error| (row, told(&error)))?;
            self.value(&value).map_err(|error| (row, error))
        });
        self.collected(stored)
    }

    /// What the column stores of each of these.
    ///
    /// # Errors
    /// The first row whose value it cannot hold.
    pub fn of_values<'a>(
        &self,
        values: impl Iterator<Item = GivenValue<'a>>,
    ) -> Result<ArrayRef, RowFault> {
        let stored = values
            .enumerate()
            .map(|(row, given)| self.given_value(given).map_err(|error| (row, error)));
        self.collected(stored)
    }

    /// What the column stores of a value, typed or computed.
    pub(super) fn given_value(&self, given: GivenValue<'_>) -> Result<Value, SqlError> {
        match given {
            GivenValue::Computed(column) => canonical(column, self.ty).and_then(|column| {
                let value = value_at(&column, 0).map_err(|error| told(&error))?;
                self.value(&value)
            }),
            given => self.typed_value(given),
        }
    }

    pub(super) fn collected(
        &self,
        stored: impl Iterator<Item = Result<Value, RowFault>>,
    ) -> Result<ArrayRef, RowFault> {
        let stored: Vec<Value> = stored.collect::<Result<_, _>>()?;
        let made = column_of(stored, &self.wide_type());
        let made = made.map_err(|error| (0, told(&error)))?;
        let exact = cast(&made, &self.ty.data_type());
        exact.map_err(|error| (0, SqlError::new(error.to_string())))
    }

    /// Whether it stores all values of a type as they are.
    fn keeps(&self, given: &DataType) -> bool {
        let is_bounded = match self.ty {
            StoredType::Boolean | StoredType::Integer { .. } | StoredType::Date => false,
            StoredType::Real { unsigned, .. } | StoredType::Decimal { unsigned, .. } => unsigned,
            StoredType::Text(longest) => longest != Longest::Unbounded,
            StoredType::Binary { longest, .. } => longest.is_some(),
            StoredType::Time { digits } => digits < 6,
        };
        *given == self.ty.data_type() && !is_bounded
    }

    /// The type of the same kind in which values are collected.
    fn wide_type(&self) -> DataType {
        match self.ty {
            StoredType::Integer {
                bits: 64,
                unsigned: true,
            } => DataType::UInt64,
            StoredType::Boolean | StoredType::Integer { .. } => DataType::Int64,
            StoredType::Real { .. } => DataType::Float64,
            other => other.data_type(),
        }
    }
}

/// The values in a type of which [`value_at`] takes them.
pub(super) fn canonical(values: &ArrayRef, stored: StoredType) -> Result<ArrayRef, SqlError> {
    let is_text = matches!(stored, StoredType::Text(_) | StoredType::Binary { .. });
    match values.data_type() {
        // With the digits that a float has.
        DataType::Float32 if is_text => Ok(float_texts(values)),
        other => {
            cast(values, &canonical_type(other)).map_err(|error| SqlError::new(error.to_string()))
        }
    }
}

fn float_texts(values: &ArrayRef) -> ArrayRef {
    let floats = values.as_primitive::<Float32Type>();
    let text = |float: f32| Value::Double(float.to_string().parse().unwrap_or(f64::NAN)).text();
    let texts: StringArray = floats.iter().map(|float| float.map(text)).collect();
    Arc::new(texts)
}

pub(super) fn told(error: &datafusion::common::DataFusionError) -> SqlError {
    SqlError::new(error.strip_backtrace())
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Date32Array, Float32Array, Float64Array, Int64Array, StringViewArray,
    };
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn column(ty: &str) -> StoredColumn {
        StoredColumn {
            name: "c".to_owned(),
            ty: StoredType::read(ty).unwrap(),
            nullable: true,
        }
    }

    fn stored(values: ArrayRef, ty: &str) -> Vec<String> {
        let column = column(ty);
        let stored = column.of_column(&values).unwrap();
        assert_eq!(*stored.data_type(), column.ty.data_type());
        (0..stored.len())
            .map(|row| array_value_to_string(&stored, row).unwrap())
            .collect()
    }

    #[test]
    fn columns_are_stored_as_their_values_are() {
        let doubles = Float64Array::from(vec![Some(123.0), Some(0.5), None]);
        assert_eq!(stored(Arc::new(doubles), "VARCHAR(9)"), ["123", "0.5", ""]);
        let floats: ArrayRef = Arc::new(Float32Array::from(vec![0.1]));
        assert_eq!(stored(Arc::clone(&floats), "LONGTEXT"), ["0.1"]);
        assert_eq!(stored(Arc::clone(&floats), "DECIMAL(9,3)"), ["0.100"]);
        assert_eq!(stored(floats, "FLOAT"), ["0.1"]);
        let truths = BooleanArray::from(vec![true, false]);
        assert_eq!(stored(Arc::new(truths), "TINYINT"), ["1", "0"]);
        let days: ArrayRef = Arc::new(Date32Array::from(vec![14_775]));
        assert_eq!(stored(Arc::clone(&days), "INT"), ["20100615"]);
        assert_eq!(stored(days, "DOUBLE"), ["20100615.0"]);
        let digits: ArrayRef = Arc::new(Int64Array::from(vec![20_100_103, 20_100_103_000_000]));
        assert_eq!(stored(digits, "DATE"), ["2010-01-03", "2010-01-03"]);
        let views: ArrayRef = Arc::new(StringViewArray::from(vec!["ab", "12"]));
        assert_eq!(stored(views, "CHAR(2)"), ["ab", "12"]);
        let large: ArrayRef = Arc::new(arrow::array::UInt64Array::from(vec![u64::MAX]));
        assert_eq!(stored(large, "BIGINT UNSIGNED"), [u64::MAX.to_string()]);
    }

    #[test]
    fn the_first_row_is_told_that_a_column_cannot_hold() {
        let large: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(1e39)]));
        let (row, error) = column("FLOAT").of_column(&large).unwrap_err();
        assert_eq!((row, error.code().number), (2, 1264));
        let strict = StoredColumn {
            nullable: false,
            ..column("DOUBLE")
        };
        let (row, error) = strict.of_column(&large).unwrap_err();
        assert_eq!((row, error.code().number), (1, 1048));
        let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let given = [
            GivenValue::Number("0.5"),
            GivenValue::Computed(&one),
            GivenValue::Text("x"),
        ];
        let (row, error) = column("INT").of_values(given.into_iter()).unwrap_err();
        assert_eq!((row, error.code().number), (2, 1366));
    }
}
