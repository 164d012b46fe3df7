//! The output formats of a result.

mod delimited;
mod pager;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use arrow::ipc::writer::StreamWriter;
use arrow::json::writer::{LineDelimited, WriterBuilder};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::console::still_read;
use crate::failure::Failure;
use crate::sql::Format;
use delimited::Delimited;
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
    schema: &Schema,
) -> Result<Box<dyn Output>, Failure> {
    let binary = matches!(format, Format::Parquet | Format::Arrow);
    let shown = matches!(
        destination,
        Destination::StandardOutput | Destination::Screen
    );
    if binary && shown && io::stdout().is_terminal() {
        return Err(Failure::new(
            "this format is not for a terminal: give --output FILE or redirect standard output",
        ));
    }
    let sink = Sink::open(destination)?;
    Ok(match format {
        Format::Table => Box::new(Table::new(sink, schema, layout, shown)),
        Format::Csv => Box::new(Delimited::csv(sink, schema)?),
        Format::Tsv => Box::new(Delimited::tsv(sink, schema)?),
        Format::Json => Box::new(Json::new(sink)),
        Format::Parquet => {
            let properties = WriterProperties::builder()
                .set_compression(Compression::ZSTD(ZstdLevel::default()))
                .build();
            Box::new(Parquet(ArrowWriter::try_new(
                sink,
                schema.clone().into(),
                Some(properties),
            )?))
        }
        Format::Arrow => Box::new(ArrowStream(StreamWriter::try_new(sink, schema)?)),
    })
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

/// One JSON object a line.
struct Json(arrow::json::Writer<Sink, LineDelimited>);

impl Json {
    fn new(sink: Sink) -> Self {
        Self(WriterBuilder::new().with_explicit_nulls(true).build(sink))
    }
}

impl Output for Json {
    fn write(&mut self, batch: &RecordBatch) -> Result<bool, Failure> {
        match self.0.write(batch) {
            Err(arrow::error::ArrowError::IoError(_, error)) => still_read(Err(error)),
            other => Ok(other.map(|()| true)?),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        self.0.finish()?;
        self.0.into_inner().finish()
    }
}

struct Parquet(ArrowWriter<Sink>);

impl Output for Parquet {
    fn write(&mut self, batch: &RecordBatch) -> Result<bool, Failure> {
        self.0.write(batch)?;
        Ok(true)
    }

    fn finish(self: Box<Self>) -> Result<(), Failure> {
        self.0.into_inner()?.finish()
    }
}

struct ArrowStream(StreamWriter<Sink>);

impl Output for ArrowStream {
    fn write(&mut self, batch: &RecordBatch) -> Result<bool, Failure> {
        self.0.write(batch)?;
        Ok(true)
    }

    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        self.0.finish()?;
        self.0.into_inner()?.finish()
    }
}
