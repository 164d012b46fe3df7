//! Units of time that are made of several: `INTERVAL '1:30' HOUR_MINUTE`, `EXTRACT(YEAR_MONTH FROM day)`.
//!
//! The parser has words for single units and reads `HOUR TO MINUTE`, as the standard writes such a unit; MySQL's words are written so
//! before a text is read.

use datafusion::sql::sqlparser::ast::{DateTimeField, Expr, ExtractSyntax, Ident, Interval};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::build::unit_name;

/// MySQL's word, and the words of the first and the last of the units. (Behind SECOND the parser reads digits, and no TO.)
const UNITS: [(&str, &str, &str); 11] = [
    ("year_month", "YEAR", "MONTH"),
    ("day_hour", "DAY", "HOUR"),
    ("day_minute", "DAY", "MINUTE"),
    ("day_second", "DAY", "SECOND"),
    ("day_microsecond", "DAY", "MICROSECOND"),
    ("hour_minute", "HOUR", "MINUTE"),
    ("hour_second", "HOUR", "SECOND"),
    ("hour_microsecond", "HOUR", "MICROSECOND"),
    ("minute_second", "MINUTE", "SECOND"),
    ("minute_microsecond", "MINUTE", "MICROSECOND"),
    ("second_microsecond", "SECONDS", "MICROSECOND"),
];

/// Units that stand alone.
const SINGLE: [&str; 9] = [
    "microsecond",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
];

/// Writes the units of INTERVAL and EXTRACT with TO between their first and last one. A column may have such a name elsewhere.
pub(super) fn write_with_to(tokens: &mut Vec<TokenWithSpan>) {
    let is_compound =
        |it: &TokenWithSpan| plain_word(it).is_some_and(|word| of_word(word).is_some());
    if !tokens.iter().any(is_compound) {
        return;
    }
    let given = std::mem::take(tokens);
    tokens.reserve(given.len());
    // Intervals whose unit is still to come; whether EXTRACT stands before a token, and whether EXTRACT and a parenthesis do.
    let (mut open, mut before) = (0_usize, [false; 2]);
    for token in given {
        let word = plain_word(&token).unwrap_or_default();
        let unit = of_word(word).filter(|_| open > 0 || before[1]);
        let is_single = SINGLE.iter().any(|it| it.eq_ignore_ascii_case(word));
        match &token.token {
            Token::SemiColon => open = 0,
            _ if word.eq_ignore_ascii_case("interval") => open += 1,
            _ if unit.is_some() || is_single => open = open.saturating_sub(1),
            _ => {}
        }
        if !matches!(token.token, Token::Whitespace(_)) {
            let is_extract = word.eq_ignore_ascii_case("extract");
            before = [is_extract, before[0] && token.token == Token::LParen];
        }
        match unit {
            Some((_, first, last)) => {
                let words = [first, "TO", last].map(Token::make_keyword);
                let span = token.span;
                tokens.extend(words.map(|token| TokenWithSpan { token, span }));
            }
            None => tokens.push(token),
        }
    }
}

fn plain_word(token: &TokenWithSpan) -> Option<&str> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(&word.value),
        _ => None,
    }
}

fn of_word(word: &str) -> Option<(&'static str, &'static str, &'static str)> {
    let mut units = UNITS.into_iter();
    units.find(|(name, ..)| name.eq_ignore_ascii_case(word))
}

/// The name of a unit that is written as its first and its last one; `None` where there is none of them.
fn named(first: &DateTimeField, last: &DateTimeField) -> Option<&'static str> {
    let [first, last] = [first, last].map(unit_name);
    let is_it = |(name, ..): &&(&str, &str, &str)| {
        name.split_once('_')
            .is_some_and(|(one, other)| one == first.trim_end_matches('s') && other == last)
    };
    UNITS.iter().find(is_it).map(|(name, ..)| *name)
}

/// The unit of an interval that is made of several: its name, or none where the two do not make one; `None` for a single unit.
pub(super) fn of_interval(interval: &Interval) -> Option<Option<&'static str>> {
    let last = interval.last_field.as_ref()?;
    Some(
        interval
            .leading_field
            .as_ref()
            .and_then(|it| named(it, last)),
    )
}

/// The name of a unit that EXTRACT takes several parts by.
pub(super) fn of_extract(field: &DateTimeField) -> Option<&'static str> {
    match field {
        DateTimeField::Custom(name) => of_word(&name.value).map(|(name, ..)| name),
        _ => None,
    }
}

/// Reads `EXTRACT(HOUR TO MINUTE FROM time)`; `None` where something else follows, which is not read.
pub(super) fn parse_extract(parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
    let is_keyword = |at: usize, keyword: Keyword| {
        let token = &parser.peek_nth_token_ref(at).token;
        matches!(token, Token::Word(word) if word.keyword == keyword)
    };
    if !is_keyword(0, Keyword::EXTRACT)
        || parser.peek_nth_token_ref(1).token != Token::LParen
        || !is_keyword(3, Keyword::TO)
    {
        return None;
    }
    Some(parse_parts(parser))
}

fn parse_parts(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_keyword(Keyword::EXTRACT)?;
    parser.expect_token(&Token::LParen)?;
    let first = parser.parse_date_time_field()?;
    parser.expect_keyword(Keyword::TO)?;
    let next = parser.peek_token();
    let last = parser.parse_date_time_field()?;
    let Some(unit) = named(&first, &last) else {
        return parser.expected("another unit", next);
    };
    parser.expect_keyword(Keyword::FROM)?;
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Extract {
        field: DateTimeField::Custom(Ident::new(unit)),
        syntax: ExtractSyntax::From,
        expr,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn written(sql: &str) -> String {
        let tokens = Dialect::MySql.tokenizer(sql).tokenize_with_location();
        let mut tokens = tokens.unwrap();
        write_with_to(&mut tokens);
        let texts = tokens.iter().map(|it| it.token.to_string());
        let text: Vec<String> = texts.filter(|it| !it.trim().is_empty()).collect();
        text.join(" ")
    }

    #[test]
    fn units_are_written_where_they_are_some() {
        for (typed, wanted) in [
            (
                "t + INTERVAL '1:30' HOUR_MINUTE",
                "t + INTERVAL '1:30' HOUR TO MINUTE",
            ),
            (
                "INTERVAL 1.5 second_microsecond",
                "INTERVAL 1.5 SECONDS TO MICROSECOND",
            ),
            (
                "EXTRACT(year_month FROM t)",
                "EXTRACT ( YEAR TO MONTH FROM t )",
            ),
            // Columns of these names.
            ("SELECT day_hour FROM t", "SELECT day_hour FROM t"),
            (
                "t + INTERVAL 1 DAY > day_hour",
                "t + INTERVAL 1 DAY > day_hour",
            ),
            ("INTERVAL 1; day_hour", "INTERVAL 1 ; day_hour"),
            (
                "EXTRACT(DAY FROM `day_hour`)",
                "EXTRACT ( DAY FROM `day_hour` )",
            ),
        ] {
            assert_eq!(written(typed), wanted);
        }
    }

    #[test]
    fn first_and_last_units_have_names() {
        assert_eq!(
            named(&DateTimeField::Seconds, &DateTimeField::Microsecond),
            Some("second_microsecond")
        );
        assert_eq!(
            named(&DateTimeField::Year, &DateTimeField::Month),
            Some("year_month")
        );
        assert_eq!(named(&DateTimeField::Hour, &DateTimeField::Day), None);
    }
}
