//! Values of placeholders that count rows, as in `LIMIT ?, ?`.
//!
//! Drivers send such numbers as texts or floating-point numbers, if that is what a program has given them. A text in the statement itself is an
//! error there, as in MySQL.

use sql::ErrorCode;

use crate::ClientError;

/// Makes the literals of placeholders that count rows whole numbers.
///
/// # Errors
/// One is none.
pub(crate) fn make_whole(
    text: &str,
    offsets: &[usize],
    literals: &mut [String],
) -> Result<(), ClientError> {
    for (place, literal) in offsets.iter().zip(literals) {
        if literal.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        if let Some(clause) = text.get(..*place).and_then(clause_of) {
            *literal = whole(literal).ok_or_else(|| {
                let sentence = format!(
                    "{clause} takes a number of rows, 0 or more; the parameter is {}",
                    literal.trim_matches(['(', ')'])
                );
                ClientError::new(ErrorCode::WRONG_PARAMETERS, sentence)
            })?;
        }
    }
    Ok(())
}

/// `LIMIT` or `OFFSET`, if what follows this text counts rows.
fn clause_of(before: &str) -> Option<&'static str> {
    let before = before.trim_end();
    let clause = |text: &str| {
        let ends_with = |word: &str| {
            let at = text.len().checked_sub(word.len())?;
            let is_word = text.is_char_boundary(at) && text[at..].eq_ignore_ascii_case(word);
            let is_apart = !text[..at.min(text.len())]
                .ends_with(|c: char| c.is_alphanumeric() || "_$`.".contains(c));
            Some(is_word && is_apart)
        };
        ["LIMIT", "OFFSET"]
            .into_iter()
            .find(|word| ends_with(word) == Some(true))
    };
    if let Some(found) = clause(before) {
        return Some(found);
    }
    // The second of two, after a number or another placeholder.
    let first = before.strip_suffix(',')?.trim_end();
    let number = first.trim_end_matches(|c: char| c.is_ascii_digit() || c == '?');
    if number.len() == first.len() {
        return None;
    }
    clause(number.trim_end()).filter(|clause| *clause == "LIMIT")
}

/// The number that a literal stands for, if it is whole and not negative.
fn whole(literal: &str) -> Option<String> {
    let inner = literal.trim_matches(['\'', ' ']);
    if !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_digit()) {
        return inner.parse::<u64>().ok().map(|number| number.to_string());
    }
    let number: f64 = inner.parse().ok()?;
    let is_whole = number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number);
    is_whole.then(|| format!("{}", number as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(text: &str, literals: &[&str]) -> Result<Vec<String>, String> {
        let offsets: Vec<usize> = text.match_indices('?').map(|(at, _)| at).collect();
        let mut literals: Vec<String> = literals.iter().map(|it| (*it).to_owned()).collect();
        make_whole(text, &offsets, &mut literals).map_err(|error| error.to_string())?;
        Ok(literals)
    }

    #[test]
    fn whole_numbers_of_any_type_count_rows() {
        for (text, given, expected) in [
            ("SELECT 1 LIMIT ?", vec!["'10'"], vec!["10"]),
            (
                "SELECT 1 limit\n ? OFFSET  ?",
                vec!["1e1", "2.0"],
                vec!["10", "2"],
            ),
            ("SELECT 1 LIMIT ?, ?", vec!["'3'", "4e0"], vec!["3", "4"]),
            ("SELECT 1 LIMIT 5 ,?", vec!["' 3'"], vec!["3"]),
            (
                "SELECT ? FROM t LIMIT ?",
                vec!["'3'", "'4'"],
                vec!["'3'", "4"],
            ),
            ("SELECT t.limit, ? FROM t", vec!["'3'"], vec!["'3'"]),
            (
                "SELECT `limit`+ ?, ?",
                vec!["'3'", "'x'"],
                vec!["'3'", "'x'"],
            ),
            (
                "SELECT 1 LIMIT ?",
                vec!["18446744073709551615"],
                vec!["18446744073709551615"],
            ),
        ] {
            assert_eq!(made(text, &given).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn others_are_rejected() {
        for literal in [
            "'x'",
            "''",
            "(-1)",
            "1.5e0",
            "'2.5'",
            "NULL",
            "1e300",
            "'-3'",
            "'99999999999999999999'",
        ] {
            let error = made("SELECT 1 LIMIT ?", &[literal]).unwrap_err();
            assert!(error.contains("LIMIT takes a number of rows"), "{error}");
        }
    }
}
