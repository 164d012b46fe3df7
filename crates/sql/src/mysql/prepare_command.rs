//! Statements that prepare others: PREPARE, EXECUTE and DEALLOCATE PREPARE.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::{Command, TokenReader};
use crate::SqlError;

/// A statement about a prepared statement that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PrepareCommand {
    /// `PREPARE name FROM 'text'`.
    Prepare {
        /// The name that it gets.
        name: String,
        /// Its text.
        text: PreparedText,
    },
    /// `EXECUTE name [USING @a, @b]`.
    Execute {
        /// Its name.
        name: String,
        /// The variables, without `@`, whose values its placeholders get.
        variables: Vec<String>,
    },
    /// `DEALLOCATE PREPARE name`, or `DROP PREPARE name`: its name.
    Deallocate(String),
}

/// Where the text of a statement is that is to be prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreparedText {
    /// Here.
    Literal(String),
    /// In the variable of this name, without `@`.
    Variable(String),
}

impl TokenReader<'_> {
    /// The rest of a PREPARE.
    pub(super) fn read_prepare(&mut self) -> Result<Command, SqlError> {
        let name = self.name_of_prepared()?;
        if !self.word("from") {
            return Err(self.expected("FROM"));
        }
        let text = match self.user_variable() {
            Some(variable) => PreparedText::Variable(variable),
            None => PreparedText::Literal(self.text_literal()?),
        };
        self.end()?;
        Ok(Command::Prepare(PrepareCommand::Prepare { name, text }))
    }

    /// The rest of an EXECUTE.
    pub(super) fn read_execute(&mut self) -> Result<Command, SqlError> {
        let name = self.name_of_prepared()?;
        let mut variables = Vec::new();
        if self.word("using") {
            loop {
                let variable = self.user_variable();
                variables.push(variable.ok_or_else(|| self.expected("a variable such as @a"))?);
                if !self.sign(&Token::Comma) {
                    break;
                }
            }
        }
        self.end()?;
        Ok(Command::Prepare(PrepareCommand::Execute {
            name,
            variables,
        }))
    }

    /// The rest of a DEALLOCATE PREPARE, after its second word.
    pub(super) fn read_deallocate(&mut self) -> Result<Command, SqlError> {
        let name = self.name_of_prepared()?;
        self.end()?;
        Ok(Command::Prepare(PrepareCommand::Deallocate(name)))
    }

    fn name_of_prepared(&mut self) -> Result<String, SqlError> {
        match self.peek() {
            Some(Token::Word(word)) if !word.value.starts_with('@') => {
                self.name("the name of a prepared statement")
            }
            _ => Err(self.expected("the name of a prepared statement")),
        }
    }

    /// A text, which may be written in pieces.
    fn text_literal(&mut self) -> Result<String, SqlError> {
        let mut text: Option<String> = None;
        while let Some(Token::SingleQuotedString(piece) | Token::DoubleQuotedString(piece)) =
            self.peek()
        {
            text.get_or_insert_default().push_str(piece);
            self.at += 1;
        }
        text.ok_or_else(|| {
            self.expected("a statement in quotes, or a variable such as @a that has one,")
        })
    }
}
