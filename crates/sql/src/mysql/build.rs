//! Expressions of the syntax tree made of their parts.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    CaseWhen, CastKind, DataType, DateTimeField, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, UnaryOperator, Value,
};

pub(super) fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

pub(crate) fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.into()))
}

pub(super) fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

pub(super) fn negated(expr: Expr) -> Expr {
    call("mysql_negate", vec![expr])
}

pub(super) fn not(expr: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(expr),
    }
}

pub(crate) fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

pub(super) fn text(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_ascii_lowercase()).into())
}

pub(super) fn argument(expr: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))
}

pub(super) fn unnamed(argument: FunctionArg) -> Option<Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

/// The arguments of a call that has nothing else between its parentheses.
pub(crate) fn plain_arguments(function: &Function) -> Option<Vec<Expr>> {
    match &function.args {
        FunctionArguments::None => Some(vec![]),
        FunctionArguments::List(list)
            if list.duplicate_treatment.is_none() && list.clauses.is_empty() =>
        {
            list.args.iter().cloned().map(unnamed).collect()
        }
        _ => None,
    }
}

pub(super) fn each_argument(function: &mut Function, change: impl Fn(&mut Expr)) {
    if let FunctionArguments::List(list) = &mut function.args {
        for argument in &mut list.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument {
                change(expr);
            }
        }
    }
}

/// A call of one of the engine's functions.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: arguments.into_iter().map(argument).collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

/// One of two expressions.
pub(crate) fn choice(condition: Expr, result: Expr, otherwise: Expr) -> Expr {
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen { condition, result }],
        else_result: Some(Box::new(otherwise)),
    }
}

pub(crate) fn plain_cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

pub(super) fn unit_name(unit: &DateTimeField) -> String {
    unit.to_string().to_ascii_lowercase()
}
