//! The tables that editions add parts to.
//!
//! `DiaObjectHome` is the director: an object's first version decides for ever where its rows are. The rows of the others that have an
//! object are its children, so that whatever is known of an object is in one piece.

use std::sync::Arc;

use alerts::{AlertDatabase, AlertSchema, AlertsError, EditionTable, names};
use catalog::{Catalog, Column, TableKind, fold_name};
use ingest::{LoadRequest, Progress, RowSource, load};

use super::PublicationError;
use super::rows::NoRows;

/// How the sky is cut: chunks of about four square degrees, so that the field of a camera touches few.
const STRIPES: u32 = 85;
const SUB_STRIPES: u32 = 12;

/// Makes the tables that are not there yet, without rows.
pub(super) async fn make(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
) -> Result<(), PublicationError> {
    for table in EditionTable::ALL {
        match catalog.table(database.name(), table.name()).await? {
            None => make_table(catalog, database, schema, table).await?,
            Some(found) => {
                let columns = &found.spec.columns;
                let is_there = |name: &str| {
                    let folded = fold_name(name);
                    columns
                        .iter()
                        .any(|it: &Column| fold_name(&it.name) == folded)
                };
                if !is_there(alerts::PUBLISHED) {
                    return Err(PublicationError::InTheWay {
                        database: database.name().to_owned(),
                        reason: format!(
                            "the archive has a table {} that is not of it: rename that one or drop it",
                            found.spec.name
                        ),
                    });
                }
            }
        }
    }
    Ok(())
}

async fn make_table(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
    table: EditionTable,
) -> Result<(), PublicationError> {
    let no_rows = Arc::new(NoRows(table.columns(schema)));
    let mut request = request(catalog, database.name(), table, no_rows);
    if table == EditionTable::Home {
        request.stripes = Some(STRIPES);
        request.sub_stripes = Some(SUB_STRIPES);
    }
    let made = load(request, Arc::new(Progress::default())).await;
    match made {
        Ok(_) => Ok(()),
        // Another process makes it at the same time.
        Err(error) => match catalog.table(database.name(), table.name()).await? {
            Some(_) => Ok(()),
            None => Err(error.into()),
        },
    }
}

/// The load of a table's rows.
pub(super) fn request(
    catalog: &Catalog,
    database: &str,
    table: EditionTable,
    rows: Arc<dyn RowSource>,
) -> LoadRequest {
    let mut request = LoadRequest::new(catalog.data_dir(), database, table.name());
    request.made = Some(rows);
    request.allow_empty = true;
    let (kind, has_position) = match table {
        EditionTable::Home => (TableKind::Director, true),
        EditionTable::Versions | EditionTable::Sources | EditionTable::Forced => {
            (TableKind::Child, true)
        }
        EditionTable::Ends
        | EditionTable::ReplacedVersions
        | EditionTable::ReplacedSources
        | EditionTable::WithdrawnForced => (TableKind::Child, false),
        EditionTable::ReplacedLooseSources | EditionTable::Edition => {
            (TableKind::Replicated, false)
        }
    };
    request.kind = Some(kind);
    if has_position {
        request.ra = Some(names::RA.to_owned());
        request.dec = Some(names::DEC.to_owned());
    }
    if kind != TableKind::Replicated {
        request.key = vec![names::DIA_OBJECT.to_owned()];
    }
    if kind == TableKind::Child {
        request.directors = vec![EditionTable::Home.name().to_owned()];
    }
    match table {
        EditionTable::Sources => {
            request.own_key = Some(names::DIA_SOURCE.to_owned());
            request.order = Some(names::MIDPOINT.to_owned());
        }
        EditionTable::Forced => request.order = Some(names::MIDPOINT.to_owned()),
        EditionTable::Versions | EditionTable::Ends => {
            request.order = Some(names::VALIDITY_START.to_owned());
        }
        _ => {}
    }
    request
}

/// The columns of a published table of rows of the schema, in their order there.
pub(super) async fn published_columns(
    catalog: &Catalog,
    database: &AlertDatabase,
    table: EditionTable,
) -> Result<Vec<String>, PublicationError> {
    let found = catalog.table(database.name(), table.name()).await?;
    let found = found.ok_or_else(|| {
        AlertsError::Conflict(format!(
            "{}.{} is not there any more",
            database.name(),
            table.name()
        ))
    })?;
    let columns = found.spec.columns.into_iter().map(|column| column.name);
    Ok(columns.filter(|name| name != alerts::PUBLISHED).collect())
}
