//! The time of day, as the catalog writes it down, and the time by which leases run out.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// The time since the machine was started. It goes on while the process is stopped or the machine sleeps.
pub fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let nanoseconds = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, nanoseconds)
}

/// Now, in UTC, as ISO 8601 to the second: `2031-05-07T23:59:00Z`.
pub fn utc_now() -> String {
    // A clock before 1970 is a clock that was never set: the epoch is as good an answer as any.
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    utc_text(elapsed.as_secs())
}

/// Seconds since 1970-01-01T00:00:00Z as text.
///
/// The calendar is computed in years that begin in March, so that the leap day is a year's last
/// (H. Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
pub fn utc_text(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let since_era = days + 719_468;
    let (era, day_of_era) = (since_era / 146_097, since_era % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc_text;

    /// The right-hand sides are from `date --utc --date @SECONDS`.
    #[test]
    fn known_moments() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc_text(seconds), text);
        }
    }
}
