//! What the inputs of a load in shares are: one process looks at them, for all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use remote_files::is_url;

use super::{InputPlan, MayRead, PlanRequest, PlannedFile};
use crate::error::IngestError;
use crate::inputs::expanded;
use crate::partitioning::for_rows;
use crate::plan::{TablePlan, check_options, text_layout};
use crate::progress::Progress;
use crate::request::LoadRequest;
use crate::schema::read_schema;
use crate::spool::{Spool, any_stream};

/// Looks at the inputs. Blocks its thread; `scratch` is a directory for copies of files that can be read only once. No file is opened
/// that `may_read` rejects.
///
/// # Errors
/// A sentence for the person who requested the load.
pub fn plan_inputs(
    request: PlanRequest,
    scratch: PathBuf,
    may_read: &MayRead,
    progress: &Arc<Progress>,
) -> Result<InputPlan, IngestError> {
    let PlanRequest { load, overlap_deg } = request;
    let mut load = expanded_within(load, may_read, progress)?.with_key_name();
    check_options(&load)?;
    let declared = load.schema.as_deref();
    let declared = declared
        .map(|path| read_schema(path, &load.table))
        .transpose()?;
    let layout = text_layout(&load, declared.as_ref());
    let (plan, works) = planned(&load, scratch, progress)?;
    let cut = overlap_deg.map(|overlap| for_rows(&load, &plan, overlap));
    let cut = cut.transpose()?;
    load.text.delimiter = layout.delimiter;
    load.text.quote = layout.quote;
    load.text.nulls = layout.nulls;
    load.kind = Some(plan.kind);
    load.are_columns_found = declared.is_none() && load.declared.is_none();
    load.declared = Some(plan.columns.clone());
    // What was said of columns is in their declarations now.
    load.schema = None;
    load.text_columns = Vec::new();
    load.nullable = Vec::new();
    let named = load.files.iter().zip(works);
    Ok(InputPlan {
        files: named
            .map(|(path, work)| PlannedFile {
                path: path.clone(),
                work,
            })
            .collect(),
        given: load.given_names(),
        cut,
        notes: plan.notes,
        metadata: plan.metadata,
        load,
    })
}

/// The request with files in the place of patterns and directories, none of which is rejected.
pub(super) fn expanded_within(
    load: LoadRequest,
    may_read: &MayRead,
    progress: &Arc<Progress>,
) -> Result<LoadRequest, IngestError> {
    let is_remote = |load: &LoadRequest, file: &Path| {
        load.remote.is_some() && file.to_str().is_some_and(is_url)
    };
    for input in load.files.iter().filter(|it| !is_remote(&load, it)) {
        may_read.check_name(input)?;
    }
    let load = expanded(load, progress)?;
    for file in load.files.iter().filter(|it| !is_remote(&load, it)) {
        may_read.check_file(file)?;
    }
    Ok(load)
}

/// The plan of the files, and the work of each. Where files are copied before they are read, the first stands for all.
fn planned(
    load: &LoadRequest,
    scratch: PathBuf,
    progress: &Arc<Progress>,
) -> Result<(TablePlan, Vec<u64>), IngestError> {
    if !any_stream(&load.files, load.remote.as_ref()) {
        let plan = TablePlan::make(load, &load.files)?;
        let works = plan.files.iter().map(|file| file.work().max(1)).collect();
        return Ok((plan, works));
    }
    let first = LoadRequest {
        files: load.files.iter().take(1).cloned().collect(),
        inputs: Default::default(),
        ..load.clone()
    };
    let spool = Spool::take(&first.files, first.remote.as_ref(), &scratch, progress)?;
    let made = TablePlan::make(&first, spool.files());
    let plan = made.map_err(|error| spool.name_inputs(error))?;
    let remote = load.remote.as_ref();
    let work = |file: &PathBuf| remote.and_then(|it| it.get(file)?.bytes()).unwrap_or(1);
    Ok((plan, load.files.iter().map(work).collect()))
}
