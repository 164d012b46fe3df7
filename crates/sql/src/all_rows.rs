//! `INTERSECT ALL` and `EXCEPT ALL`, which count how often a row is there.
//!
//! The engine has the two for rows that are all different. They are made so: the first, the second and every further row of the
//! same values get the numbers 1, 2, ...; what is left are as many of a row as there are numbers that both sides have, or that
//! only the left side has.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier, VisitorMut,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::adql::AdqlGrammar;
use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError};

/// Rewrites the set operations of a query's body.
pub(crate) fn number_repetitions(sql: &str, body: &mut SetExpr) -> Result<(), SqlError> {
    let SetExpr::SetOperation {
        op,
        set_quantifier,
        left,
        right,
    } = body
    else {
        return Ok(());
    };
    number_repetitions(sql, left)?;
    number_repetitions(sql, right)?;
    let counts = matches!(op, SetOperator::Intersect | SetOperator::Except);
    if !counts || *set_quantifier != SetQuantifier::All {
        return Ok(());
    }
    let Some(names) = leftmost(left).and_then(names) else {
        return Err(SqlError::about(
            sql,
            "all",
            format!("{op} ALL needs the columns of its SELECTs written out, without *"),
        )
        .with_code(ErrorCode::NOT_SUPPORTED));
    };
    let mut numbered = template(*op, &names)?;
    let mut places = Places([left, right].map(|side| std::mem::replace(side.as_mut(), empty())));
    // It breaks off nowhere.
    let _ = visit_mut(&mut numbered, &mut places);
    let Query { body: inner, .. } = *numbered;
    *body = *inner;
    Ok(())
}

fn leftmost(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => leftmost(&query.body),
        SetExpr::SetOperation { left, .. } => leftmost(left),
        _ => None,
    }
}

/// What the columns of a SELECT are called; none if it has a wildcard.
fn names(select: &Select) -> Option<Vec<String>> {
    let mut seen = HashSet::new();
    let items = select.projection.iter().enumerate();
    items
        .map(|(at, item)| {
            let name = match item {
                SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => name.value.clone(),
                SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                    parts.last()?.value.clone()
                }
                SelectItem::UnnamedExpr(other) => other.to_string(),
                _ => return None,
            };
            let unique = seen.insert(name.clone());
            Some(if unique { name } else { format!("{name}_{at}") })
        })
        .collect()
}

/// The query with tables in the places of its sides.
fn template(op: SetOperator, names: &[String]) -> Result<Box<Query>, SqlError> {
    let columns: Vec<String> = (1..=names.len()).map(|n| format!("c{n}")).collect();
    let columns = columns.join(", ");
    let named: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(at, name)| format!("c{} AS \"{}\"", at + 1, name.replace('"', "\"\"")))
        .collect();
    let side = |table: &str| {
        format!(
            "SELECT {columns}, row_number() OVER (PARTITION BY {columns}) AS nth \
             FROM (SELECT * FROM {table}) AS side ({columns})"
        )
    };
    let text = format!(
        "SELECT {} FROM ({} {op} {}) AS numbered",
        named.join(", "),
        side(LEFT),
        side(RIGHT)
    );
    Parser::new(&AdqlGrammar)
        .try_with_sql(&text)
        .and_then(|mut parser| parser.parse_query())
        .map_err(|error| SqlError::new(error.to_string()))
}

const LEFT: &str = "__left";
const RIGHT: &str = "__right";

/// The sides that go where the template's tables are.
struct Places([SetExpr; 2]);

impl VisitorMut for Places {
    type Break = ();

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        for (table, side) in [LEFT, RIGHT].iter().zip(&mut self.0) {
            if query.to_string() == format!("SELECT * FROM {table}") {
                *query.body = std::mem::replace(side, empty());
            }
        }
        ControlFlow::Continue(())
    }
}

/// A body that is put somewhere for a moment.
pub(crate) fn empty() -> SetExpr {
    SetExpr::Values(datafusion::sql::sqlparser::ast::Values {
        explicit_row: false,
        value_keyword: false,
        rows: vec![],
    })
}
