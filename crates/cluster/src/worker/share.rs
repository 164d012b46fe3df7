//! The run of a share: its pieces run as the scheduler decides, and their rows go back in frames.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use bytes::{Buf, Bytes};
use engine::shuffle::{KeptRun, ShuffleId};
use engine::{EngineError, Piece, PieceScheduler, QueryExecution, SharePlan, ShareRun};
use futures::{FutureExt, StreamExt, stream};
use queries::QueryTurns;
use sql::{ErrorCode, Interrupt};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::Worker;
use super::plans::KnownPlan;
use crate::client::read_body;
use crate::dispatch::{plan_digest, share_body_parts};
use crate::frames::{FrameWriter, failure, progress};
use crate::messages::{ErrorClass, KeptShare, ShareFailure, ShareHead};
use crate::scrubs::unreadable_file;
use crate::shuffle::{BucketWriter, not_kept_sentence};

/// Bytes of a share as it is sent.
const LONGEST_SHARE: usize = 256 << 20;
/// Frames that may wait for the front end.
const FRAMES_AHEAD: usize = 4;

/// How often the front end is told that a share goes on.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Why a share cannot be run to its end.
enum ShareError {
    Engine(EngineError),
    /// The plan cannot be decoded here.
    Plan(String),
    /// Nobody reads the rows any more.
    Abandoned,
}

impl From<EngineError> for ShareError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}

/// A share as it came, still to be decoded.
struct SentShare {
    head: ShareHead,
    plan: Arc<KnownPlan>,
    pieces: Bytes,
}

impl SentShare {
    fn decode(self) -> Result<ShareRun, String> {
        Ok(ShareRun {
            pieces: decode_pieces(self.pieces)?,
            rating: self.head.rating,
            num_chunks: self.head.num_chunks,
        })
    }
}

/// Runs a share. What comes of it is the body of the response.
pub(super) async fn run(
    State(worker): State<Arc<Worker>>,
    request: Request,
) -> Result<Response<Body>, (StatusCode, String)> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = read_body(request.into_body(), LONGEST_SHARE)
        .await
        .map_err(bad)?;
    let (head, plan, pieces) = share_body_parts(&body).map_err(bad)?;
    if worker.held.archive() != Some(head.archive.as_str()) {
        let why = "the share is of another archive than the files of this worker";
        return Err((StatusCode::CONFLICT, why.to_owned()));
    }
    worker
        .held
        .ensure_parts(&head.parts)
        .await
        .map_err(|error| (StatusCode::CONFLICT, error.to_string()))?;
    let known = match head.plan_bytes {
        0 => worker.held.plans.get(&head.plan_digest),
        _ if plan_digest(&head.parts, &plan) != head.plan_digest => {
            return Err(bad("the plan came damaged".to_owned()));
        }
        _ => Some(
            worker
                .held
                .plans
                .keep(&head.plan_digest, &plan, &head.parts),
        ),
    };
    let Some(plan) = known else {
        let why = "the plan of the share is not known here: send it";
        return Err((StatusCode::PRECONDITION_REQUIRED, why.to_owned()));
    };
    worker.shares.fetch_add(1, Relaxed);
    let share = SentShare { head, plan, pieces };
    Ok(Body::from_stream(start(worker, share)).into_response())
}

fn decode_pieces(stream: Bytes) -> Result<Vec<Piece>, String> {
    let reader = StreamReader::try_new(stream.reader(), None);
    let reader = reader.map_err(|error| format!("the pieces cannot be read: {error}"))?;
    let mut pieces = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|error| format!("the pieces cannot be read: {error}"))?;
        let decoded = Piece::decode(&batch);
        pieces.extend(decoded.map_err(|error| format!("the pieces cannot be read: {error}"))?);
    }
    Ok(pieces)
}

/// The frames of a share that runs. Dropping them ends it.
struct Frames {
    receiver: mpsc::Receiver<Bytes>,
    interrupt: Arc<Interrupt>,
    task: Option<AbortHandle>,
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.interrupt.end();
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

fn start(
    worker: Arc<Worker>,
    share: SentShare,
) -> impl futures::Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
    let interrupt = Interrupt::new();
    // Queries of several front ends have different numbers here.
    let query = share.head.front_end.rotate_left(32) ^ share.head.query;
    let turns = Arc::new(QueryTurns::new(&worker.scheduler, query, share.head.user));
    let scheduler = Arc::clone(&turns) as Arc<dyn PieceScheduler>;
    let execution = Arc::new(QueryExecution::new().with_scheduler(scheduler));
    let going_on = tell_progress(Arc::clone(&interrupt), turns, sender.clone());
    let running = Arc::clone(&worker);
    let work = async move {
        execution.attach();
        let outcome = AssertUnwindSafe(produce(&running, share, &sender)).catch_unwind();
        let outcome = tokio::select! {
            outcome = outcome => outcome,
            () = going_on => return,
        };
        let told = match outcome {
            Ok(Ok(()) | Err(ShareError::Abandoned)) => return,
            Ok(Err(error)) => told(&running, error),
            Err(_) => ShareFailure {
                class: ErrorClass::Query,
                code: ErrorCode::INTERNAL.number,
                sentence: "a worker panicked while it executed this statement, which is a bug of Meridian: its log says more"
                    .to_owned(),
            },
        };
        // The front end may have gone.
        let _ = sender.send(failure(&told)).await;
    };
    let work = interrupt.scope(work);
    let task = worker
        .compute()
        .map(|threads| threads.spawn(work).abort_handle());
    let frames = Frames {
        receiver,
        interrupt,
        task,
    };
    stream::unfold(frames, |mut frames| async move {
        let frame = frames.receiver.recv().await?;
        Some((Ok(frame), frames))
    })
}

/// Tells the front end as long as the share goes on: something computes for it, or it waits for threads that others have. What hangs does
/// neither.
async fn tell_progress(
    interrupt: Arc<Interrupt>,
    turns: Arc<QueryTurns>,
    sender: mpsc::Sender<Bytes>,
) {
    let mut before = interrupt.progress();
    loop {
        sleep(PROGRESS_INTERVAL).await;
        let now = interrupt.progress();
        if now == before && turns.num_running() > 0 {
            continue;
        }
        before = now;
        match sender.try_send(progress()) {
            // Where frames wait, these tell as much.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Closed(_)) => return,
        }
    }
}

/// Runs the pieces and sends their rows.
async fn produce(
    worker: &Worker,
    share: SentShare,
    sender: &mpsc::Sender<Bytes>,
) -> Result<(), ShareError> {
    let send = async |frame: Bytes| sender.send(frame).await.map_err(|_| ShareError::Abandoned);
    let failed = |error: arrow::error::ArrowError| {
        ShareError::Engine(EngineError::internal(format!(
            "rows cannot be sent: {error}"
        )))
    };
    let wrong = |error: EngineError| ShareError::Plan(error.to_string());
    let decode = |bytes: &[u8]| worker.session.decode_share_plan(bytes);
    let plan = worker.held.plans.decoded(&share.plan, decode).await;
    let plan = plan.map_err(wrong)?;
    let mut keeper = match &share.head.keeping {
        Some(keeping) => Some(keeper(worker, &share.head, keeping, &plan)?),
        None => None,
    };
    let share = share.decode().map_err(ShareError::Plan)?;
    let started = worker.session.run_share(&plan, share);
    let mut pieces = started.map_err(wrong)?;
    let mut writer = FrameWriter::default();
    let statement = Interrupt::current_or_new();
    while let Some(piece) = pieces.next().await {
        let (piece, mut batches) = piece?;
        let piece = u32::try_from(piece).unwrap_or(u32::MAX);
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            let batch: RecordBatch = batch?;
            rows += batch.num_rows() as u64;
            match &mut keeper {
                Some(keeper) => keeper.push(&batch).map_err(not_kept)?,
                None => send(writer.rows(piece, &batch).map_err(failed)?).await?,
            }
        }
        worker.count_piece();
        // Pieces that run beside it may have given some of them: each is told once.
        let warnings = statement.warnings().take();
        if !warnings.is_empty() {
            send(FrameWriter::warnings(piece, &warnings)).await?;
        }
        let done = match &mut keeper {
            Some(keeper) => writer.kept(piece, keeper.end_piece(piece).map_err(not_kept)?),
            None => writer.done(piece, rows),
        };
        send(done).await?;
    }
    send(writer.footer()).await
}

/// What keeps the rows of a share here.
fn keeper(
    worker: &Worker,
    head: &ShareHead,
    keeping: &KeptShare,
    plan: &SharePlan,
) -> Result<BucketWriter, ShareError> {
    let runtime = worker.session.context().runtime_env();
    let writer = BucketWriter::new(&runtime, &plan.schema(), &keeping.columns, keeping.buckets);
    let writer = writer.map_err(not_kept)?;
    let shuffle = ShuffleId {
        front_end: head.front_end,
        number: keeping.shuffle,
    };
    let run = KeptRun {
        phase: head.query,
        run: keeping.run,
    };
    worker
        .shuffles
        .insert(shuffle, run, Arc::clone(writer.file()));
    Ok(writer)
}

/// Another worker may have room for the rows.
fn not_kept(error: arrow::error::ArrowError) -> ShareError {
    let sentence = not_kept_sentence(&error);
    ShareError::Engine(EngineError::Server(ErrorCode::TEMPORARY_FULL, sentence))
}

/// The error as the front end is told. A file of this worker's that is damaged or cannot be read is given up.
fn told(worker: &Worker, error: ShareError) -> ShareFailure {
    let (class, code, sentence) = match error {
        ShareError::Plan(why) => (ErrorClass::Plan, ErrorCode::INTERNAL, why),
        ShareError::Abandoned => (
            ErrorClass::Worker,
            ErrorCode::INTERRUPTED,
            "the statement was cancelled".to_owned(),
        ),
        ShareError::Engine(error) => {
            if let EngineError::Store(error) = &error
                && let Some(path) = unreadable_file(error)
            {
                worker.held.quarantine(path);
            }
            let is_of_worker = matches!(error, EngineError::Store(_) | EngineError::Catalog(_))
                || [
                    ErrorCode::OUT_OF_RESOURCES,
                    ErrorCode::TEMPORARY_FULL,
                    ErrorCode::INTERRUPTED,
                ]
                .contains(&error.code());
            let class = match &error {
                EngineError::LostRows(_) => ErrorClass::LostRows,
                _ if is_of_worker => ErrorClass::Worker,
                _ => ErrorClass::Query,
            };
            (class, error.code(), error.to_string())
        }
    };
    ShareFailure {
        class,
        code: code.number,
        sentence,
    }
}
