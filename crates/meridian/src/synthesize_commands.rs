//! `meridian synthesize`: catalogues that are made, as Parquet files or straight into a database.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Subcommand};
use ingest::{grouped, partitioning_for, size};
use sky::{ChunkId, Region};
use synthesize::{
    Band, Catalogue, ChildFiles, Compression, DirectorFiles, DuplicateOptions, Extent,
    GenerateOptions, GeneratedCatalogue, Patch, PatchCopies, Progress, TableSummary,
    WHOLE_SKY_SQUARE_DEGREES, WriteOptions, find_chunks, write_parquet,
};

use crate::console::tell;
use crate::failure::Failure;
use crate::synthesize_load::{DatabaseOptions, load_tables};
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
    /// Repeat a real patch of catalogue, director and children, over the sky or a region.
    ///
    /// Each copy is the patch, moved by a rotation of the sphere that keeps north up: separations and densities stay what
    /// they are at every declination. Children move with their director's row; rows whose director is not in the patch
    /// are left out and counted. Keys are new and unique. The patch is held in memory.
    #[command(
        after_help = "Example:\n  meridian synthesize duplicate --director patch/Object --key objectId --ra ra_PS --dec decl_PS \\\n    \
                      --child Source=patch/Source:objectId,ra,decl,sourceId --region \"box 0 -30 120 30\" --out copies"
    )]
    Duplicate(Box<DuplicateArguments>),
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

/// A catalogue of copies.
#[derive(Args)]
pub struct DuplicateArguments {
    /// The director's Parquet files, or a directory of them.
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    director: Vec<PathBuf>,
    /// The director's name in what is made.
    #[arg(long, value_name = "NAME", default_value = "Object")]
    name: String,
    /// The director's unique key, an integer.
    #[arg(long, value_name = "COL")]
    key: String,
    /// The director's right ascension in degrees.
    #[arg(long, value_name = "COL")]
    ra: String,
    /// The director's declination in degrees.
    #[arg(long, value_name = "COL")]
    dec: String,
    /// A child: its name, its Parquet file or a directory of them, and its columns: the one with the director's key, then
    /// right ascension and declination if it has them, then its own key if it has one.
    #[arg(long, value_name = "NAME=PATH:KEY[,RA,DEC][,OWN_KEY]", value_parser = parse_child)]
    child: Vec<ChildFiles>,
    /// The box to copy, "box RA_MIN DEC_MIN RA_MAX DEC_MAX"; by default the one around the director's rows.
    #[arg(long, value_name = "BOX")]
    patch: Option<Region>,
    /// The region to fill, in degrees; by default the whole sky.
    #[arg(long, value_name = "REGION", default_value = "box 0 -90 360 90")]
    region: Region,
    /// The same seed gives the same rows; it says where the copies of each band of declination begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    target: Target,
}

/// Where a catalogue goes, and which part of it.
#[derive(Args)]
struct Target {
    /// Write DIR/TABLE/chunk_NNNNN.parquet.
    #[arg(long, value_name = "DIR", conflicts_with = "data")]
    out: Option<PathBuf>,
    /// Load into a database in this data directory instead; made if it does not exist. Beside --db, the environment's
    /// MERIDIAN_DATA stands for it.
    #[arg(long, value_name = "DIR", requires = "db")]
    data: Option<PathBuf>,
    /// The database; made if it does not exist.
    #[arg(long, value_name = "NAME", conflicts_with = "out")]
    db: Option<String>,
    /// The memory that a load may use, such as 8G or 500M; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size, requires = "db")]
    memory: Option<u64>,
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

/// Reads `Source=patch/Source:objectId,ra,decl,sourceId`.
fn parse_child(text: &str) -> Result<ChildFiles, String> {
    let wrong = || "write NAME=PATH:KEY[,RA,DEC][,OWN_KEY], for example Source=patch/Source:objectId,ra,decl,sourceId";
    let (name, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (path, columns) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let columns: Vec<String> = columns.split(',').map(str::to_owned).collect();
    let no_blanks = ![name, path].contains(&"") && columns.iter().all(|column| !column.is_empty());
    let (key, position, own_key) = match columns.as_slice() {
        _ if !no_blanks => return Err(wrong().to_owned()),
        [key] => (key, None, None),
        [key, own_key] => (key, None, Some(own_key)),
        [key, ra, dec] => (key, Some([ra.clone(), dec.clone()]), None),
        [key, ra, dec, own_key] => (key, Some([ra.clone(), dec.clone()]), Some(own_key)),
        _ => return Err(wrong().to_owned()),
    };
    Ok(ChildFiles {
        name: name.to_owned(),
        files: vec![path.into()],
        key: key.clone(),
        position,
        own_key: own_key.cloned(),
    })
}

/// Makes a catalogue and says what was made.
pub fn run(command: SynthesizeCommand) -> Result<(), Failure> {
    match command {
        SynthesizeCommand::Generate(arguments) => {
            let (catalogue, target, cut) = generated(*arguments)?;
            target.make(catalogue, cut)
        }
        SynthesizeCommand::Duplicate(arguments) => {
            let (catalogue, target, cut) = duplicated(*arguments)?;
            tell_notes(&catalogue.notes())?;
            target.make(catalogue, cut)
        }
    }
}

fn generated(
    arguments: GenerateArguments,
) -> Result<(GeneratedCatalogue, Target, ChosenPartitioning), Failure> {
    let extent = Extent::new(arguments.objects, arguments.density, arguments.region)?;
    let cut = ChosenPartitioning::new(arguments.target.stripes, extent.objects, extent.area);
    let options = GenerateOptions {
        extent,
        stripes: cut.stripes,
        epochs: arguments.epochs,
        forced_epochs: arguments.forced_epochs,
        bands: Band::parse_list(&arguments.bands)?,
        seed: arguments.seed,
        tables: arguments.tables,
        columns: arguments.columns,
    };
    Ok((GeneratedCatalogue::new(options)?, arguments.target, cut))
}

fn duplicated(
    arguments: DuplicateArguments,
) -> Result<(PatchCopies, Target, ChosenPartitioning), Failure> {
    let patch = match arguments.patch {
        None => None,
        Some(Region::Box(patch)) => Some(patch),
        Some(other) => {
            return Err(Failure::new(format!(
                "the patch must be a box, not {other}: give --patch \"box RA_MIN DEC_MIN RA_MAX DEC_MAX\""
            )));
        }
    };
    let options = DuplicateOptions {
        director: DirectorFiles {
            name: arguments.name,
            files: arguments.director,
            key: arguments.key,
            position: [arguments.ra, arguments.dec],
        },
        children: arguments.child,
        patch,
        region: arguments.region,
        seed: arguments.seed,
    };
    let patch = Patch::read(options)?;
    let (rows, area) = patch.expected();
    let cut = ChosenPartitioning::new(arguments.target.stripes, rows, area);
    Ok((PatchCopies::new(patch, cut.stripes)?, arguments.target, cut))
}

impl Target {
    fn make<C: Catalogue + 'static>(
        self,
        catalogue: C,
        cut: ChosenPartitioning,
    ) -> Result<(), Failure> {
        let all = || (0..catalogue.chunks().len()).collect();
        let wanted = self.chunk.as_ref().map(|chunks| {
            let chunks: Vec<ChunkId> = chunks.iter().copied().map(ChunkId).collect();
            find_chunks(&catalogue, &chunks)
        });
        let chunks = wanted.transpose()?;
        // Not an `env` of the option: with it, --out would be rejected wherever the variable is set.
        let of_environment = || std::env::var_os("MERIDIAN_DATA").map(PathBuf::from);
        match (self.out, self.data.or_else(of_environment), self.db) {
            (Some(dir), _, _) => {
                let cores = || std::thread::available_parallelism().map_or(1, usize::from);
                let options = WriteOptions {
                    dir,
                    chunks,
                    compression: self.compression,
                    threads: self.threads.unwrap_or_else(cores),
                    replace: self.replace,
                };
                write_files(Arc::new(catalogue), options, self.quiet)
            }
            (None, Some(data), Some(database)) => {
                let options = DatabaseOptions {
                    data,
                    database,
                    chunks: chunks.unwrap_or_else(all),
                    stripes: cut.stripes,
                    sub_stripes: cut.sub_stripes,
                    replace: self.replace,
                    memory: self.memory,
                    threads: self.threads,
                    quiet: self.quiet,
                };
                load_tables(Arc::new(catalogue), options)
            }
            _ => Err(Failure::new(
                "where to? Give --out DIR for Parquet files, or --data DIR and --db NAME for a database",
            )),
        }
    }
}

/// Writes Parquet files and prints what was written.
fn write_files<C: Catalogue + 'static>(
    catalogue: Arc<C>,
    options: WriteOptions,
    quiet: bool,
) -> Result<(), Failure> {
    let started = Instant::now();
    let tables = write_with_progress(catalogue, options, quiet)?;
    report(&tables, started.elapsed().as_secs_f64())
        .map_err(|lost| lost.when_reporting("all files are written"))
}

/// How the sky of a catalogue is cut: as requested, or as a load would choose for it.
#[derive(Clone, Copy)]
struct ChosenPartitioning {
    stripes: u32,
    sub_stripes: u32,
}

impl ChosenPartitioning {
    /// For so many director rows in an area in square degrees. Sub-chunks have the same size whatever stripes are given.
    fn new(given: Option<u32>, rows: u64, area: f64) -> Self {
        let (stripes, sub_stripes) = partitioning_for(rows, area / WHOLE_SKY_SQUARE_DEGREES);
        match given {
            Some(given) => Self {
                stripes: given,
                sub_stripes: (stripes * sub_stripes).div_ceil(given.max(1)).max(1),
            },
            None => Self {
                stripes,
                sub_stripes,
            },
        }
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

/// Tells what is copied and what is not.
fn tell_notes(notes: &[String]) -> Result<(), Failure> {
    notes
        .iter()
        .try_for_each(|note| tell(&format!("note: {note}\n")))
}

fn report(tables: &[TableSummary], seconds: f64) -> Result<(), Failure> {
    let mut all = 0;
    for table in tables {
        tell(&format!(
            "{}: {} rows in {} files, {}\n",
            table.name,
            grouped(table.rows),
            grouped(table.files),
            size(table.bytes)
        ))?;
        all += table.rows;
    }
    let rate = all as f64 / seconds.max(1e-3);
    tell(&format!(
        "time: {seconds:.1} s ({} rows/s)\n",
        grouped(rate as u64)
    ))
}
