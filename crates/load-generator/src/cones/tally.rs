//! What came of the requests of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Times are kept to this many significant digits.
const DIGITS: u8 = 3;
/// So many different complaints are told apart.
const MOST_COMPLAINTS: usize = 20;
const NANOSECONDS_IN_MILLISECOND: f64 = 1e6;

/// Counts of one connection, or of all together.
pub struct Tally {
    /// Of right answers, and of requests that never were sent: how long they had waited when the run was given up.
    latencies: Histogram<u64>,
    /// How late the generator itself was where a connection stood ready.
    lateness: Histogram<u64>,
    /// Answers of any kind, those of the warm-up too.
    all: u64,
    answers: u64,
    errors: u64,
    unsent: u64,
    bytes: u64,
    counted: u64,
    rows: u64,
    complaints: BTreeMap<String, u64>,
    /// When the last response came, from the start of the run.
    last: Duration,
}

impl Tally {
    /// Nothing yet.
    ///
    /// # Errors
    /// Never for this number of digits.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            latencies: Histogram::new(DIGITS)?,
            lateness: Histogram::new(DIGITS)?,
            all: 0,
            answers: 0,
            errors: 0,
            unsent: 0,
            bytes: 0,
            counted: 0,
            rows: 0,
            complaints: BTreeMap::new(),
            last: Duration::ZERO,
        })
    }

    /// A response, whether it counts or not: a server has worked for it.
    pub fn came(&mut self) {
        self.all += 1;
    }

    /// A right answer of some bytes, and when it came.
    pub fn answered(&mut self, latency: Duration, bytes: usize, at: Duration) {
        self.answers += 1;
        self.bytes += bytes as u64;
        self.last = self.last.max(at);
        record(&mut self.latencies, latency);
    }

    /// The rows of a response, where they were counted.
    pub fn counted(&mut self, rows: u64) {
        self.counted += 1;
        self.rows += rows;
    }

    /// No answer, or a wrong one.
    pub fn failed(&mut self, complaint: String) {
        self.errors += 1;
        if self.complaints.len() < MOST_COMPLAINTS || self.complaints.contains_key(&complaint) {
            *self.complaints.entry(complaint).or_default() += 1;
        }
    }

    /// A request that was due, and waited in vain for a free connection until the run was given up.
    pub fn never_sent(&mut self, waited: Duration) {
        self.unsent += 1;
        record(&mut self.latencies, waited);
    }

    /// A request that went out this long after it was due, though a connection stood ready.
    pub fn sent(&mut self, late: Duration) {
        record(&mut self.lateness, late);
    }

    /// Adds another connection's counts.
    pub fn add(&mut self, other: &Self) {
        // They grow as they must, so that nothing is out of their range.
        let _ = self.latencies.add(&other.latencies);
        let _ = self.lateness.add(&other.lateness);
        self.all += other.all;
        self.answers += other.answers;
        self.errors += other.errors;
        self.unsent += other.unsent;
        self.bytes += other.bytes;
        self.counted += other.counted;
        self.rows += other.rows;
        for (complaint, count) in &other.complaints {
            *self.complaints.entry(complaint.clone()).or_default() += count;
        }
        self.last = self.last.max(other.last);
    }

    /// When the last response came, from the start of the run.
    pub fn last_answer(&self) -> Duration {
        self.last
    }

    /// The figures, for a run that was measured for `elapsed`.
    pub fn as_json(&self, elapsed: Duration) -> Value {
        json!({
            "requests": self.answers + self.errors + self.unsent,
            "answers": self.answers,
            "all_answers": self.all,
            "errors": self.errors,
            "never_sent": self.unsent,
            "complaints": self.complaints,
            "elapsed_seconds": elapsed.as_secs_f64(),
            "achieved_rate": self.answers as f64 / elapsed.as_secs_f64(),
            "bytes": self.bytes,
            "counted_answers": self.counted,
            "counted_rows": self.rows,
            "latency_ms": summary(&self.latencies),
            "sent_late_ms": summary(&self.lateness),
        })
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    // It grows as it must, and centuries of nanoseconds fit.
    let _ = histogram.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

fn summary(histogram: &Histogram<u64>) -> Value {
    let milliseconds = |nanoseconds: u64| nanoseconds as f64 / NANOSECONDS_IN_MILLISECOND;
    let at = |quantile: f64| milliseconds(histogram.value_at_quantile(quantile));
    if histogram.is_empty() {
        return Value::Null;
    }
    json!({
        "mean": histogram.mean() / NANOSECONDS_IN_MILLISECOND,
        "p50": at(0.5),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "p99.9": at(0.999),
        "max": milliseconds(histogram.max()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_all_connections_together() {
        let (mut one, mut other) = (Tally::new().unwrap(), Tally::new().unwrap());
        for milliseconds in 1..=50 {
            one.answered(
                Duration::from_millis(milliseconds),
                10,
                Duration::from_secs(1),
            );
            other.answered(
                Duration::from_millis(50 + milliseconds),
                10,
                Duration::from_secs(2),
            );
        }
        one.add(&other);
        let figures = one.as_json(Duration::from_secs(4));
        for (name, expected) in [
            ("p50", 50.0),
            ("p90", 90.0),
            ("p99", 99.0),
            ("max", 100.0),
            ("mean", 50.5),
        ] {
            let found = figures["latency_ms"][name].as_f64().unwrap();
            assert!((found / expected - 1.0).abs() < 2e-3, "{name}: {found}");
        }
        assert_eq!(figures["achieved_rate"], 25.0);
        assert_eq!(figures["bytes"], 1000);
        assert_eq!(one.last_answer(), Duration::from_secs(2));
    }

    #[test]
    fn what_failed_has_no_latency_and_what_waited_in_vain_has() {
        let mut tally = Tally::new().unwrap();
        tally.failed("the status is 503".to_owned());
        assert_eq!(
            tally.as_json(Duration::from_secs(1))["latency_ms"],
            Value::Null
        );
        tally.never_sent(Duration::from_secs(3));
        let figures = tally.as_json(Duration::from_secs(1));
        assert!(figures["latency_ms"]["p50"].as_f64().unwrap() >= 2990.0);
        assert_eq!(
            (
                &figures["requests"],
                &figures["errors"],
                &figures["never_sent"]
            ),
            (&json!(2), &json!(1), &json!(1))
        );
        assert_eq!(figures["complaints"]["the status is 503"], 1);
    }
}
