//! `index.json`: what a directory of region files holds, and where.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sky::{LonLat, LonLatBox};

use crate::error::RegionFilesError;

/// The file's name.
pub(crate) const INDEX: &str = "index.json";
/// The name of the format, and its version.
const FORMAT: &str = "meridian-region-files";
const VERSION: u32 = 1;

/// What a directory of region files holds. Fields may be added within a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Index {
    format: String,
    version: u32,
    /// Of what the rows are.
    pub source: Source,
    /// The program that has written them.
    pub written_by: String,
    /// How the sky is cut.
    pub partitioning: Partitioning,
    /// The column by which the rows of a sub-chunk are sorted, if there is one.
    pub key: Option<String>,
    /// The column with the right ascension, degrees.
    pub ra: String,
    /// The column with the declination, degrees.
    pub dec: String,
    /// The columns of the files.
    pub columns: Vec<ColumnDescription>,
    /// Rows in all files.
    pub rows: u64,
    /// Rows of each record batch of a file but the last one.
    pub rows_per_batch: u64,
    /// The directory of sub-chunks.
    pub directory: DirectoryFile,
    /// The chunks that have rows, ascending.
    pub chunks: Vec<ChunkFile>,
}

/// Of which table the rows are, as of when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The database.
    pub database: String,
    /// The table or the view.
    pub table: String,
    /// Of an alert database: the last edition that is in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edition: Option<i64>,
    /// Of an alert database: when that edition was published (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<String>,
    /// Of a table: the numbers of its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<i64>,
}

/// How the sky is cut into chunks and sub-chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partitioning {
    /// Stripes of equal height.
    pub stripes: u32,
    /// Sub-stripes of each.
    pub sub_stripes: u32,
}

/// What is said of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDescription {
    /// Its name.
    pub name: String,
    /// Its type, as Arrow calls it.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Its UCD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ucd: Option<String>,
    /// What it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The file of the directory of sub-chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryFile {
    /// Sub-chunks that have rows, of all chunks.
    pub sub_chunks: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
}

/// The file of a chunk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkFile {
    /// The chunk.
    pub chunk: i32,
    /// Its rows.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Its SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// The SHA-256 of its footer and of the messages of its record batches. Files that were written before there was one have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata_sha256: Option<String>,
    /// The first row of its sub-chunks in the directory.
    pub first_sub_chunk: u64,
    /// How many of its sub-chunks have rows.
    pub sub_chunks: u64,
    /// Where its rows are.
    pub bounds: Bounds,
}

/// The least and the greatest coordinates of some rows, in degrees. Right ascensions are in [0, 360), and those of a chunk do not wrap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// The westernmost.
    pub ra_min: f64,
    /// The southernmost.
    pub dec_min: f64,
    /// The easternmost.
    pub ra_max: f64,
    /// The northernmost.
    pub dec_max: f64,
}

impl Bounds {
    /// Those of one position.
    pub(crate) fn of(place: LonLat) -> Self {
        let (ra, dec) = (place.ra().degrees(), place.dec().degrees());
        Self {
            ra_min: ra,
            dec_min: dec,
            ra_max: ra,
            dec_max: dec,
        }
    }

    /// With others.
    pub(crate) fn with(self, other: Self) -> Self {
        Self {
            ra_min: self.ra_min.min(other.ra_min),
            dec_min: self.dec_min.min(other.dec_min),
            ra_max: self.ra_max.max(other.ra_max),
            dec_max: self.dec_max.max(other.dec_max),
        }
    }

    /// The box, if these are bounds.
    pub(crate) fn as_box(self) -> Option<LonLatBox> {
        let is_wrapped = self.ra_min > self.ra_max;
        let found =
            LonLatBox::from_degrees(self.ra_min, self.dec_min, self.ra_max, self.dec_max).ok();
        found.filter(|_| !is_wrapped)
    }
}

impl Index {
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a part of the index, and the writer has them all"
    )]
    pub(crate) fn new(
        source: Source,
        partitioning: Partitioning,
        key: Option<String>,
        position: [String; 2],
        columns: Vec<ColumnDescription>,
        rows_per_batch: u64,
        directory: DirectoryFile,
        chunks: Vec<ChunkFile>,
    ) -> Self {
        let [ra, dec] = position;
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            source,
            written_by: format!("Meridian {}", env!("CARGO_PKG_VERSION")),
            partitioning,
            key,
            ra,
            dec,
            columns,
            rows: chunks.iter().map(|chunk| chunk.rows).sum(),
            rows_per_batch,
            directory,
            chunks,
        }
    }

    /// Reads the index of a directory.
    pub(crate) fn read(dir: &Path) -> Result<Self, RegionFilesError> {
        let path = dir.join(INDEX);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let reason = "there are no region files: it has no index.json";
                return Err(RegionFilesError::unknown(dir, reason));
            }
            Err(error) => return Err(RegionFilesError::io("read", &path)(error)),
        };
        // What it is comes before what it says: another version may say other things.
        let named: FormatLine = serde_json::from_slice(&text).map_err(|error| {
            RegionFilesError::unknown(&path, format!("this is no index of region files: {error}"))
        })?;
        if named.format != FORMAT {
            let reason = format!("this is no index of region files, but of {}", named.format);
            return Err(RegionFilesError::unknown(&path, reason));
        }
        if named.version != VERSION {
            let reason = format!(
                "region files of version {} need another version of the reader, which knows {VERSION}",
                named.version
            );
            return Err(RegionFilesError::unknown(&path, reason));
        }
        let index: Self = serde_json::from_slice(&text)
            .map_err(|error| RegionFilesError::damaged(&path, error.to_string()))?;
        match index.mistake() {
            None => Ok(index),
            Some(mistake) => Err(RegionFilesError::damaged(&path, mistake)),
        }
    }

    /// What does not fit together in it.
    fn mistake(&self) -> Option<&'static str> {
        let mut sub_chunks = 0_u64;
        for chunk in &self.chunks {
            if chunk.first_sub_chunk != sub_chunks || chunk.bounds.as_box().is_none() {
                return Some("its chunks do not fit together");
            }
            sub_chunks = sub_chunks.saturating_add(chunk.sub_chunks);
        }
        let is_ascending = |pair: &[ChunkFile]| pair[0].chunk < pair[1].chunk;
        if self.chunks.is_empty() || !self.chunks.windows(2).all(is_ascending) {
            return Some("its chunks are not in their order");
        }
        let rows = self.chunks.iter().map(|chunk| chunk.rows);
        let rows = rows.fold(0, u64::saturating_add);
        if rows != self.rows || sub_chunks != self.directory.sub_chunks || self.rows_per_batch == 0
        {
            return Some("its numbers do not fit together");
        }
        None
    }

    /// The file of a chunk.
    pub(crate) fn path_of(dir: &Path, chunk: i32) -> PathBuf {
        dir.join(Self::name_of(chunk))
    }

    /// Its name below the directory.
    pub(crate) fn name_of(chunk: i32) -> String {
        format!("chunks/chunk_{chunk}.arrow")
    }
}

#[derive(Deserialize)]
struct FormatLine {
    format: String,
    version: u32,
}
