//! The columns of `VALUES ROW(1, 2)`: MySQL's are called column_0 and column_1, the engine's column1 and column2.

use datafusion::sql::sqlparser::ast::{SetExpr, TableFactor};
use datafusion::sql::sqlparser::parser::Parser;

use super::MySqlGrammar;
use crate::all_rows::empty;
use crate::{ErrorCode, SqlError};

/// Selects the columns of rows that are written out by MySQL's names.
///
/// # Errors
/// The rows are not equally long.
pub(super) fn name_columns(body: &mut SetExpr) -> Result<(), SqlError> {
    match body {
        SetExpr::Values(values) => {
            let width = values.rows.first().map_or(0, |row| row.len());
            let other = values.rows.iter().position(|row| row.len() != width);
            if let Some(at) = other {
                return Err(SqlError::new(format!(
                    "the rows of VALUES are not equally long: the first has {width} values, row {} has {}",
                    at + 1,
                    values.rows[at].len()
                ))
                .with_code(ErrorCode::WRONG_VALUE_COUNT));
            }
            if width > 0 {
                let rows = std::mem::replace(body, empty());
                *body = selected(width, rows)?;
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            name_columns(left)?;
            name_columns(right)?;
        }
        _ => {}
    }
    Ok(())
}

/// A SELECT of all columns of rows, which are so many.
fn selected(width: usize, rows: SetExpr) -> Result<SetExpr, SqlError> {
    let items = (0..width).map(|at| format!("column{} AS column_{at}", at + 1));
    let items = items.collect::<Vec<_>>().join(", ");
    let text = format!("SELECT {items} FROM (SELECT 1) AS __values");
    let query = Parser::new(&MySqlGrammar)
        .try_with_sql(&text)
        .and_then(|mut parser| parser.parse_query())
        .map_err(|error| SqlError::new(error.to_string()))?;
    let mut body = *query.body;
    // The rows go in the place of SELECT 1.
    let place = match &mut body {
        SetExpr::Select(select) => select.from.first_mut().map(|table| &mut table.relation),
        _ => None,
    };
    let Some(TableFactor::Derived { subquery, .. }) = place else {
        return Err(SqlError::new("VALUES cannot be read here"));
    };
    *subquery.body = rows;
    Ok(body)
}
