//! Functions that compute one row at a time, whatever their arguments are.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryBuilder, Date32Builder, Decimal128Builder, DurationMicrosecondBuilder,
    Float64Builder, Int64Builder, LargeStringBuilder, StringBuilder, StringViewBuilder,
    TimestampMicrosecondBuilder, UInt64Builder,
};
use arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, TimeUnit};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err, resources_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};

use super::columns::OfColumns;
use super::strings::Strings;
use super::text::LONGEST;
use super::times::takes_dates;
use super::value::{Value, canonical_type, value_at};
use crate::functions::real::real_column;
use crate::interrupt::check_now_and_then;
use crate::warnings::TakenFor;

/// What a function gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::functions) enum ReturnType {
    /// Integers of 64 bits.
    Integer,
    /// Unsigned ones.
    Unsigned,
    /// Integers, unsigned where one of the arguments is.
    IntegerAsGiven,
    /// Integers, unsigned where the first argument is.
    IntegerAsFirst,
    /// Doubles where one of the arguments is no integer, else integers as given.
    NumberAsGiven,
    /// Integers where the argument is one or a decimal, else doubles.
    WholeAsGiven,
    /// Numbers as they are, dates as integers, anything else as doubles.
    Number,
    /// What has a sign: decimals as they are, integers and truths as signed integers, anything else as doubles.
    Signed,
    Double,
    Text,
    /// The text of a JSON document.
    Json,
    Bytes,
    Date,
    /// Dates where the first argument is one, times where it is one, else text.
    DateAsGiven,
    Time,
    /// Text where the first argument is no date and no time, else times.
    TimeAsGiven,
    /// Times of day and spans of time.
    TimeOfDay,
    /// Spans where the first argument is one, times where it is a date or one, else text.
    SpanAsGiven,
    /// Integers where the argument is a date or an integer, else decimals with microseconds.
    SecondsAsGiven,
    /// Text, of the argument's own type where that is text.
    TextAsGiven,
}

impl ReturnType {
    pub(super) fn data_type(self, arguments: &[DataType]) -> DataType {
        let unsigned = arguments.contains(&DataType::UInt64);
        if let Some(span @ DataType::Duration(_)) = arguments.first()
            && matches!(
                self,
                Self::SpanAsGiven | Self::DateAsGiven | Self::TimeAsGiven
            )
        {
            return span.clone();
        }
        let integers = arguments
            .iter()
            .all(|argument| argument.is_integer() || *argument == DataType::Null);
        match self {
            Self::Integer => DataType::Int64,
            Self::Unsigned => DataType::UInt64,
            Self::IntegerAsFirst if arguments.first() == Some(&DataType::UInt64) => {
                DataType::UInt64
            }
            Self::IntegerAsFirst => DataType::Int64,
            Self::IntegerAsGiven if unsigned => DataType::UInt64,
            Self::IntegerAsGiven => DataType::Int64,
            Self::NumberAsGiven if integers => Self::IntegerAsGiven.data_type(arguments),
            Self::WholeAsGiven if matches!(arguments, [DataType::Decimal128(..)]) => {
                DataType::Int64
            }
            Self::WholeAsGiven => Self::NumberAsGiven.data_type(arguments),
            Self::Number => match arguments {
                [number @ (DataType::UInt64 | DataType::Decimal128(..))] => number.clone(),
                [whole] if whole.is_integer() || *whole == DataType::Date32 => DataType::Int64,
                [DataType::Boolean] => DataType::Int64,
                _ => DataType::Float64,
            },
            Self::Signed => match arguments {
                [decimal @ DataType::Decimal128(..)] => decimal.clone(),
                [whole] if whole.is_integer() => DataType::Int64,
                [DataType::Boolean | DataType::Null] => DataType::Int64,
                _ => DataType::Float64,
            },
            Self::NumberAsGiven | Self::Double => DataType::Float64,
            Self::TextAsGiven if is_text(arguments.first()) => arguments[0].clone(),
            Self::Text | Self::Json | Self::TextAsGiven => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::DateAsGiven | Self::TimeAsGiven if !is_temporal(arguments.first()) => {
                DataType::Utf8
            }
            Self::DateAsGiven if arguments.first() == Some(&DataType::Date32) => DataType::Date32,
            Self::Date => DataType::Date32,
            Self::Time | Self::DateAsGiven | Self::TimeAsGiven => {
                DataType::Timestamp(TimeUnit::Microsecond, None)
            }
            Self::SpanAsGiven if is_temporal(arguments.first()) => Self::Time.data_type(&[]),
            Self::SpanAsGiven => DataType::Utf8,
            Self::TimeOfDay => DataType::Duration(TimeUnit::Microsecond),
            Self::SecondsAsGiven => match arguments {
                [DataType::Date32 | DataType::Null] => DataType::Int64,
                [whole] if whole.is_integer() => DataType::Int64,
                _ => DataType::Decimal128(SECONDS_DIGITS, 6),
            },
        }
    }
}

/// Digits of seconds since 1970 with microseconds.
const SECONDS_DIGITS: u8 = 20;

fn is_temporal(data_type: Option<&DataType>) -> bool {
    matches!(data_type, Some(DataType::Date32 | DataType::Timestamp(..)))
}

impl ReturnType {
    /// Whether what it gives has a length that depends on what it is given.
    fn is_text(self) -> bool {
        matches!(
            self,
            Self::Text | Self::Json | Self::TextAsGiven | Self::Bytes
        )
    }
}

fn is_text(data_type: Option<&DataType>) -> bool {
    matches!(
        data_type,
        Some(DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8)
    )
}

/// How many arguments a function takes.
#[derive(Debug, Clone, Copy)]
pub(in crate::functions) struct Arity(pub usize, pub usize);

/// A function of one row's values. The error is a sentence about them.
pub(in crate::functions) type OfRow = fn(&[Value]) -> Result<Value, String>;

/// A function: one row of a table of them.
#[derive(Debug)]
pub(in crate::functions) struct RowFunction {
    pub name: &'static str,
    pub arity: Arity,
    pub return_type: ReturnType,
    /// Which arguments are strings, of characters or of bytes.
    pub strings: Strings,
    /// Whether it is NULL where an argument is.
    pub strict: bool,
    pub of: OfRow,
    pub of_columns: Option<OfColumns>,
}

impl RowFunction {
    /// A function that is NULL where an argument is.
    pub(in crate::functions) const fn new(
        name: &'static str,
        arity: Arity,
        return_type: ReturnType,
        of: OfRow,
    ) -> Self {
        Self {
            name,
            arity,
            return_type,
            strings: match return_type {
                ReturnType::Text
                | ReturnType::Json
                | ReturnType::TextAsGiven
                | ReturnType::Bytes => Strings::Texts,
                _ => Strings::AnyBytes,
            },
            strict: true,
            of,
            of_columns: None,
        }
    }

    /// The same function, which sees NULLs.
    pub(in crate::functions) const fn seeing_nulls(self) -> Self {
        Self {
            strict: false,
            ..self
        }
    }

    /// The same function, of these strings.
    pub(in crate::functions) const fn of_strings(self, strings: Strings) -> Self {
        Self { strings, ..self }
    }

    /// The same function, with a quicker way for columns of some types.
    pub(in crate::functions) const fn by_columns(self, of_columns: OfColumns) -> Self {
        Self {
            of_columns: Some(of_columns),
            ..self
        }
    }

    pub(in crate::functions) fn udf(&'static self) -> Arc<ScalarUDF> {
        Arc::new(ScalarUDF::new_from_impl(RowFunctionUdf {
            function: self,
            signature: Signature::user_defined(Volatility::Immutable),
        }))
    }

    /// The name as users know it.
    fn shown_name(&self) -> String {
        self.name.trim_start_matches("mysql_").to_ascii_uppercase()
    }

    /// The type of what it gives to arguments of these types: bytes where one of the strings is bytes.
    pub(super) fn data_type(&self, arguments: &[DataType]) -> DataType {
        match self.return_type {
            ReturnType::Text if self.strings.any_binary(arguments) => DataType::Binary,
            return_type => return_type.data_type(arguments),
        }
    }

    pub(super) fn row(&self, values: &[Value]) -> Result<Value> {
        if self.strict && values.iter().any(Value::is_null) {
            return Ok(Value::Null);
        }
        let given: usize = values.iter().map(Value::bytes_beyond).sum();
        if given > LONGEST_VALUE && self.return_type.is_text() {
            return exec_err!("{}", too_long(&self.shown_name()));
        }
        let computed = self.strings.compute(&self.shown_name(), self.of, values);
        match computed {
            Ok(value) if value.bytes_beyond() > LONGEST_VALUE => {
                exec_err!("{}", too_long(&self.shown_name()))
            }
            Ok(value) if value.bytes_beyond() > longest(values) => Ok(Value::Null),
            Ok(value) => Ok(value),
            Err(sentence) => exec_err!("{sentence}"),
        }
    }
}

/// Bytes of the longest text that a function or an aggregate makes. Some of them make many times as much of what they are given,
/// and statements call them within each other.
pub(in crate::functions) const LONGEST_VALUE: usize = 16 << 20;

/// The error of a function whose text would be longer.
pub(in crate::functions) fn too_long(function: &str) -> String {
    format!(
        "{function} would make a text that is longer than a value may be, which is {} MiB",
        LONGEST_VALUE >> 20
    )
}

/// How long a text may become that is made of these: some times as long as they are, as in hexadecimal digits, and [`LONGEST`].
pub(super) fn longest(values: &[Value]) -> usize {
    const TIMES: usize = 4;
    let given: usize = values.iter().map(Value::bytes_beyond).sum();
    TIMES * given + LONGEST
}

/// Bytes of the texts that a function makes of the rows of a batch, at most.
const MOST_BYTES: usize = 128 << 20;

struct RowFunctionUdf {
    function: &'static RowFunction,
    signature: Signature,
}

impl std::fmt::Debug for RowFunctionUdf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.function.name)
    }
}
impl PartialEq for RowFunctionUdf {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name
    }
}
impl Eq for RowFunctionUdf {}
impl std::hash::Hash for RowFunctionUdf {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl ScalarUDFImpl for RowFunctionUdf {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let Arity(least, most) = self.function.arity;
        if !(least..=most).contains(&arguments.len()) {
            let name = self.function.shown_name();
            return plan_err!("{name} does not take {} arguments", arguments.len());
        }
        let is_span = |given: &DataType| matches!(given, DataType::Duration(_));
        let as_dates = match self.function.name {
            "mysql_timestamp_plus" => &arguments[..1],
            name if takes_dates(name) => arguments,
            _ => &[],
        };
        if as_dates.iter().any(is_span) {
            return plan_err!(
                "{} is not supported of a TIME, which has no date",
                self.function.shown_name()
            );
        }
        Ok(arguments.iter().map(canonical_type).collect())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(self.function.data_type(arguments))
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types = args.arg_fields.iter().map(|it| it.data_type().clone());
        let given: Vec<_> = types.collect();
        let field = Field::new(self.name(), self.return_type(&given)?, true);
        Ok(Arc::new(
            match (self.function.return_type, self.function.name) {
                (ReturnType::Json, _) => as_document(field),
                (_, TIME_TEXT) => field.with_metadata([(TIME.to_owned(), String::new())].into()),
                (_, "mysql_now" | "mysql_timestamp_cast") => {
                    let digits = match args.scalar_arguments.get(1) {
                        None => 0,
                        Some(Some(ScalarValue::Int64(Some(digits)))) => *digits,
                        Some(_) => return Ok(Arc::new(field)),
                    };
                    let digits = [(FRACTION_DIGITS.to_owned(), digits.to_string())];
                    field.with_metadata(digits.into())
                }
                _ => field,
            },
        ))
    }

    /// What is a text or a number already is not made one.
    fn simplify(&self, args: Vec<Expr>, context: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let [only] = args.as_slice() else {
            return Ok(ExprSimplifyResult::Original(args));
        };
        let given = context.get_data_type(only)?;
        let stays = match self.function.name {
            "mysql_text" | "mysql_group_text" => is_text(Some(&given)),
            "mysql_number" => {
                self.function
                    .return_type
                    .data_type(std::slice::from_ref(&given))
                    == given
            }
            "mysql_double" => given == DataType::Float64,
            _ => false,
        };
        if stays {
            return Ok(ExprSimplifyResult::Simplified(only.clone()));
        }
        if self.function.name == "mysql_double" && given.is_numeric() && !is_long_decimal(&given) {
            let double = Cast::new(Box::new(only.clone()), DataType::Float64);
            return Ok(ExprSimplifyResult::Simplified(Expr::Cast(double)));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let scalars = args
            .args
            .iter()
            .all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let rows = if scalars { 1 } else { args.number_rows };
        if !scalars
            && let Some(of_columns) = self.function.of_columns
            && !args.args.iter().any(is_long_constant)
        {
            let columns = args.args.iter().map(|argument| argument.to_array(rows));
            let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
            if let Some(result) = of_columns(&columns) {
                return Ok(ColumnarValue::Array(result));
            }
        }
        let columns: Vec<Argument> = args.args.iter().map(Argument::of).collect::<Result<_>>()?;
        // Of constants alone it was warned when the statement was planned.
        let has_texts = columns.iter().any(Argument::is_column_of_texts);
        let warning = TakenFor::by(self.function.name).filter(|_| has_texts);
        let mut results = Vec::with_capacity(rows);
        let mut values = Vec::with_capacity(columns.len());
        let mut bytes = 0;
        for row in 0..rows {
            check_now_and_then()?;
            values.clear();
            for column in &columns {
                values.push(column.value(row)?);
            }
            let value = self.function.row(&values)?;
            if let Some(warning) = warning {
                warning.warn_of_row(&values, &value);
            }
            bytes += value.bytes_beyond();
            if bytes > MOST_BYTES {
                let name = self.function.shown_name();
                return resources_err!(
                    "{name} makes texts of more than {} MiB of {rows} rows",
                    MOST_BYTES >> 20
                );
            }
            results.push(value);
        }
        let result = column_of(results, args.return_field.data_type())?;
        if scalars {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

/// The function that makes texts of the times of day and spans of a result.
pub(crate) const TIME_TEXT: &str = "mysql_time_text";
/// The key by which the metadata of a field tell that its texts are those of a TIME.
pub const TIME: &str = "meridian.time";

/// The key under which the metadata of a field of times tell how many digits of a second they have.
pub const FRACTION_DIGITS: &str = "meridian.fraction_digits";

/// The key by which the metadata of a field tell that its texts are JSON documents.
const DOCUMENT: &str = "meridian.json";

/// The field of a column of texts as that of one of documents.
pub(super) fn as_document(field: Field) -> Field {
    field.with_metadata([(DOCUMENT.to_owned(), String::new())].into())
}

/// Whether the values of a column are JSON documents.
pub(crate) fn is_document(field: &Field) -> bool {
    is_text(Some(field.data_type())) && field.metadata().contains_key(DOCUMENT)
}

/// Whether a decimal may have more digits than the engine's cast makes the nearest double of.
fn is_long_decimal(given: &DataType) -> bool {
    const EXACT: u8 = 15;
    matches!(given, DataType::Decimal128(precision, _) if *precision > EXACT)
}

/// A constant that would take much memory once it stood in each row.
fn is_long_constant(argument: &ColumnarValue) -> bool {
    const LONG: usize = 256;
    match argument {
        ColumnarValue::Scalar(constant) => {
            let text = constant.try_as_str().flatten();
            text.is_some_and(|text| text.len() > LONG)
        }
        ColumnarValue::Array(_) => false,
    }
}

/// An argument of a function. A constant is there once, whatever the number of rows.
enum Argument {
    Constant(Value),
    Column(ArrayRef),
}

impl Argument {
    fn of(given: &ColumnarValue) -> Result<Self> {
        Ok(match given {
            ColumnarValue::Array(column) => Self::Column(Arc::clone(column)),
            ColumnarValue::Scalar(constant) => {
                Self::Constant(value_at(&constant.to_array_of_size(1)?, 0)?)
            }
        })
    }

    fn is_column_of_texts(&self) -> bool {
        matches!(self, Self::Column(column) if is_text(Some(column.data_type())))
    }

    fn value(&self, row: usize) -> Result<Value> {
        match self {
            Self::Constant(value) => Ok(value.clone()),
            Self::Column(column) => value_at(column, row),
        }
    }
}

/// The values as a column of the type. Integers that do not fit are an error.
pub(super) fn column_of(values: Vec<Value>, data_type: &DataType) -> Result<ArrayRef> {
    // As long as what goes into them, so that they do not double; each value goes once it is in there.
    let bytes = values.iter().map(Value::bytes_beyond).sum();
    let rows = values.len();
    macro_rules! filled {
        ($empty:expr, $value:ident => $of:expr) => {{
            let mut builder = $empty;
            for $value in values {
                check_now_and_then()?;
                builder.append_option(if $value.is_null() { None } else { Some($of) });
            }
            Arc::new(builder.finish()) as ArrayRef
        }};
    }
    Ok(match data_type {
        DataType::Int64 => filled!(Int64Builder::with_capacity(rows), value => signed(&value)?),
        DataType::UInt64 => filled!(UInt64Builder::with_capacity(rows), value => unsigned(&value)?),
        DataType::Float64 => {
            real_column(filled!(Float64Builder::with_capacity(rows), value => value.double()))
        }
        DataType::Decimal128(..) => Arc::new(
            filled!(Decimal128Builder::with_capacity(rows), value => value.digits())
                .as_primitive::<Decimal128Type>()
                .clone()
                .with_data_type(data_type.clone()),
        ),
        DataType::Utf8 => filled!(StringBuilder::with_capacity(rows, bytes), value => value.text()),
        DataType::Utf8View => {
            filled!(StringViewBuilder::with_capacity(rows), value => value.text())
        }
        DataType::LargeUtf8 => {
            filled!(LargeStringBuilder::with_capacity(rows, bytes), value => value.text())
        }
        DataType::Binary => {
            filled!(BinaryBuilder::with_capacity(rows, bytes), value => value.bytes())
        }
        DataType::Date32 => filled!(Date32Builder::with_capacity(rows), value => days(&value)?),
        DataType::Timestamp(..) => {
            filled!(TimestampMicrosecondBuilder::with_capacity(rows), value => micros(&value)?)
        }
        DataType::Duration(_) => {
            filled!(DurationMicrosecondBuilder::with_capacity(rows), value => micros_of_day(&value)?)
        }
        other => return exec_err!("a function gave a value of the type {other}"),
    })
}

fn signed(value: &Value) -> Result<i64> {
    let integer = value.integer();
    i64::try_from(integer)
        .or_else(|_| exec_err!("the result {integer} is beyond the range of BIGINT"))
}

fn unsigned(value: &Value) -> Result<u64> {
    let integer = value.integer();
    u64::try_from(integer)
        .or_else(|_| exec_err!("the result {integer} is beyond the range of BIGINT UNSIGNED"))
}

fn days(value: &Value) -> Result<i32> {
    match value {
        Value::Date(days) => Ok(*days),
        other => exec_err!("{} is no date", other.text()),
    }
}

fn micros(value: &Value) -> Result<i64> {
    match value {
        Value::Time(micros) => Ok(*micros),
        other => exec_err!("{} is no time", other.text()),
    }
}

fn micros_of_day(value: &Value) -> Result<i64> {
    match value {
        Value::TimeOfDay(micros) => Ok(*micros),
        other => exec_err!("{} is no time of day", other.text()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Int64Array};
    use arrow::datatypes::Field;
    use datafusion::common::config::ConfigOptions;

    use super::*;

    /// REPEAT of a character in so many rows.
    fn repeat(times: i64, rows: usize) -> Result<ColumnarValue> {
        let repeat = super::super::FUNCTIONS["mysql_repeat"].inner().clone();
        let times = Int64Array::from(vec![times; rows]);
        repeat.invoke_with_args(ScalarFunctionArgs {
            args: vec![
                ColumnarValue::Scalar(ScalarValue::from("x")),
                ColumnarValue::Array(Arc::new(times)),
            ],
            arg_fields: vec![],
            number_rows: rows,
            return_field: Arc::new(Field::new("text", DataType::Utf8, true)),
            config_options: Arc::new(ConfigOptions::default()),
        })
    }

    #[test]
    fn texts_are_bounded_one_by_one_and_together() {
        let longest = LONGEST as i64;
        let null_count = |texts: Result<ColumnarValue>| {
            let texts = texts.unwrap().into_array(2).unwrap();
            texts.null_count()
        };
        assert_eq!(null_count(repeat(longest, 2)), 0);
        assert_eq!(null_count(repeat(longest + 1, 2)), 2);
        // What was long before may stay so, but for what is too long for any value.
        let too_long = Value::Text("a".repeat(LONGEST_VALUE / 2 + 1));
        let concat = &super::super::text::FUNCTIONS;
        for (name, values) in [
            ("mysql_concat", vec![too_long.clone(); 3]),
            ("mysql_hex", vec![too_long]),
        ] {
            let function = concat.iter().find(|function| function.name == name);
            let error = function.unwrap().row(&values).unwrap_err().to_string();
            assert!(error.contains("longer than a value may be"), "{error}");
        }
        let long = ["a".repeat(2 * LONGEST), "a".to_owned(), "bb".to_owned()].map(Value::Text);
        let replace = super::super::text::FUNCTIONS
            .iter()
            .find(|function| function.name == "mysql_replace");
        let replaced = replace.unwrap().row(&long).unwrap();
        assert_eq!(replaced.bytes_beyond(), 4 * LONGEST);
        assert_eq!(null_count(repeat(i64::MAX, 2)), 2);
        let all = MOST_BYTES / LONGEST;
        assert!(repeat(longest, all).is_ok());
        let error = repeat(longest, all + 1).unwrap_err().to_string();
        assert!(
            error.contains("REPEAT makes texts of more than 128 MiB"),
            "{error}"
        );
    }
}
