//! Integers of 64 bits that never wrap, bits, rounding, and conversions to numbers.

use super::columns;
use super::row_function::{Arity, ReturnType, RowFunction};
use super::strings::Strings;
use super::value::{Value, number_prefix, without_exponent};

const ONE: Arity = Arity(1, 1);
const TWO: Arity = Arity(2, 2);
const ONE_OR_TWO: Arity = Arity(1, 2);
const SOME: Arity = Arity(1, usize::MAX);

pub(super) const FUNCTIONS: &[RowFunction] =
    &[
        RowFunction::new("mysql_add", TWO, ReturnType::IntegerAsGiven, |v| {
            within("+", v, v[0].integer() + v[1].integer())
        })
        .by_columns(columns::add),
        RowFunction::new("mysql_subtract", TWO, ReturnType::IntegerAsGiven, |v| {
            within("-", v, v[0].integer() - v[1].integer())
        })
        .by_columns(columns::subtract),
        RowFunction::new("mysql_multiply", TWO, ReturnType::IntegerAsGiven, |v| {
            let product = v[0].integer().checked_mul(v[1].integer());
            within("*", v, product.unwrap_or(i128::MAX))
        })
        .by_columns(columns::multiply),
        // It has the sign of the dividend, and its type.
        RowFunction::new("mysql_modulo", TWO, ReturnType::IntegerAsFirst, |v| {
            let remainder = v[0].integer().checked_rem(v[1].integer());
            Ok(remainder.map_or(Value::Null, Value::Integer))
        })
        .by_columns(columns::modulo),
        RowFunction::new("mysql_div", TWO, ReturnType::IntegerAsGiven, div)
            .by_columns(columns::div),
        RowFunction::new("mysql_negate", ONE, ReturnType::Signed, |v| match &v[0] {
            Value::Integer(integer) => Ok(Value::Integer(-integer)),
            Value::Decimal(digits, scale) => Ok(Value::Decimal(-digits, *scale)),
            other => Ok(Value::Double(0.0 - other.double())),
        }),
        RowFunction::new("mysql_bit_and", TWO, ReturnType::Unsigned, |v| {
            bitwise(bits(&v[0]) & bits(&v[1]))
        })
        .by_columns(columns::bit_and),
        RowFunction::new("mysql_bit_or", TWO, ReturnType::Unsigned, |v| {
            bitwise(bits(&v[0]) | bits(&v[1]))
        })
        .by_columns(columns::bit_or),
        RowFunction::new("mysql_bit_xor", TWO, ReturnType::Unsigned, |v| {
            bitwise(bits(&v[0]) ^ bits(&v[1]))
        })
        .by_columns(columns::bit_xor),
        RowFunction::new("mysql_bit_not", ONE, ReturnType::Unsigned, |v| {
            bitwise(!bits(&v[0]))
        })
        .by_columns(columns::bit_not),
        RowFunction::new("mysql_shift_left", TWO, ReturnType::Unsigned, |v| {
            bitwise(shifted(v, u64::checked_shl))
        }),
        RowFunction::new("mysql_shift_right", TWO, ReturnType::Unsigned, |v| {
            bitwise(shifted(v, u64::checked_shr))
        }),
        RowFunction::new("mysql_bit_count", ONE, ReturnType::Integer, |v| {
            Ok(Value::Integer(bits(&v[0]).count_ones().into()))
        }),
        RowFunction::new("mysql_signed", ONE, ReturnType::Integer, |v| {
            Ok(Value::Integer(match &v[0] {
                Value::Double(_) | Value::Decimal(..) => {
                    v[0].integer().clamp(i64::MIN.into(), i64::MAX.into())
                }
                other => signed(other.integer()),
            }))
        }),
        RowFunction::new("mysql_unsigned", ONE, ReturnType::Unsigned, |v| {
            bitwise(bits(&v[0]))
        }),
        RowFunction::new("mysql_double", ONE, ReturnType::Double, |v| {
            Ok(Value::Double(v[0].double()))
        }),
        // A value that is no number by its type: a truth, a text, a date, a time.
        RowFunction::new("mysql_number", ONE, ReturnType::Number, |v| {
            Ok(match &v[0] {
                Value::Integer(_) | Value::Double(_) | Value::Decimal(..) => v[0].clone(),
                Value::Date(_) => Value::Integer(v[0].integer()),
                other => Value::Double(other.double()),
            })
        }),
        // What a cast to DECIMAL reads.
        RowFunction::new("mysql_number_text", ONE, ReturnType::Text, |v| {
            Ok(Value::Text(without_exponent(number_prefix(&v[0].text()))))
        })
        .of_strings(Strings::AnyBytes),
        RowFunction::new("mysql_abs", ONE, ReturnType::NumberAsGiven, |v| {
            number(&v[0], i128::abs, f64::abs)
        })
        .by_columns(columns::abs),
        RowFunction::new("mysql_ceil", ONE, ReturnType::WholeAsGiven, |v| {
            number(&v[0], |i| i, f64::ceil)
        })
        .by_columns(columns::ceil),
        RowFunction::new("mysql_ceiling", ONE, ReturnType::WholeAsGiven, |v| {
            number(&v[0], |i| i, f64::ceil)
        })
        .by_columns(columns::ceil),
        RowFunction::new("mysql_floor", ONE, ReturnType::WholeAsGiven, |v| {
            number(&v[0], |i| i, f64::floor)
        })
        .by_columns(columns::floor),
        RowFunction::new("mysql_ceil_exact", ONE, ReturnType::Integer, |v| {
            number(&v[0], |i| i, f64::ceil)
        }),
        RowFunction::new("mysql_floor_exact", ONE, ReturnType::Integer, |v| {
            number(&v[0], |i| i, f64::floor)
        }),
        RowFunction::new("mysql_sign", ONE, ReturnType::Integer, |v| {
            Ok(Value::Integer(sign(v[0].double())))
        })
        .by_columns(columns::sign),
        RowFunction::new("mysql_round", ONE_OR_TWO, ReturnType::NumberAsGiven, |v| {
            match rounded_decimal(v, Away::FromZero) {
                Some(decimal) => Ok(decimal),
                None => rounded(v, f64::round_ties_even),
            }
        })
        .by_columns(|c| {
            columns::rounded(c, |n, digits| {
                to_digits(n, digits.into(), f64::round_ties_even)
            })
        }),
        // Of a constant, which is a decimal as it was typed.
        RowFunction::new(
            "mysql_round_exact",
            ONE_OR_TWO,
            ReturnType::NumberAsGiven,
            |v| match rounded_decimal(&as_typed(v), Away::FromZero) {
                Some(decimal) => Ok(decimal),
                None => rounded(v, f64::round),
            },
        ),
        RowFunction::new(
            "mysql_truncate",
            TWO,
            ReturnType::NumberAsGiven,
            |v| match rounded_decimal(v, Away::Never) {
                Some(decimal) => Ok(decimal),
                None => rounded(v, f64::trunc),
            },
        )
        .by_columns(|c| columns::rounded(c, |n, digits| to_digits(n, digits.into(), f64::trunc))),
        RowFunction::new("mysql_cot", ONE, ReturnType::Double, |v| {
            Ok(Value::Double(1.0 / v[0].double().tan()))
        }),
        RowFunction::new("mysql_crc32", ONE, ReturnType::Unsigned, |v| {
            Ok(Value::Integer(crc32(&v[0].bytes()).into()))
        }),
        RowFunction::new("mysql_conv", Arity(3, 3), ReturnType::Text, conv)
            .of_strings(Strings::AnyBytes),
        RowFunction::new("mysql_field", SOME, ReturnType::Integer, field).seeing_nulls(),
    ];

/// An integer, unless it is beyond both signed and unsigned 64 bits. What the column's type cannot hold is rejected later.
fn within(operator: &str, operands: &[Value], result: i128) -> Result<Value, String> {
    let fits = (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&result);
    let sentence = || {
        let (left, right) = (operands[0].integer(), operands[1].integer());
        format!("the result of {left} {operator} {right} is beyond the range of BIGINT")
    };
    if fits {
        Ok(Value::Integer(result))
    } else {
        Err(sentence())
    }
}

/// The whole part of a quotient; NULL for division by zero.
fn div(v: &[Value]) -> Result<Value, String> {
    let whole = matches!((&v[0], &v[1]), (Value::Integer(_), Value::Integer(_)));
    if whole {
        return Ok(v[0]
            .integer()
            .checked_div(v[1].integer())
            .map_or(Value::Null, Value::Integer));
    }
    if let Some((dividend, divisor)) = exact_pair(&v[0], &v[1]) {
        return match dividend.checked_div(divisor) {
            Some(quotient) => within("DIV", v, quotient),
            None => Ok(Value::Null),
        };
    }
    let (dividend, divisor) = (v[0].double(), v[1].double());
    if divisor == 0.0 {
        return Ok(Value::Null);
    }
    within("DIV", v, (dividend / divisor).trunc() as i128)
}

/// Two numbers, one of which is a decimal, with as many digits after the point; `None` where one is a double, or they are too long.
fn exact_pair(left: &Value, right: &Value) -> Option<(i128, i128)> {
    let digits = |value: &Value| match value {
        Value::Integer(integer) => Some((*integer, 0)),
        Value::Decimal(digits, scale) => Some((*digits, *scale)),
        _ => None,
    };
    let ((left, left_scale), (right, right_scale)) = (digits(left)?, digits(right)?);
    let scale = left_scale.max(right_scale);
    let scaled = |digits: i128, has: u8| {
        let unit = 10_i128.checked_pow((scale - has).into())?;
        digits.checked_mul(unit)
    };
    Some((scaled(left, left_scale)?, scaled(right, right_scale)?))
}

/// The 64 bits of a number: those of its two's complement if it is negative.
pub(super) fn bits(value: &Value) -> u64 {
    match value {
        Value::Bytes(bytes) => bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        other => {
            let integer = other.integer().clamp(i64::MIN.into(), u64::MAX.into());
            integer as u64
        }
    }
}

fn bitwise(bits: u64) -> Result<Value, String> {
    Ok(Value::Integer(bits.into()))
}

/// A shift by 64 bits or more leaves nothing.
fn shifted(v: &[Value], shift: fn(u64, u32) -> Option<u64>) -> u64 {
    let by = u32::try_from(v[1].integer()).unwrap_or(u32::MAX);
    shift(bits(&v[0]), by).unwrap_or(0)
}

fn signed(integer: i128) -> i128 {
    let integer = integer.clamp(i64::MIN.into(), u64::MAX.into());
    // An unsigned number beyond the signed ones is taken by its bits.
    (integer as u64 as i64).into()
}

fn number(
    value: &Value,
    of_integer: fn(i128) -> i128,
    of_double: fn(f64) -> f64,
) -> Result<Value, String> {
    Ok(match value {
        Value::Integer(integer) => Value::Integer(of_integer(*integer)),
        other => Value::Double(of_double(other.double())),
    })
}

fn sign(number: f64) -> i128 {
    i128::from(number > 0.0) - i128::from(number < 0.0)
}

/// Beyond this many digits a double has none.
const MOST_DIGITS: i128 = 308;

/// A double rounded to digits after its point; before it, if they are negative.
fn rounded(v: &[Value], round: fn(f64) -> f64) -> Result<Value, String> {
    let digits = v.get(1).map_or(0, Value::integer);
    Ok(Value::Double(to_digits(v[0].double(), digits, round)))
}

/// Which way the half of a digit goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Away {
    FromZero,
    /// What is beyond the digit is cut off.
    Never,
}

/// A decimal or an integer rounded to digits, by its own digits; `None` for what is neither.
fn rounded_decimal(v: &[Value], away: Away) -> Option<Value> {
    if let Some(Value::Integer(integer)) = v.first() {
        let mut values = v.to_vec();
        values[0] = Value::Decimal(*integer, 0);
        return Some(match rounded_decimal(&values, away)? {
            Value::Decimal(digits, _) => Value::Integer(digits),
            other => other,
        });
    }
    let Some(Value::Decimal(digits, scale)) = v.first() else {
        return None;
    };
    let wanted = v.get(1).map_or(0, Value::integer);
    let dropped = i128::from(*scale) - wanted;
    if dropped <= 0 {
        return Some(v[0].clone());
    }
    let Some(unit) = u32::try_from(dropped)
        .ok()
        .and_then(|dropped| 10_i128.checked_pow(dropped))
    else {
        return Some(Value::Integer(0));
    };
    let half = match away {
        Away::FromZero => digits.signum() * (unit / 2),
        Away::Never => 0,
    };
    let kept = digits.checked_add(half)? / unit;
    Some(match u8::try_from(wanted) {
        Ok(scale) => Value::Decimal(kept, scale),
        Err(_) => Value::Decimal(kept * unit, *scale),
    })
}

/// The text of an integer or a decimal, rounded to digits after its point, of which the last zeros may be missing; `None` for what is
/// neither.
pub(super) fn rounded_exactly(number: &Value, digits: usize) -> Option<String> {
    let digits = Value::Integer(digits as i128);
    rounded_decimal(&[number.clone(), digits], Away::FromZero).map(|rounded| rounded.text())
}

/// A double as ROUND rounds it to digits after its point.
pub(super) fn rounded_double(number: f64, digits: usize) -> f64 {
    to_digits(number, digits as i128, f64::round_ties_even)
}

/// A double that was typed with a point, as a decimal.
fn as_typed(v: &[Value]) -> Vec<Value> {
    let decimal = |number: f64| {
        let text = format!("{number}");
        let (whole, fraction) = text.split_once('.')?;
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Value::Decimal(digits, u8::try_from(fraction.len()).ok()?))
    };
    let mut values = v.to_vec();
    if let Some(Value::Double(number)) = v.first()
        && let Some(decimal) = decimal(*number)
    {
        values[0] = decimal;
    }
    values
}

fn to_digits(value: f64, digits: i128, round: fn(f64) -> f64) -> f64 {
    let digits = digits.clamp(-MOST_DIGITS, MOST_DIGITS) as i32;
    let power = 10f64.powi(digits.abs());
    match digits {
        0.. if (value * power).is_infinite() => value,
        0.. => round(value * power) / power,
        _ => round(value / power) * power,
    }
}

/// The cyclic redundancy check of ISO 3309, as zlib computes it.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let check = bytes.iter().fold(u32::MAX, |check, byte| {
        (0..8).fold(check ^ u32::from(*byte), |check, _| {
            (check >> 1) ^ (POLYNOMIAL & (check & 1).wrapping_neg())
        })
    });
    !check
}

/// A number from one base to another.
fn conv(v: &[Value]) -> Result<Value, String> {
    let base = |value: &Value| u32::try_from(value.integer().unsigned_abs()).unwrap_or(u32::MAX);
    let (from, to) = (base(&v[1]), base(&v[2]));
    if !(2..=36).contains(&from) || !(2..=36).contains(&to) {
        return Ok(Value::Null);
    }
    let text = v[0].text().trim().to_ascii_lowercase();
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let digits: String = text
        .trim_start_matches('-')
        .chars()
        .take_while(|c| c.is_digit(from))
        .collect();
    let number =
        u64::from_str_radix(&digits, from).unwrap_or(if digits.is_empty() { 0 } else { u64::MAX });
    let number = if text.starts_with('-') {
        number.wrapping_neg()
    } else {
        number
    };
    // To a base below 0 the number has a sign.
    let signed = number as i64;
    Ok(Value::Text(if v[2].integer() < 0 && signed < 0 {
        format!("-{}", in_base(signed.unsigned_abs(), to.into()))
    } else {
        in_base(number, to.into())
    }))
}

/// The digits in a base of the whole part of a number, as CONV gives them; NULL for an empty text.
pub(super) fn whole_in_base(number: &Value, base: i128) -> Value {
    let values = [number.clone(), Value::Integer(10), Value::Integer(base)];
    conv(&values).unwrap_or(Value::Null)
}

/// The digits of a number in a base, 2 to 36.
pub(super) fn in_base(mut number: u64, base: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.push(
            char::from_digit((number % base) as u32, base as u32)
                .unwrap_or('0')
                .to_ascii_uppercase(),
        );
        number /= base;
        if number == 0 {
            return digits.iter().rev().collect();
        }
    }
}

/// The place of the first argument among the others, from 1; 0 if it is not among them.
fn field(v: &[Value]) -> Result<Value, String> {
    let [wanted, others @ ..] = v else {
        return Ok(Value::Null);
    };
    let as_text = others
        .iter()
        .chain([wanted])
        .all(|value| matches!(value, Value::Text(_) | Value::Bytes(_) | Value::Null));
    let same = |other: &&Value| {
        !other.is_null()
            && if as_text {
                other.bytes() == wanted.bytes()
            } else {
                (other.double() - wanted.double()).abs() == 0.0
            }
    };
    let place = if wanted.is_null() {
        None
    } else {
        others.iter().position(|other| same(&other))
    };
    Ok(Value::Integer(place.map_or(0, |at| at as i128 + 1)))
}
