//! What the schema says of tables and columns (descriptions, units, UCDs), said of the views that users read.
//!
//! It is said once, of views of whose columns nothing is said: what an operator says later stays.

use std::collections::BTreeMap;

use alerts::AlertDatabase;
use catalog::{Catalog, Change, ColumnChange, DatabaseChange, TableChange, View, fold_name};
use metadata::{ColumnWords, Said, SchemaFileError, TableWords, read_felis};
use tracing::warn;

use super::PublicationError;
use super::views::UserView;

/// Says of the views what the schema says of their tables.
pub(super) async fn describe(
    catalog: &Catalog,
    database: &AlertDatabase,
) -> Result<(), PublicationError> {
    let mut silent = Vec::new();
    for view in UserView::ALL {
        let found = catalog.view(database.name(), view.name()).await?;
        silent.extend(found.filter(|it| it.metadata.columns.is_empty()));
    }
    if silent.is_empty() {
        return Ok(());
    }
    let elsewhere = |uri: &str| {
        Err(SchemaFileError::new(format!(
            "it refers to {uri}, which is not kept with it"
        )))
    };
    let words = match read_felis(database.schema().text(), elsewhere) {
        Ok(words) => words,
        Err(error) => {
            warn!(database = database.name(), %error, "the schema's descriptions cannot be read");
            return Ok(());
        }
    };
    let mut change = DatabaseChange::default();
    for view in silent {
        let of = |name: &str| words.tables.iter().find(|it| it.name == name);
        // Without a table of its own in the schema, the latest versions have the columns of all.
        let said = of(&view.name).or_else(|| of(UserView::Objects.name()));
        if let Some(said) = said {
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

fn of_view(view: &View, said: &TableWords) -> TableChange {
    let mut columns = BTreeMap::new();
    for column in &said.columns {
        let folded = fold_name(&column.name);
        let is_shown = |name: &String| fold_name(name) == folded;
        if view.query.columns.iter().any(is_shown) && says_something(column) {
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

fn change<T: Clone>(said: &Said<T>) -> Change<T> {
    match said {
        Said::Value(value) => Change::Set(value.clone()),
        Said::Nothing | Said::Empty => Change::Keep,
    }
}
