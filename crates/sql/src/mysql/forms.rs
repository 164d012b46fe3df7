//! Forms of MySQL's that the engine has as others: casts, lists, patterns, aggregates with a syntax of their own.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, DuplicateTreatment, ExactNumberInfo, Expr, Function,
    FunctionArgumentClause, FunctionArguments, Ident, ObjectName, OrderByExpr, Query,
    TrimWhereField, UnaryOperator, Value,
};

use super::build::{
    argument, call, choice, number, plain_arguments, plain_cast, text, unit_name, unnamed,
};
use super::{compare_all, compound_units};
use crate::functions::ROW_KEY;
use crate::{ErrorCode, SqlError};

/// MySQL rounds exact numbers by other rules than doubles; a constant with a point is exact.
pub(super) fn rounding(engines: &str, function: &Function) -> String {
    let arguments = plain_arguments(function).unwrap_or_default();
    let exact = arguments.first().is_some_and(is_exact_constant);
    match engines {
        "mysql_round" | "mysql_floor" | "mysql_ceil" if exact => format!("{engines}_exact"),
        "mysql_ceiling" if exact => "mysql_ceil_exact".to_owned(),
        other => other.to_owned(),
    }
}

pub(super) fn rounded_whole<'a>(of_doubles: &'a str, of_exact: &'a str, expr: &Expr) -> &'a str {
    if is_exact_constant(expr) {
        of_exact
    } else {
        of_doubles
    }
}

/// A constant with a point that a double does not hold, which has some fifteen digits, and an integer beyond 64 bits are the
/// decimals as which they are typed.
pub(super) fn long_constant(expr: Expr) -> Expr {
    let Some(digits) = exact_digits(&expr) else {
        return expr;
    };
    let fits = match digits.contains('.') {
        true => figures(&digits).0 <= DIGITS_OF_DOUBLE,
        false => digits.parse::<i64>().is_ok() || digits.parse::<u64>().is_ok(),
    };
    if fits {
        return expr;
    }
    as_decimal(&digits).unwrap_or(expr)
}

/// A constant that is stored: with a point it is the decimal as which it is typed, however many digits it has.
pub(super) fn stored_constant(expr: Expr) -> Expr {
    match exact_digits(&expr) {
        Some(digits) if digits.contains('.') => as_decimal(&digits).unwrap_or(expr),
        _ => long_constant(expr),
    }
}

/// How many digits a number has, but for zeros at its beginning, and how many are after its point.
fn figures(digits: &str) -> (usize, usize) {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let figures = format!("{whole}{fraction}");
    let figures = figures.trim_start_matches(['-', '0']).len();
    (figures, fraction.len())
}

/// A number as the decimal as which it is typed; `None` if it has more digits than a decimal.
fn as_decimal(digits: &str) -> Option<Expr> {
    let (figures, scale) = figures(digits);
    let precision = figures.max(scale).max(1);
    if precision > DIGITS_OF_DECIMAL {
        return None;
    }
    let places = ExactNumberInfo::PrecisionAndScale(precision as u64, scale as i64);
    Some(plain_cast(text(digits), DataType::Decimal(places)))
}

/// Decimal digits that a double holds, whatever they are.
const DIGITS_OF_DOUBLE: usize = 15;
/// Those of the longest decimal that is computed with.
const DIGITS_OF_DECIMAL: usize = 38;

pub(super) fn is_exact_constant(expr: &Expr) -> bool {
    match expr {
        Expr::UnaryOp {
            op: UnaryOperator::Minus | UnaryOperator::Plus,
            expr,
        }
        | Expr::Nested(expr) => is_exact_constant(expr),
        Expr::Value(value) => {
            matches!(&value.value, Value::Number(digits, _) if !digits.contains(['e', 'E']))
        }
        _ => false,
    }
}

/// Whether an expression is a constant without a point.
pub(super) fn is_whole_constant(expr: &Expr) -> bool {
    exact_digits(expr).is_some_and(|digits| !digits.contains('.'))
}

/// The digits of such a constant, with its sign.
fn exact_digits(expr: &Expr) -> Option<String> {
    match expr {
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => {
            let digits = exact_digits(expr)?;
            let positive = digits.strip_prefix('-').map(str::to_owned);
            Some(positive.unwrap_or_else(|| format!("-{digits}")))
        }
        Expr::UnaryOp {
            op: UnaryOperator::Plus,
            expr,
        }
        | Expr::Nested(expr) => exact_digits(expr),
        Expr::Value(value) if is_exact_constant(expr) => Some(value.value.to_string()),
        _ => None,
    }
}

/// GREATEST and LEAST are NULL where one of their arguments is.
pub(super) fn null_if_any_is(mut function: Function) -> Expr {
    let arguments = plain_arguments(&function).unwrap_or_default();
    let name = Ident::new(format!("mysql_{}", function.name));
    function.name = ObjectName::from(vec![name]);
    null_where_any_is(arguments, Expr::Function(function))
}

/// The result, but NULL where one of the values is.
pub(super) fn null_where_any_is(values: Vec<Expr>, result: Expr) -> Expr {
    let any_null = values
        .into_iter()
        .map(|value| Expr::IsNull(Box::new(Expr::Nested(Box::new(value)))))
        .reduce(|left, right| Expr::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::Or,
            right: Box::new(right),
        });
    match any_null {
        Some(condition) => choice(condition, Expr::Value(Value::Null.into()), result),
        None => result,
    }
}

/// Whether a LIKE has ANY, and whether what stands behind its ESCAPE is no character.
pub(crate) fn unusual_pattern(expr: &Expr) -> (bool, bool) {
    let (Expr::Like {
        any, escape_char, ..
    }
    | Expr::ILike {
        any, escape_char, ..
    }) = expr
    else {
        return (false, false);
    };
    let is_one = |escape: &Value| match escape {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
            text.chars().nth(1).is_none()
        }
        _ => false,
    };
    let is_long = { escape_char.as_ref() }.is_some_and(|escape| !is_one(&escape.value));
    (*any, is_long)
}

/// LIKE compares texts, and its escape is the backslash.
pub(super) fn like(expr: Expr) -> Expr {
    let Expr::Like {
        negated,
        any,
        expr,
        mut pattern,
        escape_char,
    } = expr
    else {
        return expr;
    };
    if let Some(escape) = escape_char {
        let escape = Expr::Value(escape);
        pattern = Box::new(call("mysql_like_pattern", vec![*pattern, escape]));
    }
    Expr::Like {
        negated,
        any,
        expr: Box::new(call("mysql_text", vec![*expr])),
        pattern,
        escape_char: None,
    }
}

/// Forms that have a syntax of their own in MySQL and are calls in the engine.
pub(super) fn expand_special_form(expr: Expr) -> Expr {
    match expr {
        Expr::Substring {
            expr,
            substring_from,
            substring_for,
            ..
        } => {
            let mut arguments = vec![*expr];
            arguments.extend(substring_from.map(|from| *from));
            arguments.extend(substring_for.map(|length| *length));
            call("mysql_substr", arguments)
        }
        Expr::Position { expr, r#in } => call("mysql_locate", vec![*expr, *r#in]),
        Expr::Trim {
            expr,
            trim_where,
            trim_what,
            ..
        } => {
            let function = match trim_where {
                Some(TrimWhereField::Leading) => "mysql_ltrim",
                Some(TrimWhereField::Trailing) => "mysql_rtrim",
                _ => "mysql_trim",
            };
            let mut arguments = vec![*expr];
            arguments.extend(trim_what.map(|what| *what));
            call(function, arguments)
        }
        Expr::Ceil { expr, .. } => call(
            rounded_whole("mysql_ceil", "mysql_ceil_exact", &expr),
            vec![*expr],
        ),
        Expr::Floor { expr, .. } => call(
            rounded_whole("mysql_floor", "mysql_floor_exact", &expr),
            vec![*expr],
        ),
        like_ @ Expr::Like { .. } => like(like_),
        Expr::AnyOp {
            left,
            compare_op,
            right,
            is_some,
        } => match subquery(&right)
            .and_then(|values| compare_all::any((*left).clone(), &compare_op, values))
        {
            Some(compared) => compared,
            None => Expr::AnyOp {
                left,
                compare_op,
                right,
                is_some,
            },
        },
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => match subquery(&right)
            .and_then(|values| compare_all::all((*left).clone(), &compare_op, values))
        {
            Some(compared) => compared,
            None => Expr::AllOp {
                left,
                compare_op,
                right,
            },
        },
        Expr::Extract { field, expr, .. } if compound_units::of_extract(&field).is_some() => {
            let unit = text(&unit_name(&field));
            call("mysql_extract_parts", vec![*expr, unit])
        }
        Expr::Extract { field, expr, .. } => {
            let unit = unit_name(&field);
            // Of a span of time that is negative the parts are so too.
            let is_of_span = ["hour", "minute", "second", "microsecond"].contains(&unit.as_str());
            let function = if is_of_span { "mysql_extract" } else { "mysql" };
            call(&format!("{function}_{unit}"), vec![*expr])
        }
        Expr::IsUnknown(expr) => Expr::IsNull(expr),
        Expr::IsNotUnknown(expr) => Expr::IsNotNull(expr),
        Expr::Value(mut value) => {
            value.value = literal(value.value);
            Expr::Value(value)
        }
        other => other,
    }
}

fn subquery(expr: &Expr) -> Option<&Query> {
    match expr {
        Expr::Subquery(query) => Some(query),
        Expr::Nested(inner) => subquery(inner),
        _ => None,
    }
}

pub(super) fn literal(value: Value) -> Value {
    match value {
        Value::DoubleQuotedString(text) | Value::NationalStringLiteral(text) => {
            Value::SingleQuotedString(text)
        }
        Value::SingleQuotedByteStringLiteral(bits) => Value::HexStringLiteral(hexadecimal(&bits)),
        other => other,
    }
}

/// A literal with its character set before it, as `_binary'text'`: its bytes, or the text that it is.
pub(super) fn introduced(prefix: Ident, value: Expr) -> Result<Expr, SqlError> {
    let known = match &value {
        Expr::Value(value) => Some(&value.value),
        _ => None,
    };
    match (prefix.value.to_ascii_lowercase().as_str(), known) {
        ("_binary", Some(Value::SingleQuotedString(text) | Value::DoubleQuotedString(text))) => {
            let digits = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            Ok(Expr::Value(Value::HexStringLiteral(digits).into()))
        }
        ("_binary" | "_utf8mb4" | "_utf8mb3" | "_utf8" | "_ascii", _) => Ok(value),
        (set, _) if set.starts_with('_') => {
            let sentence = format!(
                "{set} is the character set of a text that is not read here: all text is UTF-8"
            );
            Err(SqlError::new(sentence).with_code(ErrorCode::UNKNOWN_CHARACTER_SET))
        }
        _ => Ok(Expr::Prefixed {
            prefix,
            value: Box::new(value),
        }),
    }
}

/// The digits of a bit literal in hexadecimal, whole bytes of them.
pub(super) fn hexadecimal(bits: &str) -> String {
    let bits: Vec<u8> = bits
        .bytes()
        .filter(|bit| matches!(bit, b'0' | b'1'))
        .collect();
    let missing = (8 - bits.len() % 8) % 8;
    let padded: Vec<u8> = std::iter::repeat_n(b'0', missing).chain(bits).collect();
    padded
        .chunks(8)
        .map(|byte| {
            byte.iter()
                .fold(0_u8, |value, bit| value << 1 | (bit - b'0'))
        })
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The call that CAST is, where it is not the engine's CAST.
pub(super) fn cast(expr: &Expr, target: &DataType) -> Option<Expr> {
    let function = match target {
        DataType::Signed | DataType::SignedInteger if is_exact_constant(expr) => {
            return Some(call(
                "mysql_signed",
                vec![call("mysql_round_exact", vec![expr.clone()])],
            ));
        }
        DataType::Signed
        | DataType::SignedInteger
        | DataType::BigInt(_)
        | DataType::Int(_)
        | DataType::Integer(_) => "mysql_signed",
        DataType::Unsigned | DataType::UnsignedInteger => "mysql_unsigned",
        DataType::Char(length)
        | DataType::Character(length)
        | DataType::Varchar(length)
        | DataType::Nvarchar(length) => {
            let mut arguments = vec![expr.clone()];
            let length = length.as_ref().map(ToString::to_string);
            arguments.extend(length.map(|length| number(&length)));
            return Some(call("mysql_text", arguments));
        }
        DataType::Binary(length) => {
            let mut arguments = vec![expr.clone()];
            let length = length.as_ref().map(ToString::to_string);
            arguments.extend(length.map(|length| number(&length)));
            return Some(call("mysql_bytes", arguments));
        }
        DataType::Double(_) | DataType::DoublePrecision | DataType::Real => "mysql_double",
        DataType::Decimal(_) | DataType::Numeric(_) | DataType::Dec(_) => {
            // A constant with a point has the digits with which it is typed.
            let typed = exact_digits(expr).map(|digits| text(&digits));
            let read = call("mysql_number_text", vec![typed.unwrap_or(expr.clone())]);
            let target = match target {
                DataType::Decimal(ExactNumberInfo::None)
                | DataType::Numeric(ExactNumberInfo::None)
                | DataType::Dec(ExactNumberInfo::None) => {
                    DataType::Decimal(ExactNumberInfo::PrecisionAndScale(10, 0))
                }
                digits => digits.clone(),
            };
            return Some(plain_cast(read, target));
        }
        DataType::Date => "mysql_date",
        DataType::Datetime(digits) | DataType::Timestamp(digits, _) => {
            return Some(rounded_time("mysql_timestamp_cast", expr, digits.as_ref()));
        }
        DataType::Time(digits, _) => {
            return Some(rounded_time("mysql_time_cast", expr, digits.as_ref()));
        }
        _ => return None,
    };
    Some(call(function, vec![expr.clone()]))
}

/// A time with so many digits of a second: none where the type does not say.
fn rounded_time(function: &str, expr: &Expr, digits: Option<&u64>) -> Expr {
    let digits = digits.map_or_else(|| "0".to_owned(), ToString::to_string);
    call(function, vec![expr.clone(), number(&digits)])
}

/// GROUP_CONCAT is the engine's string_agg with a separator. That cannot order different values, nor tell `('a', 'bc')` from
/// `('ab', 'c')`: there, a list of different rows is joined.
pub(super) fn group_concat(sql: &str, mut function: Function) -> Result<Expr, SqlError> {
    function.name = ObjectName::from(vec![Ident::new("string_agg")]);
    let FunctionArguments::List(list) = &mut function.args else {
        return Ok(Expr::Function(function));
    };
    let mut separator = Value::SingleQuotedString(",".to_owned());
    let values: Vec<Expr> = list.args.drain(..).filter_map(unnamed).collect();
    let mut orders = vec![];
    for clause in list.clauses.drain(..) {
        match clause {
            FunctionArgumentClause::Separator(given) => separator = literal(given.value),
            FunctionArgumentClause::OrderBy(by) => orders.extend(by),
            other => {
                let sentence =
                    format!("GROUP_CONCAT takes DISTINCT, ORDER BY and SEPARATOR, but not {other}");
                return Err(SqlError::new(sentence).with_code(ErrorCode::NOT_SUPPORTED));
            }
        }
    }
    for order in &mut orders {
        if let Some(value) = value_at_place(sql, &order.expr, &values)? {
            order.expr = value;
        }
    }
    let text = match values.as_slice() {
        [only] => only.clone(),
        _ => call("mysql_concat", values.clone()),
    };
    let text = call("mysql_group_text", vec![text]);
    let separator = Expr::Value(separator.into());
    let distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    if !distinct || (orders.is_empty() && values.len() == 1) || function.over.is_some() {
        list.args = vec![argument(text), argument(separator)];
        if !orders.is_empty() {
            list.clauses.push(FunctionArgumentClause::OrderBy(orders));
        }
        return Ok(Expr::Function(function));
    }
    let letter = |order: &OrderByExpr| match order.options.asc {
        Some(false) => "d",
        _ => "a",
    };
    let directions: String = orders.iter().map(letter).collect();
    let keys = orders.into_iter().map(|order| order.expr);
    let row = [text.clone()].into_iter().chain(values).chain(keys);
    list.args = vec![argument(call("struct", row.collect()))];
    function.name = ObjectName::from(vec![Ident::new("array_agg")]);
    function.filter = Some(Box::new(Expr::IsNotNull(Box::new(text))));
    Ok(call(
        "mysql_joined",
        vec![Expr::Function(function), self::text(&directions), separator],
    ))
}

/// What an ORDER BY within GROUP_CONCAT means by a number: the value at that place.
fn value_at_place(sql: &str, order: &Expr, values: &[Expr]) -> Result<Option<Expr>, SqlError> {
    let Expr::Value(value) = order else {
        return Ok(None);
    };
    let Value::Number(digits, _) = &value.value else {
        return Ok(None);
    };
    let place = digits
        .parse()
        .ok()
        .and_then(|place: usize| place.checked_sub(1));
    match place.and_then(|place| values.get(place)) {
        Some(value) => Ok(Some(value.clone())),
        None => Err(SqlError::about(
            sql,
            digits,
            format!(
                "GROUP_CONCAT has no value number {digits} to order by; it has {}",
                values.len()
            ),
        )
        .with_code(ErrorCode::NO_COLUMN)),
    }
}

/// COUNT(DISTINCT a, b) counts the different rows of values none of which is NULL.
pub(super) fn count_of_several(mut function: Function) -> Function {
    if let FunctionArguments::List(list) = &mut function.args
        && list.args.len() > 1
    {
        let values: Vec<Expr> = list.args.drain(..).filter_map(unnamed).collect();
        list.args = vec![argument(call(ROW_KEY, values))];
    }
    function
}
