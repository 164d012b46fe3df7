//! Syntax that is read and that nothing honours: it is rejected, never left out.
//!
//! The parser reads the languages of many databases, and the planner passes over much of that in silence. So each node of a
//! statement is taken apart here without leaving a field out: a field that the parser library adds does not compile until somebody
//! has said what becomes of it. A field is honoured later, or cannot change a result (`_`), or is rejected.
//!
//! Hints about how to run a statement (index hints, `STRAIGHT_JOIN`, optimizer comments) and locks (tables never change) cannot
//! change a result in MySQL's dialect, and are accepted there.

mod expressions;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Cte, Expr, FunctionArg, GroupByExpr, GroupByWithModifier, Join, JoinOperator, LimitClause,
    LockClause, Query, Select, SelectFlavor, SelectModifiers, SetExpr, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, TableVersion, TableWithJoins,
    ValueWithSpan, Visitor, With,
};

use crate::visiting::visit;
use crate::{Dialect, ErrorCode, SqlError};

/// # Errors
/// The statement has syntax that nothing honours.
pub(crate) fn reject(dialect: Dialect, sql: &str, statement: &Statement) -> Result<(), SqlError> {
    match visit(statement, &mut Checker { dialect, sql }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Checker<'a> {
    dialect: Dialect,
    sql: &'a str,
}

type CheckResult = Result<(), SqlError>;

impl Visitor for Checker<'_> {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        broken(self.query(query))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        broken(self.select(select))
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<SqlError> {
        broken(self.table(table))
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        broken(self.expr(expr))
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<SqlError> {
        broken(self.value(&value.value))
    }
}

fn broken(checked: CheckResult) -> ControlFlow<SqlError> {
    match checked {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl Checker<'_> {
    /// Rejects what is there; `words` begin as the text does at its place.
    fn absent(&self, is_there: bool, words: &str, instead: &str) -> CheckResult {
        if !is_there {
            return Ok(());
        }
        let sentence = format!("{words} is read and not supported: {instead}");
        let first = words.split(' ').next().unwrap_or(words);
        let error = SqlError::about(self.sql, &first.to_ascii_lowercase(), sentence);
        Err(error.with_code(ErrorCode::NOT_SUPPORTED))
    }

    fn is_mysql(&self) -> bool {
        self.dialect == Dialect::MySql
    }

    fn query(&self, query: &Query) -> CheckResult {
        let Query {
            with,
            body,
            // Honoured or rejected by the planner, all of their parts.
            order_by: _,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators: _,
        } = query;
        self.with(with.as_ref())?;
        self.absent(
            for_clause.is_some(),
            "FOR XML or JSON",
            "choose the format of the result with --format",
        )?;
        self.absent(settings.is_some(), "SETTINGS", "leave it out")?;
        self.absent(
            format_clause.is_some(),
            "FORMAT",
            "choose the format of the result with --format",
        )?;
        for lock in locks {
            let LockClause {
                // Nobody changes a table, so that every row is as good as locked, and none is ever waited for.
                lock_type: _,
                nonblock: _,
                of,
            } = lock;
            let words = "FOR UPDATE or FOR SHARE";
            self.absent(!self.is_mysql(), words, "leave it out, tables never change")?;
            self.absent(
                of.is_some(),
                "OF tables after a FOR UPDATE",
                "leave it out, tables never change",
            )?;
        }
        if let SetExpr::Select(select) = &**body
            && let Some(modifiers) = &select.select_modifiers
        {
            let limited = match limit_clause {
                Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                    limit.is_some() || offset.is_some()
                }
                Some(LimitClause::OffsetCommaLimit { .. }) => true,
                None => fetch.is_some(),
            };
            let words = "SQL_CALC_FOUND_ROWS beside a LIMIT";
            self.absent(
                modifiers.sql_calc_found_rows && limited,
                words,
                "use SELECT count(*) for the number of all rows",
            )?;
        }
        Ok(())
    }

    fn with(&self, with: Option<&With>) -> CheckResult {
        let Some(With {
            with_token: _,
            recursive: _,
            cte_tables,
        }) = with
        else {
            return Ok(());
        };
        for table in cte_tables {
            let Cte {
                alias,
                query: _,
                from,
                materialized,
                closing_paren_token: _,
            } = table;
            self.alias(Some(alias))?;
            self.absent(
                from.is_some(),
                "FROM behind a table of a WITH",
                "leave it out",
            )?;
            self.absent(materialized.is_some(), "MATERIALIZED", "leave it out")?;
        }
        Ok(())
    }

    fn alias(&self, alias: Option<&TableAlias>) -> CheckResult {
        let Some(TableAlias {
            explicit: _,
            name: _,
            columns,
            at,
        }) = alias
        else {
            return Ok(());
        };
        self.absent(
            at.is_some(),
            "AT behind the name of a table",
            "leave it out",
        )?;
        for column in columns {
            let TableAliasColumnDef { name, data_type } = column;
            let words = format!("{name} with a type");
            self.absent(
                data_type.is_some(),
                &words,
                "give columns of a table names alone, and cast them where they are used",
            )?;
        }
        Ok(())
    }

    fn select(&self, select: &Select) -> CheckResult {
        let Select {
            select_token: _,
            optimizer_hints: _,
            distinct: _,
            select_modifiers,
            // Honoured in ADQL; elsewhere the planner rejects it.
            top: _,
            top_before_distinct: _,
            projection: _,
            exclude,
            into,
            from,
            lateral_views,
            prewhere,
            selection: _,
            connect_by,
            group_by,
            cluster_by,
            distribute_by,
            sort_by,
            having: _,
            named_window: _,
            qualify: _,
            window_before_qualify: _,
            value_table_mode,
            flavor,
        } = select;
        self.modifiers(select_modifiers.as_ref())?;
        self.absent(
            exclude.is_some(),
            "EXCLUDE",
            "name the columns that you want",
        )?;
        self.absent(
            into.is_some(),
            "INTO",
            "save the result with --output, or at the client",
        )?;
        self.absent(
            !lateral_views.is_empty(),
            "LATERAL VIEW",
            "join the table instead",
        )?;
        self.absent(
            prewhere.is_some(),
            "PREWHERE",
            "put the condition into WHERE",
        )?;
        self.absent(!connect_by.is_empty(), "CONNECT BY", "use WITH RECURSIVE")?;
        self.absent(!cluster_by.is_empty(), "CLUSTER BY", "use ORDER BY")?;
        self.absent(!distribute_by.is_empty(), "DISTRIBUTE BY", "leave it out")?;
        self.absent(!sort_by.is_empty(), "SORT BY", "use ORDER BY")?;
        self.absent(
            value_table_mode.is_some(),
            "AS VALUE or STRUCT",
            "name the columns that you want",
        )?;
        let is_usual = matches!(flavor, SelectFlavor::Standard);
        self.absent(!is_usual, "FROM before SELECT", "begin with SELECT")?;
        self.groups(group_by)?;
        from.iter().try_for_each(|tables| self.joins(tables))
    }

    fn modifiers(&self, modifiers: Option<&SelectModifiers>) -> CheckResult {
        let Some(SelectModifiers {
            // How it is run, which cannot change a result.
            high_priority: _,
            straight_join: _,
            sql_small_result: _,
            sql_big_result: _,
            sql_buffer_result: _,
            sql_no_cache: _,
            // Honoured where there is no LIMIT: see above.
            sql_calc_found_rows: _,
        }) = modifiers
        else {
            return Ok(());
        };
        Ok(())
    }

    fn groups(&self, group_by: &GroupByExpr) -> CheckResult {
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) = group_by;
        let rolls_up = |modifiers: &[GroupByWithModifier]| {
            self.is_mysql()
                && matches!(group_by, GroupByExpr::Expressions(..))
                && matches!(modifiers, [GroupByWithModifier::Rollup])
        };
        let words = "WITH behind a GROUP BY";
        let unknown = !modifiers.is_empty() && !rolls_up(modifiers);
        self.absent(
            unknown,
            words,
            "of these there is WITH ROLLUP, once, in MySQL's dialect",
        )
    }

    fn joins(&self, tables: &TableWithJoins) -> CheckResult {
        let TableWithJoins { relation: _, joins } = tables;
        for join in joins {
            let Join {
                relation: _,
                global,
                join_operator,
            } = join;
            self.absent(*global, "GLOBAL", "leave it out")?;
            self.join_operator(join_operator)?;
        }
        Ok(())
    }

    fn join_operator(&self, operator: &JoinOperator) -> CheckResult {
        use JoinOperator as J;
        let words = match operator {
            J::Join(_)
            | J::Inner(_)
            | J::Left(_)
            | J::LeftOuter(_)
            | J::Right(_)
            | J::RightOuter(_)
            | J::FullOuter(_)
            | J::CrossJoin(_)
            | J::StraightJoin(_)
            | J::LeftSemi(_)
            | J::RightSemi(_)
            | J::LeftAnti(_)
            | J::RightAnti(_) => return Ok(()),
            J::Semi(_) => "SEMI JOIN without LEFT or RIGHT",
            J::Anti(_) => "ANTI JOIN without LEFT or RIGHT",
            J::CrossApply | J::OuterApply => "APPLY",
            J::AsOf { .. } => "ASOF JOIN",
            J::ArrayJoin | J::LeftArrayJoin | J::InnerArrayJoin => "ARRAY JOIN",
        };
        self.absent(true, words, "join with a condition")
    }

    fn table(&self, table: &TableFactor) -> CheckResult {
        match table {
            TableFactor::Table {
                name: _,
                alias,
                args,
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
            } => {
                self.alias(alias.as_ref())?;
                self.table_arguments(args.as_ref())?;
                self.absent(!with_hints.is_empty(), "WITH hints", "leave it out")?;
                self.absent(
                    !matches!(
                        version,
                        None | Some(
                            TableVersion::ForSystemTimeAsOf(_) | TableVersion::TimestampAsOf(_)
                        )
                    ),
                    "VERSION AS OF",
                    "give a time, as in AS OF '2026-11-20 08:00:00'",
                )?;
                self.absent(
                    *with_ordinality,
                    "WITH ORDINALITY",
                    "number the rows with ROW_NUMBER() OVER ()",
                )?;
                self.absent(
                    !partitions.is_empty(),
                    "PARTITION of a table",
                    "restrict the table to chunks with a condition on chunkId, or to a region",
                )?;
                self.absent(json_path.is_some(), "PATH behind a table", "leave it out")?;
                self.absent(
                    sample.is_some(),
                    "TABLESAMPLE",
                    "use a condition on the key, as key % 100 = 0",
                )?;
                self.absent(
                    !self.is_mysql() && !index_hints.is_empty(),
                    "INDEX hints",
                    "leave it out",
                )
            }
            TableFactor::Derived {
                lateral: _,
                subquery: _,
                alias,
                sample,
            } => {
                self.alias(alias.as_ref())?;
                self.absent(
                    sample.is_some(),
                    "TABLESAMPLE",
                    "use a condition on the key, as key % 100 = 0",
                )
            }
            TableFactor::NestedJoin {
                table_with_joins,
                alias,
            } => {
                self.alias(alias.as_ref())?;
                self.joins(table_with_joins)
            }
            TableFactor::Function {
                lateral: _,
                name: _,
                args,
                with_ordinality,
                alias,
            } => {
                self.alias(alias.as_ref())?;
                self.absent(
                    *with_ordinality,
                    "WITH ORDINALITY",
                    "number the rows with ROW_NUMBER() OVER ()",
                )?;
                let is_named = |arg: &FunctionArg| !matches!(arg, FunctionArg::Unnamed(_));
                self.absent(
                    args.iter().any(is_named),
                    "LATERAL function with named arguments",
                    "give the arguments in their order",
                )
            }
            other => {
                let text = other.to_string();
                let word = text.split([' ', '(']).next().unwrap_or("it").to_owned();
                self.absent(
                    true,
                    &word,
                    "a FROM has tables, subqueries, joins and table functions",
                )
            }
        }
    }

    fn table_arguments(&self, args: Option<&TableFunctionArgs>) -> CheckResult {
        let Some(TableFunctionArgs { args: _, settings }) = args else {
            return Ok(());
        };
        self.absent(settings.is_some(), "SETTINGS", "leave it out")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::tests::parse_in;

    fn rejected(dialect: Dialect, sql: &str) -> Option<String> {
        let error = parse_in(dialect, sql).err()?;
        assert_eq!(error.code(), ErrorCode::NOT_SUPPORTED, "{sql}: {error}");
        Some(error.to_string())
    }

    #[test]
    fn what_nothing_honours_is_rejected() {
        for sql in [
            "SELECT a FROM t TABLESAMPLE BERNOULLI (10)",
            "SELECT a FROM (SELECT 1) t TABLESAMPLE (10 ROWS)",
            "SELECT a FROM t PARTITION (p0)",
            "SELECT a FROM t GROUP BY a WITH CUBE",
            "SELECT a FROM t GROUP BY a WITH TOTALS",
            "SELECT a INTO x FROM t",
            "SELECT a FROM t FOR UPDATE OF t",
            "SELECT SQL_CALC_FOUND_ROWS a FROM t LIMIT 10",
            "SELECT abs(DISTINCT a) FROM t",
            "SELECT abs(a) OVER () FROM t",
            "SELECT count(DISTINCT *) FROM t",
            "SELECT count(DISTINCT t.*) FROM t",
            "SELECT count(a, b) FROM t",
            "SELECT count(*, 1) FROM t",
            "SELECT sum(*) FROM t",
            "SELECT abs(a ORDER BY a) FROM t",
            "SELECT abs(a) WITHIN GROUP (ORDER BY a) FROM t",
            "SELECT a FROM t WHERE a COLLATE utf8mb4_general_ci = 'x'",
            "SELECT a FROM t SORT BY a",
            "SELECT a FROM t CLUSTER BY a",
            "SELECT a FROM t WHERE b IN (SELECT c FROM u TABLESAMPLE (5 PERCENT))",
        ] {
            assert!(rejected(Dialect::MySql, sql).is_some(), "{sql}");
        }
        // It matched nothing, whatever the pattern.
        for dialect in Dialect::ALL {
            let said = rejected(dialect, "SELECT 1 FROM t WHERE a SIMILAR TO '(a|b)%'");
            let said = said.unwrap_or_default();
            assert!(
                said.starts_with(
                    "SIMILAR TO is read and not supported: use LIKE, or a regular expression"
                ),
                "{said}"
            );
        }
        let sql = "SELECT 1 FROM t WHERE a REGEXP 'b'";
        assert_eq!(rejected(Dialect::MySql, sql), None);
        assert!(rejected(Dialect::Adql, sql).is_some_and(|it| it.contains("REGEXP_LIKE(")));
        let sql = "SELECT ivo_string_agg(DISTINCT a, ',') FROM t";
        assert_eq!(rejected(Dialect::Adql, sql), None);
        let sql = "SELECT abs(a) FILTER (WHERE a > 1) FROM t";
        assert!(rejected(Dialect::Adql, sql).is_some());
        for sql in [
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM t GROUP BY a WITH ROLLUP",
        ] {
            // Some of it ADQL's grammar does not even read.
            assert!(parse_in(Dialect::Adql, sql).is_err(), "{sql}");
        }
    }

    #[test]
    fn numbers_are_within_the_range_of_doubles() {
        for dialect in Dialect::ALL {
            let error = parse_in(dialect, "SELECT a FROM t WHERE a < 1e400").err();
            let code = error.map(|error| error.code());
            assert_eq!(code, Some(ErrorCode::ILLEGAL_NUMBER));
            assert!(parse_in(dialect, "SELECT 1e308").is_ok());
        }
    }

    #[test]
    fn what_cannot_change_an_answer_is_accepted() {
        for sql in [
            "SELECT a FROM t USE INDEX (i) WHERE a = 1",
            "SELECT /*+ MAX_EXECUTION_TIME(1000) */ a FROM t",
            "SELECT STRAIGHT_JOIN a FROM t",
            "SELECT SQL_NO_CACHE a FROM t",
            "SELECT SQL_CALC_FOUND_ROWS a FROM t",
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM t FOR SHARE",
            "SELECT a FROM t WHERE a COLLATE utf8mb4_bin = 'x'",
            "SELECT a, count(DISTINCT b), sum(c) OVER (PARTITION BY a) FROM t GROUP BY a WITH ROLLUP",
            "SELECT std(a) OVER (), group_concat(DISTINCT b ORDER BY b SEPARATOR ';') FROM t",
            "SELECT row_number() OVER w FROM t WINDOW w AS (ORDER BY a)",
            "SELECT ceil(a), floor(a), trim(BOTH 'x' FROM b), a + INTERVAL 1 DAY FROM t",
        ] {
            assert_eq!(rejected(Dialect::MySql, sql), None, "{sql}");
        }
    }
}
