//! `meridian query list`.

use clap::{Args, ValueEnum};
use hyper::Method;
use ingest::grouped;
use serde::Deserialize;
use server::QueryDescription;

use crate::aligned::aligned;
use crate::console::tell;
use crate::failure::Failure;
use crate::server_client::{ServerArguments, target};

/// Which queries, and how to print them.
#[derive(Args)]
pub struct ListArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Queries in these states alone, separated by commas: queued, executing, completed, failed, aborted.
    #[arg(long, value_name = "STATES")]
    state: Option<String>,
    /// Queries of this user alone.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The most queries to list, up to 1000.
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u64,
    /// How to print the list.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Aligned columns, with the beginning of each statement.
    Table,
    /// One JSON object a line.
    Json,
}

/// The response to `GET /queries`.
#[derive(Deserialize)]
struct QueryList {
    queries: Vec<QueryDescription>,
}

const HEADINGS: [&str; 9] = [
    "id",
    "state",
    "user",
    "database",
    "lane",
    "pieces",
    "rows",
    "submitted",
    "statement",
];
/// Columns of numbers, which are aligned to the right.
const NUMBERS: [usize; 3] = [0, 5, 6];
/// Letters of a statement that the table shows.
const SHOWN: usize = 60;

/// Prints the list.
pub async fn run(arguments: ListArguments) -> Result<(), Failure> {
    let parameters = [
        ("state", arguments.state),
        ("user", arguments.user),
        ("limit", Some(arguments.limit.to_string())),
    ];
    let target = target("/queries", &parameters);
    let client = arguments.server.client()?;
    let list: QueryList = client.send_for(Method::GET, &target, None).await?;
    tell(&match arguments.format {
        Format::Table => table(&list.queries),
        Format::Json => lines(&list.queries)?,
    })
}

fn table(queries: &[QueryDescription]) -> String {
    let headings = HEADINGS.map(str::to_owned).to_vec();
    let rows = queries.iter().map(fields);
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    aligned(&rows, |column| NUMBERS.contains(&column))
}

fn fields(query: &QueryDescription) -> Vec<String> {
    let pieces = match query.pieces {
        0 => String::new(),
        all => format!("{}/{all}", query.pieces_done),
    };
    let state = match query.queue_place {
        Some(place) => format!("{} {place}", query.state),
        None => query.state.clone(),
    };
    vec![
        query.id.to_string(),
        state,
        query.user.clone(),
        query.database.clone().unwrap_or_default(),
        query.lane.clone().unwrap_or_default(),
        pieces,
        grouped(query.rows),
        readable(&query.submitted),
        beginning(&query.statement),
    ]
}

/// A time of the server to the second, in UTC.
pub fn readable(time: &str) -> String {
    let seconds = time.split('.').next().unwrap_or(time);
    seconds.replace('T', " ")
}

/// The beginning of a statement on one line.
fn beginning(statement: &str) -> String {
    let line = statement.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// Queries as JSON, a line each.
pub fn lines(queries: &[QueryDescription]) -> Result<String, Failure> {
    let mut text = String::new();
    for query in queries {
        text.push_str(&serde_json::to_string(query)?);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_cut_between_letters() {
        assert_eq!(beginning("SELECT\n  1"), "SELECT 1");
        assert_eq!(
            beginning(&"é".repeat(100)),
            format!("{}...", "é".repeat(60))
        );
        assert_eq!(
            readable("2026-11-25T10:00:00.250000Z"),
            "2026-11-25 10:00:00"
        );
    }
}
