//! The output of commands on standard output and standard error.
//!
//! Invariant: nobody reading any more, as after `| head -1`, neither ends nor fails what a command does. The macros of the
//! standard library end the program there.

use std::io::{self, Write, stderr, stdout};

use crate::failure::Failure;

/// Writes a part of a command's answer to standard output, at once.
///
/// # Errors
/// Where it cannot be written although somebody might read it, as on a full disk.
pub fn tell(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    still_read(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(|_| ())
}

/// Writes a line to standard error, where nothing can be done about it not being read.
pub fn remark(line: &str) {
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

/// Whether what was written was read: a reader that has gone away, as `head` does, ends the result and is no failure.
pub fn still_read(written: io::Result<()>) -> Result<bool, Failure> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot write the output: {error}"))),
    }
}
