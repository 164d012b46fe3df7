//! The journal of a query: the results of its pieces, in a block file.
//!
//! | kind | block | meaning |
//! |---|---|---|
//! | 1 | phase | the digest of a phase, and how many pieces it has |
//! | 2 | rows | rows that one run of a piece gave |
//! | 3 | commit | that run gave all rows of the piece, so many |
//! | 4 | warnings | what the statement had been warned of since the last of these blocks, when a piece was to be committed |
//!
//! Invariants: a piece has at most one commit, and none is begun or committed by a front end that has lost its lease. Rows of a run without a commit are of a process that was killed; they are not read.
//!
//! A phase that has another digest than the file says is another phase: the query was planned otherwise, as over a table that has more
//! parts by now. What the journal has of all phases is of no use then, and is left out.
//!
//! Warnings of a piece that is committed are in the file before its commit. Those of pieces that ran beside it and were not committed when
//! the process was killed are there too, and come again with these pieces: a warning may be told twice then, and none is lost.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arrow::array::RecordBatch;
use engine::{EngineError, PhaseJournal, PhaseKey, PieceJournal, PieceRows, PieceWriter};
use sql::{MOST_WARNINGS, RowWarnings, Warning};

use crate::block_file::{Block, BlockFile, BlockWriter, Tag};
use crate::lease::Lease;
use crate::stored_warnings;

const PHASE: u32 = 1;
const ROWS: u32 = 2;
const COMMIT: u32 = 3;
const WARNINGS: u32 = 4;

/// The blocks of committed pieces, by phase and piece.
type CommittedBlocks = HashMap<(u32, u64), Arc<[Block]>>;

/// The results of a query's pieces.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<BlockFile>,
    phases: Mutex<HashMap<u32, (u128, u64)>>,
    committed: Arc<Mutex<CommittedBlocks>>,
    runs: Arc<AtomicU64>,
    warnings: Arc<JournaledWarnings>,
    lease: Option<Arc<Lease>>,
}

/// The warnings of a statement as they get into its journal.
#[derive(Debug, Default)]
struct JournaledWarnings {
    /// Where the statement's work puts them.
    met: OnceLock<Arc<RowWarnings>>,
    /// Those that are in the journal.
    written: Mutex<Vec<Warning>>,
}

impl JournaledWarnings {
    /// Writes those that were met since the last time.
    fn write(&self, file: &BlockFile) -> Result<(), EngineError> {
        let Some(met) = self.met.get().filter(|met| !met.is_empty()) else {
            return Ok(());
        };
        let mut written = lock(&self.written);
        let mut new = met.take();
        new.truncate(MOST_WARNINGS.saturating_sub(written.len()));
        if !new.is_empty() {
            let tag = Tag {
                kind: WARNINGS,
                phase: 0,
                piece: 0,
                run: 0,
                rows: new.len() as u64,
            };
            file.append(tag, &stored_warnings::lines(&new))?;
            written.extend(new);
        }
        Ok(())
    }
}

impl Journal {
    /// Opens the journal at `path`, or makes it; `lease` is that of the front end, if several share the queries.
    pub(crate) fn open(path: &Path, lease: Option<Arc<Lease>>) -> Result<Self, EngineError> {
        let (file, blocks) = BlockFile::append_to(path)?;
        let mut found = Found::default();
        for block in blocks {
            found.add(&file, block)?;
        }
        Ok(Self {
            file: Arc::new(file),
            phases: Mutex::new(found.phases),
            committed: Arc::new(Mutex::new(found.committed)),
            runs: Arc::new(AtomicU64::new(found.runs)),
            warnings: Arc::new(JournaledWarnings {
                met: OnceLock::new(),
                written: Mutex::new(found.warnings),
            }),
            lease,
        })
    }

    /// Keeps what the statement is warned of with its pieces, from now on.
    pub(crate) fn keep_warnings(&self, met: &Arc<RowWarnings>) {
        // A query is run once by a process.
        let _ = self.warnings.met.set(Arc::clone(met));
    }

    /// All that the statement was warned of when its rows have come to their end: by this process, and by those before it.
    pub(crate) fn take_warnings(&self) -> Vec<Warning> {
        let mut all = std::mem::take(&mut *lock(&self.warnings.written));
        all.extend(
            self.warnings
                .met
                .get()
                .map(|met| met.take())
                .unwrap_or_default(),
        );
        all
    }

    /// Waits until what is committed is on the disk.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        self.file.sync()
    }
}

/// What is found in a journal.
#[derive(Default)]
struct Found {
    phases: HashMap<u32, (u128, u64)>,
    committed: CommittedBlocks,
    /// Rows of runs that are not committed yet.
    open: HashMap<(u32, u64, u64), Vec<Block>>,
    warnings: Vec<Warning>,
    /// More than the number of any run.
    runs: u64,
}

impl Found {
    fn add(&mut self, file: &BlockFile, block: Block) -> Result<(), EngineError> {
        let tag = block.tag;
        self.runs = self.runs.max(tag.run + 1);
        match tag.kind {
            PHASE => {
                let body = file.read(&block)?;
                let digest = body.first_chunk().map(|it| u128::from_le_bytes(*it));
                let known = self.phases.get(&tag.phase);
                if let Some(digest) = digest
                    && known != Some(&(digest, tag.rows))
                {
                    // The query was planned anew, and began anew.
                    if known.is_some() {
                        self.phases.clear();
                        self.committed.clear();
                        self.open.clear();
                        self.warnings.clear();
                    }
                    self.phases.insert(tag.phase, (digest, tag.rows));
                }
            }
            ROWS => {
                let run = (tag.phase, tag.piece, tag.run);
                self.open.entry(run).or_default().push(block);
            }
            COMMIT => {
                let rows = self.open.remove(&(tag.phase, tag.piece, tag.run));
                let rows = rows.unwrap_or_default();
                let twice = self
                    .committed
                    .insert((tag.phase, tag.piece), rows.into())
                    .is_some();
                if twice {
                    tracing::error!(phase = tag.phase, piece = tag.piece, "a piece ran twice");
                }
            }
            WARNINGS => {
                let warnings = stored_warnings::of_lines(&file.read(&block)?);
                self.warnings.extend(warnings);
            }
            _ => {}
        }
        Ok(())
    }
}

impl PieceJournal for Journal {
    fn open_phase(
        &self,
        key: PhaseKey,
        pieces: usize,
    ) -> Result<Arc<dyn PhaseJournal>, EngineError> {
        let wanted = (key.digest, pieces as u64);
        let mut phases = lock(&self.phases);
        match phases.get(&key.number) {
            Some(known) if *known == wanted => {}
            known => {
                if known.is_some() {
                    phases.clear();
                    lock(&self.committed).clear();
                    lock(&self.warnings.written).clear();
                }
                let tag = Tag {
                    kind: PHASE,
                    phase: key.number,
                    piece: 0,
                    run: 0,
                    rows: pieces as u64,
                };
                self.file.append(tag, &key.digest.to_le_bytes())?;
                phases.insert(key.number, wanted);
            }
        }
        Ok(Arc::new(JournaledPhase {
            number: key.number,
            file: Arc::clone(&self.file),
            committed: Arc::clone(&self.committed),
            runs: Arc::clone(&self.runs),
            warnings: Arc::clone(&self.warnings),
            lease: self.lease.clone(),
        }))
    }
}

/// Fails if there is a lease that is lost.
fn expect_held(lease: Option<&Arc<Lease>>) -> Result<(), EngineError> {
    lease.map_or(Ok(()), |lease| lease.expect_held())
}

/// The results of a phase's pieces.
#[derive(Debug)]
struct JournaledPhase {
    number: u32,
    file: Arc<BlockFile>,
    committed: Arc<Mutex<CommittedBlocks>>,
    runs: Arc<AtomicU64>,
    warnings: Arc<JournaledWarnings>,
    lease: Option<Arc<Lease>>,
}

impl PhaseJournal for JournaledPhase {
    fn is_committed(&self, piece: usize) -> bool {
        lock(&self.committed).contains_key(&(self.number, piece as u64))
    }

    fn begin(&self, piece: usize) -> Result<Box<dyn PieceWriter>, EngineError> {
        expect_held(self.lease.as_ref())?;
        let tag = Tag {
            kind: ROWS,
            phase: self.number,
            piece: piece as u64,
            run: self.runs.fetch_add(1, Relaxed),
            rows: 0,
        };
        Ok(Box::new(JournaledPiece {
            tag,
            rows: 0,
            writer: BlockWriter::new(Arc::clone(&self.file), tag),
            file: Arc::clone(&self.file),
            committed: Arc::clone(&self.committed),
            warnings: Arc::clone(&self.warnings),
            lease: self.lease.clone(),
        }))
    }

    fn read(&self, piece: usize) -> Result<PieceRows, EngineError> {
        let blocks = lock(&self.committed)
            .get(&(self.number, piece as u64))
            .cloned();
        let blocks = blocks.ok_or_else(|| {
            EngineError::internal("a piece was to be read before it was committed")
        })?;
        let file = Arc::clone(&self.file);
        Ok(rows_of_blocks(file, blocks, 0))
    }
}

/// The rows of blocks, one block at a time, from the block with this number on.
pub(crate) fn rows_of_blocks(file: Arc<BlockFile>, blocks: Arc<[Block]>, from: usize) -> PieceRows {
    let rows = (from..blocks.len()).flat_map(move |at| -> Vec<Result<RecordBatch, EngineError>> {
        match file.read_rows(&blocks[at]) {
            Ok(batches) => batches.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    });
    Box::new(rows)
}

/// One run of a piece.
struct JournaledPiece {
    tag: Tag,
    rows: u64,
    writer: BlockWriter,
    file: Arc<BlockFile>,
    committed: Arc<Mutex<CommittedBlocks>>,
    warnings: Arc<JournaledWarnings>,
    lease: Option<Arc<Lease>>,
}

impl PieceWriter for JournaledPiece {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch)
    }

    fn commit(self: Box<Self>) -> Result<(), EngineError> {
        let blocks = self.writer.finish()?;
        // Under the lock: of two runs of one piece the first is the one that counts.
        let mut committed = lock(&self.committed);
        let place = (self.tag.phase, self.tag.piece);
        if committed.contains_key(&place) {
            return Err(EngineError::internal(format!(
                "piece {} of the query ran twice",
                self.tag.piece
            )));
        }
        let tag = Tag {
            kind: COMMIT,
            rows: self.rows,
            ..self.tag
        };
        self.warnings.write(&self.file)?;
        expect_held(self.lease.as_ref())?;
        self.file.append(tag, &[])?;
        committed.insert(place, blocks.into());
        Ok(())
    }
}

/// A panic in another thread leaves the maps consistent, because every change is a single operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    fn batch(n: i64) -> RecordBatch {
        let column = Arc::new(Int64Array::from(vec![n, n + 1])) as _;
        RecordBatch::try_from_iter([("n", column)]).unwrap()
    }

    fn key(digest: u128) -> PhaseKey {
        PhaseKey { number: 0, digest }
    }

    fn commit(phase: &dyn PhaseJournal, piece: usize, n: i64) -> Result<(), EngineError> {
        let mut writer = phase.begin(piece)?;
        writer.write(&batch(n))?;
        writer.write(&batch(n + 2))?;
        writer.commit()
    }

    fn rows(phase: &dyn PhaseJournal, piece: usize) -> Vec<RecordBatch> {
        let rows = phase.read(piece).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn committed_pieces_are_there_in_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let journal = Journal::open(&path, None).unwrap();
        let phase = journal.open_phase(key(7), 4).unwrap();
        commit(&*phase, 2, 20).unwrap();
        commit(&*phase, 0, 0).unwrap();
        // One that was begun and never committed, and one that gave no rows.
        let mut dropped = phase.begin(1).unwrap();
        dropped.write(&batch(99)).unwrap();
        drop(dropped);
        phase.begin(3).unwrap().commit().unwrap();
        assert!(commit(&*phase, 2, 50).is_err(), "committed twice");
        drop((phase, journal));

        let journal = Journal::open(&path, None).unwrap();
        let phase = journal.open_phase(key(7), 4).unwrap();
        let committed: Vec<bool> = (0..4).map(|piece| phase.is_committed(piece)).collect();
        assert_eq!(committed, [true, false, true, true]);
        assert_eq!(rows(&*phase, 2), [batch(20), batch(22)]);
        assert_eq!(rows(&*phase, 3), []);
        commit(&*phase, 1, 10).unwrap();
        assert_eq!(rows(&*phase, 1), [batch(10), batch(12)]);
    }

    #[test]
    fn warnings_are_kept_with_the_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        let warning = |n: usize| Warning {
            code: sql::ErrorCode::TRUNCATED_VALUE,
            sentence: format!("value {n}"),
        };
        let journal = Journal::open(&path, None).unwrap();
        let met = Arc::new(RowWarnings::default());
        journal.keep_warnings(&met);
        let phase = journal.open_phase(key(7), 4).unwrap();
        met.add(warning(0));
        commit(&*phase, 0, 0).unwrap();
        commit(&*phase, 1, 0).unwrap();
        met.add(warning(1));
        met.add(warning(2));
        commit(&*phase, 2, 0).unwrap();
        // Of a piece that is not committed when the process is killed.
        met.add(warning(3));
        drop((phase, journal));

        let journal = Journal::open(&path, None).unwrap();
        let met = Arc::new(RowWarnings::default());
        journal.keep_warnings(&met);
        let phase = journal.open_phase(key(7), 4).unwrap();
        met.add(warning(4));
        commit(&*phase, 3, 0).unwrap();
        met.add(warning(5));
        assert_eq!(journal.take_warnings(), [0, 1, 2, 4, 5].map(warning));

        // A plan over other parts begins anew, and so do its warnings.
        let journal = Journal::open(&path, None).unwrap();
        journal.open_phase(key(8), 4).unwrap();
        assert_eq!(journal.take_warnings(), []);
        assert_eq!(Journal::open(&path, None).unwrap().take_warnings(), []);
    }

    #[test]
    fn a_query_that_is_planned_otherwise_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        for (digest, pieces) in [(1, 2), (2, 2), (2, 3), (1, 2)] {
            let journal = Journal::open(&path, None).unwrap();
            let phase = journal.open_phase(key(digest), pieces).unwrap();
            assert!(!phase.is_committed(0), "{digest} {pieces}");
            commit(&*phase, 0, digest as i64).unwrap();
        }
        let journal = Journal::open(&path, None).unwrap();
        let phase = journal.open_phase(key(1), 2).unwrap();
        assert_eq!(rows(&*phase, 0), [batch(1), batch(3)]);
    }
}
