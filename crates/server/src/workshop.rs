//! Where questions are worked on: threads of their own, as many as there are cores, so that none of them keeps the network waiting.
//!
//! What a question gives comes part by part over a channel that holds few of them: whoever does not take them stops the work for
//! as long, and whoever drops the channel ends it. A panic in a question is an error of that question alone.
//!
//! Work comes by checks every few milliseconds (`sql::interrupt`), but for single steps over what an operator has gathered. Where
//! such steps keep all threads, the [heartbeat](crate::heartbeat) finds it out: these threads are then left to what they do, end
//! with it, and others take their place.

use std::any::Any;
use std::future::Future;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use sql::{ErrorCode, Interrupt};
use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use crate::Refusal;
use crate::heartbeat::{Health, Heartbeat};

/// Parts that wait to be taken.
const WAITING_PARTS: usize = 2;

/// Threads that work on questions.
#[derive(Debug)]
pub(crate) struct Workshop(Arc<Heartbeat>);

impl Workshop {
    pub(crate) fn new(threads: NonZeroUsize) -> std::io::Result<Self> {
        Ok(Self(Heartbeat::start(threads)?))
    }

    /// Starts work that gives parts. It ends with the first refusal, and where nobody takes the parts any more.
    pub(crate) fn start<P, F>(&self, work: impl FnOnce(Giver<P>) -> F) -> Parts<P>
    where
        P: Send + 'static,
        F: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let (sender, parts) = mpsc::channel(WAITING_PARTS);
        let interrupt = Interrupt::new();
        let work = interrupt.scope(work(Giver(sender.clone())));
        let work = AssertUnwindSafe(work).catch_unwind();
        let task = async move {
            let outcome = tokio::select! {
                biased;
                () = sender.closed() => return,
                outcome = work => outcome,
            };
            let refusal = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(refusal)) => refusal,
                Err(panic) => panicked(&*panic),
            };
            // Where nobody waits for it, nobody has to know.
            let _ = sender.send(Err(refusal)).await;
        };
        self.0.spawn(task.instrument(Span::current()));
        Parts { parts, interrupt }
    }

    /// Starts work that gives one thing.
    pub(crate) fn compute<T, F>(&self, work: F) -> Parts<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        self.start(|giver| async move { giver.give(work.await?).await })
    }

    /// Tells whether work is done, whenever it is asked.
    pub(crate) fn health(&self) -> impl Fn() -> Health + Send + Sync + use<> {
        let heartbeat = Arc::downgrade(&self.0);
        move || {
            let heartbeat = heartbeat.upgrade();
            heartbeat.map_or_else(Health::default, |it| it.health())
        }
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // Without waiting for what is still computed.
        self.0.end();
    }
}

/// Work that is done where it is asked for: a panic in it is its error, and no more than that.
///
/// # Errors
/// Those of the work.
pub(crate) async fn done_here<T>(
    work: impl Future<Output = Result<T, Refusal>> + Send,
) -> Result<T, Refusal> {
    let outcome = AssertUnwindSafe(work.boxed()).catch_unwind().await;
    outcome.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> Refusal {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        panic = text.unwrap_or("unknown"),
        "a statement made the server stumble"
    );
    let sentence = "the server stumbled over this statement, which is a mistake of the server's: its log says more";
    Refusal::new(ErrorCode::INTERNAL, sentence)
}

/// Where the work puts what it gives.
#[derive(Debug)]
pub(crate) struct Giver<P>(mpsc::Sender<Result<P, Refusal>>);

impl<P> Giver<P> {
    /// Gives a part, as soon as there is room for it.
    ///
    /// # Errors
    /// Nobody takes parts any more.
    pub(crate) async fn give(&self, part: P) -> Result<(), Refusal> {
        let given = self.0.send(Ok(part)).await;
        given.map_err(|_| Refusal::new(ErrorCode::INTERRUPTED, "nobody waits for the answer"))
    }
}

/// What the work gives. Dropping it ends the work.
#[derive(Debug)]
pub(crate) struct Parts<P> {
    parts: mpsc::Receiver<Result<P, Refusal>>,
    interrupt: Arc<Interrupt>,
}

impl<P> Drop for Parts<P> {
    fn drop(&mut self) {
        self.interrupt.end();
    }
}

impl<P> Parts<P> {
    /// The next part; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Result<P, Refusal>> {
        self.parts.recv().await
    }

    /// The only part.
    pub(crate) async fn only(&mut self) -> Result<P, Refusal> {
        let ended = || Refusal::new(ErrorCode::SERVER_ENDS, "the server ends");
        self.next().await.unwrap_or_else(|| Err(ended()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn workshop() -> Workshop {
        Workshop::new(NonZeroUsize::MIN).unwrap()
    }

    #[tokio::test]
    async fn parts_come_in_their_order_and_a_refusal_last() {
        let mut parts = workshop_parts(|giver| async move {
            for number in 0..10 {
                giver.give(number).await?;
            }
            Err(Refusal::new(ErrorCode::OTHER, "enough"))
        });
        for number in 0..10 {
            assert_eq!(parts.1.next().await, Some(Ok(number)));
        }
        assert!(parts.1.next().await.unwrap().is_err());
        assert_eq!(parts.1.next().await, None);
    }

    /// The workshop is kept for as long as its parts are.
    fn workshop_parts<F>(work: impl FnOnce(Giver<usize>) -> F) -> (Workshop, Parts<usize>)
    where
        F: Future<Output = Result<(), Refusal>> + Send + 'static,
    {
        let workshop = workshop();
        let parts = workshop.start(work);
        (workshop, parts)
    }

    #[tokio::test]
    async fn work_waits_for_whoever_takes_and_ends_with_them() {
        let given = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&given);
        let (_workshop, mut parts) = workshop_parts(move |giver| async move {
            loop {
                giver.give(counted.fetch_add(1, Ordering::SeqCst)).await?;
            }
        });
        assert_eq!(parts.next().await, Some(Ok(0)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(given.load(Ordering::SeqCst) <= WAITING_PARTS + 2);
        drop(parts);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(Arc::strong_count(&given), 1, "the work still runs");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_that_question_alone() {
        let workshop = workshop();
        let stumbles = |stumble: bool| async move {
            assert!(!stumble, "stumbled");
            Ok(7)
        };
        let refusal = workshop.compute(stumbles(true)).only().await.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::INTERNAL);
        assert_eq!(workshop.compute(stumbles(false)).only().await, Ok(7));
        assert_eq!(done_here(stumbles(true)).await, Err(refusal));
        assert_eq!(done_here(stumbles(false)).await, Ok(7));
    }
}
