//! `meridian cluster scrub`: has workers, and the front end, read their files through now, and says what was wrong.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::{Duration, Instant};

use clap::Args;
use cluster::Operator;
use cluster::messages::{FRONT_END, ScrubRequest, ScrubStatus, TableSelection, WorkerScrub};
use ingest::{grouped, size};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::cluster_commands::{FrontEndArguments, LACKS_REPLICAS};
use crate::cluster_progress::ClusterProgress;
use crate::console::tell;
use crate::failure::Failure;

const POLL: Duration = Duration::from_millis(300);
/// How long a worker may be out of reach before it counts as gone.
const PATIENCE: Duration = Duration::from_secs(15);

/// What is read through.
#[derive(Args)]
pub struct ScrubArguments {
    /// The worker that reads its replicas through; all by default, and the front end its own files.
    #[arg(value_name = "NAME")]
    worker: Option<String>,
    /// Only the tables of this database.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// Only tables of this name.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Begin it, and do not wait for the result. The same command without this joins it while it runs.
    #[arg(long)]
    no_wait: bool,
    #[command(flatten)]
    front_end: FrontEndArguments,
}

/// Has it done, and waits for the result.
pub fn run(arguments: ScrubArguments) -> Result<(), Failure> {
    let operator = arguments.front_end.operator()?;
    let request = ScrubRequest {
        worker: arguments.worker,
        tables: TableSelection {
            database: arguments.db,
            table: arguments.table,
        },
    };
    Runtime::new()?.block_on(scrub(&operator, &request, arguments.no_wait))
}

async fn scrub(operator: &Operator, request: &ScrubRequest, no_wait: bool) -> Result<(), Failure> {
    let begun = operator.scrub(request).await?;
    let mut result = ScrubResult {
        workers: begun.workers,
        front_end: begun.front_end,
        failed: begun.failed,
        missed: HashMap::new(),
    };
    if result.workers.is_empty() && result.failed.is_empty() && result.front_end.is_none() {
        return Err(Failure::new(
            "there are no workers that have replicas: `meridian worker` starts one",
        ));
    }
    if no_wait && !result.workers.is_empty() {
        let names: Vec<&str> = result.workers.keys().map(String::as_str).collect();
        let own = match result.front_end {
            Some(_) => ", and the files of the front end by itself",
            None => "",
        };
        tell(&format!(
            "replicas are read through by {}{own}\n",
            names.join(", ")
        ))?;
        return result.of_failed();
    }
    let mut progress = ClusterProgress::new("scrubbing");
    while result.runs() {
        sleep(POLL).await;
        let now = operator.scrub_status().await?;
        result.take(&now, Instant::now());
        let text = result.progress_in_words();
        progress.show(
            result.sum(|it| it.bytes_read),
            result.sum(|it| it.bytes),
            &text,
        );
    }
    drop(progress);
    result.tell()
}

/// How far the workers are.
struct ScrubResult {
    workers: BTreeMap<String, WorkerScrub>,
    /// How far the front end is with its own files, if it reads them.
    front_end: Option<WorkerScrub>,
    /// Why some have not read all, by name.
    failed: BTreeMap<String, String>,
    /// Since when workers do not answer.
    missed: HashMap<String, Instant>,
}

impl ScrubResult {
    /// Whether there is something to wait for.
    fn runs(&self) -> bool {
        let mut workers = self.workers.iter();
        workers.any(|(name, scrub)| !scrub.is_done && !self.failed.contains_key(name))
            || self.front_end.as_ref().is_some_and(|it| !it.is_done)
    }

    /// Takes what the front end says now of workers, and of itself.
    fn take(&mut self, said: &ScrubStatus, now: Instant) {
        if let Some(own) = self.front_end.take() {
            let now = said.front_end.as_ref();
            match now.filter(|it| it.number == own.number) {
                Some(now) => self.front_end = Some(now.clone()),
                None if own.is_done => self.front_end = Some(own),
                None => {
                    let why = "it was restarted meanwhile: scrub it again".to_owned();
                    self.failed.insert(FRONT_END.to_owned(), why);
                }
            }
        }
        self.take_workers(&said.workers, &said.failed, now);
    }

    fn take_workers(
        &mut self,
        said: &BTreeMap<String, WorkerScrub>,
        failed: &BTreeMap<String, String>,
        now: Instant,
    ) {
        for (name, scrub) in &mut self.workers {
            if scrub.is_done || self.failed.contains_key(name) {
                continue;
            }
            match (said.get(name), failed.get(name)) {
                (Some(said), _) if said.number == scrub.number => {
                    self.missed.remove(name);
                    scrub.clone_from(said);
                }
                (None, Some(why)) => {
                    let since = *self.missed.entry(name.clone()).or_insert(now);
                    if now.duration_since(since) >= PATIENCE {
                        self.failed.insert(name.clone(), why.clone());
                    }
                }
                (Some(_), _) | (None, None) => {
                    let why = "it was restarted meanwhile: scrub it again".to_owned();
                    self.failed.insert(name.clone(), why);
                }
            }
        }
    }

    /// A sum over all who read files.
    fn sum(&self, of: impl Fn(&WorkerScrub) -> u64) -> u64 {
        self.workers.values().chain(&self.front_end).map(of).sum()
    }

    fn progress_in_words(&self) -> String {
        format!(
            "{} of {} files, {} not right",
            grouped(self.sum(|it| it.files_read)),
            grouped(self.sum(|it| it.files)),
            grouped(self.sum(|it| it.damaged + it.unreadable))
        )
    }

    /// Says what was found; fails if anything is not right or not read.
    fn tell(&self) -> Result<(), Failure> {
        let mut text = String::new();
        let named = self.workers.iter().map(|(name, it)| (name.as_str(), it));
        let own = self.front_end.iter().map(|it| (FRONT_END, it));
        for (name, scrub) in named.chain(own) {
            for found in &scrub.found {
                let state = match found.is_damaged {
                    true => "is damaged",
                    false => "cannot be read",
                };
                let (replica, why) = (&found.replica, &found.why);
                let _ = writeln!(text, "{name}: {replica} {state}: {why}");
            }
            let more = (scrub.damaged + scrub.unreadable).saturating_sub(scrub.found.len() as u64);
            if more > 0 {
                let _ = writeln!(text, "{name}: {} more", grouped(more));
            }
        }
        let unreadable = self.sum(|it| it.unreadable);
        let own_damaged = self.front_end.as_ref().map_or(0, |it| it.damaged);
        let damaged = self.sum(|it| it.damaged) - own_damaged;
        let all = self.read_in_words();
        if damaged + own_damaged + unreadable == 0 && self.failed.is_empty() {
            return tell(&format!("{all} were read through, and all are right\n"));
        }
        tell(&text)?;
        let mut sentences = vec![format!("{all} were read through")];
        if damaged > 0 {
            sentences.push(format!(
                "{} of them damaged, which come anew: `meridian cluster repair` waits until they are there",
                grouped(damaged)
            ));
        }
        if own_damaged > 0 {
            sentences.push(format!(
                "{} of the front end's own files damaged, which workers that hold them give anew: `meridian cluster check` says whether all are right",
                grouped(own_damaged)
            ));
        }
        if unreadable > 0 {
            sentences.push(format!(
                "{} of them not read, because those who have them lack what that takes, as memory or open files: they stay",
                grouped(unreadable)
            ));
        }
        sentences.extend(self.failed_in_words());
        Err(Failure::with_status(sentences.join("; "), LACKS_REPLICAS))
    }

    /// What was read.
    fn read_in_words(&self) -> String {
        let mut workers = WorkerScrub::default();
        for scrub in self.workers.values() {
            workers.files_read += scrub.files_read;
            workers.bytes_read += scrub.bytes_read;
        }
        let of_workers = format!(
            "{} replicas ({}) of {}",
            grouped(workers.files_read),
            size(workers.bytes_read),
            match self.workers.len() {
                1 => "1 worker".to_owned(),
                several => format!("{several} workers"),
            }
        );
        match &self.front_end {
            None => of_workers,
            Some(own) => {
                let (files, bytes) = (grouped(own.files_read), size(own.bytes_read));
                let of_front_end = format!("{files} files ({bytes}) of the front end");
                match self.workers.is_empty() {
                    true => of_front_end,
                    false => format!("{of_workers} and {of_front_end}"),
                }
            }
        }
    }

    fn failed_in_words(&self) -> impl Iterator<Item = String> {
        let failed = self.failed.iter();
        failed.map(|(name, why)| format!("{name} did not read all of its files through: {why}"))
    }

    /// Fails if a worker did not begin.
    fn of_failed(&self) -> Result<(), Failure> {
        match self.failed.is_empty() {
            true => Ok(()),
            false => {
                let sentences: Vec<String> = self.failed_in_words().collect();
                Err(Failure::with_status(sentences.join("; "), LACKS_REPLICAS))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(number: u64, files_read: u64, is_done: bool) -> WorkerScrub {
        WorkerScrub {
            number,
            files: 4,
            files_read,
            is_done,
            ..WorkerScrub::default()
        }
    }

    fn status(
        workers: BTreeMap<String, WorkerScrub>,
        front_end: Option<WorkerScrub>,
        failed: &BTreeMap<String, String>,
    ) -> ScrubStatus {
        ScrubStatus {
            workers,
            front_end,
            failed: failed.clone(),
        }
    }

    fn of(all: &[(&str, WorkerScrub)]) -> BTreeMap<String, WorkerScrub> {
        let named = all.iter().cloned();
        named.map(|(name, it)| (name.to_owned(), it)).collect()
    }

    #[test]
    fn a_worker_that_is_restarted_or_gone_ends_the_waiting() {
        let began = Instant::now();
        let mut result = ScrubResult {
            workers: of(&[
                ("a", scrub(1, 0, false)),
                ("b", scrub(2, 0, false)),
                ("c", scrub(3, 0, false)),
                ("d", scrub(4, 0, false)),
            ]),
            front_end: Some(scrub(5, 0, false)),
            failed: BTreeMap::new(),
            missed: HashMap::new(),
        };
        let silent = BTreeMap::from([("d".to_owned(), "it does not report".to_owned())]);
        let said = of(&[("a", scrub(1, 2, false)), ("b", scrub(9, 0, false))]);
        result.take(&status(said, Some(scrub(5, 1, true)), &silent), began);
        assert_eq!(result.workers["a"].files_read, 2);
        let failed: Vec<&str> = result.failed.keys().map(String::as_str).collect();
        assert_eq!(failed, ["b", "c"], "another scrub; none since its start");
        // It is back in time. What the front end has done counts, whatever it says later.
        let none = BTreeMap::new();
        let said = of(&[("a", scrub(1, 4, true)), ("d", scrub(4, 1, false))]);
        result.take(&status(said, None, &none), began + PATIENCE / 2);
        let silence = status(BTreeMap::new(), None, &silent);
        result.take(&silence, began + PATIENCE);
        assert!(result.runs() && !result.failed.contains_key("d"));
        result.take(&silence, began + PATIENCE * 2);
        assert!(!result.runs());
        assert_eq!(result.failed["d"], "it does not report");
        assert_eq!(result.sum(|it| it.files_read), 6);
    }

    #[test]
    fn a_front_end_that_is_restarted_ends_the_waiting() {
        let mut result = ScrubResult {
            workers: BTreeMap::new(),
            front_end: Some(scrub(5, 0, false)),
            failed: BTreeMap::new(),
            missed: HashMap::new(),
        };
        assert!(result.runs());
        let none = BTreeMap::new();
        result.take(&status(BTreeMap::new(), None, &none), Instant::now());
        assert!(!result.runs() && result.failed.contains_key(FRONT_END));
    }
}
