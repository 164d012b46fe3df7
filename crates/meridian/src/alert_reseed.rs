//! `meridian alerts reseed`: a release takes the place of what is published of an alert database.

use std::path::PathBuf;
use std::sync::Arc;

use alerts::{AlertDatabase, AlertTable, AlertsError};
use clap::Args;
use engine::Archive;
use ingest::grouped;
use server::{PublicationError, ReseedReport, ReseedRequest};

use crate::console::tell;
use crate::failure::Failure;
use crate::sql::default_cache;
use crate::temporary::{TemporaryFolder, half_of_free};

/// Which alert database, and what is to take its place.
#[derive(Args)]
pub struct ReseedArguments {
    /// The name.
    name: String,
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The release: a directory with directories DiaObject, DiaSource and DiaForcedSource of Parquet files, as `alerts archive` writes them.
    #[arg(long, value_name = "DIR")]
    release: PathBuf,
    /// The time of the release, as MJD (TAI), such as 61000.0: it has what is from before, and what was stored of visits from then on stays.
    #[arg(long, value_name = "MJD")]
    cut: f64,
    /// Only check whether the release could take its place, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Memory for joins and sorts, for example 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
}

/// Does it, and reports. An interrupt ends the process: whoever publishes next makes good what it leaves.
pub async fn run(arguments: ReseedArguments) -> Result<(), Failure> {
    let database = Arc::new(AlertDatabase::open(&arguments.data, &arguments.name).await?);
    let archive = Archive::open_keeping(&arguments.data, default_cache()).await?;
    let _temporary = TemporaryFolder::of_data(&arguments.data);
    let memory = arguments.memory.unwrap_or_else(ingest::default_memory) as usize;
    engine::bound_memory(&archive, memory);
    let request = ReseedRequest {
        release: arguments.release.clone(),
        cut: arguments.cut,
        dry_run: arguments.dry_run,
        memory,
        spilled: half_of_free(&tempfile::env::temp_dir()).unwrap_or(u64::MAX),
    };
    let done = Box::pin(server::reseed(&archive, &database, &request)).await;
    let report = done.map_err(|error| match error {
        PublicationError::Alerts(AlertsError::InUse { .. }) => Failure::new(format!(
            "a server stores into {}, and did not let go of it for half a minute: try again, and see its log if that happens again",
            arguments.name
        )),
        error => error.into(),
    })?;
    tell(&told(&report, &arguments))
        .map_err(|lost| lost.when_reporting(format!("{} is reseeded", arguments.name)))
}

fn told(report: &ReseedReport, arguments: &ReseedArguments) -> String {
    let name = &arguments.name;
    let mut lines = vec![match arguments.dry_run {
        true => format!(
            "the release can take the place of what is published of {name}; nothing was changed"
        ),
        false => format!(
            "{name} is reseeded with release {}, which is edition {}",
            report.release, report.edition
        ),
    }];
    for (table, counts) in AlertTable::ALL.iter().zip(report.tables) {
        lines.push(format!(
            "{}: {} rows of the release, {} published rows from the cut on stay",
            table.name(),
            grouped(counts.release),
            grouped(counts.kept)
        ));
    }
    for (table, count) in AlertTable::ALL[1..].iter().zip(report.without_object) {
        if count > 0 {
            lines.push(format!(
                "{} rows of {} that stay are of objects that do not",
                grouped(count),
                table.name()
            ));
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
