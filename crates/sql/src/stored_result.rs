//! `qserv_result(id)` in FROM: whose results a statement reads.
//!
//! Results belong to users, and a session is shared by the connections of all of them, so the call that the engine sees also names the
//! user of the connection.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Statement, TableFactor, Value, VisitorMut,
};

use crate::visiting::visit_mut;
use crate::{Connection, ErrorCode, SqlError};

/// The name of the function.
pub const RESULT_FUNCTION: &str = "qserv_result";

/// Appends the connection's user to the arguments of every call in a folded statement; returns whether there was any.
///
/// # Errors
/// A call has other arguments than the number of a query.
pub(crate) fn add_user(
    sql: &str,
    statement: &mut Statement,
    connection: &Connection,
) -> Result<bool, SqlError> {
    let mut calls = Calls {
        sql,
        user: &connection.user,
        found: false,
    };
    match visit_mut(statement, &mut calls) {
        ControlFlow::Continue(()) => Ok(calls.found),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Calls<'a> {
    sql: &'a str,
    user: &'a str,
    found: bool,
}

impl VisitorMut for Calls<'_> {
    type Break = SqlError;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<SqlError> {
        let TableFactor::Table {
            name,
            args: Some(args),
            ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let [part] = name.0.as_slice() else {
            return ControlFlow::Continue(());
        };
        if part.as_ident().is_none_or(|it| it.value != RESULT_FUNCTION) {
            return ControlFlow::Continue(());
        }
        let constants = args.args.iter().map(constant).collect::<Option<Vec<_>>>();
        let is_proper = match constants.as_deref() {
            Some([id]) => is_number(id),
            Some([id, Value::SingleQuotedString(partial)]) => {
                is_number(id) && partial.eq_ignore_ascii_case("partial")
            }
            _ => false,
        };
        if !is_proper {
            return ControlFlow::Break(self.usage());
        }
        let user = Value::SingleQuotedString(self.user.to_owned());
        let user = FunctionArgExpr::Expr(Expr::Value(user.into()));
        args.args.push(FunctionArg::Unnamed(user));
        self.found = true;
        ControlFlow::Continue(())
    }
}

fn constant(argument: &FunctionArg) -> Option<&Value> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value))) => Some(&value.value),
        _ => None,
    }
}

fn is_number(value: &Value) -> bool {
    matches!(value, Value::Number(digits, _) if digits.parse::<u64>().is_ok())
}

impl Calls<'_> {
    fn usage(&self) -> SqlError {
        let sentence = format!(
            "{RESULT_FUNCTION} takes the number of a query, as in {RESULT_FUNCTION}(1000017), and 'partial' for its result so far; \
             information_schema.QUERIES lists the numbers"
        );
        SqlError::about(self.sql, RESULT_FUNCTION, sentence).with_code(ErrorCode::WRONG_ARGUMENTS)
    }
}

#[cfg(test)]
mod tests {
    use crate::parse::tests::parse_in;
    use crate::{Dialect, ErrorCode};

    #[test]
    fn calls_name_the_user_of_the_connection() {
        for dialect in [Dialect::MySql, Dialect::Adql] {
            let text =
                "SELECT a.x FROM qserv_result(17) a, (SELECT * FROM QSERV_RESULT(18, 'Partial')) b";
            let parsed = parse_in(dialect, text).unwrap().remove(0);
            let read = parsed.statement.to_string();
            assert!(read.contains("qserv_result(17, 'meridian')"), "{read}");
            assert!(
                read.contains("qserv_result(18, 'Partial', 'meridian')"),
                "{read}"
            );
            assert!(parsed.of_connection, "such a plan is not cached");
        }
    }

    #[test]
    fn other_arguments_are_rejected() {
        for arguments in ["", "'17'", "17, 'ann'", "-1", "1.5", "x"] {
            let text = format!("SELECT * FROM qserv_result({arguments})");
            let error = parse_in(Dialect::MySql, &text).unwrap_err();
            assert_eq!(error.code(), ErrorCode::WRONG_ARGUMENTS, "{text}");
        }
    }
}
