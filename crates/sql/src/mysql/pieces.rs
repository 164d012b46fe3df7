//! A text taken apart without being read: its statements, its placeholders, its first word, and what MySQL alone executes.
//!
//! What is within quotes or commented out belongs to none of them. The rules are those of the tokenizer that reads the text
//! afterwards; a text that it cannot take apart is one piece, and reading it says why.

use std::borrow::Cow;
use std::io::Write;
use std::ops::Range;
use std::str::Utf8Error;

use super::sql_cache::without_sql_cache;
use crate::connection::CharacterSet;

/// What a stretch of a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Words and signs.
    Plain,
    /// Text or a name, with its quotes.
    Quoted,
    /// Not to be read.
    Comment,
}

/// A text as it was sent, in a character set or else in UTF-8. Bytes that are no text may stand in literals that say so,
/// `_binary'...'`, as drivers write the bytes of parameters; these are written in hexadecimal digits here.
///
/// # Errors
/// There are such bytes elsewhere.
pub fn received<'a>(
    bytes: &'a [u8],
    set: Option<&CharacterSet>,
) -> Result<Cow<'a, str>, Utf8Error> {
    match (std::str::from_utf8(bytes), set) {
        (Ok(text), None) => Ok(Cow::Borrowed(text)),
        (Ok(text), Some(_)) if text.is_ascii() => Ok(Cow::Borrowed(text)),
        (_, Some(set)) => Ok(Cow::Owned(set.decode(&in_digits(bytes)).into_owned())),
        (Err(error), None) => String::from_utf8(in_digits(bytes))
            .map(Cow::Owned)
            .map_err(|_| error),
    }
}

/// A text with the bytes of its `_binary'...'` literals written in hexadecimal digits.
fn in_digits(bytes: &[u8]) -> Vec<u8> {
    let text = in_its_places(bytes);
    let (mut written, mut from) = (Vec::with_capacity(bytes.len()), 0);
    for (kind, at) in stretches(&text) {
        let is_binary = || {
            let before = text[..at.start].trim_end().as_bytes();
            before
                .len()
                .checked_sub(BINARY.len())
                .is_some_and(|start| before[start..].eq_ignore_ascii_case(BINARY))
        };
        if at.start < from || kind != Kind::Quoted || !is_binary() {
            continue;
        }
        if let Some((value, end)) = unquoted(bytes, at.start) {
            written.extend_from_slice(&bytes[from..at.start]);
            written.extend_from_slice(b" x'");
            for byte in value {
                // A list of bytes takes all.
                let _ = write!(written, "{byte:02x}");
            }
            written.push(b'\'');
            from = end;
        }
    }
    written.extend_from_slice(&bytes[from..]);
    written
}

const BINARY: &[u8] = b"_binary";

/// The same with signs of one byte for bytes that are no text: every byte keeps its place.
fn in_its_places(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(std::iter::repeat_n('\u{1a}', chunk.invalid().len()));
    }
    text
}

/// The bytes of a quoted literal that begins at a place, and the place after it; nothing where it has no end.
fn unquoted(bytes: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let quote = *bytes.get(start)?;
    let (mut value, mut at) = (Vec::new(), start + 1);
    loop {
        let byte = *bytes.get(at)?;
        let next = bytes.get(at + 1).copied();
        at += 2;
        match (byte, next) {
            (b'\\', Some(escaped)) => value.push(match escaped {
                b'0' => 0,
                b'b' => 8,
                b't' => b'\t',
                b'n' => b'\n',
                b'r' => b'\r',
                b'Z' => 26,
                other => other,
            }),
            (_, Some(doubled)) if byte == quote && doubled == quote => value.push(quote),
            _ if byte == quote => return Some((value, at - 1)),
            _ => {
                value.push(byte);
                at -= 1;
            }
        }
    }
}

/// The statements of a text, which are separated by semicolons; none where there is nothing but space and comments.
pub fn split_statements(text: &str) -> Vec<&str> {
    let mut statements = Vec::new();
    let (mut from, mut says_something) = (0, false);
    for (kind, at) in stretches(text) {
        match kind {
            Kind::Comment => continue,
            Kind::Quoted => says_something = true,
            Kind::Plain => {
                let mut rest = at.start;
                for (semicolon, _) in text[at.clone()].match_indices(';') {
                    let semicolon = at.start + semicolon;
                    if says_something || !text[rest..semicolon].trim().is_empty() {
                        statements.push(text[from..semicolon].trim());
                    }
                    (from, rest, says_something) = (semicolon + 1, semicolon + 1, false);
                }
                says_something |= !text[rest..at.end].trim().is_empty();
            }
        }
    }
    if says_something {
        statements.push(text[from..].trim());
    }
    statements
}

/// Where the placeholders of a statement stand, in bytes: each is one query mark.
pub fn placeholders(text: &str) -> Vec<usize> {
    let plain = stretches(text).filter(|(kind, _)| *kind == Kind::Plain);
    let marks = plain.flat_map(|(_, at)| {
        let marks = text[at.clone()].match_indices('?');
        marks.map(move |(mark, _)| at.start + mark)
    });
    marks.collect()
}

/// The word that a text begins with, after space and comments; empty if there is none.
pub fn first_word(text: &str) -> &str {
    let says_something = |(kind, at): &(Kind, Range<usize>)| match kind {
        Kind::Comment => false,
        Kind::Quoted => true,
        Kind::Plain => !text[at.clone()].trim().is_empty(),
    };
    let Some((Kind::Plain, at)) = stretches(text).find(says_something) else {
        return "";
    };
    let plain = text[at].trim_start();
    let end = plain.find(|c: char| !c.is_alphanumeric() && c != '_');
    &plain[..end.unwrap_or(plain.len())]
}

/// The latest version of MySQL for which `/*!80036 ... */` is not a comment.
const VERSION: u32 = 80_036;

/// A text with what is written for MySQL alone, as `/*!40001 SQL_NO_CACHE */`, as if it were not commented out, and without `SQL_CACHE`.
/// Every byte keeps its place.
pub fn executed(text: &str) -> Cow<'_, str> {
    without_sql_cache(uncommented(text))
}

fn uncommented(text: &str) -> Cow<'_, str> {
    if !text.contains("/*!") {
        return Cow::Borrowed(text);
    }
    let mut bytes = text.as_bytes().to_owned();
    for (kind, at) in stretches(text) {
        let comment = &text[at.clone()];
        if kind != Kind::Comment || !comment.starts_with("/*!") || !comment.ends_with("*/") {
            continue;
        }
        let digits = comment[3..].bytes().take_while(u8::is_ascii_digit).count();
        let later = comment[3..3 + digits]
            .parse::<u32>()
            .is_ok_and(|version| version > VERSION);
        let marks = match later {
            false => [at.start..at.start + 3 + digits, at.end - 2..at.end],
            true => [at.start..at.end, at.end..at.end],
        };
        for mark in marks {
            bytes[mark].fill(b' ');
        }
    }
    // Whole characters became spaces.
    String::from_utf8(bytes).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The stretches of a text in their order; together they are the text.
pub(super) fn stretches(text: &str) -> impl Iterator<Item = (Kind, Range<usize>)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at;
        if start >= text.len() {
            return None;
        }
        if let Some((kind, end)) = marked(text, start) {
            at = end;
            return Some((kind, start..end));
        }
        at = start + 1;
        while at < text.len() && marked(text, at).is_none() {
            at += 1;
        }
        Some((Kind::Plain, start..at))
    })
}

/// What begins at a byte, if it is quoted or a comment, and where it ends.
fn marked(text: &str, at: usize) -> Option<(Kind, usize)> {
    let bytes = text.as_bytes();
    match bytes[at] {
        quote @ (b'\'' | b'"') => Some((Kind::Quoted, quote_end(bytes, at, quote))),
        b'`' => Some((Kind::Quoted, after(bytes, at + 1, b'`'))),
        b'#' => Some((Kind::Comment, after(bytes, at + 1, b'\n'))),
        b'-' if bytes.get(at + 1) == Some(&b'-') => {
            let begins = text[at + 2..].starts_with(char::is_whitespace);
            begins.then(|| (Kind::Comment, after(bytes, at + 2, b'\n')))
        }
        b'/' if bytes.get(at + 1) == Some(&b'*') => {
            let end = text[at + 2..].find("*/");
            Some((
                Kind::Comment,
                end.map_or(text.len(), |end| at + 2 + end + 2),
            ))
        }
        _ => None,
    }
}

/// The place after the next `last`; the end where there is none.
fn after(bytes: &[u8], from: usize, last: u8) -> usize {
    let found = bytes[from..].iter().position(|byte| *byte == last);
    found.map_or(bytes.len(), |found| from + found + 1)
}

/// The place after the text that begins with a quote. A doubled quote is the end of one text and the start of another, which
/// makes no difference here.
fn quote_end(bytes: &[u8], start: usize, quote: u8) -> usize {
    let escapes = !is_bits(bytes, start);
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if escapes => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Whether a quote is that of `b'101'`, in which a backslash is nothing special.
fn is_bits(bytes: &[u8], quote: usize) -> bool {
    let in_word =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'@' | 128..);
    let before = |places: usize| quote.checked_sub(places).map(|at| &bytes[at]);
    matches!(before(1), Some(b'b' | b'B')) && !before(2).is_some_and(in_word)
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Token;
    use proptest::prelude::*;

    use super::*;
    use crate::Dialect;

    #[test]
    fn statements_are_separated_by_semicolons_that_mean_it() {
        for (text, statements) in [
            ("SELECT 1", vec!["SELECT 1"]),
            ("SELECT 1; ;\nSELECT 2;", vec!["SELECT 1", "SELECT 2"]),
            (
                "SELECT ';', \"a;\\\";b\"; x",
                vec!["SELECT ';', \"a;\\\";b\"", "x"],
            ),
            (
                "SELECT `a;``b;` -- no;\n; y",
                vec!["SELECT `a;``b;` -- no;", "y"],
            ),
            ("/* a; */ # b;\n -- c;\n", vec![]),
            ("'it''s; one'; 2", vec!["'it''s; one'", "2"]),
            ("SELECT 1--2; 3", vec!["SELECT 1--2", "3"]),
            ("b'1\\'; x", vec!["b'1\\'", "x"]),
            ("'open; x", vec!["'open; x"]),
            ("/* open; x", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(split_statements(text), statements, "{text}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_may_stand_where_they_are_announced() {
        for (sent, text) in [
            (&b"SELECT '\xc3\xa9'"[..], Some("SELECT 'é'")),
            (b"SELECT '\xff'", None),
            (
                b"SELECT _binary'\xff\\'\\0\\\\''\x00', 'a\xc3\xa9'",
                Some("SELECT _binary x'ff27005c2700', 'aé'"),
            ),
            (
                b"SELECT _BINARY  \"\xff\" FROM t",
                Some("SELECT _BINARY   x'ff' FROM t"),
            ),
            (b"SELECT _binary'\xff', '\xff'", None),
            (b"SELECT _binary'\xff\\'", None),
            (b"SELECT /* _binary '\xff' */ 1", None),
            (b"SELECT '_binary', '\xff'", None),
        ] {
            let read = received(sent, None);
            assert_eq!(
                read.as_deref().ok(),
                text,
                "{}",
                String::from_utf8_lossy(sent)
            );
        }
    }

    #[test]
    fn texts_of_other_character_sets_are_converted_but_for_bytes() {
        let latin1 = CharacterSet::named("latin1");
        for (sent, text) in [
            (&b"SELECT 1"[..], "SELECT 1"),
            (b"SELECT '\xc3\xa9', `\xe9`", "SELECT '\u{c3}\u{a9}', `é`"),
            (
                b"SELECT _binary'\xc3\xa9', '\xe9' -- \xff",
                "SELECT _binary x'c3a9', 'é' -- \u{ff}",
            ),
        ] {
            assert_eq!(received(sent, latin1).unwrap(), text);
        }
    }

    #[test]
    fn placeholders_are_counted_where_a_value_may_stand() {
        let text = "SELECT ?, '?', \"?\", `?` /* ? */ FROM t -- ?\nWHERE a=? # ?";
        assert_eq!(placeholders(text), [7, text.find("a=?").unwrap() + 2]);
    }

    #[test]
    fn the_first_word_follows_comments() {
        for (text, word) in [
            ("select 1", "select"),
            (" /* a */ -- b\n# c\n SET x", "SET"),
            ("(SELECT 1)", ""),
            ("'a'", ""),
            ("", ""),
        ] {
            assert_eq!(first_word(text), word, "{text}");
        }
    }

    #[test]
    fn what_is_for_mysql_alone_is_executed() {
        for (text, is) in [
            (
                "SELECT /*!40001 SQL_NO_CACHE */ 1",
                "SELECT          SQL_NO_CACHE    1",
            ),
            ("/*! SET x */", "    SET x   "),
            ("/*!99999 no */ 1", "               1"),
            ("SELECT '/*!1 a*/' /* b */", "SELECT '/*!1 a*/' /* b */"),
            ("/*!*/", "     "),
        ] {
            assert_eq!(executed(text), is, "{text}");
            assert_eq!(text.len(), is.len());
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "'", "\"", "`", "\\", "-", "--", "-- ", "#", "/*", "*/", "\n", ";", "?", " ", "a", "b",
            "b'", "é", "1",
        ]);
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken_or_rejected(
            bytes in proptest::collection::vec(proptest::sample::select(&b"_binary '\"\\\xff\xc3\xa9-#/*x"[..]), 0..60)
        ) {
            match (received(&bytes, None), std::str::from_utf8(&bytes)) {
                (Ok(read), Ok(text)) => prop_assert_eq!(read, text),
                (read, Ok(_)) => prop_assert!(read.is_ok()),
                _ => {}
            }
        }

        #[test]
        fn semicolons_and_placeholders_are_the_tokenizers(text in any_text()) {
            let Ok(tokens) = Dialect::MySql.tokenizer(&text).tokenize() else {
                return Ok(());
            };
            let is_mark = |token: &&Token| matches!(token, Token::Placeholder(_));
            prop_assert_eq!(placeholders(&text).len(), tokens.iter().filter(is_mark).count());
            let statements = tokens.split(|token| *token == Token::SemiColon);
            let says_something = |tokens: &&[Token]| tokens.iter().any(|token| !matches!(token, Token::Whitespace(_)));
            prop_assert_eq!(split_statements(&text).len(), statements.filter(says_something).count());
        }
    }
}
