//! The views by which users read what is published: rows as they have become, or as they were at a time.
//!
//! Every table is joined by the object, so that whatever restricts an object or a region restricts all of them. What a row has become is
//! another row of the same table, and an anti-join leaves out those that are replaced; what happens to a row once (the end of a version, the
//! withdrawal of a forced source) is joined to it. `meridian_as_of()` leaves out whatever was published later.

use alerts::{AlertDatabase, AlertSchema, AlertTable, EditionTable, PUBLISHED, REPLACES, names};
use catalog::{Catalog, ChangedView, View, ViewQuery, fold_name};
use engine::{Archive, NewView, create_view};
use sql::AS_OF_FUNCTION;
use tracing::warn;

use super::PublicationError;
use super::tables::published_columns;
use super::{solar_system, words};

/// Makes the views that are not there yet.
pub(super) async fn make(
    archive: &Archive,
    database: &AlertDatabase,
    schema: &AlertSchema,
) -> Result<(), PublicationError> {
    let catalog = archive.catalog();
    for view in UserView::ALL {
        let name = view.name();
        if catalog.view(database.name(), name).await?.is_some() {
            continue;
        }
        if let Some(table) = catalog.table(database.name(), name).await? {
            return Err(PublicationError::InTheWay {
                database: database.name().to_owned(),
                reason: format!(
                    "the archive has a table {}, where the view of that name has to be: rename the table or drop it",
                    table.spec.name
                ),
            });
        }
        let published = published_columns(catalog, database, view.table()).await?;
        let columns = view.columns(schema, published);
        let since = database.reseeded().await?;
        let view = NewView {
            database: database.name().to_owned(),
            name: name.to_owned(),
            definition: view.definition(database.name(), &columns, since),
            default_database: Some(database.name().to_owned()),
            columns: Vec::new(),
            description: Some(view.description().to_owned()),
            replace: false,
        };
        create_view(archive, view).await?;
    }
    Ok(())
}

/// The views as they are to be when the tables have got the columns that the schema has and they have not. A column that is new comes behind
/// the others.
pub(super) async fn with_new_columns(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
) -> Result<Vec<ChangedView>, PublicationError> {
    let since = database.reseeded().await?;
    changed(catalog, database, schema, (since, since)).await
}

/// The views as they are to be when a release is shown, from a time in microseconds since 1970 (UTC) on: with all columns of the schema, and
/// without a state before.
pub(super) async fn of_release(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
    shown_us: i64,
) -> Result<Vec<ChangedView>, PublicationError> {
    let since = database.reseeded().await?;
    changed(catalog, database, schema, (since, Some(shown_us))).await
}

/// The views that get columns, or another first state.
async fn changed(
    catalog: &Catalog,
    database: &AlertDatabase,
    schema: &AlertSchema,
    (since, becomes): (Option<i64>, Option<i64>),
) -> Result<Vec<ChangedView>, PublicationError> {
    let mut changed = Vec::new();
    for view in UserView::ALL {
        let published = published_columns(catalog, database, view.table()).await?;
        let new = view.new_columns(schema, &published);
        if new.is_empty() && since == becomes {
            continue;
        }
        let Some(found) = catalog.view(database.name(), view.name()).await? else {
            continue;
        };
        let columns = &found.query.columns;
        if found.query.definition != view.definition(database.name(), columns, since) {
            // An operator has put another one in its place.
            warn!(
                view = found.full_name(),
                columns = new.join(", "),
                "a view of an alert database does not show new columns or a new release, since its definition was changed"
            );
            continue;
        }
        changed.push(view.changed(&found, schema, &new, becomes));
    }
    let solar_system = solar_system::changed(catalog, database, (since, becomes));
    changed.extend(solar_system.await?);
    Ok(changed)
}

/// A view that users read.
#[derive(Debug, Clone, Copy)]
pub(super) enum UserView {
    Objects,
    LatestObjects,
    Sources,
    Forced,
}

impl UserView {
    /// All of them.
    pub(super) const ALL: [Self; 4] = [
        Self::Objects,
        Self::LatestObjects,
        Self::Sources,
        Self::Forced,
    ];

    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Objects => AlertTable::DiaObject.name(),
            Self::LatestObjects => "DiaObjectLast",
            Self::Sources => AlertTable::DiaSource.name(),
            Self::Forced => AlertTable::DiaForcedSource.name(),
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Objects => {
                "Versions of objects; validityEndMjdTai is NULL of those that are valid for now"
            }
            Self::LatestObjects => "The versions of objects that are valid for now",
            Self::Sources => "Detections in difference images",
            Self::Forced => "Measurements at the positions of objects",
        }
    }

    const fn table(self) -> EditionTable {
        match self {
            Self::Objects | Self::LatestObjects => EditionTable::Versions,
            Self::Sources => EditionTable::Sources,
            Self::Forced => EditionTable::Forced,
        }
    }

    /// Whether it has a column of its table.
    fn shows(self, schema: &AlertSchema, name: &str) -> bool {
        match self {
            Self::LatestObjects => schema.latest().column(name).is_some(),
            _ => true,
        }
    }

    /// Its columns when it is made, of those that are published.
    fn columns(self, schema: &AlertSchema, published: Vec<String>) -> Vec<String> {
        let (Self::Objects | Self::LatestObjects) = self else {
            return published;
        };
        // The end, which is in another table, has its place of the schema.
        let is_there =
            |name: &&str| *name == names::VALIDITY_END || published.iter().any(|it| it == name);
        let declared = schema.table(AlertTable::DiaObject).columns.iter();
        declared
            .map(|column| column.name.as_str())
            .filter(|name| self.shows(schema, name))
            .filter(is_there)
            .map(str::to_owned)
            .collect()
    }

    /// Those that it gets, when its table gets those of the schema that are not published yet.
    fn new_columns(self, schema: &AlertSchema, published: &[String]) -> Vec<String> {
        let published: Vec<String> = published.iter().map(|name| fold_name(name)).collect();
        let columns = self.table().columns(schema);
        let names = columns.fields().iter().map(|field| field.name());
        names
            .filter(|name| *name != PUBLISHED && !published.contains(&fold_name(name)))
            .filter(|name| self.shows(schema, name))
            .cloned()
            .collect()
    }

    fn changed(
        self,
        before: &View,
        schema: &AlertSchema,
        new: &[String],
        since: Option<i64>,
    ) -> ChangedView {
        let columns = [before.query.columns.as_slice(), new].concat();
        ChangedView {
            database: before.database.clone(),
            name: before.name.clone(),
            query: ViewQuery {
                definition: self.definition(&before.database, &columns, since),
                headings: columns.clone(),
                columns,
                ..before.query.clone()
            },
            said: words::of_columns(schema, self, new),
        }
    }

    /// What it is made of, in these columns; there is no state before a time in microseconds since 1970 (UTC).
    fn definition(self, database: &str, columns: &[String], since: Option<i64>) -> String {
        without_states_before(self.any_state(database, columns), since)
    }

    fn any_state(self, database: &str, columns: &[String]) -> String {
        let version = &[names::DIA_OBJECT, names::VALIDITY_START][..];
        match self {
            Self::Objects | Self::LatestObjects => {
                let of_column = |name: &String| match name.as_str() {
                    names::VALIDITY_END => column("e", name),
                    name => column("s", name),
                };
                let shown: Vec<String> = columns.iter().map(of_column).collect();
                let end = joined(database, EditionTable::Ends, "e", version);
                let live = match self {
                    Self::LatestObjects => {
                        format!(" AND {} IS NULL", column("e", names::DIA_OBJECT))
                    }
                    _ => String::new(),
                };
                format!(
                    "SELECT {} FROM {} LEFT JOIN {end} WHERE {}{}{live}",
                    shown.join(", "),
                    table(database, self.table(), "s"),
                    published("s"),
                    not_replaced(database, EditionTable::ReplacedVersions, version),
                )
            }
            Self::Sources => sources(database, columns),
            Self::Forced => forced(database, columns),
        }
    }
}

/// A definition without a state before a time in microseconds since 1970 (UTC).
pub(super) fn without_states_before(definition: String, first: Option<i64>) -> String {
    match first {
        None => definition,
        Some(first) => definition.replace(
            &format!("{AS_OF_FUNCTION}()"),
            &format!("{AS_OF_FUNCTION}({first})"),
        ),
    }
}

/// The sources as they have become, in these columns.
pub(super) fn sources(database: &str, columns: &[String]) -> String {
    let shown: Vec<String> = columns.iter().map(|name| column("s", name)).collect();
    let keys = &[names::DIA_OBJECT, names::DIA_SOURCE];
    format!(
        "SELECT {} FROM {} WHERE {}{}{}",
        shown.join(", "),
        table(database, EditionTable::Sources, "s"),
        published("s"),
        not_replaced(database, EditionTable::ReplacedSources, keys),
        not_replaced(database, EditionTable::ReplacedLooseSources, &keys[1..]),
    )
}

/// The forced sources, in these columns.
pub(super) fn forced(database: &str, columns: &[String]) -> String {
    let can_withdraw = columns.iter().any(|name| name == names::WITHDRAWN);
    let shown: Vec<String> = columns
        .iter()
        .map(|name| match name == names::WITHDRAWN {
            true => format!(
                "COALESCE({}, {}) AS `{name}`",
                column("w", name),
                column("s", name)
            ),
            false => column("s", name),
        })
        .collect();
    let keys = &[names::DIA_OBJECT, names::VISIT, names::DETECTOR];
    let withdrawn = match can_withdraw {
        true => format!(
            " LEFT JOIN {}",
            joined(database, EditionTable::WithdrawnForced, "w", keys)
        ),
        false => String::new(),
    };
    format!(
        "SELECT {} FROM {}{withdrawn} WHERE {}",
        shown.join(", "),
        table(database, EditionTable::Forced, "s"),
        published("s"),
    )
}

pub(super) fn column(alias: &str, name: &str) -> String {
    format!("`{alias}`.`{name}`")
}

fn table(database: &str, table: EditionTable, alias: &str) -> String {
    format!("`{database}`.`{}` AS `{alias}`", table.name())
}

/// What of a table was published by the time of the state.
fn published(alias: &str) -> String {
    format!("{} <= {AS_OF_FUNCTION}()", column(alias, PUBLISHED))
}

fn equal(alias: &str, keys: &[&str]) -> String {
    let equal = |key: &&str| format!("{} = {}", column(alias, key), column("s", key));
    keys.iter().map(equal).collect::<Vec<_>>().join(" AND ")
}

/// A table of what happens to a row once.
fn joined(database: &str, of: EditionTable, alias: &str, keys: &[&str]) -> String {
    format!(
        "{} ON {} AND {}",
        table(database, of, alias),
        equal(alias, keys),
        published(alias)
    )
}

/// The condition that a row is not among those that are replaced.
fn not_replaced(database: &str, of: EditionTable, keys: &[&str]) -> String {
    format!(
        " AND NOT EXISTS (SELECT 1 FROM {} WHERE {} AND {} = {} AND {})",
        table(database, of, "r"),
        equal("r", keys),
        column("r", REPLACES),
        column("s", PUBLISHED),
        published("r")
    )
}
