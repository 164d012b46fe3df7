//! Recursive WITH: how often one repeats its recursive SELECT at most, and what stands behind its UNION.
//!
//! Nothing else would end a recursion without a condition. MySQL's connections set the limit by `cte_max_recursion_depth`. It travels with
//! the statement, among the settings that a query has in the syntax tree, which no text can give it.

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Cte, Expr, Ident, Query, SelectItem, SetExpr, SetOperator, Setting, Statement as Ast,
    TableFactor, Value, With,
};
use datafusion::sql::sqlparser::parser::Parser;

use crate::mysql::build::number;
use crate::{Dialect, ErrorCode, SqlError};

/// The variable of MySQL's connections, and the name of the setting.
pub(crate) const DEPTH_VARIABLE: &str = "cte_max_recursion_depth";
/// Its default.
pub(crate) const DEFAULT_DEPTH: u64 = 1000;
/// How often a recursion of ADQL may repeat, which has no variables.
const DEPTH_IN_ADQL: u64 = 10_000;

/// How often a recursive SELECT is executed at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecursionLimit {
    most: u64,
    dialect: Dialect,
}

impl RecursionLimit {
    /// The limit of a statement's recursions.
    pub fn of(dialect: Dialect, statement: &Statement) -> Self {
        let usual = match dialect {
            Dialect::MySql => DEFAULT_DEPTH,
            Dialect::Adql => DEPTH_IN_ADQL,
        };
        let most = setting(statement).unwrap_or(usual);
        Self { most, dialect }
    }

    /// Succeeds if the recursive SELECT may be executed for the time of this number, from 1.
    ///
    /// # Errors
    /// It was executed as often as it may be.
    pub fn check(self, iteration: u64) -> Result<(), SqlError> {
        if iteration <= self.most {
            return Ok(());
        }
        let sentence = match self.dialect {
            Dialect::MySql => format!(
                "Recursive query aborted after {iteration} iterations. Try increasing @@{DEPTH_VARIABLE} to a larger value, if its recursive SELECT has a \
                 condition that ends it"
            ),
            Dialect::Adql => format!(
                "a recursive WITH was not done after {} repetitions, which is the limit: give its recursive SELECT a condition that ends it",
                self.most
            ),
        };
        Err(SqlError::new(sentence).with_code(ErrorCode::RECURSION_TOO_DEEP))
    }
}

/// Whether a query has a recursive WITH of its own.
pub(crate) fn is_recursive(query: &Query) -> bool {
    query.with.as_ref().is_some_and(|with| with.recursive)
}

/// Gives a statement the limit of its connection.
pub(crate) fn set_limit(statement: &mut Ast, most: u64) {
    match statement {
        Ast::Query(query) => {
            query.settings = Some(vec![Setting {
                key: Ident::new(DEPTH_VARIABLE),
                value: number(&most.to_string()),
            }]);
        }
        Ast::Explain { statement, .. } => set_limit(statement, most),
        _ => {}
    }
}

fn setting(statement: &Statement) -> Option<u64> {
    let mut ast = match statement {
        Statement::Explain(explain) => return setting(&explain.statement),
        Statement::Statement(ast) => &**ast,
        _ => return None,
    };
    while let Ast::Explain { statement, .. } = ast {
        ast = statement;
    }
    let Ast::Query(query) = ast else {
        return None;
    };
    let settings = query.settings.as_deref().unwrap_or_default();
    let depth = settings.iter().find(|it| it.key.value == DEPTH_VARIABLE)?;
    match &depth.value {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Puts the LIMIT and the ORDER BY of a recursive table around the recursion, which has none for the planner:
/// `n AS (a UNION ALL b LIMIT 5)` is `n AS (WITH RECURSIVE n AS (a UNION ALL b) SELECT * FROM n LIMIT 5)`.
pub(crate) fn put_limits_around(query: &mut Query) {
    let Some(with) = query.with.as_mut().filter(|with| with.recursive) else {
        return;
    };
    for table in &mut with.cte_tables {
        let is_limited = table.query.limit_clause.is_some()
            || table.query.fetch.is_some()
            || table.query.order_by.is_some();
        if is_limited && is_union(&table.query.body) && table.query.with.is_none() {
            put_around(table);
        }
    }
}

fn is_union(body: &SetExpr) -> bool {
    matches!(
        body,
        SetExpr::SetOperation {
            op: SetOperator::Union,
            ..
        }
    )
}

fn put_around(table: &mut Cte) {
    let Some(mut around) = all_of(&table.alias.name) else {
        return;
    };
    let given = &mut table.query;
    around.order_by = given.order_by.take();
    around.limit_clause = given.limit_clause.take();
    around.fetch = given.fetch.take();
    let recursion = Cte {
        query: std::mem::replace(given, Box::new(around)),
        alias: table.alias.clone(),
        from: None,
        materialized: None,
        closing_paren_token: table.closing_paren_token.clone(),
    };
    table.query.with = Some(With {
        with_token: recursion.closing_paren_token.clone(),
        recursive: true,
        cte_tables: vec![recursion],
    });
}

/// `SELECT * FROM table`.
fn all_of(table: &Ident) -> Option<Query> {
    let text = "SELECT * FROM t";
    let mut parser = Parser::new(Dialect::MySql.grammar())
        .try_with_sql(text)
        .ok()?;
    let mut query = *parser.parse_query().ok()?;
    if let SetExpr::Select(select) = &mut *query.body
        && let [SelectItem::Wildcard(_)] = select.projection.as_slice()
        && let [from] = select.from.as_mut_slice()
        && let TableFactor::Table { name, .. } = &mut from.relation
    {
        *name = vec![table.clone()].into();
        return Some(query);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(sql: &str) -> Ast {
        let grammar = Dialect::MySql.grammar();
        let mut parser = Parser::new(grammar).try_with_sql(sql).unwrap();
        parser.parse_statement().unwrap()
    }

    #[test]
    fn limits_are_around_the_recursion() {
        for (sql, expected) in [
            (
                "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 5) SELECT x FROM n",
                "WITH RECURSIVE n (x) AS (WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT * FROM n LIMIT 5) SELECT x FROM n",
            ),
            (
                "WITH RECURSIVE n AS (SELECT 1 AS x LIMIT 5) SELECT x FROM n",
                "WITH RECURSIVE n AS (SELECT 1 AS x LIMIT 5) SELECT x FROM n",
            ),
            (
                "WITH n AS (SELECT 1 UNION ALL SELECT 2 LIMIT 1) SELECT * FROM n",
                "WITH n AS (SELECT 1 UNION ALL SELECT 2 LIMIT 1) SELECT * FROM n",
            ),
        ] {
            let Ast::Query(mut query) = parsed(sql) else {
                panic!("{sql} is no query");
            };
            put_limits_around(&mut query);
            assert_eq!(query.to_string(), expected);
        }
    }

    #[test]
    fn a_limit_travels_with_its_statement() {
        let mut ast = parsed("WITH RECURSIVE n AS (SELECT 1 AS x) SELECT x FROM n");
        let limit = |ast: &Ast| {
            let statement = Statement::Statement(Box::new(ast.clone()));
            RecursionLimit::of(Dialect::MySql, &statement)
        };
        assert_eq!(limit(&ast).most, DEFAULT_DEPTH);
        set_limit(&mut ast, 7);
        assert_eq!(limit(&ast).most, 7);
        assert!(limit(&ast).check(7).is_ok());
        let error = limit(&ast).check(8).unwrap_err();
        assert_eq!(error.code(), ErrorCode::RECURSION_TOO_DEEP);
        assert!(
            error
                .sentence()
                .starts_with("Recursive query aborted after 8 iterations. ")
        );
    }
}
