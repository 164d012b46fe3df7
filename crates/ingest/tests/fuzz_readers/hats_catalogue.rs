//! A HATS catalogue of which one file, or one name of a file, is mutated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array};
use parquet::file::properties::WriterProperties;

use crate::mutation::Chance;
use crate::written::parquet;

/// A HATS catalogue as a directory: its properties, those of a collection, and two files of cells.
pub struct Catalogue {
    properties: Vec<u8>,
    collection: Vec<u8>,
    cells: [Vec<u8>; 2],
}

/// The names of the files of a catalogue's cells.
const CELLS: [&str; 2] = [
    "Norder=0/Dir=0/Npix=4.parquet",
    "Norder=1/Dir=0/Npix=47.parquet",
];

impl Catalogue {
    /// One of a hundred stars.
    pub fn usual() -> Self {
        let cell = |from: i64| {
            let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + 50));
            let degrees: ArrayRef =
                Arc::new(Float64Array::from_iter_values((0..50).map(f64::from)));
            let columns = vec![
                ("_healpix_29", Arc::clone(&ids)),
                ("id", ids),
                ("ra", Arc::clone(&degrees)),
                ("dec", degrees),
            ];
            parquet(columns, WriterProperties::default())
        };
        let properties = "#HATS catalog\nobs_collection=star\ndataproduct_type=object\nhats_nrows=100\nhats_col_ra=ra\nhats_col_dec=dec\n\
             hats_col_healpix=_healpix_29\nhats_col_healpix_order=29\nhats_npix_suffix=.parquet\nhats_order=1\nmoc_sky_fraction=0.5\n\
             hats_builder=hats-import v0.11.1\nhats_version=v1.0\n";
        let collection = "#HATS Collection\nobs_collection=stars\nhats_primary_table_url=star\nall_margins=star_margin\ndefault_margin=star_margin\n";
        Self {
            properties: properties.into(),
            collection: collection.into(),
            cells: [cell(0), cell(50)],
        }
    }

    /// Writes it with one of its files or names mutated, below a directory that is made anew. Gives the directory to read.
    pub fn put_mutated(&self, dir: &Path, chance: &mut Chance) -> PathBuf {
        let _ = std::fs::remove_dir_all(dir);
        let in_collection = chance.below(3) == 0;
        let catalogue = if in_collection {
            dir.join("star")
        } else {
            dir.to_path_buf()
        };
        let changed = chance.below(6);
        let mut bytes = |part: usize, bytes: &[u8]| match part == changed {
            true => chance.mutated(bytes),
            false => bytes.to_vec(),
        };
        let put = |path: PathBuf, bytes: &[u8]| {
            let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| std::fs::write(path, bytes))
        };
        let (collection, properties) = (bytes(0, &self.collection), bytes(1, &self.properties));
        if in_collection {
            put(dir.join("collection.properties"), &collection).unwrap();
        }
        put(catalogue.join("hats.properties"), &properties).unwrap();
        for (at, name) in CELLS.into_iter().enumerate() {
            let cell = bytes(2 + at, &self.cells[at]);
            let name = String::from_utf8_lossy(&bytes(4 + at, name.as_bytes())).into_owned();
            // A name that leads out of the directory is none that a listing of it has.
            let name: PathBuf = name
                .split('/')
                .filter(|part| !matches!(*part, "" | "." | "..") && !part.contains('\0'))
                .collect();
            let path = catalogue.join("dataset").join(name);
            // One that no file can have is passed over: that file is missing.
            let _ = put(path, &cell);
        }
        dir.to_path_buf()
    }
}
