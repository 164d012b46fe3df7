//! Columns of a SELECT's list that are one column, however they are written: `id`, `"id"`, `s.id`.
//!
//! The engine wants every column of a list to have a name of its own. Columns of one name of two tables have: their tables tell them apart.

use datafusion::sql::sqlparser::ast::{Expr, Ident, Select, SelectItem};

use crate::mysql::build::take;
use crate::mysql::{UNNAMED, name_repeated_by, with_equal_constants};

/// Gives the columns of a list that would have the name of one before them another. Their headings stay.
pub(super) fn name_repeated(select: &mut Select) {
    name_repeated_by(select, |expr| {
        with_equal_constants(expr).to_string().replace('"', "")
    });
    name_repeated_columns(select);
}

/// The same of a column that stands there once with its table and once without.
fn name_repeated_columns(select: &mut Select) {
    let mut seen: Vec<(Vec<String>, String)> = Vec::new();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let expr = match item {
            SelectItem::UnnamedExpr(expr) => expr,
            // An alias is a name without a table.
            SelectItem::ExprWithAlias { alias, .. } => {
                seen.push((vec![], alias.value.clone()));
                continue;
            }
            _ => continue,
        };
        let Some((table, column)) = parts(expr) else {
            continue;
        };
        let is_repeated = { seen.iter() }.any(|(other, name)| {
            let of_either = other.ends_with(&table) || table.ends_with(other);
            *name == column && of_either
        });
        if is_repeated {
            let (expr, alias) = (take(expr), Ident::new(format!("{UNNAMED}{at}")));
            *item = SelectItem::ExprWithAlias { expr, alias };
        } else {
            seen.push((table, column));
        }
    }
}

/// The parts of the name of a column's table, of which there may be none, and the column's own.
fn parts(expr: &Expr) -> Option<(Vec<String>, String)> {
    let names = match expr {
        Expr::Identifier(name) => std::slice::from_ref(name),
        Expr::CompoundIdentifier(names) => names.as_slice(),
        _ => return None,
    };
    let (column, table) = names.split_last()?;
    let table = table.iter().map(|name| name.value.clone());
    Some((table.collect(), column.value.clone()))
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::parse::tests::rewritten_in;

    /// `SELECT id, "id"` was rejected for its two columns of one name.
    #[test]
    fn a_column_may_stand_there_twice_in_two_spellings() {
        for (sql, wanted) in [
            (
                "SELECT id, \"id\", ID FROM t",
                "SELECT id, \"id\" AS __column_1, id AS __column_2 FROM t",
            ),
            (
                "SELECT t.id, id, d.t.id FROM d.t",
                "SELECT t.id, id AS __column_1, d.t.id AS __column_2 FROM d.t",
            ),
            (
                "SELECT id, t.\"id\", id + 1, \"id\" + 1 FROM t",
                "SELECT id, t.\"id\" AS __column_1, id + 1, \"id\" + 1 AS __column_3 FROM t",
            ),
            ("SELECT a.id, b.id FROM a, b", "SELECT a.id, b.id FROM a, b"),
            (
                "SELECT ra AS id, t.id FROM t",
                "SELECT ra AS id, t.id AS __column_1 FROM t",
            ),
        ] {
            assert_eq!(rewritten_in(Dialect::Adql, sql), wanted, "{sql}");
        }
    }
}
