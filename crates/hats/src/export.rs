//! A whole catalogue in a directory, which has its name when all is there.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::catalogue::Catalogue;
use crate::error::HatsError;
use crate::properties::{partition_info, properties};
use crate::tile_file::{Footers, TileWriter, common_metadata};
use crate::tiles::{Tile, Tiling};

/// Column chunks of which footers are kept in memory for `_metadata`. A catalogue of more of them goes without: readers do not need it.
const MOST_COLUMN_CHUNKS: usize = 500_000;
/// The file that is locked by whoever writes a catalogue.
const LOCK: &str = "being-written.lock";

/// How a catalogue is made.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions {
    /// Rows of a file at most, where they can be parted.
    pub rows_per_tile: u64,
    /// The deepest order of cells, at most [`MAX_ORDER`](crate::MAX_ORDER).
    pub max_order: u8,
    /// Whether rows without a position are left out.
    pub skip_unplaced: bool,
}

/// What was exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exported {
    /// Rows in all files.
    pub rows: u64,
    /// Rows that were left out, having no position.
    pub skipped: u64,
    /// How many files of rows there are.
    pub files: usize,
    /// The lowest and the highest order of their cells.
    pub orders: (u8, u8),
    /// Bytes of these files.
    pub bytes: u64,
    /// Whether there is a `_metadata`.
    pub has_metadata: bool,
}

/// Makes a catalogue of a table in a directory, which must not exist or be empty.
///
/// # Errors
/// Nothing has the directory's name then.
pub async fn export(
    catalogue: &Catalogue,
    options: ExportOptions,
    output: &Path,
) -> Result<Exported, HatsError> {
    let staging = Staging::begin(output)?;
    let tiling = catalogue
        .tiling(options.rows_per_tile, options.max_order)
        .await?;
    if tiling.unplaced > 0 && !options.skip_unplaced {
        return Err(HatsError::Unplaced {
            table: catalogue.name(),
            rows: tiling.unplaced,
        });
    }
    if tiling.tiles.is_empty() {
        return Err(HatsError::Empty(catalogue.name()));
    }
    let mut footers = Some(Footers::default());
    let mut bytes = 0;
    for tile in &tiling.tiles {
        bytes += write_tile(catalogue, tile, &staging, &mut footers).await?;
    }
    let has_metadata = footers.is_some();
    if let Some(footers) = footers {
        let path = "dataset/_metadata";
        staging.write(path, |out| Ok(footers.write(out)?))?;
    }
    let columns = common_metadata(&catalogue.table, &catalogue.rows(None).await?)?;
    staging.write_bytes("dataset/_common_metadata", &columns)?;
    write_descriptions(catalogue, &tiling, bytes, &staging)?;
    catalogue.check_unchanged().await?;
    staging.finish()?;
    let orders = tiling.tiles.iter().map(|tile| tile.order);
    Ok(Exported {
        rows: tiling.rows(),
        skipped: tiling.unplaced,
        files: tiling.tiles.len(),
        orders: (orders.clone().min().unwrap_or(0), orders.max().unwrap_or(0)),
        bytes,
        has_metadata,
    })
}

/// Writes the file of a tile. Returns its bytes.
async fn write_tile(
    catalogue: &Catalogue,
    tile: &Tile,
    staging: &Staging,
    footers: &mut Option<Footers>,
) -> Result<u64, HatsError> {
    let path = tile.path();
    let rows = catalogue.rows(Some(tile)).await?;
    let file = staging.create(&format!("dataset/{path}"))?;
    let kept = file.file.try_clone();
    let kept = kept.map_err(HatsError::io("write", &file.path))?;
    let writer = TileWriter::new(&catalogue.table, &rows, BufWriter::new(file.file))?;
    let (written, footer) = writer.write_all(rows).await?;
    kept.sync_all()
        .map_err(HatsError::io("write", &file.path))?;
    if written != tile.rows {
        return Err(HatsError::Changed(catalogue.name()));
    }
    let length = kept.metadata().map_err(HatsError::io("read", &file.path))?;
    if let Some(all) = footers {
        all.add(footer, &path)?;
        if all.column_chunks() > MOST_COLUMN_CHUNKS {
            *footers = None;
        }
    }
    Ok(length.len())
}

fn write_descriptions(
    catalogue: &Catalogue,
    tiling: &Tiling,
    bytes: u64,
    staging: &Staging,
) -> Result<(), HatsError> {
    staging.write_bytes("partition_info.csv", partition_info(tiling).as_bytes())?;
    let path = staging.dir.join("skymap.fits");
    staging.write("skymap.fits", |out| {
        sky::healpix::write_map(&tiling.map, out).map_err(HatsError::io("write", &path))
    })?;
    let properties = properties(catalogue, tiling, Some(bytes));
    // The name of older readers.
    for name in ["properties", "hats.properties"] {
        staging.write_bytes(name, properties.as_bytes())?;
    }
    Ok(())
}

/// A catalogue that is being written, beside where it will be.
struct Staging {
    dir: PathBuf,
    output: PathBuf,
    lock: Option<File>,
}

/// A file that is being written.
struct NewFile {
    file: File,
    path: PathBuf,
}

impl Staging {
    /// Begins a catalogue. What a killed export left is removed.
    fn begin(output: &Path) -> Result<Self, HatsError> {
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

    fn create(&self, name: &str) -> Result<NewFile, HatsError> {
        let path = self.dir.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(HatsError::io("make", parent))?;
        }
        let file = File::create(&path).map_err(HatsError::io("make", &path))?;
        Ok(NewFile { file, path })
    }

    fn write(
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

    fn write_bytes(&self, name: &str, bytes: &[u8]) -> Result<(), HatsError> {
        let path = self.dir.join(name);
        self.write(name, |out| {
            out.write_all(bytes).map_err(HatsError::io("write", &path))
        })
    }

    /// Gives the catalogue its name.
    fn finish(mut self) -> Result<(), HatsError> {
        let path = self.dir.join(LOCK);
        fs::remove_file(&path).map_err(HatsError::io("remove", &path))?;
        fs::rename(&self.dir, &self.output).map_err(HatsError::io("name", &self.output))?;
        self.lock = None;
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // Only where the catalogue was not finished; that it may be gone already is no matter.
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
