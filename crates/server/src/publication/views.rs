//! The views by which users read what is published: rows as they have become, or as they were at a time.
//!
//! Every table is joined by the object, so that whatever restricts an object or a region restricts all of them. What a row has become is
//! another row of the same table, and an anti-join leaves out those that are replaced; what happens to a row once (the end of a version, the
//! withdrawal of a forced source) is joined to it. `meridian_as_of()` leaves out whatever was published later.

use std::sync::Arc;
use std::thread::Builder;

use alerts::{AlertDatabase, AlertTable, EditionTable, PUBLISHED, REPLACES, names};
use engine::{Archive, EngineError, NewView, create_view};
use sql::AS_OF_FUNCTION;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::PublicationError;
use super::tables::published_columns;

const STACK: usize = 32 << 20;

/// Makes the views that are not there yet.
pub(super) async fn make(
    archive: &Arc<Archive>,
    database: &AlertDatabase,
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
        let columns = published_columns(catalog, database, view.table()).await?;
        let view = NewView {
            database: database.name().to_owned(),
            name: name.to_owned(),
            definition: view.definition(database, &columns),
            default_database: Some(database.name().to_owned()),
            columns: Vec::new(),
            description: Some(view.description().to_owned()),
            replace: false,
        };
        on_large_stack(Arc::clone(archive), view).await?;
    }
    Ok(())
}

/// Makes a view on a thread of its own: planning takes more of the stack than threads of the network have.
async fn on_large_stack(archive: Arc<Archive>, view: NewView) -> Result<(), PublicationError> {
    let runtime = Handle::current();
    let (sender, receiver) = oneshot::channel();
    let make = move || {
        let made = runtime.block_on(create_view(&archive, view));
        // Whoever waits may have given up.
        let _ = sender.send(made);
    };
    let started = Builder::new()
        .name("meridian-view".to_owned())
        .stack_size(STACK)
        .spawn(make);
    let failed = |reason: String| EngineError::Query(format!("a view could not be made: {reason}"));
    started.map_err(|error| failed(error.to_string()))?;
    let made = receiver.await.map_err(|error| failed(error.to_string()))?;
    made?;
    Ok(())
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

    fn definition(self, database: &AlertDatabase, columns: &[String]) -> String {
        let version = &[names::DIA_OBJECT, names::VALIDITY_START][..];
        match self {
            Self::Objects | Self::LatestObjects => {
                let schema = database.schema();
                let latest = schema.latest();
                let is_shown = |name: &str| match self {
                    Self::LatestObjects => latest.column(name).is_some(),
                    _ => true,
                };
                // The end has its place of the schema.
                let declared = &schema.table(AlertTable::DiaObject).columns;
                let shown: Vec<String> = declared
                    .iter()
                    .map(|column| column.name.as_str())
                    .filter(|name| is_shown(name))
                    .filter_map(|name| match name {
                        names::VALIDITY_END => Some(column("e", name)),
                        name => (columns.iter().any(|it| it == name)).then(|| column("s", name)),
                    })
                    .collect();
                let end = joined(EditionTable::Ends, "e", version);
                let live = match self {
                    Self::LatestObjects => {
                        format!(" AND {} IS NULL", column("e", names::DIA_OBJECT))
                    }
                    _ => String::new(),
                };
                format!(
                    "SELECT {} FROM {} LEFT JOIN {end} WHERE {}{}{live}",
                    shown.join(", "),
                    table(self.table(), "s"),
                    published("s"),
                    not_replaced(EditionTable::ReplacedVersions, version),
                )
            }
            Self::Sources => sources(columns),
            Self::Forced => forced(columns),
        }
    }
}

/// The sources as they have become, in these columns.
pub(super) fn sources(columns: &[String]) -> String {
    let shown: Vec<String> = columns.iter().map(|name| column("s", name)).collect();
    let keys = &[names::DIA_OBJECT, names::DIA_SOURCE];
    format!(
        "SELECT {} FROM {} WHERE {}{}{}",
        shown.join(", "),
        table(EditionTable::Sources, "s"),
        published("s"),
        not_replaced(EditionTable::ReplacedSources, keys),
        not_replaced(EditionTable::ReplacedLooseSources, &keys[1..]),
    )
}

/// The forced sources, in these columns.
pub(super) fn forced(columns: &[String]) -> String {
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
            joined(EditionTable::WithdrawnForced, "w", keys)
        ),
        false => String::new(),
    };
    format!(
        "SELECT {} FROM {}{withdrawn} WHERE {}",
        shown.join(", "),
        table(EditionTable::Forced, "s"),
        published("s"),
    )
}

pub(super) fn column(alias: &str, name: &str) -> String {
    format!("`{alias}`.`{name}`")
}

fn table(table: EditionTable, alias: &str) -> String {
    format!("`{}` AS `{alias}`", table.name())
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
fn joined(of: EditionTable, alias: &str, keys: &[&str]) -> String {
    format!(
        "{} ON {} AND {}",
        table(of, alias),
        equal(alias, keys),
        published(alias)
    )
}

/// The condition that a row is not among those that are replaced.
fn not_replaced(of: EditionTable, keys: &[&str]) -> String {
    format!(
        " AND NOT EXISTS (SELECT 1 FROM {} WHERE {} AND {} = {} AND {})",
        table(of, "r"),
        equal("r", keys),
        column("r", REPLACES),
        column("s", PUBLISHED),
        published("r")
    )
}
