//! What a connection of HTTP does: whether requests of it run, whether one has begun to come, whether it reads its answers. Those
//! that keep the server waiting are ended.
//!
//! ```text
//!   nothing has come  ──first byte──►  a head comes  ──whole──►  a request runs  ──answer sent──►  nothing has come
//!   IDLE                               `patience`                STALLED without a byte taken
//! ```

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Response, Version};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep};

use crate::places::Place;

/// How long a connection may be idle.
pub(super) const IDLE: Duration = Duration::from_secs(75);
/// How long a client may take nothing of an answer that waits for it.
const STALLED: Duration = Duration::from_secs(600);
/// And how long before its connection may give way to others.
const SLOW_READER: Duration = Duration::from_secs(30);
/// How often it is looked whether a connection is overdue.
const ROUND: Duration = Duration::from_secs(1);

/// What a connection does.
#[derive(Debug)]
pub(super) struct Activity {
    place: Place,
    /// How long the head of a request may take to come.
    patience: Duration,
    now: Mutex<Now>,
}

#[derive(Debug)]
struct Now {
    /// Requests that are answered.
    running: usize,
    /// When the last of them had ended, or the connection begun.
    since: Instant,
    /// When the first byte after that came.
    begun: Option<Instant>,
    /// Since when the client takes nothing that is sent.
    stalled: Option<Instant>,
    /// By HTTP/2 bytes come that belong to no request.
    is_http2: bool,
}

impl Activity {
    pub(super) fn new(place: Place, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            place,
            patience,
            now: Mutex::new(Now {
                running: 0,
                since: Instant::now(),
                begun: None,
                stalled: None,
                is_http2: false,
            }),
        })
    }

    /// A request has come; it runs for as long as what is given is held.
    pub(super) fn begin(self: &Arc<Self>, version: Version) -> Runs {
        let mut now = self.now();
        now.running += 1;
        now.is_http2 = version == Version::HTTP_2;
        now.begun = None;
        self.place.is_busy();
        Runs(Arc::clone(self))
    }

    fn end(&self) {
        let mut now = self.now();
        now.running -= 1;
        if now.running == 0 {
            (now.since, now.begun) = (Instant::now(), None);
            self.place.waits();
        }
    }

    /// Bytes have come.
    fn heard(&self) {
        let mut now = self.now();
        if now.running == 0 && now.begun.is_none() {
            now.begun = Some(Instant::now());
        }
    }

    /// Whether the client takes what is sent.
    fn sent(&self, taken: bool) {
        let mut now = self.now();
        match (taken, now.stalled) {
            (true, None) | (false, Some(_)) => return,
            (true, Some(_)) => now.stalled = None,
            (false, None) => now.stalled = Some(Instant::now()),
        }
        match (now.stalled.is_some(), now.running) {
            (true, _) => self.place.waits_after(SLOW_READER),
            (false, 0) => self.place.waits(),
            (false, _) => self.place.is_busy(),
        }
    }

    /// Ends when the connection has kept the server waiting for too long, or another connection needs its place.
    pub(super) async fn is_over(&self) {
        let overdue = async {
            while Instant::now() < self.deadline() {
                sleep(ROUND.min(self.patience)).await;
            }
        };
        tokio::select! {
            () = overdue => {}
            () = self.place.is_needed() => {}
        }
    }

    fn deadline(&self) -> Instant {
        let now = self.now();
        if let Some(stalled) = now.stalled {
            return stalled + STALLED;
        }
        match (now.running, now.begun) {
            (0, Some(begun)) if !now.is_http2 => begun + self.patience,
            (0, _) => now.since + IDLE,
            _ => Instant::now() + IDLE,
        }
    }

    /// A panic elsewhere leaves it whole: every change is a single one.
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that runs.
#[derive(Debug)]
pub(super) struct Runs(Arc<Activity>);

impl Runs {
    /// The answer to it, with which it ends.
    pub(super) fn until_sent(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(Answer { body, _runs: self }))
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The body of an answer.
struct Answer {
    body: Body,
    _runs: Runs,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's bytes, of which its activity is told.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.activity.heard();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.activity.sent(written.is_ready());
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.activity.sent(written.is_ready());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::doors::Peer;
    use crate::places::{ConnectionLimits, Places};

    fn activity() -> Arc<Activity> {
        let places = Places::new(ConnectionLimits {
            all: 1,
            of_an_address: 1,
        });
        Activity::new(places.take(Peer::Socket).unwrap(), Duration::from_secs(5))
    }

    /// Whether the connection is over in about so long.
    fn is_over_in(activity: &Activity, seconds: u64) -> bool {
        let left = activity
            .deadline()
            .saturating_duration_since(Instant::now());
        left.abs_diff(Duration::from_secs(seconds)) < Duration::from_secs(2)
    }

    #[test]
    fn a_head_has_to_come_and_a_connection_may_wait() {
        let activity = activity();
        assert!(is_over_in(&activity, 75));
        activity.heard();
        assert!(is_over_in(&activity, 5));
        drop(activity.begin(Version::HTTP_11));
        assert!(is_over_in(&activity, 75));
    }

    #[test]
    fn a_request_that_runs_is_waited_for_while_its_answer_is_read() {
        let activity = activity();
        activity.heard();
        let (one, other) = (
            activity.begin(Version::HTTP_11),
            activity.begin(Version::HTTP_11),
        );
        activity.heard();
        activity.now().since -= Duration::from_secs(1000);
        drop(other);
        assert!(is_over_in(&activity, 75));
        activity.sent(false);
        assert!(is_over_in(&activity, 600));
        activity.sent(true);
        drop(one);
        assert!(is_over_in(&activity, 75));
    }

    #[test]
    fn bytes_of_http2_begin_no_head() {
        let activity = activity();
        drop(activity.begin(Version::HTTP_2));
        activity.heard();
        assert!(is_over_in(&activity, 75));
    }

    #[tokio::test]
    async fn who_is_overdue_is_over() {
        let activity = activity();
        assert!(activity.is_over().now_or_never().is_none());
        activity.now().since -= IDLE;
        activity.is_over().await;
    }
}
