//! How values of different types meet in ADQL, where the engine rejects them or takes times for such as end in the year 2262.
//!
//! | values that are compared | meet as |
//! |---|---|
//! | times of different types; times beside dates or texts | times with microseconds, as tables have them |
//! | a truth, and the numbers 0 and 1 or the texts 'true' and 'false', written out | truths |
//! | a truth, and other numbers | numbers: a truth is 1 or 0 |
//! | a text, and a number | not at all, unless the text is written out, as in `id = '3'`: it would fail at the first text that is no number |
//! | a time, and a number | not at all: a number is no time |
//!
//! The engine's times have nanoseconds, in 64 bits. It makes them of microseconds wherever times of two types meet, which is an error
//! for every time before 1677 or after 2262.
//!
//! | values of which one is the result | meet as |
//! |---|---|
//! | times of different types; times beside dates | times with microseconds |
//! | times or dates beside texts | texts, a time as `2015-06-01T12:30:00` |
//! | numbers beside texts | texts |
//! | truths beside numbers | numbers |

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::mysql::operand::{Kind, cast};

/// Plans comparisons and differences of a session that speaks ADQL.
#[derive(Debug, Default)]
pub struct AdqlOperators;

impl ExprPlanner for AdqlOperators {
    fn plan_binary_op(
        &self,
        mut raw: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let met = match raw.op {
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => {
                let sides = [&raw.left, &raw.right];
                if let Some((left, right)) = never_alike(&sides, schema) {
                    return cannot_compare(&left, &raw.op.to_string(), &right);
                }
                compared_together(&sides, schema)
            }
            BinaryOperator::Minus => subtracted(&raw.left, &raw.right, schema),
            _ => None,
        };
        if let Some(met) = met
            && let Ok([left, right]) = <[Expr; 2]>::try_from(met)
        {
            (raw.left, raw.right) = (left, right);
        }
        Ok(PlannerResult::Original(raw))
    }
}

/// The type of times in tables.
pub(crate) fn moment() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

/// As what values of several types are compared.
#[derive(Clone, Copy)]
enum Meeting {
    Moments,
    Truths,
    Numbers,
}

/// Values that are compared with each other as values of types that the engine compares; `None` if they are so already, or cannot be.
pub(crate) fn compared_together(values: &[&Expr], schema: &DFSchema) -> Option<Vec<Expr>> {
    compared_of_types(values, &types_of(values, schema)?)
}

/// The same of values whose types are known.
pub(crate) fn compared_of_types(values: &[&Expr], types: &[DataType]) -> Option<Vec<Expr>> {
    let meeting = meeting_of_compared(values, types)?;
    let met: Vec<Expr> = { values.iter().zip(types) }
        .map(|(value, given)| meeting.meet((*value).clone(), given))
        .collect();
    let changed = met.iter().zip(values).any(|(met, value)| met != *value);
    changed.then_some(met)
}

/// The types of the first of these values and of another one with which it cannot be compared, though the engine would, value by value.
pub(crate) fn never_alike(values: &[&Expr], schema: &DFSchema) -> Option<(DataType, DataType)> {
    never_alike_of_types(values, &types_of(values, schema)?)
}

/// The same of values whose types are known.
pub(crate) fn never_alike_of_types(
    values: &[&Expr],
    types: &[DataType],
) -> Option<(DataType, DataType)> {
    let (first, others) = types.split_first()?;
    let (value, others_values) = values.split_first()?;
    let other = { others.iter().zip(others_values) }.find(|(given, other)| {
        let is_text = |value: &Expr, given: &DataType| {
            is_text(Kind::of_type(given)) && !is_written_out(value)
        };
        let kinds = [first, *given].map(Kind::of_type);
        match kinds.map(is_plain_number) {
            [true, false] => is_text(other, given) || kinds[1].is_temporal(),
            [false, true] => is_text(value, first) || kinds[0].is_temporal(),
            _ => false,
        }
    });
    other.map(|(given, _)| (first.clone(), given.clone()))
}

fn is_written_out(value: &Expr) -> bool {
    matches!(value, Expr::Literal(..))
}

/// The error for two values that an operator does not compare, in the engine's words, which messages are made of.
///
/// # Errors
/// Always.
pub(crate) fn cannot_compare<T>(left: &DataType, operator: &str, right: &DataType) -> Result<T> {
    plan_err!(
        "Cannot infer common argument type for comparison operation {left} {operator} {right}"
    )
}

/// Values one of which is a result, as values of one type; `None` if the engine finds one for them.
pub(crate) fn results_together(values: &[&Expr], schema: &DFSchema) -> Option<Vec<Expr>> {
    let types = types_of(values, schema)?;
    let wanted = types_of_results(&types)?;
    let met = values.iter().zip(types.iter().zip(wanted));
    let met = met.map(|(value, (given, wanted))| match *given == wanted {
        true => (*value).clone(),
        false => cast((*value).clone(), wanted),
    });
    Some(met.collect())
}

/// The types of a time and a number among those of results, which are never of one type: the engine would make a day of a number.
pub(crate) fn never_one_result(types: &[DataType]) -> Option<(&DataType, &DataType)> {
    let find = |test: fn(Kind) -> bool| types.iter().find(|given| test(Kind::of_type(given)));
    find(Kind::is_temporal).zip(find(is_plain_number))
}

/// The types as which values of these types are given as results; `None` if the engine finds one for them.
pub(crate) fn types_of_results(types: &[DataType]) -> Option<Vec<DataType>> {
    let kinds: Vec<Kind> = types.iter().map(Kind::of_type).collect();
    let any = |test: fn(Kind) -> bool| kinds.iter().any(|kind| test(*kind));
    let all = |test: fn(Kind) -> bool| {
        let mut known = kinds.iter().filter(|kind| **kind != Kind::Null);
        known.all(|kind| test(*kind))
    };
    let wanted = if any(Kind::is_temporal) && any(is_text) && all(is_time_or_text)
        || any(is_plain_number) && any(is_text) && all(is_number_or_text)
    {
        DataType::Utf8
    } else if any(is_time) && all(Kind::is_temporal) {
        moment()
    } else if any(is_truth) && any(is_plain_number) && all(Kind::is_number) {
        // Numbers keep their types, of which the engine finds the common one.
        let number = |given: &DataType| match given {
            DataType::Boolean => DataType::Int64,
            other => other.clone(),
        };
        return Some(types.iter().map(number).collect());
    } else {
        return None;
    };
    let types: Vec<DataType> = types
        .iter()
        .map(|given| match (given, Kind::of_type(given)) {
            (_, Kind::Null) => DataType::Null,
            // A text stays one of its type.
            (text, Kind::Text) => text.clone(),
            _ => wanted.clone(),
        })
        .collect();
    Some(types)
}

fn types_of(values: &[&Expr], schema: &DFSchema) -> Option<Vec<DataType>> {
    let types = values.iter().map(|value| value.get_type(schema).ok());
    types.collect()
}

fn is_time(kind: Kind) -> bool {
    kind == Kind::Time
}

fn is_text(kind: Kind) -> bool {
    kind == Kind::Text
}

fn is_truth(kind: Kind) -> bool {
    kind == Kind::Truth
}

fn is_plain_number(kind: Kind) -> bool {
    kind.is_number() && kind != Kind::Truth
}

fn is_time_or_text(kind: Kind) -> bool {
    kind.is_temporal() || kind == Kind::Text
}

fn is_number_or_text(kind: Kind) -> bool {
    is_plain_number(kind) || kind == Kind::Text
}

fn meeting_of_compared(values: &[&Expr], types: &[DataType]) -> Option<Meeting> {
    let known: Vec<(&Expr, Kind)> = { values.iter().copied() }
        .zip(types.iter().map(Kind::of_type))
        .filter(|(_, kind)| *kind != Kind::Null)
        .collect();
    let any = |test: fn(Kind) -> bool| known.iter().any(|(_, kind)| test(*kind));
    let all = |test: fn(Kind) -> bool| known.iter().all(|(_, kind)| test(*kind));
    if any(is_time) && all(is_time_or_text) {
        return Some(Meeting::Moments);
    }
    if !any(is_truth) || all(is_truth) {
        return None;
    }
    let is_written_truth =
        |(value, kind): &(&Expr, Kind)| *kind == Kind::Truth || written_truth(value).is_some();
    if known.iter().all(is_written_truth) {
        return Some(Meeting::Truths);
    }
    all(Kind::is_number).then_some(Meeting::Numbers)
}

impl Meeting {
    fn meet(self, value: Expr, given: &DataType) -> Expr {
        match (self, Kind::of_type(given)) {
            (_, Kind::Null) => value,
            (Self::Moments, _) if *given == moment() => value,
            (Self::Moments, _) => cast(value, moment()),
            (Self::Truths, _) => match written_truth(&value) {
                Some(truth) => lit(truth),
                None => value,
            },
            (Self::Numbers, Kind::Truth) => cast(value, DataType::Int64),
            (Self::Numbers, _) => value,
        }
    }
}

/// The truth as which a constant is written: the number 0 or 1, or a text as `true`.
fn written_truth(value: &Expr) -> Option<bool> {
    match value {
        Expr::Literal(ScalarValue::Int64(Some(number)), _) => match number {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) => {
            match text.trim().to_ascii_lowercase().as_str() {
                "true" | "t" | "1" => Some(true),
                "false" | "f" | "0" => Some(false),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Both sides of a difference of times; `None` if they are of one type already, or no times.
fn subtracted(left: &Expr, right: &Expr, schema: &DFSchema) -> Option<Vec<Expr>> {
    let types = types_of(&[left, right], schema)?;
    let kinds: Vec<Kind> = types.iter().map(Kind::of_type).collect();
    let are_times = kinds.iter().all(|kind| kind.is_temporal());
    match are_times && kinds.contains(&Kind::Time) {
        true => compared_together(&[left, right], schema),
        false => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::col;

    use super::*;

    fn schema() -> DFSchema {
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, Some("+00:00".into()));
        let fields = [
            ("t", moment()),
            ("now", nanoseconds),
            ("day", DataType::Date32),
            ("name", DataType::Utf8View),
            ("flag", DataType::Boolean),
            ("n", DataType::Int32),
        ];
        let fields: Vec<Field> = { fields.into_iter() }
            .map(|(name, data_type)| Field::new(name, data_type, true))
            .collect();
        DFSchema::try_from(Schema::new(fields)).unwrap()
    }

    fn compared(values: &[Expr]) -> Option<String> {
        let values: Vec<&Expr> = values.iter().collect();
        let met = compared_together(&values, &schema())?;
        let met: Vec<String> = met.iter().map(ToString::to_string).collect();
        Some(met.join(" | "))
    }

    /// `t > '1600-01-01'` was an error, and so was `t > NOW()` where a time of a row was of the year 3000.
    #[test]
    fn times_are_compared_with_microseconds() {
        let far = lit("3000-01-01 00:00:00");
        assert_eq!(
            compared(&[col("t"), far]).as_deref(),
            Some("t | TimestampMicrosecond(32503680000000000, None)")
        );
        for other in ["now", "day", "name"] {
            let met = compared(&[col("t"), col(other)]).unwrap_or_default();
            let wanted = format!("t | CAST({other} AS Timestamp(µs))");
            assert_eq!(met, wanted);
        }
        assert_eq!(compared(&[col("t"), col("t")]), None);
        assert_eq!(compared(&[col("day"), lit("2015-06-01")]), None);
        assert_eq!(compared(&[col("t"), lit(1)]), None);
    }

    #[test]
    fn truths_are_numbers_where_they_meet_some() {
        let met = |value: Expr| compared(&[col("flag"), value]);
        assert_eq!(met(lit(1_i64)).as_deref(), Some("flag | Boolean(true)"));
        assert_eq!(met(lit("FALSE")).as_deref(), Some("flag | Boolean(false)"));
        for other in [lit(2_i64), col("n")] {
            let said = met(other.clone());
            assert_eq!(said, Some(format!("CAST(flag AS Int64) | {other}")));
        }
        assert_eq!(met(lit("perhaps")), None);
        assert_eq!(met(lit(true)), None);
        assert_eq!(compared(&[col("n"), lit(1_i64)]), None);
    }

    /// `name = 3` failed at the first name that was no number, after rows had been given, and `t > 57000` was true of no row.
    #[test]
    fn a_text_of_a_row_and_a_time_are_compared_with_no_number() {
        let alike = |values: [Expr; 2]| never_alike(&[&values[0], &values[1]], &schema()).is_none();
        for (other, is_alike) in [
            (lit(3_i64), false),
            (col("n"), false),
            (lit(3.5), false),
            (lit("3"), true),
            (lit(ScalarValue::Null), true),
            (col("t"), true),
        ] {
            assert_eq!(alike([col("name"), other.clone()]), is_alike, "{other}");
            assert_eq!(alike([other.clone(), col("name")]), is_alike, "{other}");
        }
        assert!(alike([col("n"), lit("3")]));
        assert!(!alike([col("t"), lit(57_000_i64)]));
        assert!(!alike([col("n"), col("day")]));
        assert!(alike([col("day"), col("t")]));
        let error = cannot_compare::<()>(&DataType::Utf8View, "=", &DataType::Int64);
        let told = crate::SqlError::from_datafusion(
            "SELECT 1 FROM t WHERE name = 3",
            &error.unwrap_err(),
            &[],
            &str::to_owned,
        );
        assert!(
            told.sentence().starts_with(
                "VARCHAR and BIGINT cannot be compared with =: write the number in quotes"
            ),
            "{told}"
        );
    }

    #[test]
    fn results_are_of_one_type() {
        let nanoseconds = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let text = DataType::Utf8View;
        for (given, wanted) in [
            (
                vec![moment(), text.clone()],
                Some(vec![DataType::Utf8, text.clone()]),
            ),
            (
                vec![DataType::Null, DataType::Date32, text.clone()],
                Some(vec![DataType::Null, DataType::Utf8, text.clone()]),
            ),
            (vec![moment(), nanoseconds], Some(vec![moment(), moment()])),
            (
                vec![moment(), DataType::Date32],
                Some(vec![moment(), moment()]),
            ),
            (
                vec![DataType::Boolean, DataType::Float64],
                Some(vec![DataType::Int64, DataType::Float64]),
            ),
            (vec![DataType::Date32, DataType::Date32], None),
            (vec![DataType::Boolean, DataType::Boolean], None),
            (
                vec![text.clone(), DataType::Int64],
                Some(vec![text.clone(), DataType::Utf8]),
            ),
            (vec![text.clone(), DataType::Boolean], None),
            (vec![moment(), DataType::Int64], None),
        ] {
            assert_eq!(types_of_results(&given), wanted, "{given:?}");
        }
        assert!(never_one_result(&[DataType::Int64, DataType::Date32]).is_some());
        assert!(never_one_result(&[DataType::Null, moment(), DataType::Utf8]).is_none());
        // Nothing is cast that is of the type already.
        let values = [col("t"), col("name")];
        let values: Vec<&Expr> = values.iter().collect();
        let met = results_together(&values, &schema()).unwrap();
        assert_eq!(met[0].to_string(), "CAST(t AS Utf8)");
        assert_eq!(met[1], col("name"));
    }
}
