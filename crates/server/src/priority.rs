//! The priorities of threads: those of the network come before those that compute for statements, and these before those that were
//! abandoned because they compute without a pause.
//!
//! The system's scheduler gives a thread of a higher priority a processor as soon as it wakes. So a point query, which the network threads
//! execute, does not wait until scans, passwords and bombs have used up their slices, however many they are. Priorities are only
//! lowered, which takes no privilege. A system without Linux's `/proc` has all threads at one priority.

use std::collections::HashSet;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, getpid, getpriority_process, setpriority_process};
use tracing::debug;

/// By how much threads that compute are below those of the network: they have a third of the weight.
const COMPUTING: i32 = 5;
/// By how much more abandoned ones are lowered, to a third again: statements that were interrupted by no fault of theirs end there, too.
const ABANDONED: i32 = 5;
/// The lowest priority that there is.
const LOWEST: i32 = 19;

/// The threads of a runtime, which compute.
#[derive(Debug, Default)]
pub(crate) struct ComputingThreads(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Those that run. Under the lock none of them ends, so that no number is another thread's.
    running: HashSet<Pid>,
    is_abandoned: bool,
}

impl ComputingThreads {
    /// Lowers the priority of this thread, which begins.
    pub(crate) fn begin(&self) {
        let Some(thread) = this_thread() else {
            return;
        };
        let mut state = self.state();
        state.running.insert(thread);
        match state.is_abandoned {
            true => lower(thread, COMPUTING + ABANDONED),
            false => lower(thread, COMPUTING),
        }
    }

    /// Forgets this thread, which ends.
    pub(crate) fn end(&self) {
        if let Some(thread) = this_thread() {
            self.state().running.remove(&thread);
        }
    }

    /// Lowers the priority of all threads, which take no new work.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_abandoned, true) {
            for thread in &state.running {
                lower(*thread, COMPUTING + ABANDONED);
            }
        }
    }

    /// A panic in another thread leaves the state consistent, because every change is a single operation.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number of this thread, where threads have priorities of their own.
fn this_thread() -> Option<Pid> {
    let link = fs::read_link("/proc/thread-self").ok()?;
    let number = link.file_name()?.to_str()?.parse().ok()?;
    Pid::from_raw(number)
}

/// Lowers the priority of a thread below that of the process's first thread, which whoever started the server may have given a low one. The thread's own
/// says nothing: it begins with that of the thread that has started it, which may be lowered already.
fn lower(thread: Pid, by: i32) {
    let usual = getpriority_process(Some(getpid()));
    let lowered = usual
        .and_then(|usual| setpriority_process(Some(thread), usual.saturating_add(by).min(LOWEST)));
    if let Err(error) = lowered {
        debug!(%error, "the priority of a thread could not be lowered");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn computing_threads_come_after_others_and_abandoned_ones_last() {
        let Some(me) = this_thread() else {
            return;
        };
        let before = getpriority_process(Some(me)).unwrap();
        let threads = Arc::new(ComputingThreads::default());
        let (tell, told) = channel();
        let (release, released) = channel::<()>();
        let computing = Arc::clone(&threads);
        let thread = thread::spawn(move || {
            computing.begin();
            // As a runtime's threads start those that may wait.
            let started = thread::scope(|scope| {
                let started = scope.spawn(|| {
                    computing.begin();
                    let priority = getpriority_process(this_thread());
                    computing.end();
                    priority
                });
                started.join().unwrap()
            });
            assert_eq!(started.unwrap(), (before + COMPUTING).min(LOWEST));
            tell.send(this_thread().unwrap()).unwrap();
            let _ = released.recv();
            computing.end();
        });
        let other = told.recv().unwrap();
        let priority = |thread| getpriority_process(Some(thread)).unwrap();
        assert_eq!(priority(other), (before + COMPUTING).min(LOWEST));
        let abandoned = (before + COMPUTING + ABANDONED).min(LOWEST);
        for _ in 0..2 {
            threads.abandon();
            assert_eq!(priority(other), abandoned);
        }
        drop(release);
        thread.join().unwrap();
        assert!(threads.state().running.is_empty());
        assert_eq!(priority(me), before);
    }
}
