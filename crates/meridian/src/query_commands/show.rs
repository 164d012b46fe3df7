//! `meridian query show`.

use std::fmt::Write;

use clap::{Args, ValueEnum};
use hyper::Method;
use ingest::{grouped, size};
use server::{MilestoneDescription, QueryDescription};

use super::follow::follow;
use super::list::{lines, readable};
use crate::console::tell;
use crate::failure::Failure;
use crate::server_client::ServerArguments;

/// Which query, and how to show it.
#[derive(Args)]
pub struct ShowArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Follow the query until it has ended. Ctrl-C ends this command; the query goes on.
    #[arg(long)]
    wait: bool,
    /// How to show it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The number of the query.
    id: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// A line for each property.
    Text,
    /// One JSON object.
    Json,
}

/// Shows the query; with `--wait` when it has ended, and fails if it did.
pub async fn run(arguments: ShowArguments) -> Result<(), Failure> {
    let client = arguments.server.client()?;
    let query = match arguments.wait {
        true => follow(&client, arguments.id).await?,
        false => {
            let target = format!("/queries/{}", arguments.id);
            client.send_for(Method::GET, &target, None).await?
        }
    };
    tell(&match arguments.format {
        Format::Text => in_words(&query),
        Format::Json => lines(std::slice::from_ref(&query))?,
    })?;
    match arguments.wait {
        true => completed(&query),
        false => Ok(()),
    }
}

/// Fails with the error of a query that ended otherwise than by its result.
pub fn completed(query: &QueryDescription) -> Result<(), Failure> {
    if query.state == "COMPLETED" {
        return Ok(());
    }
    let error = query
        .error
        .as_deref()
        .unwrap_or("the server does not say why");
    let state = query.state.to_ascii_lowercase();
    Err(Failure::new(format!("query {} {state}: {error}", query.id)))
}

/// A query with a line for each property that it has.
pub fn in_words(query: &QueryDescription) -> String {
    let mut text = format!("query {}\n", query.id);
    for (name, value) in properties(query) {
        if let Some(value) = value {
            let value = value.replace('\n', "\n               ");
            // A text takes whatever is written.
            let _ = writeln!(text, "  {name:<11}  {value}");
        }
    }
    for warning in &query.warnings {
        let _ = writeln!(text, "  {:<11}  {warning}", "warning");
    }
    for milestone in &query.milestones {
        let _ = writeln!(text, "  {:<11}  {}", "milestone", in_a_line(milestone));
    }
    text
}

/// Who ran which pieces, and when. The day is that of the query.
fn in_a_line(milestone: &MilestoneDescription) -> String {
    let clock = |time: &str| {
        let time = time.rsplit('T').next().unwrap_or(time);
        time.trim_end_matches('Z').to_owned()
    };
    let steps = [
        ("started", &milestone.started),
        ("first rows", &milestone.first_rows),
        ("committed", &milestone.committed),
    ];
    let mut line = format!(
        "phase {}, {}: {} of {} pieces, handed out {}",
        milestone.phase,
        milestone.run_by,
        grouped(milestone.pieces_done),
        grouped(milestone.pieces),
        clock(&milestone.handed_out)
    );
    for (step, time) in steps {
        if let Some(time) = time {
            // A text takes whatever is written.
            let _ = write!(line, ", {step} {}", clock(time));
        }
    }
    line
}

fn properties(query: &QueryDescription) -> [(&'static str, Option<String>); 17] {
    let time = |time: &Option<String>| time.as_deref().map(readable);
    [
        ("state", Some(state(query))),
        ("progress", progress(query)),
        ("lane", query.lane.clone()),
        ("reads", reads(query)),
        ("user", Some(query.user.clone())),
        ("database", query.database.clone()),
        (
            "mode",
            Some(format!("{} by {}", query.mode, query.protocol)),
        ),
        ("as of", time(&query.as_of)),
        ("submitted", Some(readable(&query.submitted))),
        ("started", time(&query.started)),
        ("ended", time(&query.ended)),
        ("rows", Some(grouped(query.rows))),
        ("result", stored_result(query)),
        ("cached", cached(query)),
        ("error", error(query)),
        ("dialect", Some(query.dialect.clone())),
        ("statement", Some(query.statement.clone())),
    ]
}

fn state(query: &QueryDescription) -> String {
    match query.queue_place {
        Some(place) => match query.waits_for.as_deref() {
            Some("MEMORY") => format!(
                "{}, place {place} of those that wait for memory",
                query.state
            ),
            _ => format!("{}, place {place} of the queue", query.state),
        },
        None => query.state.clone(),
    }
}

/// The pieces that are done, and how long the others will take.
pub fn progress(query: &QueryDescription) -> Option<String> {
    let percent = (query.pieces_done * 100).checked_div(query.pieces)?;
    let (done, all) = (grouped(query.pieces_done), grouped(query.pieces));
    let left = query.seconds_left.map(|left| format!(", {left} s left"));
    let left = left.unwrap_or_default();
    Some(format!("{done} of {all} pieces, {percent} %{left}"))
}

/// What the query decodes, and how long that was expected to take.
fn reads(query: &QueryDescription) -> Option<String> {
    let expected = query.estimated_ms?;
    let told = |bytes: Option<u64>| size(bytes.unwrap_or_default());
    let (bytes, seconds) = (told(query.scan_bytes), expected as f64 / 1e3);
    let (decoded, found) = (told(query.decoded_bytes), told(query.shared_bytes));
    Some(format!(
        "{bytes} of columns, expected to take {seconds:.3} s; {decoded} decoded so far, {found} found decoded"
    ))
}

fn stored_result(query: &QueryDescription) -> Option<String> {
    query.result.as_ref()?;
    let kept = query.expires.as_deref().map(readable);
    let kept = kept.map(|until| format!(", kept until {until}"));
    let kept = kept.unwrap_or_default();
    Some(format!("{}{kept}", size(query.result_bytes)))
}

/// Whose result answered the query.
fn cached(query: &QueryDescription) -> Option<String> {
    let from = query.cached_from?;
    Some(format!("the result of query {from}, over the same tables"))
}

fn error(query: &QueryDescription) -> Option<String> {
    let error = query.error.as_deref()?;
    Some(match query.error_code {
        Some(code) => format!("{code}: {error}"),
        None => error.to_owned(),
    })
}
