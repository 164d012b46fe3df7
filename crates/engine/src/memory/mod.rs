//! The memory that statements may take together, and who ends where they take more.
//!
//! Operators reserve what they know that they will gather, with a [pool](pool::MeasuredPool) that says no to them; those that can
//! then go on on disk. But buffers double, blocks are decoded, functions make texts and answers become packets, and nobody
//! reserves for that. So a thread looks every few milliseconds at what the process has really allocated
//! (`heap`). Where that, without the columns that are kept decoded, is more than statements may have, the one that
//! holds the most ends with an error. It notices at its next check; what it allocates until then is beyond the budget.
//!
//! The allocator keeps pages at hand that are free, for a second. Where the process comes near to what it may hold, they are given back.

mod pool;

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sql::Interrupt;
use tracing::warn;

pub(crate) use pool::MeasuredPool;

use crate::Archive;

/// How often the thread looks. Memory fills by some gigabytes a second at most.
const INTERVAL: Duration = Duration::from_millis(5);
/// How often threads are asked to give back what the allocator keeps at hand for them.
const BETWEEN_REQUESTS: Duration = Duration::from_millis(50);
/// Bytes beyond the budget that are nobody's fault: of connections, plans, blocks on their way.
const ALLOWANCE: i64 = 32 << 20;

/// What the statements of the process may take. The last that was said counts.
static BUDGET: Mutex<Option<Budget>> = Mutex::new(None);

#[derive(Debug, Clone)]
struct Budget {
    /// Bytes that all statements may hold together.
    statements: usize,
    /// Bytes that the process held before any statement.
    base: i64,
    /// Whose decoded columns are nobody's.
    archive: Weak<Archive>,
    /// Bytes of memory that the process may hold with all its columns.
    resident: u64,
}

impl Budget {
    fn now() -> Option<Self> {
        let budget = BUDGET.lock().unwrap_or_else(PoisonError::into_inner);
        budget.clone()
    }

    /// What the process may have allocated, with the columns that it keeps now.
    fn bound(&self) -> i64 {
        let kept = self.archive.upgrade();
        let kept = kept.map_or(0, |archive| archive.usage().cache_bytes as i64);
        self.base + self.statements as i64 + kept + ALLOWANCE
    }

    /// How much more the process holds than it may with all its columns, where statements hold much: what is given back comes in whole
    /// pages only. None where they do not, whose fault it is not.
    fn excess_of_pages(&self, resident: u64) -> i64 {
        let held = self.excess() + self.statements as i64;
        match held > self.statements as i64 / 2 {
            true => resident as i64 - self.resident as i64,
            false => 0,
        }
    }

    /// How much more than they may the statements hold. Negative where they hold less.
    fn excess(&self) -> i64 {
        heap::allocated() - self.bound()
    }
}

/// Bounds what all statements of the process may take together, as far as its allocator counts.
pub fn bound_memory(archive: &Arc<Archive>, statements: usize) {
    let usage = archive.usage();
    let budget = Budget {
        statements,
        base: heap::allocated() - usage.cache_bytes as i64,
        archive: Arc::downgrade(archive),
        resident: resident_bytes() + statements as u64 + usage.cache_limit,
    };
    *BUDGET.lock().unwrap_or_else(PoisonError::into_inner) = Some(budget);
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let watching = thread::Builder::new().name("meridian-memory".to_owned());
        if let Err(error) = watching.spawn(watch) {
            warn!(%error, "memory is not watched: there is no room for a thread");
        }
    });
}

/// Whether statements hold more than they may.
fn is_short() -> bool {
    Budget::now().is_some_and(|budget| budget.excess() > 0)
}

fn watch() {
    let mut asked = Instant::now();
    loop {
        thread::sleep(INTERVAL);
        let Some(budget) = Budget::now() else {
            continue;
        };
        let resident = resident_bytes();
        if resident > budget.resident / 10 * 9 && asked.elapsed() > BETWEEN_REQUESTS {
            heap::ask_to_give_back();
            asked = Instant::now();
        }
        heap::bound(budget.bound());
        let excess = budget.excess().max(budget.excess_of_pages(resident));
        // What statements that were ended hold is on its way back: nobody else need end for it.
        if excess <= 0 || excess <= Interrupt::bytes_to_come_back() {
            continue;
        }
        // Ending one that holds little would not help, and waiting neither.
        let Some(largest) = Interrupt::largest().filter(|one| one.bytes() > ALLOWANCE / 2) else {
            heap::bound(i64::MAX);
            continue;
        };
        let held = largest.bytes() as usize;
        let budget = budget.statements;
        warn!(held, budget, "a statement ends for want of memory");
        largest.end_for_memory(sentence("it holds", held, budget));
    }
}

/// Bytes of memory that the process holds, as the system counts them; 0 where it does not say.
fn resident_bytes() -> u64 {
    let kibibytes = || {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    kibibytes().map_or(0, |kibibytes| kibibytes << 10)
}

/// What somebody is told whose statement ends for want of memory.
fn sentence(what: &str, bytes: usize, budget: usize) -> String {
    format!(
        "{what} {}, and all statements together may hold {} (--memory): ask for fewer rows, columns or groups at once, or give them \
         more",
        readable(bytes),
        readable(budget)
    )
}

fn readable(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    match bytes {
        0..MIB => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes.div_ceil(MIB)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_say_how_much_and_what_to_do() {
        let told = sentence("it wanted another", 5 << 20, 1 << 30);
        assert!(told.starts_with(
            "it wanted another 5 MiB, and all statements together may hold 1024 MiB (--memory): "
        ));
        assert_eq!(readable(1), "1 KiB");
    }
}
