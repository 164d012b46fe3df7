//! The connections that ask: each a thread of its own, which does nothing but wait, send and read.
//!
//! Requests of an **open** loop are due at times that do not depend on the answers. Whoever is free takes the next one,
//! waits until it is due and sends it; if all are busy it waits, and that waiting counts: a latency is from when the
//! request was due. A server that stands still for a second is then slow for all who would have asked in that second, and not for
//! one request alone ("coordinated omission"). In a **closed** loop each connection asks again as soon as it has its response, and a
//! latency is from sending.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::ConesError;
use super::exchange::Connection;
use super::positions::Requests;
use super::rows::count_rows;
use super::schedule::Schedule;
use super::tally::Tally;

/// How requests follow each other.
pub enum Loop {
    /// Due at the times of a schedule. What is not sent `drain` after its end is never sent.
    Open {
        /// When requests are due.
        schedule: Schedule,
        /// How much longer than the schedule responses are waited for.
        drain: Duration,
    },
    /// As soon as the last response is there.
    Closed,
}

/// What all connections share.
pub struct Run {
    /// What is asked.
    pub requests: Requests,
    /// When.
    pub order: Loop,
    /// What happens before this is not counted.
    pub warm_up: Duration,
    /// The length of the part that counts.
    pub measured: Duration,
    /// Of each so many answers the rows are counted in one; 0 for none.
    pub count_rows_every: u64,
    /// The number of the next request.
    pub next: AtomicU64,
    /// The start of the run, a moment ahead.
    pub start: Instant,
}

impl Run {
    /// When nothing more is due.
    pub fn end(&self) -> Duration {
        self.warm_up + self.measured
    }

    /// Asks over one connection until the run is over; gives its counts.
    ///
    /// # Errors
    /// Never: a failure is counted.
    pub fn run_connection(&self, mut connection: Connection) -> Result<Tally, ConesError> {
        let mut tally = Tally::new()?;
        match &self.order {
            Loop::Open { schedule, drain } => {
                self.send_when_due(&mut connection, schedule, *drain, &mut tally);
            }
            Loop::Closed => self.request_in_turn(&mut connection, &mut tally),
        }
        Ok(tally)
    }

    fn send_when_due(
        &self,
        connection: &mut Connection,
        schedule: &Schedule,
        drain: Duration,
        tally: &mut Tally,
    ) {
        let mut text = String::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(due) = schedule.due(number) else {
                return;
            };
            self.requests.write(number, &mut text);
            let is_counted = due >= self.warm_up;
            let was_free = self.sleep_until(due);
            let sent = self.start.elapsed();
            if sent > self.end() + drain {
                if is_counted {
                    tally.never_sent(sent - due);
                }
                continue;
            }
            if was_free && is_counted {
                tally.sent(sent - due);
            }
            self.send(connection, number, &text, due, is_counted, tally);
        }
    }

    fn request_in_turn(&self, connection: &mut Connection, tally: &mut Tally) {
        let mut text = String::new();
        self.sleep_until(Duration::ZERO);
        loop {
            let sent = self.start.elapsed();
            if sent >= self.end() {
                return;
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            self.requests.write(number, &mut text);
            self.send(connection, number, &text, sent, true, tally);
        }
    }

    /// One request and its response. `since` is when its latency begins.
    fn send(
        &self,
        connection: &mut Connection,
        number: u64,
        text: &str,
        since: Duration,
        is_counted: bool,
        tally: &mut Tally,
    ) {
        let outcome = connection.request(text.as_bytes());
        let done = self.start.elapsed();
        if outcome.is_ok() {
            tally.came();
        }
        // Of a closed loop those answers count that come while it is measured, whenever they were requested.
        let is_counted = match self.order {
            Loop::Open { .. } => is_counted,
            Loop::Closed => done >= self.warm_up && done < self.end(),
        };
        if !is_counted {
            return;
        }
        match outcome {
            Ok(answer) if answer.status != 200 => {
                tally.failed(format!("the status is {}", answer.status));
            }
            Ok(answer) if self.is_to_be_counted(number) => match count_rows(answer.body) {
                Ok(rows) => {
                    tally.counted(rows);
                    tally.answered(done - since, answer.body.len(), done);
                }
                Err(error) => tally.failed(error.to_string()),
            },
            Ok(answer) => tally.answered(done - since, answer.body.len(), done),
            Err(error) => tally.failed(error.to_string()),
        }
    }

    fn is_to_be_counted(&self, number: u64) -> bool {
        self.count_rows_every > 0 && number.is_multiple_of(self.count_rows_every)
    }

    /// Sleeps until a time of the run; says whether there was anything to sleep.
    fn sleep_until(&self, due: Duration) -> bool {
        let mut has_slept = false;
        loop {
            let left = (self.start + due).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return has_slept;
            }
            thread::sleep(left);
            has_slept = true;
        }
    }
}
