//! `meridian load --cluster`: the workers of a cluster load, and this process shows how far they are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::messages::{LoadInputs, LoadOrder, LoadState, SchemaFile};
use cluster::{ClusterError, CredentialFiles, Operator};
use ingest::{LoadReport, LoadRequest, Progress};
use remote_files::is_url;
use tokio::time::sleep;

use crate::failure::Failure;
use crate::load::tell_report;
use crate::load_progress::ProgressDisplay;

const POLL: Duration = Duration::from_millis(300);
/// After so many requests without an answer, one after another, the front end is given up.
const MOST_SILENT: usize = 20;

/// Has the workers load, and prints the report.
pub fn run(
    address: String,
    credentials: &CredentialFiles,
    mut request: LoadRequest,
    is_anonymous: bool,
    quiet: bool,
) -> Result<(), Failure> {
    let operator = Operator::new(address, credentials)?;
    request.files = (request.files.drain(..))
        .map(as_workers_see)
        .collect::<std::io::Result<_>>()?;
    let schema = request.schema.take().map(read_schema).transpose()?;
    let table = request.table.clone();
    let order = LoadOrder {
        load: request,
        inputs: LoadInputs {
            schema,
            is_anonymous,
        },
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let report = runtime.block_on(async {
        let progress = Arc::new(Progress::default());
        let display = (!quiet).then(|| ProgressDisplay::start(&table, progress.clone()));
        let outcome = follow(&operator, &order, &progress).await;
        if let Some(display) = display {
            display.finish();
        }
        outcome
    })?;
    tell_report(&report)
}

/// Begins the load and waits for its end. Ctrl-C cancels it, which then leaves nothing.
async fn follow(
    operator: &Operator,
    order: &LoadOrder,
    progress: &Progress,
) -> Result<LoadReport, Failure> {
    let number = cluster::random()?;
    operator.begin_load(number, order).await?;
    let mut is_cancelled = false;
    loop {
        tokio::select! {
            () = sleep(POLL) => {}
            interrupted = tokio::signal::ctrl_c(), if !is_cancelled => {
                is_cancelled = interrupted.is_ok();
                operator.cancel_load(number).await?;
            }
        }
        let LoadState {
            progress: now,
            outcome,
        } = state(operator, number).await?;
        progress.show(&now);
        match outcome {
            None => {}
            Some(Ok(report)) => return Ok(report),
            Some(Err(sentence)) => return Err(Failure::new(sentence)),
        }
    }
}

async fn state(operator: &Operator, number: u64) -> Result<LoadState, ClusterError> {
    let mut silent = 0;
    loop {
        match operator.load_state(number).await {
            Err(error) if silent + 1 >= MOST_SILENT => return Err(error),
            Err(_) => {
                silent += 1;
                sleep(POLL).await;
            }
            state => return state,
        }
    }
}

/// A file by a name that is the same wherever a worker runs.
fn as_workers_see(file: PathBuf) -> std::io::Result<PathBuf> {
    match file.to_str() {
        Some(text) if text == "-" || is_url(text) => Ok(file),
        _ => std::path::absolute(file),
    }
}

fn read_schema(path: PathBuf) -> Result<SchemaFile, Failure> {
    let text = std::fs::read_to_string(&path);
    let text = text.map_err(|error| {
        Failure::new(format!(
            "the schema {} cannot be read: {error}",
            path.display()
        ))
    })?;
    Ok(SchemaFile {
        name: path.display().to_string(),
        text,
    })
}
