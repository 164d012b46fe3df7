//! The formats of files as tables over HTTP: Parquet and FITS.

use std::io::{self, Write};
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use result_formats::{ResultFormat, ResultWriter, WriteError, check_names};
use sql::ErrorCode;

use super::{RowWriter, TableEnd};
use crate::ClientError;

/// Writes a table as a file.
pub(crate) struct FileWriter {
    /// `None` once all is written.
    writer: Option<Box<ResultWriter<SharedBuffer>>>,
    buffer: SharedBuffer,
}

impl FileWriter {
    /// Of these columns.
    ///
    /// # Errors
    /// A column has no form in the format.
    pub(crate) fn new(format: ResultFormat, schema: &SchemaRef) -> Result<Self, ClientError> {
        check_names(format, schema).map_err(cannot_be_written)?;
        let buffer = SharedBuffer::default();
        let writer = ResultWriter::new(format, schema, buffer.clone());
        Ok(Self {
            writer: Some(Box::new(writer.map_err(cannot_be_written)?)),
            buffer,
        })
    }
}

impl RowWriter for FileWriter {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.buffer.lock());
    }

    fn rows(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ClientError> {
        if let Some(writer) = &mut self.writer {
            writer.write(batch).map_err(cannot_be_written)?;
        }
        out.append(&mut self.buffer.lock());
        Ok(())
    }

    fn more(&mut self, ending: TableEnd<'_>, out: &mut Vec<u8>) -> Result<bool, ClientError> {
        let Some(mut writer) = self.writer.take() else {
            return Ok(false);
        };
        if ending == TableEnd::Overflow {
            writer.cut_off();
        }
        let more = writer.write_more().map_err(cannot_be_written)?;
        match more {
            true => self.writer = Some(writer),
            false => drop(writer.finish().map_err(cannot_be_written)?),
        }
        out.append(&mut self.buffer.lock());
        Ok(more)
    }

    fn end(&mut self, ending: TableEnd<'_>, _: &mut Vec<u8>) -> bool {
        !matches!(ending, TableEnd::Failed(_))
    }
}

/// The error of rows that have no form in a format.
pub(crate) fn cannot_be_written(error: WriteError) -> ClientError {
    let sentence = format!("the result cannot be written in this format: {error}");
    let code = match error {
        WriteError::Io(_) => ErrorCode::STORAGE,
        // Its columns have other types or values than the format has.
        WriteError::Arrow(_) | WriteError::Parquet(_) | WriteError::Unfit(_) => {
            ErrorCode::NOT_SUPPORTED
        }
    };
    ClientError::new(code, sentence)
}

/// A buffer that a writer fills and that is emptied meanwhile.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Empties it.
    pub(crate) fn take(&self) -> Vec<u8> {
        take(&mut *self.lock())
    }

    /// A panic in another thread leaves the buffer consistent, because every change is a single operation.
    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
