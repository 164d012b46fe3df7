//! `meridian query`: the queries of a running server, listed, submitted, followed and cancelled, and their results downloaded.

mod cancel;
mod follow;
mod list;
mod result;
mod show;
mod submit;

use clap::Subcommand;

use crate::failure::Failure;

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Commands about the queries of a running server.
#[derive(Subcommand)]
pub enum QueryCommand {
    /// List queries, the newest first.
    List(list::ListArguments),
    /// Show all that is known of a query, or follow it until it has ended.
    Show(show::ShowArguments),
    /// End a query that waits or runs.
    Cancel(cancel::CancelArguments),
    /// Write the result of a submitted query to a file or to standard output.
    Result(result::ResultArguments),
    /// Submit a query, which then runs without a connection; prints its number.
    Submit(submit::SubmitArguments),
}

/// Runs the command.
pub fn run(command: QueryCommand) -> Result<(), Failure> {
    // One thread works, and one notices Ctrl-C while that one writes to a pipe that is not read.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match command {
            QueryCommand::List(arguments) => list::run(arguments).await,
            QueryCommand::Show(arguments) => show::run(arguments).await,
            QueryCommand::Cancel(arguments) => cancel::run(arguments).await,
            QueryCommand::Result(arguments) => result::run(arguments).await,
            QueryCommand::Submit(arguments) => submit::run(arguments).await,
        }
    })
}
