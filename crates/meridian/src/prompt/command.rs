//! The commands of the prompt itself, which begin with a backslash.

use std::path::PathBuf;

/// What `\?` prints.
pub const HELP: &str = r"Statements end with a semicolon and may have several lines.

  \d              lists the tables of the database
  \d TABLE        describes a table
  \l              lists the databases
  use DATABASE    chooses a database
  \i FILE         executes the statements of a file
  \o FILE         writes the results that follow to a file; \o alone shows them again
  \x [on|off]     shows each row as a block of lines; off: as a line of columns; alone: changes between on and as it fits
  \timing [on|off]   tells how long statements take
  \?              prints this
  \q              leaves, as Ctrl-D does

The tab key completes keywords, functions and names. Ctrl-C clears what is typed, or ends the statement that runs.
A result that is longer than the screen is shown by $PAGER.
";

/// A command with its argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Lists the tables, or describes the one that is named.
    Describe(Option<String>),
    /// Lists the databases.
    Databases,
    /// Tells the time that statements take, or does not; `None`: changes that.
    Timing(Option<bool>),
    /// Shows rows as blocks, or does not; `None`: changes that.
    Expanded(Option<bool>),
    /// Executes the statements of a file.
    Include(PathBuf),
    /// Writes results to a file; `None`: shows them.
    Output(Option<PathBuf>),
    /// Prints [`HELP`].
    Help,
    /// Leaves.
    Quit,
}

/// The commands' names, for completion.
pub const NAMES: [&str; 8] = ["\\d", "\\l", "\\i", "\\o", "\\x", "\\timing", "\\?", "\\q"];

impl Command {
    /// The command of a line; `None` if the line is (part of) a statement.
    ///
    /// # Errors
    /// There is no such command, or it takes another argument: the sentence says which there are.
    pub fn read(line: &str) -> Result<Option<Self>, String> {
        let line = line.trim();
        // What people type who want to leave or are lost.
        match line
            .trim_end_matches(';')
            .trim_end()
            .to_ascii_lowercase()
            .as_str()
        {
            "exit" | "quit" => return Ok(Some(Self::Quit)),
            "help" | "?" => return Ok(Some(Self::Help)),
            _ => {}
        }
        let Some(command) = line.strip_prefix('\\') else {
            return Ok(None);
        };
        let (name, argument) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let argument = argument.trim().trim_end_matches(';').trim_end();
        let given = (!argument.is_empty()).then_some(argument);
        let read = match (name.trim_end_matches(';'), given) {
            ("d", table) => Self::Describe(table.map(str::to_owned)),
            ("l", None) => Self::Databases,
            ("timing", switch) => Self::Timing(read_switch(name, switch)?),
            ("x", switch) => Self::Expanded(read_switch(name, switch)?),
            ("i", Some(file)) => Self::Include(unquoted(file)),
            ("i", None) => {
                return Err("\\i needs a file of statements, as in \\i queries.sql".to_owned());
            }
            ("o", file) => Self::Output(file.map(unquoted)),
            ("?" | "h" | "help", None) => Self::Help,
            ("q" | "quit", None) => Self::Quit,
            ("l" | "?" | "h" | "help" | "q" | "quit", Some(_)) => {
                return Err(format!("\\{name} takes no argument"));
            }
            (other, _) => {
                let known = NAMES.join(" ");
                return Err(format!(
                    "there is no command \\{other}; those that there are: {known}"
                ));
            }
        };
        Ok(Some(read))
    }
}

fn read_switch(name: &str, text: Option<&str>) -> Result<Option<bool>, String> {
    match text.map(str::to_ascii_lowercase).as_deref() {
        None => Ok(None),
        Some("on") => Ok(Some(true)),
        Some("off") => Ok(Some(false)),
        Some(other) => Err(format!("\\{name} takes on or off, not {other}")),
    }
}

/// A file's name, which may stand in quotes; `~/` is the home directory.
fn unquoted(text: &str) -> PathBuf {
    for quote in ['\'', '"'] {
        let inner = text
            .strip_prefix(quote)
            .and_then(|it| it.strip_suffix(quote));
        if let Some(inner) = inner {
            return PathBuf::from(inner);
        }
    }
    match (text.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let read = |line| Command::read(line).unwrap();
        assert_eq!(read("\\d"), Some(Command::Describe(None)));
        assert_eq!(
            read("\\d Object;"),
            Some(Command::Describe(Some("Object".to_owned())))
        );
        assert_eq!(read("\\timing off"), Some(Command::Timing(Some(false))));
        assert_eq!(
            read("\\i 'my file.sql'"),
            Some(Command::Include(PathBuf::from("my file.sql")))
        );
        assert_eq!(read("\\o"), Some(Command::Output(None)));
        assert_eq!(read("exit;"), Some(Command::Quit));
        assert_eq!(read("SELECT 1;"), None);
    }

    #[test]
    fn a_wrong_command_is_told_with_those_that_there_are() {
        assert!(Command::read("\\z").unwrap_err().contains("\\timing"));
        assert!(
            Command::read("\\x maybe")
                .unwrap_err()
                .contains("on or off")
        );
        assert!(Command::read("\\i").unwrap_err().contains("needs a file"));
    }
}
