//! The writing of region files, chunk by chunk.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Schema, SchemaRef};
use arrow::ipc::writer::FileWriter;
use sky::{Chunker, Location, LonLat};

use crate::directory::{DIRECTORY, DirectoryWriter, SubChunkRows, write_failed};
use crate::error::RegionFilesError;
use crate::index::{Bounds, ChunkFile, ColumnDescription, INDEX, Index, Partitioning, Source};
use crate::metadata;
use crate::summed::SummedFile;

/// Rows of a record batch. A reader takes the batches that have rows of the sub-chunks that it wants: 8,192 rows of ten numbers are
/// 0.6 MB, and a message of a kilobyte says where they are.
pub const ROWS_PER_BATCH: usize = 8_192;
/// What is kept of what is said of a column.
const WORDS: [&str; 5] = ["unit", "ucd", "utype", "xtype", "description"];

/// What the files are of.
#[derive(Debug, Clone)]
pub struct TableDescription {
    /// The table.
    pub source: Source,
    /// How the sky is cut.
    pub partitioning: Partitioning,
    /// The column by which rows of a sub-chunk are sorted, if there is one.
    pub key: Option<String>,
    /// The columns with right ascension and declination, degrees.
    pub position: [String; 2],
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionsReport {
    /// Rows.
    pub rows: u64,
    /// Files of rows.
    pub files: usize,
    /// Bytes of all files but the index.
    pub bytes: u64,
}

/// Writes a directory of region files.
///
/// Rows come in the order of their chunks, then of their sub-chunks; of them a record batch and the directory's are in memory.
pub struct RegionWriter {
    dir: PathBuf,
    schema: SchemaRef,
    table: TableDescription,
    chunker: Chunker,
    /// The columns of the position.
    position: [usize; 2],
    open: Option<OpenChunk>,
    directory: DirectoryWriter,
    chunks: Vec<ChunkFile>,
    locations: Vec<Location>,
}

impl RegionWriter {
    /// Begins to write into a directory, which is there and empty.
    ///
    /// # Errors
    /// A column has a type that the files do not hold, or nothing can be written.
    pub fn begin(
        dir: &Path,
        schema: &Schema,
        table: TableDescription,
    ) -> Result<Self, RegionFilesError> {
        let column = |name: &String| {
            schema
                .index_of(name)
                .map_err(|_| RegionFilesError::NoColumn {
                    name: name.clone(),
                    known: names_of(schema),
                })
        };
        let position = [column(&table.position[0])?, column(&table.position[1])?];
        let schema = file_schema(schema, position)?;
        let Partitioning {
            stripes,
            sub_stripes,
        } = table.partitioning;
        let chunker = Chunker::new(stripes, sub_stripes)?;
        let chunks = dir.join("chunks");
        fs::create_dir(&chunks).map_err(RegionFilesError::io("make", &chunks))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            directory: DirectoryWriter::create(dir)?,
            schema,
            table,
            chunker,
            position,
            open: None,
            chunks: Vec::new(),
            locations: Vec::new(),
        })
    }

    /// Writes rows, each of which has a position.
    ///
    /// # Errors
    /// One has none, or is of an earlier chunk or sub-chunk than one before; or nothing can be written.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), RegionFilesError> {
        let batch = self.as_in_file(batch)?;
        let places = self.places(&batch)?;
        let mut locations = std::mem::take(&mut self.locations);
        locations.clear();
        locations.extend(places.iter().map(|place| self.chunker.locate(*place)));
        let mut from = 0;
        while from < locations.len() {
            let chunk = locations[from].chunk;
            let same = locations[from..].iter().take_while(|it| it.chunk == chunk);
            let to = from + same.count();
            let rows = batch.slice(from, to - from);
            self.open_chunk(locations[from])?.add(
                &rows,
                &locations[from..to],
                &places[from..to],
            )?;
            from = to;
        }
        self.locations = locations;
        Ok(())
    }

    /// The rows in the types of the files.
    fn as_in_file(&self, batch: &RecordBatch) -> Result<RecordBatch, RegionFilesError> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns =
            columns.map(
                |(column, field)| match column.data_type() == field.data_type() {
                    true => Ok(Arc::clone(column)),
                    false => cast(column, field.data_type()),
                },
            );
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    fn places(&self, batch: &RecordBatch) -> Result<Vec<LonLat>, RegionFilesError> {
        let [ra, dec] = self
            .position
            .map(|at| batch.column(at).as_primitive::<Float64Type>());
        if ra.null_count() + dec.null_count() > 0 {
            return Err(RegionFilesError::NoPosition);
        }
        let places = ra.values().iter().zip(dec.values().iter());
        let places = places.map(|(&ra, &dec)| LonLat::from_degrees(ra, dec));
        Ok(places.collect::<Result<Vec<_>, _>>()?)
    }

    /// The file of the chunk of a row, which is begun where it is not open; what was open is ended.
    fn open_chunk(&mut self, row: Location) -> Result<&mut OpenChunk, RegionFilesError> {
        let open = match self.open.take() {
            Some(open) if open.chunk == row.chunk.0 => open,
            before => {
                self.end_chunk(before)?;
                if self
                    .chunks
                    .last()
                    .is_some_and(|last| last.chunk >= row.chunk.0)
                {
                    return Err(RegionFilesError::Order {
                        chunk: row.chunk.0,
                        sub_chunk: row.sub_chunk.0,
                    });
                }
                OpenChunk::create(&self.dir, row.chunk.0, &self.schema)?
            }
        };
        Ok(self.open.insert(open))
    }

    fn end_chunk(&mut self, open: Option<OpenChunk>) -> Result<(), RegionFilesError> {
        let Some(open) = open else {
            return Ok(());
        };
        let first_sub_chunk = self.directory.len();
        let (file, sub_chunks) = open.finish(first_sub_chunk)?;
        for rows in sub_chunks {
            self.directory.add(file.chunk, rows)?;
        }
        self.chunks.push(file);
        Ok(())
    }

    /// Ends the files; all of them are on disk then.
    ///
    /// # Errors
    /// No row was written, or nothing can be written.
    pub fn finish(mut self) -> Result<RegionsReport, RegionFilesError> {
        let open = self.open.take();
        self.end_chunk(open)?;
        if self.chunks.is_empty() {
            return Err(RegionFilesError::Empty);
        }
        let directory = self.directory.finish()?;
        // What `sha256sum --check` reads.
        let mut sums = format!("{}  {DIRECTORY}\n", directory.sha256);
        for file in &self.chunks {
            sums += &format!("{}  {}\n", file.sha256, Index::name_of(file.chunk));
        }
        write_file(self.dir.join("SHA256SUMS"), sums.as_bytes())?;
        let of_rows: u64 = self.chunks.iter().map(|file| file.bytes).sum();
        let written = RegionsReport {
            rows: self.chunks.iter().map(|file| file.rows).sum(),
            files: self.chunks.len(),
            bytes: of_rows + directory.bytes,
        };
        let TableDescription {
            source,
            partitioning,
            key,
            position,
        } = self.table;
        let columns = self.schema.fields().iter().map(described).collect();
        let per_batch = ROWS_PER_BATCH as u64;
        let index = Index::new(
            source,
            partitioning,
            key,
            position,
            columns,
            per_batch,
            directory,
            self.chunks,
        );
        write_file(self.dir.join(INDEX), &serde_json::to_vec(&index)?)?;
        Ok(written)
    }
}

fn write_file(path: PathBuf, bytes: &[u8]) -> Result<(), RegionFilesError> {
    let mut file = SummedFile::create(path.clone())?;
    file.write_all(bytes)
        .map_err(RegionFilesError::io("write", &path))?;
    file.finish().map(drop)
}

/// The file of a chunk that is being written.
struct OpenChunk {
    chunk: i32,
    path: PathBuf,
    schema: SchemaRef,
    writer: FileWriter<SummedFile>,
    /// Rows that are not yet a whole record batch.
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    rows: u64,
    sub_chunks: Vec<SubChunkRows>,
}

impl OpenChunk {
    fn create(dir: &Path, chunk: i32, schema: &SchemaRef) -> Result<Self, RegionFilesError> {
        let path = Index::path_of(dir, chunk);
        let file = SummedFile::create(path.clone())?;
        Ok(Self {
            chunk,
            writer: FileWriter::try_new(file, schema)
                .map_err(|error| write_failed(error, &path))?,
            path,
            schema: Arc::clone(schema),
            pending: Vec::new(),
            pending_rows: 0,
            rows: 0,
            sub_chunks: Vec::new(),
        })
    }

    fn add(
        &mut self,
        rows: &RecordBatch,
        locations: &[Location],
        places: &[LonLat],
    ) -> Result<(), RegionFilesError> {
        for (location, place) in locations.iter().zip(places) {
            self.note(location.sub_chunk.0, Bounds::of(*place))?;
        }
        let mut left = rows.clone();
        while left.num_rows() > 0 {
            let now = left.num_rows().min(ROWS_PER_BATCH - self.pending_rows);
            self.pending.push(left.slice(0, now));
            self.pending_rows += now;
            left = left.slice(now, left.num_rows() - now);
            if self.pending_rows == ROWS_PER_BATCH {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Counts a row to its sub-chunk.
    fn note(&mut self, sub_chunk: i32, place: Bounds) -> Result<(), RegionFilesError> {
        match self.sub_chunks.last_mut() {
            Some(last) if last.sub_chunk == sub_chunk => {
                last.rows += 1;
                last.bounds = last.bounds.with(place);
            }
            Some(last) if last.sub_chunk > sub_chunk => {
                let chunk = self.chunk;
                return Err(RegionFilesError::Order { chunk, sub_chunk });
            }
            _ => self.sub_chunks.push(SubChunkRows {
                sub_chunk,
                first_row: self.rows,
                rows: 1,
                bounds: place,
            }),
        }
        self.rows += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), RegionFilesError> {
        let batch = concat_batches(&self.schema, &self.pending)?;
        self.pending.clear();
        self.pending_rows = 0;
        let written = self.writer.write(&batch);
        written.map_err(|error| write_failed(error, &self.path))
    }

    /// Ends the file, which is then on disk.
    fn finish(
        mut self,
        first_sub_chunk: u64,
    ) -> Result<(ChunkFile, Vec<SubChunkRows>), RegionFilesError> {
        if self.pending_rows > 0 {
            self.flush()?;
        }
        let bounds = self.sub_chunks.iter().map(|it| it.bounds);
        let bounds = bounds.reduce(Bounds::with).ok_or(RegionFilesError::Empty)?;
        let ended = self.writer.into_inner();
        let (bytes, sha256) = ended
            .map_err(|error| write_failed(error, &self.path))?
            .finish()?;
        let written = File::open(&self.path).map_err(RegionFilesError::io("read", &self.path))?;
        let metadata_sha256 = metadata::checksum(&written, bytes)
            .map_err(RegionFilesError::io("read", &self.path))?;
        let file = ChunkFile {
            chunk: self.chunk,
            rows: self.rows,
            bytes,
            sha256,
            metadata_sha256,
            first_sub_chunk,
            sub_chunks: self.sub_chunks.len() as u64,
            bounds,
        };
        Ok((file, self.sub_chunks))
    }
}

/// The columns of the files: what is said of them, and types that all readers know.
fn file_schema(schema: &Schema, position: [usize; 2]) -> Result<SchemaRef, RegionFilesError> {
    let field = |(at, field): (usize, &FieldRef)| {
        let data_type = match field.data_type() {
            number if position.contains(&at) && number.is_numeric() => DataType::Float64,
            _ if position.contains(&at) => return Err(unfit(field)),
            DataType::Utf8View | DataType::Utf8 => DataType::Utf8,
            DataType::BinaryView | DataType::Binary => DataType::Binary,
            plain if plain.is_primitive() || *plain == DataType::Boolean => plain.clone(),
            _ => return Err(unfit(field)),
        };
        let said = field.metadata().iter();
        let said = said.filter(|(word, _)| WORDS.contains(&word.as_str()));
        let said = said.map(|(word, text)| (word.clone(), text.clone()));
        Ok(Field::new(field.name(), data_type, field.is_nullable()).with_metadata(said.collect()))
    };
    let fields = schema.fields().iter().enumerate().map(field);
    Ok(Arc::new(Schema::new(
        fields.collect::<Result<Vec<_>, _>>()?,
    )))
}

fn unfit(field: &Field) -> RegionFilesError {
    RegionFilesError::Type {
        column: field.name().clone(),
        data_type: field.data_type().to_string(),
    }
}

pub(crate) fn names_of(schema: &Schema) -> Vec<String> {
    let fields = schema.fields().iter();
    fields.map(|field| field.name().clone()).collect()
}

fn described(field: &FieldRef) -> ColumnDescription {
    let said = |word: &str| field.metadata().get(word).cloned();
    ColumnDescription {
        name: field.name().clone(),
        data_type: field.data_type().to_string(),
        nullable: field.is_nullable(),
        unit: said("unit"),
        ucd: said("ucd"),
        description: said("description"),
    }
}
