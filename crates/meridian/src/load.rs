//! `meridian load`: files into a table, with progress on the way and a report at the end.

use std::path::PathBuf;
use std::sync::Arc;

use catalog::TableKind;
use clap::Args;
use ingest::{
    FitsHeaders, IngestError, LoadReport, LoadRequest, PositionUnit, Progress, RemoteInputs,
    TextOptions,
};
use remote_files::{Client, Settings, is_url};

use crate::alert_commands::check_may_drop;
use crate::cluster_credentials::CredentialArguments;
use crate::cluster_load;
use crate::console::{remark, tell};
use crate::failure::Failure;
use crate::load_progress::ProgressDisplay;
use crate::worker::member_address;

/// What to load and how.
#[derive(Args)]
pub struct LoadArguments {
    /// The data directory; made if it does not exist.
    #[arg(
        long,
        value_name = "DIR",
        env = "MERIDIAN_DATA",
        required_unless_present = "cluster"
    )]
    data: Option<PathBuf>,
    /// In the place of --data: have the workers of a cluster load, each a share of the files, into the data directory of the front end that
    /// listens for members here. Files are named as the workers see them, which have to be started with --load-from.
    #[arg(long, value_name = "ADDR", value_parser = member_address)]
    cluster: Option<String>,
    #[command(flatten)]
    credentials: CredentialArguments,
    /// The database; made if it does not exist.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// The table to make.
    #[arg(long, value_name = "NAME")]
    table: String,
    /// director, child, match or replicated; by default what the other options say.
    #[arg(long, value_parser = parse_kind)]
    kind: Option<TableKind>,
    /// Director: its unique key, an integer or a text. Child: the column with the director's key. Match: LEFTKEY,RIGHTKEY.
    #[arg(long, value_name = "COL", value_delimiter = ',')]
    key: Vec<String>,
    /// Director: make keys for rows that have none or a text, in a column that the files lack, called as --key says or else id.
    /// Give it with --append too.
    #[arg(long)]
    generate_key: bool,
    /// The column of the right ascension.
    #[arg(long, value_name = "COL")]
    ra: Option<String>,
    /// The column of the declination.
    #[arg(long, value_name = "COL")]
    dec: Option<String>,
    /// The unit of the positions in the files: degrees, radians, or hours (of right ascension; declinations are in degrees). They are
    /// stored in degrees, which is what is taken if nothing is said.
    #[arg(long, value_name = "UNIT")]
    position_unit: Option<PositionUnit>,
    /// Child: the director's table. Match: LEFT,RIGHT, each a director or a child.
    #[arg(long, value_name = "TABLE", value_delimiter = ',')]
    director: Vec<String>,
    /// Child: its own key; by default the first integer column that is not --key.
    #[arg(long, value_name = "COL")]
    own_key: Option<String>,
    /// Child: what the rows of one object are ordered by; by default the own key.
    #[arg(long, value_name = "COL")]
    order: Option<String>,
    /// Stripes of a new database; chosen to suit the rows by default.
    #[arg(long, value_name = "N")]
    stripes: Option<u32>,
    /// Sub-stripes of each stripe of a new database; chosen by default.
    #[arg(long, value_name = "N")]
    sub_stripes: Option<u32>,
    /// The overlap of a new database in degrees; one arcminute by default.
    #[arg(long, value_name = "DEG")]
    overlap: Option<f64>,
    /// A JSON file with columns and their MySQL types; columns of a text file's header that it leaves out are inferred.
    #[arg(long, value_name = "FILE")]
    schema: Option<PathBuf>,
    /// Columns that hold texts, whatever their values look like (without --schema).
    #[arg(long = "text", value_name = "COLS", value_delimiter = ',')]
    text_columns: Vec<String>,
    #[command(flatten)]
    text: TextArguments,
    /// Columns that may hold NULL and NaN although they are declared NOT NULL; `all` for every one.
    #[arg(long, value_name = "COLS", value_delimiter = ',')]
    nullable: Vec<String>,
    /// Load the table anew if it exists; queries see the old rows until the new ones are complete.
    #[arg(long)]
    replace: bool,
    /// Add the rows to the table as one more part; what is not said of its key, position and directors is as the table has it.
    #[arg(long, conflicts_with = "replace")]
    append: bool,
    /// With --append: a JSON file as for --schema, with columns that the table does not have. It gets them behind those that it has, together with
    /// the rows; its rows from before have NULL in them.
    #[arg(long, value_name = "FILE", requires = "append")]
    new_columns: Option<PathBuf>,
    /// Read everything and load nothing: the columns that the load would use are printed to standard output, as a file for --schema,
    /// and its report, with the rows that it would reject, to standard error.
    #[arg(long)]
    dry_run: bool,
    /// Make an empty table if there are no rows; without this a load of no rows fails and changes nothing.
    #[arg(long)]
    allow_empty: bool,
    /// The table of FITS files: an extension's name or number, from 1; by default the first binary table.
    #[arg(long, value_name = "NAME")]
    extension: Option<String>,
    /// Load the keywords in the headers of FITS files, into a replicated table: a row for each keyword of each header, or of the
    /// extensions that --extension names (several: A,B; 0 is the first header).
    #[arg(long, conflicts_with_all = ["key", "ra", "dec", "director", "generate_key", "schema"])]
    headers: bool,
    /// How many rejected rows are tolerated.
    #[arg(long, value_name = "N", default_value_t = 0)]
    max_errors: u64,
    /// The memory to use, such as 8G or 500M; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// Threads that read and write; all cores by default.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// How heavy a scan of the table is: 0 lightest, 255 heaviest; by default as of the table that is replaced, or 1, by the bytes of its
    /// chunks.
    #[arg(long, value_name = "N")]
    scan_rating: Option<u8>,
    /// Do not sign requests for s3:// URLs: for buckets that everybody may read.
    #[arg(long)]
    no_sign_request: bool,
    /// No progress.
    #[arg(long, short)]
    quiet: bool,
    /// The files: CSV, TSV, MySQL dumps, VOTable and FITS, plain or gzipped, Parquet and Arrow; `-` for standard input. Pipes are read
    /// once and whole. A pattern in quotes ('x*.csv') stands for the files that match it; a directory for the Parquet files below it, or for
    /// the HATS catalogue that it is. All of these can be in a bucket (s3://BUCKET/NAME), with the credentials, the region and the endpoint of
    /// AWS's tools (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL); http and https URLs name one file
    /// each.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// How text files are written, where it is not as detected.
#[derive(Args)]
struct TextArguments {
    /// The character between fields; `tab` or `\t` for a tab, `blanks` for any number of blanks and tabs.
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter)]
    delimiter: Option<Delimiter>,
    /// The quote character; `none` if there are no quotes.
    #[arg(long, value_name = "CHAR", value_parser = parse_quote)]
    quote: Option<Quote>,
    /// Whether a backslash escapes the character after it, as in MySQL's dumps: `backslash` or `none`.
    #[arg(long, value_name = "HOW", value_parser = parse_escape)]
    escape: Option<bool>,
    /// The texts that stand for NULL, such as `--null N/A,--,null`; may be given several times.
    #[arg(
        long,
        value_name = "STR",
        allow_hyphen_values = true,
        value_delimiter = ','
    )]
    null: Vec<String>,
    /// The character with which comment lines begin; `none` if there are no comments. By default `#` where the file begins with it,
    /// else only for lines that cannot be rows.
    #[arg(long, value_name = "CHAR", value_parser = parse_quote)]
    comment: Option<Quote>,
    /// The first line of each file holds the column names.
    #[arg(long, conflicts_with = "no_header")]
    header: bool,
    /// The first line of each file holds a row.
    #[arg(long)]
    no_header: bool,
}

#[derive(Clone, Copy)]
struct Quote(Option<u8>);

fn parse_kind(text: &str) -> Result<TableKind, String> {
    text.parse()
        .map_err(|e: catalog::CatalogError| e.to_string())
}

fn parse_byte(text: &str) -> Result<u8, String> {
    ingest::parse_byte(text).ok_or_else(|| format!("{text:?} is not a single character"))
}

/// What separates fields.
#[derive(Clone, Copy)]
enum Delimiter {
    Byte(u8),
    Blanks,
}

fn parse_delimiter(text: &str) -> Result<Delimiter, String> {
    match text {
        "blanks" => Ok(Delimiter::Blanks),
        _ => parse_byte(text).map(Delimiter::Byte),
    }
}

fn parse_quote(text: &str) -> Result<Quote, String> {
    match text {
        "none" | "" => Ok(Quote(None)),
        _ => parse_byte(text).map(|byte| Quote(Some(byte))),
    }
}

fn parse_escape(text: &str) -> Result<bool, String> {
    match text {
        "backslash" | "\\" => Ok(true),
        "none" => Ok(false),
        _ => Err("give `backslash` or `none`".to_owned()),
    }
}

impl LoadArguments {
    fn into_request(self) -> Result<LoadRequest, IngestError> {
        let data = self.data.unwrap_or_default();
        let mut request = LoadRequest::new(data, self.db, self.table);
        request.kind = self.kind;
        request.key = self.key;
        request.generate_key = self.generate_key;
        request.ra = self.ra;
        request.dec = self.dec;
        request.position_unit = self.position_unit;
        request.directors = self.director;
        request.own_key = self.own_key;
        request.order = self.order;
        request.stripes = self.stripes;
        request.sub_stripes = self.sub_stripes;
        request.overlap_deg = self.overlap;
        request.schema = self.schema;
        request.text_columns = self.text_columns;
        request.extension = self.extension.clone();
        request.text = self.text.into_options();
        request.nullable = self.nullable;
        request.replace = self.replace;
        request.append = self.append;
        request.new_columns = self.new_columns;
        request.allow_empty = self.allow_empty;
        request.max_errors = match self.dry_run {
            true => u64::MAX,
            false => self.max_errors,
        };
        request.dry_run = self.dry_run;
        request.memory = self.memory;
        request.threads = self.threads;
        request.scan_rating = self.scan_rating;
        if self.headers {
            let extensions = self.extension.iter().flat_map(|names| names.split(','));
            let extensions: Vec<String> = extensions.map(str::to_owned).collect();
            request.kind = Some(TableKind::Replicated);
            request.extension = None;
            request.made = Some(Arc::new(FitsHeaders::of(&self.files, &extensions)?));
            return Ok(request);
        }
        request.files = self.files;
        Ok(request)
    }
}

impl TextArguments {
    fn into_options(self) -> TextOptions {
        let header = match (self.header, self.no_header) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        TextOptions {
            delimiter: match self.delimiter {
                Some(Delimiter::Byte(byte)) => Some(byte),
                Some(Delimiter::Blanks) | None => None,
            },
            blanks: matches!(self.delimiter, Some(Delimiter::Blanks)),
            quote: self.quote.map(|quote| quote.0),
            escapes: self.escape,
            nulls: self.null,
            header,
            comment: self.comment.map(|comment| comment.0),
        }
    }
}

/// Who opens the URLs among the files, if there are any.
fn remote_inputs(arguments: &LoadArguments) -> Result<Option<Client>, Failure> {
    let mut texts = arguments.files.iter().filter_map(|file| file.to_str());
    if !texts.any(is_url) {
        return Ok(None);
    }
    if arguments.headers {
        return Err(Failure::new(
            "--headers reads local files: fetch those at URLs first",
        ));
    }
    let settings = Settings::of_environment(arguments.no_sign_request)?;
    Ok(Some(Client::new(settings)))
}

/// Loads the table and prints the report.
pub fn run(arguments: LoadArguments) -> Result<(), Failure> {
    let (quiet, max_errors) = (arguments.quiet, arguments.max_errors);
    if let Some(address) = arguments.cluster.clone() {
        // A directory that the environment names for other commands is none that was asked for here.
        let named = std::env::var_os("MERIDIAN_DATA").map(PathBuf::from);
        if arguments.data.is_some() && arguments.data != named {
            return Err(Failure::new(
                "--data and --cluster are both given: a load by workers is into the data directory of the front end, so leave --data out",
            ));
        }
        let credentials = arguments.credentials.clone().files()?;
        let is_anonymous = arguments.no_sign_request;
        let request = arguments.into_request()?;
        return cluster_load::run(address, &credentials, request, is_anonymous, quiet);
    }
    let remote = remote_inputs(&arguments)?;
    let mut request = arguments.into_request()?;
    let runtime = tokio::runtime::Runtime::new()?;
    request.remote = remote.map(|client| {
        // Its connections live in the runtime.
        let _entered = runtime.enter();
        RemoteInputs::new(client)
    });
    if request.replace {
        let table = Some(request.table.as_str());
        let checked = check_may_drop(&request.data_dir, &request.database, table);
        runtime.block_on(checked)?;
    }
    let report = runtime.block_on(load_with_progress(request, quiet))?;
    let Some(schema) = &report.schema else {
        return tell_report(&report);
    };
    remark(report.to_string().trim_end());
    if report.rows_rejected > max_errors {
        remark(&format!(
            "The load would fail for the rejected rows: --max-errors {} would tolerate them.",
            report.rows_rejected
        ));
    }
    tell(schema)
}

/// Tells how a load went.
pub fn tell_report(report: &LoadReport) -> Result<(), Failure> {
    tell(&report.to_string()).map_err(|lost| {
        lost.when_reporting(format!("{}.{} is loaded", report.database, report.table))
    })
}

/// Loads with a display beside it. Ctrl-C cancels the load, which then leaves nothing.
pub async fn load_with_progress(
    request: LoadRequest,
    quiet: bool,
) -> Result<LoadReport, IngestError> {
    let progress = Arc::new(Progress::default());
    let display = (!quiet).then(|| ProgressDisplay::start(&request.table, progress.clone()));
    let interrupted = progress.clone();
    let watch = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            interrupted.cancel();
        }
    });
    let outcome = ingest::load(request, progress).await;
    watch.abort();
    if let Some(display) = display {
        display.finish();
    }
    outcome
}
