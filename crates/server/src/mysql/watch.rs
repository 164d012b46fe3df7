//! What may end a statement while it is answered: somebody's KILL, its time limit, the server's end, a client that hangs up.

use std::future::Future;
use std::time::Duration;

use sql::ErrorCode;
use tokio::time::{Instant, sleep_until};

use super::packets::Incoming;
use crate::running::Statement;
use crate::{Refusal, Shared};

/// Why a statement is not answered to its end.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The client is told.
    Refused(Refusal),
    /// There is nobody to be told.
    Gone,
}

impl From<Refusal> for Interruption {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Watches over a statement.
pub(crate) struct Watch<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) statement: &'a Statement,
    pub(crate) deadline: Option<Deadline>,
}

/// When a statement has to be done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// A limit that begins now.
    pub(crate) fn after(limit: Duration) -> Option<Self> {
        let at = Instant::now().checked_add(limit)?;
        Some(Self { at, limit })
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.at
    }

    fn missed(self) -> Interruption {
        let sentence = format!(
            "the statement took longer than max_execution_time, which is {} ms",
            self.limit.as_millis()
        );
        Interruption::Refused(Refusal::new(ErrorCode::TIME_LIMIT, sentence))
    }
}

impl Watch<'_> {
    /// Does a part of the work on the statement, unless it is interrupted.
    pub(crate) async fn during<T>(
        &self,
        incoming: &mut Incoming,
        work: impl Future<Output = T>,
    ) -> Result<T, Interruption> {
        let late = async {
            match self.deadline {
                Some(deadline) => {
                    sleep_until(deadline.at).await;
                    deadline
                }
                None => std::future::pending().await,
            }
        };
        if let Some(deadline) = self.deadline.filter(Deadline::is_over) {
            return Err(deadline.missed());
        }
        let refused = |code, sentence: String| Interruption::Refused(Refusal::new(code, sentence));
        tokio::select! {
            biased;
            () = self.statement.stopped() => {
                let sentence = "the statement was stopped by KILL".to_owned();
                Err(refused(ErrorCode::INTERRUPTED, sentence))
            }
            () = self.shared.ended.cancelled() => {
                let sentence = "the server ends: the statement was stopped".to_owned();
                Err(refused(ErrorCode::SERVER_ENDS, sentence))
            }
            () = incoming.hung_up() => Err(Interruption::Gone),
            done = work => Ok(done),
            // Behind the work: setting an alarm that the work does not wait for wakes the thread that waits for the network.
            deadline = late => Err(deadline.missed()),
        }
    }
}
