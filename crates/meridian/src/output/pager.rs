//! Long results on a terminal go through the user's pager.

use std::env;
use std::io::{self, Stdout, Write, stdout};
use std::process::{Child, ChildStdin, Command, Stdio};

/// A writer to the terminal: what fits on the screen is written as it is, at the end; a longer text goes to the pager as it comes.
pub struct Pager {
    state: State,
    rows: usize,
    columns: usize,
    /// Rows of the screen that the text has taken so far.
    taken: usize,
    /// Characters since the last line end.
    in_line: usize,
}

enum State {
    /// It may still fit.
    Waiting(Vec<u8>),
    Paging(Child, Option<ChildStdin>),
    /// There is no pager.
    Direct(Stdout),
}

impl Pager {
    /// A writer to the terminal that standard output is.
    pub fn new() -> Self {
        let (rows, columns) = console::Term::stdout().size();
        Self {
            state: match command() {
                Some(_) => State::Waiting(Vec::new()),
                None => State::Direct(stdout()),
            },
            // The prompt takes one, and the number of rows another.
            rows: usize::from(rows).saturating_sub(2).max(1),
            columns: usize::from(columns).max(1),
            taken: 0,
            in_line: 0,
        }
    }

    /// Whether what has been written and these bytes fit on the screen.
    fn fits(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            match byte {
                b'\n' => {
                    self.taken += self.in_line.div_ceil(self.columns).max(1);
                    self.in_line = 0;
                }
                // Not the bytes that continue a character.
                _ => self.in_line += usize::from(byte & 0xC0 != 0x80),
            }
        }
        self.taken + self.in_line / self.columns <= self.rows
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if matches!(self.state, State::Waiting(_)) && !self.fits(bytes) {
            let next = command()
                .and_then(start)
                .unwrap_or_else(|| State::Direct(stdout()));
            if let State::Waiting(begun) = std::mem::replace(&mut self.state, next) {
                self.write_all(&begun)?;
            }
        }
        match &mut self.state {
            State::Waiting(begun) => begun.write(bytes),
            State::Paging(_, Some(input)) => input.write(bytes),
            State::Paging(_, None) => Ok(bytes.len()),
            State::Direct(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Paging(_, Some(input)) => input.flush(),
            State::Direct(output) => output.flush(),
            State::Waiting(_) | State::Paging(_, None) => Ok(()),
        }
    }
}

impl Drop for Pager {
    /// Shows a text that fits, or waits until the user leaves the pager. A terminal that cannot be written cannot be told so either.
    fn drop(&mut self) {
        match &mut self.state {
            State::Waiting(begun) => {
                let _ = stdout().write_all(begun).and_then(|()| stdout().flush());
            }
            State::Paging(pager, input) => {
                drop(input.take());
                let _ = pager.wait();
            }
            State::Direct(output) => {
                let _ = output.flush();
            }
        }
    }
}

/// The user's pager: `$PAGER`, else `less` or `more` if they are installed. `None` if there is none, or `$PAGER` is empty or `cat`.
fn command() -> Option<String> {
    match env::var("PAGER") {
        Ok(named) => Some(named.trim().to_owned()).filter(|it| !it.is_empty() && it != "cat"),
        Err(_) => ["less", "more"]
            .into_iter()
            .find(|name| is_installed(name))
            .map(str::to_owned),
    }
}

fn is_installed(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Starts a pager; `None` if that fails.
fn start(command: String) -> Option<State> {
    let mut pager = Command::new("sh");
    pager.arg("-c").arg(command).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        // Leaves what fits, keeps colours and cuts long lines, which the arrow keys scroll.
        pager.env("LESS", "FRSX");
    }
    let mut pager = pager.spawn().ok()?;
    let input = pager.stdin.take();
    Some(State::Paging(pager, input))
}
