//! `meridian alerts archive`: what is published of an alert database as Parquet files, for bulk download.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use alerts::{AlertDatabase, AlertTable, EditionTable};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use clap::Args;
use engine::{Archive, Session, SessionOptions};
use futures::StreamExt;
use hats::Staging;
use ingest::{grouped, size};
use result_formats::{ResultFormat, ResultWriter};
use serde::Serialize;
use sha2::{Digest, Sha256};
use sql::connection::VariableValue;
use sql::{AS_OF_VARIABLE, Connection};

use crate::console::tell;
use crate::failure::Failure;
use crate::sql::default_cache;
use crate::temporary::{TemporaryFolder, half_of_free};

/// The name and the version of what the manifest describes.
const FORMAT: &str = "meridian-alerts-archive";
const VERSION: u32 = 1;
/// Exit status after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;
const ROWS_PER_FILE: u64 = 5_000_000;

/// What to archive, and where.
#[derive(Args)]
pub struct ArchiveArguments {
    /// The name.
    name: String,
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The directory to make; it has its name when it is whole.
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// What was known at this time (UTC), such as "2026-11-20 08:00:00"; by default everything that is published.
    #[arg(long, value_name = "TIME")]
    as_of: Option<String>,
    /// Rows of a file at most.
    #[arg(long, value_name = "N", default_value_t = ROWS_PER_FILE, value_parser = clap::value_parser!(u64).range(1..))]
    rows_per_file: u64,
    /// Memory for joins, for example 8G; a third of the machine's by default.
    #[arg(long, value_name = "SIZE", value_parser = ingest::parse_size)]
    memory: Option<u64>,
}

/// What is in the archive.
#[derive(Serialize)]
struct Manifest {
    format: &'static str,
    version: u32,
    database: String,
    schema_version: String,
    /// The last edition that is in it, and when that was published (UTC).
    edition: i64,
    published_at: String,
    files: Vec<ManifestFile>,
}

#[derive(Serialize)]
struct ManifestFile {
    path: String,
    table: &'static str,
    rows: u64,
    bytes: u64,
    sha256: String,
}

/// Makes the archive and reports.
pub async fn run(arguments: ArchiveArguments) -> Result<(), Failure> {
    tokio::select! {
        outcome = Box::pin(archive(&arguments)) => outcome,
        _ = tokio::signal::ctrl_c() => {
            Err(Failure::with_status("cancelled; nothing was archived", INTERRUPTED))
        }
    }
}

async fn archive(arguments: &ArchiveArguments) -> Result<(), Failure> {
    let database = AlertDatabase::open(&arguments.data, &arguments.name).await?;
    let archive = Archive::open_keeping(&arguments.data, default_cache()).await?;
    let _temporary = TemporaryFolder::of_data(&arguments.data);
    let memory = arguments.memory.unwrap_or_else(ingest::default_memory) as usize;
    engine::bound_memory(&archive, memory);
    let editions = EditionTable::Edition.name();
    let is_published = archive.catalog().table(database.name(), editions).await?;
    let nothing = || {
        Failure::new(format!(
            "nothing is published of {} by then, so that there is nothing to archive",
            arguments.name
        ))
    };
    if is_published.is_none_or(|table| table.rows() == 0) {
        return Err(nothing());
    }
    let options = SessionOptions {
        database: Some(database.name().to_owned()),
        memory: Some(memory),
        spilled: half_of_free(&tempfile::env::temp_dir()),
        ..SessionOptions::default()
    };
    let session = Session::new(Arc::clone(&archive), &options).await?;
    let mut connection = Connection::alone(Some(database.name().to_owned()));
    if let Some(time) = &arguments.as_of {
        set_as_of(&mut connection, time)?;
    }
    let (edition, published_at) = last_edition(&session, &connection)
        .await?
        .ok_or_else(nothing)?;
    // What is published while this runs is not in it.
    set_as_of(&mut connection, &published_at)?;
    let staging = Staging::begin(&arguments.output)?;
    let mut files = Vec::new();
    for table in AlertTable::ALL {
        let rows = TableFiles {
            table: table.name(),
            most_rows: arguments.rows_per_file,
            staging: &staging,
        };
        files.extend(rows.write(&session, &connection).await?);
    }
    let manifest = Manifest {
        format: FORMAT,
        version: VERSION,
        database: database.name().to_owned(),
        schema_version: database.schema().version().to_owned(),
        edition,
        published_at,
        files,
    };
    staging.write_bytes("schema.yaml", database.schema().text().as_bytes())?;
    // What `sha256sum --check` reads.
    let sums = manifest.files.iter();
    let sums: String = sums
        .map(|file| format!("{}  {}\n", file.sha256, file.path))
        .collect();
    staging.write_bytes("SHA256SUMS", sums.as_bytes())?;
    staging.write_bytes("manifest.json", &serde_json::to_vec_pretty(&manifest)?)?;
    staging.finish()?;
    tell(&report(&manifest, arguments))
        .map_err(|lost| lost.when_reporting(format!("{} is archived", arguments.name)))
}

pub(crate) fn set_as_of(connection: &mut Connection, time: &str) -> Result<(), Failure> {
    let value = Some(VariableValue::Text(time.to_owned()));
    let set = connection.variables.set(AS_OF_VARIABLE, value);
    set.map_err(|error| Failure::new(error.to_string().replace(AS_OF_VARIABLE, "--as-of")))
}

/// The last edition that is seen, and when that was published.
pub(crate) async fn last_edition(
    session: &Session,
    connection: &Connection,
) -> Result<Option<(i64, String)>, Failure> {
    let until = connection.variables.as_of().unwrap_or(i64::MAX);
    let text = format!(
        "SELECT edition, CAST(publishedAt AS CHAR) FROM {} WHERE {} <= {until} ORDER BY edition DESC LIMIT 1",
        EditionTable::Edition.name(),
        alerts::PUBLISHED
    );
    let mut result = session.execute(&text).await?;
    while let Some(batch) = result.batches.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            let number = cast(batch.column(0), &DataType::Int64)?;
            let time = cast(batch.column(1), &DataType::Utf8)?;
            return Ok(Some((
                number.as_primitive::<Int64Type>().value(0),
                time.as_string::<i32>().value(0).to_owned(),
            )));
        }
    }
    Ok(None)
}

/// The files of a table.
struct TableFiles<'a> {
    table: &'static str,
    most_rows: u64,
    staging: &'a Staging,
}

impl TableFiles<'_> {
    /// Writes all rows that a connection sees. There is one file at least, so that the columns are told.
    async fn write(
        &self,
        session: &Session,
        connection: &Connection,
    ) -> Result<Vec<ManifestFile>, Failure> {
        let text = format!("SELECT * FROM {}", self.table);
        let mut result = session.execute_for(&text, connection).await?;
        let schema = Arc::clone(&result.schema);
        let mut files = Vec::new();
        let mut open = self.begin(0, &schema)?;
        while let Some(batch) = result.batches.next().await {
            let mut batch = batch?;
            while batch.num_rows() > 0 {
                if open.rows == self.most_rows {
                    let next = self.begin(files.len() + 1, &schema)?;
                    files.push(std::mem::replace(&mut open, next).finish(self.table)?);
                }
                let room = usize::try_from(self.most_rows - open.rows).unwrap_or(usize::MAX);
                let now = room.min(batch.num_rows());
                open.write(&batch.slice(0, now))?;
                batch = batch.slice(now, batch.num_rows() - now);
            }
        }
        files.push(open.finish(self.table)?);
        Ok(files)
    }

    fn begin(
        &self,
        number: usize,
        schema: &arrow::datatypes::SchemaRef,
    ) -> Result<OpenFile, Failure> {
        let path = format!("{}/part-{number:05}.parquet", self.table);
        let made = self.staging.create(&path)?;
        let out = ChecksumWriter {
            file: BufWriter::new(made.file),
            sum: Sha256::new(),
            bytes: 0,
        };
        Ok(OpenFile {
            path,
            writer: ResultWriter::new(ResultFormat::Parquet, schema, out)?,
            rows: 0,
        })
    }
}

struct OpenFile {
    path: String,
    writer: ResultWriter<ChecksumWriter>,
    rows: u64,
}

impl OpenFile {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Failure> {
        self.rows += batch.num_rows() as u64;
        Ok(self.writer.write(batch)?)
    }

    /// Ends the file, which is then on disk.
    fn finish(self, table: &'static str) -> Result<ManifestFile, Failure> {
        let mut out = self.writer.finish()?;
        out.flush()?;
        out.file.get_ref().sync_all()?;
        let sum = out.sum.finalize();
        Ok(ManifestFile {
            path: self.path,
            table,
            rows: self.rows,
            bytes: out.bytes,
            sha256: sum.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// A file whose checksum is taken while it is written.
struct ChecksumWriter {
    file: BufWriter<File>,
    sum: Sha256,
    bytes: u64,
}

impl Write for ChecksumWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn report(manifest: &Manifest, arguments: &ArchiveArguments) -> String {
    let rows = manifest.files.iter().map(|file| file.rows).sum();
    let bytes = manifest.files.iter().map(|file| file.bytes).sum();
    format!(
        "{} rows of {} through edition {} in {} files, {}, in {}\n",
        grouped(rows),
        manifest.database,
        manifest.edition,
        manifest.files.len(),
        size(bytes),
        arguments.output.display()
    )
}
