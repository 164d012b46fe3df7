//! The words that the grammar knows, as `information_schema.KEYWORDS` lists them for clients that put the others in no quotes.

use datafusion::sql::sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, Keyword, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_IDENTIFIER,
    RESERVED_FOR_TABLE_ALIAS,
};

/// Each word in upper case, and whether a name that is written so has to stand in quotes.
pub fn keywords() -> impl Iterator<Item = (&'static str, bool)> {
    let words = ALL_KEYWORDS.iter().zip(ALL_KEYWORDS_INDEX);
    words.map(|(word, keyword)| (*word, is_reserved(keyword)))
}

fn is_reserved(keyword: &Keyword) -> bool {
    let lists = [
        RESERVED_FOR_COLUMN_ALIAS,
        RESERVED_FOR_TABLE_ALIAS,
        RESERVED_FOR_IDENTIFIER,
    ];
    lists.iter().any(|list| list.contains(keyword))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_statements_are_reserved() {
        let found = |wanted| keywords().find(|(word, _)| *word == wanted);
        assert_eq!(found("FROM"), Some(("FROM", true)));
        assert_eq!(found("WHERE"), Some(("WHERE", true)));
        assert_eq!(found("COMMENT"), Some(("COMMENT", false)));
        assert_eq!(found("QUASAR"), None);
    }
}
