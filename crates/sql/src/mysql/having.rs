//! HAVING without groups: MySQL has it as a condition on the rows of the result, which may name the SELECT's items.
//!
//! `SELECT flux / area AS brightness FROM Object HAVING brightness > 3` is `... WHERE (flux / area) > 3`.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::AggregateUDF;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, GroupByExpr, Ident, ObjectNamePart, Query, Select, SelectItem,
    Visit, Visitor, VisitorMut,
};

use super::select::{is_wildcard, name_of_column};
use crate::error::typed;
use crate::visiting::{visit, visit_mut};
use crate::{ErrorCode, SqlError};

/// The folded names of all aggregates.
pub(crate) static AGGREGATES: LazyLock<HashSet<String>> = LazyLock::new(|| {
    let own = crate::functions::all_aggregates();
    let names = |function: Arc<AggregateUDF>| {
        let aliases = function.aliases().to_vec();
        aliases.into_iter().chain([function.name().to_owned()])
    };
    let all = all_default_aggregate_functions().into_iter().chain(own);
    all.flat_map(names).collect()
});
/// Aggregates that MySQL's dialect has under names that the engine has not.
const TYPED_AGGREGATES: [&str; 6] = [
    "any_value",
    "group_concat",
    "json_arrayagg",
    "json_objectagg",
    "std",
    "variance",
];

/// Whether a function of this folded name, as it is typed, is an aggregate.
pub(crate) fn is_aggregate(name: &str) -> bool {
    AGGREGATES.contains(name) || TYPED_AGGREGATES.contains(&name)
}

/// What gives another value each time it is computed, by the names that it has in the engine.
const CHANGING: [&str; 2] = ["random", "uuid"];

/// Makes a HAVING of a SELECT that neither groups nor aggregates part of its WHERE.
///
/// # Errors
/// It names what the SELECT does not give, or a value that would be computed anew.
pub(super) fn having_as_where(sql: &str, select: &mut Select) -> Result<(), SqlError> {
    if has_groups(select) || aggregates(&select.having) || aggregates(&select.projection) {
        return Ok(());
    }
    let Some(mut having) = select.having.take() else {
        return Ok(());
    };
    let mut items = Items {
        sql,
        items: &select.projection,
        depth: 0,
    };
    if let ControlFlow::Break(error) = visit_mut(&mut having, &mut items) {
        return Err(error);
    }
    let nested = |expr| Expr::Nested(Box::new(expr));
    select.selection = Some(match select.selection.take() {
        None => having,
        Some(condition) => Expr::BinaryOp {
            left: Box::new(nested(condition)),
            op: BinaryOperator::And,
            right: Box::new(nested(having)),
        },
    });
    Ok(())
}

pub(super) fn has_groups(select: &Select) -> bool {
    match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(groups, modifiers) => !groups.is_empty() || !modifiers.is_empty(),
    }
}

/// Whether an aggregate is called, outside of subqueries.
pub(super) fn aggregates(part: &impl Visit) -> bool {
    let calls = own_calls(part);
    calls.iter().any(|name| AGGREGATES.contains(name))
}

/// The folded name of an aggregate that is called, outside of subqueries, in what is as it was typed.
pub(super) fn aggregate_called(part: &impl Visit) -> Option<String> {
    let mut calls = own_calls(part).into_iter();
    calls.find(|name| is_aggregate(name))
}

/// The functions that are called, but for those of windows and in subqueries.
fn own_calls(part: &impl Visit) -> Vec<String> {
    let mut calls = CallsOf::default();
    // It breaks off nowhere.
    let _ = visit(part, &mut calls);
    calls.found
}

#[derive(Default)]
struct CallsOf {
    depth: usize,
    found: Vec<String>,
}

impl Visitor for CallsOf {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(Function {
            name, over: None, ..
        }) = expr
            && self.depth == 0
            && let Some(name) = name.0.last().and_then(ObjectNamePart::as_ident)
        {
            self.found.push(name.value.clone());
        }
        ControlFlow::Continue(())
    }
}

/// Puts the SELECT's items in the places of their names.
struct Items<'a> {
    sql: &'a str,
    items: &'a [SelectItem],
    /// How many subqueries the visit is in: their names are their own.
    depth: usize,
}

impl VisitorMut for Items<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<SqlError> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Some(name) = name_of_column(expr).filter(|_| self.depth == 0) else {
            return ControlFlow::Continue(());
        };
        match self.item(&name, matches!(expr, Expr::CompoundIdentifier(_))) {
            Ok(Some(item)) => *expr = Expr::Nested(Box::new(item)),
            Ok(None) => {}
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Items<'_> {
    /// What stands for a name; nothing where the name can stay.
    fn item(&self, name: &Ident, qualified: bool) -> Result<Option<Expr>, SqlError> {
        let aliased = self.items.iter().find_map(|item| match item {
            SelectItem::ExprWithAlias { expr, alias } if alias.value == name.value => Some(expr),
            _ => None,
        });
        if let (Some(expr), false) = (aliased, qualified) {
            return self.unchanging(name, expr).map(Some);
        }
        let is_it = |expr: &Expr| name_of_column(expr).is_some_and(|own| own.value == name.value);
        let column = self.items.iter().find_map(|item| match item {
            SelectItem::UnnamedExpr(expr) if is_it(expr) => Some(expr),
            SelectItem::ExprWithAlias { expr, .. } if qualified && is_it(expr) => Some(expr),
            _ => None,
        });
        match column {
            Some(_) if qualified => Ok(None),
            Some(column) => Ok(Some(column.clone())),
            None if self.items.iter().any(is_wildcard) => Ok(None),
            None => {
                let name_typed = typed(self.sql, &name.value);
                let sentence = format!(
                    "there is no column {name_typed} in the SELECT's list, whose columns HAVING is about: put the condition into WHERE, or \
                     the column into the list"
                );
                let error = SqlError::about(self.sql, &name.value, sentence);
                Err(error.with_code(ErrorCode::NO_COLUMN))
            }
        }
    }

    /// An item that has the same value wherever it stands.
    fn unchanging(&self, name: &Ident, expr: &Expr) -> Result<Expr, SqlError> {
        let changes = |call: &String| CHANGING.contains(&call.as_str());
        if !own_calls(expr).iter().any(changes) && !has_window(expr) {
            return Ok(expr.clone());
        }
        let typed = typed(self.sql, &name.value);
        let sentence = format!(
            "HAVING cannot refer to {typed}, which has no value for each row: write SELECT * FROM (SELECT ...) t WHERE {typed} ... instead"
        );
        let error = SqlError::about(self.sql, &name.value, sentence);
        Err(error.with_code(ErrorCode::NOT_SUPPORTED))
    }
}

/// Whether a value follows from other rows too.
fn has_window(expr: &Expr) -> bool {
    struct Windows;
    impl Visitor for Windows {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(Function { over: Some(_), .. }) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    visit(expr, &mut Windows).is_break()
}
