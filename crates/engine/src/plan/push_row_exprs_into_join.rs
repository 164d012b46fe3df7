//! Pushes expressions over the columns of one side into neighbour joins, which compute them once for each row and not for each of its
//! pairs.

use std::sync::Arc;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, Result};
use datafusion::physical_expr::expressions::{CaseExpr, CastExpr, Column, Literal};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::push_exprs_into_join::{PushedExpr, columns_of, renamed};
use crate::exec::{JoinedColumn, NeighbourJoinExec, RowExpr};

/// An expression over the columns of one side, such as a magnitude in a condition on the colours of both.
pub(super) struct RowExprs;

impl PushedExpr for RowExprs {
    const NAME: &'static str = "once";

    fn column(
        expr: &Arc<dyn PhysicalExpr>,
        join: &NeighbourJoinExec,
        columns: &[JoinedColumn],
    ) -> Result<Option<(JoinedColumn, Option<NeighbourJoinExec>)>> {
        let of_partners = |column: &JoinedColumn| matches!(column, JoinedColumn::OfPartners(_));
        if join.columns().iter().any(of_partners) || !is_worth_it(expr)? {
            return Ok(None);
        }
        let Some(side) = side_of(expr, columns) else {
            return Ok(None);
        };
        let input = join.input(side).schema();
        let expr = renamed(expr, |at| {
            // `side_of` has checked that all of them are columns of that side.
            let at = columns[at].of(side).unwrap_or(at);
            Column::new(input.field(at).name(), at)
        })?;
        let computed = RowExpr { side, expr };
        let mut all = join.row_exprs().to_vec();
        if let Some(at) = all.iter().position(|known| *known == computed) {
            return Ok(Some((JoinedColumn::OfRow(at), None)));
        }
        all.push(computed);
        let column = JoinedColumn::OfRow(all.len() - 1);
        Ok(Some((column, Some(join.with_row_exprs(all)))))
    }

    /// An expression that is evaluated for some rows only may fail for others.
    fn may_enter(expr: &Arc<dyn PhysicalExpr>) -> bool {
        let function = expr.downcast_ref::<ScalarFunctionExpr>();
        !expr.is::<CaseExpr>() && !function.is_some_and(|call| call.fun().short_circuits())
    }
}

/// Whether an expression does more than cast a column, and is deterministic.
fn is_worth_it(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let mut computes = false;
    let mut varies = false;
    expr.apply(|node| {
        computes |= !(node.is::<Column>() || node.is::<Literal>() || node.is::<CastExpr>());
        varies |= node.is_volatile_node();
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(computes && !varies)
}

/// The side that all columns of an expression belong to, if there is one.
fn side_of(expr: &Arc<dyn PhysicalExpr>, columns: &[JoinedColumn]) -> Option<JoinSide> {
    let mut found = None;
    for at in columns_of(expr) {
        let JoinedColumn::OfSide(side, _) = *columns.get(at)? else {
            return None;
        };
        if found.is_some_and(|found| found != side) {
            return None;
        }
        found = Some(side);
    }
    found
}
