//! The copying of files, with their checksums.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use catalog::{make_directories, writable_file};
use store::{ByteSource, StoreError};
use xxhash_rust::xxh3::Xxh3;

use crate::part_files::PartFile;
use crate::{BackupError, Result};

/// Bytes that are read at a time.
const CHUNK: usize = 1 << 20;

/// The length and the checksum (XXH3, 64 bits) of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub bytes: u64,
    pub checksum: u64,
}

/// Copies a file, under its name only when it is whole, and if `check` takes what it has. The disk has it after [`sync`].
pub(crate) fn copy_file(
    from: &Path,
    to: &Path,
    check: impl FnOnce(Content) -> Result<()>,
) -> Result<Content> {
    let temporary = temporary(to);
    let content = copy_content(from, &temporary)?;
    check(content)?;
    fs::rename(&temporary, to).map_err(BackupError::io("write", to))?;
    Ok(content)
}

fn copy_content(from: &Path, to: &Path) -> Result<Content> {
    let mut source = File::open(from).map_err(BackupError::io("read", from))?;
    let mut target = writable_file()
        .create(true)
        .truncate(true)
        .open(to)
        .map_err(BackupError::io("write", to))?;
    read_all(&mut source, from, |bytes| {
        let written = target.write_all(bytes);
        written.map_err(BackupError::io("write", to))
    })
}

/// Copies a file of a part, wherever it is, under its name only when it is whole and the one that was published.
pub(crate) async fn copy_part(file: &PartFile, to: &Path) -> Result<Content> {
    let temporary = temporary(to);
    let content = match copy_content(&file.from, &temporary) {
        Err(BackupError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            copy_from_elsewhere(file, &temporary).await?
        }
        copied => {
            let content = copied?;
            if let Err(error) = file.verify(&temporary).await {
                remove_temporary(&temporary);
                return Err(error);
            }
            content
        }
    };
    fs::rename(&temporary, to).map_err(BackupError::io("write", to))?;
    Ok(content)
}

/// Copies a chunk file that is at workers or at home, verified.
async fn copy_from_elsewhere(file: &PartFile, to: &Path) -> Result<Content> {
    let source = store::open_anywhere(&file.from).await?;
    loop {
        let place = source.place();
        let content = read_source(source.as_ref(), to).await?;
        match file.verify(to).await {
            Ok(()) => return Ok(content),
            // Another worker may have it whole.
            Err(BackupError::Store(StoreError::Damaged { .. })) if source.distrust(place) => {}
            Err(error) => {
                remove_temporary(to);
                return Err(error);
            }
        }
    }
}

/// Removes a copy that is not whole. If that fails now, the next backup writes over it.
fn remove_temporary(path: &Path) {
    let _ = fs::remove_file(path);
}

async fn read_source(source: &dyn ByteSource, to: &Path) -> Result<Content> {
    let mut target = writable_file()
        .create(true)
        .truncate(true)
        .open(to)
        .map_err(BackupError::io("write", to))?;
    let mut hash = Xxh3::new();
    let mut offset = 0;
    while offset < source.num_bytes() {
        let left = usize::try_from(source.num_bytes() - offset).unwrap_or(CHUNK);
        let mut bytes = vec![0; left.min(CHUNK)];
        let read = source.read_at(offset, &mut bytes).await;
        read.map_err(BackupError::io("read", source.name()))?;
        hash.update(&bytes);
        let written = target.write_all(&bytes);
        written.map_err(BackupError::io("write", to))?;
        offset += bytes.len() as u64;
    }
    Ok(Content {
        bytes: offset,
        checksum: hash.digest(),
    })
}

/// The length and the checksum of a file that is there.
pub(crate) fn content_of(path: &Path) -> Result<Content> {
    let mut file = File::open(path).map_err(BackupError::io("read", path))?;
    read_all(&mut file, path, |_| Ok(()))
}

/// Reads a file to its end, and does something with each chunk of it.
fn read_all(
    file: &mut File,
    path: &Path,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<Content> {
    let mut hash = Xxh3::new();
    let mut bytes = 0;
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = file
            .read(&mut buffer)
            .map_err(BackupError::io("read", path))?;
        if read == 0 {
            return Ok(Content {
                bytes,
                checksum: hash.digest(),
            });
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
        each(&buffer[..read])?;
    }
}

/// What a file is called before it is whole.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// The files below a directory, by their paths from there, in order; those that are under way are none, nor are marks of files that are
/// at workers or at home.
pub(crate) fn files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = all_files_below(dir)?;
    found.retain(|name| {
        name.extension()
            .is_none_or(|it| it != "tmp" && it != "away" && it != "home")
    });
    Ok(found)
}

/// All files below a directory, by their paths from there, in order.
pub(crate) fn all_files_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(within) = open.pop() {
        let path = dir.join(&within);
        let entries = fs::read_dir(&path).map_err(BackupError::io("read", &path))?;
        for entry in entries {
            let entry = entry.map_err(BackupError::io("read", &path))?;
            let kind = entry
                .file_type()
                .map_err(BackupError::io("read", &entry.path()))?;
            let name = within.join(entry.file_name());
            match kind.is_dir() {
                true => open.push(name),
                false => found.push(name),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Makes a directory with those above it.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    make_directories(path).map_err(BackupError::io("make", path))
}

/// Has all that was written in the file system of a directory on its disk.
pub(crate) fn sync(dir: &Path) -> Result<()> {
    let handle = File::open(dir).map_err(BackupError::io("open", dir))?;
    #[cfg(target_os = "linux")]
    let synced = rustix::fs::syncfs(&handle).map_err(std::io::Error::from);
    #[cfg(not(target_os = "linux"))]
    let synced = {
        rustix::fs::sync();
        handle.sync_all()
    };
    synced.map_err(BackupError::io("sync", dir))
}

/// Removes a directory with what is in it, if it is there.
pub(crate) fn remove_all(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(BackupError::io("remove", dir)(error))
        }
        _ => Ok(()),
    }
}

/// Removes the directories above a file that have nothing in them any more.
pub(crate) fn remove_empty_above(path: &Path, until: &Path) {
    for dir in path.ancestors().skip(1) {
        // One that has something in it stays.
        if dir == until || fs::remove_dir(dir).is_err() {
            return;
        }
    }
}
