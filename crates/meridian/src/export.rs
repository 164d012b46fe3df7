//! `meridian export`: a whole table as a HATS catalogue or as a file.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use engine::{Archive, Session, SessionOptions};
use hats::{Catalogue, ExportOptions, ExportReport};
use ingest::{grouped, size};

use crate::console::{remark, tell};
use crate::failure::Failure;
use crate::output::{Destination, Layout};
use crate::sql::{Format, default_cache};
use crate::statements::{Executed, Remarks, ResultWriter};
use crate::temporary::{TemporaryFolder, half_of_free};

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
/// Rows of a file where nothing is said.
const ROWS_PER_PIXEL: u64 = 1_000_000;

/// What to export, and as what.
#[derive(Args)]
pub struct ExportArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// The table; for the formats of files also a view.
    #[arg(long, value_name = "NAME")]
    table: String,
    /// hats for a directory; else a file's.
    #[arg(long, value_enum)]
    format: ExportFormat,
    /// The directory or the file to make.
    #[arg(long, short, value_name = "PATH")]
    output: PathBuf,
    /// HATS: rows of a file at most; cells with more are divided.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rows_per_pixel: Option<u64>,
    /// HATS: the highest order of cells, which are not divided further; 10 at most and by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=i64::from(hats::MAX_ORDER)))]
    max_order: Option<u8>,
    /// HATS: leave out rows that have no position; without this the export fails if there are any.
    #[arg(long)]
    skip_unplaced: bool,
    /// Memory for sorting, for example 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// Processor cores to use; all by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// No report.
    #[arg(long, short)]
    quiet: bool,
}

/// As what a table is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// A directory of Parquet files by cells of the sky, for LSDB.
    Hats,
    /// Apache Parquet.
    Parquet,
    /// Comma-separated values with a header.
    Csv,
    /// Tab-separated values with a header; NULL is \N.
    Tsv,
    /// One JSON object a line.
    Json,
    /// Apache Arrow IPC stream.
    Arrow,
    /// FITS, a binary table.
    Fits,
}

impl ExportFormat {
    /// The format of a file.
    fn of_file(self) -> Option<Format> {
        match self {
            Self::Hats => None,
            Self::Parquet => Some(Format::Parquet),
            Self::Csv => Some(Format::Csv),
            Self::Tsv => Some(Format::Tsv),
            Self::Json => Some(Format::Json),
            Self::Arrow => Some(Format::Arrow),
            Self::Fits => Some(Format::Fits),
        }
    }
}

/// Exports the table and reports.
pub fn run(arguments: ExportArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = export(&arguments) => outcome,
            _ = tokio::signal::ctrl_c() => {
                Err(Failure::with_status("cancelled; nothing was exported", INTERRUPTED))
            }
        }
    });
    // Without waiting for what other threads still compute of a cancelled query.
    runtime.shutdown_background();
    outcome
}

async fn export(arguments: &ExportArguments) -> Result<(), Failure> {
    let archive = Archive::open_keeping(&arguments.data, default_cache()).await?;
    let _temporary = TemporaryFolder::of_data(&arguments.data);
    let memory = arguments.memory.unwrap_or_else(ingest::default_memory) as usize;
    engine::bound_memory(&archive, memory);
    let options = SessionOptions {
        database: Some(arguments.db.clone()),
        cores: arguments.threads,
        memory: Some(memory),
        spilled: half_of_free(&tempfile::env::temp_dir()),
        ..SessionOptions::default()
    };
    match arguments.format.of_file() {
        Some(format) => export_file(arguments, &archive, &options, format).await,
        None => Box::pin(export_catalogue(arguments, &archive, &options)).await,
    }
}

async fn export_file(
    arguments: &ExportArguments,
    archive: &Arc<Archive>,
    options: &SessionOptions,
    format: Format,
) -> Result<(), Failure> {
    let of_hats = [
        ("--rows-per-pixel", arguments.rows_per_pixel.is_some()),
        ("--max-order", arguments.max_order.is_some()),
        ("--skip-unplaced", arguments.skip_unplaced),
    ];
    if let Some((option, _)) = of_hats.iter().find(|(_, given)| *given) {
        return Err(Failure::new(format!("{option} is for --format hats")));
    }
    let session = Session::new(Arc::clone(archive), options).await?;
    let writer = ResultWriter {
        format,
        layout: Layout::Lines,
        destination: Destination::NewFile(arguments.output.clone()),
        remarks: match arguments.quiet {
            true => Remarks::None,
            false => Remarks::RowsAndTime,
        },
        dialect: options.dialect,
    };
    let quoted = |name: &str| format!("`{}`", name.replace('`', "``"));
    let (database, table) = (quoted(&arguments.db), quoted(&arguments.table));
    let text = format!("SELECT * FROM {database}.{table}");
    writer
        .execute(&session, &text, &mut Executed::default())
        .await
}

async fn export_catalogue(
    arguments: &ExportArguments,
    archive: &Arc<Archive>,
    options: &SessionOptions,
) -> Result<(), Failure> {
    let options = SessionOptions {
        dialect: hats::DIALECT,
        ..options.clone()
    };
    let session = Arc::new(Session::new(Arc::clone(archive), &options).await?);
    let catalogue = Catalogue::open(archive, session, &arguments.db, &arguments.table).await?;
    let how = ExportOptions {
        rows_per_tile: arguments.rows_per_pixel.unwrap_or(ROWS_PER_PIXEL),
        max_order: arguments.max_order.unwrap_or(hats::MAX_ORDER),
        skip_unplaced: arguments.skip_unplaced,
    };
    let exported = hats::export(&catalogue, how, &arguments.output).await?;
    if !exported.has_metadata && !arguments.quiet {
        remark("There is no dataset/_metadata: it would be too large. Readers do without.");
    }
    match arguments.quiet {
        true => Ok(()),
        false => tell(&report(&exported, arguments))
            .map_err(|lost| lost.when_reporting(format!("{} is exported", arguments.table))),
    }
}

fn report(exported: &ExportReport, arguments: &ExportArguments) -> String {
    let ExportReport {
        rows,
        skipped,
        files,
        orders: (lowest, highest),
        bytes,
        ..
    } = exported;
    let mut text = format!(
        "{} rows of {}.{} in {} files, of cells of the orders {lowest} to {highest}, {}, in {}\n",
        grouped(*rows),
        arguments.db,
        arguments.table,
        grouped(*files as u64),
        size(*bytes),
        arguments.output.display()
    );
    if *skipped > 0 {
        text += &format!(
            "{} rows without a position were left out\n",
            grouped(*skipped)
        );
    }
    text
}
