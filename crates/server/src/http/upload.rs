//! The bodies of requests: how long they may be and how fast they have to arrive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use futures::StreamExt;
use ingest::{BytePool, Reservation};
use tokio::time::timeout;

use super::problem::Problem;

/// Bytes per second that a body has to arrive with.
const LEAST_RATE: u64 = 1 << 10;

/// What is uploaded, in words for its sender.
#[derive(Debug, Clone, Copy)]
pub(super) struct Upload {
    /// As in "the list".
    pub(super) name: &'static str,
    /// Bytes of the longest one that is accepted.
    pub(super) most_bytes: u64,
    /// What to do if it is longer.
    pub(super) advice: &'static str,
}

/// The rate at which a body arrives.
#[derive(Debug)]
pub(super) struct UploadRate {
    upload: Upload,
    begun: Instant,
    bytes: u64,
    /// How long nothing may arrive, and how long it may be slow.
    patience: Duration,
    /// Bytes that the user may send at a time.
    most_of_user: Option<u64>,
}

impl UploadRate {
    pub(super) fn new(upload: Upload, patience: Duration) -> Self {
        Self {
            upload,
            begun: Instant::now(),
            bytes: 0,
            patience,
            most_of_user: None,
        }
    }

    /// The same for a user who may send so many bytes at a time.
    pub(super) fn within(self, most_of_user: Option<u64>) -> Self {
        Self {
            most_of_user,
            ..self
        }
    }

    /// Bytes that have arrived.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Awaits the next block, with a timeout.
    pub(super) async fn next<T>(&self, next: impl Future<Output = T>) -> Result<T, Problem> {
        timeout(self.patience, next).await.map_err(|_| {
            let (name, seconds) = (self.upload.name, self.patience.as_secs_f64());
            Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("nothing more of {name} came for {seconds} s: send it again"),
            )
        })
    }

    /// Counts received bytes.
    pub(super) fn count(&mut self, bytes: usize) -> Result<(), Problem> {
        let Upload {
            name,
            most_bytes,
            advice,
        } = self.upload;
        self.bytes += bytes as u64;
        if let Some(most) = self.most_of_user.filter(|most| self.bytes > *most) {
            let sentence = format!(
                "{name} is longer than the {most} bytes that you may send at a time: {advice}; SHOW LIMITS and /me tell all limits"
            );
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, sentence));
        }
        if self.bytes > most_bytes {
            let sentence = format!("{name} is longer than {} MiB: {advice}", most_bytes >> 20);
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, sentence));
        }
        let slow = self.begun.elapsed().saturating_sub(self.patience);
        if self.bytes < slow.as_secs() * LEAST_RATE {
            let sentence =
                format!("{name} came slower than {LEAST_RATE} bytes a second: send it again");
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, sentence));
        }
        Ok(())
    }
}

/// A body in memory, for which room is reserved as long as it is held.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) bytes: Vec<u8>,
    _room: Reservation,
}

impl ReceivedBody {
    /// Receives a body, for which there has to be room in `pool`.
    ///
    /// # Errors
    /// The body is incomplete, too slow or too long, or there is no room for it.
    pub(super) async fn receive(
        body: Body,
        upload: Upload,
        patience: Duration,
        pool: &Arc<BytePool>,
    ) -> Result<Self, Problem> {
        let mut room = Reservation::of(pool);
        let mut bytes = Vec::new();
        let mut rate = UploadRate::new(upload, patience);
        let mut body = body.into_data_stream();
        while let Some(part) = rate.next(body.next()).await? {
            let part =
                part.map_err(|_| Problem::bad(format!("{} was not sent to its end", upload.name)))?;
            rate.count(part.len())?;
            room.resize(rate.bytes()).map_err(|_| no_room(upload))?;
            bytes.extend_from_slice(&part);
        }
        Ok(Self { bytes, _room: room })
    }
}

fn no_room(upload: Upload) -> Problem {
    let sentence = format!(
        "there is no room for {} now, because others are received: send it again in a while",
        upload.name
    );
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Upload = Upload {
        name: "the request",
        most_bytes: 1 << 20,
        advice: "send a shorter one",
    };

    #[tokio::test]
    async fn a_body_takes_room_while_it_is_held() {
        let pool = BytePool::new(100);
        let receive = |bytes: usize| {
            let body = Body::from(vec![b'x'; bytes]);
            ReceivedBody::receive(body, SHORT, Duration::from_secs(5), &pool)
        };
        let held = receive(60).await.unwrap();
        assert_eq!((held.bytes.len(), pool.used()), (60, 60));
        let problem = receive(60).await.unwrap_err();
        assert_eq!(problem.status, StatusCode::SERVICE_UNAVAILABLE);
        drop(held);
        assert!(receive(60).await.is_ok());
        assert_eq!(pool.used(), 0);
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_rejected() {
        let pool = BytePool::new(10 << 20);
        let body = Body::from(vec![b'x'; (1 << 20) + 1]);
        let problem = ReceivedBody::receive(body, SHORT, Duration::from_secs(5), &pool).await;
        let problem = problem.unwrap_err();
        assert_eq!(problem.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(
            problem.sentence,
            "the request is longer than 1 MiB: send a shorter one"
        );
    }
}
