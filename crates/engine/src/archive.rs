//! An open data directory: the catalog, the current tables, and their open files.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arrow::datatypes::SchemaRef;
use catalog::{
    Catalog, CatalogState, Chunk, Columns, LoadId, Releases, Rights, Table, TableKind, View,
    fold_name,
};
use futures::future::BoxFuture;
use sky::{ChunkId, Chunker};
use store::{
    ByteSource, DecodedBlocks, LoadDir, OpenFiles, StoreError, has_home, open_anywhere, open_here,
};

use crate::loaded_table::{LoadedTable, StoredTable};
use crate::open_file_limit::most_open_files;
use crate::stored_part::StoredPart;
use crate::tap_schema::KeptTapSchemas;
use crate::{EngineError, loaded_table};

/// Bytes of decoded columns that are cached by default.
const USUAL_KEPT_BYTES: u64 = 64 << 20;
/// Tables that are looked up at the same time, at most.
const LOOKING: usize = 64;
/// How often a table is looked up again if a newer load replaced it meanwhile.
const LOOKS: usize = 5;

/// A data directory on which queries are executed, as somebody with certain rights sees it. All sessions of a process share what is
/// open of it.
pub struct Archive {
    /// What there is for whoever asks.
    catalog: Catalog,
    opened: Arc<OpenArchive>,
}

/// What is open of a data directory, whoever asks.
struct OpenArchive {
    data_dir: PathBuf,
    /// All that there is.
    catalog: Catalog,
    files: OpenFiles,
    /// The latest list of parts of each table that was requested, by folded database and table name. An entry keeps these parts'
    /// files in being, so it is replaced as soon as a newer list is seen.
    tables: Mutex<HashMap<(String, String), CachedTable>>,
    /// Who looks tables up in the catalog, by a share of the tables each: those who ask for one at the same time look once.
    looking: [tokio::sync::Mutex<()>; LOOKING],
    /// All views, as they were in a state of the catalog.
    views: Mutex<Option<(CatalogState, Arc<Views>)>>,
    tap_schemas: KeptTapSchemas,
    /// Parts that somebody reads.
    parts: Mutex<HashMap<LoadId, Weak<StoredPart>>>,
    /// Of a worker: what it has of the parts of another directory.
    replicas: Option<Arc<dyn Replicas>>,
    /// Of a cluster's front end: who has the files that the directory has given up.
    holders: OnceLock<Arc<dyn FileHolders>>,
}

/// Views by their folded names of database and view.
pub(crate) type Views = BTreeMap<(String, String), Arc<View>>;

/// What a process has of the parts of another data directory, in the place of a catalog.
///
/// The files that it has lie where they would lie in that directory, and those that it lacks are read from who has them.
pub trait Replicas: std::fmt::Debug + Send + Sync {
    /// The chunks of a part.
    fn chunks(&self, part: LoadId) -> BoxFuture<'_, Result<Vec<Chunk>, EngineError>>;

    /// What a chunk file that is not here is read from; `file` is the chunk after which it is named.
    fn source(
        &self,
        part: LoadId,
        file: ChunkId,
    ) -> BoxFuture<'_, Result<Arc<dyn ByteSource>, StoreError>>;
}

/// Who has the chunk files that a data directory has given up.
pub trait FileHolders: std::fmt::Debug + Send + Sync {
    /// What such a file is read from: `path` is where it was, and `file` the chunk after which it is named.
    fn source<'a>(
        &'a self,
        path: &'a Path,
        part: LoadId,
        file: ChunkId,
    ) -> BoxFuture<'a, Result<Arc<dyn ByteSource>, StoreError>>;

    /// What a file is read from that is here: what is damaged of it comes from others that have it.
    fn with_others(
        &self,
        here: Arc<dyn ByteSource>,
        part: LoadId,
        file: ChunkId,
    ) -> Arc<dyn ByteSource>;
}

/// The resources that a data directory uses, for monitoring.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Chunk files that are open.
    pub open_files: usize,
    /// Bytes of decoded columns and director indexes that are kept.
    pub cache_bytes: u64,
    /// Bytes of these that are there for scans which read them at about the same time.
    pub shared_bytes: u64,
    /// Bytes of these that may be kept.
    pub cache_limit: u64,
    /// Pieces that have run to their end in this process, whatever directory they are of.
    pub pieces: u64,
}

/// A table in a state of the catalog.
struct CachedTable {
    state: Option<CatalogState>,
    table: Arc<LoadedTable>,
}

/// What has to be known of a table to read its files without asking the catalog for more than its chunks.
#[derive(Debug, Clone)]
pub(crate) struct StoredTableId {
    /// The database's declared name.
    pub database: String,
    /// The table's declared name.
    pub name: String,
    /// Its kind.
    pub kind: TableKind,
    /// Its parts, in the order in which they are read.
    pub parts: Vec<LoadId>,
    /// How the database cuts the sky: stripes, and sub-stripes of each.
    pub stripes: (u32, u32),
    /// How many rows a query sees.
    pub rows: u64,
    /// What the files hold (see [`StoredTable::files_schema`]).
    pub files_schema: SchemaRef,
    /// See [`StoredTable::sorted_by`].
    pub sorted_by: Option<usize>,
    /// See [`StoredTable::sorted_by_texts`].
    pub sorted_by_texts: Option<usize>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Archive({})", self.opened.data_dir.display())
    }
}

impl Archive {
    /// Opens a data directory that exists, with a little memory for decoded columns.
    pub async fn open(data_dir: &Path) -> Result<Arc<Self>, EngineError> {
        Self::open_keeping(data_dir, USUAL_KEPT_BYTES).await
    }

    /// Opens a data directory that exists. Up to `bytes` of decoded columns and director indexes are kept in memory for later queries.
    pub async fn open_keeping(data_dir: &Path, bytes: u64) -> Result<Arc<Self>, EngineError> {
        let catalog = Catalog::open(data_dir).await?;
        Ok(Self::of(data_dir, catalog, bytes, None))
    }

    /// Opens, and makes if need be, a directory for replicas of the parts of another one. No table has a name there.
    pub async fn open_replicas(
        data_dir: &Path,
        bytes: u64,
        replicas: Arc<dyn Replicas>,
    ) -> Result<Arc<Self>, EngineError> {
        let catalog = Catalog::open_or_create(data_dir).await?;
        Ok(Self::of(data_dir, catalog, bytes, Some(replicas)))
    }

    fn of(
        data_dir: &Path,
        catalog: Catalog,
        bytes: u64,
        replicas: Option<Arc<dyn Replicas>>,
    ) -> Arc<Self> {
        let opened = OpenArchive {
            data_dir: data_dir.to_owned(),
            catalog: catalog.clone(),
            files: OpenFiles::new(most_open_files(bytes)).keeping(DecodedBlocks::new(bytes)),
            tables: Mutex::default(),
            looking: std::array::from_fn(|_| tokio::sync::Mutex::default()),
            views: Mutex::default(),
            tap_schemas: KeptTapSchemas::default(),
            parts: Mutex::default(),
            replicas,
            holders: OnceLock::new(),
        };
        Arc::new(Self {
            catalog,
            opened: Arc::new(opened),
        })
    }

    /// The same archive as somebody with these rights sees it: other databases and tables do not exist, nor rows that are not released to
    /// them. What is open is shared.
    pub fn seen_with(&self, rights: Arc<Rights>, releases: Arc<Releases>) -> Arc<Self> {
        let catalog = self.opened.catalog.seen_with(rights);
        Arc::new(Self {
            catalog: catalog.released_by(releases),
            opened: Arc::clone(&self.opened),
        })
    }

    /// The same archive with all databases, tables and columns: for definitions of views. Rows that are not released to whoever asks are
    /// hidden from them by whatever road.
    pub(crate) fn whole(&self) -> Arc<Self> {
        let releases = Arc::clone(self.catalog.releases());
        Arc::new(Self {
            catalog: self.opened.catalog.released_by(releases),
            opened: Arc::clone(&self.opened),
        })
    }

    /// What exists for whoever asks.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The chunk files that are open.
    pub fn files(&self) -> &OpenFiles {
        &self.opened.files
    }

    /// Of a worker: what it has of the parts of another directory.
    pub(crate) fn replicas(&self) -> Option<&Arc<dyn Replicas>> {
        self.opened.replicas.as_ref()
    }

    /// Has the chunk files that the directory has given up read from who has them, and not through another process.
    pub fn read_from_holders(&self, holders: Arc<dyn FileHolders>) {
        // It is set once, when a front end starts.
        let _ = self.opened.holders.set(holders);
    }

    /// What a chunk file is read from that is at `path` if it is here.
    pub(crate) async fn source(
        &self,
        path: &Path,
        part: LoadId,
        file: ChunkId,
    ) -> Result<Arc<dyn ByteSource>, StoreError> {
        match (open_here(path), &self.opened.replicas) {
            (Err(StoreError::Missing { .. }), Some(replicas)) => replicas.source(part, file).await,
            (opened, _) => match (opened?, self.opened.holders.get()) {
                (Some(here), Some(holders)) => Ok(holders.with_others(here, part, file)),
                (Some(here), None) => Ok(here),
                (None, Some(holders)) if !has_home(path) => holders.source(path, part, file).await,
                (None, _) => open_anywhere(path).await,
            },
        }
    }

    /// What it takes now.
    pub fn usage(&self) -> Usage {
        let decoded = self.files().decoded();
        Usage {
            open_files: self.files().len(),
            cache_bytes: decoded.map_or(0, |it| it.num_bytes()),
            shared_bytes: decoded.map_or(0, |it| it.num_shared_bytes()),
            cache_limit: decoded.map_or(0, |it| it.budget()),
            pieces: crate::exec::pieces_run(),
        }
    }

    /// The table as it is now; `None` if whoever asks sees none of that name. Names are matched without regard to case.
    pub async fn table(
        &self,
        database: &str,
        name: &str,
    ) -> Result<Option<Arc<LoadedTable>>, EngineError> {
        let Some(columns) = self.catalog.rights().columns(database, name) else {
            return Ok(None);
        };
        let found = self.any_table(database, name).await?;
        let is_seen = |table: &Arc<LoadedTable>| {
            let mut all = table.spec().columns.iter();
            *columns == Columns::All || all.any(|column| columns.has(&column.name))
        };
        Ok(found.filter(is_seen))
    }

    /// The condition that the rows of a table meet which whoever asks may see; `None` if they may see all.
    pub fn release_of(&self, table: &LoadedTable) -> Option<&str> {
        let spec = table.spec();
        let releases = self.catalog.releases();
        releases.condition(&spec.database, &spec.name)
    }

    /// The columns of a table that whoever asks may read.
    pub fn columns_of(&self, table: &LoadedTable) -> &Columns {
        static NONE: Columns = Columns::Listed(BTreeSet::new());
        let spec = table.spec();
        let columns = self.catalog.rights().columns(&spec.database, &spec.name);
        columns.unwrap_or(&NONE)
    }

    /// The view of this name as it is now; `None` if whoever asks sees none of that name.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn view(&self, database: &str, name: &str) -> Result<Option<Arc<View>>, EngineError> {
        if !self.catalog.rights().may_read(database, name) {
            return Ok(None);
        }
        let views = self.views().await?;
        let found = views.get(&(fold_name(database), fold_name(name)));
        Ok(found.cloned())
    }

    pub(crate) fn kept_tap_schemas(&self) -> &KeptTapSchemas {
        &self.opened.tap_schemas
    }

    /// All views, whoever asks; those of which they may read some columns have these alone.
    pub(crate) async fn views(&self) -> Result<Arc<Views>, EngineError> {
        let all = self.all_views().await?;
        let rights = self.catalog.rights();
        let is_partial = |(database, name): &(String, String)| {
            matches!(rights.columns(database, name), Some(Columns::Listed(_)))
        };
        if **rights == Rights::All || !all.keys().any(is_partial) {
            return Ok(all);
        }
        let seen = all.iter().filter_map(|(names, view)| {
            let view = match is_partial(names) {
                true => Arc::new(rights.seen_view(View::clone(view))?),
                false => Arc::clone(view),
            };
            Some((names.clone(), view))
        });
        Ok(Arc::new(seen.collect()))
    }

    async fn all_views(&self) -> Result<Arc<Views>, EngineError> {
        let catalog = &self.opened.catalog;
        // The state is read before the catalog: a later change makes the next look-up read the catalog again.
        let state = catalog.state();
        if let Some((of, views)) = &*lock(&self.opened.views)
            && Some(*of) == state
        {
            return Ok(Arc::clone(views));
        }
        let views = catalog.views().await?.into_iter();
        let views = views.map(|view| {
            let names = (fold_name(&view.database), fold_name(&view.name));
            (names, Arc::new(view))
        });
        let views = Arc::new(views.collect::<Views>());
        *lock(&self.opened.views) = state.map(|state| (state, Arc::clone(&views)));
        Ok(views)
    }

    /// The same whoever asks: for what a table's own files are read by, as the index of its director.
    pub(crate) async fn any_table(
        &self,
        database: &str,
        name: &str,
    ) -> Result<Option<Arc<LoadedTable>>, EngineError> {
        let catalog = &self.opened.catalog;
        let folded = (fold_name(database), fold_name(name));
        if let Some(table) = self.known_table(&folded, catalog.state()) {
            return Ok(Some(table));
        }
        // Whoever was here before has found what all who wait want.
        let _turn = self.opened.looking[share_of(&folded)].lock().await;
        let mut looks = 0;
        loop {
            looks += 1;
            // The state is read before the catalog: a later change makes the next look-up read the catalog again.
            let state = catalog.state();
            if let Some(table) = self.known_table(&folded, state) {
                return Ok(Some(table));
            }
            let Some(table) = catalog.table(database, name).await? else {
                let dropped = lock(&self.opened.tables).remove(&folded);
                self.close_unused(dropped);
                return Ok(None);
            };
            if let Some(known) = lock(&self.opened.tables).get_mut(&folded)
                && known.table.table == table
            {
                known.state = state;
                return Ok(Some(Arc::clone(&known.table)));
            }
            match self.load(table).await {
                Ok(loaded) => {
                    let known = CachedTable {
                        state,
                        table: Arc::clone(&loaded),
                    };
                    let before = lock(&self.opened.tables).insert(folded, known);
                    self.close_unused(before);
                    return Ok(Some(loaded));
                }
                // Replaced and removed between the look-up and the opening.
                Err(EngineError::Store(StoreError::Missing { .. })) if looks < LOOKS => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A table that is known as it is in a state of the catalog.
    fn known_table(
        &self,
        folded: &(String, String),
        state: Option<CatalogState>,
    ) -> Option<Arc<LoadedTable>> {
        let tables = lock(&self.opened.tables);
        let known = tables.get(folded)?;
        (state.is_some() && known.state == state).then(|| Arc::clone(&known.table))
    }

    /// Closes the files of parts that are not shown any more: open, they would keep their place on the disk.
    fn close_unused(&self, before: Option<CachedTable>) {
        let Some(before) = before else {
            return;
        };
        let tables = lock(&self.opened.tables);
        let shown = tables.values().flat_map(|known| &known.table.stored.parts);
        let shown: HashSet<LoadId> = shown.map(|part| part.load).collect();
        for part in &before.table.stored.parts {
            if !shown.contains(&part.load) {
                self.files().forget(part.dir.path());
            }
        }
    }

    /// Lets go of tables that were dropped or changed since they were last requested, so that their files can be removed.
    ///
    /// # Errors
    /// One of them cannot be read from the catalog; the others are let go of all the same.
    pub async fn release_changed_tables(&self) -> Result<(), EngineError> {
        let state = self.catalog.state();
        let known: Vec<(String, String)> = {
            let tables = lock(&self.opened.tables);
            let changed = tables
                .iter()
                .filter(|(_, it)| state.is_none() || it.state != state);
            changed.map(|(name, _)| name.clone()).collect()
        };
        let mut outcome = Ok(());
        for (database, table) in known {
            outcome = outcome.and(self.any_table(&database, &table).await.map(drop));
        }
        outcome
    }

    async fn load(&self, table: Table) -> Result<Arc<LoadedTable>, EngineError> {
        let stored = self.stored(&table)?;
        Ok(Arc::new(LoadedTable::new(self, table, stored).await?))
    }

    fn stored(&self, table: &Table) -> Result<Arc<StoredTable>, EngineError> {
        self.stored_table(StoredTableId {
            database: table.database.name.clone(),
            name: table.spec.name.clone(),
            kind: table.spec.kind,
            parts: table.part_numbers(),
            stripes: (table.database.stripes, table.database.sub_stripes),
            rows: table.rows(),
            files_schema: loaded_table::files_schema(&table.spec),
            sorted_by: loaded_table::sorted_by(&table.spec),
            sorted_by_texts: loaded_table::sorted_by_texts(&table.spec),
        })
    }

    /// The files of a table with a list of parts, for one of the catalog or for a plan that was made elsewhere.
    pub(crate) fn stored_table(&self, id: StoredTableId) -> Result<Arc<StoredTable>, EngineError> {
        let part = |load| self.part(&id.database, &id.name, load);
        Ok(Arc::new(StoredTable {
            parts: (id.parts.iter().copied().map(part)).collect::<Result<_, _>>()?,
            schema: loaded_table::queried_schema(&id.files_schema, id.kind),
            database: id.database,
            name: id.name,
            kind: id.kind,
            chunker: Chunker::new(id.stripes.0, id.stripes.1)
                .map_err(|error| EngineError::internal(error.to_string()))?,
            files_schema: id.files_schema,
            sorted_by: id.sorted_by,
            sorted_by_texts: id.sorted_by_texts,
            rows: id.rows,
        }))
    }

    /// A part, which is opened once for all tables and plans that read it.
    fn part(
        &self,
        database: &str,
        table: &str,
        load: LoadId,
    ) -> Result<Arc<StoredPart>, EngineError> {
        let mut parts = lock(&self.opened.parts);
        if let Some(part) = parts.get(&load).and_then(Weak::upgrade) {
            return Ok(part);
        }
        let part = Arc::new(StoredPart {
            load,
            dir: LoadDir::open(&self.opened.data_dir, database, table, load)?,
            chunks: tokio::sync::OnceCell::new(),
            index: tokio::sync::OnceCell::new(),
        });
        parts.retain(|_, unused| unused.strong_count() > 0);
        parts.insert(load, Arc::downgrade(&part));
        Ok(part)
    }
}

/// Which of those who look tables up looks for a table.
fn share_of(folded: &(String, String)) -> usize {
    let mut hasher = DefaultHasher::new();
    folded.hash(&mut hasher);
    (hasher.finish() % LOOKING as u64) as usize
}

/// A panic elsewhere leaves these maps whole: every change is a single insertion.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
