//! Keeping the rows of a statement while its client reads them.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::{self, StreamExt};
use sql::RowWarnings;

use super::{CachedRows, MOST_BYTES, ResultCache, ResultKey, StoredRowsOf};
use crate::RowStream;

/// What is kept of a statement that runs.
pub(crate) struct Keeping {
    cache: Arc<ResultCache>,
    begun: Instant,
    /// Its text as it was typed.
    text: String,
    /// Its rows so far, if they are to be kept.
    rows: Option<KeptRows>,
    /// What is warned of about its rows: another statement would have to be told too.
    warnings: Option<Arc<RowWarnings>>,
}

struct KeptRows {
    key: ResultKey,
    /// The number of the query.
    query: u64,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    bytes: usize,
}

impl Keeping {
    /// Notes of a statement that begins now whether it takes long.
    pub fn time(cache: &Arc<ResultCache>, text: &str) -> Self {
        Self {
            cache: Arc::clone(cache),
            begun: Instant::now(),
            text: text.to_owned(),
            rows: None,
            warnings: None,
        }
    }

    /// Keeps nothing if values of its rows are warned of.
    pub fn unless_warned(self, warnings: &Arc<RowWarnings>) -> Self {
        Self {
            warnings: Some(Arc::clone(warnings)),
            ..self
        }
    }

    /// Keeps its rows, too.
    pub fn rows(self, key: ResultKey, query: u64, schema: &SchemaRef) -> Self {
        Self {
            rows: Some(KeptRows {
                key,
                query,
                schema: Arc::clone(schema),
                batches: Vec::new(),
                bytes: 0,
            }),
            ..self
        }
    }

    fn add(&mut self, batch: &RecordBatch) {
        if let Some(rows) = &mut self.rows {
            rows.bytes += batch.get_array_memory_size();
            rows.batches.push(batch.clone());
            if rows.bytes > MOST_BYTES {
                self.rows = None;
            }
        }
    }

    /// The statement has come to its end.
    fn finish(self) {
        if self.begun.elapsed() < self.cache.least() {
            return;
        }
        if self.warnings.is_some_and(|warnings| !warnings.is_empty()) {
            return;
        }
        self.cache.note(&self.text);
        if let Some(KeptRows {
            key,
            query,
            schema,
            batches,
            bytes,
        }) = self.rows
        {
            let rows = CachedRows::in_memory(query, batches, StoredRowsOf { schema, bytes });
            self.cache.insert(key, rows);
        }
    }
}

/// The same rows. What is kept of them counts when the last has been read: not of a statement that fails, or whose reader goes.
pub(crate) fn keep(rows: RowStream, keeping: Keeping) -> RowStream {
    stream::unfold(Some((rows, keeping)), |state| async move {
        let (mut rows, mut keeping) = state?;
        match rows.next().await {
            Some(Ok(batch)) => {
                keeping.add(&batch);
                Some((Ok(batch), Some((rows, keeping))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None => {
                keeping.finish();
                None
            }
        }
    })
    .boxed()
}
