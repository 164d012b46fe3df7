//! MySQL's functions that are other expressions in the engine: a table of calls and of what stands for them.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{Expr, VisitorMut};
use datafusion::sql::sqlparser::parser::Parser;

use super::MySqlGrammar;
use crate::visiting::visit_mut;

/// A function, its number of arguments, and the expression that stands for it; `$1` is its first argument.
///
/// Calls in an expansion are expanded in their turn but for those whose names are quoted, which are the engine's.
const TEMPLATES: &[(&str, usize, &str)] = &[
    // Choice and NULL.
    ("if", 3, "CASE WHEN $1 THEN $2 ELSE $3 END"),
    ("ifnull", 2, "mysql_coalesce($1, $2)"),
    ("nvl", 2, "mysql_coalesce($1, $2)"),
    ("nvl2", 3, "CASE WHEN $1 IS NOT NULL THEN $2 ELSE $3 END"),
    ("isnull", 1, "$1 IS NULL"),
    ("nullif", 2, "CASE WHEN $1 = $2 THEN NULL ELSE $1 END"),
    // Mathematics. LOG of one argument is the natural logarithm in MySQL.
    ("mod", 2, "$1 MOD $2"),
    ("log", 1, "ln($1)"),
    ("log", 2, "ln($2) / ln($1)"),
    ("pow", 2, "power($1, $2)"),
    ("atan", 2, "atan2($1, $2)"),
    ("rand", 0, "random()"),
    // Statistics. STDDEV and VARIANCE are of the whole population in MySQL.
    ("std", 1, "stddev_pop($1)"),
    ("stddev", 1, "stddev_pop($1)"),
    ("variance", 1, "var_pop($1)"),
    // Of no rows they are what changes nothing.
    (
        "bit_or",
        1,
        "coalesce(`bit_or`(mysql_unsigned($1)), mysql_unsigned(0))",
    ),
    (
        "bit_xor",
        1,
        "coalesce(`bit_xor`(mysql_unsigned($1)), mysql_unsigned(0))",
    ),
    (
        "bit_and",
        1,
        "coalesce(`bit_and`(mysql_unsigned($1)), mysql_bit_not(0))",
    ),
    // Text. Lengths are in bytes unless they say otherwise.
    ("length", 1, "mysql_length($1)"),
    ("ucase", 1, "mysql_upper($1)"),
    ("lcase", 1, "mysql_lower($1)"),
    ("char_length", 1, "mysql_char_length($1)"),
    ("character_length", 1, "mysql_char_length($1)"),
    ("position", 2, "mysql_locate($1, $2)"),
    ("md5", 1, "`md5`(mysql_bytes($1))"),
    ("sha", 1, "mysql_sha1($1)"),
    ("instr", 2, "mysql_locate($2, $1)"),
    // Times.
    ("now", 0, "mysql_now(`now`())"),
    ("localtime", 0, "mysql_now(`now`())"),
    ("localtimestamp", 0, "mysql_now(`now`())"),
    ("current_timestamp", 0, "mysql_now(`now`())"),
    ("sysdate", 0, "mysql_now(`now`())"),
    ("utc_timestamp", 0, "mysql_now(`now`())"),
    ("now", 1, "mysql_now(`now`(), $1)"),
    ("localtime", 1, "mysql_now(`now`(), $1)"),
    ("localtimestamp", 1, "mysql_now(`now`(), $1)"),
    ("current_timestamp", 1, "mysql_now(`now`(), $1)"),
    ("sysdate", 1, "mysql_now(`now`(), $1)"),
    ("utc_timestamp", 1, "mysql_now(`now`(), $1)"),
    ("curtime", 0, "mysql_time(mysql_now(`now`()))"),
    ("current_time", 0, "mysql_time(mysql_now(`now`()))"),
    ("utc_time", 0, "mysql_time(mysql_now(`now`()))"),
    ("curtime", 1, "mysql_time(mysql_now(`now`(), $1))"),
    ("current_time", 1, "mysql_time(mysql_now(`now`(), $1))"),
    ("utc_time", 1, "mysql_time(mysql_now(`now`(), $1))"),
    ("utc_date", 0, "mysql_date(mysql_now(`now`()))"),
    ("timestamp", 2, "mysql_timestamp_plus($1, $2)"),
    ("curdate", 0, "mysql_date(mysql_now(`now`()))"),
    ("current_date", 0, "mysql_date(mysql_now(`now`()))"),
    (
        "unix_timestamp",
        0,
        "mysql_unix_seconds(mysql_now(`now`()))",
    ),
    (
        "from_unixtime",
        2,
        "mysql_date_format(mysql_from_unixtime($1), $2)",
    ),
    ("dayofmonth", 1, "mysql_day($1)"),
    // Weeks of ISO 8601.
    ("weekofyear", 1, "mysql_week($1, 3)"),
    ("datediff", 2, "mysql_to_days($1) - mysql_to_days($2)"),
    ("adddate", 2, "date_add($1, $2)"),
    ("subdate", 2, "date_sub($1, $2)"),
    ("any_value", 1, "first_value($1)"),
    // Of no name that a statement can call: parts of others.
    ("$joined", 1, "group_concat($1 SEPARATOR ', ')"),
    (
        "$truth",
        1,
        "CASE WHEN $1 THEN 'true' WHEN NOT $1 THEN 'false' ELSE 'null' END",
    ),
];

/// Functions of MySQL's whose names mean something else in the engine, or nothing: those of `functions` are called
/// `mysql_` and their name.
const OWN: &[&str] = &[
    "sum",
    "avg",
    "round",
    "truncate",
    "sign",
    "conv",
    "bit_count",
    "crc32",
    "coalesce",
    "ceil",
    "ceiling",
    "floor",
    "abs",
    "cot",
    "concat",
    "concat_ws",
    "substr",
    "substring",
    "mid",
    "left",
    "right",
    "lpad",
    "rpad",
    "repeat",
    "reverse",
    "space",
    "locate",
    "replace",
    "hex",
    "unhex",
    "bin",
    "oct",
    "ascii",
    "ord",
    "char",
    "elt",
    "field",
    "find_in_set",
    "strcmp",
    "insert",
    "substring_index",
    "sha1",
    "sha2",
    "to_base64",
    "from_base64",
    "quote",
    "soundex",
    "make_set",
    "export_set",
    "inet_aton",
    "inet_ntoa",
    "trim",
    "ltrim",
    "rtrim",
    "format",
    "upper",
    "lower",
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "microsecond",
    "quarter",
    "week",
    "weekday",
    "dayofweek",
    "dayofyear",
    "yearweek",
    "to_days",
    "to_seconds",
    "period_add",
    "period_diff",
    "from_days",
    "last_day",
    "dayname",
    "monthname",
    "date",
    "timestamp",
    "date_format",
    "str_to_date",
    "convert_tz",
    "unix_timestamp",
    "from_unixtime",
    "time_to_sec",
    "time",
    "timediff",
    "addtime",
    "subtime",
    "sec_to_time",
    "maketime",
    "time_format",
    "makedate",
    "json_valid",
    "json_extract",
    "json_value",
    "json_unquote",
    "json_quote",
    "json_type",
    "json_length",
    "json_depth",
    "json_keys",
    "json_contains",
    "json_contains_path",
    "regexp_like",
    "regexp_replace",
    "regexp_substr",
    "regexp_instr",
    "sleep",
];

/// Functions of the engine's that take doubles, where MySQL's take whatever is one.
const OF_DOUBLES: &[&str] = &[
    "acos", "asin", "atan", "atan2", "cos", "degrees", "exp", "ln", "log", "log10", "log2", "pow",
    "power", "radians", "sin", "sqrt", "tan",
];

/// Aggregates of numbers, which are integers and decimals too.
const OF_NUMBERS: &[&str] = &[
    "avg",
    "std",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "sum",
    "var_pop",
    "var_samp",
    "variance",
];

/// What makes numbers of the arguments of a function of numbers; `None` for other functions.
pub(super) fn number_of_arguments(function: &str) -> Option<&'static str> {
    if OF_DOUBLES.contains(&function) {
        Some("mysql_double")
    } else if OF_NUMBERS.contains(&function) {
        Some("mysql_number")
    } else {
        None
    }
}

static PARSED: LazyLock<HashMap<(&str, usize), Expr>> = LazyLock::new(|| {
    let parsed = TEMPLATES.iter().filter_map(|(name, arguments, text)| {
        let mut parser = Parser::new(&MySqlGrammar).try_with_sql(text).ok()?;
        Some(((*name, *arguments), parser.parse_expr().ok()?))
    });
    parsed.collect()
});

/// The name under which the engine has MySQL's function of this name, where that is another.
pub(super) fn engine_name(function: &str) -> Option<String> {
    OWN.contains(&function).then(|| format!("mysql_{function}"))
}

/// What stands for a call of a function with these arguments, where it is not the call itself.
pub(super) fn expansion(function: &str, arguments: &[Expr]) -> Option<Expr> {
    let template = PARSED
        .iter()
        .find(|((name, count), _)| *name == function && *count == arguments.len());
    let mut expr = template.map(|(_, expr)| expr.clone())?;
    substitute(&mut expr, arguments);
    Some(expr)
}

/// Puts arguments in the places of `$1`, `$2` and so on.
pub(super) fn substitute(expr: &mut Expr, arguments: &[Expr]) {
    // It breaks off nowhere.
    let _ = visit_mut(expr, &mut Substitution(arguments));
}

struct Substitution<'a>(&'a [Expr]);

impl VisitorMut for Substitution<'_> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && let Some(number) = name.value.strip_prefix('$')
            && let Some(argument) = number.parse::<usize>().ok().and_then(|n| self.0.get(n - 1))
        {
            *expr = Expr::Nested(Box::new(argument.clone()));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_can_be_read() {
        assert_eq!(PARSED.len(), TEMPLATES.len());
    }

    #[test]
    fn what_is_called_by_another_name_is_there() {
        let scalar = crate::functions::mysql::all();
        let aggregates = crate::functions::all_aggregates();
        let names: Vec<&str> = scalar
            .iter()
            .map(|function| function.name())
            .chain(aggregates.iter().map(|function| function.name()))
            .collect();
        for function in OWN {
            let name = engine_name(function).unwrap();
            assert!(names.contains(&name.as_str()), "{name}");
        }
    }

    #[test]
    fn arguments_take_their_places() {
        let parse = |text| {
            Parser::new(&MySqlGrammar)
                .try_with_sql(text)
                .unwrap()
                .parse_expr()
                .unwrap()
        };
        let expanded = expansion("log", &[parse("a + 1"), parse("b")]).unwrap();
        assert_eq!(expanded.to_string(), "ln((b)) / ln((a + 1))");
        assert_eq!(expansion("log", &[]), None);
    }
}
