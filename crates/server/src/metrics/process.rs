//! Metrics of this process under the names that Prometheus's client libraries use.
//!
//! They are read from `/proc` (see proc(5)) when the metrics are polled; on systems other than Linux they are absent.

use std::fs;
use std::sync::OnceLock;

use prometheus::{Counter, Gauge, Registry};

/// Ticks a second in what the kernel tells of times, whatever its own clock: `USER_HZ`, a part of the interface.
const TICKS: f64 = 100.0;
const KIB: f64 = 1024.0;

/// The process's own metrics.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    cpu_seconds: Counter,
    resident: Gauge,
    virtual_memory: Gauge,
    threads: Gauge,
    open_files: Gauge,
    most_files: Gauge,
}

/// The values of one poll.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcessSample {
    cpu_seconds: f64,
    threads: f64,
    /// Seconds from the machine's start to the process's.
    start: f64,
    virtual_bytes: f64,
    resident_bytes: f64,
}

impl ProcessMetrics {
    /// Registers the metrics that this system has.
    pub(super) fn register(registry: &Registry) -> Result<Option<Self>, prometheus::Error> {
        let (Some(now), Some(boot)) = (ProcessSample::read(), boot_time()) else {
            return Ok(None);
        };
        let gauge = |name: &str, help: &str| {
            let gauge = Gauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let started = gauge(
            "process_start_time_seconds",
            "When the process began, in seconds since 1970.",
        )?;
        started.set(boot + now.start);
        let cpu_seconds = Counter::new(
            "process_cpu_seconds_total",
            "Processor time that the process has taken, in seconds.",
        )?;
        registry.register(Box::new(cpu_seconds.clone()))?;
        Ok(Some(Self {
            cpu_seconds,
            resident: gauge(
                "process_resident_memory_bytes",
                "Bytes of memory that the process holds.",
            )?,
            virtual_memory: gauge(
                "process_virtual_memory_bytes",
                "Bytes of memory that the process has room for.",
            )?,
            threads: gauge("process_threads", "Threads of the process.")?,
            open_files: gauge(
                "process_open_fds",
                "File descriptors that are open, connections among them.",
            )?,
            most_files: gauge(
                "process_max_fds",
                "File descriptors that may be open at once.",
            )?,
        }))
    }

    /// Polls again. Only one thread may poll at a time, because the counter is increased by the difference.
    pub(super) fn look(&self) {
        if let Some(now) = ProcessSample::read() {
            let lacks = now.cpu_seconds - self.cpu_seconds.get();
            self.cpu_seconds.inc_by(lacks.max(0.0));
            self.resident.set(now.resident_bytes);
            self.virtual_memory.set(now.virtual_bytes);
            self.threads.set(now.threads);
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            self.open_files.set(open.count() as f64);
        }
        if let Some(most) = most_open_files() {
            self.most_files.set(most);
        }
    }
}

impl ProcessSample {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        Self::from(&stat, &status)
    }

    fn from(stat: &str, status: &str) -> Option<Self> {
        // The name stands in parentheses and may have spaces and parentheses in it. The field after it is the third.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (field(14)? + field(15)?) / TICKS,
            threads: field(20)?,
            start: field(22)? / TICKS,
            virtual_bytes: field(23)?,
            // The other file counts pages, whose size is not the same everywhere.
            resident_bytes: first_number_after(status, "VmRSS:")? * KIB,
        })
    }
}

/// When the machine was started, in seconds since 1970.
fn boot_time() -> Option<f64> {
    static BOOT: OnceLock<Option<f64>> = OnceLock::new();
    *BOOT.get_or_init(|| first_number_after(&fs::read_to_string("/proc/stat").ok()?, "btime"))
}

fn most_open_files() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    first_number_after(&limits, "Max open files")
}

/// The number that follows what a line begins with.
fn first_number_after(text: &str, beginning: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(beginning));
    line?.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_manual() {
        let stat = "42 (a (strange) name) S 1 42 42 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 1234 8192 77 0\n";
        let now = ProcessSample::from(stat, "Name:\tx\nVmRSS:\t     120 kB\n").unwrap();
        let expected = ProcessSample {
            cpu_seconds: 3.0,
            threads: 9.0,
            start: 12.34,
            virtual_bytes: 8192.0,
            resident_bytes: 122_880.0,
        };
        assert_eq!(now, expected);
        assert_eq!(ProcessSample::from("42 (cut off", "VmRSS: 1 kB"), None);
        assert_eq!(
            ProcessSample::from("42 (short) S 1 42", "VmRSS: 1 kB"),
            None
        );
    }

    #[test]
    fn limits_may_be_without_one() {
        let limits = "Max open files            1024                 524288               files\n";
        assert_eq!(first_number_after(limits, "Max open files"), Some(1024.0));
        let none = "Max open files            unlimited            unlimited            files\n";
        assert_eq!(first_number_after(none, "Max open files"), None);
    }
}
