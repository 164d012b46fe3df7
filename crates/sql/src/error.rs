//! Messages for the person who typed the query: what is wrong, where, and what was probably meant.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use datafusion::common::{DataFusionError, SchemaError};
use datafusion::sql::sqlparser::tokenizer::Location;

use crate::error_place::ErrorPlace;
use crate::fold::{Places, fold_word};
pub(crate) use crate::statement_text::{find_word, find_word_behind, typed};
use crate::{
    Dialect, ErrorCode, MatchFunction, column_mistakes, functions, mistakes, planner_calls,
    planner_mistakes, temporary_files,
};

/// A query that cannot be run, with the place of the mistake where it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    sentence: String,
    code: ErrorCode,
    /// Boxed, as errors travel in results of all sizes.
    place: Option<Box<ErrorPlace>>,
    retry_after: Option<Duration>,
}

impl std::error::Error for SqlError {}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => place.write(&self.sentence, f),
            None => f.write_str(&self.sentence),
        }
    }
}

impl SqlError {
    /// A mistake that has no single place.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            code: ErrorCode::OTHER,
            place: None,
            retry_after: None,
        }
    }

    /// The same mistake with MySQL's code for it.
    #[must_use]
    pub fn with_code(self, code: ErrorCode) -> Self {
        Self { code, ..self }
    }

    /// The same of a limit under which the user is again after some time.
    #[must_use]
    pub fn with_retry_after(self, time: Duration) -> Self {
        Self {
            retry_after: Some(time),
            ..self
        }
    }

    /// After what time the same may be tried again, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// MySQL's code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// A mistake at a place in `sql`.
    pub fn at(sql: &str, location: Location, sentence: impl Into<String>) -> Self {
        let mut error = Self::new(sentence);
        if location.line > 0 && location.column > 0 {
            error.point_at(sql, Places::new(sql).byte(location), 1);
        }
        error
    }

    /// A mistake at the word that begins at a place in `sql`.
    pub fn at_word(sql: &str, location: Location, sentence: impl Into<String>) -> Self {
        let error = Self::at(sql, location, sentence);
        Self {
            place: error.place.map(|place| Box::new(place.of_word())),
            ..error
        }
    }

    /// A mistake about a name: points at the first place where it stands as a word of its own.
    pub fn about(sql: &str, name: &str, sentence: impl Into<String>) -> Self {
        let mut error = Self::new(sentence);
        if let Some(at) = find_word(sql, name) {
            error.point_at(sql, at, name.chars().count());
        }
        error
    }

    /// The sentence without the place.
    pub fn sentence(&self) -> &str {
        &self.sentence
    }

    /// The same mistake with its place: at a byte of `sql`, if there is one.
    #[must_use]
    pub(crate) fn pointing_at(mut self, sql: &str, byte: Option<usize>, width: usize) -> Self {
        if let Some(byte) = byte {
            self.point_at(sql, byte, width);
        }
        self
    }

    /// The same mistake in another text, where `at` says which byte one of this text is there; without a place if it is nowhere.
    #[must_use]
    pub fn moved(mut self, sql: &str, at: impl Fn(usize) -> Option<usize>) -> Self {
        if let Some(place) = self.place.take()
            && let Some(byte) = at(place.byte())
        {
            self.point_at(sql, byte, place.width());
        }
        self
    }

    /// The same mistake, whose place nobody is to see.
    #[must_use]
    pub fn without_place(self) -> Self {
        Self {
            place: None,
            ..self
        }
    }

    /// The same mistake at its place, told by another sentence.
    #[must_use]
    pub fn with_sentence(self, sentence: impl Into<String>) -> Self {
        Self {
            sentence: sentence.into(),
            ..self
        }
    }

    fn point_at(&mut self, sql: &str, byte: usize, width: usize) {
        self.place = Some(Box::new(ErrorPlace::new(sql, byte, width)));
    }

    /// Puts an engine's error into words. `sql` is the text as typed; `tables` are the names that could have been meant
    /// for a table, each behind that of its database, and `declared` gives a folded column name its declared spelling.
    pub fn from_datafusion(
        sql: &str,
        error: &DataFusionError,
        tables: &[(String, String)],
        declared: &dyn Fn(&str) -> String,
    ) -> Self {
        if let Some(full) = temporary_files::full(error) {
            return full;
        }
        let told = Self::of_root(sql, error.find_root(), tables, declared);
        match span_of(sql, error) {
            Some(span) => told.within(sql, span),
            None => told,
        }
    }

    /// The same of an error without the places and contexts that it was given on its way.
    fn of_root(
        sql: &str,
        root: &DataFusionError,
        tables: &[(String, String)],
        declared: &dyn Fn(&str) -> String,
    ) -> Self {
        match root {
            DataFusionError::SchemaError(schema_error, _) => {
                Self::from_schema_error(sql, schema_error, declared)
            }
            DataFusionError::SQL(parser_error, _) => {
                Self::from_parser(sql, &parser_error.to_string()).with_code(ErrorCode::SYNTAX)
            }
            DataFusionError::Plan(message) => Self::from_plan(sql, message, tables),
            DataFusionError::ResourcesExhausted(message) => Self::new(format!(
                "the query needs more memory than it may have: {message}"
            ))
            .with_code(ErrorCode::OUT_OF_RESOURCES),
            DataFusionError::IoError(error) => {
                Self::new(format!("a file cannot be read or written: {error}"))
                    .with_code(ErrorCode::STORAGE)
            }
            // A task that panicked.
            DataFusionError::ExecutionJoin(_) => {
                Self::new(OWN_MISTAKE).with_code(ErrorCode::INTERNAL)
            }
            other => {
                let message = other.strip_backtrace();
                mistakes::reworded(sql, &message).unwrap_or_else(|| Self::in_words(&message))
            }
        }
    }

    /// A message of the engine's, with the code that its words are about.
    fn in_words(message: &str) -> Self {
        let sentence = plain_sentence(message);
        if is_own_mistake(message) {
            return Self::new(OWN_MISTAKE).with_code(ErrorCode::INTERNAL);
        }
        let code = ErrorCode::of_message(&sentence);
        Self::new(planner_mistakes::other(&sentence)).with_code(code)
    }

    /// The same mistake with its place in the part of a statement that the planner says it is in, if what it points at stands there.
    fn within(self, sql: &str, span: Range<usize>) -> Self {
        let Some(place) = &self.place else {
            let width = sql[span.clone()].lines().next().unwrap_or_default();
            return self.pointing_at(sql, Some(span.start), width.chars().count());
        };
        let (at, width) = (place.byte(), place.width());
        if span.contains(&at) {
            return self;
        }
        let shown: String = sql[at..].chars().take(width).collect();
        let there = find_word(&sql[span.clone()], &shown);
        self.pointing_at(sql, there.map(|it| span.start + it), width)
    }

    fn from_schema_error(
        sql: &str,
        error: &SchemaError,
        declared: &dyn Fn(&str) -> String,
    ) -> Self {
        match error {
            SchemaError::FieldNotFound {
                field,
                valid_fields,
            } => column_mistakes::no_column(sql, field, valid_fields, declared),
            SchemaError::AmbiguousReference { field } => {
                let name = typed(sql, &field.name);
                let sentence = format!(
                    "the column {name} is in more than one of the tables; say which is meant, as in table.{name}"
                );
                Self::about(sql, &field.name, sentence).with_code(ErrorCode::AMBIGUOUS_COLUMN)
            }
            SchemaError::DuplicateQualifiedField { qualifier, .. } => {
                let table = typed(sql, qualifier.table());
                let sentence = format!(
                    "two of the tables are called {table}: give one of them another name, as in {table} AS other"
                );
                Self::about(sql, qualifier.table(), sentence).with_code(ErrorCode::TABLE_TWICE)
            }
            other => {
                let message = other.to_string();
                mistakes::reworded(sql, &message).unwrap_or_else(|| Self::in_words(&message))
            }
        }
    }

    fn from_parser(sql: &str, message: &str) -> Self {
        let message = message
            .trim_start_matches("ParserError(\"")
            .trim_start_matches("sql parser error: ")
            .trim_end_matches("\")");
        if let Some(expected) = message.strip_suffix(", found: EOF") {
            let wanted = expected.trim_start_matches("Expected: ");
            let mut error = Self::new(format!("the query ends too early: {wanted} is missing"));
            error.point_at(sql, sql.trim_end().len(), 1);
            return error;
        }
        let Some((sentence, place)) = message.split_once(" at Line: ") else {
            return Self::new(format!("the query cannot be read: {message}"));
        };
        let mut numbers = place.split(", Column: ").map(|n| n.trim().parse::<u64>());
        let location = match (numbers.next(), numbers.next()) {
            (Some(Ok(line)), Some(Ok(column))) => Location { line, column },
            _ => return Self::new(format!("the query cannot be read: {message}")),
        };
        let at = mistakes::place_of_found(sql, sentence, Places::new(sql).byte(location));
        let hint = mistakes::parser_hint(sql, sentence, at);
        let sentence = mistakes::parser_sentence(sentence).unwrap_or_else(|| sentence.to_owned());
        let sentence = match hint {
            Some(hint) => format!("the query cannot be read: {sentence}; {hint}"),
            None => format!("the query cannot be read: {sentence}"),
        };
        Self::new(sentence).pointing_at(sql, Some(at), 1)
    }

    /// There is no function of this name. The engine's own suggestion may be a function that no document explains.
    fn no_function(sql: &str, name: &str) -> Self {
        let typed = typed(sql, name);
        let sentence = if OF_WINDOWS.contains(&name) {
            format!(
                "{typed} is a window function: OVER stands behind it, as in {typed}(...) OVER (ORDER BY ra)"
            )
        } else if functions::is_of_adql_alone(name) {
            format!(
                "{typed} is a function of ADQL's, and this statement is in MySQL's dialect: `meridian sql --dialect adql` has it; \
                 scisql_s2PtInCircle, scisql_angSep and their relatives do the same here"
            )
        } else if functions::is_of_mysql_alone(name) {
            format!(
                "{typed} is a function of MySQL's dialect, and this statement is in ADQL, whose functions docs/sql.md lists"
            )
        } else {
            let documented = Dialect::ALL.into_iter().flat_map(functions::documented);
            // Each function of the family `scisql_` is known without it too.
            let plain = |name: &'static str| [name, name.trim_start_matches("scisql_")];
            let names: Vec<String> = documented.flat_map(plain).map(str::to_owned).collect();
            let hint = match functions::same_as(name) {
                Some(here) => Some(format!("{here} does the same here")),
                None => suggestion(name, &names),
            };
            let hint = hint.unwrap_or_else(|| "docs/sql.md lists those that there are".to_owned());
            format!("there is no function {typed}; {hint}")
        };
        Self::about(sql, name, sentence).with_code(ErrorCode::NO_FUNCTION)
    }

    /// There is no table of this full name. `rest` is what else is said: `not found`, and perhaps the [`NotFound`] of who looked it up.
    fn no_table(sql: &str, name: &str, rest: &str, tables: &[(String, String)]) -> Self {
        let short = name.rsplit('.').next().unwrap_or(name);
        let table = typed(sql, short);
        let others = NotFound::read(rest);
        let first = |names: &[String]| names.first().map_or("sky".to_owned(), String::clone);
        match others {
            _ if name.contains("..") => {
                let databases = match &others {
                    Some(NotFound::Database(names)) => names.as_slice(),
                    _ => &[],
                };
                let sentence = format!(
                    "no database is chosen in which {table} could be: USE one, or write it as in {}.{table}; {}",
                    first(databases),
                    listing("databases here", databases)
                );
                Self::about(sql, short, sentence).with_code(ErrorCode::NO_DATABASE_CHOSEN)
            }
            Some(NotFound::Database(names)) => {
                let database = name.rsplit('.').nth(1).unwrap_or_default();
                let hint = suggestion(database, &names);
                let hint = hint.unwrap_or_else(|| listing("databases here", &names));
                let sentence = format!("there is no database {}; {hint}", typed(sql, database));
                // MariaDB's number for a table of a database that is not there.
                Self::about(sql, database, sentence).with_code(ErrorCode::NO_TABLE)
            }
            Some(NotFound::TableBut(names)) => {
                let database = first(&names);
                let sentence = format!(
                    "there is no table {table} in this database, but in {}: write it as {database}.{table}",
                    names.join(", ")
                );
                Self::about(sql, short, sentence).with_code(ErrorCode::NO_TABLE)
            }
            Some(NotFound::Denied) => {
                let database = name.rsplit('.').nth(1).unwrap_or_default();
                let full = format!("{}.{table}", typed(sql, database));
                Self::about(sql, short, denied_table(&full)).with_code(ErrorCode::TABLE_DENIED)
            }
            Some(NotFound::State) => {
                let sentence = format!(
                    "{table} has no states of former times: AS OF stands behind tables of a nightly alert database, as DiaObject and DiaSource, and views of them"
                );
                Self::about(sql, short, sentence).with_code(ErrorCode::NOT_VERSIONED)
            }
            None => {
                let database = name.rsplit('.').nth(1).unwrap_or_default();
                let of_database = { tables.iter() }
                    .filter(|(other, _)| fold_word(other) == fold_word(database))
                    .map(|(_, table)| table.clone());
                let tables: Vec<String> = of_database.collect();
                let hint = suggestion(short, &tables);
                let hint = hint.unwrap_or_else(|| listing("tables here", &tables));
                let sentence = format!("there is no table {table}; {hint}");
                Self::about(sql, short, sentence).with_code(ErrorCode::NO_TABLE)
            }
        }
    }

    fn from_plan(sql: &str, message: &str, tables: &[(String, String)]) -> Self {
        if let Some((name, rest)) = message
            .strip_prefix("table '")
            .and_then(|rest| rest.split_once('\''))
        {
            return Self::no_table(sql, name, rest, tables);
        }
        if let Some(rest) = message.strip_prefix("Invalid function '") {
            let name = rest.split('\'').next().unwrap_or(rest);
            return Self::no_function(sql, name);
        }
        if NO_CONDITIONS.iter().any(|told| message.starts_with(told)) {
            let sentence =
                "a value stands where a condition is needed; compare it, as in 1 = CONTAINS(a, b)";
            return Self::about(sql, "where", sentence);
        }
        if let Some((function, count)) = wrong_count(&plain_sentence(message)) {
            let sentence = format!("{function} does not take {count} arguments");
            return Self::about(sql, function, sentence).with_code(ErrorCode::WRONG_ARGUMENTS);
        }
        if let Some((_, told)) = message.split_once("user-defined coercion failed with: ") {
            let told = plain_sentence(told);
            // What follows is about types of the engine's.
            let sentence = told.split(". No function matches").next().unwrap_or(&told);
            let called = message.split_once("unction '").map_or("", |(_, rest)| rest);
            let called = called.split('\'').next().unwrap_or_default();
            let worded = planner_calls::of_own_check(sql, called, sentence);
            let sentence = worded.as_deref().unwrap_or(sentence);
            let function = sentence.split(' ').next().unwrap_or(sentence);
            let code = match sentence {
                _ if worded.is_some() => ErrorCode::WRONG_ARGUMENTS,
                told if told.contains("is not supported") => ErrorCode::NOT_SUPPORTED,
                told if told.contains(" were given") => ErrorCode::WRONG_ARGUMENTS,
                _ => ErrorCode::OTHER,
            };
            return Self::about(sql, function, sentence).with_code(code);
        }
        if message.starts_with("IN_UNIT ") {
            return Self::about(sql, "in_unit", plain_sentence(message))
                .with_code(ErrorCode::WRONG_ARGUMENTS);
        }
        let of_call =
            |function: &MatchFunction| message.starts_with(&format!("{}: ", function.name()));
        match MatchFunction::ALL.iter().find(|function| of_call(function)) {
            Some(function) => Self::about(sql, function.name(), plain_sentence(message))
                .with_code(ErrorCode::WRONG_ARGUMENTS),
            None => mistakes::reworded(sql, message).unwrap_or_else(|| Self::in_words(message)),
        }
    }
}

/// The sentence about a table that whoever asks may not read; it does not tell whether there is one.
pub fn denied_table(name: &str) -> String {
    format!(
        "you may not read a table {name}: SHOW TABLES lists those that you may, and who runs this archive can grant more"
    )
}

/// The sentence about a database in which whoever asks may read nothing; it does not tell whether there is one.
pub fn denied_database(name: &str) -> String {
    format!(
        "you may not use a database {name}: SHOW DATABASES lists those that you may, and who runs this archive can grant more"
    )
}

/// What who looks up tables says of one that is not there, beside that: it travels in the text of the engine's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFound {
    /// There is no database of this name either; these are there.
    Database(Vec<String>),
    /// Other databases have a table of this name: these.
    TableBut(Vec<String>),
    /// Whoever asks may read some tables of the database at most, and not this one, should there be one.
    Denied,
    /// It is there, and is to be read in a former state, which it has not.
    State,
}

impl NotFound {
    const DATABASE: &str = " not found, nor its database, among ";
    const TABLE_BUT: &str = " not found, but in ";
    const DENIED: &str = " not found, or may not be read";
    const STATE: &str = " not found in a former state";

    /// The engine's error for a table of a database.
    pub fn error(&self, database: &str, table: &str) -> DataFusionError {
        let (words, names) = match self {
            Self::Database(names) => (Self::DATABASE, names.as_slice()),
            Self::TableBut(names) => (Self::TABLE_BUT, names.as_slice()),
            Self::Denied => (Self::DENIED, Default::default()),
            Self::State => (Self::STATE, Default::default()),
        };
        // A line each: a name may have any other character.
        let names = names.join("\n");
        DataFusionError::Plan(format!("table 'meridian.{database}.{table}'{words}{names}"))
    }

    /// Whether an error is one of these that says all there is to say.
    pub fn is_of_state(error: &DataFusionError) -> bool {
        matches!(error.find_root(), DataFusionError::Plan(message) if message.ends_with(Self::STATE))
    }

    fn read(rest: &str) -> Option<Self> {
        let names = |text: &str| text.lines().map(str::to_owned).collect();
        if let Some(text) = rest.strip_prefix(Self::DATABASE) {
            return Some(Self::Database(names(text)));
        }
        if rest.starts_with(Self::DENIED) {
            return Some(Self::Denied);
        }
        if rest.starts_with(Self::STATE) {
            return Some(Self::State);
        }
        let text = rest.strip_prefix(Self::TABLE_BUT)?;
        Some(Self::TableBut(names(text)))
    }
}

/// The part of a statement that an error is about, if the planner knows it.
fn span_of(sql: &str, error: &DataFusionError) -> Option<Range<usize>> {
    let span = error.diagnostic()?.span?;
    let places = Places::new(sql);
    let byte = |line, column| places.byte(Location { line, column });
    let from = byte(span.start.line, span.start.column);
    let to = byte(span.end.line, span.end.column);
    (from < to).then_some(from..to)
}

/// Functions that are for windows alone.
const OF_WINDOWS: [&str; 8] = [
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
];

/// The message for an internal error of the query engine, whose own message is about its code.
const OWN_MISTAKE: &str = "Meridian made a mistake of its own over this statement, which its log tells (RUST_LOG=error): please report it. \
                           Written in another way, with a subquery or without one, the statement may be answered";

/// Whether the engine says that it is its own mistake, as its errors do that come where something is that may not be.
pub fn is_own_mistake(message: &str) -> bool {
    let says_so = ["Internal error: ", "likely caused by a bug"];
    says_so.iter().any(|words| message.contains(words))
}

/// The function, and the number of arguments that it does not take, if one of ours says so.
fn wrong_count(message: &str) -> Option<(&str, u64)> {
    let (before, after) = message.split_once(" does not take ")?;
    let (count, _) = after.split_once(" arguments")?;
    let function = before.rsplit(' ').next().unwrap_or(before);
    Some((function, count.parse().ok()?))
}

/// How the engine says that a value is no condition.
const NO_CONDITIONS: [&str; 2] = [
    "Cannot create filter with non-boolean predicate",
    "Cannot infer common argument type for logical boolean operation",
];

/// The nearest of `candidates` as a query, if one is near enough to have been meant.
pub(crate) fn suggestion(name: &str, candidates: &[String]) -> Option<String> {
    let folded = name.to_ascii_lowercase();
    let mut near: Vec<(usize, &String)> = candidates
        .iter()
        .map(|c| {
            (
                strsim::damerau_levenshtein(&folded, &c.to_ascii_lowercase()),
                c,
            )
        })
        .filter(|(distance, c)| *distance <= 1 + name.len().max(c.len()) / 4)
        .collect();
    near.sort();
    near.dedup();
    match near.as_slice() {
        [] => None,
        [(_, only)] => Some(format!("did you mean {only}?")),
        [(_, first), (_, second), ..] => Some(format!("did you mean {first} or {second}?")),
    }
}

pub(crate) fn listing(what: &str, names: &[String]) -> String {
    const SHOWN: usize = 12;
    if names.is_empty() {
        return format!("there are no {what}");
    }
    let shown = names
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{what}: {shown} and {more} more"),
        _ => format!("{what}: {shown}"),
    }
}

/// An engine's message without the decoration that means nothing to a user.
fn plain_sentence(message: &str) -> String {
    let mut text = message.trim();
    for decoration in [
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
        "Cast error: ",
        "Compute error: ",
        "Parser error: ",
        "External error: ",
        "Schema error: ",
        "Optimizer rule 'optimize_projections' failed\ncaused by\n",
        "type_coercion\ncaused by\n",
    ] {
        text = text.strip_prefix(decoration).unwrap_or(text);
    }
    // What follows the first line is a listing for developers.
    text.lines().next().unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_at_the_word() {
        let error = SqlError::about("SELECT raa\nFROM Object", "Object", "no such thing");
        assert_eq!(
            error.to_string(),
            "no such thing (line 2, column 6)\n  FROM Object\n       ^^^^^^"
        );
    }

    /// `Internal error: Only intervals with the same data type are comparable ... This issue was likely caused by a bug in
    /// DataFusion's code` was told to users.
    #[test]
    fn mistakes_of_the_engine_are_told_in_our_words() {
        let told = |error: &DataFusionError| {
            let told = SqlError::from_datafusion("SELECT 1", error, &[], &str::to_owned);
            (told.to_string(), told.code())
        };
        let internal = || DataFusionError::Internal("intervals are not comparable".to_owned());
        let of_rule = internal().context("simplify_expressions");
        let passed_on = DataFusionError::Execution(internal().to_string());
        let planned = DataFusionError::Plan(internal().to_string());
        for error in [internal(), of_rule, passed_on, planned] {
            let (sentence, code) = told(&error);
            assert_eq!(
                (sentence.as_str(), code),
                (OWN_MISTAKE, ErrorCode::INTERNAL)
            );
        }
        // What is the statement's mistake is said to be so, whatever the engine takes it for.
        let unmatched = "Function 'regexp_like' failed to match any signature, errors: ...";
        let (sentence, _) = told(&DataFusionError::Internal(unmatched.to_owned()));
        assert_eq!(
            sentence,
            "regexp_like takes arguments of other types; docs/sql.md describes it"
        );
        let (_, code) = told(&DataFusionError::ResourcesExhausted(
            "all is full".to_owned(),
        ));
        assert_eq!(code, ErrorCode::OUT_OF_RESOURCES);
    }

    #[test]
    fn suggests_only_what_is_near() {
        let names = vec!["ra_PS".to_owned(), "decl_PS".to_owned()];
        assert_eq!(
            suggestion("ra_sp", &names),
            Some("did you mean ra_PS?".to_owned())
        );
        assert_eq!(suggestion("magnitude", &names), None);
    }
}
