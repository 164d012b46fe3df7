//! What an operator need not wait for: replicas of workers that are silent are made anew at once, and files move as soon as it is asked for.
//!
//! Both come by themselves, the first after [`super::ClusterOptions::lost_after`]. The front end that leads decides it: others pass the request on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{Method, Response, StatusCode};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::members::SILENT_AFTER;
use super::routes::ClientError;
use super::{FrontEnd, lock};
use crate::client::json;
use crate::messages::ClusterStatus;
use crate::tls::Role;

/// How long a front end that has just started, and has not heard of all workers yet, has an operator wait.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(200);

/// Who asks.
#[derive(Debug, Deserialize)]
pub(super) struct RepairParameters {
    /// Whether another front end does, which does not lead.
    #[serde(default)]
    passed_on: bool,
}

/// Takes workers that are silent for lost, and gives the leader's status.
pub(super) async fn begin(
    State(front_end): State<Arc<FrontEnd>>,
    Query(parameters): Query<RepairParameters>,
) -> Result<Response<Body>, ClientError> {
    let status = front_end.status_of_leader("/repair", &Method::POST, &parameters, || {
        front_end.give_up_silent();
    });
    Ok(json(&status.await?))
}

/// Looks at once what is to be moved, and gives the leader's status.
pub(super) async fn begin_moves(
    State(front_end): State<Arc<FrontEnd>>,
    Query(parameters): Query<RepairParameters>,
) -> Result<Response<Body>, ClientError> {
    let status = front_end.status_of_leader("/rebalance", &Method::POST, &parameters, || {});
    Ok(json(&status.await?))
}

/// Gives the leader's status.
pub(super) async fn status(
    State(front_end): State<Arc<FrontEnd>>,
    Query(parameters): Query<RepairParameters>,
) -> Result<Response<Body>, ClientError> {
    let status = front_end.status_of_leader("/repair", &Method::GET, &parameters, || {});
    Ok(json(&status.await?))
}

impl FrontEnd {
    /// Has others get the replicas of workers that say nothing, until they are heard of again.
    fn give_up_silent(&self) {
        let now = Instant::now();
        let members = self.members.all().into_iter();
        let silent = members.filter(|(_, member)| !member.is_live(now));
        // Each time anew, so that workers that were removed are not remembered.
        let silent = silent.map(|(name, member)| (name, member.heard)).collect();
        *lock(&self.given_up) = silent;
    }

    /// Waits until workers have reported once more, those that do: what one has found damaged a moment ago is known then.
    async fn hear_anew(&self) {
        let began = Instant::now();
        let heard = async {
            while self.members.live().iter().any(|(_, it)| it.heard < began) {
                sleep(RETRY).await;
            }
        };
        let _ = timeout(SILENT_AFTER, heard).await;
    }

    /// Does something and gives the status afterwards, if this front end leads; else has the leader do so.
    async fn status_of_leader(
        &self,
        path: &str,
        method: &Method,
        parameters: &RepairParameters,
        change: impl FnOnce(),
    ) -> Result<ClusterStatus, ClientError> {
        let settled = async {
            while !self.has_settled() {
                sleep(RETRY).await;
            }
        };
        // Else all that workers hold would lack.
        if timeout(PATIENCE, settled).await.is_err() {
            return Err(no_leader());
        }
        if self.leadership.epoch().is_some() {
            if *method == Method::POST {
                self.hear_anew().await;
            }
            change();
            self.changed.notify_one();
            return self.status_now().await;
        }
        let front_ends = self.several.as_ref().map(|it| it.front_ends());
        let mut front_ends = front_ends.unwrap_or_default().into_iter();
        let leader = match front_ends.find(|it| it.leads) {
            Some(leader) if !parameters.passed_on => leader.address,
            _ => return Err(no_leader()),
        };
        let path = format!("{path}?passed_on=true");
        let none: Option<&()> = None;
        let asked = self
            .client
            .json(method.clone(), Role::FrontEnd, &leader, &path, none);
        asked.await.map_err(|error| {
            let why = format!("the front end at {leader} leads, and cannot be asked: {error}");
            (StatusCode::BAD_GATEWAY, why)
        })
    }
}

fn no_leader() -> ClientError {
    let why =
        "no front end decides now what workers hold: one does in some seconds, then try again";
    (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
}
