//! Processes that another one has started, and that end when it does, however it ends: they hold the reading end of a pipe whose writing
//! end goes with it.

use std::io;
use std::process::{Command, Stdio};
use std::thread;

use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Says that standard input is the pipe of the parent.
const PIPE: &str = "MERIDIAN_PARENT_PIPE";

/// Has a process end when this one does. Its standard input has to be kept as long as it shall run.
pub fn tie(command: &mut Command) -> &mut Command {
    command.env(PIPE, "stdin").stdin(Stdio::piped())
}

/// Ends this process when the one that has started it ends, if that has tied it to itself.
pub fn end_with_parent(stop: &CancellationToken) {
    if std::env::var_os(PIPE).is_none() {
        return;
    }
    let stop = stop.clone();
    thread::spawn(move || {
        // The parent writes nothing: this returns when it is gone.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        warn!("the process that has started this one is gone: it ends, too");
        stop.cancel();
    });
}
