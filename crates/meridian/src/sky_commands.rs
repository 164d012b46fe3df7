//! `meridian sky`: the sky's geometry from the shell.

use clap::Subcommand;

use crate::failure::Failure;

/// The questions that can be asked without any data.
#[derive(Subcommand)]
pub enum SkyCommand {}

/// Answers one of them.
pub fn run(command: SkyCommand) -> Result<(), Failure> {
    match command {}
}
