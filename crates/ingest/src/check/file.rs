//! One file of a table: its bytes, its numbers, its rows.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use catalog::{Chunk, OverlapFile, TableKind};
use futures::StreamExt;
use sky::ChunkId;
use store::{ChunkFile, ScanRequest};

use super::rows::{RowCheck, RowRules};
use super::{Problem, store_problem};

/// What the catalog says of a file.
pub(super) struct FileCheck {
    path: PathBuf,
    chunk: ChunkId,
    /// Whether it holds the chunk's own rows; else it is its overlap.
    own: bool,
    rows: u64,
    bytes: u64,
    checksum: u64,
    rules: Arc<RowRules>,
}

/// What was seen in a file that is right.
pub(super) struct Seen {
    pub own: bool,
    pub rows: u64,
    pub homes: [u64; 2],
}

impl FileCheck {
    pub(super) fn of_chunk(path: PathBuf, chunk: &Chunk, rules: Arc<RowRules>) -> Self {
        Self {
            path,
            chunk: chunk.chunk,
            own: true,
            rows: chunk.rows,
            bytes: chunk.bytes,
            checksum: chunk.checksum,
            rules,
        }
    }

    pub(super) fn of_overlap(
        path: PathBuf,
        chunk: ChunkId,
        file: OverlapFile,
        rules: Arc<RowRules>,
    ) -> Self {
        Self {
            path,
            chunk,
            own: false,
            rows: file.rows,
            bytes: file.bytes,
            checksum: file.checksum,
            rules,
        }
    }

    fn problem(&self, what: impl Into<String>) -> Problem {
        Problem {
            file: Some(self.path.clone()),
            what: what.into(),
        }
    }

    /// Checks the file; the first problem is told.
    pub(super) async fn run(self) -> Result<Seen, Problem> {
        let wrong = |error: store::StoreError| store_problem(&error, Some(&self.path));
        let file = ChunkFile::open(&self.path).await.map_err(wrong)?;
        file.verify().await.map_err(wrong)?;
        self.check_numbers(&file)?;
        self.check_directory(&file)?;
        self.check_rows(&file).await
    }

    fn check_numbers(&self, file: &ChunkFile) -> Result<(), Problem> {
        for (what, found, said) in [
            ("bytes", file.num_bytes(), self.bytes),
            ("rows", file.num_rows(), self.rows),
            ("as its checksum", file.checksum(), self.checksum),
        ] {
            if found != said {
                return Err(self.problem(format!(
                    "it has {found} {what}, but {said} according to the catalog: it is not the file that was loaded"
                )));
            }
        }
        Ok(())
    }

    fn check_directory(&self, file: &ChunkFile) -> Result<(), Problem> {
        let directory = file.directory();
        let partitioned = self.own && self.rules.spec.kind != TableKind::Replicated;
        if partitioned && directory.rows() != file.num_rows() {
            return Err(self.problem("its directory of sub-chunks does not cover all rows"));
        }
        if !partitioned {
            return Ok(());
        }
        let known = self.rules.chunker.sub_chunks_of(self.chunk);
        match directory
            .entries()
            .iter()
            .find(|entry| known.binary_search(&entry.sub_chunk).is_err())
        {
            Some(entry) => {
                let (sub_chunk, chunk) = (entry.sub_chunk, self.chunk);
                Err(self.problem(format!(
                    "its directory has sub-chunk {sub_chunk}, which chunk {chunk} does not have"
                )))
            }
            None => Ok(()),
        }
    }

    async fn check_rows(&self, file: &Arc<ChunkFile>) -> Result<Seen, Problem> {
        let mut check = RowCheck::new(&self.rules, file.schema(), self.chunk, self.own)
            .map_err(|what| self.problem(what))?;
        let projection = check.columns().to_vec();
        let schema = file.schema().project(&projection);
        let schema = schema.map_err(|e| self.problem(e.to_string()))?;
        let mut batches = file.scan(ScanRequest {
            projection,
            filter: None,
            hints: Vec::new(),
            condition: None,
            ranges: None,
            sorted: None,
            schema: Arc::new(schema),
        });
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            let batch = batch.map_err(|e| store_problem(&e, Some(&self.path)))?;
            if let ControlFlow::Break(what) = check.look_at(&batch, rows, file.directory()) {
                return Err(self.problem(what));
            }
            rows += batch.num_rows() as u64;
        }
        if rows != file.num_rows() {
            return Err(self.problem(format!("{rows} rows can be read of {}", file.num_rows())));
        }
        Ok(Seen {
            own: self.own,
            rows,
            homes: check.homes(),
        })
    }
}
