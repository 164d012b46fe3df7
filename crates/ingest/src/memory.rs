//! The memory budget of a load: what it may hold of rows that wait to be written before they go to disk.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Shares of the budget. Rows that wait have half of it and what the buffers leave: these have an upper limit.
const ROWS_SHARE: f64 = 0.5;
const BUFFER_SHARE: f64 = 0.25;
/// For a director's index while a child is loaded, and for what one batch needs while it is decoded, placed, and written.
const OTHER_SHARE: f64 = 0.25;

/// A run larger than this gains nothing: the merge is already short.
const LARGEST_RUN: u64 = 192 << 20;
/// A run smaller than this only costs files.
const SMALLEST_RUN: u64 = 32 << 10;
/// The same for a sorter that gets a part of a thread's buffer.
const SMALLEST_SHARE: u64 = 8 << 10;

/// Counts what the load holds in memory against its budget.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    total: u64,
    threads: u64,
    in_runs: AtomicU64,
}

impl MemoryBudget {
    pub(crate) fn new(total: u64, threads: usize) -> Self {
        Self {
            total,
            threads: threads.max(1) as u64,
            in_runs: AtomicU64::new(0),
        }
    }

    /// The bytes of rows that one thread gathers before it sorts them into a run. Sorting needs as much again.
    pub(crate) fn run_bytes(&self) -> u64 {
        let buffers = (self.total as f64 * BUFFER_SHARE) as u64;
        (buffers / (2 * self.threads)).clamp(SMALLEST_RUN, LARGEST_RUN)
    }

    /// The bytes of rows that may wait in memory.
    fn rows_bytes(&self) -> u64 {
        let share = |share: f64| (self.total as f64 * share) as u64;
        let buffers = 2 * self.threads * self.run_bytes();
        let left = self
            .total
            .saturating_sub(share(OTHER_SHARE))
            .saturating_sub(buffers);
        left.max(share(ROWS_SHARE))
    }

    /// What a sorter with this share of the run buffers gathers in one thread.
    pub(crate) fn share_of_run(&self, share: f64) -> u64 {
        ((self.run_bytes() as f64 * share) as u64).max(SMALLEST_SHARE)
    }

    /// What one thread may take to sort a chunk while files are written: the buffers of runs are free then.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        (self.total as f64 * BUFFER_SHARE) as u64 / self.threads
    }

    /// Takes `bytes` for a sorted run if the budget allows to keep it in memory.
    pub(crate) fn keep_run(&self, bytes: u64) -> bool {
        let limit = self.rows_bytes();
        let taken = self.in_runs.fetch_update(Relaxed, Relaxed, |used| {
            let wanted = used + bytes;
            (wanted <= limit).then_some(wanted)
        });
        taken.is_ok()
    }

    /// Gives back what [`MemoryBudget::keep_run`] took.
    pub(crate) fn release_run(&self, bytes: u64) {
        self.in_runs.fetch_sub(bytes, Relaxed);
    }

    /// How many chunk files of this many columns may be written at a time: each column of a file under way holds
    /// some megabytes.
    pub(crate) fn writers(&self, columns: usize) -> usize {
        const BYTES_PER_COLUMN: u64 = 3 << 20;
        let fitting = self.total / 4 / (BYTES_PER_COLUMN * columns.max(1) as u64);
        fitting.clamp(1, self.threads) as usize
    }

    /// The most that a director's index may take when it is held whole in memory.
    pub(crate) fn key_map_bytes(&self) -> u64 {
        self.total / 4
    }
}

/// The default budget: a third of the machine's memory.
pub fn default_memory() -> u64 {
    machine_memory() / 3
}

/// The machine's memory in bytes; 6 GiB where that cannot be found out.
pub fn machine_memory() -> u64 {
    const KIB: u64 = 1024;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = (meminfo.lines())
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        });
    total_kib.map_or(6 << 30, |kib| kib * KIB)
}

/// Reads a size such as `8G`, `500M`, `64k` or `123456` (bytes; K, M, G, T are powers of 1024).
///
/// # Errors
/// A sentence, if it is not such a size or is zero.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let number = lower.trim_end_matches("ib").trim_end_matches('b');
    let (digits, shift) = match number.chars().last() {
        Some('k') => (&number[..number.len() - 1], 10),
        Some('m') => (&number[..number.len() - 1], 20),
        Some('g') => (&number[..number.len() - 1], 30),
        Some('t') => (&number[..number.len() - 1], 40),
        _ => (number, 0),
    };
    let value: f64 = (digits.trim().parse()).map_err(|_| not_a_size(text))?;
    let bytes = value * (1u64 << shift) as f64;
    if !(1.0..1e18).contains(&bytes) {
        return Err(not_a_size(text));
    }
    Ok(bytes as u64)
}

fn not_a_size(text: &str) -> String {
    format!("{text:?} is not a size: give bytes, or a number with K, M, G or T such as 8G")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("500M"), Ok(500 << 20));
        assert_eq!(parse_size("1.5 GiB"), Ok(3 << 29));
        assert_eq!(parse_size("64kb"), Ok(64 << 10));
        assert_eq!(parse_size("123"), Ok(123));
        for bad in ["", "G", "-1G", "0", "eight", "1e30", "nan"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rows_have_what_buffers_leave() {
        let fits = |total: u64, bytes: u64| MemoryBudget::new(total, 2).keep_run(bytes);
        assert!(fits(64 << 20, 32 << 20) && !fits(64 << 20, (32 << 20) + 1));
        let large = 8 << 30;
        let buffers = 4 * LARGEST_RUN;
        assert!(fits(large, (6 << 30) - buffers) && !fits(large, (6 << 30) - buffers + 1));
    }

    #[test]
    fn runs_are_kept_until_the_budget_is_used() {
        let budget = MemoryBudget::new(1000, 2);
        assert!(budget.keep_run(300));
        assert!(!budget.keep_run(300));
        assert!(budget.keep_run(200));
        budget.release_run(300);
        assert!(budget.keep_run(300));
    }
}
