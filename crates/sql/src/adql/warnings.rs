//! Warnings about statements in ADQL: coordinate systems that are not known, which are taken for that of tables.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr, Visitor};

use super::geometry::unknown_systems;
use crate::parse::read_statements;
use crate::visiting::visit;
use crate::{Dialect, ErrorCode, Warning};

/// The warnings about the statements of a text. One that cannot be read has none: reading it again tells why.
pub fn adql_warnings(text: &str) -> Vec<Warning> {
    // Coordinate systems are texts.
    if !text.contains('\'') {
        return vec![];
    }
    let mut seen = SystemsSeen(vec![]);
    for statement in read_statements(Dialect::Adql, text).unwrap_or_default() {
        if let Statement::Statement(ast) = statement {
            // The visitor never breaks off.
            let _ = visit(&ast, &mut seen);
        }
    }
    let warning = |sentence| Warning {
        code: ErrorCode::TRUNCATED_VALUE,
        sentence,
    };
    seen.0.into_iter().map(warning).collect()
}

/// Sentences, each once.
struct SystemsSeen(Vec<String>);

impl Visitor for SystemsSeen {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr {
            for sentence in unknown_systems(function) {
                if !self.0.contains(&sentence) {
                    self.0.push(sentence);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_that_are_not_known_are_told_once() {
        let text = "SELECT POINT('FK6', ra, dec), COORDSYS(POINT('FK6 GEOCENTER', 1, 2)) FROM t \
                    WHERE 1 = CONTAINS(POINT('ICRS', ra, dec), CIRCLE('x', 1, 2, 3)) AND name <> 'FK7'";
        let told: Vec<String> = (adql_warnings(text).into_iter())
            .map(|warning| warning.sentence)
            .collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("\"FK6\" of POINT"), "{told:?}");
        assert!(told[1].contains("\"x\" of CIRCLE"), "{told:?}");
        assert_eq!(adql_warnings("SELECT 'a"), []);
    }
}
