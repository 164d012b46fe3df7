//! `meridian release`: which rows of a table are seen by whoever may read it, and has no right to all.

use std::path::PathBuf;

use clap::Args;
use engine::Archive;
use users::Users;

use crate::console::tell;
use crate::failure::Failure;

/// Which rows are released. Without a table, the conditions that there are.
#[derive(Args)]
pub struct ReleaseArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database of the table.
    #[arg(long, value_name = "NAME", requires = "table")]
    db: Option<String>,
    /// The table.
    #[arg(long, value_name = "NAME", requires = "db")]
    table: Option<String>,
    /// Release the rows that meet this condition on the table's columns, in MySQL's dialect, as in "obsTime < NOW() - INTERVAL 1 YEAR".
    #[arg(long, value_name = "SQL", requires = "table", conflicts_with = "all")]
    condition: Option<String>,
    /// Release all rows: take the condition away.
    #[arg(long, requires = "table")]
    all: bool,
}

/// Does it and tells what has changed.
pub fn run(arguments: ReleaseArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let told = runtime.block_on(release(arguments))?;
    tell(&told)
}

async fn release(arguments: ReleaseArguments) -> Result<String, Failure> {
    let archive = Archive::open(&arguments.data).await?;
    let users = Users::of(&arguments.data);
    let done = match (&arguments.db, &arguments.table) {
        (Some(database), Some(table)) => {
            change(&archive, &users, database, table, &arguments).await
        }
        _ => list(&users).await,
    };
    archive.catalog().close().await;
    done
}

async fn change(
    archive: &Archive,
    users: &Users,
    database: &str,
    table: &str,
    arguments: &ReleaseArguments,
) -> Result<String, Failure> {
    if arguments.all {
        users.set_release(database, table, None).await?;
        return Ok(format!("all rows of {database}.{table} are released\n"));
    }
    let Some(condition) = &arguments.condition else {
        return Err(Failure::new(
            "say which rows are released: --condition SQL, or --all",
        ));
    };
    engine::check_release(archive, database, table, condition).await?;
    users.set_release(database, table, Some(condition)).await?;
    Ok(format!(
        "the rows of {database}.{table} are released for which {condition}; the others are seen by administrators and by whom `meridian user grant NAME --unreleased {database}.{table}` names\n"
    ))
}

async fn list(users: &Users) -> Result<String, Failure> {
    let list = users.list().await?;
    let lines = list.releases().iter().map(|release| {
        let (database, table, condition) = (&release.database, &release.table, &release.condition);
        format!("{database}.{table}: {condition}\n")
    });
    let lines: String = lines.collect();
    Ok(match lines.is_empty() {
        true => "all rows of all tables are released\n".to_owned(),
        false => lines,
    })
}
