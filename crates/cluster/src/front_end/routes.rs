//! What members and operators ask a front end, over HTTP.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Extension, Path, Query, Request, State};
use axum::http::header::LOCATION;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{delete, get, post};
use axum::{Router, middleware};
use catalog::LoadId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sky::ChunkId;
use tracing::info;

use super::members::SILENT_AFTER;
use super::orders::Order;
use super::{FrontEnd, KnownPart, Member, loads, lock, repair, scrub};
use crate::client::{json, read_body};
use crate::credentials::{Caller, only, require_member};
use crate::file_service::{chunk_path, serve_manifest};
use crate::messages::{Assignment, ClusterStatus, MemberReport, PartFiles, WorkerEnd};
use crate::operator::OPERATORS;
use crate::shuffle;
use crate::tls::Role;

/// Bytes of a report: a worker with some million files.
const LONGEST_REPORT: usize = 256 << 20;
/// Bytes of what a worker says when it ends.
const LONGEST_END: usize = 64 << 10;

/// Why a request fails: a status and a sentence.
pub(super) type ClientError = (StatusCode, String);

pub(super) fn router(front_end: Arc<FrontEnd>) -> Router {
    let credentials = front_end.client.credentials().clone();
    let workers = &[Role::Worker];
    let readers = &[Role::Worker, Role::FrontEnd];
    Router::new()
        .route("/members/{name}", only(workers, post(report)))
        .route("/members/{name}", only(OPERATORS, delete(remove)))
        .route("/members/{name}/end", only(workers, post(end)))
        .route(
            "/members/{name}/drain",
            only(OPERATORS, post(drain).delete(take_back)),
        )
        .route("/parts/{part}/manifest", only(workers, get(manifest)))
        .route("/parts/{part}/files/{chunk}", only(workers, get(file)))
        .route("/shuffles/bucket", only(readers, post(bucket)))
        .route("/shuffles/missing", only(readers, post(missing)))
        .route("/status", only(OPERATORS, get(status)))
        .route(
            "/repair",
            only(OPERATORS, post(repair::begin).get(repair::status)),
        )
        .route(
            "/rebalance",
            only(OPERATORS, post(repair::begin_moves).get(repair::status)),
        )
        .route(
            "/scrub",
            only(OPERATORS, post(scrub::begin).get(scrub::status)),
        )
        .route(
            "/loads/{number}",
            only(
                OPERATORS,
                post(loads::begin).get(loads::state).delete(loads::cancel),
            ),
        )
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(credentials, require_member))
        .with_state(front_end)
}

/// Takes a worker's report, and says what it shall hold.
async fn report(
    State(front_end): State<Arc<FrontEnd>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let report: MemberReport = said_by(&name, &caller, request, LONGEST_REPORT).await?;
    check(&front_end, &name, &report)?;
    front_end.leadership.note_epoch(report.epoch);
    let follows = (report.epoch, report.assignment);
    let credentials = front_end.client.credentials();
    credentials.take_news(&name, &report.revoked);
    let revoked = credentials.news_for(Some(report.revoked.digest));
    let (known_holdings, has_changed) = front_end.members.report(&name, report);
    if has_changed {
        front_end.changed.notify_one();
    }
    let next = front_end.first_files(&name);
    let told = front_end.told(&name);
    let told = told.filter(|(epoch, order)| (*epoch, order.version) != follows);
    let unchanged = Assignment {
        archive: front_end.settings.archive().to_owned(),
        known_holdings,
        epoch: follows.0,
        assignment: follows.1,
        parts: None,
        user_parts: Vec::new(),
        keeps_all: false,
        next,
        front_ends: front_end.addresses(),
        revoked,
        shuffles: Some(front_end.shuffles.live.list(front_end.process)),
    };
    Ok(json(&match told {
        Some((epoch, order)) => Assignment {
            epoch,
            assignment: order.version,
            parts: Some(order.files.as_ref().clone()),
            user_parts: order.user_parts.as_ref().clone(),
            keeps_all: order.keeps_all,
            ..unchanged
        },
        None => unchanged,
    }))
}

/// Takes a worker's word that it ends.
async fn end(
    State(front_end): State<Arc<FrontEnd>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let end: WorkerEnd = said_by(&name, &caller, request, LONGEST_END).await?;
    if front_end.members.end(&name, end) {
        info!(worker = name, "a worker has ended");
        front_end.changed.notify_one();
    }
    Ok(json(&()))
}

/// What a worker of this name says, if it is that worker.
async fn said_by<T: DeserializeOwned>(
    name: &str,
    caller: &Caller,
    request: Request,
    longest: usize,
) -> Result<T, ClientError> {
    if !caller.is_worker(name) {
        let why = format!(
            "the certificate is not that of a worker {name}: a worker has the name in its certificate"
        );
        return Err((StatusCode::FORBIDDEN, why));
    }
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = read_body(request.into_body(), longest).await.map_err(bad)?;
    serde_json::from_slice(&body)
        .map_err(|error| bad(format!("the report cannot be read: {error}")))
}

/// Rejects a worker that belongs elsewhere.
fn check(front_end: &FrontEnd, name: &str, report: &MemberReport) -> Result<(), ClientError> {
    let conflict = |why: String| (StatusCode::CONFLICT, why);
    let ours = env!("CARGO_PKG_VERSION");
    if report.version != ours {
        return Err(conflict(format!(
            "the worker is of version {} and the front end of version {ours}: run one version on all machines",
            report.version
        )));
    }
    if let Some(archive) = &report.archive
        && archive != front_end.settings.archive()
    {
        return Err(conflict(format!(
            "the worker's directory holds replicas of the archive {archive}, and this is {}: give it another directory",
            front_end.settings.archive()
        )));
    }
    let members = front_end.members.live();
    let other = members.iter().find(|(other, member)| {
        other == name
            && member.report.process != report.process
            && member.report.address != report.address
    });
    match other {
        Some((_, member)) => Err(conflict(format!(
            "a worker of the name {name} runs at {} already: two cannot share a directory, nor a name",
            member.report.address
        ))),
        None => Ok(()),
    }
}

async fn manifest(
    State(front_end): State<Arc<FrontEnd>>,
    Path(part): Path<i64>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let part = front_end.known_part(part).await?;
    Ok(serve_manifest(&part.dir, request).await)
}

/// Who asks for a file to hold it.
#[derive(Debug, Deserialize)]
struct FileParameters {
    /// The worker that asks, which may be sent to another one: so workers get files from each other.
    holder: Option<String>,
    /// The worker that is asked first for a file that is not here, by its number among the holders.
    #[serde(default)]
    place: usize,
}

async fn file(
    State(front_end): State<Arc<FrontEnd>>,
    Path((part, chunk)): Path<(i64, i32)>,
    Query(parameters): Query<FileParameters>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let known = front_end.known_part(part).await?;
    if let Some(holder) = &parameters.holder
        && let Some(address) = front_end.other_holder(holder, &known, ChunkId(chunk))
    {
        let location = format!("http://{address}{}", chunk_path(part, chunk));
        return Ok((StatusCode::TEMPORARY_REDIRECT, [(LOCATION, location)]).into_response());
    }
    front_end
        .give_file(&known, ChunkId(chunk), parameters.place, request)
        .await
}

/// The rows of a bucket that pieces gave which ran here.
async fn bucket(
    State(front_end): State<Arc<FrontEnd>>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    shuffle::bucket(&front_end.shuffles.kept, request).await
}

/// Which of these rows are not here any more.
async fn missing(
    State(front_end): State<Arc<FrontEnd>>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    shuffle::missing(&front_end.shuffles.kept, request).await
}

impl FrontEnd {
    /// What a worker shall hold, and the epoch in which that is said. `None` if this front end does not decide it.
    fn told(&self, worker: &str) -> Option<(u64, Order)> {
        if !self.has_settled() {
            return None;
        }
        let assigned = lock(&self.assigned);
        let epoch = assigned.leads(&self.leadership)?;
        Some((epoch, assigned.orders.of(worker)?))
    }

    /// The files that a worker gets first of those that it lacks. `None` if this front end does not decide it.
    fn first_files(&self, worker: &str) -> Option<Vec<PartFiles>> {
        if !self.has_settled() {
            return None;
        }
        let assigned = lock(&self.assigned);
        assigned.leads(&self.leadership)?;
        Some(
            assigned
                .latest
                .first
                .get(worker)
                .cloned()
                .unwrap_or_default(),
        )
    }

    /// Where the front ends listen that share the workers, this one first; none if there can be one alone.
    fn addresses(&self) -> Vec<String> {
        let Some(several) = &self.several else {
            return Vec::new();
        };
        let own = self.advertised.clone();
        let others = several.front_ends().into_iter().map(|it| it.address);
        let others = others.filter(|it| *it != own).collect();
        [vec![own], others].concat()
    }

    /// The address of a worker that holds a file, by turns; `None` where it is this process's turn.
    fn other_holder(&self, asker: &str, part: &KnownPart, file: ChunkId) -> Option<String> {
        let now = Instant::now();
        let mut holders = self.members.holders(part.key, file);
        holders.retain(|(name, member)| name != asker && member.is_live(now));
        // This process has a turn, too, if it has the file.
        let own = usize::from(!part.away().contains(&file));
        let turn = self.redirections.fetch_add(1, Relaxed);
        let turn = turn.checked_rem(holders.len() + own)?;
        let (_, holder) = holders.get(turn)?;
        Some(holder.report.address.clone())
    }

    /// A part that a table shows or has shown, also one that was published a moment ago.
    pub(super) async fn known_part(&self, part: i64) -> Result<Arc<KnownPart>, ClientError> {
        let part = LoadId(part);
        if let Some(known) = self.parts.get(part) {
            return Ok(known);
        }
        let listed = self.parts.list(self.archive.catalog()).await;
        listed.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        let found = self.parts.get(part);
        found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("there is no part {part}")))
    }
}

async fn status(State(front_end): State<Arc<FrontEnd>>) -> Result<Response<Body>, ClientError> {
    Ok(json(&front_end.status_now().await?))
}

/// Has a worker give everything up.
async fn drain(
    State(front_end): State<Arc<FrontEnd>>,
    Path(name): Path<String>,
) -> Result<Response<Body>, ClientError> {
    set_draining(&front_end, &name, true).await
}

/// Has a worker take its share again.
async fn take_back(
    State(front_end): State<Arc<FrontEnd>>,
    Path(name): Path<String>,
) -> Result<Response<Body>, ClientError> {
    set_draining(&front_end, &name, false).await
}

async fn set_draining(
    front_end: &FrontEnd,
    name: &str,
    drains: bool,
) -> Result<Response<Body>, ClientError> {
    if !front_end.members.all().contains_key(name) {
        return Err(no_worker(name));
    }
    front_end.set_draining(name, drains).await?;
    Ok(json(&front_end.status()))
}

/// How a worker is removed.
#[derive(Debug, Deserialize)]
struct Removal {
    /// Whether it is removed though it may have the last copies of files.
    #[serde(default)]
    force: bool,
}

/// Forgets a worker that is gone.
async fn remove(
    State(front_end): State<Arc<FrontEnd>>,
    Path(name): Path<String>,
    Query(removal): Query<Removal>,
) -> Result<Response<Body>, ClientError> {
    let members = front_end.members.all();
    let Some(member) = members.get(&name) else {
        return Err(no_worker(&name));
    };
    let now = Instant::now();
    if member.is_live(now) {
        let silent = now.duration_since(member.heard);
        let why = format!(
            "the worker {name} runs at {}, from where it reported {:.1} s ago: drain it, and end it when it is drained; if it was killed, \
             try again in {} s",
            member.report.address,
            silent.as_secs_f64(),
            SILENT_AFTER.saturating_sub(silent).as_secs() + 1
        );
        return Err((StatusCode::CONFLICT, why));
    }
    if !removal.force {
        front_end.check_removal(&name, member)?;
    }
    front_end.forget_worker(&name).await?;
    Ok(json(&front_end.status()))
}

impl FrontEnd {
    /// The status of the parts that there are now: one that was just loaded has no replicas yet.
    pub(super) async fn status_now(&self) -> Result<ClusterStatus, ClientError> {
        let listed = self.list_parts().await;
        listed.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(self.status())
    }

    /// What is to be known before a worker is drained.
    pub(super) fn drain_check(&self, name: &str) -> DrainCheck {
        let others = self.placed_members().into_keys();
        DrainCheck {
            name: name.to_owned(),
            others: others.filter(|it| it != name).collect(),
            replicas: self.options.replicas,
            away: self.num_away(),
        }
    }

    /// Rejects that a worker is forgotten that has the last copies of files.
    fn check_removal(&self, name: &str, member: &Member) -> Result<(), ClientError> {
        let others = self.placed_members();
        let assigned = lock(&self.assigned);
        let is_last = |part: &KnownPart, file: ChunkId| {
            let mut others = others.iter().filter(|(other, _)| *other != name);
            member.holds(part.key, file) && !others.any(|(_, it)| it.holds(part.key, file))
        };
        let of_part = |part: &Arc<KnownPart>| {
            let away = part.away();
            away.iter().filter(|file| is_last(part, **file)).count()
        };
        match assigned.parts.iter().map(of_part).sum::<usize>() {
            0 => Ok(()),
            last => Err((
                StatusCode::CONFLICT,
                format!(
                    "{name} has the last copies of {last} files: start it again, and others get them; if its disk is gone, --force \
                     removes it, and the rows of these files are lost"
                ),
            )),
        }
    }

    /// Files that are at workers alone.
    fn num_away(&self) -> usize {
        let assigned = lock(&self.assigned);
        assigned.parts.iter().map(|part| part.away().len()).sum()
    }
}

/// Whether a worker may be drained.
pub(super) struct DrainCheck {
    name: String,
    /// The other workers.
    others: Vec<String>,
    replicas: usize,
    /// Files that are at workers alone.
    away: usize,
}

impl DrainCheck {
    /// Rejects that a worker is drained whose replicas would have no place, if there are files that the front end has not.
    pub fn passes(&self, draining: &HashSet<String>) -> Result<(), ClientError> {
        let takers = self.others.iter().filter(|it| !draining.contains(*it));
        let takers = takers.count();
        let (name, replicas, away) = (&self.name, self.replicas, self.away);
        match takers < replicas && away > 0 {
            true => Err((
                StatusCode::CONFLICT,
                format!(
                    "without {name} there are {takers} workers that take files, there shall be {replicas} replicas of each, and {away} files \
                     are at workers alone: start another worker first, or restart the front end with --keep-files all and wait until \
                     `meridian cluster status` says that it has all files"
                ),
            )),
            false => Ok(()),
        }
    }
}

pub(super) fn no_worker(name: &str) -> ClientError {
    let why =
        format!("there is no worker of the name {name}: `meridian cluster status` lists them");
    (StatusCode::NOT_FOUND, why)
}
