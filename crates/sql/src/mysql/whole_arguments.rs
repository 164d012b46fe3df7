//! Constants with a point where MySQL takes an integer.
//!
//! Such a constant is a double in the engine and a DECIMAL in MySQL, and an integer is made of them by different rules: of a DECIMAL
//! halves are rounded away from zero, of a double to the even neighbour. So `LEFT(name, 2.5)` has three characters, but
//! `LEFT(name, 2.5e0)` two. The constants are made decimals where the functions and operators below take integers.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator,
};

use super::build::take;
use super::forms::stored_constant;

/// Functions, by the names that they have here, and the places of their arguments that are integers, from 0; of none all are.
const INTEGERS: &[(&str, &[usize])] = &[
    // Text.
    ("mysql_left", &[1]),
    ("mysql_right", &[1]),
    ("mysql_substr", &[1, 2]),
    ("mysql_substring", &[1, 2]),
    ("mysql_mid", &[1, 2]),
    ("mysql_lpad", &[1]),
    ("mysql_rpad", &[1]),
    ("mysql_repeat", &[1]),
    ("mysql_space", &[0]),
    ("mysql_locate", &[2]),
    ("mysql_insert", &[1, 2]),
    ("mysql_substring_index", &[2]),
    ("mysql_format", &[0, 1]),
    ("mysql_elt", &[0]),
    ("mysql_char", &[]),
    ("mysql_hex", &[0]),
    ("mysql_make_set", &[0]),
    ("mysql_export_set", &[0, 4]),
    ("mysql_sha2", &[1]),
    ("mysql_inet_ntoa", &[0]),
    // Numbers.
    ("mysql_round", &[1]),
    ("mysql_round_exact", &[1]),
    ("mysql_truncate", &[1]),
    ("mysql_conv", &[1, 2]),
    ("mysql_bit_count", &[0]),
    ("mysql_unsigned", &[0]),
    // Times. The amounts of an INTERVAL that is subtracted are negated.
    ("mysql_negate", &[0]),
    ("mysql_date_add", &[1]),
    ("mysql_time_add", &[1]),
    ("mysql_week", &[1]),
    ("mysql_yearweek", &[1]),
    ("mysql_from_days", &[0]),
    ("mysql_makedate", &[]),
    ("mysql_maketime", &[]),
    ("mysql_period_add", &[]),
    ("mysql_period_diff", &[]),
];

/// An expression whose constants with a point are decimals where they are taken for integers.
pub(super) fn with_decimals(mut expr: Expr) -> Expr {
    match &mut expr {
        Expr::Function(function) => settle_arguments(function),
        Expr::BinaryOp { left, op, right } if is_of_bits(op) => {
            settle(left);
            settle(right);
        }
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr,
        } => settle(expr),
        _ => {}
    }
    expr
}

fn settle_arguments(function: &mut Function) {
    let name = function.name.to_string();
    let Some((_, places)) = INTEGERS.iter().find(|(known, _)| *known == name) else {
        return;
    };
    if let FunctionArguments::List(list) = &mut function.args {
        for (at, argument) in list.args.iter_mut().enumerate() {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument
                && (places.is_empty() || places.contains(&at))
            {
                settle(expr);
            }
        }
    }
}

fn settle(expr: &mut Expr) {
    *expr = stored_constant(take(expr));
}

/// Whether an operator computes with bits.
fn is_of_bits(op: &BinaryOperator) -> bool {
    matches!(
        op,
        BinaryOperator::BitwiseAnd
            | BinaryOperator::BitwiseOr
            | BinaryOperator::BitwiseXor
            | BinaryOperator::PGBitwiseShiftLeft
            | BinaryOperator::PGBitwiseShiftRight
    )
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;
    use crate::mysql::MySqlGrammar;

    #[test]
    fn constants_with_a_point_are_decimals_where_integers_are_taken() {
        for (text, settled) in [
            (
                "mysql_left(a, 2.5)",
                "mysql_left(a, CAST('2.5' AS DECIMAL(2,1)))",
            ),
            (
                "mysql_left(a, -2.5)",
                "mysql_left(a, CAST('-2.5' AS DECIMAL(2,1)))",
            ),
            ("mysql_left(1.5, 2)", "mysql_left(1.5, 2)"),
            ("mysql_left(a, 2.5e0)", "mysql_left(a, 2.5e0)"),
            (
                "mysql_char(77.5)",
                "mysql_char(CAST('77.5' AS DECIMAL(3,1)))",
            ),
            ("sqrt(2.5)", "sqrt(2.5)"),
            ("2.5 << a", "CAST('2.5' AS DECIMAL(2,1)) << a"),
            ("2.5 + a", "2.5 + a"),
            ("~2.5", "~CAST('2.5' AS DECIMAL(2,1))"),
        ] {
            let mut parser = Parser::new(&MySqlGrammar).try_with_sql(text).unwrap();
            let expr = with_decimals(parser.parse_expr().unwrap());
            assert_eq!(expr.to_string(), settled, "{text}");
        }
    }

    #[test]
    fn functions_that_take_integers_are_there() {
        let functions = crate::functions::mysql::all();
        for (name, _) in INTEGERS {
            assert!(functions.iter().any(|it| it.name() == *name), "{name}");
        }
    }
}
