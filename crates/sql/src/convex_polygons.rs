//! `scisql_s2PtInCPoly(ra, dec, polygon)`, with a polygon that `scisql_s2CPolyToBin` gives.
//!
//! ```text
//!   SET @field = scisql_s2CPolyToBin(10, 20, 12, 20, 11, 22)
//!   scisql_s2PtInCPoly(ra, dec, @field)   ──►   scisql_s2PtInCPoly(ra, dec, 10, 20, 12, 20, 11, 22)
//! ```
//!
//! Its vertices take its place, so that it restricts tables as one that is written out.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Function, Statement, Value, VisitorMut};

use crate::functions::{POLYGON_TEXT, RegionShape, vertices_of};
use crate::mysql::build::{call, number, plain_arguments};
use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError};

/// Writes polygons out in a folded statement.
///
/// # Errors
/// A text that is no polygon.
pub(crate) fn write_out(sql: &str, statement: &mut Statement) -> Result<(), SqlError> {
    match visit_mut(statement, &mut Polygons { sql }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Polygons<'a> {
    sql: &'a str,
}

impl VisitorMut for Polygons<'_> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        match self.written_out(function) {
            Ok(None) => {}
            Ok(Some(written)) => *expr = written,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

impl Polygons<'_> {
    fn written_out(&self, function: &Function) -> Result<Option<Expr>, SqlError> {
        let name = function.name.to_string();
        if !is_named(&name, RegionShape::Polygon.function()) {
            return Ok(None);
        }
        let Some([ra, dec, polygon]) =
            plain_arguments(function).and_then(|it| <[Expr; 3]>::try_from(it).ok())
        else {
            return Ok(None);
        };
        let Some(vertices) = self.vertices(polygon)? else {
            return Ok(None);
        };
        Ok(Some(call(&name, [vec![ra, dec], vertices].concat())))
    }

    /// The coordinates of a constant polygon.
    fn vertices(&self, polygon: Expr) -> Result<Option<Vec<Expr>>, SqlError> {
        match polygon {
            Expr::Nested(inner) => self.vertices(*inner),
            // As a variable that has no value.
            Expr::Cast { expr, .. } if is_null(&expr) => Ok(Some(vec![*expr; 6])),
            expr if is_null(&expr) => Ok(Some(vec![expr; 6])),
            Expr::Function(function) => {
                let is_polygon = is_named(&function.name.to_string(), POLYGON_TEXT);
                Ok(plain_arguments(&function).filter(|_| is_polygon))
            }
            Expr::Value(value) => {
                let Value::SingleQuotedString(text) = &value.value else {
                    return Ok(None);
                };
                match vertices_of(text) {
                    Some(numbers) => {
                        let numbers = numbers.iter().map(|it| number(&format!("{it:e}")));
                        Ok(Some(numbers.collect()))
                    }
                    None => Err(SqlError::about(
                        self.sql,
                        RegionShape::Polygon.function(),
                        "the polygon is none that scisql_s2CPolyToBin gives: right ascensions and declinations in degrees, with spaces between",
                    )
                    .with_code(ErrorCode::WRONG_ARGUMENTS)),
                }
            }
            _ => Ok(None),
        }
    }
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if value.value == Value::Null)
}

/// Whether a name is that of a function of the `scisql` family.
fn is_named(name: &str, function: &str) -> bool {
    let plain = function.trim_start_matches("scisql_");
    name == function || name == plain || name.strip_prefix("qserv_") == Some(plain)
}

#[cfg(test)]
mod tests {
    use crate::Dialect;
    use crate::parse::tests::parse_in;

    fn condition(polygon: &str) -> Result<String, String> {
        let sql = format!("SELECT 1 FROM object WHERE scisql_s2PtInCPoly(ra, decl, {polygon}) = 1");
        let parsed = parse_in(Dialect::MySql, &sql).map_err(|error| error.to_string())?;
        let written = parsed[0].statement.to_string();
        Ok(written.split_once(" WHERE ").unwrap().1.to_owned())
    }

    #[test]
    fn vertices_take_the_place_of_a_polygon() {
        let written = condition("10, -2, 12, -2, 11, 2").unwrap();
        for polygon in [
            "scisql_s2CPolyToBin(10, -2, 12, -2, 11, 2)",
            "(s2CPolyToBin(10, -2, 12, -2, 11, 2))",
        ] {
            assert_eq!(condition(polygon).unwrap(), written, "{polygon}");
        }
        let of_text = condition("'10 -2 12 -2 11.5 2'").unwrap();
        assert!(
            of_text.contains("1e1, -2e0, 1.2e1, -2e0, 1.15e1, 2e0"),
            "{of_text}"
        );
        let of_null = condition("NULL").unwrap();
        assert!(
            of_null.contains("NULL, NULL, NULL, NULL, NULL, NULL"),
            "{of_null}"
        );
        assert_eq!(condition("@unset").unwrap(), of_null);
        // Of each row another one: the function says what it takes.
        assert!(condition("polygon").unwrap().contains("polygon"));
    }

    #[test]
    fn texts_that_are_no_polygons_are_rejected() {
        for text in [
            "",
            "10 20",
            "1 2 3 4 5 6 7",
            "1 2 3 4 5 NaN",
            "a b c d e f",
            "1  2 3 4 5 6",
        ] {
            let error = condition(&format!("'{text}'")).unwrap_err();
            assert!(error.contains("scisql_s2CPolyToBin"), "{error}");
        }
    }
}
