//! The files of jobs: `queries/jobs/<number>.json`, and the tables that came with them in `queries/jobs/uploads/`.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::jobs::JobRecord;

/// The directory of uploaded tables below that of the jobs.
pub(super) const UPLOADS: &str = "uploads";
/// Bytes of the uploaded tables of all jobs.
pub(super) const MOST_UPLOADED: u64 = 8 << 30;
/// Random letters of a table's file.
const NAME_LETTERS: usize = 32;
/// After what time a table is taken to be of no job, where another front end may be about to write the job down.
pub(super) const LEFT: Duration = Duration::from_secs(24 * 3600);

/// The file of a job.
pub(super) fn file_of(directory: &Path, id: u64) -> PathBuf {
    directory.join(format!("{id}.json"))
}

/// Replaces the file of a job as a whole.
pub(super) fn write(directory: &Path, record: &JobRecord) -> std::io::Result<()> {
    catalog::make_directories(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    file.as_file().sync_data()?;
    file.persist(file_of(directory, record.id))?;
    Ok(())
}

/// Copies a table to a file with a name that nobody can guess. Gives the name and its bytes.
pub(super) fn copy_upload(
    directory: &Path,
    from: &Path,
    room: u64,
) -> std::io::Result<(String, u64)> {
    if fs::metadata(from)?.len() > room {
        let sentence = format!(
            "the tables of jobs may have {} MiB together; delete some jobs",
            MOST_UPLOADED >> 20
        );
        return Err(std::io::Error::new(
            std::io::ErrorKind::StorageFull,
            sentence,
        ));
    }
    catalog::make_directories(directory)?;
    let file = tempfile::Builder::new()
        .rand_bytes(NAME_LETTERS)
        .tempfile_in(directory)?;
    let bytes = std::io::copy(&mut fs::File::open(from)?, &mut file.as_file())?;
    file.as_file().sync_data()?;
    let name = file
        .path()
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    file.keep()?;
    Ok((name, bytes))
}

/// Removes tables of some age whose jobs were never written down.
pub(super) fn remove_left_uploads(
    directory: &Path,
    records: &BTreeMap<u64, JobRecord>,
    age: Duration,
) {
    let known: HashSet<&str> = records
        .values()
        .flat_map(|record| &record.uploads)
        .map(|upload| upload.file.as_str())
        .collect();
    let files = fs::read_dir(directory.join(UPLOADS))
        .into_iter()
        .flatten()
        .flatten();
    let is_left = |file: &fs::DirEntry| {
        let modified = file.metadata().and_then(|found| found.modified());
        let elapsed = modified.map(|modified| modified.elapsed().unwrap_or_default());
        elapsed.is_ok_and(|elapsed| elapsed >= age)
            && !known.contains(file.file_name().to_string_lossy().as_ref())
    };
    for file in files.filter(is_left) {
        // What stays is tried again by the next process.
        let _ = fs::remove_file(file.path());
    }
}

/// Reads the file of a job.
pub(super) fn read_file(path: &Path) -> std::io::Result<JobRecord> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// The numbers of the jobs that are written down.
pub(super) fn ids_in(directory: &Path) -> HashSet<u64> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name());
    names
        .filter_map(|name| name.to_str()?.strip_suffix(".json")?.parse().ok())
        .collect()
}

/// Reads all jobs; one that cannot be read is left out.
pub(super) fn read_all(directory: &Path) -> BTreeMap<u64, JobRecord> {
    let Ok(files) = fs::read_dir(directory) else {
        return BTreeMap::new();
    };
    let read = |path: PathBuf| match read_file(&path) {
        Ok(record) => Some((record.id, record)),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a job cannot be read");
            None
        }
    };
    let paths = files.flatten().map(|file| file.path());
    paths
        .filter(|path| path.is_file())
        .filter_map(read)
        .collect()
}
