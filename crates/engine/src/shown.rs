//! Tables and views alike, as lists of them show them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use catalog::{
    Column, ColumnMetadata, ColumnType, Database, LoadId, Rights, Table, TableKind, TableMetadata,
    TableSpec, View, combined, fold_name,
};
use sql::Dialect;

use crate::archive::Views;
use crate::session::Origin;
use crate::session::views::{self, PlannedView};
use crate::{Archive, EngineError};

/// A table, or a view as a table without rows of its own.
#[derive(Debug)]
pub struct ShownTable {
    /// The table; of a view its columns, and what is said of them where they are columns of tables.
    pub table: Table,
    /// The view, if it is one.
    pub view: Option<Arc<View>>,
    /// The view's definition, if whoever asks may know it: they may read what the view is made of.
    pub definition: Option<String>,
    /// Why the view cannot be read; it has no columns then.
    pub trouble: Option<EngineError>,
}

impl ShownTable {
    fn of_table(table: Table) -> Self {
        Self {
            table,
            view: None,
            definition: None,
            trouble: None,
        }
    }

    async fn of_view(
        archive: &Archive,
        database: &Database,
        view: &Arc<View>,
        views: &Views,
    ) -> Self {
        let path = Vec::new().into();
        let planned = views::planned(archive, view, &path, Dialect::MySql, None).await;
        let rights = archive.catalog().rights();
        let (columns, is_open, trouble) = match planned {
            Ok(planned) => {
                // The definition names the columns of the view, too.
                let is_whole = rights.may_read_whole(&view.database, &view.name);
                let is_open = is_whole && !views::reads_hidden(&planned.plan, rights);
                (columns(view, &planned, views), is_open, None)
            }
            Err(error) => (vec![], **rights == Rights::All, Some(error)),
        };
        let described = columns.iter().filter_map(|(column, said)| {
            let is_described = *said != ColumnMetadata::default();
            is_described.then(|| (fold_name(&column.name), said.clone()))
        });
        let metadata = TableMetadata {
            columns: described.collect(),
            ..view.metadata.clone()
        };
        let table = Table {
            id: 0,
            database: database.clone(),
            placement: LoadId(0),
            spec: TableSpec {
                database: view.database.clone(),
                name: view.name.clone(),
                kind: TableKind::Replicated,
                columns: columns.into_iter().map(|(column, _)| column).collect(),
                key: None,
                position: None,
                directors: vec![],
                scan_rating: 1,
            },
            metadata,
            expires_at: None,
            parts: vec![],
        };
        Self {
            table,
            view: Some(Arc::clone(view)),
            definition: is_open.then(|| view.query.definition.clone()),
            trouble,
        }
    }
}

/// The columns of a view, with what is said of them, or of the columns of tables that they are.
fn columns(view: &View, planned: &PlannedView, views: &Views) -> Vec<(Column, ColumnMetadata)> {
    let origins = views::column_origins(planned, views);
    let fields = planned.types.fields().iter().zip(origins);
    let columns = fields.zip(&view.query.columns);
    columns
        .map(|((field, origin), name)| {
            let ty = column_type(field.data_type());
            let stored = origin.as_ref().and_then(stored_column);
            let declared = stored.filter(|it| it.ty == ty).and_then(|it| it.declared);
            let column = Column {
                name: name.clone(),
                ty,
                nullable: field.is_nullable(),
                declared,
            };
            let of_origin = origin.map(said_of).unwrap_or_default();
            let said = match view.metadata.column(name) {
                Some(said) => combined(of_origin, said),
                None => of_origin,
            };
            (column, said)
        })
        .collect()
}

fn stored_column(origin: &Origin) -> Option<Column> {
    let (table, column) = origin.stored.as_ref()?;
    let mut columns = table.spec().columns.iter();
    columns.find(|it| fold_name(&it.name) == *column).cloned()
}

fn said_of(origin: Origin) -> ColumnMetadata {
    let (said, principal) = (origin.described, origin.principal);
    let word = |word: String| (!word.is_empty()).then_some(word);
    ColumnMetadata {
        description: word(said.description),
        unit: word(said.unit),
        ucd: word(said.ucd),
        utype: word(said.utype),
        xtype: word(said.xtype),
        principal,
        ..ColumnMetadata::default()
    }
}

/// What a column of this type is called; a type that no table has is shown as text.
fn column_type(ty: &DataType) -> ColumnType {
    ingest::column_type(ty).unwrap_or(ColumnType::Text)
}

impl Archive {
    /// The tables and views of a database, by name.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn shown_tables(&self, database: &str) -> Result<Vec<ShownTable>, EngineError> {
        let tables = self.catalog().tables(database).await?;
        let mut shown: Vec<ShownTable> = tables.into_iter().map(ShownTable::of_table).collect();
        let Some(database) = self.catalog().database(database).await? else {
            return Ok(shown);
        };
        let views = self.views().await?;
        for view in self.views_in(&database.name).await? {
            shown.push(ShownTable::of_view(self, &database, &view, &views).await);
        }
        shown.sort_by_cached_key(|shown| fold_name(&shown.table.spec.name));
        Ok(shown)
    }

    /// The views of a database, by name.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn views_in(&self, database: &str) -> Result<Vec<Arc<View>>, EngineError> {
        let (views, folded) = (self.views().await?, fold_name(database));
        let is_seen = |((of, name), _): &(&(String, String), &Arc<View>)| {
            *of == folded && self.catalog().rights().may_read(of, name)
        };
        let seen = views.iter().filter(is_seen);
        Ok(seen.map(|(_, view)| Arc::clone(view)).collect())
    }

    /// The table or view of this name; `None` if whoever asks sees none of that name.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn shown_table(
        &self,
        database: &str,
        name: &str,
    ) -> Result<Option<ShownTable>, EngineError> {
        if let Some(table) = self.catalog().table(database, name).await? {
            return Ok(Some(ShownTable::of_table(table)));
        }
        let (Some(view), Some(database)) = (
            self.view(database, name).await?,
            self.catalog().database(database).await?,
        ) else {
            return Ok(None);
        };
        let views = self.views().await?;
        let shown = ShownTable::of_view(self, &database, &view, &views).await;
        Ok(Some(shown))
    }
}
