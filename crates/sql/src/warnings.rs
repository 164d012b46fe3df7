//! Warnings about statements that are executed nevertheless: a constant text is used as a number or a time and is none.
//!
//! MySQL warns of each value as it meets it. Here constants are looked at when a statement is planned; values of rows are converted
//! without a warning.

use std::fmt;

use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule as _;

use crate::ErrorCode;
use crate::functions::mysql::{
    is_clock, is_moment, is_number, is_number_of_moment, is_read_by_format,
};
use crate::rules::CompareValues;

/// Warnings that a statement has at most: what MySQL's `max_error_count` is by default.
const MOST: usize = 1024;

/// A warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// MySQL's code.
    pub code: ErrorCode,
    /// The message, as MySQL words it.
    pub sentence: String,
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
            let warning = of(expr).filter(|_| warnings.len() < MOST);
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
    if let Some(warning) = of_times(func.name(), args) {
        return Some(warning);
    }
    let Some(Expr::Literal(value, _)) = args.first() else {
        return None;
    };
    let truncated = |kind: &str, text: &str| {
        let hint = match may_be_name(text) {
            true => {
                "; if it is a column's name, write it plain or in backticks: quotes are for texts"
            }
            false => "",
        };
        format!("Truncated incorrect {kind} value: '{text}'{hint}")
    };
    let sentence = match (func.name(), text_of(value)) {
        ("mysql_double" | "mysql_number", Some(text)) if !is_number(text) => {
            truncated("DOUBLE", text)
        }
        ("mysql_signed" | "mysql_unsigned", Some(text)) if !is_number(text) => {
            truncated("INTEGER", text)
        }
        ("mysql_number_text", Some(text)) if !is_number(text) => truncated("DECIMAL", text),
        ("mysql_number_moment", None) if !is_number_of_moment(value)? => {
            format!("Incorrect datetime value: '{value}'")
        }
        _ => return None,
    };
    Some(Warning {
        code: ErrorCode::TRUNCATED_VALUE,
        sentence,
    })
}

/// Functions of times, and the first and the last of their arguments that are one.
const OF_MOMENTS: [(&str, usize, usize); 22] = [
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
    ("mysql_last_day", 0, 0),
    ("mysql_date", 0, 0),
    ("mysql_timestamp", 0, 0),
    ("mysql_date_format", 0, 0),
    ("mysql_unix_timestamp", 0, 0),
    ("mysql_unix_seconds", 0, 0),
    ("mysql_convert_tz", 0, 0),
    ("mysql_date_add", 0, 0),
    ("mysql_time_add", 0, 0),
    ("mysql_timestampdiff", 1, 2),
];
/// Functions of times of day.
const OF_CLOCKS: [&str; 9] = [
    "mysql_hour",
    "mysql_minute",
    "mysql_second",
    "mysql_microsecond",
    "mysql_extract_hour",
    "mysql_extract_minute",
    "mysql_extract_second",
    "mysql_extract_microsecond",
    "mysql_time_to_sec",
];

/// The warning about a constant text that is to be a time and is none.
fn of_times(function: &str, arguments: &[Expr]) -> Option<Warning> {
    let text = |at: usize| match arguments.get(at) {
        Some(Expr::Literal(value, _)) => text_of(value),
        _ => None,
    };
    if matches!(function, "mysql_str_to_date" | "mysql_str_to_time") {
        let (given, format) = (text(0)?, text(1)?);
        return (!is_read_by_format(function, given, format)).then(|| Warning {
            code: ErrorCode::WRONG_FORMAT,
            sentence: format!("Incorrect datetime value: '{given}' for function str_to_date"),
        });
    }
    let sentence = if OF_CLOCKS.contains(&function) {
        let text = text(0).filter(|text| !is_clock(text))?;
        format!("Truncated incorrect time value: '{text}'")
    } else {
        let (_, first, last) = OF_MOMENTS.iter().find(|(name, ..)| *name == function)?;
        let mut texts = (*first..=*last).filter_map(text);
        let text = texts.find(|text| !is_moment(text))?;
        format!("Incorrect datetime value: '{text}'")
    };
    Some(Warning {
        code: ErrorCode::TRUNCATED_VALUE,
        sentence,
    })
}

/// Whether a text that is used as a number may be meant as the name of a column, as in `"g-mag" < 15`.
fn may_be_name(text: &str) -> bool {
    const SHORTEST: usize = 3;
    let of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    text.len() >= SHORTEST && text.starts_with(char::is_alphabetic) && text.chars().all(of_name)
}

fn text_of(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}
