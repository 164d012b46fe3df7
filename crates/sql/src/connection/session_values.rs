//! Replaces expressions that read the connection by their values: `@@sql_mode`, `DATABASE()`, `CONNECTION_ID()`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, GroupByExpr, Ident, OrderByKind, Query, Select,
    Statement, Value, VisitorMut,
};

use super::{Connection, SERVER_VERSION, VariableValue};
use crate::mysql::build::{call, number, plain_arguments, plain_cast, take};
use crate::recursion;
use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError};

/// Replaces them in a folded statement; returns whether there were any.
///
/// # Errors
/// An unknown system variable, or an assignment to a variable inside a query.
pub(crate) fn substitute(
    sql: &str,
    statement: &mut Statement,
    connection: &Connection,
) -> Result<bool, SqlError> {
    let mut values = SessionValues {
        sql,
        connection,
        found: false,
        is_recursive: false,
    };
    if let ControlFlow::Break(error) = visit_mut(statement, &mut values) {
        return Err(error);
    }
    if values.is_recursive
        && let Some(most) = connection.variables.recursion_depth()
    {
        recursion::set_limit(statement, most);
        values.found = true;
    }
    Ok(values.found)
}

struct SessionValues<'a> {
    sql: &'a str,
    connection: &'a Connection,
    found: bool,
    /// Whether it has a recursive WITH.
    is_recursive: bool,
}

impl VisitorMut for SessionValues<'_> {
    type Break = SqlError;

    /// A variable is an expression in ORDER BY too, and never the number of a column: sorting by one changes nothing.
    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        self.is_recursive |= recursion::is_recursive(query);
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order.kind
        {
            let before = keys.len();
            keys.retain(|key| !is_variable(&key.expr));
            self.found |= keys.len() < before;
            if keys.is_empty() {
                query.order_by = None;
            }
        }
        ControlFlow::Continue(())
    }

    /// So is one in GROUP BY.
    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        if let GroupByExpr::Expressions(groups, _) = &mut select.group_by {
            for group in groups.iter_mut().filter(|group| is_variable(group)) {
                *group = call("coalesce", vec![take(group)]);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        match self.value_of(expr) {
            Ok(Some(value)) => {
                *expr = value;
                self.found = true;
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }

    /// GROUP_CONCAT gives so many bytes as the connection says, where it says.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Some(most) = self.connection.variables.group_concat_bytes()
            && matches!(expr, Expr::Function(function) if function.name.to_string() == "group_concat")
        {
            let most = number(&most.to_string());
            *expr = call("mysql_group_cut", vec![take(expr), most]);
            self.found = true;
        }
        ControlFlow::Continue(())
    }
}

impl SessionValues<'_> {
    fn value_of(&self, expr: &Expr) -> Result<Option<Expr>, SqlError> {
        match expr {
            Expr::Identifier(name) if name.quote_style.is_none() => {
                self.word(std::slice::from_ref(name))
            }
            Expr::CompoundIdentifier(names) => self.word(names),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::Assignment,
                ..
            } => Err(self.assigned_inside(left)),
            Expr::Function(function) => Ok(self.call(function)),
            _ => Ok(None),
        }
    }

    fn word(&self, names: &[Ident]) -> Result<Option<Expr>, SqlError> {
        let [first, rest @ ..] = names else {
            return Ok(None);
        };
        if let Some(name) = first.value.strip_prefix("@@") {
            let (scope, name) = match rest {
                [] => (None, name),
                [inner] => (Some(name), inner.value.as_str()),
                _ => return Err(self.unknown_scope(name)),
            };
            let global = match scope {
                None | Some("session" | "local") => false,
                Some("global" | "persist" | "persist_only") => true,
                Some(other) => return Err(self.unknown_scope(other)),
            };
            let value = self.connection.variable(name, global);
            let value = value.map_err(|error| {
                SqlError::about(self.sql, name, error.sentence()).with_code(error.code())
            })?;
            return Ok(Some(literal(value)));
        }
        if let Some(name) = first.value.strip_prefix('@') {
            let value = self.connection.user_variables.get(name);
            return Ok(Some(value.constant()));
        }
        let is_user = rest.is_empty() && first.value == "current_user";
        Ok(is_user.then(|| text(&self.connection.account())))
    }

    fn assigned_inside(&self, variable: &Expr) -> SqlError {
        let variable = variable.to_string();
        let sentence = format!(
            "a variable gets its value by SET {variable} = ..., not inside a query, whose rows have no order while they are computed; ROW_NUMBER() OVER (ORDER BY ...) numbers rows"
        );
        SqlError::about(self.sql, variable.trim_start_matches('@'), sentence)
            .with_code(ErrorCode::NOT_SUPPORTED)
    }

    fn unknown_scope(&self, name: &str) -> SqlError {
        SqlError::about(
            self.sql,
            name,
            "a system variable is written @@name, @@session.name or @@global.name",
        )
        .with_code(ErrorCode::SYNTAX)
    }

    fn call(&self, function: &Function) -> Option<Expr> {
        if !plain_arguments(function)?.is_empty() || function.over.is_some() {
            return None;
        }
        let connection = self.connection;
        Some(match function.name.to_string().as_str() {
            "database" | "schema" => match &connection.database {
                Some(name) => text(name),
                None => nothing(),
            },
            "user" | "session_user" | "system_user" | "current_user" => text(&connection.account()),
            "connection_id" => number(&connection.id.to_string()),
            "version" => text(SERVER_VERSION),
            "last_insert_id" => number("0"),
            "row_count" => number(&connection.row_count.to_string()),
            "found_rows" => number(&connection.found_rows.to_string()),
            _ => return None,
        })
    }
}

/// Whether an expression is a variable, of the user's or of the system, and nothing else.
fn is_variable(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(name) => name.quote_style.is_none() && name.value.starts_with('@'),
        Expr::CompoundIdentifier(names) => {
            let first = names.first();
            first.is_some_and(|name| name.quote_style.is_none() && name.value.starts_with("@@"))
        }
        Expr::Nested(inner) => is_variable(inner),
        _ => false,
    }
}

fn literal(value: VariableValue) -> Expr {
    match value {
        VariableValue::Null => nothing(),
        VariableValue::Number(value) => number(&value.to_string()),
        VariableValue::Text(value) => text(&value),
    }
}

fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).into())
}

/// A NULL of text type.
fn nothing() -> Expr {
    plain_cast(Expr::Value(Value::Null.into()), DataType::Varchar(None))
}
