//! The plan of a statement, into which other numbers can be put.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Volatility};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use sql::functions::{POLYGON, SEPARATION};

use super::key_lookup::KeyLookup;
use super::numbers;
use super::quick::is_quick;
use super::substitution::Substitution;
use super::wording::{Number, Wording};
use crate::exec::{ChunkPhaseExec, PieceScanExec, RowsOf};
use crate::loaded_table::LoadedTable;
use crate::piece::Piece;
use crate::plan::pieces_of;
use crate::{Archive, EngineError, Prepared};

/// The plan of a statement about one table, which is read in one chunk phase.
#[derive(Debug, Clone)]
pub(super) struct Template {
    numbers: Vec<Number>,
    /// As they were typed.
    typed: Vec<String>,
    /// The places of the numbers that may be others.
    free: Vec<usize>,
    /// As it is in the state of the catalog for which the plan holds.
    table: Arc<LoadedTable>,
    pub plan: Arc<dyn ExecutionPlan>,
    /// What it comes to where it asks for the rows of one key alone.
    key_lookup: Option<KeyLookup>,
    /// Whether it takes a short time for each row that it looks at.
    pub is_quick: bool,
    /// The answer's columns under their headings.
    pub schema: SchemaRef,
}

/// A template with all that depends on its numbers worked out.
struct Filled {
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    filters: Vec<Expr>,
    bounds: Option<[f64; 4]>,
    pieces: Vec<Piece>,
}

/// A plan that is ready to run.
pub(super) struct Ready {
    pub plan: Arc<dyn ExecutionPlan>,
    /// The plan of its only piece, where nothing is left to do above it.
    pub only: Option<(Arc<dyn ExecutionPlan>, Piece)>,
}

impl Ready {
    /// Whether it reads a single piece, and looks at no more than so many rows of it.
    pub async fn looks_at_most(&self, rows: u64) -> std::result::Result<bool, EngineError> {
        let scan = (self.only.as_ref()).and_then(|(inner, piece)| Some((scan(inner)?, piece)));
        Ok(match scan {
            Some((scan, piece)) => scan.rows_looked_at(piece).await? <= rows,
            None => false,
        })
    }
}

impl Template {
    /// The template of a statement that was planned; `None` if its plan is of another shape, or says more than its text.
    pub async fn of(
        prepared: &Prepared,
        archive: &Arc<Archive>,
        wording: &Wording,
    ) -> std::result::Result<Option<Self>, EngineError> {
        let Some(scan) = phase(&prepared.plan).and_then(|phase| scan(phase.inner())) else {
            return Ok(None);
        };
        let logical = &prepared.logical;
        if scan.rows() != RowsOf::Own || depends_on_the_moment(logical) || has_polygons(logical) {
            return Ok(None);
        }
        if !numbers::are_all_kept(logical, scan) {
            return Ok(None);
        }
        let stored = scan.stored();
        let table = archive.table(&stored.database, &stored.name).await?;
        let Some(table) = table.filter(|table| table.table.load == stored.load) else {
            return Ok(None);
        };
        // Nothing is left to do above the pieces.
        let inner = prepared.plan.downcast_ref().map(ChunkPhaseExec::inner);
        let template = Self {
            numbers: wording.numbers.clone(),
            typed: wording.typed.clone(),
            free: Vec::new(),
            table,
            plan: Arc::clone(&prepared.plan),
            key_lookup: inner.and_then(KeyLookup::of),
            is_quick: inner.is_some_and(is_quick),
            schema: Arc::clone(&prepared.schema),
        };
        // It must give the pieces that planning found.
        let Some(filled) = template.fill(&template.numbers, &[], archive).await? else {
            return Ok(None);
        };
        let same = phase(&template.plan)
            .and_then(|phase| phase.pieces().ok())
            .is_some_and(|pieces| pieces == filled.pieces && scan.bounds() == filled.bounds);
        Ok(same.then_some(template))
    }

    /// This template with more numbers free, if putting those of `other` into it gives that one.
    ///
    /// It stays the one with its own numbers: that none of them stands in its conditions by chance, as a constant of some
    /// formula, is what the comparison has shown of them, and not of the others.
    pub async fn with(
        &self,
        other: &Self,
        archive: &Arc<Archive>,
    ) -> std::result::Result<Option<Self>, EngineError> {
        let places = self.differences(&other.numbers);
        let (Some(filled), Some(own)) = (
            self.fill(&other.numbers, &places, archive).await?,
            other.fill(&other.numbers, &[], archive).await?,
        ) else {
            return Ok(None);
        };
        let same = self.table.table.load == other.table.table.load
            && self.schema == other.schema
            && filled.conditions == own.conditions
            && filled.filters == own.filters
            && filled.pieces == own.pieces
            && words(&self.plan_of(&filled)?) == words(&other.plan_of(&own)?);
        if !same {
            return Ok(None);
        }
        let mut free = [self.free.as_slice(), &places].concat();
        free.sort_unstable();
        free.dedup();
        Ok(Some(Self {
            free,
            ..self.clone()
        }))
    }

    /// Where a text of the same wording has other numbers.
    fn differences(&self, numbers: &[Number]) -> Vec<usize> {
        let pairs = self.numbers.iter().zip(numbers).enumerate();
        pairs
            .filter(|(_, (own, other))| own != other)
            .map(|(at, _)| at)
            .collect()
    }

    /// The rows for other numbers, where they are those of one key and no more than so many; `None` where the plan has to give
    /// them.
    pub async fn look_up(
        &self,
        wording: &Wording,
        archive: &Archive,
        most_rows: Option<u64>,
    ) -> std::result::Result<Option<RecordBatch>, EngineError> {
        let Some(key_lookup) = &self.key_lookup else {
            return Ok(None);
        };
        let places = self.differences(&wording.numbers);
        if !self.is_typed_alike(wording) {
            return Ok(None);
        }
        let substitution = Substitution::new(&self.numbers, &wording.numbers, &places);
        match substitution.and_then(|substitution| key_lookup.key(&substitution)) {
            Some(key) => key_lookup.rows(key, &self.table, archive, most_rows).await,
            None => Ok(None),
        }
    }

    /// Whether a text has other digits only where the numbers may be others: the same number in other digits is another heading.
    fn is_typed_alike(&self, wording: &Wording) -> bool {
        let mut typed = self.typed.iter().zip(&wording.typed).enumerate();
        typed.all(|(place, (own, other))| own == other || self.free.contains(&place))
    }

    /// The plan for other numbers; `None` if they differ where they may not.
    pub async fn ready(
        &self,
        wording: &Wording,
        archive: &Arc<Archive>,
    ) -> std::result::Result<Option<Ready>, EngineError> {
        let numbers = &wording.numbers;
        let places = self.differences(numbers);
        if !self.is_typed_alike(wording) {
            return Ok(None);
        }
        let Some(filled) = self.fill(numbers, &places, archive).await? else {
            return Ok(None);
        };
        if filled.filters.iter().any(is_beyond_the_sky) {
            return Ok(None);
        }
        let only = match (
            self.plan.downcast_ref::<ChunkPhaseExec>(),
            filled.pieces.as_slice(),
        ) {
            (Some(phase), [piece]) => {
                let inner =
                    with_scan(phase.inner(), &filled).map_err(|e| EngineError::from_run(&e))?;
                Some((inner, piece.clone()))
            }
            _ => None,
        };
        let plan = match &only {
            Some((inner, _)) => Arc::clone(inner),
            None => self.plan_of(&filled)?,
        };
        Ok(Some(Ready { plan, only }))
    }

    /// Works out what depends on the numbers.
    async fn fill(
        &self,
        numbers: &[Number],
        places: &[usize],
        archive: &Arc<Archive>,
    ) -> std::result::Result<Option<Filled>, EngineError> {
        let table = &self.table;
        let Some(phase) = phase(&self.plan) else {
            return Ok(None);
        };
        let Some(scan) = scan(phase.inner()) else {
            return Ok(None);
        };
        let Some(substitution) = Substitution::new(&self.numbers, numbers, places) else {
            return Ok(None);
        };
        let put = conditions(scan, &substitution).map_err(|error| EngineError::from_run(&error))?;
        let Some((conditions, filters)) = put else {
            return Ok(None);
        };
        let restriction = table.roles().restriction(&filters);
        let coverage = table.coverage(archive, &restriction, 0).await?;
        Ok(Some(Filled {
            pieces: pieces_of(table, &restriction, &coverage, phase.concurrency()),
            bounds: restriction.envelope(),
            conditions,
            filters,
        }))
    }

    fn plan_of(&self, filled: &Filled) -> std::result::Result<Arc<dyn ExecutionPlan>, EngineError> {
        with_phase(&self.plan, filled).map_err(|error| EngineError::from_run(&error))
    }
}

type Conditions = (Vec<Arc<dyn PhysicalExpr>>, Vec<Expr>);

/// The conditions of a scan, and the filters that they were made of, with other numbers; `None` where that cannot be done.
fn conditions(scan: &PieceScanExec, substitution: &Substitution) -> Result<Option<Conditions>> {
    let conditions: Option<Vec<_>> = (scan.predicates().iter())
        .map(|condition| substitution.physical(condition))
        .collect::<Result<_>>()?;
    let all_met = substitution.met_all();
    let filters: Vec<Expr> = (scan.filters().iter())
        .map(|filter| substitution.logical(filter))
        .collect::<Result<_>>()?;
    Ok(conditions
        .filter(|_| all_met && substitution.met_all())
        .map(|conditions| (conditions, filters)))
}

/// The only phase of a plan that does one thing after another.
fn phase(plan: &Arc<dyn ExecutionPlan>) -> Option<&ChunkPhaseExec> {
    let mut node = plan;
    loop {
        if let Some(phase) = node.downcast_ref::<ChunkPhaseExec>() {
            return Some(phase);
        }
        node = only_child(node)?;
    }
}

/// The only scan of such a plan inside a phase.
fn scan(plan: &Arc<dyn ExecutionPlan>) -> Option<&PieceScanExec> {
    let mut node = plan;
    loop {
        if let Some(scan) = node.downcast_ref::<PieceScanExec>() {
            return Some(scan);
        }
        node = only_child(node)?;
    }
}

fn only_child(node: &Arc<dyn ExecutionPlan>) -> Option<&Arc<dyn ExecutionPlan>> {
    match node.children().as_slice() {
        [child] => Some(child),
        _ => None,
    }
}

/// A plan with another phase in it.
fn with_phase(plan: &Arc<dyn ExecutionPlan>, filled: &Filled) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(phase) = plan.downcast_ref::<ChunkPhaseExec>() {
        let inner = with_scan(phase.inner(), filled)?;
        return Ok(Arc::new(phase.of(&filled.pieces, inner)?));
    }
    above(plan, |child| with_phase(child, filled))
}

/// The plan of a piece with another scan in it.
fn with_scan(plan: &Arc<dyn ExecutionPlan>, filled: &Filled) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = plan.downcast_ref::<PieceScanExec>() {
        let scan = scan.clone().with_bounds(filled.bounds);
        return Ok(Arc::new(scan.with_predicates(filled.conditions.clone())?));
    }
    above(plan, |child| with_scan(child, filled))
}

/// An operator over a child that has taken the place of its own and has the same properties.
fn above(
    plan: &Arc<dyn ExecutionPlan>,
    replaced: impl Fn(&Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let children = plan.children().into_iter().map(replaced);
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
    Arc::clone(plan)
        .replace_children(children.collect::<Result<_>>()?, options)?
        .reset_state()
}

fn words(plan: &Arc<dyn ExecutionPlan>) -> String {
    displayable(plan.as_ref()).indent(true).to_string()
}

/// Whether a condition has a constant position or radius that cannot be, which planning may refuse.
fn is_beyond_the_sky(filter: &Expr) -> bool {
    let number = |expr: &Expr| match expr {
        Expr::Literal(ScalarValue::Float64(number), _) => *number,
        _ => None,
    };
    let within = |expr: &Expr, range: RangeInclusive<f64>| {
        number(expr).is_none_or(|number| range.contains(&number))
    };
    let beyond = |expr: &Expr| {
        Ok(match expr {
            Expr::ScalarFunction(call) if call.func.name() == SEPARATION => {
                let declinations = call.args.iter().skip(1).step_by(2);
                !declinations
                    .into_iter()
                    .all(|dec| within(dec, -90.0..=90.0))
            }
            Expr::BinaryExpr(BinaryExpr { left, right, .. })
                if is_separation(left) || is_separation(right) =>
            {
                ![left, right].iter().all(|side| within(side, 0.0..=180.0))
            }
            _ => false,
        })
    };
    filter.exists(beyond).unwrap_or(true)
}

fn is_separation(expr: &Expr) -> bool {
    matches!(expr, Expr::ScalarFunction(call) if call.func.name() == SEPARATION)
}

/// Whether the numbers of a statement decide how it is planned, beyond its conditions: whether a polygon is convex, and may be.
fn has_polygons(plan: &LogicalPlan) -> bool {
    let is_polygon =
        |expr: &Expr| Ok(matches!(expr, Expr::ScalarFunction(call) if call.func.name() == POLYGON));
    plan.exists(|node| {
        let expressions = node.expressions();
        let found = |expr: &Expr| expr.exists(is_polygon).unwrap_or(true);
        Ok(expressions.iter().any(found))
    })
    .unwrap_or(true)
}

/// Whether a plan has a function whose value planning may have put into it, as that of `current_date()`.
pub(super) fn depends_on_the_moment(plan: &LogicalPlan) -> bool {
    let of_the_moment = |expr: &Expr| {
        Ok(matches!(expr, Expr::ScalarFunction(function)
            if function.func.signature().volatility != Volatility::Immutable))
    };
    plan.exists(|node| {
        Ok(node
            .expressions()
            .iter()
            .any(|expr| expr.exists(of_the_moment).unwrap_or(true)))
    })
    .unwrap_or(true)
}
