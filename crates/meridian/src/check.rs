//! `meridian check`: whether everything that is loaded is whole.

use std::path::PathBuf;

use clap::Args;
use ingest::{TableCheck, grouped};

use crate::failure::Failure;

/// What to check.
#[derive(Args)]
pub struct CheckArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Only the tables of this database.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// Only tables of this name.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

/// Checks every file and row; fails if anything is wrong.
pub fn run(arguments: CheckArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut problems = Vec::new();
    let (database, table) = (arguments.db.as_deref(), arguments.table.as_deref());
    let check = ingest::check(&arguments.data, database, table, |checked| {
        tell(&checked);
        let TableCheck {
            database, table, ..
        } = &checked;
        problems.extend(
            checked
                .problems
                .iter()
                .map(|problem| format!("{database}.{table}: {problem}")),
        );
    });
    runtime.block_on(check)?;
    match problems.as_slice() {
        [] => Ok(()),
        [only] => Err(Failure::new(format!("one problem was found: {only}"))),
        [first, others @ ..] => {
            let count = others.len() + 1;
            Err(Failure::new(format!(
                "{count} problems were found, all told above; the first: {first}"
            )))
        }
    }
}

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what was found is this command's answer, problems go to standard error"
)]
fn tell(checked: &TableCheck) {
    let TableCheck {
        database, table, ..
    } = checked;
    if checked.problems.is_empty() {
        let (files, rows) = (grouped(checked.files), grouped(checked.rows));
        println!("{database}.{table}: {files} files with {rows} rows are right");
    }
    for problem in &checked.problems {
        eprintln!("{database}.{table}: {problem}");
    }
}
