//! Completion of what is being typed.

use rustyline::completion::{Completer, FilenameCompleter, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};

use super::command;
use super::names::Names;

/// What the line editor asks for candidates.
pub struct Completion {
    /// The names that there are.
    pub names: Names,
    /// The lines of the statement before the one that is being typed.
    pub typed: String,
    files: FilenameCompleter,
}

impl Completion {
    /// Completes these names.
    pub fn new(names: Names) -> Self {
        Self {
            names,
            typed: String::new(),
            files: FilenameCompleter::new(),
        }
    }
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let before = &line[..at];
        if self.typed.is_empty() && (before.starts_with("\\i ") || before.starts_with("\\o ")) {
            return self.files.complete(line, at, context);
        }
        let (start, found) = candidates(&self.names, &self.typed, before);
        let pair = |text: String| Pair {
            display: text.clone(),
            replacement: text,
        };
        Ok((start, found.into_iter().map(pair).collect()))
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

/// Whether a character can be part of a word.
fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// The end of `text` that consists of the characters of a word.
fn last_word(text: &str) -> &str {
    let begin = text.rfind(|c| !is_of_word(c));
    match begin.and_then(|at| Some((at, text[at..].chars().next()?))) {
        Some((at, c)) => &text[at + c.len_utf8()..],
        None => text,
    }
}

/// Where the word to be completed begins, and what it may become. `typed` are the earlier lines of the statement, `before` is what
/// stands before the cursor on the last one.
fn candidates(names: &Names, typed: &str, before: &str) -> (usize, Vec<String>) {
    if typed.is_empty() && before.starts_with('\\') && !before.contains(' ') {
        let known = command::NAMES.iter().map(|&name| name.to_owned());
        return (0, known.filter(|name| name.starts_with(before)).collect());
    }
    let word = last_word(before);
    let start = before.len() - word.len();
    let earlier = format!("{typed}{}", &before[..start]);
    let mut found: Vec<String> = fitting(names, &earlier, word)
        .filter(|name| starts_with(name, word))
        .collect();
    found.sort_by_key(|name| name.to_ascii_lowercase());
    found.dedup();
    (start, found)
}

/// Whether a name begins with a word, without regard to case.
fn starts_with(name: &str, word: &str) -> bool {
    let folded = |text: &str| text.to_lowercase();
    folded(name).starts_with(&folded(word))
}

/// The names that may stand behind a text.
fn fitting<'a>(
    names: &'a Names,
    earlier: &str,
    word: &str,
) -> Box<dyn Iterator<Item = String> + 'a> {
    if let Some(qualified) = earlier.strip_suffix('.') {
        return behind_point(names, last_word(qualified));
    }
    let previous = last_word(earlier.trim_end()).to_ascii_lowercase();
    let tables = names.tables_here().map(|table| table.name.clone());
    let databases = names.databases.iter().cloned();
    if earlier.trim_start().starts_with("\\d ") {
        return Box::new(tables);
    }
    match previous.as_str() {
        "use" => return Box::new(databases),
        "from" | "join" | "describe" => return Box::new(tables.chain(databases)),
        _ => {}
    }
    let columns = columns(names, earlier);
    // As the word is begun: in small letters, or in capitals.
    let is_small = word.starts_with(char::is_lowercase);
    let as_typed = move |name: &&str| match is_small {
        true => name.to_ascii_lowercase(),
        false => (*name).to_owned(),
    };
    let keywords = names.keywords.iter().map(as_typed);
    let functions =
        names
            .functions
            .iter()
            .map(move |name| match name.contains(char::is_lowercase) {
                true => (*name).to_owned(),
                false => as_typed(name),
            });
    let words = keywords.chain(functions);
    Box::new(words.chain(tables).chain(databases).chain(columns))
}

/// What stands behind `qualifier.`: the tables of a database, or the columns of a table. What is neither may be an alias of any table.
fn behind_point<'a>(names: &'a Names, qualifier: &str) -> Box<dyn Iterator<Item = String> + 'a> {
    let is_named = |name: &str| name.eq_ignore_ascii_case(qualifier);
    if names.databases.iter().any(|name| is_named(name)) {
        let qualifier = qualifier.to_owned();
        let tables = names.tables.iter();
        let tables = tables.filter(move |table| table.database.eq_ignore_ascii_case(&qualifier));
        return Box::new(tables.map(|table| table.name.clone()));
    }
    let named: Vec<_> = (names.tables.iter())
        .filter(|table| is_named(&table.name))
        .collect();
    let tables = match named.is_empty() {
        true => names.tables_here().collect(),
        false => named,
    };
    let columns = tables.into_iter().flat_map(|table| table.columns.iter());
    Box::new(columns.cloned())
}

/// The columns of the tables that the text names, of all tables here if it names none yet.
fn columns<'a>(names: &'a Names, text: &str) -> impl Iterator<Item = String> + 'a {
    let words: Vec<&str> = text.split(|c| !is_of_word(c)).collect();
    let is_named = |name: &str| words.iter().any(|word| word.eq_ignore_ascii_case(name));
    let named: Vec<_> = (names.tables.iter())
        .filter(|table| is_named(&table.name))
        .collect();
    let tables = match named.is_empty() {
        true => names.tables_here().collect(),
        false => named,
    };
    tables
        .into_iter()
        .flat_map(|table| table.columns.iter().cloned())
}

#[cfg(test)]
mod tests {
    use sql::Dialect;

    use super::super::names::TableNames;
    use super::*;

    fn names() -> Names {
        let table = |database: &str, name: &str, columns: &[&str]| TableNames {
            database: database.to_owned(),
            name: name.to_owned(),
            columns: columns.iter().map(|&it| it.to_owned()).collect(),
        };
        let mut names = Names::of_dialect(Dialect::MySql);
        names.databases = vec!["sky".to_owned(), "gaia".to_owned()];
        names.tables = vec![
            table("sky", "Object", &["objectId", "ra_PS"]),
            table("sky", "Source", &["sourceId", "psfFlux"]),
            table("gaia", "Star", &["source_id"]),
        ];
        names.database = Some("sky".to_owned());
        names
    }

    fn completed(typed: &str, before: &str) -> Vec<String> {
        candidates(&names(), typed, before).1
    }

    #[test]
    fn what_fits_its_place_is_offered() {
        assert_eq!(completed("", "SELECT * FROM Ob"), ["Object"]);
        assert_eq!(completed("", "use g"), ["gaia"]);
        assert_eq!(completed("", "SELECT * FROM gaia."), ["Star"]);
        assert_eq!(completed("", "SELECT Object.o"), ["objectId"]);
        assert_eq!(
            completed("SELECT o.ra_PS FROM Object o\n", "WHERE o.obj"),
            ["objectId"]
        );
        assert_eq!(completed("", "sel"), ["select"]);
        assert_eq!(completed("", "SEL"), ["SELECT"]);
        assert_eq!(completed("", "SELECT scisql_ang"), ["scisql_angSep"]);
        assert_eq!(completed("", "\\ti"), ["\\timing"]);
        assert_eq!(completed("", "\\d so"), ["Source"]);
    }

    #[test]
    fn columns_are_those_of_the_tables_that_are_named() {
        assert_eq!(
            completed("SELECT 1 FROM Source\n", "WHERE psf"),
            ["psfFlux"]
        );
        assert!(completed("SELECT 1 FROM Source\n", "WHERE ra_").is_empty());
        assert_eq!(completed("", "SELECT ra_"), ["ra_PS"]);
    }

    #[test]
    fn the_word_begins_behind_what_is_no_part_of_it() {
        assert_eq!(
            candidates(&names(), "", "SELECT abs(ra_P"),
            (11, vec!["ra_PS".to_owned()])
        );
    }
}
