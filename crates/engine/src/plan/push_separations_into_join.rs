//! Pushes separations into neighbour joins, which compute them anyway.

use std::sync::Arc;

use datafusion::common::{JoinSide, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use sql::functions::SEPARATION;

use super::push_exprs_into_join::{PushedExpr, renamed};
use crate::exec::{BeyondPoles, JoinedColumn, NeighbourJoinExec};

/// The separation of a pair, which the join computes to the last bit.
pub(super) struct Separations;

impl PushedExpr for Separations {
    const NAME: &'static str = "separation";

    fn column(
        expr: &Arc<dyn PhysicalExpr>,
        join: &NeighbourJoinExec,
        columns: &[JoinedColumn],
    ) -> Result<Option<(JoinedColumn, Option<NeighbourJoinExec>)>> {
        let is = is_separation(expr, join, columns)?;
        Ok(is.then_some((JoinedColumn::Separation, None)))
    }
}

/// Whether an expression over these columns of a join is the separation of the join's condition. The order of the two positions does not
/// matter, to the last bit.
fn is_separation(
    expr: &Arc<dyn PhysicalExpr>,
    join: &NeighbourJoinExec,
    columns: &[JoinedColumn],
) -> Result<bool> {
    let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() else {
        return Ok(false);
    };
    let ([ra, dec, other_ra, other_dec], SEPARATION) = (function.args(), function.name()) else {
        return Ok(false);
    };
    let (near, probe) = (join.near(), join.probe_side());
    // The join's separations are of directions, which the function does not follow.
    if near.poles == BeyondPoles::Direction {
        return Ok(false);
    }
    let build = probe.negate();
    let is = |position: [&Arc<dyn PhysicalExpr>; 2], side, of: &[Arc<dyn PhysicalExpr>; 2]| {
        let same = |expr, of| is_same(expr, columns, side, of);
        Ok::<_, datafusion::common::DataFusionError>(
            same(position[0], &of[0])? && same(position[1], &of[1])?,
        )
    };
    let (one, another) = ([ra, dec], [other_ra, other_dec]);
    Ok(
        (is(one, probe, &near.probe)? && is(another, build, &near.build)?)
            || (is(another, probe, &near.probe)? && is(one, build, &near.build)?),
    )
}

/// Whether an expression over these columns equals another over the columns of a side. Names of columns do not count.
fn is_same(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[JoinedColumn],
    side: JoinSide,
    of_side: &Arc<dyn PhysicalExpr>,
) -> Result<bool> {
    let mut elsewhere = false;
    let nameless = |at| Column::new("", at);
    let expr = renamed(expr, |at| {
        let of_side = columns.get(at).and_then(|column| column.of(side));
        elsewhere |= of_side.is_none();
        nameless(of_side.unwrap_or(at))
    })?;
    Ok(!elsewhere && expr == renamed(of_side, nameless)?)
}
