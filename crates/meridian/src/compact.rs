//! `meridian compact`: small parts of tables become large ones.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use alerts::AlertsError;
use catalog::LoadId;
use clap::Args;
use ingest::{
    CompactReport, CompactRequest, CompactedTable, Merge, MonthSort, Progress, grouped, size,
};
use tokio_util::sync::CancellationToken;

use crate::console::{remark, tell};
use crate::drop::STILL_READ;
use crate::failure::Failure;
use crate::load_progress::ProgressDisplay;

/// Bytes of rows a second that are read, and as many that are written, if nothing else is said: a fraction of what one core can.
pub const DEFAULT_RATE: &str = "64M";

/// Which tables, and how.
#[derive(Args)]
pub struct CompactArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database; all databases by default.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// The table; all tables by default.
    #[arg(long, value_name = "NAME", requires = "db")]
    table: Option<String>,
    /// Leave tables of fewer parts alone, but for months of alert databases that are over.
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_parts: usize,
    /// Tell what would be merged, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Merge all parts of each table into one, whatever their sizes.
    #[arg(long)]
    all: bool,
    /// Bytes of rows to read, and as many to write, each second, such as 200M; `none` for as fast as it goes. Less leaves more of the
    /// disk and the cores to queries.
    #[arg(long, value_name = "SIZE", default_value = DEFAULT_RATE, value_parser = parse_rate)]
    rate: Rate,
    /// The memory to use, such as 8G or 500M; 1G, or a third of the machine's if that is less, by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// Threads that write; one by default.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// Bytes a second; as fast as it goes if absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate(pub Option<u64>);

/// A size, or `none`.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    match text {
        "none" => Ok(Rate(None)),
        _ => (ingest::parse_size(text).map(|rate| Rate(Some(rate))))
            .map_err(|error| format!("{error}, or `none`")),
    }
}

/// Merges and tells what became of the tables. Ctrl-C leaves what was merged completely.
pub fn run(arguments: CompactArguments) -> Result<(), Failure> {
    let name = arguments.table.clone();
    let name = name.unwrap_or_else(|| "compaction".to_owned());
    let quiet = arguments.quiet;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        crate::parent::end_with_parent(&stop);
        compact(arguments.into_request()?, &name, quiet, stop).await
    })
}

/// Of which databases of a data directory the months are sorted: the alert databases.
///
/// # Errors
/// The directory cannot be read.
pub fn months_of(data: &Path) -> Result<MonthSort, AlertsError> {
    Ok(MonthSort {
        databases: alerts::list(data)?,
        ..MonthSort::default()
    })
}

/// Merges under a name until it is done, interrupted, or to stop, and tells what became of the tables.
pub async fn compact(
    request: CompactRequest,
    name: &str,
    quiet: bool,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let (dry_run, sorts) = (request.dry_run, request.months.only);
    let progress = Arc::new(Progress::default());
    let shown = !quiet && !dry_run;
    let display = shown.then(|| ProgressDisplay::start(name, progress.clone()));
    let interrupted = progress.clone();
    let watch = tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = stop.cancelled() => {}
        }
        interrupted.cancel();
    });
    let outcome = ingest::compact(request, progress).await;
    watch.abort();
    if let Some(display) = display {
        display.finish();
    }
    let report = outcome?;
    let told = tell(&in_words(&report, dry_run, sorts));
    for (table, error) in &report.failures {
        remark(&format!("{table}: {error}"));
    }
    if let [(table, error), ..] = report.failures.as_slice() {
        return Err(match report.failures.len() {
            1 => Failure::new(format!("{table} is not compacted: {error}")),
            many => Failure::new(format!("{many} tables are not compacted")),
        });
    }
    told.map_err(|lost| lost.when_reporting("the tables are compacted"))
}

impl CompactArguments {
    fn into_request(self) -> Result<CompactRequest, AlertsError> {
        Ok(CompactRequest {
            months: months_of(&self.data)?,
            data_dir: self.data,
            database: self.db,
            table: self.table,
            all: self.all,
            min_parts: self.min_parts,
            dry_run: self.dry_run,
            rate: self.rate.0,
            memory: self.memory,
            threads: self.threads,
        })
    }
}

/// "merged from parts 3-5, 9": numbers that follow each other as one run.
pub fn merged_parts(parts: &[LoadId]) -> String {
    format!("merged from parts {}", runs(parts))
}

/// Runs of numbers that are told one by one.
const MOST_RUNS: usize = 12;

fn runs(parts: &[LoadId]) -> String {
    let run = |run: &[LoadId]| match run {
        [first, .., last] => format!("{first}-{last}"),
        run => run.iter().map(LoadId::to_string).collect(),
    };
    let texts: Vec<String> = (parts.chunk_by(|a, b| a.0.checked_add(1) == Some(b.0)))
        .map(run)
        .collect();
    match texts.as_slice() {
        // The tables of a nightly database are loaded in turn, thousands of times a month.
        [first, second, .., last] if texts.len() > MOST_RUNS => {
            format!("{first}, {second}, ..., {last} ({} in all)", parts.len())
        }
        texts => texts.join(", "),
    }
}

fn in_words(report: &CompactReport, dry_run: bool, sorts: bool) -> String {
    let mut text = String::new();
    let merged = |table: &&CompactedTable| !table.merges.is_empty();
    for table in report.tables.iter().filter(merged) {
        let verb = if dry_run { "would have" } else { "has" };
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "{} {verb} {} instead of {}.",
            table.name,
            counted_parts(table.parts_after()),
            table.parts_before
        );
        for merge in &table.merges {
            let _ = writeln!(text, "  {}", merge_in_words(merge));
        }
        if table.in_use {
            let _ = writeln!(text, "  note: {STILL_READ}");
        }
    }
    if !report.tables.iter().any(|table| merged(&table)) {
        let (tables, parts) = report.tables.iter().fold((0, 0), |(tables, parts), table| {
            (tables + 1, parts + table.parts_before)
        });
        let plural = if tables == 1 { "" } else { "s" };
        let parts = counted_parts(parts);
        let _ = match sorts {
            true => writeln!(
                text,
                "Nothing to sort: no month that is over has several parts in any of {tables} table{plural} with {parts} in all."
            ),
            false => writeln!(
                text,
                "Nothing to merge: {tables} table{plural} with {parts} in all."
            ),
        };
    } else if !dry_run {
        let _ = writeln!(
            text,
            "  time          {:.1} s",
            report.elapsed.as_secs_f64()
        );
    }
    text
}

fn counted_parts(number: usize) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} part{plural}")
}

fn merge_in_words(merge: &Merge) -> String {
    let (parts, rows) = (runs(&merge.parts), grouped(merge.rows));
    let before = size(merge.bytes_before);
    let month = (merge.month.as_ref()).map_or(String::new(), |month| format!(", month {month}"));
    match (merge.into, merge.bytes_after) {
        (Some(into), Some(after)) => format!(
            "part {into}{month}: {rows} rows, {} instead of {before}, of parts {parts}",
            size(after)
        ),
        _ => format!("one part{month} of {parts}: {rows} rows, {before}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_sizes_or_none() {
        assert_eq!(parse_rate("none"), Ok(Rate(None)));
        assert_eq!(parse_rate(DEFAULT_RATE), Ok(Rate(Some(64 << 20))));
        assert!(parse_rate("fast").unwrap_err().ends_with("or `none`"));
    }

    #[test]
    fn parts_that_follow_each_other_are_one_run() {
        let parts = [3, 4, 5, 9, 11, 12].map(LoadId);
        assert_eq!(merged_parts(&parts), "merged from parts 3-5, 9, 11-12");
        let parts: Vec<LoadId> = (0..40).map(|number| LoadId(3 + 10 * number)).collect();
        assert_eq!(runs(&parts), "3, 13, ..., 393 (40 in all)");
    }
}
