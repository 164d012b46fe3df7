//! `qserv_areaspec_*`: a region that restricts every partitioned table of a SELECT, each by its own position columns.
//!
//! In WHERE, as one of the conditions joined by AND, the restriction falls on the tables themselves: a table on the
//! nullable side of an outer join is restricted before the join, so that the join keeps its rows. Under OR or NOT it
//! is the condition "every one of these tables' positions is inside". One in a subquery restricts the tables of the subquery alone.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    JoinOperator, ObjectName, Select, SetExpr, Statement, TableAlias, TableFactor, Value, Visitor,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;

use crate::SqlError;
use crate::functions::RegionShape;
use crate::visiting::{visit, visit_expressions, visit_mut};

/// What the rewriting must know of a table. Names are folded to lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableShape {
    /// Whether its rows are spread over chunks.
    pub partitioned: bool,
    /// Its columns of right ascension and declination.
    pub position: Option<(String, String)>,
    /// Columns that it has beside those of `*`.
    pub hidden: Vec<&'static str>,
    /// The columns of its `*` in their order, as far as whoever asks may read them, if they are known.
    pub columns: Option<Vec<String>>,
}

/// Who knows the tables.
pub trait TableShapes {
    /// The shape of a table by its folded names; without a database, of the default one.
    fn shape(&self, database: Option<&str>, table: &str) -> Option<TableShape>;

    /// The folded names of all columns that tables may have beside those of `*`.
    fn all_hidden(&self) -> &'static [&'static str];
}

/// Rewrites every area restriction in `statement`.
pub(crate) fn expand(
    sql: &str,
    statement: &mut Statement,
    tables: &dyn TableShapes,
) -> Result<(), SqlError> {
    let expanded = match visit_mut(statement, &mut Expansion { sql, tables }) {
        ControlFlow::Continue(()) => visit(statement, &mut Misplaced { sql }),
        error => error,
    };
    match expanded {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Expansion<'a> {
    sql: &'a str,
    tables: &'a dyn TableShapes,
}

impl VisitorMut for Expansion<'_> {
    type Break = SqlError;

    // Subqueries are behind it then: what is found in its WHERE is its own.
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<SqlError> {
        match self.expand_select(select) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// Finds restrictions that are left where they can restrict nothing.
struct Misplaced<'a> {
    sql: &'a str,
}

impl Visitor for Misplaced<'_> {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match restriction(expr) {
            Some((shape, _)) => ControlFlow::Break(SqlError::about(
                self.sql,
                shape.restriction(),
                format!(
                    "{} restricts the tables of a SELECT and belongs in its WHERE",
                    shape.restriction()
                ),
            )),
            None => ControlFlow::Continue(()),
        }
    }
}

/// One table of a FROM that a region restricts.
struct RestrictedTable {
    name: String,
    ra: String,
    dec: String,
    nullable: bool,
}

impl RestrictedTable {
    fn condition(&self, shape: RegionShape, numbers: &str) -> String {
        let Self { name, ra, dec, .. } = self;
        format!(
            "{}({name}.\"{ra}\", {name}.\"{dec}\", {numbers}) = 1",
            shape.function()
        )
    }
}

impl Expansion<'_> {
    fn expand_select(&self, select: &mut Select) -> Result<(), SqlError> {
        let Some(condition) = &select.selection else {
            return Ok(());
        };
        let Some(mentioned) = restriction_in(condition) else {
            return Ok(());
        };
        let mut restricted = Vec::new();
        for from in &select.from {
            // The tables so far are nullable once a RIGHT or FULL join follows; the joined one after LEFT or FULL.
            let first = restricted.len();
            restricted.extend(self.restricted(&from.relation));
            for join in &from.joins {
                let (keeps_left, keeps_right) = keeps(&join.join_operator);
                if !keeps_left {
                    restricted[first..]
                        .iter_mut()
                        .for_each(|table| table.nullable = true);
                }
                restricted.extend(
                    self.restricted(&join.relation)
                        .map(|table| RestrictedTable {
                            nullable: !keeps_right,
                            ..table
                        }),
                );
            }
        }
        if restricted.is_empty() {
            let sentence =
                "an area restriction needs a partitioned table with a position in the same FROM";
            return Err(SqlError::about(self.sql, mentioned.restriction(), sentence));
        }
        let condition = select.selection.take();
        select.selection = match condition {
            Some(condition) => self.split(condition, &restricted, &mut select.from)?,
            None => None,
        };
        Ok(())
    }

    fn restricted(&self, relation: &TableFactor) -> Option<RestrictedTable> {
        let TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } = relation
        else {
            return None;
        };
        let parts = name_parts(name);
        let shape = shape_of(self.tables, &parts)?;
        let (ra, dec) = shape.position.filter(|_| shape.partitioned)?;
        let name = match alias {
            Some(alias) => quoted(&alias.name.value),
            None => parts
                .iter()
                .map(|part| quoted(part))
                .collect::<Vec<_>>()
                .join("."),
        };
        Some(RestrictedTable {
            name,
            ra,
            dec,
            nullable: false,
        })
    }

    /// Applies the restrictions among the conditions of an AND chain and gives back what is left of it.
    fn split(
        &self,
        condition: Expr,
        restricted: &[RestrictedTable],
        from: &mut [datafusion::sql::sqlparser::ast::TableWithJoins],
    ) -> Result<Option<Expr>, SqlError> {
        let mut left = Vec::new();
        for mut conjunct in conjuncts(condition) {
            let Some((shape, numbers)) = is_one(&conjunct).map(|(s, n)| (s, n.to_vec())) else {
                self.replace_nested(&mut conjunct, restricted)?;
                left.push(conjunct);
                continue;
            };
            let numbers = self.numbers(shape, &numbers)?;
            for table in restricted {
                if table.nullable {
                    for factor in factors(from) {
                        restrict_before_join(factor, table, shape, &numbers)?;
                    }
                } else {
                    left.push(parse_expr(&table.condition(shape, &numbers))?);
                }
            }
        }
        Ok(left.into_iter().reduce(|a, b| Expr::BinaryOp {
            left: Box::new(a),
            op: BinaryOperator::And,
            right: Box::new(b),
        }))
    }

    fn numbers(&self, shape: RegionShape, numbers: &[Expr]) -> Result<String, SqlError> {
        shape
            .check_arity(shape.restriction(), numbers.len())
            .map_err(|sentence| SqlError::about(self.sql, shape.restriction(), sentence))?;
        Ok(numbers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "))
    }

    fn replace_nested(
        &self,
        expr: &mut Expr,
        restricted: &[RestrictedTable],
    ) -> Result<(), SqlError> {
        struct Replace<'a>(&'a Expansion<'a>, &'a [RestrictedTable]);
        impl VisitorMut for Replace<'_> {
            type Break = SqlError;
            fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
                let found = is_one(expr)
                    .map(|(shape, numbers)| (shape, numbers.to_vec(), ""))
                    .or_else(|| {
                        is_zero(expr).map(|(shape, numbers)| (shape, numbers.to_vec(), "NOT "))
                    });
                let Some((shape, numbers, not)) = found else {
                    return ControlFlow::Continue(());
                };
                let replaced = self.0.numbers(shape, &numbers).and_then(|numbers| {
                    let all: Vec<String> = self
                        .1
                        .iter()
                        .map(|table| table.condition(shape, &numbers))
                        .collect();
                    parse_expr(&format!("({not}({}))", all.join(" AND ")))
                });
                match replaced {
                    Ok(replaced) => {
                        *expr = replaced;
                        ControlFlow::Continue(())
                    }
                    Err(error) => ControlFlow::Break(error),
                }
            }
        }
        match visit_mut(expr, &mut Replace(self, restricted)) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(error),
        }
    }
}

/// The words of a name, of which the last is the table's.
pub(crate) fn name_parts(name: &ObjectName) -> Vec<&str> {
    let idents = name.0.iter().filter_map(|part| part.as_ident());
    idents.map(|ident| ident.value.as_str()).collect()
}

/// The shape of the table with this name.
pub(crate) fn shape_of(tables: &dyn TableShapes, parts: &[&str]) -> Option<TableShape> {
    let database = parts.len().checked_sub(2).map(|at| parts[at]);
    tables.shape(database, parts.last()?)
}

/// Whether a join keeps every row of its left and of its right side, rather than filling it up with NULLs.
fn keeps(join: &JoinOperator) -> (bool, bool) {
    match join {
        JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (true, false),
        JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (false, true),
        JoinOperator::FullOuter(_) => (false, false),
        _ => (true, true),
    }
}

fn factors(
    from: &mut [datafusion::sql::sqlparser::ast::TableWithJoins],
) -> impl Iterator<Item = &mut TableFactor> {
    from.iter_mut().flat_map(|f| {
        std::iter::once(&mut f.relation).chain(f.joins.iter_mut().map(|join| &mut join.relation))
    })
}

/// Puts `(SELECT * FROM table WHERE ...)` in the place of the table.
fn restrict_before_join(
    factor: &mut TableFactor,
    table: &RestrictedTable,
    shape: RegionShape,
    numbers: &str,
) -> Result<(), SqlError> {
    let inner = match factor {
        TableFactor::Table { name, alias, .. } => {
            let known = alias
                .as_ref()
                .map_or_else(|| name.to_string(), |a| a.name.to_string());
            if known.replace('"', "") != table.name.replace('"', "") {
                return Ok(());
            }
            format!(
                "SELECT * FROM {factor} WHERE {}",
                table.condition(shape, numbers)
            )
        }
        _ => return Ok(()),
    };
    let TableFactor::Table { name, alias, .. } = factor else {
        return Ok(());
    };
    let alias = alias.clone().or_else(|| last_ident(name).map(plain_alias));
    let query = Parser::new(&GenericDialect {})
        .try_with_sql(&inner)
        .and_then(|mut parser| parser.parse_query())
        .map_err(|error| SqlError::new(error.to_string()))?;
    debug_assert!(matches!(*query.body, SetExpr::Select(_)));
    *factor = TableFactor::Derived {
        lateral: false,
        subquery: query,
        alias,
        sample: None,
    };
    Ok(())
}

fn last_ident(name: &ObjectName) -> Option<Ident> {
    name.0.last().and_then(|part| part.as_ident()).cloned()
}

fn plain_alias(name: Ident) -> TableAlias {
    TableAlias {
        explicit: true,
        name,
        columns: vec![],
        at: None,
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn parse_expr(text: &str) -> Result<Expr, SqlError> {
    Parser::new(&GenericDialect {})
        .try_with_sql(text)
        .and_then(|mut parser| parser.parse_expr())
        .map_err(|error| SqlError::new(error.to_string()))
}

fn conjuncts(expr: Expr) -> Vec<Expr> {
    match expr {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            let mut all = conjuncts(*left);
            all.extend(conjuncts(*right));
            all
        }
        Expr::Nested(inner)
            if matches!(
                &*inner,
                Expr::BinaryOp {
                    op: BinaryOperator::And,
                    ..
                }
            ) =>
        {
            conjuncts(*inner)
        }
        Expr::Nested(inner) if is_one(&inner).is_some() => vec![*inner],
        other => vec![other],
    }
}

/// The shape of the first restriction in an expression.
fn restriction_in(expr: &Expr) -> Option<RegionShape> {
    let found = visit_expressions(expr, |e| match restriction(e) {
        Some((shape, _)) => ControlFlow::Break(shape),
        None => ControlFlow::Continue(()),
    });
    found.break_value()
}

/// `qserv_areaspec_x(...)` itself: its shape and arguments.
fn restriction(expr: &Expr) -> Option<(RegionShape, Vec<Expr>)> {
    let Expr::Function(Function {
        name,
        args: FunctionArguments::List(list),
        ..
    }) = expr
    else {
        return None;
    };
    let name = last_ident(name)?.value;
    let shape = RegionShape::ALL
        .into_iter()
        .find(|shape| shape.restriction() == name)?;
    let numbers = list
        .args
        .iter()
        .filter_map(|arg| match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
            _ => None,
        })
        .collect();
    Some((shape, numbers))
}

/// `areaspec(...)` or `areaspec(...) = 1`, in either order.
fn is_one(expr: &Expr) -> Option<(RegionShape, Vec<Expr>)> {
    restriction(expr).or_else(|| compared_with(expr, "1"))
}

fn is_zero(expr: &Expr) -> Option<(RegionShape, Vec<Expr>)> {
    compared_with(expr, "0")
}

fn compared_with(expr: &Expr, number: &str) -> Option<(RegionShape, Vec<Expr>)> {
    let Expr::BinaryOp {
        left,
        op: BinaryOperator::Eq,
        right,
    } = expr
    else {
        return None;
    };
    let is_number = |e: &Expr| matches!(e, Expr::Value(v) if matches!(&v.value, Value::Number(n, _) if n == number));
    match (restriction(left), restriction(right)) {
        (Some(found), None) if is_number(right) => Some(found),
        (None, Some(found)) if is_number(left) => Some(found),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;
    use crate::fold_case;

    #[test]
    fn restricts_every_table_by_its_own_columns() {
        assert_snapshot!(
            expanded("SELECT * FROM Object o, Source WHERE qserv_areaspec_box(0, -1, 1, 1) AND o.id = Source.id AND x"),
            @r#"SELECT * FROM object o, source WHERE scisql_s2ptinbox("o"."ra", "o"."dec", 0, -1, 1, 1) = 1 AND scisql_s2ptinbox("source"."ra", "source"."dec", 0, -1, 1, 1) = 1 AND o.id = source.id AND x"#
        );
    }

    #[test]
    fn restricts_the_nullable_side_before_the_join() {
        assert_snapshot!(
            expanded("SELECT * FROM Object o LEFT JOIN Source s ON o.id = s.id WHERE QSERV_AreaSpec_circle(1, 2, 3) = 1"),
            @r#"SELECT * FROM object o LEFT JOIN (SELECT * FROM source s WHERE scisql_s2ptincircle("s"."ra", "s"."dec", 1, 2, 3) = 1) s ON o.id = s.id WHERE scisql_s2ptincircle("o"."ra", "o"."dec", 1, 2, 3) = 1"#
        );
    }

    #[test]
    fn under_or_and_not_it_is_a_condition() {
        assert_snapshot!(
            expanded("SELECT * FROM Object WHERE NOT qserv_areaspec_circle(1, 2, 3) OR qserv_areaspec_circle(4, 5, 6) = 0"),
            @r#"SELECT * FROM object WHERE NOT ((scisql_s2ptincircle("object"."ra", "object"."dec", 1, 2, 3) = 1)) OR (NOT (scisql_s2ptincircle("object"."ra", "object"."dec", 4, 5, 6) = 1))"#
        );
    }

    /// It was taken for one of the tables outside, if these have a position, and refused otherwise.
    #[test]
    fn a_restriction_in_a_subquery_is_that_of_its_tables() {
        assert_snapshot!(
            expanded("SELECT * FROM Object o WHERE qserv_areaspec_circle(1, 2, 3) AND o.id IN (SELECT id FROM Source WHERE qserv_areaspec_box(0, -1, 1, 1))"),
            @r#"SELECT * FROM object o WHERE scisql_s2ptincircle("o"."ra", "o"."dec", 1, 2, 3) = 1 AND o.id IN (SELECT id FROM source WHERE scisql_s2ptinbox("source"."ra", "source"."dec", 0, -1, 1, 1) = 1)"#
        );
        assert_snapshot!(
            expanded("SELECT * FROM Filter WHERE NOT EXISTS (SELECT 1 FROM Source s WHERE s.id = 1 OR qserv_areaspec_circle(1, 2, 3))"),
            @r#"SELECT * FROM filter WHERE NOT EXISTS (SELECT 1 FROM source s WHERE s.id = 1 OR ((scisql_s2ptincircle("s"."ra", "s"."dec", 1, 2, 3) = 1)))"#
        );
        let inner = "SELECT * FROM object WHERE id IN (SELECT id FROM filter WHERE qserv_areaspec_circle(1, 2, 3))";
        let error = expand_text(inner).unwrap_err();
        assert!(error.sentence().contains("needs a partitioned table"));
    }

    #[test]
    fn misuse_is_told() {
        let told = |sql: &str| expand_text(sql).unwrap_err().sentence().to_owned();
        assert!(
            told("SELECT * FROM filter WHERE qserv_areaspec_circle(1, 2, 3)")
                .contains("needs a partitioned table")
        );
        assert!(
            told("SELECT qserv_areaspec_circle(1, 2, 3) FROM object")
                .contains("belongs in its WHERE")
        );
        assert!(
            told("SELECT * FROM object WHERE qserv_areaspec_circle(1, 2)").contains("3 numbers")
        );
    }

    struct Tables;
    impl TableShapes for Tables {
        fn shape(&self, _: Option<&str>, table: &str) -> Option<TableShape> {
            Some(TableShape {
                partitioned: table != "filter",
                position: Some(("ra".into(), "dec".into())),
                hidden: vec![],
                columns: None,
            })
        }

        fn all_hidden(&self) -> &'static [&'static str] {
            &[]
        }
    }

    fn expand_text(sql: &str) -> Result<String, SqlError> {
        let folded = fold_case(crate::Dialect::Adql, sql).unwrap();
        let mut statements = Parser::parse_sql(&GenericDialect {}, &folded).unwrap();
        expand(sql, &mut statements[0], &Tables)?;
        Ok(statements[0].to_string())
    }

    fn expanded(sql: &str) -> String {
        expand_text(sql).unwrap()
    }
}
