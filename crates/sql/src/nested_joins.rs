//! Joins within joins without parentheses, which the parser lacks: each ON belongs to the nearest join before it that has none.
//!
//! ```text
//!   a LEFT JOIN b JOIN c ON p ON q       a LEFT JOIN (b JOIN c ON p) ON q
//!   a JOIN b NATURAL JOIN c ON p         a JOIN (b NATURAL JOIN c) ON p
//!   a JOIN b JOIN c ON p                 the same: `a JOIN b` is a cross join (MySQL)
//! ```
//!
//! (MySQL 8.4 Reference Manual, 15.2.13.2; ISO/IEC 9075-2, 7.7: a joined table may be the right side of a qualified join, but not that of a
//! cross join or a natural one.)

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::Dialect;

/// Puts parentheses around the right sides of joins that are joins.
pub(crate) fn write_parentheses(dialect: Dialect, tokens: &mut Vec<TokenWithSpan>) {
    let sides = sides(dialect, tokens);
    if sides.is_empty() {
        return;
    }
    let mut signs: Vec<(usize, Token)> = { sides.into_iter() }
        .flat_map(|(begin, end)| [(begin, Token::LParen), (end, Token::RParen)])
        .collect();
    signs.sort_by_key(|(at, _)| *at);
    let mut signs = signs.into_iter().peekable();
    let given = std::mem::take(tokens);
    for (at, token) in given.into_iter().enumerate() {
        while let Some((_, sign)) = signs.next_if(|(place, _)| *place == at) {
            let span = token.span;
            tokens.push(TokenWithSpan { token: sign, span });
        }
        tokens.push(token);
    }
}

/// A join whose ON is still to come.
struct OpenJoin {
    /// The place behind its last word.
    right: usize,
    /// Whether there are others in its right side.
    has_joins: bool,
}

/// The places where the right sides begin and end that are joins.
fn sides(dialect: Dialect, tokens: &[TokenWithSpan]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    // For each open parenthesis, and for what is in none.
    let mut open: Vec<Vec<OpenJoin>> = vec![Vec::new()];
    let mut before: [Option<&Token>; 3] = [None; 3];
    for (at, token) in tokens.iter().enumerate() {
        let token = &token.token;
        if matches!(token, Token::Whitespace(_)) {
            continue;
        }
        let last = before[0].and_then(keyword);
        let word = match before[0] {
            // The name of a column may be a word behind a point.
            Some(Token::Period) => None,
            _ => keyword(token),
        };
        if let Some(joins) = open.last_mut() {
            match (token, word) {
                // An index hint.
                (_, Some(Keyword::JOIN)) if last == Some(Keyword::FOR) => {}
                (_, Some(Keyword::FROM)) if last == Some(Keyword::DISTINCT) => {}
                (_, Some(Keyword::JOIN | Keyword::STRAIGHT_JOIN)) => {
                    if let Some(outer) = joins.last_mut() {
                        outer.has_joins = true;
                    }
                    if takes_condition(dialect, before) {
                        joins.push(OpenJoin {
                            right: at + 1,
                            has_joins: false,
                        });
                    }
                }
                (_, Some(Keyword::ON | Keyword::USING)) => {
                    if let Some(join) = joins.pop().filter(|join| join.has_joins) {
                        found.push((join.right, at));
                    }
                }
                (_, Some(word)) if ends_joins(word) => joins.clear(),
                (Token::Comma, _) => joins.clear(),
                _ => {}
            }
        }
        match token {
            Token::LParen => open.push(Vec::new()),
            Token::RParen if open.len() > 1 => drop(open.pop()),
            Token::SemiColon => open = vec![Vec::new()],
            _ => {}
        }
        before = [Some(token), before[0], before[1]];
    }
    found
}

fn keyword(token: &Token) -> Option<Keyword> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

/// Whether a join has an ON or a USING, by the words before its last one, the nearest first.
fn takes_condition(dialect: Dialect, before: [Option<&Token>; 3]) -> bool {
    let words = before.into_iter().map(|token| token.and_then(keyword));
    !words.take_while(|word| is_of_join(*word)).any(|word| {
        let is_cross = word == Some(Keyword::CROSS) && dialect == Dialect::Adql;
        word == Some(Keyword::NATURAL) || is_cross
    })
}

fn is_of_join(word: Option<Keyword>) -> bool {
    matches!(
        word,
        Some(
            Keyword::CROSS
                | Keyword::FULL
                | Keyword::INNER
                | Keyword::LEFT
                | Keyword::NATURAL
                | Keyword::OUTER
                | Keyword::RIGHT
        )
    )
}

/// Whether a word begins what stands behind the tables of a FROM, or another query.
fn ends_joins(word: Keyword) -> bool {
    matches!(
        word,
        Keyword::SELECT
            | Keyword::FROM
            | Keyword::WHERE
            | Keyword::GROUP
            | Keyword::HAVING
            | Keyword::WINDOW
            | Keyword::ORDER
            | Keyword::LIMIT
            | Keyword::OFFSET
            | Keyword::UNION
            | Keyword::EXCEPT
            | Keyword::INTERSECT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(dialect: Dialect, sql: &str) -> String {
        let tokens = dialect.tokenizer(sql).tokenize_with_location();
        let mut tokens = tokens.unwrap();
        write_parentheses(dialect, &mut tokens);
        let texts = tokens.iter().map(|it| it.token.to_string());
        let text: Vec<String> = texts.filter(|it| !it.trim().is_empty()).collect();
        text.join(" ")
    }

    #[test]
    fn each_on_is_that_of_the_nearest_join_without() {
        for (typed, expected) in [
            (
                "a LEFT JOIN b JOIN c ON p ON q",
                "a LEFT JOIN ( b JOIN c ON p ) ON q",
            ),
            (
                "a JOIN b AS x LEFT OUTER JOIN c USING (u, v) ON q WHERE x IN (1, 2)",
                "a JOIN ( b AS x LEFT OUTER JOIN c USING ( u , v ) ) ON q WHERE x IN ( 1 , 2 )",
            ),
            (
                "a LEFT JOIN b LEFT JOIN c RIGHT JOIN d ON p ON q ON r",
                "a LEFT JOIN ( b LEFT JOIN ( c RIGHT JOIN d ON p ) ON q ) ON r",
            ),
            (
                "a LEFT JOIN b JOIN c ON p JOIN d ON q ON r JOIN e ON s",
                "a LEFT JOIN ( b JOIN c ON p JOIN d ON q ) ON r JOIN e ON s",
            ),
            (
                "a JOIN b NATURAL LEFT JOIN c ON p",
                "a JOIN ( b NATURAL LEFT JOIN c ) ON p",
            ),
            // The first one is a cross join.
            (
                "a JOIN b LEFT JOIN c JOIN d ON p ON q",
                "a JOIN b LEFT JOIN ( c JOIN d ON p ) ON q",
            ),
            (
                "(SELECT 1 FROM a JOIN b JOIN c ON p ON q) x JOIN d ON r, e",
                "( SELECT 1 FROM a JOIN ( b JOIN c ON p ) ON q ) x JOIN d ON r , e",
            ),
        ] {
            let [typed, expected] = [typed, expected].map(|it| format!("SELECT 1 FROM {it}"));
            assert_eq!(written(Dialect::MySql, &typed), expected, "{typed}");
        }
    }

    #[test]
    fn other_joins_stay() {
        for sql in [
            "SELECT 1 FROM a JOIN b JOIN c ON p",
            "SELECT 1 FROM a JOIN b ON p JOIN c ON q LEFT JOIN d USING ( x )",
            "SELECT 1 FROM a NATURAL JOIN b JOIN c ON p",
            "SELECT 1 FROM a STRAIGHT_JOIN b , c JOIN d ON p",
            "SELECT 1 FROM a JOIN b ON p IN ( SELECT 1 FROM c JOIN d ON q ) JOIN e ON r",
            "SELECT 1 FROM a JOIN b UNION SELECT 1 FROM c JOIN d ON p",
            "SELECT `on` FROM a JOIN b JOIN `join` ON `using` = `on`",
            "SELECT 1 FROM a JOIN b USE INDEX FOR JOIN ( i ) ON p",
            "SELECT STRAIGHT_JOIN 1 FROM a JOIN b ON p",
            "SELECT CONVERT ( a USING utf8mb4 ) FROM a JOIN b JOIN c ON p",
        ] {
            assert_eq!(written(Dialect::MySql, sql), sql);
        }
    }

    #[test]
    fn a_cross_join_takes_a_condition_in_mysql_alone() {
        let sql = "SELECT 1 FROM a JOIN b CROSS JOIN c ON p";
        assert_eq!(written(Dialect::MySql, sql), sql);
        assert_eq!(
            written(Dialect::Adql, sql),
            "SELECT 1 FROM a JOIN ( b CROSS JOIN c ) ON p"
        );
    }
}
