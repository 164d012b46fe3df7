//! The way back: all files come here, and then the home is forgotten.

use std::path::Path;

use remote_files::Client;
use store::{FileWithHome, HomeObject, files_with_home, forget_home, remove_abandoned_copies};
use tokio::task::JoinSet;

use super::cache::{Incoming, fetch};
use super::clean_up::remove;
use super::config::{Home, HomeLock};
use super::{HomeError, HomeProgress, Result, client, parts};

/// Files that are fetched side by side.
const FILES_AHEAD: usize = 4;
/// How often somebody who waits for another process looks again.
const POLL: std::time::Duration = std::time::Duration::from_millis(200);

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnsetReport {
    /// Where the home was.
    pub url: String,
    /// Files that came back.
    pub fetched_files: u64,
    /// Their bytes.
    pub fetched_bytes: u64,
    /// Objects that were removed.
    pub removed_objects: u64,
}

/// Fetches all files that are not here, verified, and then forgets the home. With `deletes` the objects go after that.
///
/// # Errors
/// No home is set, or a file cannot be fetched: what came stays, and the next call goes on.
pub async fn unset(
    data_dir: &Path,
    deletes: bool,
    mut tell: impl FnMut(HomeProgress),
) -> Result<UnsetReport> {
    let home = Home::expect(data_dir)?;
    if deletes {
        // Objects are those of the directory for which the home was set.
        home.expect_original(data_dir)?;
    }
    // Whoever copies files there, or gives copies up, ends with it.
    let ending = Home {
        is_ending: true,
        ..home.clone()
    };
    ending.write(data_dir)?;
    let _lock = HomeLock::take(data_dir).await?;
    let mut report = UnsetReport {
        url: home.url.clone(),
        ..UnsetReport::default()
    };
    let missing: Vec<FileWithHome> = { with_home(data_dir)?.into_iter() }
        .filter(|file| file.bytes_here.is_none())
        .collect();
    if !missing.is_empty() {
        fetch_all(&client()?, data_dir, missing, &mut report, &mut tell).await?;
    }
    let all = with_home(data_dir)?;
    if let Some(missing) = all.iter().find(|file| file.bytes_here.is_none()) {
        return Err(HomeError::NotBack {
            path: missing.path.clone(),
        });
    }
    for file in all {
        match forget_home(&file.path) {
            // The part was dropped meanwhile.
            Err(store::StoreError::Missing { .. })
                if !file.path.exists() && !store::has_home(&file.path) => {}
            forgotten => forgotten?,
        }
    }
    for part in parts::directories(data_dir)? {
        remove_abandoned_copies(&part)?;
    }
    if deletes {
        let client = client()?;
        let (bucket, prefix) = home.place();
        client.abort_uploads(&bucket, &prefix).await?;
        let objects = client.list(&bucket, &prefix).await?;
        let keys = objects.into_iter().map(|object| object.key).collect();
        report.removed_objects = remove(&client, &bucket, keys).await?;
    }
    Home::forget(data_dir)?;
    Ok(report)
}

/// All files that objects have, of all parts on the disk.
fn with_home(data_dir: &Path) -> Result<Vec<FileWithHome>> {
    let mut files = Vec::new();
    for part in parts::directories(data_dir)? {
        files.extend(files_with_home(&part)?);
    }
    Ok(files)
}

/// Fetches files, some side by side.
async fn fetch_all(
    client: &Client,
    data_dir: &Path,
    missing: Vec<FileWithHome>,
    report: &mut UnsetReport,
    tell: &mut impl FnMut(HomeProgress),
) -> Result<()> {
    let mut told = HomeProgress {
        of: missing.len() as u64,
        ..HomeProgress::default()
    };
    let mut under_way = JoinSet::new();
    let mut missing = missing.into_iter();
    loop {
        while under_way.len() < FILES_AHEAD
            && let Some(file) = missing.next()
        {
            let client = client.clone();
            under_way.spawn(async move { fetch_one(&client, &file.path).await });
        }
        let Some(joined) = under_way.join_next().await else {
            return Ok(());
        };
        let joined = joined.map_err(std::io::Error::other);
        let bytes = joined.map_err(HomeError::io("fetch files of", data_dir))??;
        report.fetched_files += 1;
        report.fetched_bytes += bytes;
        told.files += 1;
        told.bytes += bytes;
        tell(told);
    }
}

/// Fetches a file. Gives its bytes; none if its part was dropped meanwhile.
async fn fetch_one(client: &Client, path: &Path) -> Result<u64> {
    loop {
        let Some(object) = HomeObject::of(path)? else {
            return Ok(0);
        };
        match fetch(client, path, &object).await {
            Ok(Incoming::Came) => return Ok(object.bytes),
            // A statement brings it back just now.
            Ok(_) => tokio::time::sleep(POLL).await,
            Err(_) if !store::has_home(path) => return Ok(0),
            Err(error) => return Err(error),
        }
    }
}
