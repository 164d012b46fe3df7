//! Where few rows go, as a load places them: by positions, by the keys of the director, by the keys that are there already.
//!
//! Statements that are stored together are placed together. If a row of one of them is rejected, each is placed by itself, in their order,
//! and those that are right are placed together once more: a mistake is told to whoever has made it, and of two statements with one key
//! the first has it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use catalog::{Catalog, LoadId, Table, TableKind, TableSpec};
use sky::{Angle, Chunker};
use store::{DirectorIndex, LoadDir};

use super::{SmallRows, changed};
use crate::append::same_placements;
use crate::directors::{Directors, Family};
use crate::error::IngestError;
use crate::format::ReadContext;
use crate::key_map::KeyMap;
use crate::memory::MemoryBudget;
use crate::normalise;
use crate::place::child::{ChildPlacement, Parent};
use crate::place::director::{DirectorPlacement, EarlierKeys};
use crate::place::key_run::{IndexTarget, IndexedKey, KeptKeys};
use crate::place::replicated::ReplicatedPlacement;
use crate::place::{PlaceContext, Placement};
use crate::plan::{Roles, columns_to_read};
use crate::progress::Progress;
use crate::rejected_rows::{RejectedRows, RowId};
use crate::repartition::roles_of;
use crate::report::Partitioning;
use crate::request::LoadRequest;
use crate::row_batch::{RowBatch, batch_bytes};
use crate::sort::Chunks;

/// Bytes of rows that wait in memory; more go to files.
pub(super) const MEMORY: u64 = 64 << 20;

/// Rows of one or several appends in their places.
#[derive(Debug)]
pub(super) struct PlacedPart {
    /// The rows with their places, in the order in which they are stored.
    pub rows: RecordBatch,
    /// The keys of the part's index, in their order.
    pub keys: Vec<IndexedKey>,
    /// Rows of a child without a director's key.
    pub null_keys: u64,
    /// Rows of a child with a key that the director lacks.
    pub orphan_rows: u64,
}

impl PlacedPart {
    /// The rows of several parts, in their order.
    pub(super) fn of<'a>(
        parts: impl IntoIterator<Item = &'a Self> + Clone,
    ) -> Result<Self, IngestError> {
        let all = || parts.clone().into_iter();
        let Some(first) = all().next() else {
            return Err(IngestError::Internal);
        };
        let mut keys: Vec<IndexedKey> = all().flat_map(|part| part.keys.iter().copied()).collect();
        // A key that is in several of them, an orphan of several parts, is in one place: it comes once.
        keys.sort_by_key(|key| key.key);
        keys.dedup_by_key(|key| key.key);
        Ok(Self {
            rows: concat_batches(&first.rows.schema(), all().map(|part| &part.rows))?,
            keys,
            null_keys: all().map(|part| part.null_keys).sum(),
            orphan_rows: all().map(|part| part.orphan_rows).sum(),
        })
    }

    /// Bytes of its rows.
    pub(super) fn bytes(&self) -> u64 {
        batch_bytes(&self.rows)
    }
}

/// What became of statements that were placed together: their rows, if any are right, and of each whether its rows are among them.
pub(super) struct PlacedStatements {
    pub part: Option<PlacedPart>,
    pub outcomes: Vec<Result<(), IngestError>>,
}

/// Indexes that stay open from one append to the next, while the parts that they are of are shown. Who keeps them keeps the parts' files
/// from being removed.
#[derive(Debug, Default)]
pub(super) struct OpenIndexes {
    /// Those of a director's own parts.
    own: Vec<OwnIndex>,
    /// Of a child, those of its director.
    director: Option<(Directors, Arc<Parent>)>,
}

#[derive(Debug)]
struct OwnIndex {
    load: LoadId,
    _dir: LoadDir,
    index: DirectorIndex,
}

impl OpenIndexes {
    /// Gives up those of some own parts.
    pub(super) fn forget(&mut self, parts: &[LoadId]) {
        self.own.retain(|it| !parts.contains(&it.load));
    }

    /// Those of a director's parts.
    fn of_parts(
        &mut self,
        request: &LoadRequest,
        table: &Table,
    ) -> Result<Vec<DirectorIndex>, IngestError> {
        let mut before = std::mem::take(&mut self.own);
        for part in &table.parts {
            let known = before.iter().position(|it| it.load == part.load);
            self.own.push(match known {
                Some(at) => before.swap_remove(at),
                None => {
                    let (database, name) = (&table.spec.database, &table.spec.name);
                    let dir = LoadDir::open(&request.data_dir, database, name, part.load)?;
                    OwnIndex {
                        load: part.load,
                        index: DirectorIndex::open(&dir.index_dir())?,
                        _dir: dir,
                    }
                }
            });
        }
        Ok(self.own.iter().map(|it| it.index.clone()).collect())
    }

    /// The director of a child, and where its keys are.
    async fn of_director(
        &mut self,
        catalog: &Catalog,
        request: &LoadRequest,
    ) -> Result<(&Directors, &Arc<Parent>), IngestError> {
        let name = request.directors.first().ok_or(IngestError::Internal)?;
        let now = catalog.table(request.director_database(), name).await?;
        let is_as_now = |(directors, _): &(Directors, Arc<Parent>)| {
            let then = directors.tables().next();
            then.zip(now.as_ref()).is_some_and(|(then, now)| {
                (then.id, then.placement, &then.spec) == (now.id, now.placement, &now.spec)
                    && then.part_numbers() == now.part_numbers()
            })
        };
        let known = self.director.take().filter(is_as_now);
        let known = match known {
            Some(known) => known,
            None => {
                let mut directors = Directors::find(catalog, request, TableKind::Child).await?;
                // Few keys are looked up: the files are not read for them.
                let parent = Arc::new(directors.parent(0)?);
                (directors, parent)
            }
        };
        let (directors, parent) = self.director.insert(known);
        Ok((directors, parent))
    }
}

/// By what rows of a table are placed. Nobody else gives keys of the same director a place while it is held.
pub(super) struct RowPlaces {
    pub table: Table,
    /// The table as a manifest has it.
    pub spec: TableSpec,
    pub cut: Partitioning,
    pub family: Family,
    roles: Roles,
    chunker: Arc<Chunker>,
    /// The indexes of a director's parts.
    own: Vec<DirectorIndex>,
    /// Where the keys of a child's director are.
    parent: Option<Arc<Parent>>,
}

impl RowPlaces {
    /// Of a table as it is now, whose load lock is held. Waits for those who are placing keys of the same director.
    pub(super) async fn find(
        catalog: &Catalog,
        request: &LoadRequest,
        table: Table,
        indexes: &mut OpenIndexes,
    ) -> Result<Self, IngestError> {
        let roles = match table.spec.kind {
            TableKind::Replicated => Roles::Replicated,
            _ => roles_of(&table)?,
        };
        let mut spec = table.spec.clone();
        let mut cut = Partitioning::of(&table.database);
        let (mut own, mut parent) = (Vec::new(), None);
        let family = match roles {
            Roles::Director { .. } => {
                let family = Family::of_director(catalog, request, &table).await?;
                own = indexes.of_parts(request, &table)?;
                family
            }
            Roles::Child(_) => {
                let (directors, keys) = indexes.of_director(catalog, request).await?;
                same_placements(&table, directors)?;
                cut = directors.cut_elsewhere().unwrap_or(cut);
                spec.directors = directors.references(&table.spec.columns, &roles);
                parent = Some(Arc::clone(keys));
                Family::gather(catalog, request, directors).await?
            }
            Roles::Match { .. } | Roles::Replicated => Family::default(),
        };
        Ok(Self {
            chunker: Arc::new(cut.chunker()?),
            table,
            spec,
            cut,
            family,
            roles,
            own,
            parent,
        })
    }

    /// Places the rows of statements. Those that are rejected are left out. Blocks its thread.
    ///
    /// # Errors
    /// Rows cannot be placed, whatever they are.
    pub(super) fn place(
        &self,
        statements: &[SmallRows],
        spill_dir: &Path,
    ) -> Result<PlacedStatements, IngestError> {
        let columns = &self.table.spec.columns;
        let outcome = |it: &SmallRows| match it.columns == *columns {
            true => Ok(()),
            false => Err(changed(&self.table.spec.full_name())),
        };
        let mut outcomes: Vec<Result<(), IngestError>> = statements.iter().map(outcome).collect();
        let right = |outcomes: &[Result<(), IngestError>]| -> Vec<usize> {
            (0..outcomes.len())
                .filter(|at| outcomes[*at].is_ok())
                .collect()
        };
        let asked = right(&outcomes);
        let of_all = |asked: &[usize]| -> Vec<&SmallRows> {
            asked.iter().map(|at| &statements[*at]).collect()
        };
        let first = match asked.as_slice() {
            [] => None,
            asked => Some(self.place_rows(&of_all(asked), HashSet::new(), spill_dir)),
        };
        match (first, asked.as_slice()) {
            (Some(Ok(part)), _) => {
                let part = Some(part);
                return Ok(PlacedStatements { part, outcomes });
            }
            (Some(Err(error)), [only]) if is_of_rows(&error) => outcomes[*only] = Err(error),
            (Some(Err(error)), _) if is_of_rows(&error) => {
                self.place_each(statements, &mut outcomes, spill_dir)?;
            }
            (Some(Err(error)), _) => return Err(error),
            (None, _) => {}
        }
        let part = match right(&outcomes).as_slice() {
            [] => None,
            right => Some(self.place_rows(&of_all(right), HashSet::new(), spill_dir)?),
        };
        Ok(PlacedStatements { part, outcomes })
    }

    /// Finds out of which statements rows are rejected, one after another.
    fn place_each(
        &self,
        statements: &[SmallRows],
        outcomes: &mut [Result<(), IngestError>],
        spill_dir: &Path,
    ) -> Result<(), IngestError> {
        let mut before = HashSet::new();
        let is_director = self.table.spec.kind == TableKind::Director;
        for (statement, outcome) in statements.iter().zip(outcomes) {
            if outcome.is_err() {
                continue;
            }
            match self.place_rows(&[statement], before.clone(), spill_dir) {
                Ok(part) if is_director => before.extend(part.keys.iter().map(|key| key.key)),
                Ok(_) => {}
                Err(error) if is_of_rows(&error) => *outcome = Err(error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Places rows, all of them. No key of theirs may be among those before.
    fn place_rows(
        &self,
        statements: &[&SmallRows],
        before: HashSet<i64>,
        spill_dir: &Path,
    ) -> Result<PlacedPart, IngestError> {
        let names = statements.iter().map(|it| PathBuf::from(&it.name));
        let rejected = RejectedRows::new(names.collect(), 0);
        let columns = columns_to_read(&self.table.spec.columns, self.roles);
        let read = Arc::new(ReadContext::new(
            columns,
            rejected,
            Arc::new(Progress::default()),
        ));
        let keys = KeptKeys::default();
        let context = PlaceContext {
            read: Arc::clone(&read),
            budget: Arc::new(MemoryBudget::new(MEMORY, 1)),
            chunker: Arc::clone(&self.chunker),
            overlap: Angle::from_degrees(self.cut.overlap_deg),
            spill_dir: spill_dir.to_owned(),
            index: IndexTarget::Memory(Arc::clone(&keys)),
        };
        let placement = self.placement(context, before)?;
        let mut worker = placement.worker();
        worker.place(normalised(statements, &read)?)?;
        worker.finish()?;
        read.rejected_rows.check()?;
        let placed = placement.finish(&self.family.indexes())?;
        read.rejected_rows.check()?;
        let keys = std::mem::take(&mut *keys.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(PlacedPart {
            rows: all_rows(&placed.rows)?,
            keys,
            null_keys: placed.counts.null_keys,
            orphan_rows: placed.counts.orphan_rows,
        })
    }

    fn placement(
        &self,
        context: PlaceContext,
        before: HashSet<i64>,
    ) -> Result<Box<dyn Placement>, IngestError> {
        Ok(match (self.roles, &self.parent) {
            (Roles::Director { key, positions }, _) => {
                let earlier = EarlierKeys {
                    own: KeyMap::Files(self.own.clone()),
                    of_load: KeyMap::Files(Vec::new()),
                    before,
                    orphans: KeyMap::open(&self.family.indexes(), 0)?,
                };
                let earlier = Some(earlier);
                Box::new(DirectorPlacement::new(context, key, positions, earlier))
            }
            (Roles::Child(columns), Some(parent)) => {
                let parent = Arc::clone(parent);
                Box::new(ChildPlacement::new(context, columns, parent))
            }
            (Roles::Replicated, _) => Box::new(ReplicatedPlacement::new(context)),
            (Roles::Child(_) | Roles::Match { .. }, _) => return Err(IngestError::Internal),
        })
    }
}

/// Whether an error is one of the rows that were given.
fn is_of_rows(error: &IngestError) -> bool {
    matches!(
        error,
        IngestError::TooManyRejected { .. } | IngestError::AllRejected { .. }
    )
}

/// The rows of statements by the value rules.
fn normalised(statements: &[&SmallRows], context: &ReadContext) -> Result<RowBatch, IngestError> {
    let Some(first) = statements.first() else {
        return Err(IngestError::Internal);
    };
    let rows = concat_batches(&first.rows.schema(), statements.iter().map(|it| &it.rows))?;
    let arrays = (context.columns.iter()).map(|it| rows.column_by_name(&it.name).cloned());
    let arrays: Vec<_> = arrays.collect();
    let of_statement = |(number, it): (usize, &&SmallRows)| {
        let first = RowId::new(number, 1).0;
        first..first + it.rows.num_rows() as u64
    };
    let numbers = statements.iter().enumerate().flat_map(of_statement);
    let rows = normalise::to_rows(&arrays, numbers.collect(), context)?;
    context.text_keys.compute(rows)
}

/// All rows with their places, in their order.
fn all_rows(chunks: &Chunks) -> Result<RecordBatch, IngestError> {
    let mut batches = Vec::new();
    for size in chunks.sizes() {
        for batch in chunks.take(size.chunk)? {
            batches.push(batch?);
        }
    }
    Ok(concat_batches(chunks.schema(), &batches)?)
}
