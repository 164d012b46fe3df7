//! What the planner says of values whose types do not fit together, and of forms that it does not plan, in the words of SQL.
//!
//! Its messages name types and functions as its code does. Each is matched with a row of a table, of which it becomes the sentence: what
//! stands in the message's gaps is put into the sentence's, in SQL's words ([`engine_words`]). What is in no row is told by
//! [`other`], which never lets a word of the code through.

use crate::engine_words::{self, expression, has_internal_words, type_name, type_names};
use crate::statement_text::{find_in_code, find_text, find_word, find_word_behind, typed};
use crate::{ErrorCode, SqlError, planner_calls};

/// A message of the planner's, and what is said instead.
struct Message {
    /// Its text, with `{}` for what differs.
    text: &'static str,
    /// The word or the sign to point at; with `{0}` for what stands in a gap.
    at: &'static str,
    code: ErrorCode,
    /// With `{0}` for what stands in the first gap, and so on.
    sentence: &'static str,
}

const fn message(
    text: &'static str,
    at: &'static str,
    code: ErrorCode,
    sentence: &'static str,
) -> Message {
    Message {
        text,
        at,
        code,
        sentence,
    }
}

const MESSAGES: &[Message] = &[
    message(
        "join condition should not be empty",
        "",
        ErrorCode::SYNTAX,
        "a LEFT, RIGHT or FULL JOIN has a condition, and here one has none: write ON or USING behind its table",
    ),
    message(
        "Unary operator 'NOT' requires a boolean expression, got {}",
        "not",
        ErrorCode::OTHER,
        "NOT stands before a condition, and here before a value of type {0}: compare it, as in CONTAINS(a, b) = 0 for what is outside",
    ),
    message(
        "Unary operator '{}' only supports",
        "{0}",
        ErrorCode::OTHER,
        "{0} stands before a number, and here before a value of another type",
    ),
    message(
        "{} must be boolean type, but got {}",
        "on",
        ErrorCode::OTHER,
        "a value of type {1} stands where a condition is needed; compare it, as in a.id = b.id",
    ),
    message(
        "There isn't a common type to coerce {} and {} in {} expression",
        "{2}",
        ErrorCode::OTHER,
        "{2} compares a text with a pattern in quotes, as in name LIKE 'NGC%', and here {0} with {1}: CAST(x AS VARCHAR) makes a text of a number",
    ),
    message(
        "Failed to coerce types {} and {} in BETWEEN expression",
        "between",
        ErrorCode::OTHER,
        "BETWEEN compares values of one type, and here {0} with {1}: CAST one of them",
    ),
    message(
        "Can not find compatible types to compare {} with [{}]",
        "in",
        ErrorCode::OTHER,
        "IN compares values of one type, and here {0} with {1}: CAST one of them",
    ),
    message(
        "expr type {} can't cast to {} in InSubquery",
        "in",
        ErrorCode::OTHER,
        "IN compares values of one type, and here {0} with the {1} of the subquery: CAST one of them",
    ),
    message(
        "expr type {} can't cast to {} in SetComparison",
        "select",
        ErrorCode::OTHER,
        "values of one type are compared, and here {0} with the {1} of the subquery: CAST one of them",
    ),
    message(
        "Failed to coerce case ({}) and when ({}) to common types",
        "case",
        ErrorCode::OTHER,
        "CASE compares values of one type, and here {0} with {1}: CAST one of them",
    ),
    message(
        "Failed to coerce then ({}) and else ({}) to common types",
        "case",
        ErrorCode::OTHER,
        "the results of a CASE are of one type, and here of several ({0}; ELSE: {1}): CAST them to one",
    ),
    message(
        "Incompatible inputs for Union: Previous inputs were of type {}, but got incompatible type {} on column '{}'",
        "union",
        ErrorCode::OTHER,
        "the column {2} is {0} on one side of a set operation and {1} on the other: CAST one of them",
    ),
    message(
        "UNION field {} have different type in inputs: left has {} whereas right has {}",
        "union",
        ErrorCode::OTHER,
        "a column is {1} on one side of a set operation and {2} on the other: CAST one of them",
    ),
    message(
        "{} queries have different number of columns",
        "{0}",
        ErrorCode::UNEQUAL_WIDTHS,
        "the two sides of {0} have different numbers of columns: select as many on each side",
    ),
    message(
        "INTERSECT/EXCEPT query must have the same number of columns. Left is {} and right is {}.",
        "",
        ErrorCode::UNEQUAL_WIDTHS,
        "one side of the INTERSECT or EXCEPT has {0} columns and the other {1}: select as many on each side",
    ),
    message(
        "Order by index starts at 1",
        "order",
        ErrorCode::NO_COLUMN,
        "ORDER BY 0 is for no column: those of the SELECT's list are counted from 1",
    ),
    message(
        "invalid digit found in string",
        "order",
        ErrorCode::SYNTAX,
        "ORDER BY takes columns, expressions, or the places of columns in the SELECT's list, which are whole numbers",
    ),
    message(
        "Expected OFFSET to be an integer",
        "offset",
        ErrorCode::SYNTAX,
        "OFFSET takes a whole number of rows, as in OFFSET 10",
    ),
    message(
        "Unsupported SQL type {}",
        "{0}",
        ErrorCode::NOT_SUPPORTED,
        "there is no type {0}: ADQL has SMALLINT, INTEGER, BIGINT, REAL, DOUBLE PRECISION, CHAR(n), VARCHAR(n) and TIMESTAMP; docs/sql.md lists those of MySQL's dialect",
    ),
    message(
        "Cannot automatically convert {} to {}",
        "",
        ErrorCode::OTHER,
        "a value is {0} where {1} is needed, and cannot be made one",
    ),
    message(
        "Casting from {} to {} not supported",
        "cast",
        ErrorCode::OTHER,
        "a value is {0} where {1} is needed, and cannot be made one",
    ),
    message(
        "Unsupported CAST from {} to {}",
        "cast",
        ErrorCode::OTHER,
        "a {0} cannot be cast to {1}",
    ),
    message(
        "Can't cast value {} to type {}",
        "{0}",
        ErrorCode::OUT_OF_RANGE,
        "the number {0} is beyond the range of {1}",
    ),
    message(
        "Cannot cast to {}. Overflowing on {}",
        "{1}",
        ErrorCode::OUT_OF_RANGE,
        "the number {1} is beyond the range of {0}",
    ),
    message(
        "overflow on abs({})",
        "abs",
        ErrorCode::OUT_OF_RANGE,
        "the absolute value of {0} is beyond the range of its type",
    ),
    message(
        "Overflow while rounding {}",
        "round",
        ErrorCode::OUT_OF_RANGE,
        "a rounded value is beyond the range of {0}",
    ),
    message(
        "Cannot cast value '{}' to value of Boolean type",
        "'{0}'",
        ErrorCode::WRONG_VALUE,
        "'{0}' is neither TRUE nor FALSE, which is needed here",
    ),
    message(
        "Overflow converting {} to Nanosecond",
        "",
        ErrorCode::OUT_OF_RANGE,
        "the time {0} is out of range here, which is that of the years 1678 to 2261: CAST(... AS TIMESTAMP) makes a time of any year",
    ),
    message(
        "Error parsing timestamp from '{}'",
        "'{0}'",
        ErrorCode::WRONG_VALUE,
        "'{0}' is no time, which is needed here: write one as '2015-06-01 12:30:00'",
    ),
    message(
        "ubquery should only return one column",
        "select",
        ErrorCode::ONE_COLUMN,
        "a subquery has several columns where one is expected: select one",
    ),
    message(
        "subquery must return exactly one column",
        "select",
        ErrorCode::ONE_COLUMN,
        "a subquery has several columns where one is expected: select one",
    ),
    message(
        "Correlated scalar subquery must be aggregated to return at most one row",
        "select",
        ErrorCode::ONE_ROW,
        "a subquery that stands for a value could give several rows for a row outside: aggregate it, as in (SELECT MAX(x) FROM ...)",
    ),
    message(
        "subquery can only be used in",
        "select",
        ErrorCode::NOT_SUPPORTED,
        "a subquery stands where none is supported: put it into WHERE or FROM",
    ),
    message(
        "Accessing outer reference columns is not allowed",
        "select",
        ErrorCode::NOT_SUPPORTED,
        "a subquery names a column of the query around it from where that cannot be reached: join the tables instead",
    ),
    message(
        "require unique expression names but the expression \"{}\" at position",
        "select",
        ErrorCode::COLUMN_TWICE,
        "two columns of a subquery have the name {0}: give one of them another name with AS",
    ),
    message(
        "duplicate unqualified field name {}",
        "{0}",
        ErrorCode::COLUMN_TWICE,
        "two columns have the name {0}: give one of them another name with AS",
    ),
    message(
        "HAVING clause references: {} must appear in the GROUP BY clause",
        "having",
        ErrorCode::UNGROUPED_IN_HAVING,
        "HAVING is for conditions on groups, as in HAVING COUNT(*) > 1, and there are none: put {0} into WHERE",
    ),
    message(
        "does not support logical expression WindowFunction",
        "over",
        ErrorCode::NOT_SUPPORTED,
        "a window function stands in a SELECT's list or in its ORDER BY: give it a name in a subquery of the FROM, and use that",
    ),
    message(
        "does not support logical expression AggregateFunction",
        "",
        ErrorCode::MISPLACED_AGGREGATE,
        "an aggregate stands where single rows are looked at: compute it in a subquery of the FROM",
    ),
    message(
        "Scalar subquery returned more than one row",
        "",
        ErrorCode::ONE_ROW,
        "a subquery has more than one row where a value is needed",
    ),
    message(
        "WITH query name \"{}\" specified more than once",
        "{0}",
        ErrorCode::TABLE_TWICE,
        "two tables of the WITH are called {0}: give one of them another name",
    ),
    message(
        "compound identifier",
        "",
        ErrorCode::NO_COLUMN,
        "a column is named by itself, as table.column or as database.table.column",
    ),
    message(
        "Cannot access field at argument",
        "",
        ErrorCode::NO_COLUMN,
        "what stands before the point is no table of the FROM, but a column, which has no parts",
    ),
    message(
        "Aggregate function calls cannot be nested",
        "",
        ErrorCode::MISPLACED_AGGREGATE,
        "there are no aggregates within aggregates, as sum(count(*)): compute the inner one in a subquery of the FROM",
    ),
    message(
        "Aggregate function calls cannot contain window function calls",
        "over",
        ErrorCode::MISPLACED_AGGREGATE,
        "there are no window functions within aggregates: compute the inner one in a subquery of the FROM",
    ),
    message(
        "Window function calls cannot be nested",
        "over",
        ErrorCode::MISPLACED_AGGREGATE,
        "there are no window functions within window functions: compute the inner one in a subquery of the FROM",
    ),
    message(
        "Cannot run range queries on datatype: {}",
        "range",
        ErrorCode::NOT_SUPPORTED,
        "RANGE counts from a number or a time, and the window is ordered by {0}: write ROWS",
    ),
    message(
        "ORDER BY column cannot be empty",
        "range",
        ErrorCode::SYNTAX,
        "a window with RANGE has an ORDER BY, from whose value it counts",
    ),
];

/// What is said of a message of the planner's; `None` if it is in no row.
pub(crate) fn told(sql: &str, engines: &str) -> Option<SqlError> {
    if let Some(error) = of_operator(sql, engines).or_else(|| planner_calls::told(sql, engines)) {
        return Some(error);
    }
    let (row, gaps) = MESSAGES
        .iter()
        .find_map(|row| Some((row, gaps(row.text, engines)?)))?;
    let words: Vec<String> = gaps.iter().map(|gap| in_gap(sql, gap)).collect();
    let error = SqlError::new(filled(row.sentence, &words)).with_code(row.code);
    Some(pointing(error, sql, &filled(row.at, &words)))
}

/// What stands in the gaps of a text that a message has somewhere, if it does. The last one ends with its line.
fn gaps<'m>(text: &str, engines: &'m str) -> Option<Vec<&'m str>> {
    let mut parts = text.split("{}");
    let first = parts.next().unwrap_or_default();
    let mut rest = match first {
        // What is before the first gap is the beginning.
        "" => plain_beginning(engines),
        _ => &engines[engines.find(first)? + first.len()..],
    };
    let mut gaps = Vec::new();
    for part in parts {
        let line = rest.find('\n').unwrap_or(rest.len());
        let end = match part {
            "" => line,
            _ => rest.find(part)?,
        };
        gaps.push(&rest[..end]);
        rest = &rest[end + part.len()..];
    }
    Some(gaps)
}

/// A message without what the engine's kinds of errors begin with.
fn plain_beginning(engines: &str) -> &str {
    let behind = |begin: &str| engines.strip_prefix(begin);
    [
        "Error during planning: ",
        "Internal error: ",
        "Execution error: ",
    ]
    .into_iter()
    .find_map(behind)
    .unwrap_or(engines)
}

/// What stands in a gap, in SQL's words: a type, several, or part of an expression, as it was typed.
fn in_gap(sql: &str, gap: &str) -> String {
    let types = type_names(gap);
    let are_types = |names: &str| !names.contains(['"', '\'', '+', '=', '<', '>']);
    match types != gap && are_types(&types) && !types.chars().any(char::is_lowercase) {
        true => types,
        false => typed(sql, expression(gap).trim_end_matches('.')),
    }
}

fn filled(text: &str, words: &[String]) -> String {
    let mut filled = text.to_owned();
    for (at, word) in words.iter().enumerate() {
        filled = filled.replace(&format!("{{{at}}}"), word);
    }
    filled
}

/// The error with the place of a word, of a text in quotes, or of an operator's sign.
fn pointing(error: SqlError, sql: &str, at: &str) -> SqlError {
    let is_word = at.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    let place = match at {
        "" => None,
        // A subquery is not the first SELECT of its statement.
        "select" => find_word_behind(sql, "(", at),
        _ if at.starts_with('\'') => find_text(sql, at),
        _ if is_word => find_word(sql, at),
        _ => find_in_code(sql, at),
    };
    error.pointing_at(sql, place, at.chars().count())
}

/// Operators whose two sides have types that do not go together, as `Cannot coerce arithmetic expression Float64 + Utf8 to valid types`.
fn of_operator(sql: &str, engines: &str) -> Option<SqlError> {
    const OPERATIONS: [(&str, &str); 9] = [
        ("Cannot coerce arithmetic expression ", " to valid types"),
        ("Cannot get result type for arithmetic operation ", ": "),
        ("Cannot get result type for temporal operation ", ": "),
        ("Cannot get result type for decimal operation ", ": "),
        (
            "Cannot infer common argument type for comparison operation ",
            "",
        ),
        ("Cannot infer common argument type for regex operation ", ""),
        ("Cannot infer common type for bitwise operation ", ""),
        (
            "Cannot infer common string type for string concat operation ",
            "",
        ),
        ("Cannot infer common argument type for operation ", ""),
    ];
    let (begin, end, rest) = OPERATIONS.iter().find_map(|(begin, end)| {
        let (_, rest) = engines.split_once(begin)?;
        Some((*begin, *end, rest))
    })?;
    let rest = rest.lines().next().unwrap_or(rest);
    let operation = match end {
        "" => rest,
        _ => rest
            .split_once(end)
            .map_or(rest, |(operation, _)| operation),
    };
    let (left, sign, right) = operands(operation)?;
    // MOD becomes this sign.
    let is_mod = sign == "%" && find_in_code(sql, "%").is_none();
    let sign = if is_mod { "MOD".to_owned() } else { sign };
    let sentence = if begin.contains("arithmetic") || begin.contains("decimal") {
        let advice = match left == "VARCHAR" || right == "VARCHAR" {
            true => ": CAST(x AS DOUBLE PRECISION) makes a number of a text of digits",
            false => "",
        };
        format!("{sign} computes with numbers, and here with {left} and {right}{advice}")
    } else if sign.contains("DISTINCT") && right == "BOOLEAN" {
        format!(
            "IS TRUE and its like are for conditions, and here for a value of type {left}: compare it"
        )
    } else if begin.contains("comparison") {
        format!(
            "{left} and {right} cannot be compared with {sign}{}",
            advice(&left, &right)
        )
    } else {
        format!("{sign} does not take {left} and {right}")
    };
    let error = SqlError::new(sentence).with_code(ErrorCode::OTHER);
    Some(pointing(error, sql, &sign.to_lowercase()))
}

/// The types of both sides of an operator, in SQL's words, and the operator between them.
fn operands(operation: &str) -> Option<(String, String, String)> {
    let words = engine_words::in_sql_words(operation);
    let mut words = words.split(' ');
    let (left, right) = (words.next()?, words.next_back()?);
    let sign = words.collect::<Vec<_>>().join(" ");
    if sign.is_empty() {
        return None;
    }
    Some((type_name(left), sign, type_name(right)))
}

/// What to do about two types that cannot be compared.
fn advice(left: &str, right: &str) -> &'static str {
    const SHAPES: [&str; 4] = ["POINT", "CIRCLE", "POLYGON", "MOC"];
    const NUMBERS: [&str; 6] = ["SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL"];
    let any = |names: &[&str]| names.contains(&left) || names.contains(&right);
    if any(&SHAPES) {
        "; geometry is compared by CONTAINS, INTERSECTS and DISTANCE, as in 1 = CONTAINS(a, b)"
    } else if any(&["BOOLEAN"]) {
        ": a condition is compared with TRUE and FALSE, or 1 and 0"
    } else if any(&["VARCHAR"]) && any(&NUMBERS) {
        ": write the number in quotes, as in name = '3', or make a number of the text by CAST(name AS BIGINT)"
    } else if any(&["DATE", "TIMESTAMP"]) && any(&NUMBERS) {
        ": write the time as a text, as in t > '2015-06-01', or compare ivo_to_mjd(t), which is a number"
    } else {
        ": CAST one of them to the type of the other"
    }
}

/// What is said of any other message: its own words, where they are those of SQL.
pub(crate) fn other(sentence: &str) -> String {
    let told = engine_words::in_sql_words(sentence);
    if !has_internal_words(&told) {
        return told;
    }
    let about = match ErrorCode::of_message(sentence) {
        ErrorCode::WRONG_ARGUMENTS => {
            "a function or an operator gets values that it does not take; docs/sql.md describes them"
        }
        ErrorCode::NOT_SUPPORTED => {
            "it has a form that is not supported: write it in another way, with a subquery or without one"
        }
        _ => {
            "its values have types that do not fit together, or it has a form that is not supported; docs/sql.md describes what there is"
        }
    };
    format!("the statement cannot be executed as it is written: {about}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(sql: &str, engines: &str) -> String {
        told(sql, engines)
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn operators_are_told_with_the_types_of_their_sides() {
        let sql = "SELECT ra + name FROM t -- a + b\nWHERE name = ra";
        assert_eq!(
            said(
                sql,
                "Cannot coerce arithmetic expression Float64 + Utf8View to valid types"
            ),
            "+ computes with numbers, and here with DOUBLE and VARCHAR: CAST(x AS DOUBLE PRECISION) makes a number of a text of digits \
             (line 1, column 11)\n  SELECT ra + name FROM t -- a + b\n            ^"
        );
        let comparison = "Cannot infer common argument type for comparison operation \
                          FixedSizeList(2 x Float64, field: 'degrees') = Boolean";
        let compared = said(sql, comparison);
        assert!(
            compared.starts_with(
                "POINT and BOOLEAN cannot be compared with =; geometry is compared by CONTAINS"
            ),
            "{compared}"
        );
        let distinct = "Cannot infer common argument type for comparison operation Int64 IS DISTINCT FROM Boolean";
        let compared = said(sql, distinct);
        assert!(
            compared.starts_with(
                "IS TRUE and its like are for conditions, and here for a value of type BIGINT"
            ),
            "{compared}"
        );
    }

    #[test]
    fn types_that_do_not_fit_are_told_in_words_of_sql() {
        for (engines, wanted) in [
            (
                "Unary operator 'NOT' requires a boolean expression, got Int32",
                "NOT stands before a condition, and here before a value of type INTEGER: compare it, as in CONTAINS(a, b) = 0",
            ),
            (
                "There isn't a common type to coerce Utf8View and Int64 in LIKE expression",
                "LIKE compares a text with a pattern in quotes, as in name LIKE 'NGC%', and here VARCHAR with BIGINT",
            ),
            (
                "Can not find compatible types to compare Boolean with [Utf8, Timestamp(µs, \"UTC\")]",
                "IN compares values of one type, and here BOOLEAN with VARCHAR, TIMESTAMP",
            ),
            (
                "Failed to coerce then (Int64, Boolean) and else (FixedSizeList(2 x Float64, field: 'degrees')) to common types in CASE WHEN expression",
                "the results of a CASE are of one type, and here of several (BIGINT, BOOLEAN; ELSE: POINT)",
            ),
            (
                "Error during planning: EXCEPT queries have different number of columns",
                "the two sides of EXCEPT have different numbers of columns",
            ),
            (
                "Unsupported SQL type foo",
                "there is no type foo: ADQL has SMALLINT",
            ),
            (
                "Can't cast value 70000 to type Int16",
                "the number 70000 is beyond the range of SMALLINT",
            ),
            (
                "Arrow error: Compute error: Int64Array overflow on abs(-9223372036854775808)",
                "the absolute value of -9223372036854775808 is beyond the range of its type",
            ),
            (
                "Arrow error: Compute error: Overflow while rounding Int64",
                "a rounded value is beyond the range of BIGINT",
            ),
            (
                "Error parsing timestamp from 'soon': error parsing date",
                "'soon' is no time, which is needed here",
            ),
            (
                "Projections require unique expression names but the expression \"t.a + Int64(1)\" at position 0 and \"t.a + Int64(1)\" at position 1 have the same name",
                "two columns of a subquery have the name a + 1",
            ),
            (
                "HAVING clause references: t.ra > Int64(1) must appear in the GROUP BY clause or be used in an aggregate function",
                "HAVING is for conditions on groups, as in HAVING COUNT(*) > 1, and there are none: put ra > 1 into WHERE",
            ),
        ] {
            let said = said("SELECT 1", engines);
            assert!(said.starts_with(wanted), "{engines}: {said}");
            assert!(!has_internal_words(&said), "{said}");
        }
        assert_eq!(said("SELECT 1", "the declination 120 is beyond a pole"), "");
    }

    #[test]
    fn no_word_of_the_code_is_let_through() {
        assert_eq!(other("a Int64 is no geometry"), "a BIGINT is no geometry");
        for engines in [
            "Unsupported ast node in sqltorel: RLike { negated: false }",
            "Expected a pair of ScalarValue",
            "Failed to coerce x, y, z",
        ] {
            let told = other(engines);
            assert!(
                told.starts_with("the statement cannot be executed as it is written: "),
                "{told}"
            );
        }
    }
}
