//! Readers of foreign formats, behind one pair of traits.
//!
//! A [`TableFile`] is an input file that has been looked at: its format, its columns, about how many rows. It opens a
//! [`Source`], which hands out [`Part`]s one after the other: a source is read by one thread at a time, parts are
//! decoded by any number of threads at once. A new format is one implementation of the
//! three and one line in [`open`]. Rows that a program makes ([`made::RowSource`]) come through the same three.

mod arrow_ipc;
mod arrow_lengths;
pub(crate) mod degrees;
mod elements;
pub(crate) mod fits;
pub(crate) mod generated_key;
pub(crate) mod made;
mod magic;
mod names;
pub(crate) mod parquet;
mod parquet_ahead;
mod parquet_bounds;
mod parquet_place;
mod parquet_views;
pub(crate) mod text;
mod thrift;
mod times;
pub(crate) mod votable;

pub(crate) use magic::{FORMATS_OF_CLIENTS, Magic, magic, magic_of};
pub(crate) use names::Names;
pub(crate) use parquet_ahead::WINDOW;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use arrow::datatypes::{FieldRef, Schema, SchemaRef};
use catalog::{Column, ColumnType};

use crate::budget::DecodeBudget;
use crate::error::IngestError;
use crate::normalise;
use crate::progress::Progress;
use crate::rejected_rows::RejectedRows;
use crate::remote::RemoteFile;
use crate::report::grouped;
use crate::row_batch::{RowBatch, travel_schema};
use crate::text_keys::TextKeys;

/// What every reader of a load needs to know and to report to.
#[derive(Debug)]
pub(crate) struct ReadContext {
    /// The table's columns.
    pub columns: Vec<Column>,
    /// The schema of the batches that readers give: [`travel_schema`] of the columns.
    pub schema: SchemaRef,
    /// Which of the columns are numbers of texts.
    pub text_keys: TextKeys,
    /// Where rejected rows go.
    pub rejected_rows: RejectedRows,
    /// Where progress goes.
    pub progress: Arc<Progress>,
    /// Text values that were not UTF-8 and were taken as Latin-1.
    pub latin1_values: AtomicU64,
    /// Lines of text files that were comments among the rows.
    pub comment_lines: AtomicU64,
}

impl ReadContext {
    pub(crate) fn new(
        columns: Vec<Column>,
        rejected_rows: RejectedRows,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            schema: travel_schema(&columns),
            text_keys: TextKeys::of(&columns),
            columns,
            rejected_rows,
            progress,
            latin1_values: AtomicU64::new(0),
            comment_lines: AtomicU64::new(0),
        }
    }

    /// Counts values that were taken as Latin-1.
    pub(crate) fn note_latin1(&self, values: u64) {
        self.latin1_values.fetch_add(values, Relaxed);
    }
}

/// The columns of a file and what is worth saying about how they were found.
#[derive(Debug, Default)]
pub(crate) struct FileColumns {
    pub columns: Vec<Column>,
    pub odd: Vec<OddValues>,
    /// The values for which columns are no integers, or texts.
    pub decided: Vec<DecidingValue>,
    /// The columns of which most values are integers, and not all.
    pub nearly_integers: Vec<NearlyIntegers>,
    /// Whether the types are none that the file says or that its values have: it has no rows.
    pub has_no_values: bool,
    /// Whether it is a text whose columns are numbered, since no line of it names them.
    pub is_header_missing: bool,
    /// Why it is hardly a table, if anything says so.
    pub doubt: Option<&'static str>,
}

/// A column of which most values are integers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NearlyIntegers {
    pub column: String,
    /// How many values were looked at.
    pub values: u64,
    /// How many of them are none.
    pub odd: u64,
    /// The line of the first of these.
    pub line: u64,
    /// That value, in quotes.
    pub value: String,
}

/// The first value for which a column is not of a narrower type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DecidingValue {
    pub column: String,
    /// The type of the column.
    pub ty: ColumnType,
    pub line: u64,
    /// The value, in quotes.
    pub value: String,
}

impl DecidingValue {
    /// A sentence about the file that messages call `file`.
    pub(crate) fn sentence(&self, file: &Path) -> String {
        let (column, ty, line, value) = (&self.column, self.ty, self.line, &self.value);
        format!(
            "the column {column} is {ty} by {}:{line}: {value}",
            file.display()
        )
    }
}

/// A column of which nearly all values are of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OddValues {
    pub column: String,
    /// The type of nearly all values.
    pub ty: ColumnType,
    /// The type that the column has: that one all the same, or one that holds all values.
    pub taken: ColumnType,
    /// How many values were looked at.
    pub values: u64,
    /// How many of them are not of the type.
    pub odd: u64,
    /// The line of the first of these.
    pub line: u64,
    /// That value, in quotes.
    pub value: String,
    /// The texts among the values that usually stand for NULL.
    pub nulls: Vec<String>,
}

impl OddValues {
    /// What it means for a load of the file that messages call `file`, as a sentence.
    pub(crate) fn sentence(&self, file: &Path) -> String {
        let Self {
            column, ty, taken, ..
        } = self;
        let (values, odd) = (grouped(self.values), grouped(self.odd));
        let place = format!("{}:{}: {}", file.display(), self.line, self.value);
        let null = match self.nulls.is_empty() {
            true => self.value.clone(),
            false => format!("\"{}\"", self.nulls.join(",")),
        };
        let is_null = format!("give --null {null} if that stands for NULL");
        let way_out = if taken == ty {
            format!("{is_null}, --text {column} if the column holds texts, or --max-errors")
        } else if *taken == ColumnType::Text {
            format!("{is_null}, or declare the column by --schema")
        } else {
            "declare the column by --schema if it is to be of another type".to_owned()
        };
        format!(
            "the column {column} was taken for {taken}: {odd} of its {values} values are no {ty}, the first is {place}; {way_out}"
        )
    }
}

/// What a file says of a column besides its name and type. Words that it does not have are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldDescription {
    /// The unit of its values.
    pub unit: String,
    /// What it is physically, in words of UCD1+.
    pub ucd: String,
    /// How its values are to be read (DALI 1.1).
    pub xtype: String,
    /// Its place in a data model.
    pub utype: String,
    /// What it means, in words.
    pub description: String,
}

impl FieldDescription {
    /// The same, with the words of another where it has none.
    pub(crate) fn or(self, other: Self) -> Self {
        let word = |own: String, other: String| if own.is_empty() { other } else { own };
        Self {
            unit: word(self.unit, other.unit),
            ucd: word(self.ucd, other.ucd),
            xtype: word(self.xtype, other.xtype),
            utype: word(self.utype, other.utype),
            description: word(self.description, other.description),
        }
    }
}

/// An input file whose format is known.
pub(crate) trait TableFile: Send + Sync {
    /// The columns that the file itself declares or lets one infer.
    fn columns(&self) -> Result<Vec<Column>, IngestError>;

    /// The same, with what is worth saying about how they were inferred.
    fn columns_found(&self) -> Result<FileColumns, IngestError> {
        Ok(FileColumns {
            columns: self.columns()?,
            ..FileColumns::default()
        })
    }

    /// The names of its columns; `None` where it names none, as a text file without a header.
    fn column_names(&self) -> Result<Option<Vec<String>>, IngestError> {
        let columns = self.columns()?.into_iter();
        Ok(Some(columns.map(|column| column.name).collect()))
    }

    /// The names in the header of a text file, whose columns can be inferred one by one.
    fn header_names(&self) -> Option<&[String]> {
        None
    }

    /// What the file says of a column, by its place.
    fn described(&self, _column: usize) -> Option<FieldDescription> {
        None
    }

    /// What the numbers of a column are a shape of, by its place: `point`, `circle` or `polygon`. Its values are texts of degrees with
    /// blanks between them.
    fn shape(&self, _column: usize) -> Option<&str> {
        None
    }

    /// What the file says of its columns, by their names, where it says anything.
    fn descriptions(&self) -> Vec<(String, FieldDescription)> {
        Vec::new()
    }

    /// The names of the columns of right ascension and declination, where the file says which these are.
    fn position(&self) -> Option<[String; 2]> {
        None
    }

    /// About how many rows it holds.
    fn estimated_rows(&self) -> u64;

    /// The work of reading it, in the unit that its parts advance the progress by.
    fn work(&self) -> u64;

    /// Checks that the file fits the columns of the context and starts to read it. `number` is its place among the
    /// files of the load.
    fn open(
        &self,
        number: usize,
        context: &Arc<ReadContext>,
    ) -> Result<Box<dyn Source>, IngestError>;

    /// Lets the system fetch the file's beginning, before it is opened. A format that is read from front to end needs it less: the
    /// system reads ahead in it by itself.
    fn read_ahead(&self, _context: &ReadContext) {}

    /// Some rows from all over the file, for choosing a partitioning; what cannot be read is left out.
    fn sample(&self, context: &Arc<ReadContext>) -> Result<Vec<RowBatch>, IngestError>;
}

/// A file that is being read.
pub(crate) trait Source: Send {
    /// The next part; `None` at the end of the file.
    fn next_part(&mut self) -> Result<Option<Box<dyn Part>>, IngestError>;
}

/// Some consecutive rows of a file, decoded on their own.
pub(crate) trait Part: Send {
    /// The next rows; `None` at the end of the part. Rejected rows are reported to the context and left out.
    fn next_batch(&mut self) -> Result<Option<RowBatch>, IngestError>;
}

/// UCDs of the position of a row, in the present and in the old vocabulary.
const POSITION_UCDS: [[&str; 2]; 2] = [
    ["pos.eq.ra;meta.main", "pos.eq.dec;meta.main"],
    ["pos_eq_ra_main", "pos_eq_dec_main"],
];
/// The columns that are the position, of their names and UCDs.
fn position_by_ucd<'a>(
    columns: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<[String; 2]> {
    let only = |wanted: &str| {
        let of_ucd = |ucd: &str| {
            ucd.chars()
                .filter(|c| !c.is_whitespace())
                .eq(wanted.chars())
        };
        let mut found = { columns.clone() }.filter(|(_, ucd)| of_ucd(&ucd.to_ascii_lowercase()));
        match (found.next(), found.next()) {
            (Some((name, _)), None) => Some(name.to_owned()),
            _ => None,
        }
    };
    let pair = |[ra, dec]: [&str; 2]| Some([only(ra)?, only(dec)?]);
    POSITION_UCDS.into_iter().find_map(pair)
}

/// The columns of a table whose rows come as Arrow columns; `path` names the input in messages.
pub(crate) fn columns_of(schema: &Schema, path: &Path) -> Result<Vec<Column>, IngestError> {
    let column = |field: &FieldRef| {
        let ty = normalise::column_type(field.data_type()).map_err(|reason| {
            IngestError::layout(path, format!("column {:?} {reason}", field.name()))
                .or_option(normalise::way_out(field.data_type()))
        })?;
        Ok(Column {
            name: field.name().clone(),
            ty,
            nullable: field.is_nullable(),
            declared: None,
        })
    };
    schema.fields().iter().map(column).collect()
}

/// Files at URLs that are opened side by side: each is waited for.
const OPENED_AHEAD: usize = 16;

/// Opens every file of a load, in order. `are_remote` if some are at URLs.
pub(crate) fn open_all(
    files: &[PathBuf],
    are_remote: bool,
    open_one: impl Fn(&PathBuf) -> Result<Box<dyn TableFile>, IngestError> + Sync,
) -> Result<Vec<Box<dyn TableFile>>, IngestError> {
    if !are_remote {
        return files.iter().map(open_one).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut opened = Vec::new();
        while let Some((number, file)) = numbered(files, next.fetch_add(1, Relaxed)) {
            let outcome = open_one(file);
            let failed = outcome.is_err();
            opened.push((number, outcome));
            if failed {
                // Those before it are being opened, and the first that fails is told.
                next.store(files.len(), Relaxed);
            }
        }
        opened
    };
    let threads = OPENED_AHEAD.min(files.len());
    let mut opened: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = handles.into_iter().map(|handle| handle.join());
        joined.collect::<Result<Vec<_>, _>>()
    })
    .map_err(|_| IngestError::Internal)?
    .into_iter()
    .flatten()
    .collect();
    opened.sort_by_key(|(number, _)| *number);
    opened.into_iter().map(|(_, outcome)| outcome).collect()
}

fn numbered(files: &[PathBuf], number: usize) -> Option<(usize, &PathBuf)> {
    Some((number, files.get(number)?))
}

/// Opens a file of a load. `remote` is the file at a URL, if it is one that is read there; `layout` says how text files are written;
/// `declared` are the columns of a schema, if one was given; `extension` names or counts the table of FITS files.
pub(crate) fn open_input(
    path: &Path,
    remote: Option<&Arc<RemoteFile>>,
    layout: &text::TextLayout,
    declared: Option<&[Column]>,
    extension: Option<&str>,
) -> Result<Box<dyn TableFile>, IngestError> {
    let budget = DecodeBudget::unlimited();
    match remote.filter(|file| file.is_read_in_place()) {
        Some(_) if extension.is_some() => Err(no_extensions(path)),
        Some(file) => {
            let place = parquet_place::ParquetPlace::at_url(file);
            Ok(Box::new(parquet::ParquetFile::open(place, &budget)?))
        }
        None => open_one(path, layout, declared, extension, &budget),
    }
}

fn no_extensions(path: &Path) -> IngestError {
    IngestError::layout(
        path,
        "it is no FITS file, and --extension is for these alone",
    )
}

/// Opens one file, of which no more is decoded than the budget allows.
pub(crate) fn open_one(
    path: &Path,
    layout: &text::TextLayout,
    declared: Option<&[Column]>,
    extension: Option<&str>,
    budget: &DecodeBudget,
) -> Result<Box<dyn TableFile>, IngestError> {
    let damaged = |reason: &str| {
        Err(IngestError::Damaged {
            path: path.to_path_buf(),
            reason: reason.to_owned(),
        })
    };
    let magic = magic(path)?;
    if extension.is_some() && !matches!(magic, Magic::Fits | Magic::GzipFits) {
        return Err(no_extensions(path));
    }
    match magic {
        Magic::Parquet => {
            let place = parquet_place::ParquetPlace::local(path);
            Ok(Box::new(parquet::ParquetFile::open(place, budget)?))
        }
        Magic::Arrow | Magic::ArrowStream if budget.is_limited() => Err(IngestError::layout(
            path,
            "it is in Arrow IPC, which is not taken from clients: send it as Parquet",
        )),
        Magic::Arrow | Magic::ArrowStream => {
            let is_stream = magic == Magic::ArrowStream;
            Ok(Box::new(arrow_ipc::ArrowFile::open(path, is_stream)?))
        }
        // What clients send is unpacked when it is received.
        Magic::GzipVoTable | Magic::GzipFits if budget.is_limited() => Err(IngestError::layout(
            path,
            "it is gzipped twice: send it gzipped once, or as it is",
        )),
        Magic::Fits | Magic::GzipFits => {
            let is_gzipped = magic == Magic::GzipFits;
            let file = fits::FitsFile::open(path, is_gzipped, extension, budget)?;
            Ok(Box::new(file))
        }
        Magic::VoTable | Magic::GzipVoTable => {
            Ok(Box::new(votable::VoTableFile::open(path, budget)?))
        }
        Magic::Gzip => Ok(Box::new(text::TextFile::open(
            path, true, layout, declared, budget,
        )?)),
        Magic::Other if has_extension(path, &["gz"]) => {
            damaged("it does not begin as a gzip file does")
        }
        Magic::Other if has_extension(path, &["parquet", "pq"]) => {
            damaged("it does not begin as a Parquet file does")
        }
        Magic::Other if has_extension(path, &["arrow", "arrows", "feather", "ipc"]) => {
            damaged("it does not begin as an Arrow file or stream does")
        }
        Magic::Other => Ok(Box::new(text::TextFile::open(
            path, false, layout, declared, budget,
        )?)),
        Magic::Foreign(format) if budget.is_limited() => Err(IngestError::layout(
            path,
            format!("it is a {format} file, which is not read: {FORMATS_OF_CLIENTS}"),
        )),
        Magic::Foreign(format) => Err(IngestError::layout(
            path,
            format!(
                "it is a {format} file, which cannot be loaded yet: convert it to Parquet, Arrow IPC, FITS, VOTable, CSV or gzipped CSV"
            ),
        )),
    }
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path
        .extension()
        .and_then(|e| e.to_str())
        .unwrap_or_default();
    extensions.iter().any(|e| e.eq_ignore_ascii_case(extension))
}
