//! The catalog in a schema of a PostgreSQL database, for several front ends over one data directory.
//!
//! A change locks the table `publications` at its start, so that it can wait for its turn but not fail half-way; reads take one snapshot
//! (`REPEATABLE READ`) and wait for nobody. All handles of one process on one data directory share their connections, the number of
//! publications (`watch`) and the locks (`locks`).

mod address;
mod database;
mod init;
mod io;
mod leases;
mod locks;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool, Postgres};

pub(crate) use self::address::{AddressFile, FILE_NAME};
pub use self::address::{DEFAULT_SCHEMA, PostgresAddress};
pub use self::database::SharedDatabase;
use self::leases::Leases;
pub use self::leases::{PartLease, PartRemoval};
use self::locks::Locks;
pub(crate) use self::locks::{Attempt, PostgresLock};
use self::watch::Watch;
use crate::CatalogError;
use crate::backend::CatalogBackend;
use crate::state::CatalogState;
use crate::statements::Transaction;

/// Connections of one process, besides those that listen, hold locks and leases.
const CONNECTIONS: u32 = 8;
/// How long a statement waits for one of them, and for the database to take it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long the sessions of others may take to end, and how often to look.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
const LEAVE_POLL: Duration = Duration::from_millis(50);

/// The handles of this process, by data directory and by what its file says.
static OPEN: Mutex<Vec<(PathBuf, AddressFile, Weak<Shared>)>> = Mutex::new(Vec::new());

/// What all handles of this process on one data directory have.
#[derive(Debug)]
struct Shared {
    file: AddressFile,
    pool: PgPool,
    watch: Watch,
    locks: Locks,
    leases: Leases,
}

/// A handle.
#[derive(Debug, Clone)]
pub(crate) struct PostgresCatalog {
    shared: Arc<Shared>,
}

impl PostgresCatalog {
    /// Opens the catalog that the file of a data directory names; `None` if it names none.
    pub(crate) async fn open(data_dir: &Path) -> Result<Option<Self>, CatalogError> {
        match AddressFile::read(data_dir)? {
            None => Ok(None),
            Some(file) => Ok(Some(Self::at(data_dir, file)?.checked().await?)),
        }
    }

    /// What a file says that does not count yet, or that was just read.
    pub(crate) fn of_file(data_dir: &Path, file: AddressFile) -> Result<Self, CatalogError> {
        Self::at(data_dir, file)
    }

    /// Sees that no other process has a session here. Those of processes that have just ended may take a moment to end.
    pub(crate) async fn expect_alone(&self, data_dir: &Path) -> Result<(), CatalogError> {
        let shared = Arc::clone(&self.shared);
        let is_alone = io::run(async move {
            // One connection for all: another one of this process would be taken for somebody else's.
            let mut connection = shared.connection().await?;
            init::expect_ours(&shared, &mut connection).await?;
            let give_up = Instant::now() + LEAVE_TIMEOUT;
            while shared.other_sessions(&mut connection).await? > 0 {
                if Instant::now() > give_up {
                    return Ok(false);
                }
                tokio::time::sleep(LEAVE_POLL).await;
            }
            Ok(true)
        });
        match is_alone.await? {
            true => Ok(()),
            false => Err(CatalogError::StillOpen {
                dir: data_dir.to_owned(),
            }),
        }
    }

    /// The same where the caller's thread may wait, without a look at the database.
    fn open_unseen(data_dir: &Path) -> Result<Option<Self>, CatalogError> {
        let file = AddressFile::read(data_dir)?;
        file.map(|file| Self::at(data_dir, file)).transpose()
    }

    fn at(data_dir: &Path, file: AddressFile) -> Result<Self, CatalogError> {
        let path = data_dir
            .canonicalize()
            .map_err(CatalogError::io("find", data_dir))?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(.., shared)| shared.strong_count() > 0);
        let same = { open.iter() }.find(|(of, said, _)| (of, said) == (&path, &file));
        if let Some(shared) = same.and_then(|(.., shared)| shared.upgrade()) {
            return Ok(Self { shared });
        }
        let shared = Arc::new(Shared::new(file.clone())?);
        open.push((path, file, Arc::downgrade(&shared)));
        Ok(Self { shared })
    }

    async fn checked(self) -> Result<Self, CatalogError> {
        let shared = Arc::clone(&self.shared);
        io::run(async move {
            let mut connection = shared.connection().await?;
            init::expect_ours(&shared, &mut connection).await
        })
        .await?;
        Ok(self)
    }

    /// Begins a transaction with this statement.
    async fn begin(&self, statement: &'static str) -> Result<Transaction<'static>, CatalogError> {
        let shared = Arc::clone(&self.shared);
        io::run(async move {
            let begun = shared.pool.begin_with(statement).await;
            Ok(Transaction::Postgres(
                begun.map_err(|error| shared.unreachable(error))?,
            ))
        })
        .await
    }
}

impl Shared {
    fn new(file: AddressFile) -> Result<Self, CatalogError> {
        let options = file.address.options()?;
        let connecting = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT);
        // A pool starts a task.
        let made = options.clone();
        let pool = io::block(async move { Ok(connecting.connect_lazy_with(made)) })?;
        Ok(Self {
            watch: Watch::default(),
            locks: Locks::new(options),
            leases: Leases::default(),
            file,
            pool,
        })
    }

    async fn connection(&self) -> Result<PoolConnection<Postgres>, CatalogError> {
        (self.pool.acquire().await).map_err(|error| self.unreachable(error))
    }

    /// How many sessions of this catalog other processes have.
    async fn other_sessions(&self, connection: &mut PgConnection) -> Result<i64, CatalogError> {
        let name = format!("meridian {}", self.file.address.schema());
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND application_name IN ($1, $1 || ' locks') AND pid <> pg_backend_pid()";
        Ok(sqlx::query_scalar(sql)
            .bind(name)
            .fetch_one(connection)
            .await?)
    }

    /// Says where the database is that does not answer.
    fn unreachable(&self, error: sqlx::Error) -> CatalogError {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut => {
                CatalogError::Unreachable {
                    address: self.file.address.to_string(),
                    error,
                }
            }
            error => error.into(),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.leases.end(self.pool.clone());
    }
}

#[async_trait]
impl CatalogBackend for PostgresCatalog {
    /// The connections are those of all handles of this process, and end with the last of them.
    async fn close(&self) {}

    fn state(&self) -> Option<CatalogState> {
        Watch::state(&self.shared)
    }

    fn upgraded_from(&self) -> Option<i64> {
        None
    }

    async fn begin_read(&self) -> Result<Transaction<'static>, CatalogError> {
        self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .await
    }

    async fn begin_write(&self) -> Result<Transaction<'static>, CatalogError> {
        // A statement sees what was committed before it began, so all that follow the lock see the last change.
        let mut change = self.begin("BEGIN ISOLATION LEVEL READ COMMITTED").await?;
        if let Transaction::Postgres(change) = &mut change {
            sqlx::query("LOCK TABLE publications IN SHARE ROW EXCLUSIVE MODE")
                .execute(&mut **change)
                .await?;
        }
        Ok(change)
    }

    async fn commit_publication(
        &self,
        change: Transaction<'static>,
        number: u64,
    ) -> Result<(), CatalogError> {
        let Transaction::Postgres(mut change) = change else {
            return Err(CatalogError::Backend(sqlx::Error::WorkerCrashed));
        };
        self.shared.locks.expect_held(&mut change).await?;
        sqlx::query("SELECT pg_notify($1, $2)")
            .bind(self.shared.file.address.channel())
            .bind(number.to_string())
            .execute(&mut *change)
            .await?;
        if let Err(error) = change.commit().await {
            self.shared.watch.forget();
            return Err(match error {
                sqlx::Error::Io(_) => CatalogError::Unsure,
                error => error.into(),
            });
        }
        self.shared.watch.note(number);
        Ok(())
    }

    /// PostgreSQL sees to references, and to its pages where it was made with checksums.
    async fn file_problems(
        &self,
        _snapshot: &mut Transaction<'_>,
    ) -> Result<Vec<String>, CatalogError> {
        Ok(Vec::new())
    }
}
