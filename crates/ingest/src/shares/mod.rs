//! A load in shares: several processes each partition some of the input files, and one publishes what they have written.
//!
//! ```text
//!   SharedLoad::begin       locks, and what there is of the table and its directors
//!   plan_inputs             one process looks at the inputs: their files, the columns, how the sky is cut
//!   write_share             each process reads its files and writes a part, as a load does
//!   SharedLoad::conflicts   keys of which two shares have placed rows: the later share is written once more
//!   SharedLoad::publish     all parts in one transaction
//! ```
//!
//! The rows, and where they are, are those of appends of the shares one after another: of rows with one key of a director the first in
//! the order of the inputs is kept, and orphans of one key are where the first share with that key has placed them. Generated keys and pairs
//! are those of the load in one process: a key is made of the row's line and of how many files come before its own, and a pair's places of
//! its two keys alone.

mod conflicts;
mod division;
mod ends;
mod load;
mod may_read;
mod plan;
mod report;
mod write;

use std::path::PathBuf;

use catalog::{Chunk, LoadId, Table, TableMetadata};
use serde::{Deserialize, Serialize};
use store::{PartManifest, PartPartitioning};

pub use self::load::SharedLoad;
pub use self::may_read::MayRead;
pub use self::plan::plan_inputs;
pub use self::write::write_share;
use crate::rejected_rows::RejectionSummary;
use crate::report::{Partitioning, PlacementCounts};
use crate::request::LoadRequest;

/// The file of a run of keys.
pub(crate) const RUN_FILE: &str = "keys.mri";

/// What a process has to know to look at the inputs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanRequest {
    /// The load.
    pub load: LoadRequest,
    /// The overlap of a database whose sky is cut as suits the rows; none where it is cut already.
    pub overlap_deg: Option<f64>,
}

/// What the inputs are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InputPlan {
    /// The load, with its files in the place of patterns and directories, and with the columns of the table.
    pub load: LoadRequest,
    /// The files in their order.
    pub files: Vec<PlannedFile>,
    /// What the inputs were given as, for messages.
    pub given: Vec<PathBuf>,
    /// How the sky is to be cut, if that was asked.
    pub cut: Option<Partitioning>,
    /// What is worth knowing of how the columns were found.
    pub notes: Vec<String>,
    /// What the files say of the columns.
    pub metadata: TableMetadata,
}

/// A file of the inputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFile {
    /// Its name.
    pub path: PathBuf,
    /// How much there is to read, in a unit that is the same for all of them.
    pub work: u64,
}

/// A share of a load.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShareRequest {
    /// The load, with the files of the share.
    pub load: LoadRequest,
    /// How the sky is cut.
    pub partitioning: PartPartitioning,
    /// How many files count as coming before the first of the share, for keys that are generated.
    pub files_before: i64,
    /// Of a child its director, of a match table the tables of its two ends.
    pub directors: Vec<ShareDirector>,
    /// The first runs of keys that come with the request: those of the directors, in their order. Of a director, those that it has already.
    pub director_runs: usize,
    /// The runs behind these: of a director, keys that rows of earlier shares have.
    pub earlier_runs: usize,
    /// The runs behind these: keys that rows of children have, and where they are.
    pub orphan_runs: usize,
}

/// A table by which the rows of a share are placed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShareDirector {
    /// The table.
    pub table: Table,
    /// Its smallest chunk.
    pub smallest_chunk: Option<i32>,
    /// How many of the runs are of its keys; of a child of whose rows pairs are, of its own keys. None where the other end of the pairs
    /// is the same table, which has them.
    pub runs: usize,
    /// Whether rows of it with one key are in several places.
    pub scattered_keys: bool,
}

/// A part whose files a share reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPart {
    /// The part.
    pub part: LoadId,
    /// Its database.
    pub database: String,
    /// Its table.
    pub table: String,
}

impl ShareRequest {
    /// How many runs of keys come with the request.
    pub fn run_count(&self) -> usize {
        [self.director_runs, self.earlier_runs, self.orphan_runs]
            .into_iter()
            .fold(0, usize::saturating_add)
    }
}

/// What a share has written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShareReport {
    /// Its files, and what they hold.
    pub manifest: PartManifest,
    pub(crate) rejected: u64,
    pub(crate) rejected_rows: Vec<RejectionSummary>,
    pub(crate) counts: PlacementCounts,
    pub(crate) latin1_values: u64,
    pub(crate) comment_lines: u64,
    pub(crate) index_bytes: u64,
    pub(crate) input_bytes: u64,
    pub(crate) spilled_parts: u64,
}

/// A file that a share has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareFile {
    /// Its name.
    pub name: String,
    /// Its checksum; a run of keys has those of its pages.
    pub checksum: Option<u64>,
}

impl ShareReport {
    /// The chunks.
    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        self.manifest.chunks.iter().map(Chunk::from).collect()
    }

    /// The files of chunks and their overlaps.
    pub fn chunk_files(&self) -> Vec<ShareFile> {
        let mut files = Vec::new();
        for chunk in &self.manifest.chunks {
            let number = chunk.file.0;
            files.push(ShareFile {
                name: format!("chunk_{number}.mrd"),
                checksum: Some(chunk.checksum),
            });
            files.extend(chunk.overlap.map(|overlap| ShareFile {
                name: format!("overlap_{number}.mrd"),
                checksum: Some(overlap.checksum),
            }));
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        // Several chunks can share a file.
        files.dedup();
        files
    }

    /// The run of its keys, if it has one.
    pub fn run_file(&self) -> Option<ShareFile> {
        (self.index_bytes > 0).then(|| ShareFile {
            name: RUN_FILE.to_owned(),
            checksum: None,
        })
    }
}
