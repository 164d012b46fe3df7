//! The tables that share the keys of a director.

use std::path::PathBuf;

use catalog::{Catalog, CatalogError, DirectorRef, LoadLock, Part, Table, TableKind, fold_name};
use store::{LoadDir, PartManifest};

use super::{Director, Directors, open_parts};
use crate::error::IngestError;
use crate::load_locks::wait_for_lock_in;
use crate::request::LoadRequest;

/// The tables that share the keys of a director, and the lock that keeps two loads from giving one key two places.
///
/// A child holds it from the placing of its orphans to its publication, a part that is appended to a director from its
/// beginning to its publication, a match table while it is published.
#[derive(Debug, Default)]
pub(crate) struct Family {
    #[expect(dead_code, reason = "held, not read")]
    locks: Vec<LoadLock>,
    /// All parts of the director's children, those of the table that is loaded among them if it is appended to.
    children: Vec<LoadDir>,
    /// Parts that the director has got since the load began to read.
    later_parts: Vec<LoadDir>,
    /// Match tables with pairs of which the director does not have an end.
    unsettled: Vec<String>,
}

impl Family {
    /// Waits until no other load is between placing keys of these directors and its publication; then looks what there is.
    pub(crate) async fn gather(
        catalog: &Catalog,
        request: &LoadRequest,
        directors: &Directors,
    ) -> Result<Self, IngestError> {
        let names = directors.directors.iter().map(|it| &it.table.spec.name);
        let database = request.director_database();
        let mut family = Self::lock(request, database, names.collect()).await?;
        let [director] = directors.directors.as_slice() else {
            return Ok(family);
        };
        let now = catalog.table(database, &director.table.spec.name).await?;
        if let Some(now) = now.filter(|now| now.placement == director.table.placement) {
            expect_parts(&director.table, &now)?;
            let known = director.table.origins();
            let mut later = now;
            // A part that was merged meanwhile has the keys of its parts, in the same places.
            let is_known = |part: &Part| part.origins().iter().all(|it| known.contains(it));
            later.parts.retain(|part| !is_known(part));
            family.later_parts = open_parts(request, &later)?;
        }
        if director.elsewhere.is_some() {
            // With keys that the director lacks it is not taken for placed by it: nobody else has to know where they are.
            return Ok(family);
        }
        family.look(catalog, request, &director.table).await?;
        if request.append {
            family.look_for_pairs(catalog, request).await?;
        }
        Ok(family)
    }

    /// Match tables with pairs of the child to which rows are appended: these may have own keys that others have already, elsewhere.
    async fn look_for_pairs(
        &mut self,
        catalog: &Catalog,
        request: &LoadRequest,
    ) -> Result<(), IngestError> {
        for table in catalog.tables(&request.database).await? {
            let is_of_child = table.spec.refers_to(&request.database, &request.table);
            if is_of_child && table.spec.kind == TableKind::Match {
                self.unsettled.push(table.spec.name);
            }
        }
        Ok(())
    }

    /// The same for a part that is appended to a director.
    pub(crate) async fn of_director(
        catalog: &Catalog,
        request: &LoadRequest,
        director: &Table,
    ) -> Result<Self, IngestError> {
        let names = vec![&director.spec.name];
        let mut family = Self::lock(request, &request.database, names).await?;
        family.look(catalog, request, director).await?;
        Ok(family)
    }

    /// Waits until no other load is between placing keys of these directors of a database and its publication.
    pub(crate) async fn lock(
        request: &LoadRequest,
        database: &str,
        mut directors: Vec<&String>,
    ) -> Result<Self, IngestError> {
        // In one order, whoever asks.
        directors.sort_by_key(|name| fold_name(name));
        directors.dedup_by_key(|name| fold_name(name));
        let mut locks = Vec::with_capacity(directors.len());
        for director in directors {
            let lock = format!("{director} orphans");
            locks.push(wait_for_lock_in(request, database, &lock).await?);
        }
        Ok(Self {
            locks,
            ..Self::default()
        })
    }

    async fn look(
        &mut self,
        catalog: &Catalog,
        request: &LoadRequest,
        director: &Table,
    ) -> Result<(), IngestError> {
        for table in catalog.tables(&request.database).await? {
            let mut references = table.spec.directors.iter();
            let placed_here = |it: &DirectorRef| it.placement == Some(director.placement);
            if !references.any(placed_here) {
                continue;
            }
            match table.spec.kind {
                // What is replaced has no say.
                TableKind::Child
                    if request.replace
                        && fold_name(&table.spec.name) == fold_name(&request.table) => {}
                TableKind::Child => self.children.extend(open_parts(request, &table)?),
                _ if may_lack_keys_of(request, &table, director) => {
                    self.unsettled.push(table.spec.name);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Children of which the caller knows that no other is being loaded.
    pub(crate) fn of(children: Vec<LoadDir>) -> Self {
        Self {
            children,
            ..Self::default()
        }
    }

    /// The indexes in which keys are that the load has not met in the director: first the director's later parts, then the
    /// orphans of the children.
    pub(crate) fn indexes(&self) -> Vec<PathBuf> {
        let later = self.later_parts.iter();
        let children = self.children.iter().map(LoadDir::index_dir);
        let children = children.filter(|dir| dir.exists());
        later.map(LoadDir::index_dir).chain(children).collect()
    }

    /// Match tables with pairs that lie elsewhere than keys which a new part of the director may bring.
    pub(crate) fn unsettled(&self) -> &[String] {
        &self.unsettled
    }

    /// Whether a director has got parts since the load began to read, by which pairs would have been placed otherwise. Holds the
    /// directors' locks from then on.
    pub(crate) async fn lock_for_publication(
        catalog: &Catalog,
        request: &LoadRequest,
        directors: &Directors,
    ) -> Result<(Self, Vec<bool>), IngestError> {
        let names = directors.directors.iter().map(Director::family_name);
        let family = Self::lock(request, &request.database, names.collect()).await?;
        let mut changed = Vec::new();
        for director in &directors.directors {
            let then = &director.table;
            let now = catalog.table(&request.database, &then.spec.name).await?;
            if let Some(now) = now.as_ref().filter(|now| now.placement == then.placement) {
                expect_parts(then, now)?;
            }
            changed.push(now.is_none_or(|now| now.origins() != then.origins()));
        }
        Ok((family, changed))
    }
}

/// Whether a match table may have pairs with keys that this director, which is one of its ends, did not have when they were loaded.
fn may_lack_keys_of(request: &LoadRequest, table: &Table, director: &Table) -> bool {
    let references = table.spec.directors.iter().zip(0..2);
    let is_end: Vec<usize> = references
        .filter(|(it, _)| it.placement == Some(director.placement))
        .map(|(_, end)| end)
        .collect();
    let mut parts = table.parts.iter().filter(|part| part.orphan_rows > 0);
    parts.any(|part| match unknown_ends(request, table, part) {
        Some(pairs) => is_end.iter().any(|end| pairs[*end] > 0),
        None => true,
    })
}

/// The pairs of a part of a match table of which each end is unknown, if that was written down.
fn unknown_ends(request: &LoadRequest, table: &Table, part: &Part) -> Option<[u64; 2]> {
    let (database, name) = (&table.spec.database, &table.spec.name);
    let dir = LoadDir::open(&request.data_dir, database, name, part.load).ok()?;
    PartManifest::read(dir.path()).ok()?.unknown_ends
}

/// The same of all parts of a table, none of other tables than match tables.
pub(crate) fn unknown_ends_of(request: &LoadRequest, table: &Table) -> Option<[u64; 2]> {
    if table.spec.kind != TableKind::Match {
        return None;
    }
    let mut sum = [0, 0];
    for part in &table.parts {
        let pairs = unknown_ends(request, table, part)?;
        for (sum, pairs) in sum.iter_mut().zip(pairs) {
            *sum += pairs;
        }
    }
    Some(sum)
}

/// Sees that a director still has the rows by which others were placed: the keys of a part that was dropped meanwhile are unknown
/// now, and no index says where their rows are. Parts may have been merged.
fn expect_parts(then: &Table, now: &Table) -> Result<(), IngestError> {
    if then.origins().is_subset(&now.origins()) {
        return Ok(());
    }
    let table = format!("{}.{}", then.spec.database, then.spec.name);
    Err(CatalogError::TableChanged { table }.into())
}
