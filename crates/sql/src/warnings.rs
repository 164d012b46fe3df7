//! Warnings about statements that are executed nevertheless: a constant text is used as a number or a time and is none.
//!
//! MySQL warns of each value as it meets it. Here constants are looked at when a statement is planned; the values of rows by the functions
//! that take them, which tell the statement on which their thread works ([`crate::Interrupt`]).

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule as _;

use crate::functions::mysql::value::Value;
use crate::functions::mysql::{
    is_clock, is_moment, is_number, is_number_of_moment, is_read_by_format,
};
use crate::rules::CompareValues;
use crate::{ErrorCode, Interrupt};

/// Warnings that a statement has at most: what MySQL's `max_error_count` is by default.
pub const MOST_WARNINGS: usize = 1024;

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// MySQL's code.
    pub code: ErrorCode,
    /// The message, as MySQL words it.
    pub sentence: String,
}

impl Warning {
    /// A line from which [`Self::of_line`] makes the warning again.
    pub fn line(&self) -> String {
        // A sentence shows values without control characters, but may name what a client has called otherwise.
        let sentence = self.sentence.replace(['\n', '\r'], " ");
        format!("{} {sentence}", self.code.number)
    }

    /// The warning of a line; `None` if it is none.
    pub fn of_line(line: &str) -> Option<Self> {
        let (number, sentence) = line.split_once(' ')?;
        Some(Self {
            code: ErrorCode::of_number(number.parse().ok()?),
            sentence: sentence.to_owned(),
        })
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.sentence)
    }
}

/// The warnings about a statement in MySQL's dialect, from its plan before anything is rewritten.
pub fn warnings(plan: &LogicalPlan) -> Vec<Warning> {
    if !may_warn(plan) {
        return vec![];
    }
    // Where constants meet values of other types in lists and ranges is seen once these are taken apart.
    let compared = CompareValues.analyze(plan.clone(), &ConfigOptions::default());
    let mut warnings: Vec<Warning> = vec![];
    if let Ok(plan) = compared {
        each_expression(&plan, &mut |expr| {
            let warning = of(expr).filter(|_| warnings.len() < MOST_WARNINGS);
            if let Some(warning) = warning.filter(|it| !warnings.contains(it)) {
                warnings.push(warning);
            }
            TreeNodeRecursion::Continue
        });
    }
    warnings
}

/// Whether there is a constant that may be odd: a text that is no number, or a number that meets something else.
fn may_warn(plan: &LogicalPlan) -> bool {
    let mut may = false;
    each_expression(plan, &mut |expr| {
        may |= match expr {
            Expr::Literal(value, _) => text_of(value).is_some_and(|text| !is_number(text)),
            Expr::ScalarFunction(function) => function.name() == "mysql_number_moment",
            Expr::InList(_) | Expr::Between(_) => true,
            _ => false,
        };
        match may {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        }
    });
    may
}

fn each_expression(plan: &LogicalPlan, see: &mut dyn FnMut(&Expr) -> TreeNodeRecursion) {
    // The closures cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| expr.apply(|expr| Ok(see(expr))))
    });
}

/// The warning about a call that makes something of a constant.
fn of(expr: &Expr) -> Option<Warning> {
    let Expr::ScalarFunction(ScalarFunction { func, args }) = expr else {
        return None;
    };
    let constant = |at: usize| match args.get(at) {
        Some(Expr::Literal(value, _)) => Some(value),
        _ => None,
    };
    if func.name() == "mysql_number_moment" {
        let number = constant(0).filter(|value| text_of(value).is_none())?;
        return (!is_number_of_moment(number)?).then(|| incorrect_time(&number.to_string()));
    }
    let taken = TakenFor::by(func.name())?;
    let warning = taken.warning(|at| constant(at).and_then(text_of))?;
    let hint = match (taken, constant(0).and_then(text_of)) {
        (TakenFor::Number(_), Some(text)) if may_be_name(text) => {
            "; if it is a column's name, write it plain or in backticks: quotes are for texts"
        }
        _ => "",
    };
    Some(Warning {
        sentence: warning.sentence + hint,
        ..warning
    })
}

/// As what a function takes the texts that it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenFor {
    /// The first is a number, of this type in messages.
    Number(&'static str),
    /// Those from one place to another are dates, perhaps with times of day.
    Moments(usize, usize),
    /// The first is a time of day.
    Clock,
    /// The first is read by the format that the second is.
    Formatted {
        /// Whether it is a time of day alone.
        as_clock: bool,
    },
}

/// Functions of numbers, and what they take a text for.
const OF_NUMBERS: [(&str, &str); 13] = [
    ("mysql_double", "DOUBLE"),
    ("mysql_number", "DOUBLE"),
    ("mysql_signed", "INTEGER"),
    ("mysql_unsigned", "INTEGER"),
    ("mysql_number_text", "DECIMAL"),
    ("mysql_abs", "DOUBLE"),
    ("mysql_ceil", "DOUBLE"),
    ("mysql_ceiling", "DOUBLE"),
    ("mysql_floor", "DOUBLE"),
    ("mysql_sign", "DOUBLE"),
    ("mysql_round", "DOUBLE"),
    ("mysql_truncate", "DOUBLE"),
    ("mysql_sec_to_time", "DOUBLE"),
];
/// Functions of times, and the first and the last of their arguments that are one.
const OF_MOMENTS: [(&str, usize, usize); 25] = [
    ("mysql_year", 0, 0),
    ("mysql_month", 0, 0),
    ("mysql_day", 0, 0),
    ("mysql_quarter", 0, 0),
    ("mysql_week", 0, 0),
    ("mysql_yearweek", 0, 0),
    ("mysql_weekday", 0, 0),
    ("mysql_dayofweek", 0, 0),
    ("mysql_dayofyear", 0, 0),
    ("mysql_dayname", 0, 0),
    ("mysql_monthname", 0, 0),
    ("mysql_to_days", 0, 0),
    ("mysql_to_seconds", 0, 0),
    ("mysql_last_day", 0, 0),
    ("mysql_date", 0, 0),
    ("mysql_timestamp", 0, 0),
    ("mysql_timestamp_cast", 0, 0),
    ("mysql_timestamp_plus", 0, 0),
    ("mysql_date_format", 0, 0),
    ("mysql_unix_timestamp", 0, 0),
    ("mysql_unix_seconds", 0, 0),
    ("mysql_convert_tz", 0, 0),
    ("mysql_date_add", 0, 0),
    ("mysql_time_add", 0, 0),
    ("mysql_timestampdiff", 1, 2),
];
/// Functions of times of day.
const OF_CLOCKS: [&str; 12] = [
    "mysql_hour",
    "mysql_minute",
    "mysql_second",
    "mysql_microsecond",
    "mysql_extract_hour",
    "mysql_extract_minute",
    "mysql_extract_second",
    "mysql_extract_microsecond",
    "mysql_time_to_sec",
    "mysql_time",
    "mysql_time_cast",
    "mysql_time_format",
];

impl TakenFor {
    /// As what a function takes texts; `None` for one that does not look at them.
    pub(crate) fn by(function: &str) -> Option<Self> {
        if let Some((_, kind)) = OF_NUMBERS.iter().find(|(name, _)| *name == function) {
            return Some(Self::Number(kind));
        }
        if let Some((_, first, last)) = OF_MOMENTS.iter().find(|(name, ..)| *name == function) {
            return Some(Self::Moments(*first, *last));
        }
        match function {
            "mysql_str_to_date" => Some(Self::Formatted { as_clock: false }),
            "mysql_str_to_time" => Some(Self::Formatted { as_clock: true }),
            other => OF_CLOCKS.contains(&other).then_some(Self::Clock),
        }
    }

    /// The warning about arguments, of which `text` gives those that are texts.
    fn warning<'a>(self, text: impl Fn(usize) -> Option<&'a str>) -> Option<Warning> {
        Some(match self {
            Self::Number(kind) => {
                let text = text(0).filter(|text| !is_number(text))?;
                truncated(format!(
                    "Truncated incorrect {kind} value: '{}'",
                    shown(text)
                ))
            }
            Self::Moments(first, last) => {
                let mut texts = (first..=last).filter_map(text);
                incorrect_time(texts.find(|text| !is_moment(text))?)
            }
            Self::Clock => {
                let text = text(0).filter(|text| !is_clock(text))?;
                truncated(format!("Truncated incorrect time value: '{}'", shown(text)))
            }
            Self::Formatted { as_clock } => {
                let (given, format) = (text(0)?, text(1)?);
                if is_read_by_format(as_clock, given, format) {
                    return None;
                }
                let given = shown(given);
                Warning {
                    code: ErrorCode::WRONG_FORMAT,
                    sentence: format!(
                        "Incorrect datetime value: '{given}' for function str_to_date"
                    ),
                }
            }
        })
    }

    /// Warns of the values of a row, of which the function has made `result`.
    pub(crate) fn warn_of_row(self, values: &[Value], result: &Value) {
        // What is no time gives NULL: nothing is read twice that is one.
        let may_be_wrong = matches!(self, Self::Number(_)) || result.is_null();
        if !may_be_wrong || values.iter().any(Value::is_null) {
            return;
        }
        let text = |at: usize| match values.get(at) {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let Some(statement) = Interrupt::current() else {
            return;
        };
        if !statement.warnings().is_full()
            && let Some(warning) = self.warning(text)
        {
            statement.warnings().add(warning);
        }
    }
}

fn truncated(sentence: String) -> Warning {
    Warning {
        code: ErrorCode::TRUNCATED_VALUE,
        sentence,
    }
}

fn incorrect_time(value: &str) -> Warning {
    truncated(format!("Incorrect datetime value: '{}'", shown(value)))
}

/// The beginning of a text that may be long, in one line.
fn shown(text: &str) -> String {
    const CHARACTERS: usize = 128;
    let mut shown = String::new();
    for character in text.chars().take(CHARACTERS) {
        match character.is_control() {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// The warnings of a statement about the values of rows, in the order in which its threads met them. Those beyond
/// [`MOST_WARNINGS`] are not kept.
#[derive(Debug, Default)]
pub struct RowWarnings {
    count: AtomicUsize,
    kept: Mutex<Vec<Warning>>,
}

impl RowWarnings {
    /// Whether there is no room for more.
    pub fn is_full(&self) -> bool {
        self.count.load(Relaxed) >= MOST_WARNINGS
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Takes all of them.
    pub fn take(&self) -> Vec<Warning> {
        if self.is_empty() {
            return vec![];
        }
        std::mem::take(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets all of them: the rows are computed again.
    pub fn clear(&self) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clear();
        self.count.store(0, Relaxed);
    }

    /// Adds one, if there is room.
    pub fn add(&self, warning: Warning) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if self.count.fetch_add(1, Relaxed) < MOST_WARNINGS {
            kept.push(warning);
        }
    }
}

/// Whether a text that is used as a number may be meant as the name of a column, as in `"g-mag" < 15`.
fn may_be_name(text: &str) -> bool {
    const SHORTEST: usize = 3;
    let of_name =
        |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '(' | ')' | '[' | ']');
    text.len() >= SHORTEST && text.starts_with(char::is_alphabetic) && text.chars().all(of_name)
}

fn text_of(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}
