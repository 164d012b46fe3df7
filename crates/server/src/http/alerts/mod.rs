//! The alert databases over HTTP: what pipelines store and read every 39 seconds at night.
//!
//! Rows travel as Arrow streams, everything else as JSON. Pages of other sites cannot read these responses: they have no header of CORS.

mod body;
mod changes;
mod reads;

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

use ::alerts::{AlertDatabase, AlertsError};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post, put};
use engine::Archive;
use ingest::BytePool;
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Mutex, OnceCell};
use tracing::error;

use super::HttpState;
use super::problem::Problem;
use crate::background_threads::BackgroundThreads;
use crate::publication::{
    ArchiveRows, Following, PublicationError, PublicationStatus, PublishedEdition, Publishing,
    empty_store, publish,
};

/// The share of the memory for queries that the bodies of requests may take.
const SHARE_OF_BODIES: u64 = 4;
const LEAST_BODIES: u64 = 64 << 20;

/// The alert databases of a data directory, each opened when it is asked for first.
#[derive(Debug)]
pub(crate) struct AlertDatabases {
    data: PathBuf,
    opened: Mutex<HashMap<String, Arc<OnceCell<Arc<AlertDatabase>>>>>,
    /// The memory for the bodies of requests.
    bodies: Arc<BytePool>,
    /// The archive in which they are published, as its owner sees it.
    archive: Arc<Archive>,
    /// Held by whoever publishes.
    turn: Mutex<()>,
    /// What was published.
    pub(crate) publishing: Publishing,
    /// What was read of databases that are followed.
    pub(crate) following: Following,
    /// What only the archive has.
    rows: Arc<ArchiveRows>,
    /// What pipelines ask for is done on these, and publications, and what is read of databases that are followed.
    threads: BackgroundThreads,
}

impl AlertDatabases {
    /// Those beside an archive, in a server that may use so many bytes of memory for queries and so many threads.
    pub(crate) fn new(
        archive: &Arc<Archive>,
        rows: ArchiveRows,
        memory: u64,
        threads: NonZeroUsize,
    ) -> Self {
        Self {
            threads: BackgroundThreads::new("meridian-alerts", threads.get()).lowered(),
            rows: Arc::new(rows),
            data: archive.catalog().data_dir().to_owned(),
            archive: Arc::clone(archive),
            turn: Mutex::default(),
            publishing: Publishing::default(),
            following: Following::default(),
            opened: Mutex::default(),
            bodies: BytePool::new((memory / SHARE_OF_BODIES).max(LEAST_BODIES)),
        }
    }

    /// Does work on the threads of the alert databases, until nobody waits for it.
    ///
    /// # Errors
    /// The system cannot start them, or they have ended.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        self.threads.run(work).await
    }

    /// The database of a name, opened.
    pub(crate) async fn database(&self, name: &str) -> Result<Arc<AlertDatabase>, AlertsError> {
        // Names that are none are not kept.
        if !self.names()?.iter().any(|known| known == name) {
            return Err(AlertsError::NoDatabase {
                name: name.to_owned(),
            });
        }
        let cell = Arc::clone(self.opened.lock().await.entry(name.to_owned()).or_default());
        // Its connections and what writes into it belong to the threads that open it.
        let (data, name) = (self.data.clone(), name.to_owned());
        let open = || async move {
            let opened = self.run(async move { AlertDatabase::open(&data, &name).await });
            let opened = opened.await.map_err(|_| AlertsError::Ending)??;
            Ok(Arc::new(opened.with_archive(Arc::clone(&self.rows) as _)))
        };
        cell.get_or_try_init(open).await.cloned()
    }

    pub(crate) fn names(&self) -> Result<Vec<String>, AlertsError> {
        ::alerts::list(&self.data)
    }

    /// Publishes what is closed by now, one at a time, and removes from the store what is published and old.
    pub(crate) async fn publish(
        &self,
        database: &Arc<AlertDatabase>,
    ) -> Result<Vec<PublishedEdition>, PublicationError> {
        let _turn = self.turn.lock().await;
        let outcome = publish(&self.archive, database).await;
        if outcome.is_ok() {
            let emptied = empty_store(self.archive.catalog(), database).await;
            self.publishing.note_emptying(database.name(), emptied);
        }
        let status = self.status(database).await?;
        self.publishing.note(database.name(), status);
        outcome
    }

    /// What is published of a database, and what waits.
    pub(crate) async fn status(
        &self,
        database: &AlertDatabase,
    ) -> Result<PublicationStatus, PublicationError> {
        PublicationStatus::of(self.archive.catalog(), database).await
    }
}

/// The routes, whose requests are done on the threads of the alert databases: a read merges tens of thousands of rows.
pub(super) fn routes(state: &Arc<HttpState>) -> Router<Arc<HttpState>> {
    Router::new()
        .route("/alerts", get(reads::list))
        .route("/alerts/{database}", get(reads::describe))
        .route(
            "/alerts/{database}/schema",
            get(reads::schema).put(changes::set_schema),
        )
        .route("/alerts/{database}/metadata", get(reads::metadata))
        .route(
            "/alerts/{database}/metadata/{key}",
            put(changes::set_metadata).delete(changes::delete_metadata),
        )
        .route(
            "/alerts/{database}/objects/latest",
            post(reads::latest_objects),
        )
        .route(
            "/alerts/{database}/objects/since",
            post(reads::objects_since),
        )
        .route(
            "/alerts/{database}/objects/of-one-source",
            get(reads::objects_of_one_source),
        )
        .route(
            "/alerts/{database}/objects/close",
            post(changes::close_objects),
        )
        .route("/alerts/{database}/sources", post(reads::sources))
        .route(
            "/alerts/{database}/sources/withdraw",
            post(changes::withdraw_sources),
        )
        .route(
            "/alerts/{database}/sources/to-solar-system",
            post(changes::reassign_to_solar_system),
        )
        .route(
            "/alerts/{database}/sources/to-objects",
            post(changes::reassign_to_objects),
        )
        .route(
            "/alerts/{database}/forced-sources",
            post(reads::forced_sources),
        )
        .route(
            "/alerts/{database}/forced-sources/withdraw",
            post(changes::withdraw_forced_sources),
        )
        .route("/alerts/{database}/publish", post(changes::publish))
        .route("/alerts/{database}/follow", post(changes::follow))
        .route("/alerts/{database}/store", post(changes::store))
        .route(
            "/alerts/{database}/visits/{visit}/{detector}",
            get(reads::contains),
        )
        .route(
            "/alerts/{database}/deduplication/reset",
            post(changes::reset_deduplication),
        )
        .route("/alerts/{database}/updates", post(changes::append_updates))
        .route(
            "/alerts/{database}/replica-chunks",
            get(reads::replica_chunks),
        )
        .route(
            "/alerts/{database}/replica-chunks/rows",
            post(reads::rows_of_chunks),
        )
        .route(
            "/alerts/{database}/replica-chunks/updates",
            post(reads::updates_of_chunks),
        )
        .route(
            "/alerts/{database}/replica-chunks/delete",
            post(changes::delete_replica_chunks),
        )
        .route_layer(from_fn_with_state(Arc::clone(state), aside))
}

/// Has a request done on the threads of the alert databases, until its sender leaves.
async fn aside(
    State(state): State<Arc<HttpState>>,
    request: Request,
    next: Next,
) -> Result<Response<Body>, AlertProblem> {
    let done = state.alerts.run(next.run(request)).await;
    Ok(done.map_err(|error| {
        error!(%error, "a request to an alert database could not be done");
        let sentence = "the server is ending, or has no threads: send it again in a moment";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, sentence)
    })?)
}

/// What a request does with a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// The database that a request names, if its sender may have it.
///
/// With users, administrators may have all, whoever has the database's name may have it, and whoever may read all tables of the database of
/// its name may read it.
async fn database(
    state: &HttpState,
    name: &str,
    access: Access,
) -> Result<Arc<AlertDatabase>, AlertProblem> {
    let is_theirs = state.shared.user.as_ref().is_none_or(|user| {
        user.is_admin || catalog::fold_name(&user.name) == catalog::fold_name(name)
    });
    let may_read = || state.archive.catalog().rights().may_read_all_of(name);
    if !(is_theirs || access == Access::Read && may_read()) {
        let verb = match access {
            Access::Read => "read",
            Access::Write => "change",
        };
        let sentence = format!("you may not {verb} the alert database {name}");
        return Err(AlertProblem(Problem::new(StatusCode::FORBIDDEN, sentence)));
    }
    Ok(state.alerts.database(name).await?)
}

/// A failed request, told as an object.
#[derive(Debug)]
pub(super) struct AlertProblem(Problem);

impl From<Problem> for AlertProblem {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl From<AlertsError> for AlertProblem {
    fn from(failure: AlertsError) -> Self {
        let status = match &failure {
            AlertsError::Invalid(_) | AlertsError::Schema(_) => StatusCode::BAD_REQUEST,
            AlertsError::Missing(_) | AlertsError::NoDatabase { .. } => StatusCode::NOT_FOUND,
            AlertsError::TooMany { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            AlertsError::Conflict(_) | AlertsError::Exists { .. } => StatusCode::CONFLICT,
            AlertsError::Storage(_)
            | AlertsError::InUse { .. }
            | AlertsError::Followed(_)
            | AlertsError::Ending
            | AlertsError::Reseeding
            | AlertsError::Archive(_) => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status.is_server_error() {
            error!(error = %failure, "a request to an alert database failed");
        }
        Self(Problem::new(status, failure.to_string()))
    }
}

impl From<PublicationError> for AlertProblem {
    fn from(failure: PublicationError) -> Self {
        match failure {
            PublicationError::Alerts(failure) => failure.into(),
            PublicationError::InTheWay { .. } => {
                Self(Problem::new(StatusCode::CONFLICT, failure.to_string()))
            }
            _ => {
                error!(error = %failure, "an alert database could not be published");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                Self(Problem::new(status, failure.to_string()))
            }
        }
    }
}

impl IntoResponse for AlertProblem {
    fn into_response(self) -> Response<Body> {
        let mut response = json_response(&json!({"error": self.0.sentence}));
        *response.status_mut() = self.0.status;
        response
    }
}

/// A value as a response in JSON.
fn json_response(value: &impl Serialize) -> Response<Body> {
    // Numbers, texts and lists of them are always written.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
