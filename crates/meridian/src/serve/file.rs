//! The file that `meridian serve --config` reads: TOML, with the options' long names as keys, and a table for the columns of cones.
//!
//! What is not known is rejected with its line, and with what was probably meant: a key that is passed over in silence is a
//! setting that somebody believes in.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::{Spanned, Value};

use super::layers::{OptionValue, Place, Source};
use super::options::ROWS;
use crate::failure::Failure;

/// The table of tables for cones.
const CONES: &str = "scs";
/// The only key of each of them.
const COLUMNS: &str = "columns";
/// How a table is named there.
const EXAMPLE: &str = "[scs.\"sky.Object\"]";
/// How alike a key must be to be what was meant (see [`strsim::jaro_winkler`]).
const ALIKE: f64 = 0.8;

/// What a file says.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) values: Vec<(&'static str, OptionValue)>,
    pub(super) cones: Vec<ConeColumns>,
}

/// The columns that a search around a position gives of a table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConeColumns {
    /// Database and table.
    pub(super) table: (String, String),
    pub(super) columns: Vec<String>,
    pub(super) place: Place,
}

/// A table of TOML whose keys know where they stand. Values need not: a table that only others name stands nowhere.
type Table = BTreeMap<Spanned<String>, Value>;

/// The tables for cones, in a second reading: the first does not keep where things stand in them.
#[derive(Deserialize)]
struct Cones {
    #[serde(default)]
    scs: BTreeMap<Spanned<String>, Table>,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, is no TOML, or has a key or a value that is not known.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
        Self::of(&Text { name, text })
    }

    fn of(text: &Text) -> Result<Self, Failure> {
        let known: Vec<&str> = ROWS.iter().map(|row| row.key).chain([CONES]).collect();
        let mut file = Self::default();
        for (key, value) in in_order(text.parse::<Table>()?) {
            if key.get_ref() == CONES {
                continue;
            }
            let row = ROWS.iter().find(|row| row.key == key.get_ref());
            let row = row.ok_or_else(|| text.unknown(&key, &known))?;
            let place = text.place(key.span());
            let written = plain(&value).ok_or_else(|| {
                let sentence = format!("{}: one text or number is expected", row.key);
                text.reject(key.span(), &sentence)
            })?;
            let given = OptionValue {
                text: written,
                source: Source::File(place),
            };
            file.values.push((row.key, given));
        }
        for (name, table) in in_order(text.parse::<Cones>()?.scs) {
            file.cones.push(cone_columns(text, &name, table)?);
        }
        Ok(file)
    }
}

/// A value as it would be written after a flag.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        Value::Boolean(is_so) => Some(is_so.to_string()),
        Value::Datetime(_) | Value::Array(_) | Value::Table(_) => None,
    }
}

/// What is said of the cones of one table.
fn cone_columns(text: &Text, name: &Spanned<String>, table: Table) -> Result<ConeColumns, Failure> {
    let named = name.get_ref().split_once('.');
    let named = named.filter(|(database, table)| !database.is_empty() && !table.is_empty());
    let Some((database, of)) = named else {
        let sentence = format!(
            "{:?} is no table: write the database before it, both within quotes, as in {EXAMPLE}",
            name.get_ref()
        );
        return Err(text.reject(name.span(), &sentence));
    };
    let (database, of) = (database.to_owned(), of.to_owned());
    let mut found = None;
    for (key, value) in in_order(table) {
        if key.get_ref() != COLUMNS {
            return Err(text.unknown(&key, &[COLUMNS]));
        }
        let columns = names(&value).ok_or_else(|| {
            let sentence = "columns: a list of names is expected, as in [\"objectId\", \"ra\", \"decl\"], each once";
            text.reject(key.span(), sentence)
        })?;
        found = Some((columns, text.place(key.span())));
    }
    let Some((columns, place)) = found else {
        let sentence = format!("{EXAMPLE} needs columns = [...], the names of the columns");
        return Err(text.reject(name.span(), &sentence));
    };
    Ok(ConeColumns {
        table: (database, of),
        columns,
        place,
    })
}

/// Names, at least one and none twice.
fn names(value: &Value) -> Option<Vec<String>> {
    let names = value.as_array()?.iter().map(|name| name.as_str());
    let names: Vec<&str> = names.collect::<Option<_>>()?;
    let is_new = |at: usize| {
        !names[..at]
            .iter()
            .any(|name| name.eq_ignore_ascii_case(names[at]))
    };
    let each_once = (0..names.len()).all(is_new) && !names.iter().any(|name| name.is_empty());
    (each_once && !names.is_empty()).then(|| names.into_iter().map(str::to_owned).collect())
}

/// The entries of a table as they stand in the file, so that the first mistake is told first.
fn in_order<V>(table: BTreeMap<Spanned<String>, V>) -> Vec<(Spanned<String>, V)> {
    let mut entries: Vec<_> = table.into_iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// A file's text.
struct Text {
    name: String,
    text: String,
}

impl Text {
    fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        toml::from_str(&self.text).map_err(|error| {
            let reason = error.message().replace('\n', ", ");
            let sentence = format!("it is not as TOML has to be: {reason}");
            self.reject(error.span().unwrap_or_default(), &sentence)
        })
    }

    fn place(&self, at: Range<usize>) -> Place {
        let before = self.text.as_bytes().iter().take(at.start);
        Place {
            file: self.name.clone(),
            line: before.filter(|byte| **byte == b'\n').count() + 1,
        }
    }

    fn reject(&self, at: Range<usize>, sentence: &str) -> Failure {
        Failure::new(format!("{}: {sentence}", self.place(at)))
    }

    /// A key that is none of those that are known.
    fn unknown(&self, key: &Spanned<String>, known: &[&str]) -> Failure {
        let written = key.get_ref();
        let alike = |known: &&str| strsim::jaro_winkler(&written.to_ascii_lowercase(), known);
        let nearest = known
            .iter()
            .max_by(|a, b| alike(a).total_cmp(&alike(b)))
            .filter(|known| alike(known) >= ALIKE);
        let hint = match nearest {
            Some(nearest) => format!("did you mean {nearest}?"),
            None => format!("there are {}", known.join(", ")),
        };
        self.reject(key.span(), &format!("there is no key {written}; {hint}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<File, String> {
        let text = Text {
            name: "m.toml".to_owned(),
            text: text.to_owned(),
        };
        File::of(&text).map_err(|failure| failure.sentence().to_owned())
    }

    #[test]
    fn values_are_read_as_after_flags_and_know_their_lines() {
        let file = read("# first\ndata = \"sky data\"\n\nthreads = 4\nmemory = '8G'\nslow = 0.5\n")
            .unwrap();
        let found: Vec<(&str, &str, &Source)> = (file.values.iter())
            .map(|(key, given)| (*key, given.text.as_str(), &given.source))
            .collect();
        let line = |line| {
            Source::File(Place {
                file: "m.toml".to_owned(),
                line,
            })
        };
        let expected = [
            ("data", "sky data", &line(2)),
            ("threads", "4", &line(4)),
            ("memory", "8G", &line(5)),
            ("slow", "0.5", &line(6)),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn columns_of_cones_are_read_by_database_and_table() {
        let file = read(
            "grace = 3\n[scs.\"sky.Object\"]\ncolumns = [\"id\", \"ra\"]\n[scs.\"sky.Source\"]\ncolumns = ['x']\n",
        );
        let cones = file.unwrap().cones;
        assert_eq!(cones[0].table, ("sky".to_owned(), "Object".to_owned()));
        assert_eq!(cones[0].columns, ["id", "ra"]);
        assert_eq!((cones[0].place.line, cones[1].place.line), (3, 5));
        assert!(read("").unwrap().values.is_empty());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        for (text, words) in [
            (
                "grace = 1\ntreads = 2",
                "m.toml:2: there is no key treads; did you mean threads?",
            ),
            (
                "max_connections = 2",
                "m.toml:1: there is no key max_connections; did you mean max-connections?",
            ),
            (
                "\n\ncolour = 2",
                "m.toml:3: there is no key colour; there are data, mysql,",
            ),
            (
                "grace = 1\ngrace = 2",
                "m.toml:2: it is not as TOML has to be: duplicate key",
            ),
            ("grace = 8G", "m.toml:1: it is not as TOML has to be"),
            (
                "data = [1]",
                "m.toml:1: data: one text or number is expected",
            ),
            (
                "[threads]\nx = 1",
                "m.toml:1: threads: one text or number is expected",
            ),
            ("scs = 1", "m.toml:1: it is not as TOML has to be"),
            (
                "[scs.sky.Object]\ncolumns = ['id']",
                "m.toml:1: \"sky\" is no table: write the database before it",
            ),
            (
                "[scs.'sky.Object']\n\ncolumn = ['id']",
                "m.toml:3: there is no key column; did you mean columns?",
            ),
            (
                "[scs.'sky.Object']\ncolumns = 'id'",
                "m.toml:2: columns: a list of names",
            ),
            (
                "[scs.'sky.Object']\ncolumns = []",
                "m.toml:2: columns: a list of names",
            ),
            (
                "[scs.'sky.Object']\ncolumns = ['id', 'ID']",
                "m.toml:2: columns: a list of names",
            ),
            ("x = 1\n[scs.'sky.Object']", "m.toml:1: there is no key x"),
            ("[scs.'sky.Object']", "needs columns"),
        ] {
            let sentence = read(text).unwrap_err();
            assert!(sentence.contains(words), "{text}: {sentence}");
        }
    }
}
