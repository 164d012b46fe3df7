//! One data directory, opened for asking: the catalog, the tables as they are now, and their open files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::datatypes::SchemaRef;
use catalog::{Catalog, CatalogState, LoadId, Table, TableKind};
use sky::Chunker;
use store::{DecodedBlocks, LoadDir, OpenFiles, StoreError};

use crate::loaded_table::{LoadedTable, StoredTable};
use crate::{EngineError, loaded_table};

/// How many chunk files stay open between queries.
const OPEN_FILES: usize = 512;
/// Bytes of decoded columns that are kept where nobody says how many.
const USUAL_KEPT_BYTES: u64 = 64 << 20;
/// How often a table is looked up again when a newer load took its place between two looks.
const LOOKS: usize = 5;

/// A data directory that is asked questions. Shared by all sessions of a process.
pub struct Archive {
    data_dir: PathBuf,
    catalog: Catalog,
    files: OpenFiles,
    /// The latest load of each table that was asked for, by folded database and table name. An entry keeps that load's
    /// files in being, so it is replaced as soon as a newer load is seen.
    tables: Mutex<HashMap<(String, String), Known>>,
    /// Stored tables that plans from elsewhere refer to, kept by those plans.
    stored: Mutex<HashMap<LoadId, Weak<StoredTable>>>,
}

/// What a data directory takes of the machine, for whoever watches over it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Chunk files that are open.
    pub open_files: usize,
    /// Bytes of decoded columns and director indexes that are kept.
    pub cache_bytes: u64,
    /// Bytes of these that may be kept.
    pub cache_limit: u64,
    /// Pieces that have run to their end in this process, whatever directory they are of.
    pub pieces: u64,
}

/// A table as it was in a state of the catalog.
struct Known {
    state: Option<CatalogState>,
    table: Arc<LoadedTable>,
}

/// What has to be known of one load of a table to read its files without asking the catalog.
#[derive(Debug, Clone)]
pub(crate) struct StoredTableId {
    /// The database's declared name.
    pub database: String,
    /// The table's declared name.
    pub name: String,
    /// Its kind.
    pub kind: TableKind,
    /// The load.
    pub load: LoadId,
    /// How the database cuts the sky: stripes, and sub-stripes of each.
    pub stripes: (u32, u32),
    /// How many rows a query sees.
    pub rows: u64,
    /// What the files hold (see [`StoredTable::files_schema`]).
    pub files_schema: SchemaRef,
    /// See [`StoredTable::sorted_by`].
    pub sorted_by: Option<usize>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Archive({})", self.data_dir.display())
    }
}

impl Archive {
    /// Opens a data directory that exists, with a little memory for decoded columns.
    pub async fn open(data_dir: &Path) -> Result<Arc<Self>, EngineError> {
        Self::open_keeping(data_dir, USUAL_KEPT_BYTES).await
    }

    /// Opens a data directory that exists. Up to `bytes` of decoded columns and director indexes are kept in memory for later questions.
    pub async fn open_keeping(data_dir: &Path, bytes: u64) -> Result<Arc<Self>, EngineError> {
        let files = OpenFiles::new(OPEN_FILES).keeping(DecodedBlocks::new(bytes));
        Ok(Arc::new(Self {
            data_dir: data_dir.to_owned(),
            catalog: Catalog::open(data_dir).await?,
            files,
            tables: Mutex::default(),
            stored: Mutex::default(),
        }))
    }

    /// What exists.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The chunk files that are open.
    pub fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// What it takes now.
    pub fn usage(&self) -> Usage {
        let decoded = self.files.decoded();
        Usage {
            open_files: self.files.len(),
            cache_bytes: decoded.map_or(0, |it| it.num_bytes()),
            cache_limit: decoded.map_or(0, |it| it.budget()),
            pieces: crate::exec::pieces_run(),
        }
    }

    /// The table as it is now; `None` if there is none of that name. Names are matched without regard to case.
    pub async fn table(
        &self,
        database: &str,
        name: &str,
    ) -> Result<Option<Arc<LoadedTable>>, EngineError> {
        let folded = (catalog::fold_name(database), catalog::fold_name(name));
        let mut looks = 0;
        loop {
            looks += 1;
            // Read before the catalog is asked: what changes meanwhile is looked up once more the next time.
            let state = self.catalog.state();
            if let Some(known) = lock(&self.tables).get(&folded)
                && state.is_some()
                && known.state == state
            {
                return Ok(Some(Arc::clone(&known.table)));
            }
            let Some(table) = self.catalog.table(database, name).await? else {
                return Ok(None);
            };
            if let Some(known) = lock(&self.tables).get_mut(&folded)
                && known.table.table.load == table.load
            {
                known.state = state;
                return Ok(Some(Arc::clone(&known.table)));
            }
            match self.load(table).await {
                Ok(loaded) => {
                    let known = Known {
                        state,
                        table: Arc::clone(&loaded),
                    };
                    let before = lock(&self.tables).insert(folded, known);
                    if let Some(before) = before {
                        // Open files of a replaced load would keep their place on the disk.
                        self.files.forget(before.table.stored.dir.path());
                    }
                    return Ok(Some(loaded));
                }
                // Replaced and removed between the look-up and the opening.
                Err(EngineError::Store(StoreError::Missing { .. })) if looks < LOOKS => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn load(&self, table: Table) -> Result<Arc<LoadedTable>, EngineError> {
        let stored = self.stored(&table)?;
        let chunks = self.catalog.chunks(table.load).await?;
        Ok(Arc::new(LoadedTable::new(table, stored, chunks)?))
    }

    fn stored(&self, table: &Table) -> Result<Arc<StoredTable>, EngineError> {
        self.open_stored(StoredTableId {
            database: table.database.name.clone(),
            name: table.spec.name.clone(),
            kind: table.spec.kind,
            load: table.load,
            stripes: (table.database.stripes, table.database.sub_stripes),
            rows: table.rows,
            files_schema: loaded_table::files_schema(&table.spec),
            sorted_by: loaded_table::sorted_by(&table.spec),
        })
    }

    fn open_stored(&self, id: StoredTableId) -> Result<Arc<StoredTable>, EngineError> {
        let dir = LoadDir::open(&self.data_dir, &id.database, &id.name, id.load)?;
        Ok(Arc::new(StoredTable {
            schema: loaded_table::queried_schema(&id.files_schema, id.kind),
            database: id.database,
            name: id.name,
            kind: id.kind,
            load: id.load,
            chunker: Chunker::new(id.stripes.0, id.stripes.1)
                .map_err(|error| EngineError::Query(error.to_string()))?,
            files_schema: id.files_schema,
            sorted_by: id.sorted_by,
            rows: id.rows,
            dir,
            chunks: tokio::sync::OnceCell::new(),
        }))
    }

    /// The files of one load of a table, for a plan that was made elsewhere.
    pub(crate) fn stored_table(&self, id: StoredTableId) -> Result<Arc<StoredTable>, EngineError> {
        if let Some(current) = lock(&self.tables)
            .values()
            .find(|known| known.table.table.load == id.load)
        {
            return Ok(Arc::clone(&current.table.stored));
        }
        let mut known = lock(&self.stored);
        if let Some(stored) = known.get(&id.load).and_then(Weak::upgrade) {
            return Ok(stored);
        }
        let stored = self.open_stored(id)?;
        known.retain(|_, unused| unused.strong_count() > 0);
        known.insert(stored.load, Arc::downgrade(&stored));
        Ok(stored)
    }
}

/// A panic elsewhere leaves these maps whole: every change is a single insertion.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
