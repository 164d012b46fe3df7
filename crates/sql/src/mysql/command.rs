//! Statements about the connection itself: they request no rows, and the engine never sees them.

use std::ops::Range;

use datafusion::sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::pieces::first_word;
use super::prepare_command::PrepareCommand;
use super::select_into;
pub use super::table_statement::{TableCommand, TargetTable};
use super::user_command::{UserStatement, without_text};
use super::view_command::ViewStatement;
use crate::connection::user_variable;
use crate::fold::Places;
use crate::mistakes::unclosed;
use crate::{Dialect, ErrorCode, SqlError};

/// A statement about the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Chooses a database.
    Use(String),
    /// Changes settings, one after another.
    Set(Vec<Assignment>),
    /// Ends what a connection does, or a query.
    Kill {
        /// The number of the connection or the query; the own connection's if there is none.
        id: Option<u64>,
        /// Whether the connection itself goes on.
        statement_only: bool,
    },
    /// Lets a query run without the connection: its text.
    Submit(String),
    /// Ends a query: its number.
    Cancel(u64),
    /// Evaluates expressions, whose values nobody sees: their texts.
    Do(Vec<String>),
    /// Gives variables of the user's own the values of a query's only row.
    SelectInto {
        /// The text of the query.
        query: String,
        /// The names of the variables, without `@`.
        variables: Vec<String>,
    },
    /// Prepares a statement that gets a name, executes or forgets it.
    Prepare(PrepareCommand),
    /// Makes, fills or drops a table.
    Table(TableCommand),
    /// Makes or drops a view.
    View(ViewStatement),
    /// Adds, changes or removes users and what they may read, rows that are released included.
    User(UserStatement),
    /// Transactions and locks for reading: where nothing changes there is nothing to do.
    Nothing,
}

/// One setting of a SET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Assignment {
    /// A system variable.
    Variable {
        /// For whom.
        scope: Scope,
        /// Its name as typed.
        name: String,
        /// What it is to be.
        value: AssignedValue,
    },
    /// A variable of the user's own.
    User {
        /// Its name, without `@`.
        name: String,
        /// The text of the expression whose value it gets.
        expression: String,
    },
    /// `SET NAMES`: how the client writes and reads text.
    Names {
        /// The character set; the usual one if there is none.
        set: Option<String>,
        /// How text is compared.
        collate: Option<String>,
    },
}

/// For whom a variable is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This connection.
    Session,
    /// All connections.
    Global,
}

/// What a variable is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssignedValue {
    /// What it is usually.
    Default,
    /// NULL.
    Null,
    /// A number.
    Number(u64),
    /// Text, or a word such as ON.
    Text(String),
    /// What has to be computed: the text of an expression.
    Expression(String),
}

/// What a statement says about the connection; `None` for one that is not about it.
///
/// # Errors
/// It cannot be read, or names a variable or value that does not exist.
pub fn command(text: &str) -> Result<Option<Command>, SqlError> {
    let first = first_word(text).to_ascii_lowercase();
    let read: fn(&mut TokenReader<'_>) -> Result<Option<Command>, SqlError> = match first.as_str() {
        "use" => |words| words.read_use().map(Some),
        "set" => |words| match words.read_set_of_users()? {
            None => words.read_set().map(Some),
            of_users => Ok(of_users),
        },
        "kill" => |words| words.read_kill().map(Some),
        "submit" => |words| words.read_submit().map(Some),
        "cancel" => |words| words.read_cancel().map(Some),
        "do" => |words| words.read_do().map(Some),
        "prepare" => |words| words.read_prepare().map(Some),
        "execute" => |words| words.read_execute().map(Some),
        "deallocate" => |words| match words.word("prepare") {
            true => words.read_deallocate().map(Some),
            false => Err(words.expected("PREPARE")),
        },
        "create" => |words| words.read_create(),
        "insert" => |words| words.read_insert(),
        "replace" => |words| words.read_replace(),
        "load" => |words| words.read_load(),
        "rename" => |words| words.read_rename(),
        "drop" => |words| words.read_drop(),
        "update" => |words| words.read_update(),
        "delete" => |words| words.read_delete(),
        "truncate" => |words| words.read_truncate(),
        "show" => |words| words.read_show_of_users(),
        "flush" => |words| words.read_flush(),
        "grant" => |words| {
            words
                .read_grant(false)
                .map_err(|error| without_text(&error))
        },
        "revoke" => |words| words.read_grant(true).map_err(|error| without_text(&error)),
        "alter" => |words| match (words.word("user"), words.word("table")) {
            (true, _) => words
                .read_alter_user()
                .map_err(|error| without_text(&error)),
            (false, true) => words.read_alter_table(),
            (false, false) if words.word("role") => words.read_alter_role(),
            (false, false) => Ok(None),
        },
        "begin" => |words| {
            let _ = words.word("work");
            Ok(words.is_at_end().then_some(Command::Nothing))
        },
        "start" => |words| Ok(words.word("transaction").then_some(Command::Nothing)),
        "release" => |words| Ok(words.word("savepoint").then_some(Command::Nothing)),
        "commit" | "rollback" | "savepoint" => |_| Ok(Some(Command::Nothing)),
        "lock" => |words| words.read_lock(),
        "unlock" => |words| {
            let tables = words.word("tables") || words.word("table");
            Ok(tables.then_some(Command::Nothing))
        },
        "select" | "with" => return select_into::read(text),
        _ => return Ok(None),
    };
    let mut words = TokenReader::of(text)?;
    words.at = 1;
    read(&mut words)
}

/// The words and signs of a statement.
pub(super) struct TokenReader<'a> {
    pub(super) text: &'a str,
    pub(super) tokens: Vec<TokenWithSpan>,
    pub(super) at: usize,
    /// The tokens of the expressions that were read.
    pub(super) expressions: Vec<Range<usize>>,
}

impl<'a> TokenReader<'a> {
    pub(super) fn of(text: &'a str) -> Result<Self, SqlError> {
        let tokens = Dialect::MySql.tokenizer(text).tokenize_with_location();
        let mut tokens = tokens.map_err(|error| {
            SqlError::at(text, error.location, unclosed(&error.message))
                .with_code(ErrorCode::SYNTAX)
        })?;
        tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
        Ok(Self {
            text,
            tokens,
            at: 0,
            expressions: vec![],
        })
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.token)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.peek().is_none()
    }

    /// Takes a word, if it is the next.
    pub(super) fn word(&mut self, wanted: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Word(word))
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted));
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn sign(&mut self, wanted: &Token) -> bool {
        let is_next = self.peek() == Some(wanted);
        self.at += usize::from(is_next);
        is_next
    }

    /// A name, with or without quotes, or text.
    pub(super) fn name(&mut self, what: &str) -> Result<String, SqlError> {
        let name = match self.peek() {
            Some(Token::Word(word)) => word.value.clone(),
            Some(Token::SingleQuotedString(text) | Token::DoubleQuotedString(text)) => text.clone(),
            _ => return Err(self.expected(what)),
        };
        self.at += 1;
        Ok(name)
    }

    pub(super) fn expected(&self, what: &str) -> SqlError {
        let sentence = format!("the statement cannot be read: {what} is expected");
        let error = match self.tokens.get(self.at) {
            Some(token) => SqlError::at_word(self.text, token.span.start, sentence),
            None => SqlError::new(format!("{sentence} at its end")),
        };
        error.with_code(ErrorCode::SYNTAX)
    }

    pub(super) fn end(&self) -> Result<(), SqlError> {
        match self.is_at_end() {
            true => Ok(()),
            false => Err(self.expected("the end")),
        }
    }

    fn read_use(&mut self) -> Result<Command, SqlError> {
        let name = self.name("the name of a database")?;
        self.end()?;
        Ok(Command::Use(name))
    }

    fn read_kill(&mut self) -> Result<Command, SqlError> {
        let _ = self.word("hard") || self.word("soft");
        let statement_only = self.word("query");
        let _ = statement_only || self.word("connection");
        let id = if self.word("connection_id") {
            if !self.sign(&Token::LParen) || !self.sign(&Token::RParen) {
                return Err(self.expected("()"));
            }
            None
        } else {
            Some(self.number("the number of a connection or a query")?)
        };
        self.end()?;
        Ok(Command::Kill { id, statement_only })
    }

    /// `SUBMIT statement`.
    fn read_submit(&mut self) -> Result<Command, SqlError> {
        let Some(first) = self.tokens.get(self.at) else {
            let sentence =
                "a statement is expected after SUBMIT, as in SUBMIT SELECT COUNT(*) FROM Object";
            return Err(SqlError::new(sentence).with_code(ErrorCode::SYNTAX));
        };
        Ok(Command::Submit(self.text_from(first)))
    }

    /// The statement's text from a token on.
    pub(super) fn text_from(&self, token: &TokenWithSpan) -> String {
        let begin = Places::new(self.text).byte(token.span.start);
        let text = self.text[begin..].trim_end().trim_end_matches(';');
        text.trim_end().to_owned()
    }

    /// `DO expression, expression`.
    fn read_do(&mut self) -> Result<Command, SqlError> {
        let mut expressions = Vec::new();
        loop {
            let (_, typed) = self.until_comma()?;
            expressions.push(typed.to_owned());
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        self.end()?;
        Ok(Command::Do(expressions))
    }

    /// `CANCEL id`, or `CANCEL QUERY id`.
    fn read_cancel(&mut self) -> Result<Command, SqlError> {
        let _ = self.word("query");
        let id = self.number("the number of a query")?;
        self.end()?;
        Ok(Command::Cancel(id))
    }

    pub(super) fn number(&mut self, what: &str) -> Result<u64, SqlError> {
        let number = match self.peek() {
            Some(Token::Number(digits, _)) => digits.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.expected(what))?;
        self.at += 1;
        Ok(number)
    }

    fn read_lock(&mut self) -> Result<Option<Command>, SqlError> {
        if !self.word("tables") && !self.word("table") {
            return Ok(None);
        }
        while !self.is_at_end() {
            if self.word("write") {
                let sentence =
                    "tables are only read here: LOCK TABLES ... READ is possible and does nothing";
                return Err(SqlError::new(sentence).with_code(ErrorCode::READ_ONLY));
            }
            self.at += 1;
        }
        Ok(Some(Command::Nothing))
    }

    fn read_set(&mut self) -> Result<Command, SqlError> {
        if self.word("resource") {
            let sentence = "there are no resource groups here: `meridian user limit` says how much users and groups may take";
            return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
        }
        let mut assignments = Vec::new();
        loop {
            self.read_assignment(&mut assignments)?;
            if !self.sign(&Token::Comma) {
                break;
            }
        }
        self.end()?;
        Ok(Command::Set(assignments))
    }

    fn read_assignment(&mut self, assignments: &mut Vec<Assignment>) -> Result<(), SqlError> {
        if self.word("names") || self.word("charset") {
            assignments.push(self.names()?);
            return Ok(());
        }
        if self.word("character") {
            if !self.word("set") {
                return Err(self.expected("SET"));
            }
            assignments.push(self.names()?);
            return Ok(());
        }
        if let Some(name) = self.user_variable() {
            self.assignment_sign()?;
            let (_, typed) = self.until_comma()?;
            let expression = typed.to_owned();
            assignments.push(Assignment::User { name, expression });
            return Ok(());
        }
        let scope = self.scope();
        if self.word("transaction") {
            return self.read_transaction(scope, assignments);
        }
        let (scope, name) = self.variable(scope.unwrap_or(Scope::Session))?;
        self.assignment_sign()?;
        let value = self.value()?;
        assignments.push(Assignment::Variable { scope, name, value });
        Ok(())
    }

    fn assignment_sign(&mut self) -> Result<(), SqlError> {
        match self.sign(&Token::Eq) || self.sign(&Token::Assignment) {
            true => Ok(()),
            false => Err(self.expected("=")),
        }
    }

    /// The name of a variable of the user's own, if it is next.
    pub(super) fn user_variable(&mut self) -> Option<String> {
        let name = self.peek().and_then(user_variable)?.to_owned();
        self.at += 1;
        Some(name)
    }

    fn scope(&mut self) -> Option<Scope> {
        if self.word("session") || self.word("local") {
            return Some(Scope::Session);
        }
        let global = self.word("global") || self.word("persist") || self.word("persist_only");
        global.then_some(Scope::Global)
    }

    fn names(&mut self) -> Result<Assignment, SqlError> {
        if self.word("default") {
            return Ok(Assignment::Names {
                set: None,
                collate: None,
            });
        }
        let set = Some(self.name("the name of a character set")?);
        let collate = match self.word("collate") {
            true if self.word("default") => None,
            true => Some(self.name("the name of a collation")?),
            false => None,
        };
        Ok(Assignment::Names { set, collate })
    }

    /// `ISOLATION LEVEL READ COMMITTED, READ ONLY`. Without a scope it is about the next transaction, of which nothing comes.
    fn read_transaction(
        &mut self,
        scope: Option<Scope>,
        assignments: &mut Vec<Assignment>,
    ) -> Result<(), SqlError> {
        loop {
            let (name, value) = if self.word("isolation") {
                let _ = self.word("level");
                let first = self.name("a level")?;
                let level = match self.peek() {
                    Some(Token::Word(_)) => format!("{first}-{}", self.name("a level")?),
                    _ => first,
                };
                ("transaction_isolation", level.to_ascii_uppercase())
            } else if self.word("read") {
                let only = self.word("only");
                if !only && !self.word("write") {
                    return Err(self.expected("ONLY or WRITE"));
                }
                ("transaction_read_only", u8::from(only).to_string())
            } else {
                return Err(self.expected("ISOLATION LEVEL or READ"));
            };
            if let Some(scope) = scope {
                assignments.push(Assignment::Variable {
                    scope,
                    name: name.to_owned(),
                    value: AssignedValue::Text(value),
                });
            }
            if !self.sign(&Token::Comma) {
                return Ok(());
            }
        }
    }

    /// `name`, `@@name` or `@@scope.name`.
    fn variable(&mut self, scope: Scope) -> Result<(Scope, String), SqlError> {
        let name = self.name("a system variable")?;
        let Some(first) = name.strip_prefix("@@") else {
            return Ok((scope, name));
        };
        if !self.sign(&Token::Period) {
            return Ok((scope, first.to_owned()));
        }
        let scope = match first.to_ascii_lowercase().as_str() {
            "session" | "local" => Scope::Session,
            "global" | "persist" | "persist_only" => Scope::Global,
            _ => return Err(self.expected("session or global before the point")),
        };
        Ok((scope, self.name("a system variable")?))
    }

    /// What stands up to the next comma that is in no parentheses: at least one token, and their text.
    fn until_comma(&mut self) -> Result<(&[TokenWithSpan], &'a str), SqlError> {
        let start = self.at;
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            match token {
                Token::Comma if depth == 0 => break,
                Token::LParen => depth += 1,
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
        }
        let tokens = &self.tokens[start..self.at];
        let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
            return Err(self.expected("a value"));
        };
        Ok((tokens, self.between(first.span.start, last.span.end)))
    }

    fn value(&mut self) -> Result<AssignedValue, SqlError> {
        let (tokens, typed) = self.until_comma()?;
        let [first, ..] = tokens else {
            return Ok(AssignedValue::Default);
        };
        Ok(match (&first.token, tokens.len()) {
            (Token::SingleQuotedString(text) | Token::DoubleQuotedString(text), 1) => {
                AssignedValue::Text(text.clone())
            }
            (Token::Number(digits, _), 1) => match digits.parse() {
                Ok(number) => AssignedValue::Number(number),
                Err(_) => AssignedValue::Text(digits.clone()),
            },
            (Token::Minus, 2) => AssignedValue::Text(typed.to_owned()),
            (Token::Word(word), 1) if word.quote_style.is_some() => {
                AssignedValue::Text(word.value.clone())
            }
            (Token::Word(word), 1) if !word.value.starts_with('@') => {
                match word.value.to_ascii_lowercase().as_str() {
                    "default" => AssignedValue::Default,
                    "null" => AssignedValue::Null,
                    _ => AssignedValue::Text(word.value.clone()),
                }
            }
            _ => AssignedValue::Expression(typed.to_owned()),
        })
    }

    fn between(&self, from: Location, to: Location) -> &'a str {
        let places = Places::new(self.text);
        &self.text[places.byte(from)..places.byte(to)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Command {
        command(text).unwrap().unwrap()
    }

    fn set(name: &str, value: AssignedValue) -> Assignment {
        Assignment::Variable {
            scope: Scope::Session,
            name: name.to_owned(),
            value,
        }
    }

    fn text(text: &str) -> AssignedValue {
        AssignedValue::Text(text.to_owned())
    }

    #[test]
    fn several_settings_stand_in_one_statement() {
        let typed = "SET NAMES 'utf8mb4' COLLATE utf8mb4_bin, @@session.autocommit = OFF, sql_mode := CONCAT(@@sql_mode, ',X'), \
                     SESSION wait_timeout=10, character_set_results = NULL, `time_zone` = \"+00:00\", max_join_size=DEFAULT";
        assert_eq!(
            read(typed),
            Command::Set(vec![
                Assignment::Names {
                    set: Some("utf8mb4".to_owned()),
                    collate: Some("utf8mb4_bin".to_owned())
                },
                set("autocommit", text("OFF")),
                set(
                    "sql_mode",
                    AssignedValue::Expression("CONCAT(@@sql_mode, ',X')".to_owned())
                ),
                set("wait_timeout", AssignedValue::Number(10)),
                set("character_set_results", AssignedValue::Null),
                set("time_zone", text("+00:00")),
                set("max_join_size", AssignedValue::Default),
            ])
        );
    }

    #[test]
    fn variables_of_users_get_the_values_of_expressions() {
        let user = |name: &str, expression: &str| Assignment::User {
            name: name.to_owned(),
            expression: expression.to_owned(),
        };
        assert_eq!(
            read("SET @Ra = 10.5, @b := (SELECT MAX(a, b) FROM t), autocommit = 1, @c='x'"),
            Command::Set(vec![
                user("Ra", "10.5"),
                user("b", "(SELECT MAX(a, b) FROM t)"),
                set("autocommit", AssignedValue::Number(1)),
                user("c", "'x'"),
            ])
        );
    }

    #[test]
    fn expressions_are_evaluated_for_nobody() {
        let expressions = ["SLEEP(1)", "CONCAT('a', 'b')"].map(str::to_owned);
        assert_eq!(
            read("DO SLEEP(1), CONCAT('a', 'b')"),
            Command::Do(expressions.to_vec())
        );
        assert!(command("DO").is_err());
    }

    #[test]
    fn transactions_are_settings_of_the_session() {
        assert_eq!(
            read("set session transaction isolation level read committed, read only"),
            Command::Set(vec![
                set("transaction_isolation", text("READ-COMMITTED")),
                set("transaction_read_only", text("1")),
            ])
        );
        assert_eq!(read("SET TRANSACTION READ WRITE"), Command::Set(vec![]));
        for nothing in [
            "BEGIN",
            "begin work",
            "START TRANSACTION READ ONLY",
            "COMMIT",
            "ROLLBACK TO SAVEPOINT a",
            "SAVEPOINT a",
            "RELEASE SAVEPOINT a",
            "LOCK TABLES a READ, b AS c READ LOCAL",
            "UNLOCK TABLES",
        ] {
            assert_eq!(read(nothing), Command::Nothing, "{nothing}");
        }
    }

    #[test]
    fn connections_are_ended_by_their_number() {
        for (typed, id, statement_only) in [
            ("KILL 7", Some(7), false),
            ("kill query 8", Some(8), true),
            ("KILL HARD CONNECTION 9", Some(9), false),
            ("KILL CONNECTION_ID()", None, false),
        ] {
            assert_eq!(read(typed), Command::Kill { id, statement_only }, "{typed}");
        }
    }

    #[test]
    fn what_is_not_about_the_connection_is_left() {
        for typed in [
            "SELECT 1",
            "SHOW TABLES",
            "",
            "LOCK INSTANCE FOR BACKUP",
            "START REPLICA",
            "(SET x)",
        ] {
            assert_eq!(command(typed).unwrap(), None, "{typed}");
        }
        assert_eq!(
            read("/* a */ use `My Sky`"),
            Command::Use("My Sky".to_owned())
        );
    }

    #[test]
    fn mistakes_are_said() {
        for (typed, number) in [
            ("USE", 1064),
            ("USE a b", 1064),
            ("SET", 1064),
            ("SET x", 1064),
            ("SET x =", 1064),
            ("SET x = 1,", 1064),
            ("SET @x", 1064),
            ("SET @x =", 1064),
            ("SET @@nobody.x = 1", 1064),
            ("SET ROLE a", 1235),
            ("SET NAMES", 1064),
            ("SET TRANSACTION SOMEHOW", 1064),
            ("KILL me", 1064),
            ("KILL 99999999999999999999", 1064),
            ("LOCK TABLES a WRITE", 1290),
            ("SET x = 'open", 1064),
        ] {
            let error = command(typed).unwrap_err();
            assert_eq!(error.code().number, number, "{typed}: {error}");
        }
    }
}
