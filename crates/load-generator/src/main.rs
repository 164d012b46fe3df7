//! Measures how fast servers answer cone searches over HTTP: the load generator, and the server that stands beside Meridian.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod cones;
mod q3c_server;

/// Asks servers of cones over HTTP and says how long they took; or is such a server, in front of PostgreSQL with q3c.
#[derive(Parser)]
#[command(
    name = "meridian-load-generator",
    version,
    about,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Cones(cones::ConesArguments),
    Q3cServer(q3c_server::Q3cServerArguments),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Cones(arguments) => cones::run(&arguments).map_err(|error| error.to_string()),
        Command::Q3cServer(arguments) => {
            q3c_server::run(arguments).map_err(|error| error.to_string())
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => complain(&sentence),
    }
}

#[expect(
    clippy::print_stderr,
    reason = "this is the command line's way to speak"
)]
fn complain(sentence: &str) -> ExitCode {
    eprintln!("meridian-load-generator: {sentence}");
    ExitCode::FAILURE
}
