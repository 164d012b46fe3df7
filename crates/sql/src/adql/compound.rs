//! Regions of STC-S that are made of others: `UNION ICRS (CIRCLE 1 2 3 CIRCLE 4 5 6)`, `INTERSECTION (...)`, `NOT (...)`.
//!
//! They are no shapes, so that nothing can be made of them; but whether a point is in one follows from whether it is in its parts:
//! `1 = CONTAINS(point, REGION('UNION (A B)'))` becomes `1 = CONTAINS(point, A) OR 1 = CONTAINS(point, B)`, of which the engine knows
//! where the rows are. A point that is unknown is nowhere, in no complement either.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Function, UnaryOperator, Value};

use super::build::{about_call, call, choice, literal_text, number, operation, plain_arguments};
use super::geometry::of_region;
use super::stcs::{self, ICRS, Region};
use crate::SqlError;

/// Regions within each other, and regions altogether: more than anybody writes, few enough for what plans them.
const DEEPEST: usize = 16;
const MOST_PARTS: usize = 256;

/// A region that may be made of others.
#[derive(Debug, PartialEq)]
enum Compound {
    One(Region),
    Union(Vec<Self>),
    Intersection(Vec<Self>),
    Not(Box<Self>),
}

/// Whether a text begins as that of a region made of others.
pub(super) fn is_compound(text: &str) -> bool {
    operator(
        text.split([' ', '\t', '\r', '\n', '('])
            .find(|word| !word.is_empty())
            .unwrap_or(""),
    )
    .is_some()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Union,
    Intersection,
    Not,
}

fn operator(word: &str) -> Option<Operator> {
    match word.to_ascii_uppercase().as_str() {
        "UNION" => Some(Operator::Union),
        "INTERSECTION" => Some(Operator::Intersection),
        "NOT" => Some(Operator::Not),
        _ => None,
    }
}

/// Reads the text of a region made of others.
fn read(text: &str) -> Result<Compound, String> {
    let spaced = text.replace('(', " ( ").replace(')', " ) ");
    let mut reader = Reader {
        text,
        words: spaced.split_whitespace().collect(),
        at: 0,
        parts: 0,
    };
    let region = reader.region(ICRS, 0)?;
    match reader.words.get(reader.at) {
        None => Ok(region),
        Some(word) => Err(format!("\"{word}\" in the region '{text}' is not expected")),
    }
}

struct Reader<'a> {
    text: &'a str,
    words: Vec<&'a str>,
    at: usize,
    parts: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    /// A region in a frame, unless it says another.
    fn region(&mut self, frame: &'static str, depth: usize) -> Result<Compound, String> {
        if depth > DEEPEST {
            return Err(format!("the region '{}' is nested too deep", self.text));
        }
        match self.peek().and_then(operator) {
            None => self.shape(frame),
            Some(operator) => self.combination(operator, frame, depth),
        }
    }

    fn shape(&mut self, frame: &'static str) -> Result<Compound, String> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(format!("a region is made of at most {MOST_PARTS} others"));
        }
        let begin = self.at;
        let begins_another = |word: &str| {
            matches!(word, "(" | ")") || operator(word).is_some() || stcs::is_shape(word)
        };
        // The shape's own name is the first word.
        self.at = (begin + 1).min(self.words.len());
        while self.peek().is_some_and(|word| !begins_another(word)) {
            self.at += 1;
        }
        let words = self.words[begin..self.at].join(" ");
        stcs::region_in(&words, frame).map(Compound::One)
    }

    fn combination(
        &mut self,
        operator: Operator,
        frame: &'static str,
        depth: usize,
    ) -> Result<Compound, String> {
        self.at += 1;
        let mut frame = frame;
        while let Some(word) = self.peek().filter(|word| *word != "(") {
            frame = stcs::system_word(word)?
                .ok_or_else(|| self.unexpected(word))?
                .unwrap_or(frame);
            self.at += 1;
        }
        if self.peek().is_none() {
            return Err(self.without_parenthesis("opening"));
        }
        self.at += 1;
        let mut parts = Vec::new();
        while self.peek().is_some_and(|word| word != ")") {
            parts.push(self.region(frame, depth + 1)?);
        }
        if self.peek().is_none() {
            return Err(self.without_parenthesis("closing"));
        }
        self.at += 1;
        match (operator, parts.len()) {
            (Operator::Not, 1) => Ok(Compound::Not(Box::new(parts.remove(0)))),
            (Operator::Not, given) => Err(format!(
                "NOT is of one region, and in '{}' it has {given}",
                self.text
            )),
            (_, 0) => Err(format!("a part of the region '{}' is empty", self.text)),
            (Operator::Union, _) => Ok(Compound::Union(parts)),
            (Operator::Intersection, _) => Ok(Compound::Intersection(parts)),
        }
    }

    fn unexpected(&self, word: &str) -> String {
        format!(
            "\"{word}\" in the region '{}' is neither a coordinate system nor a parenthesis",
            self.text
        )
    }

    fn without_parenthesis(&self, which: &str) -> String {
        format!(
            "the region '{}' lacks a {which} parenthesis; write UNION ICRS (CIRCLE 1 2 3 CIRCLE 4 5 6)",
            self.text
        )
    }
}

/// What stands for a comparison of 0 or 1 with whether something is in a region made of others; `None` for any other expression.
pub(super) fn comparison(
    sql: &str,
    left: &Expr,
    op: &BinaryOperator,
    right: &Expr,
) -> Result<Option<Expr>, SqlError> {
    let (function, constant, is_left) = match (called(left), called(right)) {
        (Some(function), None) => (function, right, true),
        (None, Some(function)) => (function, left, false),
        _ => return Ok(None),
    };
    let Some(constant) = zero_or_one(constant) else {
        return Ok(None);
    };
    let truth = |value: i32| match is_left {
        true => holds(value, op, constant),
        false => holds(constant, op, value),
    };
    let (Some(if_outside), Some(if_inside)) = (truth(0), truth(1)) else {
        return Ok(None);
    };
    let Some(inside) = condition(sql, function)? else {
        return Ok(None);
    };
    Ok(Some(match (if_outside, if_inside) {
        (false, true) => inside,
        (true, false) => negation(inside),
        (both, _) => Expr::Value(Value::Boolean(both).into()),
    }))
}

fn holds(left: i32, op: &BinaryOperator, right: i32) -> Option<bool> {
    match op {
        BinaryOperator::Eq => Some(left == right),
        BinaryOperator::NotEq => Some(left != right),
        BinaryOperator::Lt => Some(left < right),
        BinaryOperator::LtEq => Some(left <= right),
        BinaryOperator::Gt => Some(left > right),
        BinaryOperator::GtEq => Some(left >= right),
        _ => None,
    }
}

/// What stands for `CONTAINS` or `INTERSECTS` of a region made of others: 0 or 1.
pub(super) fn value(sql: &str, function: &Function) -> Result<Option<Expr>, SqlError> {
    let inside = condition(sql, function)?;
    Ok(inside.map(|inside| choice(inside, number("1"), number("0"))))
}

fn zero_or_one(expr: &Expr) -> Option<i32> {
    match expr {
        Expr::Nested(inner) => zero_or_one(inner),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if digits == "0" => Some(0),
            Value::Number(digits, _) if digits == "1" => Some(1),
            _ => None,
        },
        _ => None,
    }
}

fn called(expr: &Expr) -> Option<&Function> {
    match expr {
        Expr::Nested(inner) => called(inner),
        Expr::Function(function) => {
            let name = function.name.to_string();
            matches!(name.as_str(), "contains" | "intersects").then_some(function)
        }
        _ => None,
    }
}

/// The condition that something is in a region made of others.
fn condition(sql: &str, function: &Function) -> Result<Option<Expr>, SqlError> {
    let name = function.name.to_string();
    if !matches!(name.as_str(), "contains" | "intersects") {
        return Ok(None);
    }
    let Some(arguments) = plain_arguments(function) else {
        return Ok(None);
    };
    let [first, second] = arguments.as_slice() else {
        return Ok(None);
    };
    let wrong = |sentence: String| about_call(sql, function, sentence);
    let (inner, text) = match (compound_text(first), compound_text(second)) {
        (None, None) => return Ok(None),
        (None, Some(text)) => (first, text),
        (Some(text), None) if name == "intersects" => (second, text),
        _ => {
            return Err(wrong(
                "a region made of others (UNION, INTERSECTION, NOT) is the second of CONTAINS, and the first is a point"
                    .to_owned(),
            ));
        }
    };
    let region = read(&text).map_err(wrong)?;
    let of_shape = name == "intersects" && region.is_union();
    let inner = match inner_point(inner) {
        Some(point) => point,
        None if of_shape => inner.clone(),
        None => {
            return Err(wrong(
                "a region made of others (UNION, INTERSECTION, NOT) has points in it: give a POINT; only a UNION INTERSECTS other shapes, too"
                    .to_owned(),
            ));
        }
    };
    Ok(Some(region.condition(&name, &inner)))
}

/// The text of a region made of others, where an expression is that of one.
fn compound_text(expr: &Expr) -> Option<String> {
    let Expr::Function(function) = expr else {
        return None;
    };
    if function.name.to_string() != "region" {
        return None;
    }
    match plain_arguments(function)?.as_slice() {
        [only] => literal_text(only)
            .filter(|text| is_compound(text))
            .map(str::to_owned),
        _ => None,
    }
}

/// A point, or what has to be one: other geometries are rejected by the functions of points.
fn inner_point(expr: &Expr) -> Option<Expr> {
    if let Expr::Function(function) = expr {
        match function.name.to_string().as_str() {
            "point" => return Some(expr.clone()),
            "circle" | "box" | "polygon" | "region" | "moc" => return None,
            _ => {}
        }
    }
    let coordinate = |name| call(name, vec![expr.clone()]);
    Some(call(
        "point",
        vec![coordinate("coord1"), coordinate("coord2")],
    ))
}

impl Compound {
    /// Whether it is made of unions alone.
    fn is_union(&self) -> bool {
        match self {
            Self::One(_) => true,
            Self::Union(parts) => parts.iter().all(Self::is_union),
            Self::Intersection(_) | Self::Not(_) => false,
        }
    }

    fn condition(self, relation: &str, inner: &Expr) -> Expr {
        match self {
            Self::One(region) => {
                let related = call(relation, vec![inner.clone(), of_region(region)]);
                operation(number("1"), BinaryOperator::Eq, related)
            }
            Self::Union(parts) => joined(parts, relation, inner, &BinaryOperator::Or),
            Self::Intersection(parts) => joined(parts, relation, inner, &BinaryOperator::And),
            Self::Not(part) => {
                let known = Expr::IsNotNull(Box::new(call("coord1", vec![inner.clone()])));
                let outside = negation(part.condition(relation, inner));
                operation(known, BinaryOperator::And, outside)
            }
        }
    }
}

fn negation(expr: Expr) -> Expr {
    Expr::Nested(Box::new(Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(Expr::Nested(Box::new(expr))),
    }))
}

/// The conditions of all parts, in a tree that is as flat as can be.
fn joined(parts: Vec<Compound>, relation: &str, inner: &Expr, op: &BinaryOperator) -> Expr {
    let mut conditions: Vec<Expr> = (parts.into_iter())
        .map(|part| part.condition(relation, inner))
        .collect();
    while conditions.len() > 1 {
        let mut pairs = conditions.into_iter();
        let mut next = Vec::new();
        while let Some(first) = pairs.next() {
            next.push(match pairs.next() {
                Some(second) => operation(first, op.clone(), second),
                None => first,
            });
        }
        conditions = next;
    }
    // There is at least one.
    conditions
        .pop()
        .unwrap_or_else(|| Expr::Value(Value::Boolean(false).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circle(ra: f64, frame: &'static str) -> Compound {
        Compound::One(Region {
            constructor: "adql_circle",
            numbers: vec![ra, 2.0, 3.0],
            frame,
        })
    }

    #[test]
    fn regions_are_trees() {
        use Compound::{Intersection, Not, Union};
        for (text, expected) in [
            (
                "Union ICRS (Circle 1 2 3 Circle 4 2 3)",
                Union(vec![circle(1.0, ICRS), circle(4.0, ICRS)]),
            ),
            (
                "INTERSECTION GALACTIC BARYCENTER(CIRCLE 1 2 3 NOT(CIRCLE ICRS 4 2 3))",
                Intersection(vec![
                    circle(1.0, "GALACTIC"),
                    Not(Box::new(circle(4.0, ICRS))),
                ]),
            ),
            (
                " not ( union (circle J2000 1 2 3 unit deg) ) ",
                Not(Box::new(Union(vec![circle(1.0, "FK5")]))),
            ),
        ] {
            assert!(is_compound(text));
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        assert!(!is_compound("CIRCLE ICRS 1 2 3") && !is_compound(""));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let deep = format!("{}CIRCLE 1 2 3{}", "NOT (".repeat(40), ")".repeat(40));
        let many = format!("UNION ({})", "CIRCLE 1 2 3 ".repeat(300));
        for (text, part) in [
            ("UNION", "opening parenthesis"),
            ("UNION (CIRCLE 1 2 3", "closing parenthesis"),
            ("UNION ()", "is empty"),
            ("UNION (CIRCLE 1 2 3) x", "\"x\""),
            ("UNION IKRS (CIRCLE 1 2 3)", "IKRS"),
            ("UNION GSE (CIRCLE 1 2 3)", "GSE cannot be brought"),
            ("UNION (CIRCLE 1 2)", "has 2 numbers"),
            ("UNION (ELLIPSE 1 2)", "begins with none of"),
            ("NOT (CIRCLE 1 2 3 CIRCLE 4 5 6)", "one region"),
            (&deep, "too deep"),
            (&many, "at most 256"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
