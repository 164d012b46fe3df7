//! What pipelines store and change.

use std::sync::Arc;

use ::alerts::{AlertSchema, Extent, Operation, Outcome, StoreRequest, UpdateRecord};
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::body::{read_store, receive, receive_object};
use super::reads::ChunksRequest;
use super::{Access, AlertProblem, database, json_response};
use crate::http::HttpState;
use crate::http::parameters::RequestParameters;
use crate::http::problem::Problem;
use crate::publication::PublishedEdition;

type AlertResponse = Result<Response<Body>, AlertProblem>;

/// Receives an object such as `example`, and does what it asks for.
async fn change<T: DeserializeOwned>(
    state: &HttpState,
    name: &str,
    body: Body,
    example: &str,
    operation: impl FnOnce(T) -> Operation,
) -> AlertResponse {
    let database = database(state, name, Access::Write).await?;
    let request: T = receive_object(state, body, example).await?;
    let outcome = database.apply(operation(request)).await?;
    Ok(done(outcome))
}

fn done(outcome: Outcome) -> Response<Body> {
    json_response(&json!({"count": outcome.count, "repeated": outcome.is_repeated}))
}

/// Stores what was found in an exposure of a detector.
pub(super) async fn store(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Write).await?;
    let parameters = RequestParameters::read(query.as_deref().unwrap_or_default())?;
    let time = parameters
        .value("VISIT_TIME")?
        .and_then(|time| time.parse().ok());
    let Some(visit_time) = time else {
        let sentence =
            "give the visit's time as a Modified Julian Date (TAI), as in ?visit_time=61000.25";
        return Err(Problem::bad(sentence).into());
    };
    let request = StoreRequest {
        visit_time,
        request: parameters.value("REQUEST")?.map(str::to_owned),
        ..StoreRequest::default()
    };
    let body = receive(&state, body).await?;
    let request = read_store(body, request).await?;
    let outcome = database.apply(Operation::Store(Box::new(request))).await?;
    Ok(done(outcome))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SolarSystemRequest {
    sources: Vec<(i64, i64)>,
    time: f64,
}

/// Sources are of objects of the solar system.
pub(super) async fn reassign_to_solar_system(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let example = r#"{"sources": [[DIA_SOURCE, SS_OBJECT]], "time": 61000.5}"#;
    change(
        &state,
        &name,
        body,
        example,
        |request: SolarSystemRequest| Operation::ReassignToSolarSystem {
            sources: request.sources,
            time: request.time,
        },
    )
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectsRequest {
    sources: Vec<(i64, i64)>,
    time: f64,
    #[serde(default = "yes")]
    increment: bool,
    #[serde(default = "yes")]
    decrement: bool,
}

const fn yes() -> bool {
    true
}

/// Sources belong to other objects.
pub(super) async fn reassign_to_objects(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let example = r#"{"sources": [[DIA_SOURCE, DIA_OBJECT]], "time": 61000.5}"#;
    change(&state, &name, body, example, |request: ObjectsRequest| {
        Operation::ReassignToObjects {
            sources: request.sources,
            increment: request.increment,
            decrement: request.decrement,
            time: request.time,
        }
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CloseRequest {
    objects: Vec<i64>,
    validity_end: f64,
    #[serde(default)]
    must_exist: bool,
    time: f64,
}

/// The latest versions of objects are valid no longer.
pub(super) async fn close_objects(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let example = r#"{"objects": [17, 18], "validity_end": 61000.5, "time": 61000.5}"#;
    change(&state, &name, body, example, |request: CloseRequest| {
        Operation::CloseObjects {
            objects: request.objects,
            validity_end: request.validity_end,
            must_exist: request.must_exist,
            time: request.time,
        }
    })
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WithdrawRequest<T> {
    sources: Vec<T>,
    withdrawn: f64,
    time: f64,
}

/// Sources are withdrawn.
pub(super) async fn withdraw_sources(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let example = r#"{"sources": [17, 18], "withdrawn": 61000.5, "time": 61000.5}"#;
    change(
        &state,
        &name,
        body,
        example,
        |request: WithdrawRequest<i64>| Operation::WithdrawSources {
            sources: request.sources,
            withdrawn: request.withdrawn,
            time: request.time,
        },
    )
    .await
}

/// Forced sources are withdrawn.
pub(super) async fn withdraw_forced_sources(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let example =
        r#"{"sources": [[DIA_OBJECT, VISIT, DETECTOR]], "withdrawn": 61000.5, "time": 61000.5}"#;
    change(
        &state,
        &name,
        body,
        example,
        |request: WithdrawRequest<(i64, i64, i64)>| Operation::WithdrawForcedSources {
            sources: request.sources,
            withdrawn: request.withdrawn,
            time: request.time,
        },
    )
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeRequest {
    time: f64,
}

/// Duplicate objects were merged.
pub(super) async fn reset_deduplication(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    change(
        &state,
        &name,
        body,
        r#"{"time": 61000.5}"#,
        |request: TimeRequest| Operation::ResetDeduplication { time: request.time },
    )
    .await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MetadataRequest {
    value: String,
    #[serde(default)]
    replace: bool,
}

/// Sets metadata.
pub(super) async fn set_metadata(
    State(state): State<Arc<HttpState>>,
    Path((name, key)): Path<(String, String)>,
    body: Body,
) -> AlertResponse {
    let example = r#"{"value": "text", "replace": true}"#;
    change(&state, &name, body, example, |request: MetadataRequest| {
        Operation::SetMetadata {
            key,
            value: request.value,
            replace: request.replace,
        }
    })
    .await
}

/// Deletes metadata.
pub(super) async fn delete_metadata(
    State(state): State<Arc<HttpState>>,
    Path((name, key)): Path<(String, String)>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Write).await?;
    let outcome = database.apply(Operation::DeleteMetadata { key }).await?;
    Ok(done(outcome))
}

/// Uses another schema, with more columns.
pub(super) async fn set_schema(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let database = database(&state, &name, Access::Write).await?;
    let body = receive(&state, body).await?;
    let text =
        std::str::from_utf8(&body.bytes).map_err(|_| Problem::bad("the schema is no text"))?;
    let schema = AlertSchema::parse(text)?;
    let outcome = database
        .apply(Operation::SetSchema(Box::new(schema)))
        .await?;
    Ok(done(outcome))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UpdatesRequest {
    updates: Vec<UpdateRecord>,
    time: f64,
}

/// Adds entries to the log of updates.
pub(super) async fn append_updates(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    let example = r#"{"updates": [{"update_time_ns": 0, "update_order": 0, "update_type": "...", ...}], "time": 61000.5}"#;
    change(&state, &name, body, example, |request: UpdatesRequest| {
        Operation::AppendUpdates {
            records: request.updates,
            time: request.time,
        }
    })
    .await
}

/// Publishes what is closed by now.
pub(super) async fn publish(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
) -> AlertResponse {
    let database = database(&state, &name, Access::Write).await?;
    // A client that hangs up does not break it off.
    let alerts = Arc::clone(&state.alerts);
    let published = tokio::spawn(async move { alerts.publish(&database).await });
    let published = published
        .await
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let edition = |edition: &PublishedEdition| {
        json!({
            "edition": edition.number,
            "replica_chunks": edition.chunks,
            "rows": edition.rows,
        })
    };
    let editions: Vec<_> = published?.iter().map(edition).collect();
    Ok(json_response(&json!({"editions": editions})))
}

/// Reads what is new in the database that is followed.
pub(super) async fn follow(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> AlertResponse {
    let database = database(&state, &name, Access::Write).await?;
    let parameters = RequestParameters::read(query.as_deref().unwrap_or_default())?;
    let extent = match parameters.value("ALL")? {
        None => Extent::New,
        Some("true") => Extent::All,
        Some(_) => return Err(Problem::bad("?all=true reads all rows anew").into()),
    };
    // A client that hangs up does not break it off.
    let alerts = Arc::clone(&state.alerts);
    let read = tokio::spawn(async move { alerts.follow(&database, extent).await });
    let read = read
        .await
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))??;
    Ok(json_response(
        &json!({"replica_chunks": read.chunks, "rows": read.rows}),
    ))
}

/// Forgets replica chunks.
pub(super) async fn delete_replica_chunks(
    State(state): State<Arc<HttpState>>,
    Path(name): Path<String>,
    body: Body,
) -> AlertResponse {
    change(
        &state,
        &name,
        body,
        ChunksRequest::EXAMPLE,
        |request: ChunksRequest| Operation::DeleteReplicaChunks {
            chunks: request.chunks,
        },
    )
    .await
}
