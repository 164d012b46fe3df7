//! The output of a result: in the formats of `result_formats` or as a table, to a file or to standard output.

mod table;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use result_formats::{ResultFormat, ResultWriter, WriteError};

use crate::console::still_read;
use crate::failure::Failure;
use crate::sql::Format;
use table::Table;

/// Writes one result.
pub trait Output {
    /// Writes a batch; `false` if the reader has closed the pipe.
    fn write(&mut self, batch: &RecordBatch) -> Result<bool, Failure>;
    /// Writes what is left. Until then a file does not have its name.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// Opens an output of a format, to a file or to standard output.
pub fn open_output(
    format: Format,
    file: Option<&Path>,
    schema: &SchemaRef,
) -> Result<Box<dyn Output>, Failure> {
    let binary = matches!(format, Format::Parquet | Format::Arrow);
    if binary && file.is_none() && io::stdout().is_terminal() {
        return Err(Failure::new(
            "this format is not for a terminal: give --output FILE or redirect standard output",
        ));
    }
    let sink = Sink::open(file)?;
    let format = match format {
        Format::Table => return Ok(Box::new(Table::new(sink, schema))),
        Format::Csv => ResultFormat::Csv,
        Format::Tsv => ResultFormat::Tsv,
        Format::Json => ResultFormat::JsonLines,
        Format::Parquet => ResultFormat::Parquet,
        Format::Arrow => ResultFormat::Arrow,
    };
    match ResultWriter::new(format, schema, sink) {
        Ok(writer) => Ok(Box::new(Encoded(writer))),
        Err(WriteError::Io(error)) => still_read(Err(error)).map(|_| Box::new(Unread) as _),
        Err(error) => Err(error.into()),
    }
}

/// Where a result goes. A file is written under another name until it is whole.
pub struct Sink {
    writer: BufWriter<Box<dyn Write + Send>>,
    file: Option<(PathBuf, PathBuf)>,
}

impl Sink {
    fn open(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = file else {
            // The standard library's own handle writes line by line: bytes of a number that look like the end of a line would
            // split a short result.
            let output = io::stdout().as_fd().try_clone_to_owned();
            let output = output.map_err(|error| {
                Failure::new(format!("cannot write to standard output: {error}"))
            })?;
            return Ok(Self {
                writer: BufWriter::new(Box::new(File::from(output))),
                file: None,
            });
        };
        // A device or a pipe is written to as it is: nothing may take its place.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            let opened = File::options().write(true).open(path);
            let opened = opened.map_err(|error| {
                Failure::new(format!("cannot write {}: {error}", path.display()))
            })?;
            return Ok(Self {
                writer: BufWriter::new(Box::new(opened)),
                file: None,
            });
        }
        let mut partial = path.as_os_str().to_owned();
        partial.push(".part");
        let partial = PathBuf::from(partial);
        let created = File::create(&partial).map_err(|error| {
            Failure::new(format!("cannot write {}: {error}", partial.display()))
        })?;
        Ok(Self {
            writer: BufWriter::new(Box::new(created)),
            file: Some((partial, path.to_owned())),
        })
    }

    fn finish(mut self) -> Result<(), Failure> {
        still_read(self.writer.flush())?;
        if let Some((partial, path)) = self.file.take() {
            std::fs::rename(&partial, &path).map_err(|error| {
                Failure::new(format!(
                    "cannot name the output {}: {error}",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        // Only where the result was not finished; that it may be gone already is no matter.
        if let Some((partial, _)) = &self.file {
            let _ = std::fs::remove_file(partial);
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// A result in a format that other programs read.
struct Encoded(ResultWriter<Sink>);

impl Output for Encoded {
    fn write(&mut self, batch: &RecordBatch) -> Result<bool, Failure> {
        match self.0.write(batch) {
            Err(WriteError::Io(error)) => still_read(Err(error)),
            other => Ok(other.map(|()| true)?),
        }
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        self.0.finish()?.finish()
    }
}

/// A result that nobody reads.
struct Unread;

impl Output for Unread {
    fn write(&mut self, _: &RecordBatch) -> Result<bool, Failure> {
        Ok(false)
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        Ok(())
    }
}
