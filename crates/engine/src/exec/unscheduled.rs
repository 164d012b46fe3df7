//! The turns of pieces where nobody schedules them: in the order of the pieces, a few at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::future::{BoxFuture, FutureExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::execution::{EnrolledPhase, PausedTurn, PieceTurn};

/// A phase whose pieces run in their order.
pub(super) struct UnscheduledPhase {
    pieces: usize,
    given_out: AtomicUsize,
    threads: Arc<Semaphore>,
}

impl UnscheduledPhase {
    /// So many pieces, of which `at_once` run at a time.
    pub fn new(pieces: usize, at_once: usize) -> Self {
        Self {
            pieces,
            given_out: AtomicUsize::new(0),
            threads: Arc::new(Semaphore::new(at_once)),
        }
    }
}

impl EnrolledPhase for UnscheduledPhase {
    fn next(&self) -> BoxFuture<'_, Option<Box<dyn PieceTurn>>> {
        async {
            let thread = Arc::clone(&self.threads).acquire_owned().await.ok()?;
            let piece = self.given_out.fetch_add(1, Relaxed);
            let turn = Turn {
                piece,
                thread,
                threads: Arc::clone(&self.threads),
            };
            (piece < self.pieces).then(|| Box::new(turn) as _)
        }
        .boxed()
    }
}

struct Turn {
    piece: usize,
    thread: OwnedSemaphorePermit,
    threads: Arc<Semaphore>,
}

impl PieceTurn for Turn {
    fn piece(&self) -> usize {
        self.piece
    }

    fn sharers(&self) -> u32 {
        0
    }

    fn pause(self: Box<Self>) -> Box<dyn PausedTurn> {
        drop(self.thread);
        Box::new(PausedThread {
            piece: self.piece,
            threads: self.threads,
        })
    }

    fn finish(self: Box<Self>) {}
}

struct PausedThread {
    piece: usize,
    threads: Arc<Semaphore>,
}

impl PausedTurn for PausedThread {
    fn resume(self: Box<Self>) -> BoxFuture<'static, Option<Box<dyn PieceTurn>>> {
        async move {
            let thread = Arc::clone(&self.threads).acquire_owned().await.ok()?;
            let turn = Turn {
                piece: self.piece,
                thread,
                threads: self.threads,
            };
            Some(Box::new(turn) as _)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_piece_has_one_turn_and_a_pause_frees_its_thread() {
        let phase = UnscheduledPhase::new(3, 1);
        let first = phase.next().await.unwrap();
        assert_eq!(first.piece(), 0);
        assert!(phase.next().now_or_never().is_none(), "two run at once");
        let paused = first.pause();
        let second = phase.next().await.unwrap();
        assert_eq!(second.piece(), 1);
        second.finish();
        let first = paused.resume().await.unwrap();
        assert_eq!(first.piece(), 0);
        drop(first);
        assert_eq!(phase.next().await.unwrap().piece(), 2);
        assert!(phase.next().await.is_none());
    }
}
