//! The command line of Meridian: one binary, one subcommand a file, each of them thin.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod failure;
mod sky_commands;

use failure::Failure;

/// A massively parallel SQL database for astronomical catalogues.
#[derive(Parser)]
#[command(version, about, propagate_version = true, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Questions of sky geometry: which chunk, which chunks, which trixel.
    #[command(subcommand)]
    Sky(sky_commands::SkyCommand),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Sky(command) => sky_commands::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
