//! Where a neighbour join can run.
//!
//! Its probe side's rows are those of a piece, and each is there once. Its build side is read around them: a scan of what is near
//! ([`RowsOf::Neighbourhood`](crate::exec::RowsOf::Neighbourhood)), which is not tied to the piece, so that pairs across the edges of
//! chunks are
//! found, and every pair comes once, with its probe row.

use std::sync::Arc;

use catalog::{TableKind, fold_name};
use datafusion::common::{JoinSide, Result};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;

use super::locality::{KeyOrigin, Locality, Variant};
use super::recognise_neighbours::{FoundNeighbours, expected_rows, other};
use crate::coverage::Coverage;
use crate::exec::{BarrierExec, JoinedColumn, NeighbourJoinExec, TableScanExec};

/// Rows of a replicated table around which another table is read. More are indexed whole instead, for each piece of the other:
/// around them might be all of the sky, in the memory of one task.
const FEW_ROWS: usize = 100_000;

/// A neighbour join with its inputs as they are to be, and where it can run.
pub(super) struct LocalNeighbours {
    pub join: NeighbourJoinExec,
    pub locality: Locality,
}

/// The way of doing a join that was found: by pieces where that can be, and so that the fewer rows are read. Where only the rows
/// of the side `grouped` tell groups of pairs apart, that is the one to take row after row: its groups are then done with it.
pub(super) fn plan_neighbours(
    found: &FoundNeighbours,
    inputs: [&Arc<dyn ExecutionPlan>; 2],
    localities: [&Locality; 2],
    grouped: Option<JoinSide>,
) -> Result<LocalNeighbours> {
    let mut sides = [JoinSide::Left, JoinSide::Right];
    if prefers_right(inputs, localities, grouped) {
        sides.reverse();
    }
    let mut above = None;
    for probe in sides.into_iter().filter(|side| found.can_probe(*side)) {
        let [left, right] = inputs.map(Arc::clone);
        let build = if probe == JoinSide::Left {
            &right
        } else {
            &left
        };
        let local = match around(build, found.position(other(probe)))? {
            Some(build) => {
                let (left, right) = match probe {
                    JoinSide::Left => (left, build),
                    _ => (build, right),
                };
                let join = found.join(left, right, probe)?;
                let locality = by_probe(&join, localities[place(probe)]);
                Some(LocalNeighbours { join, locality })
            }
            None => {
                let join = found.join(left, right, probe)?;
                // A build side of replicated tables is whole in every piece.
                let locality = match localities[place(other(probe))] {
                    Locality::Anywhere => by_probe(&join, localities[place(probe)]),
                    _ => Locality::Global,
                };
                Some(LocalNeighbours { join, locality })
            }
        };
        match local {
            Some(local) if !matches!(local.locality, Locality::Global) => return Ok(local),
            local => above = above.or(local),
        }
    }
    match above {
        // What reads around the probe rows cannot stand above the pieces: there the inputs stay as they are.
        Some(LocalNeighbours { join, .. }) => {
            let [left, right] = inputs.map(Arc::clone);
            let join = found.join(left, right, join.probe_side())?;
            let locality = Locality::Global;
            Ok(LocalNeighbours { join, locality })
        }
        None => datafusion::common::internal_err!("a join by nearness that no side can probe"),
    }
}

fn place(side: JoinSide) -> usize {
    usize::from(side != JoinSide::Left)
}

/// Whether the right side is the better probe side where both can be: that from whose rows less of the sky follows, else that
/// by which is grouped, else the larger one, so that the smaller is indexed.
fn prefers_right(
    inputs: [&Arc<dyn ExecutionPlan>; 2],
    localities: [&Locality; 2],
    grouped: Option<JoinSide>,
) -> bool {
    let rows = inputs.map(expected_rows);
    let restricted = |side: usize| match localities[side] {
        Locality::Pieces { variants, .. } => variants
            .iter()
            .any(|variant| variant.coverage != Coverage::Everything),
        Locality::Anywhere => rows[side].is_some_and(|rows| rows <= FEW_ROWS),
        Locality::Global => false,
    };
    match (restricted(0), restricted(1)) {
        (true, false) => false,
        (false, true) => true,
        _ => match grouped {
            Some(side) => side == JoinSide::Right,
            None => matches!(rows, [Some(left), Some(right)] if left < right),
        },
    }
}

/// Where a join can run whose build side can be read anywhere.
fn by_probe(join: &NeighbourJoinExec, probe: &Locality) -> Locality {
    match probe {
        Locality::Pieces {
            cut,
            variants,
            partial: false,
        } => Locality::Pieces {
            cut: *cut,
            variants: variants
                .iter()
                .map(|variant| Variant {
                    columns: columns(join, &variant.columns),
                    ..variant.clone()
                })
                .collect(),
            partial: false,
        },
        Locality::Anywhere => Locality::Anywhere,
        _ => Locality::Global,
    }
}

/// The origins of the join's columns. Rows of the probe side stay in their piece, whatever is joined to them.
fn columns(join: &NeighbourJoinExec, probe: &[Option<KeyOrigin>]) -> Vec<Option<KeyOrigin>> {
    let origin = |column: &JoinedColumn| {
        let at = column.of(join.probe_side())?;
        probe.get(at).cloned().flatten()
    };
    join.columns().iter().map(origin).collect()
}

/// An input that reads what is near, if it does nothing but scan a table, row by row, whose positions are these.
pub(super) fn around(
    input: &Arc<dyn ExecutionPlan>,
    position: &[Arc<dyn PhysicalExpr>; 2],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let columns = position.each_ref().map(column);
    let [Some(ra), Some(dec)] = columns else {
        return Ok(None);
    };
    scan_around(input, [ra, dec])
}

/// The column that an expression is, perhaps in another type.
fn column(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        return column(cast.expr());
    }
    expr.downcast_ref::<Column>().map(Column::index)
}

fn scan_around(
    plan: &Arc<dyn ExecutionPlan>,
    [ra, dec]: [usize; 2],
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<TableScanExec>() {
        let near: Option<Arc<dyn ExecutionPlan>> =
            scan_is_of(scan, [ra, dec]).then(|| Arc::new(scan.around()) as Arc<dyn ExecutionPlan>);
        return Ok(near);
    }
    let below = if let Some(filter) = plan.downcast_ref::<FilterExec>() {
        match filter.projection().as_ref() {
            Some(columns) => [columns[ra], columns[dec]],
            None => [ra, dec],
        }
    } else if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let below = [ra, dec].map(|at| column(&projection.expr()[at].expr));
        let [Some(ra), Some(dec)] = below else {
            return Ok(None);
        };
        [ra, dec]
    } else if let Some(barrier) = plan.downcast_ref::<BarrierExec>() {
        [barrier.columns()[ra], barrier.columns()[dec]]
    } else if plan.is::<CoalescePartitionsExec>() {
        [ra, dec]
    } else {
        return Ok(None);
    };
    let [input] = plan.children()[..] else {
        return Ok(None);
    };
    match scan_around(input, below)? {
        Some(input) => replace_children_if_necessary(Arc::clone(plan), vec![input]).map(Some),
        None => Ok(None),
    }
}

/// Whether a scan is of a table whose own positions are in these of its columns, so that it is known where its rows are.
fn scan_is_of(scan: &TableScanExec, columns: [usize; 2]) -> bool {
    let spec = scan.table.spec();
    let Some(position) = &spec.position else {
        return false;
    };
    if !matches!(spec.kind, TableKind::Director | TableKind::Child)
        || scan.chunk_number_at().is_some()
    {
        return false;
    }
    let schema = &scan.table.stored.schema;
    let is = |at: usize, name: &str| {
        let column = scan
            .projection()
            .get(at)
            .and_then(|at| schema.fields().get(*at));
        column.is_some_and(|field| *field.name() == fold_name(name))
    };
    is(columns[0], &position.ra) && is(columns[1], &position.dec)
}
