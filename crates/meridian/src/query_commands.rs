//! `meridian query`: the queries of a running server, listed, submitted, followed and cancelled, and their results downloaded.

mod cancel;
mod client;
mod follow;
mod list;
mod result;
mod show;
mod submit;

use clap::{Args, Subcommand};

use self::client::ServerClient;
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

/// Where the server is.
#[derive(Args)]
struct ServerArguments {
    /// The server's HTTP address. HTTPS is not spoken: reach a server on another machine through a tunnel, as with `ssh -L`.
    #[arg(long, value_name = "URL", env = "MERIDIAN_SERVER", default_value_t = default_server())]
    server: String,
}

impl ServerArguments {
    /// The server; the default one if the variable of the environment is empty.
    fn client(&self) -> Result<ServerClient, Failure> {
        match self.server.as_str() {
            "" => ServerClient::new(&default_server()),
            url => ServerClient::new(url),
        }
    }
}

/// Where `meridian serve` listens by default.
fn default_server() -> String {
    format!("http://{}", server::DEFAULT_HTTP_ADDRESS)
}

/// The user who sends the request: a result belongs to the user who submitted its query.
#[derive(Args)]
struct UserArguments {
    /// The name of the user; the name in the operating system by default.
    #[arg(long, value_name = "NAME", env = "MERIDIAN_USER")]
    user: Option<String>,
}

impl UserArguments {
    /// The name; `None` where neither the caller nor the operating system gives one.
    fn name(&self) -> Option<String> {
        let names = [self.user.clone(), std::env::var("USER").ok()];
        let mut names = names.into_iter().flatten();
        names.find(|name| !name.is_empty())
    }
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
