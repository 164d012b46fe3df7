//! A document that is read, and what is wrong at a place of it.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::Xml;
use super::encoding::in_utf8;
use crate::error::IngestError;
use crate::format::{Magic, magic};

/// A document in UTF-8 from its beginning, whatever its encoding, plain or gzipped.
///
/// # Errors
/// It cannot be opened or unpacked, or declares an encoding that is not read.
pub fn open_document(path: &Path) -> Result<Box<dyn Read + Send>, IngestError> {
    let file = File::open(path).map_err(|e| IngestError::io("open", path, e))?;
    let is_gzipped = magic(path)? == Magic::GzipVoTable;
    let input: Box<dyn Read + Send> = match is_gzipped {
        true => Box::new(MultiGzDecoder::new(BufReader::new(file))),
        false => Box::new(file),
    };
    in_utf8(input).map_err(|error| match error.kind() {
        ErrorKind::Unsupported => IngestError::layout(path, error.to_string()),
        _ if is_gzipped => broken_gzip(path, &error),
        _ => IngestError::io("read", path, error),
    })
}

fn broken_gzip(path: &Path, error: &std::io::Error) -> IngestError {
    IngestError::Damaged {
        path: path.to_path_buf(),
        reason: format!("the gzip stream breaks off or is wrong: {error}"),
    }
}

/// A document, in messages.
pub(super) struct Document {
    pub path: PathBuf,
}

impl Document {
    /// What is wrong at a byte of the document in UTF-8, told with its line.
    pub fn wrong(&self, byte: u64, what: &str) -> IngestError {
        match self.line_of(byte) {
            Ok(line) => IngestError::Unreadable(format!("{}:{line}: {what}", self.path.display())),
            Err(error) => error,
        }
    }

    fn line_of(&self, byte: u64) -> Result<usize, IngestError> {
        let mut before = BufReader::new(open_document(&self.path)?.take(byte));
        let mut line = 1;
        loop {
            let part = match before.fill_buf() {
                Ok(part) => part,
                Err(error) => return Err(IngestError::io("read", &self.path, error)),
            };
            if part.is_empty() {
                return Ok(line);
            }
            line += memchr::memchr_iter(b'\n', part).count();
            let length = part.len();
            before.consume(length);
        }
    }

    /// What reading goes wrong with: a row that is longer than it may be, or what the reader of XML says.
    pub fn unreadable(&self, xml: &Xml, error: &quick_xml::Error) -> IngestError {
        match (xml.get_ref().exceeded(), error) {
            (Some(most), _) => self.too_long(most),
            (None, quick_xml::Error::Io(error)) => self.broken(error),
            (None, error) => self.wrong(xml.error_position(), &format!("it is no XML: {error}")),
        }
    }

    /// Its bytes cannot be read, or are no characters of its encoding.
    pub fn broken(&self, error: &std::io::Error) -> IngestError {
        let is_gzipped = magic(&self.path).is_ok_and(|magic| magic == Magic::GzipVoTable);
        match is_gzipped {
            true => broken_gzip(&self.path, error),
            false => IngestError::Unreadable(format!("{}: {error}", self.path.display())),
        }
    }

    pub fn too_long(&self, most: usize) -> IngestError {
        let mebibytes = most >> 20;
        let reason = format!(
            "what stands before its rows, or one of them, takes more than {mebibytes} MiB, which is the most"
        );
        IngestError::too_large(&self.path, reason)
    }
}
