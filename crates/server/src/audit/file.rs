//! The file of the audit log, which is set aside when it is full.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::AuditOptions;

/// Statements may tell more than the rows of the data directory: for the owner alone.
const MODE: u32 = 0o600;

/// The file that is written.
#[derive(Debug)]
pub(super) struct AuditFile {
    options: AuditOptions,
    file: File,
}

impl AuditFile {
    pub fn open(options: AuditOptions) -> io::Result<Self> {
        let file = opened(&options.path)?;
        Ok(Self { options, file })
    }

    pub fn path(&self) -> &Path {
        &self.options.path
    }

    /// Appends whole lines: all of them, or none.
    pub fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        // Somebody else may have set the file aside.
        let here = self.options.path.metadata();
        let is_same = |there: &Metadata| {
            let own = self.file.metadata();
            own.is_ok_and(|own| (own.ino(), own.dev()) == (there.ino(), there.dev()))
        };
        if !here.as_ref().is_ok_and(is_same) {
            self.file = opened(&self.options.path)?;
        }
        let mut length = self.file.metadata()?.len();
        if length > 0 && length + lines.len() as u64 > self.options.bytes {
            self.rotate()?;
            length = 0;
        }
        let written = self.file.write_all(lines);
        if written.is_err() {
            // Half a line would spoil the next one.
            let _ = self.file.set_len(length);
        }
        written
    }

    /// Begins another file. The former ones get the next number, and the oldest goes.
    fn rotate(&mut self) -> io::Result<()> {
        for number in (0..self.options.files).rev() {
            let (from, to) = (self.numbered(number), self.numbered(number + 1));
            match std::fs::rename(from, to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.file = opened(&self.options.path)?;
        if self.options.files == 0 {
            self.file.set_len(0)?;
        }
        Ok(())
    }

    /// A former file, or the present one for 0.
    fn numbered(&self, number: usize) -> PathBuf {
        let mut path = self.options.path.clone().into_os_string();
        if number > 0 {
            path.push(format!(".{number}"));
        }
        path.into()
    }
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .open(path)
}
