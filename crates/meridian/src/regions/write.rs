//! `meridian alerts regions`: the positions of a table's rows, and chosen columns, as region files.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Int64Type, Schema};
use catalog::fold_name;
use clap::Args;
use engine::{Archive, EngineError, QueryResult, Session, SessionOptions};
use futures::StreamExt;
use hats::Staging;
use ingest::{grouped, size};
use region_files::{RegionWriter, RegionsReport, TableDescription};
use sky::Chunker;

use super::place::{PLACE, place};
use super::progress::{Counters, RegionsDisplay};
use super::table::PositionedRows;
use crate::console::tell;
use crate::failure::Failure;
use crate::sql::default_cache;
use crate::temporary::{TemporaryFolder, half_of_free};

/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// What to write, and where.
#[derive(Args)]
pub struct RegionsArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database: an alert database of which something is published, or any other.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// The table, whose rows have positions. Of an alert database DiaObject (the default) or DiaObjectLast: the versions of objects that are
    /// valid for now.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// Columns, separated by commas, beside the key and the position, which are written anyway.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// The directory to make; it has its name when it is whole.
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Leave out rows that have no position; without this the command fails if there are any.
    #[arg(long)]
    skip_unplaced: bool,
    /// Memory for sorting, for example 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
    /// Processor cores to use; all by default.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// No progress and no report.
    #[arg(long, short)]
    quiet: bool,
}

/// Writes the files and reports.
pub async fn write(arguments: RegionsArguments) -> Result<(), Failure> {
    tokio::select! {
        outcome = Box::pin(write_files(&arguments)) => outcome,
        _ = tokio::signal::ctrl_c() => {
            Err(Failure::with_status("cancelled; nothing was written", INTERRUPTED))
        }
    }
}

async fn write_files(arguments: &RegionsArguments) -> Result<(), Failure> {
    let archive = Archive::open_keeping(&arguments.data, default_cache()).await?;
    let _temporary = TemporaryFolder::of_data(&arguments.data);
    let memory = arguments.memory.unwrap_or_else(ingest::default_memory) as usize;
    engine::bound_memory(&archive, memory);
    let options = SessionOptions {
        database: Some(arguments.db.clone()),
        cores: arguments.threads,
        memory: Some(memory),
        spilled: half_of_free(&tempfile::env::temp_dir()),
        ..SessionOptions::default()
    };
    let table = arguments.table.as_deref();
    let rows = PositionedRows::find(&arguments.data, &archive, &options, table);
    let rows = Box::pin(rows).await?;
    let session = Session::new(Arc::clone(&archive), &options).await?;
    let text = sorted_rows(&session, &rows, &arguments.columns).await?;
    let staging = Staging::begin(&arguments.output)?;
    let counters = Arc::new(Counters::default());
    let cut = rows.partitioning;
    let chunker = Chunker::new(cut.stripes, cut.sub_stripes)?;
    // A session that has planned a statement keeps the functions that there were then.
    let session = Session::new(Arc::clone(&archive), &options).await?;
    let place = place(chunker, Arc::clone(&counters));
    session.context().register_udf(place);
    let display =
        (!arguments.quiet).then(|| RegionsDisplay::start(&rows.name(), Arc::clone(&counters)));
    let result = session.execute_for(&text, &rows.connection).await?;
    rows.check_unchanged(&archive).await?;
    let (written, unplaced) = write_rows(arguments, &rows, result, &staging, &counters).await?;
    staging.finish()?;
    drop(display);
    match arguments.quiet {
        true => Ok(()),
        false => tell(&report(&written, unplaced, &rows, arguments)).map_err(|lost| {
            lost.when_reporting(format!("the region files of {} are written", rows.name()))
        }),
    }
}

/// The statement that gives the rows in their order, each with its place behind its columns.
async fn sorted_rows(
    session: &Session,
    rows: &PositionedRows,
    chosen: &[String],
) -> Result<String, Failure> {
    let from = format!(
        "{}.{}",
        quoted(&rows.source.database),
        quoted(&rows.source.table)
    );
    let all = format!("SELECT * FROM {from}");
    let all = session.describe(&all, &rows.connection, None).await?;
    let mut columns: Vec<&str> = Vec::new();
    let needed = rows.key.iter();
    let needed = needed.chain([&rows.position.ra, &rows.position.dec]);
    for name in needed.chain(chosen) {
        let column = declared(&all, name)
            .ok_or_else(|| Failure::new(no_column(&rows.name(), name, &all)))?;
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    let mut as_name = PLACE.to_owned();
    while declared(&all, &as_name).is_some() {
        as_name.push('_');
    }
    let condition = rows.condition.iter();
    let condition: String = condition.map(|it| format!(" WHERE {it}")).collect();
    let key = rows.key.iter();
    let key: String = key.map(|key| format!(", {}", quoted(key))).collect();
    let columns: Vec<String> = columns.into_iter().map(quoted).collect();
    let [ra, dec] = [&rows.position.ra, &rows.position.dec].map(|name| quoted(name));
    Ok(format!(
        "SELECT {}, {PLACE}({ra}, {dec}) AS {as_name} FROM {from}{condition} ORDER BY {as_name}{key}",
        columns.join(", ")
    ))
}

/// A column as it is declared.
fn declared<'a>(schema: &'a Schema, name: &str) -> Option<&'a str> {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let mut same = names.filter(|it| fold_name(it) == fold_name(name.trim()));
    same.next()
}

fn no_column(table: &str, name: &str, schema: &Schema) -> String {
    let known = schema.fields().iter().map(|field| field.name().as_str());
    let known: Vec<&str> = known.collect();
    format!(
        "{table} has no column {}; it has {}",
        name.trim(),
        known.join(", ")
    )
}

/// A name in MySQL's dialect.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Writes the rows of a result. Gives how many were left out as well.
async fn write_rows(
    arguments: &RegionsArguments,
    rows: &PositionedRows,
    mut result: QueryResult,
    staging: &Staging,
    counters: &Counters,
) -> Result<(RegionsReport, u64), Failure> {
    let place = result.schema.fields().len().saturating_sub(1);
    let columns: Vec<usize> = (0..place).collect();
    let schema = result.schema.project(&columns)?;
    let position = [&rows.position.ra, &rows.position.dec];
    let position = position.map(|name| declared(&schema, name).unwrap_or(name).to_owned());
    let key = rows.key.as_deref().and_then(|key| declared(&schema, key));
    let table = TableDescription {
        source: rows.source.clone(),
        partitioning: rows.partitioning,
        key: key.map(str::to_owned),
        position,
    };
    let mut writer = RegionWriter::begin(&staging.path(""), &schema, table)?;
    let mut unplaced = 0;
    while let Some(batch) = result.batches.next().await {
        let batch = batch?;
        let placed = with_places(&batch, place)?;
        unplaced += (batch.num_rows() - placed.num_rows()) as u64;
        writer.write(&placed.project(&columns)?)?;
        counters.add_written(placed.num_rows() as u64);
    }
    if unplaced > 0 && !arguments.skip_unplaced {
        return Err(Failure::new(format!(
            "{} rows of {} have no position: give --skip-unplaced to leave them out",
            grouped(unplaced),
            rows.name()
        )));
    }
    Ok((writer.finish().map_err(of_nothing(rows))?, unplaced))
}

fn of_nothing(rows: &PositionedRows) -> impl FnOnce(region_files::RegionFilesError) -> Failure {
    let name = rows.name();
    move |error| match error {
        region_files::RegionFilesError::Empty => Failure::new(format!(
            "{name} has no rows with a position: there is nothing to write"
        )),
        other => other.into(),
    }
}

/// The rows that have a place.
fn with_places(batch: &RecordBatch, place: usize) -> Result<RecordBatch, Failure> {
    let places = batch.column(place);
    if *places.data_type() != DataType::Int64 {
        return Err(EngineError::internal("places are not numbers").into());
    }
    let places = places.as_primitive::<Int64Type>();
    if places.null_count() == 0 {
        return Ok(batch.clone());
    }
    let is_placed = (0..places.len()).map(|row| Some(places.is_valid(row)));
    let is_placed: BooleanArray = is_placed.collect();
    Ok(filter_record_batch(batch, &is_placed)?)
}

fn report(
    written: &RegionsReport,
    unplaced: u64,
    rows: &PositionedRows,
    arguments: &RegionsArguments,
) -> String {
    let of = match rows.source.edition {
        Some(edition) => format!("{} as of edition {edition}", rows.name()),
        None => rows.name(),
    };
    let mut text = format!(
        "{} rows of {of} in the files of {} chunks, {}, in {}\n",
        grouped(written.rows),
        grouped(written.files as u64),
        size(written.bytes),
        arguments.output.display()
    );
    if unplaced > 0 {
        text += &format!(
            "{} rows without a position were left out\n",
            grouped(unplaced)
        );
    }
    text
}
