//! The state that all requests share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use axum::http::StatusCode;
use catalog::{LoadId, View};
use engine::{Archive, ConeTable, LoadedTable};

use super::alerts::AlertDatabases;
use super::cone::{ColumnSelection, ServedTable};
use super::hats_catalogues::HatsFiles;
use super::problem::Problem;
use super::received_table::TableRoom;
use super::tap::TapJobs;
use crate::Shared;
use crate::authenticator::Principal;

/// The columns that cone searches return by default, by the folded names of database and table.
pub(crate) type ConfiguredColumns = HashMap<(String, String), Vec<String>>;

/// Selected columns by placement and verbosity, each with the table that they were selected of. Of that only the place in memory is kept,
/// by which another state of the table is told.
type Selections = HashMap<(LoadId, u8), (Weak<LoadedTable>, Arc<ColumnSelection>)>;

/// The state that all requests share.
#[derive(Debug)]
pub(crate) struct HttpState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) archive: Arc<Archive>,
    pub(crate) configured_columns: Arc<ConfiguredColumns>,
    pub(crate) lists: Arc<TableRoom>,
    pub(crate) jobs: Arc<TapJobs>,
    pub(crate) alerts: Arc<AlertDatabases>,
    pub(crate) hats: Arc<HatsFiles>,
    /// The selected columns of tables, by load and verbosity.
    chosen: Mutex<Selections>,
}

impl HttpState {
    pub(crate) fn new(
        shared: Arc<Shared>,
        archive: Arc<Archive>,
        configured_columns: ConfiguredColumns,
        lists: TableRoom,
        alerts: AlertDatabases,
    ) -> Self {
        let lists = Arc::new(lists);
        Self {
            jobs: Arc::new(TapJobs::open(
                Arc::clone(&shared.queries),
                Arc::clone(&lists),
            )),
            shared,
            archive,
            configured_columns: Arc::new(configured_columns),
            lists,
            alerts: Arc::new(alerts),
            hats: Arc::default(),
            chosen: Mutex::default(),
        }
    }

    /// The same for a user: over the archive and the sessions that they see.
    pub(crate) fn seen_by(&self, principal: &Principal) -> Self {
        Self {
            shared: Arc::new(self.shared.seen_by(principal)),
            archive: Arc::clone(&principal.archive),
            configured_columns: Arc::clone(&self.configured_columns),
            lists: Arc::new(self.lists.for_user(&principal.usage)),
            jobs: Arc::clone(&self.jobs),
            alerts: Arc::clone(&self.alerts),
            hats: Arc::clone(&self.hats),
            chosen: Mutex::default(),
        }
    }

    /// The view of this name, where no table has it.
    pub(crate) async fn view(
        &self,
        database: &str,
        name: &str,
    ) -> Result<Option<Arc<View>>, Problem> {
        match self.archive.table(database, name).await? {
            Some(_) => Ok(None),
            None => Ok(self.archive.view(database, name).await?),
        }
    }

    /// A table with positions, with the columns that a verbosity selects.
    pub(crate) async fn served(
        &self,
        database: &str,
        table: &str,
        verbosity: u8,
    ) -> Result<ServedTable, Problem> {
        let Some(found) = self.archive.table(database, table).await? else {
            if self.archive.view(database, table).await?.is_some() {
                return Err(Problem::not_found(format!(
                    "{database}.{table} is a view: lists of cones are searched in tables; search one cone at a time, or query the view in ADQL at /tap, or in SQL"
                )));
            }
            return Err(self.no_such(database, table).await?);
        };
        let Some(cones) = ConeTable::new(&self.archive, found) else {
            return Err(Problem::bad(format!(
                "{table} has no positions: cones can be searched in tables that were loaded with columns of right ascension and \
                 declination"
            )));
        };
        let chosen = self.chosen(&cones, verbosity)?;
        Ok(ServedTable { cones, chosen })
    }

    fn chosen(&self, cones: &ConeTable, verbosity: u8) -> Result<Arc<ColumnSelection>, Problem> {
        let table = cones.table();
        let key = (table.table.placement, verbosity);
        // What is said of its columns may have changed since.
        if let Some((of, known)) = self.known().get(&key)
            && std::ptr::eq(of.as_ptr(), Arc::as_ptr(table))
        {
            return Ok(Arc::clone(known));
        }
        let spec = cones.table().spec();
        let names = (
            catalog::fold_name(&spec.database),
            catalog::fold_name(&spec.name),
        );
        let named = self.configured_columns.get(&names).map(Vec::as_slice);
        let chosen = Arc::new(ColumnSelection::new(cones, named, verbosity)?);
        let mut known = self.known();
        // Entries of tables that were replaced are never used again.
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, (Arc::downgrade(table), Arc::clone(&chosen)));
        Ok(chosen)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Selections> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error for a table that does not exist.
    pub(super) async fn no_such(&self, database: &str, table: &str) -> Result<Problem, Problem> {
        let catalog = self.archive.catalog();
        if !catalog.rights().may_read_all_of(database) {
            let sentence = sql::denied_table(&format!("{database}.{table}"));
            return Ok(Problem::new(StatusCode::FORBIDDEN, sentence));
        }
        let listed = |names: Vec<String>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        if catalog
            .database(database)
            .await
            .map_err(internal)?
            .is_none()
        {
            let known = catalog.databases().await.map_err(internal)?;
            let known = known.into_iter().map(|database| database.name).collect();
            let known = listed(known);
            return Ok(Problem::not_found(format!(
                "there is no database {database}; there are: {known}"
            )));
        }
        let known = catalog.tables(database).await.map_err(internal)?;
        let known = known
            .into_iter()
            .filter(|table| table.spec.position.is_some());
        let known = listed(known.map(|table| table.spec.name).collect());
        Ok(Problem::not_found(format!(
            "{database} has no table {table}; its tables with positions are: {known}"
        )))
    }
}

/// How many tables the cache holds.
const MOST_KNOWN: usize = 10_000;

fn internal(error: catalog::CatalogError) -> Problem {
    engine::EngineError::from(error).into()
}
