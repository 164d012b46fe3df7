//! Dispatch: pieces of a phase are sent to the workers that hold their chunks, in shares, and what comes back is handed to the engine.

mod run;
mod shares;
#[cfg(test)]
mod simulation;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use catalog::{LoadId, fold_name};
use engine::exec::RowsOf;
use engine::shuffle::{BucketReader, Shuffle};
use engine::{DispatchedPhase, EncodedPhase, Piece, PieceDispatcher, StoredTable};
use futures::StreamExt;
use futures::stream;
use sql::Interrupt;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, mpsc};

use crate::client::MemberClient;
use crate::front_end::{Member, Members, PartKey, Parts};
use crate::messages::PartName;
use crate::placement::{Candidate, rank, rank_among};
use crate::shuffle::{BegunShuffle, BucketFetcher, FrontEndShuffles};
use run::PhaseDrive;
pub(crate) use run::{plan_digest, share_body_parts};
use shares::Shares;

/// Buckets are placed as the chunks of a database would be that has this name, which none can have.
const BUCKETS: &str = "";
/// Events that may wait for the engine.
const EVENTS_AHEAD: usize = 16;

/// How a front end has pieces run by workers.
pub(crate) struct DispatchOptions {
    /// The archive.
    pub archive: String,
    /// A number of this process.
    pub process: u64,
    /// How long a worker may say nothing of pieces that it runs.
    pub stalled_after: Duration,
    /// The most rows of pieces that are merged here.
    pub shuffle_above: Option<u64>,
}

/// Sends pieces to the workers of a cluster.
pub(crate) struct Dispatcher {
    options: DispatchOptions,
    members: Arc<Members>,
    parts: Arc<Parts>,
    client: Arc<MemberClient>,
    /// Where connections live.
    runtime: Handle,
    phases: AtomicU64,
    /// Pieces that workers have run.
    pieces: Arc<AtomicU64>,
    shuffles: Arc<FrontEndShuffles>,
}

impl fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dispatcher({})", self.options.archive)
    }
}

impl Dispatcher {
    /// A dispatcher whose connections live in the runtime in which this is called.
    pub fn new(
        options: DispatchOptions,
        members: Arc<Members>,
        parts: Arc<Parts>,
        client: Arc<MemberClient>,
        shuffles: Arc<FrontEndShuffles>,
    ) -> Arc<Self> {
        Arc::new(Self {
            options,
            members,
            parts,
            client,
            runtime: Handle::current(),
            phases: AtomicU64::new(0),
            pieces: Arc::default(),
            shuffles,
        })
    }

    /// Pieces that workers have run for this front end.
    pub fn num_pieces(&self) -> u64 {
        self.pieces.load(Relaxed)
    }
}

/// Which pieces of a phase go to workers, and to which at first.
struct SharedOut {
    workers: Vec<(String, Member)>,
    parts: Vec<PartName>,
    /// The numbers of the pieces that no worker holds.
    local: Vec<usize>,
    /// The numbers of the others.
    remote: Vec<usize>,
    shares: Shares,
}

impl Dispatcher {
    /// `None` if no worker can run any of the pieces.
    fn share_out(&self, phase: &EncodedPhase) -> Option<SharedOut> {
        let workers = self.members.live();
        if phase.tables.is_empty() {
            return share_out_buckets(&phase.pieces, workers);
        }
        let parts = known_parts(&self.parts, &phase.tables)?;
        let preferences = Preferences::new(&phase.tables, &parts, &workers)?;
        let (mut local, mut remote, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for (number, piece) in phase.pieces.iter().enumerate() {
            let holders = preferences.of(piece);
            match holders.is_empty() {
                true => local.push(number),
                false => {
                    remote.push(number);
                    held.push(holders);
                }
            }
        }
        let threads: Vec<usize> = workers.iter().map(|(_, it)| it.report.threads).collect();
        (!remote.is_empty()).then(|| SharedOut {
            parts: part_names(&phase.tables, &parts),
            workers,
            local,
            remote,
            shares: Shares::new(held, &threads),
        })
    }
}

/// Any worker can merge a bucket: there are no tables to be near.
fn share_out_buckets(buckets: &[Piece], workers: Vec<(String, Member)>) -> Option<SharedOut> {
    let candidates: Vec<Candidate> = { workers.iter() }
        .map(|(name, member)| Candidate {
            name: name.clone(),
            weight: member.report.threads.max(1) as f64,
        })
        .collect();
    let ranked = |bucket: &Piece| {
        let slice = bucket.slices().first();
        slice.map_or_else(Vec::new, |slice| rank(BUCKETS, slice.chunk, &candidates))
    };
    let threads: Vec<usize> = workers.iter().map(|(_, it)| it.report.threads).collect();
    let held = buckets.iter().map(ranked).collect();
    (!workers.is_empty()).then(|| SharedOut {
        parts: Vec::new(),
        local: Vec::new(),
        remote: (0..buckets.len()).collect(),
        shares: Shares::new(held, &threads),
        workers,
    })
}

impl PieceDispatcher for Dispatcher {
    fn begin_shuffle(&self) -> Option<Arc<dyn Shuffle>> {
        let workers = self.members.live();
        let threads: usize = workers.iter().map(|(_, it)| it.report.threads).sum();
        let phase = self.phases.fetch_add(1, Relaxed);
        (threads > 0).then(|| {
            let (shuffles, client) = (Arc::clone(&self.shuffles), Arc::clone(&self.client));
            let process = self.options.process;
            let begun = BegunShuffle::begin(process, threads, phase, shuffles, client);
            Arc::new(begun) as Arc<dyn Shuffle>
        })
    }

    fn shuffles_above(&self) -> Option<u64> {
        self.options.shuffle_above
    }

    fn bucket_reader(&self) -> Arc<dyn BucketReader> {
        let _entered = self.runtime.enter();
        Arc::new(BucketFetcher::new(Arc::clone(&self.client)))
    }

    fn preview(&self, phase: &EncodedPhase) -> Vec<(String, usize)> {
        let Some(shared_out) = self.share_out(phase) else {
            return Vec::new();
        };
        let names = shared_out.workers.into_iter().map(|(name, _)| name);
        names.zip(shared_out.shares.queued()).collect()
    }

    fn dispatch(&self, phase: EncodedPhase) -> Option<DispatchedPhase> {
        let SharedOut {
            workers,
            parts,
            local,
            remote,
            shares,
        } = self.share_out(&phase)?;
        let (sender, receiver) = mpsc::channel(EVENTS_AHEAD);
        let drive = PhaseDrive {
            plan_digest: plan_digest(&parts, &phase.plan),
            has_plan: workers.iter().map(|_| Mutex::new(false)).collect(),
            number: self.phases.fetch_add(1, Relaxed),
            archive: self.options.archive.clone(),
            process: self.options.process,
            members: Arc::clone(&self.members),
            client: Arc::clone(&self.client),
            workers,
            parts,
            pieces: remote,
            phase,
            stalled_after: self.options.stalled_after,
            done: Arc::clone(&self.pieces),
            warnings: Arc::clone(Interrupt::current_or_new().warnings()),
        };
        let driven = self.runtime.spawn(drive.run(shares, sender));
        let events = Events {
            receiver,
            driven: driven.abort_handle(),
        };
        let events = stream::unfold(events, |mut events| async move {
            let event = events.receiver.recv().await?;
            Some((event, events))
        });
        Some(DispatchedPhase {
            local,
            events: events.boxed(),
        })
    }
}

/// What the parts of tables are, by their numbers; `None` if workers cannot have one of them.
fn known_parts(
    parts: &Parts,
    tables: &[(Arc<StoredTable>, RowsOf)],
) -> Option<HashMap<LoadId, PartKey>> {
    let all = tables.iter().flat_map(|(table, _)| &table.parts);
    all.map(|part| Some((part.load, parts.of(part)?.key)))
        .collect()
}

/// The parts as workers are told of them.
fn part_names(
    tables: &[(Arc<StoredTable>, RowsOf)],
    parts: &HashMap<LoadId, PartKey>,
) -> Vec<PartName> {
    let of_table = |(table, _): &(Arc<StoredTable>, RowsOf)| -> Vec<PartName> {
        let keys = table.parts.iter().filter_map(|part| parts.get(&part.load));
        keys.map(|key| PartName {
            part: key.part.0,
            digest: key.digest,
            database: table.database.clone(),
            table: table.name.clone(),
        })
        .collect()
    };
    tables.iter().flat_map(of_table).collect()
}

/// The events of a phase. Dropping them ends what workers do for it.
struct Events {
    receiver: mpsc::Receiver<engine::PieceEvent>,
    driven: tokio::task::AbortHandle,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.driven.abort();
    }
}

/// Which workers are preferred for a piece: those that hold most of what it reads, in the order of placement.
struct Preferences<'a> {
    database: String,
    tables: Vec<&'a StoredTable>,
    parts: &'a HashMap<LoadId, PartKey>,
    workers: &'a [(String, Member)],
    candidates: Vec<Candidate>,
}

impl<'a> Preferences<'a> {
    /// `None` if there is no worker.
    fn new(
        tables: &'a [(Arc<StoredTable>, RowsOf)],
        parts: &'a HashMap<LoadId, PartKey>,
        workers: &'a [(String, Member)],
    ) -> Option<Self> {
        let (first, _) = tables.first().filter(|_| !workers.is_empty())?;
        let cut = tables
            .iter()
            .filter(|(_, rows)| matches!(rows, RowsOf::Own | RowsOf::LeftHome | RowsOf::RightHome));
        let candidate =
            |(name, member): &(String, Member)| Candidate::new(name, member.report.disk_bytes);
        Some(Self {
            database: fold_name(&first.database),
            tables: cut.map(|(table, _)| table.as_ref()).collect(),
            candidates: workers.iter().map(candidate).collect(),
            parts,
            workers,
        })
    }

    /// The workers that hold anything of what a piece reads, the preferred one first.
    fn of(&self, piece: &Piece) -> Vec<usize> {
        let Some(slice) = piece.slices().first() else {
            return Vec::new();
        };
        let mut held = vec![0_usize; self.workers.len()];
        for part in self.tables.iter().flat_map(|table| &table.parts) {
            let (Some(file), Some(key)) = (part.file_of(slice.chunk), self.parts.get(&part.load))
            else {
                continue;
            };
            for (held, (_, member)) in held.iter_mut().zip(self.workers) {
                *held += usize::from(member.holds(*key, file));
            }
        }
        let holders = (0..held.len()).filter(|at| held[*at] > 0);
        let mut ranked = rank_among(&self.database, slice.chunk, &self.candidates, holders);
        // The sort is stable: placement decides between workers that hold as much.
        ranked.sort_by_key(|at| std::cmp::Reverse(held[*at]));
        ranked
    }
}
