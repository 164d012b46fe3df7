//! How deep and how long a statement may be: what is rejected with a sentence rather than risked on the stack, and what is made
//! shallow instead.
//!
//! Deep nesting is told from the words, before a parser descends into it. Chains of AND and OR, which people and programs write
//! thousands of operands long, become balanced trees: everything that walks over them goes as deep as the tree is.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, SetExpr, Statement, VisitorMut,
};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::visiting::visit_mut;
use crate::{ErrorCode, SqlError};

/// Parentheses and CASEs within each other.
pub(crate) const DEEPEST_NESTING: usize = 100;
/// Operators one after another, but for AND and OR; signs and NOTs before one operand. The planner looks at each with all
/// those before it.
const LONGEST_CHAIN: usize = 200;
/// ANDs and ORs one after another.
const MOST_CONDITIONS: usize = 10_000;
/// UNIONs, EXCEPTs and INTERSECTs of one statement, without those of subqueries.
const MOST_SETS: usize = 500;
/// Tables of a FROM, as in MySQL.
const MOST_TABLES: usize = 61;
/// Columns of a SELECT, as in MySQL.
const MOST_COLUMNS: usize = 4096;
/// Subqueries that stand for a value within each other: each makes planning about twice as long.
const DEEPEST_SUBQUERIES: usize = 12;
/// Operands of AND or OR from which on the chain is balanced.
const BALANCED_FROM: usize = 16;

/// What is counted between two parentheses.
#[derive(Default, Clone, Copy)]
struct Level {
    operators: usize,
    conditions: usize,
    sets: usize,
    cases: usize,
}

/// Rejects a text that is nested too deeply or has too long a chain of operators.
pub(crate) fn check_words(sql: &str, tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let mut levels = vec![Level::default()];
    let mut cases = 0;
    for token in tokens {
        let level = levels.len() - 1;
        match &token.token {
            Token::LParen | Token::LBracket | Token::LBrace => levels.push(Level::default()),
            Token::RParen | Token::RBracket | Token::RBrace if level > 0 => {
                cases -= levels.pop().map_or(0, |level| level.cases);
            }
            Token::Comma => {
                levels[level].operators = 0;
                levels[level].conditions = 0;
            }
            Token::SemiColon => {
                levels.truncate(1);
                levels[0] = Level::default();
                cases = 0;
            }
            Token::Word(word) if word.quote_style.is_none() => {
                count_keyword(word.keyword, &mut levels[level], &mut cases);
            }
            other if is_operator(other) => levels[level].operators += 1,
            _ => {}
        }
        if let Some(sentence) = too_much(levels.len() + cases, levels.last()) {
            return Err(
                SqlError::at(sql, token.span.start, sentence).with_code(ErrorCode::NOT_SUPPORTED)
            );
        }
    }
    Ok(())
}

fn count_keyword(keyword: Keyword, level: &mut Level, cases: &mut usize) {
    match keyword {
        Keyword::CASE => {
            level.cases += 1;
            *cases += 1;
        }
        Keyword::END if level.cases > 0 => {
            level.cases -= 1;
            *cases -= 1;
        }
        Keyword::AND | Keyword::OR => {
            level.conditions += 1;
            level.operators = 0;
        }
        Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT => {
            level.sets += 1;
            level.operators = 0;
            level.conditions = 0;
        }
        Keyword::SELECT
        | Keyword::FROM
        | Keyword::WHERE
        | Keyword::ON
        | Keyword::HAVING
        | Keyword::WHEN
        | Keyword::THEN
        | Keyword::ELSE => {
            level.operators = 0;
            level.conditions = 0;
        }
        Keyword::NOT | Keyword::XOR | Keyword::DIV | Keyword::MOD | Keyword::LIKE | Keyword::IS => {
            level.operators += 1;
        }
        _ => {}
    }
}

/// Whether it joins two operands or stands before one.
fn is_operator(token: &Token) -> bool {
    !matches!(
        token,
        Token::Whitespace(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Word(_)
            | Token::Period
            | Token::EOF
    )
}

fn too_much(depth: usize, level: Option<&Level>) -> Option<String> {
    let level = level?;
    // Nothing is counted for the statement itself.
    if depth > DEEPEST_NESTING + 1 {
        return Some(format!(
            "the statement is nested more than {DEEPEST_NESTING} deep"
        ));
    }
    if level.operators > LONGEST_CHAIN {
        return Some(format!(
            "more than {LONGEST_CHAIN} operators follow one another: put parentheses around parts of them, or use a function of several values"
        ));
    }
    if level.conditions > MOST_CONDITIONS {
        return Some(format!(
            "more than {MOST_CONDITIONS} conditions are joined by AND and OR: use IN (...), or put the values into a file and join it"
        ));
    }
    (level.sets > MOST_SETS)
        .then(|| format!("more than {MOST_SETS} sets are joined by UNION, EXCEPT and INTERSECT"))
}

/// Rejects too many tables, columns and subqueries, and makes long chains of conditions shallow.
pub(crate) fn check_and_balance(statement: &mut Statement) -> Result<(), SqlError> {
    let rejected = |sentence: String| SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED);
    match visit_mut(statement, &mut Checker { subqueries: 0 }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(sentence) => Err(rejected(sentence)),
    }
}

struct Checker {
    subqueries: usize,
}

impl VisitorMut for Checker {
    type Break = String;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<String> {
        match &*query.body {
            SetExpr::Select(select) => check_select(select),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        balance(expr);
        if is_subquery(expr) {
            self.subqueries += 1;
            if self.subqueries > DEEPEST_SUBQUERIES {
                return ControlFlow::Break(format!(
                    "subqueries are nested more than {DEEPEST_SUBQUERIES} deep: give the inner ones names with WITH"
                ));
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<String> {
        if is_subquery(expr) {
            self.subqueries -= 1;
        }
        ControlFlow::Continue(())
    }
}

fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. }
    )
}

fn check_select(select: &Select) -> ControlFlow<String> {
    if select.projection.len() > MOST_COLUMNS {
        return ControlFlow::Break(format!(
            "a SELECT of {} columns: at most {MOST_COLUMNS} are possible",
            select.projection.len()
        ));
    }
    let tables: usize = select.from.iter().map(|from| 1 + from.joins.len()).sum();
    if tables > MOST_TABLES {
        return ControlFlow::Break(format!(
            "a FROM of {tables} tables: at most {MOST_TABLES} are possible"
        ));
    }
    ControlFlow::Continue(())
}

/// Makes a long chain of ANDs, or of ORs, a balanced tree of the same operands in the same order.
fn balance(expr: &mut Expr) {
    let Expr::BinaryOp { op, .. } = expr else {
        return;
    };
    let op = op.clone();
    if !matches!(op, BinaryOperator::And | BinaryOperator::Or) || links(expr, &op) < BALANCED_FROM {
        return;
    }
    let mut operands = Vec::new();
    let mut rest = std::mem::replace(expr, nothing());
    // From the last to the first, without recursion: the chain hangs on its left operands.
    loop {
        match rest {
            Expr::BinaryOp {
                left,
                op: other,
                right,
            } if other == op => {
                operands.push(*right);
                rest = *left;
            }
            first => {
                operands.push(first);
                break;
            }
        }
    }
    while operands.len() > 1 {
        let mut paired = Vec::with_capacity(operands.len().div_ceil(2));
        // Pairs are made from the first operand on, which is the last of the list.
        while let Some(left) = operands.pop() {
            paired.push(match operands.pop() {
                Some(right) => Expr::BinaryOp {
                    left: Box::new(left),
                    op: op.clone(),
                    right: Box::new(right),
                },
                None => left,
            });
        }
        paired.reverse();
        operands = paired;
    }
    if let Some(tree) = operands.pop() {
        *expr = tree;
    }
}

/// How often the operator follows itself on the left.
fn links(expr: &Expr, op: &BinaryOperator) -> usize {
    let mut links = 0;
    let mut at = expr;
    while let Expr::BinaryOp {
        left, op: other, ..
    } = at
    {
        if other != op {
            break;
        }
        links += 1;
        at = left;
    }
    links
}

fn nothing() -> Expr {
    Expr::Identifier("".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use datafusion::sql::sqlparser::parser::Parser;

    fn words(text: &str) -> Result<(), SqlError> {
        let mut tokenizer = Dialect::MySql.tokenizer(text);
        check_words(text, &tokenizer.tokenize_with_location().unwrap())
    }

    #[test]
    fn what_is_too_much_is_rejected_and_a_little_less_is_not() {
        let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
        let cases = |depth: usize| "CASE WHEN ".repeat(depth);
        let chain = |many: usize| format!("SELECT 1{}", " + 1".repeat(many));
        for (fits, too_much) in [
            (nested(100), nested(101)),
            (cases(100), cases(101)),
            (chain(200), chain(201)),
            ("- ".repeat(200), "- ".repeat(201)),
            ("NOT ".repeat(200), "NOT ".repeat(201)),
        ] {
            assert!(words(&fits).is_ok(), "{}", &fits[..20]);
            assert!(words(&too_much).is_err(), "{}", &too_much[..20]);
        }
    }

    #[test]
    fn what_stands_side_by_side_is_not_nested() {
        let cases = "CASE WHEN 1 THEN 2 END, ".repeat(1000);
        let calls = "abs(1 + 2), ".repeat(10_000);
        let keys = (0..50_000)
            .map(|key| key.to_string())
            .collect::<Vec<_>>()
            .join(", ");
        assert!(
            words(&format!(
                "SELECT {cases}{calls}1 FROM t WHERE id IN ({keys})"
            ))
            .is_ok()
        );
    }

    #[test]
    fn chains_of_conditions_become_balanced_and_keep_their_order() {
        let conditions: Vec<String> = (0..5000).map(|at| format!("a = {at}")).collect();
        let text = format!("SELECT 1 WHERE {}", conditions.join(" OR "));
        let mut statements = Parser::parse_sql(Dialect::MySql.grammar(), &text).unwrap();
        check_and_balance(&mut statements[0]).unwrap();
        assert_eq!(statements[0].to_string(), text);
        let Statement::Query(query) = &statements[0] else {
            unreachable!("it is a query");
        };
        let condition = query.body.as_select().unwrap().selection.as_ref().unwrap();
        assert!(links(condition, &BinaryOperator::Or) <= 13);
    }

    #[test]
    fn subqueries_are_counted_within_each_other() {
        let nested = |depth: usize| {
            let text = format!("SELECT {}1{}", "(SELECT ".repeat(depth), ")".repeat(depth));
            let mut statements = Parser::parse_sql(Dialect::MySql.grammar(), &text).unwrap();
            check_and_balance(&mut statements[0])
        };
        assert!(nested(12).is_ok());
        assert!(nested(13).is_err());
        let beside = "(SELECT 1), ".repeat(100);
        let mut statements =
            Parser::parse_sql(Dialect::MySql.grammar(), &format!("SELECT {beside}1")).unwrap();
        assert!(check_and_balance(&mut statements[0]).is_ok());
    }
}
