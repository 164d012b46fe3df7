//! Databases, tables, chunks and loads: the values that go into the catalog and come out of it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sky::ChunkId;

use crate::{CatalogError, Column, TableMetadata};

/// The number under which the one "chunk" of a replicated table is kept.
pub const REPLICATED_CHUNK: ChunkId = ChunkId(-1);

/// The number of a load: one attempt to fill one table. Never used twice in one catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LoadId(pub i64);

impl fmt::Display for LoadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A database: a set of tables that share one partitioning of the sky.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Database {
    /// Its number in the catalog.
    pub id: i64,
    /// Its name as declared.
    pub name: String,
    /// How many stripes of equal height the sky is cut into.
    pub stripes: u32,
    /// How many sub-stripes each stripe has.
    pub sub_stripes: u32,
    /// The overlap radius around each chunk of a director, in degrees, at least 0.
    pub overlap_deg: f64,
    /// What it has, in words, if anybody has said it.
    #[serde(default)]
    pub description: Option<String>,
}

/// The database into which a load is published: made if it is not there, else it must agree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewDatabase {
    /// Its name; the spelling counts only if it is made.
    pub name: String,
    /// How many stripes of equal height the sky is cut into, at least 1.
    pub stripes: u32,
    /// How many sub-stripes each stripe has, at least 1.
    pub sub_stripes: u32,
    /// The overlap radius around each chunk of a director, in degrees, 0 to below 180.
    pub overlap_deg: f64,
}

impl From<&Database> for NewDatabase {
    fn from(database: &Database) -> Self {
        Self {
            name: database.name.clone(),
            stripes: database.stripes,
            sub_stripes: database.sub_stripes,
            overlap_deg: database.overlap_deg,
        }
    }
}

/// How a table is spread over the sky. Written `director`, `child`, `match`, `replicated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TableKind {
    /// Has a position and a unique key; each row lives in the chunk of its position.
    Director,
    /// Has its director's key; each row lives where its director's row lives.
    Child,
    /// Pairs of two directors' keys; a pair lives where either end lives.
    Match,
    /// Whole wherever it is used.
    Replicated,
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Director => "director",
            Self::Child => "child",
            Self::Match => "match",
            Self::Replicated => "replicated",
        })
    }
}

impl FromStr for TableKind {
    type Err = CatalogError;

    fn from_str(text: &str) -> Result<Self, CatalogError> {
        [Self::Director, Self::Child, Self::Match, Self::Replicated]
            .into_iter()
            .find(|kind| kind.to_string().eq_ignore_ascii_case(text))
            .ok_or_else(|| CatalogError::UnknownTableKind(text.to_owned()))
    }
}

/// The columns that hold a row's position, both in degrees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Name of the column of right ascension.
    pub ra: String,
    /// Name of the column of declination.
    pub dec: String,
}

/// The database of a director whose child is in another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherDatabase {
    /// Its name.
    pub name: String,
    /// Its stripes when the child's rows were placed, which are the child's, too.
    pub stripes: u32,
    /// Its sub-stripes, likewise.
    pub sub_stripes: u32,
}

/// How a child or match table hangs on a director.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectorRef {
    /// The director.
    pub table: String,
    /// Its database, where that is another than this table's own: only children have such directors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<OtherDatabase>,
    /// This table's column that holds the director's key.
    pub key: String,
    /// The director's placement by which this table's rows were placed. If it is no longer the director's
    /// present one, rows of the two need not be in the same chunk any more. `None` once the director has
    /// keys whose rows in this table were placed before, elsewhere.
    pub placement: Option<LoadId>,
}

impl DirectorRef {
    /// The director's database, of a table in the database `own`.
    pub fn database<'a>(&'a self, own: &'a str) -> &'a str {
        self.elsewhere.as_ref().map_or(own, |it| &it.name)
    }
}

/// What a load says about its table when it publishes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSpec {
    /// The database's name.
    pub database: String,
    /// The table's name.
    pub name: String,
    /// How it is spread.
    pub kind: TableKind,
    /// Its columns in order.
    pub columns: Vec<Column>,
    /// A director's unique key; a child's own key if it is known; else nothing.
    pub key: Option<String>,
    /// The position columns: always for a director, perhaps for a child.
    pub position: Option<Position>,
    /// One for a child, two (left, right) for a match table, none otherwise.
    pub directors: Vec<DirectorRef>,
    /// How heavy a scan of it is: 0 lightest, 255 heaviest.
    pub scan_rating: u8,
}

impl TableSpec {
    /// Whether the table hangs on this one.
    pub fn refers_to(&self, database: &str, table: &str) -> bool {
        use crate::fold_name as fold;
        self.directors.iter().any(|it| {
            fold(it.database(&self.database)) == fold(database) && fold(&it.table) == fold(table)
        })
    }

    /// Whether the table has its own cut of the sky, which is that of its director's database.
    pub fn is_cut_as_elsewhere(&self) -> bool {
        self.directors.iter().any(|it| it.elsewhere.is_some())
    }

    /// The column of this name, without regard to case.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let folded = crate::fold_name(name);
        self.columns
            .iter()
            .find(|column| crate::fold_name(&column.name) == folded)
    }
}

/// One part of a table: what one load, append or merge has published. Immutable; its number is the load's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The load that published it, by which its files are named.
    pub load: LoadId,
    /// Rows as a query counts them: a pair of a match table that is stored twice counts once.
    pub rows: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Child rows whose director key is NULL.
    pub null_keys: u64,
    /// Rows with a key that the director did not have when they were loaded: of a child, orphans; of a match table, pairs
    /// with an end that is unknown (an upper bound).
    pub orphan_rows: u64,
    /// When it was published, or the last of the parts that it was merged from: UTC, ISO 8601 to the second.
    pub loaded_at: String,
    /// What it was loaded from; empty where that is not known.
    pub source: String,
    /// The parts that it was merged from, by the numbers under which they were loaded, ascending; none for one that was loaded. Of a
    /// director's part that has taken the places of others as it grew by a few rows at a time, the latest of them, itself among them.
    #[serde(default)]
    pub merged_from: Vec<LoadId>,
}

impl Part {
    /// The loads whose rows it has: those that it was merged from, or its own.
    pub fn origins(&self) -> Vec<LoadId> {
        match self.merged_from.is_empty() {
            true => vec![self.load],
            false => self.merged_from.clone(),
        }
    }
}

/// What a load publishes.
#[derive(Debug, Clone, Copy)]
pub struct PartContents<'a> {
    /// Rows as a query counts them.
    pub rows: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// See [`Part::null_keys`].
    pub null_keys: u64,
    /// See [`Part::orphan_rows`].
    pub orphan_rows: u64,
    /// What it was loaded from.
    pub source: &'a str,
    /// Its chunks.
    pub chunks: &'a [Chunk],
    /// What the files say of the columns. Of a table that is loaded anew it takes the place of what was said of columns of the same
    /// names; a part of a table that is there changes nothing of it.
    pub metadata: Option<&'a TableMetadata>,
}

/// A table that a query can see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its number in the catalog; it stays when the table is replaced.
    pub id: i64,
    /// The database that it is in; cut as the table itself is.
    pub database: Database,
    /// The load that made the table or replaced it. Parts that are appended keep to it: a key stays where it was placed. Tables
    /// that were placed by the same placement of a director have its keys in the same chunks.
    pub placement: LoadId,
    /// What is declared of it.
    pub spec: TableSpec,
    /// What it and its columns mean. It changes without a load, and no row depends on it.
    #[serde(default)]
    pub metadata: TableMetadata,
    /// The time from which it may be removed: UTC, ISO 8601 to the second. A table that is replaced keeps it, and so does one that is renamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Its parts, at least one, in the order in which they are read. There are none where whoever asks sees some of its rows alone, and is
    /// not told how many there are.
    pub parts: Vec<Part>,
}

impl Table {
    /// The rows, the bytes and the time of the latest load of a table, as lists tell them; `None` for what is not told.
    pub fn told_contents(&self) -> (Option<u64>, Option<u64>, Option<&str>) {
        match self.parts.is_empty() {
            true => (None, None, None),
            false => (
                Some(self.rows()),
                Some(self.bytes()),
                Some(self.loaded_at()),
            ),
        }
    }

    /// Rows as a query counts them.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Bytes of all its files.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// See [`Part::null_keys`].
    pub fn null_keys(&self) -> u64 {
        self.parts.iter().map(|part| part.null_keys).sum()
    }

    /// See [`Part::orphan_rows`].
    pub fn orphan_rows(&self) -> u64 {
        self.parts.iter().map(|part| part.orphan_rows).sum()
    }

    /// When the latest of its parts was published.
    pub fn loaded_at(&self) -> &str {
        let times = self.parts.iter().map(|part| part.loaded_at.as_str());
        times.max().unwrap_or_default()
    }

    /// The loads whose rows it has, whatever parts were merged since. Two states of a table of one placement with the same hold the
    /// same rows in the same places.
    pub fn origins(&self) -> BTreeSet<LoadId> {
        self.parts.iter().flat_map(Part::origins).collect()
    }

    /// Why a part cannot be dropped that is not in the list.
    pub fn no_part(&self, part: LoadId) -> CatalogError {
        let table = self.spec.full_name();
        let mut parts = self.parts.iter();
        match parts.find(|it| it.merged_from.contains(&part)) {
            Some(into) => CatalogError::MergedPart {
                table,
                part,
                into: into.load,
                merged_from: into.merged_from.clone(),
            },
            None => CatalogError::NoPart {
                table,
                part,
                parts: self.part_numbers(),
            },
        }
    }

    /// The numbers of its parts, in order. Two states of a table with the same list hold the same rows.
    pub fn part_numbers(&self) -> Vec<LoadId> {
        self.parts.iter().map(|part| part.load).collect()
    }
}

/// One chunk of one load of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// Which chunk; [`REPLICATED_CHUNK`] for a replicated table.
    pub chunk: ChunkId,
    /// The chunk after which its file is named: itself, or the first one in a file of several.
    pub file: ChunkId,
    /// Its rows.
    pub rows: u64,
    /// Rows of a director that are kept here though their positions lie elsewhere.
    pub strays: u64,
    /// Bytes of its file, or its share of them.
    pub bytes: u64,
    /// The checksum of its file.
    pub checksum: u64,
    /// The overlap file beside it, if there is one.
    pub overlap: Option<OverlapFile>,
    /// `[ra_min, dec_min, ra_max, dec_max]` in degrees of the rows' own positions; a box with
    /// `ra_min > ra_max` goes through right ascension 0. Nothing when no row has a position.
    pub bounds: Option<[f64; 4]>,
}

/// The overlap of a chunk: rows of other chunks near its edge, in a file that is named like the chunk's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlapFile {
    /// Its rows.
    pub rows: u64,
    /// Bytes of the file, or its share of them.
    pub bytes: u64,
    /// The checksum of the file.
    pub checksum: u64,
}
