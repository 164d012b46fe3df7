//! `meridian tables`: what is loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use catalog::{Catalog, LoadId, Part, Table, TableKind, View, fold_name};
use clap::{Args, ValueEnum};
use ingest::{HeldPart, grouped, held_parts, size};

use crate::aligned::aligned;
use crate::compact::merged_parts;
use crate::console::tell;
use crate::failure::Failure;

/// Which data directory, and how to print.
#[derive(Args)]
pub struct TablesArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// A line for each part of each table: what one load or append has brought, when, and from where.
    #[arg(long)]
    parts: bool,
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

/// One line of the list: a table, one part of it, or files that are still held.
struct ListRow {
    database: String,
    table: String,
    kind: RowKind,
    rows: u64,
    chunks: u64,
    bytes: u64,
    /// How many parts the table has.
    parts: u64,
    loaded_at: String,
    /// Of a line for a part.
    part: Option<PartOfRow>,
}

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RowKind {
    Table(TableKind),
    /// It has no rows of its own.
    View,
    /// Files of parts that were replaced or dropped, which stay while somebody reads them.
    Held,
}

struct PartOfRow {
    number: LoadId,
    source: String,
    /// The parts that it was merged from, if it was.
    merged_from: Vec<LoadId>,
}

impl PartOfRow {
    /// What it was loaded from, or which parts it was merged from and what these were loaded from.
    fn origin(&self) -> String {
        match self.merged_from.is_empty() {
            true => self.source.clone(),
            false => format!("{}: {}", merged_parts(&self.merged_from), self.source),
        }
    }
}

const HEADINGS: [&str; 8] = [
    "database", "table", "kind", "rows", "chunks", "bytes", "parts", "loaded",
];
const PART_HEADINGS: [&str; 9] = [
    "database", "table", "kind", "rows", "chunks", "bytes", "part", "loaded", "from",
];

/// Prints the list.
pub fn run(arguments: TablesArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let lines = runtime.block_on(lines(&arguments))?;
    let headings: &[&str] = match arguments.parts {
        true => &PART_HEADINGS,
        false => &HEADINGS,
    };
    let text = match arguments.format {
        Format::Table => table(headings, &lines),
        Format::Csv => csv(headings, &lines),
        Format::Json => json(&lines),
    };
    tell(&text)
}

async fn lines(arguments: &TablesArguments) -> Result<Vec<ListRow>, ingest::IngestError> {
    let catalog = Catalog::open(&arguments.data).await?;
    let lines = lines_of(&catalog, arguments.parts).await;
    catalog.close().await;
    lines
}

/// The list of the tables of some databases, as text in aligned columns.
pub async fn list(catalog: &Catalog, databases: &[&str]) -> Result<String, catalog::CatalogError> {
    let mut lines = Vec::new();
    for database in databases {
        lines.extend(lines_of_database(catalog, database, false).await?);
    }
    Ok(match lines.is_empty() {
        true => "There are no tables here.\n".to_owned(),
        false => table(&HEADINGS, &lines),
    })
}

/// A line that says what a table is: its kind, key, position and directors, and how many rows it has.
pub fn described(table: &Table) -> String {
    let mut text = format!("{}: {}", table.spec.name, table.spec.kind);
    if let Some(key) = &table.spec.key {
        text.push_str(&format!(", key {key}"));
    }
    if let Some(position) = &table.spec.position {
        text.push_str(&format!(", position {}, {}", position.ra, position.dec));
    }
    for director in &table.spec.directors {
        text.push_str(&format!(", {} of ", director.key));
        if let Some(other) = &director.elsewhere {
            text.push_str(&format!("{}.", other.name));
        }
        text.push_str(&director.table);
    }
    format!("{text}; {} rows\n", grouped(table.rows()))
}

async fn lines_of(catalog: &Catalog, parts: bool) -> Result<Vec<ListRow>, ingest::IngestError> {
    let mut lines = Vec::new();
    for database in catalog.databases().await? {
        lines.extend(lines_of_database(catalog, &database.name, parts).await?);
    }
    lines.extend(held_lines(catalog, parts).await?);
    Ok(lines)
}

/// What is still on the disk of tables and parts that are not there any more: a line for each table, or for each part.
async fn held_lines(catalog: &Catalog, parts: bool) -> Result<Vec<ListRow>, ingest::IngestError> {
    let mut by_table: BTreeMap<(String, String), Vec<HeldPart>> = BTreeMap::new();
    for held in held_parts(catalog).await? {
        let names = (held.database.clone(), held.table.clone());
        by_table.entry(names).or_default().push(held);
    }
    let mut lines = Vec::new();
    for ((database, table), held) in by_table {
        // A table that was dropped has no declared name any more.
        let found = catalog.table(&database, &table).await?;
        let names = found.map_or((database, table), |it| (it.database.name, it.spec.name));
        match parts {
            true => lines.extend(held.iter().map(|it| {
                let part = std::slice::from_ref(it);
                ListRow::of_held(&names, part, Some(it.part))
            })),
            false => lines.push(ListRow::of_held(&names, &held, None)),
        }
    }
    Ok(lines)
}

async fn lines_of_database(
    catalog: &Catalog,
    database: &str,
    parts: bool,
) -> Result<Vec<ListRow>, catalog::CatalogError> {
    let mut lines = Vec::new();
    for table in catalog.tables(database).await? {
        if !parts {
            let chunks = chunk_count(catalog, &table).await?;
            lines.push(ListRow::of_table(&table, chunks));
            continue;
        }
        for part in &table.parts {
            let chunks = catalog.chunk_count(part.load).await?;
            lines.push(ListRow::of_part(&table, part, chunks));
        }
    }
    if !parts {
        let folded = fold_name(database);
        let views = catalog.views().await?.into_iter();
        let here = views.filter(|view| fold_name(&view.database) == folded);
        lines.extend(here.map(ListRow::of_view));
    }
    Ok(lines)
}

/// The chunks in which some part of a table has rows.
async fn chunk_count(catalog: &Catalog, table: &Table) -> Result<u64, catalog::CatalogError> {
    if let [part] = table.parts.as_slice() {
        return catalog.chunk_count(part.load).await;
    }
    let mut chunks = BTreeSet::new();
    for part in &table.parts {
        let of_part = catalog.chunks(part.load).await?;
        chunks.extend(of_part.iter().map(|chunk| chunk.chunk));
    }
    Ok(chunks.len() as u64)
}

impl ListRow {
    fn of_table(table: &Table, chunks: u64) -> Self {
        Self {
            database: table.database.name.clone(),
            table: table.spec.name.clone(),
            kind: RowKind::Table(table.spec.kind),
            rows: table.rows(),
            chunks,
            bytes: table.bytes(),
            parts: table.parts.len() as u64,
            loaded_at: table.loaded_at().to_owned(),
            part: None,
        }
    }

    fn of_part(table: &Table, part: &Part, chunks: u64) -> Self {
        Self {
            rows: part.rows,
            bytes: part.bytes,
            loaded_at: part.loaded_at.clone(),
            part: Some(PartOfRow {
                number: part.load,
                source: part.source.clone(),
                merged_from: part.merged_from.clone(),
            }),
            ..Self::of_table(table, chunks)
        }
    }

    fn of_view(view: View) -> Self {
        Self {
            database: view.database,
            table: view.name,
            kind: RowKind::View,
            rows: 0,
            chunks: 0,
            bytes: 0,
            parts: 0,
            loaded_at: view.created_at,
            part: None,
        }
    }

    /// A line for files of some parts of a table, or of the one part of this number.
    fn of_held(
        (database, table): &(String, String),
        held: &[HeldPart],
        number: Option<LoadId>,
    ) -> Self {
        Self {
            database: database.clone(),
            table: table.clone(),
            kind: RowKind::Held,
            rows: 0,
            chunks: 0,
            bytes: held.iter().map(|it| it.bytes).sum(),
            parts: held.len() as u64,
            loaded_at: String::new(),
            part: number.map(|number| PartOfRow {
                number,
                source: String::new(),
                merged_from: Vec::new(),
            }),
        }
    }

    fn kind(&self) -> String {
        match self.kind {
            RowKind::Table(kind) => kind.to_string(),
            RowKind::View => "view".to_owned(),
            RowKind::Held => "held".to_owned(),
        }
    }

    fn fields(&self, number: impl Fn(u64) -> String, bytes: impl Fn(u64) -> String) -> Vec<String> {
        let mut fields = vec![self.database.clone(), self.table.clone(), self.kind()];
        // Rows and chunks are counted of what is there, and bytes of what is on the disk.
        let is_table = matches!(self.kind, RowKind::Table(_));
        let counted = |shown: bool, text: String| if shown { text } else { String::new() };
        fields.push(counted(is_table, number(self.rows)));
        fields.push(counted(is_table, number(self.chunks)));
        let is_stored = self.kind != RowKind::View;
        fields.push(counted(is_stored, bytes(self.bytes)));
        match &self.part {
            None => fields.extend([
                counted(is_stored, number(self.parts)),
                self.loaded_at.clone(),
            ]),
            Some(part) => fields.extend([
                part.number.to_string(),
                self.loaded_at.clone(),
                part.origin(),
            ]),
        }
        fields
    }
}

/// Columns of numbers, which are aligned to the right.
const NUMBERS: std::ops::Range<usize> = 3..7;

fn table(headings: &[&str], lines: &[ListRow]) -> String {
    let mut rows: Vec<Vec<String>> = vec![headings.iter().map(|it| (*it).to_owned()).collect()];
    rows.extend(lines.iter().map(|line| line.fields(grouped, size)));
    aligned(&rows, |column| NUMBERS.contains(&column))
}

fn csv(headings: &[&str], lines: &[ListRow]) -> String {
    let quoted = |field: &String| {
        if field.contains([',', '"', '\n']) {
            format!("\"{}\"", field.replace('"', "\"\""))
        } else {
            field.clone()
        }
    };
    let mut text = headings.join(",") + "\n";
    for line in lines {
        let fields = line.fields(|n| n.to_string(), |n| n.to_string());
        text.push_str(&fields.iter().map(quoted).collect::<Vec<_>>().join(","));
        text.push('\n');
    }
    text
}

fn json(lines: &[ListRow]) -> String {
    let object = |line: &ListRow| {
        let mut object = serde_json::json!({
            "database": line.database,
            "table": line.table,
            "kind": line.kind(),
        });
        if line.kind == RowKind::View {
            object["made"] = line.loaded_at.clone().into();
            return object;
        }
        object["bytes"] = line.bytes.into();
        match &line.part {
            None => object["parts"] = line.parts.into(),
            Some(part) => object["part"] = part.number.0.into(),
        }
        if line.kind == RowKind::Held {
            return object;
        }
        object["rows"] = line.rows.into();
        object["chunks"] = line.chunks.into();
        object["loaded"] = line.loaded_at.clone().into();
        if let Some(part) = &line.part {
            object["from"] = part.source.clone().into();
            if !part.merged_from.is_empty() {
                object["merged_from"] = part.merged_from.iter().map(|it| it.0).collect();
            }
        }
        object
    };
    lines
        .iter()
        .map(|line| object(line).to_string() + "\n")
        .collect()
}
