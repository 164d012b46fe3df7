//! What `TAP_SCHEMA` tells, kept for as long as the catalog stays as it is: of many tables it takes seconds to make.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use catalog::{Catalog, CatalogState, Releases, Rights};

use super::{DESCRIBED, TapSchemaEntry};

/// How many are kept, each of what somebody else sees.
const MOST: usize = 4;
/// How long views are told of as they were: they may read what is not in the catalog.
const VIEWS_LAST: Duration = Duration::from_secs(60);

/// What `TAP_SCHEMA` tells somebody.
#[derive(Debug)]
pub(super) struct Told {
    pub entries: Arc<[TapSchemaEntry]>,
    /// The rows of each of its tables, once somebody has read it.
    pub rows: [OnceLock<RecordBatch>; DESCRIBED.len()],
}

/// What it has told lately.
#[derive(Debug, Default)]
pub(crate) struct KeptTapSchemas(Mutex<Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    /// The catalog was in this state.
    state: CatalogState,
    rights: Arc<Rights>,
    releases: Arc<Releases>,
    told: Arc<Told>,
    until: Option<Instant>,
}

impl Kept {
    /// Whether it is what the catalog, which is in this state, tells whoever asks.
    fn is_of(&self, state: CatalogState, catalog: &Catalog) -> bool {
        self.state == state
            && self.until.is_none_or(|until| Instant::now() < until)
            && self.rights == *catalog.rights()
            && self.releases == *catalog.releases()
    }
}

impl KeptTapSchemas {
    /// What the catalog, which is in this state, tells whoever asks, if that is kept.
    pub(super) fn find(&self, state: CatalogState, catalog: &Catalog) -> Option<Arc<Told>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = kept.iter().find(|it| it.is_of(state, catalog))?;
        Some(Arc::clone(&found.told))
    }

    /// Keeps what the catalog, which was in this state before it was read, tells whoever asks.
    pub(super) fn keep(&self, state: CatalogState, catalog: &Catalog, told: &Arc<Told>) {
        let mut tables = told.entries.iter().flat_map(|entry| &entry.tables);
        let has_views = tables.any(|table| table.is_view);
        let new = Kept {
            state,
            rights: Arc::clone(catalog.rights()),
            releases: Arc::clone(catalog.releases()),
            told: Arc::clone(told),
            until: has_views.then(|| Instant::now() + VIEWS_LAST),
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|it| it.state == state && !it.is_of(state, catalog));
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push(new);
    }
}
