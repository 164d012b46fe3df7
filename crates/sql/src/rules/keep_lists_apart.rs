//! Several lists that one value is compared with in one expression.
//!
//! DataFusion's simplifier makes one list of two: `x IN (1, 2) AND x IN (3)` becomes an empty list, which it takes for false, and
//! `x NOT IN (1) OR x NOT IN (2)` becomes true. Both are NULL where x is. It does so only if the operands of the lists are equal
//! expressions, so all lists of one operand but the first are given an operand that is unlike the others:
//!
//! ```text
//! x NOT IN (1) OR x NOT IN (2)   becomes   x NOT IN (1) OR meridian_apart(x, 1) NOT IN (2)
//! ```
//!
//! The simplifier also makes lists of `x = 1 OR x = 2`, and of the opposite below NOT; such chains count as one list. Lists of an operand that
//! is never NULL are left as they are, except in expressions with lists of anything but values: NULL may be among them, and the simplifier
//! takes placeholders and columns for values unlike all others.

use std::collections::HashMap;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::input_schema;
use crate::functions::apart_from;

/// Keeps the simplifier from merging lists. Runs before the simplifier each time.
#[derive(Debug, Default)]
pub struct KeepListsApart;

impl OptimizerRule for KeepListsApart {
    fn name(&self) -> &str {
        "keep_lists_apart"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !may_have_lists(&plan)? {
            return Ok(Transformed::no(plan));
        }
        let schema = input_schema(&plan);
        let names = NamePreserver::new(&plan);
        let rewritten = plan.map_expressions(|expr| {
            let saved = names.save(&expr);
            let rewritten = keep_apart(&schema, expr)?;
            Ok(rewritten.update_data(|expr| saved.restore(expr)))
        })?;
        match rewritten.transformed {
            true => rewritten.map_data(|plan| plan.recompute_schema()),
            false => Ok(rewritten),
        }
    }
}

/// Arguments of aggregates and window functions are expressions of their own: one that is also sorted by has to stay equal to itself.
fn keep_apart(schema: &DFSchema, expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::Alias(_) | Expr::AggregateFunction(_) | Expr::WindowFunction(_) => {
            expr.map_children(|child| keep_apart(schema, child))
        }
        expr => Lists::of(schema, &expr)?.rewrite(expr),
    }
}

/// Whether an expression of a node has lists, or chains that become some: most have none, and nothing more is to be done for them.
fn may_have_lists(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expr| {
        found |= expr.exists(|expr| {
            Ok(match expr {
                Expr::InList(_) => true,
                Expr::BinaryExpr(binary) => matches!(binary.op, Operator::Or | Operator::NotEq),
                _ => false,
            })
        })?;
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// The lists of an expression that were met.
struct Lists<'a> {
    schema: &'a DFSchema,
    /// Whether the expression has a placeholder, or a list in which something is not a value.
    is_open: bool,
    /// How many of each operand.
    seen: HashMap<Expr, i64>,
}

/// The chain in which an operand stands: its members become one list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// `x = 1 OR x IN (2, 3)`
    Or,
    /// `x <> 1 AND x NOT IN (2, 3)`
    And,
}

impl<'a> Lists<'a> {
    fn of(schema: &'a DFSchema, expr: &Expr) -> Result<Self> {
        Ok(Self {
            schema,
            is_open: expr.exists(|expr| {
                Ok(match expr {
                    Expr::Placeholder(_) => true,
                    Expr::InList(list) => !list.list.iter().all(is_value),
                    _ => false,
                })
            })?,
            seen: HashMap::new(),
        })
    }

    fn rewrite(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        expr.transform_down(|expr| {
            let chain = match &expr {
                Expr::BinaryExpr(binary) if binary.op == Operator::Or => Chain::Or,
                Expr::BinaryExpr(binary) if binary.op == Operator::And => Chain::And,
                Expr::InList(_) => {
                    let kept = self.numbered(expr)?;
                    return Ok(Transformed::new(
                        kept.data,
                        kept.transformed,
                        TreeNodeRecursion::Jump,
                    ));
                }
                _ => return Ok(Transformed::no(expr)),
            };
            let rewritten = self.rewrite_chain(expr, chain)?;
            Ok(Transformed::new(
                rewritten.data,
                rewritten.transformed,
                TreeNodeRecursion::Jump,
            ))
        })
    }

    /// Numbers the lists that a chain becomes, and those within its other members.
    fn rewrite_chain(&mut self, expr: Expr, chain: Chain) -> Result<Transformed<Expr>> {
        let mut counts: HashMap<Expr, (usize, bool)> = HashMap::new();
        for_each_member(&expr, chain, &mut |member| {
            if let Some(operand) = operand_of(member, chain) {
                let count = counts.entry(operand.clone()).or_default();
                count.0 += 1;
                count.1 |= matches!(member, Expr::InList(_));
            }
        });
        let mut numbers = HashMap::new();
        for (operand, (members, has_list)) in counts {
            if (members > 1 || has_list) && self.may_differ(&operand) {
                let number = self.next_number(&operand);
                numbers.insert(operand, number);
            }
        }
        map_members(
            expr,
            chain,
            &mut |member| match operand_of(&member, chain) {
                Some(operand) => match numbers.get(operand) {
                    Some(number) => Ok(with_number(member, *number)),
                    None => Ok(Transformed::no(member)),
                },
                None => self.rewrite(member),
            },
        )
    }

    /// A list by itself.
    fn numbered(&mut self, expr: Expr) -> Result<Transformed<Expr>> {
        let Expr::InList(list) = &expr else {
            return Ok(Transformed::no(expr));
        };
        if !self.may_differ(&list.expr) {
            return Ok(Transformed::no(expr));
        }
        let number = self.next_number(&list.expr);
        Ok(with_number(expr, number))
    }

    fn next_number(&mut self, operand: &Expr) -> i64 {
        let seen = self.seen.entry(operand.clone()).or_default();
        *seen += 1;
        *seen - 1
    }

    /// Whether merging lists of the operand could change a value.
    fn may_differ(&self, operand: &Expr) -> bool {
        // An operand that cannot be resolved here, such as a column of an outer query, may be NULL.
        self.is_open || operand.nullable(self.schema).unwrap_or(true)
    }
}

/// Whether an expression is a constant other than NULL.
fn is_value(expr: &Expr) -> bool {
    expr.as_literal().is_some_and(|value| !value.is_null())
}

/// The operand of a member that the simplifier makes part of the list of its chain.
fn operand_of(member: &Expr, chain: Chain) -> Option<&Expr> {
    match member {
        Expr::InList(list) if list.negated == (chain == Chain::And) => Some(&list.expr),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let equal = match chain {
                Chain::Or => Operator::Eq,
                Chain::And => Operator::NotEq,
            };
            let is_column = matches!(left.as_ref(), Expr::Column(_));
            (*op == equal && is_column && right.as_literal().is_some()).then_some(left)
        }
        _ => None,
    }
}

fn for_each_member(expr: &Expr, chain: Chain, visit: &mut impl FnMut(&Expr)) {
    match expr {
        Expr::BinaryExpr(binary) if binary.op == chain.operator() => {
            for_each_member(&binary.left, chain, visit);
            for_each_member(&binary.right, chain, visit);
        }
        _ => visit(expr),
    }
}

fn map_members(
    expr: Expr,
    chain: Chain,
    map: &mut impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if op == chain.operator() => {
            let left = map_members(*left, chain, map)?;
            let right = map_members(*right, chain, map)?;
            let transformed = left.transformed || right.transformed;
            let both = BinaryExpr::new(Box::new(left.data), op, Box::new(right.data));
            Ok(Transformed::new(
                Expr::BinaryExpr(both),
                transformed,
                TreeNodeRecursion::Continue,
            ))
        }
        _ => map(expr),
    }
}

impl Chain {
    fn operator(self) -> Operator {
        match self {
            Self::Or => Operator::Or,
            Self::And => Operator::And,
        }
    }
}

/// The comparison with the operand of the list of this number; the first list keeps its operand.
fn with_number(expr: Expr, number: i64) -> Transformed<Expr> {
    if number == 0 {
        return Transformed::no(expr);
    }
    Transformed::yes(match expr {
        Expr::InList(InList {
            expr,
            list,
            negated,
        }) => Expr::InList(InList {
            expr: Box::new(apart_from(*expr, number)),
            list,
            negated,
        }),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => Expr::BinaryExpr(BinaryExpr::new(
            Box::new(apart_from(*left, number)),
            op,
            right,
        )),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::logical_expr::{col, in_list, lit, not};

    use super::*;

    /// a may be NULL, k not.
    fn schema() -> DFSchema {
        let field = |name, nullable| Field::new(name, DataType::Int64, nullable);
        let fields = vec![field("a", true), field("k", false)];
        DFSchema::try_from(Schema::new(fields)).unwrap()
    }

    fn rewritten(expr: Expr) -> String {
        let schema = schema();
        let mut lists = Lists::of(&schema, &expr).unwrap();
        lists.rewrite(expr).unwrap().data.to_string()
    }

    fn among(column: &str, values: &[i64], negated: bool) -> Expr {
        let values = values.iter().map(|value| lit(*value)).collect();
        in_list(col(column), values, negated)
    }

    #[test]
    fn the_second_list_of_an_operand_is_apart() {
        let both = among("a", &[1, 2], false).and(among("a", &[3], false));
        let expected =
            "a IN ([Int64(1), Int64(2)]) AND meridian_apart(a, Int64(1)) IN ([Int64(3)])";
        assert_eq!(rewritten(both), expected);
        let nested =
            not(among("a", &[1], true).or(among("k", &[1], false).and(among("a", &[2], true))));
        let expected = "NOT a NOT IN ([Int64(1)]) OR k IN ([Int64(1)]) AND meridian_apart(a, Int64(1)) NOT IN ([Int64(2)])";
        assert_eq!(rewritten(nested), expected);
    }

    #[test]
    fn a_chain_is_one_list() {
        let chain = || col("a").eq(lit(1_i64)).or(col("a").eq(lit(2_i64)));
        assert_eq!(rewritten(chain()), chain().to_string());
        let joined = chain().or(among("a", &[7], false));
        assert_eq!(rewritten(joined.clone()), joined.to_string());
        let expected = "a IN ([Int64(3)]) AND (meridian_apart(a, Int64(1)) = Int64(1) OR meridian_apart(a, Int64(1)) = Int64(2))";
        assert_eq!(rewritten(among("a", &[3], false).and(chain())), expected);
        let opposite = col("a").not_eq(lit(1_i64)).and(col("a").not_eq(lit(2_i64)));
        let found = rewritten(not(opposite).and(among("a", &[3], false)));
        assert!(found.contains("meridian_apart(a, Int64(1)) IN"), "{found}");
    }

    #[test]
    fn what_cannot_be_null_is_left() {
        let both = among("k", &[1, 2], false).and(among("k", &[3], false));
        assert_eq!(rewritten(both.clone()), both.to_string());
        let single = col("a").eq(lit(1_i64)).and(among("a", &[3], false));
        assert_eq!(rewritten(single.clone()), single.to_string());
        let placeholder = || {
            in_list(
                col("k"),
                vec![datafusion::logical_expr::placeholder("$1")],
                false,
            )
        };
        assert!(rewritten(placeholder().and(placeholder())).contains("meridian_apart"));
        // A list of constants is merged with one of placeholders, too.
        let mixed = placeholder().and(among("k", &[2], false));
        assert!(rewritten(mixed).contains("meridian_apart(k, Int64(1)) IN ([Int64(2)])"));
    }
}
