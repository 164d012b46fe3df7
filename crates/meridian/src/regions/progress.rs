//! The display of region files that are being made: a line that moves on a terminal, a plain one every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use ingest::grouped;

use crate::console::remark;

const BAR_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Rows that are read and sorted, and those that are written.
#[derive(Debug, Default)]
pub struct Counters {
    read: AtomicU64,
    written: AtomicU64,
}

impl Counters {
    pub fn add_read(&self, rows: u64) {
        self.read.fetch_add(rows, Relaxed);
    }

    pub fn add_written(&self, rows: u64) {
        self.written.fetch_add(rows, Relaxed);
    }

    fn describe(&self, table: &str) -> String {
        let read = self.read.load(Relaxed);
        match self.written.load(Relaxed) {
            0 => format!("{table}: reading and sorting: {} rows", grouped(read)),
            written => format!(
                "{table}: writing: {} of {} rows",
                grouped(written),
                grouped(read)
            ),
        }
    }
}

/// A thread that looks at the counters and shows them on standard error, until it is dropped.
pub struct RegionsDisplay {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl RegionsDisplay {
    /// Starts to show.
    pub fn start(table: &str, counters: Arc<Counters>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let (table, seen) = (table.to_owned(), Arc::clone(&done));
        let thread = std::thread::spawn(move || show(&table, &counters, &seen));
        Self {
            done,
            thread: Some(thread),
        }
    }
}

impl Drop for RegionsDisplay {
    fn drop(&mut self) {
        self.done.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // The display is an ornament: if its thread failed, the files did not.
            let _ = thread.join();
        }
    }
}

fn show(table: &str, counters: &Counters, done: &AtomicBool) {
    let bar = std::io::stderr()
        .is_terminal()
        .then(ProgressBar::new_spinner);
    let mut shown = Instant::now();
    while !done.load(Relaxed) {
        std::thread::park_timeout(BAR_INTERVAL);
        if let Some(bar) = &bar {
            bar.set_message(counters.describe(table));
            bar.tick();
        } else if shown.elapsed() >= LINE_INTERVAL {
            shown = Instant::now();
            remark(&counters.describe(table));
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
}
