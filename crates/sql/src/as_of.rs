//! The state of published data that a statement reads: that of a time (`SET meridian_as_of`), or the latest.
//!
//! Definitions of views ask for it with `meridian_as_of()`, which becomes a number when they are planned: microseconds since 1970 (UTC).
//! `meridian_as_of(N)` is the same of data that have no state before the time N.

use std::ops::ControlFlow;
use std::time::{SystemTime, UNIX_EPOCH};

use datafusion::arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use datafusion::arrow::temporal_conversions::timestamp_us_to_datetime;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, FunctionArguments, ObjectNamePart, VisitorMut};

use crate::mysql::build::number;
use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError};

/// The system variable with the time of whose state published data are read.
pub const AS_OF_VARIABLE: &str = "meridian_as_of";
/// The function of definitions.
pub const AS_OF_FUNCTION: &str = "meridian_as_of";

/// Puts the time of the state, in microseconds since 1970, in the place of `meridian_as_of()`; without one, a time after all others.
///
/// # Errors
/// The time is before the first of which there is a state.
pub fn replace_as_of(statement: &mut Statement, as_of: Option<i64>) -> Result<(), SqlError> {
    let Statement::Statement(ast) = statement else {
        return Ok(());
    };
    match visit_mut(&mut **ast, &mut Times(as_of)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Times(Option<i64>);

impl Times {
    /// The time for a reader of data whose first state is of a time that a definition says.
    fn since(&self, first: &[impl ToString]) -> Result<i64, SqlError> {
        let wrong =
            |sentence: String| SqlError::new(sentence).with_code(ErrorCode::WRONG_VARIABLE_VALUE);
        let first: i64 = match first {
            [] => i64::MIN,
            [first, ..] => first.to_string().parse().map_err(|_| {
                wrong(format!(
                    "{AS_OF_FUNCTION}({}) is no time in microseconds since 1970",
                    first.to_string()
                ))
            })?,
        };
        match self.0 {
            Some(time) if time < first => {
                let first = timestamp_us_to_datetime(first)
                    .map_or_else(|| first.to_string(), |time| time.to_string());
                Err(wrong(format!(
                    "what was published before the release of {first} (UTC) cannot be queried any more: ask as of that time or a later one ({AS_OF_VARIABLE}, AS OF), \
                     or read the archive that was made of it"
                )))
            }
            Some(time) => Ok(time),
            None => Ok(i64::MAX),
        }
    }
}

impl VisitorMut for Times {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Function(function) = expr
            && let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice()
            && name.value.eq_ignore_ascii_case(AS_OF_FUNCTION)
            && let FunctionArguments::List(list) = &function.args
            && list.args.len() <= 1
        {
            match self.since(&list.args) {
                Ok(time) => *expr = number(&time.to_string()),
                Err(error) => return ControlFlow::Break(error),
            }
        }
        ControlFlow::Continue(())
    }
}

/// What is wrong with a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeMistake {
    /// It is none.
    Unreadable,
    /// It is still to come.
    Future,
}

impl TimeMistake {
    /// The sentence about a text that is given behind some words.
    pub(crate) fn of(self, words: &str, text: &str) -> String {
        match self {
            Self::Unreadable => format!(
                "{words} '{text}' is no time: give one in UTC, such as '2026-11-20 08:00:00'"
            ),
            Self::Future => format!(
                "{words} '{text}' is still to come: what is published until then is not known"
            ),
        }
    }
}

/// A time in UTC, in microseconds since 1970; `None` for the empty text, which stands for the latest state.
///
/// # Errors
/// It is no time, or one that is still to come.
pub(crate) fn time_of(text: &str) -> Result<Option<i64>, TimeMistake> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    // Hours and minutes alone.
    let seconds = match text.len() {
        16 => ":00",
        _ => "",
    };
    let nanoseconds = string_to_timestamp_nanos(&format!("{text}{seconds}"))
        .map_err(|_| TimeMistake::Unreadable)?;
    let time = nanoseconds.div_euclid(1000);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |elapsed| elapsed.as_micros() as i64);
    match time <= now {
        true => Ok(Some(time)),
        false => Err(TimeMistake::Future),
    }
}

/// The time to which the variable is set.
///
/// # Errors
/// It is no time, or one that is still to come.
pub fn time_of_variable(text: &str) -> Result<Option<i64>, SqlError> {
    time_of(text).map_err(|mistake| {
        let text = text.trim();
        let sentence = match mistake {
            TimeMistake::Unreadable => format!(
                "{AS_OF_VARIABLE} cannot be set to '{text}': give a time in UTC, such as '2026-11-20 08:00:00', or '' for the latest state"
            ),
            TimeMistake::Future => format!(
                "{AS_OF_VARIABLE} cannot be set to '{text}', which is still to come: what is published until then is not known"
            ),
        };
        SqlError::new(sentence).with_code(ErrorCode::WRONG_VARIABLE_VALUE)
    })
}

/// A time in microseconds since 1970 as the variable takes it.
pub fn time_as_text(time: i64) -> Option<String> {
    let time = timestamp_us_to_datetime(time)?;
    Some(time.format("%Y-%m-%d %H:%M:%S%.6f").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_before_the_first_are_refused() {
        let time = |as_of, first: &[i64]| Times(as_of).since(first);
        assert_eq!(time(None, &[]).unwrap(), i64::MAX);
        assert_eq!(time(None, &[5]).unwrap(), i64::MAX);
        assert_eq!(time(Some(4), &[]).unwrap(), 4);
        assert_eq!(time(Some(5), &[5]).unwrap(), 5);
        let error = time(Some(1), &[1_500_000]).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("the release of 1970-01-01 00:00:01.5")
        );
    }

    #[test]
    fn times_are_utc_and_over() {
        assert_eq!(
            time_as_text(1_500_000).as_deref(),
            Some("1970-01-01 00:00:01.500000")
        );
        assert_eq!(time_of("").unwrap(), None);
        assert_eq!(time_of("1970-01-01 00:00:01.5").unwrap(), Some(1_500_000));
        assert_eq!(time_of("1970-01-01T00:00:01Z").unwrap(), Some(1_000_000));
        assert_eq!(time_of(" 1970-01-02 ").unwrap(), Some(86_400_000_000));
        assert_eq!(time_of("1970-01-01 00:01"), Ok(Some(60_000_000)));
        for wrong in ["yesterday", "12", "2026-13-01", "2026-01-01 08:0é"] {
            let error = time_of_variable(wrong).unwrap_err().to_string();
            assert!(error.contains("give a time in UTC"), "{error}");
        }
        let error = time_of_variable("2200-01-01").unwrap_err().to_string();
        assert!(error.contains("still to come"), "{error}");
    }
}
