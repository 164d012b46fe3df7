//! What pipelines read.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::alerts::{AlertTable, SourceSelection};
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Response, header};
use serde::Deserialize;
use serde_json::json;
use sky::Region;

use super::body::{arrow_response, receive_object};
use super::{Access, AlertProblem, database, json_response};
use crate::http::HttpState;
use crate::http::problem::Problem;

type AlertResponse = Result<Response<Body>, AlertProblem>;

/// The names of the databases that the sender may read.
pub(super) async fn list(State(state): State<Arc<HttpState>>) -> AlertResponse {
    let mut names = Vec::new();
    for name in state.alerts.names()? {
        if database(&state, &name, Access::Read).await.is_ok() {
            names.push(name);
        }
    }
    Ok(json_response(&json!({"databases": names})))
}

/// What a database is.
pub(super) async fn describe(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let publication = match database.replica_seconds() {
        None => None,
        Some(_) => {
            let status = state.alerts.status(&database).await?;
            Some(json!({
                "editions": status.published,
                "waiting_editions": status.waiting,
                "open_chunks": status.open,
                "closed_chunks": status.over,
            }))
        }
    };
    let follows = match database.follows()? {
        None => None,
        Some(follows) => {
            let status = database.follow_status().unwrap_or_default();
            Some(json!({
                "database": follows.shown(),
                "replica_chunks": database.followed_chunks().await?.len(),
                "error": status.error,
                "differences": status.differences,
            }))
        }
    };
    Ok(json_response(&json!({
        "publication": publication,
        "follows": follows,
        "name": database.name(),
        "store": database.kind().name(),
        "schema_version": database.schema().version(),
        "replica_seconds": database.replica_seconds(),
    })))
}

/// The schema, as it was given.
pub(super) async fn schema(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let mut response = Response::new(Body::from(database.schema().text().to_owned()));
    let yaml = HeaderValue::from_static("application/yaml");
    response.headers_mut().insert(header::CONTENT_TYPE, yaml);
    Ok(response)
}

/// All metadata.
pub(super) async fn metadata(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let metadata: BTreeMap<String, String> = database.metadata().await?.into_iter().collect();
    Ok(json_response(&metadata))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionRequest {
    region: String,
}

/// The latest versions of the live objects in a region.
pub(super) async fn latest_objects(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let request: RegionRequest =
        receive_object(&state, body, r#"{"region": "circle 10.5 -20.25 0.2"}"#).await?;
    arrow_response(database.latest_objects(&region(&request.region)?).await?).await
}

fn region(text: &str) -> Result<Region, Problem> {
    let parsed: Result<Region, _> = text.parse();
    parsed.map_err(|error| {
        Problem::bad(format!(
            "the region cannot be read: {error}; give a circle, box, ellipse or polygon in degrees, such as \"circle 10.5 -20.25 0.2\""
        ))
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SinceRequest {
    #[serde(default)]
    since: Option<f64>,
}

/// The objects whose latest version began at a time or later.
pub(super) async fn objects_since(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let request: SinceRequest = receive_object(&state, body, r#"{"since": 61000.5}"#).await?;
    arrow_response(database.objects_since(request.since).await?).await
}

/// How many live objects have exactly one source.
pub(super) async fn objects_of_one_source(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let count = database.objects_of_one_source().await?;
    Ok(json_response(&json!({"count": count})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourcesRequest {
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    objects: Option<Vec<i64>>,
    since: f64,
}

impl SourcesRequest {
    const EXAMPLE: &str = r#"{"objects": [17, 18], "since": 60640.0} or {"region": "circle 10.5 -20.25 0.2", "since": 60640.0}"#;

    fn selection(self) -> Result<SourceSelection, Problem> {
        match (self.region, self.objects) {
            (Some(text), None) => Ok(SourceSelection::In(Box::new(region(&text)?))),
            (None, Some(objects)) => Ok(SourceSelection::Of(objects)),
            _ => Err(Problem::bad(format!(
                "give either a region or objects: {}",
                Self::EXAMPLE
            ))),
        }
    }
}

/// Sources of a region or of objects.
pub(super) async fn sources(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let request: SourcesRequest = receive_object(&state, body, SourcesRequest::EXAMPLE).await?;
    let since = request.since;
    arrow_response(database.sources(&request.selection()?, since).await?).await
}

/// Forced sources of a region or of objects.
pub(super) async fn forced_sources(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let request: SourcesRequest = receive_object(&state, body, SourcesRequest::EXAMPLE).await?;
    let since = request.since;
    arrow_response(
        database
            .forced_sources(&request.selection()?, since)
            .await?,
    )
    .await
}

/// Whether something of an exposure of a detector was stored.
pub(super) async fn contains(
    State(state): State<Arc<HttpState>>,
    Path((name, visit, detector)): Path<(String, String, String)>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let number = |text: &str| text.parse::<i64>();
    let (Ok(visit), Ok(detector)) = (number(&visit), number(&detector)) else {
        let sentence = "the visit and the detector are numbers, as in /visits/2026112500042/94";
        return Err(Problem::bad(sentence).into());
    };
    let is_stored = database.contains(visit, detector).await?;
    Ok(json_response(&json!({"stored": is_stored})))
}

/// The replica chunks.
pub(super) async fn replica_chunks(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let chunks = database.replica_chunks().await?;
    let listed = chunks.map(|chunks| {
        let object = |chunk: ::alerts::ReplicaChunk| {
            json!({"id": chunk.id, "last_update_ns": chunk.last_update_ns, "unique_id": chunk.unique_id})
        };
        chunks.into_iter().map(object).collect::<Vec<_>>()
    });
    Ok(json_response(&json!({"chunks": listed})))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkRowsRequest {
    table: String,
    chunks: Vec<i64>,
}

/// The rows of a table that were stored in replica chunks.
pub(super) async fn rows_of_chunks(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let example = r#"{"table": "DiaSource", "chunks": [1780000200]}"#;
    let request: ChunkRowsRequest = receive_object(&state, body, example).await?;
    let Some(table) = AlertTable::named(&request.table) else {
        return Err(Problem::bad(format!(
            "{} does not support replica chunks: DiaObject, DiaSource and DiaForcedSource do",
            request.table
        ))
        .into());
    };
    arrow_response(database.rows_of_chunks(table, &request.chunks).await?).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChunksRequest {
    pub(super) chunks: Vec<i64>,
}

impl ChunksRequest {
    pub(super) const EXAMPLE: &str = r#"{"chunks": [1780000200]}"#;
}

/// The updates that were logged in replica chunks.
pub(super) async fn updates_of_chunks(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Read).await?;
    let request: ChunksRequest = receive_object(&state, body, ChunksRequest::EXAMPLE).await?;
    let updates = database.updates_of_chunks(&request.chunks).await?;
    Ok(json_response(&json!({"updates": updates})))
}
