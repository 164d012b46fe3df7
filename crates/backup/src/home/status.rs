//! Where the chunk files of a data directory are.

use std::path::Path;

use catalog::Catalog;
use serde::Serialize;
use store::HomeObject;

use super::config::Home;
use super::{Result, client, parts};

/// Files, and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Files {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Files {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

/// Where the chunk files of all tables are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct HomeStatus {
    /// Where their home is; nothing if they have none.
    pub url: Option<String>,
    /// What tells this directory's objects from others there.
    pub archive: Option<String>,
    /// Whether all files are coming back.
    pub is_ending: bool,
    /// Bytes that the cache may have; nothing if there is no limit.
    pub cache_bytes: Option<u64>,
    /// Files that objects have.
    pub at_home: Files,
    /// Files that are here, whether or not objects have them.
    pub here: Files,
    /// Files that are here and that objects have: the cache.
    pub cached: Files,
    /// Files that no object has.
    pub not_at_home: Files,
    /// What the store says that does not let itself be listed; nothing if it does, or was not asked.
    pub store_problem: Option<String>,
}

/// Counts the chunk files of all tables, and asks whether the store is there.
///
/// # Errors
/// The catalog or a directory cannot be read.
pub async fn status(data_dir: &Path) -> Result<HomeStatus> {
    let catalog = Catalog::open(data_dir).await?;
    let counted = count(&catalog, data_dir).await;
    catalog.close().await;
    let mut status = counted?;
    let Some(home) = Home::read(data_dir)? else {
        return Ok(status);
    };
    status.store_problem = ask(&home).await.err().map(|error| error.to_string());
    status.url = Some(home.url);
    status.archive = Some(home.archive);
    status.is_ending = home.is_ending;
    status.cache_bytes = home.cache;
    Ok(status)
}

async fn ask(home: &Home) -> Result<()> {
    let (bucket, prefix) = home.place();
    client()?.has_any(&bucket, &prefix).await?;
    Ok(())
}

async fn count(catalog: &Catalog, data_dir: &Path) -> Result<HomeStatus> {
    let mut status = HomeStatus::default();
    for part in parts::shown(catalog).await? {
        for file in part.files(catalog).await?.into_keys() {
            let path = part.path(data_dir, file);
            let here = std::fs::metadata(&path).ok().map(|it| it.len());
            let object = HomeObject::of(&path)?;
            if let Some(object) = &object {
                status.at_home.add(object.bytes);
            }
            if let Some(bytes) = here {
                status.here.add(bytes);
                match object {
                    Some(_) => status.cached.add(bytes),
                    None => status.not_at_home.add(bytes),
                }
            }
        }
    }
    Ok(status)
}
