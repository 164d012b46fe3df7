//! The sign of life of the threads that work on questions: a task that does nothing, started on them ten times a second by a thread
//! that does nothing else.
//!
//! ```text
//!   the sign comes            all is well
//!   none for PATIENCE         the threads are left behind: they end with what they do, and new ones take what comes next
//!   none, and MOST_LEFT are   nothing more can be done: `/readyz` says so until a sign comes
//!   left behind already
//! ```

use std::future::Future;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tracing::warn;

/// How often a sign is asked for.
const INTERVAL: Duration = Duration::from_millis(100);
/// How long the threads may give none. They give way every 10 ms, and a busy machine takes a while to come round to them.
const PATIENCE: Duration = Duration::from_millis(500);
/// From this silence on, clients had better ask another server.
const TOO_LONG: Duration = Duration::from_secs(2);
/// Sets of threads that may be left behind at once.
const MOST_LEFT: usize = 4;
/// Bytes of a thread's stack: planning a statement that is nested as deep as may be takes a few mebibytes of it.
const STACK: usize = 32 << 20;

/// The threads, and whether they give signs of life.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    count: NonZeroUsize,
    threads: Mutex<Arc<Threads>>,
    /// When the sign was asked for that has come last, or has not come yet.
    asked: Mutex<Instant>,
    left_behind: Mutex<Vec<Weak<Threads>>>,
}

/// How the threads are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// For how long there has been no sign, where one is waited for.
    pub(crate) silence: Duration,
    /// Sets of threads that were left behind and still compute.
    pub(crate) left_behind: usize,
}

impl Health {
    /// A sentence where statements are not answered now.
    pub(crate) fn complaint(self) -> Option<String> {
        (self.silence > TOO_LONG).then(|| {
            format!(
                "statements have not been answered for {:.1} s: long computations keep all threads; SHOW PROCESSLIST may tell which, \
                 KILL ends them",
                self.silence.as_secs_f64()
            )
        })
    }
}

impl Heartbeat {
    /// Starts so many threads, and the one that watches them for as long as the result is held.
    ///
    /// # Errors
    /// The system has no room for them.
    pub(crate) fn start(count: NonZeroUsize) -> io::Result<Arc<Self>> {
        let heartbeat = Arc::new(Self {
            count,
            threads: Mutex::new(Threads::start(count)?),
            asked: Mutex::new(Instant::now()),
            left_behind: Mutex::default(),
        });
        let watched = Arc::downgrade(&heartbeat);
        thread::Builder::new()
            .name("meridian-watch".to_owned())
            .spawn(move || {
                while let Some(heartbeat) = watched.upgrade() {
                    heartbeat.look(PATIENCE);
                    drop(heartbeat);
                    thread::sleep(INTERVAL);
                }
            })?;
        Ok(heartbeat)
    }

    /// Starts a task on the threads.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let threads = Arc::clone(&lock(&self.threads));
        let kept = Arc::clone(&threads);
        threads.spawn(async move {
            task.await;
            drop(kept);
        });
    }

    pub(crate) fn health(&self) -> Health {
        let has_answered = lock(&self.threads).has_answered.load(Relaxed);
        let silence = match has_answered {
            true => Duration::ZERO,
            false => lock(&self.asked).elapsed(),
        };
        Health {
            silence,
            left_behind: lock(&self.left_behind)
                .iter()
                .filter(|it| it.strong_count() > 0)
                .count(),
        }
    }

    /// Ends all threads without waiting for what they compute.
    pub(crate) fn end(&self) {
        lock(&self.threads).end();
        for threads in lock(&self.left_behind).iter().filter_map(Weak::upgrade) {
            threads.end();
        }
    }

    /// Asks for a sign where the last has come; leaves the threads behind where it has not come in time.
    fn look(&self, patience: Duration) {
        let threads = Arc::clone(&lock(&self.threads));
        let mut asked = lock(&self.asked);
        if threads.has_answered.swap(false, Relaxed) {
            *asked = Instant::now();
            threads.ask();
        } else if asked.elapsed() > patience && self.leave_behind() {
            *asked = Instant::now();
        }
    }

    /// Puts new threads in the place of those that there are, where few are left behind.
    fn leave_behind(&self) -> bool {
        let mut left_behind = lock(&self.left_behind);
        left_behind.retain(|it| it.strong_count() > 0);
        if left_behind.len() >= MOST_LEFT {
            return false;
        }
        let new = match Threads::start(self.count) {
            Ok(new) => new,
            Err(error) => {
                warn!(%error, "computing keeps all threads, and there is no room for others");
                return false;
            }
        };
        warn!(
            left_behind = left_behind.len() + 1,
            "computing keeps all threads: others take their place"
        );
        new.has_answered.store(false, Relaxed);
        new.ask();
        let old = std::mem::replace(&mut *lock(&self.threads), new);
        left_behind.push(Arc::downgrade(&old));
        true
    }
}

/// Some threads. They end when nothing is left for them to do and they are not those that new work goes to.
#[derive(Debug)]
struct Threads {
    /// Taken when they end.
    runtime: Mutex<Option<Runtime>>,
    has_answered: AtomicBool,
}

impl Threads {
    fn start(count: NonZeroUsize) -> io::Result<Arc<Self>> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(count.get())
            .thread_name("meridian-work")
            .thread_stack_size(STACK)
            .enable_all()
            .build()?;
        Ok(Arc::new(Self {
            runtime: Mutex::new(Some(runtime)),
            has_answered: AtomicBool::new(true),
        }))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &*lock(&self.runtime) {
            drop(runtime.spawn(task));
        }
    }

    fn ask(self: &Arc<Self>) {
        let threads = Arc::downgrade(self);
        self.spawn(async move {
            if let Some(threads) = threads.upgrade() {
                threads.has_answered.store(true, Relaxed);
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

impl Drop for Threads {
    fn drop(&mut self) {
        self.end();
    }
}

/// A panic elsewhere leaves everything whole: every change is a single one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Keeps a thread until the sender is dropped.
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

    /// A join without matches kept both threads for minutes: `SELECT 1` waited for it, and `/readyz` said that all was well.
    #[test]
    fn threads_that_are_kept_are_left_behind_and_end_with_what_they_do() {
        let heartbeat = Heartbeat::start(NonZeroUsize::MIN).unwrap();
        let keeping: Vec<_> = (0..MOST_LEFT)
            .map(|number| {
                let keeping = keep_a_thread(&heartbeat);
                wait_for(&heartbeat, "left behind", |it| it.left_behind == number + 1);
                assert!(is_worked_on(&heartbeat));
                keeping
            })
            .collect();
        assert_eq!(heartbeat.health().complaint(), None);
        // As many as may be are left behind: now it shows.
        let one_too_many = keep_a_thread(&heartbeat);
        wait_for(&heartbeat, "a complaint", |it| it.complaint().is_some());
        assert_eq!(heartbeat.health().left_behind, MOST_LEFT);
        drop(one_too_many);
        wait_for(&heartbeat, "a sign of life", |it| it.complaint().is_none());
        drop(keeping);
        wait_for(&heartbeat, "all have ended", |it| it.left_behind == 0);
        assert!(is_worked_on(&heartbeat));
        heartbeat.end();
    }
}
