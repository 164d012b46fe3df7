//! The writer of an alert database: operations that wait are committed together.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::{mpsc, oneshot};
use tracing::{error, info};

use crate::definition::Definition;
use crate::error::{AlertsError, Result};
use crate::operation::{Operation, Outcome};
use crate::published::Recalled;
use crate::store::{Connection, Store};
use crate::transaction::Transaction;

/// Operations that are committed together.
const MOST_TOGETHER: usize = 64;
/// Rows after which no more operations are committed together.
const MANY_ROWS: usize = 50_000;

/// An operation that waits.
pub(crate) struct Job {
    pub(crate) operation: Arc<Operation>,
    /// What the archive has of the rows that it needs.
    pub(crate) recalled: Option<Recalled>,
    pub(crate) reply: oneshot::Sender<Result<Outcome>>,
}

/// The one that changes a database. Operations that wait are committed together: they share the wait for the disk.
pub(crate) struct Writer {
    pub(crate) name: String,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) definition: Arc<RwLock<Arc<Definition>>>,
    pub(crate) connection: Option<Box<dyn Connection>>,
}

impl Writer {
    pub(crate) async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(first) = jobs.recv().await {
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
        }
    }

    async fn commit(&mut self, jobs: Vec<Job>) {
        let was_idle = self.connection.is_none();
        let committed = self.try_commit(&jobs).await;
        // Whoever only publishes leaves the database to the server that stores into it.
        let closes = |job: &Job| {
            matches!(
                *job.operation,
                Operation::CloseEdition { .. } | Operation::Empty { .. }
            )
        };
        if was_idle && jobs.iter().all(closes) {
            self.connection = None;
        }
        let outcomes = match committed {
            Ok(outcomes) => outcomes,
            Err(AlertsError::Storage(failure)) if jobs.len() > 1 => {
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
                let again =
                    |_: &Job| Err(AlertsError::Storage(sqlx::Error::Protocol(told.clone())));
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
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert(self.store.writer().await?),
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

fn rows_of(operation: &Operation) -> usize {
    match operation {
        Operation::Store(request) => request.rows(),
        Operation::Follow(request) => request.rows(),
        _ => 0,
    }
}
