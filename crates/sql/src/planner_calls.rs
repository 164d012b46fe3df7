//! What the planner says of calls with arguments that a function does not take, in the words of SQL.

use crate::adql::typed_names;
use crate::engine_words::{in_sql_words, type_name, type_names};
use crate::functions::arguments::wrong_number;
use crate::statement_text::{find_word, typed};
use crate::{ErrorCode, SqlError};

/// With how many arguments a function was called, and how many it takes.
#[derive(Debug, PartialEq)]
struct Counts {
    taken: Vec<usize>,
    given: usize,
}

/// How messages tell both numbers: what is before, between and behind them. The first is what the function takes.
const COUNTS: [(&str, &str, &str); 7] = [
    (" expects ", " arguments but received ", ""),
    (" expected ", " arguments but received ", ""),
    (" expected ", " argument(s) but received ", ""),
    (" expected ", " argument but received ", ""),
    (" expects ", " arguments, but ", " were provided"),
    (" requires ", " arguments, got ", ""),
    (" requires ", " argument, got ", ""),
];

/// What is said of a message about a call; `None` if it is about something else.
pub(crate) fn told(sql: &str, engines: &str) -> Option<SqlError> {
    let call = called(engines);
    let function = match call {
        Some((function, _)) => function,
        None => function_of(engines)?,
    };
    let name = shown(sql, function);
    let given = call.map(|(_, types)| types).or_else(|| {
        let (_, rest) = engines.split_once("coercion from ")?;
        Some(rest.split_once(" to the signature ")?.0)
    });
    if let Some(counts) = counts(engines, given) {
        return Some(of_counts(sql, &name, &counts));
    }
    let sentence = of_types(&name, engines, given)?;
    let error = SqlError::about(sql, &name, sentence);
    Some(error.with_code(ErrorCode::WRONG_ARGUMENTS))
}

/// The function and the types of a message's `No function matches the given name and argument types 'abs(Utf8)'`.
fn called(engines: &str) -> Option<(&str, &str)> {
    let (_, rest) = engines.split_once("the given name and argument types '")?;
    // Types may have quotes.
    let (call, _) = rest.split_once(")'. ")?;
    call.split_once('(')
}

/// The function that a message is about.
fn function_of(engines: &str) -> Option<&str> {
    const BEGINS: [&str; 4] = ["unction '", "call to '", "The function ", ""];
    BEGINS.into_iter().find_map(|begin| {
        let rest = match begin {
            // `'lower' does not support zero arguments`
            "" if engines.contains("zero arguments") => engines.strip_prefix('\'')?,
            "" => return None,
            _ => engines.split_once(begin)?.1,
        };
        let name = &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_')?];
        let is_about_arguments = ["argument", "received", "coerc", "signature", "support"];
        let is_one = !name.is_empty() && is_about_arguments.iter().any(|it| rest.contains(it));
        is_one.then_some(name)
    })
}

/// The number of arguments that a function takes, and with how many it was called, if that is what is wrong.
fn counts(engines: &str, given: Option<&str>) -> Option<Counts> {
    if engines.contains("does not support zero arguments")
        || engines.contains("expected at least one argument but received 0")
        || engines.contains("expects at least one argument")
    {
        return Some(Counts {
            taken: vec![],
            given: 0,
        });
    }
    let (mut taken, received) = told_counts(engines);
    if let Some((_, signature)) = engines.split_once(" to the signature ") {
        taken.extend(counts_of(signature)?);
    }
    if engines.contains("' requires ")
        || engines.contains("Numeric but")
        || engines.contains("String but")
    {
        // One of its forms takes as many arguments.
        return None;
    }
    let given = received.or_else(|| given.map(|types| type_names(types).split(", ").count()))?;
    taken.sort_unstable();
    taken.dedup();
    (!taken.is_empty() && !taken.contains(&given)).then_some(Counts { taken, given })
}

/// The numbers of arguments of which a message says that a function takes them, and how many it got.
fn told_counts(engines: &str) -> (Vec<usize>, Option<usize>) {
    let mut taken = Vec::new();
    let mut received = None;
    for (before, between, behind) in COUNTS {
        let mut rest = engines;
        while let Some(at) = rest.find(between) {
            let number = rest[..at].rsplit_once(before).map(|(_, number)| number);
            let number = number.map(|number| match number {
                "zero" => Some(0),
                digits => digits.parse().ok(),
            });
            rest = &rest[at + between.len()..];
            let digits = rest.find(|c: char| !c.is_ascii_digit());
            let (digits, tail) = rest.split_at(digits.unwrap_or(rest.len()));
            if let (Some(Some(number)), Ok(count)) = (number, digits.parse())
                && tail.starts_with(behind)
            {
                taken.push(number);
                received = Some(count);
            }
        }
    }
    (taken, received)
}

/// How many arguments a function takes by its signature, in each of its forms; `None` if any number.
fn counts_of(signature: &str) -> Option<Vec<usize>> {
    let signature = signature.split(" failed").next().unwrap_or(signature);
    if ["Variadic", "UserDefined", "Array"]
        .iter()
        .any(|it| signature.contains(it))
    {
        return None;
    }
    let mut counts = Vec::new();
    for begin in ["Uniform(", "Any(", "Numeric(", "String(", "Comparable("] {
        for rest in signature.split(begin).skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            counts.push(rest[..end].parse().ok()?);
        }
    }
    for begin in ["Exact(", "Coercible("] {
        for rest in signature.split(begin).skip(1) {
            counts.push(listed(rest));
        }
    }
    if signature.contains("Nullary") {
        counts.push(0);
    }
    Some(counts)
}

/// How many types stand in a list before the parenthesis that closes it.
fn listed(text: &str) -> usize {
    let (mut depth, mut count) = (0_usize, 1);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return if at == 0 { 0 } else { count },
            ')' => depth -= 1,
            ',' if depth == 0 => count += 1,
            _ => {}
        }
    }
    count
}

fn of_counts(sql: &str, name: &str, counts: &Counts) -> SqlError {
    match (counts.taken.first(), counts.taken.last()) {
        (Some(least), Some(most)) => wrong_number(sql, name, (*least, *most), counts.given),
        _ => wrong_number(sql, name, (1, usize::MAX), counts.given),
    }
}

/// What is said of arguments of other types than a function takes.
fn of_types(name: &str, engines: &str, given: Option<&str>) -> Option<String> {
    let is_about_types = [
        "failed to match any signature",
        "user-defined coercion failed with",
        "Failed to coerce arguments",
        "but received",
        "could not coerce",
        "are not coercible",
        "is not comparable",
        "does not support type",
        "the given name and argument types",
    ];
    if !is_about_types.iter().any(|part| engines.contains(part)) {
        return None;
    }
    let received = given.map(type_names).or_else(|| {
        let (_, rest) = engines.split_once("but received ")?;
        let end = rest.find([',', '.']).unwrap_or(rest.len());
        Some(type_name(rest[..end].split(" (DataType").next()?))
    });
    let given = match received.as_deref() {
        None | Some("") => String::new(),
        Some(types) => format!(", and here gets {types}"),
    };
    Some(match wanted(engines) {
        Some(wanted) => format!("{name} takes {wanted}{given}"),
        None => format!("{name} takes arguments of other types{given}; docs/sql.md describes it"),
    })
}

/// What a message says that a function takes, in words.
fn wanted(engines: &str) -> Option<&'static str> {
    const NUMBER: &str = "a number";
    const KINDS: [(&str, &str); 11] = [
        ("String", "a text"),
        ("Numeric", NUMBER),
        ("Decimal", NUMBER),
        ("Float", NUMBER),
        ("Float64", NUMBER),
        ("Float32", NUMBER),
        ("Integer", "a whole number"),
        ("Int64", "a whole number"),
        ("UInt64", "a whole number"),
        ("Timestamp", "a time"),
        ("Interval", "an interval"),
    ];
    let mut found = Vec::new();
    for begin in ["' requires ", "' expects "] {
        for rest in engines.split(begin).skip(1) {
            let kind = &rest[..rest.find([',', ' '])?];
            // One of its forms takes another number of arguments.
            if kind.bytes().all(|it| it.is_ascii_digit()) {
                continue;
            }
            let kind = if kind == "Duration" { "Interval" } else { kind };
            let known = KINDS.iter().find(|(known, _)| *known == kind)?.1;
            if !found.contains(&known) {
                found.push(known);
            }
        }
    }
    // What takes numbers takes whole ones, and intervals are no words of these dialects.
    if found.contains(&NUMBER) {
        found.retain(|it| !matches!(*it, "a whole number" | "an interval"));
    }
    match found.as_slice() {
        [] => wanted_by_signature(engines),
        [only] => Some(only),
        _ => None,
    }
}

/// The same where a message shows a function's signature.
fn wanted_by_signature(engines: &str) -> Option<&'static str> {
    const NUMBERS: [&str; 6] = ["SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL"];
    let (_, signature) = engines.split_once(" to the signature ")?;
    let words = in_sql_words(signature.split(" failed").next().unwrap_or(signature));
    let words = words.split(|c: char| !c.is_ascii_alphabetic());
    let is_type = |word: &&str| word.len() > 3 && word.bytes().all(|it| it.is_ascii_uppercase());
    let types: Vec<&str> = words.filter(is_type).collect();
    let all_are = |known: &[&str]| !types.is_empty() && types.iter().all(|it| known.contains(it));
    if all_are(&NUMBERS) {
        Some("numbers")
    } else if all_are(&["VARCHAR"]) {
        Some("texts")
    } else {
        None
    }
}

/// The name under which a statement calls a function of the engine's.
pub(crate) fn shown(sql: &str, engines: &str) -> String {
    let plain = ["adql_", "mysql_", "scisql_"]
        .into_iter()
        .find_map(|family| engines.strip_prefix(family));
    let typed_as = typed_names(engines);
    let names = std::iter::once(engines).chain(plain).chain(typed_as);
    let found = names
        .into_iter()
        .find(|name| find_word(sql, name).is_some());
    match found.or(plain) {
        Some(name) => typed(sql, name),
        None => engines.to_owned(),
    }
}

/// What a function's own check of its arguments said (`user-defined coercion failed with: ...`), in words of SQL.
pub(crate) fn of_own_check(sql: &str, function: &str, said: &str) -> Option<String> {
    let name = shown(sql, function);
    let of_numbers = [" not supported for ", " does not support inputs of type "];
    if let Some((_, given)) = of_numbers.iter().find_map(|it| said.split_once(it)) {
        let given = in_sql_words(given.trim_end_matches('.'));
        return Some(format!("{name} takes numbers, and here gets {given}"));
    }
    let is_internal = crate::engine_words::has_internal_words(&in_sql_words(said));
    is_internal.then(|| format!("{name} takes arguments of other types; docs/sql.md describes it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine_words::has_internal_words;

    const CANDIDATES: &str =
        "You might need to add explicit type casts.\n\tCandidate functions:\n\tf(Any)";

    fn said(sql: &str, engines: &str) -> String {
        let told = told(sql, engines);
        told.map(|error| error.sentence().to_owned())
            .unwrap_or_default()
    }

    #[test]
    fn calls_are_told_by_the_names_that_were_typed() {
        let matches = |call: &str| {
            format!("No function matches the given name and argument types '{call}'. {CANDIDATES}")
        };
        for (sql, engines, wanted) in [
            (
                "SELECT Lower(5) FROM t",
                format!(
                    "Function 'lower' requires String, but received Int64 (DataType: Int64).. {}",
                    matches("lower(Int64)")
                ),
                "Lower takes a text, and here gets BIGINT",
            ),
            (
                "SELECT ABS('a')",
                format!(
                    "Internal error: Function 'abs' failed to match any signature, errors: Error during planning: Function 'abs' expects \
                     Numeric but received String. {}",
                    matches("abs(Utf8)")
                ),
                "ABS takes a number, and here gets VARCHAR",
            ),
            (
                "SELECT SUM(name) FROM t",
                format!(
                    "Internal error: Function 'sum' failed to match any signature, errors: Error during planning: Function 'sum' requires Decimal, \
                     but received String (DataType: Utf8View).,Error during planning: Function 'sum' requires UInt64, but received String \
                     (DataType: Utf8View).,Error during planning: Function 'sum' requires Duration, but received String (DataType: Utf8View).. {}",
                    matches("sum(Utf8View)")
                ),
                "SUM takes a number, and here gets VARCHAR",
            ),
            (
                "SELECT LOG(name) FROM t",
                format!(
                    "Function 'ln' requires Float64, but received String (DataType: Utf8View).. {}",
                    matches("ln(Utf8View)")
                ),
                "LOG takes a number, and here gets VARCHAR",
            ),
            (
                "SELECT SQRT(1, 2)",
                format!(
                    "Function 'sqrt' expects 1 arguments but received 2. {}",
                    matches("sqrt(Int64, Int64)")
                ),
                "SQRT takes 1 argument, and 2 are given",
            ),
            (
                "SELECT substr('a')",
                format!(
                    "Internal error: Function 'substr' failed to match any signature, errors: Error during planning: Function 'substr' \
                     expects 2 arguments but received 1,Error during planning: Function 'substr' expects 3 arguments but received 1. {}",
                    matches("substr(Utf8)")
                ),
                "substr takes 2 or 3 arguments, and 1 is given",
            ),
            (
                "SELECT DISTANCE(1, 2, 3, name, 5)",
                "Failed to coerce arguments to satisfy a call to 'scisql_angsep' function: coercion from Int64, Int64, Int64, Utf8View, Int64 to \
                 the signature Exact(Float64, Float64, Float64, Float64) failed"
                    .to_owned(),
                "DISTANCE takes 4 arguments, and 5 are given",
            ),
            (
                "SELECT DISTANCE(name, 2, 3, 4)",
                "Failed to coerce arguments to satisfy a call to 'scisql_angsep' function: coercion from Utf8View, Int64, Int64, Int64 to \
                 the signature Exact(Float64, Float64, Float64, Float64) failed"
                    .to_owned(),
                "DISTANCE takes numbers, and here gets VARCHAR, BIGINT, BIGINT, BIGINT",
            ),
            (
                "SELECT ROUND('a')",
                format!(
                    "Internal error: Function 'round' failed to match any signature, errors: Error during planning: Function 'round' expects 2 \
                     arguments but received 1,Error during planning: Function 'round' requires Float32, but received String (DataType: Utf8).. {}",
                    matches("round(Utf8)")
                ),
                "ROUND takes a number, and here gets VARCHAR",
            ),
            (
                "SELECT f(1, 2, 3)",
                "Failed to coerce arguments to satisfy a call to 'f' function: coercion from Int64, Int64, Int64 to the signature \
                 OneOf(Uniform(1, [Float64, Float32]), Exact(Utf8, Timestamp(µs))) failed"
                    .to_owned(),
                "f takes 1 or 2 arguments, and 3 are given",
            ),
            (
                "SELECT upper()",
                "'upper' does not support zero arguments".to_owned(),
                "upper takes 1 argument or more, and none is given",
            ),
            (
                "SELECT CONTAINS(a, b)",
                format!(
                    "Function 'adql_contains' could not coerce Utf8 and Int64 to a common string type. {}",
                    matches("adql_contains(Utf8, Int64)")
                ),
                "CONTAINS takes arguments of other types, and here gets VARCHAR, BIGINT; docs/sql.md describes it",
            ),
        ] {
            let said = said(sql, &engines);
            assert!(said.starts_with(wanted), "{engines}: {said}");
            assert!(!has_internal_words(&said), "{said}");
        }
        for other in [
            "the declination 120 is beyond a pole",
            "Cannot cast string 'x' to value of Int64 type",
            "the function is not known",
        ] {
            assert_eq!(said("SELECT 1", other), "", "{other}");
        }
    }

    #[test]
    fn checks_of_functions_are_told_without_words_of_the_code() {
        let said = |said: &str| of_own_check("SELECT SUM(name) FROM t", "sum", said);
        assert_eq!(
            said("Sum not supported for Utf8View").as_deref(),
            Some("SUM takes numbers, and here gets VARCHAR")
        );
        assert_eq!(
            said("Fail to find the coerced type, errors: []").as_deref(),
            Some("SUM takes arguments of other types; docs/sql.md describes it")
        );
        assert_eq!(
            said("CONTAINS takes two geometries; a number was given"),
            None
        );
    }
}
