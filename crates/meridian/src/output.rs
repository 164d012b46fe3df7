//! The output of a result: in the formats of `result_formats` or as a table, to a file or to standard output.

mod pager;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use result_formats::{ResultFormat, ResultWriter, WriteError, check_names};

use crate::console::still_read;
use crate::failure::Failure;
use crate::sql::Format;
use pager::Pager;
use table::Table;

/// How the rows of a table are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A line each; on a terminal that is too narrow for it, a block each.
    AsItFits,
    /// A block each, with a line for each column.
    Blocks,
    /// A line each, however wide.
    Lines,
}

/// Where results go.
#[derive(Debug, Clone)]
pub enum Destination {
    /// Standard output.
    StandardOutput,
    /// The terminal that standard output is; what is longer than its screen by the user's pager.
    Screen,
    /// A file, which each result is put into in the place of what was there.
    NewFile(PathBuf),
    /// A file that is open, to which each result is appended.
    OpenFile(Arc<File>),
}

/// Writes one result.
pub trait Output: Send {
    /// Writes a batch; `false` if the reader has closed the pipe.
    fn write(&mut self, batch: &RecordBatch) -> Result<bool, Failure>;
    /// Writes what is left. Until then a file does not have its name.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// Opens an output of a format.
pub fn open_output(
    format: Format,
    layout: Layout,
    destination: &Destination,
    schema: &SchemaRef,
) -> Result<Box<dyn Output>, Failure> {
    let binary = matches!(format, Format::Parquet | Format::Arrow | Format::Fits);
    let shown = matches!(
        destination,
        Destination::StandardOutput | Destination::Screen
    );
    if binary && shown && io::stdout().is_terminal() {
        return Err(Failure::new(
            "this format is not for a terminal: give --output FILE or redirect standard output",
        ));
    }
    if format == Format::Parquet {
        check_names(ResultFormat::Parquet, schema)?;
    }
    let sink = Sink::open(destination)?;
    let format = match format {
        Format::Table => return Ok(Box::new(Table::new(sink, schema, layout, shown))),
        Format::Csv => ResultFormat::Csv,
        Format::Tsv => ResultFormat::Tsv,
        Format::Json => ResultFormat::JsonLines,
        Format::Parquet => ResultFormat::Parquet,
        Format::Arrow => ResultFormat::Arrow,
        Format::Fits => ResultFormat::Fits,
    };
    match ResultWriter::new(format, schema, sink) {
        Ok(writer) => Ok(Box::new(EncodedOutput(writer))),
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
    fn open(destination: &Destination) -> Result<Self, Failure> {
        match destination {
            Destination::StandardOutput => Self::standard_output(),
            Destination::Screen => Ok(Self::over(Pager::new())),
            Destination::NewFile(path) => Self::new_file(path),
            Destination::OpenFile(file) => Ok(Self::over(Arc::clone(file))),
        }
    }

    fn over(writer: impl Write + Send + 'static) -> Self {
        Self {
            writer: BufWriter::new(Box::new(writer)),
            file: None,
        }
    }

    /// The standard library's own handle writes line by line: bytes of a number that look like the end of a line would split a short
    /// result.
    fn standard_output() -> Result<Self, Failure> {
        let output = io::stdout().as_fd().try_clone_to_owned();
        let output = output
            .map_err(|error| Failure::new(format!("cannot write to standard output: {error}")))?;
        Ok(Self::over(File::from(output)))
    }

    fn new_file(path: &Path) -> Result<Self, Failure> {
        // A device or a pipe is written to as it is: nothing may take its place.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            let opened = File::options().write(true).open(path);
            let opened = opened.map_err(|error| {
                Failure::new(format!("cannot write {}: {error}", path.display()))
            })?;
            return Ok(Self::over(opened));
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
struct EncodedOutput(ResultWriter<Sink>);

impl Output for EncodedOutput {
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
