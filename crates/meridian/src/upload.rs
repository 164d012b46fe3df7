//! `meridian upload`: a file becomes a table of a user's own at a server, or gives it more rows.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use futures::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::Method;
use hyper::body::Frame;
use indicatif::{ProgressBar, ProgressStyle};
use ingest::grouped;
use serde::Deserialize;
use tokio::fs::File;
use tokio_util::io::ReaderStream;

use crate::console::tell;
use crate::failure::Failure;
use crate::server_client::{ServerArguments, UserArguments, path_segment};

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
/// Bytes of the file that are sent together.
const BLOCK: usize = 128 << 10;

/// What to upload, and where it goes.
#[derive(Args)]
pub struct UploadArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    user: UserArguments,
    /// The table: a name in the user's own database, or database.table.
    #[arg(long, value_name = "NAME")]
    table: String,
    /// Give a table that there is more rows, by the names of their columns; columns that the file lacks are NULL.
    #[arg(long)]
    append: bool,
    /// Print nothing but errors.
    #[arg(long, short)]
    quiet: bool,
    /// The file: CSV, TSV, FITS, VOTable or Parquet, which is recognised by its content.
    file: PathBuf,
}

/// The response to an upload.
#[derive(Deserialize)]
struct UploadResponse {
    table: String,
    rows_added: u64,
}

/// Uploads the file.
pub fn run(arguments: UploadArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = upload(&arguments) => outcome,
            _ = tokio::signal::ctrl_c() => Err(Failure::with_status("cancelled: nothing was added", INTERRUPTED)),
        }
    });
    runtime.shutdown_background();
    outcome
}

async fn upload(arguments: &UploadArguments) -> Result<(), Failure> {
    let begun = Instant::now();
    let client = arguments.server.client_for(&arguments.user)?;
    let path = arguments.file.display();
    let unreadable = |error| Failure::new(format!("cannot read {path}: {error}"));
    let file = File::open(&arguments.file).await.map_err(unreadable)?;
    let metadata = file.metadata().await.map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(Failure::new(format!("{path} is a directory: name a file")));
    }
    let length = metadata.is_file().then_some(metadata.len());
    let bar = progress_bar(length, arguments.quiet);
    let counted = bar.clone();
    let blocks = ReaderStream::with_capacity(file, BLOCK);
    let frames = blocks
        .inspect_ok(move |block| counted.inc(block.len() as u64))
        .map_ok(Frame::data);
    let table = path_segment(&arguments.table);
    let (method, target) = match arguments.append {
        false => (Method::PUT, format!("/tables/{table}")),
        true => (Method::POST, format!("/load/{table}")),
    };
    let body = StreamBody::new(frames).boxed_unsync();
    let uploaded = client.upload_for::<UploadResponse>(method, &target, body, length);
    let uploaded = uploaded.await;
    bar.finish_and_clear();
    let uploaded = uploaded?;
    if arguments.quiet {
        return Ok(());
    }
    let rows = grouped(uploaded.rows_added);
    let plural = if uploaded.rows_added == 1 { "" } else { "s" };
    let seconds = begun.elapsed().as_secs_f64();
    let table = uploaded.table;
    tell(&format!(
        "{table}: {rows} row{plural} added in {seconds:.2} s\n"
    ))
}

/// A bar on a terminal.
fn progress_bar(length: Option<u64>, is_quiet: bool) -> ProgressBar {
    if is_quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match length {
        Some(length) => (
            ProgressBar::new(length),
            "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}",
        ),
        None => (
            ProgressBar::new_spinner(),
            "{spinner} {bytes}, {bytes_per_sec}",
        ),
    };
    // The template is a constant, which the tests of the command draw.
    bar.with_style(
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
    )
}
