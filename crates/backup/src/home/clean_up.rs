//! The removal of objects that belong to no part any more.
//!
//! ```text
//!   1. the list of the objects of this archive
//!   2. the directories that are here, and then the catalog
//!   3. an object goes whose part has no directory and is no load that the catalog knows
//! ```
//!
//! An object is there only after its part was published here. So one that is listed in the first step and whose part is not found in the
//! second is of a part that was dropped, replaced or merged; its directory goes when nobody reads it, and the catalog forgets it after that.

use std::collections::HashSet;
use std::path::Path;

use catalog::{Catalog, LoadId};
use remote_files::{Address, Client};
use tokio::task::JoinSet;

use super::config::Home;
use super::{HomeError, Result, parts};

/// Objects that are removed side by side.
const REMOVED_AHEAD: usize = 8;

/// Removes objects of parts that are gone. Gives how many.
pub(super) async fn clean_up(
    client: &Client,
    catalog: &Catalog,
    data_dir: &Path,
    home: &Home,
) -> Result<u64> {
    let (bucket, prefix) = home.place();
    client.abort_uploads(&bucket, &prefix).await?;
    let listed = client.list(&bucket, &format!("{prefix}tables/")).await?;
    let with_directory = listed.into_iter().filter_map(|object| {
        let (directory, load) = part_of(object.key.strip_prefix(&prefix)?)?;
        Some((data_dir.join(directory), load, object.key))
    });
    let gone = with_directory.filter(|(directory, ..)| !directory.exists());
    let gone: Vec<(LoadId, String)> = gone.map(|(_, load, key)| (load, key)).collect();
    let known = known_loads(catalog).await?;
    let unwanted = gone.into_iter().filter(|(load, _)| !known.contains(load));
    remove(client, &bucket, unwanted.map(|(_, key)| key).collect()).await
}

/// The loads that tables show, and those that they have shown and that are not forgotten.
async fn known_loads(catalog: &Catalog) -> Result<HashSet<LoadId>> {
    let shown = parts::shown(catalog).await?;
    let mut known: HashSet<LoadId> = shown.iter().map(|part| part.load).collect();
    // In this order: a part that is replaced between the two is in both.
    let superseded = catalog.superseded_loads().await?;
    known.extend(superseded.iter().map(|it| it.load));
    Ok(known)
}

/// The directory of the part to which an object belongs, by its name within the archive, and the load; `None` for a name that is not ours.
fn part_of(name: &str) -> Option<(&str, LoadId)> {
    let (directory, file) = name.rsplit_once('/')?;
    let mut names = directory.split('/');
    let (tables, table, load) = (names.next()?, names.next()?, names.next()?);
    let number = file.strip_prefix("chunk_")?.strip_suffix(".mrd")?;
    number.parse::<i32>().ok()?;
    let is_ours = tables == "tables" && table.contains('.') && names.next().is_none();
    is_ours.then_some((directory, LoadId(load.parse().ok()?)))
}

/// Removes objects, side by side. Gives how many.
pub(super) async fn remove(client: &Client, bucket: &str, keys: Vec<String>) -> Result<u64> {
    let mut removed = 0;
    let mut under_way = JoinSet::new();
    let mut keys = keys.into_iter();
    loop {
        while under_way.len() < REMOVED_AHEAD
            && let Some(key) = keys.next()
        {
            let client = client.clone();
            let bucket = bucket.to_owned();
            under_way.spawn(async move { client.delete(&Address::S3 { bucket, key }).await });
        }
        let Some(joined) = under_way.join_next().await else {
            return Ok(removed);
        };
        let joined = joined.map_err(std::io::Error::other);
        joined.map_err(HomeError::io("remove objects of", Path::new(bucket)))??;
        removed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_of_parts_are_ours() {
        assert_eq!(
            part_of("tables/db.t/7/chunk_-3.mrd"),
            Some(("tables/db.t/7", LoadId(7)))
        );
        for other in [
            "home.json",
            "tables/db.t/7/manifest.json",
            "tables/db.t/7/overlap_3.mrd",
            "tables/db.t/x/chunk_3.mrd",
            "tables/t/7/chunk_3.mrd",
            "tables/db.t/7/8/chunk_3.mrd",
            "other/db.t/7/chunk_3.mrd",
            "tables/db.t/7/chunk_3.mrd.bak",
        ] {
            assert_eq!(part_of(other), None, "{other}");
        }
    }
}
