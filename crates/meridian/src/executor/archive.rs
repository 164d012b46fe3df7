//! Statements that this process executes on a data directory.

use std::sync::Arc;

use engine::{Archive, Session, SessionOptions};
use sql::Dialect;

use crate::failure::Failure;
use crate::sql::{SqlArgs, default_cache};
use crate::statements::{Executed, ResultWriter, rejected};
use crate::temporary::{TemporaryFolder, half_of_free};

/// A session of a data directory.
#[derive(Clone)]
pub struct ArchiveSession {
    /// The data directory.
    pub archive: Arc<Archive>,
    session: Arc<Session>,
    options: SessionOptions,
    _temporary: Option<Arc<TemporaryFolder>>,
}

impl ArchiveSession {
    pub(super) async fn open(args: &SqlArgs) -> Result<Self, Failure> {
        let cache = args.cache.unwrap_or_else(default_cache);
        let archive = Archive::open_keeping(args.data()?, cache).await?;
        let temporary = TemporaryFolder::of_data(args.data()?).map(Arc::new);
        let memory = args.memory.unwrap_or_else(ingest::default_memory) as usize;
        engine::bound_memory(&archive, memory);
        let options = SessionOptions {
            // Whoever runs the program may read its files.
            files: engine::FileAccess::Everything,
            database: args.db.clone(),
            cores: args.threads,
            dialect: args.dialect,
            memory: Some(memory),
            spilled: half_of_free(&tempfile::env::temp_dir()),
            ..SessionOptions::default()
        };
        let session = Session::new(Arc::clone(&archive), &options).await;
        let session = session.map_err(rejected(args.dialect))?;
        Ok(Self {
            archive,
            session: Arc::new(session),
            options,
            _temporary: temporary,
        })
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.options.dialect
    }

    pub(super) fn database(&self) -> Option<&str> {
        self.session.database()
    }

    pub(super) async fn choose(&mut self, database: &str) -> Result<(), Failure> {
        let options = SessionOptions {
            database: Some(database.to_owned()),
            ..self.options.clone()
        };
        let session = Session::new(Arc::clone(&self.archive), &options).await;
        self.session = Arc::new(session.map_err(rejected(self.dialect()))?);
        self.options = options;
        Ok(())
    }

    pub(super) async fn execute(
        &self,
        writer: &ResultWriter,
        text: &str,
        executed: &mut Executed,
    ) -> Result<(), Failure> {
        writer.execute(&self.session, text, executed).await
    }
}
