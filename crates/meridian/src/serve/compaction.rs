//! Compaction beside queries: a server looks now and then whether tables have many small parts, and has another process merge them, whose
//! memory is not that of statements.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alerts::AlertsError;
use ingest::{CompactRequest, IngestError, Progress};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::beside::run_beside;
use crate::compact::months_of;

/// Tables of fewer parts are left alone, so that there is time to drop a bad batch; but for months of nightly databases that are over.
const MIN_PARTS: usize = ingest::MANY_PARTS + 1;

/// Compacts all tables at intervals until the server stops, which ends a compaction: what it has merged completely stays.
pub(super) async fn compact_regularly(data: PathBuf, every: Duration, stop: CancellationToken) {
    while let Some(()) = stop.run_until_cancelled(sleep(every)).await {
        match tables_to_merge(&data).await {
            Ok(tables) if tables.is_empty() => debug!("no table needs a compaction"),
            Ok(tables) => {
                let tables = tables.join(", ");
                let min_parts = MIN_PARTS.to_string();
                let arguments = ["compact", "--quiet", "--min-parts", &min_parts];
                match run_beside(&arguments, &data, &stop).await {
                    Ok(Some((status, _))) if status.success() => info!(tables, "compacted"),
                    Ok(Some((_, complaint))) => {
                        warn!(tables, complaint, "a compaction has failed");
                    }
                    Ok(None) => return,
                    Err(error) => warn!(%error, "a compaction cannot be started"),
                }
            }
            Err(error) => warn!(%error, "it is not known which tables need a compaction"),
        }
    }
}

/// Why it is not known what is to be merged.
#[derive(Debug, thiserror::Error)]
enum CompactionError {
    #[error(transparent)]
    Ingest(#[from] IngestError),
    #[error(transparent)]
    Alerts(#[from] AlertsError),
}

/// The tables of which parts would be merged now.
async fn tables_to_merge(data: &Path) -> Result<Vec<String>, CompactionError> {
    let request = CompactRequest {
        data_dir: data.to_owned(),
        database: None,
        table: None,
        all: false,
        months: months_of(data)?,
        min_parts: MIN_PARTS,
        dry_run: true,
        rate: None,
        memory: None,
        threads: None,
    };
    let report = ingest::compact(request, Arc::new(Progress::default())).await?;
    let tables = report.tables.into_iter();
    let merged = tables.filter(|table| !table.merges.is_empty());
    Ok(merged.map(|table| table.name).collect())
}
