//! `meridian sql`: queries from the shell.

use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::executor::Executor;
use crate::failure::Failure;
use crate::output::{Destination, Layout};
use crate::server_client::{LoginArguments, ServerClient, UserArguments};
use crate::statements::{Executed, Remarks, ResultWriter};
use crate::{prompt, serve};

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Execute queries in SQL and print the results.
///
/// Names are matched without regard to case. Regions: qserv_areaspec_circle(ra, dec, radius),
/// scisql_s2PtInCircle(ra, dec, ...) = 1, scisql_angSep(ra1, dec1, ra2, dec2) < radius, BETWEEN on the position
/// columns; all in degrees, but for the axes of an ellipse, which are in arcseconds. EXPLAIN shows which chunks
/// a query touches, and why.
#[derive(Args)]
pub struct SqlArgs {
    /// The data directory.
    #[arg(
        long,
        value_name = "DIR",
        env = "MERIDIAN_DATA",
        required_unless_present = "server"
    )]
    data: Option<PathBuf>,
    /// Have a server execute the queries, instead of executing them on a data directory: its HTTP address, such as
    /// http://127.0.0.1:8080 or https://ann@archive.example.org, where ann logs in.
    #[arg(long, value_name = "URL", conflicts_with_all = ["memory", "cache", "threads"])]
    server: Option<String>,
    #[command(flatten)]
    user: UserArguments,
    #[command(flatten)]
    login: LoginArguments,
    /// The database in which tables are looked for; not needed if there is only one.
    #[arg(long)]
    pub(crate) db: Option<String>,
    /// The language of the query: mysql (double quotes are for text) or adql (double quotes are for names).
    #[arg(long, default_value_t)]
    pub(crate) dialect: ::sql::Dialect,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Read the query from this file (`-`: standard input).
    #[arg(long, short, value_name = "FILE", conflicts_with = "query")]
    file: Option<PathBuf>,
    /// Write the result to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Memory for sorts, groups and joins, for example 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    pub(crate) memory: Option<u64>,
    /// Memory for decoded columns, kept for the next queries of this call, for example 2G, or 0 for none; a third of the
    /// machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = cache_size)]
    pub(crate) cache: Option<u64>,
    /// Processor cores to use; all by default.
    #[arg(long)]
    pub(crate) threads: Option<std::num::NonZeroUsize>,
    /// Do not print the number of rows and the time.
    #[arg(long, short)]
    quiet: bool,
    /// The query; several, separated by semicolons, are executed one after another. Without one, and without
    /// --file, there is a prompt on a terminal; else queries are read from standard input, and each is executed as soon as
    /// the line with its semicolon has arrived.
    query: Option<String>,
}

/// Forms of a result.
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
    /// Apache Arrow IPC stream; a stream for each query.
    Arrow,
    /// FITS, a binary table.
    Fits,
}

impl Format {
    /// Whether a file has room for one result alone.
    pub(crate) fn is_one_file(self) -> bool {
        matches!(self, Self::Parquet | Self::Fits)
    }
}

/// Reads how much memory decoded columns may take: a size, or 0 for none.
pub(crate) fn cache_size(text: &str) -> Result<u64, String> {
    if text.trim() == "0" {
        return Ok(0);
    }
    ingest::parse_size(text)
}

impl SqlArgs {
    /// The data directory.
    ///
    /// # Errors
    /// None is named.
    pub(crate) fn data(&self) -> Result<&Path, Failure> {
        let named = self.data.as_deref();
        named.ok_or_else(|| Failure::new("name the data directory with --data"))
    }

    /// The server that executes the queries, if one is named.
    ///
    /// # Errors
    /// Its address or the login cannot be used.
    pub(crate) fn server(&self) -> Result<Option<ServerClient>, Failure> {
        let client = |url: &String| self.login.client(url.clone(), self.user.user.as_deref());
        self.server.as_ref().map(client).transpose()
    }

    /// Whether statements are typed at a prompt.
    fn is_interactive(&self) -> bool {
        let at_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        self.query.is_none() && self.file.is_none() && at_terminal
    }

    /// How results are written.
    pub(crate) fn result_writer(&self) -> ResultWriter {
        ResultWriter {
            format: self.format,
            layout: Layout::AsItFits,
            destination: match &self.output {
                Some(file) => Destination::NewFile(file.clone()),
                None => Destination::StandardOutput,
            },
            remarks: match self.quiet {
                true => Remarks::None,
                false => Remarks::RowsAndTime,
            },
            dialect: self.dialect,
        }
    }
}

/// Runs the command.
pub fn run(args: SqlArgs) -> Result<(), Failure> {
    if args.is_interactive() {
        return prompt::run(&args);
    }
    let texts = StatementSource::open(&args)?;
    if let Ok(filter) = EnvFilter::try_from_env("RUST_LOG") {
        serve::log_to_stderr(filter);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        tokio::spawn(leave_while_reading());
        tokio::select! {
            outcome = execute_all(&args, texts) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::with_status("cancelled", INTERRUPTED)),
        }
    });
    // Without waiting for what other threads still compute of a cancelled query.
    runtime.shutdown_background();
    outcome
}

/// Whether a statement is waited for.
static READING: AtomicBool = AtomicBool::new(false);

/// How long a result may take to be cancelled.
const CANCELLED_WITHIN: Duration = Duration::from_millis(250);

/// Ends the program at Ctrl-C while a statement is waited for, when nothing is half done; else the result is cancelled, which
/// ends the program, unless its thread computes for so long that it does not notice.
async fn leave_while_reading() {
    if tokio::signal::ctrl_c().await.is_ok() {
        if !READING.load(Ordering::Acquire) {
            tokio::time::sleep(CANCELLED_WITHIN).await;
        }
        Failure::with_status("cancelled", INTERRUPTED).report();
        std::process::exit(INTERRUPTED.into());
    }
}

/// Where the queries come from.
enum StatementSource {
    /// A text of all statements; `None` after it was executed.
    Whole(Option<String>),
    /// Statement by statement, from standard input.
    Written {
        ended: bool,
        dialect: ::sql::Dialect,
    },
}

impl StatementSource {
    fn open(args: &SqlArgs) -> Result<Self, Failure> {
        match (&args.query, &args.file) {
            (Some(query), _) => Ok(Self::Whole(Some(query.clone()))),
            (None, Some(file)) if file.as_os_str() != "-" => std::fs::read_to_string(file)
                .map(|text| Self::Whole(Some(text)))
                .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display()))),
            _ => Ok(Self::Written {
                ended: false,
                dialect: args.dialect,
            }),
        }
    }

    /// The next text to execute; `None` after the last.
    fn next(&mut self) -> Option<Result<String, Failure>> {
        match self {
            Self::Whole(text) => text.take().map(Ok),
            Self::Written { ended: true, .. } => None,
            Self::Written { ended, dialect } => {
                let mut text = String::new();
                // On the thread that executes: handing a statement over would take longer than executing a short one. Nothing
                // else runs meanwhile but the wait for Ctrl-C.
                READING.store(true, Ordering::Release);
                let read = tokio::task::block_in_place(|| {
                    read_statement(&mut std::io::stdin().lock(), &mut text, *dialect)
                });
                READING.store(false, Ordering::Release);
                match read {
                    Ok(more) => {
                        *ended = !more;
                        (more || !text.trim().is_empty()).then_some(Ok(text))
                    }
                    Err(error) => {
                        *ended = true;
                        Some(Err(Failure::new(format!(
                            "cannot read standard input: {error}"
                        ))))
                    }
                }
            }
        }
    }
}

/// Appends lines up to one that ends a statement; `false` if the input ended.
fn read_statement(
    input: &mut impl BufRead,
    text: &mut String,
    dialect: ::sql::Dialect,
) -> std::io::Result<bool> {
    loop {
        let start = text.len();
        if input.read_line(text)? == 0 {
            return Ok(false);
        }
        if text[start..].trim_end().ends_with(';') && ::sql::ends_statement(dialect, text) {
            return Ok(true);
        }
    }
}

/// Memory for decoded columns where nothing is said.
pub(crate) fn default_cache() -> u64 {
    ingest::machine_memory() / 3
}

async fn execute_all(args: &SqlArgs, mut texts: StatementSource) -> Result<(), Failure> {
    let executor = Executor::open(args).await?;
    let writer = args.result_writer();
    let mut executed = Executed::default();
    while let Some(text) = texts.next() {
        executor.execute(&writer, &text?, &mut executed).await?;
    }
    if executed.statements == 0 {
        return Err(Failure::new("the query is empty"));
    }
    Ok(())
}
