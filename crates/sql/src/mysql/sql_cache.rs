//! `SQL_CACHE` behind SELECT, which MariaDB reads and the grammar does not: a result is stored anyway where it can be, so the word is
//! left out of the text.

use std::borrow::Cow;

use super::pieces::{Kind, stretches};

const SQL_CACHE: &str = "sql_cache";

/// Words that may stand between SELECT and `SQL_CACHE`.
const BEFORE: [&str; 9] = [
    "select",
    "all",
    "distinct",
    "distinctrow",
    "high_priority",
    "straight_join",
    "sql_small_result",
    "sql_big_result",
    "sql_buffer_result",
];

/// Words behind a column of that name, rather than behind the modifier.
const BEHIND_A_COLUMN: [&str; 28] = [
    "as",
    "from",
    "into",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "union",
    "except",
    "intersect",
    "window",
    "for",
    "is",
    "in",
    "like",
    "rlike",
    "regexp",
    "between",
    "and",
    "or",
    "xor",
    "div",
    "mod",
    "collate",
    "not",
    "procedure",
    "partition",
];

/// A text in which spaces stand for each `SQL_CACHE` that is a modifier. Every byte keeps its place.
pub(super) fn without_sql_cache(text: Cow<'_, str>) -> Cow<'_, str> {
    let is_here = |at: &[u8]| at.eq_ignore_ascii_case(SQL_CACHE.as_bytes());
    if !text.as_bytes().windows(SQL_CACHE.len()).any(is_here) {
        return text;
    }
    let words = words(&text);
    let modifiers = words.windows(3).filter(|three| {
        let [before, word, behind] = three else {
            return false;
        };
        let lower = |word: &Word| text[word.at.clone()].to_ascii_lowercase();
        word.is_plain
            && lower(word) == SQL_CACHE
            && before.is_plain
            && BEFORE.contains(&lower(before).as_str())
            && begins_an_item(&text, behind)
    });
    let places: Vec<_> = modifiers.map(|three| three[1].at.clone()).collect();
    let mut bytes = text.as_bytes().to_owned();
    for place in places {
        bytes[place].fill(b' ');
    }
    // Letters of one byte each became spaces.
    String::from_utf8(bytes).map_or(text, Cow::Owned)
}

/// A word, a sign or something quoted.
struct Word {
    at: std::ops::Range<usize>,
    is_plain: bool,
}

fn begins_an_item(text: &str, word: &Word) -> bool {
    let written = &text[word.at.clone()];
    let first = written.chars().next().unwrap_or_default();
    if !word.is_plain || first == '(' || first == '*' && !is_product(text, word) {
        return true;
    }
    let is_word = first.is_alphanumeric() || matches!(first, '_' | '@' | '$');
    is_word && !BEHIND_A_COLUMN.contains(&written.to_ascii_lowercase().as_str())
}

/// Whether a star multiplies: something to multiply with is behind it.
fn is_product(text: &str, star: &Word) -> bool {
    let behind = text[star.at.end..].trim_start();
    let word: String = behind
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    let ends = ["", "from", "into", "limit", "where", "order", "union"];
    !ends.contains(&word.to_ascii_lowercase().as_str()) || behind.starts_with(['(', '\'', '`', '@'])
}

fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    for (kind, at) in stretches(text) {
        match kind {
            Kind::Comment => {}
            Kind::Quoted => words.push(Word {
                at,
                is_plain: false,
            }),
            Kind::Plain => {
                let mut from = at.start;
                while let Some(first) = text[from..at.end].chars().next() {
                    let in_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '@');
                    let length = match in_word(first) {
                        true => text[from..at.end]
                            .find(|c| !in_word(c))
                            .unwrap_or(at.end - from),
                        false => first.len_utf8(),
                    };
                    if !first.is_whitespace() {
                        words.push(Word {
                            at: from..from + length,
                            is_plain: true,
                        });
                    }
                    from += length;
                }
            }
        }
    }
    words
}
