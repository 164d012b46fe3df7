//! The memory that all statements may use together, and which of them ends if they use more.
//!
//! Operators reserve memory for the rows that they gather in a [pool](pool::MeasuredPool); if it rejects a reservation, they spill to disk
//! or fail. Nothing reserves memory for growing buffers, decoded blocks, results of functions and packets. So a thread polls every few
//! milliseconds what the process has really allocated (`heap`). If that, without the cached decoded columns, is more than statements may
//! use, the statement that holds the most ends with an error. It notices at its next check; what it allocates until then exceeds the
//! budget.
//!
//! The allocator retains free pages for a second. When the process comes close to its limit, they are returned to the system. A process
//! whose limit is [small](SMALL) has small pages: large ones would hold as much again as is in use.

mod pool;

use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use sql::Interrupt;
use tracing::warn;

pub(crate) use pool::MeasuredPool;
pub use pool::RESERVABLE;

use crate::Archive;

/// How often the thread polls. Memory fills by some gigabytes a second at most.
const INTERVAL: Duration = Duration::from_millis(5);
/// How often threads are told to return the pages that the allocator retains for them.
const BETWEEN_REQUESTS: Duration = Duration::from_millis(50);
/// A process that may hold less than this gets its memory in pages of 4 KiB. The rest of a large page that is in use in part does not grow with the
/// limit but with the threads: some tens of megabytes, which is much beside a small limit and little beside a large one.
const SMALL: u64 = 1 << 30;
/// Bytes beyond the budget for connections, plans and blocks in transit.
const ALLOWANCE: i64 = 32 << 20;

/// The budget of the process's statements. The last one set applies.
static BUDGET: Mutex<Option<Budget>> = Mutex::new(None);

#[derive(Debug, Clone)]
struct Budget {
    /// Bytes that all statements may hold together.
    statements: usize,
    /// Bytes that the process held before any statement.
    base: i64,
    /// The archive, whose cached columns no statement holds.
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

    /// By how much the process exceeds its limit with all cached columns, if statements hold much: only whole pages are returned to the
    /// system. `None` if they hold little and are not the cause.
    fn excess_of_pages(&self, resident: u64) -> i64 {
        let held = self.excess() + self.statements as i64;
        match held > self.statements as i64 / 2 {
            true => resident as i64 - self.resident as i64,
            false => 0,
        }
    }

    /// By how much the statements exceed their budget; negative if they do not.
    fn excess(&self) -> i64 {
        heap::allocated() - self.bound()
    }
}

/// Limits the memory of all statements of the process, as far as its allocator counts.
pub fn bound_memory(archive: &Arc<Archive>, statements: usize) {
    let usage = archive.usage();
    if statements as u64 + usage.cache_limit < SMALL {
        // Where the system does not know how, its pages are small.
        heap::use_small_pages();
    }
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

/// Bytes that the process has allocated and not freed, as far as its allocator counts.
pub fn allocated_bytes() -> i64 {
    heap::allocated()
}

/// Whether the statements exceed their budget.
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
        // Statements that were ended are about to free their memory: no other need end.
        if excess <= 0 || excess <= Interrupt::bytes_to_come_back() {
            continue;
        }
        // Ending a statement that holds little would not help, and neither would waiting.
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

/// Bytes of memory that the process holds, as the system counts them; 0 if it does not tell.
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

/// The message for a statement that ends for lack of memory.
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
