//! Lists of tables in parentheses, which MySQL has in the place of one table and the parser lacks:
//!
//! ```text
//!   a LEFT JOIN (b, c) ON ...        a LEFT JOIN (b CROSS JOIN c) ON ...
//!   (a, b RIGHT JOIN c ON ...)       (a CROSS JOIN (b RIGHT JOIN c ON ...))
//! ```

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Writes the commas of such lists as CROSS JOIN.
pub(super) fn write_as_joins(tokens: &mut Vec<TokenWithSpan>) {
    let lists = lists(tokens);
    if lists.is_empty() {
        return;
    }
    let mut before: Vec<(usize, Vec<Token>)> = Vec::new();
    let mut commas = Vec::new();
    for list in &lists {
        for (at, comma) in list.commas.iter().enumerate() {
            let end = list.commas.get(at + 1).copied().unwrap_or(list.end);
            let cross = vec![Token::make_keyword("CROSS"), Token::make_keyword("JOIN")];
            commas.push(*comma);
            before.push((*comma, cross));
            // What is joined within a member is joined before: a comma binds less than a JOIN.
            if has_join(&tokens[*comma..end]) {
                before.push((comma + 1, vec![Token::LParen]));
                before.push((end, vec![Token::RParen]));
            }
        }
    }
    // A parenthesis that closes a member stands before the words of the next comma.
    before.sort_by_key(|(at, words)| (*at, words.first() != Some(&Token::RParen)));
    let mut before = before.into_iter().peekable();
    let given = std::mem::take(tokens);
    for (at, token) in given.into_iter().enumerate() {
        while let Some((_, words)) = before.next_if(|(place, _)| *place == at) {
            let span = token.span;
            tokens.extend(words.into_iter().map(|token| TokenWithSpan { token, span }));
        }
        if !commas.contains(&at) {
            tokens.push(token);
        }
    }
}

/// A list by the places of its tokens.
struct List {
    commas: Vec<usize>,
    /// Its closing parenthesis.
    end: usize,
}

/// The lists of several tables in parentheses.
fn lists(tokens: &[TokenWithSpan]) -> Vec<List> {
    let mut found = Vec::new();
    // The open parentheses: the commas of those that are lists of tables.
    let mut open: Vec<Option<Vec<usize>>> = Vec::new();
    let mut before: Option<&Token> = None;
    for (at, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::Whitespace(_) => continue,
            Token::LParen => {
                let is_table = before.is_some_and(begins_table) || is_list(&open, before);
                open.push((is_table && begins_with_name(&tokens[at + 1..])).then(Vec::new));
            }
            Token::RParen => {
                if let Some(Some(commas)) = open.pop()
                    && !commas.is_empty()
                {
                    found.push(List { commas, end: at });
                }
            }
            Token::Comma => {
                if let Some(Some(commas)) = open.last_mut() {
                    commas.push(at);
                }
            }
            Token::SemiColon => open.clear(),
            // A query in parentheses, and what goes on behind it: no list of tables.
            word if matches!(before, Some(Token::RParen)) && goes_on_query(word) => {
                if let Some(list) = open.last_mut() {
                    *list = None;
                }
            }
            _ => {}
        }
        before = Some(&token.token);
    }
    found
}

/// Whether a table stands behind a word.
fn begins_table(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none()
        && matches!(word.keyword, Keyword::FROM | Keyword::JOIN | Keyword::STRAIGHT_JOIN))
}

fn goes_on_query(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.quote_style.is_none()
    && matches!(
        word.keyword,
        Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::ORDER | Keyword::LIMIT
    ))
}

/// Whether what stands behind a token is a member of a list, or its beginning.
fn is_list(open: &[Option<Vec<usize>>], before: Option<&Token>) -> bool {
    matches!(open.last(), Some(Some(_))) && matches!(before, Some(Token::Comma | Token::LParen))
}

/// Whether the first of the tokens is a name or a parenthesis, rather than a query.
fn begins_with_name(tokens: &[TokenWithSpan]) -> bool {
    let mut tokens = tokens.iter().map(|it| &it.token);
    match tokens.find(|token| !matches!(token, Token::Whitespace(_))) {
        Some(Token::Word(word)) => {
            word.quote_style.is_some()
                || !matches!(
                    word.keyword,
                    Keyword::SELECT | Keyword::WITH | Keyword::VALUES | Keyword::TABLE
                )
        }
        Some(Token::LParen) => true,
        _ => false,
    }
}

fn has_join(tokens: &[TokenWithSpan]) -> bool {
    tokens.iter().any(|it| {
        matches!(&it.token, Token::Word(word) if word.quote_style.is_none()
            && matches!(word.keyword, Keyword::JOIN | Keyword::STRAIGHT_JOIN))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn joined(sql: &str) -> String {
        let tokens = Dialect::MySql.tokenizer(sql).tokenize_with_location();
        let mut tokens = tokens.unwrap();
        write_as_joins(&mut tokens);
        let texts = tokens.iter().map(|it| it.token.to_string());
        let text: Vec<String> = texts.filter(|it| !it.trim().is_empty()).collect();
        text.join(" ")
    }

    #[test]
    fn commas_within_parentheses_are_joins() {
        for (typed, expected) in [
            (
                "SELECT * FROM a LEFT JOIN (b, c x) ON a.x = b.x, d",
                "SELECT * FROM a LEFT JOIN ( b CROSS JOIN c x ) ON a.x = b.x , d",
            ),
            (
                "SELECT 1 FROM (a, b RIGHT JOIN c ON b.x IN (c.x, 2), d)",
                "SELECT 1 FROM ( a CROSS JOIN ( b RIGHT JOIN c ON b.x IN ( c.x , 2 ) ) CROSS JOIN d )",
            ),
            (
                "SELECT 1 FROM ((a, b), c) JOIN d USING (x, y)",
                "SELECT 1 FROM ( ( a CROSS JOIN b ) CROSS JOIN c ) JOIN d USING ( x , y )",
            ),
            (
                "SELECT 1 FROM (((SELECT 1, 2) EXCEPT SELECT 3, 4) a, b)",
                "SELECT 1 FROM ( ( ( SELECT 1 , 2 ) EXCEPT SELECT 3 , 4 ) a CROSS JOIN b )",
            ),
            (
                "SELECT 1 FROM (a, (SELECT 1, 2) b)",
                "SELECT 1 FROM ( a CROSS JOIN ( SELECT 1 , 2 ) b )",
            ),
        ] {
            let expected = expected.replace('.', " . ");
            assert_eq!(joined(typed), expected, "{typed}");
        }
    }

    #[test]
    fn other_commas_stay() {
        for sql in [
            "SELECT 1 FROM ( SELECT a , b FROM c ) t",
            "SELECT 1 FROM a JOIN f ( 1 , 2 )",
            "SELECT ( 1 , 2 ) IN ( SELECT 1 , 2 )",
            "SELECT 1 FROM ( VALUES ( 1 , 2 ) ) t",
            "SELECT 1 FROM ( ( SELECT 1 , 2 ) UNION SELECT 3 , 4 ) t , u",
            "SELECT 1 FROM ( ( SELECT 1 , 2 UNION SELECT 3 , 4 ) ORDER BY 1 , 2 ) t",
        ] {
            assert_eq!(joined(sql), sql);
        }
    }
}
