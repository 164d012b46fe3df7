//! Inputs that can be read only once: standard input, named pipes, process substitutions, character devices.
//!
//! The readers look at an input several times (its first bytes, a sample, its rows) and some of them need ranges. So
//! such an input is copied, once and whole, to a file in the load's own directory before anybody looks at it; that
//! file goes as what else the load keeps aside does. Messages name the input as it was given.

use std::collections::HashSet;
use std::fs::{self, File, FileType};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use catalog::{make_directories, writable_file};

use crate::error::IngestError;
use crate::progress::{Phase, Progress};
use crate::remote::{RemoteFile, RemoteInputs};

/// What messages call standard input.
const STANDARD_INPUT: &str = "standard input";
/// The names of standard input. It is read through the process's own handle: opened anew, a redirected file would
/// begin at its first byte again, whatever was read of it before.
const NAMES_OF_STANDARD_INPUT: [&str; 4] = ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];

const BUFFER: usize = 1 << 20;
/// Buffers that may wait to be written.
const BUFFERS_AHEAD: usize = 4;
/// How often a wait for input looks whether the load was cancelled.
const PATIENCE: Duration = Duration::from_millis(100);

fn is_standard_input(path: &Path) -> bool {
    NAMES_OF_STANDARD_INPUT
        .iter()
        .any(|name| path == Path::new(name))
}

/// What messages call an input.
pub(crate) fn display_name(path: &Path) -> PathBuf {
    if is_standard_input(path) {
        return STANDARD_INPUT.into();
    }
    path.to_path_buf()
}

/// Whether an input can be read only once. A file that is not there is none: its reader says so.
pub(crate) fn is_stream(path: &Path) -> bool {
    let by_type = |kind: FileType| kind.is_fifo() || kind.is_char_device();
    is_standard_input(path) || fs::metadata(path).is_ok_and(|found| by_type(found.file_type()))
}

/// Whether any of the inputs is copied before it is read.
pub(crate) fn any_stream(files: &[PathBuf], remote: Option<&RemoteInputs>) -> bool {
    let is_copied = |file: &PathBuf| match remote_file(file, remote) {
        Some(found) => !found.is_read_in_place(),
        None => is_stream(file),
    };
    files.iter().any(is_copied)
}

fn remote_file<'a>(input: &Path, remote: Option<&'a RemoteInputs>) -> Option<&'a Arc<RemoteFile>> {
    remote.and_then(|remote| remote.get(input))
}

/// Rejects what is no file, before it is opened: a reader opens its file several times, and a pipe at whose other end
/// nobody is would keep it waiting.
pub(crate) fn expect_regular(path: &Path) -> Result<(), IngestError> {
    let metadata = fs::metadata(path).map_err(|e| IngestError::io("open", path, e))?;
    if metadata.is_file() {
        return Ok(());
    }
    let reason = if metadata.is_dir() {
        "it is a directory: name the files in it"
    } else {
        "it is not a file but a pipe or a device, which can be read only once: write it to a file first"
    };
    Err(IngestError::layout(path, reason))
}

/// The inputs of a load as files that can be read as often as need be.
#[derive(Debug)]
pub(crate) struct Spool {
    /// One for each input: itself, or the copy of what could be read only once.
    files: Vec<PathBuf>,
    /// The copies and what they are copies of.
    copies: Vec<(PathBuf, PathBuf)>,
}

impl Spool {
    /// Copies those of the inputs that can be read only once to files below `dir`, one after the other, and those at URLs that are not read
    /// where they are.
    ///
    /// # Errors
    /// A stream that is named twice: its second reader would find nothing, or wait for ever.
    pub(crate) fn take(
        inputs: &[PathBuf],
        remote: Option<&RemoteInputs>,
        dir: &Path,
        progress: &Progress,
    ) -> Result<Self, IngestError> {
        reject_repeated_streams(inputs)?;
        let mut spool = Self {
            files: Vec::with_capacity(inputs.len()),
            copies: Vec::new(),
        };
        for (number, input) in inputs.iter().enumerate() {
            let at_url = remote_file(input, remote);
            let is_copied = match at_url {
                Some(file) => !file.is_read_in_place(),
                None => is_stream(input),
            };
            if !is_copied {
                spool.files.push(input.clone());
                continue;
            }
            let bytes = at_url.and_then(|file| file.bytes());
            progress.enter(Phase::Receiving, bytes.unwrap_or_default());
            // A name may tell how a text is written, as `.tsv` does.
            let name = input.file_name().unwrap_or("standard-input".as_ref());
            let copy = dir.join(format!("input-{number}")).join(name);
            match at_url {
                Some(file) => {
                    let mut target = new_file(&copy)?;
                    file.copy_to(&mut target, &copy, progress)?;
                }
                None => copy_stream(input, &copy, progress)?,
            }
            spool.copies.push((copy.clone(), display_name(input)));
            spool.files.push(copy);
        }
        Ok(spool)
    }

    /// The files to read, in the order of the inputs.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Names the input where an error names its copy.
    pub(crate) fn name_inputs(&self, mut error: IngestError) -> IngestError {
        if let Some(path) = error.path_mut()
            && let Some((_, input)) = self.copies.iter().find(|(copy, _)| copy == path)
        {
            path.clone_from(input);
        }
        error
    }
}

fn reject_repeated_streams(inputs: &[PathBuf]) -> Result<(), IngestError> {
    let mut seen = HashSet::new();
    for input in inputs.iter().filter(|input| is_stream(input)) {
        let name = display_name(input);
        if !seen.insert(name.clone()) {
            let reason = "it is named twice, but can be read only once: name it once";
            return Err(IngestError::layout(&name, reason));
        }
    }
    Ok(())
}

/// Copies a stream to its end.
///
/// A thread of its own reads, and is left behind when the load is cancelled: nobody can tell when a pipe gives its next
/// byte, or whether anybody will ever open its other end.
fn copy_stream(input: &Path, copy: &Path, progress: &Progress) -> Result<(), IngestError> {
    let (sender, received) = sync_channel(BUFFERS_AHEAD);
    let path = input.to_path_buf();
    std::thread::spawn(move || {
        let mut source: Box<dyn Read> = if is_standard_input(&path) {
            Box::new(io::stdin())
        } else {
            match File::open(&path) {
                Ok(file) => Box::new(file),
                Err(error) => {
                    // Nobody listens any more when the load was cancelled; so below.
                    let _ = sender.send(Err(error));
                    return;
                }
            }
        };
        loop {
            let mut buffer = Vec::with_capacity(BUFFER);
            let read = source.by_ref().take(BUFFER as u64).read_to_end(&mut buffer);
            let more = read.as_ref().is_ok_and(|bytes| *bytes > 0);
            if sender.send(read.map(|_| buffer)).is_err() || !more {
                return;
            }
        }
    });
    write_received(&received, input, copy, progress)
}

fn write_received(
    received: &Receiver<io::Result<Vec<u8>>>,
    input: &Path,
    copy: &Path,
    progress: &Progress,
) -> Result<(), IngestError> {
    let cannot_write = |error| IngestError::io("write", copy, error);
    let mut file = new_file(copy)?;
    loop {
        match received.recv_timeout(PATIENCE) {
            Ok(Ok(bytes)) if bytes.is_empty() => return Ok(()),
            Ok(Ok(bytes)) => {
                file.write_all(&bytes).map_err(cannot_write)?;
                progress.advance(bytes.len() as u64);
            }
            Ok(Err(error)) => return Err(IngestError::io("read", &display_name(input), error)),
            // The reader ended without an end of the input: it failed unexpectedly.
            Err(RecvTimeoutError::Disconnected) => return Err(IngestError::Internal),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if progress.is_cancelled() {
            return Err(IngestError::Cancelled);
        }
    }
}

/// Makes the file of a copy.
fn new_file(copy: &Path) -> Result<File, IngestError> {
    let cannot_write = |error| IngestError::io("write", copy, error);
    if let Some(dir) = copy.parent() {
        make_directories(dir).map_err(cannot_write)?;
    }
    writable_file()
        .create_new(true)
        .open(copy)
        .map_err(cannot_write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_told_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.csv");
        fs::write(&file, "id\n1\n").unwrap();
        assert!(!is_stream(&file) && !is_stream(dir.path()) && !is_stream(Path::new("/nowhere")));
        assert!(is_stream(Path::new("/dev/null")) && is_stream(Path::new("-")));
        let rejected = expect_regular(Path::new("/dev/null")).unwrap_err();
        assert!(rejected.to_string().contains("only once"), "{rejected}");
    }

    #[test]
    fn a_stream_that_is_named_twice_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let inputs = ["-".into(), "/dev/stdin".into()];
        let rejected = Spool::take(&inputs, None, dir.path(), &Progress::default()).unwrap_err();
        let sentence = rejected.to_string();
        assert!(
            sentence.starts_with("standard input: it is named twice"),
            "{sentence}"
        );
    }
}
