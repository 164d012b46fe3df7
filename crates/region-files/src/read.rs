//! The reading of region files.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::IntoIter;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Float64Type, Schema, SchemaRef};
use arrow::ipc::reader::FileReader;

use crate::directory::{self, DIRECTORY, SubChunkRows, arrow_file};
use crate::error::RegionFilesError;
use crate::index::{ChunkFile, Index};
use crate::metadata;
use crate::search::Search;
use crate::summed;
use crate::write::names_of;

/// What is compared with the index when files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verification {
    /// The sizes of the files that are read, the checksum of the directory, and those of what files say of their rows (their footers and messages).
    Sizes,
    /// The checksums of all their bytes as well, once for each file: all of it is read for that.
    Checksums,
}

/// A directory of region files.
#[derive(Debug)]
pub struct RegionFiles {
    dir: PathBuf,
    index: Index,
    /// Of all chunks, in their order.
    directory: Vec<SubChunkRows>,
    schema: SchemaRef,
    verification: Verification,
    verified: Mutex<HashSet<i32>>,
}

impl RegionFiles {
    /// Opens a directory.
    ///
    /// # Errors
    /// There are no region files, or they are cut off or damaged.
    pub fn open(dir: &Path, verification: Verification) -> Result<Self, RegionFilesError> {
        let index = Index::read(dir)?;
        // All of it is read anyway.
        let of = &index.directory;
        summed::verify(&dir.join(DIRECTORY), of.bytes, &of.sha256)?;
        let directory = directory::read(dir, &index)?;
        let mut files = Self {
            dir: dir.to_path_buf(),
            index,
            directory,
            schema: Arc::new(Schema::empty()),
            verification,
            verified: Mutex::default(),
        };
        // All files have the same columns, and there is at least one.
        if let Some(chunk) = files.index.chunks.first() {
            let path = Index::path_of(&files.dir, chunk.chunk);
            let reader = FileReader::try_new(files.file(chunk)?, None);
            let damaged = |error: arrow::error::ArrowError| {
                RegionFilesError::damaged(&path, error.to_string())
            };
            files.schema = reader.map_err(damaged)?.schema();
        }
        let described = files.index.columns.iter().map(|it| it.name.clone());
        if !described.eq(names_of(&files.schema)) {
            let reason = "the files have other columns than the index";
            return Err(RegionFilesError::damaged(dir, reason));
        }
        for name in [&files.index.ra, &files.index.dec] {
            files.column(name)?;
        }
        Ok(files)
    }

    /// What there is.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The columns of the files.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Compares the checksums of all files.
    ///
    /// # Errors
    /// One is cut off or damaged, or cannot be read.
    pub fn verify(&self) -> Result<(), RegionFilesError> {
        let of = &self.index.directory;
        summed::verify(&self.dir.join(DIRECTORY), of.bytes, &of.sha256)?;
        for chunk in &self.index.chunks {
            let path = Index::path_of(&self.dir, chunk.chunk);
            summed::verify(&path, chunk.bytes, &chunk.sha256)?;
        }
        Ok(())
    }

    /// The rows that a search finds, in batches, in the order of the files; of all columns, or of some in the order in which they are named.
    /// Names have no case.
    ///
    /// # Errors
    /// There is no such column.
    pub fn rows<'a>(
        &'a self,
        search: &'a Search,
        columns: Option<&[&str]>,
    ) -> Result<Rows<'a>, RegionFilesError> {
        let wanted = match columns {
            None => (0..self.schema.fields().len()).collect(),
            Some(names) => self.wanted(names)?,
        };
        let position = [self.column(&self.index.ra)?, self.column(&self.index.dec)?];
        let mut projection: Vec<usize> = wanted.iter().chain(&position).copied().collect();
        projection.sort_unstable();
        projection.dedup();
        let within = |column: &usize| projection.binary_search(column).unwrap_or(0);
        Ok(Rows {
            position: position.each_ref().map(within),
            chosen: wanted.iter().map(within).collect(),
            schema: Arc::new(self.schema.project(&wanted)?),
            projection,
            files: self,
            search,
            next_chunk: 0,
            open: None,
        })
    }

    fn wanted(&self, names: &[&str]) -> Result<Vec<usize>, RegionFilesError> {
        let mut wanted = Vec::new();
        for name in names {
            let column = self.column(name)?;
            if wanted.contains(&column) {
                return Err(RegionFilesError::ColumnTwice((*name).to_owned()));
            }
            wanted.push(column);
        }
        Ok(wanted)
    }

    fn column(&self, name: &str) -> Result<usize, RegionFilesError> {
        let fields = self.schema.fields();
        // Two columns may differ in their case alone only where each is named as it is.
        let exact = fields.iter().position(|field| field.name() == name);
        let found = exact.or_else(|| {
            fields
                .iter()
                .position(|field| field.name().eq_ignore_ascii_case(name))
        });
        found.ok_or_else(|| RegionFilesError::NoColumn {
            name: name.to_owned(),
            known: names_of(&self.schema),
        })
    }

    /// The file of a chunk, compared with the index as far as is wanted.
    fn file(&self, chunk: &ChunkFile) -> Result<File, RegionFilesError> {
        let path = Index::path_of(&self.dir, chunk.chunk);
        // Files without a checksum of what they say of themselves have one of all of it.
        if self.verification == Verification::Checksums || chunk.metadata_sha256.is_none() {
            let verified = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
            if !verified().contains(&chunk.chunk) {
                summed::verify(&path, chunk.bytes, &chunk.sha256)?;
                verified().insert(chunk.chunk);
            }
        }
        let file = summed::open(&path, chunk.bytes)?;
        if let Some(sum) = &chunk.metadata_sha256 {
            metadata::verify(&file, &path, chunk.bytes, sum)?;
        }
        Ok(file)
    }

    /// The rows of a chunk's file that may be looked for: ranges in order, with gaps between them.
    fn ranges(&self, chunk: &ChunkFile, search: &Search) -> Vec<Range<u64>> {
        let may_have = |bounds: crate::Bounds| {
            let found = bounds.as_box();
            found.is_some_and(|found| search.may_intersect(&found))
        };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        if !may_have(chunk.bounds) {
            return ranges;
        }
        // The directory was compared with the index when it was read.
        let first = usize::try_from(chunk.first_sub_chunk).unwrap_or(usize::MAX);
        let count = usize::try_from(chunk.sub_chunks).unwrap_or(usize::MAX);
        let sub_chunks = self.directory.iter().skip(first).take(count);
        for rows in sub_chunks.filter(|rows| may_have(rows.bounds)) {
            let end = rows.first_row + rows.rows;
            match ranges.last_mut() {
                Some(last) if last.end == rows.first_row => last.end = end,
                _ => ranges.push(rows.first_row..end),
            }
        }
        ranges
    }
}

/// The rows of a search, chunk by chunk.
pub struct Rows<'a> {
    files: &'a RegionFiles,
    search: &'a Search,
    /// The columns that are read, ascending.
    projection: Vec<usize>,
    /// Among those the position, and those that are given.
    position: [usize; 2],
    chosen: Vec<usize>,
    schema: SchemaRef,
    next_chunk: usize,
    open: Option<OpenChunk>,
}

/// A chunk that is being read.
struct OpenChunk {
    path: PathBuf,
    rows: u64,
    reader: FileReader<File>,
    /// The rows of it that are still to be read, each in one record batch.
    left: IntoIter<Range<u64>>,
    /// The record batch that was read last.
    batch: Option<(u64, RecordBatch)>,
}

impl Rows<'_> {
    /// The columns that are given.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, RegionFilesError> {
        loop {
            let Some(open) = &mut self.open else {
                match self.open_next()? {
                    true => continue,
                    false => return Ok(None),
                }
            };
            let Some(range) = open.left.next() else {
                self.open = None;
                continue;
            };
            let rows = open.read(range, self.files.index.rows_per_batch)?;
            let found = self.matching(&rows)?;
            if found.num_rows() > 0 {
                return Ok(Some(found));
            }
        }
    }

    /// Opens the next chunk that may have rows.
    fn open_next(&mut self) -> Result<bool, RegionFilesError> {
        let files = self.files;
        while let Some(chunk) = files.index.chunks.get(self.next_chunk) {
            self.next_chunk += 1;
            let ranges = files.ranges(chunk, self.search);
            if ranges.is_empty() {
                continue;
            }
            let path = Index::path_of(&files.dir, chunk.chunk);
            let reader = arrow_file(files.file(chunk)?, self.projection.clone(), &path)?;
            let per_batch = files.index.rows_per_batch;
            if reader.num_batches() as u64 != chunk.rows.div_ceil(per_batch) {
                let reason = "it has another number of record batches than rows need";
                return Err(RegionFilesError::damaged(&path, reason));
            }
            let left = ranges.into_iter().flat_map(|it| by_batches(it, per_batch));
            let left: Vec<Range<u64>> = left.collect();
            self.open = Some(OpenChunk {
                path,
                rows: chunk.rows,
                reader,
                left: left.into_iter(),
                batch: None,
            });
            return Ok(true);
        }
        Ok(false)
    }

    /// The rows that are looked for, in the columns that are given.
    fn matching(&self, rows: &RecordBatch) -> Result<RecordBatch, RegionFilesError> {
        let [ra, dec] = self
            .position
            .map(|at| rows.column(at).as_primitive_opt::<Float64Type>());
        let (Some(ra), Some(dec)) = (ra, dec) else {
            let reason = "the columns of the position are no doubles";
            return Err(RegionFilesError::damaged(&self.files.dir, reason));
        };
        let mut found = Vec::new();
        self.search
            .contains_degrees(ra.values(), dec.values(), &mut found);
        // A row without a position is nowhere.
        for (row, found) in found.iter_mut().enumerate() {
            *found &= ra.is_valid(row) && dec.is_valid(row);
        }
        let chosen = rows.project(&self.chosen)?;
        Ok(filter_record_batch(&chosen, &BooleanArray::from(found))?)
    }
}

impl Iterator for Rows<'_> {
    type Item = Result<RecordBatch, RegionFilesError>;

    /// Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        if next.is_err() {
            self.open = None;
            self.next_chunk = usize::MAX;
        }
        next.transpose()
    }
}

impl OpenChunk {
    /// Rows of one record batch.
    fn read(&mut self, range: Range<u64>, per_batch: u64) -> Result<RecordBatch, RegionFilesError> {
        let number = range.start / per_batch;
        let first = number * per_batch;
        let batch = match self.batch.take() {
            Some((read, batch)) if read == number => batch,
            _ => self.read_batch(number, per_batch.min(self.rows - first))?,
        };
        // Both are within a record batch, which is in memory.
        let rows = batch.slice(
            (range.start - first) as usize,
            (range.end - range.start) as usize,
        );
        self.batch = Some((number, batch));
        Ok(rows)
    }

    fn read_batch(&mut self, number: u64, rows: u64) -> Result<RecordBatch, RegionFilesError> {
        let damaged = |reason: String| RegionFilesError::damaged(&self.path, reason);
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let found = self.reader.set_index(at);
        found.map_err(|error| damaged(error.to_string()))?;
        match self.reader.next() {
            Some(Ok(batch)) if batch.num_rows() as u64 == rows => Ok(batch),
            Some(Ok(batch)) => Err(damaged(format!(
                "its record batch {number} has {} rows instead of {rows}",
                batch.num_rows()
            ))),
            Some(Err(error)) => Err(damaged(error.to_string())),
            None => Err(damaged(format!("it has no record batch {number}"))),
        }
    }
}

/// The parts of a range of rows, each of which is in one record batch.
fn by_batches(range: Range<u64>, per_batch: u64) -> impl Iterator<Item = Range<u64>> {
    let batches = range.start / per_batch..range.end.div_ceil(per_batch);
    batches.map(move |batch| {
        let of_batch = batch * per_batch..(batch + 1) * per_batch;
        range.start.max(of_batch.start)..range.end.min(of_batch.end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_where_batches_end() {
        let cut = |from, to| {
            let parts = by_batches(from..to, 10);
            parts.map(|it| (it.start, it.end)).collect::<Vec<_>>()
        };
        assert_eq!(cut(3, 7), [(3, 7)]);
        assert_eq!(cut(3, 10), [(3, 10)]);
        assert_eq!(cut(9, 31), [(9, 10), (10, 20), (20, 30), (30, 31)]);
        assert_eq!(cut(20, 30), [(20, 30)]);
    }
}
