//! The folder `queries` of a data directory: the lock that one server holds on it unless several share the queries, and the files of
//! each query.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use engine::EngineError;
use sql::ErrorCode;

use crate::QueryError;
use crate::block_file::copy_whole;
use crate::stored_warnings::path_beside;

/// Where queries are stored.
#[derive(Debug)]
pub(crate) struct Storage {
    pub directory: PathBuf,
    /// Held as long as the service lives.
    _lock: Option<File>,
}

impl Storage {
    /// Makes the folder and locks it.
    ///
    /// # Errors
    /// It cannot be written, or another server holds it.
    pub fn open(data_dir: &Path) -> Result<Self, QueryError> {
        let directory = Self::made(data_dir)?;
        let refused = |error: &dyn std::fmt::Display| not_written(&directory, error);
        let path = directory.join("lock");
        let mut options = catalog::writable_file();
        let lock = options.read(true).create(true).truncate(false).open(path);
        let lock = lock.map_err(|error| refused(&error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                directory,
                _lock: Some(lock),
            }),
            Err(TryLockError::WouldBlock) => {
                let sentence = "another server runs the queries of this data directory: submit the query there";
                Err(QueryError::new(ErrorCode::READ_ONLY, sentence))
            }
            Err(TryLockError::Error(error)) => Err(refused(&error)),
        }
    }

    /// Makes the folder, which several servers write.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open_shared(data_dir: &Path) -> Result<Self, QueryError> {
        Ok(Self {
            directory: Self::made(data_dir)?,
            _lock: None,
        })
    }

    fn made(data_dir: &Path) -> Result<PathBuf, QueryError> {
        let directory = data_dir.join("queries");
        let made = catalog::make_directories(&directory);
        made.map_err(|error| not_written(&directory, &error))?;
        Ok(directory)
    }

    /// The directory of a query.
    pub fn of(&self, id: u64) -> PathBuf {
        self.directory.join(id.to_string())
    }

    /// The files of a query that was taken over so many times.
    pub fn files(&self, id: u64, epoch: u64) -> QueryFiles {
        QueryFiles {
            directory: self.of(id),
            epoch,
        }
    }
}

fn not_written(directory: &Path, error: &dyn std::fmt::Display) -> QueryError {
    let sentence = format!(
        "queries cannot be submitted: {} cannot be written: {error}",
        directory.display()
    );
    QueryError::new(ErrorCode::READ_ONLY, sentence)
}

/// The files of a query. Each front end that takes it over has others, so that a former one, which may still write, changes nothing that
/// counts.
#[derive(Debug, Clone)]
pub(crate) struct QueryFiles {
    pub directory: PathBuf,
    epoch: u64,
}

impl QueryFiles {
    fn of_epoch(&self, name: &str, epoch: u64) -> PathBuf {
        self.directory.join(match epoch {
            0 => name.to_owned(),
            epoch => format!("{name}-{epoch}"),
        })
    }

    /// The results of its pieces, while it runs.
    pub fn journal(&self) -> PathBuf {
        self.of_epoch("journal", self.epoch)
    }

    /// The stored result.
    pub fn result(&self) -> PathBuf {
        self.of_epoch("result", self.epoch)
    }

    /// Makes its own of what the front ends before have left: the last result or journal that there is.
    pub fn inherit(&self) -> Result<(), EngineError> {
        let failed = |path: &Path, error: std::io::Error| {
            EngineError::storage(format!("cannot use the file {}: {error}", path.display()))
        };
        let (journal, result) = (self.journal(), self.result());
        let warnings = path_beside(&result);
        for former in (0..self.epoch).rev() {
            let left = self.of_epoch("result", former);
            let told = path_beside(&left);
            // They are there before their result is.
            if !warnings.exists() && told.exists() {
                fs::rename(&told, &warnings).map_err(|error| failed(&told, error))?;
            }
            if !result.exists() && left.exists() {
                fs::rename(&left, &result).map_err(|error| failed(&left, error))?;
            }
            let left = self.of_epoch("journal", former);
            if !journal.exists() && left.exists() {
                copy_whole(&left, &journal)?;
            }
        }
        Ok(())
    }

    /// Removes all files but the result and its warnings.
    pub fn keep_result(&self) {
        let result = self.result();
        let kept = [path_beside(&result), result];
        let files = fs::read_dir(&self.directory).into_iter().flatten();
        for file in (files.flatten()).filter(|file| !kept.contains(&file.path())) {
            // What stays is removed with the query.
            let _ = fs::remove_file(file.path());
        }
    }
}

/// Removes a query's files, if it has any.
pub(crate) fn remove_directory(directory: &Path) {
    if let Err(error) = fs::remove_dir_all(directory)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(path = %directory.display(), %error, "a query's files could not be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_file::{BlockFile, Tag};

    fn written(path: &Path, bodies: &[&[u8]]) {
        let (file, _) = BlockFile::append_to(path).unwrap();
        for body in bodies {
            let tag = Tag {
                kind: 3,
                phase: 0,
                piece: 0,
                run: 0,
                rows: 0,
            };
            file.append(tag, body).unwrap();
        }
    }

    fn read(path: &Path) -> Vec<Vec<u8>> {
        let (file, blocks) = BlockFile::open(path).unwrap();
        let bodies = blocks.iter().map(|block| file.read(block).unwrap());
        bodies.collect()
    }

    #[test]
    fn the_last_journal_is_copied_as_far_as_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open_shared(dir.path()).unwrap();
        let [first, second, fourth] = [0, 1, 3].map(|epoch| storage.files(7, epoch));
        assert!(first.inherit().is_ok());
        fs::create_dir(&first.directory).unwrap();
        written(&first.journal(), &[b"one", b"two"]);
        second.inherit().unwrap();
        assert_eq!(read(&second.journal()), [b"one", b"two"]);
        // What the former owner writes afterwards changes nothing.
        written(&first.journal(), &[b"late"]);
        written(&second.journal(), &[b"three", b"four", b"five"]);
        assert_eq!(read(&second.journal()).len(), 5);
        // A byte of `four` is another, though its header is whole and it is not the last.
        let mut bytes = fs::read(second.journal()).unwrap();
        let at = bytes.windows(4).position(|word| word == b"four").unwrap();
        bytes[at] = b'F';
        fs::write(second.journal(), bytes).unwrap();
        fourth.inherit().unwrap();
        assert_eq!(read(&fourth.journal()), [&b"one"[..], b"two", b"three"]);
        assert!(second.journal().exists());
        // A result is taken over, too.
        fs::write(second.result(), b"rows").unwrap();
        fs::write(path_beside(&second.result()), b"warnings").unwrap();
        fourth.inherit().unwrap();
        assert_eq!(fs::read(fourth.result()).unwrap(), b"rows");
        let warnings = path_beside(&fourth.result());
        assert_eq!(fs::read(&warnings).unwrap(), b"warnings");
        fourth.keep_result();
        let mut left: Vec<_> = { fs::read_dir(&first.directory).unwrap() }
            .map(|file| file.unwrap().path())
            .collect();
        left.sort();
        assert_eq!(left, [fourth.result(), warnings]);
    }
}
