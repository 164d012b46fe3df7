//! Threads for work that is neither a connection's nor a statement's, started when there is some.

use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use crate::priority::ComputingThreads;

/// Publications plan statements, which takes more than the threads of the network have.
const STACK: usize = 32 << 20;

/// Threads with a name, which begin with the first work that they are given.
#[derive(Debug)]
pub(crate) struct BackgroundThreads {
    name: &'static str,
    count: usize,
    /// Whether they come after the threads of the network, as those of statements do.
    are_lowered: bool,
    runtime: Mutex<Option<Runtime>>,
}

impl BackgroundThreads {
    pub(crate) fn new(name: &'static str, count: usize) -> Self {
        Self {
            name,
            count,
            are_lowered: false,
            runtime: Mutex::default(),
        }
    }

    /// The same, for work that takes long: network threads get a processor before them.
    pub(crate) fn lowered(mut self) -> Self {
        self.are_lowered = true;
        self
    }

    /// Begins work.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        drop(self.handle()?.spawn(work));
        Ok(())
    }

    /// Does work, which ends when nobody waits for it any more. A panic in it is one here.
    ///
    /// # Errors
    /// The system cannot start the threads, or they have ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        // A set ends its tasks when it is dropped.
        let mut one = JoinSet::new();
        one.spawn_on(work.instrument(Span::current()), &self.handle()?);
        match one.join_next().await {
            Some(Ok(done)) => Ok(done),
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(error) => Err(error.into()),
            },
            None => Err(io::ErrorKind::Interrupted.into()),
        }
    }

    fn handle(&self) -> io::Result<Handle> {
        let mut runtime = self.runtime();
        let started = match &mut *runtime {
            Some(started) => started,
            none => none.insert(self.start()?),
        };
        Ok(started.handle().clone())
    }

    fn start(&self) -> io::Result<Runtime> {
        let mut threads = Builder::new_multi_thread();
        if self.are_lowered {
            let priority = Arc::new(ComputingThreads::default());
            let ended = Arc::clone(&priority);
            threads.on_thread_start(move || priority.begin());
            threads.on_thread_stop(move || ended.end());
        }
        threads
            .worker_threads(self.count)
            .thread_stack_size(STACK)
            .thread_name(self.name)
            .enable_all()
            .build()
    }

    /// A panic in another thread leaves it consistent, because every change is a single operation.
    fn runtime(&self) -> MutexGuard<'_, Option<Runtime>> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for BackgroundThreads {
    fn drop(&mut self) {
        // What is not done by then is answered by nobody.
        if let Some(runtime) = self.runtime().take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;
    use std::time::Duration;

    use futures::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    fn name_of_thread() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn work_is_done_on_the_threads_until_nobody_waits() {
        let threads = BackgroundThreads::new("of-a-test", 1).lowered();
        let name = threads.run(async { name_of_thread() }).await.unwrap();
        assert_eq!(name, "of-a-test");
        let (kept, dropped) = oneshot::channel::<()>();
        let forever = threads.run(async move {
            let _kept = kept;
            std::future::pending::<()>().await;
        });
        let given_up = tokio::time::timeout(Duration::from_millis(50), forever);
        assert!(given_up.await.is_err());
        assert!(dropped.await.is_err());
    }

    #[tokio::test]
    async fn a_panic_of_the_work_is_one_of_who_waits() {
        let threads = BackgroundThreads::new("of-a-test", 1);
        let panicking = threads.run(async { panic!("of the work") });
        let panic = AssertUnwindSafe(panicking).catch_unwind().await;
        let said = panic.unwrap_err().downcast::<&str>();
        assert_eq!(*said.unwrap(), "of the work");
    }
}
