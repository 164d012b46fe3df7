//! Follows a query until it has ended: a bar on a terminal, a plain line every few seconds elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use hyper::Method;
use indicatif::{ProgressBar, ProgressStyle};
use server::QueryDescription;

use super::INTERRUPTED;
use super::show::progress;
use crate::console::remark;
use crate::failure::Failure;
use crate::server_client::{RequestError, ServerClient};

/// How often the query's state is requested.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// How often a plain line is written while the state stays the same.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Waits until a query has ended; returns what is known of it then.
///
/// # Errors
/// There is no such query, the server is gone, or Ctrl-C: the query goes on in either of the last two cases.
pub async fn follow(client: &ServerClient, id: u64) -> Result<QueryDescription, Failure> {
    let following = async {
        let mut display = Display::new();
        let mut reached = false;
        loop {
            let target = format!("/queries/{id}");
            let query: QueryDescription = match client.send_for(Method::GET, &target, None).await {
                Ok(query) => query,
                Err(
                    error @ (RequestError::Unreachable { .. } | RequestError::Unanswered { .. }),
                ) if reached => {
                    return Err(Failure::new(format!(
                        "{error}; query {id} goes on when the server runs again"
                    )));
                }
                Err(error) => return Err(error.into()),
            };
            reached = true;
            if query.is_final() {
                return Ok(query);
            }
            display.show(&query);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        outcome = following => outcome,
        _ = tokio::signal::ctrl_c() => {
            let sentence = format!(
                "stopped following query {id}, which goes on: `meridian query show {id} --wait` follows it again, `meridian query \
                 cancel {id}` ends it"
            );
            Err(Failure::with_status(sentence, INTERRUPTED))
        }
    }
}

/// Where the progress is shown.
enum Display {
    Bar(ProgressBar, Rate),
    Lines {
        state: String,
        shown: Instant,
        rate: Rate,
    },
}

impl Display {
    fn new() -> Self {
        let rate = Rate::default();
        if !std::io::stderr().is_terminal() {
            return Self::Lines {
                state: String::new(),
                shown: Instant::now(),
                rate,
            };
        }
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self::Bar(bar, rate)
    }

    fn show(&mut self, query: &QueryDescription) {
        match self {
            Self::Bar(bar, rate) => {
                bar.set_prefix(format!("query {}", query.id));
                bar.set_length(query.pieces.max(1));
                bar.set_position(query.pieces_done.min(query.pieces));
                bar.set_message(described(query, rate));
            }
            Self::Lines { state, shown, rate } => {
                let line = described(query, rate);
                if *state == query.state && shown.elapsed() < LINE_INTERVAL {
                    return;
                }
                (*state, *shown) = (query.state.clone(), Instant::now());
                remark(&format!("query {}: {line}", query.id));
            }
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if let Self::Bar(bar, _) = self {
            bar.finish_and_clear();
        }
    }
}

/// The pieces per second since a query was first seen running.
#[derive(Default)]
struct Rate(Option<(Instant, u64)>);

impl Rate {
    fn per_second(&mut self, done: u64) -> Option<f64> {
        let (since, before) = *self.0.get_or_insert_with(|| (Instant::now(), done));
        let seconds = since.elapsed().as_secs_f64();
        (seconds >= 1.0 && done > before).then(|| (done - before) as f64 / seconds)
    }
}

/// The state of a query that waits or runs, in words.
fn described(query: &QueryDescription, rate: &mut Rate) -> String {
    if let Some(place) = query.queue_place {
        return format!("{}, place {place} of the queue", query.state);
    }
    let mut text = query.state.clone();
    if let Some(progress) = progress(query) {
        text.push_str(&format!(", {progress}"));
    }
    if let Some(rate) = rate.per_second(query.pieces_done) {
        text.push_str(&format!(", {rate:.1} pieces/s"));
    }
    text
}
