//! The sources of the options of `meridian serve`: flags, then the environment, then a file, then defaults.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Write};
use std::path::Path;

use catalog::fold_name;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::file::{ConeColumns, File};
use super::options::{DefaultValue, ROWS, Row};
use crate::failure::Failure;

/// The text of an option, and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OptionValue {
    pub(super) text: String,
    pub(super) source: Source,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Flag,
    Environment,
    /// In a line of a file.
    File(Place),
    /// The default, with a description.
    Default(&'static str),
}

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The options that flags and the environment set.
#[derive(Debug, Default)]
pub(super) struct CommandLineOptions(Vec<(&'static str, OptionValue)>);

impl Args for CommandLineOptions {
    fn augment_args(command: Command) -> Command {
        ROWS.iter()
            .fold(command, |command, row| command.arg(row.argument()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for CommandLineOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |row: &Row| {
            let source = match matches.value_source(row.key)? {
                ValueSource::CommandLine => Source::Flag,
                ValueSource::EnvVariable => Source::Environment,
                _ => return None,
            };
            let text = matches.get_one::<String>(row.key)?.clone();
            // Service managers often set variables to an empty text.
            let says_something = source == Source::Flag || !text.is_empty();
            says_something.then_some((row.key, OptionValue { text, source }))
        };
        Ok(Self(ROWS.iter().filter_map(typed).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The effective value of each option.
#[derive(Debug)]
pub(super) struct Layers {
    values: BTreeMap<&'static str, OptionValue>,
    cones: Vec<ConeColumns>,
}

impl Layers {
    /// Merges the sources: the command line over the file, and the file over the defaults.
    ///
    /// # Errors
    /// The file cannot be read, or says what is not known.
    pub(super) fn of(typed: CommandLineOptions, file: Option<&Path>) -> Result<Self, Failure> {
        let file = file.map(File::read).transpose()?.unwrap_or_default();
        let mut values: BTreeMap<_, _> = ROWS.iter().filter_map(default_value).collect();
        values.extend(file.values);
        values.extend(typed.0);
        Ok(Self {
            values,
            cones: file.cones,
        })
    }

    /// The value of an option.
    ///
    /// # Errors
    /// It is none, or has to be given and is not.
    pub(super) fn read<T>(
        &self,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        let Some(given) = self.values.get(key) else {
            return Err(Failure::new(missing(key)));
        };
        read(&given.text)
            .map_err(|reason| Failure::new(format!("{}: {reason}", written(key, &given.source))))
    }

    /// Reads all values that there are.
    ///
    /// # Errors
    /// The first that is none.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut given = ROWS.iter().filter(|row| self.values.contains_key(row.key));
        given.try_for_each(|row| self.read(row.key, row.check))
    }

    /// The columns of cones, by the folded names of database and table.
    pub(super) fn cone_columns(&self) -> HashMap<(String, String), Vec<String>> {
        let cones = self.cones.iter();
        let columns = cones.map(|cone| {
            let (database, table) = &cone.table;
            let table = (fold_name(database), fold_name(table));
            (table, cone.columns.clone())
        });
        columns.collect()
    }

    /// All of it as a file that says the same, with where each value comes from.
    pub(super) fn show(&self) -> String {
        let mut shown = String::from("# What each option comes to, and where that was said.\n");
        for row in ROWS {
            let line = match self.values.get(row.key) {
                Some(given) => {
                    let value = format!("{} = {}", row.key, as_toml(&given.text));
                    format!("{value:<40} # {}", origin(row, &given.source))
                }
                None => format!("# {}", missing(row.key)),
            };
            // Writing into a string does not fail.
            let _ = writeln!(shown, "{line}");
        }
        for cone in &self.cones {
            let (database, table) = &cone.table;
            let name = quoted(&format!("{database}.{table}"));
            let columns: Vec<String> = cone.columns.iter().map(|column| quoted(column)).collect();
            let columns = format!("columns = [{}]", columns.join(", "));
            let _ = writeln!(shown, "\n[scs.{name}]\n{columns:<40} # {}", cone.place);
        }
        shown
    }
}

/// The default of an option.
fn default_value(row: &Row) -> Option<(&'static str, OptionValue)> {
    let (text, why) = match row.default {
        DefaultValue::Needed => return None,
        DefaultValue::Is(text) => (text.to_owned(), ""),
        DefaultValue::Machine(compute, why) => (compute().to_string(), why),
    };
    let source = Source::Default(why);
    Some((row.key, OptionValue { text, source }))
}

fn missing(key: &str) -> String {
    let row = ROWS.iter().find(|row| row.key == key);
    row.map_or_else(String::new, |row| {
        format!(
            "{key} is needed: give --{key} {}, set {}, or write {key} = ... in the file of --config",
            row.value, row.environment
        )
    })
}

/// An option as it was written.
fn written(key: &str, source: &Source) -> String {
    let row = ROWS.iter().find(|row| row.key == key);
    match (source, row) {
        (Source::Environment, Some(row)) => row.environment.to_owned(),
        (Source::File(place), _) => format!("{place}: {key}"),
        _ => format!("--{key}"),
    }
}

fn origin(row: &Row, source: &Source) -> String {
    match source {
        Source::Flag => format!("--{}", row.key),
        Source::Environment => row.environment.to_owned(),
        Source::File(place) => place.to_string(),
        Source::Default("") => "the default".to_owned(),
        Source::Default(why) => format!("the default: {why}"),
    }
}

/// A value as a file has it: a number bare, anything else in quotes.
fn as_toml(text: &str) -> String {
    match text.parse::<i64>() {
        Ok(number) if number.to_string() == text => number.to_string(),
        _ => quoted(text),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        typed: CommandLineOptions,
    }

    fn layers(flags: &[&str], file: &str) -> Layers {
        let mut written = tempfile::NamedTempFile::new().unwrap();
        written.write_all(file.as_bytes()).unwrap();
        let flags = [&["meridian"], flags].concat();
        let program = Program::try_parse_from(flags).unwrap();
        Layers::of(program.typed, Some(written.path())).unwrap()
    }

    fn text(layers: &Layers, key: &str) -> String {
        layers.read(key, |text| Ok(text.to_owned())).unwrap()
    }

    #[test]
    fn flags_count_before_the_file_and_that_before_what_is_usual() {
        let layers = layers(&["--grace", "7"], "grace = 8\nthreads = 3\n");
        assert_eq!(text(&layers, "grace"), "7");
        assert_eq!(text(&layers, "threads"), "3");
        assert_eq!(text(&layers, "max-connections"), "500");
    }

    /// What is shown is read again as the same, whatever characters are in it.
    #[test]
    fn what_is_shown_says_the_same() {
        let file = "data = \"a \\\"b\\\" \\n # c\"\nmemory = \"8G\"\nslow = 0.5\n[scs.\"sky.Object\"]\ncolumns = [\"ra\"]\n";
        let first = layers(&["--mysql", "off"], file);
        let second = layers(&[], &first.show());
        for row in ROWS {
            assert_eq!(text(&first, row.key), text(&second, row.key), "{}", row.key);
        }
        assert_eq!(first.cone_columns(), second.cone_columns());
        assert_eq!(text(&second, "data"), "a \"b\" \n # c");
    }

    #[test]
    fn where_a_value_comes_from_is_shown() {
        let shown = layers(&["--grace", "7"], "\nthreads = 3\n").show();
        let line = |key: &str| shown.lines().find(|line| line.starts_with(key)).unwrap();
        assert!(line("grace").ends_with("# --grace"));
        assert!(line("threads").ends_with(":2"));
        assert!(line("max-connections").ends_with("# the default"));
        assert!(line("cache").ends_with("# the default: a third of the machine's memory"));
        assert!(shown.contains("# data is needed: give --data DIR"));
    }
}
