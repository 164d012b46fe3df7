//! Compaction beside queries: a server looks now and then whether tables have many small parts, and has another process merge them, whose
//! memory is not that of statements.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use alerts::AlertsError;
use ingest::{CompactRequest, IngestError, Progress};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::compact::months_of;

/// Tables of fewer parts are left alone, so that there is time to drop a bad batch; but for months of nightly databases that are over.
const MIN_PARTS: usize = ingest::MANY_PARTS + 1;
/// How often it is looked whether the process has ended.
const POLL: Duration = Duration::from_millis(200);

/// Compacts all tables at intervals until the server stops, which ends a compaction: what it has merged completely stays.
pub(super) async fn compact_regularly(data: PathBuf, every: Duration, stop: CancellationToken) {
    while let Some(()) = stop.run_until_cancelled(sleep(every)).await {
        match tables_to_merge(&data).await {
            Ok(tables) if tables.is_empty() => debug!("no table needs a compaction"),
            Ok(tables) => {
                let tables = tables.join(", ");
                match compact(&data, &stop).await {
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

/// How a process with `meridian compact` has ended, and what it complained of; `None` if the server stops before.
async fn compact(
    data: &Path,
    stop: &CancellationToken,
) -> io::Result<Option<(ExitStatus, String)>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["compact", "--quiet", "--min-parts", &MIN_PARTS.to_string()]);
    command.arg("--data").arg(data);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut compaction = Compaction(crate::parent::tie(&mut command).spawn()?);
    let status = loop {
        if let Some(status) = compaction.0.try_wait()? {
            break status;
        }
        if stop.run_until_cancelled(sleep(POLL)).await.is_none() {
            return Ok(None);
        }
    };
    let mut complaint = String::new();
    if let Some(pipe) = &mut compaction.0.stderr {
        pipe.read_to_string(&mut complaint)?;
    }
    Ok(Some((status, complaint.trim().to_owned())))
}

/// The process. It ends when this is dropped, and leaves what a compaction that is killed leaves: what it has published, and what the next
/// one removes.
struct Compaction(Child);

impl Drop for Compaction {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
