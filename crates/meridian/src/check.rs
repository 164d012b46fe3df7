//! `meridian check`: whether everything that is loaded is whole.

use std::path::PathBuf;

use clap::Args;
use ingest::grouped;

use crate::console::{remark, tell};
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

/// Checks every file and row; fails if anything is wrong. Problems go to standard error.
pub fn run(arguments: CheckArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let (mut problems, mut told) = (Vec::new(), Ok(()));
    let (database, table) = (arguments.db.as_deref(), arguments.table.as_deref());
    let check = ingest::check(&arguments.data, database, table, |checked| {
        let table = format!("{}.{}", checked.database, checked.table);
        if checked.problems.is_empty() && told.is_ok() {
            let (files, rows) = (grouped(checked.files), grouped(checked.rows));
            told = tell(&format!(
                "{table}: {files} files with {rows} rows are right\n"
            ));
        }
        for problem in &checked.problems {
            let problem = format!("{table}: {problem}");
            remark(&problem);
            problems.push(problem);
        }
    });
    runtime.block_on(check)?;
    match problems.as_slice() {
        [] => told,
        [only] => Err(Failure::new(format!("one problem was found: {only}"))),
        [first, others @ ..] => {
            let count = others.len() + 1;
            Err(Failure::new(format!(
                "{count} problems were found, all told above; the first: {first}"
            )))
        }
    }
}
