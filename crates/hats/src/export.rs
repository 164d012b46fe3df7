//! A whole catalogue in a directory, which has its name when all is there.

use std::io::BufWriter;
use std::path::Path;

use crate::catalogue::Catalogue;
use crate::error::HatsError;
use crate::properties::{partition_info, properties};
use crate::staging::Staging;
use crate::tile_file::{Footers, TileWriter, common_metadata};
use crate::tiles::{Tile, Tiling};

/// Column chunks of which footers are kept in memory for `_metadata`. A catalogue of more of them goes without: readers do not need it.
const MOST_COLUMN_CHUNKS: usize = 500_000;

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
pub struct ExportReport {
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
) -> Result<ExportReport, HatsError> {
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
    Ok(ExportReport {
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
    let path = staging.path("skymap.fits");
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
