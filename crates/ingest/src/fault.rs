//! The test seam for crashes and races: the environment variable `MERIDIAN_FAULT=PHASE:kill` or `PHASE:error` ends a
//! load right after the named phase, by SIGKILL to itself or by an error; `PHASE:stop` stops it there until it gets SIGCONT.
//!
//! It exists so that whole-system tests can ask "what does a reader see if the power fails here?" at every
//! boundary of the load transaction. Without the variable it costs one look at the environment a phase.

use crate::error::IngestError;

/// The boundaries of a load transaction, in the order in which they are passed.
pub const FAULT_PHASES: [&str; 9] = [
    "begun",
    "read",
    "partitioned",
    "index-written",
    "chunks-written",
    "overlap-written",
    "manifest-written",
    "before-publish",
    "after-publish",
];

/// Stops here if the environment requests it.
pub(crate) fn reached(phase: &str) -> Result<(), IngestError> {
    debug_assert!(FAULT_PHASES.contains(&phase));
    let Ok(wish) = std::env::var("MERIDIAN_FAULT") else {
        return Ok(());
    };
    match wish.split_once(':') {
        Some((at, "error")) if at == phase => Err(IngestError::Fault(phase.to_owned())),
        Some((at, "kill")) if at == phase => kill_self(),
        Some((at, "stop")) if at == phase => {
            signal_self("-STOP");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Dies as under `kill -9`: no destructor runs, no buffer is flushed.
fn kill_self() -> ! {
    signal_self("-KILL");
    std::process::abort()
}

/// A process cannot be sent a signal from safe Rust, so the program `kill` does it.
fn signal_self(signal: &str) {
    let pid = std::process::id().to_string();
    let _ = std::process::Command::new("kill")
        .args([signal, &pid])
        .status();
}
