//! Spill files: batches of one schema in Arrow IPC messages, found again by number.
//!
//! A spill file is private to one load and never outlives it, so it carries neither a checksum nor a footer.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;

use crate::error::IngestError;

const WRITE_BUFFER: usize = 1 << 20;

/// Writes batches one behind the other.
pub(crate) struct SpillWriter {
    path: PathBuf,
    out: StreamWriter<CountingWriter>,
    /// Where each batch starts; the first starts behind the schema.
    starts: Vec<u64>,
}

/// Counts the bytes written, so that each batch's place is known.
struct CountingWriter {
    out: BufWriter<File>,
    written: u64,
}

impl Write for CountingWriter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

impl SpillWriter {
    pub(crate) fn create(path: &Path, schema: &SchemaRef) -> Result<Self, IngestError> {
        // Whoever expects that nothing goes to disk has not made it.
        if let Some(dir) = path.parent() {
            catalog::make_directories(dir).map_err(|e| IngestError::io("create", dir, e))?;
        }
        let file = catalog::writable_file()
            .create_new(true)
            .open(path)
            .map_err(|e| IngestError::io("create", path, e))?;
        let counted = CountingWriter {
            out: BufWriter::with_capacity(WRITE_BUFFER, file),
            written: 0,
        };
        let out = StreamWriter::try_new(counted, schema).map_err(|e| spill_error(path, e))?;
        let starts = vec![out.get_ref().written];
        Ok(Self {
            path: path.to_path_buf(),
            out,
            starts,
        })
    }

    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), IngestError> {
        self.out
            .write(batch)
            .map_err(|e| spill_error(&self.path, e))?;
        self.starts.push(self.out.get_ref().written);
        Ok(())
    }

    /// Closes the file for writing and opens it for reading.
    pub(crate) fn finish(mut self) -> Result<SpillFile, IngestError> {
        let path = self.path;
        self.out.flush().map_err(|e| spill_error(&path, e))?;
        drop(self.out);
        let file = File::open(&path).map_err(|e| IngestError::io("open", &path, e))?;
        Ok(SpillFile {
            path,
            file,
            starts: self.starts,
        })
    }
}

/// Keeps the I/O error inside an Arrow error visible (a full disk above all).
fn spill_error(path: &Path, error: arrow::error::ArrowError) -> IngestError {
    match error {
        arrow::error::ArrowError::IoError(_, source) => IngestError::io("write", path, source),
        other => other.into(),
    }
}

/// A finished spill file; removed when dropped.
#[derive(Debug)]
pub(crate) struct SpillFile {
    path: PathBuf,
    file: File,
    starts: Vec<u64>,
}

impl SpillFile {
    /// Reads the batch of this number.
    pub(crate) fn read(&self, number: usize) -> Result<RecordBatch, IngestError> {
        // The decoder has to see the schema message first; it is the file's small head.
        let mut decoder = StreamDecoder::new();
        decoder.decode(&mut self.bytes(0, self.starts[0])?)?;
        let mut body = self.bytes(self.starts[number], self.starts[number + 1])?;
        let batch = decoder.decode(&mut body)?;
        batch.ok_or_else(|| {
            IngestError::layout(
                &self.path,
                "a spill file is shorter than what was written to it",
            )
        })
    }

    fn bytes(&self, start: u64, end: u64) -> Result<Buffer, IngestError> {
        let mut bytes = vec![0; (end - start) as usize];
        (self.file.read_exact_at(&mut bytes, start))
            .map_err(|e| IngestError::io("read", &self.path, e))?;
        Ok(Buffer::from_vec(bytes))
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        // A file that cannot be removed now goes with the load's directory.
        let _ = std::fs::remove_file(&self.path);
    }
}
