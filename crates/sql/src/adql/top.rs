//! `SELECT TOP n` as the engine's LIMIT.
//!
//! TOP belongs to its SELECT, OFFSET and ORDER BY stand after the whole: of a plain query the rows are sorted, those of the
//! OFFSET left out, and the TOP of what is left taken. In a set operation it limits its own SELECT.

use datafusion::sql::sqlparser::ast::{LimitClause, Query, SetExpr, Top, TopQuantity};

use super::build::number;
use crate::SqlError;
use crate::all_rows::empty;

/// Moves the TOPs of a query's SELECTs to where the engine has limits.
pub(super) fn limit_by_top(sql: &str, query: &mut Query) -> Result<(), SqlError> {
    if let SetExpr::Select(select) = query.body.as_mut() {
        return match select.top.take() {
            Some(top) => limit(sql, query, &top),
            None => Ok(()),
        };
    }
    limit_branches(sql, &mut query.body)
}

fn limit_branches(sql: &str, body: &mut SetExpr) -> Result<(), SqlError> {
    if let SetExpr::SetOperation { left, right, .. } = body {
        for branch in [left, right] {
            limit_branches(sql, branch)?;
            limit_branch(sql, branch)?;
        }
    }
    Ok(())
}

/// Puts a SELECT that has a TOP into parentheses of its own.
fn limit_branch(sql: &str, branch: &mut SetExpr) -> Result<(), SqlError> {
    let SetExpr::Select(select) = branch else {
        return Ok(());
    };
    let Some(top) = select.top.take() else {
        return Ok(());
    };
    let mut query = Query {
        with: None,
        body: Box::new(std::mem::replace(branch, empty())),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: vec![],
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: vec![],
    };
    limit(sql, &mut query, &top)?;
    *branch = SetExpr::Query(Box::new(query));
    Ok(())
}

fn limit(sql: &str, query: &mut Query, top: &Top) -> Result<(), SqlError> {
    let Some(TopQuantity::Constant(rows)) = &top.quantity else {
        return Err(SqlError::about(
            sql,
            "top",
            "TOP takes a whole number, as in SELECT TOP 10 *",
        ));
    };
    if top.percent || top.with_ties {
        return Err(SqlError::about(
            sql,
            "top",
            "TOP takes a whole number and neither PERCENT nor WITH TIES",
        ));
    }
    let rows = Some(number(&rows.to_string()));
    match &mut query.limit_clause {
        None => {
            query.limit_clause = Some(LimitClause::LimitOffset {
                limit: rows,
                offset: None,
                limit_by: vec![],
            });
        }
        Some(LimitClause::LimitOffset { limit, .. }) if limit.is_none() => *limit = rows,
        Some(_) => {
            return Err(SqlError::about(
                sql,
                "limit",
                "TOP and LIMIT both say how many rows are wanted; leave one of them out",
            ));
        }
    }
    Ok(())
}
