//! The server's metrics, for Prometheus: statements, connections, rows, bytes, memory.
//!
//! Counting a statement costs some atomic additions, because its labels are looked up only once. What other parts of the program count
//! anyway, such as the cache's bytes and the process's memory, is polled when the metrics are read.

mod alerts;
mod cluster;
mod labels;
mod lanes;
mod process;

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use engine::Usage;
use prometheus::core::Collector;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use self::alerts::AlertMetrics;
use self::cluster::ClusterMetrics;
use ::cluster::FrontEnd;
pub use labels::{Protocol, QueryOutcome, StatementKind};
use lanes::LaneMetrics;
pub(crate) use lanes::QueryCounts;
use process::ProcessMetrics;

use crate::heartbeat::Health;
use crate::http::AlertDatabases;

/// The bounds of the histogram in seconds: from a result out of memory to a scan of everything.
const SECONDS: [f64; 21] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
];

/// The metrics. Clones share the counters.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<RegisteredMetrics>);

#[derive(Debug)]
struct RegisteredMetrics {
    registry: Registry,
    queries: IntCounterVec,
    seconds: HistogramVec,
    running: IntGauge,
    protocols: [ProtocolMetrics; Protocol::ALL.len()],
    /// Locked while the metrics are read.
    polled: Mutex<PolledMetrics>,
}

/// The metrics of one protocol.
#[derive(Debug)]
struct ProtocolMetrics {
    connections: IntGauge,
    connected: IntCounter,
    rejected: IntCounter,
    rows: IntCounter,
    bytes: IntCounter,
    kinds: [OnceLock<KindMetrics>; StatementKind::ALL.len()],
}

/// The metrics of one kind of statement, which appear when the first statement of the kind has begun.
#[derive(Debug)]
struct KindMetrics {
    endings: [IntCounter; QueryOutcome::ALL.len()],
    seconds: Histogram,
}

/// The metrics that are polled when somebody reads them.
struct PolledMetrics {
    usage: Box<dyn Fn() -> Usage + Send + Sync>,
    spilling: Box<dyn Fn() -> (u64, u64) + Send + Sync>,
    health: Box<dyn Fn() -> Health + Send + Sync>,
    pieces: IntCounter,
    open_files: IntGauge,
    shared: IntGauge,
    cache: IntGauge,
    cache_limit: IntGauge,
    allocated: IntGauge,
    spilled: IntGauge,
    spilled_limit: IntGauge,
    silence: Gauge,
    abandoned: IntGauge,
    process: Option<ProcessMetrics>,
    lanes: Option<LaneMetrics>,
    cluster: Option<ClusterMetrics>,
    alerts: Option<AlertMetrics>,
}

impl fmt::Debug for PolledMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolledMetrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers all metrics. `usage` returns the resources that the data directory takes now, `spilled` the bytes of disk that queries take
    /// and may take, `health` the state of the query threads.
    ///
    /// # Errors
    /// Two metrics have the same name, which is a bug.
    pub(crate) fn new(
        usage: impl Fn() -> Usage + Send + Sync + 'static,
        spilled: impl Fn() -> (u64, u64) + Send + Sync + 'static,
        health: impl Fn() -> Health + Send + Sync + 'static,
    ) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let families = ProtocolFamilies::register(&registry)?;
        let build = Opts::new("meridian_build_info", "1, of which version it is.")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        registered(&registry, IntGauge::with_opts(build)?)?.set(1);
        let queries = Opts::new(
            "meridian_queries_total",
            "Statements that have ended, by outcome.",
        );
        let seconds = HistogramOpts::new(
            "meridian_query_seconds",
            "Seconds from a statement's arrival to the end of its result.",
        )
        .buckets(SECONDS.to_vec());
        let running = IntGauge::new("meridian_queries_running", "Statements that run now.")?;
        Ok(Self(Arc::new(RegisteredMetrics {
            queries: registered(
                &registry,
                IntCounterVec::new(queries, &["protocol", "kind", "outcome"])?,
            )?,
            seconds: registered(
                &registry,
                HistogramVec::new(seconds, &["protocol", "kind"])?,
            )?,
            running: registered(&registry, running)?,
            protocols: Protocol::ALL.map(|protocol| families.at(protocol)),
            polled: Mutex::new(PolledMetrics::register(
                &registry,
                Box::new(usage),
                Box::new(spilled),
                Box::new(health),
            )?),
            registry,
        })))
    }

    /// Tells from now on what the query service counts.
    ///
    /// # Errors
    /// Two metrics have the same name, which is a bug.
    pub(crate) fn poll_queries(
        &self,
        counts: impl Fn() -> QueryCounts + Send + Sync + 'static,
    ) -> Result<(), prometheus::Error> {
        let lanes = LaneMetrics::register(&self.0.registry, counts)?;
        let mut polled = self.0.polled.lock().unwrap_or_else(PoisonError::into_inner);
        polled.lanes = Some(lanes);
        Ok(())
    }

    /// Tells of the cluster from now on.
    ///
    /// # Errors
    /// Two metrics have the same name, which is a bug.
    pub(crate) fn poll_cluster(&self, front_end: &Arc<FrontEnd>) -> Result<(), prometheus::Error> {
        let cluster = ClusterMetrics::register(&self.0.registry, Arc::clone(front_end))?;
        let mut polled = self.0.polled.lock().unwrap_or_else(PoisonError::into_inner);
        polled.cluster = Some(cluster);
        Ok(())
    }

    /// Tells of what is published of alert databases from now on.
    ///
    /// # Errors
    /// Two metrics have the same name, which is a bug.
    pub(crate) fn poll_alerts(
        &self,
        databases: &Arc<AlertDatabases>,
    ) -> Result<(), prometheus::Error> {
        let alerts = AlertMetrics::register(&self.0.registry, Arc::clone(databases))?;
        let mut polled = self.0.polled.lock().unwrap_or_else(PoisonError::into_inner);
        polled.alerts = Some(alerts);
        Ok(())
    }

    /// Counts an accepted connection, which is open until the result is dropped.
    pub fn connected(&self, protocol: Protocol) -> ConnectionCount {
        let at = self.at(protocol);
        at.connected.inc();
        at.connections.inc();
        ConnectionCount(at.connections.clone())
    }

    /// Counts a connection that was rejected because a limit was reached.
    pub fn rejected(&self, protocol: Protocol) {
        self.at(protocol).rejected.inc();
    }

    /// Counts a statement that has begun, and that runs until the result is dropped. The caller gives the time, because reading the clock
    /// takes as long as everything else here.
    pub fn begin(&self, protocol: Protocol, kind: StatementKind, at: Instant) -> QueryTimer {
        self.0.running.inc();
        QueryTimer {
            metrics: self.clone(),
            protocol,
            kind,
            at,
            ended: None,
        }
    }

    /// The counter of sent rows.
    pub fn rows(&self, protocol: Protocol) -> IntCounter {
        self.at(protocol).rows.clone()
    }

    /// The counter of sent bytes.
    pub fn bytes(&self, protocol: Protocol) -> IntCounter {
        self.at(protocol).bytes.clone()
    }

    /// All metrics in Prometheus's text format, version 0.0.4.
    pub fn render(&self) -> String {
        let polled = self.0.polled.lock();
        polled.unwrap_or_else(PoisonError::into_inner).look();
        let mut text = String::new();
        // Writing into memory does not fail; a metric that cannot be encoded is left out.
        let _ = TextEncoder::new().encode_utf8(&self.0.registry.gather(), &mut text);
        text
    }

    fn at(&self, protocol: Protocol) -> &ProtocolMetrics {
        &self.0.protocols[protocol as usize]
    }

    fn of_kind(&self, protocol: Protocol, kind: StatementKind) -> &KindMetrics {
        self.at(protocol).kinds[kind as usize].get_or_init(|| {
            let (protocol, kind) = (protocol.label(), kind.label());
            let queries = |ending: QueryOutcome| {
                let labels = [protocol, kind, ending.label()];
                self.0.queries.with_label_values(&labels)
            };
            KindMetrics {
                endings: QueryOutcome::ALL.map(queries),
                seconds: self.0.seconds.with_label_values(&[protocol, kind]),
            }
        })
    }
}

fn registered<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

/// Counts an open connection until it is dropped.
#[derive(Debug)]
pub struct ConnectionCount(IntGauge);

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Times a running statement. If it is dropped without an outcome, the client has gone or the server panicked.
#[derive(Debug)]
pub struct QueryTimer {
    metrics: Metrics,
    protocol: Protocol,
    kind: StatementKind,
    at: Instant,
    ended: Option<(QueryOutcome, Duration)>,
}

impl QueryTimer {
    /// Ends it now.
    pub fn end_now(self, ending: QueryOutcome) {
        let took = self.at.elapsed();
        self.end(ending, took);
    }

    /// Ends it after this duration.
    pub fn end(mut self, ending: QueryOutcome, took: Duration) {
        self.ended = Some((ending, took));
    }
}

impl Drop for QueryTimer {
    fn drop(&mut self) {
        let of_kind = self.metrics.of_kind(self.protocol, self.kind);
        let (ending, took) = self.ended.unwrap_or_else(|| {
            let ending = match std::thread::panicking() {
                true => QueryOutcome::Failed,
                false => QueryOutcome::Disconnected,
            };
            (ending, self.at.elapsed())
        });
        of_kind.endings[ending as usize].inc();
        of_kind.seconds.observe(took.as_secs_f64());
        self.metrics.0.running.dec();
    }
}

/// The families of the metrics that have the label `protocol`.
struct ProtocolFamilies {
    connections: IntGaugeVec,
    connected: IntCounterVec,
    rejected: IntCounterVec,
    rows: IntCounterVec,
    bytes: IntCounterVec,
}

impl ProtocolFamilies {
    fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| {
            registered(
                registry,
                IntCounterVec::new(Opts::new(name, help), &["protocol"])?,
            )
        };
        let connections = Opts::new("meridian_connections", "Connections that there are now.");
        Ok(Self {
            connections: registered(registry, IntGaugeVec::new(connections, &["protocol"])?)?,
            connected: counter(
                "meridian_connections_total",
                "Connections that were accepted.",
            )?,
            rejected: counter(
                "meridian_connections_rejected_total",
                "Connections that were rejected because a limit was reached.",
            )?,
            rows: counter("meridian_rows_total", "Rows of answers.")?,
            bytes: counter(
                "meridian_bytes_sent_total",
                "Bytes that were sent to clients.",
            )?,
        })
    }

    fn at(&self, protocol: Protocol) -> ProtocolMetrics {
        let protocol = [protocol.label()];
        ProtocolMetrics {
            connections: self.connections.with_label_values(&protocol),
            connected: self.connected.with_label_values(&protocol),
            rejected: self.rejected.with_label_values(&protocol),
            rows: self.rows.with_label_values(&protocol),
            bytes: self.bytes.with_label_values(&protocol),
            kinds: [const { OnceLock::new() }; StatementKind::ALL.len()],
        }
    }
}

impl PolledMetrics {
    fn register(
        registry: &Registry,
        usage: Box<dyn Fn() -> Usage + Send + Sync>,
        spilling: Box<dyn Fn() -> (u64, u64) + Send + Sync>,
        health: Box<dyn Fn() -> Health + Send + Sync>,
    ) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| registered(registry, IntGauge::new(name, help)?);
        let pieces = IntCounter::new(
            "meridian_pieces_total",
            "Pieces over which statements have run: chunks, parts of large ones, or several small ones.",
        )?;
        let silence = Gauge::new(
            "meridian_heartbeat_silence_seconds",
            "Seconds since the last heartbeat of the threads that execute statements; 0 while they are healthy.",
        )?;
        Ok(Self {
            usage,
            spilling,
            health,
            silence: registered(registry, silence)?,
            abandoned: gauge(
                "meridian_abandoned_thread_sets",
                "Sets of threads that long computations occupy and that others have replaced.",
            )?,
            pieces: registered(registry, pieces)?,
            open_files: gauge("meridian_open_files", "Chunk files that are open.")?,
            cache: gauge(
                "meridian_cache_bytes",
                "Bytes of decoded columns and director indexes that are kept.",
            )?,
            shared: gauge(
                "meridian_shared_blocks_bytes",
                "Bytes of these that several scans read at about the same time.",
            )?,
            cache_limit: gauge(
                "meridian_cache_limit_bytes",
                "Bytes of decoded columns and director indexes that may be kept.",
            )?,
            allocated: gauge(
                "meridian_allocated_bytes",
                "Bytes of memory that the process has allocated, cached columns among them.",
            )?,
            spilled: gauge(
                "meridian_spilled_bytes",
                "Bytes on the disk that sorts, groups and joins have spilled now.",
            )?,
            spilled_limit: gauge("meridian_spilled_limit_bytes", "Bytes that they may spill.")?,
            process: ProcessMetrics::register(registry)?,
            lanes: None,
            cluster: None,
            alerts: None,
        })
    }

    fn look(&self) {
        let usage = (self.usage)();
        self.pieces
            .inc_by(usage.pieces.saturating_sub(self.pieces.get()));
        self.open_files.set(usage.open_files as i64);
        self.cache.set(usage.cache_bytes as i64);
        self.shared.set(usage.shared_bytes as i64);
        self.cache_limit.set(usage.cache_limit as i64);
        self.allocated.set(engine::allocated_bytes());
        let (spilled, limit) = (self.spilling)();
        self.spilled.set(i64::try_from(spilled).unwrap_or(i64::MAX));
        self.spilled_limit
            .set(i64::try_from(limit).unwrap_or(i64::MAX));
        let health = (self.health)();
        self.silence.set(health.silence.as_secs_f64());
        self.abandoned.set(health.abandoned as i64);
        if let Some(process) = &self.process {
            process.look();
        }
        if let Some(cluster) = &self.cluster {
            cluster.look();
        }
        if let Some(lanes) = &self.lanes {
            lanes.look();
        }
        if let Some(alerts) = &self.alerts {
            alerts.look();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(Usage::default, || (0, 0), Health::default).unwrap()
    }

    /// The samples of the text format, by their names and labels.
    fn samples(metrics: &Metrics) -> HashMap<String, String> {
        let text = metrics.render();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.to_owned())
        };
        lines.map(sample).collect()
    }

    #[test]
    fn statements_are_counted_by_protocol_kind_and_ending() {
        let metrics = metrics();
        let begin = |protocol, kind| metrics.begin(protocol, kind, Instant::now());
        let took = Duration::from_millis(3);
        begin(Protocol::Mysql, StatementKind::Select).end(QueryOutcome::Succeeded, took);
        begin(Protocol::Mysql, StatementKind::Select).end(QueryOutcome::Succeeded, took);
        begin(Protocol::Http, StatementKind::Cone).end(QueryOutcome::Failed, took);
        drop(begin(Protocol::Http, StatementKind::Cone));
        let held = begin(Protocol::Mysql, StatementKind::Show);
        let samples = samples(&metrics);
        let queries =
            |labels: &str| samples[&format!("meridian_queries_total{{{labels}}}")].as_str();
        assert_eq!(
            queries(r#"kind="select",outcome="ok",protocol="mysql""#),
            "2"
        );
        assert_eq!(
            queries(r#"kind="cone",outcome="failed",protocol="http""#),
            "1"
        );
        assert_eq!(
            queries(r#"kind="cone",outcome="disconnected",protocol="http""#),
            "1"
        );
        // A counter exists before its first event, so that the first event shows as an increase.
        assert_eq!(
            queries(r#"kind="select",outcome="failed",protocol="mysql""#),
            "0"
        );
        assert_eq!(samples["meridian_queries_running"], "1");
        let seconds = |of: &str, le: &str| {
            samples
                [&format!(r#"meridian_query_seconds_{of}{{kind="select",protocol="mysql"{le}}}"#)]
                .as_str()
        };
        assert_eq!(seconds("count", ""), "2");
        assert_eq!(seconds("sum", ""), "0.006");
        assert_eq!(seconds("bucket", r#",le="0.0025""#), "0");
        assert_eq!(seconds("bucket", r#",le="0.005""#), "2");
        drop(held);
    }

    #[test]
    fn connections_rows_and_bytes_are_counted_by_protocol() {
        let metrics = metrics();
        let one = metrics.connected(Protocol::Mysql);
        drop(metrics.connected(Protocol::Mysql));
        metrics.rejected(Protocol::Http);
        metrics.rows(Protocol::Mysql).inc_by(7);
        metrics.bytes(Protocol::Mysql).inc_by(70);
        let samples = samples(&metrics);
        for (name, mysql, http) in [
            ("connections", "1", "0"),
            ("connections_total", "2", "0"),
            ("connections_rejected_total", "0", "1"),
            ("rows_total", "7", "0"),
            ("bytes_sent_total", "70", "0"),
        ] {
            let of = |protocol: &str| {
                samples[&format!(r#"meridian_{name}{{protocol="{protocol}"}}"#)].as_str()
            };
            assert_eq!((of("mysql"), of("http")), (mysql, http), "{name}");
        }
        drop(one);
    }

    #[test]
    fn what_others_count_is_asked_for_each_time() {
        let pieces = Arc::new(AtomicU64::new(5));
        let known = Arc::clone(&pieces);
        let usage = move || Usage {
            open_files: 3,
            cache_bytes: 1 << 20,
            shared_bytes: 1 << 10,
            cache_limit: 1 << 30,
            pieces: known.load(Relaxed),
        };
        let metrics = Metrics::new(usage, || (7, 9), Health::default).unwrap();
        assert_eq!(samples(&metrics)["meridian_pieces_total"], "5");
        pieces.store(9, Relaxed);
        let samples = samples(&metrics);
        assert_eq!(samples["meridian_pieces_total"], "9");
        assert_eq!(samples["meridian_open_files"], "3");
        assert_eq!(samples["meridian_cache_bytes"], "1048576");
        assert_eq!(samples["meridian_cache_limit_bytes"], "1073741824");
        assert_eq!(samples["meridian_spilled_bytes"], "7");
        assert_eq!(samples["meridian_spilled_limit_bytes"], "9");
    }

    #[test]
    fn the_process_is_this_one() {
        let before = std::time::SystemTime::now();
        let metrics = metrics();
        let samples = samples(&metrics);
        let sample = |name: &str| samples[name].parse::<f64>().unwrap();
        assert!(sample("process_resident_memory_bytes") > 1e5);
        assert!(sample("process_virtual_memory_bytes") >= sample("process_resident_memory_bytes"));
        assert!(sample("process_threads") >= 1.0);
        assert!(sample("process_open_fds") >= 3.0);
        let now = before.duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - sample("process_start_time_seconds");
        assert!((-2.0..86_400.0).contains(&age), "{age} s");
    }

    /// Each metric has its help and its type before its samples, and no sample is there twice.
    #[test]
    fn the_text_is_in_the_format() {
        let metrics = metrics();
        drop(metrics.begin(Protocol::Mysql, StatementKind::Use, Instant::now()));
        let text = metrics.render();
        let lines = text.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(lines, samples(&metrics).len());
        for line in text.lines().filter(|line| line.starts_with("# HELP ")) {
            let name = line.split(' ').nth(2).unwrap();
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}");
        }
        let version = env!("CARGO_PKG_VERSION");
        assert!(text.contains(&format!("meridian_build_info{{version=\"{version}\"}} 1")));
        assert!(text.contains("# TYPE meridian_query_seconds histogram"));
    }
}
