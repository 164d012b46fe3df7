//! What a worker does by itself: it reports to each front end once a second, and gets the files that it shall hold.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use axum::http::Method;
use catalog::LoadId;
use futures::future::join_all;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, info, warn};

use super::Worker;
use super::fetch_queue::FetchQueue;
use super::orders::AssignmentNumber;
use crate::ClusterError;
use crate::messages::{Assignment, MemberReport, PartFiles, WorkerEnd};
use crate::operator::encoded;
use crate::tls::Role;

/// How often a worker reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a worker that ends takes to say so.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long it pauses after a file did not come.
const PAUSE: Duration = Duration::from_secs(2);
/// How long it waits for something to do.
const IDLE: Duration = Duration::from_millis(300);
/// How often disks are looked at.
const DISK_INTERVAL: Duration = Duration::from_secs(5);
/// Files that come at a time.
const FILES_AT_ONCE: usize = 4;

/// Reports to all front ends until the worker ends, also to those that it learns of meanwhile. One that does not answer keeps no other waiting.
pub(super) async fn keep_reporting(worker: &Worker) {
    let front_ends = &worker.held.front_ends;
    let mut reporting = FuturesUnordered::new();
    let mut addresses: HashSet<String> = HashSet::new();
    loop {
        for address in front_ends.addresses() {
            if addresses.insert(address.clone()) {
                reporting.push(keep_reporting_to(worker, address));
            }
        }
        tokio::select! {
            Some(forgotten) = reporting.next() => {
                addresses.remove(&forgotten);
            }
            () = front_ends.changed() => {}
        }
    }
}

/// Reports to a front end until it is forgotten. Gives its address then.
async fn keep_reporting_to(worker: &Worker, front_end: String) -> String {
    let front_ends = &worker.held.front_ends;
    let mut ticks = interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known_holdings = None;
    // The digest of the front end's list of revoked certificates.
    let mut known_list = None;
    // What came of the last report; a log of the same each second would hide the rest.
    let mut last: Option<Result<(), String>> = None;
    loop {
        ticks.tick().await;
        if !front_ends.is_known(&front_end) {
            return front_end;
        }
        worker.held.plans.forget_idle();
        worker.shuffles.forget_silent(Instant::now());
        let report = report(worker, known_holdings, known_list);
        let told = tell(worker, &front_end, &report).await;
        front_ends.note(&front_end, told.is_ok());
        match told {
            Ok(assignment) => {
                if last != Some(Ok(())) {
                    info!(name = worker.name, front_end, "joined the cluster");
                }
                last = Some(Ok(()));
                known_holdings = assignment.known_holdings;
                known_list = Some(assignment.revoked.digest);
                let credentials = worker.held.client().credentials();
                credentials.take_news(&front_end, &assignment.revoked);
                if let Some(list) = &assignment.shuffles {
                    worker.shuffles.keep(list);
                }
                for new in front_ends.learn(&front_end, &assignment.front_ends) {
                    info!(
                        front_end = new,
                        told_by = front_end,
                        "there is another front end"
                    );
                }
                worker.orders.lock().take(assignment);
            }
            Err(error) => {
                let outcome = Some(Err(error.to_string()));
                if last != outcome {
                    warn!(front_end, %error, "not joined: trying once a second");
                }
                last = outcome;
                (known_holdings, known_list) = (None, None);
            }
        }
    }
}

fn report(worker: &Worker, known_holdings: Option<u64>, known_list: Option<u64>) -> MemberReport {
    let held = &worker.held;
    let space = held.disks.space();
    // Held until the report is made: it says which files there are under this assignment.
    let orders = worker.orders.lock();
    let version = held.version();
    let wanted = orders.parts.as_deref();
    MemberReport {
        address: worker.address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        archive: held.archive().map(str::to_owned),
        process: worker.process,
        // Counted under the lock, too: of two reports the one with the higher number tells of what is newer.
        number: worker.reports.fetch_add(1, Relaxed),
        threads: worker.options.threads.get(),
        disk_bytes: space.bytes,
        free_bytes: space.free,
        user_disks: held.disks.user_space(),
        disk_limit: worker.options.disk_limit,
        epoch: orders.follows.epoch,
        assignment: orders.follows.number,
        holdings_version: version,
        holdings: (known_holdings != Some(version)).then(|| held.list()),
        copy_rate: held.bandwidth.rate(),
        missing_bytes: wanted.map_or(0, |wanted| held.missing_bytes(wanted, &orders.user_parts)),
        trouble: held.disks.trouble().or_else(|| orders.trouble.clone()),
        damaged: held.num_damaged(),
        pieces: worker.pieces.load(Relaxed),
        shares: worker.shares.load(Relaxed),
        plans_decoded: held.plans.num_decoded(),
        certificate_ends: held.client().credentials().ends(),
        revoked: held.client().credentials().news_for(known_list),
    }
}

/// Reports to a front end, and hears what the worker shall hold.
async fn tell(
    worker: &Worker,
    front_end: &str,
    report: &MemberReport,
) -> Result<Assignment, ClusterError> {
    let path = format!("/members/{}", encoded(&worker.name));
    let held = &worker.held;
    let assignment: Assignment = held
        .client()
        .json(Method::POST, Role::FrontEnd, front_end, &path, Some(report))
        .await?;
    held.join_archive(&assignment.archive)?;
    match held.archive() == Some(assignment.archive.as_str()) {
        true => Ok(assignment),
        false => {
            let why = "is a front end of another archive than that of which this worker holds replicas: leave it out of --join";
            Err(ClusterError::member(front_end, why))
        }
    }
}

/// Tells all front ends that the worker ends, those that can be told at once: none of them sends it pieces then, and it can be removed.
pub(super) async fn tell_end(worker: &Worker) {
    let end = WorkerEnd {
        process: worker.process,
        number: worker.reports.fetch_add(1, Relaxed),
    };
    let path = format!("/members/{}/end", encoded(&worker.name));
    let (client, path) = (worker.held.client(), path.as_str());
    let addresses = worker.held.front_ends.addresses().into_iter();
    let told = addresses.map(|front_end| async move {
        let asked = client.json(Method::POST, Role::FrontEnd, &front_end, path, Some(&end));
        let told: Result<(), ClusterError> = asked.await;
        if let Err(error) = told {
            debug!(front_end, %error, "it does not know that the worker ends");
        }
    });
    if timeout(LAST_WORDS, join_all(told)).await.is_err() {
        debug!("not all front ends know that the worker ends");
    }
}

/// Gets what the worker shall hold, and gives up the rest, until it ends.
pub(super) async fn keep_fetching(worker: &Worker) {
    let mut done = None;
    loop {
        let (assignment, parts, user_parts) = {
            let orders = worker.orders.lock();
            let user_parts = Arc::clone(&orders.user_parts);
            (orders.follows, orders.parts.clone(), user_parts)
        };
        let Some(parts) = parts else {
            sleep(IDLE).await;
            continue;
        };
        // Read before anything is looked for: a file that is given up while others come is missed in the next round.
        let version = worker.held.version();
        if done == Some((assignment, version)) {
            sleep(IDLE).await;
            continue;
        }
        let trouble = fetch_missing(worker, assignment, &parts, &user_parts).await;
        let is_whole = trouble.is_none();
        worker.orders.lock().trouble = trouble;
        if !is_whole {
            sleep(PAUSE).await;
            continue;
        }
        if !give_up_rest(worker, assignment, &parts) {
            sleep(PAUSE).await;
            continue;
        }
        done = Some((assignment, version));
    }
}

/// Gives up what an assignment does not list, if it is followed still. Returns whether nothing is left of it.
fn give_up_rest(worker: &Worker, assignment: AssignmentNumber, parts: &[PartFiles]) -> bool {
    // No report tells of a newer assignment before what this one does not list is gone from what it says of the files.
    let orders = worker.orders.lock();
    orders.follows != assignment || orders.keeps_all || worker.held.keep_only(parts)
}

/// Gets the files that are missing. Returns why one of them did not come.
async fn fetch_missing(
    worker: &Worker,
    assignment: AssignmentNumber,
    parts: &Arc<Vec<PartFiles>>,
    user_parts: &HashSet<LoadId>,
) -> Option<String> {
    let mut queue = FetchQueue::new(worker.held.missing(parts, user_parts));
    let mut take = || {
        let (first, follows) = {
            let orders = worker.orders.lock();
            (Arc::clone(&orders.first), orders.follows)
        };
        // A newer assignment may not want them any more.
        match follows == assignment {
            true => queue.take(&first),
            false => None,
        }
    };
    let mut coming = FuturesUnordered::new();
    let mut trouble = None;
    loop {
        while coming.len() < FILES_AT_ONCE
            && let Some((part, file)) = take()
        {
            let of_user = user_parts.contains(&part.part);
            coming.push(worker.held.fetch(part, file, of_user));
        }
        match coming.next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                warn!(%error, "a file did not come");
                trouble = Some(error.to_string());
            }
            None => return trouble,
        }
    }
}

/// Sets disks aside that fail, until the worker's home does.
pub(super) async fn keep_checking_disks(worker: &Worker) -> ClusterError {
    loop {
        sleep(DISK_INTERVAL).await;
        if worker.held.disks.check().await {
            worker.held.forget_failed_disks();
        }
        if let Some(failure) = worker.held.disks.home_failure() {
            return failure;
        }
    }
}
