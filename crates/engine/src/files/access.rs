//! Which files statements may name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use catalog::Column;
use ingest::{DecodeBudget, FileFormat, IngestError, RowFile};

use crate::EngineError;

/// Which files the statements of a session may name.
#[derive(Debug, Clone, Default)]
pub enum FileAccess {
    /// None of this machine's.
    #[default]
    Nothing,
    /// All files that the process may read: for users who can read them anyway.
    Everything,
    /// Those that were sent to this process, each within its budget.
    Received(Arc<ReceivedFiles>),
}

impl FileAccess {
    /// Opens a file; `None` where it may not be named.
    pub(crate) fn open(
        &self,
        path: &Path,
        format: FileFormat,
    ) -> Result<Option<Arc<RowFile>>, IngestError> {
        match self {
            Self::Nothing => Ok(None),
            Self::Everything => RowFile::open(path, format).map(|file| Some(Arc::new(file))),
            Self::Received(files) => Ok(files.opened(path).filter(|it| it.format() == format)),
        }
    }
}

/// Files that were sent to this process, and have been opened: planning a statement that names one waits for nothing.
#[derive(Debug, Default)]
pub struct ReceivedFiles(Mutex<HashMap<PathBuf, Arc<RowFile>>>);

impl ReceivedFiles {
    /// Opens a file, which statements may name for as long as what is given here is held. This reads and decodes a part of the
    /// file: it is for a thread that may take its time. The columns of a text file that are declared have these types.
    ///
    /// # Errors
    /// It cannot be read, or not within the budget.
    pub fn open(
        self: &Arc<Self>,
        path: &Path,
        format: FileFormat,
        declared: Option<&[Column]>,
        budget: DecodeBudget,
    ) -> Result<ReceivedFile, EngineError> {
        let file = RowFile::open_within(path, format, declared, &budget);
        let file = file.map_err(|error| EngineError::from_file(&error))?;
        self.all().insert(path.to_path_buf(), Arc::new(file));
        Ok(ReceivedFile {
            files: Arc::clone(self),
            path: path.to_path_buf(),
            budget,
        })
    }

    fn opened(&self, path: &Path) -> Option<Arc<RowFile>> {
        self.all().get(path).cloned()
    }

    /// A panic elsewhere leaves the list whole: every change is a single one.
    fn all(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<RowFile>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An uploaded file. Once this is dropped no statement may name it, and running reads of it end.
#[derive(Debug)]
pub struct ReceivedFile {
    files: Arc<ReceivedFiles>,
    path: PathBuf,
    budget: DecodeBudget,
}

impl ReceivedFile {
    /// The names of its columns.
    pub fn columns(&self) -> Vec<String> {
        let file = self.files.opened(&self.path);
        let fields = file.iter().flat_map(|file| file.schema().fields().iter());
        fields.map(|field| field.name().clone()).collect()
    }
}

impl Drop for ReceivedFile {
    fn drop(&mut self) {
        self.files.all().remove(&self.path);
        self.budget.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_may_be_named_while_they_are_held() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        std::fs::write(&path, "ra,dec\n1,2\n").unwrap();
        let files = Arc::new(ReceivedFiles::default());
        let access = FileAccess::Received(Arc::clone(&files));
        let may_name = |access: &FileAccess, format| access.open(&path, format).unwrap().is_some();
        assert!(!may_name(&access, FileFormat::Text));
        let received = files.open(&path, FileFormat::Text, None, DecodeBudget::unlimited());
        let received = received.unwrap();
        assert!(may_name(&access, FileFormat::Text));
        assert!(!may_name(&access, FileFormat::Parquet));
        assert!(
            access
                .open(Path::new("other"), FileFormat::Text)
                .unwrap()
                .is_none()
        );
        drop(received);
        assert!(!may_name(&access, FileFormat::Text));
        assert!(!may_name(&FileAccess::Nothing, FileFormat::Text));
        assert!(may_name(&FileAccess::Everything, FileFormat::Text));
    }
}
