//! `meridian describe`: what databases, tables and columns mean, printed, or changed by a file.

use std::collections::{BTreeMap, HashSet};
use std::io::{ErrorKind, Read, stdin};
use std::path::{Path, PathBuf};

use catalog::{
    Catalog, Change, Column, ColumnChange, ColumnType, Database, DatabaseChange, LoadId, ScanLane,
    Table, TableChange, TableKind, TableSpec, UNRATED, View, fold_name,
};
use clap::{Args, ValueEnum};
use ingest::IngestError;
use metadata::{
    ColumnWords, DatabaseWords, FileValue, SchemaFileError, TableWords, check_ucd, check_unit,
    read_edit, read_edit_toml, read_felis, to_json, to_yaml,
};

use crate::console::{remark, tell};
use crate::failure::Failure;

/// What to describe, and by which file.
#[derive(Args)]
pub struct DescribeArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The database.
    #[arg(long, value_name = "NAME")]
    db: String,
    /// This table alone.
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
    /// A schema file in Felis's language (YAML). Tables and columns that only the file or only the database has are listed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["edit", "format"])]
    felis: Option<PathBuf>,
    /// A description as this command prints it: YAML, JSON or (in a file *.toml) TOML. - is standard input. What it leaves out stays;
    /// null takes a word away.
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    edit: Option<PathBuf>,
    /// The lane in which queries of this table scan: a change of the table that --table names. auto goes by the bytes of its chunks.
    #[arg(long, value_name = "LANE", value_enum, requires = "table", conflicts_with_all = ["felis", "edit", "format"])]
    scan_rating: Option<ScanRating>,
    /// How to print the description.
    #[arg(long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum ScanRating {
    Fast,
    Medium,
    Slow,
    Snail,
    Auto,
}

impl ScanRating {
    fn lane(self) -> Option<ScanLane> {
        match self {
            Self::Fast => Some(ScanLane::Fast),
            Self::Medium => Some(ScanLane::Medium),
            Self::Slow => Some(ScanLane::Slow),
            Self::Snail => Some(ScanLane::Snail),
            Self::Auto => None,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Yaml,
    Json,
}

/// Prints the description, or changes it.
pub fn run(arguments: DescribeArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let catalog = Catalog::open(&arguments.data).await?;
        let outcome = describe(&catalog, &arguments).await;
        catalog.close().await;
        outcome
    })
}

async fn describe(catalog: &Catalog, arguments: &DescribeArguments) -> Result<(), Failure> {
    let DescribeArguments {
        table,
        felis,
        edit,
        format,
        ..
    } = arguments;
    let described = DatabaseDescription::find(catalog, &arguments.db, table.as_deref()).await?;
    if let Some(rating) = arguments.scan_rating {
        return rate(catalog, &described, rating).await;
    }
    let Some(path) = felis.as_ref().or(edit.as_ref()) else {
        let words = described.words();
        let text = match format {
            Format::Yaml => to_yaml(&words),
            Format::Json => to_json(&words),
        };
        return tell(&text?);
    };
    let wrong = |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", shown(path)));
    let text = read(path).map_err(Failure::new)?;
    let is_toml = path
        .extension()
        .is_some_and(|it| it.eq_ignore_ascii_case("toml"));
    let table = described.only.as_deref();
    let words = match (felis, is_toml) {
        (Some(_), _) => read_felis(&text, |uri| read_beside(path, uri)),
        (None, true) => read_edit_toml(&text, table),
        (None, false) => read_edit(&text, table),
    };
    let words = words.map_err(|error| wrong(&error))?;
    let changes = Changes::of(&described, &words, felis.is_some());
    let changes = changes.map_err(|sentence| wrong(&sentence))?;
    let is_changed = catalog
        .describe(&described.database.name, &changes.change)
        .await?;
    changes.warn();
    if felis.is_none() {
        warn_of_unknown(&words);
    }
    tell(&changes.summary(&described, path, is_changed))
        .map_err(|lost| lost.when_reporting("the description is changed"))
}

/// Changes the lane of a table's scans.
async fn rate(
    catalog: &Catalog,
    described: &DatabaseDescription,
    rating: ScanRating,
) -> Result<(), Failure> {
    if let Some(view) = described.tables.iter().find(|it| described.is_view(it)) {
        return Err(Failure::new(no_lane(&view.spec.name)));
    }
    let lane = rating.lane();
    let change = TableChange {
        scan_lane: lane.map_or(Change::Clear, Change::Set),
        ..TableChange::default()
    };
    let tables = described.tables.iter();
    let change = DatabaseChange {
        tables: tables
            .map(|table| (fold_name(&table.spec.name), change.clone()))
            .collect(),
        ..DatabaseChange::default()
    };
    let (database, table) = (&described.database.name, described.only.as_deref());
    let is_changed = catalog.describe(database, &change).await?;
    let scans = format!("Scans of {database}.{}", table.unwrap_or_default());
    let already = if is_changed { "" } else { " already" };
    tell(&match lane {
        Some(lane) => format!("{scans} are in lane {lane}{already}.\n"),
        None => format!("{scans} go by the bytes of its chunks{already}.\n"),
    })
    .map_err(|lost| lost.when_reporting("the lane is changed"))
}

/// Scans are of tables.
fn no_lane(view: &str) -> String {
    format!("{view} is a view: its queries scan in the lanes of the tables that it reads")
}

/// What messages call a file.
fn shown(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

/// The text of a schema to which another refers: a file beside that, or at a path relative to it. Of a URI within a package of Python,
/// `resource://lsst.sdm.schemas/drp_base.yaml`, the name counts.
fn read_beside(schema: &Path, uri: &str) -> Result<String, SchemaFileError> {
    let name = match uri.strip_prefix("resource://") {
        Some(within) => within.rsplit('/').next().unwrap_or(within),
        None => uri,
    };
    if name.contains("://") {
        let sentence =
            format!("{uri} is not fetched: put the file beside the schema, and name it as it is");
        return Err(SchemaFileError::new(sentence));
    }
    let path = schema.with_file_name("").join(name);
    read(&path).map_err(SchemaFileError::new)
}

fn read(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => stdin().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(path).map(|read| bytes = read),
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => IngestError::MissingFile(path.to_path_buf()).to_string(),
        _ => format!("{}: {error}", shown(path)),
    })?;
    String::from_utf8(bytes).map_err(|_| format!("{}: it is no text in UTF-8", shown(path)))
}

/// A database and those of its tables and views that are looked at.
struct DatabaseDescription {
    database: Database,
    /// Of a view its columns, and what is said of it and of these.
    tables: Vec<Table>,
    /// The folded names of those that are views.
    views: HashSet<String>,
    /// The declared name of the only table that is looked at, if it is only one.
    only: Option<String>,
}

impl DatabaseDescription {
    async fn find(catalog: &Catalog, db: &str, table: Option<&str>) -> Result<Self, Failure> {
        let Some(database) = catalog.database(db).await? else {
            let databases = catalog.databases().await?;
            let names = databases.iter().map(|it| it.name.as_str());
            let sentence = missing(&format!("there is no database {db}"), db, names);
            return Err(Failure::new(sentence));
        };
        let mut tables = catalog.tables(db).await?;
        let views = views_of(catalog, &database).await?;
        let names = views.iter().map(|view| fold_name(&view.spec.name));
        let names = names.collect();
        tables.extend(views);
        let mut only = None;
        if let Some(table) = table {
            let folded = fold_name(table);
            if !tables.iter().any(|it| fold_name(&it.spec.name) == folded) {
                let names = tables.iter().map(|it| it.spec.name.as_str());
                let what = format!("the database {} has no table {table}", database.name);
                return Err(Failure::new(missing(&what, table, names)));
            }
            tables.retain(|it| fold_name(&it.spec.name) == folded);
            only = tables.first().map(|it| it.spec.name.clone());
        }
        Ok(Self {
            database,
            tables,
            views: names,
            only,
        })
    }

    fn is_view(&self, table: &Table) -> bool {
        self.views.contains(&fold_name(&table.spec.name))
    }

    fn table(&self, name: &str) -> Option<&Table> {
        let folded = fold_name(name);
        let mut tables = self.tables.iter();
        tables.find(|table| fold_name(&table.spec.name) == folded)
    }

    /// What is said of it.
    fn words(&self) -> DatabaseWords {
        let tables = self.tables.iter().map(|table| {
            let columns = table.spec.columns.iter().map(|column| {
                let said = table.metadata.column(&column.name);
                let said = said.cloned().unwrap_or_default();
                ColumnWords {
                    name: column.name.clone(),
                    description: said.description.into(),
                    unit: said.unit.into(),
                    ucd: said.ucd.into(),
                    utype: said.utype.into(),
                    xtype: said.xtype.into(),
                    principal: said.principal.into(),
                    column_index: said.index.into(),
                }
            });
            TableWords {
                name: table.spec.name.clone(),
                description: table.metadata.description.clone().into(),
                utype: table.metadata.utype.clone().into(),
                table_index: table.metadata.index.into(),
                scan_rating: ScanLane::chosen(table.spec.scan_rating)
                    .filter(|_| !self.is_view(table))
                    .map(|lane| lane.to_string())
                    .into(),
                columns: columns.collect(),
            }
        });
        let of_database = self.only.is_none();
        let description = self.database.description.clone();
        DatabaseWords {
            name: self.database.name.clone(),
            description: description.filter(|_| of_database).into(),
            tables: tables.collect(),
            unknown: Vec::new(),
        }
    }
}

/// The views of a database as tables without rows, with what is said of them themselves: what is said of the tables whose columns they
/// have is not theirs.
async fn views_of(catalog: &Catalog, database: &Database) -> Result<Vec<Table>, Failure> {
    let views = catalog.views().await?.into_iter();
    let views = views.filter(|view| fold_name(&view.database) == fold_name(&database.name));
    let as_table = |view: View| Table {
        id: view.id,
        database: database.clone(),
        placement: LoadId(0),
        spec: TableSpec {
            database: view.database,
            name: view.name,
            kind: TableKind::Replicated,
            columns: view.query.columns.into_iter().map(column).collect(),
            key: None,
            position: None,
            directors: Vec::new(),
            scan_rating: UNRATED,
        },
        metadata: view.metadata,
        expires_at: None,
        parts: Vec::new(),
    };
    Ok(views.map(as_table).collect())
}

/// A column of a view, of whatever type.
fn column(name: String) -> Column {
    Column {
        name,
        ty: ColumnType::Text,
        nullable: true,
        declared: None,
    }
}

/// A sentence that something is missing, with what may have been meant.
fn missing<'a>(what: &str, name: &str, there: impl Iterator<Item = &'a str>) -> String {
    let folded = fold_name(name);
    let near = there
        .map(|it| (strsim::damerau_levenshtein(&folded, &fold_name(it)), it))
        .filter(|(distance, it)| *distance <= 1 + name.len().max(it.len()) / 4)
        .min();
    match near {
        Some((_, near)) => format!("{what}: did you mean {near}?"),
        None => format!("{what}: `meridian tables` lists what there is"),
    }
}

/// What a file changes, and what is worth saying about it.
#[derive(Default)]
struct Changes {
    change: DatabaseChange,
    columns: usize,
    /// Tables and columns that only the file has, and that only the database has.
    only_in_file: Names,
    only_in_database: Names,
    /// What is wrong with units and UCDs, with the columns that have them.
    warnings: BTreeMap<String, Vec<String>>,
}

#[derive(Default)]
struct Names {
    tables: Vec<String>,
    columns: Vec<String>,
}

impl Changes {
    /// The changes that a file asks for. A schema may have more than the database, an edited description may not.
    fn of(
        described: &DatabaseDescription,
        words: &DatabaseWords,
        is_schema: bool,
    ) -> Result<Self, String> {
        let mut changes = Self::default();
        if described.only.is_none() {
            changes.change.description = changed(&words.description, is_schema);
        }
        for said in &words.tables {
            let Some(table) = described.table(&said.name) else {
                let names = described.tables.iter().map(|it| it.spec.name.as_str());
                let what = format!("{} has no table {}", described.name(), said.name);
                match (is_schema, &described.only) {
                    (false, _) => return Err(missing(&what, &said.name, names)),
                    (true, None) => changes.only_in_file.tables.push(said.name.clone()),
                    // One table of the schema was asked for.
                    (true, Some(_)) => {}
                }
                continue;
            };
            if described.is_view(table) && !matches!(said.scan_rating, FileValue::Nothing) {
                return Err(no_lane(&table.spec.name));
            }
            let change = changes.of_table(table, said, is_schema)?;
            let folded = fold_name(&table.spec.name);
            if changes.change.tables.insert(folded, change).is_some() {
                return Err(format!("it has two tables {}", said.name));
            }
        }
        changes.note_silence(described);
        Ok(changes)
    }

    fn of_table(
        &mut self,
        table: &Table,
        said: &TableWords,
        is_schema: bool,
    ) -> Result<TableChange, String> {
        let mut change = TableChange {
            description: changed(&said.description, is_schema),
            utype: changed(&said.utype, is_schema),
            index: changed(&said.table_index, is_schema),
            scan_lane: match changed(&said.scan_rating, is_schema) {
                Change::Keep => Change::Keep,
                Change::Clear => Change::Clear,
                Change::Set(lane) => Change::Set(lane.parse().map_err(|sentence| {
                    format!("scan_rating of the table {}: {sentence}", table.spec.name)
                })?),
            },
            columns: BTreeMap::new(),
        };
        for column in &said.columns {
            let full_name = format!("{}.{}", table.spec.name, column.name);
            let Some(there) = table.spec.column(&column.name) else {
                let names = table.spec.columns.iter().map(|it| it.name.as_str());
                let what = format!(
                    "the table {} has no column {}",
                    table.spec.name, column.name
                );
                if !is_schema {
                    return Err(missing(&what, &column.name, names));
                }
                self.only_in_file.columns.push(full_name);
                continue;
            };
            self.check(&full_name, column);
            self.columns += 1;
            let of_column = ColumnChange {
                description: changed(&column.description, is_schema),
                unit: changed(&column.unit, is_schema),
                ucd: changed(&column.ucd, is_schema),
                utype: changed(&column.utype, is_schema),
                xtype: changed(&column.xtype, is_schema),
                principal: changed(&column.principal, is_schema),
                index: changed(&column.column_index, is_schema),
            };
            let before = change.columns.insert(fold_name(&there.name), of_column);
            if before.is_some() {
                return Err(format!("it has two columns {full_name}"));
            }
        }
        Ok(change)
    }

    /// Looks at a column's unit and UCD.
    fn check(&mut self, full_name: &str, column: &ColumnWords) {
        let problem = |said: &FileValue<String>, check: fn(&str) -> Option<String>| match said {
            FileValue::Value(text) => check(text),
            FileValue::Nothing | FileValue::Empty => None,
        };
        let problems = [
            problem(&column.unit, check_unit),
            problem(&column.ucd, check_ucd),
        ];
        for sentence in problems.into_iter().flatten() {
            let columns = self.warnings.entry(sentence).or_default();
            columns.push(full_name.to_owned());
        }
    }

    /// Notes tables and columns of the database of which the file says nothing.
    fn note_silence(&mut self, described: &DatabaseDescription) {
        for table in &described.tables {
            let Some(change) = self.change.tables.get(&fold_name(&table.spec.name)) else {
                let name = table.spec.name.clone();
                self.only_in_database.tables.push(name);
                continue;
            };
            let mut columns = table.spec.columns.iter();
            let silent = columns
                .by_ref()
                .filter(|column| !change.columns.contains_key(&fold_name(&column.name)));
            let silent = silent.map(|column| format!("{}.{}", table.spec.name, column.name));
            self.only_in_database.columns.extend(silent);
        }
    }

    /// Tells of words that are kept although other programs may not know them.
    fn warn(&self) {
        for (sentence, columns) in &self.warnings {
            remark(&format!("warning: {}: {sentence}", listed(columns)));
        }
    }

    fn summary(&self, described: &DatabaseDescription, path: &Path, is_changed: bool) -> String {
        let tables = self.change.tables.len();
        let counted = |number: usize, what: &str| match number {
            1 => format!("1 {what}"),
            number => format!("{number} {what}s"),
        };
        let (tables, columns) = (counted(tables, "table"), counted(self.columns, "column"));
        let (name, file) = (&described.database.name, shown(path));
        let mut text = match is_changed {
            true => format!("{name} is described as {file} says: {tables}, {columns}.\n"),
            false => format!("{name} is described so already: {tables}, {columns} of {file}.\n"),
        };
        text.push_str(&self.only_in_file.sentence("Only in the file"));
        text.push_str(&self.only_in_database.sentence("Not in the file"));
        text
    }
}

/// Tells of words of an edited description that are none of ours: mistakes, most likely.
fn warn_of_unknown(words: &DatabaseWords) {
    if !words.unknown.is_empty() {
        remark(&format!("warning: passed over: {}", listed(&words.unknown)));
    }
}

impl DatabaseDescription {
    fn name(&self) -> String {
        match &self.only {
            Some(table) => format!("the description of {table}"),
            None => format!("the database {}", self.database.name),
        }
    }
}

impl Names {
    fn sentence(&self, place: &str) -> String {
        let kinds = [("tables", &self.tables), ("columns", &self.columns)];
        let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
        kinds
            .map(|(kind, names)| format!("{place}, {kind}: {}.\n", listed(names)))
            .collect()
    }
}

/// The first of many names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// What is to be done about what a file says. In a schema an empty word says nothing.
fn changed<T: Clone>(said: &FileValue<T>, is_schema: bool) -> Change<T> {
    match said {
        FileValue::Nothing => Change::Keep,
        FileValue::Empty if is_schema => Change::Keep,
        FileValue::Empty => Change::Clear,
        FileValue::Value(value) => Change::Set(value.clone()),
    }
}
