//! What a front end does with the queries that several share: it learns of those of the others, ends and removes them for their users,
//! takes over those of front ends that are gone, and gives its own up when it was out of touch with the list.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use catalog::since_boot;
use engine::QueryState;
use sql::ErrorCode;
use sqlx::PgPool;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::lease::{BEAT, Lease};
use crate::query::{Place, Query};
use crate::record::QueryRecord;
use crate::registry::lock;
use crate::service::{at_limit, has_ended};
use crate::shared::{self, Changes, Insertion, SharedQueries};
use crate::storage::{QueryFiles, remove_directory};
use crate::{QueryError, QueryService};

/// How often a front end looks for what others have changed.
const LOOK: Duration = Duration::from_millis(500);
/// How many looks there are from one search for queries of front ends that are gone to the next.
const LOOKS_OF_A_SEARCH: u64 = 2;
/// How long the renewal of a lease may take.
const RENEWAL: Duration = Duration::from_secs(4);
/// How long to wait before a query is tried to be written down once more.
const RETRY: Duration = Duration::from_millis(500);

impl QueryService {
    /// Learns what other front ends have changed, where several share the queries: what follows sees all that was done at any of them before.
    ///
    /// # Errors
    /// The list cannot be read.
    pub async fn catch_up(self: &Arc<Self>) -> Result<(), QueryError> {
        let Some(shared) = self.registry.shared() else {
            return Ok(());
        };
        let (service, asked) = (Arc::clone(self), since_boot());
        let update = move |pool: PgPool| async move { service.load_changes(&pool, asked).await };
        Ok(shared.database.run(update).await?)
    }

    /// The same where the caller's thread may wait.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn catch_up_waiting(self: &Arc<Self>) -> Result<(), QueryError> {
        let Some(shared) = self.registry.shared() else {
            return Ok(());
        };
        let (service, asked) = (Arc::clone(self), since_boot());
        let update = move |pool: PgPool| async move { service.load_changes(&pool, asked).await };
        Ok(shared.database.block(update)?)
    }

    async fn load_changes(&self, pool: &PgPool, asked: Duration) -> Result<(), sqlx::Error> {
        let Some(shared) = self.registry.shared() else {
            return Ok(());
        };
        let mut known = shared.known.lock().await;
        // Else somebody has looked meanwhile.
        if known.asked <= asked {
            let changes = shared::changes(pool, &mut known).await?;
            self.apply(changes, &shared.lease());
        }
        Ok(())
    }

    fn apply(&self, changes: Changes, lease: &Arc<Lease>) {
        if changes.is_all {
            let there: HashSet<u64> = changes.queries.iter().map(|query| query.id).collect();
            let known = self.registry.all().into_iter();
            for query in known.filter(|query| !query.is_here() && !there.contains(&query.id)) {
                self.registry.forget(query.id);
            }
        }
        for id in changes.removed {
            if let Some(query) = self.registry.find(id) {
                let error = QueryError::new(ErrorCode::INTERRUPTED, "the query was removed");
                self.end_here(&query, query.ended(QueryState::Aborted, Some(&error)));
                self.registry.forget(id);
            }
        }
        for record in changes.queries {
            self.apply_change(record, lease);
        }
    }

    fn apply_change(&self, record: QueryRecord, lease: &Arc<Lease>) {
        let known = self.registry.find(record.id);
        let is_mine = record.front_end == lease.front_end;
        match known {
            Some(query) if query.is_here() => {
                let (front_end, epoch) = query.update(|known| (known.front_end, known.epoch));
                let is_same = (record.front_end, record.epoch) == (front_end, epoch);
                if is_same && record.state.is_final() {
                    self.end_here(&query, record);
                } else if query.is_async && record.epoch > epoch {
                    let taken = Query::new(record, Place::Elsewhere);
                    self.registry.insert(Arc::new(taken));
                }
            }
            // It was written down though this front end was not told so.
            _ if is_mine && record.is_async && !record.state.is_final() => {
                let query = Query::new(record, Place::Here(Some(Arc::clone(lease))));
                self.enqueue(Arc::new(query));
            }
            Some(query) => query.update(|known| *known = record),
            None => {
                let query = Query::new(record, Place::Elsewhere);
                self.registry.insert(Arc::new(query));
            }
        }
    }

    /// Ends a query that somebody has ended.
    fn end_here(&self, query: &Query, ended: QueryRecord) {
        if query.end_as(ended) {
            query.cancel.cancel();
            lock(&self.queue).retain(|queued| *queued != query.id);
        }
    }

    /// Puts a query into the queue that is written down.
    pub(crate) fn enqueue(&self, query: Arc<Query>) {
        let id = query.id;
        self.registry.insert(query);
        lock(&self.queue).push_back(id);
        self.wake.notify_one();
    }

    /// Writes a submitted query down and puts it into the queue.
    pub(crate) async fn submit_shared(
        self: &Arc<Self>,
        shared: &Arc<SharedQueries>,
        query: Arc<Query>,
        most: Option<u64>,
    ) -> Result<(), QueryError> {
        let (id, service, list) = (query.id, Arc::clone(self), Arc::clone(shared));
        let insert = move |pool: PgPool| async move {
            // What others do with it is learned of when it is in the registry.
            let _turn = list.known.lock().await;
            let insertion = shared::insert(&pool, &query.record(), most).await?;
            if insertion == Insertion::Done {
                service.enqueue(query);
            }
            Ok(insertion)
        };
        match (shared.database.run(insert).await?, most) {
            (Insertion::Done, _) => Ok(()),
            (Insertion::AtLimit(taken), most) => Err(at_limit(taken, most.unwrap_or_default())),
            (Insertion::Known, _) => {
                self.catch_up().await?;
                let sentence = format!("query {id} is submitted already");
                Err(QueryError::new(ErrorCode::NO_CONNECTION, sentence))
            }
            (Insertion::NoLease, _) => {
                let sentence = "this front end is out of touch with the list of queries: submit it again in some seconds, or at another one";
                Err(QueryError::new(ErrorCode::OUT_OF_RESOURCES, sentence))
            }
        }
    }

    /// Ends a query that waits or runs, at whichever front end.
    pub(crate) async fn cancel_shared(
        self: &Arc<Self>,
        shared: &SharedQueries,
        id: u64,
        error: QueryError,
    ) -> Result<(), QueryError> {
        let is_ended = shared.end(id, QueryState::Aborted, error).await?;
        self.catch_up().await?;
        match (is_ended, self.registry.find(id)) {
            (true, _) => Ok(()),
            (false, Some(query)) => Err(has_ended(&query)),
            (false, None) => Err(QueryError::no_query(id)),
        }
    }

    /// Writes down what is to be known of a query of this front end, as often as it takes; `false` if it is another's by now, or somebody has
    /// ended it.
    pub(crate) async fn persist(&self, query: &Query, record: QueryRecord) -> bool {
        let Some(shared) = self.registry.shared() else {
            return true;
        };
        while query.is_held() {
            match shared.put(vec![record.clone()]).await {
                Ok(written) => return !written.is_empty(),
                Err(error) => {
                    tracing::warn!(query = query.id, %error, "a query could not be written down yet");
                    sleep(RETRY).await;
                }
            }
        }
        false
    }

    /// Leaves a query to whoever has taken it over or ended it.
    pub(crate) async fn give_up(self: &Arc<Self>, query: &Query, files: &QueryFiles) {
        lock(&self.running).remove(&query.id);
        query.let_go();
        // Who has no lease any more learns of it later.
        let _ = self.catch_up().await;
        if query.state().is_final() {
            self.settle(query, files);
        }
    }

    /// Looks for what others change, and for queries of front ends that are gone, until `stop` is cancelled.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut looks = 0_u64;
        while timeout(LOOK, stop.cancelled()).await.is_err() {
            if let Err(error) = self.catch_up().await {
                tracing::warn!(%error, "queries of other front ends cannot be seen");
                continue;
            }
            looks += 1;
            if looks.is_multiple_of(LOOKS_OF_A_SEARCH)
                && let Err(error) = self.take_over_orphans().await
            {
                tracing::warn!(%error, "queries of front ends that are gone cannot be taken over");
            }
        }
    }

    async fn take_over_orphans(self: &Arc<Self>) -> Result<(), QueryError> {
        match self.registry.shared() {
            // Who cannot write files runs nothing.
            Some(shared) if self.storage.is_ok() && shared.are_orphaned().await? => {
                self.take_over(None).await
            }
            _ => Ok(()),
        }
    }

    /// Takes over the submitted queries of front ends that are gone, and of one more.
    async fn take_over(self: &Arc<Self>, former: Option<u64>) -> Result<(), QueryError> {
        let Some(shared) = self.registry.shared().map(Arc::clone) else {
            return Ok(());
        };
        let (service, database) = (Arc::clone(self), shared.database.clone());
        let take = move |pool: PgPool| async move {
            let _turn = shared.known.lock().await;
            let lease = shared.lease();
            let taken = shared::take_over(&pool, lease.front_end, former).await?;
            let taken = taken.unwrap_or_default();
            let num_taken = taken.len();
            for record in taken {
                let place = Place::Here(Some(Arc::clone(&lease)));
                service.enqueue(Arc::new(Query::new(record, place)));
            }
            Ok(num_taken)
        };
        let num_taken = database.run(take).await?;
        if num_taken > 0 {
            tracing::warn!(
                queries = num_taken,
                "submitted queries of a front end that is gone go on here"
            );
        }
        let service = Arc::clone(self);
        let _ = tokio::task::spawn_blocking(move || service.remove_left()).await;
        Ok(())
    }

    /// Removes the files of queries that were ended while nobody ran them.
    fn remove_left(&self) {
        let Ok(storage) = &self.storage else {
            return;
        };
        let found = std::fs::read_dir(&storage.directory).into_iter().flatten();
        let names = found.flatten().map(|found| found.file_name());
        let ids = names.filter_map(|name| name.to_str()?.parse::<u64>().ok());
        for query in ids.filter_map(|id| self.registry.find(id)) {
            let state = query.state();
            if state.is_final() && state != QueryState::Completed {
                remove_directory(&storage.of(query.id));
            }
        }
    }

    /// Renews the lease until `stop` is cancelled. When it is lost, what runs here stops, and begins anew under another lease, unless
    /// others go on with it.
    pub(crate) async fn keep_lease(self: Arc<Self>, stop: CancellationToken) {
        let Some(shared) = self.registry.shared().map(Arc::clone) else {
            return;
        };
        while timeout(BEAT, stop.cancelled()).await.is_err() {
            let lease = shared.lease();
            let is_renewed = match lease.holds() {
                true => timeout(RENEWAL, shared.renew(&lease)).await,
                false => Ok(Ok(false)),
            };
            match is_renewed {
                Ok(Ok(true)) => {}
                Ok(Err(_)) | Err(_) if lease.holds() => {
                    tracing::warn!("the lease on submitted queries could not be renewed yet");
                }
                _ => self.begin_anew(&shared, &lease, &stop).await,
            }
        }
    }

    async fn begin_anew(
        self: &Arc<Self>,
        shared: &Arc<SharedQueries>,
        lost: &Lease,
        stop: &CancellationToken,
    ) {
        tracing::warn!(
            "this front end was out of touch with the list of queries: what it ran goes on from its journals, here or at another one"
        );
        lost.lost.cancel();
        let (service, list) = (Arc::clone(self), Arc::clone(shared));
        let abandon = move |_| async move {
            let _turn = list.known.lock().await;
            service.abandon();
            Ok(())
        };
        let _ = shared.database.run(abandon).await;
        while !stop.is_cancelled() {
            let joined = async {
                shared.join_again().await?;
                self.take_over(Some(lost.front_end)).await
            };
            match joined.await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "submitted queries cannot go on yet"),
            }
            let _ = timeout(BEAT, stop.cancelled()).await;
        }
    }

    /// Takes the queries that this front end has no lease for any more for those of another one.
    fn abandon(&self) {
        for query in self.registry.all() {
            let is_lost = query.is_here() && query.is_async && !query.is_held();
            if is_lost && !query.state().is_final() {
                let elsewhere = Query::new(query.record(), Place::Elsewhere);
                self.registry.insert(Arc::new(elsewhere));
            }
        }
        let is_held = |id: &u64| self.registry.find(*id).is_some_and(|query| query.is_held());
        lock(&self.queue).retain(is_held);
    }
}
