//! The heartbeat of the threads that execute queries. A watchdog thread starts an empty task on them ten times a second and measures
//! how long it takes until the task has run.
//!
//! ```text
//!   the task runs                   the threads are healthy
//!   it does not for PATIENCE        the threads are abandoned: they end with their work, and new threads take new work
//!   and MAX_ABANDONED sets are      no more threads are started: `/readyz` reports it until the task runs
//!   abandoned already
//! ```
//!
//! The threads have a [priority](crate::priority) below that of the network threads; abandoned ones have a still lower one.

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::priority::ComputingThreads;

/// How often the watchdog starts the task.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long the task may take. The threads yield every 10 ms, and a busy machine takes a while to schedule them.
const PATIENCE: Duration = Duration::from_millis(500);
/// After this time without a heartbeat, `/readyz` tells clients to use another server.
const TOO_LONG: Duration = Duration::from_secs(2);
/// How many sets of threads may be abandoned at once.
const MAX_ABANDONED: usize = 4;
/// The stack size of a thread: planning the most deeply nested statement that is allowed takes a few mebibytes.
const STACK: usize = 32 << 20;
/// How long a thread that waits for the disk is kept without work: the allocator keeps memory at hand for each.
const IDLE: Duration = Duration::from_secs(1);

/// The threads that execute queries, and their heartbeat.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    count: NonZeroUsize,
    threads: Mutex<Arc<WorkerThreads>>,
    /// When the last task was started.
    pinged_at: Mutex<Instant>,
    abandoned: Mutex<Vec<Weak<WorkerThreads>>>,
}

/// The state of the threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// How long the current task has not run; zero if it has.
    pub(crate) silence: Duration,
    /// Sets of threads that were abandoned and still compute.
    pub(crate) abandoned: usize,
}

impl Health {
    /// A message if statements are not executed now.
    pub(crate) fn complaint(self) -> Option<String> {
        (self.silence > TOO_LONG).then(|| {
            format!(
                "statements have not been executed for {:.1} s: long computations occupy all threads; SHOW PROCESSLIST may tell which, \
                 KILL ends them",
                self.silence.as_secs_f64()
            )
        })
    }
}

impl Heartbeat {
    /// Starts `count` threads, and the watchdog, which ends when the result is dropped.
    ///
    /// # Errors
    /// The system cannot start the threads.
    pub(crate) fn start(count: NonZeroUsize) -> io::Result<Arc<Self>> {
        let heartbeat = Arc::new(Self {
            count,
            threads: Mutex::new(WorkerThreads::start(count)?),
            pinged_at: Mutex::new(Instant::now()),
            abandoned: Mutex::default(),
        });
        let watched = Arc::downgrade(&heartbeat);
        thread::Builder::new()
            .name("meridian-watch".to_owned())
            .spawn(move || {
                while let Some(heartbeat) = watched.upgrade() {
                    heartbeat.check(PATIENCE);
                    drop(heartbeat);
                    thread::sleep(INTERVAL);
                }
            })?;
        Ok(heartbeat)
    }

    /// Spawns a task on the threads.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let threads = Arc::clone(&lock(&self.threads));
        let kept = Arc::clone(&threads);
        threads.spawn(async move {
            task.await;
            drop(kept);
        });
    }

    /// Runs work that takes long, or waits for the disk, beside the tasks. `None` if the threads have ended.
    pub(crate) fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        let threads = Arc::clone(&lock(&self.threads));
        let kept = Arc::clone(&threads);
        let runtime = lock(&threads.runtime);
        runtime.as_ref().map(|runtime| {
            runtime.spawn_blocking(move || {
                let done = work();
                drop(kept);
                done
            })
        })
    }

    pub(crate) fn health(&self) -> Health {
        let has_responded = lock(&self.threads).has_responded.load(Relaxed);
        let silence = match has_responded {
            true => Duration::ZERO,
            false => lock(&self.pinged_at).elapsed(),
        };
        Health {
            silence,
            abandoned: lock(&self.abandoned)
                .iter()
                .filter(|it| it.strong_count() > 0)
                .count(),
        }
    }

    /// Shuts down all threads without waiting for what they compute.
    pub(crate) fn end(&self) {
        lock(&self.threads).end();
        for threads in lock(&self.abandoned).iter().filter_map(Weak::upgrade) {
            threads.end();
        }
    }

    /// Starts the next task if the last one has run; abandons the threads if it has not run in time.
    fn check(&self, patience: Duration) {
        let threads = Arc::clone(&lock(&self.threads));
        let mut pinged_at = lock(&self.pinged_at);
        if threads.has_responded.swap(false, Relaxed) {
            *pinged_at = Instant::now();
            threads.ping();
        } else if pinged_at.elapsed() > patience && self.abandon() {
            *pinged_at = Instant::now();
        }
    }

    /// Replaces the threads by new ones, unless too many sets are abandoned already.
    fn abandon(&self) -> bool {
        let mut abandoned = lock(&self.abandoned);
        abandoned.retain(|it| it.strong_count() > 0);
        if abandoned.len() >= MAX_ABANDONED {
            return false;
        }
        let new = match WorkerThreads::start(self.count) {
            Ok(new) => new,
            Err(error) => {
                warn!(%error, "long computations occupy all threads, and no others can be started");
                return false;
            }
        };
        warn!(
            abandoned = abandoned.len() + 1,
            "long computations occupy all threads: others take their place"
        );
        new.has_responded.store(false, Relaxed);
        new.ping();
        let old = std::mem::replace(&mut *lock(&self.threads), new);
        old.priority.abandon();
        abandoned.push(Arc::downgrade(&old));
        true
    }
}

/// A set of threads. It ends when its work is done and new work no longer goes to it.
#[derive(Debug)]
struct WorkerThreads {
    /// `None` after it was shut down.
    runtime: Mutex<Option<Runtime>>,
    priority: Arc<ComputingThreads>,
    has_responded: AtomicBool,
}

impl WorkerThreads {
    fn start(count: NonZeroUsize) -> io::Result<Arc<Self>> {
        let priority = Arc::new(ComputingThreads::default());
        let (begun, ended) = (Arc::clone(&priority), Arc::clone(&priority));
        let runtime = Builder::new_multi_thread()
            .on_thread_start(move || begun.begin())
            .on_thread_stop(move || ended.end())
            .worker_threads(count.get())
            .thread_name("meridian-work")
            .thread_stack_size(STACK)
            .thread_keep_alive(IDLE)
            .enable_all()
            .build()?;
        Ok(Arc::new(Self {
            runtime: Mutex::new(Some(runtime)),
            priority,
            has_responded: AtomicBool::new(true),
        }))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*lock(&self.runtime) {
            drop(runtime.spawn(task));
        }
    }

    fn ping(self: &Arc<Self>) {
        let threads = Arc::downgrade(self);
        self.spawn(async move {
            if let Some(threads) = threads.upgrade() {
                threads.has_responded.store(true, Relaxed);
            }
        });
    }

    fn end(&self) {
        let runtime = lock(&self.runtime).take();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

impl Drop for WorkerThreads {
    fn drop(&mut self) {
        self.end();
    }
}

/// A panic in another thread leaves the state consistent, because every change is a single operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Occupies a thread until the sender is dropped.
    fn keep_a_thread(heartbeat: &Heartbeat) -> std::sync::mpsc::Sender<()> {
        let (sender, receiver) = channel::<()>();
        let (begun, has_begun) = channel();
        heartbeat.spawn(async move {
            begun.send(()).unwrap();
            let _ = receiver.recv();
        });
        let _ = has_begun.recv_timeout(Duration::from_secs(1));
        sender
    }

    fn is_worked_on(heartbeat: &Heartbeat) -> bool {
        let (sender, done) = channel();
        heartbeat.spawn(async move { sender.send(()).unwrap_or_default() });
        done.recv_timeout(Duration::from_secs(5)).is_ok()
    }

    fn wait_for(heartbeat: &Heartbeat, what: &str, done: impl Fn(Health) -> bool) {
        let begun = Instant::now();
        while !done(heartbeat.health()) {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "not in time: {what}"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A join without matches occupied both threads for minutes: `SELECT 1` waited for it, and `/readyz` reported no problem.
    #[test]
    fn threads_that_are_kept_are_abandoned_and_end_with_what_they_do() {
        let heartbeat = Heartbeat::start(NonZeroUsize::MIN).unwrap();
        let keeping: Vec<_> = (0..MAX_ABANDONED)
            .map(|number| {
                let keeping = keep_a_thread(&heartbeat);
                wait_for(&heartbeat, "left behind", |it| it.abandoned == number + 1);
                assert!(is_worked_on(&heartbeat));
                keeping
            })
            .collect();
        assert_eq!(heartbeat.health().complaint(), None);
        // The limit of abandoned sets is reached: now `/readyz` reports it.
        let one_too_many = keep_a_thread(&heartbeat);
        wait_for(&heartbeat, "a complaint", |it| it.complaint().is_some());
        assert_eq!(heartbeat.health().abandoned, MAX_ABANDONED);
        drop(one_too_many);
        wait_for(&heartbeat, "a sign of life", |it| it.complaint().is_none());
        drop(keeping);
        wait_for(&heartbeat, "all have ended", |it| it.abandoned == 0);
        assert!(is_worked_on(&heartbeat));
        heartbeat.end();
    }
}
