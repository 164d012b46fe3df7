//! The display of what a cluster does while an operator waits: a bar on a terminal, a line every few seconds elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::console::remark;

const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// How far something is.
pub struct ClusterProgress {
    title: &'static str,
    bar: Option<ProgressBar>,
    shown: Option<Instant>,
}

impl ClusterProgress {
    /// Of something with this title.
    pub fn new(title: &'static str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix} [{bar:30}] {percent:>3}% {msg}");
            let bar = ProgressBar::new(1).with_prefix(title);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self {
            title,
            bar,
            shown: None,
        }
    }

    /// Shows that so much of it is done.
    pub fn show(&mut self, done: u64, total: u64, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(total.max(1));
            bar.set_position(done.min(total));
            bar.set_message(text.to_owned());
            return;
        }
        if self
            .shown
            .is_none_or(|shown| shown.elapsed() >= LINE_INTERVAL)
        {
            self.shown = Some(Instant::now());
            // In 128 bits, since bytes of a large archive times 100 have no room in 64.
            let percent = u128::from(done.min(total)) * 100;
            let percent = percent.checked_div(u128::from(total)).unwrap_or(100);
            remark(&format!("{}: {percent} %: {text}", self.title));
        }
    }

    /// Says something beside it.
    pub fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| remark(line)),
            None => remark(line),
        }
    }
}

impl Drop for ClusterProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
