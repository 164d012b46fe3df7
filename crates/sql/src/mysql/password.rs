//! Passwords in statements about users: how they are read, and how a statement is shown without them.

use std::borrow::Cow;

use datafusion::sql::sqlparser::tokenizer::Token;

use super::command::TokenReader;
use super::pieces::first_word;
use crate::fold::Places;
use crate::{ErrorCode, SqlError};

/// A password that a statement sets. It cannot be formatted, so that no log has it.
#[derive(Clone, PartialEq, Eq)]
pub struct NewPassword {
    /// The password.
    pub text: String,
    /// The plugin for which it is set, where the statement names one.
    pub plugin: Option<PasswordPlugin>,
}

/// The plugins by which MySQL's clients prove that they know a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordPlugin {
    /// `caching_sha2_password`.
    CachingSha2,
    /// `mysql_native_password`.
    Native,
}

impl NewPassword {
    pub(super) fn of(text: String) -> Self {
        Self { text, plugin: None }
    }
}

impl TokenReader<'_> {
    /// `IDENTIFIED [WITH plugin] BY 'password'`, if that is next.
    pub(super) fn identified(&mut self) -> Result<Option<NewPassword>, SqlError> {
        if !self.word("identified") {
            return Ok(None);
        }
        let plugin = match self.word("with") {
            true => Some(self.plugin()?),
            false => None,
        };
        if plugin.is_some() && self.word("as") {
            let sentence =
                "a password is given as it is, not as its hash: write IDENTIFIED WITH plugin BY";
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        if !self.word("by") {
            return Err(self.expected("BY"));
        }
        let text = self.password()?;
        Ok(Some(NewPassword { text, plugin }))
    }

    fn plugin(&mut self) -> Result<PasswordPlugin, SqlError> {
        let name = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)) => text.clone(),
            Some(Token::Word(word)) => word.value.clone(),
            _ => return Err(self.expected("the name of a plugin")),
        };
        self.at += 1;
        match name.to_ascii_lowercase().as_str() {
            "caching_sha2_password" => Ok(PasswordPlugin::CachingSha2),
            "mysql_native_password" => Ok(PasswordPlugin::Native),
            _ => {
                let sentence = format!(
                    "Plugin '{name}' is not loaded: there are caching_sha2_password and mysql_native_password"
                );
                Err(SqlError::new(sentence).with_code(ErrorCode::PLUGIN_NOT_LOADED))
            }
        }
    }

    pub(super) fn password(&mut self) -> Result<String, SqlError> {
        let password = match self.peek() {
            Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)) => text.clone(),
            _ => return Err(self.expected("a password in quotes")),
        };
        self.at += 1;
        Ok(password)
    }
}

/// A statement as lists and logs show it: without passwords.
pub fn without_passwords(text: &str) -> Cow<'_, str> {
    const HIDDEN: &str = "'<secret>'";
    let first = first_word(text).to_ascii_lowercase();
    if !["create", "alter", "set", "grant", "prepare"].contains(&first.as_str()) {
        return Cow::Borrowed(text);
    }
    let lower = text.to_ascii_lowercase();
    if !lower.contains("identified") && !lower.contains("password") {
        return Cow::Borrowed(text);
    }
    let Ok(reader) = TokenReader::of(text) else {
        return Cow::Owned(format!("{first} ..."));
    };
    let places = Places::new(text);
    let (mut shown, mut from) = (String::new(), 0);
    let mut is_next = false;
    for token in &reader.tokens {
        match &token.token {
            Token::SingleQuotedString(_) | Token::DoubleQuotedString(_) if is_next => {
                shown.push_str(&text[from..places.byte(token.span.start)]);
                shown.push_str(HIDDEN);
                // What is written in pieces is hidden in all of them.
                from = places.byte(token.span.end);
            }
            Token::Word(word) => {
                // The text of a statement that is prepared is hidden whole.
                is_next = ["by", "as", "password", "from"]
                    .iter()
                    .any(|it| word.value.eq_ignore_ascii_case(it));
            }
            Token::Eq | Token::Assignment | Token::LParen => is_next = true,
            _ => is_next = false,
        }
    }
    shown.push_str(&text[from..]);
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::super::command::command;
    use super::super::{Command, UserStatement};
    use super::*;

    #[test]
    fn plugins_are_named_as_words_or_in_quotes() {
        for (text, wanted) in [
            ("ALTER USER ann IDENTIFIED BY 'x'", None),
            (
                "ALTER USER ann IDENTIFIED WITH mysql_native_password BY 'x'",
                Some(PasswordPlugin::Native),
            ),
            (
                "alter user ann identified with 'Caching_SHA2_password' by 'x'",
                Some(PasswordPlugin::CachingSha2),
            ),
        ] {
            let read = command(text).unwrap();
            let Some(Command::User(UserStatement::Password { password, .. })) = read else {
                panic!("{text}");
            };
            assert!(password.text == "x", "{text}");
            assert_eq!(password.plugin, wanted, "{text}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            (
                "CREATE USER 'a' IDENTIFIED BY 'x', b IDENTIFIED BY \"y\"",
                "CREATE USER 'a' IDENTIFIED BY '<secret>', b IDENTIFIED BY '<secret>'",
            ),
            (
                "set password for 'ann' = 'x'",
                "set password for 'ann' = '<secret>'",
            ),
            (
                "SET PASSWORD = PASSWORD('x')",
                "SET PASSWORD = PASSWORD('<secret>')",
            ),
            (
                "ALTER USER a IDENTIFIED WITH p AS 'x'",
                "ALTER USER a IDENTIFIED WITH p AS '<secret>'",
            ),
            ("CREATE USER a IDENTIFIED BY 'x", "create ..."),
            ("SELECT 'password'", "SELECT 'password'"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }
}
