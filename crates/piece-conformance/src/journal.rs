//! A journal in memory, which fails if a piece is committed twice.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use engine::{EngineError, PhaseJournal, PhaseKey, PieceJournal, PieceRows, PieceWriter};

/// The committed pieces of each phase.
#[derive(Debug, Default)]
pub(crate) struct MemoryJournal {
    phases: Mutex<HashMap<PhaseKey, Arc<Phase>>>,
}

impl MemoryJournal {
    /// How many pieces are committed.
    pub fn committed(&self) -> usize {
        let phases = self.phases.lock().unwrap();
        let committed = phases
            .values()
            .map(|phase| phase.pieces.lock().unwrap().len());
        committed.sum()
    }
}

impl PieceJournal for MemoryJournal {
    fn open_phase(&self, key: PhaseKey, _: usize) -> Result<Arc<dyn PhaseJournal>, EngineError> {
        let mut phases = self.phases.lock().unwrap();
        Ok(Arc::clone(phases.entry(key).or_default()) as _)
    }
}

#[derive(Debug, Default)]
struct Phase {
    pieces: Arc<Mutex<BTreeMap<usize, Vec<RecordBatch>>>>,
}

impl PhaseJournal for Phase {
    fn is_committed(&self, piece: usize) -> bool {
        self.pieces.lock().unwrap().contains_key(&piece)
    }

    fn begin(&self, piece: usize) -> Result<Box<dyn PieceWriter>, EngineError> {
        Ok(Box::new(Writer {
            piece,
            rows: Vec::new(),
            pieces: Arc::clone(&self.pieces),
        }))
    }

    fn read(&self, piece: usize) -> Result<PieceRows, EngineError> {
        let pieces = self.pieces.lock().unwrap();
        let rows = pieces.get(&piece).cloned();
        let rows = rows.ok_or_else(|| EngineError::internal("it is not committed".to_owned()))?;
        Ok(Box::new(rows.into_iter().map(Ok)))
    }
}

struct Writer {
    piece: usize,
    rows: Vec<RecordBatch>,
    pieces: Arc<Mutex<BTreeMap<usize, Vec<RecordBatch>>>>,
}

impl PieceWriter for Writer {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.rows.push(batch.clone());
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<(), EngineError> {
        let Self {
            piece,
            rows,
            pieces,
        } = *self;
        match pieces.lock().unwrap().insert(piece, rows) {
            None => Ok(()),
            Some(_) => Err(EngineError::internal(format!(
                "piece {piece} is committed twice"
            ))),
        }
    }
}
