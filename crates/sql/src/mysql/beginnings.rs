//! Beginnings of statements, and a few words within them, that MySQL has and the parser lacks, in the words that it knows.
//!
//! ```text
//!   TABLE t ...                              SELECT * FROM t ...
//!   DESCRIBE SELECT ...                      EXPLAIN SELECT ...
//!   EXPLAIN FORMAT = TRADITIONAL SELECT ...  EXPLAIN SELECT ...
//!   EXPLAIN FORMAT = TREE SELECT ...         EXPLAIN FORMAT TREE SELECT ...
//!   EXPLAIN FORMAT = JSON SELECT ...         EXPLAIN FORMAT PGJSON SELECT ...
//!   EXPLAIN ANALYZE FORMAT = TREE SELECT ... EXPLAIN ANALYZE SELECT ...
//!   ... LOCK IN SHARE MODE                   ... FOR SHARE
//!   ... INTERVAL '1:30' HOUR_MINUTE          ... INTERVAL '1:30' HOUR TO MINUTE
//!   ... LEFT JOIN (b, c)                     ... LEFT JOIN (b CROSS JOIN c)
//! ```

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::{compound_units, table_lists};

/// Words that stand between EXPLAIN and a statement, and what is explained without any.
const EXPLAINED: [&str; 4] = ["select", "with", "values", "table"];
/// Words of older versions, which change nothing any more.
const OBSOLETE: [&str; 2] = ["extended", "partitions"];

/// The tokens of a text as the parser reads them.
pub(crate) fn known_beginnings(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut at = 0;
    while let Some(begin) = visible_from(&tokens, at) {
        explain(&mut tokens, begin);
        select_all(&mut tokens, begin);
        let rest = tokens[begin..].iter();
        let length = rest.take_while(|it| it.token != Token::SemiColon).count();
        at = begin + length + 1;
    }
    share_locks(&mut tokens);
    compound_units::write_with_to(&mut tokens);
    table_lists::write_as_joins(&mut tokens);
    tokens
}

/// `LOCK IN SHARE MODE`, as MySQL wrote FOR SHARE before version 8.
fn share_locks(tokens: &mut Vec<TokenWithSpan>) {
    let mut from = 0;
    while let Some(lock) = (from..tokens.len()).find(|at| is_word(tokens, *at, "lock")) {
        from = lock + 1;
        let Some([within, share, mode]) = next_three(tokens, lock) else {
            continue;
        };
        if is_word(tokens, within, "in")
            && is_word(tokens, share, "share")
            && is_word(tokens, mode, "mode")
        {
            tokens[lock].token = Token::make_keyword("FOR");
            tokens.remove(mode);
            tokens.remove(within);
        }
    }
}

/// The places of the three tokens behind one, but for space between them.
fn next_three(tokens: &[TokenWithSpan], at: usize) -> Option<[usize; 3]> {
    let first = visible_from(tokens, at + 1)?;
    let second = visible_from(tokens, first + 1)?;
    let third = visible_from(tokens, second + 1)?;
    Some([first, second, third])
}

/// `TABLE t`, also behind what explains it.
fn select_all(tokens: &mut Vec<TokenWithSpan>, begin: usize) {
    let mut at = begin;
    while ["explain", "analyze"]
        .iter()
        .any(|it| is_word(tokens, at, it))
    {
        match visible_from(tokens, at + 1) {
            Some(next) => at = next,
            None => return,
        }
    }
    let name = visible_from(tokens, at + 1);
    let is_named = name.is_some_and(|name| matches!(tokens[name].token, Token::Word(_)));
    if !is_word(tokens, at, "table") || !is_named {
        return;
    }
    let span = tokens[at].span;
    let words = [
        Token::make_keyword("SELECT"),
        Token::Mul,
        Token::make_keyword("FROM"),
    ];
    let words = words.map(|token| TokenWithSpan { token, span });
    tokens.splice(at..=at, words);
}

/// The words of EXPLAIN, if a statement begins with it or a synonym.
fn explain(tokens: &mut Vec<TokenWithSpan>, begin: usize) {
    let is_synonym = is_word(tokens, begin, "desc") || is_word(tokens, begin, "describe");
    if !is_synonym && !is_word(tokens, begin, "explain") {
        return;
    }
    if is_synonym && !is_statement(tokens, begin + 1) {
        // What follows is a table's name.
        return;
    }
    tokens[begin].token = Token::make_keyword("EXPLAIN");
    let mut is_analyzed = false;
    let mut at = begin + 1;
    while let Some(next) = visible_from(tokens, at) {
        at = next + 1;
        if is_word(tokens, next, "analyze") {
            is_analyzed = true;
        } else if let Some([equal, name]) = format_at(tokens, next) {
            let is_default = match is_analyzed {
                true => is_word(tokens, name, "tree"),
                false => is_word(tokens, name, "traditional"),
            };
            if is_default {
                tokens.drain(next..=name);
                return;
            }
            if is_word(tokens, name, "json") {
                tokens[name].token = Token::make_word("pgjson", None);
            }
            tokens.remove(equal);
            return;
        } else if OBSOLETE.iter().any(|it| is_word(tokens, next, it)) && is_statement(tokens, at) {
            tokens.remove(next);
            at = next;
        } else {
            return;
        }
    }
}

/// Whether what follows is a statement with the words that belong to EXPLAIN, and no table's name.
fn is_statement(tokens: &[TokenWithSpan], from: usize) -> bool {
    let Some(first) = visible_from(tokens, from) else {
        return false;
    };
    let is_behind =
        || visible_from(tokens, first + 1).is_some_and(|it| tokens[it].token != Token::SemiColon);
    let is_word = |word: &&str| is_word(tokens, first, word);
    tokens[first].token == Token::LParen
        || format_at(tokens, first).is_some()
        || EXPLAINED.iter().any(is_word)
        || (is_behind() && (is_word(&"analyze") || OBSOLETE.iter().any(is_word)))
}

/// Where `=` and the name stand, if `FORMAT = name` begins at a token.
fn format_at(tokens: &[TokenWithSpan], at: usize) -> Option<[usize; 2]> {
    let equal = visible_from(tokens, at + 1)?;
    let name = visible_from(tokens, equal + 1)?;
    let is_format = is_word(tokens, at, "format") && tokens[equal].token == Token::Eq;
    (is_format && matches!(tokens[name].token, Token::Word(_))).then_some([equal, name])
}

fn visible_from(tokens: &[TokenWithSpan], from: usize) -> Option<usize> {
    let rest = tokens.get(from..)?.iter();
    let skipped = rest
        .take_while(|it| matches!(it.token, Token::Whitespace(_)))
        .count();
    (from + skipped < tokens.len()).then_some(from + skipped)
}

fn is_word(tokens: &[TokenWithSpan], at: usize, word: &str) -> bool {
    matches!(
        tokens.get(at).map(|it| &it.token),
        Some(Token::Word(it)) if it.quote_style.is_none() && it.value.eq_ignore_ascii_case(word)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn known(sql: &str) -> String {
        let tokens = Dialect::MySql.tokenizer(sql).tokenize_with_location();
        let tokens = known_beginnings(tokens.unwrap());
        let texts = tokens.iter().map(|it| it.token.to_string());
        let text: Vec<String> = texts.filter(|it| !it.trim().is_empty()).collect();
        text.join(" ")
    }

    #[test]
    fn a_table_is_all_that_is_selected_from_it() {
        assert_eq!(known("TABLE t LIMIT 3"), "SELECT * FROM t LIMIT 3");
        assert_eq!(
            known("SELECT 1; table `a`.b"),
            "SELECT 1 ; SELECT * FROM `a` . b"
        );
        assert_eq!(known("EXPLAIN TABLE t"), "EXPLAIN SELECT * FROM t");
        for other in [
            "CREATE TABLE t ( a INT )",
            "TABLE",
            "TABLE ( t )",
            "SHOW TABLE STATUS",
            "`TABLE` t",
        ] {
            assert_eq!(known(other), other);
        }
    }

    /// Drivers of older versions read so what they are going to change.
    #[test]
    fn share_locks_have_the_words_of_the_parser() {
        assert_eq!(
            known("SELECT a FROM t lock in  share mode; SELECT 2"),
            "SELECT a FROM t FOR share ; SELECT 2"
        );
        for other in ["SELECT `lock` IN ( 1 )", "SELECT lock IN share", "LOCK"] {
            assert_eq!(known(other), other);
        }
    }

    #[test]
    fn explain_has_the_words_of_the_parser() {
        for (typed, wanted) in [
            ("explain format=traditional SELECT 1", "EXPLAIN SELECT 1"),
            (
                "EXPLAIN FORMAT = TREE SELECT 1",
                "EXPLAIN FORMAT TREE SELECT 1",
            ),
            (
                "DESC FORMAT=json SELECT 1",
                "EXPLAIN FORMAT pgjson SELECT 1",
            ),
            (
                "EXPLAIN ANALYZE FORMAT=TREE SELECT 1",
                "EXPLAIN ANALYZE SELECT 1",
            ),
            (
                "DESCRIBE SELECT 1; desc extended select 1",
                "EXPLAIN SELECT 1 ; EXPLAIN select 1",
            ),
            ("DESC (SELECT 1)", "EXPLAIN ( SELECT 1 )"),
            ("DESCRIBE TABLE t", "EXPLAIN SELECT * FROM t"),
            (
                "EXPLAIN FORMAT TREE SELECT 1",
                "EXPLAIN FORMAT TREE SELECT 1",
            ),
        ] {
            assert_eq!(known(typed), wanted);
        }
        // Tables of these names.
        for other in [
            "DESC t",
            "DESC format",
            "DESCRIBE analyze",
            "DESC extended ;",
            "EXPLAIN partitions",
            "DESC `select` a",
        ] {
            assert_eq!(known(other), other);
        }
    }
}
