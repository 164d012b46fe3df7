//! Files that appear under their final name complete or not at all, and survive a power cut.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use catalog::writable_file;

use crate::StoreError;

/// When what is written is on the disk for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As soon as the file has its name.
    WithName,
    /// When [`crate::LoadDir::sync`] has returned, which is for the caller to call: for few files that are synced together.
    WithDirectory,
}

/// Syncs a directory, so that the names in it survive a power cut, or a file.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    File::open(dir)
        .and_then(|handle| handle.sync_all())
        .map_err(StoreError::io("sync", dir))
}

/// Syncs files and directories, all at the same time: a file system that writes a journal writes it once for all of them, where one
/// after another would wait for it as often as there are files.
pub(crate) fn sync_together(paths: &[PathBuf]) -> Result<(), StoreError> {
    let Some((first, others)) = paths.split_first() else {
        return Ok(());
    };
    let synced: Result<Vec<()>, StoreError> = thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|path| (path, scope.spawn(|| sync_dir(path))))
            .collect();
        let mut synced = vec![sync_dir(first)];
        synced.extend(others.into_iter().map(|(path, sync)| {
            let panicked = |_| Err(StoreError::io("sync", path)(io::Error::other("a panic")));
            sync.join().unwrap_or_else(panicked)
        }));
        synced.into_iter().collect()
    });
    synced.map(drop)
}

/// The directory of a file.
pub(crate) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}

/// A file under construction: `NAME.tmp` beside its final name. Removed when dropped unless it
/// was published, so an error or a cancelled load leaves nothing behind.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    target: PathBuf,
    temporary: PathBuf,
    published: bool,
}

impl TemporaryFile {
    /// Creates `NAME.tmp`, replacing what a killed process may have left there.
    pub(crate) fn create(target: &Path) -> Result<(Self, File), StoreError> {
        let mut name = target.as_os_str().to_owned();
        name.push(".tmp");
        let temporary = PathBuf::from(name);
        let file = writable_file()
            .read(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .map_err(StoreError::io("create", &temporary))?;
        Ok((
            Self {
                target: target.to_owned(),
                temporary,
                published: false,
            },
            file,
        ))
    }

    /// The final name.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the file its final name.
    pub(crate) fn publish_with(
        self,
        file: &File,
        durability: Durability,
    ) -> Result<(), StoreError> {
        match durability {
            Durability::WithName => self.publish(file),
            Durability::WithDirectory => self.publish_unsynced(),
        }
    }

    /// Syncs the file, gives it its final name and syncs the directory.
    pub(crate) fn publish(mut self, file: &File) -> Result<(), StoreError> {
        file.sync_all()
            .map_err(StoreError::io("sync", &self.target))?;
        fs::rename(&self.temporary, &self.target)
            .map_err(StoreError::io("rename", &self.target))?;
        self.published = true;
        sync_dir(parent(&self.target))
    }

    /// Gives the file its final name. Neither is on the disk for certain until both are synced.
    pub(crate) fn publish_unsynced(mut self) -> Result<(), StoreError> {
        fs::rename(&self.temporary, &self.target)
            .map_err(StoreError::io("rename", &self.target))?;
        self.published = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.published
            && let Err(error) = fs::remove_file(&self.temporary)
        {
            tracing::warn!(path = %self.temporary.display(), %error, "cannot remove a temporary file");
        }
    }
}
