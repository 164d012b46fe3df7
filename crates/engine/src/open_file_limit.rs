//! How many chunk files stay open between queries.
//!
//! A scan reads the files of a table one after another: with fewer places than files, each is closed before it is read again, and opening it
//! takes about as long as reading two columns of 40,000 rows. So there are as many places as memory and the system allow.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as always stay open.
const FEWEST: usize = 512;
/// Bytes that an open file takes: some 40 kB with eight columns of 40,000 rows, 100 kB with those of half a million.
const BYTES_OF_FILE: u64 = 100_000;
/// The share of the bytes for decoded columns that open files may take beside these.
const SHARE: u64 = 16;
/// Descriptors that are left for connections and for what else a process opens.
const OTHERS: u64 = 4096;

/// Lets this process open as many files as the system lets it ask for: what a shell gives at first is 1,024 on most systems.
pub fn allow_more_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// The chunk files that stay open beside so many bytes of decoded columns.
pub(crate) fn most_open_files(decoded_bytes: u64) -> usize {
    within(decoded_bytes, getrlimit(Resource::Nofile).current)
}

/// The same where the system allows so many descriptors; `None`: as many as one likes.
fn within(decoded_bytes: u64, descriptors: Option<u64>) -> usize {
    let by_memory = decoded_bytes / SHARE / BYTES_OF_FILE;
    let by_system = descriptors.map_or(u64::MAX, |all| all.saturating_sub(OTHERS).max(all / 2));
    let most = usize::try_from(by_memory.min(by_system)).unwrap_or(usize::MAX);
    most.max(FEWEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_open_within_memory_and_what_the_system_allows() {
        let gib = |number: u64| number << 30;
        assert_eq!(within(gib(8), None), 5_368);
        assert_eq!(within(gib(8), Some(1 << 20)), 5_368);
        assert_eq!(within(gib(8), Some(20_000)), 5_368);
        assert_eq!(within(gib(8), Some(8_192)), 4_096);
        assert_eq!(within(gib(8), Some(1_024)), 512);
        assert_eq!(within(gib(1), Some(1 << 20)), 671);
        assert_eq!(within(64 << 20, Some(1 << 20)), FEWEST);
        assert_eq!(within(0, Some(0)), FEWEST);
        assert_eq!(within(u64::MAX, Some(1 << 20)), (1 << 20) - 4_096);
    }

    #[test]
    fn as_many_are_allowed_as_may_be_asked_for() {
        allow_more_open_files();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
