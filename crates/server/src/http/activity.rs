//! Tracks the state of an HTTP connection: whether a request runs, whether one has begun to arrive, and whether the client reads the
//! response. Connections that exceed a timeout are closed.
//!
//! ```text
//!   nothing has arrived  ──first byte──►  a head arrives  ──complete──►  a request runs  ──response sent──►  nothing has arrived
//!   IDLE                                  `patience`                     STALLED without a byte read
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

use crate::connection_slots::ConnectionSlot;

/// How long a connection may be idle.
pub(super) const IDLE: Duration = Duration::from_secs(75);
/// How long a client may read nothing of a response.
const STALLED: Duration = Duration::from_secs(600);
/// How long a client may read nothing before its connection may be evicted.
const SLOW_READER: Duration = Duration::from_secs(30);
/// How often the timeouts are checked.
const ROUND: Duration = Duration::from_secs(1);

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Activity {
    slot: ConnectionSlot,
    /// How long the head of a request may take to arrive.
    patience: Duration,
    now: Mutex<ActivityState>,
}

#[derive(Debug)]
struct ActivityState {
    /// The requests that run.
    running: usize,
    /// When the last request ended, or the connection was opened.
    since: Instant,
    /// When the first byte after that arrived.
    begun: Option<Instant>,
    /// Since when the client has read nothing that was sent.
    stalled: Option<Instant>,
    /// Whether it is an HTTP/2 connection, on which bytes arrive that belong to no request.
    is_http2: bool,
}

impl Activity {
    pub(super) fn new(slot: ConnectionSlot, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            slot,
            patience,
            now: Mutex::new(ActivityState {
                running: 0,
                since: Instant::now(),
                begun: None,
                stalled: None,
                is_http2: false,
            }),
        })
    }

    /// Registers a request, which runs until the result is dropped.
    pub(super) fn begin(self: &Arc<Self>, version: Version) -> RequestGuard {
        let mut now = self.now();
        now.running += 1;
        now.is_http2 = version == Version::HTTP_2;
        now.begun = None;
        self.slot.set_busy();
        RequestGuard(Arc::clone(self))
    }

    fn end(&self) {
        let mut now = self.now();
        now.running -= 1;
        if now.running == 0 {
            (now.since, now.begun) = (Instant::now(), None);
            self.slot.set_idle();
        }
    }

    /// Notes that bytes have arrived.
    fn received(&self) {
        let mut now = self.now();
        if now.running == 0 && now.begun.is_none() {
            now.begun = Some(Instant::now());
        }
    }

    /// Notes whether the client reads what is sent.
    fn sent(&self, taken: bool) {
        let mut now = self.now();
        match (taken, now.stalled) {
            (true, None) | (false, Some(_)) => return,
            (true, Some(_)) => now.stalled = None,
            (false, None) => now.stalled = Some(Instant::now()),
        }
        match (now.stalled.is_some(), now.running) {
            (true, _) => self.slot.set_idle_after(SLOW_READER),
            (false, 0) => self.slot.set_idle(),
            (false, _) => self.slot.set_busy(),
        }
    }

    /// Completes when the connection has exceeded a timeout, or when another connection needs its slot.
    pub(super) async fn is_over(&self) {
        let overdue = async {
            while Instant::now() < self.deadline() {
                sleep(ROUND.min(self.patience)).await;
            }
        };
        tokio::select! {
            () = overdue => {}
            () = self.slot.eviction_requested() => {}
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

    /// A panic in another thread leaves the state consistent, because every change is a single operation.
    fn now(&self) -> MutexGuard<'_, ActivityState> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that runs.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<Activity>);

impl RequestGuard {
    /// Attaches the guard to the response, with which the request ends.
    pub(super) fn until_sent(self, response: Response<Body>) -> Response<Body> {
        response.map(|body| Body::new(GuardedBody { body, _guard: self }))
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The body of a response, with the guard of its request.
struct GuardedBody {
    body: Body,
    _guard: RequestGuard,
}

impl hyper::body::Body for GuardedBody {
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

/// A stream that reports its reads and writes to the connection's [`Activity`].
#[derive(Debug)]
pub(super) struct WatchedStream<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before {
            self.activity.received();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
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
    use crate::connection_slots::{ConnectionLimits, ConnectionSlots};
    use crate::listener::Peer;

    fn activity() -> Arc<Activity> {
        let slots = ConnectionSlots::new(ConnectionLimits {
            all: 1,
            of_an_address: 1,
        });
        Activity::new(slots.take(Peer::Socket).unwrap(), Duration::from_secs(5))
    }

    /// Whether the connection times out in about so many seconds.
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
        activity.received();
        assert!(is_over_in(&activity, 5));
        drop(activity.begin(Version::HTTP_11));
        assert!(is_over_in(&activity, 75));
    }

    #[test]
    fn a_request_that_runs_is_waited_for_while_its_answer_is_read() {
        let activity = activity();
        activity.received();
        let (one, other) = (
            activity.begin(Version::HTTP_11),
            activity.begin(Version::HTTP_11),
        );
        activity.received();
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
        activity.received();
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
