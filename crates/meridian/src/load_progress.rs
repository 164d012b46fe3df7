//! The display of a running load: bars on a terminal, a plain line every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ingest::{Phase, Progress, ProgressSnapshot, grouped};

use crate::console::remark;

const BAR_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A thread that looks at the counters of a load and shows them on standard error.
pub struct ProgressDisplay {
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ProgressDisplay {
    /// Starts to show a load of `table`.
    pub fn start(table: &str, progress: Arc<Progress>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let (table, seen) = (table.to_owned(), done.clone());
        let thread = std::thread::spawn(move || {
            if std::io::stderr().is_terminal() {
                show_bars(&table, &progress, &seen);
            } else {
                show_lines(&table, &progress, &seen);
            }
        });
        Self { done, thread }
    }

    /// Ends the display.
    pub fn finish(self) {
        self.done.store(true, Relaxed);
        self.thread.thread().unpark();
        // The display is an ornament: if its thread failed, the load did not.
        let _ = self.thread.join();
    }
}

/// The counters at the beginning of the current phase, for rates.
struct PhaseStart {
    phase: Phase,
    since: Instant,
    rows: u64,
    bytes: u64,
}

impl PhaseStart {
    fn new(now: &ProgressSnapshot) -> Self {
        Self {
            phase: now.phase,
            since: Instant::now(),
            rows: now.rows,
            bytes: now.bytes,
        }
    }

    /// Rows so far, MB/s and time left, as far as they make sense in the phase.
    fn describe(&self, now: &ProgressSnapshot) -> String {
        let seconds = self.since.elapsed().as_secs_f64().max(1e-3);
        let mut text = match now.phase {
            Phase::Reading => {
                let megabytes = (now.bytes - self.bytes) as f64 / 1e6;
                format!(
                    "{} rows, {:.0} MB/s",
                    grouped(now.rows - self.rows),
                    megabytes / seconds
                )
            }
            Phase::Writing => format!(
                "{} rows, {} rows/s",
                grouped(now.done),
                grouped((now.done as f64 / seconds) as u64)
            ),
            Phase::Receiving => {
                let rate = now.done as f64 / 1e6 / seconds;
                format!("{}, {rate:.0} MB/s", ingest::size(now.done))
            }
            _ => String::new(),
        };
        if now.total > 0 && now.done > 0 && seconds > 1.0 {
            let left = seconds * (now.total.saturating_sub(now.done)) as f64 / now.done as f64;
            text.push_str(&format!(", {left:.0} s left"));
        }
        text
    }
}

fn show_bars(table: &str, progress: &Progress, done: &AtomicBool) {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut start = PhaseStart::new(&progress.snapshot());
    while !done.load(Relaxed) {
        let now = progress.snapshot();
        if now.phase != start.phase {
            start = PhaseStart::new(&now);
        }
        bar.set_prefix(format!("{table}: {}", now.phase.name()));
        bar.set_length(now.total.max(1));
        bar.set_position(now.done.min(now.total));
        bar.set_message(start.describe(&now));
        std::thread::park_timeout(BAR_INTERVAL);
    }
    bar.finish_and_clear();
}

fn show_lines(table: &str, progress: &Progress, done: &AtomicBool) {
    let mut start = PhaseStart::new(&progress.snapshot());
    let mut shown = Instant::now();
    while !done.load(Relaxed) {
        std::thread::park_timeout(BAR_INTERVAL);
        let now = progress.snapshot();
        if now.phase != start.phase {
            start = PhaseStart::new(&now);
        }
        if shown.elapsed() >= LINE_INTERVAL {
            shown = Instant::now();
            let share = (now.done * 100)
                .checked_div(now.total)
                .map_or(String::new(), |percent| format!(" {percent} %"));
            remark(&format!(
                "{table}: {}{share}: {}",
                now.phase.name(),
                start.describe(&now)
            ));
        }
    }
}
