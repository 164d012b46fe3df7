//! Where the bytes of a Parquet file are: on a disk, or at a URL, from where those of a row group are fetched by ranges.
//!
//! ```text
//!   columns of a row group:   |=======|....|==|....|====...|      = in memory, . to be fetched
//!                              ^ window of each, as long as its part of the row group's bytes
//! ```
//!
//! A reader takes pages of all columns in turn. Where it comes to the end of a column's window, the next one is fetched together with those
//! of the columns that are near their ends, too.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::IngestError;
use crate::remote::RemoteFile;

/// Bytes of a window at least: a page and its header, mostly.
const LEAST_WINDOW: u64 = 256 << 10;
/// Bytes at the end of a file that are fetched at once: most footers.
const TAIL: u64 = 64 << 10;
/// Bytes that a page's header is looked for in at a time.
const HEADER: u64 = 16 << 10;

/// Where a Parquet file is.
#[derive(Clone)]
pub(crate) struct ParquetPlace {
    path: PathBuf,
    remote: Option<Arc<RemoteFile>>,
    /// Bytes of a row group that are in memory at a time.
    window: u64,
}

impl ParquetPlace {
    /// A file on a disk.
    pub fn local(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            remote: None,
            window: 0,
        }
    }

    /// A file at a URL, of which ranges can be read.
    pub fn at_url(file: &Arc<RemoteFile>) -> Self {
        Self {
            path: file.name().to_path_buf(),
            window: file.window(),
            remote: Some(file.clone()),
        }
    }

    /// The same, of which less is fetched at a time.
    pub fn with_window(&self, window: u64) -> Self {
        Self {
            window,
            ..self.clone()
        }
    }

    /// What messages call it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, if it is on a disk.
    pub fn local_file(&self) -> Result<Option<File>, IngestError> {
        if self.remote.is_some() {
            return Ok(None);
        }
        let file = File::open(&self.path);
        file.map(Some)
            .map_err(|e| IngestError::io("open", &self.path, e))
    }

    /// Its bytes, for its footer.
    pub fn open(&self) -> Result<ParquetBytes, IngestError> {
        match &self.remote {
            Some(file) => {
                let bytes = file.bytes().ok_or(IngestError::Internal)?;
                let tail = bytes.saturating_sub(TAIL)..bytes;
                Ok(ParquetBytes::Remote(FetchedColumns::new(
                    file,
                    bytes,
                    &[tail],
                    TAIL,
                )))
            }
            None => self.open_local(),
        }
    }

    /// Its bytes, for some columns of a row group.
    pub fn open_group(
        &self,
        group: &RowGroupMetaData,
        wanted: &ProjectionMask,
    ) -> Result<ParquetBytes, IngestError> {
        let Some(file) = &self.remote else {
            return self.open_local();
        };
        let bytes = file.bytes().ok_or(IngestError::Internal)?;
        let columns: Vec<Range<u64>> = { group.columns().iter().enumerate() }
            .filter(|(leaf, _)| wanted.leaf_included(*leaf))
            .map(|(_, column)| {
                let (start, length) = column.byte_range();
                start.min(bytes)..start.saturating_add(length).min(bytes)
            })
            .collect();
        Ok(ParquetBytes::Remote(FetchedColumns::new(
            file,
            bytes,
            &columns,
            self.window,
        )))
    }

    fn open_local(&self) -> Result<ParquetBytes, IngestError> {
        let file = File::open(&self.path).map_err(|e| IngestError::io("open", &self.path, e))?;
        let metadata = file.metadata();
        let metadata = metadata.map_err(|e| IngestError::io("read", &self.path, e))?;
        debug_assert!(metadata.is_file(), "others are refused before");
        Ok(ParquetBytes::Local(file))
    }

    /// An outcome with the error of the server in the place of what a reader made of it.
    pub fn explain<T>(&self, outcome: Result<T, IngestError>) -> Result<T, IngestError> {
        match &self.remote {
            Some(file) => outcome.map_err(|error| file.explain(error)),
            None => outcome,
        }
    }
}

/// The bytes of a Parquet file.
pub(crate) enum ParquetBytes {
    Local(File),
    Remote(FetchedColumns),
}

impl Length for ParquetBytes {
    fn len(&self) -> u64 {
        match self {
            Self::Local(file) => Length::len(file),
            Self::Remote(fetched) => fetched.0.bytes,
        }
    }
}

impl ChunkReader for ParquetBytes {
    type T = PageReader;

    fn get_read(&self, start: u64) -> ParquetResult<PageReader> {
        Ok(match self {
            Self::Local(file) => PageReader::Local(file.get_read(start)?),
            Self::Remote(fetched) => PageReader::Remote(FetchedReader {
                fetched: fetched.clone(),
                at: start,
                ahead: Bytes::new(),
            }),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self {
            Self::Local(file) => file.get_bytes(start, length),
            Self::Remote(fetched) => {
                let end = start.saturating_add(length as u64);
                if end > fetched.0.bytes {
                    let what = format!("{length} bytes at {start} are beyond the end of the file");
                    return Err(ParquetError::EOF(what));
                }
                Ok(fetched.get(start..end)?)
            }
        }
    }
}

/// Reads from a place on.
pub(crate) enum PageReader {
    Local(BufReader<File>),
    Remote(FetchedReader),
}

impl Read for PageReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(file) => file.read(buffer),
            Self::Remote(fetched) => fetched.read(buffer),
        }
    }
}

/// Reads what is fetched.
pub(crate) struct FetchedReader {
    fetched: FetchedColumns,
    at: u64,
    /// Bytes at the place that are in memory.
    ahead: Bytes,
}

impl Read for FetchedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            let end = self.fetched.end_of_column(self.at);
            self.ahead = self.fetched.get(self.at..end.min(self.at + HEADER))?;
        }
        let read = buffer.len().min(self.ahead.len());
        self.ahead.copy_to_slice(&mut buffer[..read]);
        self.at += read as u64;
        Ok(read)
    }
}

/// Columns of a file at a URL, of which windows are in memory.
#[derive(Clone)]
pub(crate) struct FetchedColumns(Arc<Shared>);

struct Shared {
    file: Arc<RemoteFile>,
    bytes: u64,
    columns: Mutex<Vec<Column>>,
}

/// A column of a row group.
struct Column {
    range: Range<u64>,
    /// Bytes that are fetched at a time.
    step: u64,
    /// Where the bytes in memory begin.
    begin: u64,
    window: Bytes,
    /// Up to where it has been read.
    read: u64,
}

impl Column {
    fn end(&self) -> u64 {
        self.begin + self.window.len() as u64
    }

    /// What is to be fetched so that a range is in memory; nothing if it is.
    fn missing(&self, wanted: &Range<u64>) -> Option<Range<u64>> {
        if self.begin <= wanted.start && wanted.end <= self.end() {
            return None;
        }
        let end = wanted.end.max(wanted.start + self.step).min(self.range.end);
        // What was fetched already is not fetched again.
        let start = match (self.begin..=self.end()).contains(&wanted.start) {
            true => self.end(),
            false => wanted.start,
        };
        Some(start..end)
    }

    /// The same for what comes next, if little is left of the window.
    fn nearly_missing(&self) -> Option<Range<u64>> {
        let left = self.end().saturating_sub(self.read);
        let is_due = self.end() < self.range.end && left < self.step / 2;
        is_due.then(|| {
            self.end()
                ..self
                    .range
                    .end
                    .min(self.read.max(self.end() - left) + self.step)
        })
    }

    /// Takes in what was fetched; what has been read before `from` goes.
    fn extend(&mut self, fetched: Range<u64>, bytes: Bytes, from: u64) {
        let kept = match fetched.start == self.end() && from >= self.begin && from < self.end() {
            true => self
                .window
                .slice(usize::try_from(from - self.begin).unwrap_or(0)..),
            false => Bytes::new(),
        };
        self.begin = fetched.start - kept.len() as u64;
        self.window = match kept.is_empty() {
            true => bytes,
            false => [kept, bytes].concat().into(),
        };
    }
}

impl FetchedColumns {
    /// Columns of which so many bytes are in memory at a time, all together.
    fn new(file: &Arc<RemoteFile>, bytes: u64, columns: &[Range<u64>], window: u64) -> Self {
        let length = |range: &Range<u64>| range.end.saturating_sub(range.start);
        let total: u64 = columns.iter().map(length).sum();
        let column = |range: &Range<u64>| {
            let share = length(range) as f64 / total.max(1) as f64;
            Column {
                range: range.clone(),
                step: ((window as f64 * share) as u64).max(LEAST_WINDOW),
                begin: range.start,
                window: Bytes::new(),
                read: range.start,
            }
        };
        Self(Arc::new(Shared {
            file: file.clone(),
            bytes,
            columns: Mutex::new(columns.iter().map(column).collect()),
        }))
    }

    /// Where the column that has a place ends; a place in none is in the rest of the file.
    fn end_of_column(&self, at: u64) -> u64 {
        let columns = self
            .0
            .columns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let column = columns.iter().find(|column| column.range.contains(&at));
        column.map_or(self.0.bytes.max(at), |column| column.range.end)
    }

    /// The bytes of a range.
    fn get(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let mut columns = self
            .0
            .columns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let has =
            |column: &Column| column.range.start <= range.start && range.end <= column.range.end;
        let Some(at) = columns.iter().position(has) else {
            drop(columns);
            let fetched = self.fetch(&[range])?;
            return Ok(fetched.into_iter().next().unwrap_or_default());
        };
        if let Some(missing) = columns[at].missing(&range) {
            let others = columns.iter().enumerate().filter(|(other, _)| *other != at);
            let mut wanted: Vec<(usize, Range<u64>)> = others
                .filter_map(|(other, column)| Some((other, column.nearly_missing()?)))
                .collect();
            wanted.push((at, missing));
            let ranges: Vec<Range<u64>> = wanted.iter().map(|(_, range)| range.clone()).collect();
            let fetched = self.fetch(&ranges)?;
            for ((column, ranges), bytes) in wanted.into_iter().zip(fetched) {
                let column = &mut columns[column];
                let from = if column.range.contains(&range.start) {
                    range.start
                } else {
                    column.read
                };
                column.extend(ranges, bytes, from);
            }
        }
        let column = &mut columns[at];
        column.read = column.read.max(range.end);
        let [from, to] = [range.start, range.end]
            .map(|place| usize::try_from(place.saturating_sub(column.begin)).unwrap_or(usize::MAX));
        match to <= column.window.len() {
            true => Ok(column.window.slice(from..to)),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn fetch(&self, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
        self.0
            .file
            .ranges(ranges)
            .map_err(|error| self.0.file.keep(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(range: Range<u64>, step: u64) -> Column {
        Column {
            begin: range.start,
            read: range.start,
            range,
            step,
            window: Bytes::new(),
        }
    }

    /// One range.
    fn only(range: Range<u64>) -> Vec<Range<u64>> {
        vec![range]
    }

    /// The bytes of the pretended file.
    fn bytes(range: Range<u64>) -> Bytes {
        range.map(|at| (at % 251) as u8).collect::<Vec<u8>>().into()
    }

    fn read(column: &mut Column, wanted: Range<u64>) -> Vec<Range<u64>> {
        let mut fetched = Vec::new();
        if let Some(missing) = column.missing(&wanted) {
            fetched.push(missing.clone());
            column.extend(missing.clone(), bytes(missing), wanted.start);
        }
        let from = (wanted.start - column.begin) as usize;
        let to = (wanted.end - column.begin) as usize;
        assert_eq!(column.window[from..to], bytes(wanted.clone()));
        column.read = column.read.max(wanted.end);
        fetched
    }

    #[test]
    fn windows_follow_the_reader_and_nothing_is_fetched_twice() {
        let mut column = column(100..1100, 400);
        assert_eq!(read(&mut column, 100..150), only(100..500));
        assert!(read(&mut column, 150..480).is_empty());
        // Over the window's end: what is there stays.
        assert_eq!(read(&mut column, 480..520), only(500..880));
        assert_eq!(column.begin, 480);
        // A page longer than a window.
        assert_eq!(read(&mut column, 520..1100), only(880..1100));
        // Back again.
        assert_eq!(read(&mut column, 100..110), only(100..500));
        assert_eq!(read(&mut column, 1090..1100), only(1090..1100));
    }

    #[test]
    fn columns_near_the_end_of_their_windows_are_fetched_with_others() {
        let mut column = column(0..1000, 400);
        assert_eq!(column.nearly_missing(), Some(0..400));
        read(&mut column, 0..100);
        assert_eq!(column.nearly_missing(), None);
        read(&mut column, 100..300);
        let due = column.nearly_missing().unwrap();
        assert_eq!(due, 400..700);
        column.extend(due.clone(), bytes(due), column.read);
        assert_eq!((column.begin, column.end()), (300, 700));
        assert!(read(&mut column, 300..700).is_empty());
        assert_eq!(column.nearly_missing(), Some(700..1000));
    }
}
