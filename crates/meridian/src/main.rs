//! The command line of Meridian: one binary, one subcommand a file, each of them thin.

use std::ffi::c_long;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use libmimalloc_sys::{mi_option_set, mi_option_t};

mod check;
mod failure;
mod load;
mod load_progress;
mod output;
mod sky_commands;
mod sql;
mod synthesize_commands;
mod synthesize_load;
mod synthesize_progress;
mod tables;

/// Scans make and drop a buffer for each block of each column: this allocator keeps them at hand, where the system's would
/// give the pages back and fault them in anew.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A massively parallel SQL database for astronomical catalogues.
#[derive(Parser)]
#[command(
    version,
    about,
    propagate_version = true,
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sql(sql::SqlArgs),
    /// Load files into a table.
    Load(Box<load::LoadArguments>),
    /// Verify that everything that is loaded is whole.
    Check(check::CheckArguments),
    /// List what is loaded.
    Tables(tables::TablesArguments),
    /// Questions of sky geometry: which chunk, which chunks, which trixel.
    #[command(subcommand)]
    Sky(sky_commands::SkyCommand),
    /// Make catalogues of any size.
    #[command(subcommand)]
    Synthesize(synthesize_commands::SynthesizeCommand),
}

/// Milliseconds after which memory that nobody uses goes back to the system. The allocator's own 10 ms are less than a scan takes:
/// a sixth of a load went into clearing pages that it had just given back.
const GIVE_BACK_AFTER: c_long = 1_000;
/// `mi_option_purge_delay` in the allocator's list of options.
const PURGE_DELAY: mi_option_t = 15;

fn keep_memory_at_hand() {
    // SAFETY: sets a number in the allocator's table of options, which it reads as it goes.
    unsafe { mi_option_set(PURGE_DELAY, GIVE_BACK_AFTER) };
}

fn main() -> ExitCode {
    keep_memory_at_hand();
    let outcome = match Cli::parse().command {
        Command::Sql(args) => sql::run(args),
        Command::Load(arguments) => load::run(*arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Tables(arguments) => tables::run(arguments),
        Command::Sky(command) => sky_commands::run(command),
        Command::Synthesize(command) => synthesize_commands::run(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
