//! The admission of one query: what it will read and how long that takes is noted, and a blocking query that would take too long is
//! rejected.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{EngineError, ScanEstimate};
use sql::ErrorCode;

use crate::QueryError;
use crate::record::QueryRecord;
use crate::registry::lock;
use crate::scan_rate::ScanRate;

/// What a query was expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Expected {
    /// Bytes of columns that it decodes.
    pub bytes: u64,
    /// The time that it takes by itself.
    pub time: Duration,
}

/// Admits one query.
#[derive(Debug)]
pub(crate) struct QueryAdmission {
    rate: Arc<ScanRate>,
    /// The longest time that is admitted.
    longest: Option<Duration>,
    expected: Mutex<Option<Expected>>,
}

impl QueryAdmission {
    pub(crate) fn new(rate: &Arc<ScanRate>, longest: Option<Duration>) -> Self {
        Self {
            rate: Arc::clone(rate),
            longest,
            expected: Mutex::default(),
        }
    }

    /// What the query was expected to take, once it was planned.
    pub(crate) fn expected(&self) -> Option<Expected> {
        *lock(&self.expected)
    }

    /// Puts what the query was expected to take into what is known of it.
    pub(crate) fn note(&self, record: &mut QueryRecord) {
        if let Some(expected) = self.expected() {
            record.scan_bytes = expected.bytes;
            record.estimate = u64::try_from(expected.time.as_millis()).ok();
        }
    }

    /// Notes how long it took for a part of what it reads: `done` of `all` pieces.
    pub(crate) fn observe(&self, thread_time: Duration, done: u64, all: u64) {
        if let Some(expected) = self.expected().filter(|_| all > 0) {
            let bytes = expected.bytes as f64 * (done as f64 / all as f64).min(1.0);
            self.rate.observe(bytes as u64, thread_time);
        }
    }
}

impl engine::Admission for QueryAdmission {
    fn admit(&self, estimate: &ScanEstimate) -> Result<(), EngineError> {
        let bytes = estimate.bytes();
        let time = Duration::try_from_secs_f64(self.rate.seconds(bytes)).unwrap_or(Duration::MAX);
        *lock(&self.expected) = Some(Expected { bytes, time });
        match self.longest {
            Some(longest) if time > longest => Err(takes_too_long(time, longest).into()),
            _ => Ok(()),
        }
    }
}

fn takes_too_long(time: Duration, longest: Duration) -> QueryError {
    let sentence = format!(
        "the query would take about {}, longer than a connection may wait (--max-blocking {}): put SUBMIT before it to run it without \
         the connection, or restrict it to a part of the sky",
        spelled(time),
        spelled(longest)
    );
    QueryError::new(ErrorCode::LIMIT_REACHED, sentence)
}

/// A time in the largest unit of which it has at least one.
fn spelled(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        s @ 1..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s => format!("{:.1} h", s as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Admission, TableEstimate};

    fn estimate(bytes: u64) -> ScanEstimate {
        let table = TableEstimate {
            table: "sky.Source".to_owned(),
            columns: vec!["ra".to_owned()],
            chunks: 9,
            of_chunks: 9,
            rows: bytes / 8,
            bytes,
        };
        ScanEstimate {
            tables: vec![table],
            pieces: 9,
            chunks: 9,
            rating: 1,
        }
    }

    #[test]
    fn a_query_that_takes_too_long_is_rejected_with_what_to_do() {
        let rate = Arc::new(ScanRate::new(1));
        let admission = QueryAdmission::new(&rate, Some(Duration::from_secs(60)));
        admission.admit(&estimate(400_000_000)).unwrap();
        assert_eq!(admission.expected().unwrap().time, Duration::from_secs(1));
        let error = admission.admit(&estimate(400_000_000 * 300)).unwrap_err();
        let sentence = error.to_string();
        assert!(
            sentence.contains("about 5 min") && sentence.contains("SUBMIT"),
            "{sentence}"
        );
        assert_eq!(error.code(), ErrorCode::LIMIT_REACHED);
        let unlimited = QueryAdmission::new(&rate, None);
        unlimited.admit(&estimate(u64::MAX / 4)).unwrap();
    }

    #[test]
    fn what_a_part_of_the_pieces_took_changes_the_rate() {
        let rate = Arc::new(ScanRate::new(1));
        let admission = QueryAdmission::new(&rate, None);
        admission.observe(Duration::from_secs(9), 1, 1);
        assert!(
            (rate.seconds(400_000_000) - 1.0).abs() < 1e-9,
            "nothing was expected"
        );
        admission.admit(&estimate(4_000_000_000)).unwrap();
        // Half of it took ten times as long as it was expected to.
        admission.observe(Duration::from_secs(50), 5, 10);
        assert!(rate.seconds(400_000_000) > 5.0);
    }
}
