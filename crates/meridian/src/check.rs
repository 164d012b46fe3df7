//! `meridian check`: whether everything that is loaded is whole.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use catalog::fold_name;
use clap::Args;
use engine::Archive;
use ingest::{CheckScope, grouped};

use crate::console::{remark, tell};
use crate::failure::Failure;

/// What to check.
#[derive(Args)]
pub struct CheckArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// Only the tables of this database.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// Only tables of this name.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Leave the files out that are at home in an object store, and not here: to read them takes time and traffic.
    #[arg(long)]
    skip_home: bool,
}

impl CheckArguments {
    /// All of a data directory.
    pub(crate) fn of(data: PathBuf) -> Self {
        Self {
            data,
            db: None,
            table: None,
            skip_home: false,
        }
    }
}

/// Checks the catalog, every file and every row; fails if anything is wrong. Problems go to standard error.
pub fn run(arguments: CheckArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let catalog = runtime.block_on(ingest::check_catalog(&arguments.data))?;
    if !catalog.problems.is_empty() {
        let problems: Vec<String> = (catalog.problems.into_iter())
            .map(|problem| format!("catalog: {problem}"))
            .collect();
        problems.iter().for_each(|problem| remark(problem));
        // Which files there should be, and of what, is in the catalog.
        remark("The tables' files were not checked: the catalog that describes them is damaged.");
        return row_errors(&problems);
    }
    let mut told = tell("the catalog is right\n");
    if let Some(version) = catalog.upgraded_from {
        let checksums = match version {
            1 | 2 => ": its checksums were computed of what it says now",
            _ => "",
        };
        told = told.and(tell(&format!(
            "  it was of version {version} and is brought up to date{checksums}\n"
        )));
    }
    if let Some(note) = open_to_others(&arguments.data) {
        told = told.and(tell(&note));
    }
    let (mut problems, mut at_workers, mut left_at_home) = (Vec::new(), 0, 0);
    let (database, table) = (arguments.db.as_deref(), arguments.table.as_deref());
    let scope = CheckScope {
        database,
        table,
        skips_home: arguments.skip_home,
    };
    let check = ingest::check(&arguments.data, scope, |checked| {
        let table = format!("{}.{}", checked.database, checked.table);
        if checked.problems.is_empty() && told.is_ok() {
            let (files, rows) = (grouped(checked.files), grouped(checked.rows));
            let copies = match checked.copies {
                0 => String::new(),
                copies => format!(
                    ", and {} copies of them near chunks' borders,",
                    grouped(copies)
                ),
            };
            told = tell(&format!(
                "{table}: {files} files with {rows} rows{copies} are right\n"
            ));
        }
        at_workers += checked.at_workers;
        if checked.at_workers > 0 && told.is_ok() {
            let files = grouped(checked.at_workers);
            told = tell(&format!("{table}: {files} files are at workers\n"));
        }
        left_at_home += checked.left_at_home;
        for problem in &checked.problems {
            let problem = format!("{table}: {problem}");
            remark(&problem);
            problems.push(problem);
        }
    });
    runtime.block_on(check)?;
    if table.is_none() {
        for sentence in runtime.block_on(broken_views(&arguments.data, database))? {
            remark(&format!("note: {sentence}"));
        }
    }
    if at_workers > 0 && told.is_ok() {
        told = tell(
            "what is at workers was not read: they read it through themselves, and `meridian cluster check` says whether it has its replicas\n",
        );
    }
    if left_at_home > 0 && told.is_ok() {
        let files = grouped(left_at_home);
        told = tell(&format!(
            "{files} files that are at home in an object store were not read: `meridian check` without --skip-home reads them\n"
        ));
    }
    row_errors(&problems).and(told)
}

/// Why views cannot be read: nothing is damaged by that.
async fn broken_views(data: &Path, database: Option<&str>) -> Result<Vec<String>, Failure> {
    let archive = Archive::open(data).await?;
    let mut sentences = Vec::new();
    for known in archive.catalog().databases().await? {
        let is_meant = database.is_none_or(|it| fold_name(it) == fold_name(&known.name));
        if is_meant {
            let shown = archive.shown_tables(&known.name).await?.into_iter();
            let troubles = shown.filter_map(|shown| shown.trouble);
            sentences.extend(troubles.map(|trouble| trouble.to_string()));
        }
    }
    archive.catalog().close().await;
    Ok(sentences)
}

/// Says so if others than the owner and the group may read the data directory: it is not damaged by that.
fn open_to_others(data: &Path) -> Option<String> {
    const OTHERS: u32 = 0o007;
    let mode = std::fs::metadata(data).ok()?.permissions().mode();
    (mode & OTHERS != 0).then(|| {
        let data = data.display();
        format!("  note: every user may look into {data}: `chmod -R o-rwx {data}` leaves it to its owner and group\n")
    })
}

fn row_errors(problems: &[String]) -> Result<(), Failure> {
    match problems {
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
