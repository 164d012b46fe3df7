//! `meridian synthesize`: catalogues that are made, as Parquet files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Subcommand};
use ingest::{grouped, partitioning_for, size};
use sky::{ChunkId, Region};
use synthesize::{
    Band, Catalogue, Compression, Extent, GenerateOptions, Generated, Progress, TableSummary,
    WHOLE_SKY_SQUARE_DEGREES, WriteOptions, find_chunks, write_parquet,
};

use crate::failure::Failure;
use crate::synthesize_progress::SynthesizeDisplay;

/// What catalogues are made from.
#[derive(Subcommand)]
pub enum SynthesizeCommand {
    /// Make Object, Source and ForcedSource from nothing, with known statistics.
    ///
    /// Of --objects, --density and --region give one or two. The rows come chunk by chunk, each chunk from random
    /// numbers of its own: a chunk made alone with --chunk has the rows that it has in the whole.
    #[command(
        after_help = "Example, the benchmark catalogue:\n  meridian synthesize generate --objects 20000000 --out benchmark"
    )]
    Generate(Box<GenerateArguments>),
}

/// A catalogue from nothing.
#[derive(Args)]
pub struct GenerateArguments {
    /// Rows of Object.
    #[arg(long, value_name = "N", value_parser = parse_rows, allow_negative_numbers = true)]
    objects: Option<u64>,
    /// Objects in a square degree; 50000 where --objects and --region do not say it.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    density: Option<f64>,
    /// Where, in degrees: "box RA_MIN DEC_MIN RA_MAX DEC_MAX", "circle RA DEC RADIUS", an ellipse or a polygon, as for
    /// `meridian sky chunks`. By default a box from RA 0, Dec -10 to 10.
    #[arg(long, value_name = "REGION")]
    region: Option<Region>,
    /// Rows of Source for each object; 0 for no Source.
    #[arg(long, value_name = "N", default_value_t = 5)]
    epochs: u32,
    /// Rows of ForcedSource for each object; 0 for no ForcedSource.
    #[arg(long, value_name = "N", default_value_t = 0)]
    forced_epochs: u32,
    /// The bands of the sources, in their order.
    #[arg(long, value_name = "LETTERS", default_value = "ugrizy")]
    bands: String,
    /// The same seed gives the same rows.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The tables to make: some of Object,Source,ForcedSource; all that have rows by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tables: Option<Vec<String>>,
    /// The columns of Object to make; all by default.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    #[command(flatten)]
    target: Target,
}

/// Where a catalogue goes, and which part of it.
#[derive(Args)]
struct Target {
    /// Write DIR/TABLE/chunk_NNNNN.parquet.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How the Parquet files are compressed: none, snappy, lz4 or zstd.
    #[arg(long, value_name = "HOW", default_value = "zstd")]
    compression: Compression,
    /// Make these chunks alone.
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',')]
    chunk: Option<Vec<i32>>,
    /// The stripes of the partitioning by whose chunks the rows are made, part of what a seed means; by default what
    /// `meridian load` would choose.
    #[arg(long, value_name = "N")]
    stripes: Option<u32>,
    /// Replace what is there.
    #[arg(long)]
    replace: bool,
    /// Threads; all cores by default.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
}

fn parse_rows(text: &str) -> Result<u64, String> {
    text.parse::<u64>()
        .map_err(|_| "give a whole number of 1 or more, for example 20000000".to_owned())
}

/// Makes a catalogue and says what was made.
pub fn run(command: SynthesizeCommand) -> Result<(), Failure> {
    match command {
        SynthesizeCommand::Generate(arguments) => {
            let (catalogue, target) = generated(*arguments)?;
            target.make(catalogue)
        }
    }
}

fn generated(arguments: GenerateArguments) -> Result<(Generated, Target), Failure> {
    let extent = Extent::new(arguments.objects, arguments.density, arguments.region)?;
    let fraction = extent.area / WHOLE_SKY_SQUARE_DEGREES;
    let chosen = partitioning_for(extent.objects, fraction).0;
    let options = GenerateOptions {
        extent,
        stripes: arguments.target.stripes.unwrap_or(chosen),
        epochs: arguments.epochs,
        forced_epochs: arguments.forced_epochs,
        bands: Band::parse_list(&arguments.bands)?,
        seed: arguments.seed,
        tables: arguments.tables,
        columns: arguments.columns,
    };
    Ok((Generated::new(options)?, arguments.target))
}

impl Target {
    fn make<C: Catalogue + 'static>(self, catalogue: C) -> Result<(), Failure> {
        let wanted: Option<Vec<ChunkId>> =
            (self.chunk.as_ref()).map(|chunks| chunks.iter().copied().map(ChunkId).collect());
        let chunks = wanted
            .map(|wanted| find_chunks(&catalogue, &wanted))
            .transpose()?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let options = WriteOptions {
            dir: self.out,
            chunks,
            compression: self.compression,
            threads: self.threads.unwrap_or_else(cores),
            replace: self.replace,
        };
        let started = Instant::now();
        let tables = write_with_progress(Arc::new(catalogue), options, self.quiet)?;
        print_report(&tables, started.elapsed().as_secs_f64());
        Ok(())
    }
}

/// Writes with a display beside it. Ctrl-C stops; what is finished by then stays, and nothing is half written.
fn write_with_progress<C: Catalogue + 'static>(
    catalogue: Arc<C>,
    options: WriteOptions,
    quiet: bool,
) -> Result<Vec<TableSummary>, Failure> {
    let progress = Arc::new(Progress::default());
    let display = (!quiet).then(|| SynthesizeDisplay::start(progress.clone()));
    let runtime = tokio::runtime::Runtime::new()?;
    let interrupted = progress.clone();
    runtime.spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.cancel();
        }
    });
    let outcome = write_parquet(&catalogue, &options, &progress);
    if let Some(display) = display {
        display.finish();
    }
    Ok(outcome?)
}

#[expect(clippy::print_stdout, reason = "the report is this command's answer")]
fn print_report(tables: &[TableSummary], seconds: f64) {
    let mut all = 0;
    for table in tables {
        println!(
            "{}: {} rows in {} files, {}",
            table.name,
            grouped(table.rows),
            grouped(table.files),
            size(table.bytes)
        );
        all += table.rows;
    }
    let rate = all as f64 / seconds.max(1e-3);
    println!("time: {seconds:.1} s ({} rows/s)", grouped(rate as u64));
}
