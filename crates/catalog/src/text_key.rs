//! Keys of rows that are told apart by a text, such as the names of 2MASS: a column of numbers beside the texts.
//!
//! Rows are found and placed by 64-bit integers. A table whose key is a text has one column more, the number of the text in each row, and that column is the
//! key. Equal texts have equal numbers in all tables, so that rows with the same text are where rows with the same key are. Two texts with one
//! number are rare (among a billion, one pair with a probability of 3 %), and no condition on texts rests on their having different ones.

use xxhash_rust::xxh3::xxh3_64;

use crate::{Column, ColumnType};

/// A declaration of such a column, around the name of the texts' column. It is stored: it never changes.
const BEFORE: &str = "bigint GENERATED ALWAYS AS (text_key(`";
const BEHIND: &str = "`)) STORED";

/// The number of a text: XXH3 (64 bits) of its bytes in UTF-8, as a signed integer. It is stored: it never changes.
pub fn text_key(text: &str) -> i64 {
    xxh3_64(text.as_bytes()).cast_signed()
}

impl Column {
    /// A column of the numbers of the texts in another one.
    pub fn of_text_keys(name: String, texts: &str) -> Self {
        let texts = texts.replace('`', "``");
        Self {
            name,
            ty: ColumnType::Int64,
            nullable: true,
            declared: Some(format!("{BEFORE}{texts}{BEHIND}")),
        }
    }

    /// The name of the column whose texts' numbers it has; `None` of others.
    pub fn text_key_of(&self) -> Option<String> {
        let declared = self.declared.as_deref()?;
        let texts = declared.strip_prefix(BEFORE)?.strip_suffix(BEHIND)?;
        (self.ty == ColumnType::Int64).then(|| texts.replace("``", "`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_says_whose_texts_numbers_it_has() {
        for name in ["designation", "2MASS", "a`b", "``", "x`)) STORED"] {
            let column = Column::of_text_keys("k".to_owned(), name);
            assert_eq!(column.text_key_of().as_deref(), Some(name));
            assert_eq!(column.default_expression(), None);
        }
        for declared in [None, Some("bigint"), Some("bigint DEFAULT 7")] {
            let column = Column {
                name: "k".to_owned(),
                ty: ColumnType::Int64,
                nullable: true,
                declared: declared.map(str::to_owned),
            };
            assert_eq!(column.text_key_of(), None);
        }
    }

    /// The values are in files: other ones would lose rows. Those of the empty text and of `a` are in the tests of the reference implementation.
    #[test]
    fn numbers_are_what_they_were() {
        assert_eq!(text_key("").cast_unsigned(), 0x2d06_8005_38d3_94c2);
        assert_eq!(text_key("a").cast_unsigned(), 0xe6c6_32b6_1e96_4e1f);
        assert_ne!(text_key("a"), text_key("a "));
        assert_ne!(text_key("a"), text_key("A"));
    }
}
