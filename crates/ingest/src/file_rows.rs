//! The rows of a file without a load, for a query that names the file; or of several, which a pattern or a directory stands for.
//!
//! Values follow the rules of a load (NaN is NULL, -0.0 is 0.0), but a row that does not fit its columns is an error.
//! Memory is bounded by a part of the file at a time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use catalog::{Column, ColumnType, fold_name};

use crate::budget::{DecodeBudget, DecodeMeter};
use crate::error::IngestError;
use crate::format::text::TextLayout;
use crate::format::{
    self, FieldDescription, FileColumns, Magic, Names, Part, ReadContext, Source, TableFile,
};
use crate::hats::{HatsCatalogue, check_rows};
use crate::inputs::{InputFiles, check_same_columns};
use crate::progress::Progress;
use crate::rejected_rows::RejectedRows;
use crate::row_batch::travel_schema;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileFormat {
    /// Parquet.
    Parquet,
    /// CSV and its kin, plain or gzipped.
    Text,
    /// VOTable.
    VoTable,
    /// FITS.
    Fits,
    /// Arrow IPC, a file or a stream.
    Arrow,
}

impl FileFormat {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Parquet,
        Self::Text,
        Self::VoTable,
        Self::Fits,
        Self::Arrow,
    ];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Text => "CSV",
            Self::VoTable => "VOTable",
            Self::Fits => "FITS",
            Self::Arrow => "Arrow IPC",
        }
    }

    /// The function of SQL that reads it, in FROM.
    pub fn function(self) -> &'static str {
        match self {
            Self::Parquet => "read_parquet",
            Self::Text => "read_csv",
            Self::VoTable => "read_votable",
            Self::Fits => "read_fits",
            Self::Arrow => "read_arrow",
        }
    }

    /// The format of a file that begins with these bytes, of which the first 64 are enough. What is known to be none of them is text as
    /// well: opening it says so.
    pub fn of_beginning(head: &[u8]) -> Self {
        let magic = format::magic_of(head);
        let mut formats = Self::ALL.into_iter();
        formats
            .find(|format| format.fits(magic))
            .unwrap_or(Self::Text)
    }

    fn fits(self, magic: Magic) -> bool {
        match self {
            Self::Parquet => magic == Magic::Parquet,
            Self::VoTable => matches!(magic, Magic::VoTable | Magic::GzipVoTable),
            Self::Fits => matches!(magic, Magic::Fits | Magic::GzipFits),
            Self::Arrow => matches!(magic, Magic::Arrow | Magic::ArrowStream),
            Self::Text => matches!(magic, Magic::Gzip | Magic::Other),
        }
    }
}

/// A file that has been looked at: its columns are known. Several files that a pattern or a directory names are read as one.
pub struct RowFile {
    /// What names it, or them.
    path: PathBuf,
    format: FileFormat,
    /// At least one.
    files: Vec<Box<dyn TableFile>>,
    /// The names of the files.
    names: Vec<PathBuf>,
    /// The place of the file whose columns are those of all.
    first: usize,
    /// The columns of right ascension and declination, where it is a HATS catalogue.
    position: Option<[String; 2]>,
    columns: Vec<Column>,
    /// Whether these have types only because columns of a table have one: it is a text of a header alone, and no types are declared.
    is_untyped: bool,
    schema: SchemaRef,
    budget: DecodeBudget,
}

impl std::fmt::Debug for RowFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowFile({} {})", self.format.name(), self.path.display())
    }
}

impl RowFile {
    /// Looks at a file, or at the files that a pattern or a directory names.
    ///
    /// # Errors
    /// No such file, one of another format, one whose columns cannot be told apart without regard to case, and files with different
    /// columns.
    pub fn open(path: &Path, format: FileFormat) -> Result<Self, IngestError> {
        Self::try_open(path, format).map_err(IngestError::without_option)
    }

    fn try_open(path: &Path, format: FileFormat) -> Result<Self, IngestError> {
        let input = InputFiles::of(path)?;
        let budget = DecodeBudget::unlimited();
        let (files, names) = (open_all(&input.files, format, &budget)?, input.files);
        if input.is_group {
            check_same_columns(&files, &names)?;
        }
        if let Some((catalogue, rows)) = input.hats.as_ref().and_then(HatsCatalogue::whole) {
            check_rows(&catalogue, rows, &files)?;
        }
        let first = files.iter().position(|file| file.estimated_rows() > 0);
        let first = first.unwrap_or(0);
        let Some(file) = files.get(first) else {
            return Err(IngestError::layout(path, "it has no files"));
        };
        let found = distinct_columns(file.as_ref(), names.get(first).map_or(path, |it| it))?;
        Ok(Self {
            path: path.to_path_buf(),
            format,
            files,
            names,
            first,
            position: input.hats.and_then(|catalogue| catalogue.position()),
            schema: travel_schema(&found.columns),
            columns: found.columns,
            is_untyped: found.has_no_values,
            budget,
        })
    }

    /// Looks at a file that somebody has sent, of which no more is decoded than the budget allows. In a text file the columns that are
    /// declared have the types that are given; others are inferred. Times of VOTable and FITS are texts where they are declared so.
    ///
    /// # Errors
    /// Those of [`RowFile::open`], and a file that is beyond the budget.
    pub fn open_within(
        path: &Path,
        format: FileFormat,
        declared: Option<&[Column]>,
        budget: &DecodeBudget,
    ) -> Result<Self, IngestError> {
        let names = vec![path.to_path_buf()];
        let opened = open_file(path, format, budget).and_then(|file| {
            let found = distinct_columns(file.as_ref(), path)?;
            Ok((file, found))
        });
        let (file, found) = opened.map_err(IngestError::without_option)?;
        let mut columns = found.columns;
        declare_types(&mut columns, format, declared.unwrap_or_default());
        Ok(Self {
            path: path.to_path_buf(),
            format,
            files: vec![file],
            names,
            first: 0,
            position: None,
            schema: travel_schema(&columns),
            columns,
            is_untyped: found.has_no_values && declared.is_none(),
            budget: budget.clone(),
        })
    }

    /// How much of it may be decoded.
    pub fn budget(&self) -> &DecodeBudget {
        &self.budget
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its format.
    pub fn format(&self) -> FileFormat {
        self.format
    }

    /// Its columns, as they are called in it.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the types of its columns say nothing: it is a text of a header alone, which any type fits.
    pub fn is_untyped(&self) -> bool {
        self.is_untyped
    }

    /// What the file says of a column, by its place.
    pub fn described(&self, column: usize) -> Option<FieldDescription> {
        self.files.get(self.first)?.described(column)
    }

    /// What the numbers of a column are a shape of, by its place, where the file says so: `point`, `circle` or `polygon`. The values of such
    /// a column are texts of degrees with blanks between them.
    pub fn shape(&self, column: usize) -> Option<&str> {
        self.files.get(self.first)?.shape(column)
    }

    /// The columns of right ascension and declination, where the file says which these are.
    pub fn position(&self) -> Option<[String; 2]> {
        let said = || self.files.get(self.first)?.position();
        self.position.clone().or_else(said)
    }

    /// About how many rows it has.
    pub fn estimated_rows(&self) -> u64 {
        let rows = self.files.iter().map(|file| file.estimated_rows());
        rows.fold(0, u64::saturating_add)
    }

    /// The rows in their order, with the columns of these numbers, in batches of some thousands.
    ///
    /// # Errors
    /// A column that the file does not have, and a file that is gone.
    pub fn rows(&self, columns: &[usize]) -> Result<FileRows<'_>, IngestError> {
        let (read, kept) = match self.format {
            // A text is split into all of its fields anyway.
            FileFormat::Text => ((0..self.columns.len()).collect(), columns.to_vec()),
            // Some column has to be read for there to be rows.
            _ if columns.is_empty() => (vec![0], vec![]),
            _ => (columns.to_vec(), (0..columns.len()).collect()),
        };
        let wanted: Option<Vec<Column>> =
            (read.iter().map(|at| self.columns.get(*at).cloned())).collect();
        let wanted = wanted.ok_or_else(|| {
            IngestError::layout(&self.path, "it does not have all of the columns asked for")
        })?;
        let rejected_rows = RejectedRows::new(self.names.clone(), 0);
        let context = Arc::new(ReadContext::new(
            wanted,
            rejected_rows,
            Arc::new(Progress::default()),
        ));
        Ok(FileRows {
            file: self,
            next_file: 0,
            source: None,
            part: None,
            context,
            kept,
            decoded: self.budget.meter(&self.path),
        })
    }
}

/// Opens files of a format.
fn open_all(
    paths: &[PathBuf],
    format: FileFormat,
    budget: &DecodeBudget,
) -> Result<Vec<Box<dyn TableFile>>, IngestError> {
    let files = paths.iter().map(|path| open_file(path, format, budget));
    files.collect()
}

fn open_file(
    path: &Path,
    format: FileFormat,
    budget: &DecodeBudget,
) -> Result<Box<dyn TableFile>, IngestError> {
    let magic = format::magic(path)?;
    // What the file is instead is told when it is opened.
    let is_told = match magic {
        Magic::Foreign(_) => true,
        Magic::GzipVoTable | Magic::GzipFits => budget.is_limited(),
        _ => false,
    };
    if !format.fits(magic) && !is_told {
        let reason = format!("it is not a {} file", format.name());
        return Err(IngestError::layout(path, reason));
    }
    format::open_one(path, &TextLayout::default(), None, None, budget)
}

/// Gives columns of a file the types that are declared for them: those of a text file have none of their own, and times of VOTable and FITS may
/// stay texts.
fn declare_types(columns: &mut [Column], format: FileFormat, declared: &[Column]) {
    let names = Names::of(declared.iter().map(|column| column.name.as_str()));
    for column in columns {
        let Some(at) = names.position(&column.name) else {
            continue;
        };
        let types = (column.ty, declared[at].ty);
        let is_taken = match format {
            FileFormat::Text => true,
            FileFormat::VoTable | FileFormat::Fits => {
                types == (ColumnType::Timestamp, ColumnType::Text)
            }
            _ => false,
        };
        if is_taken {
            column.ty = declared[at].ty;
        }
    }
}

/// The columns of a file, whose names differ without regard to case.
fn distinct_columns(file: &dyn TableFile, path: &Path) -> Result<FileColumns, IngestError> {
    let found = file.columns_found()?;
    let mut places = HashMap::new();
    for (column, place) in found.columns.iter().zip(1..) {
        if let Some(first) = places.insert(fold_name(&column.name), place) {
            let reason = format!(
                "its columns {first} and {place} are both called {:?} (names are the same whatever their case): give one of them \
                 another name",
                column.name
            );
            return Err(IngestError::layout(path, reason));
        }
    }
    Ok(found)
}

/// The rows of a file on their way.
pub struct FileRows<'a> {
    file: &'a RowFile,
    next_file: usize,
    source: Option<Box<dyn Source>>,
    part: Option<Box<dyn Part>>,
    context: Arc<ReadContext>,
    /// The columns that are wanted of those that are read.
    kept: Vec<usize>,
    /// What they take in memory together.
    decoded: DecodeMeter,
}

impl std::fmt::Debug for FileRows<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileRows({} columns)", self.kept.len())
    }
}

impl FileRows<'_> {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, IngestError> {
        loop {
            let part = match &mut self.part {
                Some(part) => part,
                none => {
                    let Some(source) = &mut self.source else {
                        match self.file.files.get(self.next_file) {
                            None => return Ok(None),
                            Some(file) => {
                                self.source = Some(file.open(self.next_file, &self.context)?);
                                self.next_file += 1;
                                continue;
                            }
                        }
                    };
                    match source.next_part()? {
                        Some(part) => none.insert(part),
                        None => {
                            self.source = None;
                            continue;
                        }
                    }
                }
            };
            let batch = part.next_batch()?;
            if self.context.rejected_rows.count() > 0 {
                return Err(self.unreadable());
            }
            let Some(batch) = batch else {
                self.part = None;
                continue;
            };
            self.decoded.add(bytes_of(&batch.columns))?;
            return Ok(Some(batch.columns.project(&self.kept)?));
        }
    }
}

impl FileRows<'_> {
    /// A row does not fit the columns.
    fn unreadable(&self) -> IngestError {
        let example = self.context.rejected_rows.first_example();
        match self.file.names.as_slice() {
            [] | [_] => IngestError::Unreadable(example),
            several => {
                let first = several.get(self.file.first);
                let first = first.map_or_else(String::new, |it| it.display().to_string());
                IngestError::Unreadable(format!(
                    "{example} (the types of the columns are those of {first})"
                ))
            }
        }
    }
}

/// Bytes that rows take in memory; where they are some rows of arrays, without the others.
fn bytes_of(rows: &RecordBatch) -> u64 {
    let bytes = rows.columns().iter().map(|array| {
        let own = array.to_data().get_slice_memory_size();
        own.unwrap_or_else(|_| array.get_array_memory_size()) as u64
    });
    bytes.sum()
}

impl Iterator for FileRows<'_> {
    type Item = Result<RecordBatch, IngestError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch().map_err(IngestError::without_option);
        next.transpose()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};
    use parquet::arrow::ArrowWriter;
    use tempfile::TempDir;

    use super::*;

    fn parquet_with_a_list() -> Vec<u8> {
        let few = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), Some(2)])]);
        let schema = Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("few", few.data_type().clone(), true),
        ]));
        let columns: [Arc<dyn Array>; 2] = [Arc::new(Int64Array::from(vec![1])), Arc::new(few)];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns.into()).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        bytes
    }

    /// A statement that reads a file, and whoever sends one, was told to give --schema or --no-header.
    #[test]
    fn nothing_is_told_of_options_of_loads() {
        let dir = TempDir::new().unwrap();
        for (content, format, told) in [
            (
                parquet_with_a_list(),
                FileFormat::Parquet,
                "\"few\" is a list of BIGINT: a table holds plain values only; leave the column out",
            ),
            (
                b"a,A\n1,2\n".to_vec(),
                FileFormat::Text,
                "give one another name",
            ),
            (b"".to_vec(), FileFormat::Text, "it is empty"),
        ] {
            let path = dir.path().join("file");
            std::fs::write(&path, content).unwrap();
            let budget = DecodeBudget::unlimited();
            let opened = RowFile::open(&path, format).map(drop);
            let within = RowFile::open_within(&path, format, None, &budget).map(drop);
            for outcome in [opened, within] {
                let error = outcome.unwrap_err().to_string();
                assert!(error.ends_with(told), "{error}");
            }
            // Loads have them.
            let layout = TextLayout::default();
            let loaded = format::open_one(&path, &layout, None, None, &budget);
            let error = loaded.and_then(|file| file.columns()).unwrap_err();
            assert!(error.to_string().contains("--"), "{error}");
        }
    }
}
