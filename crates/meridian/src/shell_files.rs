//! `meridian completion` and `meridian man`: what a shell and `man` need to know of the commands.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::console::tell;
use crate::failure::Failure;

/// Which shell.
#[derive(Args)]
pub struct CompletionArguments {
    /// The shell.
    shell: Shell,
}

/// Which manual page, or where all of them go.
#[derive(Args)]
pub struct ManArguments {
    /// Write the pages of all commands to this directory, as meridian.1, meridian-sql.1 and so on; made if it does not exist.
    #[arg(long, short, value_name = "DIR", conflicts_with = "command")]
    output: Option<PathBuf>,
    /// The command whose page is printed, as in `meridian man sky locate`; by default the page of the program.
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Prints the completions for a shell.
pub fn print_completion(
    mut program: clap::Command,
    arguments: &CompletionArguments,
) -> Result<(), Failure> {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, name, &mut script);
    tell(&String::from_utf8_lossy(&script))
}

/// Prints a manual page, or writes all of them.
pub fn print_man(mut program: clap::Command, arguments: &ManArguments) -> Result<(), Failure> {
    program.build();
    if let Some(dir) = &arguments.output {
        let written =
            std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(program, dir));
        return written.map_err(|error| {
            Failure::new(format!(
                "cannot write manual pages to {}: {error}",
                dir.display()
            ))
        });
    }
    let mut command = &program;
    for name in &arguments.command {
        let found = command.find_subcommand(name);
        command = found.ok_or_else(|| unknown(command, name))?;
    }
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    tell(&String::from_utf8_lossy(&page))
}

fn unknown(command: &clap::Command, name: &str) -> Failure {
    let known: Vec<&str> = command
        .get_subcommands()
        .map(clap::Command::get_name)
        .collect();
    let known = match known.is_empty() {
        true => "it has no commands of its own".to_owned(),
        false => format!("those that there are: {}", known.join(", ")),
    };
    Failure::new(format!(
        "{} has no command {name}; {known}",
        command.get_name()
    ))
}
