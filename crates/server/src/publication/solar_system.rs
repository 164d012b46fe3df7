//! `SSObject`: the objects of the solar system, to which sources belong by `ssObjectId`.
//!
//! If the schema has such a table, the archive gets it, without rows: orbits are not made by the pipelines that store here, and whoever
//! computes them loads them as a whole. It has no position that stays, so it is replicated, and joined to the sources of all chunks in each of
//! them. Without it in the schema there is a view of what the sources tell of their objects.

use std::sync::Arc;

use alerts::{AlertDatabase, AlertSchema, EditionTable, TableSchema, names};
use catalog::{Catalog, ChangedView, TableChange, TableKind, ViewQuery};
use engine::{Archive, NewView, create_view};
use ingest::{LoadRequest, Progress, load};

use super::PublicationError;
use super::rows::NoRows;
use super::tables::published_columns;
use super::views::{column, sources, without_states_before};
use super::words;

/// The name of the table or view.
const NAME: &str = "SSObject";
const DESCRIPTION: &str =
    "Objects of the solar system, by the sources that belong to them now and are not withdrawn";
/// The columns of the view, beside the number of the object: numbers of sources, the first and the last time.
const COUNT: &str = "nDiaSources";
const FIRST: &str = "firstDiaSourceMjdTai";
const LAST: &str = "lastDiaSourceMjdTai";

/// Makes the table or the view, unless something has its name.
pub(super) async fn make(
    archive: &Archive,
    database: &AlertDatabase,
    schema: &AlertSchema,
) -> Result<(), PublicationError> {
    let catalog = archive.catalog();
    let name = database.name();
    if is_there(catalog, name).await? {
        return Ok(());
    }
    if let Some(table) = schema.solar_system() {
        return make_table(catalog, database, schema, table).await;
    }
    let published = published_columns(catalog, database, EditionTable::Sources).await?;
    let can_withdraw = published.iter().any(|it| it == names::WITHDRAWN);
    let first = database.reseeded().await?;
    let view = NewView {
        database: name.to_owned(),
        name: NAME.to_owned(),
        definition: definition(name, can_withdraw, first),
        default_database: Some(name.to_owned()),
        columns: Vec::new(),
        description: Some(DESCRIPTION.to_owned()),
        replace: false,
    };
    match create_view(archive, view).await {
        // Another process makes it at the same time.
        Err(error) if !is_there(catalog, name).await? => Err(error.into()),
        _ => Ok(()),
    }
}

async fn is_there(catalog: &Catalog, database: &str) -> Result<bool, PublicationError> {
    Ok(catalog.table(database, NAME).await?.is_some()
        || catalog.view(database, NAME).await?.is_some())
}

async fn make_table(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
    table: &TableSchema,
) -> Result<(), PublicationError> {
    let mut request = LoadRequest::new(catalog.data_dir(), database.name(), NAME);
    request.made = Some(Arc::new(NoRows(table.arrow())));
    request.allow_empty = true;
    request.kind = Some(TableKind::Replicated);
    let made = load(request, Arc::new(Progress::default())).await;
    match made {
        Err(error) if !is_there(catalog, database.name()).await? => Err(error.into()),
        _ => words::describe_table(catalog, database, schema, NAME).await,
    }
}

/// The view as it is to be when the first state that can be read is another one; `None` if it is not there, or somebody else's.
pub(super) async fn changed(
    catalog: &Catalog,
    database: &AlertDatabase,
    (first, becomes): (Option<i64>, Option<i64>),
) -> Result<Option<ChangedView>, PublicationError> {
    let name = database.name();
    if first == becomes {
        return Ok(None);
    }
    let Some(found) = catalog.view(name, NAME).await? else {
        return Ok(None);
    };
    // Withdrawals may have come to the schema since it was made.
    let made = [true, false].into_iter();
    let mut made = made.filter(|can| found.query.definition == definition(name, *can, first));
    Ok(made.next().map(|can_withdraw| ChangedView {
        query: ViewQuery {
            definition: definition(name, can_withdraw, becomes),
            ..found.query.clone()
        },
        database: found.database.clone(),
        name: found.name.clone(),
        said: TableChange::default(),
    }))
}

/// What the view is made of.
fn definition(database: &str, can_withdraw: bool, first: Option<i64>) -> String {
    let mut read = vec![names::SS_OBJECT, names::MIDPOINT];
    let mut live = String::new();
    if can_withdraw {
        read.push(names::WITHDRAWN);
        live = format!(" AND {} IS NULL", column("o", names::WITHDRAWN));
    }
    let read: Vec<String> = read.into_iter().map(str::to_owned).collect();
    let (object, time) = (column("o", names::SS_OBJECT), column("o", names::MIDPOINT));
    let any_state = format!(
        "SELECT {object}, COUNT(*) AS `{COUNT}`, MIN({time}) AS `{FIRST}`, MAX({time}) AS `{LAST}` FROM ({}) AS `o` \
         WHERE {object} IS NOT NULL{live} GROUP BY {object}",
        sources(database, &read)
    );
    without_states_before(any_state, first)
}

#[cfg(test)]
mod tests {
    use sql::AS_OF_FUNCTION;

    use super::*;

    #[test]
    fn the_view_is_as_of_a_time() {
        let latest = definition("prompt", true, None);
        assert!(latest.contains(&format!("{AS_OF_FUNCTION}()")), "{latest}");
        let later = definition("prompt", true, Some(7));
        assert!(!later.contains(&format!("{AS_OF_FUNCTION}()")), "{later}");
        assert_eq!(later.replace("(7)", "()"), latest);
    }
}
