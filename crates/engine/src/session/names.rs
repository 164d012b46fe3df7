//! The names of a session's tables and columns: as declared, for the headings of results, and for suggestions in errors.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use catalog::{TableKind, fold_name};
use datafusion::common::DataFusionError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;
use sql::{Connection, Dialect, Headings, ParsedStatement, SqlError, TableShape, TableShapes};

use super::views::{marked, views_in};
use super::{Session, origins};
use crate::crossmatch::suffixed;
use crate::error::log_own_mistake;
use crate::files::FileTable;
use crate::information_schema::{self, INFORMATION_SCHEMA};
use crate::loaded_table::{CHUNK_NUMBER, CHUNK_NUMBER_DECLARED, hidden_columns};
use crate::stored_rows::StoredRowsTable;
use crate::{Archive, EngineError};

impl Session {
    /// The columns of the result under their headings.
    pub(super) async fn headed(
        &self,
        logical: &LogicalPlan,
        headings: &Headings,
        result: &Schema,
    ) -> Result<SchemaRef, EngineError> {
        let declared = declared_columns(&self.archive, &self.database, logical).await?;
        let headings = resolved_headings(logical, headings, &declared);
        let views = views_in(&self.archive, logical).await?;
        let described = origins::metadata(logical, &views);
        let columns = result.fields().iter().zip(headings).enumerate();
        let fields: Vec<Field> = columns
            .map(|(at, (field, name))| {
                let metadata = described.get(at).cloned().unwrap_or_default();
                field
                    .as_ref()
                    .clone()
                    .with_name(name)
                    .with_metadata(metadata)
            })
            .collect();
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Turns a planning error into a message.
    pub(super) async fn explain_error(&self, text: &str, error: &DataFusionError) -> EngineError {
        explain_error(&self.archive, &self.database, text, error).await
    }
}

/// Turns an error of planning a text into a message, where tables without a database are those of `own`. Only now are names looked up that
/// are similar to a misspelled one.
pub(super) async fn explain_error(
    archive: &Archive,
    own: &str,
    text: &str,
    error: &DataFusionError,
) -> EngineError {
    if let DataFusionError::External(_) = error.find_root() {
        return EngineError::from_run(error);
    }
    let (mut tables, mut declared) = (Vec::new(), HashMap::new());
    let catalog = archive.catalog();
    // Mistakes are told though views cannot be read.
    let views = archive.views().await.unwrap_or_default();
    // The session's own database comes last: its spelling of a name counts.
    for database in databases_named_in(archive, own, text).await {
        for table in catalog.tables(&database).await.unwrap_or_default() {
            for column in &table.spec.columns {
                declared.insert(fold_name(&column.name), column.name.clone());
            }
            tables.push((database.clone(), table.spec.name));
        }
        for ((other, name), view) in &*views {
            let is_of_it = *other == fold_name(&database);
            if is_of_it && catalog.rights().may_read(&database, name) {
                for column in &view.query.columns {
                    declared.insert(fold_name(column), column.clone());
                }
                tables.push((database.clone(), view.name.clone()));
            }
        }
    }
    declare_hidden(&mut declared);
    let spelled = |name: &str| {
        declared
            .get(name)
            .cloned()
            .unwrap_or_else(|| name.to_owned())
    };
    let told = SqlError::from_datafusion(text, error, &tables, &spelled);
    log_own_mistake(error, &told);
    told.into()
}

/// The databases that a text seems to name, and `own` behind them.
async fn databases_named_in(archive: &Archive, own: &str, text: &str) -> Vec<String> {
    let (text, folded) = (fold_name(text), fold_name(own));
    let databases = archive.catalog().databases().await.unwrap_or_default();
    let is_named = |name: &String| {
        let name = fold_name(name);
        name != folded && text.contains(&name)
    };
    let others = databases.into_iter().map(|database| database.name);
    let others = others.filter(is_named);
    others.chain([own.to_owned()]).collect()
}

/// The headings of a plan's result, where the tables' columns have these declared names by their folded ones.
pub(super) fn resolved_headings(
    plan: &LogicalPlan,
    headings: &Headings,
    declared: &HashMap<String, String>,
) -> Vec<String> {
    let fields = plan.schema().fields().iter();
    let names: Vec<String> = fields.map(|field| field.name().clone()).collect();
    let plain = |name: &str| declared.get(name).cloned();
    headings.resolve(&names, &|name| {
        plain(name).or_else(|| suffixed(name, plain))
    })
}

/// The declared spelling of the columns of all tables that a plan reads, by their folded names.
pub(super) async fn declared_columns(
    archive: &Archive,
    default: &str,
    plan: &LogicalPlan,
) -> Result<HashMap<String, String>, EngineError> {
    let mut tables = Vec::new();
    let mut views = Vec::new();
    let mut declared = HashMap::new();
    // The closure cannot fail.
    let _ = plan.apply_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node {
            views.extend(marked(&alias.alias));
        }
        if let LogicalPlan::TableScan(scan) = node {
            tables.push(scan.table_name.clone());
            let provider = source_as_provider(&scan.source).ok();
            let shown = provider.as_ref().and_then(|provider| {
                let file = provider.downcast_ref::<FileTable>();
                let stored = || provider.downcast_ref::<StoredRowsTable>();
                file.map(FileTable::declared)
                    .or_else(|| stored().map(StoredRowsTable::declared))
            });
            for field in shown.iter().flat_map(|shown| shown.fields()) {
                declared.insert(fold_name(field.name()), field.name().clone());
            }
        }
        Ok(TreeNodeRecursion::Continue)
    });
    let known = views_in(archive, plan).await?;
    for view in views.iter().filter_map(|name| known.get(name)) {
        for column in &view.query.columns {
            declared
                .entry(fold_name(column))
                .or_insert_with(|| column.clone());
        }
    }
    for table in tables {
        let database = table.schema().unwrap_or(default).to_owned();
        if database == INFORMATION_SCHEMA {
            for name in information_schema::declared_columns(table.table()) {
                declared.insert(fold_name(name), name.to_owned());
            }
            continue;
        }
        if let Some(table) = archive.table(&database, table.table()).await? {
            let seen = archive.columns_of(&table);
            let columns = table.spec().columns.iter();
            for column in columns.filter(|column| seen.has(&column.name)) {
                declared
                    .entry(fold_name(&column.name))
                    .or_insert_with(|| column.name.clone());
            }
        }
    }
    declare_hidden(&mut declared);
    Ok(declared)
}

/// Parses a text, for whose names the database is the default one. What the parser asks of tables is looked up, and the text parsed again
/// with the answers, until it asks nothing that is not known.
pub(super) async fn parse(
    archive: &Archive,
    default: &str,
    dialect: Dialect,
    text: &str,
    connection: &Connection,
) -> Result<Vec<ParsedStatement>, EngineError> {
    let mut shapes = Shapes {
        default: default.to_owned(),
        known: HashMap::new(),
        asked: RefCell::default(),
    };
    loop {
        let parsed = sql::parse(dialect, text, &shapes, connection);
        let asked = shapes.asked.take();
        if asked.is_empty() {
            return Ok(parsed?);
        }
        for names in asked {
            let shape = shape(archive, &names).await?;
            shapes.known.insert(names, shape);
        }
    }
}

/// The shape of the table or view of these folded names, of its database and its own.
async fn shape(
    archive: &Archive,
    (database, name): &(String, String),
) -> Result<Option<TableShape>, EngineError> {
    if database == INFORMATION_SCHEMA {
        let columns = information_schema::declared_columns(name).map(fold_name);
        let columns: Vec<String> = columns.collect();
        return Ok((!columns.is_empty()).then(|| TableShape {
            partitioned: false,
            position: None,
            hidden: vec![],
            columns: Some(columns),
        }));
    }
    if let Some(table) = archive.table(database, name).await? {
        let (spec, seen) = (table.spec(), archive.columns_of(&table));
        let columns = spec.columns.iter();
        let columns = columns.filter(|column| seen.has(&column.name));
        let position = spec.position.as_ref();
        return Ok(Some(TableShape {
            partitioned: spec.kind != TableKind::Replicated,
            position: position.map(|it| (fold_name(&it.ra), fold_name(&it.dec))),
            hidden: hidden_columns(spec),
            columns: Some(columns.map(|column| fold_name(&column.name)).collect()),
        }));
    }
    let view = archive.view(database, name).await?;
    Ok(view.map(|view| {
        let position = view.query.position.as_ref();
        let position = position.map(|it| (fold_name(&it.ra), fold_name(&it.dec)));
        let columns = view.query.columns.iter();
        TableShape {
            partitioned: position.is_some(),
            position,
            hidden: vec![],
            columns: Some(columns.map(|column| fold_name(column)).collect()),
        }
    }))
}

/// Adds the declared spelling of columns that no table declares.
fn declare_hidden(declared: &mut HashMap<String, String>) {
    declared
        .entry(CHUNK_NUMBER.to_owned())
        .or_insert_with(|| CHUNK_NUMBER_DECLARED.to_owned());
}

/// What the parser asks of the tables of the archive.
struct Shapes {
    default: String,
    /// The shapes that have been looked up, by the folded names of the database and the table; nothing where there is no such table.
    known: HashMap<(String, String), Option<TableShape>>,
    /// The names of those that are to be looked up.
    asked: RefCell<HashSet<(String, String)>>,
}

impl TableShapes for Shapes {
    fn shape(&self, database: Option<&str>, table: &str) -> Option<TableShape> {
        let database = database.unwrap_or(&self.default).to_owned();
        let names = (database, table.to_owned());
        match self.known.get(&names) {
            Some(shape) => shape.clone(),
            None => {
                self.asked.borrow_mut().insert(names);
                None
            }
        }
    }

    fn all_hidden(&self) -> &'static [&'static str] {
        &[CHUNK_NUMBER]
    }
}
