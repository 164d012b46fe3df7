//! The request of a load.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use catalog::{Column, LoadId, Table, TableKind};
use serde::{Deserialize, Serialize};

use crate::format::made::RowSource;
use crate::inputs::NamedInputs;
use crate::memory::default_memory;
use crate::remote::RemoteInputs;
use crate::spool::display_name;

/// The column of generated keys where nothing else is said.
pub(crate) const GENERATED_KEY: &str = "id";

/// One call of `meridian load`: what to load, from where, as what.
///
/// `LoadRequest::new` fills in the defaults; every field may be changed afterwards.
///
/// What is sent to another process of it is not what this one has opened: see the fields that are skipped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The data directory; made if it does not exist.
    pub data_dir: PathBuf,
    /// The database; made if it does not exist.
    pub database: String,
    /// The table to make.
    pub table: String,
    /// The table's kind; by default what the other options say (see [`LoadRequest::effective_kind`]).
    pub kind: Option<TableKind>,
    /// The key column: one name, or two for a match table (left and right).
    pub key: Vec<String>,
    /// Whether a director's key is generated, in a column that the files lack.
    pub generate_key: bool,
    /// The column of the right ascension.
    pub ra: Option<String>,
    /// The column of the declination.
    pub dec: Option<String>,
    /// The unit of both; `None` if nothing is said, so that degrees are taken and what looks like something else is told.
    pub position_unit: Option<PositionUnit>,
    /// The director's table name: one for a child, two for a match table.
    pub directors: Vec<String>,
    /// The database of a child's director, if it is another than the child's. The child is cut as that one is.
    pub director_database: Option<String>,
    /// A child's own key; by default its first integer column that is not `key`.
    pub own_key: Option<String>,
    /// The column by which a child's rows of one object are ordered; by default its own key.
    pub order: Option<String>,
    /// Stripes of a new database; chosen from the rows when absent.
    pub stripes: Option<u32>,
    /// Sub-stripes of a new database; chosen from the rows when absent.
    pub sub_stripes: Option<u32>,
    /// The stripes and sub-stripes of a database in which nothing is spread yet, where they would be chosen from the rows.
    pub cut_of_new_database: Option<(u32, u32)>,
    /// The overlap of a new database in degrees; one arcminute when absent.
    pub overlap_deg: Option<f64>,
    /// A JSON file that declares the columns.
    pub schema: Option<PathBuf>,
    /// Columns that hold texts, whatever their values look like, where the types are inferred.
    pub text_columns: Vec<String>,
    /// The table of FITS files: the name or the number of an extension; the first binary table by default.
    pub extension: Option<String>,
    /// How the text files are written, where it differs from what is detected.
    pub text: TextOptions,
    /// Columns declared NOT NULL that are made nullable (`all`: every one), so that NaN or NULL in them is accepted.
    pub nullable: Vec<String>,
    /// Whether a table of this name may exist and is then replaced.
    pub replace: bool,
    /// Whether it waits for others who load, compact or drop the table, as appends do.
    pub waits: bool,
    /// The parts that the table has to have when it is replaced, if the rows were made of these: another change in between is told
    /// ([`IngestError::is_change`](crate::IngestError::is_change)), and nothing is lost.
    pub made_of: Option<Vec<LoadId>>,
    /// The table that gets this name, if the rows are its own: it is shown under the new name alone. Another change in between is told, as
    /// of `made_of`.
    #[serde(skip)]
    pub renames: Option<Box<Table>>,
    /// Whether the rows become one more part of the table of this name, which must exist. What is not said here of its kind, key,
    /// position and directors is as the table has it.
    pub append: bool,
    /// With `append`: a JSON file that declares columns which the table gets behind those that it has. They are NULL in its rows from before.
    pub new_columns: Option<PathBuf>,
    /// The columns, where they are known without a schema file; with `append` those of the table. If others are given then, the table has
    /// changed since the rows were made ([`IngestError::is_change`](crate::IngestError::is_change)).
    pub declared: Option<Vec<Column>>,
    /// Whether these columns were found in the first of the files and not declared: text files are looked at as if nothing was known of them.
    #[serde(default)]
    pub are_columns_found: bool,
    /// Whether everything is done but to show the table: what would be loaded is reported, and nothing of it is left.
    pub dry_run: bool,
    /// Whether a load of no rows makes an empty table; else it fails and leaves what there was.
    pub allow_empty: bool,
    /// How many rejected rows are tolerated.
    pub max_errors: u64,
    /// The memory budget in bytes; a third of the machine when absent.
    pub memory: Option<u64>,
    /// Threads that read and write; all cores when absent.
    pub threads: Option<usize>,
    /// The scan rating of the table (larger: a slower lane); when absent that of the table which is replaced, if there is one.
    pub scan_rating: Option<u8>,
    /// What the part is said to be loaded from, if not the files.
    pub source: Option<String>,
    /// The files to read, in this order. `-` is standard input; what can be read only once is copied first. A pattern (`x*.csv`) stands
    /// for the files that match it, a directory for the Parquet files below it or the HATS catalogue that it is.
    pub files: Vec<PathBuf>,
    /// Who opens those of the files that are named by URLs. Without it a URL is a name of a file, and nothing is there: only the operator's
    /// command line gives it.
    #[serde(skip)]
    pub remote: Option<RemoteInputs>,
    /// What the files were named by; nothing in a request that is not being executed.
    #[serde(skip)]
    pub inputs: NamedInputs,
    /// Rows that are made while they are loaded, instead of files.
    #[serde(skip)]
    pub made: Option<Arc<dyn RowSource>>,
    /// Whether the rows are a share of a load's: that all of them are rejected, or that there are none, is for the load to judge.
    #[serde(default)]
    pub is_share: bool,
}

/// The unit of the positions in files. In tables they are in degrees.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PositionUnit {
    /// Degrees.
    #[default]
    Degrees,
    /// Radians.
    Radians,
    /// Right ascension in hours, declination in degrees.
    Hours,
}

impl FromStr for PositionUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "degrees" => Ok(Self::Degrees),
            "radians" => Ok(Self::Radians),
            "hours" => Ok(Self::Hours),
            _ => Err("give degrees, radians or hours (of right ascension)".to_owned()),
        }
    }
}

/// How text files are written. What is absent is detected.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TextOptions {
    /// The byte between fields.
    pub delimiter: Option<u8>,
    /// The quote; `Some(None)` switches quoting off.
    #[serde(with = "byte_or_none")]
    pub quote: Option<Option<u8>>,
    /// Whether a backslash escapes the byte after it, as in MySQL's dumps.
    pub escapes: Option<bool>,
    /// Whether fields are separated by any number of blanks and tabs.
    pub blanks: bool,
    /// The texts that stand for NULL.
    pub nulls: Vec<String>,
    /// The character that begins a comment line; `Some(None)` for no comments.
    #[serde(with = "byte_or_none")]
    pub comment: Option<Option<u8>>,
    /// Whether the first line of each file holds the column names.
    pub header: Option<bool>,
}

impl LoadRequest {
    /// A request with every choice left to the loader.
    pub fn new(
        data_dir: impl Into<PathBuf>,
        database: impl Into<String>,
        table: impl Into<String>,
    ) -> Self {
        Self {
            data_dir: data_dir.into(),
            database: database.into(),
            table: table.into(),
            kind: None,
            key: Vec::new(),
            generate_key: false,
            ra: None,
            dec: None,
            position_unit: None,
            directors: Vec::new(),
            director_database: None,
            own_key: None,
            order: None,
            stripes: None,
            sub_stripes: None,
            cut_of_new_database: None,
            overlap_deg: None,
            schema: None,
            text_columns: Vec::new(),
            extension: None,
            text: TextOptions::default(),
            nullable: Vec::new(),
            replace: false,
            waits: false,
            made_of: None,
            renames: None,
            append: false,
            new_columns: None,
            declared: None,
            are_columns_found: false,
            dry_run: false,
            allow_empty: false,
            max_errors: 0,
            memory: None,
            threads: None,
            scan_rating: None,
            source: None,
            files: Vec::new(),
            remote: None,
            inputs: NamedInputs::default(),
            made: None,
            is_share: false,
        }
    }

    /// The database of the directors.
    pub(crate) fn director_database(&self) -> &str {
        self.director_database.as_deref().unwrap_or(&self.database)
    }

    /// What the rows come from, as messages name it: the files, or the parts of what is made.
    pub(crate) fn input_names(&self) -> Vec<PathBuf> {
        match &self.made {
            Some(made) => (0..made.parts())
                .map(|part| made.part_name(part).into())
                .collect(),
            None => self.files.iter().map(|file| display_name(file)).collect(),
        }
    }

    /// The same as they were given: patterns and directories by their own names.
    pub(crate) fn given_names(&self) -> Vec<PathBuf> {
        match self.inputs.given() {
            [] => self.input_names(),
            given => given.iter().map(|input| display_name(input)).collect(),
        }
    }

    /// The same with a name for the generated key, if none is given.
    pub(crate) fn with_key_name(mut self) -> Self {
        if self.generate_key && self.key.is_empty() {
            self.key = vec![GENERATED_KEY.to_owned()];
        }
        self
    }

    /// The kind requested, or else: two directors make a match table, one a child table, a key and a
    /// position a director, anything else a replicated table.
    pub fn effective_kind(&self) -> TableKind {
        if let Some(kind) = self.kind {
            return kind;
        }
        let has_position = self.ra.is_some() && self.dec.is_some();
        match self.directors.len() {
            0 if has_position && self.key.len() == 1 => TableKind::Director,
            0 => TableKind::Replicated,
            1 => TableKind::Child,
            _ => TableKind::Match,
        }
    }

    /// The memory budget in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or_else(default_memory)
    }

    /// The number of threads that read and write.
    pub(crate) fn thread_count(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or_else(cores).max(1)
    }
}

/// A byte, that there is none, or nothing said: JSON would not tell the last two apart.
mod byte_or_none {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Said {
        Byte(u8),
        None,
    }

    pub fn serialize<S: Serializer>(
        value: &Option<Option<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let said = value.map(|it| it.map_or(Said::None, Said::Byte));
        said.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<u8>>, D::Error> {
        let said = Option::<Said>::deserialize(deserializer)?;
        Ok(said.map(|it| match it {
            Said::Byte(byte) => Some(byte),
            Said::None => None,
        }))
    }
}
