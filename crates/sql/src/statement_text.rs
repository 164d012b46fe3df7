//! Where words stand in a statement as it was typed: in its code, not in its comments and texts.

use crate::fold::fold_word;

/// The name as it was typed, where it stands in a statement.
pub(crate) fn typed(sql: &str, name: &str) -> String {
    let place = find_word(sql, name).or_else(|| find_word_in(sql, name));
    place.map_or_else(|| name.to_owned(), |at| sql[at..at + name.len()].to_owned())
}

/// Finds `name` in a statement as a whole word, without regard to case.
pub(crate) fn find_word(sql: &str, name: &str) -> Option<usize> {
    find_word_in(&code(sql), name)
}

/// The same behind the first place of `before`, which is a word or a sign.
pub(crate) fn find_word_behind(sql: &str, before: &str, name: &str) -> Option<usize> {
    let code = code(sql);
    let from = match before.chars().all(char::is_alphabetic) {
        true if before.is_empty() => 0,
        true => find_word_in(&code, before)? + before.len(),
        false => code.find(before)? + before.len(),
    };
    find_word_in(&code[from..], name).map(|at| from + at)
}

/// Finds a sign in a statement.
pub(crate) fn find_in_code(sql: &str, sign: &str) -> Option<usize> {
    code(sql).find(sign)
}

/// Finds a text in single quotes in a statement, with its quotes.
pub(crate) fn find_text(sql: &str, quoted: &str) -> Option<usize> {
    without(sql, |part| part == Part::Comment).find(quoted)
}

fn find_word_in(text: &str, name: &str) -> Option<usize> {
    if name.is_empty() {
        return None;
    }
    let (folded, name) = (fold_word(text), fold_word(name));
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    folded.match_indices(&name).map(|(at, _)| at).find(|&at| {
        !folded[..at].ends_with(part_of_word)
            && !folded[at + name.len()..].starts_with(part_of_word)
    })
}

/// What a byte of a statement is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    Text,
    Comment,
}

/// A statement with spaces in the places of its comments and texts: each byte has its place.
fn code(sql: &str) -> String {
    without(sql, |part| part != Part::Code)
}

fn without(sql: &str, is_left_out: impl Fn(Part) -> bool) -> String {
    // Most have none.
    if !sql.contains(['\'', '#']) && !sql.contains("--") && !sql.contains("/*") {
        return sql.to_owned();
    }
    let parts = parts(sql);
    let shown = sql.bytes().zip(parts).map(|(byte, part)| {
        let kept = byte == b'\n' || !is_left_out(part);
        if kept { byte } else { b' ' }
    });
    // Whole characters became spaces.
    String::from_utf8(shown.collect()).unwrap_or_else(|_| sql.to_owned())
}

/// What each byte is part of. A backslash before a quote is an escape in one dialect and none in the other: it is taken for the one with
/// which every text has an end.
fn parts(sql: &str) -> Vec<Part> {
    let (escaped, has_end) = parts_with(sql, true);
    if has_end {
        return escaped;
    }
    match parts_with(sql, false) {
        (plain, true) => plain,
        _ => escaped,
    }
}

/// The same, and whether every text and comment has an end.
fn parts_with(sql: &str, has_escapes: bool) -> (Vec<Part>, bool) {
    let bytes = sql.as_bytes();
    let mut parts = Vec::with_capacity(bytes.len());
    while parts.len() < bytes.len() {
        let at = parts.len();
        let rest = &bytes[at..];
        let (part, length) = match rest {
            [b'\'', ..] => (Part::Text, text_length(rest, has_escapes)),
            // A name or a text: errors may be about either.
            [quote @ (b'"' | b'`'), ..] => (Part::Code, quoted_length(rest, *quote)),
            [b'-', b'-', ..] | [b'#', ..] => {
                let line = rest.iter().position(|it| *it == b'\n');
                (Part::Comment, Some(line.unwrap_or(rest.len())))
            }
            // What MySQL executes is no comment.
            [b'/', b'*', b'!' | b'+', ..] => (Part::Code, Some(3)),
            [b'/', b'*', ..] => (Part::Comment, comment_length(rest)),
            _ => (Part::Code, Some(1)),
        };
        let has_end = length.is_some();
        parts.resize(at + length.unwrap_or(rest.len()), part);
        if !has_end {
            return (parts, false);
        }
    }
    (parts, true)
}

/// The bytes of a text that begins here, with its quotes.
fn text_length(rest: &[u8], has_escapes: bool) -> Option<usize> {
    let mut at = 1;
    loop {
        match (rest.get(at)?, rest.get(at + 1)) {
            (b'\\', Some(_)) if has_escapes => at += 2,
            (b'\'', Some(b'\'')) => at += 2,
            (b'\'', _) => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn quoted_length(rest: &[u8], quote: u8) -> Option<usize> {
    let end = rest[1..].iter().position(|it| *it == quote)?;
    Some(end + 2)
}

fn comment_length(rest: &[u8]) -> Option<usize> {
    let end = rest[2..].windows(2).position(|it| it == b"*/")?;
    Some(end + 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The caret stood below `raa` of a comment and of a text.
    #[test]
    fn words_of_comments_and_texts_are_no_places() {
        for sql in [
            "-- raa\nSELECT raa",
            "/* raa */ SELECT raa",
            "SELECT 'raa', raa",
            "SELECT 'it''s raa', raa",
            "SELECT 'it\\'s raa', raa",
            "SELECT 'raa\\', raa",
            "# raa\nSELECT raa",
            "SELECT \"a'b\", raa -- raa",
            "SELECT 'Übergröße raa' || raa",
        ] {
            let last = sql.trim_end_matches(" -- raa").len() - "raa".len();
            assert_eq!(find_word(sql, "RAA"), Some(last), "{sql}");
        }
        assert_eq!(find_word("SELECT \"raa\"", "raa"), Some(8));
        assert_eq!(find_word("SELECT 1 -- raa", "raa"), None);
        assert_eq!(typed("SELECT 1 -- Raa", "raa"), "Raa");
        assert_eq!(find_word("SELECT /*!50000 raa */", "raa"), Some(16));
        // A text without an end.
        assert_eq!(find_word("SELECT raa, 'raa", "raa"), Some(7));
    }

    #[test]
    fn texts_and_signs_are_found_in_the_code() {
        assert_eq!(find_text("-- 'a'\nSELECT 'a'", "'a'"), Some(14));
        assert_eq!(find_in_code("SELECT 'a + b', 1 + 2", "+"), Some(18));
        assert_eq!(
            find_word_behind("SELECT '(', (SELECT 1)", "(", "select"),
            Some(13)
        );
        assert_eq!(find_word_behind("SELECT a WHERE a", "where", "a"), Some(15));
    }
}
