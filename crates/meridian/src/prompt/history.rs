//! The file in which the prompt keeps what was typed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Statements that are kept.
pub const MOST_ENTRIES: usize = 5000;

/// Where the history is: in the user's state directory, as the XDG base directory specification has it. `None` if the environment
/// names no home.
pub fn path() -> Option<PathBuf> {
    let of_variable = |name| std::env::var_os(name).map(PathBuf::from);
    let state = of_variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| Some(of_variable("HOME")?.join(".local/state")))?;
    Some(state.join("meridian").join("history"))
}

/// Makes the file if there is none, and lets nobody but the user read it: statements may contain what is not for others.
pub fn prepare(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
    }
    let opened = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    opened.map(drop)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))
}
