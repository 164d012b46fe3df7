//! The query runtime: threads for queries, one for each core, so that no query delays the network threads.
//!
//! A query sends its result block by block over a bounded channel: a receiver that does not read suspends the query, and dropping the
//! receiver ends it. A panic in a query is an error of that query alone.
//!
//! Queries check every few milliseconds whether to yield or to end (`sql::interrupt`), except in single steps over what an operator has
//! gathered. If such steps occupy all threads, the [heartbeat](crate::heartbeat) abandons these threads, which end with their work, and
//! starts others.

use std::any::Any;
use std::future::Future;
use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use sql::{ErrorCode, Interrupt, TimeAccount};
use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use crate::heartbeat::{Health, Heartbeat};
use crate::{ClientError, ServerError};

/// The capacity of the channel, in blocks.
const CHANNEL_CAPACITY: usize = 2;

/// The threads that execute queries.
#[derive(Debug, Clone)]
pub(crate) struct QueryRuntime {
    threads: Arc<Threads>,
    /// Whose processor time the work takes, if that is counted.
    account: Option<Arc<TimeAccount>>,
}

/// Ends the threads when nobody has them any more.
#[derive(Debug)]
struct Threads(Arc<Heartbeat>);

impl QueryRuntime {
    pub(crate) fn new(threads: NonZeroUsize) -> std::io::Result<Self> {
        Ok(Self {
            threads: Arc::new(Threads(Heartbeat::start(threads)?)),
            account: None,
        })
    }

    /// Starts the threads that execute queries.
    ///
    /// # Errors
    /// The system has no room for them.
    pub(crate) fn start(threads: NonZeroUsize) -> Result<Arc<Self>, ServerError> {
        let started = Self::new(threads);
        started.map(Arc::new).map_err(|source| ServerError::System {
            what: format!("start {threads} threads"),
            source,
        })
    }

    /// The same threads, whose work is counted as a user's.
    pub(crate) fn charging(&self, account: &Arc<TimeAccount>) -> Self {
        Self {
            threads: Arc::clone(&self.threads),
            account: Some(Arc::clone(account)),
        }
    }

    /// The same threads, whose work is counted as nobody's.
    pub(crate) fn charging_nobody(&self) -> Self {
        Self {
            threads: Arc::clone(&self.threads),
            account: None,
        }
    }

    /// Runs work of a few milliseconds on the caller's thread and turns a panic into an error.
    ///
    /// # Errors
    /// Those of the work.
    pub(crate) async fn run_inline<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>> + Send,
    ) -> Result<T, ClientError> {
        let work = AssertUnwindSafe(work).catch_unwind();
        let outcome = match &self.account {
            Some(account) => account.charged(work).await,
            None => Box::pin(work).await,
        };
        outcome.unwrap_or_else(|panic| Err(panicked(&*panic)))
    }

    /// Spawns work that sends blocks. It ends with the first error, or when the receiver is dropped.
    pub(crate) fn spawn<P, F>(&self, work: impl FnOnce(ResultSender<P>) -> F) -> ResultReceiver<P>
    where
        P: Send + 'static,
        F: Future<Output = Result<(), ClientError>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let interrupt = match &self.account {
            Some(account) => Interrupt::for_account(account),
            None => Interrupt::new(),
        };
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
            // The receiver may have been dropped.
            let _ = sender.send(Err(error)).await;
        };
        self.threads.0.spawn(task.instrument(Span::current()));
        ResultReceiver {
            receiver,
            interrupt,
        }
    }

    /// Spawns work that returns one value.
    pub(crate) fn compute<T, F>(&self, work: F) -> ResultReceiver<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, ClientError>> + Send + 'static,
    {
        self.spawn(|sender| async move { sender.send(work.await?).await })
    }

    /// Runs work that takes long, or waits for the disk, and no statement: the network threads come before it.
    ///
    /// # Errors
    /// It panicked, or the server ends.
    pub(crate) async fn compute_aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ClientError> {
        let Some(begun) = self.threads.0.spawn_blocking(work) else {
            return Err(server_ends());
        };
        begun.await.map_err(|failed| match failed.try_into_panic() {
            Ok(panic) => panicked(&*panic),
            Err(_) => server_ends(),
        })
    }

    /// A function that returns the state of the threads.
    pub(crate) fn health(&self) -> impl Fn() -> Health + Send + Sync + use<> {
        let heartbeat = Arc::downgrade(&self.threads.0);
        move || {
            let heartbeat = heartbeat.upgrade();
            heartbeat.map_or_else(Health::default, |it| it.health())
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // It does not wait for running computations.
        self.0.end();
    }
}

fn server_ends() -> ClientError {
    ClientError::new(ErrorCode::SERVER_ENDS, "the server ends")
}

fn panicked(panic: &(dyn Any + Send)) -> ClientError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(
        panic = text.unwrap_or("unknown"),
        "a statement made the server panic"
    );
    let sentence = "the server panicked while it executed this statement, which is a bug of the server: its log says more";
    ClientError::new(ErrorCode::INTERNAL, sentence)
}

/// The sending end of a result.
#[derive(Debug)]
pub(crate) struct ResultSender<P>(mpsc::Sender<Result<P, ClientError>>);

impl<P> ResultSender<P> {
    /// Sends a block, as soon as the channel has room.
    ///
    /// # Errors
    /// The receiver was dropped.
    pub(crate) async fn send(&self, part: P) -> Result<(), ClientError> {
        let given = self.0.send(Ok(part)).await;
        given.map_err(|_| {
            ClientError::new(ErrorCode::INTERRUPTED, "the result's receiver was dropped")
        })
    }
}

/// The receiving end of a result. Dropping it ends the work.
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
    /// The next block; `None` after the last.
    pub(crate) async fn next(&mut self) -> Option<Result<P, ClientError>> {
        self.receiver.recv().await
    }

    /// The only block.
    pub(crate) async fn recv_one(&mut self) -> Result<P, ClientError> {
        self.next().await.unwrap_or_else(|| Err(server_ends()))
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

    /// The query runtime lives as long as the receiver.
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
        let (_runtime, mut receiver) = runtime_and_receiver(move |sender| async move {
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
    async fn a_panic_is_an_error_of_that_query_alone() {
        let query_runtime = query_runtime();
        let panics = |panics: bool| async move {
            assert!(!panics, "panicked");
            Ok(7)
        };
        let error = query_runtime
            .compute(panics(true))
            .recv_one()
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::INTERNAL);
        assert_eq!(query_runtime.compute(panics(false)).recv_one().await, Ok(7));
        assert_eq!(query_runtime.run_inline(panics(true)).await, Err(error));
        assert_eq!(query_runtime.run_inline(panics(false)).await, Ok(7));
    }
}
