//! What workers and front ends have in common that read their files through: what becomes of a file, and how far what an operator asks for is.

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use catalog::{REPLICATED_CHUNK, fold_name};
use sky::ChunkId;
use store::StoreError;
use tokio::sync::Notify;

use crate::file_service::read_through;
use crate::messages::{ScrubFinding, TableSelection, WorkerScrub};

/// Files that are named of those that are not right.
const MOST_NAMED: usize = 100;

/// What became of a file that was read through.
pub(crate) enum Outcome {
    /// Every block is right, and it is the file that was published.
    Right,
    /// It is not here any more.
    Gone,
    /// It is not right, for this reason.
    Damaged(String),
    /// This process lacks what is needed to read it, for this reason.
    Unreadable(String),
}

/// Reads a file through that was published with this checksum.
pub(crate) async fn examine(path: &Path, published: u64) -> Outcome {
    match read_through(path).await {
        Ok(checksum) if checksum == published => Outcome::Right,
        Ok(_) => Outcome::Damaged("it is another file than was published".to_owned()),
        Err(error) if unreadable_file(&error).is_none() => Outcome::Unreadable(error.to_string()),
        Err(StoreError::Damaged { what, .. }) => Outcome::Damaged(what),
        Err(StoreError::Missing { .. }) => {
            Outcome::Damaged("it is not on the disk any more".to_owned())
        }
        Err(error) => Outcome::Damaged(error.to_string()),
    }
}

/// The file that an error of reading names, if that is to blame: it is damaged or gone, or its disk does not give it. What this process lacks, as
/// descriptors or memory, says nothing of the file.
pub(crate) fn unreadable_file(error: &StoreError) -> Option<&Path> {
    match error {
        StoreError::Damaged { path, .. } | StoreError::Missing { path } => Some(path),
        StoreError::Io { path, source, .. } if is_of_file(source) => Some(path),
        _ => None,
    }
}

fn is_of_file(error: &io::Error) -> bool {
    use rustix::io::Errno;

    let of_process = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS];
    let is_of_process = of_process
        .iter()
        .any(|it| error.raw_os_error() == Some(it.raw_os_error()));
    let passes = matches!(
        error.kind(),
        io::ErrorKind::Interrupted
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::TimedOut
            | io::ErrorKind::OutOfMemory
    );
    !is_of_process && !passes
}

/// What messages call a file of a table.
pub(crate) fn name_of(database: &str, table: &str, file: ChunkId) -> String {
    match file == REPLICATED_CHUNK {
        true => format!("the file of {database}.{table}"),
        false => format!("chunk {file} of {database}.{table}"),
    }
}

impl TableSelection {
    /// Whether a table is among these.
    pub(crate) fn has(&self, database: &str, table: &str) -> bool {
        let is_it = |wanted: &Option<String>, name: &str| {
            wanted
                .as_ref()
                .is_none_or(|wanted| fold_name(wanted) == fold_name(name))
        };
        is_it(&self.database, database) && is_it(&self.table, table)
    }
}

/// What operators have had read through.
#[derive(Debug, Default)]
pub(crate) struct Scrubs {
    /// The one that was asked for last.
    latest: Mutex<Option<WorkerScrub>>,
    begun: Notify,
}

impl Scrubs {
    /// Begins one, or joins the one that runs if that reads the same.
    ///
    /// # Errors
    /// One runs that reads something else, or there is no random number.
    pub fn begin(&self, tables: TableSelection) -> Result<WorkerScrub, (StatusCode, String)> {
        let mut latest = self.lock();
        if let Some(running) = latest.as_ref().filter(|it| !it.is_done) {
            return match running.tables == tables {
                true => Ok(running.clone()),
                false => Err((
                    StatusCode::CONFLICT,
                    "another scrub runs, of other tables: wait until it is done".to_owned(),
                )),
            };
        }
        let number = crate::random();
        let number =
            number.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let scrub = WorkerScrub {
            number,
            tables,
            ..WorkerScrub::default()
        };
        *latest = Some(scrub.clone());
        self.begun.notify_one();
        Ok(scrub)
    }

    /// The tables of the one that is to be run.
    pub fn begun(&self) -> Option<TableSelection> {
        let latest = self.lock();
        let begun = latest.as_ref().filter(|it| !it.is_done);
        begun.map(|it| it.tables.clone())
    }

    /// Waits until one is begun.
    pub async fn wait(&self) {
        self.begun.notified().await;
    }

    /// The one that was asked for last.
    pub fn latest(&self) -> Option<WorkerScrub> {
        self.lock().clone()
    }

    /// Changes the one that runs.
    pub fn change(&self, change: impl FnOnce(&mut WorkerScrub)) {
        if let Some(latest) = self.lock().as_mut() {
            change(latest);
        }
    }

    /// Every change leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Option<WorkerScrub>> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerScrub {
    /// Counts a file of so many bytes that was read through.
    pub(crate) fn note(&mut self, name: String, bytes: u64, outcome: Outcome) {
        self.files_read += 1;
        self.bytes_read += bytes;
        let (why, is_damaged) = match outcome {
            Outcome::Right | Outcome::Gone => return,
            Outcome::Damaged(why) => (why, true),
            Outcome::Unreadable(why) => (why, false),
        };
        self.damaged += u64::from(is_damaged);
        self.unreadable += u64::from(!is_damaged);
        if self.found.len() < MOST_NAMED {
            self.found.push(ScrubFinding {
                replica: name,
                why,
                is_damaged,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(database: Option<&str>, table: Option<&str>) -> TableSelection {
        TableSelection {
            database: database.map(str::to_owned),
            table: table.map(str::to_owned),
        }
    }

    #[test]
    fn names_of_tables_have_no_case() {
        assert!(of(None, None).has("sky", "Star"));
        assert!(of(Some("SKY"), Some("star")).has("sky", "Star"));
        assert!(of(None, Some("STAR")).has("sky", "Star"));
        assert!(!of(Some("sky"), Some("Visit")).has("sky", "Star"));
        assert!(!of(Some("other"), None).has("sky", "Star"));
    }

    /// A replica that its disk did not give stayed, and was asked for again and again.
    #[test]
    fn what_a_disk_does_not_give_is_told_from_what_this_process_lacks() {
        use rustix::io::Errno;

        let path = Path::new("chunk_1.mrd");
        let io = |errno: Errno| {
            StoreError::io("read", path)(io::Error::from_raw_os_error(errno.raw_os_error()))
        };
        for errno in [
            Errno::IO,
            Errno::ACCESS,
            Errno::LOOP,
            Errno::ISDIR,
            Errno::STALE,
        ] {
            assert_eq!(unreadable_file(&io(errno)), Some(path), "{errno}");
        }
        for errno in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOMEM,
            Errno::INTR,
            Errno::AGAIN,
        ] {
            assert_eq!(unreadable_file(&io(errno)), None, "{errno}");
        }
        let short = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(unreadable_file(&StoreError::io("read", path)(short)).is_some());
        let gone = io::Error::from(io::ErrorKind::NotFound);
        assert!(unreadable_file(&StoreError::io("open", path)(gone)).is_some());
        assert!(unreadable_file(&StoreError::WrongLocation(1)).is_none());
    }

    #[test]
    fn one_scrub_runs_at_a_time_and_whoever_asks_for_the_same_joins_it() {
        let scrubs = Scrubs::default();
        let first = scrubs.begin(of(Some("sky"), None)).unwrap();
        assert_eq!(scrubs.begin(of(Some("sky"), None)).unwrap(), first);
        let (status, why) = scrubs.begin(of(None, None)).unwrap_err();
        assert_eq!(status, StatusCode::CONFLICT);
        assert!(why.contains("wait"), "{why}");
        scrubs.change(|scrub| scrub.is_done = true);
        assert_eq!(scrubs.begun(), None);
        let second = scrubs.begin(of(None, None)).unwrap();
        assert_ne!(second.number, first.number);
        assert_eq!(scrubs.begun(), Some(of(None, None)));
    }

    #[test]
    fn what_is_not_right_is_counted_and_some_of_it_named() {
        let mut scrub = WorkerScrub::default();
        let outcomes = (0..200).map(|number| match number % 4 {
            0 => Outcome::Damaged("flipped".to_owned()),
            1 => Outcome::Unreadable("no".to_owned()),
            2 => Outcome::Gone,
            _ => Outcome::Right,
        });
        for outcome in outcomes.chain([Outcome::Damaged("last".to_owned())]) {
            scrub.note("chunk 1 of a.b".to_owned(), 10, outcome);
        }
        assert_eq!((scrub.files_read, scrub.bytes_read), (201, 2010));
        assert_eq!((scrub.damaged, scrub.unreadable), (51, 50));
        assert_eq!(scrub.found.len(), MOST_NAMED);
    }
}
