//! The bytes of a document, counted from row to row: none may go on for ever.

use std::io::{self, BufRead, BufReader, Read};

/// Reads a file, as long as nothing takes more bytes than it may.
pub(super) struct MeteredReader {
    file: BufReader<Box<dyn Read + Send>>,
    /// Bytes since the last row began.
    bytes: usize,
    most: usize,
}

impl MeteredReader {
    pub fn new(file: Box<dyn Read + Send>, most: usize) -> Self {
        Self {
            file: BufReader::new(file),
            bytes: 0,
            most,
        }
    }

    /// A row begins.
    pub fn begin(&mut self) {
        self.bytes = 0;
    }

    /// From here on whoever reads counts.
    pub fn count_no_more(&mut self) {
        self.most = usize::MAX;
    }

    /// How many bytes there may be, if there are more.
    pub fn exceeded(&self) -> Option<usize> {
        (self.bytes > self.most).then_some(self.most)
    }
}

impl Read for MeteredReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let length = available.len().min(into.len());
        into[..length].copy_from_slice(&available[..length]);
        self.consume(length);
        Ok(length)
    }
}

impl BufRead for MeteredReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.exceeded().is_some() {
            return Err(io::Error::other("it is longer than it may be"));
        }
        self.file.fill_buf()
    }

    fn consume(&mut self, length: usize) {
        self.bytes = self.bytes.saturating_add(length);
        self.file.consume(length);
    }
}
