//! The sessions that answer: one for each database that is asked of, shared by all connections that have chosen it.
//!
//! A session knows what was asked before and how it was planned; so connections come and go and it stays.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    Archive, EngineError, FileAccess, NO_DATABASE, ReceivedFiles, Session, SessionOptions,
};

/// The sessions of an archive, made when they are first needed.
#[derive(Debug)]
pub(crate) struct Sessions {
    archive: Arc<Archive>,
    options: SessionOptions,
    /// Files that were sent to be read by statements of the server's own.
    received: Arc<ReceivedFiles>,
    /// By the folded name of the database, and whether their statements may name files.
    made: Mutex<HashMap<(String, bool), Arc<Session>>>,
}

impl Sessions {
    /// `memory` is for the sorts, groups and joins of all of them together.
    pub(crate) fn new(
        archive: Arc<Archive>,
        cores: NonZeroUsize,
        memory: usize,
    ) -> Result<Self, EngineError> {
        let options = SessionOptions {
            cores: Some(cores),
            runtime: Some(engine::runtime(Some(memory))?),
            // Whoever connects need not have a right to this machine's files.
            files: FileAccess::Nothing,
            ..SessionOptions::default()
        };
        Ok(Self {
            archive,
            options,
            received: Arc::default(),
            made: Mutex::default(),
        })
    }

    /// The files that were sent.
    pub(crate) fn received(&self) -> &Arc<ReceivedFiles> {
        &self.received
    }

    /// The databases that there are, by name.
    pub(crate) async fn databases(&self) -> Result<Vec<String>, EngineError> {
        let databases = self.archive.catalog().databases().await?;
        Ok(databases
            .into_iter()
            .map(|database| database.name)
            .collect())
    }

    /// The session for those who have chosen a database, or none. Making one takes a processor; nobody else waits for it.
    ///
    /// # Errors
    /// There is no such database.
    pub(crate) async fn of(&self, database: Option<&str>) -> Result<Arc<Session>, EngineError> {
        self.kept(database.unwrap_or(NO_DATABASE), false).await
    }

    /// A session for statements that the server itself writes: they may name files that were
    /// sent.
    ///
    /// # Errors
    /// There is no such database.
    pub(crate) async fn reading_files(&self, database: &str) -> Result<Arc<Session>, EngineError> {
        self.kept(database, true).await
    }

    async fn kept(&self, database: &str, files: bool) -> Result<Arc<Session>, EngineError> {
        let key = (database.to_ascii_lowercase(), files);
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
            ..self.options.clone()
        };
        let session = Session::new(Arc::clone(&self.archive), &options).await?;
        let mut all = self.all();
        // Where two have made it at once, the first is everybody's.
        let session = all.entry(key).or_insert_with(|| Arc::new(session));
        Ok(Arc::clone(session))
    }

    /// The session for those who have chosen a database, or none, if it is there already.
    pub(crate) fn made(&self, database: Option<&str>) -> Option<Arc<Session>> {
        let folded = database.unwrap_or(NO_DATABASE).to_ascii_lowercase();
        self.all().get(&(folded, false)).cloned()
    }

    /// A panic elsewhere leaves the list whole: every change is a single one.
    fn all(&self) -> MutexGuard<'_, HashMap<(String, bool), Arc<Session>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
