//! Who may read what a data directory holds: its owner all, the group may read, others nothing.
//!
//! The modes are given when files and directories are made, so that nothing is open for a moment; the process's umask may
//! take more away. What is there already keeps the mode that somebody gave it.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::Access;

/// Of the files in a data directory.
const FILE_MODE: u32 = 0o640;
/// Of a data directory and of those in it.
const DIRECTORY_MODE: u32 = 0o750;

/// Makes a directory of a data directory, and those above it that are not there.
pub fn make_directories(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)
}

/// Opens a file of a data directory for writing; whoever opens it says whether it may be there or must not be.
pub fn writable_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(FILE_MODE);
    options
}

/// Whether this process may write a file or make files in a directory.
pub(crate) fn may_write(path: &Path) -> bool {
    rustix::fs::access(path, Access::WRITE_OK).is_ok()
}
