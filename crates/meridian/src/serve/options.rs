//! The options of `meridian serve`, one row each. A row makes the flag, the variable of the environment and the key in a file.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Arg;
use cluster::KeptFiles;
use tracing_subscriber::EnvFilter;

use super::layers::Layers;
use super::logging::Form;
use crate::compact::Rate;
use crate::failure::Failure;

/// The default log level.
pub(crate) const DEFAULT_LOG: &str = "warn,meridian=info,meridian_server=info,cluster=info";

/// An option.
#[derive(Debug)]
pub(super) struct Row {
    /// Its long name, which is its key in a file too.
    pub(super) key: &'static str,
    /// What stands for its value in the help.
    pub(super) value: &'static str,
    /// The variable of the environment.
    pub(super) environment: &'static str,
    pub(super) default: DefaultValue,
    /// Whether a value can be read.
    pub(super) check: fn(&str) -> Result<(), String>,
    pub(super) help: &'static str,
}

/// The default value of an option.
#[derive(Debug)]
pub(super) enum DefaultValue {
    /// The option is required.
    Needed,
    /// A constant.
    Is(&'static str),
    /// Computed from the machine, with a description.
    Machine(fn() -> u64, &'static str),
}

impl Row {
    /// The option as a flag. Its value is parsed later, when it is known which source takes precedence.
    pub(super) fn argument(&self) -> Arg {
        let argument = Arg::new(self.key)
            .long(self.key)
            .value_name(self.value)
            .env(self.environment)
            .help(self.help.trim_end_matches('.'));
        let argument = match self.value {
            // `--insecure` alone says yes.
            "yes|no" => argument.num_args(0..=1).default_missing_value("yes"),
            _ => argument,
        };
        match self.default {
            DefaultValue::Is(default) if !default.is_empty() => argument.default_value(default),
            DefaultValue::Is(_) | DefaultValue::Needed | DefaultValue::Machine(..) => argument,
        }
    }
}

macro_rules! options {
    ($($field:ident: $type:ty = $key:literal $value:literal, $environment:literal, $read:expr, $default:expr, $help:literal;)*) => {
        /// All options, in the order in which they are shown.
        pub(super) const ROWS: &[Row] = &[$(Row {
            key: $key,
            value: $value,
            environment: $environment,
            default: $default,
            check: |text| $read(text).map(drop),
            help: $help,
        }),*];

        /// What all options come to.
        #[derive(Debug)]
        pub(super) struct Settings {
            $(pub(super) $field: $type,)*
        }

        impl Settings {
            /// Reads the values that count.
            ///
            /// # Errors
            /// The first that is none, by where it was given.
            pub(super) fn read(layers: &Layers) -> Result<Self, Failure> {
                Ok(Self {
                    $($field: layers.read($key, $read)?,)*
                })
            }
        }
    };
}

options! {
    data: PathBuf = "data" "DIR", "MERIDIAN_DATA", path, DefaultValue::Needed,
        "The data directory.";
    mysql: Option<String> = "mysql" "ADDR", "MERIDIAN_MYSQL", endpoint, DefaultValue::Is(server::DEFAULT_MYSQL_ADDRESS),
        "Where MySQL clients connect; port 0 takes a free port, off disables the listener.";
    mysql_socket: Option<PathBuf> = "mysql-socket" "FILE", "MERIDIAN_MYSQL_SOCKET", file, DefaultValue::Is(""),
        "A Unix-domain socket for MySQL clients on this machine; its owner and its group may connect.";
    http: Option<String> = "http" "ADDR", "MERIDIAN_HTTP", endpoint, DefaultValue::Is(server::DEFAULT_HTTP_ADDRESS),
        "Where HTTP clients connect, for cone searches and queries; port 0 takes a free port, off disables the listener.";
    threads: NonZeroUsize = "threads" "N", "MERIDIAN_THREADS", count, DefaultValue::Machine(cores, "all cores"),
        "Processor cores to use; all by default.";
    memory: u64 = "memory" "SIZE", "MERIDIAN_MEMORY", ingest::parse_size,
        DefaultValue::Machine(ingest::default_memory, "a third of the machine's memory"),
        "Memory for the sorts, groups and joins of all statements together, for example 8G; a third of the machine's by default.";
    cache: u64 = "cache" "SIZE", "MERIDIAN_CACHE", crate::sql::cache_size,
        DefaultValue::Machine(crate::sql::default_cache, "a third of the machine's memory"),
        "Memory for decoded columns and director indexes, kept for the next statements, for example 2G, or 0 for none; a third of the machine's by default.";
    temp_dir: Option<PathBuf> = "temp-dir" "DIR", "MERIDIAN_TEMP_DIR", file, DefaultValue::Is(""),
        "Where temporary files are written, as what sorts, groups and joins spill; by default the folder tmp of the data directory.";
    temp_size: Option<u64> = "temp-size" "SIZE", "MERIDIAN_TEMP_SIZE", size_if_any, DefaultValue::Is(""),
        "Bytes that sorts, groups and joins of all statements together may spill there, for example 200G; by default half of what is free at the start.";
    max_connections: NonZeroUsize = "max-connections" "N", "MERIDIAN_MAX_CONNECTIONS", count, DefaultValue::Is("500"),
        "Concurrent connections at each listener.";
    max_connections_per_address: Option<NonZeroUsize> = "max-connections-per-address" "N", "MERIDIAN_MAX_CONNECTIONS_PER_ADDRESS", count_if_any, DefaultValue::Is(""),
        "Concurrent connections from one address; by default as many as --max-connections.";
    http_hosts: Vec<String> = "http-hosts" "NAMES", "MERIDIAN_HTTP_HOSTS", names, DefaultValue::Is(""),
        "Host names, separated by commas, under which HTTP clients may address the server besides those of this machine, as behind a proxy.";
    http_timeout: Duration = "http-timeout" "SECONDS", "MERIDIAN_HTTP_TIMEOUT", some_seconds, DefaultValue::Is("15"),
        "Seconds in which the head of an HTTP request has to arrive, and for which its body may pause.";
    grace: Duration = "grace" "SECONDS", "MERIDIAN_GRACE", seconds, DefaultValue::Is("30"),
        "Seconds for which running statements may continue after the shutdown has begun.";
    slow: Duration = "slow" "SECONDS", "MERIDIAN_SLOW", seconds, DefaultValue::Is("10"),
        "Statements that take longer are logged with their text; 0 for none.";
    audit_log: Option<PathBuf> = "audit-log" "FILE", "MERIDIAN_AUDIT_LOG", file, DefaultValue::Is(""),
        "A file into which each statement, request and login is written, as a line of JSON.";
    audit_log_size: u64 = "audit-log-size" "SIZE", "MERIDIAN_AUDIT_LOG_SIZE", ingest::parse_size, DefaultValue::Is("100M"),
        "The size of the audit log after which it is called FILE.1 and another one begun.";
    audit_log_files: usize = "audit-log-files" "N", "MERIDIAN_AUDIT_LOG_FILES", whole, DefaultValue::Is("10"),
        "Former audit logs that are kept.";
    queries_at_once: NonZeroUsize = "queries-at-once" "N", "MERIDIAN_QUERIES_AT_ONCE", count, DefaultValue::Is("8"),
        "Submitted queries that run at a time; the others wait in their order.";
    max_result: u64 = "max-result" "SIZE", "MERIDIAN_MAX_RESULT", ingest::parse_size, DefaultValue::Is("6G"),
        "The most that is stored of one submitted query's result, for example 20G.";
    keep_results: Duration = "keep-results" "DAYS", "MERIDIAN_KEEP_RESULTS", days, DefaultValue::Is("7"),
        "Days for which the results of submitted queries are kept.";
    max_blocking: Option<Duration> = "max-blocking" "SECONDS", "MERIDIAN_MAX_BLOCKING", limit, DefaultValue::Is("3600"),
        "Statements of connections that are expected to take longer than so many seconds are rejected: SUBMIT runs them; 0 for no limit.";
    result_cache: Option<Duration> = "result-cache" "SECONDS", "MERIDIAN_RESULT_CACHE", seconds_or_off, DefaultValue::Is("1"),
        "Results of statements that took at least so many seconds answer equal ones, as long as the tables do not change; off for none.";
    compact_every: Option<Duration> = "compact-every" "SECONDS", "MERIDIAN_COMPACT_EVERY", interval_or_off, DefaultValue::Is("600"),
        "Every so many seconds, small parts of tables are merged, beside queries; off for never.";
    home_rate: Rate = "home-rate" "SIZE", "MERIDIAN_HOME_RATE", crate::compact::parse_rate, DefaultValue::Is("64M"),
        "Bytes a second that are copied to the object store that is the home of chunk files, beside queries; none for as fast as it goes.";
    tls_cert: Option<PathBuf> = "tls-cert" "FILE", "MERIDIAN_TLS_CERT", file, DefaultValue::Is(""),
        "The server's certificate in PEM, followed by its issuers', for clients that request TLS.";
    tls_key: Option<PathBuf> = "tls-key" "FILE", "MERIDIAN_TLS_KEY", file, DefaultValue::Is(""),
        "The certificate's private key in PEM, without a password.";
    mysql_native_password: bool = "mysql-native-password" "yes|no", "MERIDIAN_MYSQL_NATIVE_PASSWORD", yes_or_no, DefaultValue::Is("no"),
        "Let clients log in that know mysql_native_password alone: the users whose passwords were set for it.";
    oidc_issuer: Option<String> = "oidc-issuer" "URL", "MERIDIAN_OIDC_ISSUER", text_if_any, DefaultValue::Is(""),
        "An OpenID provider whose tokens let users in over HTTP: its address, as in the tokens.";
    oidc_audience: Option<String> = "oidc-audience" "NAME", "MERIDIAN_OIDC_AUDIENCE", text_if_any, DefaultValue::Is(""),
        "Who the provider's tokens have to be for: the name of this service there.";
    oidc_user_claim: Option<String> = "oidc-user-claim" "NAME", "MERIDIAN_OIDC_USER_CLAIM", text_if_any, DefaultValue::Is("preferred_username"),
        "The claim of these tokens that has the user's name here; users must not be able to choose it at the provider.";
    oidc_groups_claim: Option<String> = "oidc-groups-claim" "NAME", "MERIDIAN_OIDC_GROUPS_CLAIM", text_if_any, DefaultValue::Is("groups"),
        "The claim of these tokens that has the user's groups there, by its name or as in realm_access.roles.";
    oidc_groups: Vec<String> = "oidc-groups" "NAMES", "MERIDIAN_OIDC_GROUPS", names, DefaultValue::Is(""),
        "Groups, separated by commas, whose members are those that this claim says.";
    cluster: Option<String> = "cluster" "ADDR", "MERIDIAN_CLUSTER", endpoint, DefaultValue::Is("off"),
        "Where workers join, which then run pieces of the queries; port 0 takes a free port, off is no cluster.";
    cluster_advertise: Option<String> = "cluster-advertise" "ADDR", "MERIDIAN_CLUSTER_ADVERTISE", advertised, DefaultValue::Is(""),
        "The address under which workers and other front ends reach this one, if it is another than that of --cluster.";
    cluster_secret: Option<PathBuf> = "cluster-secret" "FILE", "MERIDIAN_CLUSTER_SECRET", file, DefaultValue::Is(""),
        "The file with the secret that all members of the cluster know, which speak without encryption.";
    cluster_tls: Option<PathBuf> = "cluster-tls" "DIR", "MERIDIAN_CLUSTER_TLS", file, DefaultValue::Is(""),
        "The directory with the front end's certificate, as `meridian cluster init` makes it: the members of the cluster then speak TLS.";
    replicas: NonZeroUsize = "replicas" "N", "MERIDIAN_REPLICAS", count, DefaultValue::Is("3"),
        "Workers of the cluster that shall hold each chunk file.";
    keep_files: KeptFiles = "keep-files" "SIZE", "MERIDIAN_KEEP_FILES", kept_files, DefaultValue::Is("all"),
        "Bytes of chunk files that the front end of a cluster keeps itself, such as 500G, or 0, once workers hold them; all keeps all.";
    lost_after: Duration = "lost-after" "SECONDS", "MERIDIAN_LOST_AFTER", some_seconds, DefaultValue::Is("60"),
        "Seconds for which a worker of the cluster may be silent before others get its replicas.";
    stalled_after: Duration = "stalled-after" "SECONDS", "MERIDIAN_STALLED_AFTER", some_seconds, DefaultValue::Is("60"),
        "Seconds for which pieces may make no progress at a worker of the cluster before they run elsewhere.";
    shuffle_above: Option<u64> = "shuffle-above" "ROWS", "MERIDIAN_SHUFFLE_ABOVE", rows_or_off, DefaultValue::Is("20000000"),
        "Groups and windows are merged by the workers of a cluster if the pieces of a query give more rows than these; by the front end if it is off.";
    insecure: bool = "insecure" "yes|no", "MERIDIAN_INSECURE", yes_or_no, DefaultValue::Is("no"),
        "Listen where other machines connect, too, without users or without TLS: only where the network is trusted.";
    log: EnvFilter = "log" "LEVEL", "RUST_LOG", filter, DefaultValue::Is(DEFAULT_LOG),
        "The level of Meridian's log on standard error: error, warn, info, debug or trace; or directives as in RUST_LOG.";
    log_format: Form = "log-format" "FORMAT", "MERIDIAN_LOG_FORMAT", Form::read, DefaultValue::Is("text"),
        "The format of the log: text, or json with an object in each line.";
}

fn text_if_any(text: &str) -> Result<Option<String>, String> {
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64)
}

fn path(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("give the path of a directory".to_owned()),
        _ => Ok(text.into()),
    }
}

/// A file, or none.
fn file(text: &str) -> Result<Option<PathBuf>, String> {
    Ok((!text.is_empty()).then(|| text.into()))
}

/// A number of rows, or `off`.
fn rows_or_off(text: &str) -> Result<Option<u64>, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!("{text:?} is no number of rows: write it as in 20000000, 0 for any, or write off")
    })
}

/// An address to listen on, or `off`. Whether it can be bound is not checked here.
fn endpoint(text: &str) -> Result<Option<String>, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(None);
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Ok(Some(text.to_owned()))
        }
        _ => Err(format!(
            "{text:?} is no address to listen on: write it as in 127.0.0.1:4040, or write off"
        )),
    }
}

/// An address that others are told, if it is given.
fn advertised(text: &str) -> Result<Option<String>, String> {
    match text {
        "" => Ok(None),
        _ => crate::worker::member_address(text).map(Some),
    }
}

fn count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a whole number from 1 on"))
}

fn size_if_any(text: &str) -> Result<Option<u64>, String> {
    match text {
        "" => Ok(None),
        _ => ingest::parse_size(text).map(Some),
    }
}

fn whole(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not a whole number from 0 on"))
}

fn count_if_any(text: &str) -> Result<Option<NonZeroUsize>, String> {
    match text {
        "" => Ok(None),
        _ => count(text).map(Some),
    }
}

/// Names of hosts, without ports.
fn names(text: &str) -> Result<Vec<String>, String> {
    let names = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty());
    let is_name = |name: &str| {
        name.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    names
        .map(|name| match is_name(name) {
            true => Ok(name.to_owned()),
            false => Err(format!(
                "{name:?} is no name of a host: write them as in sky.example.org,archive.example.org"
            )),
        })
        .collect()
}

/// Seconds, or no limit.
fn limit(text: &str) -> Result<Option<Duration>, String> {
    Ok(Some(seconds(text)?).filter(|limit| !limit.is_zero()))
}

/// Bytes of files, or all of them.
fn kept_files(text: &str) -> Result<KeptFiles, String> {
    match text {
        "all" => Ok(KeptFiles::All),
        "0" => Ok(KeptFiles::Bytes(0)),
        _ => ingest::parse_size(text)
            .map(KeptFiles::Bytes)
            .map_err(|sentence| format!("{sentence}; all keeps all files")),
    }
}

/// Seconds, or `off`.
fn seconds_or_off(text: &str) -> Result<Option<Duration>, String> {
    match text.eq_ignore_ascii_case("off") {
        true => Ok(None),
        false => seconds(text)
            .map(Some)
            .map_err(|sentence| format!("{sentence}; off is no cache")),
    }
}

/// Seconds between one thing and the next, or `off`.
fn interval_or_off(text: &str) -> Result<Option<Duration>, String> {
    match text.eq_ignore_ascii_case("off") {
        true => Ok(None),
        false => some_seconds(text)
            .map(Some)
            .map_err(|sentence| format!("{sentence}; off is never")),
    }
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    match seconds(text) {
        Ok(some) if !some.is_zero() => Ok(some),
        _ => Err(format!("{text:?} is not a number of seconds above 0")),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is not a number of seconds, which is 0 or more"))
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" | "true" => Ok(true),
        "no" | "false" | "" => Ok(false),
        _ => Err(format!("{text:?} is neither yes nor no")),
    }
}

fn days(text: &str) -> Result<Duration, String> {
    const SECONDS_OF_A_DAY: f64 = 86_400.0;
    let days: Option<f64> = text.parse().ok();
    days.filter(|days| *days > 0.0)
        .and_then(|days| Duration::try_from_secs_f64(days * SECONDS_OF_A_DAY).ok())
        .ok_or_else(|| format!("{text:?} is not a number of days above 0"))
}

/// Levels at which libraries say more than anybody wants to read.
const TALKATIVE: [&str; 3] = ["info", "debug", "trace"];

/// A level alone is that of Meridian's own crates, whose names begin so but for two; libraries warn at most.
fn of_own_crates(text: &str) -> String {
    let level = text.trim().to_ascii_lowercase();
    match TALKATIVE.contains(&level.as_str()) {
        true => format!("warn,meridian={level},queries={level},cluster={level}"),
        false => text.to_owned(),
    }
}

/// What of the log is written.
///
/// # Errors
/// The text is neither a level nor directives.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(of_own_crates(text)).map_err(|error| {
        format!("{text:?} cannot be read ({error}): give error, warn, info, debug or trace")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--log debug` gave hundreds of lines of the HTTP library for each line of a statement.
    #[test]
    fn a_level_alone_is_that_of_our_crates() {
        let own = "warn,meridian=debug,queries=debug,cluster=debug";
        assert_eq!(of_own_crates("Debug"), own);
        for text in ["warn", "error", "debug,h2=warn", "meridian_server=debug"] {
            assert_eq!(of_own_crates(text), text);
        }
        assert!(filter("debug").is_ok() && filter("nonsense=loud").is_err());
    }

    #[test]
    fn endpoints_are_addresses_or_off() {
        assert_eq!(endpoint("off"), Ok(None));
        assert_eq!(endpoint("OFF"), Ok(None));
        for address in ["127.0.0.1:0", "localhost:4040", "[::1]:8080"] {
            assert_eq!(endpoint(address), Ok(Some(address.to_owned())));
        }
        for wrong in [
            "",
            "4040",
            ":4040",
            "localhost",
            "127.0.0.1:",
            "127.0.0.1:70000",
        ] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn seconds_may_have_a_fraction() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("0"), Ok(Duration::ZERO));
        for wrong in ["", "-1", "soon", "nan", "inf", "1e300"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_result_cache_is_of_seconds_or_off() {
        assert_eq!(seconds_or_off("OFF"), Ok(None));
        assert_eq!(seconds_or_off("0"), Ok(Some(Duration::ZERO)));
        let sentence = seconds_or_off("on").unwrap_err();
        assert!(sentence.ends_with("off is no cache"), "{sentence}");
    }

    #[test]
    fn days_are_above_zero() {
        assert_eq!(days("0.5"), Ok(Duration::from_secs(43_200)));
        for wrong in ["", "0", "-1", "soon", "nan", "inf", "1e300"] {
            assert!(days(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_names() {
        assert_eq!(names(""), Ok(vec![]));
        let two = vec!["a.example".to_owned(), "b".to_owned()];
        assert_eq!(names("a.example, b"), Ok(two));
        for wrong in ["http://a", "a:80", "a b", "*"] {
            assert!(names(wrong).is_err(), "{wrong}");
        }
        assert!(some_seconds("0").is_err() && some_seconds("0.5").is_ok());
    }

    #[test]
    fn every_default_can_be_read() {
        for row in ROWS {
            assert!(
                !row.help.is_empty() && row.help.ends_with('.'),
                "{}",
                row.key
            );
        }
        let layers = Layers::of(super::super::layers::CommandLineOptions::default(), None).unwrap();
        // The data directory is the only required option.
        let sentence = Settings::read(&layers).unwrap_err().sentence().to_owned();
        assert!(sentence.contains("--data DIR"), "{sentence}");
        for row in ROWS.iter().filter(|row| row.key != "data") {
            assert!(layers.read(row.key, |text| Ok(text.to_owned())).is_ok());
        }
    }
}
