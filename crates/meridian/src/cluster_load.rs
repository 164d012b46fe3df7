//! `meridian load --cluster`: the workers of a cluster load, and this process shows how far they are.

use std::cell::Cell;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cluster::messages::{LoadInputs, LoadOrder, SchemaFile};
use cluster::{CredentialFiles, Operator};
use ingest::{LoadReport, LoadRequest, Progress};
use remote_files::is_url;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::failure::Failure;
use crate::load::tell_report;
use crate::load_progress::ProgressDisplay;

const POLL: Duration = Duration::from_millis(300);
/// After so many requests without an answer, one after another, the front end is given up.
const MOST_SILENT: usize = 20;
/// The exit status of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// What is said where it is not known how a load has ended.
const MAY_BE_LOADED: &str =
    "and how the load has ended is not known: look at the table before you load again";

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

/// Begins the load and waits for its end. Ctrl-C cancels it, which then leaves nothing; once more ends the waiting.
async fn follow(
    operator: &Operator,
    order: &LoadOrder,
    progress: &Progress,
) -> Result<LoadReport, Failure> {
    // From here on, so that none is lost while the front end is asked.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let number = cluster::random()?;
    let is_cancelled = Cell::new(false);
    let ended = async {
        if let Err(error) = operator.begin_load(number, order).await {
            // It may have begun all the same, its response lost.
            let _ = operator.cancel_load(number).await;
            return Err(error.into());
        }
        wait_for_end(operator, number, progress, &is_cancelled).await
    };
    let mut ended = pin!(ended);
    loop {
        tokio::select! {
            outcome = &mut ended => return outcome,
            _ = interrupts.recv() => {
                if is_cancelled.replace(true) {
                    let why = format!("the waiting is cancelled, {MAY_BE_LOADED}");
                    return Err(Failure::with_status(why, INTERRUPTED));
                }
            }
        }
    }
}

/// Asks again and again how far the load is, and has it end once it is cancelled.
async fn wait_for_end(
    operator: &Operator,
    number: u64,
    progress: &Progress,
    is_cancelled: &Cell<bool>,
) -> Result<LoadReport, Failure> {
    let mut silent = 0;
    loop {
        sleep(POLL).await;
        if is_cancelled.get() {
            // Again and again, until the front end has got it.
            let _ = operator.cancel_load(number).await;
        }
        let state = match operator.load_state(number).await {
            Ok(state) => state,
            Err(error) if silent + 1 >= MOST_SILENT => {
                return Err(Failure::new(format!("{error}; {MAY_BE_LOADED}")));
            }
            Err(_) => {
                silent += 1;
                continue;
            }
        };
        silent = 0;
        progress.show(&state.progress);
        match state.outcome {
            None => {}
            Some(Ok(report)) => return Ok(report),
            Some(Err(sentence)) => return Err(Failure::new(sentence)),
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
