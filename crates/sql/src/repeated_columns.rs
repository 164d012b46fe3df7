//! Columns that a SELECT gives more than once by wildcards, as in `SELECT t.*, t.*`: a result may have them, and the planner has none of
//! one name twice. Each wildcard is planned once, and its columns are given again where it was typed again.

use datafusion::common::DFSchema;
use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableFactor, Value,
};

/// The items of a SELECT as they are planned, and which of them make up the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepeatedColumns {
    planned: Vec<PlannedItem>,
    /// Places among the planned ones, in the order of the result.
    given: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PlannedItem {
    Column,
    /// All columns of a table, by its name in the statement, or of all tables.
    Wildcard(Option<String>),
}

impl RepeatedColumns {
    /// Leaves the wildcards of a whole statement's SELECT out that stand before in it; `None` where there are none.
    pub(crate) fn take(query: &mut Query) -> Option<Self> {
        let by_place = has_places(query);
        let SetExpr::Select(select) = &mut *query.body else {
            return None;
        };
        // Numbers of columns count all of them.
        if by_place || groups_by_place(select) {
            return None;
        }
        let only = only_table(select);
        let mut planned: Vec<PlannedItem> = vec![];
        let (mut given, mut kept) = (vec![], vec![]);
        for item in std::mem::take(&mut select.projection) {
            let item_of = planned_item(&item, only.as_deref());
            let before = match &item_of {
                PlannedItem::Column => None,
                wildcard => planned.iter().position(|it| it == wildcard),
            };
            match before {
                Some(at) => given.push(at),
                None => {
                    given.push(planned.len());
                    planned.push(item_of);
                    kept.push(item);
                }
            }
        }
        select.projection = kept;
        (given.len() > planned.len()).then_some(Self { planned, given })
    }

    /// Of each item as it was typed whether it is planned.
    pub(crate) fn is_kept(&self) -> Vec<bool> {
        let mut known = 0;
        let kept = self.given.iter().map(|place| {
            let is_new = *place == known;
            known += usize::from(is_new);
            is_new
        });
        kept.collect()
    }

    /// The places of the result's columns among the planned ones; `None` where it cannot be told which are those of a wildcard.
    pub fn columns(&self, planned: &DFSchema) -> Option<Vec<usize>> {
        let wildcards = |from: usize| {
            let rest = self.planned[from..].iter();
            rest.filter(|it| **it != PlannedItem::Column).count()
        };
        let mut ranges = Vec::with_capacity(self.planned.len());
        let mut at = 0;
        for (place, item) in self.planned.iter().enumerate() {
            let width = match item {
                PlannedItem::Column => 1,
                // The last of them has all columns but those of the items behind it.
                PlannedItem::Wildcard(_) if wildcards(place + 1) == 0 => {
                    let behind = self.planned.len() - place - 1;
                    planned.fields().len().checked_sub(at + behind)?
                }
                PlannedItem::Wildcard(table) => {
                    let table = table.as_deref()?;
                    let of_table = |column: &usize| {
                        let (qualifier, _) = planned.qualified_field(*column);
                        qualifier.is_some_and(|it| it.table() == table)
                    };
                    let columns = at..planned.fields().len();
                    columns.take_while(of_table).count()
                }
            };
            ranges.push(at..at + width);
            at += width;
        }
        let is_whole = at == planned.fields().len();
        let columns = self.given.iter().flat_map(|it| ranges[*it].clone());
        is_whole.then(|| columns.collect())
    }
}

fn planned_item(item: &SelectItem, only: Option<&str>) -> PlannedItem {
    match item {
        SelectItem::Wildcard(_) => PlannedItem::Wildcard(only.map(str::to_owned)),
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
            let last = name.0.last().and_then(|part| part.as_ident());
            PlannedItem::Wildcard(last.map(|table| table.value.clone()))
        }
        _ => PlannedItem::Column,
    }
}

/// The name of the only table of a SELECT: `*` is all of its columns.
fn only_table(select: &Select) -> Option<String> {
    let [from] = select.from.as_slice() else {
        return None;
    };
    let alias = |alias: &Option<datafusion::sql::sqlparser::ast::TableAlias>| {
        alias.as_ref().map(|alias| alias.name.value.clone())
    };
    match &from.relation {
        _ if !from.joins.is_empty() => None,
        TableFactor::Table {
            name, alias: named, ..
        } => alias(named).or_else(|| {
            let last = name.0.last().and_then(|part| part.as_ident());
            last.map(|name| name.value.clone())
        }),
        TableFactor::Derived { alias: named, .. } => alias(named),
        _ => None,
    }
}

fn is_place(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

fn has_places(query: &Query) -> bool {
    match query.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(keys)) => keys.iter().any(|key| is_place(&key.expr)),
        _ => false,
    }
}

fn groups_by_place(select: &Select) -> bool {
    match &select.group_by {
        GroupByExpr::Expressions(groups, _) => groups.iter().any(is_place),
        GroupByExpr::All(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::common::TableReference;
    use datafusion::sql::sqlparser::ast::Statement;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::Dialect;

    /// What is planned of a SELECT of the columns x and y of a and z of b, and the columns of its result.
    fn taken(sql: &str, planned: &[(&str, &str)]) -> (String, Option<Vec<usize>>) {
        let mut statements = Parser::parse_sql(Dialect::MySql.grammar(), sql).unwrap();
        let Statement::Query(query) = &mut statements[0] else {
            panic!("no query: {sql}");
        };
        let repeated = RepeatedColumns::take(query);
        let fields = planned.iter().map(|(table, name)| {
            let table = (!table.is_empty()).then(|| TableReference::bare(*table));
            (
                table,
                std::sync::Arc::new(Field::new(*name, DataType::Int64, true)),
            )
        });
        let schema =
            DFSchema::new_with_metadata(fields.collect(), std::collections::HashMap::new());
        let columns = repeated.and_then(|it| it.columns(&schema.unwrap()));
        (query.to_string(), columns)
    }

    #[test]
    fn a_wildcard_is_planned_once() {
        let (x, y, z) = (("a", "x"), ("a", "y"), ("b", "z"));
        for (sql, planned, left, columns) in [
            (
                "SELECT a.*, a.* FROM a",
                vec![x, y],
                "SELECT a.* FROM a",
                vec![0, 1, 0, 1],
            ),
            (
                "SELECT *, a.* FROM a",
                vec![x, y],
                "SELECT * FROM a",
                vec![0, 1, 0, 1],
            ),
            (
                "SELECT a.*, 1, b.*, a.* FROM a, b",
                vec![x, y, ("", "1"), z],
                "SELECT a.*, 1, b.* FROM a, b",
                vec![0, 1, 2, 3, 0, 1],
            ),
            (
                "SELECT b.*, a.*, 1, b.* FROM a, b",
                vec![z, x, y, ("", "1")],
                "SELECT b.*, a.*, 1 FROM a, b",
                vec![0, 1, 2, 3, 0],
            ),
        ] {
            let found = taken(sql, &planned);
            assert_eq!(found, (left.to_owned(), Some(columns)), "{sql}");
        }
    }

    #[test]
    fn other_statements_stay() {
        for sql in [
            "SELECT a.*, b.* FROM a, b",
            "SELECT *, a.* FROM a, b",
            "SELECT a.*, a.* FROM a ORDER BY 3",
            "SELECT a.*, a.* FROM a GROUP BY 1",
            "SELECT x, x FROM a",
        ] {
            assert_eq!(taken(sql, &[]), (sql.to_owned(), None), "{sql}");
        }
    }
}
