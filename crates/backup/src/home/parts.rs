//! Which parts there are: in the catalog, and on the disk.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use catalog::{Catalog, LoadId};
use sky::ChunkId;
use store::table_dir;

use super::{HomeError, Result};

/// A part that a table shows.
#[derive(Debug, Clone)]
pub(super) struct ShownPart {
    pub database: String,
    pub table: String,
    pub load: LoadId,
}

impl ShownPart {
    /// Where its files are.
    pub fn dir(&self, data_dir: &Path) -> PathBuf {
        table_dir(data_dir, &self.database, &self.table).join(self.load.0.to_string())
    }

    /// Its chunk files, with their checksums.
    pub async fn files(&self, catalog: &Catalog) -> Result<BTreeMap<ChunkId, u64>> {
        let chunks = catalog.chunks(self.load).await?;
        let files = chunks.iter().map(|chunk| (chunk.file, chunk.checksum));
        Ok(files.collect())
    }

    /// The path of one of its chunk files.
    pub fn path(&self, data_dir: &Path, file: ChunkId) -> PathBuf {
        self.dir(data_dir).join(format!("chunk_{file}.mrd"))
    }
}

/// The parts of all tables.
pub(super) async fn shown(catalog: &Catalog) -> Result<Vec<ShownPart>> {
    let mut parts = Vec::new();
    for database in catalog.databases().await? {
        for table in catalog.tables(&database.name).await? {
            parts.extend(table.parts.iter().map(|part| ShownPart {
                database: database.name.clone(),
                table: table.spec.name.clone(),
                load: part.load,
            }));
        }
    }
    Ok(parts)
}

/// The directories of all parts that are on the disk, whether or not a table shows them.
pub(super) fn directories(data_dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for table in entries(&data_dir.join("tables"))? {
        for part in entries(&table)? {
            if load_of(&part).is_some() {
                found.push(part);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The load whose directory this is.
fn load_of(part: &Path) -> Option<LoadId> {
    part.file_name()?.to_str()?.parse().ok().map(LoadId)
}

/// What is in a directory; nothing if it is gone, or is none.
fn entries(dir: &Path) -> Result<Vec<PathBuf>> {
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    match fs::read_dir(dir) {
        Err(error) if gone.contains(&error.kind()) => Ok(Vec::new()),
        Err(error) => Err(HomeError::io("read", dir)(error)),
        Ok(entries) => {
            let paths = entries.map(|entry| Ok(entry?.path()));
            let paths: io::Result<Vec<PathBuf>> = paths.collect();
            paths.map_err(HomeError::io("read", dir))
        }
    }
}
