//! `SELECT ra, decl INTO @ra, @decl FROM Object WHERE objectId = 1`: a query whose only row goes into variables of the user's own.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TokenReader};
use crate::SqlError;
use crate::connection::user_variable;
use crate::fold::Places;

/// The query and the variables of a text that is one; `None` for any other statement.
///
/// # Errors
/// Something else than a variable is among them.
pub(super) fn read(text: &str) -> Result<Option<Command>, SqlError> {
    if !may_be_one(text) {
        return Ok(None);
    }
    let mut words = TokenReader::of(text)?;
    let Some(into) = place_of_into(&words) else {
        return Ok(None);
    };
    words.at = into + 1;
    let mut variables = Vec::new();
    loop {
        match words.user_variable() {
            Some(name) => variables.push(name),
            None => return Err(words.expected("a variable, as @name")),
        }
        if !words.sign(&Token::Comma) {
            break;
        }
    }
    let places = Places::new(text);
    let begin = places.byte(words.tokens[into].span.start);
    let end = places.byte(words.tokens[words.at - 1].span.end);
    let query = format!("{} {}", text[..begin].trim_end(), text[end..].trim_start());
    Ok(Some(Command::SelectInto {
        query: query.trim_end().trim_end_matches(';').trim_end().to_owned(),
        variables,
    }))
}

/// Whether the words are there, wherever: most queries are not taken apart for this.
fn may_be_one(text: &str) -> bool {
    const WORD: &[u8] = b"into";
    text.contains('@')
        && text
            .as_bytes()
            .windows(WORD.len())
            .any(|bytes| bytes.eq_ignore_ascii_case(WORD))
}

/// Where the INTO stands that variables follow, in no parentheses.
fn place_of_into(words: &TokenReader<'_>) -> Option<usize> {
    let mut depth = 0_usize;
    words.tokens.iter().enumerate().position(|(at, token)| {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::Word(word) if depth == 0 && word.quote_style.is_none() => {
                let next = words.tokens.get(at + 1).map(|it| &it.token);
                return word.value.eq_ignore_ascii_case("into")
                    && next.is_some_and(|it| user_variable(it).is_some());
            }
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_told_from_the_query() {
        for (text, query, variables) in [
            ("SELECT 1 INTO @x", "SELECT 1", &["x"] as &[&str]),
            (
                "select a, b into @x , @Y from t where a = 'into @z';",
                "select a, b from t where a = 'into @z'",
                &["x", "Y"],
            ),
            (
                "SELECT a FROM t LIMIT 1 INTO @x FOR UPDATE",
                "SELECT a FROM t LIMIT 1 FOR UPDATE",
                &["x"],
            ),
            (
                "WITH n AS (SELECT 1 AS a) SELECT a FROM n INTO @x",
                "WITH n AS (SELECT 1 AS a) SELECT a FROM n",
                &["x"],
            ),
        ] {
            let expected = Command::SelectInto {
                query: query.to_owned(),
                variables: variables.iter().map(|it| (*it).to_owned()).collect(),
            };
            assert_eq!(read(text).unwrap(), Some(expected), "{text}");
        }
        for other in [
            "SELECT 1",
            "SELECT @x AS `into`",
            "SELECT a INTO OUTFILE '/@x' FROM t",
            "SELECT (SELECT 1 INTO @x)",
        ] {
            assert_eq!(read(other).unwrap(), None, "{other}");
        }
        assert!(read("SELECT 1, 2 INTO @x, y").is_err());
    }
}
