//! Where a password comes from, and what is kept of it.

use std::io::{IsTerminal, Read, stdin};

use clap::Args;
use console::Term;
use users::NativePassword;

use super::UserArguments;
use crate::failure::Failure;

/// Bytes of standard input that are read for a password.
const MOST_READ: u64 = 4096;

/// Where the password comes from.
#[derive(Args)]
pub struct PasswordArguments {
    #[command(flatten)]
    pub(super) user: UserArguments,
    /// Read the password from standard input, up to the end of its first line, instead of asking for it.
    #[arg(long, conflicts_with = "no_password")]
    password_stdin: bool,
    /// No password: only tokens let the user in.
    #[arg(long)]
    no_password: bool,
    /// Keep what clients need that know mysql_native_password alone: servers take it that `serve --mysql-native-password` started.
    #[arg(long, conflicts_with = "no_password")]
    mysql_native_password: bool,
}

impl PasswordArguments {
    /// Whether what `mysql_native_password` needs is kept of it.
    pub(super) fn native(&self) -> NativePassword {
        match self.mysql_native_password {
            true => NativePassword::Kept,
            false => NativePassword::NotKept,
        }
    }

    /// The password; `None` if there is to be none.
    pub(super) fn read(&self) -> Result<Option<String>, Failure> {
        if self.no_password {
            return Ok(None);
        }
        if self.password_stdin || !stdin().is_terminal() {
            let mut text = String::new();
            stdin().take(MOST_READ).read_to_string(&mut text)?;
            let line = text.lines().next().unwrap_or_default();
            return Ok(Some(line.to_owned()));
        }
        let terminal = Term::stderr();
        terminal.write_str(&format!("Password of {}: ", self.user.name))?;
        let first = terminal.read_secure_line()?;
        terminal.write_str("The same again: ")?;
        match terminal.read_secure_line()? == first {
            true => Ok(Some(first)),
            false => Err(Failure::new("the two passwords differ: nothing is changed")),
        }
    }
}
