//! Which numbers of a statement's text are parameters: values that say which rows are wanted, and nothing of how to find them.
//!
//! ```text
//!   SELECT id, flux * 2 FROM Object WHERE flux > 10 AND scisql_angSep(ra, dec, 55, 21) < 0.5 LIMIT 7
//!                      ^ no                      ^ yes                         ^   ^     ^       ^ no
//! ```
//!
//! A number is a parameter if it stands by itself where a condition of WHERE, HAVING or ON compares it, or where it is an angle of a
//! function that says where on the sky rows are. Every other number is part of the statement: one may decide a type, a
//! heading, a shape or a place (`LIMIT 7`, `ORDER BY 1`, `DECIMAL(10, 2)`, the corners of a polygon).

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    JoinConstraint, JoinOperator, Select, TableWithJoins, UnaryOperator, Value, ValueWithSpan,
    Visitor,
};

use crate::functions::{RegionShape, SEPARATION};
use crate::visiting::visit;
use crate::{Dialect, mysql, parse};

/// A number of a text that is a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Which of the numbers of the text it is, from 0.
    pub number: usize,
    /// Whether a minus stands before it, which is part of its value.
    pub negated: bool,
    /// Whether it is an angle, and so a double whatever its digits; a number that is compared may be compared by its digits.
    pub is_angle: bool,
}

impl Parameter {
    /// Where it stands in a text whose numbers are in these places, minus and all.
    pub fn place(&self, text: &str, numbers: &[Range<usize>]) -> Option<Range<usize>> {
        let number = numbers.get(self.number)?;
        if !self.negated {
            return Some(number.clone());
        }
        let before = text.get(..number.start)?.trim_end();
        before.ends_with('-').then(|| before.len() - 1..number.end)
    }
}

/// The parameters of the only statement of a text, in the order in which they stand there; `numbers` are the places of the text's
/// numbers.
///
/// None if the text is no such statement. Whatever is not surely a parameter is none.
pub fn parameters(dialect: Dialect, text: &str, numbers: &[Range<usize>]) -> Vec<Parameter> {
    // A comment that is executed moves what stands behind it.
    if dialect == Dialect::MySql && mysql::executed(text) != text {
        return Vec::new();
    }
    let statements = parse::read_statements(dialect, text);
    let Ok([Statement::Statement(ast)]) = statements.as_deref() else {
        return Vec::new();
    };
    let mut found = Conditions {
        text,
        places: Places::new(text, numbers),
        numbers,
        parameters: Vec::new(),
        in_angles: false,
    };
    let ControlFlow::Continue(()) = visit(ast, &mut found) else {
        return Vec::new();
    };
    let mut parameters = found.parameters;
    parameters.sort_unstable_by_key(|parameter| parameter.number);
    parameters
}

/// The numbers of a text by line and column, as the parser counts them.
struct Places(HashMap<(u64, u64), usize>);

impl Places {
    fn new(text: &str, numbers: &[Range<usize>]) -> Self {
        let (mut line, mut column, mut next) = (1, 1, 0);
        let mut places = HashMap::with_capacity(numbers.len());
        for (at, char) in text.char_indices() {
            if numbers.get(next).is_some_and(|number| number.start == at) {
                places.insert((line, column), next);
                next += 1;
            }
            if char == '\n' {
                (line, column) = (line + 1, 1);
            } else {
                column += 1;
            }
        }
        Self(places)
    }
}

/// Functions whose arguments are angles, or positions and regions made of them.
const ANGLES: &[&str] = &[
    SEPARATION,
    "angsep",
    "qserv_angsep",
    "circle",
    "contains",
    "distance",
    "point",
];

/// Whether the first argument of a constructor is a coordinate system other than that of tables.
fn is_of_another_frame(argument: Option<&FunctionArg>) -> bool {
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))) = argument else {
        return false;
    };
    match &value.value {
        Value::SingleQuotedString(system) => {
            let system = system.trim();
            !system.is_empty() && !system.eq_ignore_ascii_case("icrs")
        }
        _ => false,
    }
}

/// Walks through the conditions of all SELECTs.
struct Conditions<'a> {
    text: &'a str,
    places: Places,
    numbers: &'a [Range<usize>],
    parameters: Vec<Parameter>,
    in_angles: bool,
}

impl Visitor for Conditions<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        for condition in [&select.selection, &select.having].into_iter().flatten() {
            self.condition(condition);
        }
        for from in &select.from {
            self.joins(from);
        }
        ControlFlow::Continue(())
    }
}

impl Conditions<'_> {
    fn joins(&mut self, from: &TableWithJoins) {
        for join in &from.joins {
            let (JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)) = &join.join_operator
            else {
                continue;
            };
            if let JoinConstraint::On(condition) = constraint {
                self.condition(condition);
            }
        }
    }

    fn condition(&mut self, expr: &Expr) {
        match expr {
            Expr::Nested(inner)
            | Expr::UnaryOp {
                op: UnaryOperator::Not | UnaryOperator::BangNot,
                expr: inner,
            } => self.condition(inner),
            Expr::BinaryOp {
                left,
                op: BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor,
                right,
            } => {
                self.condition(left);
                self.condition(right);
            }
            Expr::BinaryOp { left, op, right } if is_comparison(op) => {
                self.value(left);
                self.value(right);
            }
            Expr::Between {
                expr, low, high, ..
            } => [expr, low, high].into_iter().for_each(|it| self.value(it)),
            Expr::InList { expr, list, .. } => {
                self.value(expr);
                list.iter().for_each(|item| self.value(item));
            }
            Expr::Function(function) => self.angles(function),
            _ => {}
        }
    }

    /// One side of a comparison.
    fn value(&mut self, expr: &Expr) {
        match expr {
            Expr::Function(function) => self.angles(function),
            Expr::Nested(inner) => self.value(inner),
            Expr::Value(value) => self.number(value, false),
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: inner,
            } => {
                if let Expr::Value(value) = inner.as_ref() {
                    self.number(value, true);
                }
            }
            _ => {}
        }
    }

    /// The arguments of a function that says where on the sky rows are.
    fn angles(&mut self, function: &Function) {
        let name = function.name.to_string();
        let says_where = ANGLES.contains(&name.as_str())
            || RegionShape::ALL.into_iter().any(|shape| {
                !matches!(shape, RegionShape::Polygon)
                    && (shape.function() == name || shape.restriction() == name)
            });
        let FunctionArguments::List(arguments) = &function.args else {
            return;
        };
        // What is turned from another frame has to be constant for it to be known where it is.
        if !says_where || is_of_another_frame(arguments.args.first()) {
            return;
        }
        let around = std::mem::replace(&mut self.in_angles, true);
        for argument in &arguments.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                self.value(expr);
            }
        }
        self.in_angles = around;
    }

    fn number(&mut self, value: &ValueWithSpan, negated: bool) {
        let Value::Number(digits, _) = &value.value else {
            return;
        };
        let start = value.span.start;
        let Some(number) = self.places.0.get(&(start.line, start.column)).copied() else {
            return;
        };
        let place = self.numbers[number].clone();
        // Folding a text's case may have moved its places.
        if self.text.get(place.clone()) != Some(digits.as_str()) {
            return;
        }
        let parameter = Parameter {
            number,
            negated,
            is_angle: self.in_angles,
        };
        if parameter.place(self.text, self.numbers).is_some() {
            self.parameters.push(parameter);
        }
    }
}

fn is_comparison(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text with its parameters in brackets.
    fn marked(dialect: Dialect, text: &str) -> String {
        let digits = |c: char| c.is_ascii_digit() || c == '.';
        let mut numbers = Vec::new();
        let mut at = 0;
        while let Some(start) = text[at..].find(|c: char| c.is_ascii_digit()) {
            let start = at + start;
            let rest = &text[start..];
            let end = start + rest.find(|c| !digits(c)).unwrap_or(rest.len());
            numbers.push(start..end);
            at = end;
        }
        let mut marked = text.to_owned();
        for parameter in parameters(dialect, text, &numbers).iter().rev() {
            let at = parameter.place(text, &numbers).unwrap();
            marked.insert(at.end, ']');
            marked.insert(at.start, '[');
        }
        marked
    }

    #[test]
    fn numbers_that_say_which_rows_are_parameters() {
        for (text, expected) in [
            (
                "SELECT 5, a * 2 FROM t WHERE a = 7",
                "SELECT 5, a * 2 FROM t WHERE a = [7]",
            ),
            (
                "SELECT a FROM t WHERE 3 < a OR NOT (a + 4 > - 2.5)",
                "SELECT a FROM t WHERE [3] < a OR NOT (a + 4 > [- 2.5])",
            ),
            (
                "SELECT a FROM t WHERE a BETWEEN 3 AND 4 LIMIT 9",
                "SELECT a FROM t WHERE a BETWEEN [3] AND [4] LIMIT 9",
            ),
            (
                "SELECT a FROM t WHERE a IN (3, -4, 5 + 1) ORDER BY 1",
                "SELECT a FROM t WHERE a IN ([3], [-4], 5 + 1) ORDER BY 1",
            ),
            (
                "SELECT a FROM t WHERE scisql_s2PtInCircle(ra, dec, 10, -5, 2) = 3",
                "SELECT a FROM t WHERE scisql_s2PtInCircle(ra, dec, [10], [-5], [2]) = [3]",
            ),
            (
                "SELECT a FROM t WHERE qserv_areaspec_box(10, 5, 12, 7) AND sqrt(4) < a",
                "SELECT a FROM t WHERE qserv_areaspec_box([10], [5], [12], [7]) AND sqrt(4) < a",
            ),
            (
                "SELECT a FROM t WHERE qserv_areaspec_poly(10, 5, 12, 5, 12, 7)",
                "SELECT a FROM t WHERE qserv_areaspec_poly(10, 5, 12, 5, 12, 7)",
            ),
            (
                "SELECT a FROM t JOIN (SELECT b FROM u WHERE c = 5) v ON a = b AND a > 6 GROUP BY a HAVING count(*) > 2",
                "SELECT a FROM t JOIN (SELECT b FROM u WHERE c = [5]) v ON a = b AND a > [6] GROUP BY a HAVING count(*) > [2]",
            ),
            (
                "SELECT a FROM t WHERE a = (SELECT max(b) FROM u WHERE b < 8) AND d > '2010-01-01'",
                "SELECT a FROM t WHERE a = (SELECT max(b) FROM u WHERE b < [8]) AND d > '2010-01-01'",
            ),
            (
                "SELECT a FROM t WHERE CASE WHEN a > 5 THEN 1 ELSE 2 END = 2",
                "SELECT a FROM t WHERE CASE WHEN a > 5 THEN 1 ELSE 2 END = [2]",
            ),
            (
                "SELECT a\nFROM t\n  WHERE é = 5 AND\n b = 6",
                "SELECT a\nFROM t\n  WHERE é = [5] AND\n b = [6]",
            ),
        ] {
            assert_eq!(marked(Dialect::MySql, text), expected);
        }
    }

    #[test]
    fn angles_of_geometry_are_parameters() {
        assert_eq!(
            marked(
                Dialect::Adql,
                "SELECT TOP 5 a FROM t WHERE 1 = CONTAINS(POINT('ICRS', ra, dec), CIRCLE(10, -5.5, 2)) AND DISTANCE(ra, dec, 3, 4) < 5",
            ),
            "SELECT TOP 5 a FROM t WHERE [1] = CONTAINS(POINT('ICRS', ra, dec), CIRCLE([10], [-5.5], [2])) AND DISTANCE(ra, dec, [3], [4]) < [5]"
        );
    }

    #[test]
    fn what_is_no_statement_has_none() {
        for text in [
            "",
            "SELECT a FROM t WHERE a = 5; SELECT 6",
            "SELECT FROM WHERE 5",
            "SHOW TABLES",
        ] {
            assert_eq!(marked(Dialect::MySql, text), text);
        }
        let executed = "SELECT a /*!40000 , b */ FROM t WHERE a = 5";
        assert_eq!(marked(Dialect::MySql, executed), executed);
    }
}
