//! Values of an INSERT that name columns of their own row: `INSERT INTO t SET a = 1, b = a * 2`.
//!
//! MySQL assigns from left to right. An expression sees what the columns before it have stored, and of all others the defaults. So the
//! expressions of such a row are computed one after another, each by a query of a table of one row:
//!
//! ```text
//!   INSERT INTO t (a, b, c) VALUES (1.5, a * 2, b + a)      a is an INT: it stores 2
//!     SELECT (a * 2) FROM (SELECT 2 AS a, 0 AS b) AS t      b stores 4
//!     SELECT (b + a) FROM (SELECT 2 AS a, 4 AS b) AS t
//! ```
//!
//! Rows of which no expression names a column are computed together.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use arrow::util::display::array_value_to_string;
use catalog::fold_name;
use sql::StoredColumn;
use sql::mysql::{InsertedValue, may_mention, without_database};

use super::insertion::{Insertion, expression, given};
use super::rows::all_stored;
use super::{Change, of_file, quoted};
use crate::ClientError;

/// The columns that the expressions of a row may name, with a constant of what each has stored.
type RowState = Vec<(StoredColumn, String)>;

impl Change {
    /// The values of the expressions of those rows that may name columns, in their order, by the numbers of the rows.
    pub(super) async fn values_of_columns(
        &self,
        rows: &[Vec<InsertedValue>],
        insertion: &Insertion,
    ) -> Result<HashMap<usize, Vec<ArrayRef>>, ClientError> {
        let mut values = HashMap::new();
        for (at, row) in rows.iter().enumerate() {
            let named = columns_named(row, insertion)?;
            if !named.is_empty() {
                let before = self.defaults_of(named).await?;
                let computed = self.one_after_another(at, row, insertion, before).await?;
                values.insert(at, computed);
            }
        }
        Ok(values)
    }

    /// Columns before any of them has a value.
    async fn defaults_of(&self, named: Vec<StoredColumn>) -> Result<RowState, ClientError> {
        let table = self.table.find().await?;
        let mut state = Vec::with_capacity(named.len());
        for column in named {
            let declared = { table.spec().columns.iter() }.find(|it| it.name == column.name);
            let default = match declared {
                // One that has none gets its value later, or is told of then.
                Some(declared) => self.default_value(declared).await.ok(),
                None => None,
            };
            let constant = default.map(|it| constant(&it)).transpose()?;
            state.push((column, constant.unwrap_or_else(null)));
        }
        Ok(state)
    }

    /// The values of a row's expressions.
    async fn one_after_another(
        &self,
        number: usize,
        row: &[InsertedValue],
        insertion: &Insertion,
        mut state: RowState,
    ) -> Result<Vec<ArrayRef>, ClientError> {
        let (database, table) = (&self.table.database, &self.table.table);
        let mut values = Vec::new();
        for (place, value) in row.iter().enumerate() {
            let of_expression = match expression(value) {
                Some(text) => {
                    let text = without_database(text, database, table)?;
                    let from = from_row(&state, table);
                    self.computed_of(&[&text], &from).await?
                }
                None => vec![],
            };
            let stored = { insertion.column_at(place) }
                .filter(|_| *value != InsertedValue::Default)
                .and_then(|column| Some((column, state.iter().position(|(it, _)| it == column)?)));
            if let Some((column, at)) = stored {
                let value = given(value, &mut of_expression.iter());
                let stored = column.of_values(std::iter::once(value));
                let stored = all_stored(std::iter::once(stored), number as u64)?;
                state[at].1 = constant(&stored[0])?;
            }
            values.extend(of_expression);
        }
        Ok(values)
    }
}

/// The columns that expressions of a row may name.
fn columns_named(
    row: &[InsertedValue],
    insertion: &Insertion,
) -> Result<Vec<StoredColumn>, ClientError> {
    let expressions: Vec<&str> = row.iter().filter_map(expression).collect();
    let names: Vec<&str> = { insertion.columns().iter() }
        .map(|column| column.name.as_str())
        .collect();
    let mut may_name_some = false;
    for text in &expressions {
        may_name_some |= may_mention(text, &names)?;
    }
    let mut named = Vec::new();
    for column in insertion.columns().iter().filter(|_| may_name_some) {
        for text in &expressions {
            if may_mention(text, &[column.name.as_str()])? {
                named.push(column.clone());
                break;
            }
        }
    }
    Ok(named)
}

/// The FROM with a row.
fn from_row(state: &RowState, table: &str) -> String {
    let columns = state.iter().map(|(column, constant)| {
        let name = column.name.replace('\\', "\\\\").replace('\'', "''");
        let alias = quoted(&fold_name(&column.name));
        format!(
            "mysql_store({constant}, 1, '{name}', '{}') AS {alias}",
            column.ty
        )
    });
    let columns: Vec<String> = columns.collect();
    format!(" FROM (SELECT {}) AS {}", columns.join(", "), quoted(table))
}

/// What a column has stored, as a statement has it. All but bytes and truths are texts, of which the column stores the same.
fn constant(stored: &ArrayRef) -> Result<String, ClientError> {
    if stored.is_empty() || stored.is_null(0) {
        return Ok(null());
    }
    Ok(match stored.data_type() {
        DataType::Boolean => u8::from(stored.as_boolean().value(0)).to_string(),
        DataType::Binary => {
            let bytes = stored.as_binary::<i32>().value(0).iter();
            let digits: String = bytes.map(|byte| format!("{byte:02x}")).collect();
            format!("x'{digits}'")
        }
        _ => {
            let text = array_value_to_string(stored, 0).map_err(of_file)?;
            format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
        }
    })
}

fn null() -> String {
    "NULL".to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BinaryArray, BooleanArray, Decimal128Array, Float32Array, Int64Array, StringArray,
        TimestampMicrosecondArray,
    };
    use sql::StoredType;

    use super::*;

    #[test]
    fn what_is_stored_is_written_as_a_constant() {
        let decimal = Decimal128Array::from(vec![-150]).with_precision_and_scale(8, 2);
        let stored: [(ArrayRef, &str); 8] = [
            (Arc::new(Int64Array::from(vec![-7])), "'-7'"),
            (Arc::new(Int64Array::from(vec![None])), "NULL"),
            (Arc::new(Float32Array::from(vec![0.1])), "'0.1'"),
            (Arc::new(decimal.unwrap()), "'-1.50'"),
            (Arc::new(BooleanArray::from(vec![true])), "1"),
            (
                Arc::new(StringArray::from(vec!["it's a \\"])),
                "'it''s a \\\\'",
            ),
            (
                Arc::new(BinaryArray::from(vec![&b"\x00\xff"[..]])),
                "x'00ff'",
            ),
            (
                Arc::new(TimestampMicrosecondArray::from(vec![1_500_000])),
                "'1970-01-01T00:00:01.500'",
            ),
        ];
        for (stored, expected) in stored {
            assert_eq!(constant(&stored).unwrap(), expected);
        }
    }

    #[test]
    fn a_row_is_a_table_of_its_own() {
        let column = |name: &str, bits| StoredColumn {
            name: name.to_owned(),
            ty: StoredType::Integer {
                bits,
                unsigned: false,
            },
            nullable: true,
        };
        let state = vec![
            (column("A", 32), "'1'".to_owned()),
            (column("it's", 64), null()),
        ];
        assert_eq!(
            from_row(&state, "t"),
            " FROM (SELECT mysql_store('1', 1, 'A', 'INT') AS `a`, mysql_store(NULL, 1, 'it''s', 'BIGINT') AS `it's`) AS `t`"
        );
    }
}
