//! Writes a share: the part that a load of its files alone would have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use catalog::{Catalog, Chunk, LoadId, TableKind};
use sky::ChunkId;
use store::{LoadDir, PartManifest};

use super::plan::expanded_within;
use super::{MayRead, RUN_FILE, ShareDirector, ShareReport, ShareRequest};
use crate::directors::{Directors, Family, RemoteEnd};
use crate::error::IngestError;
use crate::load::{Transaction, blocking};
use crate::place::end_rows::PartFiles;
use crate::plan::TablePlan;
use crate::progress::{Phase, Progress};
use crate::report::Partitioning;
use crate::request::LoadRequest;
use crate::text_keys::check_directors;

/// The database and the table in an archive of their own whose parts are the runs of keys.
const RUNS: &str = "runs";

/// Writes the part of a share into an archive of its own in `scratch`, which nobody reads. `runs` are the files of the runs of keys that the
/// request counts, and `files` has the parts of whose rows pairs are. No input is opened that `may_read` rejects. Gives the directory of the part.
///
/// # Errors
/// A sentence for the person who requested the load.
pub async fn write_share(
    share: ShareRequest,
    runs: Vec<PathBuf>,
    files: Arc<dyn PartFiles>,
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
    let written = async {
        let dirs = blocking(move || directories(&of_runs, runs)).await?;
        let transaction = begin(&catalog, load, started).await?;
        write_with(&transaction, &share, (dirs, files), progress).await
    };
    let outcome = written.await;
    catalog.close().await;
    let report = outcome?;
    let (spec, number) = (&report.manifest.table, report.manifest.part);
    let dir = store::table_dir(&data_dir, &spec.database, &spec.name);
    Ok((report, dir.join(number.to_string())))
}

async fn begin(
    catalog: &Catalog,
    load: LoadRequest,
    started: Instant,
) -> Result<Transaction, IngestError> {
    let number = catalog.begin_load(&load.database, &load.table).await?;
    Ok(Transaction {
        catalog: catalog.clone(),
        request: load,
        load: number,
        started,
        appended_to: None,
    })
}

/// What places the rows of a share: the directories of the runs of keys, and the files of whose rows pairs are.
type PlacedBy = (Vec<LoadDir>, Arc<dyn PartFiles>);

async fn write_with(
    transaction: &Transaction,
    share: &ShareRequest,
    known: PlacedBy,
    progress: Arc<Progress>,
) -> Result<ShareReport, IngestError> {
    let load_dir = transaction.make_dir()?;
    let (spool, request) = transaction.spool(&load_dir, progress.clone()).await?;
    let named = |error| spool.name_inputs(error);
    let files = spool.files().to_vec();
    let plan = blocking(move || TablePlan::make(&request, &files)).await;
    let plan = plan.map_err(named)?;
    plan.key_start.set(share.files_before);
    let hints = plan.notes.clone();
    let explained = |error| named(error).with_hints(&hints);
    let (directors, family) = placed_by(share, plan.kind, known)?;
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
    Ok(ShareReport {
        manifest: PartManifest::new(
            transaction.load,
            written.spec.clone(),
            share.partitioning,
            outcome.rows,
            &outcome.chunks,
        )
        .with_unknown_ends(outcome.counts.unknown_ends_of(written.spec.kind)),
        rejected: outcome.rejected,
        rejected_rows: outcome.rejected_rows.clone(),
        counts: outcome.counts,
        latin1_values: outcome.latin1_values,
        comment_lines: outcome.comment_lines,
        index_bytes: outcome.index_bytes,
        input_bytes: outcome.input_bytes,
        spilled_parts: outcome.spilled_parts,
    })
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

/// What places the rows: of a director its own keys, and those of its children; of a child the director; of a match table both ends.
fn placed_by(
    share: &ShareRequest,
    kind: TableKind,
    (mut dirs, files): PlacedBy,
) -> Result<(Directors, Family), IngestError> {
    let orphans = dirs.split_off(share.director_runs + share.earlier_runs);
    match (kind, share.directors.as_slice()) {
        (TableKind::Director, _) if dirs.is_empty() && orphans.is_empty() => {
            Ok((Directors::none(), Family::default()))
        }
        (TableKind::Director, _) => {
            let of_load = dirs.split_off(share.director_runs);
            let family = Family::of(orphans);
            Ok((Directors::of_share(dirs, of_load, &family), family))
        }
        (TableKind::Child, [director]) => {
            let smallest = director.smallest_chunk.map(ChunkId);
            let chunks = smallest.map(|chunk| (0, nothing_in(chunk)));
            let table = director.table.clone();
            let directors = Directors::of_parts(table, dirs, chunks.into_iter().collect());
            Ok((directors, Family::of(orphans)))
        }
        (TableKind::Match, ends) => Ok((remote_ends(ends, dirs, &files)?, Family::default())),
        (TableKind::Replicated, _) => Ok((Directors::none(), Family::default())),
        _ => Err(IngestError::Internal),
    }
}

/// The ends of a match table, each with its own of the runs.
fn remote_ends(
    ends: &[ShareDirector],
    dirs: Vec<LoadDir>,
    files: &Arc<dyn PartFiles>,
) -> Result<Directors, IngestError> {
    let mut dirs = dirs.into_iter();
    let of_end = |end: &ShareDirector| RemoteEnd {
        table: end.table.clone(),
        runs: dirs.by_ref().take(end.runs).collect(),
        scattered_keys: end.scattered_keys,
    };
    Directors::of_remote_ends(ends.iter().map(of_end).collect(), files)
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
