//! The number of publications, as this process knows it.
//!
//! A change raises it in its transaction, which notifies all listeners when it is committed; the process that made it notes it at once.
//! A number is good for as long as the listener is connected, and for a second after the database was last asked for it: a connection
//! that is dead and does not say so keeps nobody on an old state for longer. In between, and until the first notification can be heard,
//! the state is unknown, and statements ask the catalog.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use sqlx::postgres::PgListener;
use tokio::time::{sleep, timeout};

use super::{Shared, io};
use crate::CatalogError;
use crate::state::CatalogState;
use crate::statements::from_stored;

/// For how long a number is good after the database has confirmed it.
const FRESH: Duration = Duration::from_secs(1);
/// How often it is asked to.
const BEAT: Duration = Duration::from_millis(250);
/// How long it may take to.
const BEAT_TIMEOUT: Duration = Duration::from_millis(700);
/// How long to wait before one connects again.
const RETRY: Duration = Duration::from_millis(500);

/// The number, what tells the schema and the server from others in their place (a database that was restored counts anew), and that a
/// schema has none of it.
const STATE: &str = "SELECT counter, \
     (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint, \
     'publications'::regclass::oid::bigint FROM publications";

/// What is known of the number.
#[derive(Debug, Default)]
pub(super) struct Watch {
    known: Mutex<ConfirmedState>,
}

#[derive(Debug, Default)]
struct ConfirmedState {
    /// Whether somebody listens, or is about to.
    is_watched: bool,
    /// `None` while nobody listens.
    state: Option<CatalogState>,
    /// When the database last confirmed it: when it was asked.
    confirmed: Option<Instant>,
}

impl Watch {
    fn known(&self) -> std::sync::MutexGuard<'_, ConfirmedState> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if it is known. Whoever asks first has it watched from then on.
    pub(super) fn state(shared: &Arc<Shared>) -> Option<CatalogState> {
        let mut known = shared.watch.known();
        if !known.is_watched {
            known.is_watched = io::spawn(watch(Arc::downgrade(shared))).is_ok();
        }
        let confirmed = known.confirmed?;
        known.state.filter(|_| confirmed.elapsed() < FRESH)
    }

    /// Notes a number of which it is known that it is committed.
    pub(super) fn note(&self, number: u64) {
        if let Some(state) = &mut self.known().state {
            state.publications = state.publications.max(number);
        }
    }

    /// Forgets the state, until the database is asked again.
    pub(super) fn forget(&self) {
        self.known().state = None;
    }

    fn confirm(&self, found: CatalogState, asked: Instant) {
        let mut known = self.known();
        let publications = match known.state {
            // A later one may have been noted while the database was asked.
            Some(state) if state.store == found.store => state.publications.max(found.publications),
            _ => found.publications,
        };
        known.state = Some(CatalogState {
            publications,
            ..found
        });
        known.confirmed = Some(asked);
    }
}

impl Shared {
    /// Asks the database for the state.
    async fn confirm_state(&self) -> Result<(), CatalogError> {
        let asked = Instant::now();
        let (counter, started, schema): (i64, i64, i64) =
            sqlx::query_as(STATE).fetch_one(&self.pool).await?;
        let found = CatalogState {
            publications: from_stored("the number of publications", counter)?,
            store: [started, schema, 0, 0],
        };
        self.watch.confirm(found, asked);
        Ok(())
    }
}

/// Listens until the last handle is gone.
async fn watch(shared: Weak<Shared>) {
    while let Some(alive) = shared.upgrade() {
        let listening = listen(&alive).await;
        drop(alive);
        let ended = match listening {
            Ok(listener) => follow(&shared, listener).await,
            Err(error) => Err(error),
        };
        if let (Err(error), Some(alive)) = (&ended, shared.upgrade()) {
            alive.watch.forget();
            tracing::warn!(%error, "nobody hears of changes of the catalog: every statement asks it");
        }
        sleep(RETRY).await;
    }
}

/// A connection that hears of changes; what has changed before is known.
async fn listen(shared: &Shared) -> Result<PgListener, CatalogError> {
    let connecting = async {
        let mut listener = PgListener::connect_with(&shared.pool).await?;
        listener.eager_reconnect(false);
        listener
            .listen(&shared.file.address.channel())
            .await
            .map_err(CatalogError::from)?;
        shared.confirm_state().await?;
        Ok(listener)
    };
    connecting.await.map_err(|error| match error {
        CatalogError::Backend(error) => shared.unreachable(error),
        error => error,
    })
}

/// Notes what is heard, and asks the database now and then, until it does not answer or the last handle is gone.
async fn follow(shared: &Weak<Shared>, mut listener: PgListener) -> Result<(), CatalogError> {
    let heard = Weak::clone(shared);
    let mut hearing = Box::pin(async move {
        // No notification means that the connection was lost.
        while let Some(notification) = listener.try_recv().await? {
            let number = notification.payload().parse();
            if let (Ok(number), Some(alive)) = (number, heard.upgrade()) {
                alive.watch.note(number);
            }
        }
        Err(CatalogError::Backend(sqlx::Error::WorkerCrashed))
    });
    loop {
        tokio::select! {
            lost = &mut hearing => return lost,
            () = sleep(BEAT) => {}
        }
        let Some(alive) = shared.upgrade() else {
            return Ok(());
        };
        let confirmed = timeout(BEAT_TIMEOUT, alive.confirm_state()).await;
        confirmed.unwrap_or_else(|_| Err(sqlx::Error::PoolTimedOut.into()))?;
    }
}
