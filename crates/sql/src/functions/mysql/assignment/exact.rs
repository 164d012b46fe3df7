//! Decimal digits, rounded exactly: halves away from zero, as MySQL rounds exact numbers.

/// The digits of a number, without its point, that has so many of them after it. `None` if it has more than 38 then.
///
/// The number is written with an optional sign, digits and an optional point; [`super::super::value::without_exponent`] writes it so.
pub(super) fn rounded_digits(number: &str, scale: u8) -> Option<i128> {
    const LARGEST: i128 = 10_i128.pow(38) - 1;
    let (negative, unsigned) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let scale = usize::from(scale);
    let kept = &fraction[..fraction.len().min(scale)];
    let digits = format!("{whole}{kept:0<scale$}");
    let digits = digits.trim_start_matches('0');
    let mut value: i128 = match digits {
        "" => 0,
        digits => digits.parse().ok()?,
    };
    if fraction
        .as_bytes()
        .get(scale)
        .is_some_and(|digit| *digit >= b'5')
    {
        value = value.checked_add(1)?;
    }
    let value = (value <= LARGEST).then_some(value)?;
    Some(if negative { -value } else { value })
}

/// A number as MySQL writes it that is typed so, without an exponent: `0.50` for `.50`, `7` for `007`, `-1` for `-1.`.
pub(super) fn as_written(number: &str) -> String {
    let (sign, unsigned) = match number.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let whole = match whole.trim_start_matches('0') {
        "" => "0",
        whole => whole,
    };
    let is_zero = |text: &str| text.bytes().all(|digit| digit == b'0');
    let sign = if is_zero(whole) && is_zero(fraction) {
        ""
    } else {
        sign
    };
    match fraction {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_away_from_zero() {
        for (number, scale, digits) in [
            ("1.005", 2, 101),
            ("-1.005", 2, -101),
            ("1.0049999999999999999999999999999999999999999999", 2, 100),
            ("0.5", 0, 1),
            ("-0.5", 0, -1),
            (".4", 0, 0),
            ("7.", 1, 70),
            ("+12", 0, 12),
            ("99.995", 2, 10_000),
            ("00012.30", 1, 123),
            ("9007199254740993", 0, 9_007_199_254_740_993),
        ] {
            assert_eq!(rounded_digits(number, scale), Some(digits), "{number}");
        }
        let most = "9".repeat(38);
        assert_eq!(rounded_digits(&most, 0), most.parse().ok());
        for beyond in [format!("{most}0"), format!("{most}.5"), "1".repeat(400)] {
            assert_eq!(rounded_digits(&beyond, 0), None, "{beyond}");
        }
    }

    #[test]
    fn numbers_are_written_without_what_says_nothing() {
        for (typed, written) in [
            (".50", "0.50"),
            ("007", "7"),
            ("-1.", "-1"),
            ("-0", "0"),
            ("-0.00", "0.00"),
            ("12.340", "12.340"),
        ] {
            assert_eq!(as_written(typed), written);
        }
    }
}
