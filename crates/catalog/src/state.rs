//! What tells whether a catalog still shows what it showed.

/// A state of the catalog: equal states show the same catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatalogState {
    /// How many changes of what readers see there have been.
    pub(crate) publications: u64,
    /// What tells the store from another one in its place, as the backend has it.
    pub(crate) store: [i64; 4],
}
