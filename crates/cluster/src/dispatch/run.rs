//! The run of a phase by workers: carries out what [`Shares`] decides, over connections.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow_ipc::writer::StreamWriter;
use axum::http::{Method, StatusCode};
use bytes::Bytes;
use datafusion::common::DataFusionError;
use engine::shuffle::{Holder, KeptPiece, KeptRun, lost_rows};
use engine::{EncodedPhase, EngineError, HandedOut, Milestones, Piece, PieceEvent, milestones};
use futures::FutureExt;
use ring::digest::{Context, SHA256};
use sql::{ErrorCode, RowWarnings, SqlError, Warning};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use super::shares::{Share, Shares};
use crate::ClusterError;
use crate::client::{MemberClient, MemberResponse};
use crate::frames::{Frame, FrameReader};
use crate::front_end::{Member, Members};
use crate::messages::{ErrorClass, KeptShare, PartName, ShareFailure, ShareHead};
use crate::tls::Role;

/// How often it is looked whether workers still live.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Frames of all shares together that may wait.
const FRAMES_AHEAD: usize = 16;

/// What it takes to run a phase.
pub(super) struct PhaseDrive {
    pub number: u64,
    pub archive: String,
    pub process: u64,
    pub members: Arc<Members>,
    pub client: Arc<MemberClient>,
    pub workers: Vec<(String, Member)>,
    /// The parts that the plan reads.
    pub parts: Vec<PartName>,
    /// The numbers of the pieces that workers run, in the phase.
    pub pieces: Vec<usize>,
    pub phase: EncodedPhase,
    pub plan_digest: String,
    /// Whether each worker has the plan. It is locked while the first share takes it there.
    pub has_plan: Vec<Mutex<bool>>,
    /// A worker of whose share nothing is heard for so long is given up for the phase.
    pub stalled_after: Duration,
    /// Counts the pieces that workers have run, over all phases.
    pub done: Arc<AtomicU64>,
    /// Where warnings of pieces that count go.
    pub warnings: Arc<RowWarnings>,
}

/// What comes of a share.
struct ShareEvent {
    run: u64,
    worker: usize,
    what: What,
}

enum What {
    Rows(usize, RecordBatch),
    Warned(usize, Vec<Warning>),
    Done(usize),
    /// The worker keeps the rows of a piece, which has a number in the share as well; so many.
    Kept(usize, u32, u64),
    GoesOn,
    Ended(Result<(), ShareError>),
}

/// Why a share failed.
enum ShareError {
    /// The worker does not answer, or not as it should.
    Connection(String),
    /// The worker says why.
    Told(ShareFailure),
}

/// Tells the engine; fails when it reads no more.
type Sender = mpsc::Sender<PieceEvent>;

impl PhaseDrive {
    /// Runs until each piece is done or was given back.
    pub async fn run(self, shares: Shares, sender: Sender) {
        let (events, mut coming) = mpsc::channel(FRAMES_AHEAD);
        let mut driving = PhaseDriver {
            shares,
            sender,
            tasks: JoinSet::new(),
            aborts: HashMap::new(),
            began: HashMap::new(),
            warned: HashMap::new(),
            handed_out: HashMap::new(),
            started: Instant::now(),
            waited: Duration::ZERO,
            events,
            drive: Arc::new(self),
        };
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if driving.send_shares().await.is_none() || driving.shares.is_over() {
                return;
            }
            let step = tokio::select! {
                event = coming.recv() => match event {
                    Some(event) => driving.take(event).await,
                    None => return,
                },
                _ = ticks.tick() => driving.look().await,
                () = driving.sender.closed() => return,
            };
            if step.is_none() {
                return;
            }
        }
    }
}

/// A phase while workers run it. Its methods give `None` when there is nobody to run it for any more.
struct PhaseDriver {
    shares: Shares,
    sender: Sender,
    tasks: JoinSet<()>,
    aborts: HashMap<u64, AbortHandle>,
    /// The pieces of each run of which rows were handed on, and which are not done.
    began: HashMap<u64, HashSet<usize>>,
    /// The warnings of the pieces of each run that are not done.
    warned: HashMap<(u64, usize), Vec<Warning>>,
    /// The milestones of the runs.
    handed_out: HashMap<u64, HandedOut>,
    started: Instant,
    /// How long the engine took to read: that is no silence of workers.
    waited: Duration,
    events: mpsc::Sender<ShareEvent>,
    drive: Arc<PhaseDrive>,
}

impl PhaseDriver {
    /// The time since the start, without that in which nothing could be taken from workers.
    fn now(&self) -> Duration {
        self.started.elapsed().saturating_sub(self.waited)
    }

    /// Notes what comes of a run among the milestones of the query.
    fn note(&self, run: u64, what: fn(&Milestones, HandedOut)) {
        if let (Some(execution), Some(handed_out)) =
            (&self.drive.phase.execution, self.handed_out.get(&run))
        {
            what(execution.milestones(), *handed_out);
        }
    }

    async fn tell(&mut self, event: PieceEvent) -> Option<()> {
        let event = match self.sender.try_send(event) {
            Ok(()) => return Some(()),
            Err(TrySendError::Closed(_)) => return None,
            Err(TrySendError::Full(event)) => event,
        };
        let began = Instant::now();
        let sent = self.sender.send(event).await.ok();
        self.waited += began.elapsed();
        sent
    }

    /// Sends what workers can take, and gives back what none can.
    async fn send_shares(&mut self) -> Option<()> {
        while let Some(share) = self.shares.next_share(self.now()) {
            let (run, drive, events) = (share.run, Arc::clone(&self.drive), self.events.clone());
            let milestone = self.drive.hand_out(&share);
            if let Some(milestone) = milestone {
                self.handed_out.insert(run, milestone);
            }
            let task = self
                .tasks
                .spawn(async move { drive.run_share(share, milestone, events).await });
            self.aborts.insert(run, task);
        }
        for piece in self.shares.take_local() {
            let piece = self.drive.pieces[piece];
            self.tell(PieceEvent::RunLocally(piece)).await?;
        }
        Some(())
    }

    async fn take(&mut self, ShareEvent { run, worker, what }: ShareEvent) -> Option<()> {
        let now = self.now();
        let drive = Arc::clone(&self.drive);
        let number = |piece: usize| drive.pieces[piece];
        match what {
            What::Rows(piece, batch) => {
                self.shares.go_on(run, now);
                if !self.shares.wants(run, piece) {
                    return Some(());
                }
                self.began.entry(run).or_default().insert(piece);
                self.note(run, Milestones::rows);
                let piece = number(piece);
                self.tell(PieceEvent::Rows { run, piece, batch }).await
            }
            What::GoesOn => {
                self.shares.go_on(run, now);
                Some(())
            }
            What::Warned(piece, warnings) => {
                self.shares.go_on(run, now);
                self.warned
                    .entry((run, piece))
                    .or_default()
                    .extend(warnings);
                Some(())
            }
            What::Done(_) | What::Kept(..) => {
                let (piece, kept) = match what {
                    What::Kept(piece, at, rows) => (piece, Some((at, rows))),
                    What::Done(piece) => (piece, None),
                    _ => return Some(()),
                };
                let counts = self.shares.finish_piece(run, piece, now);
                if let (true, Some(kept)) = (counts, kept) {
                    drive.note_kept((run, worker), piece, kept);
                }
                let warned = self.warned.remove(&(run, piece)).filter(|_| counts);
                for warning in warned.into_iter().flatten() {
                    drive.warnings.add(warning);
                }
                let has_rows = self.began.entry(run).or_default().remove(&piece);
                let piece = number(piece);
                match counts {
                    true => {
                        drive.done.fetch_add(1, Relaxed);
                        self.note(run, Milestones::piece_done);
                        if let Some(execution) = &self.drive.phase.execution {
                            execution.count_remote(&self.drive.workers[worker].0);
                        }
                        self.tell(PieceEvent::Done { run, piece }).await
                    }
                    false if has_rows => self.tell(PieceEvent::Discarded { run, piece }).await,
                    false => Some(()),
                }
            }
            What::Ended(outcome) => {
                self.shares.end_run(run, now);
                self.discard(run).await?;
                match outcome {
                    Ok(()) => Some(()),
                    Err(error) => self.fail(worker, error).await,
                }
            }
        }
    }

    /// What a run gave of pieces that it did not finish counts for nothing.
    async fn discard(&mut self, run: u64) -> Option<()> {
        if let Some(abort) = self.aborts.remove(&run) {
            abort.abort();
        }
        self.warned.retain(|(of, _), _| *of != run);
        self.note(run, Milestones::end);
        self.handed_out.remove(&run);
        for piece in self.began.remove(&run).unwrap_or_default() {
            let piece = self.drive.pieces[piece];
            self.tell(PieceEvent::Discarded { run, piece }).await?;
        }
        Some(())
    }

    async fn fail(&mut self, worker: usize, error: ShareError) -> Option<()> {
        let name = &self.drive.workers[worker].0;
        match error {
            ShareError::Told(failure) if failure.class == ErrorClass::Query => {
                let error = SqlError::new(failure.sentence);
                let error = error.with_code(ErrorCode::of_number(failure.code));
                let error = DataFusionError::External(Box::new(EngineError::from(error)));
                self.tell(PieceEvent::Failed(error)).await?;
                return None;
            }
            ShareError::Told(failure) if failure.class == ErrorClass::LostRows => {
                warn!(
                    worker = name,
                    why = failure.sentence,
                    "rows that were kept are lost"
                );
                let error = lost_rows(failure.sentence);
                self.tell(PieceEvent::Failed(error)).await?;
                return None;
            }
            ShareError::Told(failure) if failure.class == ErrorClass::Worker => {
                warn!(
                    worker = name,
                    why = failure.sentence,
                    "pieces go to other replicas"
                );
                return Some(());
            }
            ShareError::Told(failure) => {
                warn!(
                    worker = name,
                    why = failure.sentence,
                    "pieces cannot be run by workers"
                );
            }
            ShareError::Connection(why) => {
                warn!(worker = name, why, "pieces go to other replicas");
            }
        }
        self.lose(worker).await
    }

    async fn lose(&mut self, worker: usize) -> Option<()> {
        for run in self.shares.lose_worker(worker, self.now()) {
            self.discard(run).await?;
        }
        Some(())
    }

    /// Takes pieces from workers that are silent, and has those of late shares run elsewhere, too.
    async fn look(&mut self) -> Option<()> {
        for worker in 0..self.drive.workers.len() {
            let (name, member) = &self.drive.workers[worker];
            if !self.shares.is_lost(worker)
                && !self.drive.members.is_live(name, member.report.process)
            {
                warn!(
                    worker = name,
                    "a worker is silent: its pieces go to other replicas"
                );
                self.lose(worker).await?;
            }
        }
        let limit = self.drive.stalled_after;
        for worker in self.shares.stalled_workers(self.now(), limit) {
            warn!(
                worker = self.drive.workers[worker].0,
                seconds = limit.as_secs(),
                "pieces make no progress: they go to other replicas, or run here"
            );
            self.lose(worker).await?;
        }
        let doubled = self.shares.double_late(self.now());
        if doubled > 0 {
            debug!(pieces = doubled, "late pieces run at another replica, too");
        }
        Some(())
    }
}

impl Drop for PhaseDriver {
    /// Runs that are doubled may be left when all pieces are done.
    fn drop(&mut self) {
        for run in self.handed_out.keys() {
            self.note(*run, Milestones::end);
        }
    }
}

impl PhaseDrive {
    /// Begins the milestone of a share, if somebody watches the query.
    fn hand_out(&self, share: &Share) -> Option<HandedOut> {
        let milestones = self.phase.execution.as_ref()?.milestones();
        let worker = &self.workers[share.worker].0;
        let (phase, pieces) = (self.phase.number, share.pieces.len());
        Some(milestones.hand_out(phase, worker, pieces, milestones::now()))
    }

    /// Notes that a worker keeps the rows of a piece, for whoever merges them.
    fn note_kept(&self, (run, worker): (u64, usize), piece: usize, (at, rows): (u32, u64)) {
        let Some(keeping) = &self.phase.keeping else {
            return;
        };
        let address = self.workers[worker].1.report.address.clone();
        let kept = KeptPiece {
            holder: Arc::new(Holder {
                address,
                is_front_end: false,
            }),
            run: KeptRun {
                phase: self.number,
                run,
            },
            at,
            rows,
        };
        keeping.kept.note(self.pieces[piece], kept);
    }

    /// Runs a share at its worker, and tells what comes.
    async fn run_share(
        &self,
        share: Share,
        milestone: Option<HandedOut>,
        events: mpsc::Sender<ShareEvent>,
    ) {
        let (run, worker) = (share.run, share.worker);
        let exchange = self.exchange(&share, milestone, &events);
        let exchange = AssertUnwindSafe(exchange).catch_unwind();
        let outcome = exchange.await.unwrap_or_else(|_| {
            let why = "what it sent made this process panic, which is a bug of Meridian";
            Err(ShareError::Connection(why.to_owned()))
        });
        let what = What::Ended(outcome);
        let _ = events.send(ShareEvent { run, worker, what }).await;
    }

    async fn exchange(
        &self,
        share: &Share,
        milestone: Option<HandedOut>,
        events: &mpsc::Sender<ShareEvent>,
    ) -> Result<(), ShareError> {
        let broken = |why: String| ShareError::Connection(why);
        let (run, worker) = (share.run, share.worker);
        let sent = self.send_share(share).await;
        let mut response = sent.map_err(|error| broken(error.to_string()))?;
        if response.status != StatusCode::OK {
            let status = response.status;
            return Err(broken(format!("{status}: {}", response.text().await)));
        }
        if let (Some(execution), Some(milestone)) = (&self.phase.execution, milestone) {
            execution.milestones().start(milestone);
        }
        let piece_of = |piece: u32| {
            let piece = share.pieces.get(piece as usize).copied();
            piece.ok_or_else(|| broken("a piece came that is not of the share".to_owned()))
        };
        let mut reader = FrameReader::default();
        while let Some(bytes) = response
            .next()
            .await
            .map_err(|error| broken(format!("it stopped in the middle: {error}")))?
        {
            reader.push(&bytes);
            while let Some(frame) = reader.next().map_err(broken)? {
                let what = match frame {
                    Frame::Rows(piece, batch) => What::Rows(piece_of(piece)?, batch),
                    Frame::Warned(piece, warnings) => What::Warned(piece_of(piece)?, warnings),
                    Frame::Done(piece) => What::Done(piece_of(piece)?),
                    Frame::Kept(..) if self.phase.keeping.is_none() => {
                        return Err(broken("it keeps rows that it was to send".to_owned()));
                    }
                    Frame::Kept(at, rows) => What::Kept(piece_of(at)?, at, rows),
                    Frame::Progress => What::GoesOn,
                    Frame::Failed(failure) => return Err(ShareError::Told(failure)),
                    Frame::Footer => {
                        // The connection is kept for the next share.
                        let _ = response.next().await;
                        return Ok(());
                    }
                };
                let sent = events.send(ShareEvent { run, worker, what }).await;
                sent.map_err(|_| broken("nobody reads it any more".to_owned()))?;
            }
        }
        Err(broken("it ended without a footer".to_owned()))
    }

    /// Sends a share, with the plan if its worker does not have it, and waits for the head of the response.
    async fn send_share(&self, share: &Share) -> Result<MemberResponse, ClusterError> {
        let mut has_plan = self.has_plan[share.worker].lock().await;
        if !*has_plan {
            let response = self.post(share, &self.phase.plan).await?;
            *has_plan = response.status == StatusCode::OK;
            return Ok(response);
        }
        drop(has_plan);
        let response = self.post(share, &[]).await?;
        if response.status != StatusCode::PRECONDITION_REQUIRED {
            return Ok(response);
        }
        // It has forgotten it. The connection is kept.
        let _ = response.text().await;
        self.post(share, &self.phase.plan).await
    }

    async fn post(&self, share: &Share, plan: &[u8]) -> Result<MemberResponse, ClusterError> {
        let body = self.body(share, plan)?;
        let address = &self.workers[share.worker].1.report.address;
        self.client
            .send(Method::POST, Role::Worker, address, "/shares", body)
            .await
    }

    fn body(&self, share: &Share, plan: &[u8]) -> Result<Bytes, EngineError> {
        let pieces: Vec<Piece> = share
            .pieces
            .iter()
            .map(|piece| self.phase.pieces[self.pieces[*piece]].clone())
            .collect();
        let head = ShareHead {
            archive: self.archive.clone(),
            front_end: self.process,
            query: self.number,
            user: self.phase.execution.as_ref().map_or(0, |it| it.user()),
            parts: self.parts.clone(),
            rating: self.phase.rating,
            num_chunks: self.phase.num_chunks,
            plan_digest: self.plan_digest.clone(),
            plan_bytes: plan.len(),
            keeping: self.phase.keeping.as_ref().map(|keeping| KeptShare {
                shuffle: keeping.shuffle.number,
                run: share.run,
                columns: keeping.columns.to_vec(),
                buckets: keeping.buckets,
            }),
        };
        share_body(&head, plan, &pieces)
    }
}

/// The SHA-256 of a plan and of the parts that it reads, in hexadecimal digits.
pub(crate) fn plan_digest(parts: &[PartName], plan: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    // What has names and numbers always has a JSON, which tells where it ends.
    context.update(&serde_json::to_vec(parts).unwrap_or_default());
    context.update(plan);
    let digest = context.finish();
    digest
        .as_ref()
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect()
}

/// A share as it is sent: the length of its head (u32, little-endian), the head in JSON, the plan, and the pieces as an Arrow stream.
fn share_body(head: &ShareHead, plan: &[u8], pieces: &[Piece]) -> Result<Bytes, EngineError> {
    let failed = |why: String| EngineError::internal(format!("a share cannot be sent: {why}"));
    let json = serde_json::to_vec(head).map_err(|error| failed(error.to_string()))?;
    let encoded = Piece::encode(pieces).map_err(|error| failed(error.to_string()))?;
    let length = u32::try_from(json.len()).map_err(|error| failed(error.to_string()))?;
    let mut body = length.to_le_bytes().to_vec();
    body.extend_from_slice(&json);
    body.extend_from_slice(plan);
    let write = || -> Result<Vec<u8>, arrow::error::ArrowError> {
        let mut writer = StreamWriter::try_new(body, &encoded.schema())?;
        writer.write(&encoded)?;
        writer.into_inner()
    };
    Ok(write().map_err(|error| failed(error.to_string()))?.into())
}

/// The head of a share that was sent, its plan, and the encoded pieces.
///
/// # Errors
/// It is no share.
pub(crate) fn share_body_parts(body: &Bytes) -> Result<(ShareHead, Bytes, Bytes), String> {
    let short = || "the share is too short".to_owned();
    let length = body.first_chunk::<4>().ok_or_else(short)?;
    let plan_at = 4 + u32::from_le_bytes(*length) as usize;
    let json = body.get(4..plan_at).ok_or_else(short)?;
    let head: ShareHead = serde_json::from_slice(json)
        .map_err(|error| format!("the head of the share cannot be read: {error}"))?;
    let pieces_at = plan_at.saturating_add(head.plan_bytes);
    if pieces_at > body.len() {
        return Err(short());
    }
    Ok((
        head,
        body.slice(plan_at..pieces_at),
        body.slice(pieces_at..),
    ))
}
