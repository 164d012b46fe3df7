//! Databases and tables as DataFusion sees them.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use catalog::{Columns, TableKind, fold_name};
use datafusion::catalog::{
    CatalogProvider, CatalogProviderList, MemoryCatalogProviderList, SchemaProvider, Session,
    TableProvider,
};
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::datasource::{ViewTable, source_as_provider};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableScan, TableType};
use datafusion::physical_plan::ExecutionPlan;
use sql::{Dialect, NotFound, ParsedStatement, state_catalog};

use crate::error::external;
use crate::exec::{BarrierExec, TableScanExec};
use crate::information_schema::{INFORMATION_SCHEMA, InformationSchema};
use crate::loaded_table::LoadedTable;
use crate::plan_cache::with_first_values;
use crate::release::ReleaseCondition;
use crate::session::CATALOG;
use crate::session::view_states::has_states;
use crate::session::views::{self, PathView, ViewPath};
use crate::system_tables::SystemTables;
use crate::tap_schema::{TAP_SCHEMA, TapSchema};
use crate::{Archive, EngineError, NO_DATABASE};

/// All databases of an archive. Databases and tables are found by looking, so that those that are made meanwhile are there;
/// what there is, `information_schema` says.
#[derive(Debug, Clone)]
pub(crate) struct ArchiveCatalog {
    archive: Arc<Archive>,
    system: Option<Arc<dyn SystemTables>>,
    hidden_columns: bool,
    dialect: Dialect,
    /// The views whose definitions are being planned; in a definition there are no tables but those of the databases.
    path: ViewPath,
    /// The time of whose state views read published data.
    as_of: Option<i64>,
    /// Whether there is nothing but what has such states.
    is_state: bool,
}

impl ArchiveCatalog {
    /// The databases of an archive, and what a server adds to them.
    pub(crate) fn new(
        archive: Arc<Archive>,
        system: Option<Arc<dyn SystemTables>>,
        dialect: Dialect,
    ) -> Self {
        Self {
            archive,
            system,
            hidden_columns: false,
            dialect,
            path: Vec::new().into(),
            as_of: None,
            is_state: false,
        }
    }

    /// What the definition of the last view of a path can name.
    pub(crate) fn of_definition(
        archive: &Arc<Archive>,
        hidden_columns: bool,
        path: ViewPath,
        as_of: Option<i64>,
    ) -> Self {
        Self {
            archive: Arc::clone(archive),
            system: None,
            hidden_columns,
            dialect: Dialect::MySql,
            path,
            as_of,
            is_state: false,
        }
    }

    /// The same for one statement: with the columns that `*` leaves out if it names one of them, in the state that it reads.
    pub(crate) fn seen_by(&self, parsed: &ParsedStatement) -> Self {
        Self {
            hidden_columns: parsed.names_hidden_columns,
            as_of: parsed.as_of,
            ..self.clone()
        }
    }

    /// The same as a list of catalogues: with those of the other states that a statement names.
    pub(crate) fn with_states(self, parsed: &ParsedStatement) -> Arc<dyn CatalogProviderList> {
        let list = MemoryCatalogProviderList::new();
        for time in &parsed.states {
            let state = Self {
                as_of: Some(*time),
                is_state: true,
                ..self.clone()
            };
            list.register_catalog(state_catalog(*time), Arc::new(state));
        }
        list.register_catalog(CATALOG.to_owned(), Arc::new(self));
        Arc::new(list)
    }
}

impl CatalogProvider for ArchiveCatalog {
    fn schema_names(&self) -> Vec<String> {
        vec![INFORMATION_SCHEMA.to_owned(), TAP_SCHEMA.to_owned()]
    }

    fn schema(&self, name: &str) -> Option<Arc<dyn SchemaProvider>> {
        let archive = Arc::clone(&self.archive);
        // What these tell depends on who reads them: a view would tell everybody what its maker may see.
        if self.path.is_empty() && !self.is_state {
            if name == INFORMATION_SCHEMA {
                let system = self.system.clone();
                return Some(Arc::new(InformationSchema { archive, system }));
            }
            if name == TAP_SCHEMA {
                return Some(Arc::new(TapSchema { archive }));
            }
        }
        Some(Arc::new(ArchiveDatabase {
            tables: self.clone(),
            name: name.to_owned(),
        }))
    }
}

/// One database.
#[derive(Debug)]
pub(crate) struct ArchiveDatabase {
    tables: ArchiveCatalog,
    name: String,
}

#[async_trait]
impl SchemaProvider for ArchiveDatabase {
    fn table_names(&self) -> Vec<String> {
        Vec::new()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let ArchiveCatalog {
            archive,
            hidden_columns,
            dialect,
            path,
            as_of,
            is_state,
            ..
        } = &self.tables;
        let no_states = || NotFound::State.error(&self.name, name);
        if *is_state && [INFORMATION_SCHEMA, TAP_SCHEMA].contains(&self.name.as_str()) {
            return Err(no_states());
        }
        let table = archive.table(&self.name, name).await.map_err(external)?;
        if let Some(table) = table {
            if *is_state {
                return Err(no_states());
            }
            let table = ArchiveTable::try_new(archive, table, *hidden_columns)?;
            return Ok(Some(Arc::new(table)));
        }
        let Some(view) = archive.view(&self.name, name).await.map_err(external)? else {
            // A view that is being made is not there yet.
            return match PathView::named_within(path, &self.name, name) {
                Some(error) => Err(external(error)),
                None => Ok(None),
            };
        };
        let planned = views::planned(archive, &view, path, *dialect, *as_of).await;
        let plan = planned.map_err(external)?.plan;
        if *is_state && !has_states(archive, &view, &plan).await.map_err(external)? {
            return Err(no_states());
        }
        Ok(Some(Arc::new(ViewTable::new(plan, None))))
    }

    /// Tables are found by looking: what is not there is said by [`Self::table`].
    fn table_exist(&self, _: &str) -> bool {
        true
    }
}

impl ArchiveDatabase {
    /// The planner's error for a table that is not here, with what there is in other databases, if that helps.
    pub(crate) async fn not_found(
        &self,
        table: &str,
        error: DataFusionError,
    ) -> Result<DataFusionError> {
        let catalog = self.tables.archive.catalog();
        // Where no database is chosen, that is what is wrong.
        if self.name != NO_DATABASE && !catalog.rights().may_read_all_of(&self.name) {
            return Ok(NotFound::Denied.error(&self.name, table));
        }
        let databases = catalog.databases().await.map_err(external)?;
        let names: Vec<String> = databases
            .into_iter()
            .map(|database| database.name)
            .collect();
        let is_this = |name: &String| fold_name(name) == self.name;
        if !names.iter().any(is_this) {
            return Ok(NotFound::Database(names).error(&self.name, table));
        }
        let mut others = Vec::new();
        for name in names.into_iter().filter(|name| !is_this(name)) {
            let found = catalog.table(&name, table).await.map_err(external)?;
            let view = self.tables.archive.view(&name, table).await;
            let is_there = found.is_some() || view.map_err(external)?.is_some();
            others.extend(is_there.then_some(name));
        }
        Ok(match others.is_empty() {
            true => error,
            false => NotFound::TableBut(others).error(&self.name, table),
        })
    }
}

/// One table at one load.
#[derive(Debug)]
pub(crate) struct ArchiveTable {
    pub archive: Arc<Archive>,
    pub table: Arc<LoadedTable>,
    /// Its columns as the statement sees them: those that whoever asks may read.
    pub schema: SchemaRef,
    /// All columns that a statement could see.
    all: SchemaRef,
    /// The numbers of the columns among `all`.
    columns: Vec<usize>,
}

/// The column by which all rows of a table can be told apart: a director's key.
pub(crate) fn unique_key(scan: &TableScan) -> Option<String> {
    let provider = source_as_provider(&scan.source).ok()?;
    let spec = provider.downcast_ref::<ArchiveTable>()?.table.spec();
    let key = spec
        .key
        .as_ref()
        .filter(|_| spec.kind == TableKind::Director);
    key.map(|key| fold_name(key))
}

impl ArchiveTable {
    fn try_new(
        archive: &Arc<Archive>,
        table: Arc<LoadedTable>,
        hidden_columns: bool,
    ) -> Result<Self> {
        let all = match hidden_columns {
            true => table.schema_with_hidden(),
            false => Arc::clone(&table.stored.schema),
        };
        let seen = archive.columns_of(&table);
        let stored = table.stored.schema.fields().len();
        // The number of the chunk tells about where a row is.
        let position = table.spec().position.as_ref();
        let sees_place = *seen == Columns::All
            || position.is_some_and(|it| seen.has(&it.ra) && seen.has(&it.dec));
        let is_seen = |at: &usize| match *at < stored {
            true => seen.has(all.field(*at).name()),
            false => sees_place,
        };
        let columns: Vec<usize> = (0..all.fields().len()).filter(is_seen).collect();
        Ok(Self {
            archive: Arc::clone(archive),
            schema: Arc::new(all.project(&columns)?),
            table,
            all,
            columns,
        })
    }

    /// The condition of the rows that whoever asks may see, if that is not all of them.
    async fn release(
        &self,
        session: &dyn Session,
    ) -> std::result::Result<Option<ReleaseCondition>, EngineError> {
        let Some(condition) = self.archive.release_of(&self.table) else {
            return Ok(None);
        };
        let (archive, table) = (&self.archive, &self.table);
        let planned = Box::pin(ReleaseCondition::plan(archive, session, table, condition));
        planned.await.map(Some)
    }

    /// The numbers of columns among all of the table's.
    fn stored_columns(&self, projection: Option<&Vec<usize>>) -> Result<Vec<usize>> {
        let Some(projection) = projection else {
            return Ok(self.columns.clone());
        };
        let column = |at: &usize| match self.columns.get(*at) {
            Some(column) => Ok(*column),
            None => internal_err!("{} has no column {at}", self.table.spec().name),
        };
        projection.iter().map(column).collect()
    }
}

#[async_trait]
impl TableProvider for ArchiveTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Filters are given to the scan, which reads off them where the rows are; they are evaluated above it all the same.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // What the plan of a statement with parameters is estimated to touch.
        let estimated: Vec<Expr> = filters
            .iter()
            .map(with_first_values)
            .collect::<Result<_>>()?;
        let restriction = self.table.roles().restriction(&estimated);
        let homes = if self.table.spec().kind == TableKind::Match {
            2
        } else {
            1
        };
        let mut coverage = Vec::with_capacity(homes);
        for home in 0..homes {
            coverage.push(
                self.table
                    .coverage(&self.archive, &restriction, home)
                    .await
                    .map_err(external)?,
            );
        }
        let wanted = self.stored_columns(projection)?;
        let release = self.release(session).await.map_err(external)?;
        let read = match &release {
            Some(release) => release.columns_with(&wanted),
            None => wanted.clone(),
        };
        let scan = TableScanExec::try_new(
            Arc::clone(&self.archive),
            Arc::clone(&self.table),
            &self.all,
            Some(&read),
            coverage,
            restriction,
            filters,
        )?;
        let Some(release) = release else {
            return Ok(Arc::new(scan));
        };
        let condition = release.over(&scan.schema())?;
        let wanted = (0..wanted.len()).collect();
        let barrier = BarrierExec::try_new(Arc::new(scan), Some(condition), wanted)?;
        Ok(Arc::new(barrier))
    }
}
