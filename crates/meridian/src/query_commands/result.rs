//! `meridian query result`: a stored result, written while it arrives.
//!
//! The server sends an Arrow stream, whatever the format: the writers are those of `meridian sql`, so that both write the same.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use hyper::Method;
use ingest::grouped;

use super::INTERRUPTED;
use crate::console::remark;
use crate::failure::Failure;
use crate::output::{Destination, Layout, open_output};
use crate::server_client::{BatchReader, ServerArguments, UserArguments, target, warnings_in};
use crate::sql::Format;

/// Which result, and where it goes.
#[derive(Args)]
pub struct ResultArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    user: UserArguments,
    /// How to write the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write the result to this file instead of standard output. The file appears when it is whole.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Rows to leave out at the beginning.
    #[arg(long, value_name = "N")]
    offset: Option<u64>,
    /// The most rows to write.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// The result so far, of a query that runs.
    #[arg(long)]
    partial: bool,
    /// Do not print the number of rows and the time.
    #[arg(long, short)]
    quiet: bool,
    /// The number of the query.
    id: u64,
}

/// How long the download may take to notice that it is cancelled.
const CANCELLED_WITHIN: Duration = Duration::from_millis(250);

/// Downloads the result.
pub async fn run(arguments: ResultArguments) -> Result<(), Failure> {
    let begun = Instant::now();
    tokio::spawn(leave_while_writing());
    let rows = tokio::select! {
        rows = download(&arguments) => rows?,
        _ = tokio::signal::ctrl_c() => return Err(Failure::with_status("cancelled", INTERRUPTED)),
    };
    if !arguments.quiet {
        let plural = if rows == 1 { "" } else { "s" };
        let seconds = begun.elapsed().as_secs_f64();
        remark(&format!("{} row{plural} in {seconds:.2} s", grouped(rows)));
    }
    Ok(())
}

/// Ends the program at Ctrl-C if the download does not notice it, because it waits for the reader of a pipe.
async fn leave_while_writing() {
    if tokio::signal::ctrl_c().await.is_ok() {
        tokio::time::sleep(CANCELLED_WITHIN).await;
        Failure::with_status("cancelled", INTERRUPTED).report();
        std::process::exit(INTERRUPTED.into());
    }
}

async fn download(arguments: &ResultArguments) -> Result<u64, Failure> {
    let client = arguments.server.client_for(&arguments.user)?;
    let number = |number: Option<u64>| number.map(|number| number.to_string());
    let parameters = [
        ("format", Some("arrow".to_owned())),
        ("user", client.user()),
        ("offset", number(arguments.offset)),
        ("limit", number(arguments.limit)),
        ("partial", arguments.partial.then(|| "true".to_owned())),
    ];
    let path = format!("/queries/{}/result", arguments.id);
    let response = client
        .send(Method::GET, &target(&path, &parameters), None)
        .await?;
    let warnings = warnings_in(response.headers());
    let mut batches = BatchReader::new(response.into_body());
    let destination = match &arguments.output {
        Some(file) => Destination::NewFile(file.clone()),
        None => Destination::StandardOutput,
    };
    let open = |schema: &_| open_output(arguments.format, Layout::AsItFits, &destination, schema);
    let rows = batches.write_all(open, Failure::from).await?;
    for warning in warnings {
        remark(&format!("meridian: warning {warning}"));
    }
    Ok(rows)
}
