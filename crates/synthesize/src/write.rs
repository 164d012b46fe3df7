//! Catalogues as Parquet: one directory a table, one file a chunk, several files at a time.
//!
//! A file is written under a temporary name and gets its own when it is whole, so that a file with a final name is
//! always whole, however the program ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use arrow::datatypes::DataType;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;
use sky::ChunkId;

use crate::catalogue::{Catalogue, Table};
use crate::error::SynthesizeError;
use crate::progress::Progress;

const ROW_GROUP_ROWS: usize = 262_144;
/// The end of a temporary name.
const UNFINISHED: &str = ".unfinished";

/// How Parquet files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard, level 1.
    #[default]
    Zstd,
}

impl std::str::FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "snappy" => Ok(Self::Snappy),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => Err("give none, snappy, lz4 or zstd".to_owned()),
        }
    }
}

impl From<Compression> for parquet::basic::Compression {
    fn from(compression: Compression) -> Self {
        match compression {
            Compression::None => Self::UNCOMPRESSED,
            Compression::Snappy => Self::SNAPPY,
            Compression::Lz4 => Self::LZ4_RAW,
            Compression::Zstd => Self::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()),
        }
    }
}

/// Where and how a catalogue is written.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// The directory, made if it does not exist.
    pub dir: PathBuf,
    /// The places of the chunks to make in the catalogue's list; all if absent.
    pub chunks: Option<Vec<usize>>,
    /// How files are compressed.
    pub compression: Compression,
    /// Threads, each of which writes a file at a time.
    pub threads: usize,
    /// Whether files of an earlier catalogue are removed.
    pub replace: bool,
}

/// What was written of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSummary {
    /// The table.
    pub name: String,
    /// Its rows.
    pub rows: u64,
    /// Its files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Writes `DIR/TABLE/chunk_NNNNN.parquet` for each table and chunk.
///
/// # Errors
/// Files that are in the way, a full disk and other failures to write, [`Progress::cancel`]. Files that are finished by
/// then stay.
pub fn write_parquet<C: Catalogue + 'static>(
    catalogue: &Arc<C>,
    options: &WriteOptions,
    progress: &Progress,
) -> Result<Vec<TableSummary>, SynthesizeError> {
    let all: Vec<usize> = (0..catalogue.chunks().len()).collect();
    let chunks = options.chunks.as_ref().unwrap_or(&all);
    let tables = catalogue.tables();
    let jobs: Vec<(usize, usize)> = (0..tables.len())
        .flat_map(|table| chunks.iter().map(move |chunk| (table, *chunk)))
        .collect();
    for table in tables {
        let only = options.chunks.is_some().then_some(chunks.as_slice());
        make_room(catalogue.as_ref(), table, only, options)?;
    }
    progress.begin(jobs.iter().map(|(t, c)| catalogue.rows(*t, *c)).sum());
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let work = || {
        let mut written = Vec::new();
        while let Some(&(table, chunk)) = jobs.get(next.fetch_add(1, Relaxed)) {
            if stop.load(Relaxed) {
                break;
            }
            let file = write_chunk(catalogue, table, chunk, options, progress)
                .inspect_err(|_| stop.store(true, Relaxed))?;
            written.push((table, file));
        }
        Ok(written)
    };
    let outcomes = on_threads(options.threads, work);
    let mut summaries: Vec<TableSummary> = tables.iter().map(TableSummary::none).collect();
    for outcome in outcomes {
        for (table, file) in outcome? {
            summaries[table].add(file);
        }
    }
    Ok(summaries)
}

/// Runs the same work on several threads and gives what each of them has made.
fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn() -> Result<T, SynthesizeError> + Sync,
) -> Vec<Result<T, SynthesizeError>> {
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(&work)).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap_or(Err(SynthesizeError::Internal)))
            .collect()
    })
}

impl TableSummary {
    fn none(table: &Table) -> Self {
        Self {
            name: table.name.clone(),
            rows: 0,
            files: 0,
            bytes: 0,
        }
    }

    fn add(&mut self, file: WrittenFile) {
        self.rows += file.rows;
        self.bytes += file.bytes;
        self.files += u64::from(file.rows > 0);
    }
}

struct WrittenFile {
    rows: u64,
    bytes: u64,
}

/// The name of a chunk's file.
fn file_name(chunk: ChunkId) -> String {
    format!("chunk_{:05}.parquet", chunk.0)
}

/// Makes the table's directory and sees to files that are there: all of them if the whole catalogue is made, those of the
/// chunks `only` otherwise, so that several machines can write to one directory.
fn make_room(
    catalogue: &dyn Catalogue,
    table: &Table,
    only: Option<&[usize]>,
    options: &WriteOptions,
) -> Result<(), SynthesizeError> {
    let dir = options.dir.join(&table.name);
    std::fs::create_dir_all(&dir).map_err(|e| SynthesizeError::io("create", &dir, e))?;
    let names: Option<Vec<String>> = only.map(|chunks| {
        chunks
            .iter()
            .map(|c| file_name(catalogue.chunks()[*c]))
            .collect()
    });
    for entry in std::fs::read_dir(&dir).map_err(|e| SynthesizeError::io("list", &dir, e))? {
        let path = entry
            .map_err(|e| SynthesizeError::io("list", &dir, e))?
            .path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let unfinished = name.strip_suffix(UNFINISHED);
        let ours = name.starts_with("chunk_") && unfinished.unwrap_or(name).ends_with(".parquet");
        let concerned = names
            .as_ref()
            .is_none_or(|names| names.iter().any(|n| n == unfinished.unwrap_or(name)));
        if !concerned {
            continue;
        }
        if unfinished.is_none() && !(options.replace && ours) {
            return Err(SynthesizeError::FilesInTheWay { dir, example: path });
        }
        if ours {
            std::fs::remove_file(&path).map_err(|e| SynthesizeError::io("remove", &path, e))?;
        }
    }
    Ok(())
}

/// Writes one file; a chunk without rows gets none.
fn write_chunk<C: Catalogue + 'static>(
    catalogue: &Arc<C>,
    table: usize,
    chunk: usize,
    options: &WriteOptions,
    progress: &Progress,
) -> Result<WrittenFile, SynthesizeError> {
    let description = &catalogue.tables()[table];
    let name = file_name(catalogue.chunks()[chunk]);
    let path = options.dir.join(&description.name).join(&name);
    let mut file = None;
    for batch in catalogue.clone().batches(table, chunk) {
        if progress.is_cancelled() {
            return Err(SynthesizeError::Cancelled);
        }
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        let open = match file.take() {
            Some(open) => open,
            None => UnfinishedFile::create(&path, description, options.compression)?,
        };
        let open = file.insert(open);
        open.write(&batch)?;
        progress.made(batch.num_rows() as u64);
    }
    let Some(file) = file else {
        return Ok(WrittenFile { rows: 0, bytes: 0 });
    };
    let written = file.finish(&path)?;
    progress.finished(written.bytes);
    Ok(written)
}

/// A file under its temporary name, which is removed unless the file is finished.
struct UnfinishedFile {
    path: PathBuf,
    writer: Option<ArrowWriter<File>>,
    rows: u64,
}

impl UnfinishedFile {
    fn create(
        path: &Path,
        table: &Table,
        compression: Compression,
    ) -> Result<Self, SynthesizeError> {
        let mut name = path.as_os_str().to_owned();
        name.push(UNFINISHED);
        let path = PathBuf::from(name);
        let file = File::create(&path).map_err(|e| SynthesizeError::io("create", &path, e))?;
        let mut unfinished = Self {
            path,
            writer: None,
            rows: 0,
        };
        let writer = ArrowWriter::try_new(
            file,
            table.schema.clone(),
            Some(properties(table, compression)),
        )
        .map_err(|e| unfinished.failed(e))?;
        unfinished.writer = Some(writer);
        Ok(unfinished)
    }

    fn failed(&self, error: parquet::errors::ParquetError) -> SynthesizeError {
        SynthesizeError::parquet("write", &self.path, error)
    }

    fn write(&mut self, batch: &arrow::array::RecordBatch) -> Result<(), SynthesizeError> {
        let Some(writer) = &mut self.writer else {
            return Ok(());
        };
        self.rows += batch.num_rows() as u64;
        writer
            .write(batch)
            .map_err(|e| SynthesizeError::parquet("write", &self.path, e))
    }

    fn finish(mut self, path: &Path) -> Result<WrittenFile, SynthesizeError> {
        if let Some(writer) = self.writer.take() {
            writer.close().map_err(|e| self.failed(e))?;
        }
        let bytes = std::fs::metadata(&self.path)
            .map_err(|e| SynthesizeError::io("read", &self.path, e))?
            .len();
        std::fs::rename(&self.path, path)
            .map_err(|e| SynthesizeError::io("rename", &self.path, e))?;
        Ok(WrittenFile {
            rows: self.rows,
            bytes,
        })
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // A finished file has left this name; what cannot be removed is removed by the next run.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Numbers that hardly repeat get no dictionary, integers are stored as differences (keys count up), and only what a
/// reader may look for (keys, positions, times: whatever has 64 bits) gets statistics.
fn properties(table: &Table, compression: Compression) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(compression.into())
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_statistics_enabled(EnabledStatistics::Chunk);
    for field in table.schema.fields() {
        let path = ColumnPath::from(field.name().as_str());
        let is_noise = field.data_type().is_numeric() && !table.few_values.contains(field.name());
        if is_noise {
            builder = builder.set_column_dictionary_enabled(path.clone(), false);
        }
        if is_noise && *field.data_type() == DataType::Int64 {
            builder = builder.set_column_encoding(path.clone(), Encoding::DELTA_BINARY_PACKED);
        }
        if *field.data_type() == DataType::Float32 {
            builder = builder.set_column_statistics_enabled(path, EnabledStatistics::None);
        }
    }
    builder.build()
}
