//! Tables as HATS catalogues: Parquet files of HEALPix cells, as LSDB reads them (IVOA Note *HATS: A Standard for the Hierarchical
//! Adaptive Tiling Scheme*).
//!
//! ```text
//!   hats.properties                     what the catalogue is: its rows, the columns of its position
//!   partition_info.csv                  its cells
//!   skymap.fits                         how many rows there are in each cell of one order
//!   dataset/_common_metadata            the columns, as a Parquet file without rows
//!   dataset/_metadata                   the footers of all files
//!   dataset/Norder=1/Dir=0/Npix=47.parquet    the rows of a cell, in the order of the column _healpix_29
//! ```
//!
//! A cell that has too many rows is divided into the four of the next order, so that files have about as many rows each. Each is the
//! result of a query, which reads the chunks around the cell and sorts within the memory of queries.
//!
//! Invariants: each row with a position is in exactly one file, that of the cell of its number in `_healpix_29`; a directory gets the
//! name of a catalogue when all its files are on disk. Knows of queries and Parquet, not of files on disk that Meridian reads.

mod catalogue;
mod error;
mod export;
mod properties;
mod staging;
mod tile_file;
mod tiles;

pub use catalogue::{CELL_COLUMN, Catalogue, DIALECT};
pub use error::HatsError;
pub use export::{ExportOptions, ExportReport, export};
pub use properties::{partition_info, properties};
pub use staging::{NewFile, Staging};
pub use tile_file::{TileWriter, common_metadata};
pub use tiles::{MAX_ORDER, Tile, Tiling};
