//! What members tell each other, in JSON.
//!
//! ```text
//!   worker ──► front end   POST /members/NAME                 MemberReport, once a second to each front end ──► Assignment
//!                          POST /members/NAME/end             WorkerEnd, to each front end when it is told to end
//!                          GET  /parts/PART/manifest          the manifest of a part
//!                          GET  /parts/PART/files/CHUNK       a chunk file, whole or by ranges
//!   front end ──► worker   POST /shares                       ShareRequest ──► frames (see `frames`)
//!   whoever merges ──► whoever keeps rows
//!                          POST /shuffles/bucket              BucketRequest ──► frames
//!   front end ──► the same POST /shuffles/missing             MissingRequest ──► the runs that are not there
//!   worker ──► worker      GET  /parts/PART/files/CHUNK       a chunk file
//!                          POST /scrub                        TableSelection ──► WorkerScrub; GET: how far it is
//!   operator ──► front end GET /status, POST /members/NAME/drain, DELETE /members/NAME
//!                          POST /repair, /rebalance           ──► ClusterStatus of the leader; GET: the same
//!                          POST /scrub                        ScrubRequest ──► ScrubStatus; GET: how far it is
//!                          POST /loads/NUMBER                 LoadOrder; GET ──► LoadState; DELETE: an end to it
//!   front end ──► worker   POST /loads/NUMBER/runs/RUN?at=N   bytes of a run of keys, from its byte N on
//!                          POST /loads/NUMBER                 LoadTask; GET ──► LoadTaskState; DELETE: an end to it
//!                          GET  /loads/NUMBER/files/NAME      a file that the task has written
//! ```

use std::collections::BTreeMap;

use ingest::{
    InputPlan, LoadReport, LoadRequest, PlanRequest, ProgressSnapshot, ShareReport, ShareRequest,
};
use serde::{Deserialize, Serialize};

pub use crate::shuffle::ShuffleList;
use crate::tls::ListNews;

/// The files of a part, by the chunks after which they are named, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFiles {
    /// The part.
    pub part: i64,
    /// The digest of its manifest: in a directory that was restored, a number may stand for another part than before.
    pub digest: u64,
    /// Its files.
    pub files: Vec<i32>,
}

/// What a worker says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MemberReport {
    /// Where it listens.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// The archive whose replicas its directory holds; none before it has joined one.
    pub archive: Option<String>,
    /// A number of this process, another after each start.
    pub process: u64,
    /// Counts the reports of this process: a front end that was asleep may read an older one last.
    #[serde(default)]
    pub number: u64,
    /// Threads that run pieces.
    pub threads: usize,
    /// Bytes of the disks on which its directories are.
    pub disk_bytes: u64,
    /// Bytes that are free there.
    pub free_bytes: u64,
    /// The disks for users' own tables, if it has some for these alone: none of those above, then.
    #[serde(default)]
    pub user_disks: Option<DiskSpace>,
    /// Percent of the disks that may be in use, by whomever, before it takes no more files.
    #[serde(default = "default_disk_limit")]
    pub disk_limit: u8,
    /// The epoch of the leader whose assignment it follows.
    #[serde(default)]
    pub epoch: u64,
    /// The number of that assignment.
    pub assignment: u64,
    /// Counts the changes of what it holds.
    pub holdings_version: u64,
    /// What it holds, if the front end does not know that version yet.
    pub holdings: Option<Vec<PartFiles>>,
    /// Bytes of files that it was assigned and does not hold yet.
    pub missing_bytes: u64,
    /// Bytes a second that it has copied lately.
    pub copy_rate: u64,
    /// Why it last could not get a file, if it still cannot.
    pub trouble: Option<String>,
    /// Replicas that were found damaged since it started.
    pub damaged: u64,
    /// Pieces that it has run since it started.
    pub pieces: u64,
    /// Shares that it has got since it started.
    pub shares: u64,
    /// Plans that it has decoded since it started: one for all shares of a phase.
    pub plans_decoded: u64,
    /// When its certificate ends, in seconds since 1970; none if it has none, or that does not end.
    #[serde(default)]
    pub certificate_ends: Option<u64>,
    /// Its list of revoked certificates.
    #[serde(default)]
    pub revoked: ListNews,
}

/// How large disks are together, and how much of them is free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskSpace {
    /// Bytes that there are.
    pub bytes: u64,
    /// Bytes of them that are free.
    pub free: u64,
}

/// What a worker says when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEnd {
    /// The number of the process that ends.
    pub process: u64,
    /// A number higher than those of its reports: of these, one that was under way does not count any more.
    pub number: u64,
}

/// What a front end says to a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// The archive, by a number that no other has.
    pub archive: String,
    /// The version of the worker's holdings that the front end knows; none if it knows none.
    pub known_holdings: Option<u64>,
    /// The epoch in which the front end leads: a worker follows no assignment of an older one than it does.
    #[serde(default)]
    pub epoch: u64,
    /// Counts the changes of what this worker shall hold.
    pub assignment: u64,
    /// What it shall hold, if the front end leads and the worker does not know that assignment yet.
    pub parts: Option<Vec<PartFiles>>,
    /// The parts of these, by their numbers, that are of users' own tables.
    #[serde(default)]
    pub user_parts: Vec<i64>,
    /// Whether it shall give up nothing of what it holds besides: the front end has just begun to lead.
    #[serde(default)]
    pub keeps_all: bool,
    /// Files of it that come first, in this order, if the front end leads: those of which there are the fewest copies. A part may be listed
    /// several times.
    #[serde(default)]
    pub next: Option<Vec<PartFiles>>,
    /// Where the front ends of the cluster listen, the one that says so first; none if there can be one alone.
    #[serde(default)]
    pub front_ends: Vec<String>,
    /// Its list of revoked certificates.
    #[serde(default)]
    pub revoked: ListNews,
    /// Its shuffles that are not over; none from a front end of an older version.
    #[serde(default)]
    pub shuffles: Option<ShuffleList>,
}

/// A part that a share reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartName {
    /// The part.
    pub part: i64,
    /// The digest of its manifest.
    pub digest: u64,
    /// Its database.
    pub database: String,
    /// Its table.
    pub table: String,
}

/// What the head of a share says; the encoded plan and the pieces follow it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareHead {
    /// The archive.
    pub archive: String,
    /// Who asks: a number of the front end's process.
    pub front_end: u64,
    /// The query, by its number there.
    pub query: u64,
    /// The number by which schedulers know its user; 0 from a front end of an older version.
    #[serde(default)]
    pub user: u64,
    /// The parts that the plan reads.
    pub parts: Vec<PartName>,
    /// The largest scan rating of their tables.
    pub rating: u8,
    /// How many chunks all pieces of the phase have together.
    pub num_chunks: usize,
    /// The plan and the parts that it reads, by their SHA-256.
    pub plan_digest: String,
    /// Bytes of the encoded plan, which come next; none if it was sent before.
    pub plan_bytes: usize,
    /// How the rows are kept, if they are not to be sent.
    #[serde(default)]
    pub keeping: Option<KeptShare>,
}

/// A share whose rows are kept by the worker that runs it, until they are merged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptShare {
    /// The shuffle, by its number at the front end.
    pub shuffle: u64,
    /// The run of the share, by its number in the phase.
    pub run: u64,
    /// The columns whose hash says in which bucket a row is.
    pub columns: Vec<usize>,
    /// How many buckets there are.
    pub buckets: u32,
}

/// Of what kind an error is, which decides what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The statement is wrong or fails wherever it runs.
    Query,
    /// The worker cannot read its files, or has no memory: another replica may do.
    Worker,
    /// The worker cannot run such a plan at all.
    Plan,
    /// Rows that another member keeps for a shuffle cannot be had.
    LostRows,
}

/// Why a share failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareFailure {
    /// Of what kind it is.
    pub class: ErrorClass,
    /// MySQL's number of the error.
    pub code: u16,
    /// The error in words.
    pub sentence: String,
}

/// The state of a cluster, as `meridian cluster status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The archive.
    pub archive: String,
    /// Replicas of each chunk file that there shall be.
    pub replicas: usize,
    /// The front ends that share the workers, as the one that was asked knows them; none if it is the only one that there can be.
    #[serde(default)]
    pub front_ends: Vec<FrontEndStatus>,
    /// Whether the front end that was asked decides what workers hold.
    #[serde(default)]
    pub leads: bool,
    /// Pieces of this front end's queries that workers have run since it started.
    #[serde(default)]
    pub remote_pieces: u64,
    /// Its workers, by name.
    pub workers: Vec<WorkerStatus>,
    /// Chunk files of partitioned tables.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Replicas of them that lack, over all files.
    pub missing_replicas: u64,
    /// Bytes of these.
    pub missing_bytes: u64,
    /// Copies that there are fewer than there shall be, over all files: a file that only moves has all of its copies meanwhile.
    #[serde(default)]
    pub short_replicas: u64,
    /// Those of them that come by themselves: there is a worker to hold each, and a copy to make it from.
    #[serde(default)]
    pub repairable_replicas: u64,
    /// Bytes of these.
    #[serde(default)]
    pub repairable_bytes: u64,
    /// Replicas that workers shall get and do not hold yet, of all tables: of files that have too few, and of files that move.
    #[serde(default)]
    pub coming_replicas: u64,
    /// Bytes of these.
    #[serde(default)]
    pub coming_bytes: u64,
    /// Replicas that workers hold, and give up as soon as those hold them that shall.
    #[serde(default)]
    pub surplus_replicas: u64,
    /// Files that the front end alone has.
    pub files_without_replica: u64,
    /// Bytes of the files that the front end has itself.
    pub front_end_bytes: u64,
    /// Bytes of all replicas at workers.
    pub worker_bytes: u64,
    /// Files that the front end has given up: workers alone have them.
    pub away_files: u64,
    /// Bytes of these.
    pub away_bytes: u64,
    /// Those of which one worker alone has a copy.
    pub single_copy_files: u64,
    /// Those that no worker has which can be reached.
    pub lost_files: u64,
    /// Files of the front end that was asked which are damaged, and which no worker has given anew yet.
    #[serde(default)]
    pub damaged_files: u64,
    /// Why there are fewer replicas than there shall be, if that will not pass by itself.
    pub warnings: Vec<String>,
}

/// A front end, as `meridian cluster status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontEndStatus {
    /// Where members connect.
    pub address: String,
    /// Whether it decides what workers hold.
    pub leads: bool,
}

/// A worker, as `meridian cluster status` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// `live`, `draining`, `drained`, `silent` (its queries go to others) or `lost` (so do its replicas).
    pub state: String,
    /// Seconds since it last reported.
    pub silent_seconds: f64,
    /// Threads that run pieces.
    pub threads: usize,
    /// Files that it holds.
    pub files: u64,
    /// Bytes of files that it shall get.
    pub missing_bytes: u64,
    /// Bytes a second that it has copied lately.
    pub copy_rate: u64,
    /// Seconds until it has them at this rate; none if there are none, or none come.
    pub seconds_left: Option<u64>,
    /// Bytes of its disks.
    pub disk_bytes: u64,
    /// Bytes that are free there.
    pub free_bytes: u64,
    /// Its disks for users' own tables, if it has some for these alone.
    #[serde(default)]
    pub user_disks: Option<DiskSpace>,
    /// Percent of the disks that may be in use, by whomever, before it takes no more files.
    #[serde(default = "default_disk_limit")]
    pub disk_limit: u8,
    /// Pieces that it has run since it started.
    pub pieces: u64,
    /// Shares that it has got since it started.
    pub shares: u64,
    /// Plans that it has decoded since it started: one for all shares of a phase.
    pub plans_decoded: u64,
    /// Replicas that were found damaged since it started.
    pub damaged: u64,
    /// Why it last could not get a file, if it still cannot.
    pub trouble: Option<String>,
    /// When its certificate ends, in seconds since 1970; none if it has none, or that does not end.
    #[serde(default)]
    pub certificate_ends: Option<u64>,
}

/// Percent of its disk that may be in use before a worker takes no more files, if it was not told another limit.
pub const DISK_LIMIT: u8 = 80;

fn default_disk_limit() -> u8 {
    DISK_LIMIT
}

/// Tables, by their names, whose case does not count.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSelection {
    /// Those of this database; none for all.
    pub database: Option<String>,
    /// Those of this name; none for all.
    pub table: Option<String>,
}

/// What messages call the front end among workers.
pub const FRONT_END: &str = "the front end";

/// What an operator has workers read through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubRequest {
    /// The worker that does it; none for all.
    pub worker: Option<String>,
    /// The tables whose replicas are read.
    pub tables: TableSelection,
}

/// How far workers are with what operators asked them last to read through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// The workers that do it or have done it, by name.
    pub workers: BTreeMap<String, WorkerScrub>,
    /// How far the front end that was asked is with its own files; none if it was asked for nothing since it started.
    #[serde(default)]
    pub front_end: Option<WorkerScrub>,
    /// Why others do not, by name.
    pub failed: BTreeMap<String, String>,
}

/// How far a worker, or a front end with its own files, is with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerScrub {
    /// A number that no other scrub has.
    pub number: u64,
    /// The tables whose replicas are read.
    pub tables: TableSelection,
    /// Whether all are read.
    pub is_done: bool,
    /// Replicas to be read.
    pub files: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Replicas that were read.
    pub files_read: u64,
    /// Bytes of these.
    pub bytes_read: u64,
    /// Replicas that were damaged: they are given up and come anew.
    pub damaged: u64,
    /// Replicas that the worker's system does not give.
    pub unreadable: u64,
    /// Some of both.
    pub found: Vec<ScrubFinding>,
}

/// A replica that is not right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFinding {
    /// What it is, in words.
    pub replica: String,
    /// What is wrong with it.
    pub why: String,
    /// Whether it is damaged; else the system does not give it.
    pub is_damaged: bool,
}

/// A load that an operator wants workers to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadOrder {
    /// The load, whose data directory is that of the front end.
    pub load: LoadRequest,
    /// What goes with it.
    pub inputs: LoadInputs,
}

/// What those who read the inputs of a load have to know beside the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadInputs {
    /// The file that declares the columns.
    pub schema: Option<SchemaFile>,
    /// Whether requests for objects in buckets are not signed.
    pub is_anonymous: bool,
}

/// A file that declares columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaFile {
    /// What it is called.
    pub name: String,
    /// What is in it.
    pub text: String,
}

/// How far a load is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadState {
    /// What all workers have done together.
    pub progress: ProgressSnapshot,
    /// How it has ended; the error is a sentence.
    pub outcome: Option<Result<LoadReport, String>>,
}

/// What a worker does for a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadTask {
    /// What it reads.
    pub inputs: LoadInputs,
    /// The parts of whose files it reads keys and positions: those of the rows that pairs are of.
    pub parts: Vec<PartName>,
    /// What it does with that.
    pub work: LoadWork,
}

/// What is done with inputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadWork {
    /// They are looked at.
    Plan(Box<PlanRequest>),
    /// They become the part of a share.
    Share(Box<ShareRequest>),
}

/// How far a task is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadTaskState {
    /// What it has done.
    pub progress: ProgressSnapshot,
    /// How it has ended.
    pub outcome: Option<Result<LoadTaskOutcome, LoadTaskError>>,
}

/// Why a task has failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadTaskError {
    /// A sentence.
    pub why: String,
    /// Whether the worker's machine is to blame: another worker may succeed.
    pub is_of_machine: bool,
}

/// What a task has done.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadTaskOutcome {
    /// What the inputs are.
    Plan(Box<InputPlan>),
    /// What the share has written.
    Share(Box<ShareReport>),
}
