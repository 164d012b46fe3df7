//! `meridian repartition`: the sky of a database cut anew, with all its partitioned tables.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ingest::{Partitioning, Progress, RepartitionReport, RepartitionRequest, grouped};

use crate::console::tell;
use crate::failure::Failure;
use crate::load_progress::ProgressDisplay;

/// Which database, and how it is to be cut.
#[derive(Args)]
pub struct RepartitionArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database. Its replicated tables stay as they are.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// Stripes of equal height; chosen to suit the rows of the largest director by default.
    #[arg(long, value_name = "N")]
    stripes: Option<u32>,
    /// Sub-stripes of each stripe; chosen by default.
    #[arg(long, value_name = "N")]
    sub_stripes: Option<u32>,
    /// The overlap in degrees; as it is by default.
    #[arg(long, value_name = "DEG")]
    overlap: Option<f64>,
    /// The memory to use, such as 8G or 500M; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// Threads that read and write; all cores by default.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

/// Writes the tables anew and tells what became of them. Ctrl-C leaves everything as it was.
pub fn run(arguments: RepartitionArguments) -> Result<(), Failure> {
    let progress = Arc::new(Progress::default());
    let display =
        (!arguments.quiet).then(|| ProgressDisplay::start(&arguments.db, progress.clone()));
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(async {
        let interrupted = progress.clone();
        let watch = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                interrupted.cancel();
            }
        });
        let outcome = ingest::repartition(arguments.into_request(), progress).await;
        watch.abort();
        outcome
    });
    if let Some(display) = display {
        display.finish();
    }
    let report = outcome?;
    tell(&in_words(&report))
        .map_err(|lost| lost.when_reporting(format!("{} is repartitioned", report.database)))
}

impl RepartitionArguments {
    fn into_request(self) -> RepartitionRequest {
        RepartitionRequest {
            data_dir: self.data,
            database: self.db,
            stripes: self.stripes,
            sub_stripes: self.sub_stripes,
            overlap_deg: self.overlap,
            memory: self.memory,
            threads: self.threads,
        }
    }
}

fn in_words(report: &RepartitionReport) -> String {
    let cut = |cut: &Partitioning| {
        format!(
            "{} stripes, {} sub-stripes, overlap {:.4} degrees",
            cut.stripes, cut.sub_stripes, cut.overlap_deg
        )
    };
    let database = &report.database;
    if report.tables.is_empty() {
        return format!(
            "{database} has this partitioning already: {}. Nothing was done.\n",
            cut(&report.before)
        );
    }
    let mut text = format!("{database} is repartitioned.\n");
    let how = if report.after.chosen {
        " (chosen for the rows)"
    } else {
        ""
    };
    // Writing to a text cannot fail.
    let _ = writeln!(text, "  before        {}", cut(&report.before));
    let _ = writeln!(text, "  now           {}{how}", cut(&report.after));
    for table in &report.tables {
        let _ = writeln!(
            text,
            "  {:<12}  {} rows, {} chunks instead of {}",
            table.name,
            grouped(table.rows),
            grouped(table.chunks_after),
            grouped(table.chunks_before)
        );
    }
    let _ = writeln!(
        text,
        "  time          {:.1} s",
        report.elapsed.as_secs_f64()
    );
    for note in &report.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    text
}
