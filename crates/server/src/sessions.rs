//! The engine's sessions: one for each database, shared by all connections that use it.
//!
//! A session caches plans, so it outlives the connections.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    Archive, EngineError, FileAccess, NO_DATABASE, PieceDispatcher, ReceivedFiles, ResultCache,
    Session, SessionOptions, SystemTables,
};
use sql::Dialect;

/// What distinguishes sessions: the folded name of the database, whether statements may name files, and their dialect.
type SessionKey = (String, bool, Dialect);

/// The sessions of an archive, created on first use.
#[derive(Debug)]
pub(crate) struct Sessions {
    archive: Arc<Archive>,
    options: SessionOptions,
    /// Uploaded files that the server's own statements read.
    received: Arc<ReceivedFiles>,
    made: Mutex<HashMap<SessionKey, Arc<Session>>>,
}

impl Sessions {
    /// `memory` is shared by the sorts, groups and joins of all sessions, `spilled` are the bytes of disk beyond it; `system` has the server's tables; `dispatcher` has pieces run
    /// by the workers of a cluster; `results` are those that may answer statements.
    pub(crate) fn new(
        archive: Arc<Archive>,
        cores: NonZeroUsize,
        memory: usize,
        spilled: Option<u64>,
        system: Arc<dyn SystemTables>,
        dispatcher: Option<Arc<dyn PieceDispatcher>>,
        results: Option<Arc<ResultCache>>,
    ) -> Result<Self, EngineError> {
        let options = SessionOptions {
            cores: Some(cores),
            runtime: Some(engine::runtime(Some(memory), spilled)?),
            // A client need not have the right to read this machine's files.
            files: FileAccess::Nothing,
            system: Some(system),
            dispatcher,
            results,
            ..SessionOptions::default()
        };
        Ok(Self {
            archive,
            options,
            received: Arc::default(),
            made: Mutex::default(),
        })
    }

    /// The sessions of somebody who sees another archive and other tables of the server's. Memory and threads are shared.
    pub(crate) fn seen_with(&self, archive: Arc<Archive>, system: Arc<dyn SystemTables>) -> Self {
        let options = SessionOptions {
            system: Some(system),
            ..self.options.clone()
        };
        Self {
            archive,
            options,
            received: Arc::clone(&self.received),
            made: Mutex::default(),
        }
    }

    /// Tells the bytes on the disk that queries have spilled now, and how many there may be.
    pub(crate) fn spilled(&self) -> impl Fn() -> (u64, u64) + Send + Sync + 'static {
        let runtime = self.options.runtime.clone();
        move || {
            let disk = runtime.as_ref().map(|it| &it.disk_manager);
            disk.map_or((0, 0), |it| {
                (it.used_disk_space(), it.max_temp_directory_size())
            })
        }
    }

    /// The archive that they are sessions of.
    pub(crate) fn archive(&self) -> &Arc<Archive> {
        &self.archive
    }

    /// The uploaded files.
    pub(crate) fn received(&self) -> &Arc<ReceivedFiles> {
        &self.received
    }

    /// The names of the databases.
    pub(crate) async fn databases(&self) -> Result<Vec<String>, EngineError> {
        let databases = self.archive.catalog().databases().await?;
        Ok(databases
            .into_iter()
            .map(|database| database.name)
            .collect())
    }

    /// The database in which names without one are looked for where none is chosen: the only one that there is.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub(crate) async fn only_database(&self) -> Result<Option<String>, EngineError> {
        let mut names = self.databases().await?.into_iter();
        Ok(match (names.next(), names.next()) {
            (Some(only), None) => Some(only),
            _ => None,
        })
    }

    /// The session of a database, or of none. Creating one takes a processor; other connections do not wait for it.
    ///
    /// # Errors
    /// The database does not exist.
    pub(crate) async fn of(&self, database: Option<&str>) -> Result<Arc<Session>, EngineError> {
        self.of_dialect(database, Dialect::MySql).await
    }

    /// The session of a database, or of none, for statements of a dialect. Those of ADQL may name uploaded files, as tables come with them.
    ///
    /// # Errors
    /// The database does not exist.
    pub(crate) async fn of_dialect(
        &self,
        database: Option<&str>,
        dialect: Dialect,
    ) -> Result<Arc<Session>, EngineError> {
        let database = database.unwrap_or(NO_DATABASE);
        self.kept(database, dialect == Dialect::Adql, dialect).await
    }

    /// A session for statements of the server's own, which may name uploaded files.
    ///
    /// # Errors
    /// The database does not exist.
    pub(crate) async fn reading_files(&self, database: &str) -> Result<Arc<Session>, EngineError> {
        self.kept(database, true, Dialect::MySql).await
    }

    async fn kept(
        &self,
        database: &str,
        files: bool,
        dialect: Dialect,
    ) -> Result<Arc<Session>, EngineError> {
        let key = (database.to_ascii_lowercase(), files, dialect);
        if let Some(session) = self.all().get(&key) {
            return Ok(Arc::clone(session));
        }
        let access = match files {
            true => FileAccess::Received(Arc::clone(&self.received)),
            false => FileAccess::Nothing,
        };
        let options = SessionOptions {
            database: Some(database.to_owned()),
            files: access,
            dialect,
            ..self.options.clone()
        };
        let session = Session::new(Arc::clone(&self.archive), &options).await?;
        let mut all = self.all();
        // If two tasks created the session concurrently, both use the first.
        let session = all.entry(key).or_insert_with(|| Arc::new(session));
        Ok(Arc::clone(session))
    }

    /// The session of a database, or of none, if it exists already.
    pub(crate) fn made(&self, database: Option<&str>) -> Option<Arc<Session>> {
        let folded = database.unwrap_or(NO_DATABASE).to_ascii_lowercase();
        self.all().get(&(folded, false, Dialect::MySql)).cloned()
    }

    /// A panic in another thread leaves the map consistent, because every change is a single operation.
    fn all(&self) -> MutexGuard<'_, HashMap<SessionKey, Arc<Session>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
