//! The rows of a loaded table as the input of another load: each of its chunks is a part.

use std::fmt;
use std::sync::Arc;

use arrow::array::{AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int32Type, Schema, SchemaRef};
use catalog::{Chunk, Table, TableKind};
use futures::StreamExt;
use store::{LoadDir, OpenFiles, ScanRequest, arrow_schema, numbers_in_file};
use tokio::runtime::Handle;

use crate::format::made::{MadeBatches, RowSource};
use crate::place::matches::{ELSEWHERE, HOME_COLUMNS, home_fields};

/// Files that are kept open: threads read chunks near each other.
const OPEN_FILES: usize = 64;

/// The parts of a table, kept from being removed while they are read.
pub(crate) struct StoredRows {
    table: Table,
    /// The chunks of all parts, each with the number of its part's directory.
    chunks: Vec<(usize, Chunk)>,
    dirs: Vec<LoadDir>,
    /// A file may hold several chunks.
    files: OpenFiles,
    /// What is read of each file: the declared columns and, of a match table, the pair's left home.
    schema: SchemaRef,
    runtime: Handle,
}

impl fmt::Debug for StoredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rows of {}", self.table.spec.name)
    }
}

impl StoredRows {
    /// `runtime` is where the files are read.
    pub(crate) fn new(table: Table, parts: Vec<(Vec<Chunk>, LoadDir)>, runtime: Handle) -> Self {
        let (mut chunks, mut dirs) = (Vec::new(), Vec::with_capacity(parts.len()));
        for (number, (of_part, dir)) in parts.into_iter().enumerate() {
            chunks.extend(of_part.into_iter().map(|chunk| (number, chunk)));
            dirs.push(dir);
        }
        let declared = arrow_schema(&table.spec.columns);
        let schema = match table.spec.kind {
            TableKind::Match => {
                let [left_home, _] = home_fields().map(Arc::new);
                let fields = declared.fields().iter().cloned().chain([left_home]);
                Arc::new(Schema::new(fields.collect::<Vec<_>>()))
            }
            _ => declared,
        };
        Self {
            table,
            chunks,
            dirs,
            files: OpenFiles::new(OPEN_FILES),
            schema,
            runtime,
        }
    }

    async fn open(&self, part: usize) -> Result<store::BatchStream, String> {
        let (number, chunk) = &self.chunks[part];
        let path = self.dirs[*number].chunk_path(chunk.file);
        let file = self.files.get(&path, chunk.chunk).await;
        let file = file.map_err(|e| e.to_string())?;
        let projection = numbers_in_file(&self.schema, file.schema());
        Ok(file.scan(ScanRequest {
            projection: projection.map_err(|e| format!("{}: {e}", path.display()))?,
            filter: None,
            hints: Vec::new(),
            condition: None,
            ranges: None,
            sorted: None,
            sharers: 0,
            counters: None,
            schema: self.schema.clone(),
        }))
    }
}

impl RowSource for StoredRows {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn parts(&self) -> usize {
        self.chunks.len()
    }

    fn part_name(&self, part: usize) -> String {
        format!(
            "{} in chunk {}",
            self.table.spec.name, self.chunks[part].1.chunk
        )
    }

    fn part_rows(&self, part: usize) -> u64 {
        self.chunks[part].1.rows
    }

    fn make_part(&self, part: usize) -> MadeBatches {
        let mut batches = match self.runtime.block_on(self.open(part)) {
            Ok(batches) => batches,
            Err(error) => return Box::new(std::iter::once(Err(error))),
        };
        let runtime = self.runtime.clone();
        Box::new(std::iter::from_fn(move || {
            let batch = runtime.block_on(batches.next())?;
            Some(batch.map_err(|e| e.to_string()).and_then(once_each))
        }))
    }
}

/// Leaves a pair of a match table out where it is stored for its right end only: it is read where its left end is.
fn once_each(batch: RecordBatch) -> Result<RecordBatch, String> {
    let Some(homes) = batch.column_by_name(HOME_COLUMNS[0]) else {
        return Ok(batch);
    };
    let homes = homes.as_primitive::<Int32Type>();
    let is_home = |home: Option<i32>| Some(home != Some(ELSEWHERE));
    let kept: BooleanArray = homes.iter().map(is_home).collect();
    filter_record_batch(&batch, &kept).map_err(|e| e.to_string())
}
