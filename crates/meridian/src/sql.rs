//! `meridian sql`: questions from the shell.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use engine::{Answer, Archive, Session, SessionOptions};
use futures::StreamExt;

use crate::failure::Failure;
use crate::output::{Output, open_output};

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Asks questions in SQL and prints the answers.
///
/// Names are matched without regard to case. Regions: qserv_areaspec_circle(ra, dec, radius),
/// scisql_s2PtInCircle(ra, dec, ...) = 1, scisql_angSep(ra1, dec1, ra2, dec2) < radius, BETWEEN on the position
/// columns; all in degrees, but for the axes of an ellipse, which are in arcseconds. EXPLAIN shows which chunks
/// a query touches, and why.
#[derive(Args)]
pub struct SqlArgs {
    /// The data directory.
    #[arg(long)]
    data: PathBuf,
    /// The database in which tables are looked for; not needed if there is only one.
    #[arg(long)]
    db: Option<String>,
    /// How to print the answer.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Read the query from this file (`-`: standard input).
    #[arg(long, short, value_name = "FILE", conflicts_with = "query")]
    file: Option<PathBuf>,
    /// Write the answer to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Memory for sorts, groups and joins, for example 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// Processor cores to use; all by default.
    #[arg(long)]
    threads: Option<std::num::NonZeroUsize>,
    /// Do not print the number of rows and the time.
    #[arg(long, short)]
    quiet: bool,
    /// The query; several, separated by semicolons, are answered one after another. Without one, and without
    /// --file, it is read from standard input.
    query: Option<String>,
}

/// Forms of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns for reading; a row a block where rows are wider than the terminal.
    Table,
    /// Comma-separated values with a header.
    Csv,
    /// Tab-separated values with a header; NULL is \N.
    Tsv,
    /// One JSON object a line.
    Json,
    /// Apache Parquet.
    Parquet,
    /// Apache Arrow IPC stream.
    Arrow,
}

/// Runs the command.
pub fn run(args: SqlArgs) -> Result<(), Failure> {
    let text = query_text(&args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        tokio::select! {
            outcome = answer_all(&args, &text) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::with_status("cancelled", INTERRUPTED)),
        }
    })
}

fn query_text(args: &SqlArgs) -> Result<String, Failure> {
    let file = match (&args.query, &args.file) {
        (Some(query), _) => return Ok(query.clone()),
        (None, Some(file)) if file.as_os_str() != "-" => file,
        _ => {
            if std::io::stdin().is_terminal() {
                return Err(Failure::new(
                    "give a query, --file, or a query on standard input; see `meridian sql --help`",
                ));
            }
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .map_err(|error| Failure::new(format!("cannot read standard input: {error}")))?;
            return Ok(text);
        }
    };
    std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display())))
}

async fn answer_all(args: &SqlArgs, text: &str) -> Result<(), Failure> {
    let archive = Archive::open(&args.data).await?;
    let options = SessionOptions {
        database: args.db.clone(),
        cores: args.threads,
        memory: Some(args.memory.unwrap_or_else(ingest::default_memory) as usize),
        ..SessionOptions::default()
    };
    let session = Session::new(archive, &options).await?;
    let statements = session.parse(text).await?;
    if statements.is_empty() {
        return Err(Failure::new("the query is empty"));
    }
    if statements.len() > 1 && matches!(args.format, Format::Parquet | Format::Arrow) {
        return Err(Failure::new(
            "Parquet and Arrow hold one answer: give one statement at a time",
        ));
    }
    for statement in statements {
        let start = Instant::now();
        let answer = session.run(text, statement).await?;
        let rows = write_answer(args, answer).await?;
        if !args.quiet {
            report(rows, start.elapsed());
        }
    }
    Ok(())
}

async fn write_answer(args: &SqlArgs, mut answer: Answer) -> Result<u64, Failure> {
    let mut output: Box<dyn Output> =
        open_output(args.format, args.output.as_deref(), &answer.schema)?;
    let mut rows = 0;
    while let Some(batch) = answer.batches.next().await {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        if !output.write(&batch)? {
            break;
        }
    }
    output.finish()?;
    Ok(rows)
}

#[expect(
    clippy::print_stderr,
    reason = "how much and how long is said beside the answer, not in it"
)]
fn report(rows: u64, time: Duration) {
    let plural = if rows == 1 { "" } else { "s" };
    eprintln!("{rows} row{plural} in {}", readable(time));
}

fn readable(time: Duration) -> String {
    match time.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 120.0 => format!("{seconds:.2} s"),
        seconds => format!("{} min {:.0} s", seconds as u64 / 60, seconds % 60.0),
    }
}
