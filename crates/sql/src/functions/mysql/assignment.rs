//! What a column of a table stores of values of another type, where MySQL has rules of its own: texts of numbers and times, times of
//! numbers, numbers of times. All else a cast does.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Date32Builder, Float64Builder, Int64Builder, StringBuilder,
    TimestampMicrosecondBuilder,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, TimeUnit};

use super::calendar::MICROS_OF_DAY;
use super::value::{Value, canonical_type, value_at};

/// How the values of one type become those of a column of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// As MySQL writes them.
    Text,
    /// By their digits, as 20100615.
    Date,
    /// By their digits, as 20100615010203 or 20100615.
    Time,
    /// The digits of times, as integers.
    Integers,
    /// The digits of times.
    Doubles,
    /// Doubles that have to be within the range of floats.
    Floats,
}

impl Assignment {
    /// What has to be done with values of a type that a column stores; `None` where a cast does.
    pub fn between(from: &DataType, column: &DataType) -> Option<Self> {
        let is_text = from.is_string() || from.is_binary() || *from == DataType::Null;
        let is_time = from.is_temporal();
        let is_number = from.is_numeric();
        match column {
            DataType::Utf8 if !is_text => Some(Self::Text),
            DataType::Date32 if is_number => Some(Self::Date),
            DataType::Timestamp(..) if is_number => Some(Self::Time),
            column if column.is_integer() && is_time => Some(Self::Integers),
            column if column.is_numeric() && is_time => Some(Self::Doubles),
            DataType::Float32 if *from == DataType::Float64 => Some(Self::Floats),
            _ => None,
        }
    }

    /// The type of what comes of it.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Integers => DataType::Int64,
            Self::Doubles | Self::Floats => DataType::Float64,
        }
    }

    /// The values of a column.
    ///
    /// # Errors
    /// A value cannot be stored: its row, and why.
    pub fn of(self, column: &ArrayRef) -> Result<ArrayRef, (usize, String)> {
        let canonical = match column.data_type() {
            // With the digits that a float has.
            DataType::Float32 if self == Self::Text => float_texts(column),
            other => cast(column, &canonical_type(other)),
        };
        let canonical = canonical.map_err(|error| (0, error.to_string()))?;
        if self == Self::Floats {
            return in_range(&canonical);
        }
        let rows = 0..canonical.len();
        let value = |row| value_at(&canonical, row).map_err(|error| (row, error.to_string()));
        macro_rules! built {
            ($builder:expr, $of:expr) => {{
                let mut builder = $builder;
                for row in rows {
                    match value(row)? {
                        Value::Null => builder.append_null(),
                        value => builder.append_value($of(row, &value)?),
                    }
                }
                Ok(Arc::new(builder.finish()))
            }};
        }
        let moment = |row, value: &Value| {
            let no_moment = || (row, format!("{} is no date or time", value.text()));
            value.moment().ok_or_else(no_moment)
        };
        match self {
            Self::Text => built!(StringBuilder::new(), |_, value: &Value| Ok(value.text())),
            Self::Date => built!(Date32Builder::new(), |row, value: &Value| {
                let days = moment(row, value)?.to_micros().div_euclid(MICROS_OF_DAY);
                // Of years of four digits.
                Ok(days as i32)
            }),
            Self::Time => built!(TimestampMicrosecondBuilder::new(), |row, value: &Value| {
                Ok(moment(row, value)?.to_micros())
            }),
            Self::Integers => built!(Int64Builder::new(), |_, value: &Value| {
                Ok(value.double().round() as i64)
            }),
            Self::Doubles | Self::Floats => {
                built!(Float64Builder::new(), |_, value: &Value| Ok(value.double()))
            }
        }
    }
}

fn float_texts(column: &ArrayRef) -> Result<ArrayRef, arrow::error::ArrowError> {
    let floats = column.as_primitive::<Float32Type>();
    let text = |float: f32| Value::Double(float.to_string().parse().unwrap_or(f64::NAN)).text();
    let texts = floats.iter().map(|float| float.map(text));
    Ok(Arc::new(texts.collect::<arrow::array::StringArray>()))
}

fn in_range(column: &ArrayRef) -> Result<ArrayRef, (usize, String)> {
    let doubles = column.as_primitive::<Float64Type>();
    let beyond = doubles.iter().position(|double| {
        double.is_some_and(|double| double.is_finite() && (double as f32).is_infinite())
    });
    match beyond {
        Some(row) => {
            let value = doubles.value(row);
            Err((row, format!("{value:e} is out of range for a FLOAT")))
        }
        None => Ok(Arc::clone(column)),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        BooleanArray, Date32Array, Float32Array, Float64Array, Int64Array, StringArray,
        TimestampMicrosecondArray,
    };
    use arrow::util::display::array_value_to_string;

    use super::*;

    fn stored(values: ArrayRef, column: &DataType) -> Vec<String> {
        let assignment = Assignment::between(values.data_type(), column).unwrap();
        let stored = assignment.of(&values).unwrap();
        assert_eq!(*stored.data_type(), assignment.data_type());
        (0..stored.len())
            .map(|row| array_value_to_string(&stored, row).unwrap())
            .collect()
    }

    #[test]
    fn values_are_stored_as_mysql_stores_them() {
        let text = DataType::Utf8;
        let time = DataType::Timestamp(TimeUnit::Microsecond, None);
        let doubles = Float64Array::from(vec![Some(123.0), Some(0.5), None]);
        assert_eq!(stored(Arc::new(doubles), &text), ["123", "0.5", ""]);
        let floats = Float32Array::from(vec![0.1]);
        assert_eq!(stored(Arc::new(floats), &text), ["0.1"]);
        let truths = BooleanArray::from(vec![true, false]);
        assert_eq!(stored(Arc::new(truths), &text), ["1", "0"]);
        let times = TimestampMicrosecondArray::from(vec![1_276_563_723_000_000]);
        let times: ArrayRef = Arc::new(times);
        assert_eq!(stored(Arc::clone(&times), &text), ["2010-06-15 01:02:03"]);
        assert_eq!(stored(times, &DataType::Int64), ["20100615010203"]);
        let days: ArrayRef = Arc::new(Date32Array::from(vec![14_775]));
        assert_eq!(stored(Arc::clone(&days), &DataType::Int32), ["20100615"]);
        assert_eq!(stored(days, &DataType::Float64), ["20100615.0"]);
        let digits: ArrayRef = Arc::new(Int64Array::from(vec![20_100_103, 20_100_103_000_000]));
        assert_eq!(
            stored(Arc::clone(&digits), &DataType::Date32),
            ["2010-01-03", "2010-01-03"]
        );
        assert_eq!(
            stored(digits, &time),
            ["2010-01-03T00:00:00", "2010-01-03T00:00:00"]
        );
    }

    #[test]
    fn what_is_no_value_of_the_column_is_told_with_its_row() {
        let wrong: ArrayRef = Arc::new(Int64Array::from(vec![20_100_103, 20_101_399]));
        let (row, why) = Assignment::Date.of(&wrong).unwrap_err();
        assert_eq!((row, why.as_str()), (1, "20101399 is no date or time"));
        let large: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(1e39)]));
        assert_eq!(Assignment::Floats.of(&large).unwrap_err().0, 2);
        let texts = StringArray::from(vec!["a"]);
        for column in [DataType::Utf8, DataType::Int64, DataType::Date32] {
            assert_eq!(Assignment::between(texts.data_type(), &column), None);
        }
    }
}
