//! Which files of its machine a process opens for a load that others have requested.

use std::path::{Component, Path, PathBuf};

use crate::error::IngestError;

/// The directories whose files may be loaded, with all that is below them.
#[derive(Debug, Clone, Default)]
pub struct MayRead {
    /// As they were given, absolute.
    named: Vec<PathBuf>,
    /// Where they are, links followed.
    real: Vec<PathBuf>,
}

impl MayRead {
    /// Those in these directories, which are there.
    ///
    /// # Errors
    /// One of them is not there, or is no directory.
    pub fn below(directories: &[PathBuf]) -> Result<Self, IngestError> {
        let mut allowed = Self::default();
        for directory in directories {
            let named = std::path::absolute(directory);
            let real = directory.canonicalize();
            let failed = |error| IngestError::io("look at", directory, error);
            let (named, real) = (named.map_err(failed)?, real.map_err(failed)?);
            if !real.is_dir() {
                return Err(IngestError::Options(format!(
                    "{} is no directory",
                    directory.display()
                )));
            }
            allowed.named.push(named);
            allowed.real.push(real);
        }
        Ok(allowed)
    }

    /// Rejects a file, a directory or a pattern by its name alone, before anything is looked at.
    pub(crate) fn check_name(&self, name: &Path) -> Result<(), IngestError> {
        let has_parents = (name.components()).any(|it| matches!(it, Component::ParentDir));
        let is_below = |dir: &PathBuf| name.starts_with(dir);
        let mut all = self.named.iter().chain(&self.real);
        match name.is_absolute() && !has_parents && all.any(is_below) {
            true => Ok(()),
            false => Err(self.rejected(name)),
        }
    }

    /// Rejects a file that lies elsewhere, also where a link leads there.
    pub(crate) fn check_file(&self, file: &Path) -> Result<(), IngestError> {
        self.check_name(file)?;
        let real = file.canonicalize();
        let real = real.map_err(|error| IngestError::io("open", file, error))?;
        match self.real.iter().any(|dir| real.starts_with(dir)) && real.is_file() {
            true => Ok(()),
            false => Err(self.rejected(file)),
        }
    }

    fn rejected(&self, name: &Path) -> IngestError {
        let name = name.display();
        let dirs: Vec<String> = (self.named.iter())
            .map(|dir| dir.display().to_string())
            .collect();
        IngestError::Options(match dirs.is_empty() {
            true => format!(
                "{name} is not read: no directory was named from which this worker loads files (--load-from DIR)"
            ),
            false => format!(
                "{name} is not read: this worker loads files below {} alone (--load-from), by names without `..`",
                dirs.join(", ")
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_elsewhere_are_not_read_whatever_leads_there() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir_all(&inside).unwrap();
        fs::create_dir_all(&outside).unwrap();
        for dir in [&inside, &outside] {
            fs::write(dir.join("a.csv"), "x").unwrap();
        }
        symlink(outside.join("a.csv"), inside.join("link.csv")).unwrap();
        symlink(inside.join("a.csv"), inside.join("near.csv")).unwrap();
        symlink(&inside, dir.path().join("alias")).unwrap();
        let allowed = MayRead::below(&[dir.path().join("alias")]).unwrap();
        for fine in ["in/a.csv", "in/near.csv", "alias/a.csv"] {
            allowed.check_file(&dir.path().join(fine)).unwrap();
        }
        for wrong in [
            "out/a.csv",
            "in/link.csv",
            "in/../out/a.csv",
            "in",
            "in/none.csv",
            "inside/a.csv",
        ] {
            assert!(
                allowed.check_file(&dir.path().join(wrong)).is_err(),
                "{wrong}"
            );
        }
        assert!(allowed.check_file(Path::new("a.csv")).is_err());
        allowed.check_name(&dir.path().join("in/*.csv")).unwrap();
        let nothing = MayRead::default();
        assert!(nothing.check_name(&inside.join("a.csv")).is_err());
        assert!(MayRead::below(&[inside.join("a.csv")]).is_err());
    }
}
