//! Identifiers without regard to case.
//!
//! Inside Meridian every database, table, column and function is known by its lower-case name. Folding the text once,
//! before it is parsed, makes every later name look-up a plain comparison, and because a letter is changed only into one of as
//! many bytes, every byte keeps its place: a position in the folded text is a position in the text as it was typed.

use datafusion::sql::sqlparser::tokenizer::{Location, Token};

use crate::mistakes::unclosed;
use crate::{Dialect, ErrorCode, SqlError, limits};

/// A name as it is compared: each letter in lower case, where that is one letter of as many bytes. It is `catalog::fold_name`,
/// which this crate does not know; `engine/tests/folded_names.rs` holds the two together.
pub fn fold_word(word: &str) -> String {
    let folded = |character: char| {
        let mut lower = character.to_lowercase();
        match (lower.next(), lower.next()) {
            (Some(one), None) if one.len_utf8() == character.len_utf8() => one,
            _ => character,
        }
    };
    word.chars().map(folded).collect()
}

/// Lower-cases the letters of every word and quoted identifier of `sql`; string literals and comments stay.
///
/// The result has the same length in bytes as the input.
pub fn fold_case(dialect: Dialect, sql: &str) -> Result<String, SqlError> {
    let tokens = dialect
        .tokenizer(sql)
        .tokenize_with_location()
        .map_err(|error| {
            SqlError::at(sql, error.location, unclosed(&error.message)).with_code(ErrorCode::SYNTAX)
        })?;
    limits::check_words(sql, &tokens)?;
    let places = Places::new(sql);
    let mut folded = sql.to_owned().into_bytes();
    for token in &tokens {
        if matches!(token.token, Token::Word(_)) {
            let range = places.byte(token.span.start)..places.byte(token.span.end);
            let word = fold_word(&sql[range.clone()]);
            folded[range].copy_from_slice(word.as_bytes());
        }
    }
    // Whole characters became others of as many bytes.
    Ok(String::from_utf8(folded).unwrap_or_else(|_| sql.to_owned()))
}

/// Turns the tokenizer's line and column (both from 1, columns in characters) into byte positions.
pub(crate) struct Places<'a> {
    sql: &'a str,
    line_starts: Vec<usize>,
    /// Where each character begins, if some are longer than a byte.
    characters: Option<Vec<usize>>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(sql: &'a str) -> Self {
        let line_starts = std::iter::once(0)
            .chain(sql.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        let starts = || sql.char_indices().map(|(at, _)| at).collect();
        Self {
            sql,
            line_starts,
            characters: (!sql.is_ascii()).then(starts),
        }
    }

    /// The byte at which `location` begins; the end of the text where it lies beyond.
    pub(crate) fn byte(&self, location: Location) -> usize {
        let line = (location.line as usize).saturating_sub(1);
        let Some(&start) = self.line_starts.get(line) else {
            return self.sql.len();
        };
        let column = (location.column as usize).saturating_sub(1);
        let byte = match &self.characters {
            None => Some(start + column),
            Some(starts) => {
                let first = starts.partition_point(|at| *at < start);
                starts.get(first + column).copied()
            }
        };
        byte.unwrap_or(self.sql.len()).min(self.sql.len())
    }

    /// Line and column (from 1, in characters) of a byte position.
    pub(crate) fn location(&self, byte: usize) -> Location {
        let line = self.line_starts.partition_point(|&start| start <= byte) - 1;
        let start = self.line_starts[line];
        let column = self.sql[start..byte.min(self.sql.len())].chars().count();
        Location {
            line: line as u64 + 1,
            column: column as u64 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fold_and_literals_stay() {
        let typed = "SELECT \"RA_PS\", Decl_PS, 'Ünï QUOTED' -- Stay\nFROM Object O /* Too */ WHERE É = N'X' AND GRÖßE > 1 AND ẞ = 2";
        let folded = fold_case(Dialect::Adql, typed).unwrap();
        assert_eq!(
            folded,
            "select \"ra_ps\", decl_ps, 'Ünï QUOTED' -- Stay\nfrom object o /* Too */ where é = N'X' and größe > 1 and ẞ = 2"
        );
        assert_eq!(folded.len(), typed.len());
    }

    #[test]
    fn an_open_string_is_an_error_with_its_place() {
        let error = fold_case(Dialect::MySql, "SELECT 1,\n 'abc")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
