//! Loads that show nothing: `meridian load --dry-run`. Everything is done as in a load, so that what is reported is what a load would
//! do, but its table is not published, and what it wrote is removed.

use std::path::{Path, PathBuf};

use catalog::make_directories;

use crate::error::IngestError;
use crate::load::Transaction;
use crate::pipeline::Outcome;
use crate::position;
use crate::report::LoadReport;
use crate::request::LoadRequest;
use crate::schema::schema_text;
use crate::written_load::WrittenLoad;

/// A directory that is removed when it is dropped.
pub(crate) struct ScratchDir(PathBuf);

impl Drop for ScratchDir {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "{} cannot be removed", self.0.display());
        }
    }
}

/// The request with a data directory that may be made: a dry run does not make the one that it names, but another for itself.
pub(crate) fn with_data_dir(
    mut request: LoadRequest,
) -> Result<(LoadRequest, Option<ScratchDir>), IngestError> {
    if !request.dry_run || request.data_dir.exists() {
        return Ok((request, None));
    }
    // On the disk that the load would use.
    let mut above = request.data_dir.ancestors();
    let above = above.find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let name = format!(".meridian-dry-run-{}", std::process::id());
    let scratch = ScratchDir(above.join(name));
    make_directories(&scratch.0).map_err(|e| IngestError::io("make", &scratch.0, e))?;
    request.data_dir = scratch.0.join("data");
    Ok((request, Some(scratch)))
}

impl Transaction {
    /// What a load would have made visible.
    pub(crate) fn dry_report(&self, written: &WrittenLoad) -> LoadReport {
        let (spec, outcome) = (&written.spec, &written.outcome);
        let mut notes = written.notes.clone();
        notes.extend(unit_note(&self.request, outcome));
        LoadReport {
            schema: Some(schema_text(&spec.columns, &self.request.text.nulls)),
            ..self.report(spec, written.partitioning, outcome, notes)
        }
    }
}

/// What is noticed of the unit of the positions, where nobody said which it is.
pub(crate) fn unit_note(request: &LoadRequest, outcome: &Outcome) -> Option<String> {
    match request.position_unit {
        Some(_) => None,
        None => position::unit_note(&outcome.chunks, outcome.rows),
    }
}
