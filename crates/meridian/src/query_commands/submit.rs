//! `meridian query submit`.

use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use hyper::Method;
use serde_json::json;
use server::QueryDescription;

use super::follow::follow;
use super::show::{completed, in_words};
use crate::console::{remark, tell};
use crate::failure::Failure;
use crate::server_client::{ServerArguments, UserArguments};

/// What to submit.
#[derive(Args)]
pub struct SubmitArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    user: UserArguments,
    /// The database in which tables are looked for.
    #[arg(long, value_name = "NAME")]
    db: Option<String>,
    /// The language of the statement: mysql (double quotes are for text) or adql (double quotes are for names).
    #[arg(long, default_value_t)]
    dialect: ::sql::Dialect,
    /// Read the statement from this file (`-`: standard input).
    #[arg(long, short, value_name = "FILE", conflicts_with = "statement")]
    file: Option<PathBuf>,
    /// The most rows of a SELECT without a LIMIT of its own.
    #[arg(long, value_name = "N")]
    row_limit: Option<u64>,
    /// Seconds that the query may run.
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<f64>,
    /// The time (UTC) of whose state alert databases are read, such as '2026-11-20 08:00:00'; the latest state without it.
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
    /// Follow the query until it has ended. Ctrl-C ends this command; the query goes on.
    #[arg(long)]
    wait: bool,
    /// The statement.
    #[arg(required_unless_present = "file")]
    statement: Option<String>,
}

impl SubmitArguments {
    fn statement(&self) -> Result<String, Failure> {
        match (&self.statement, &self.file) {
            (Some(statement), _) => Ok(statement.clone()),
            (None, Some(file)) if file.as_os_str() != "-" => std::fs::read_to_string(file)
                .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display()))),
            (None, _) => {
                let mut text = String::new();
                let read = std::io::stdin().lock().read_to_string(&mut text);
                read.map_err(|error| Failure::new(format!("cannot read standard input: {error}")))?;
                Ok(text)
            }
        }
    }
}

/// Submits the statement and prints the number of the query.
pub async fn run(arguments: SubmitArguments) -> Result<(), Failure> {
    let client = arguments.server.client_for(&arguments.user)?;
    let request = json!({
        "statement": arguments.statement()?,
        "database": arguments.db,
        "dialect": arguments.dialect.name(),
        "user": client.user(),
        "row_limit": arguments.row_limit,
        "time_limit": arguments.time_limit,
        "as_of": arguments.as_of,
    });
    let submitted: QueryDescription = client
        .send_for(Method::POST, "/queries", Some(&request))
        .await?;
    let id = submitted.id;
    tell(&format!("{id}\n"))?;
    if !arguments.wait {
        return Ok(());
    }
    let ended = follow(&client, id).await?;
    remark(in_words(&ended).trim_end());
    completed(&ended)
}
