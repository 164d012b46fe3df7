//! `meridian drop`: takes tables, databases and single parts of tables away.

use std::io::{IsTerminal, stdin};
use std::path::{Path, PathBuf};

use catalog::{Catalog, CatalogError, LoadId, fold_name};
use clap::{Args, Subcommand};
use engine::Archive;
use ingest::{DropReport, grouped, size};

use crate::alert_commands::check_may_drop;
use crate::console::{remark, tell};
use crate::failure::Failure;

/// What is said of files that queries still read.
pub(crate) const STILL_READ: &str = "queries still read some of the files that are not needed any more. A server on this data directory removes them when \
     the last of these queries has ended, and so does the next load, drop or compaction; `meridian tables` shows them till then";

/// What to drop.
#[derive(Subcommand)]
pub enum DropCommand {
    /// Drop a table. One whose keys other tables have is rejected until these are dropped.
    Table(TableArguments),
    /// Drop a database with all its tables.
    Database(DatabaseArguments),
    /// Take one part out of a table, as a bad batch. One whose keys rows of other tables have is rejected.
    Part(PartArguments),
}

/// Which table.
#[derive(Args)]
pub struct TableArguments {
    #[command(flatten)]
    database: DatabaseArguments,
    /// The table.
    #[arg(long, value_name = "NAME")]
    table: String,
}

/// Which database.
#[derive(Args)]
pub struct DatabaseArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// Do not ask first.
    #[arg(long, short)]
    yes: bool,
}

/// Which part.
#[derive(Args)]
pub struct PartArguments {
    #[command(flatten)]
    table: TableArguments,
    /// The part's number; `meridian tables --parts` lists them.
    #[arg(long, value_name = "N")]
    part: i64,
}

/// Drops it and tells what is gone.
pub fn run(command: DropCommand) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let DropTarget {
        database,
        question,
        views,
    } = runtime.block_on(target(&command))?;
    if !database.yes && !confirmed(&question)? {
        return Err(Failure::new("nothing is dropped"));
    }
    let (data, db) = (database.data.as_path(), database.db.as_str());
    let dropped = match &command {
        DropCommand::Table(it) => runtime.block_on(ingest::drop_table(data, db, &it.table)),
        DropCommand::Database(_) => runtime.block_on(ingest::drop_database(data, db)),
        DropCommand::Part(it) => {
            let part = LoadId(it.part);
            runtime.block_on(ingest::drop_part(data, db, &it.table.table, part))
        }
    }?;
    if !views.is_empty() {
        remark(&format!(
            "note: views that read it cannot be read any more: {}",
            views.join(", ")
        ));
    }
    tell(&in_words(&command, &dropped)).map_err(|lost| lost.when_reporting("it is dropped"))
}

struct DropTarget<'a> {
    database: &'a DatabaseArguments,
    question: String,
    /// The views that read it and are not dropped with it.
    views: Vec<String>,
}

/// What is to be dropped, which has to be there before anybody is asked.
async fn target(command: &DropCommand) -> Result<DropTarget<'_>, Failure> {
    let (database, table, part) = match command {
        DropCommand::Database(database) => (database, None, None),
        DropCommand::Table(it) => (&it.database, Some(&it.table), None),
        DropCommand::Part(it) => (&it.table.database, Some(&it.table.table), Some(it.part)),
    };
    check_may_drop(&database.data, &database.db, table.map(String::as_str)).await?;
    let catalog = Catalog::open(&database.data).await?;
    let question = question(&catalog, &database.data, &database.db, table, part).await;
    catalog.close().await;
    let views = match part {
        None => views(&database.data, &database.db, table).await?,
        Some(_) => vec![],
    };
    Ok(DropTarget {
        database,
        question: question?,
        views,
    })
}

/// The views that read a table, or a database from another one.
async fn views(data: &Path, db: &str, table: Option<&String>) -> Result<Vec<String>, Failure> {
    let archive = Archive::open(data).await?;
    let views = engine::views_of(&archive, db, table.map(String::as_str)).await;
    archive.catalog().close().await;
    let mut views = views?;
    if table.is_none() {
        let goes_with_it = |view: &String| {
            let database = view.split_once('.').map_or("", |(database, _)| database);
            fold_name(database) == fold_name(db)
        };
        views.retain(|view| !goes_with_it(view));
    }
    Ok(views)
}

async fn question(
    catalog: &Catalog,
    data: &Path,
    db: &str,
    table: Option<&String>,
    part: Option<i64>,
) -> Result<String, CatalogError> {
    let directory = data.display();
    let Some(table) = table else {
        if catalog.database(db).await?.is_none() {
            let database = db.to_owned();
            return Err(CatalogError::NoDatabase { database });
        }
        let tables = catalog.tables(db).await?;
        let rows = tables.iter().map(catalog::Table::rows).sum();
        return Ok(format!(
            "Drop the database {db} of {directory} with {} and {} rows?",
            counted_tables(tables.len()),
            grouped(rows)
        ));
    };
    let found = catalog.table(db, table).await?;
    let found = found.ok_or_else(|| CatalogError::NoTable {
        table: format!("{db}.{table}"),
    })?;
    let Some(part) = part else {
        let rows = grouped(found.rows());
        return Ok(format!(
            "Drop {db}.{table} of {directory} with {rows} rows?"
        ));
    };
    let number = LoadId(part);
    let listed = found.parts.iter().find(|it| it.load == number);
    let listed = listed.ok_or_else(|| found.no_part(number))?;
    Ok(format!(
        "Drop part {part} of {db}.{table} with {} rows, loaded {} from {}?",
        grouped(listed.rows),
        listed.loaded_at,
        listed.source
    ))
}

/// Asks where somebody sits at a terminal; a script has said what it wants.
fn confirmed(question: &str) -> Result<bool, Failure> {
    if !stdin().is_terminal() {
        return Ok(true);
    }
    remark(&format!("{question} [y/N]"));
    let mut answer = String::new();
    stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// "1 table", "2 tables".
fn counted_tables(number: usize) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} table{plural}")
}

fn in_words(command: &DropCommand, dropped: &DropReport) -> String {
    let what = match command {
        DropCommand::Part(it) => format!("part {} of {}", it.part, dropped.tables.join(", ")),
        DropCommand::Database(it) => {
            format!(
                "database {} with {}",
                it.db,
                counted_tables(dropped.tables.len())
            )
        }
        DropCommand::Table(_) => dropped.tables.join(", "),
    };
    let mut text = format!(
        "{what} is dropped: {} rows, {}.\n",
        grouped(dropped.rows),
        size(dropped.bytes)
    );
    if dropped.in_use {
        text.push_str(&format!("Note: {STILL_READ}.\n"));
    }
    text
}
