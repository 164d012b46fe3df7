//! A query whose client waits for its rows over HTTP: what the server knows of it while it runs, and when it has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use queries::{Protocol, QueryGuard};
use sql::{Connection, ErrorCode};
use users::Limit;

use super::query_api::Requester;
use crate::listener::Peer;
use crate::metrics::{self, QueryOutcome, QueryTimer, StatementKind};
use crate::process_list::TrackedTask;
use crate::query_log::QueryLogEntry;
use crate::usage::{TakenShare, UserPlaces};
use crate::{ClientError, Shared};

/// A query that runs. It is listed among the processes and the queries of the server until it is dropped.
pub(super) struct TrackedQuery {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: Connection,
    pub(super) statement: String,
    peer: Peer,
    work: TrackedTask,
    registered: QueryGuard,
    _taken: TakenShare,
    timer: QueryTimer,
    begun: Instant,
}

impl TrackedQuery {
    /// Registers a query.
    ///
    /// # Errors
    /// Its user has as many that run as they may.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        requester: Requester,
        database: Option<String>,
        statement: String,
    ) -> Result<Self, ClientError> {
        let taken = shared.usage.query()?;
        let begun = Instant::now();
        let kind = StatementKind::of(&statement);
        let Requester { user, peer } = requester;
        let work = shared.track_for(peer, &user, database.as_deref(), "Query", &statement);
        let work = work.within(shared.usage.seconds());
        let registered = shared.queries.registry().begin(
            &user,
            database.as_deref(),
            Protocol::Http,
            &statement,
            work.stop_token(),
            Some(Arc::new(UserPlaces(Arc::clone(&shared.usage)))),
        );
        let connection = Connection {
            id: work.connection_id(),
            user,
            host: peer.host(),
            server_info: shared.server_info_for_user(Arc::clone(&shared.server_info)),
            most_rows: shared.usage.limit(Limit::Rows),
            most_bytes: shared.usage.limit(Limit::Bytes),
            ..Connection::alone(database)
        };
        Ok(Self {
            _taken: taken,
            shared: Arc::clone(shared),
            connection,
            statement,
            peer,
            work,
            registered,
            timer: shared.metrics.begin(metrics::Protocol::Http, kind, begun),
            begun,
        })
    }

    /// The same, which may take no longer than this, nor than its user's queries may.
    pub(super) fn within(mut self, limit: Duration) -> Self {
        let of_user = self.shared.usage.seconds();
        if of_user.is_none_or(|most| limit < most) {
            self.work = self.work.within_or(limit, |limit| {
                let sentence = format!(
                    "the query took longer than its time_limit of {} s: give a longer one, or submit the query",
                    limit.as_secs_f64()
                );
                ClientError::new(ErrorCode::TIME_LIMIT, sentence)
            });
        }
        self
    }

    /// Runs the query's work, from which it is told to stop.
    ///
    /// # Errors
    /// Those of the work, or it was stopped.
    pub(super) async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        self.registered.execution().attach();
        self.work.run(work).await
    }

    /// Notes how the query has ended, after so many rows.
    pub(super) fn end<T>(self, outcome: &Result<T, ClientError>, rows: u64) {
        let error = outcome.as_ref().err();
        let ending = QueryOutcome::of_work(outcome);
        let took = self.begun.elapsed();
        self.timer.end(ending, took);
        let ended = QueryLogEntry {
            ending,
            took,
            rows,
            user: &self.connection.user,
            client: (self.peer, "http", u64::from(self.work.connection_id())),
            database: self.connection.database.as_deref(),
            error,
        };
        let audit = self.shared.authenticator.audit();
        ended.log(self.shared.slow, audit, || self.statement.clone());
        let query_error = error.cloned().map(Into::into);
        self.registered.end(rows, query_error.as_ref());
    }
}
