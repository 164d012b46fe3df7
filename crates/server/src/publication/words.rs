//! What the schema says of tables and columns (descriptions, units, UCDs), said of the views that users read.
//!
//! It is said once, of views of whose columns nothing is said: what an operator says later stays.

use std::collections::BTreeMap;

use alerts::{AlertDatabase, AlertSchema};
use catalog::{Catalog, Change, ColumnChange, DatabaseChange, TableChange, View, fold_name};
use metadata::{ColumnWords, DatabaseWords, FileValue, SchemaFileError, TableWords, read_felis};
use tracing::warn;

use super::PublicationError;
use super::views::UserView;

/// Says of the views what the schema says of their tables.
pub(super) async fn describe(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
) -> Result<(), PublicationError> {
    let mut silent = Vec::new();
    for view in UserView::ALL {
        let found = catalog.view(database.name(), view.name()).await?;
        silent.extend(found.filter(|it| it.metadata.columns.is_empty()));
    }
    if silent.is_empty() {
        return Ok(());
    }
    let Some(words) = read(schema) else {
        return Ok(());
    };
    let mut change = DatabaseChange::default();
    for view in silent {
        if let Some(said) = of_table(&words, &view.name) {
            let changes = of_view(&view, said);
            if !changes.columns.is_empty() {
                change.tables.insert(fold_name(&view.name), changes);
            }
        }
    }
    if !change.tables.is_empty() {
        catalog.describe(database.name(), &change).await?;
    }
    Ok(())
}

/// Says of a table what the schema says of it.
pub(super) async fn describe_table(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
    name: &str,
) -> Result<(), PublicationError> {
    let words = read(schema);
    let said = words
        .iter()
        .flat_map(|words| &words.tables)
        .find(|it| it.name == name);
    if let Some(said) = said {
        let mut change = DatabaseChange::default();
        change
            .tables
            .insert(fold_name(name), of_shown(said, |_| true));
        catalog.describe(database.name(), &change).await?;
    }
    Ok(())
}

/// What the schema says of columns that a view gets.
pub(super) fn of_columns(schema: &AlertSchema, view: UserView, names: &[String]) -> TableChange {
    let mut change = TableChange::default();
    let Some(words) = read(schema) else {
        return change;
    };
    let said = of_table(&words, view.name());
    for column in said.into_iter().flat_map(|table| &table.columns) {
        if names.contains(&column.name) && says_something(column) {
            let said = of_column(column);
            change.columns.insert(fold_name(&column.name), said);
        }
    }
    change
}

/// What a schema says; `None` if that cannot be read.
fn read(schema: &AlertSchema) -> Option<DatabaseWords> {
    let elsewhere = |uri: &str| {
        Err(SchemaFileError::new(format!(
            "it refers to {uri}, which is not kept with it"
        )))
    };
    let words = read_felis(schema.text(), elsewhere);
    words
        .inspect_err(|error| warn!(%error, "a schema's descriptions cannot be read"))
        .ok()
}

/// What it says of the table of a view.
fn of_table<'a>(words: &'a DatabaseWords, view: &str) -> Option<&'a TableWords> {
    let of = |name: &str| words.tables.iter().find(|it| it.name == name);
    // Without a table of its own in the schema, the latest versions have the columns of all.
    of(view).or_else(|| of(UserView::Objects.name()))
}

fn of_view(view: &View, said: &TableWords) -> TableChange {
    let is_shown = |folded: &str| {
        let mut columns = view.query.columns.iter();
        columns.any(|name| fold_name(name) == folded)
    };
    of_shown(said, is_shown)
}

/// What is said of a table and of those of its columns that are shown, by their folded names.
fn of_shown(said: &TableWords, is_shown: impl Fn(&str) -> bool) -> TableChange {
    let mut columns = BTreeMap::new();
    for column in &said.columns {
        let folded = fold_name(&column.name);
        if is_shown(&folded) && says_something(column) {
            columns.insert(folded, of_column(column));
        }
    }
    TableChange {
        description: change(&said.description),
        utype: change(&said.utype),
        index: change(&said.table_index),
        columns,
        ..TableChange::default()
    }
}

fn of_column(said: &ColumnWords) -> ColumnChange {
    ColumnChange {
        description: change(&said.description),
        unit: change(&said.unit),
        ucd: change(&said.ucd),
        utype: change(&said.utype),
        xtype: change(&said.xtype),
        principal: change(&said.principal),
        index: change(&said.column_index),
    }
}

fn says_something(said: &ColumnWords) -> bool {
    of_column(said) != ColumnChange::default()
}

fn change<T: Clone>(said: &FileValue<T>) -> Change<T> {
    match said {
        FileValue::Value(value) => Change::Set(value.clone()),
        FileValue::Nothing | FileValue::Empty => Change::Keep,
    }
}
