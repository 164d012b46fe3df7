//! What may interrupt a running statement: KILL, its time limit, the server's shutdown, and a client that hangs up.

use std::future::Future;
use std::time::Duration;

use sql::ErrorCode;
use tokio::time::{Instant, sleep_until};

use super::packets::PacketReader;
use crate::process_list::Statement;
use crate::{ClientError, Shared};

/// Why a statement was interrupted.
#[derive(Debug)]
pub(crate) enum Interruption {
    /// The client receives an error.
    Error(ClientError),
    /// The client has disconnected.
    Disconnected,
}

impl From<ClientError> for Interruption {
    fn from(error: ClientError) -> Self {
        Self::Error(error)
    }
}

/// Watches a running statement.
pub(crate) struct Watch<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) statement: &'a Statement,
    pub(crate) deadline: Option<Deadline>,
}

/// The time limit of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
    /// Whether it is a limit of the user's, and not one that the connection has set.
    is_of_user: bool,
}

impl Deadline {
    /// A limit that begins now.
    pub(crate) fn after(limit: Duration) -> Option<Self> {
        let at = Instant::now().checked_add(limit)?;
        Some(Self {
            at,
            limit,
            is_of_user: false,
        })
    }

    /// The sooner one of a limit that the connection has set and one of the user's, which begins now.
    pub(crate) fn sooner(asked: Option<Self>, of_user: Option<Duration>) -> Option<Self> {
        let of_user = of_user.and_then(Self::after).map(|limit| Self {
            is_of_user: true,
            ..limit
        });
        let both = asked.into_iter().chain(of_user);
        both.min_by_key(|limit| limit.at)
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.at
    }

    fn missed(self) -> Interruption {
        if self.is_of_user {
            return Interruption::Error(::queries::over_limit(self.limit).into());
        }
        let sentence = format!(
            "the statement took longer than max_execution_time, which is {} ms",
            self.limit.as_millis()
        );
        Interruption::Error(ClientError::new(ErrorCode::TIME_LIMIT, sentence))
    }
}

impl Watch<'_> {
    /// Runs part of the statement's work, unless it is interrupted.
    pub(crate) async fn during<T>(
        &self,
        incoming: &mut PacketReader,
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
        let rejected =
            |code, sentence: String| Interruption::Error(ClientError::new(code, sentence));
        tokio::select! {
            biased;
            () = self.statement.stopped() => {
                let sentence = "the statement was stopped by KILL".to_owned();
                Err(rejected(ErrorCode::INTERRUPTED, sentence))
            }
            () = self.shared.ended.cancelled() => {
                let sentence = "the server ends: the statement was stopped".to_owned();
                Err(rejected(ErrorCode::SERVER_ENDS, sentence))
            }
            () = incoming.hung_up() => Err(Interruption::Disconnected),
            done = work => Ok(done),
            // After the work: a timer that the work does not wait for would wake the network thread.
            deadline = late => Err(deadline.missed()),
        }
    }
}
