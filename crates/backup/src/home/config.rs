//! What a data directory remembers of its home, and the lock of whoever changes what is there.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use catalog::writable_file;
use remote_files::Address;
use serde::{Deserialize, Serialize};

use super::{HomeError, Result};

const FILE: &str = "meridian.home";
const LOCK: &str = "meridian.home.lock";
/// How often somebody who waits looks whether the lock is free.
const POLL: Duration = Duration::from_millis(200);

/// How many bytes of copies of files are kept here that are at home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// So many.
    Bytes(u64),
    /// All that there are.
    All,
}

/// Where the chunk files of a data directory have their home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// `s3://BUCKET/PREFIX`, without a slash at its end.
    pub url: String,
    /// What tells this directory's objects from others with the prefix.
    pub archive: String,
    /// Bytes of copies that are kept here; all are if there is no limit.
    #[serde(default)]
    pub cache: Option<u64>,
    /// Whether all files are coming back, for the home to be forgotten.
    #[serde(default)]
    pub is_ending: bool,
    /// The inode of the data directory: a copy of it has another one, and must not change what is there.
    pub(super) inode: u64,
}

impl Home {
    /// A new home of a data directory.
    pub(super) fn new(data_dir: &Path, url: String) -> Result<Self> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|error| {
            HomeError::io("draw a number for", data_dir)(io::Error::other(error.to_string()))
        })?;
        Ok(Self {
            url,
            archive: format!("{:016x}", u64::from_le_bytes(random)),
            cache: None,
            is_ending: false,
            inode: inode(data_dir)?,
        })
    }

    /// The same with another cache, if one is named, for the directory as it is now.
    pub(super) fn changed(self, data_dir: &Path, cache: Option<CacheSize>) -> Result<Self> {
        Ok(Self {
            cache: match cache {
                None => self.cache,
                Some(CacheSize::All) => None,
                Some(CacheSize::Bytes(bytes)) => Some(bytes),
            },
            is_ending: false,
            inode: inode(data_dir)?,
            ..self
        })
    }

    /// A URL in the form in which it is kept.
    ///
    /// # Errors
    /// It names no place in a bucket.
    pub(super) fn url_of(text: &str) -> Result<String> {
        let no_bucket = || HomeError::NoBucket {
            url: text.split('?').next().unwrap_or(text).to_owned(),
        };
        let Address::S3 { bucket, key } = Address::parse(text)? else {
            return Err(no_bucket());
        };
        let url = format!("s3://{bucket}/{key}");
        Ok(url.trim_end_matches('/').to_owned())
    }

    /// The home of a data directory, if one is set.
    ///
    /// # Errors
    /// The file that says so cannot be read.
    pub fn read(data_dir: &Path) -> Result<Option<Self>> {
        let path = data_dir.join(FILE);
        let json = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            json => json.map_err(HomeError::io("read", &path))?,
        };
        let home = serde_json::from_slice(&json);
        home.map(Some).map_err(|error| HomeError::BadFile {
            path,
            why: error.to_string(),
        })
    }

    /// The home of a data directory, which has to be set.
    pub(super) fn expect(data_dir: &Path) -> Result<Self> {
        Self::read(data_dir)?.ok_or_else(|| HomeError::NotSet {
            dir: data_dir.to_owned(),
        })
    }

    /// Remembers it: whole, or as it was before.
    pub(super) fn write(&self, data_dir: &Path) -> Result<()> {
        let path = data_dir.join(FILE);
        let temporary = data_dir.join(format!("{FILE}.tmp"));
        let written = || {
            let mut json = serde_json::to_vec_pretty(self)?;
            json.push(b'\n');
            let mut file = writable_file()
                .create(true)
                .truncate(true)
                .open(&temporary)?;
            file.write_all(&json)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)?;
            File::open(data_dir)?.sync_all()
        };
        written().map_err(HomeError::io("write", &path))
    }

    /// Forgets it.
    pub(super) fn forget(data_dir: &Path) -> Result<()> {
        let path = data_dir.join(FILE);
        let removed = fs::remove_file(&path).and_then(|()| File::open(data_dir)?.sync_all());
        removed.map_err(HomeError::io("remove", &path))
    }

    /// Whether this is the directory for which it was set, and no copy of it.
    pub(super) fn expect_original(&self, data_dir: &Path) -> Result<()> {
        match inode(data_dir)? == self.inode {
            true => Ok(()),
            false => Err(HomeError::Moved {
                dir: data_dir.to_owned(),
                url: self.url.clone(),
            }),
        }
    }

    /// The bucket, and how the names of this directory's objects begin there.
    pub(super) fn place(&self) -> (String, String) {
        let rest = self.url.strip_prefix("s3://").unwrap_or(&self.url);
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let archive = &self.archive;
        let prefix = match prefix {
            "" => format!("{archive}/"),
            prefix => format!("{prefix}/{archive}/"),
        };
        (bucket.to_owned(), prefix)
    }

    /// The object of this name within the directory's.
    pub(super) fn address(&self, within: &str) -> Address {
        let (bucket, prefix) = self.place();
        Address::S3 {
            bucket,
            key: format!("{prefix}{within}"),
        }
    }
}

fn inode(data_dir: &Path) -> Result<u64> {
    let metadata = fs::metadata(data_dir);
    Ok(metadata.map_err(HomeError::io("read", data_dir))?.ino())
}

/// Held by whoever copies files home, gives copies up or takes marks away. It ends with the process.
#[derive(Debug)]
pub(super) struct HomeLock {
    _file: File,
}

impl HomeLock {
    /// Takes it if nobody has it.
    pub fn try_take(data_dir: &Path) -> Result<Option<Self>> {
        let path: PathBuf = data_dir.join(LOCK);
        let file = writable_file()
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(HomeError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(HomeError::io("lock", &path)(error)),
        }
    }

    /// Takes it as soon as nobody has it.
    pub async fn take(data_dir: &Path) -> Result<Self> {
        loop {
            if let Some(lock) = Self::try_take(data_dir)? {
                return Ok(lock);
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_is_remembered_and_a_copy_of_the_directory_is_told_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path();
        assert_eq!(Home::read(data).unwrap(), None);
        assert!(matches!(Home::expect(data), Err(HomeError::NotSet { .. })));
        let url = Home::url_of("s3://sky-survey/archive/").unwrap();
        assert_eq!(url, "s3://sky-survey/archive");
        let home = Home::new(data, url).unwrap();
        assert_eq!(home.cache, None);
        let home = home.changed(data, Some(CacheSize::Bytes(5))).unwrap();
        home.write(data).unwrap();
        assert_eq!(Home::read(data).unwrap(), Some(home.clone()));
        home.expect_original(data).unwrap();
        let prefix = format!("archive/{}/", home.archive);
        assert_eq!(home.place(), ("sky-survey".to_owned(), prefix.clone()));
        assert_eq!(
            home.address("tables/x").to_string(),
            format!("s3://sky-survey/{prefix}tables/x")
        );
        let copy = tempfile::tempdir().unwrap();
        fs::copy(data.join(FILE), copy.path().join(FILE)).unwrap();
        let copied = Home::read(copy.path()).unwrap().unwrap();
        let moved = copied.expect_original(copy.path()).unwrap_err().to_string();
        assert!(moved.contains("--moved"), "{moved}");
        let changed = copied.changed(copy.path(), None).unwrap();
        changed.expect_original(copy.path()).unwrap();
        assert_eq!(changed.cache, Some(5));
        let changed = changed.changed(copy.path(), Some(CacheSize::All)).unwrap();
        assert_eq!(changed.cache, None);
        Home::forget(data).unwrap();
        assert_eq!(Home::read(data).unwrap(), None);
    }

    #[test]
    fn homes_are_in_buckets_alone() {
        assert_eq!(Home::url_of("s3://sky-survey").unwrap(), "s3://sky-survey");
        for wrong in ["https://example.org/x", "sky-survey", "s3://x", "file:///x"] {
            assert!(Home::url_of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_makes_no_sense_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE), "{").unwrap();
        let error = Home::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
