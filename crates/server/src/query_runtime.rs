//! Where queries are worked on: threads of their own, as many as there are cores, so that none of them keeps the network waiting.
//!
//! What a query gives comes part by part over a channel that holds few of them: whoever does not take them stops the work for
//! as long, and whoever drops the channel ends it. A panic in a query is an error of that query alone.
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

use crate::ClientError;
use crate::heartbeat::{Health, Heartbeat};

/// Parts that wait to be taken.
const CHANNEL_CAPACITY: usize = 2;

/// Threads that work on queries.
#[derive(Debug)]
pub(crate) struct QueryRuntime(Arc<Heartbeat>);

impl QueryRuntime {
    pub(crate) fn new(threads: NonZeroUsize) -> std::io::Result<Self> {
        Ok(Self(Heartbeat::start(threads)?))
    }

    /// Starts work that gives parts. It ends with the first rejection, and where nobody takes the parts any more.
    pub(crate) fn spawn<P, F>(&self, work: impl FnOnce(ResultSender<P>) -> F) -> ResultReceiver<P>
    where
        P: Send + 'static,
        F: Future<Output = Result<(), ClientError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let interrupt = Interrupt::new();
        let work = interrupt.scope(work(ResultSender(sender.clone())));
        let work = AssertUnwindSafe(work).catch_unwind();
        let task = async move {
            let outcome = tokio::select! {
                biased;
                () = sender.closed() => return,
                outcome = work => outcome,
            };
            let error = match outcome {
                Ok(Ok(())) => return,
                Ok(Err(error)) => error,
                Err(panic) => panicked(&*panic),
            };
            // Where nobody waits for it, nobody has to know.
            let _ = sender.send(Err(error)).await;
        };
        self.0.spawn(task.instrument(Span::current()));
        ResultReceiver {
            receiver,
            interrupt,
        }
    }

    /// Starts work that gives one thing.
    pub(crate) fn compute<T, F>(&self, work: F) -> ResultReceiver<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
    {
        self.spawn(|sender| async move { sender.send(work.await?).await })
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

impl Drop for QueryRuntime {
    fn drop(&mut self) {
        // Without waiting for what is still computed.
        self.0.end();
    }
}

/// Work that is done where it is requested: a panic in it is its error, and no more than that.
///
/// # Errors
/// Those of the work.
pub(crate) async fn run_inline<T>(
    work: impl Future<Output = Result<T, ClientError>> + Send,
) -> Result<T, ClientError> {
    let outcome = AssertUnwindSafe(work.boxed()).catch_unwind().await;
    outcome.unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn Any + Send)) -> ClientError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        panic = text.unwrap_or("unknown"),
        "a statement made the server stumble"
    );
    let sentence = "the server stumbled over this statement, which is a mistake of the server's: its log says more";
    ClientError::new(ErrorCode::INTERNAL, sentence)
}

/// Where the work puts what it gives.
#[derive(Debug)]
pub(crate) struct ResultSender<P>(mpsc::Sender<Result<P, ClientError>>);

impl<P> ResultSender<P> {
    /// Gives a part, as soon as there is room for it.
    ///
    /// # Errors
    /// Nobody takes parts any more.
    pub(crate) async fn send(&self, part: P) -> Result<(), ClientError> {
        let given = self.0.send(Ok(part)).await;
        given.map_err(|_| ClientError::new(ErrorCode::INTERRUPTED, "nobody waits for the answer"))
    }
}

/// What the work gives. Dropping it ends the work.
#[derive(Debug)]
pub(crate) struct ResultReceiver<P> {
    receiver: mpsc::Receiver<Result<P, ClientError>>,
    interrupt: Arc<Interrupt>,
}

impl<P> Drop for ResultReceiver<P> {
    fn drop(&mut self) {
        self.interrupt.end();
    }
}

impl<P> ResultReceiver<P> {
    /// The next part; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Result<P, ClientError>> {
        self.receiver.recv().await
    }

    /// The only part.
    pub(crate) async fn recv_one(&mut self) -> Result<P, ClientError> {
        let ended = || ClientError::new(ErrorCode::SERVER_ENDS, "the server ends");
        self.next().await.unwrap_or_else(|| Err(ended()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    fn query_runtime() -> QueryRuntime {
        QueryRuntime::new(NonZeroUsize::MIN).unwrap()
    }

    #[tokio::test]
    async fn parts_come_in_their_order_and_a_rejection_last() {
        let mut receiver = runtime_and_receiver(|sender| async move {
            for number in 0..10 {
                sender.send(number).await?;
            }
            Err(ClientError::new(ErrorCode::OTHER, "enough"))
        });
        for number in 0..10 {
            assert_eq!(receiver.1.next().await, Some(Ok(number)));
        }
        assert!(receiver.1.next().await.unwrap().is_err());
        assert_eq!(receiver.1.next().await, None);
    }

    /// The query runtime is kept for as long as its parts are.
    fn runtime_and_receiver<F>(
        work: impl FnOnce(ResultSender<usize>) -> F,
    ) -> (QueryRuntime, ResultReceiver<usize>)
    where
        F: Future<Output = Result<(), ClientError>> + Send + 'static,
    {
        let query_runtime = query_runtime();
        let receiver = query_runtime.spawn(work);
        (query_runtime, receiver)
    }

    #[tokio::test]
    async fn work_waits_for_whoever_takes_and_ends_with_them() {
        let given = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&given);
        let (_workshop, mut receiver) = runtime_and_receiver(move |sender| async move {
            loop {
                sender.send(counted.fetch_add(1, Ordering::SeqCst)).await?;
            }
        });
        assert_eq!(receiver.next().await, Some(Ok(0)));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(given.load(Ordering::SeqCst) <= CHANNEL_CAPACITY + 2);
        drop(receiver);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(Arc::strong_count(&given), 1, "the work still runs");
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_that_question_alone() {
        let query_runtime = query_runtime();
        let stumbles = |stumble: bool| async move {
            assert!(!stumble, "stumbled");
            Ok(7)
        };
        let error = query_runtime
            .compute(stumbles(true))
            .recv_one()
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::INTERNAL);
        assert_eq!(
            query_runtime.compute(stumbles(false)).recv_one().await,
            Ok(7)
        );
        assert_eq!(run_inline(stumbles(true)).await, Err(error));
        assert_eq!(run_inline(stumbles(false)).await, Ok(7));
    }
}
