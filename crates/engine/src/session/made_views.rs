//! Views that are made and dropped.

use std::collections::HashSet;
use std::sync::Arc;

use catalog::{CatalogError, Position, TableKind, TableMetadata, View, ViewQuery, fold_name};
use datafusion::logical_expr::LogicalPlan;
use sql::{ErrorCode, SqlError};

use super::origins;
use super::view_columns::named_columns;
use super::views::{Definition, extended, of_planner};
use crate::archive::Views;
use crate::loaded_table::LoadedTable;
use crate::{Archive, EngineError};

/// A view that is to be made.
#[derive(Debug, Clone)]
pub struct NewView {
    /// The database, which is there.
    pub database: String,
    /// The view's name.
    pub name: String,
    /// The query, in MySQL's dialect.
    pub definition: String,
    /// The database in which tables are that the query names without one.
    pub default_database: Option<String>,
    /// The names of its columns; none to have those of the query's result.
    pub columns: Vec<String>,
    /// What the view has, in words.
    pub description: Option<String>,
    /// Whether it may take the place of a view.
    pub replace: bool,
}

/// Makes a view, if its definition can be planned. Its name is told.
///
/// # Errors
/// The definition cannot be planned, reads the view itself, or has two columns of one name or not as many as the list; there is no such
/// database, or something else has the name.
pub async fn create_view(archive: &Archive, new: NewView) -> Result<String, EngineError> {
    let whole = archive.whole();
    let catalog = whole.catalog();
    let Some(database) = catalog.database(&new.database).await? else {
        return Err(EngineError::NoDatabase {
            name: new.database,
            hint: "a view is made in a database that has tables".to_owned(),
        });
    };
    let mut view = View {
        id: 0,
        database: database.name,
        name: new.name,
        query: ViewQuery {
            definition: new
                .definition
                .trim()
                .trim_end_matches(';')
                .trim_end()
                .to_owned(),
            default_database: new.default_database,
            columns: vec![],
            headings: vec![],
            position: None,
        },
        metadata: TableMetadata {
            description: new.description,
            ..TableMetadata::default()
        },
        created_at: String::new(),
    };
    let path = extended(&Vec::new().into(), &view)?;
    let mut definition = Definition::plan(&whole, &view.query, Arc::clone(&path), None).await?;
    if let Some(qualified) = qualified(&view.query)
        && let Ok(same) = Definition::plan(&whole, &qualified, path, None).await
        && same.gives_columns_of(&definition)
    {
        (view.query, definition) = (qualified, same);
    }
    // What only shows when it is planned to run is told now, and not to readers.
    let planned = definition.state.create_physical_plan(&definition.plan);
    let planned = Box::pin(planned).await.map(drop);
    planned.map_err(|error| of_planner(&view.query.definition, &error))?;
    let names = named_columns(new.columns, &definition.headings)?;
    if let Some(twice) = named_twice(&names) {
        let sentence =
            format!("two columns of the view are called {twice}: give one another name with AS");
        let error = SqlError::new(sentence).with_code(ErrorCode::COLUMN_TWICE);
        return Err(error.into());
    }
    let views = whole.views().await?;
    view.query.position = position(&definition.plan, &names, &views);
    view.query.columns = names;
    view.query.headings = definition.headings;
    let made = catalog.create_view(
        &view.database,
        &view.name,
        &view.query,
        view.metadata.description.as_deref(),
        new.replace,
    );
    made.await.map_err(of_catalog)?;
    Ok(view.full_name())
}

/// Drops a view.
///
/// # Errors
/// There is none of that name.
pub async fn drop_view(archive: &Archive, database: &str, name: &str) -> Result<(), EngineError> {
    let dropped = archive.whole().catalog().drop_view(database, name).await;
    dropped.map_err(of_catalog)
}

/// An error of the catalog about a view, with its code.
fn of_catalog(error: CatalogError) -> EngineError {
    let code = match &error {
        CatalogError::NoView { .. } => ErrorCode::UNKNOWN_TABLE,
        CatalogError::ViewExists { .. } | CatalogError::TableInTheWay { .. } => {
            ErrorCode::TABLE_EXISTS
        }
        CatalogError::BadName { .. } | CatalogError::BadView { .. } => ErrorCode::BAD_COLUMN_NAME,
        _ => return error.into(),
    };
    SqlError::new(error.to_string()).with_code(code).into()
}

/// The query with the database written before each table that it names without one; `None` if there is nothing to write.
fn qualified(query: &ViewQuery) -> Option<ViewQuery> {
    let database = query.default_database.as_deref()?;
    let definition = sql::mysql::with_database(&query.definition, database)?;
    Some(ViewQuery {
        definition,
        ..query.clone()
    })
}

fn named_twice(names: &[String]) -> Option<&String> {
    let mut seen = HashSet::new();
    names.iter().find(|name| !seen.insert(fold_name(name)))
}

/// The columns that are the position of the rows of a partitioned table, if there is one pair of them.
fn position(plan: &LogicalPlan, headings: &[String], views: &Views) -> Option<Position> {
    let mut found: [Vec<(String, Arc<LoadedTable>)>; 2] = [vec![], vec![]];
    for (at, heading) in headings.iter().enumerate() {
        let Some((table, column)) = origins::origin(plan, at, views).and_then(|it| it.stored)
        else {
            continue;
        };
        let spec = table.spec();
        let position = spec.position.as_ref();
        let Some(position) = position.filter(|_| spec.kind != TableKind::Replicated) else {
            continue;
        };
        let is = |name: &str| fold_name(name) == column;
        for (place, name) in [&position.ra, &position.dec].into_iter().enumerate() {
            if is(name) {
                found[place].push((heading.clone(), Arc::clone(&table)));
            }
        }
    }
    match found.each_ref().map(Vec::as_slice) {
        [[(ra, of_ra)], [(dec, of_dec)]] if Arc::ptr_eq(of_ra, of_dec) => Some(Position {
            ra: ra.clone(),
            dec: dec.clone(),
        }),
        _ => None,
    }
}
