//! `meridian tables`: what is loaded.

use std::path::PathBuf;

use catalog::{Catalog, Table};
use clap::{Args, ValueEnum};
use ingest::{grouped, size};

use crate::console::tell;
use crate::failure::Failure;

/// Which data directory, and how to print.
#[derive(Args)]
pub struct TablesArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// How to print the list.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

/// One line of the list.
struct Line {
    table: Table,
    chunks: u64,
}

const HEADINGS: [&str; 6] = ["database", "table", "kind", "rows", "chunks", "bytes"];

/// Prints the list.
pub fn run(arguments: TablesArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let lines = runtime.block_on(lines(&arguments))?;
    let text = match arguments.format {
        Format::Table => aligned(&lines),
        Format::Csv => csv(&lines),
        Format::Json => json(&lines),
    };
    tell(&text)
}

async fn lines(arguments: &TablesArguments) -> Result<Vec<Line>, catalog::CatalogError> {
    let catalog = Catalog::open(&arguments.data).await?;
    let lines = lines_of(&catalog).await;
    catalog.close().await;
    lines
}

async fn lines_of(catalog: &Catalog) -> Result<Vec<Line>, catalog::CatalogError> {
    let mut lines = Vec::new();
    for database in catalog.databases().await? {
        for table in catalog.tables(&database.name).await? {
            let chunks = catalog.chunk_count(table.load).await?;
            lines.push(Line { table, chunks });
        }
    }
    Ok(lines)
}

impl Line {
    fn fields(&self, number: impl Fn(u64) -> String, bytes: impl Fn(u64) -> String) -> [String; 6] {
        let Table {
            database,
            spec,
            rows,
            bytes: size,
            ..
        } = &self.table;
        [
            database.name.clone(),
            spec.name.clone(),
            spec.kind.to_string(),
            number(*rows),
            number(self.chunks),
            bytes(*size),
        ]
    }
}

fn aligned(lines: &[Line]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(lines.iter().map(|line| line.fields(grouped, size)));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        for (column, (field, width)) in row.iter().zip(widths).enumerate() {
            // Names to the left, numbers to the right.
            let padded = if column < 3 {
                format!("{field:<width$}")
            } else {
                format!("{field:>width$}")
            };
            text.push_str(&padded);
            text.push_str(if column < 5 { "  " } else { "\n" });
        }
    }
    text
}

fn csv(lines: &[Line]) -> String {
    let quoted = |field: &String| {
        if field.contains([',', '"', '\n']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.clone()
        }
    };
    let mut text = HEADINGS.join(",") + "\n";
    for line in lines {
        let fields = line.fields(|n| n.to_string(), |n| n.to_string());
        text.push_str(&fields.iter().map(quoted).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

fn json(lines: &[Line]) -> String {
    let object = |line: &Line| {
        serde_json::json!({
            "database": line.table.database.name,
            "table": line.table.spec.name,
            "kind": line.table.spec.kind.to_string(),
            "rows": line.table.rows,
            "chunks": line.chunks,
            "bytes": line.table.bytes,
        })
    };
    lines
        .iter()
        .map(|line| object(line).to_string() + "\n")
        .collect()
}
