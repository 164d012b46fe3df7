//! The display of a catalogue that is being made: a bar on a terminal, a plain line every few seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use ingest::{grouped, size};
use synthesize::Progress;

use crate::console::remark;

const BAR_INTERVAL: Duration = Duration::from_millis(200);
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// A thread that looks at the counters and shows them on standard error.
pub struct SynthesizeDisplay {
    done: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl SynthesizeDisplay {
    /// Starts to show.
    pub fn start(progress: Arc<Progress>) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let seen = done.clone();
        let thread = std::thread::spawn(move || {
            if std::io::stderr().is_terminal() {
                show_bar(&progress, &seen);
            } else {
                show_lines(&progress, &seen);
            }
        });
        Self { done, thread }
    }

    /// Ends the display.
    pub fn finish(self) {
        self.done.store(true, Relaxed);
        self.thread.thread().unpark();
        // The display is an ornament: if its thread failed, the catalogue did not.
        let _ = self.thread.join();
    }
}

/// Rows, files and bytes so far, and the time left.
fn describe(progress: &Progress, since: Instant) -> String {
    let now = progress.snapshot();
    let seconds = since.elapsed().as_secs_f64().max(1e-3);
    let rate = now.rows as f64 / seconds;
    let mut text = format!(
        "{} rows, {} rows/s, {} files, {}",
        grouped(now.rows),
        grouped(rate as u64),
        grouped(now.files),
        size(now.bytes)
    );
    if now.rows > 0 && seconds > 1.0 {
        let left = now.total.saturating_sub(now.rows) as f64 / rate;
        text.push_str(&format!(", {left:.0} s left"));
    }
    text
}

fn show_bar(progress: &Progress, done: &AtomicBool) {
    let started = Instant::now();
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("[{bar:30}] {percent:>3}% {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    while !done.load(Relaxed) {
        let now = progress.snapshot();
        bar.set_length(now.total.max(1));
        bar.set_position(now.rows.min(now.total));
        bar.set_message(describe(progress, started));
        std::thread::park_timeout(BAR_INTERVAL);
    }
    bar.finish_and_clear();
}

fn show_lines(progress: &Progress, done: &AtomicBool) {
    let started = Instant::now();
    let mut shown = started;
    while !done.load(Relaxed) {
        std::thread::park_timeout(BAR_INTERVAL);
        if shown.elapsed() >= LINE_INTERVAL {
            shown = Instant::now();
            remark(&describe(progress, started));
        }
    }
}
