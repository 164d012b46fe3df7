//! Has workers read their replicas through at once, and tells how far they are.
//!
//! Each worker knows what it was asked last, so that any front end can be asked. The front end that is asked to begin reads its own files
//! through, too, unless one worker alone is named.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Response, StatusCode};
use futures::future::join_all;
use tokio::time::timeout;

use super::routes::{ClientError, no_worker};
use super::{FrontEnd, Member, lock};
use crate::client::{json, read_body};
use crate::messages::{FRONT_END, ScrubRequest, ScrubStatus, TableSelection, WorkerScrub};
use crate::tls::Role;

/// Bytes of a request.
const LONGEST_REQUEST: usize = 64 << 10;
/// How long a worker may take to answer: less than an operator waits for this front end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has workers begin.
pub(super) async fn begin(
    State(front_end): State<Arc<FrontEnd>>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = read_body(request.into_body(), LONGEST_REQUEST)
        .await
        .map_err(bad)?;
    let request: ScrubRequest = serde_json::from_slice(&body)
        .map_err(|error| bad(format!("what shall be read cannot be read: {error}")))?;
    let mut members = front_end.members.all();
    match &request.worker {
        Some(name) => {
            members.retain(|known, _| known == name);
            if members.is_empty() {
                return Err(no_worker(name));
            }
        }
        None => {
            // One that was drained and has ended has nothing to read.
            let (draining, now) = (front_end.settings.draining(), Instant::now());
            let is_gone = |name: &str, it: &Member| {
                draining.contains(name) && !it.is_live(now) && !it.holds_chunks()
            };
            members.retain(|name, it| !is_gone(name, it));
        }
    }
    front_end.expect_tables(&request.tables).await?;
    let own = match &request.worker {
        Some(_) => None,
        None => Some(front_end.scrubs.begin(request.tables.clone())),
    };
    let asked = front_end.request_all(members, &Method::POST, Some(&request.tables));
    let mut status = asked.await;
    match own {
        Some(Ok(scrub)) => status.front_end = Some(scrub),
        Some(Err((_, why))) => drop(status.failed.insert(FRONT_END.to_owned(), why)),
        None => {}
    }
    Ok(json(&status))
}

/// How far workers are.
pub(super) async fn status(State(front_end): State<Arc<FrontEnd>>) -> Response<Body> {
    let members = front_end.members.all();
    let mut status = front_end.request_all(members, &Method::GET, None).await;
    status.front_end = front_end.scrubs.latest();
    json(&status)
}

impl FrontEnd {
    /// Rejects names that no table has.
    async fn expect_tables(&self, tables: &TableSelection) -> Result<(), ClientError> {
        if *tables == TableSelection::default() {
            return Ok(());
        }
        let listed = self.list_parts().await;
        listed.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let assigned = lock(&self.assigned);
        let mut parts = assigned.parts.iter();
        match parts.any(|part| tables.has(&part.database, &part.table)) {
            true => Ok(()),
            false => Err((
                StatusCode::NOT_FOUND,
                "there is no such table with rows: `meridian tables` lists them".to_owned(),
            )),
        }
    }

    async fn request_all(
        &self,
        members: BTreeMap<String, Member>,
        method: &Method,
        tables: Option<&TableSelection>,
    ) -> ScrubStatus {
        let asked = members.into_iter().map(|(name, member)| async move {
            let scrub = self.request_one(&member, method.clone(), tables).await;
            (name, scrub)
        });
        let mut status = ScrubStatus::default();
        for (name, scrub) in join_all(asked).await {
            match scrub {
                Ok(Some(scrub)) => drop(status.workers.insert(name, scrub)),
                // It was asked for nothing since it started.
                Ok(None) => {}
                Err(why) => drop(status.failed.insert(name, why)),
            }
        }
        status
    }

    async fn request_one(
        &self,
        member: &Member,
        method: Method,
        tables: Option<&TableSelection>,
    ) -> Result<Option<WorkerScrub>, String> {
        if !member.is_live(Instant::now()) {
            return Err("it does not report: start it, or have a look at its log".to_owned());
        }
        let address = &member.report.address;
        let asked = self
            .client
            .json(method, Role::Worker, address, "/scrub", tables);
        match timeout(PATIENCE, asked).await {
            Ok(asked) => asked.map_err(|error| error.to_string()),
            Err(_) => Err(format!("it did not answer within {} s", PATIENCE.as_secs())),
        }
    }
}
