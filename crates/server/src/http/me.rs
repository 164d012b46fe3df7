//! `GET /me`: who a request is served as, and how much they may take.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use super::HttpState;
use super::problem::Problem;
use super::query_api::json;
use crate::own_tables;

/// The description of a user.
#[derive(Debug, Serialize)]
struct Me {
    /// The name; none while the server has no users.
    user: Option<String>,
    admin: bool,
    groups: Vec<String>,
    limits: Vec<LimitDescription>,
    /// The databases whose tables the user changes: the own one, and those of the groups.
    databases: Vec<String>,
    /// The tables in these.
    tables: Vec<OwnTableDescription>,
    /// What has to be done soon, in sentences.
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OwnTableDescription {
    name: String,
    bytes: u64,
    /// From when on it may be removed; none if it is kept for ever.
    expires: Option<String>,
}

#[derive(Debug, Serialize)]
struct LimitDescription {
    name: &'static str,
    /// How much may be taken; none without a limit.
    limit: Option<u64>,
    /// How much is taken, of what there is a present use.
    used: Option<u64>,
    meaning: Cow<'static, str>,
}

pub(super) async fn me(State(state): State<Arc<HttpState>>) -> Result<Response<Body>, Problem> {
    let shared = &state.shared;
    let info = shared.server_info_for_user(Arc::clone(&shared.server_info));
    let mut limits = Vec::new();
    for limit in info.limits() {
        let used = match &limit.stored_in {
            Some(database) => Some(engine::stored_bytes(&state.archive, database).await?),
            None => limit.used,
        };
        limits.push(LimitDescription {
            name: limit.name,
            limit: limit.most,
            used,
            meaning: limit.meaning,
        });
    }
    let user = shared.user.as_ref();
    let mut tables = Vec::new();
    let mut warnings = Vec::new();
    if let Some(user) = user {
        for (table, is_soon) in own_tables::tables_of(&state.archive, user).await? {
            let name = table.spec.full_name();
            if let Some(time) = table.expires_at.as_deref().filter(|_| is_soon) {
                warnings.push(own_tables::sentence(&name, time));
            }
            tables.push(OwnTableDescription {
                bytes: table.bytes(),
                expires: table.expires_at,
                name,
            });
        }
    }
    let me = Me {
        user: user.map(|user| user.name.clone()),
        admin: user.is_none_or(|user| user.is_admin),
        groups: user.map(|user| user.groups.clone()).unwrap_or_default(),
        limits,
        databases: info.own_databases(),
        tables,
        warnings,
    };
    let mut response = json(StatusCode::OK, &me);
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    Ok(response)
}
