//! Typical mistakes: what the parser and the engine say of them, and what is said instead: what is wrong, where, and what to do.

use crate::engine_words::{expression, type_name};
use crate::error::{SqlError, find_word_behind, suggestion, typed};
use crate::statement_text::find_text;
use crate::{ErrorCode, mysql, planner_mistakes};

/// A message of the engine's, and what is said instead.
struct Rewording {
    /// How the message begins.
    message: &'static str,
    /// The word to point at.
    at: &'static str,
    code: ErrorCode,
    sentence: &'static str,
}

const REWORDINGS: [Rewording; 13] = [
    Rewording {
        message: "This feature is not implemented: TOP",
        at: "top",
        code: ErrorCode::NOT_SUPPORTED,
        sentence: "TOP is ADQL's: write LIMIT n at the end of the statement, or give it to `meridian sql --dialect adql`",
    },
    Rewording {
        message: "This feature is not implemented: FETCH",
        at: "fetch",
        code: ErrorCode::NOT_SUPPORTED,
        sentence: "FETCH FIRST is not known here: write LIMIT n at the end of the statement",
    },
    Rewording {
        message: "Expected LIMIT to be an integer",
        at: "limit",
        code: ErrorCode::SYNTAX,
        sentence: "LIMIT takes a number of rows without quotes, as in LIMIT 10",
    },
    Rewording {
        message: "LIMIT must be >=",
        at: "limit",
        code: ErrorCode::SYNTAX,
        sentence: "LIMIT takes a number of rows that is not negative, as in LIMIT 10; without it there are all rows",
    },
    Rewording {
        message: "OFFSET must be >=",
        at: "offset",
        code: ErrorCode::SYNTAX,
        sentence: "OFFSET takes a number of rows that is not negative, as in OFFSET 10",
    },
    Rewording {
        message: "Aggregate functions are not allowed in the WHERE clause",
        at: "where",
        code: ErrorCode::MISPLACED_AGGREGATE,
        sentence: "an aggregate cannot stand in WHERE, which decides row by row: put the condition on it into HAVING, behind GROUP BY",
    },
    Rewording {
        message: "UNION queries have different number of columns",
        at: "union",
        code: ErrorCode::UNEQUAL_WIDTHS,
        sentence: "the two sides of a UNION have different numbers of columns: select as many on each side",
    },
    Rewording {
        message: "names given as column alias",
        at: "select",
        code: ErrorCode::ONE_COLUMN,
        sentence: "a subquery has another number of columns than there are names or values beside it: select as many",
    },
    Rewording {
        message: "does not support logical expression OuterReferenceColumn",
        at: "select",
        code: ErrorCode::NOT_SUPPORTED,
        sentence: "a subquery names a column of the query around it from where that cannot be reached: of one in ORDER BY select that column, too; elsewhere join the tables instead",
    },
    Rewording {
        message: "For SELECT DISTINCT, ORDER BY expressions",
        at: "order",
        code: ErrorCode::ORDER_NOT_SELECTED,
        sentence: "the rows of a SELECT DISTINCT are ordered by what is not in its list, so that a row would have several places: select that, too, or leave DISTINCT out and GROUP BY",
    },
    Rewording {
        message: "Correlated scalar subquery can only be used in",
        at: "select",
        code: ErrorCode::NOT_SUPPORTED,
        sentence: "the value of a subquery that depends on the row outside is not supported in the ON of an outer join: join the subquery, grouped, as a table",
    },
    Rewording {
        message: "Invalid explain format",
        at: "format",
        code: ErrorCode::UNKNOWN_EXPLAIN_FORMAT,
        sentence: "EXPLAIN has the formats TRADITIONAL, TREE and JSON",
    },
    Rewording {
        message: "Too many columns! The subquery should only return one column",
        at: "select",
        code: ErrorCode::ONE_COLUMN,
        sentence: "a subquery has several columns where one is expected: select one, or compare a row of as many values, as in (a, b) IN (SELECT x, y ...)",
    },
];

/// What is said of a message of the engine's about a statement; `None` where it is none of the typical mistakes.
pub(crate) fn reworded(sql: &str, message: &str) -> Option<SqlError> {
    let known = REWORDINGS
        .iter()
        .find(|known| message.contains(known.message));
    if let Some(known) = known {
        // A subquery is not the first SELECT of its statement.
        let place = match known.at {
            "select" => find_word_behind(sql, "(", "select"),
            at => find_word_behind(sql, "", at),
        };
        let error = SqlError::new(known.sentence).with_code(known.code);
        return Some(error.pointing_at(sql, place, known.at.len()));
    }
    ungrouped(sql, message)
        .or_else(|| no_such_place(sql, message))
        .or_else(|| no_table_of_all(sql, message))
        .or_else(|| angle_in_text(sql, message))
        .or_else(|| no_number(sql, message))
        .or_else(|| planner_mistakes::told(sql, message))
        .or_else(|| bad_argument(sql, message))
}

/// A column beside aggregates that is not grouped by.
fn ungrouped(sql: &str, message: &str) -> Option<SqlError> {
    let (before, _) = message.split_once("\" must appear in the GROUP BY clause")?;
    let (_, engines) = before.split_once("column \"")?;
    let column = &*expression(engines);
    let name = typed(sql, column);
    let is_column = { column.chars() }.all(|it| it.is_alphanumeric() || it == '_');
    let subject = if is_column { "the column " } else { "" };
    let of_having = message.contains("Column in HAVING");
    let (clause, code) = match of_having {
        true => ("having", ErrorCode::UNGROUPED_IN_HAVING),
        false => ("select", ErrorCode::MISSING_GROUP_BY),
    };
    let sentence = format!(
        "{subject}{name} stands beside an aggregate and is not grouped by: add GROUP BY {name}, or aggregate it, as in min({name})"
    );
    let place = find_word_behind(sql, clause, column);
    let error = SqlError::new(sentence).with_code(code);
    Some(error.pointing_at(sql, place, column.chars().count()))
}

/// A number in ORDER BY or GROUP BY that is the place of no column of the SELECT's list.
fn no_such_place(sql: &str, message: &str) -> Option<SqlError> {
    let number_behind = |words: &str| {
        let (_, rest) = message.split_once(words)?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        Some(&rest[..end.unwrap_or(rest.len())])
    };
    let (clause, place, columns) = match number_behind("Order by column out of bounds, specified: ")
    {
        Some(place) => ("order", place, number_behind(", max: ")?),
        None => {
            let place = number_behind("Cannot find column with position ")?;
            ("group", place, number_behind("Valid columns: 1 to ")?)
        }
    };
    let plural = if columns == "1" { "" } else { "s" };
    let sentence = format!(
        "{} BY {place} is for the column at that place of the SELECT's list, which has {columns} column{plural}",
        clause.to_uppercase()
    );
    let at = find_word_behind(sql, clause, place);
    let error = SqlError::new(sentence).with_code(ErrorCode::NO_COLUMN);
    Some(error.pointing_at(sql, at, place.len()))
}

/// All columns of a table, as `o.*`, that the FROM does not have.
fn no_table_of_all(sql: &str, message: &str) -> Option<SqlError> {
    let (_, table) = message.split_once("Invalid qualifier ")?;
    let table = table.rsplit('.').next()?.trim();
    let name = typed(sql, table);
    let sentence = format!(
        "there is no table {name} in the FROM; one with another name there, as in Object AS o, has that name alone"
    );
    Some(SqlError::about(sql, table, sentence).with_code(ErrorCode::UNKNOWN_TABLE))
}

/// A call with an angle in a text, which has other arguments than the function takes.
fn angle_in_text(sql: &str, message: &str) -> Option<SqlError> {
    let is_of_call = message.contains("Failed to coerce arguments to satisfy a call");
    is_of_call.then(|| sexagesimal_argument(sql)).flatten()
}

/// An angle in a text, as functions of the sky do not take.
fn sexagesimal_argument(sql: &str) -> Option<SqlError> {
    let mut texts = sql.split('\'').skip(1).step_by(2);
    texts.find_map(|text| told_of_text(sql, text, &sexagesimal_hint(text)?))
}

fn told_of_text(sql: &str, text: &str, hint: &str) -> Option<SqlError> {
    let place = find_text(sql, &format!("'{text}'"))?;
    let error = SqlError::new(format!("'{text}' is no number: {hint}"));
    let width = text.chars().count() + 2;
    Some(
        error
            .with_code(ErrorCode::WRONG_VALUE)
            .pointing_at(sql, Some(place), width),
    )
}

/// A text in the place of a number.
fn no_number(sql: &str, message: &str) -> Option<SqlError> {
    let (_, rest) = message.split_once("Cannot cast string '")?;
    let (text, rest) = rest.split_once('\'')?;
    const NUMBERS: [&str; 6] = ["SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE", "DECIMAL"];
    let (_, rest) = rest.split_once(" to value of ")?;
    let (engines, _) = rest.split_once(" type")?;
    let wanted = type_name(engines);
    if !NUMBERS.contains(&&*wanted) {
        let sentence = format!("'{text}' is no value of the type {wanted}, which is needed here");
        return Some(about_text(sql, text, sentence));
    }
    let sentence = match sexagesimal_hint(text) {
        Some(hint) => format!("'{text}' is no number: {hint}"),
        None => format!("'{text}' is no number, which is needed here"),
    };
    Some(about_text(sql, text, sentence))
}

/// A mistake about a text that may be one of the statement's.
fn about_text(sql: &str, text: &str, sentence: String) -> SqlError {
    let place =
        find_text(sql, &format!("'{text}'")).or_else(|| find_text(sql, &format!("\"{text}\"")));
    let width = text.chars().count() + 2;
    let error = SqlError::new(sentence).with_code(ErrorCode::WRONG_VALUE);
    error.pointing_at(sql, place, width)
}

/// What a function says of its arguments: `scisql_s2ptincircle: the declination 120 is ...`.
fn bad_argument(sql: &str, message: &str) -> Option<SqlError> {
    let message = message.trim_start_matches("Error during planning: ");
    let message = message.trim_start_matches("Execution error: ");
    let (function, said) = message.split_once(": ")?;
    let is_name = function.chars().all(|c| c.is_alphanumeric() || c == '_');
    let place = find_word_behind(sql, "", function).filter(|_| is_name)?;
    let name = &sql[place..place + function.len()];
    let error = SqlError::new(format!("{name}: {said}")).with_code(ErrorCode::of_message(said));
    Some(error.pointing_at(sql, Some(place), function.len()))
}

/// What to write instead of an angle in hours or degrees, minutes and seconds.
pub(crate) fn sexagesimal_hint(text: &str) -> Option<String> {
    let separators = |c: char| {
        matches!(
            c,
            ':' | 'h' | 'd' | 'm' | 's' | '°' | '\'' | '"' | '′' | '″'
        ) || c.is_whitespace()
    };
    let text = text.trim();
    let is_negative = text.starts_with('-');
    let parts = text.trim_start_matches(['-', '+']).split(separators);
    let parts: Vec<f64> = parts
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().ok())
        .collect::<Option<_>>()?;
    let is_angle =
        matches!(parts.len(), 2 | 3) && parts[1..].iter().all(|part| (0.0..60.0).contains(part));
    if !is_angle || !text.contains(separators) {
        return None;
    }
    let seconds = parts.get(2).copied().unwrap_or(0.0);
    let sign = if is_negative { -1.0 } else { 1.0 };
    let value = sign * (parts[0] + parts[1] / 60.0 + seconds / 3600.0);
    let degrees = format!("{value:.6} if it is in degrees");
    Some(
        match is_negative || parts[0] >= 24.0 || text.contains(['d', '°']) {
            true => format!("angles are decimal degrees: write {value:.6}"),
            false => format!(
                "angles are decimal degrees: write {:.6} if it is in hours (of right ascension), {degrees}",
                value * 15.0
            ),
        },
    )
}

/// What is said of a text of which the words cannot be told apart.
pub(crate) fn unclosed(message: &str) -> String {
    if message.starts_with("Unterminated string literal") {
        "the text that begins here has no closing quote: a quote within a text is written twice"
            .to_owned()
    } else if message.starts_with("Unexpected EOF while in a multi-line comment") {
        "a comment that begins with /* has no */ at its end".to_owned()
    } else if message.starts_with("Expected close delimiter") {
        "the name in quotes that begins here has no closing quote".to_owned()
    } else {
        message.to_owned()
    }
}

/// The place of the word that the parser's message about a byte names: the message may be about the place behind it.
pub(crate) fn place_of_found(sql: &str, message: &str, at: usize) -> usize {
    let found = message.rsplit("found: ").next().unwrap_or_default().trim();
    let stands_at = |at: usize| {
        let there = sql.get(at..at + found.len());
        there.is_some_and(|there| there.eq_ignore_ascii_case(found))
    };
    let before = sql[..at].trim_end().len().checked_sub(found.len());
    match before {
        Some(before) if !stands_at(at) && stands_at(before) => before,
        _ => at,
    }
}

/// Keywords that are misspelled often, by where the parser then stops.
const KEYWORDS: [&str; 14] = [
    "SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "JOIN", "UNION", "BETWEEN",
    "EXPLAIN", "SHOW", "DESCRIBE", "WITH",
];

fn is_as_of(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let mut is = |word: &str| words.next().is_some_and(|it| it.eq_ignore_ascii_case(word));
    is("as") && is("of")
}

/// What the parser's message about the word at a byte of the text probably comes from.
pub(crate) fn parser_hint(sql: &str, message: &str, at: usize) -> Option<String> {
    let found = message.rsplit("found: ").next()?.trim();
    let (before, behind) = (sql[..at].trim_end(), &sql[at..]);
    let previous = before
        .rsplit(|c: char| !c.is_alphanumeric() && c != '_')
        .next();
    let previous = previous.filter(|word| !word.is_empty());
    if found == ":" {
        let is_of_angle = |c: char| c.is_ascii_digit() || matches!(c, '.' | ':');
        let start = before.rfind(|c| !is_of_angle(c)).map_or(0, |at| at + 1);
        let end = behind
            .find(|c| !is_of_angle(c))
            .map_or(sql.len(), |end| at + end);
        return sexagesimal_hint(sql.get(start..end)?);
    }
    if let Some(hint) = hours_hint(sql, at).or_else(|| typographic_hint(behind)) {
        return Some(hint);
    }
    if found == "as" && is_as_of(behind) {
        return Some(
            "AS OF and a time stand behind the name of a table in FROM, before its alias: FROM DiaSource AS OF '2026-11-20' AS s".to_owned(),
        );
    }
    if let Some(hint) = top_hint(message, previous.unwrap_or_default()) {
        return Some(hint.to_owned());
    }
    if found == "submit" {
        return Some(
            "SUBMIT stands at the beginning of a statement, once: SUBMIT SELECT ... runs the query without the connection"
                .to_owned(),
        );
    }
    if let Some(hint) = sign_hint(found, before, behind, message)
        .or_else(|| clause_hint(found, previous.unwrap_or_default(), message))
    {
        return Some(hint.to_owned());
    }
    let keywords: Vec<String> = KEYWORDS.iter().map(|&word| word.to_owned()).collect();
    let is_keyword = |word: &str| KEYWORDS.iter().any(|it| it.eq_ignore_ascii_case(word));
    let misspelled = [Some(found), previous]
        .into_iter()
        .flatten()
        .filter(|word| word.len() > 3);
    for word in misspelled.filter(|word| !is_keyword(word)) {
        if let Some(near) = near_keyword(word, &keywords) {
            return Some(format!("did you mean {near} for {}?", typed(sql, word)));
        }
    }
    let wants_value = message.starts_with("Expected an expression")
        || message.starts_with("Expected: an expression");
    if wants_value && before.ends_with(',') && is_keyword(found) {
        return Some(format!(
            "there is a comma too many before {}",
            found.to_uppercase()
        ));
    }
    if is_reserved(found) {
        return Some(format!(
            "{found} is a word of the language: a name that is one stands in backticks (in ADQL in double quotes)"
        ));
    }
    let is_word = found.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '\'');
    (message.contains("end of statement") && is_word).then(|| {
        format!("{found} does not fit here: an operator, a comma or a keyword such as AND is missing before it")
    })
}

/// What TOP takes, where the parser misses its number.
fn top_hint(message: &str, previous: &str) -> Option<&'static str> {
    let begins = ["Expected: literal int", "Could not parse '"];
    let misses_number = begins.iter().any(|begin| message.starts_with(begin));
    (misses_number && previous.eq_ignore_ascii_case("top")).then_some(TOP)
}

const TOP: &str = "TOP takes a whole number of rows that is not negative, as in SELECT TOP 10 *";

/// What is said instead of the parser's own sentence, which is about its code.
pub(crate) fn parser_sentence(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("Could not parse '")?;
    let (text, rest) = rest.split_once("' as ")?;
    let of_number = ["u64", "u32", "i64"].iter().any(|it| rest.starts_with(it));
    of_number.then(|| format!("{text} is no whole number, which is needed here"))
}

/// What to write instead of `10h42m`, of which the parser has taken the `10` for a number.
fn hours_hint(sql: &str, at: usize) -> Option<String> {
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let is_of_angle = |c: char| is_of_number(c) || matches!(c, 'h' | 'd' | 'm' | 's');
    let start = sql[..at].rfind(|c| !is_of_number(c)).map_or(0, |it| it + 1);
    let end = sql[at..].find(|c| !is_of_angle(c));
    let angle = sql.get(start..end.map_or(sql.len(), |end| at + end))?;
    (start < at).then(|| sexagesimal_hint(angle)).flatten()
}

/// Quotes as text processors make them of plain ones.
pub(crate) const TYPOGRAPHIC_QUOTES: [char; 8] = ['‘', '’', '‚', '“', '”', '„', '«', '»'];

/// What is said of a text that begins with such a quote.
fn typographic_hint(text: &str) -> Option<String> {
    let text = text.strip_prefix(TYPOGRAPHIC_QUOTES)?;
    let plain = text.split(TYPOGRAPHIC_QUOTES).next().unwrap_or(text);
    Some(format!(
        "typographic quotes are none here: a text stands in plain ones, as '{plain}'"
    ))
}

/// What is said of signs that other languages have, or that are one too many or too few.
fn sign_hint(found: &str, before: &str, behind: &str, message: &str) -> Option<&'static str> {
    let ends_statement = message.contains("end of statement");
    let stands_between_digits = || {
        let digit = |c: char| c.is_ascii_digit();
        before.ends_with(digit) && behind.get(1..).is_some_and(|it| it.starts_with(digit))
    };
    Some(match found {
        "=>" | "≥" => "did you mean >= ?",
        "=<" | "≤" => "did you mean <= ?",
        "≠" => "did you mean <> ?",
        "−" | "–" => "did you mean - ?",
        "[" => BRACKETS,
        "*" if before.ends_with('*') => "powers are written POW(x, y)",
        ")" if ends_statement => "there is a ) too many, or the ( is missing that it closes",
        "," if ends_statement && stands_between_digits() => {
            "numbers have a decimal point, as in 10.5"
        }
        _ => return None,
    })
}

/// Names in brackets, as other databases have them.
pub(crate) const BRACKETS: &str = "names in brackets are another database's: write them plain, or in backticks (in ADQL in double quotes)";

/// What is said of words that do not fit the clause in which they stand.
fn clause_hint(found: &str, previous: &str, message: &str) -> Option<&'static str> {
    let is = |word: &str, known: &str| word.eq_ignore_ascii_case(known);
    let begins_clause = |word: &&str| is(found, word);
    if message.contains("after IS,") {
        return Some("IS is for NULL, TRUE and FALSE: compare with = or <>, as in class <> 'star'");
    }
    if message.starts_with("Expected: (,") && is(previous, "in") {
        return Some("IN takes a list in parentheses, as in class IN ('star', 'galaxy')");
    }
    if message.starts_with("Expected: ),") && CLAUSES.iter().any(begins_clause) {
        return Some("the parenthesis that is open here has no ) before this clause");
    }
    let writes_file = is(found, "outfile") || is(found, "dumpfile");
    (writes_file && is(previous, "into"))
        .then_some("results are written to files by `meridian sql --output FILE`")
}

/// The words with which the clauses of a query begin.
const CLAUSES: [&str; 6] = ["FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT"];

/// Whether a word is one of the language, so that it is no name where it stands without quotes.
fn is_reserved(word: &str) -> bool {
    mysql::keywords().any(|(known, is_reserved)| is_reserved && known.eq_ignore_ascii_case(word))
}

/// The keyword that a word is a misspelling of: nearer than other words that names may be.
fn near_keyword(word: &str, keywords: &[String]) -> Option<String> {
    let hint = suggestion(word, keywords)?;
    let near = hint.strip_prefix("did you mean ")?.trim_end_matches('?');
    let near = near.split(" or ").next()?;
    let distance =
        strsim::damerau_levenshtein(&word.to_ascii_lowercase(), &near.to_ascii_lowercase());
    (distance <= 1 + usize::from(word.len() > 6)).then(|| near.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sexagesimal_angles_are_converted() {
        for (text, part) in [
            (
                "10:42:44",
                "160.683333 if it is in hours (of right ascension), 10.712222",
            ),
            ("-10:30", "write -10.500000"),
            ("00:42:44.3", "10.684583 if it is in hours"),
            ("41d16m09s", "write 41.269167"),
            ("10h42m", "160.500000 if it is in hours"),
            ("10 42 44", "160.683333"),
        ] {
            let hint = sexagesimal_hint(text).unwrap_or_default();
            assert!(hint.contains(part), "{text}: {hint}");
        }
        for text in ["10.5", "star", "2015-03-01", "10:99:00", "abc:def", ""] {
            assert_eq!(sexagesimal_hint(text), None, "{text}");
        }
    }

    #[test]
    fn keywords_are_recognised_in_misspellings_alone() {
        let keywords: Vec<String> = KEYWORDS.iter().map(|&word| word.to_owned()).collect();
        assert_eq!(near_keyword("form", &keywords).as_deref(), Some("FROM"));
        assert_eq!(near_keyword("selec", &keywords).as_deref(), Some("SELECT"));
        assert_eq!(near_keyword("object", &keywords), None);
        assert_eq!(near_keyword("star", &keywords), None);
    }
}
