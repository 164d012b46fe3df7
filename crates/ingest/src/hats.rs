//! HATS catalogues as inputs: the HEALPix-partitioned Parquet of LSDB (IVOA Note *HATS: A Standard for the Hierarchical Adaptive Tiling
//! Scheme*).
//!
//! ```text
//!   hats.properties, dataset/Norder=1/Dir=0/Npix=47.parquet, ...        a catalogue
//!   collection.properties, its catalogue, margins and indexes            a collection of such
//! ```
//!
//! The properties say which columns are the position. All else but the data is passed over: what it says is in the data, too.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::IngestError;
use crate::format::TableFile;
use crate::inputs::files_below;

/// The properties of a catalogue: the present name, and that of older ones.
const PROPERTIES: [&str; 2] = ["hats.properties", "properties"];
/// The properties of a collection.
const COLLECTION: &str = "collection.properties";
/// Bytes that properties may have.
pub(crate) const MOST_BYTES: usize = 1 << 20;
/// The column that numbers cells where the properties do not name one.
const CELL_COLUMN: &str = "_healpix_29";
/// The columns of older catalogues that say in which file a row is. One of these names alone may well be a column of rows.
pub(crate) const PLACE_COLUMNS: [&str; 3] = ["Norder", "Dir", "Npix"];
/// The kinds of catalogues whose files are not rows of one table.
const NOT_TABLES: [&str; 2] = ["margin", "index"];

/// The properties of a catalogue, by their names.
type Properties = BTreeMap<String, String>;

/// A HATS catalogue.
#[derive(Debug)]
pub(crate) struct HatsCatalogue {
    dir: PathBuf,
    properties: Properties,
    /// The names of its files from there, where they were listed.
    listed: Option<Vec<PathBuf>>,
}

impl HatsCatalogue {
    /// The catalogue in a directory, or the one of the collection there; `None` if there is neither.
    ///
    /// # Errors
    /// Its properties cannot be read, or it is none of rows.
    pub fn find(dir: &Path) -> Result<Option<Self>, IngestError> {
        let in_dir = |dir: &Path| {
            PROPERTIES
                .map(|name| dir.join(name))
                .into_iter()
                .find(|it| it.is_file())
        };
        if let Some(path) = in_dir(dir) {
            return Self::read(dir, &path).map(Some);
        }
        let collection = dir.join(COLLECTION);
        if !collection.is_file() {
            return Ok(None);
        }
        let primary = dir.join(primary_of(&collection, &read_properties(&collection)?)?);
        match in_dir(&primary) {
            Some(path) => Self::read(&primary, &path).map(Some),
            None => Err(no_properties(&primary)),
        }
    }

    /// The same of a directory that is a list of names; `read` gives the text of a file of them.
    ///
    /// # Errors
    /// Those of [`HatsCatalogue::find`].
    pub fn of_names(
        dir: &Path,
        names: &[PathBuf],
        read: impl Fn(&Path) -> Result<String, IngestError>,
    ) -> Result<Option<Self>, IngestError> {
        let has = |name: &Path| names.iter().any(|it| it == name);
        let in_dir = |within: &Path| {
            PROPERTIES
                .map(|name| within.join(name))
                .into_iter()
                .find(|it| has(it))
        };
        let (within, path) = match in_dir(Path::new("")) {
            Some(path) => (PathBuf::new(), path),
            None if !has(Path::new(COLLECTION)) => return Ok(None),
            None => {
                let properties = properties_of(&read(Path::new(COLLECTION))?);
                let primary = PathBuf::from(primary_of(&dir.join(COLLECTION), &properties)?);
                let path = in_dir(&primary).ok_or_else(|| no_properties(&dir.join(&primary)))?;
                (primary, path)
            }
        };
        let below = names
            .iter()
            .filter_map(|name| name.strip_prefix(&within).ok());
        let listed: Vec<PathBuf> = below.map(Path::to_owned).collect();
        let has_dataset = listed.iter().any(|name| name.starts_with("dataset"));
        let catalogue = Self {
            dir: dir.join(within),
            properties: properties_of(&read(&path)?),
            listed: Some(listed),
        };
        catalogue.check(has_dataset)?;
        Ok(Some(catalogue))
    }

    fn read(dir: &Path, path: &Path) -> Result<Self, IngestError> {
        let catalogue = Self {
            dir: dir.to_path_buf(),
            properties: read_properties(path)?,
            listed: None,
        };
        catalogue.check(dir.join("dataset").is_dir())?;
        Ok(catalogue)
    }

    /// Sees that it is one of rows, and whole.
    fn check(&self, has_dataset: bool) -> Result<(), IngestError> {
        let kind = self.property("dataproduct_type").unwrap_or_default();
        if NOT_TABLES.contains(&kind) {
            let reason = format!(
                "it is a HATS catalogue of the type {kind}, which repeats rows of another one: load that one"
            );
            return Err(IngestError::layout(&self.dir, reason));
        }
        if !has_dataset {
            let reason = "it has the properties of a HATS catalogue and no directory dataset: fetch the whole catalogue";
            return Err(IngestError::layout(&self.dir, reason));
        }
        Ok(())
    }

    fn property(&self, name: &str) -> Option<&str> {
        let value = self.properties.get(name)?.trim();
        (!value.is_empty()).then_some(value)
    }

    /// The columns of right ascension and declination.
    pub fn position(&self) -> Option<[String; 2]> {
        let named = |name| self.property(name).map(str::to_owned);
        Some([named("hats_col_ra")?, named("hats_col_dec")?])
    }

    /// The column that numbers cells.
    pub fn cell_column(&self) -> String {
        let named = self.property("hats_col_healpix");
        named.unwrap_or(CELL_COLUMN).to_owned()
    }

    /// The files of its cells, in the order of their numbers.
    ///
    /// # Errors
    /// There are none.
    pub fn files(&self) -> Result<Vec<PathBuf>, IngestError> {
        let dataset = self.dir.join("dataset");
        let mut files: Vec<((u32, u64), PathBuf)> = Vec::new();
        let below = match &self.listed {
            None => files_below(&dataset)?,
            Some(listed) => {
                let is_shown = |name: &&PathBuf| {
                    let mut parts = name.iter().map(|part| part.to_string_lossy());
                    name.starts_with("dataset") && parts.all(|part| !part.starts_with(['.', '_']))
                };
                let shown = listed.iter().filter(is_shown);
                shown.map(|name| self.dir.join(name)).collect()
            }
        };
        for path in below {
            if let Some(cell) = cell_of(path.strip_prefix(&dataset).unwrap_or(&path)) {
                files.push((cell, path));
            }
        }
        if files.is_empty() && self.rows() != Some(0) {
            let reason = "it has no files of cells, as Norder=1/Dir=0/Npix=47.parquet";
            return Err(IngestError::layout(&dataset, reason));
        }
        files.sort();
        Ok(files.into_iter().map(|(_, path)| path).collect())
    }

    fn rows(&self) -> Option<u64> {
        self.property("hats_nrows")?.parse().ok()
    }

    /// Its directory and the rows that it says it has.
    pub fn whole(&self) -> Option<(PathBuf, u64)> {
        Some((self.dir.clone(), self.rows()?))
    }
}

/// The catalogue of a collection.
fn primary_of<'a>(collection: &Path, properties: &'a Properties) -> Result<&'a str, IngestError> {
    let primary = properties.get("hats_primary_table_url");
    let primary = primary.filter(|it| !it.contains("://")).ok_or_else(|| {
        IngestError::layout(
            collection,
            "it names no catalogue of this collection (hats_primary_table_url)",
        )
    })?;
    Ok(primary)
}

fn no_properties(primary: &Path) -> IngestError {
    IngestError::layout(
        primary,
        "it is the catalogue of the collection, and has no hats.properties",
    )
}

/// A catalogue of which files are missing has fewer rows than it says.
pub(crate) fn check_rows(
    catalogue: &Path,
    expected: u64,
    files: &[Box<dyn TableFile>],
) -> Result<(), IngestError> {
    // The footer of a Parquet file has the exact number.
    let rows = files.iter().map(|file| file.estimated_rows());
    let found = rows.fold(0_u64, u64::saturating_add);
    if found == expected {
        return Ok(());
    }
    let reason = format!(
        "by its properties the catalogue has {expected} rows, and its files have {found}: fetch it again, or name its files by a pattern, such as 'dataset/*/*/*.parquet', to load what there is"
    );
    Err(IngestError::layout(catalogue, reason))
}

/// The order and the number of the cell that a file is of, by the directories that it is in. A cell may be a directory of files.
fn cell_of(path: &Path) -> Option<(u32, u64)> {
    let value = |word: &str| {
        path.iter().find_map(|part| {
            let digits = part.to_str()?.strip_prefix(word)?;
            let end = digits.find(|c: char| !c.is_ascii_digit());
            digits[..end.unwrap_or(digits.len())].parse::<u64>().ok()
        })
    };
    let order = u32::try_from(value("Norder=")?).ok()?;
    Some((order, value("Npix=")?))
}

/// Reads a file of Java's properties, as far as catalogues use them: a property a line, and comments.
fn read_properties(path: &Path) -> Result<Properties, IngestError> {
    let length = std::fs::metadata(path).map_err(|e| IngestError::io("open", path, e))?;
    if length.len() > MOST_BYTES as u64 {
        let reason = "it is too long for the properties of a catalogue";
        return Err(IngestError::layout(path, reason));
    }
    let bytes = std::fs::read(path).map_err(|e| IngestError::io("read", path, e))?;
    Ok(properties_of(&String::from_utf8_lossy(&bytes)))
}

fn properties_of(text: &str) -> Properties {
    let property = |line: &str| {
        let line = line.trim();
        if line.starts_with(['#', '!']) {
            return None;
        }
        let (name, value) = line.split_once(['=', ':'])?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(property).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_told_by_directories() {
        let cell = |path: &str| cell_of(Path::new(path));
        assert_eq!(cell("Norder=1/Dir=0/Npix=47.parquet"), Some((1, 47)));
        assert_eq!(
            cell("Norder=6/Dir=10000/Npix=12345/part0.parquet"),
            Some((6, 12345))
        );
        assert_eq!(cell("Norder=2/Dir=0/Npix=3.snappy.parquet"), Some((2, 3)));
        for none in [
            "data_thumbnail.parquet",
            "Norder=1/x.parquet",
            "Norder=x/Npix=1",
            "Npix=1",
        ] {
            assert_eq!(cell(none), None, "{none}");
        }
    }

    #[test]
    fn properties_are_lines() {
        let text =
            "#HATS catalog\nhats_nrows=131\n hats_col_ra = ra\r\nobs_title: a=b\n\nnothing\n";
        let found = properties_of(text);
        assert_eq!(found.len(), 3);
        assert_eq!(found["hats_col_ra"], "ra");
        assert_eq!(found["obs_title"], "a=b");
    }
}
