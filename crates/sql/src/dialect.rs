//! Which language a statement is written in.

use std::fmt;
use std::str::FromStr;

use datafusion::sql::sqlparser::dialect::Dialect as Grammar;
use datafusion::sql::sqlparser::tokenizer::Tokenizer;

use crate::adql::AdqlGrammar;
use crate::mysql::MySqlGrammar;

/// A language that statements may be written in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// MySQL's: what Qserv's users write. Double quotes are for text.
    #[default]
    MySql,
    /// The Virtual Observatory's. Double quotes are for names.
    Adql,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::MySql, Self::Adql];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::MySql => "mysql",
            Self::Adql => "adql",
        }
    }

    /// What its texts are read by.
    pub(crate) fn grammar(self) -> &'static dyn Grammar {
        match self {
            Self::MySql => &MySqlGrammar,
            Self::Adql => &AdqlGrammar,
        }
    }

    pub(crate) fn tokenizer(self, text: &str) -> Tokenizer<'_> {
        Tokenizer::new(self.grammar(), text)
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|dialect| dialect.name() == text);
        known.ok_or_else(|| format!("there is no dialect {text}; dialects here: mysql, adql"))
    }
}
