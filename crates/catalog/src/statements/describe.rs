//! Changing what is said of databases, tables and columns.

use std::collections::BTreeMap;

use super::Statements;
use super::query::{Transaction, query, query_as};
use super::read::{database_named, describe_tables, tables_of};
use super::seal::{seal_databases, seal_table};
use super::views::describe_view;
use crate::metadata::combined;
use crate::{
    CatalogError, Change, ColumnMetadata, DatabaseChange, Table, TableMetadata, TableSpec,
    fold_name,
};

impl Statements {
    pub async fn describe(
        &self,
        database: &str,
        change: &DatabaseChange,
    ) -> Result<bool, CatalogError> {
        let mut transaction = self.begin_write().await?;
        let listed = database_named(&mut transaction, database).await?;
        let listed = listed.ok_or_else(|| CatalogError::NoDatabase {
            database: database.to_owned(),
        })?;
        let mut is_changed = false;
        let before = listed.row.description.as_ref();
        let after = match &change.description {
            Change::Keep => before,
            Change::Clear => None,
            Change::Set(text) => Some(text),
        };
        if after != before {
            is_changed = true;
            query("UPDATE databases SET description = ? WHERE id = ?")
                .bind(after)
                .bind(listed.row.id)
                .execute(&mut transaction)
                .await?;
        }
        for (name, change) in &change.tables {
            let found = tables_of(&mut transaction, &listed, Some(name))
                .await?
                .pop();
            if found.is_none() {
                let names = (listed.row.name.as_str(), name.as_str());
                is_changed |= describe_view(&mut transaction, names, change).await?;
                continue;
            }
            let missing = || CatalogError::TableChanged {
                table: format!("{}.{name}", listed.row.name),
            };
            let table = found.ok_or_else(missing)?;
            let after = change
                .applied_to(&table.metadata, |name| table.spec.column(name).is_some())
                .ok_or_else(missing)?;
            let rating = change.rating_of(&table);
            if after == table.metadata && rating == table.spec.scan_rating {
                continue;
            }
            is_changed = true;
            put_metadata(&mut transaction, &table, &after).await?;
            query("UPDATE tables SET scan_rating = ? WHERE id = ?")
                .bind(rating)
                .bind(table.id)
                .execute(&mut transaction)
                .await?;
            seal_table(&mut transaction, listed.row.id, table.id).await?;
        }
        if is_changed {
            seal_databases(&mut transaction).await?;
            self.commit_publication(transaction).await?;
        }
        Ok(is_changed)
    }
}

/// Writes down what is said of a table and its columns, in the place of what was.
async fn put_metadata(
    change: &mut Transaction<'_>,
    table: &Table,
    metadata: &TableMetadata,
) -> Result<(), CatalogError> {
    query("UPDATE tables SET description = ?, utype = ?, table_index = ? WHERE id = ?")
        .bind(&metadata.description)
        .bind(&metadata.utype)
        .bind(metadata.index)
        .bind(table.id)
        .execute(&mut *change)
        .await?;
    for column in &table.spec.columns {
        let (before, after) = (
            table.metadata.column(&column.name),
            metadata.column(&column.name),
        );
        if before != after {
            let after = after.cloned().unwrap_or_default();
            put_column(change, table.id, &fold_name(&column.name), &after).await?;
        }
    }
    Ok(())
}

async fn put_column(
    change: &mut Transaction<'_>,
    table: i64,
    folded_name: &str,
    metadata: &ColumnMetadata,
) -> Result<(), CatalogError> {
    query(
        "UPDATE columns SET description = ?, unit = ?, ucd = ?, utype = ?, xtype = ?, principal = ?, column_index = ? \
         WHERE table_id = ? AND folded_name = ?",
    )
    .bind(&metadata.description)
    .bind(&metadata.unit)
    .bind(&metadata.ucd)
    .bind(&metadata.utype)
    .bind(&metadata.xtype)
    .bind(metadata.principal)
    .bind(metadata.index)
    .bind(table)
    .bind(folded_name)
    .execute(change)
    .await?;
    Ok(())
}

/// What is said of the columns of a table that is about to be replaced, by their folded names. Where the table does not fit its
/// checksum all that is said of it is forgotten: the replacement gets a checksum of its own, which must not cover damage.
pub(super) async fn described_columns(
    change: &mut Transaction<'_>,
    database: i64,
    name: &str,
) -> Result<BTreeMap<String, ColumnMetadata>, CatalogError> {
    let found: Option<(i64, i64)> =
        query_as("SELECT id, checksum FROM tables WHERE database_id = ? AND folded_name = ?")
            .bind(database)
            .bind(fold_name(name))
            .fetch_optional(&mut *change)
            .await?;
    let Some((table, checksum)) = found else {
        return Ok(BTreeMap::new());
    };
    let described = describe_tables(change, database, Some(table)).await?;
    let Some(rows) = described.get(&table).filter(|it| it.digest() == checksum) else {
        let sql = "UPDATE tables SET description = NULL, utype = NULL, table_index = NULL, expires_at = NULL WHERE id = ?";
        query(sql).bind(table).execute(change).await?;
        return Ok(BTreeMap::new());
    };
    let columns = rows.columns.iter();
    columns
        .map(|column| Ok((column.folded_name().to_owned(), column.metadata()?)))
        .collect()
}

/// Writes down what the columns of a table mean that was just loaded: what its files say, and beside it what was said before.
pub(super) async fn describe_columns(
    change: &mut Transaction<'_>,
    table: i64,
    spec: &TableSpec,
    mut before: BTreeMap<String, ColumnMetadata>,
    files: Option<&TableMetadata>,
) -> Result<(), CatalogError> {
    for column in &spec.columns {
        let folded = fold_name(&column.name);
        let before = before.remove(&folded).unwrap_or_default();
        let said = match files.and_then(|files| files.columns.get(&folded)) {
            Some(file) => combined(before, file),
            None => before,
        };
        if said != ColumnMetadata::default() {
            put_column(change, table, &folded, &said).await?;
        }
    }
    Ok(())
}
