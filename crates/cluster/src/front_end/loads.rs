//! Loads that operators have workers do: the front end begins them, and publishes what the workers have written.
//!
//! A load ends without a trace when its operator asks no more how far it is, or says so. What `load_tasks` has workers do is known to them for
//! as long as this process asks for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{Response, StatusCode};
use catalog::{Catalog, fold_name};
use ingest::{LoadReport, Progress, ReadPart, ShareReport, SharedLoad};
use store::{StoreError, table_dir};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::load_tasks::{LoadWorker, Tasks};
use super::routes::ClientError;
use super::{FrontEnd, lock};
use crate::client::{json, read_body};
use crate::messages::{LoadOrder, LoadState, PartName};

/// Bytes of an order.
const LONGEST_ORDER: usize = 64 << 20;
/// Loads that are known at a time, those that have ended among them.
const MOST_LOADS: usize = 1000;
/// How long an operator may not ask how far a load is.
const SILENCE: Duration = Duration::from_secs(60);
/// How long it is known how a load has ended.
const KNOWN_FOR: Duration = Duration::from_secs(600);
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// The directory of alert databases, whose tables of editions are replaced where their rows are looked after.
const ALERTS: &str = "alerts";

/// The loads of a front end, by the numbers that operators have given them.
#[derive(Debug, Default)]
pub(super) struct Loads(Mutex<HashMap<u64, Arc<ClusterLoad>>>);

/// A load.
#[derive(Debug)]
struct ClusterLoad {
    progress: Arc<Progress>,
    stop: CancellationToken,
    state: Mutex<LoadStatus>,
}

#[derive(Debug)]
struct LoadStatus {
    heard: Instant,
    outcome: Option<Result<LoadReport, String>>,
}

impl Loads {
    fn find(&self, number: u64) -> Result<Arc<ClusterLoad>, ClientError> {
        let found = lock(&self.0).get(&number).cloned();
        let unknown = || {
            let why = "the front end knows no such load: it was started again, or nobody has asked for a while how far the load is";
            (StatusCode::NOT_FOUND, why.to_owned())
        };
        let load = found.ok_or_else(unknown)?;
        lock(&load.state).heard = Instant::now();
        Ok(load)
    }

    /// Takes another load; `None` if it is known already.
    fn add(&self, number: u64) -> Result<Option<Arc<ClusterLoad>>, ClientError> {
        let mut loads = lock(&self.0);
        loads.retain(|_, load| {
            let state = lock(&load.state);
            state.outcome.is_none() || state.heard.elapsed() < KNOWN_FOR
        });
        if loads.contains_key(&number) {
            return Ok(None);
        }
        if loads.len() >= MOST_LOADS {
            let why = format!("the front end knows {MOST_LOADS} loads: try again later");
            return Err((StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let load = Arc::new(ClusterLoad {
            progress: Arc::default(),
            stop: CancellationToken::new(),
            state: Mutex::new(LoadStatus {
                heard: Instant::now(),
                outcome: None,
            }),
        });
        loads.insert(number, Arc::clone(&load));
        Ok(Some(load))
    }
}

/// Begins a load.
pub(super) async fn begin(
    State(front_end): State<Arc<FrontEnd>>,
    Path(number): Path<u64>,
    request: Request,
) -> Result<Response<Body>, ClientError> {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why);
    let body = read_body(request.into_body(), LONGEST_ORDER).await;
    let body = body.map_err(bad)?;
    let order: LoadOrder = serde_json::from_slice(&body)
        .map_err(|error| bad(format!("the load cannot be read: {error}")))?;
    if let Some(load) = front_end.loads.add(number)? {
        tokio::spawn(async move {
            let running = tokio::spawn(run(Arc::clone(&front_end), Arc::clone(&load), order));
            let outcome = running.await.unwrap_or_else(|error| {
                tracing::error!(%error, "a load failed unexpectedly");
                Err("the load failed unexpectedly: please report this".to_owned())
            });
            lock(&load.state).outcome = Some(outcome);
        });
    }
    Ok(json(&()))
}

/// How far a load is.
pub(super) async fn state(
    State(front_end): State<Arc<FrontEnd>>,
    Path(number): Path<u64>,
) -> Result<Response<Body>, ClientError> {
    let load = front_end.loads.find(number)?;
    let outcome = lock(&load.state).outcome.clone();
    Ok(json(&LoadState {
        progress: load.progress.snapshot(),
        outcome,
    }))
}

/// Ends a load, unless it is about to be published.
pub(super) async fn cancel(
    State(front_end): State<Arc<FrontEnd>>,
    Path(number): Path<u64>,
) -> Result<Response<Body>, ClientError> {
    front_end.loads.find(number)?.stop.cancel();
    Ok(json(&()))
}

/// Stops a load of which nobody asks how far it is.
async fn watch(load: &ClusterLoad) {
    loop {
        sleep(LOOK_INTERVAL).await;
        if lock(&load.state).heard.elapsed() >= SILENCE {
            warn!("a load ends, as nobody asks how far it is");
            return;
        }
    }
}

async fn run(
    front_end: Arc<FrontEnd>,
    load: Arc<ClusterLoad>,
    order: LoadOrder,
) -> Result<LoadReport, String> {
    let table = format!("{}.{}", order.load.database, order.load.table);
    info!(table, "workers load a table");
    let data_dir = front_end.archive.catalog().data_dir().to_owned();
    let opened = Catalog::open_or_create(&data_dir).await;
    let catalog = opened.map_err(|error| error.to_string())?;
    let outcome = front_end.load(&catalog, &load, order).await;
    catalog.close().await;
    // Workers get the files at once.
    front_end.changed.notify_one();
    match &outcome {
        Ok(report) => info!(table, rows = report.rows_loaded, "the table is loaded"),
        Err(error) => info!(table, error, "the table is not loaded"),
    }
    outcome
}

impl FrontEnd {
    async fn load(
        &self,
        catalog: &Catalog,
        load: &ClusterLoad,
        order: LoadOrder,
    ) -> Result<LoadReport, String> {
        let LoadOrder {
            load: mut request,
            inputs,
        } = order;
        request.data_dir = catalog.data_dir().to_owned();
        if request.replace {
            self.expect_no_alerts(&request.database)?;
        }
        let cancelled = || "the load was cancelled; nothing was loaded".to_owned();
        let mut shared = tokio::select! {
            begun = SharedLoad::begin(catalog, request) => begun.map_err(|error| error.to_string())?,
            () = load.stop.cancelled() => return Err(cancelled()),
            () = watch(load) => return Err(cancelled()),
        };
        let parts = self
            .part_names(&shared)
            .map_err(|error| error.to_string())?;
        let client = Arc::clone(&self.client);
        let tasks = Tasks::new(client, inputs, parts, Arc::clone(&load.progress));
        let prepared = tokio::select! {
            biased;
            () = load.stop.cancelled() => Err(cancelled()),
            () = watch(load) => Err(cancelled()),
            prepared = self.prepare(&mut shared, &tasks) => prepared,
        };
        tasks.end_all().await;
        let published = match prepared {
            Ok(reports) => {
                tasks.show_publication();
                let published = shared.publish(&reports).await;
                published.map_err(|error| error.to_string())
            }
            Err(why) => Err(why),
        };
        if published.is_err() {
            shared.roll_back().await;
        }
        published
    }

    /// The parts whose files shares read, as workers know them. The load keeps them from being removed.
    fn part_names(&self, shared: &SharedLoad) -> Result<Vec<PartName>, StoreError> {
        let data_dir = self.archive.catalog().data_dir();
        let name_of = |read: ReadPart| {
            let ReadPart {
                part,
                database,
                table,
            } = read;
            let dir = table_dir(data_dir, &database, &table);
            let known = self.parts.get_or_read(part, &dir)?;
            Ok(PartName {
                part: part.0,
                digest: known.key.digest,
                database,
                table,
            })
        };
        shared.read_parts().into_iter().map(name_of).collect()
    }

    /// Has workers write all shares, and fetches what they have written.
    async fn prepare(
        &self,
        shared: &mut SharedLoad,
        tasks: &Tasks,
    ) -> Result<Vec<ShareReport>, String> {
        let workers = self.load_workers();
        if workers.is_empty() {
            return Err(
                "no worker is there that could load: start workers, or load on the machine of the front end (--data DIR in the place of --cluster ADDR)"
                    .to_owned(),
            );
        }
        let plan = tasks.plan(&workers, shared.plan_request()).await?;
        let count = shared.cut(plan, workers.len()).await;
        let count = count.map_err(|error| error.to_string())?;
        let all: Vec<usize> = (0..count).collect();
        let mut reports = tasks.shares(&workers, shared, &all).await?;
        loop {
            let again = shared.conflicts(&reports).await;
            let again = again.map_err(|error| error.to_string())?;
            if again.is_empty() {
                return Ok(reports);
            }
            info!(
                shares = again.len(),
                "shares with keys of shares before them are written once more"
            );
            let anew = tasks.shares(&workers, shared, &again).await?;
            for (number, report) in again.into_iter().zip(anew) {
                reports[number] = report;
            }
        }
    }

    /// The workers that take shares: those that report, and shall not go.
    fn load_workers(&self) -> Vec<LoadWorker> {
        let draining = self.settings.draining();
        let mut live = self.members.live();
        live.retain(|(name, _)| !draining.contains(name));
        live.into_iter()
            .map(|(name, member)| LoadWorker {
                name,
                address: member.report.address,
            })
            .collect()
    }

    /// Rejects that tables of an alert database's archive are replaced from elsewhere.
    fn expect_no_alerts(&self, database: &str) -> Result<(), String> {
        let directory = self.archive.catalog().data_dir().join(ALERTS);
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("cannot read {}: {error}", directory.display())),
        };
        let is_it = |name: &str| fold_name(name) == fold_name(database);
        let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        match names.any(|name| is_it(&name)) {
            true => Err(format!(
                "{database} is an alert database: replace its tables on the machine of the front end, with --data DIR in the place of --cluster ADDR"
            )),
            false => Ok(()),
        }
    }
}
