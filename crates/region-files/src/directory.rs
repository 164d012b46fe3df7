//! `directory.arrow`: where the rows of each sub-chunk are.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float64Type, Int32Type, Int64Type, Schema,
};
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;

use crate::error::RegionFilesError;
use crate::index::{Bounds, DirectoryFile, Index};
use crate::summed::{self, SummedFile};

/// The file's name.
pub(crate) const DIRECTORY: &str = "directory.arrow";
/// Sub-chunks of a record batch: so many are in memory while the directory is written.
const BATCH: usize = 65_536;
/// The columns, in their order.
const COLUMNS: [(&str, DataType); 8] = [
    ("chunk", DataType::Int32),
    ("sub_chunk", DataType::Int32),
    ("first_row", DataType::Int64),
    ("rows", DataType::Int64),
    ("ra_min", DataType::Float64),
    ("dec_min", DataType::Float64),
    ("ra_max", DataType::Float64),
    ("dec_max", DataType::Float64),
];

/// The rows of a sub-chunk in the file of its chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SubChunkRows {
    /// The sub-chunk, a number within its chunk.
    pub sub_chunk: i32,
    /// Its first row in the file of the chunk.
    pub first_row: u64,
    /// How many it has: at least one.
    pub rows: u64,
    /// Where they are.
    pub bounds: Bounds,
}

/// A directory that is being written.
pub(crate) struct DirectoryWriter {
    path: PathBuf,
    writer: FileWriter<SummedFile>,
    pending: Vec<(i32, SubChunkRows)>,
    written: u64,
}

impl DirectoryWriter {
    pub fn create(dir: &Path) -> Result<Self, RegionFilesError> {
        let path = dir.join(DIRECTORY);
        let file = SummedFile::create(path.clone())?;
        Ok(Self {
            writer: FileWriter::try_new(file, &schema())?,
            path,
            pending: Vec::new(),
            written: 0,
        })
    }

    /// How many sub-chunks there are so far.
    pub fn len(&self) -> u64 {
        self.written + self.pending.len() as u64
    }

    pub fn add(&mut self, chunk: i32, rows: SubChunkRows) -> Result<(), RegionFilesError> {
        self.pending.push((chunk, rows));
        match self.pending.len() < BATCH {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), RegionFilesError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let of = &self.pending;
        let ints = |value: fn(&(i32, SubChunkRows)) -> i32| -> ArrayRef {
            Arc::new(of.iter().map(|it| Some(value(it))).collect::<Int32Array>())
        };
        let rows = |value: fn(&(i32, SubChunkRows)) -> u64| -> ArrayRef {
            let values = of.iter().map(|it| i64::try_from(value(it)).ok());
            Arc::new(values.collect::<Int64Array>())
        };
        let degrees = |value: fn(&Bounds) -> f64| -> ArrayRef {
            let values = of.iter().map(|(_, it)| Some(value(&it.bounds)));
            Arc::new(values.collect::<Float64Array>())
        };
        let columns = vec![
            ints(|it| it.0),
            ints(|it| it.1.sub_chunk),
            rows(|it| it.1.first_row),
            rows(|it| it.1.rows),
            degrees(|it| it.ra_min),
            degrees(|it| it.dec_min),
            degrees(|it| it.ra_max),
            degrees(|it| it.dec_max),
        ];
        let batch = RecordBatch::try_new(Arc::new(schema()), columns)?;
        self.writer
            .write(&batch)
            .map_err(|error| write_failed(error, &self.path))?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Ends the file, which is then on disk.
    pub fn finish(mut self) -> Result<DirectoryFile, RegionFilesError> {
        self.flush()?;
        let ended = self.writer.into_inner();
        let (bytes, sha256) = ended
            .map_err(|error| write_failed(error, &self.path))?
            .finish()?;
        Ok(DirectoryFile {
            sub_chunks: self.written,
            bytes,
            sha256,
        })
    }
}

/// A full disk is a matter of the file, not of Arrow.
pub(crate) fn write_failed(error: ArrowError, path: &Path) -> RegionFilesError {
    match error {
        ArrowError::IoError(_, source) => RegionFilesError::io("write", path)(source),
        other => other.into(),
    }
}

fn schema() -> Schema {
    let fields = COLUMNS.map(|(name, data_type)| Field::new(name, data_type, false));
    Schema::new(fields.to_vec())
}

/// Reads a directory, which has to be that of an index.
pub(crate) fn read(dir: &Path, index: &Index) -> Result<Vec<SubChunkRows>, RegionFilesError> {
    let path = dir.join(DIRECTORY);
    let file = summed::open(&path, index.directory.bytes)?;
    let mut found = Vec::new();
    let damaged = |error: ArrowError| RegionFilesError::damaged(&path, error.to_string());
    for batch in FileReader::try_new(file, None).map_err(damaged)? {
        let batch = batch.map_err(damaged)?;
        let rows = rows_of(&batch);
        found.extend(rows.ok_or_else(|| {
            RegionFilesError::damaged(&path, "it has other columns than a directory has")
        })?);
    }
    match fits(&found, index) {
        true => Ok(found.into_iter().map(|(_, rows)| rows).collect()),
        false => Err(RegionFilesError::damaged(
            &path,
            "it does not fit to the index",
        )),
    }
}

fn rows_of(batch: &RecordBatch) -> Option<Vec<(i32, SubChunkRows)>> {
    let chunk = values::<Int32Type>(batch, "chunk")?;
    let sub_chunk = values::<Int32Type>(batch, "sub_chunk")?;
    let first_row = values::<Int64Type>(batch, "first_row")?;
    let rows = values::<Int64Type>(batch, "rows")?;
    let ra_min = values::<Float64Type>(batch, "ra_min")?;
    let dec_min = values::<Float64Type>(batch, "dec_min")?;
    let ra_max = values::<Float64Type>(batch, "ra_max")?;
    let dec_max = values::<Float64Type>(batch, "dec_max")?;
    let at = |row: usize| {
        let found = SubChunkRows {
            sub_chunk: sub_chunk[row],
            first_row: u64::try_from(first_row[row]).ok()?,
            rows: u64::try_from(rows[row]).ok()?,
            bounds: Bounds {
                ra_min: ra_min[row],
                dec_min: dec_min[row],
                ra_max: ra_max[row],
                dec_max: dec_max[row],
            },
        };
        Some((chunk[row], found))
    };
    (0..batch.num_rows()).map(at).collect()
}

fn values<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Option<&'a [T::Native]> {
    let column = batch.column_by_name(name)?.as_primitive_opt::<T>()?;
    (column.null_count() == 0).then(|| &column.values()[..])
}

/// Whether the rows of the sub-chunks of each chunk are all its rows, in order.
fn fits(found: &[(i32, SubChunkRows)], index: &Index) -> bool {
    if found.len() as u64 != index.directory.sub_chunks {
        return false;
    }
    let mut left = found;
    index.chunks.iter().all(|chunk| {
        let Ok(count) = usize::try_from(chunk.sub_chunks) else {
            return false;
        };
        let Some((own, others)) = left.split_at_checked(count) else {
            return false;
        };
        left = others;
        let mut next = 0_u64;
        let in_order = own.iter().all(|(of, rows)| {
            let is_next = rows.first_row == next && *of == chunk.chunk;
            next = next.saturating_add(rows.rows);
            is_next && rows.rows > 0 && rows.bounds.as_box().is_some()
        });
        in_order && next == chunk.rows
    })
}

/// Opens an Arrow file.
pub(crate) fn arrow_file(
    file: File,
    projection: Vec<usize>,
    path: &Path,
) -> Result<FileReader<File>, RegionFilesError> {
    FileReader::try_new(file, Some(projection))
        .map_err(|error| RegionFilesError::damaged(path, error.to_string()))
}
