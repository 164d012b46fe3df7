//! Writes a share: the part that a load of its files alone would have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use catalog::{Catalog, Chunk, LoadId, TableKind};
use sky::ChunkId;
use store::{LoadDir, PartManifest};

use super::plan::expanded_within;
use super::{MayRead, RUN_FILE, ShareReport, ShareRequest};
use crate::directors::{Directors, Family};
use crate::error::IngestError;
use crate::load::{Transaction, blocking};
use crate::plan::TablePlan;
use crate::progress::{Phase, Progress};
use crate::report::Partitioning;
use crate::request::LoadRequest;
use crate::text_keys::check_directors;

/// The database and the table in an archive of their own whose parts are the runs of keys.
const RUNS: &str = "runs";

/// Writes the part of a share into an archive of its own in `scratch`, which nobody reads. `runs` are the files of the runs of keys that the
/// request counts. No input is opened that `may_read` rejects. Gives the directory of the part.
///
/// # Errors
/// A sentence for the person who requested the load.
pub async fn write_share(
    share: ShareRequest,
    runs: Vec<PathBuf>,
    scratch: &Path,
    may_read: MayRead,
    progress: Arc<Progress>,
) -> Result<(ShareReport, PathBuf), IngestError> {
    let started = Instant::now();
    progress.enter(Phase::Preparing, 0);
    if runs.len() != share.run_count() {
        return Err(IngestError::Internal);
    }
    let watched = progress.clone();
    let mut load = share.load.clone();
    load.data_dir = scratch.join("archive");
    load.is_share = true;
    let load = blocking(move || expanded_within(load, &may_read, &watched)).await?;
    let data_dir = load.data_dir.clone();
    let catalog = Catalog::open_or_create(&data_dir).await?;
    let of_runs = scratch.join(RUNS);
    let dirs = blocking(move || directories(&of_runs, runs)).await;
    let outcome = match dirs {
        Ok(dirs) => write_with(&catalog, &share, load, dirs, progress, started).await,
        Err(error) => Err(error),
    };
    catalog.close().await;
    let (report, number) = outcome?;
    let spec = &report.manifest.table;
    let dir = store::table_dir(&data_dir, &spec.database, &spec.name);
    Ok((report, dir.join(number.to_string())))
}

async fn write_with(
    catalog: &Catalog,
    share: &ShareRequest,
    load: LoadRequest,
    dirs: Vec<LoadDir>,
    progress: Arc<Progress>,
    started: Instant,
) -> Result<(ShareReport, LoadId), IngestError> {
    let number = catalog.begin_load(&load.database, &load.table).await?;
    let transaction = Transaction {
        catalog: catalog.clone(),
        request: load,
        load: number,
        started,
        appended_to: None,
    };
    let load_dir = transaction.make_dir()?;
    let (spool, request) = transaction.spool(&load_dir, progress.clone()).await?;
    let named = |error| spool.name_inputs(error);
    let files = spool.files().to_vec();
    let plan = blocking(move || TablePlan::make(&request, &files)).await;
    let plan = plan.map_err(named)?;
    let hints = plan.notes.clone();
    let explained = |error| named(error).with_hints(&hints);
    let (directors, family) = placed_by(share, plan.kind, dirs)?;
    check_directors(directors.tables(), &plan.columns, &plan.roles)?;
    let cut = Partitioning {
        stripes: share.partitioning.stripes,
        sub_stripes: share.partitioning.sub_stripes,
        overlap_deg: share.partitioning.overlap_deg,
        chosen: false,
    };
    let read = transaction
        .read(plan, cut, directors, load_dir, &progress)
        .await
        .map_err(explained)?;
    let written = transaction.write(read, family).await.map_err(explained)?;
    let outcome = &written.outcome;
    Ok((
        ShareReport {
            manifest: PartManifest::new(
                number,
                written.spec.clone(),
                share.partitioning,
                outcome.rows,
                &outcome.chunks,
            ),
            rejected: outcome.rejected,
            rejected_rows: outcome.rejected_rows.clone(),
            counts: outcome.counts,
            latin1_values: outcome.latin1_values,
            comment_lines: outcome.comment_lines,
            index_bytes: outcome.index_bytes,
            input_bytes: outcome.input_bytes,
            spilled_parts: outcome.spilled_parts,
        },
        number,
    ))
}

/// A directory for each run of keys, as that of a part is.
fn directories(data_dir: &Path, runs: Vec<PathBuf>) -> Result<Vec<LoadDir>, IngestError> {
    let mut dirs = Vec::with_capacity(runs.len());
    for (number, run) in runs.iter().enumerate() {
        let dir = LoadDir::create(data_dir, RUNS, RUNS, LoadId(number as i64 + 1))?;
        let to = dir.index_dir().join(RUN_FILE);
        std::fs::rename(run, &to).map_err(|error| IngestError::io("rename", run, error))?;
        dirs.push(dir);
    }
    Ok(dirs)
}

/// What places the rows: of a director its own keys, and those of its children; of a child the director.
fn placed_by(
    share: &ShareRequest,
    kind: TableKind,
    mut dirs: Vec<LoadDir>,
) -> Result<(Directors, Family), IngestError> {
    let orphans = dirs.split_off(share.director_runs + share.earlier_runs);
    match (kind, &share.director) {
        (TableKind::Director, _) if dirs.is_empty() && orphans.is_empty() => {
            Ok((Directors::none(), Family::default()))
        }
        (TableKind::Director, _) => {
            let of_load = dirs.split_off(share.director_runs);
            let family = Family::of(orphans);
            Ok((Directors::of_share(dirs, of_load, &family), family))
        }
        (TableKind::Child, Some(director)) => {
            let smallest = share.smallest_chunk.map(ChunkId);
            let chunks = smallest.map(|chunk| (0, nothing_in(chunk)));
            let directors =
                Directors::of_parts(director.clone(), dirs, chunks.into_iter().collect());
            Ok((directors, Family::of(orphans)))
        }
        (TableKind::Replicated, _) => Ok((Directors::none(), Family::default())),
        _ => Err(IngestError::Internal),
    }
}

/// A chunk of which no more is known than its number.
fn nothing_in(chunk: ChunkId) -> Chunk {
    Chunk {
        chunk,
        file: chunk,
        rows: 0,
        strays: 0,
        bytes: 0,
        checksum: 0,
        overlap: None,
        bounds: None,
    }
}
