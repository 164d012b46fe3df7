//! The columns that `USING` and `NATURAL` make one of two: of which side their values are, and where a `*` has them, as far as can be told
//! where the columns of the tables are not known. Where they are, [`crate::scopes`] has written such columns out before.
//!
//! The engine takes them of the left side whichever rows are kept, leaves them where they stand, and takes their names for ambiguous in
//! places. By the standard they are of the side whose rows are kept, of either where both sides' are, and come first. So
//!
//! ```text
//!   SELECT * FROM a RIGHT JOIN b USING (x)   is   SELECT b.x AS x, a.* EXCLUDE (x), b.* EXCLUDE (x) FROM b LEFT JOIN a USING (x)
//!   SELECT x FROM a FULL JOIN b USING (x)    is   SELECT coalesce(a.x, b.x) AS x FROM a FULL JOIN b USING (x)
//! ```
//!
//! A `*` is written out where two tables are joined that have names: what more of them have in common only their columns would
//! tell, which are not known here.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    Join, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement, TableFactor, TableWithJoins, VisitMut,
    VisitorMut, WildcardAdditionalOptions,
};

use crate::Dialect;
use crate::hidden::excluding;
use crate::visiting::visit_mut;

/// Gives the common columns of every join of a statement that are not written out yet their values and places.
pub(crate) fn resolve(dialect: Dialect, statement: &mut Statement) {
    // It breaks off nowhere.
    let _ = visit_mut(statement, &mut CommonColumns { dialect });
}

struct CommonColumns {
    dialect: Dialect,
}

impl VisitorMut for CommonColumns {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let SetExpr::Select(select) = query.body.as_mut()
            && let Some(order) = &mut query.order_by
            && let Some(mut common) = Common::of(select, self.dialect)
        {
            // A name in ORDER BY is an item's first.
            common.forget(aliases(select));
            common.put_into(order);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let Some(common) = Common::of(select, self.dialect) {
            common.resolve(select);
        }
        select.from.iter_mut().for_each(keep_left);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::NestedJoin {
            table_with_joins, ..
        } = table
        {
            keep_left(table_with_joins);
        }
        ControlFlow::Continue(())
    }
}

/// The common columns of the only FROM of a select.
struct Common {
    /// Their names and values.
    columns: Vec<(Ident, Expr)>,
    /// The tables in the order in which a `*` shows them, if there are two.
    shown: Option<[ObjectName; 2]>,
}

impl Common {
    fn of(select: &Select, dialect: Dialect) -> Option<Self> {
        let [from] = select.from.as_slice() else {
            return None;
        };
        let left = name_of(&from.relation)?;
        let mut columns: Vec<(Ident, Expr)> = Vec::new();
        for (at, join) in from.joins.iter().enumerate() {
            let (kept, JoinConstraint::Using(using)) = kept_side(&join.join_operator)? else {
                // Another table may have columns of these names.
                return None;
            };
            let right = name_of(&join.relation)?;
            let mut still = Vec::with_capacity(using.len());
            for name in using {
                let name = name.0.first()?.as_ident()?.clone();
                let before = match columns.iter().find(|(known, _)| known.value == name.value) {
                    Some((_, value)) => Some(value.clone()),
                    // Of which of several tables it is, is not known.
                    None => (at == 0).then(|| column_of(&left, &name)),
                };
                let own = column_of(&right, &name);
                let value = match (kept, before) {
                    (KeptSide::Right, _) => own,
                    (_, None) => continue,
                    (KeptSide::Left, Some(before)) => before,
                    (KeptSide::Both, Some(before)) => coalesce([before, own]),
                };
                still.push((name, value));
            }
            columns = still;
        }
        let shown = match from.joins.as_slice() {
            [only] => {
                let mut names = [left, name_of(&only.relation)?];
                // MySQL takes a right join for a left one with its sides changed, here as well.
                if dialect == Dialect::MySql
                    && matches!(kept_side(&only.join_operator), Some((KeptSide::Right, _)))
                {
                    names.reverse();
                }
                Some(names)
            }
            _ => None,
        };
        Some(Self { columns, shown })
    }

    fn resolve(&self, select: &mut Select) {
        let mut projection = Vec::with_capacity(select.projection.len());
        for item in select.projection.drain(..) {
            match (item, &self.shown) {
                (SelectItem::Wildcard(options), Some(shown))
                    if options == WildcardAdditionalOptions::default() =>
                {
                    projection.extend(self.all(shown));
                }
                (SelectItem::UnnamedExpr(Expr::Identifier(name)), _) if self.has(&name) => {
                    projection.push(named(name));
                }
                (other, _) => projection.push(other),
            }
        }
        select.projection = projection;
        self.put_into(&mut select.projection);
        self.put_into(&mut select.selection);
        self.put_into(&mut select.group_by);
        self.put_into(&mut select.having);
    }

    /// Leaves out the columns with these names.
    fn forget<'a>(&mut self, names: impl Iterator<Item = &'a Ident>) {
        for name in names {
            self.columns
                .retain(|(column, _)| column.value != name.value);
        }
    }

    fn has(&self, name: &Ident) -> bool {
        self.columns
            .iter()
            .any(|(column, _)| column.value == name.value)
    }

    /// What a `*` gives.
    fn all(&self, shown: &[ObjectName; 2]) -> Vec<SelectItem> {
        let names: Vec<Ident> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let rest = shown.iter().map(|table| {
            SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(table.clone()),
                excluding(WildcardAdditionalOptions::default(), &names),
            )
        });
        names.iter().cloned().map(named).chain(rest).collect()
    }

    /// Puts the values of common columns in the places of their names.
    fn put_into(&self, part: &mut impl VisitMut) {
        // It breaks off nowhere.
        let _ = visit_mut(
            part,
            &mut Values {
                common: self,
                depth: 0,
            },
        );
    }
}

/// The side whose rows a join keeps.
#[derive(Clone, Copy)]
pub(crate) enum KeptSide {
    /// The left one, or neither: then both have the same values.
    Left,
    Right,
    Both,
}

pub(crate) fn kept_side(operator: &JoinOperator) -> Option<(KeptSide, &JoinConstraint)> {
    match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint) => Some((KeptSide::Left, constraint)),
        JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
            Some((KeptSide::Right, constraint))
        }
        JoinOperator::FullOuter(constraint) => Some((KeptSide::Both, constraint)),
        _ => None,
    }
}

pub(crate) fn column_of(table: &ObjectName, name: &Ident) -> Expr {
    let parts = table.0.iter().filter_map(|part| part.as_ident().cloned());
    Expr::CompoundIdentifier(parts.chain([name.clone()]).collect())
}

pub(crate) fn coalesce(values: [Expr; 2]) -> Expr {
    let argument = |value| FunctionArg::Unnamed(FunctionArgExpr::Expr(value));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new("coalesce")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: values.into_iter().map(argument).collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// Puts the values of common columns in the places of their names, but not within subqueries, whose names are their own.
struct Values<'a> {
    common: &'a Common,
    depth: usize,
}

impl VisitorMut for Values<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr
            && self.depth == 0
            && let Some((_, value)) =
                (self.common.columns.iter()).find(|(column, _)| column.value == name.value)
        {
            *expr = value.clone();
        }
        ControlFlow::Continue(())
    }
}

/// The names that items of a SELECT are given.
fn aliases(select: &Select) -> impl Iterator<Item = &Ident> {
    select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias),
        _ => None,
    })
}

/// A column as an item that has its name, whatever becomes of it.
pub(crate) fn named(name: Ident) -> SelectItem {
    SelectItem::ExprWithAlias {
        expr: Expr::Identifier(name.clone()),
        alias: name,
    }
}

/// What the columns of a table of a FROM are qualified with.
pub(crate) fn name_of(table: &TableFactor) -> Option<ObjectName> {
    let alias = match table {
        TableFactor::Table { alias, name, .. } => match alias {
            Some(alias) => alias,
            None => return Some(name.clone()),
        },
        TableFactor::Derived { alias, .. } => alias.as_ref()?,
        _ => return None,
    };
    Some(ObjectName::from(vec![alias.name.clone()]))
}

/// Joins by common columns that keep the right side's rows, with their sides changed.
fn keep_left(from: &mut TableWithJoins) {
    let mut at = 0;
    while at < from.joins.len() {
        let (JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint)) =
            &from.joins[at].join_operator
        else {
            at += 1;
            continue;
        };
        if !matches!(
            constraint,
            JoinConstraint::Using(_) | JoinConstraint::Natural
        ) {
            at += 1;
            continue;
        }
        let operator = JoinOperator::LeftOuter(constraint.clone());
        let right = from.joins.remove(at).relation;
        let before: Vec<Join> = from.joins.drain(..at).collect();
        let mut left = std::mem::replace(&mut from.relation, right);
        if !before.is_empty() {
            left = TableFactor::NestedJoin {
                table_with_joins: Box::new(TableWithJoins {
                    relation: left,
                    joins: before,
                }),
                alias: None,
            };
        }
        let join = Join {
            relation: left,
            global: false,
            join_operator: operator,
        };
        from.joins.insert(0, join);
        at = 1;
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    fn settled(dialect: Dialect, sql: &str) -> String {
        let parsed = Parser::parse_sql(dialect.grammar(), sql);
        let mut statement = parsed.unwrap().remove(0);
        resolve(dialect, &mut statement);
        statement.to_string()
    }

    fn in_adql(sql: &str) -> String {
        settled(Dialect::Adql, sql)
    }

    #[test]
    fn common_columns_come_first() {
        assert_eq!(
            in_adql("SELECT * FROM sky.a JOIN b AS c USING (x, y)"),
            "SELECT sky.a.x AS x, sky.a.y AS y, sky.a.* EXCLUDE (x, y), c.* EXCLUDE (x, y) FROM sky.a JOIN b AS c USING(x, y)"
        );
    }

    #[test]
    fn the_side_whose_rows_are_kept_has_the_values() {
        let right = "SELECT x + 1, * FROM a RIGHT JOIN b USING (x) WHERE x > 1 GROUP BY x";
        assert_eq!(
            in_adql(right),
            "SELECT b.x + 1, b.x AS x, a.* EXCLUDE (x), b.* EXCLUDE (x) FROM b LEFT OUTER JOIN a USING(x) \
             WHERE b.x > 1 GROUP BY b.x"
        );
        assert!(
            settled(Dialect::MySql, right)
                .contains("b.x AS x, b.* EXCLUDE (x), a.* EXCLUDE (x) FROM")
        );
        assert_eq!(
            in_adql("SELECT c.v FROM a JOIN b ON a.x = b.y NATURAL RIGHT JOIN c JOIN d USING (z)"),
            "SELECT c.v FROM c NATURAL LEFT OUTER JOIN (a JOIN b ON a.x = b.y) JOIN d USING(z)"
        );
    }

    #[test]
    fn where_both_are_kept_either_has() {
        assert_eq!(
            in_adql(
                "SELECT x, v FROM a FULL JOIN b USING (x) WHERE x > 1 AND x IN (SELECT x FROM c) ORDER BY x"
            ),
            "SELECT coalesce(a.x, b.x) AS x, v FROM a FULL JOIN b USING(x) \
             WHERE coalesce(a.x, b.x) > 1 AND coalesce(a.x, b.x) IN (SELECT x FROM c) ORDER BY coalesce(a.x, b.x)"
        );
    }

    /// `SELECT COUNT(*) AS x ... ORDER BY x` was error 1105: the name in ORDER BY was taken for the common column, which is neither
    /// grouped by nor aggregated. An item of that name stands before it.
    #[test]
    fn an_item_of_the_name_is_what_is_sorted_by() {
        for (sql, expected) in [
            (
                "SELECT count(*) AS x FROM a FULL JOIN b USING (x) ORDER BY x",
                "SELECT count(*) AS x FROM a FULL JOIN b USING(x) ORDER BY x",
            ),
            (
                "SELECT count(*) AS n FROM a FULL JOIN b USING (x) GROUP BY x ORDER BY n, x",
                "SELECT count(*) AS n FROM a FULL JOIN b USING(x) GROUP BY coalesce(a.x, b.x) ORDER BY n, coalesce(a.x, b.x)",
            ),
        ] {
            assert_eq!(in_adql(sql), expected);
        }
    }

    #[test]
    fn one_join_after_another() {
        assert_eq!(
            in_adql("SELECT x, y FROM a JOIN b USING (x) LEFT JOIN c USING (x, y)"),
            "SELECT a.x AS x, y FROM a JOIN b USING(x) LEFT JOIN c USING(x, y)"
        );
        assert_eq!(
            in_adql("SELECT x FROM a JOIN b USING (x) RIGHT JOIN c USING (x)"),
            "SELECT c.x AS x FROM c LEFT OUTER JOIN (a JOIN b USING(x)) USING(x)"
        );
    }

    #[test]
    fn other_joins_stay() {
        for sql in [
            "SELECT * FROM a RIGHT JOIN b ON a.x = b.x",
            "SELECT x FROM a JOIN b USING(x), c",
            "SELECT x FROM a JOIN b USING(x) JOIN c ON a.y = c.y",
            "SELECT * FROM a JOIN b USING(x) JOIN c USING(x)",
            "SELECT a.* FROM a LEFT JOIN b USING(x)",
        ] {
            assert_eq!(in_adql(sql), sql);
        }
    }
}
