//! Headers of FITS files: where the table is, and what its columns are.

use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::panic::catch_unwind;
use std::path::Path;

use fitsio_pure::header::{Card, parse_header_blocks};
use fitsio_pure::value::Value;

use super::column::FitsColumn;
use super::damaged;
use crate::budget::DecodeMeter;
use crate::error::IngestError;

/// Bytes of which headers and data are made up (FITS Standard 4.0, section 3.1).
const BLOCK: usize = 2880;
const CARD: usize = 80;
/// Bytes of the longest header: 800,000 cards.
const LONGEST_HEADER: usize = 64 << 20;

/// A binary table in a file.
#[derive(Debug)]
pub(super) struct Table {
    /// The byte of the file at which its rows begin.
    pub begin: u64,
    pub rows: u64,
    pub row_bytes: u64,
    /// The heap, from the beginning of the rows on.
    pub heap: Range<u64>,
    pub columns: Vec<FitsColumn>,
}

impl Table {
    /// Bytes of its rows.
    pub fn bytes(&self) -> u64 {
        self.rows.saturating_mul(self.row_bytes)
    }
}

/// A reader that goes forward alone, for one that can seek.
pub(super) struct Passing<'a>(pub &'a mut dyn Read);

impl Read for Passing<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

/// Goes over data.
pub(super) trait Skip: Read {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()>;
}

impl<R: Read + Seek> Skip for std::io::BufReader<R> {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(|_| ErrorKind::InvalidData)?;
        self.seek(SeekFrom::Current(bytes)).map(drop)
    }
}

impl Skip for Passing<'_> {
    fn skip(&mut self, bytes: u64) -> std::io::Result<()> {
        std::io::copy(&mut self.take(bytes), &mut std::io::sink()).map(drop)
    }
}

/// Looks for the table through the headers of a file.
pub(super) fn find(
    file: &mut dyn Skip,
    path: &Path,
    wanted: Option<&str>,
    meter: &mut DecodeMeter,
) -> Result<Table, IngestError> {
    let mut place = 0_u64;
    let mut others = Vec::new();
    for number in 0_usize.. {
        let Some(bytes) = read_header(file, path, meter)? else {
            return Err(IngestError::layout(path, none_found(wanted, &others)));
        };
        place += bytes.len() as u64;
        let header = Header::parse(&bytes)
            .map_err(|reason| damaged(path, format!("its header {number}: {reason}")))?;
        let is_wanted = match wanted {
            None => header.is_table(),
            Some(wanted) => header.is_called(wanted) || wanted.parse() == Ok(number),
        };
        if is_wanted {
            let table = header.table(place);
            return table.map_err(|reason| {
                IngestError::layout(path, format!("its extension {number}: {reason}"))
            });
        }
        if number > 0 {
            others.push(header.describe(number));
        }
        let data = header.data_bytes().ok_or_else(|| {
            damaged(
                path,
                format!("its header {number} declares impossible sizes"),
            )
        })?;
        meter.check(0)?;
        file.skip(data)
            .map_err(|error| IngestError::io("read", path, error))?;
        place = place.saturating_add(data);
    }
    Err(IngestError::layout(path, none_found(wanted, &others)))
}

pub(super) fn none_found(wanted: Option<&str>, others: &[String]) -> String {
    const SHOWN: usize = 20;
    let what = match wanted {
        None => "it has no binary table".to_owned(),
        Some(wanted) => format!("it has no extension {wanted}"),
    };
    match others {
        [] => format!("{what}: it has no extensions at all"),
        some => {
            let more = if some.len() > SHOWN { ", ..." } else { "" };
            let shown = &some[..some.len().min(SHOWN)];
            format!("{what}; its extensions are: {}{more}", shown.join(", "))
        }
    }
}

/// The blocks of a header, up to the one with END; `None` at the end of the file.
pub(super) fn read_header(
    file: &mut dyn Skip,
    path: &Path,
    meter: &mut DecodeMeter,
) -> Result<Option<Vec<u8>>, IngestError> {
    let mut bytes = Vec::new();
    loop {
        let begin = bytes.len();
        bytes.resize(begin + BLOCK, 0);
        let read = read_up_to(file, &mut bytes[begin..])
            .map_err(|error| IngestError::io("read", path, error))?;
        if begin == 0 && is_padding(&bytes[..read]) {
            return Ok(None);
        }
        if read < BLOCK {
            return Err(damaged(path, "it ends within a header".to_owned()));
        }
        if begin == 0 && !bytes.starts_with(b"SIMPLE  ") && !bytes.starts_with(b"XTENSION") {
            // Behind the last extension there may be anything.
            return Ok(None);
        }
        meter.add(BLOCK as u64)?;
        let mut cards = bytes[begin..].chunks_exact(CARD);
        if cards.any(|card| card.starts_with(b"END     ")) {
            return Ok(Some(bytes));
        }
        if bytes.len() > LONGEST_HEADER {
            return Err(damaged(path, "it has a header without an end".to_owned()));
        }
    }
}

fn is_padding(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, 0 | b' '))
}

/// Fills a buffer as far as there are bytes.
fn read_up_to(file: &mut dyn Skip, into: &mut [u8]) -> std::io::Result<usize> {
    let mut read = 0;
    while read < into.len() {
        match file.read(&mut into[read..]) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// The cards of a header.
pub(super) struct Header {
    cards: std::collections::HashMap<String, Value>,
}

/// The cards of a header's bytes.
pub(super) fn parsed_cards(bytes: &[u8]) -> Result<Vec<Card>, String> {
    // The library is given what strangers have written.
    let cards = match catch_unwind(|| parse_header_blocks(bytes)) {
        Ok(parsed) => parsed,
        Err(_) => return Err("its cards make no sense".to_owned()),
    };
    cards.map_err(|error| format!("it cannot be read ({error})"))
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        Ok(Self::of(&parsed_cards(bytes)?))
    }

    pub(super) fn of(cards: &[Card]) -> Self {
        let mut named = std::collections::HashMap::with_capacity(cards.len());
        for card in cards {
            if let Some(value) = card.value.clone() {
                // The first of a keyword counts.
                named.entry(card.keyword_str().to_owned()).or_insert(value);
            }
        }
        Self { cards: named }
    }

    pub(super) fn text(&self, keyword: &str) -> Option<&str> {
        match self.cards.get(keyword)? {
            Value::String(text) => Some(text.trim_end()),
            _ => None,
        }
    }

    pub(super) fn integer(&self, keyword: &str) -> Option<i64> {
        match self.cards.get(keyword)? {
            Value::Integer(number) => Some(*number),
            Value::Float(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Some(*number as i64)
            }
            _ => None,
        }
    }

    pub(super) fn float(&self, keyword: &str) -> Option<f64> {
        match self.cards.get(keyword)? {
            Value::Integer(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            _ => None,
        }
    }

    fn size(&self, keyword: &str) -> Option<u64> {
        u64::try_from(self.integer(keyword)?).ok()
    }

    fn is_extension(&self, kind: &str) -> bool {
        self.text("XTENSION").is_some_and(|it| it.trim() == kind)
    }

    /// Whether it is a binary table of rows, and not a compressed image.
    fn is_table(&self) -> bool {
        self.is_extension("BINTABLE") && !self.cards.contains_key("ZIMAGE")
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.text("EXTNAME")
            .is_some_and(|it| it.trim().eq_ignore_ascii_case(name.trim()))
    }

    pub(super) fn describe(&self, number: usize) -> String {
        let kind = match self.text("XTENSION").map(str::trim) {
            Some("BINTABLE") if !self.is_table() => "compressed image",
            Some("BINTABLE") => "binary table",
            Some("TABLE") => "ASCII table",
            Some("IMAGE") => "image",
            _ => "unknown",
        };
        match self.text("EXTNAME").map(str::trim) {
            Some(name) if !name.is_empty() => format!("{number} ({name}, {kind})"),
            _ => format!("{number} ({kind})"),
        }
    }

    /// Bytes of the data behind the header, with what fills up their last block (FITS Standard 4.0, equation 2).
    pub(super) fn data_bytes(&self) -> Option<u64> {
        let axes = self.size("NAXIS").unwrap_or(0);
        if axes == 0 {
            return Some(0);
        }
        let mut elements = 1_u64;
        for axis in 1..=axes.min(999) {
            let length = self.size(&format!("NAXIS{axis}"))?;
            // Of random groups the first axis is 0.
            if length > 0 || axis > 1 {
                elements = elements.checked_mul(length)?;
            }
        }
        let bits = self.integer("BITPIX")?.unsigned_abs();
        let groups = self.size("GCOUNT").unwrap_or(1);
        let parameters = self.size("PCOUNT").unwrap_or(0);
        let elements = elements.checked_add(parameters)?.checked_mul(groups)?;
        let bytes = elements.checked_mul(bits / 8)?;
        bytes.checked_next_multiple_of(BLOCK as u64)
    }

    /// The table whose rows begin at a byte of the file.
    fn table(&self, begin: u64) -> Result<Table, String> {
        if self.is_extension("TABLE") {
            return Err(
                "it is an ASCII table, which is not read: write it as a binary table or as CSV"
                    .to_owned(),
            );
        }
        if !self.is_table() {
            return Err("it is no binary table".to_owned());
        }
        let size = |keyword: &str| {
            self.size(keyword)
                .ok_or_else(|| format!("its header has no {keyword}"))
        };
        let (row_bytes, rows, fields) = (size("NAXIS1")?, size("NAXIS2")?, size("TFIELDS")?);
        let impossible = || "its header declares impossible sizes".to_owned();
        let bytes = row_bytes.checked_mul(rows).ok_or_else(impossible)?;
        begin.checked_add(bytes).ok_or_else(impossible)?;
        let mut columns = Vec::new();
        let mut offset = 0_u64;
        for number in 1..=fields.min(999) {
            let column = FitsColumn::read(self, number, offset)?;
            offset = offset.checked_add(column.bytes).ok_or_else(impossible)?;
            columns.push(column);
        }
        if offset != row_bytes {
            return Err(format!(
                "its columns take {offset} bytes of a row and NAXIS1 says {row_bytes}"
            ));
        }
        // Columns without a place in the rows hold nothing.
        columns.retain(|column| column.bytes > 0);
        if columns.is_empty() {
            return Err("it has no columns".to_owned());
        }
        let heap = self.size("THEAP").unwrap_or(bytes);
        let end = bytes
            .checked_add(self.size("PCOUNT").unwrap_or(0))
            .ok_or_else(impossible)?;
        Ok(Table {
            begin,
            rows,
            row_bytes,
            heap: heap.min(end)..end,
            columns,
        })
    }
}
