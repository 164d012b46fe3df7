//! One file of a table: its bytes, its numbers, its rows.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use catalog::{Chunk, TableKind};
use futures::StreamExt;
use sky::ChunkId;
use store::{ChunkFile, OpenFile, ScanRequest};

use super::rows::{RowCheck, RowRules};
use super::{Problem, store_problem};

/// What the catalog says of a file.
pub(super) struct FileCheck {
    path: PathBuf,
    /// Whether it holds the chunks' own rows; else it is their overlaps.
    own: bool,
    chunks: Vec<ChunkCheck>,
    rules: Arc<RowRules>,
}

/// What the catalog says of a chunk in a file.
struct ChunkCheck {
    chunk: ChunkId,
    rows: u64,
    bytes: u64,
    checksum: u64,
    strays: u64,
}

/// What was seen in a file that is right.
pub(super) struct FileContents {
    pub own: bool,
    pub rows: u64,
    pub homes: [u64; 2],
}

impl FileCheck {
    /// A check of the file of these chunks' own rows.
    pub(super) fn of_chunks<'a>(
        path: PathBuf,
        chunks: impl IntoIterator<Item = &'a Chunk>,
        rules: Arc<RowRules>,
    ) -> Self {
        let check = |chunk: &Chunk| ChunkCheck {
            chunk: chunk.chunk,
            rows: chunk.rows,
            bytes: chunk.bytes,
            checksum: chunk.checksum,
            strays: chunk.strays,
        };
        Self {
            path,
            own: true,
            chunks: chunks.into_iter().map(check).collect(),
            rules,
        }
    }

    /// A check of the file of these chunks' overlaps.
    pub(super) fn of_overlaps<'a>(
        path: PathBuf,
        chunks: impl IntoIterator<Item = &'a Chunk>,
        strays: u64,
        rules: Arc<RowRules>,
    ) -> Self {
        let check = |chunk: &Chunk| {
            chunk.overlap.map(|overlap| ChunkCheck {
                chunk: chunk.chunk,
                rows: overlap.rows,
                bytes: overlap.bytes,
                checksum: overlap.checksum,
                strays,
            })
        };
        Self {
            path,
            own: false,
            chunks: chunks.into_iter().filter_map(check).collect(),
            rules,
        }
    }

    /// Whether there is nothing to check.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether workers of a cluster alone have it.
    pub(super) fn is_away(&self) -> bool {
        store::is_away(&self.path)
    }

    /// Whether an object store alone has it.
    pub(super) fn is_at_home(&self) -> bool {
        store::is_at_home(&self.path)
    }

    fn problem(&self, what: impl Into<String>) -> Problem {
        Problem {
            file: Some(self.path.clone()),
            what: what.into(),
        }
    }

    /// Checks the file; the first problem is told.
    pub(super) async fn run(self) -> Result<FileContents, Problem> {
        let wrong = |error: store::StoreError| store_problem(&error, Some(&self.path));
        let file = OpenFile::open(&self.path).await.map_err(wrong)?;
        file.verify().await.map_err(wrong)?;
        self.check_chunks(&file)?;
        let mut seen = FileContents {
            own: self.own,
            rows: 0,
            homes: [0; 2],
        };
        for said in &self.chunks {
            let chunk = file.chunk(said.chunk).map_err(wrong)?;
            let of_chunk = async {
                self.check_numbers(&chunk, said)?;
                self.check_directory(&chunk, said)?;
                self.check_rows(&chunk, said).await
            };
            let homes = of_chunk.await.map_err(|problem| match self.chunks.len() {
                1 => problem,
                _ => self.problem(format!("chunk {}: {}", said.chunk, problem.what)),
            })?;
            seen.rows += said.rows;
            seen.homes = [seen.homes[0] + homes[0], seen.homes[1] + homes[1]];
        }
        Ok(seen)
    }

    /// Whether a file that says which chunks it holds has none but those that the catalog says.
    fn check_chunks(&self, file: &OpenFile) -> Result<(), Problem> {
        let said = |chunk: &ChunkId| self.chunks.iter().any(|said| said.chunk == *chunk);
        match file.chunks().iter().find(|chunk| !said(chunk)) {
            Some(chunk) => Err(self.problem(format!(
                "it holds rows of chunk {chunk}, which is not in it according to the catalog"
            ))),
            None => Ok(()),
        }
    }

    fn check_numbers(&self, file: &ChunkFile, said: &ChunkCheck) -> Result<(), Problem> {
        for (what, found, said) in [
            ("bytes", file.num_bytes(), said.bytes),
            ("rows", file.num_rows(), said.rows),
            ("as its checksum", file.checksum(), said.checksum),
        ] {
            if found != said {
                return Err(self.problem(format!(
                    "it has {found} {what}, but {said} according to the catalog: it is not the file that was loaded"
                )));
            }
        }
        Ok(())
    }

    fn check_directory(&self, file: &ChunkFile, said: &ChunkCheck) -> Result<(), Problem> {
        let directory = file.directory();
        let partitioned = self.own && self.rules.spec.kind != TableKind::Replicated;
        if partitioned && directory.rows() != file.num_rows() {
            return Err(self.problem("its directory of sub-chunks does not cover all rows"));
        }
        if !partitioned {
            return Ok(());
        }
        let known = self.rules.chunker.sub_chunks_of(said.chunk);
        match directory
            .entries()
            .iter()
            .find(|entry| known.binary_search(&entry.sub_chunk).is_err())
        {
            Some(entry) => {
                let (sub_chunk, chunk) = (entry.sub_chunk, said.chunk);
                Err(self.problem(format!(
                    "its directory has sub-chunk {sub_chunk}, which chunk {chunk} does not have"
                )))
            }
            None => Ok(()),
        }
    }

    /// Checks each row; gives how many stood for a left and for a right home.
    async fn check_rows(&self, file: &ChunkFile, said: &ChunkCheck) -> Result<[u64; 2], Problem> {
        let (chunk, strays) = (said.chunk, said.strays);
        let mut check = RowCheck::new(&self.rules, file.schema(), chunk, self.own, strays)
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
            sharers: 0,
            counters: None,
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
        Ok(check.homes())
    }
}
