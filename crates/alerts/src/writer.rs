//! The writer of an alert database: operations that wait are committed together.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info};

use crate::definition::Definition;
use crate::error::{AlertsError, Result, StorageError};
use crate::operation::{Operation, Outcome};
use crate::published::RecalledRows;
use crate::store::{Connection, LONGEST_TURN, Store, TURN_LOOK};
use crate::transaction::Transaction;

/// Operations that are committed together.
const MOST_TOGETHER: usize = 64;
/// How often the writer looks whether another process has its turn.
const LOOK: Duration = Duration::from_millis(200);
/// Rows after which no more operations are committed together.
const MANY_ROWS: usize = 50_000;

/// An operation that waits.
pub(crate) struct Job {
    pub(crate) operation: Arc<Operation>,
    /// What the archive has of the rows that it needs.
    pub(crate) recalled: Option<RecalledRows>,
    pub(crate) reply: oneshot::Sender<Result<Outcome>>,
}

/// The one that changes a database. Operations that wait are committed together: they share the wait for the disk.
pub(crate) struct Writer {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) definition: Arc<RwLock<Arc<Definition>>>,
    pub(crate) connection: Option<Box<dyn Connection>>,
    /// Whether this process has a turn at writing.
    pub(crate) visits: Arc<AtomicBool>,
    /// Whether the connection was let go of because another process has its turn.
    pub(crate) gave_way: bool,
    /// When it was looked last whether one has.
    pub(crate) looked: Instant,
}

impl Writer {
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        loop {
            let first = match timeout(LOOK, jobs.recv()).await {
                Ok(Some(first)) => first,
                Ok(None) => return,
                Err(_) => {
                    self.give_way().await;
                    continue;
                }
            };
            let mut rows = rows_of(&first.operation);
            let mut together = vec![first];
            while together.len() < MOST_TOGETHER && rows < MANY_ROWS {
                // An operation that changes the schema is the last one of its group.
                if together
                    .iter()
                    .any(|job| matches!(*job.operation, Operation::SetSchema(_)))
                {
                    break;
                }
                let Ok(job) = jobs.try_recv() else {
                    break;
                };
                rows += rows_of(&job.operation);
                together.push(job);
            }
            self.commit(together).await;
            self.give_way().await;
        }
    }

    /// Lets another process change the database that has its turn.
    async fn give_way(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let Some(connection) = &mut self.connection else {
            return;
        };
        // A connection that fails is found out by the next operation.
        let is_wanted = self.store.is_wanted(connection.as_mut()).await;
        if is_wanted.is_ok_and(|it| it) {
            self.connection = None;
            self.gave_way = true;
        }
    }

    /// The only connection that changes anything. Whoever gave way waits until the other's turn is over, and whoever has a turn until the
    /// other has given way.
    async fn acquire(&mut self) -> Result<Box<dyn Connection>> {
        let give_up = Instant::now() + LONGEST_TURN;
        loop {
            let is_visit = self.visits.load(Ordering::Relaxed);
            let is_late = Instant::now() >= give_up;
            match self.store.writer().await {
                Ok(mut connection) => {
                    let is_wanted = !is_visit
                        && (self.store.is_wanted(connection.as_mut()).await).is_ok_and(|it| it);
                    if !is_wanted {
                        self.gave_way = false;
                        return Ok(connection);
                    }
                    self.gave_way = true;
                    drop(connection);
                    if is_late {
                        let name = self.name.clone();
                        return Err(AlertsError::InUse { name });
                    }
                    sleep(LOOK).await;
                }
                Err(AlertsError::InUse { .. }) if (self.gave_way || is_visit) && !is_late => {
                    sleep(TURN_LOOK).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn commit(&mut self, jobs: Vec<Job>) {
        let was_idle = self.connection.is_none();
        let committed = self.try_commit(&jobs).await;
        // Whoever only publishes leaves the database to the server that stores into it.
        let closes = |job: &Job| {
            matches!(
                *job.operation,
                Operation::CloseEdition { .. } | Operation::Empty { .. } | Operation::Reseed(_)
            )
        };
        if was_idle && jobs.iter().all(closes) {
            self.connection = None;
        }
        let outcomes = match committed {
            Ok(outcomes) => outcomes,
            Err(AlertsError::Storage(failure)) if jobs.len() > 1 && !is_of_connection(&failure) => {
                // One of them may be at fault: the others need not fail with it.
                info!(database = self.name, error = %failure, "operations are committed one by one");
                self.connection = None;
                for job in jobs {
                    Box::pin(self.commit(vec![job])).await;
                }
                return;
            }
            Err(failure) => {
                error!(database = self.name, error = %failure, "an alert database could not be changed");
                // What state the connection is in is not known.
                self.connection = None;
                let told = failure.to_string();
                let again = |_: &Job| Err(AlertsError::Storage(StorageError::Told(told.clone())));
                match failure {
                    AlertsError::InUse { .. } => {
                        let name = self.name.clone();
                        jobs.iter()
                            .map(|_| Err(AlertsError::InUse { name: name.clone() }))
                            .collect()
                    }
                    _ => jobs.iter().map(again).collect(),
                }
            }
        };
        for (job, outcome) in jobs.into_iter().zip(outcomes) {
            // A client that hung up does not wait for it.
            let _ = job.reply.send(outcome);
        }
    }

    /// Runs operations in one transaction, each in a savepoint, so that one that is refused leaves the others alone.
    async fn try_commit(&mut self, jobs: &[Job]) -> Result<Vec<Result<Outcome>>> {
        let definition = Arc::clone(
            &self
                .definition
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        );
        if self.connection.is_none() {
            self.connection = Some(self.acquire().await?);
        }
        let Some(connection) = &mut self.connection else {
            return Err(AlertsError::Ending);
        };
        let connection = connection.as_mut();
        let mut outcomes = Vec::with_capacity(jobs.len());
        let mut has_new_schema = false;
        connection.run("BEGIN").await?;
        for job in jobs {
            connection.run("SAVEPOINT operation").await?;
            let mut transaction = Transaction {
                connection,
                definition: &definition,
                asked: job.recalled.as_ref().map(|recalled| &recalled.needed),
            };
            let recalled = job.recalled.as_ref();
            let outcome = transaction.apply(&job.operation, recalled).await;
            match &outcome {
                Ok(_) => {
                    has_new_schema |= matches!(*job.operation, Operation::SetSchema(_));
                    connection.run("RELEASE SAVEPOINT operation").await?;
                }
                // Nothing can be said of the others either.
                Err(AlertsError::Storage(_)) => return outcome.map(|_| Vec::new()),
                Err(_) => {
                    connection
                        .run("ROLLBACK TO SAVEPOINT operation; RELEASE SAVEPOINT operation")
                        .await?;
                }
            }
            outcomes.push(outcome);
        }
        connection.run("COMMIT").await?;
        if has_new_schema {
            let definition = Definition::read(&self.name, connection).await?;
            info!(
                database = self.name,
                version = definition.schema.version(),
                "an alert database has another schema"
            );
            *self
                .definition
                .write()
                .unwrap_or_else(PoisonError::into_inner) = Arc::new(definition);
        }
        Ok(outcomes)
    }
}

/// Whether the database is at fault, and no operation: each of them would wait for it anew.
fn is_of_connection(failure: &StorageError) -> bool {
    match failure {
        StorageError::Postgres(sqlx::Error::Io(_) | sqlx::Error::Tls(_)) => true,
        // Classes of PostgreSQL: the connection failed, the server ends or begins.
        StorageError::Postgres(sqlx::Error::Database(error)) => {
            (error.code()).is_some_and(|code| code.starts_with("08") || code.starts_with("57P"))
        }
        _ => false,
    }
}

fn rows_of(operation: &Operation) -> usize {
    match operation {
        Operation::Store(request) => request.rows(),
        Operation::Follow(request) => request.rows(),
        _ => 0,
    }
}
