//! Which rows region files are made of: those of a table with positions, or the objects of an alert database.

use std::path::Path;
use std::sync::Arc;

use alerts::{AlertDatabase, AlertTable, EditionTable, names};
use catalog::{Position, Table, fold_name};
use engine::{Archive, NO_DATABASE, Session, SessionOptions};
use region_files::{Partitioning, Source};
use sql::Connection;

use crate::alert_archive::{last_edition, set_as_of};
use crate::failure::Failure;

/// The view with the latest versions of objects in fewer columns.
const LATEST: &str = "DiaObjectLast";

/// Rows with positions.
pub struct PositionedRows {
    /// Of what they are.
    pub source: Source,
    pub partitioning: Partitioning,
    /// A key by which they can be sorted.
    pub key: Option<String>,
    pub position: Position,
    /// Which of the table's rows.
    pub condition: Option<String>,
    /// How statements see the table.
    pub connection: Connection,
    /// The table as it was found, where it may change.
    found: Option<Table>,
}

impl PositionedRows {
    /// Finds the rows of a table of the options' database; of an alert database it need not be named.
    ///
    /// # Errors
    /// There is no such table, or its rows have no positions.
    pub async fn find(
        data: &Path,
        archive: &Arc<Archive>,
        options: &SessionOptions,
        table: Option<&str>,
    ) -> Result<Self, Failure> {
        let db = options.database.as_deref().unwrap_or(NO_DATABASE);
        let is_alert_database = alerts::list(data)?
            .iter()
            .any(|name| fold_name(name) == fold_name(db));
        let of_objects = [AlertTable::DiaObject.name(), LATEST];
        let named = table.unwrap_or(of_objects[0]);
        let view = of_objects
            .iter()
            .find(|view| is_alert_database && fold_name(view) == fold_name(named));
        if let Some(view) = view {
            let database = AlertDatabase::open(data, db).await?;
            return Self::of_objects(archive, options, &database, view).await;
        }
        match table {
            Some(table) => Self::of_table(archive, db, table).await,
            None => Err(Failure::new(format!(
                "{db} is no alert database: name a table of it with --table"
            ))),
        }
    }

    /// The latest versions of the live objects of an alert database, as of its last edition.
    async fn of_objects(
        archive: &Arc<Archive>,
        options: &SessionOptions,
        database: &AlertDatabase,
        view: &str,
    ) -> Result<Self, Failure> {
        let name = database.name();
        let nothing = || {
            Failure::new(format!(
                "nothing is published of {name}, so that there are no objects to write"
            ))
        };
        let catalog = archive.catalog();
        let editions = catalog.table(name, EditionTable::Edition.name()).await?;
        if editions.is_none_or(|table| table.rows() == 0) {
            return Err(nothing());
        }
        let cut = catalog.database(name).await?.ok_or_else(nothing)?;
        let session = Session::new(Arc::clone(archive), options).await?;
        let mut connection = Connection::alone(Some(name.to_owned()));
        let (edition, published_at) = last_edition(&session, &connection)
            .await?
            .ok_or_else(nothing)?;
        // What is published while this runs is not in it.
        set_as_of(&mut connection, &published_at)?;
        let is_open = format!("`{}` IS NULL", names::VALIDITY_END);
        Ok(Self {
            source: Source {
                database: name.to_owned(),
                table: view.to_owned(),
                edition: Some(edition),
                published_at: Some(published_at),
                parts: Vec::new(),
            },
            partitioning: Partitioning {
                stripes: cut.stripes,
                sub_stripes: cut.sub_stripes,
            },
            key: Some(names::DIA_OBJECT.to_owned()),
            position: Position {
                ra: names::RA.to_owned(),
                dec: names::DEC.to_owned(),
            },
            condition: (view != LATEST).then_some(is_open),
            connection,
            found: None,
        })
    }

    /// All rows of a table of any database.
    async fn of_table(archive: &Archive, db: &str, name: &str) -> Result<Self, Failure> {
        let Some(found) = archive.table(db, name).await? else {
            return Err(Failure::new(match archive.view(db, name).await? {
                Some(_) => format!(
                    "{db}.{name} is a view, whose rows have no place of their own: name the table that it reads"
                ),
                None => format!("there is no table {db}.{name}"),
            }));
        };
        let table = found.table.clone();
        let spec = &table.spec;
        let Some(position) = spec.position.clone() else {
            return Err(Failure::new(format!(
                "{} is a {} table, whose rows have no position",
                spec.full_name(),
                spec.kind
            )));
        };
        Ok(Self {
            source: Source {
                database: spec.database.clone(),
                table: spec.name.clone(),
                parts: table.parts.iter().map(|part| part.load.0).collect(),
                ..Source::default()
            },
            partitioning: Partitioning {
                stripes: table.database.stripes,
                sub_stripes: table.database.sub_stripes,
            },
            key: spec.key.clone(),
            position,
            condition: None,
            connection: Connection::alone(Some(spec.database.clone())),
            found: Some(table),
        })
    }

    /// The table's name in messages.
    pub fn name(&self) -> String {
        format!("{}.{}", self.source.database, self.source.table)
    }

    /// Sees that the table has the rows that it had when it was found.
    ///
    /// # Errors
    /// It has others.
    pub async fn check_unchanged(&self, archive: &Archive) -> Result<(), Failure> {
        let Some(table) = &self.found else {
            return Ok(());
        };
        let now = archive
            .table(&table.spec.database, &table.spec.name)
            .await?;
        let is_same = now.is_some_and(|now| {
            let now = &now.table;
            (now.id, now.placement, now.origins()) == (table.id, table.placement, table.origins())
        });
        match is_same {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{} has changed meanwhile: repeat the command",
                self.name()
            ))),
        }
    }
}
