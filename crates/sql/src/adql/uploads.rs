//! Tables that come with a statement: `TAP_UPLOAD.name` (TAP 1.1, section 2.7.5) is what they are called in it.

use std::borrow::Cow;
use std::ops::Range;

use datafusion::sql::sqlparser::keywords::{Keyword, RESERVED_FOR_TABLE_ALIAS};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Word};

use crate::fold::{Places, fold_word};
use crate::{Dialect, ErrorCode, SqlError};

/// The schema of uploaded tables.
pub const UPLOAD_SCHEMA: &str = "tap_upload";

/// A table that comes with a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedName {
    /// Its name behind `TAP_UPLOAD.`; its case does not matter.
    pub name: String,
    /// What stands for it in FROM, such as `read_votable('...')`.
    pub table: String,
}

/// Before what stands for a table in a statement.
const BEFORE: &str = "/*upload*/";
/// Behind it, before the words that were typed.
const TYPED: &str = "/*for ";
const END: &str = "*/";

/// A statement of ADQL's with what stands for its uploaded tables in their places. Where the statement gives a table no other name, its own
/// is its alias, so that columns can be qualified by it; sides of `nearest` and `crossmatch` have none. Comments say what was typed, so that
/// messages show that ([`as_typed`]).
///
/// # Errors
/// It names an uploaded table that did not come with it. A text that cannot be taken apart is returned as it is: parsing it tells why.
pub fn with_uploads(text: &str, uploads: &[UploadedName]) -> Result<String, SqlError> {
    let Ok(tokens) = Dialect::Adql.tokenizer(text).tokenize_with_location() else {
        return Ok(text.to_owned());
    };
    let places = Places::new(text);
    let tokens: Vec<TokenWithSpan> = tokens
        .into_iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect();
    let mut written = String::with_capacity(text.len());
    let (mut at, mut copied) = (0, 0);
    let mut parentheses = Parentheses::default();
    while at < tokens.len() {
        parentheses.pass(&tokens, at);
        let Some(reference) = Reference::at(&tokens[at..]) else {
            at += 1;
            continue;
        };
        let known = uploads
            .iter()
            .find(|upload| fold_word(&upload.name) == reference.name);
        let Some(upload) = known else {
            let location = tokens[at + 2].span.start;
            return Err(
                SqlError::at_word(text, location, unknown(uploads)).with_code(ErrorCode::NO_TABLE)
            );
        };
        let span = places.byte(tokens[at].span.start)..places.byte(tokens[at + 2].span.end);
        written.push_str(&text[copied..span.start]);
        let is_side = parentheses.are_of_table_function();
        let stands_for = reference.written(upload, text, &span, is_side);
        let typed = match &text[span.clone()] {
            typed if typed.contains(END) => format!("TAP_UPLOAD.{}", upload.name),
            typed => typed.to_owned(),
        };
        written.extend([BEFORE, &stands_for, TYPED, &typed, END]);
        copied = span.end;
        at += 3;
    }
    written.push_str(&text[copied..]);
    Ok(written)
}

/// A statement of [`with_uploads`] as it was typed, and where a byte of it is in that: what stands for a table is where its name is.
pub(crate) fn as_typed(written: &str, byte: usize) -> (Cow<'_, str>, usize) {
    if !written.contains(BEFORE) {
        return (Cow::Borrowed(written), byte);
    }
    let (mut typed, mut place) = (String::with_capacity(written.len()), None);
    let mut at = 0;
    while let Some((stands_for, name)) = next_upload(&written[at..]) {
        let (stands_for, name) = (
            at + stands_for.start..at + stands_for.end,
            at + name.start..at + name.end,
        );
        if byte < stands_for.start {
            place.get_or_insert(typed.len() + byte.saturating_sub(at));
        }
        typed.push_str(&written[at..stands_for.start]);
        if byte < stands_for.end {
            place.get_or_insert(typed.len());
        }
        typed.push_str(&written[name]);
        at = stands_for.end;
    }
    let place = place.unwrap_or(typed.len() + byte.saturating_sub(at));
    typed.push_str(&written[at..]);
    (Cow::Owned(typed), place)
}

/// The first place of a text where something stands for a table, and where the words are that were typed.
fn next_upload(text: &str) -> Option<(Range<usize>, Range<usize>)> {
    let start = text.find(BEFORE)?;
    let name = start + text[start..].find(TYPED)? + TYPED.len();
    let end = name + text[name..].find(END)?;
    Some((start..end + END.len(), name..end))
}

fn unknown(uploads: &[UploadedName]) -> String {
    let names: Vec<&str> = uploads.iter().map(|upload| upload.name.as_str()).collect();
    match names.is_empty() {
        true => "no table was uploaded with this statement: send one with the parameter UPLOAD"
            .to_owned(),
        false => format!(
            "no table of this name was uploaded with this statement; there are: {}",
            names.join(", ")
        ),
    }
}

/// The functions whose arguments are tables, which have no other names there.
const TABLE_FUNCTIONS: [&str; 2] = ["nearest", "crossmatch"];

/// The parentheses that are open, each with whether they are those of a function of tables.
#[derive(Default)]
struct Parentheses(Vec<bool>);

impl Parentheses {
    fn pass(&mut self, tokens: &[TokenWithSpan], at: usize) {
        match tokens[at].token {
            Token::LParen => {
                let before = at.checked_sub(1).map(|before| &tokens[before].token);
                let is_function = |word: &Word| {
                    word.quote_style.is_none()
                        && TABLE_FUNCTIONS.contains(&fold_word(&word.value).as_str())
                };
                self.0
                    .push(matches!(before, Some(Token::Word(word)) if is_function(word)));
            }
            Token::RParen => {
                self.0.pop();
            }
            _ => {}
        }
    }

    fn are_of_table_function(&self) -> bool {
        self.0.last().copied().unwrap_or_default()
    }
}

/// `TAP_UPLOAD.name` in a statement.
struct Reference {
    /// Folded.
    name: String,
    place: Place,
}

/// Where it stands.
enum Place {
    /// Before the name of a column or `*`.
    Column,
    /// In FROM, before another name for the table.
    Named,
    /// In FROM, by itself.
    Unnamed,
}

impl Reference {
    /// The one that the tokens begin with.
    fn at(tokens: &[TokenWithSpan]) -> Option<Self> {
        let word = |at: usize| match tokens.get(at).map(|token| &token.token) {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        };
        let is =
            |at: usize, wanted: &Token| tokens.get(at).is_some_and(|token| token.token == *wanted);
        if fold_word(&word(0)?.value) != UPLOAD_SCHEMA || !is(1, &Token::Period) {
            return None;
        }
        let name = fold_word(&word(2)?.value);
        let place = match word(3) {
            _ if is(3, &Token::Period) => Place::Column,
            Some(next) if next.keyword == Keyword::AS => Place::Named,
            Some(next)
                if next.quote_style.is_some()
                    || !RESERVED_FOR_TABLE_ALIAS.contains(&next.keyword) =>
            {
                Place::Named
            }
            _ => Place::Unnamed,
        };
        Some(Self { name, place })
    }

    fn written(
        &self,
        upload: &UploadedName,
        text: &str,
        span: &Range<usize>,
        is_side: bool,
    ) -> String {
        let own_name = text[span.clone()]
            .rsplit('.')
            .next()
            .unwrap_or(&upload.name)
            .trim();
        match self.place {
            Place::Column => own_name.to_owned(),
            Place::Named => upload.table.clone(),
            Place::Unnamed if is_side => upload.table.clone(),
            Place::Unnamed => format!("{} AS {own_name}", upload.table),
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Whitespace;

    use super::*;

    fn written(text: &str) -> Result<String, String> {
        let uploads = ["mine", "Select"].map(|name| UploadedName {
            name: name.to_owned(),
            table: format!("read_x('{name}')"),
        });
        let written = with_uploads(text, &uploads).map_err(|error| error.to_string())?;
        assert_eq!(as_typed(&written, 0).0, text);
        let is_of_comment = |token: &Token| {
            matches!(token, Token::Whitespace(Whitespace::MultiLineComment(comment))
                if comment == "upload" || comment.starts_with("for "))
        };
        let Ok(tokens) = Dialect::Adql.tokenizer(&written).tokenize() else {
            return Ok(written);
        };
        let tokens = tokens.iter().filter(|token| !is_of_comment(token));
        Ok(tokens.map(ToString::to_string).collect())
    }

    #[test]
    fn messages_show_what_was_typed() {
        let uploads = [UploadedName {
            name: "mine".to_owned(),
            table: "read_x('/secret/place')".to_owned(),
        }];
        let typed = "SELECT 1 FROM tap_upload.mine AS u,\n TAP_UPLOAD\n. mine WHERE wrong = 1";
        let written = with_uploads(typed, &uploads).unwrap();
        let at = |word: &str, text: &str| text.find(word).unwrap();
        for word in ["SELECT", "AS u", "WHERE", "wrong", "= 1"] {
            let shown = as_typed(&written, at(word, &written));
            assert_eq!(shown, (typed.into(), at(word, typed)), "{word}");
        }
        let (_, first) = as_typed(&written, at("secret", &written));
        assert_eq!(first, at("tap_upload", typed));
        let (_, second) = as_typed(&written, written.rfind("secret").unwrap());
        assert_eq!(second, at("TAP_UPLOAD", typed));
        assert_eq!(as_typed(&written, written.len()).1, typed.len());
        let error = SqlError::about(&written, "wrong", "no column");
        let caret = " ".repeat(" . mine WHERE ".len() + 1) + "^^^^^";
        assert_eq!(
            error.to_string(),
            format!("no column (line 3, column 14)\n  . mine WHERE wrong = 1\n{caret}")
        );
    }

    #[test]
    fn comments_within_a_name_are_not_kept() {
        let uploads = [UploadedName {
            name: "mine".to_owned(),
            table: "read_x('mine')".to_owned(),
        }];
        let typed = "SELECT a FROM tap_upload/* x */.mine";
        let written = with_uploads(typed, &uploads).unwrap();
        assert_eq!(as_typed(&written, 0).0, "SELECT a FROM TAP_UPLOAD.mine");
    }

    #[test]
    fn uploaded_tables_get_what_stands_for_them() {
        for (text, wanted) in [
            ("SELECT 1", "SELECT 1"),
            (
                "SELECT * FROM TAP_UPLOAD.mine",
                "SELECT * FROM read_x('mine') AS mine",
            ),
            (
                "SELECT * FROM tap_upload . Mine AS u JOIN t ON u.a = t.a",
                "SELECT * FROM read_x('mine') AS u JOIN t ON u.a = t.a",
            ),
            (
                "SELECT TAP_UPLOAD.mine.a, tap_upload.mine.* FROM tap_upload.mine, t",
                "SELECT mine.a, mine.* FROM read_x('mine') AS mine, t",
            ),
            (
                "SELECT a FROM tap_upload.mine m WHERE a = 1",
                "SELECT a FROM read_x('mine') m WHERE a = 1",
            ),
            (
                "SELECT a FROM tap_upload.mine WHERE a = 'tap_upload.mine'",
                "SELECT a FROM read_x('mine') AS mine WHERE a = 'tap_upload.mine'",
            ),
            (
                "SELECT (SELECT COUNT(*) FROM tap_upload.mine) FROM t -- tap_upload.other",
                "SELECT (SELECT COUNT(*) FROM read_x('mine') AS mine) FROM t -- tap_upload.other",
            ),
            (
                "SELECT a FROM tap_upload.mine NATURAL JOIN tap_upload.\"Select\" ORDER BY a",
                "SELECT a FROM read_x('mine') AS mine NATURAL JOIN read_x('Select') AS \"Select\" ORDER BY a",
            ),
            (
                "SELECT a FROM tap_upload.mine \"x y\"",
                "SELECT a FROM read_x('mine') \"x y\"",
            ),
            (
                "SELECT * FROM nearest(t, TAP_UPLOAD.mine, 1) JOIN tap_upload.mine ON TRUE",
                "SELECT * FROM nearest(t, read_x('mine'), 1) JOIN read_x('mine') AS mine ON TRUE",
            ),
            (
                "SELECT * FROM Crossmatch(tap_upload.mine, (SELECT * FROM tap_upload.mine), 1) c",
                "SELECT * FROM Crossmatch(read_x('mine'), (SELECT * FROM read_x('mine') AS mine), 1) c",
            ),
            ("SELECT tap_upload FROM t", "SELECT tap_upload FROM t"),
            ("SELECT 'unfinished", "SELECT 'unfinished"),
        ] {
            assert_eq!(written(text).as_deref(), Ok(wanted), "{text}");
        }
        let error = written("SELECT * FROM tap_upload.other").unwrap_err();
        assert!(error.contains("there are: mine, Select"), "{error}");
        let none = with_uploads("SELECT * FROM tap_upload.other", &[]).unwrap_err();
        assert!(none.to_string().contains("no table was uploaded"), "{none}");
    }
}
