//! The rows of an edition as the input of a load.

use std::fmt;
use std::sync::Arc;

use alerts::{AlertDatabase, AlertSchema, Edition, EditionTable};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use ingest::{MadeBatches, RowSource};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The rows of a table of an edition. Each part is read when it is wanted, on the thread that wants it.
pub(super) struct EditionRows {
    database: Arc<AlertDatabase>,
    edition: Arc<Edition>,
    table: EditionTable,
    schema: SchemaRef,
    runtime: Handle,
}

impl EditionRows {
    pub(super) fn new(
        database: Arc<AlertDatabase>,
        schema: &AlertSchema,
        edition: Arc<Edition>,
        table: EditionTable,
        runtime: Handle,
    ) -> Self {
        Self {
            schema: table.columns(schema),
            database,
            edition,
            table,
            runtime,
        }
    }
}

impl fmt::Debug for EditionRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of edition {}",
            self.table.name(),
            self.edition.number
        )
    }
}

impl RowSource for EditionRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn parts(&self) -> usize {
        self.table.parts(&self.edition)
    }

    fn part_name(&self, part: usize) -> String {
        format!("{self:?}, part {}", part + 1)
    }

    fn part_rows(&self, _: usize) -> u64 {
        1
    }

    fn make_part(&self, part: usize) -> MadeBatches {
        let (database, edition) = (Arc::clone(&self.database), Arc::clone(&self.edition));
        let (table, (sender, receiver)) = (self.table, oneshot::channel());
        // Not by blocking on the runtime here, which panics when that ends: then the task is dropped.
        self.runtime.spawn(async move {
            // Whoever waits may have given up.
            let _ = sender.send(database.edition_rows(&edition, table, part).await);
        });
        let failed = |reason: String| -> MadeBatches { Box::new(std::iter::once(Err(reason))) };
        match receiver.blocking_recv() {
            Ok(Ok(batches)) => Box::new(batches.into_iter().map(Ok)),
            Ok(Err(error)) => failed(error.to_string()),
            Err(_) => failed("the server ends".to_owned()),
        }
    }
}

/// Columns without rows, of which a table is made.
pub(super) struct NoRows(pub(super) SchemaRef);

impl fmt::Debug for NoRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no rows")
    }
}

impl RowSource for NoRows {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0)
    }

    fn parts(&self) -> usize {
        1
    }

    fn part_name(&self, _: usize) -> String {
        "an alert database".to_owned()
    }

    fn part_rows(&self, _: usize) -> u64 {
        0
    }

    fn make_part(&self, _: usize) -> MadeBatches {
        Box::new(std::iter::empty::<Result<RecordBatch, String>>())
    }
}
