//! The peer's connections to PostgreSQL, each with the statement prepared.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use super::{PeerError, PlanMode};

/// A connection, and the cone search prepared on it.
struct Session {
    client: Client,
    statement: Statement,
}

/// How to reach the cluster, and as whom.
pub struct Cluster<'a> {
    /// The directory of its Unix socket.
    pub socket: &'a Path,
    pub user: &'a str,
    pub database: &'a str,
    pub plan: PlanMode,
}

/// Connections that wait for work. A request takes one, and waits for it if all are busy.
pub struct Pool {
    free: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Pool {
    /// Opens `size` connections and prepares `text` on each.
    ///
    /// # Errors
    /// PostgreSQL is not there, or does not understand the statement.
    pub async fn open(cluster: &Cluster<'_>, size: usize, text: &str) -> Result<Self, PeerError> {
        let mut config = Config::new();
        config
            .host_path(cluster.socket)
            .user(cluster.user)
            .dbname(cluster.database)
            .application_name("q3c-server")
            .options(session_options(cluster.plan));
        let mut idle = Vec::new();
        for _ in 0..size {
            let (client, connection) = config.connect(NoTls).await?;
            // It ends with an error when PostgreSQL does; whoever asks next is told so by the client.
            tokio::spawn(connection);
            let statement = client.prepare(text).await?;
            idle.push(Session { client, statement });
        }
        Ok(Self {
            free: Semaphore::new(size),
            idle: Mutex::new(idle),
        })
    }

    /// The statement as one of the connections has it prepared, which knows what its responses are made of.
    ///
    /// # Errors
    /// All connections are at work.
    pub fn statement(&self) -> Result<Statement, PeerError> {
        let idle = self.idle();
        let session = idle.first().ok_or(PeerError::Closed)?;
        Ok(session.statement.clone())
    }

    /// Asks for a cone, over whichever connection is free.
    ///
    /// # Errors
    /// What PostgreSQL says.
    pub async fn cone(&self, ra: f64, dec: f64, radius: f64) -> Result<Vec<Row>, PeerError> {
        let lent = self.lend().await?;
        let Session { client, statement } = lent.session.as_ref().ok_or(PeerError::Closed)?;
        Ok(client.query(statement, &[&ra, &dec, &radius]).await?)
    }

    async fn lend(&self) -> Result<PooledConnection<'_>, PeerError> {
        let permit = self.free.acquire().await.map_err(|_| PeerError::Closed)?;
        Ok(PooledConnection {
            session: self.idle().pop(),
            pool: self,
            _permit: permit,
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that is at work; it goes back when it is dropped.
struct PooledConnection<'a> {
    session: Option<Session>,
    pool: &'a Pool,
    _permit: SemaphorePermit<'a>,
}

impl Drop for PooledConnection<'_> {
    fn drop(&mut self) {
        // Before the permit, which is dropped after this.
        if let Some(session) = self.session.take() {
            self.pool.idle().push(session);
        }
    }
}

/// Settings with which short queries are quickest: nothing is compiled for them and no helper processes are started.
fn session_options(plan: PlanMode) -> String {
    let mode = match plan {
        PlanMode::Auto => "auto",
        PlanMode::Generic => "force_generic_plan",
        PlanMode::Custom => "force_custom_plan",
    };
    format!("-c jit=off -c max_parallel_workers_per_gather=0 -c plan_cache_mode={mode}")
}
