//! The rows of a table by whose keys pairs are placed: read chunk by chunk for their keys and positions.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, UInt64Type};
use catalog::{Chunk, LoadId, Table, fold_name};
use futures::StreamExt;
use futures::future::BoxFuture;
use sky::{ChunkId, LonLat};
use store::{
    ByteSource, ChunkFile, IndexWriter, LoadDir, OpenFiles, ScanRequest, StoreError, arrow_schema,
};
use tokio::runtime::Handle;

use super::PlaceContext;
use crate::error::IngestError;
use crate::key_map::{KeyMap, keys_of};
use crate::memory::MemoryBudget;
use crate::position::{PositionColumns, Positions};
use crate::row_batch::{Place, placed_batch, placed_schema};
use crate::sort::{SortColumns, Sorter};

/// Files that are kept open.
const OPEN_FILES: usize = 16;
/// The share of the run buffers for own keys that are sorted, before any pair is read.
const KEYS_SHARE: f64 = 0.5;

/// Parts whose files are in another data directory, as that directory knows them.
pub trait PartFiles: std::fmt::Debug + Send + Sync {
    /// The chunks of a part.
    ///
    /// # Errors
    /// The part is not known.
    fn chunks(&self, part: LoadId) -> Result<Vec<Chunk>, StoreError>;

    /// What a chunk file is read from; `file` is the chunk after which it is named.
    fn source(
        &self,
        part: LoadId,
        file: ChunkId,
    ) -> BoxFuture<'_, Result<Arc<dyn ByteSource>, StoreError>>;
}

/// Where the chunk files of a table are.
pub(crate) enum ChunkFiles<'a> {
    /// In the directories of its parts, in their order.
    Here(&'a [LoadDir]),
    /// In another data directory.
    Elsewhere(&'a Arc<dyn PartFiles>),
}

/// A chunk file.
enum EndFile {
    Here(PathBuf),
    Elsewhere {
        /// The name by which it is kept open.
        name: PathBuf,
        part: LoadId,
        file: ChunkId,
    },
}

/// The chunk files of a table, of which the key and, where the rows have them, the positions are read.
pub(crate) struct EndRows {
    name: String,
    files: BTreeMap<ChunkId, Vec<EndFile>>,
    /// Who has them, if they are in another data directory.
    elsewhere: Option<Arc<dyn PartFiles>>,
    /// The key, then right ascension and declination.
    columns: SchemaRef,
    open: OpenFiles,
    runtime: Handle,
}

impl std::fmt::Debug for EndRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the rows of {}", self.name)
    }
}

impl EndFile {
    /// A file of the part with this number; `None` if there is no such part.
    fn of(table: &Table, number: usize, file: ChunkId, from: &ChunkFiles<'_>) -> Option<Self> {
        Some(match from {
            ChunkFiles::Here(dirs) => Self::Here(dirs.get(number)?.chunk_path(file)),
            ChunkFiles::Elsewhere(_) => {
                let part = table.parts.get(number)?.load;
                Self::Elsewhere {
                    name: PathBuf::from(format!("part {part}, chunk {file}")),
                    part,
                    file,
                }
            }
        })
    }
}

impl EndRows {
    /// The rows of a table with these chunks, each with the number of its part. `None` for a table without a key. `runtime` is where the
    /// files are read.
    pub(crate) fn new(
        table: &Table,
        chunks: &[(usize, Chunk)],
        from: &ChunkFiles<'_>,
        runtime: Handle,
    ) -> Option<Self> {
        let spec = &table.spec;
        let schema = arrow_schema(&spec.columns);
        let find = |name: &String| {
            let folded = fold_name(name);
            let mut fields = schema.fields().iter();
            fields.position(|field| fold_name(field.name()) == folded)
        };
        let mut wanted = vec![find(spec.key.as_ref()?)?];
        if let Some(position) = &spec.position {
            wanted.extend([find(&position.ra)?, find(&position.dec)?]);
        }
        let mut files: BTreeMap<ChunkId, Vec<EndFile>> = BTreeMap::new();
        for (number, chunk) in chunks {
            let file = EndFile::of(table, *number, chunk.file, from)?;
            files.entry(chunk.chunk).or_default().push(file);
        }
        Some(Self {
            name: spec.name.clone(),
            files,
            elsewhere: match from {
                ChunkFiles::Here(_) => None,
                ChunkFiles::Elsewhere(files) => Some(Arc::clone(files)),
            },
            columns: Arc::new(schema.project(&wanted).ok()?),
            open: OpenFiles::new(OPEN_FILES),
            runtime,
        })
    }

    /// Whether its rows have positions of their own.
    pub(crate) fn has_positions(&self) -> bool {
        self.columns.fields().len() == 3
    }

    /// The positions of the rows of a chunk, by their keys; without those that have none.
    pub(crate) fn positions(&self, chunk: ChunkId) -> Result<HashMap<i64, LonLat>, IngestError> {
        let mut found = HashMap::new();
        if !self.has_positions() {
            return Ok(found);
        }
        self.read(chunk, self.columns.fields().len(), |_, _, batch| {
            let (keys, has_key) = keys_of(batch.column(0))?;
            let positions = Positions::read(batch.columns(), PositionColumns { ra: 1, dec: 2 })?;
            for (row, key) in keys.iter().enumerate() {
                if has_key[row] && positions.has(row) {
                    let (ra, dec) = (positions.ra[row], positions.dec[row]);
                    found.insert(*key, LonLat::from_degrees(ra, dec)?);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Where its keys are, and whether each is in one place only; of others it gives the first place.
    pub(crate) fn places(
        &self,
        context: &PlaceContext,
        memory: u64,
    ) -> Result<(KeyMap, bool), IngestError> {
        let (dir, in_one_place) = self.write_places(&context.budget, &context.spill_dir)?;
        Ok((KeyMap::open(&[dir], memory)?, in_one_place))
    }

    /// Writes a run of its keys with their places below `spill_dir`. Gives its directory, and whether each key is in one place only; of
    /// others the run has the first place.
    pub(crate) fn write_places(
        &self,
        budget: &Arc<MemoryBudget>,
        spill_dir: &Path,
    ) -> Result<(PathBuf, bool), IngestError> {
        let columns: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("key", DataType::Int64, false),
            Field::new("place", DataType::UInt64, false),
        ]));
        let by_key = SortColumns {
            key: Some(0),
            order: Some(1),
        };
        let keys = Sorter::new(
            "end-keys",
            placed_schema(&columns),
            by_key,
            Arc::clone(budget),
            KEYS_SHARE,
            spill_dir.to_owned(),
        );
        self.sort_keys(&keys)?;
        let dir = spill_dir.join(format!("keys-of-{}", fold_name(&self.name)));
        let mut index = IndexWriter::create(&dir)?;
        let mut last: Option<(i64, u64)> = None;
        let mut in_one_place = true;
        for batch in keys.take_sorted()? {
            let batch = batch?;
            let keys = batch.column(0).as_primitive::<Int64Type>().values();
            let places = batch.column(1).as_primitive::<UInt64Type>().values();
            for (key, place) in keys.iter().zip(places) {
                match last {
                    Some((before, first)) if before == *key => in_one_place &= first == *place,
                    _ => {
                        index.push(*key, Place(*place).location(), false)?;
                        last = Some((*key, *place));
                    }
                }
            }
        }
        index.finish()?;
        Ok((dir, in_one_place))
    }

    /// Puts each key with its place into a sorter.
    fn sort_keys(&self, sorter: &Sorter) -> Result<(), IngestError> {
        let mut input = sorter.input();
        let mut number = 0;
        for chunk in self.files.keys() {
            self.read(*chunk, 1, |file, first, batch| {
                let (keys, has_key) = keys_of(batch.column(0))?;
                let mut placed = (Vec::new(), Vec::new());
                for (row, key) in keys.iter().enumerate() {
                    let entry = file.directory().entry_of_row(first + row as u64);
                    if let Some(entry) = entry.filter(|_| has_key[row]) {
                        placed.0.push(*key);
                        placed.1.push(Place::new(*chunk, entry.sub_chunk).0);
                    }
                }
                let (keys, places) = placed;
                let rows: Vec<u64> = (number..number + keys.len() as u64).collect();
                number += keys.len() as u64;
                // All in one place, so that they are sorted by key alone.
                let nowhere = vec![0; keys.len()];
                let columns: [ArrayRef; 2] = [
                    Arc::new(Int64Array::from(keys)),
                    Arc::new(UInt64Array::from(places)),
                ];
                input.push(placed_batch(sorter.schema(), &columns, nowhere, rows)?)
            })?;
        }
        input.finish()
    }

    async fn open(&self, file: &EndFile, chunk: ChunkId) -> Result<Arc<ChunkFile>, StoreError> {
        match (file, &self.elsewhere) {
            (EndFile::Here(path), _) => self.open.get(path, chunk).await,
            (EndFile::Elsewhere { name, part, file }, Some(files)) => {
                let source = files.source(*part, *file);
                self.open.get_from(name, chunk, source).await
            }
            (EndFile::Elsewhere { name, .. }, None) => {
                Err(StoreError::Missing { path: name.clone() })
            }
        }
    }

    /// Reads the first `width` columns of a chunk in all parts; `take` gets each batch with its file and the number of its first row.
    fn read(
        &self,
        chunk: ChunkId,
        width: usize,
        mut take: impl FnMut(&ChunkFile, u64, &RecordBatch) -> Result<(), IngestError>,
    ) -> Result<(), IngestError> {
        let wanted: Vec<usize> = (0..width).collect();
        let schema = Arc::new(self.columns.project(&wanted)?);
        for file in self.files.get(&chunk).into_iter().flatten() {
            let file = self.runtime.block_on(self.open(file, chunk))?;
            let names = schema.fields().iter().map(|field| field.name());
            let projection: Result<Vec<usize>, _> =
                names.map(|name| file.schema().index_of(name)).collect();
            let mut batches = file.scan(ScanRequest {
                projection: projection?,
                filter: None,
                hints: Vec::new(),
                condition: None,
                ranges: None,
                sorted: None,
                sharers: 0,
                counters: None,
                schema: Arc::clone(&schema),
            });
            let mut first = 0;
            while let Some(batch) = self.runtime.block_on(batches.next()) {
                let batch = batch?;
                take(&file, first, &batch)?;
                first += batch.num_rows() as u64;
            }
        }
        Ok(())
    }
}
