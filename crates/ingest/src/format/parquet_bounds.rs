//! What a Parquet file of a stranger would take in memory, found out before it is taken: by its footer, and by the headers of its
//! pages, which are read without the pages.
//!
//! ```text
//!   footer:       length, nesting, row groups ──► library reads it
//!   row group:    header, header, header ...  ──► pages' bytes are counted ──► library reads them, few rows at a time
//! ```
//!
//! What the library reads may lie as it likes about sizes: here lists have no more elements than bytes, pages no more values than
//! bytes or rows, and encodings and compressions that unpack to what no header says are not read.
//!
//! Source: *Apache Parquet file format*, parquet.thrift.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use parquet::arrow::ProjectionMask;
use parquet::basic::{Compression, Type};
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use super::thrift::{Thrift, ThriftError};
use crate::budget::{DecodeBudget, DecodeMeter};
use crate::error::IngestError;

/// Bytes of a footer.
const MOST_FOOTER: u64 = 4 << 20;
/// What a footer takes in memory is some twenty times its length.
const FOOTER_GROWTH: u64 = 20;
/// Bytes of a page, once it is unpacked; writers make them of one mebibyte.
const MOST_PAGE: i64 = 16 << 20;
/// Groups within groups of columns.
const MOST_NESTED: usize = 16;
/// Bytes of a batch of rows.
const BATCH: usize = 4 << 20;
const ROWS_PER_BATCH: usize = 8192;
/// Bytes that are looked at at once, and that a page's header has at most.
const WINDOW: usize = 64 << 10;
const TAIL: u64 = 8;

/// Encodings of texts that say how long all values are before these come.
const DELTA_LENGTH_BYTE_ARRAY: i64 = 6;
const DELTA_BYTE_ARRAY: i64 = 7;

fn damaged(path: &Path, reason: impl Into<String>) -> IngestError {
    IngestError::Damaged {
        path: path.to_path_buf(),
        reason: reason.into(),
    }
}

/// Looks at a footer.
///
/// # Errors
/// It is longer or nested deeper than it may be, or none.
pub(super) fn check_footer(
    file: &File,
    path: &Path,
    bytes: u64,
    budget: &DecodeBudget,
) -> Result<(), IngestError> {
    let wrong = || damaged(path, "its footer cannot be read");
    let failed = |error| IngestError::io("read", path, error);
    let mut tail = [0; TAIL as usize];
    let tail_at = bytes.checked_sub(TAIL).ok_or_else(wrong)?;
    file.read_exact_at(&mut tail, tail_at).map_err(failed)?;
    let [a, b, c, d, magic @ ..] = tail;
    let length = u64::from(u32::from_le_bytes([a, b, c, d]));
    if magic != *b"PAR1" || length > tail_at {
        return Err(wrong());
    }
    if length > MOST_FOOTER {
        let mebibytes = MOST_FOOTER >> 20;
        let reason = format!(
            "its footer is longer than {mebibytes} MiB: write it with fewer columns or larger row groups"
        );
        return Err(IngestError::too_large(path, reason));
    }
    budget.meter(path).add(length * FOOTER_GROWTH)?;
    let mut footer = vec![0; length as usize];
    file.read_exact_at(&mut footer, tail_at - length)
        .map_err(failed)?;
    check_structure(&mut Thrift::new(&footer)).map_err(|_| wrong())
}

/// Goes through a footer (`FileMetaData`): every list is as long as it says, and columns are not nested without end.
fn check_structure(thrift: &mut Thrift<'_>) -> Result<(), ThriftError> {
    let mut last = 0;
    while let Some(field) = thrift.field(&mut last)? {
        match field.id {
            2 => check_schema(thrift)?,
            _ => thrift.skip(field)?,
        }
    }
    Ok(())
}

/// Goes through the columns, which stand one behind the other, each before those that it is the group of.
fn check_schema(thrift: &mut Thrift<'_>) -> Result<(), ThriftError> {
    let (_, elements) = thrift.list()?;
    // How many each of the groups that are open still has before it.
    let mut open: Vec<i64> = Vec::new();
    for _ in 0..elements {
        let mut children = 0;
        let mut last = 0;
        while let Some(field) = thrift.field(&mut last)? {
            match field.id {
                5 => children = thrift.integer()?,
                _ => thrift.skip(field)?,
            }
        }
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        if children < 0 || open.len() > MOST_NESTED {
            return Err(ThriftError::Wrong);
        }
        while open.last().is_some_and(|left| *left <= 0) {
            open.pop();
        }
    }
    Ok(())
}

/// Looks at where a row group's columns lie.
///
/// # Errors
/// Not within the file.
pub(super) fn check_places(
    path: &Path,
    bytes: u64,
    group: &RowGroupMetaData,
) -> Result<(), IngestError> {
    let lies_within = |column: &ColumnChunkMetaData| {
        place(column).is_some_and(|(start, length)| {
            start.checked_add(length).is_some_and(|end| end <= bytes)
        })
    };
    if group.num_rows() < 0 || !group.columns().iter().all(lies_within) {
        return Err(damaged(
            path,
            "its footer names bytes that it does not have",
        ));
    }
    Ok(())
}

/// Where a column's pages lie: the first byte and their length.
fn place(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let data = column.data_page_offset();
    let start = column.dictionary_page_offset().unwrap_or(data);
    Some((
        u64::try_from(start).ok()?,
        u64::try_from(column.compressed_size()).ok()?,
    ))
}

/// Looks at all pages of a row group's wanted columns and counts them; gives how many rows may be read at once.
///
/// # Errors
/// They take more than there may be, or are written in a way of which nobody can tell what they take.
pub(super) fn rows_at_once(
    (file, path): (&File, &Path),
    group: &RowGroupMetaData,
    wanted: &ProjectionMask,
    meter: &mut DecodeMeter,
) -> Result<usize, IngestError> {
    let mut width = 0;
    for (leaf, column) in group.columns().iter().enumerate() {
        if wanted.leaf_included(leaf) {
            let pages = Pages {
                file,
                path,
                column,
                rows: group.num_rows(),
            };
            pages.check(meter)?;
            width += width_of(column);
        }
    }
    meter.check(width as u64)?;
    Ok((BATCH / width.max(1)).clamp(1, ROWS_PER_BATCH))
}

/// Bytes that a value takes in a batch; of a text, without its characters.
fn width_of(column: &ColumnChunkMetaData) -> usize {
    match column.column_type() {
        Type::BOOLEAN => 1,
        Type::FIXED_LEN_BYTE_ARRAY => {
            usize::try_from(column.column_descr().type_length()).map_or(0, |width| width.max(16))
        }
        Type::INT32 | Type::INT64 | Type::INT96 | Type::FLOAT | Type::DOUBLE | Type::BYTE_ARRAY => {
            16
        }
    }
}

/// The pages of a column in a row group.
struct Pages<'a> {
    file: &'a File,
    path: &'a Path,
    column: &'a ColumnChunkMetaData,
    rows: i64,
}

/// What the header of a page says.
#[derive(Debug, Default)]
struct PageHead {
    uncompressed: i64,
    compressed: i64,
    values: i64,
    encoding: i64,
    is_dictionary: bool,
    /// Bytes of levels that are not compressed.
    levels: i64,
    is_plain: bool,
    /// Bytes of the header itself.
    length: usize,
}

impl Pages<'_> {
    fn wrong(&self) -> IngestError {
        let name = self.column.column_descr().name();
        damaged(
            self.path,
            format!("the pages of the column {name:?} are not as they are said to be"),
        )
    }

    /// A way of writing of which it is not known beforehand what it unpacks to.
    fn unbounded(&self, way: &str) -> IngestError {
        let name = self.column.column_descr().name();
        IngestError::layout(
            self.path,
            format!(
                "the column {name:?} is written with {way}, which is not read from what is sent: write it with a dictionary or \
                 plainly, and compressed with zstd or snappy, or load the file as a table"
            ),
        )
    }

    fn check(&self, meter: &mut DecodeMeter) -> Result<(), IngestError> {
        let codec = self.column.compression();
        if matches!(
            codec,
            Compression::BROTLI(_) | Compression::LZ4 | Compression::LZO
        ) {
            return Err(self.unbounded(&format!("the compression {codec}")));
        }
        if self.column.column_descr().max_rep_level() > 0 {
            return Err(self.unbounded("several values in a row"));
        }
        let (mut at, length) = place(self.column).ok_or_else(|| self.wrong())?;
        let end = at + length;
        let mut window = Window::default();
        while at < end {
            let bytes = window.from(self.file, at, end);
            let bytes = bytes.map_err(|error| IngestError::io("read", self.path, error))?;
            let head = PageHead::read(bytes).map_err(|_| self.wrong())?;
            let begin = at + head.length as u64;
            self.check_page(&head, end - begin.min(end), meter)?;
            if matches!(codec, Compression::GZIP(_)) && !head.is_plain {
                self.check_gzip(&head, begin)?;
            }
            at = begin + head.compressed as u64;
        }
        Ok(())
    }

    fn check_page(
        &self,
        head: &PageHead,
        left: u64,
        meter: &mut DecodeMeter,
    ) -> Result<(), IngestError> {
        let fits = u64::try_from(head.compressed).is_ok_and(|length| length <= left);
        let most_values = match head.is_dictionary {
            true => head.uncompressed / self.least_value(),
            false => self.rows,
        };
        if !fits || head.uncompressed < 0 || !(0..=most_values).contains(&head.values) {
            return Err(self.wrong());
        }
        if head.uncompressed > MOST_PAGE {
            let name = self.column.column_descr().name();
            let reason = format!(
                "a page of the column {name:?} takes more than {} MiB, which is the most",
                MOST_PAGE >> 20
            );
            return Err(IngestError::too_large(self.path, reason));
        }
        if [DELTA_LENGTH_BYTE_ARRAY, DELTA_BYTE_ARRAY].contains(&head.encoding) {
            return Err(self.unbounded("a delta encoding of texts"));
        }
        meter.add(head.uncompressed as u64)
    }

    /// The fewest bytes that a value of a dictionary has.
    fn least_value(&self) -> i64 {
        match self.column.column_type() {
            Type::BOOLEAN => 1,
            Type::INT32 | Type::FLOAT | Type::BYTE_ARRAY => 4,
            Type::INT64 | Type::DOUBLE => 8,
            Type::INT96 => 12,
            Type::FIXED_LEN_BYTE_ARRAY => {
                i64::from(self.column.column_descr().type_length()).max(1)
            }
        }
    }

    /// A gzip stream may unpack to more than its page's header says: it is unpacked once without being kept.
    fn check_gzip(&self, head: &PageHead, begin: u64) -> Result<(), IngestError> {
        let levels = head.levels.clamp(0, head.compressed);
        let stream = At {
            file: self.file,
            at: begin + levels as u64,
            end: begin + head.compressed as u64,
        };
        let most = (head.uncompressed - levels).max(0) as u64;
        let mut unpacked = MultiGzDecoder::new(io::BufReader::new(stream)).take(most + 1);
        match io::copy(&mut unpacked, &mut io::sink()) {
            Ok(length) if length <= most => Ok(()),
            _ => Err(self.wrong()),
        }
    }
}

impl PageHead {
    /// `PageHeader`: 1 type, 2 and 3 the sizes, 5 of a page of data, 7 of a dictionary, 8 of a page of data in its second version.
    fn read(bytes: &[u8]) -> Result<Self, ThriftError> {
        let mut thrift = Thrift::new(bytes);
        let mut head = Self::default();
        let mut last = 0;
        while let Some(field) = thrift.field(&mut last)? {
            match field.id {
                2 => head.uncompressed = thrift.integer()?,
                3 => head.compressed = thrift.integer()?,
                5 => head.read_inner(&mut thrift, 2, false)?,
                7 => {
                    head.is_dictionary = true;
                    head.read_inner(&mut thrift, 2, false)?;
                }
                8 => head.read_inner(&mut thrift, 4, true)?,
                _ => thrift.skip(field)?,
            }
        }
        head.length = thrift.position();
        Ok(head)
    }

    /// 1 is the number of values; of the second version 5 and 6 are the lengths of levels, and 7 says whether it is compressed.
    fn read_inner(
        &mut self,
        thrift: &mut Thrift<'_>,
        encoding: i16,
        second: bool,
    ) -> Result<(), ThriftError> {
        let mut last = 0;
        while let Some(field) = thrift.field(&mut last)? {
            match field.id {
                1 => self.values = thrift.integer()?,
                id if id == encoding => self.encoding = thrift.integer()?,
                5 | 6 if second => {
                    let length = thrift.integer()?;
                    let levels = self.levels.checked_add(length);
                    self.levels = levels.filter(|_| length >= 0).ok_or(ThriftError::Wrong)?;
                }
                7 if second => self.is_plain = field.ty == super::thrift::types::FALSE,
                _ => thrift.skip(field)?,
            }
        }
        Ok(())
    }
}

/// Some of a file's bytes.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// The bytes from one on, up to an end: as many as a page's header may have.
    fn from(&mut self, file: &File, at: u64, end: u64) -> io::Result<&[u8]> {
        let wanted = (end - at).min(WINDOW as u64 / 2) as usize;
        let skipped = at.checked_sub(self.start).map(|skipped| skipped as usize);
        let has = skipped.is_some_and(|skipped| self.bytes.len() >= skipped.saturating_add(wanted));
        if !has {
            self.start = at;
            self.bytes.resize((end - at).min(WINDOW as u64) as usize, 0);
            file.read_exact_at(&mut self.bytes, at)?;
        }
        Ok(&self.bytes[(at - self.start) as usize..])
    }
}

/// A part of a file.
struct At<'a> {
    file: &'a File,
    at: u64,
    end: u64,
}

impl Read for At<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = (self.end - self.at).min(into.len() as u64) as usize;
        let read = self.file.read_at(&mut into[..length], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
