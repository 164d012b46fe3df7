//! Windows that have names.
//!
//! The planner knows `OVER w` alone, and passes over the name in `OVER (w ORDER BY a)`. What a name stands for takes its place:
//!
//! ```text
//!   SUM(a) OVER (w ORDER BY a) ... WINDOW w AS (PARTITION BY p)   ──►   SUM(a) OVER (PARTITION BY p ORDER BY a)
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowDefinition, NamedWindowExpr, OrderByKind, Query, Select, SetExpr,
    Statement, VisitMut, VisitorMut, WindowSpec, WindowType,
};

use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError};

/// Writes windows out in a folded statement.
///
/// # Errors
/// A name of no window, or a window that says what the one that it is made of says already.
pub(crate) fn write_out(sql: &str, statement: &mut Statement) -> Result<(), SqlError> {
    match visit_mut(statement, &mut Windows { sql }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Windows<'a> {
    sql: &'a str,
}

/// The windows of a SELECT, each written out.
struct Defined<'a> {
    sql: &'a str,
    windows: Vec<(String, WindowSpec)>,
}

impl VisitorMut for Windows<'_> {
    type Break = SqlError;

    /// Upwards: subqueries have their own windows, and are written out by then.
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        let mut defined = Defined {
            sql: self.sql,
            windows: Vec::with_capacity(select.named_window.len()),
        };
        for window in &mut select.named_window {
            if let Err(error) = defined.define(window) {
                return ControlFlow::Break(error);
            }
        }
        defined.write_out_in(&mut select.projection)?;
        defined.write_out_in(&mut select.having)?;
        defined.write_out_in(&mut select.qualify)
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &mut query.order_by)
        else {
            return ControlFlow::Continue(());
        };
        let OrderByKind::Expressions(keys) = &mut order.kind else {
            return ControlFlow::Continue(());
        };
        let windows = select.named_window.iter();
        let windows = windows.filter_map(|NamedWindowDefinition(name, window)| match window {
            NamedWindowExpr::WindowSpec(spec) => Some((name.value.clone(), spec.clone())),
            NamedWindowExpr::NamedWindow(_) => None,
        });
        let mut defined = Defined {
            sql: self.sql,
            windows: windows.collect(),
        };
        defined.write_out_in(keys)
    }
}

impl VisitorMut for Defined<'_> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        let written = match &function.over {
            None => return ControlFlow::Continue(()),
            Some(WindowType::NamedWindow(name)) => self.window(name).cloned(),
            Some(WindowType::WindowSpec(spec)) => self.written_out(spec),
        };
        match written {
            Ok(spec) => function.over = Some(WindowType::WindowSpec(spec)),
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Defined<'_> {
    fn write_out_in(&mut self, tree: &mut impl VisitMut) -> ControlFlow<SqlError> {
        visit_mut(tree, self)
    }

    fn define(&mut self, window: &mut NamedWindowDefinition) -> Result<(), SqlError> {
        let NamedWindowDefinition(name, window) = window;
        if self.windows.iter().any(|(known, _)| *known == name.value) {
            let sentence = format!("two windows are called {}", name.value);
            let error = SqlError::about(self.sql, &name.value, sentence);
            return Err(error.with_code(ErrorCode::WINDOW_TWICE));
        }
        let spec = match window {
            NamedWindowExpr::NamedWindow(other) => self.window(other)?.clone(),
            NamedWindowExpr::WindowSpec(spec) => self.written_out(spec)?,
        };
        *window = NamedWindowExpr::WindowSpec(spec.clone());
        self.windows.push((name.value.clone(), spec));
        Ok(())
    }

    fn window(&self, name: &Ident) -> Result<&WindowSpec, SqlError> {
        let found = self.windows.iter().find(|(known, _)| *known == name.value);
        found.map(|(_, spec)| spec).ok_or_else(|| {
            let name = &name.value;
            let sentence = format!(
                "there is no window {name}: define it by WINDOW {name} AS (...), before others that are made of it"
            );
            SqlError::about(self.sql, name, sentence).with_code(ErrorCode::NO_WINDOW)
        })
    }

    fn written_out(&self, spec: &WindowSpec) -> Result<WindowSpec, SqlError> {
        let Some(name) = &spec.window_name else {
            return Ok(spec.clone());
        };
        let base = self.window(name)?;
        let name = &name.value;
        let rejected =
            |code, sentence: String| Err(SqlError::about(self.sql, name, sentence).with_code(code));
        if !spec.partition_by.is_empty() {
            return rejected(
                ErrorCode::WINDOW_PARTITIONED,
                format!(
                    "a window that is made of {name} has the PARTITION BY of {name}, and no other"
                ),
            );
        }
        if base.window_frame.is_some() {
            return rejected(
                ErrorCode::WINDOW_FRAMED,
                format!(
                    "{name} has a frame, so that no window is made of it: write OVER {name}, without parentheses"
                ),
            );
        }
        if !spec.order_by.is_empty() && !base.order_by.is_empty() {
            return rejected(
                ErrorCode::WINDOW_ORDERED,
                format!("a window that is made of {name} has the ORDER BY of {name}, and no other"),
            );
        }
        let order_by = match spec.order_by.is_empty() {
            true => &base.order_by,
            false => &spec.order_by,
        };
        Ok(WindowSpec {
            window_name: None,
            partition_by: base.partition_by.clone(),
            order_by: order_by.clone(),
            window_frame: spec.window_frame.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::parse::tests::parse_in;

    fn written(items: &str, windows: &str) -> Result<String, String> {
        let sql = format!("SELECT {items} FROM t WINDOW {windows}");
        let parsed = parse_in(Dialect::Adql, &sql).map_err(|error| error.to_string())?;
        let written = parsed[0].statement.to_string();
        Ok(written.split_once(" WINDOW ").unwrap().0.to_owned())
    }

    #[test]
    fn names_are_replaced_by_what_they_stand_for() {
        for (item, wanted) in [
            ("OVER w", "OVER (PARTITION BY p)"),
            ("OVER (w)", "OVER (PARTITION BY p)"),
            ("OVER (w ORDER BY a)", "OVER (PARTITION BY p ORDER BY a)"),
            ("OVER w2", "OVER (PARTITION BY p ORDER BY b)"),
            (
                "OVER (w2 ROWS UNBOUNDED PRECEDING)",
                "OVER (PARTITION BY p ORDER BY b ROWS UNBOUNDED PRECEDING)",
            ),
        ] {
            let found = written(
                &format!("MAX(a) {item} AS m"),
                "w AS (PARTITION BY p), w2 AS (w ORDER BY b)",
            );
            let found = found.unwrap();
            assert!(found.contains(wanted), "{item}: {found}");
        }
    }

    #[test]
    fn windows_that_cannot_be_made_are_told() {
        for (item, windows, said) in [
            (
                "OVER (v ORDER BY a)",
                "w AS (PARTITION BY p)",
                "there is no window v",
            ),
            (
                "OVER w2",
                "w2 AS (w ORDER BY a), w AS (PARTITION BY p)",
                "there is no window w:",
            ),
            (
                "OVER (w PARTITION BY a)",
                "w AS (PARTITION BY p)",
                "PARTITION BY of w",
            ),
            ("OVER (w ORDER BY a)", "w AS (ORDER BY p)", "ORDER BY of w"),
            (
                "OVER (w)",
                "w AS (ORDER BY p ROWS 1 PRECEDING)",
                "without parentheses",
            ),
            (
                "OVER w",
                "w AS (ORDER BY p), w AS (ORDER BY q)",
                "two windows",
            ),
        ] {
            let error = written(&format!("MAX(a) {item} AS m"), windows).unwrap_err();
            assert!(error.contains(said), "{item}: {error}");
        }
    }
}
