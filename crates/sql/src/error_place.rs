//! Where in a statement a mistake is, as its message shows it.

use std::fmt;

use datafusion::sql::sqlparser::tokenizer::Location;

use crate::adql::as_typed;
use crate::fold::Places;

/// Characters of a line that are shown.
const SHOWN: usize = 120;

/// A place in a statement as it was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorPlace {
    /// Where it is in the statement that was executed.
    byte: usize,
    line: u64,
    column: u64,
    /// The line, or what of a very long one is around the place.
    text: String,
    /// What of that is before the place, in characters.
    before: usize,
    /// Characters to point at.
    width: usize,
}

impl ErrorPlace {
    /// A byte of a statement, in which other texts may stand for what was typed (see [`as_typed`]).
    pub fn new(sql: &str, byte: usize, width: usize) -> Self {
        let given = byte;
        let (sql, byte) = as_typed(sql, byte);
        let Location { line, column } = Places::new(&sql).location(byte);
        let text = sql.lines().nth(line as usize - 1).unwrap_or("");
        let before = column as usize - 1;
        let from = match text.chars().count() <= SHOWN {
            true => 0,
            false => before.saturating_sub(SHOWN / 2),
        };
        Self {
            byte: given,
            line,
            column,
            text: text.chars().skip(from).take(SHOWN).collect(),
            before: before - from,
            width,
        }
    }

    /// The byte of the statement that was executed.
    pub fn byte(&self) -> usize {
        self.byte
    }

    /// The characters that it points at.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The same place, pointing at the whole word that begins there.
    pub fn of_word(self) -> Self {
        let rest = self.text.chars().skip(self.before);
        let width = rest.take_while(|c| c.is_alphanumeric() || *c == '_');
        Self {
            width: width.count(),
            ..self
        }
    }

    /// `sentence` with the place, the line and a caret below.
    pub fn write(&self, sentence: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, .. } = self;
        writeln!(f, "{sentence} (line {line}, column {column})")?;
        writeln!(f, "  {}", self.text)?;
        let (indent, carets) = (" ".repeat(self.before), "^".repeat(self.width.max(1)));
        write!(f, "  {indent}{carets}")
    }
}
