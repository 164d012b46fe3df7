//! Chunk files whose home is an object store, with a cache of them here.
//!
//! ```text
//!   DIR/meridian.home                                      where the home is, and how large the cache may be: no secrets
//!   DIR/meridian.home.lock                                 held by whoever copies files there, or gives copies up
//!   DIR/tables/<db>.<table>/<load>/chunk_N.home            which object has the file: see `store`
//!   s3://BUCKET/PREFIX/ARCHIVE/home.json                   whose files these are
//!   s3://BUCKET/PREFIX/ARCHIVE/tables/<db>.<table>/<load>/chunk_N.mrd
//! ```
//!
//! ```text
//!   load ──► chunk_N.mrd ──push──► object, verified ──► mark ──► copies beyond the cache's size go, the least recently read first
//!                                    │                                             ▲
//!                                    └── ranges for scans; read for the most part: whole, in the background, if there is room
//! ```
//!
//! ARCHIVE is a number that is drawn when the home is set, so that data directories with one prefix keep out of each other's way. Objects
//! never change: a load's number is not used again. They are removed when the part's directory here is gone and the catalog does not know
//! the load any more, so when nobody reads it.
//!
//! Invariants: a copy goes only if its mark is there and the store has said, just before, that the object is the one that was verified; a
//! mark goes only if the file is here. So a process may be killed at any point.

mod cache;
mod clean_up;
mod config;
mod error;
mod parts;
mod push;
mod source;
mod status;
mod unset;
mod windows;

use std::path::Path;

use catalog::{CATALOG_FILE, Catalog};
use remote_files::{Address, Client, Condition, Settings, Timeouts};
use store::{FileService, files_away};

pub use config::{CacheSize, Home};
pub use error::HomeError;
pub use push::{PushOptions, PushReport, push};
pub use source::read_from_stores;
pub use status::{Files, HomeStatus, status};
pub use unset::{UnsetReport, unset};

type Result<T> = std::result::Result<T, HomeError>;

/// The object that says whose the others are.
const HOME_OBJECT: &str = "home.json";

/// How far copying is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HomeProgress {
    /// Files that are done.
    pub files: u64,
    /// Files that there are to do.
    pub of: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// How long a statement waits for a store that says nothing, before the next try.
fn timeouts() -> Timeouts {
    Timeouts {
        connect: std::time::Duration::from_secs(5),
        read: std::time::Duration::from_secs(20),
        ..Timeouts::default()
    }
}

/// A client with the settings of the environment.
fn client() -> Result<Client> {
    let settings = Settings::of_environment(false)?;
    Ok(Client::with_timeouts(settings, timeouts()))
}

/// Says where the chunk files of a data directory have their home, or changes the size of the cache, which has no limit at first. The store has to be there, and to let
/// objects be written.
///
/// With `moved` the directory is the one whose files these are, although it is not where it was.
///
/// # Errors
/// Another home is set; the directory is a cluster's, or has its catalog in PostgreSQL; the store cannot be used.
pub async fn set(
    data_dir: &Path,
    url: &str,
    cache: Option<CacheSize>,
    moved: bool,
) -> Result<Home> {
    let url = Home::url_of(url)?;
    Catalog::open(data_dir).await?.close().await;
    expect_alone(data_dir)?;
    let known = Home::read(data_dir)?;
    if let Some(known) = &known
        && known.url != url
    {
        return Err(HomeError::OtherHome {
            dir: data_dir.to_owned(),
            url: known.url.clone(),
        });
    }
    if let Some(known) = &known
        && !moved
    {
        known.expect_original(data_dir)?;
    }
    let home = match known {
        Some(known) => known,
        None => Home::new(data_dir, url)?,
    };
    let home = home.changed(data_dir, cache)?;
    announce(&home).await?;
    home.write(data_dir)?;
    Ok(home)
}

/// Lists the place, and writes the object that says whose the others are: so it is known that the store can be used.
async fn announce(home: &Home) -> Result<()> {
    let client = client()?;
    let content = format!("{{\"meridian_archive\":\"{}\"}}\n", home.archive);
    let address = home.address(HOME_OBJECT);
    let (bucket, prefix) = home.place();
    client.has_any(&bucket, &prefix).await?;
    client
        .put(&address, content.into(), &Condition::None, None)
        .await?;
    Ok(())
}

/// Several machines, or workers, know nothing of marks and homes.
fn expect_alone(data_dir: &Path) -> Result<()> {
    let dir = || data_dir.to_owned();
    if !data_dir.join(CATALOG_FILE).is_file() {
        return Err(HomeError::SharedCatalog { dir: dir() });
    }
    if FileService::is_announced(data_dir) {
        return Err(HomeError::OfCluster { dir: dir() });
    }
    for part in parts::directories(data_dir)? {
        if !files_away(&part)?.is_empty() {
            return Err(HomeError::OfCluster { dir: dir() });
        }
    }
    Ok(())
}

/// The address in a URL that we have written ourselves.
fn address_of(url: &str) -> Result<Address> {
    Ok(Address::parse(url)?)
}
