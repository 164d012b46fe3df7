//! A directory that gets its name when it is whole.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::error::HatsError;

/// The file that is locked by whoever writes the directory.
const LOCK: &str = "being-written.lock";

/// A directory that is being written, beside where it will be.
#[derive(Debug)]
pub struct Staging {
    dir: PathBuf,
    output: PathBuf,
    lock: Option<File>,
}

/// A file of such a directory.
#[derive(Debug)]
pub struct NewFile {
    /// The file, opened to be written.
    pub file: File,
    /// Where it is for now.
    pub path: PathBuf,
}

impl Staging {
    /// Begins a directory, which must not exist or be empty. What a killed export of it left is removed.
    ///
    /// # Errors
    /// It is there, somebody else writes it, or it cannot be made.
    pub fn begin(output: &Path) -> Result<Self, HatsError> {
        let reject = |reason| HatsError::Output {
            path: output.to_path_buf(),
            reason,
        };
        if output.file_name().is_none() {
            return Err(reject("name the directory that is to be made"));
        }
        match fs::read_dir(output).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => {
                return Err(reject(
                    "it is there already, and not empty: name another directory, or remove it",
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) if output.exists() => {
                return Err(reject("it is there already, and no directory"));
            }
            Err(error) => return Err(HatsError::io("read", output)(error)),
        }
        let mut dir = output.as_os_str().to_owned();
        dir.push(".part");
        let dir = PathBuf::from(dir);
        fs::create_dir_all(&dir).map_err(HatsError::io("make", &dir))?;
        let path = dir.join(LOCK);
        let options = File::options().create(true).append(true).open(&path);
        let lock = options.map_err(HatsError::io("make", &path))?;
        if lock.try_lock().is_err() {
            return Err(reject("another export writes it just now"));
        }
        let staging = Self {
            dir,
            output: output.to_path_buf(),
            lock: Some(lock),
        };
        staging.clear()?;
        Ok(staging)
    }

    /// Removes what was written before, but for the lock.
    fn clear(&self) -> Result<(), HatsError> {
        let failed = || HatsError::io("remove", &self.dir);
        for entry in fs::read_dir(&self.dir).map_err(failed())? {
            let entry = entry.map_err(failed())?;
            if entry.file_name() == LOCK {
                continue;
            }
            let path = entry.path();
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            removed.map_err(HatsError::io("remove", &path))?;
        }
        Ok(())
    }

    /// Where a file is until the directory has its name.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes a file, and the directories that it is in.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self, name: &str) -> Result<NewFile, HatsError> {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(HatsError::io("make", parent))?;
        }
        let file = File::create(&path).map_err(HatsError::io("make", &path))?;
        Ok(NewFile { file, path })
    }

    pub(crate) fn write(
        &self,
        name: &str,
        write: impl FnOnce(&mut BufWriter<&File>) -> Result<(), HatsError>,
    ) -> Result<(), HatsError> {
        let NewFile { file, path } = self.create(name)?;
        let mut out = BufWriter::new(&file);
        write(&mut out)?;
        out.flush().map_err(HatsError::io("write", &path))?;
        drop(out);
        file.sync_all().map_err(HatsError::io("write", &path))
    }

    /// Writes a whole file, which is then on disk.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_bytes(&self, name: &str, bytes: &[u8]) -> Result<(), HatsError> {
        let path = self.dir.join(name);
        self.write(name, |out| {
            out.write_all(bytes).map_err(HatsError::io("write", &path))
        })
    }

    /// Gives the directory its name.
    ///
    /// # Errors
    /// The system does not let it.
    pub fn finish(mut self) -> Result<(), HatsError> {
        let path = self.dir.join(LOCK);
        fs::remove_file(&path).map_err(HatsError::io("remove", &path))?;
        fs::rename(&self.dir, &self.output).map_err(HatsError::io("name", &self.output))?;
        self.lock = None;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Only where the directory was not finished; that it may be gone already is no matter.
        if self.lock.is_some() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_catalogue_has_its_name_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("out");
        // What a killed export left.
        fs::create_dir_all(dir.path().join("out.part/dataset")).unwrap();
        fs::write(dir.path().join("out.part/dataset/old"), "x").unwrap();
        let staging = Staging::begin(&output).unwrap();
        let second = Staging::begin(&output).map(drop).unwrap_err();
        assert!(second.to_string().contains("another export"), "{second}");
        staging.write_bytes("a/b", b"1").unwrap();
        assert!(!output.exists());
        staging.finish().unwrap();
        assert_eq!(fs::read(output.join("a/b")).unwrap(), b"1");
        assert_eq!(fs::read_dir(&output).unwrap().count(), 1);
        assert!(!dir.path().join("out.part").exists());
        let again = Staging::begin(&output).map(drop).unwrap_err();
        assert!(again.to_string().contains("not empty"), "{again}");
    }

    #[test]
    fn an_export_that_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let staging = Staging::begin(&dir.path().join("out")).unwrap();
        staging.write_bytes("a", b"1").unwrap();
        drop(staging);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
