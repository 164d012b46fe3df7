//! `meridian alerts sort`: the parts of each month that is over become one.

use std::path::PathBuf;

use alerts::{AlertDatabase, EditionTable};
use catalog::{Catalog, utc_now};
use clap::Args;
use ingest::{CompactRequest, Month, MonthSort};
use tokio_util::sync::CancellationToken;

use crate::compact::{DEFAULT_RATE, Rate, compact, parse_rate};
use crate::failure::Failure;

/// Which months of which alert database, and how.
#[derive(Args)]
pub struct SortArguments {
    /// The name.
    name: String,
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The month in which the parts were published, in UTC, such as 2026-10; all months that are over by default.
    #[arg(long, value_name = "YYYY-MM", value_parser = parse_month)]
    month: Option<Month>,
    /// Tell what would be sorted, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Bytes of rows to read, and as many to write, each second, such as 200M; `none` for as fast as it goes. Less leaves more of the
    /// disk and the cores to stores and queries.
    #[arg(long, value_name = "SIZE", default_value = DEFAULT_RATE, value_parser = parse_rate)]
    rate: Rate,
    /// The memory to use, such as 8G or 500M; 1G, or a third of the machine's if that is less, by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

fn parse_month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| "a month is a year and a month, such as 2026-10".to_owned())
}

/// Sorts and tells what became of the tables. Ctrl-C leaves the tables that were sorted completely.
pub async fn run(arguments: SortArguments) -> Result<(), Failure> {
    let database = AlertDatabase::open(&arguments.data, &arguments.name).await?;
    let name = database.name();
    if let Some(month) = &arguments.month
        && *month >= Month::of(&utc_now())
    {
        return Err(Failure::new(format!(
            "{month} is not over: its parts are merged by their sizes until then, which `meridian compact --db {name}` does at once"
        )));
    }
    let catalog = Catalog::open(&arguments.data).await?;
    let first = EditionTable::ALL[0].name();
    if catalog.table(name, first).await?.is_none() {
        return Err(Failure::new(format!("nothing is published of {name}")));
    }
    let request = CompactRequest {
        data_dir: arguments.data,
        database: Some(name.to_owned()),
        table: None,
        all: false,
        months: MonthSort {
            databases: vec![name.to_owned()],
            only: true,
            month: arguments.month,
        },
        min_parts: 0,
        dry_run: arguments.dry_run,
        rate: arguments.rate.0,
        memory: arguments.memory,
        threads: None,
    };
    let stop = CancellationToken::new();
    compact(request, name, arguments.quiet, stop).await
}
