//! Syntax within expressions that is read and that nothing honours.

use datafusion::sql::sqlparser::ast::{
    Array, CeilFloorKind, DateTimeField, DuplicateTreatment, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, Interval, Spanned, Value,
};

use super::{CheckResult, Checker};
use crate::fold::Places;
use crate::functions::{arguments, is_scalar};
use crate::mistakes::BRACKETS;
use crate::mysql;
use crate::{Dialect, ErrorCode, SqlError};

impl Checker<'_> {
    pub(super) fn expr(&self, expr: &Expr) -> CheckResult {
        match expr {
            Expr::Function(function) => {
                arguments::check(self.dialect, self.sql, function)?;
                self.function(function)
            }
            Expr::Substring {
                substring_from: None,
                shorthand,
                ..
            } => {
                let name = if *shorthand { "SUBSTR" } else { "SUBSTRING" };
                Err(arguments::wrong_number(self.sql, name, (2, 3), 1))
            }
            Expr::Cast { format, array, .. } => self.absent(
                format.is_some() || *array,
                "CAST with FORMAT or ARRAY",
                "cast to a plain type",
            ),
            Expr::Convert {
                is_try,
                expr: _,
                data_type: _,
                // All text is UTF-8.
                charset: _,
                target_before_value: _,
                styles,
            } => self.absent(
                *is_try || !styles.is_empty(),
                "CONVERT with a style",
                "use CONVERT(value, type)",
            ),
            Expr::Trim {
                trim_characters, ..
            } => {
                let words = "TRIM with a list of characters";
                self.absent(
                    trim_characters.is_some(),
                    words,
                    "use TRIM(BOTH 'x' FROM text)",
                )
            }
            Expr::Ceil { field, .. } | Expr::Floor { field, .. } => {
                let is_plain = matches!(
                    field,
                    CeilFloorKind::DateTimeField(DateTimeField::NoDateTime)
                );
                self.absent(
                    !is_plain,
                    "TO or digits in CEIL and FLOOR",
                    "they take one number",
                )
            }
            Expr::Interval(interval) => self.interval(interval),
            Expr::Collate { collation, .. } => {
                let name = collation.to_string().to_ascii_lowercase();
                let is_bytewise = name.ends_with("_bin") || name == "binary";
                let words = format!("COLLATE {name}");
                self.absent(
                    !is_bytewise,
                    &words,
                    "texts are compared byte by byte; compare LOWER(text) to disregard case",
                )
            }
            Expr::Array(array) if !array.named => {
                let error = SqlError::new(BRACKETS).with_code(ErrorCode::SYNTAX);
                Err(error.pointing_at(self.sql, self.bracket_of(array), 1))
            }
            Expr::SimilarTo { .. } => self.absent(true, "SIMILAR TO", self.of_patterns()),
            Expr::RLike { regexp, .. } => {
                let words = if *regexp { "REGEXP" } else { "RLIKE" };
                self.absent(!self.is_mysql(), words, self.of_patterns())
            }
            Expr::Like { .. } | Expr::ILike { .. } => {
                let (is_any, is_long) = mysql::unusual_pattern(expr);
                self.absent(is_any, "LIKE ANY", "join several LIKE with OR")?;
                let instead = "an escape is one character; without ESCAPE it is the backslash";
                self.absent(is_long, "ESCAPE of several characters", instead)
            }
            _ => Ok(()),
        }
    }

    /// What to write instead of an operator for patterns that the dialect does not have.
    fn of_patterns(&self) -> &'static str {
        match self.dialect {
            Dialect::MySql => "use LIKE, or a regular expression, as in name REGEXP '^(M|NGC)'",
            Dialect::Adql => {
                "use LIKE, or a regular expression, as in REGEXP_LIKE(name, '^(M|NGC)')"
            }
        }
    }

    /// The byte of the bracket with which a list begins.
    fn bracket_of(&self, array: &Array) -> Option<usize> {
        let first = array.elem.first()?.span().start;
        self.sql[..Places::new(self.sql).byte(first)].rfind('[')
    }

    /// A number is one that there is.
    pub(super) fn value(&self, value: &Value) -> CheckResult {
        match value {
            Value::Number(digits, _) if digits.parse::<f64>().is_ok_and(f64::is_infinite) => {
                let sentence =
                    format!("the number {digits} is beyond the largest double, 1.79e308");
                let error = SqlError::about(self.sql, &digits.to_ascii_lowercase(), sentence);
                Err(error.with_code(ErrorCode::ILLEGAL_NUMBER))
            }
            _ => Ok(()),
        }
    }

    fn interval(&self, interval: &Interval) -> CheckResult {
        let Interval {
            value: _,
            leading_field: _,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        } = interval;
        // MySQL's units of several are written so.
        let more = leading_precision.is_some() || (last_field.is_some() && !self.is_mysql());
        let more = more || fractional_seconds_precision.is_some();
        self.absent(
            more,
            "INTERVAL of several units",
            "add intervals of one unit each",
        )
    }

    fn function(&self, function: &Function) -> CheckResult {
        let Function {
            name,
            uses_odbc_syntax: _,
            parameters,
            args,
            filter,
            null_treatment,
            over,
            within_group,
        } = function;
        let has_parameters = !matches!(parameters, FunctionArguments::None);
        let name = name.to_string();
        let words = format!("{name} with two lists of arguments");
        self.absent(has_parameters, &words, "give the arguments in one list")?;
        let mut is_of_rows = filter.is_some() || null_treatment.is_some() || over.is_some();
        is_of_rows |= !within_group.is_empty();
        if let FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment,
            // The planner takes named arguments, or rejects them.
            args,
            clauses,
        }) = args
        {
            let is_distinct = *duplicate_treatment == Some(DuplicateTreatment::Distinct);
            self.rows_counted(&name, args, is_distinct)?;
            is_of_rows |= duplicate_treatment.is_some() || !clauses.is_empty();
        }
        let words = format!("{name} with DISTINCT, ORDER BY, FILTER, OVER or the like");
        let instead = "that is for aggregates and window functions, and this is none";
        self.absent(is_of_rows && is_scalar(&name), &words, instead)
    }

    /// `COUNT(*)` is the only function of a wildcard, and COUNT of several columns is one of different ones.
    fn rows_counted(&self, name: &str, args: &[FunctionArg], is_distinct: bool) -> CheckResult {
        let has_wildcard = args.iter().any(|arg| {
            matches!(
                arg,
                FunctionArg::Unnamed(
                    FunctionArgExpr::Wildcard
                        | FunctionArgExpr::QualifiedWildcard(_)
                        | FunctionArgExpr::WildcardWithOptions(_)
                )
            )
        });
        let shown = name.to_uppercase();
        if name.eq_ignore_ascii_case("count") {
            let words = "COUNT(DISTINCT *)";
            let instead = "name the columns, as in COUNT(DISTINCT a, b)";
            self.absent(has_wildcard && is_distinct, words, instead)?;
            let words = "COUNT of several values";
            let instead = "give one, as in COUNT(*), or COUNT(DISTINCT a, b) for different ones";
            return self.absent(args.len() > 1 && !is_distinct, words, instead);
        }
        let words = format!("{shown}(*)");
        let instead = format!("give {shown} a column; COUNT(*) alone is of whole rows");
        self.absent(has_wildcard, &words, &instead)
    }
}
