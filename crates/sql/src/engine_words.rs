//! The engine's words for types and expressions, in the words of SQL: its messages have them.
//!
//! ```text
//! Utf8View                                   is   VARCHAR
//! Timestamp(µs, "+00:00")                    is   TIMESTAMP
//! FixedSizeList(2 x Float64, field: ...)     is   POINT
//! Int64(1)                                   is   1
//! ```

/// Types whose names are words of nobody else, and what SQL calls them.
const TYPES: [(&str, &str); 18] = [
    ("Int8", "SMALLINT"),
    ("Int16", "SMALLINT"),
    ("Int32", "INTEGER"),
    ("Int64", "BIGINT"),
    ("UInt8", "SMALLINT"),
    ("UInt16", "INTEGER"),
    ("UInt32", "BIGINT"),
    ("UInt64", "BIGINT"),
    ("Float16", "REAL"),
    ("Float32", "REAL"),
    ("Float64", "DOUBLE"),
    ("Utf8", "VARCHAR"),
    ("LargeUtf8", "VARCHAR"),
    ("Utf8View", "VARCHAR"),
    ("LargeBinary", "BINARY"),
    ("BinaryView", "BINARY"),
    ("Date32", "DATE"),
    ("Date64", "DATE"),
];

/// The same of types with parts in parentheses.
const TYPES_OF_PARTS: [(&str, &str); 17] = [
    ("Timestamp", "TIMESTAMP"),
    ("Time32", "TIME"),
    ("Time64", "TIME"),
    ("Time", "TIME"),
    ("Duration", "INTERVAL"),
    ("Interval", "INTERVAL"),
    ("FixedSizeBinary", "BINARY"),
    ("Decimal32", "DECIMAL"),
    ("Decimal64", "DECIMAL"),
    ("Decimal128", "DECIMAL"),
    ("Decimal256", "DECIMAL"),
    ("List", "ARRAY"),
    ("LargeList", "ARRAY"),
    ("ListView", "ARRAY"),
    ("FixedSizeList", "ARRAY"),
    ("Struct", "ROW"),
    ("Map", "MAP"),
];

/// Types that are plain words as well: they are types where a message has nothing else.
const PLAIN_WORDS: [(&str, &str); 9] = [
    ("Boolean", "BOOLEAN"),
    ("Binary", "BINARY"),
    ("Null", "NULL"),
    ("String", "VARCHAR"),
    ("Date", "DATE"),
    ("Timestamp", "TIMESTAMP"),
    ("Numeric", "number"),
    ("Integer", "INTEGER"),
    ("Float", "DOUBLE"),
];

/// Begins of the literals in the engine's expressions whose names are no types', as `TimestampMicrosecond(0, None)`.
const LITERALS: [&str; 5] = ["Timestamp", "Time32", "Time64", "Duration", "Interval"];

/// Words of which no user has ever heard.
const INTERNAL: &[&str] = &[
    "DataFusion",
    "datafusion",
    "ArrowError",
    "Arrow error",
    "Signature",
    "signature",
    "coerc",
    "Coerc",
    "physical plan",
    "Physical plan",
    "logical plan",
    "Logical plan",
    "logical expression",
    "PhysicalExpr",
    "LogicalPlan",
    "ScalarValue",
    "ColumnarValue",
    "DataType",
    "NativeType",
    "RecordBatch",
    "sqltorel",
    "ast node",
    "ExprPlanner",
    "Expr::",
    "Internal error",
    "internal error",
    "Optimizer rule",
    "optimizer rule",
    "Analyzer",
    "UDF",
    "UDAF",
    "OuterReferenceColumn",
    "Candidate functions",
    "No function matches",
    "Some(",
    "Impossibly",
    "downcast",
    "does not satisfy order requirements",
    "does not satisfy distribution requirements",
];

/// Whether a sentence has words that are about the engine's code.
pub(crate) fn has_internal_words(sentence: &str) -> bool {
    let outside = outside_quotes(sentence);
    INTERNAL.iter().any(|word| outside.contains(word)) || outside.contains(" { ")
}

/// A sentence without what is in single quotes, which a statement may have brought.
fn outside_quotes(sentence: &str) -> String {
    let mut quotes = Quotes::default();
    let kept = sentence.char_indices().filter(|(at, _)| {
        let was_inside = quotes.inside;
        !quotes.step(sentence, *at) && !was_inside
    });
    kept.map(|(_, character)| character).collect()
}

/// Whether a place is within single quotes; apostrophes are none.
#[derive(Default)]
struct Quotes {
    inside: bool,
}

impl Quotes {
    /// Goes to the character at a byte; whether it is in quotes.
    fn step(&mut self, text: &str, at: usize) -> bool {
        if text[at..].starts_with('\'') {
            let before = text[..at].chars().next_back();
            let behind = text[at + 1..].chars().next();
            let is_word = |it: Option<char>| it.is_some_and(char::is_alphanumeric);
            match self.inside {
                false if !is_word(before) => self.inside = true,
                true if !is_word(behind) => self.inside = false,
                _ => {}
            }
        }
        self.inside
    }
}

/// SQL's name of a type of the engine's.
pub(crate) fn type_name(engines: &str) -> String {
    let engines = engines.trim();
    let (name, parts) = match engines.find('(') {
        Some(at) => (&engines[..at], Some(&engines[at..])),
        None => (engines, None),
    };
    if let Some(parts) = parts {
        return named_with_parts(name, parts).unwrap_or_else(|| engines.to_owned());
    }
    let known = TYPES.iter().chain(&PLAIN_WORDS).chain(&TYPES_OF_PARTS);
    let found = { known }.find(|(known, _)| *known == name);
    found.map_or(name, |(_, sql)| sql).to_owned()
}

/// SQL's name of a type that has parts: geometry is lists of degrees, and a coverage map one of cells.
fn named_with_parts(name: &str, parts: &str) -> Option<String> {
    if name == "Dictionary" {
        let of = parts.trim_matches(['(', ')']).split_once(", ")?.1;
        return Some(type_name(of));
    }
    let shape = match name {
        "List" if parts.contains("field: 'moc'") => Some("MOC"),
        _ if !parts.contains("field: 'degrees'") => None,
        "FixedSizeList" if parts.starts_with("(2 ") => Some("POINT"),
        "FixedSizeList" if parts.starts_with("(3 ") => Some("CIRCLE"),
        "List" => Some("POLYGON"),
        _ => None,
    };
    let known = { TYPES_OF_PARTS.iter() }.find(|(known, _)| *known == name);
    shape.or(known.map(|(_, sql)| *sql)).map(str::to_owned)
}

/// SQL's names of several types that are separated by commas.
pub(crate) fn type_names(list: &str) -> String {
    let mut names = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, character) in list.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                names.push(type_name(&list[from..at]));
                from = at + 1;
            }
            _ => {}
        }
    }
    names.push(type_name(&list[from..]));
    names.join(", ")
}

/// A message with SQL's names for types, and its expressions as a statement has them. What it quotes stays.
pub(crate) fn in_sql_words(message: &str) -> String {
    let mut told = String::with_capacity(message.len());
    let mut quotes = Quotes::default();
    let mut at = 0;
    while let Some(character) = message[at..].chars().next() {
        let quoted = quotes.step(message, at);
        let begins_word = character.is_ascii_alphabetic() && !told.ends_with(is_of_word);
        let word = match begins_word && !quoted {
            true => &message[at..at + word_length(&message[at..])],
            false => "",
        };
        match known_word(word, &message[at + word.len()..]) {
            Some((sql, length)) => {
                told.push_str(&sql);
                at += word.len() + length;
            }
            None if word.is_empty() => {
                told.push(character);
                at += character.len_utf8();
            }
            None => {
                told.push_str(word);
                at += word.len();
            }
        }
    }
    told
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !is_of_word(c)).unwrap_or(text.len())
}

/// What stands for a word of the engine's, and how many bytes behind it belong to it.
fn known_word(word: &str, rest: &str) -> Option<(String, usize)> {
    let parts = parenthesized(rest);
    let plain = { TYPES.iter() }.find(|(known, _)| *known == word);
    let Some(parts) = parts else {
        return plain.map(|(_, sql)| ((*sql).to_owned(), 0));
    };
    if let Some(literal) = literal(word, &parts[1..parts.len() - 1]) {
        return Some((literal, parts.len()));
    }
    if !is_of_parts(&parts[1..]) {
        return None;
    }
    Some((named_with_parts(word, parts)?, parts.len()))
}

/// Whether what follows the opening parenthesis of a type looks like parts of one: a unit, a number, or another type.
fn is_of_parts(parts: &str) -> bool {
    const UNITS: [&str; 11] = [
        "s",
        "ms",
        "µs",
        "ns",
        "Second",
        "Millisecond",
        "Microsecond",
        "Nanosecond",
        "YearMonth",
        "DayTime",
        "MonthDayNano",
    ];
    let first = &parts[..parts.find([',', ')']).unwrap_or(parts.len())];
    let words = first.split([' ', '(']).map(str::trim);
    let mut words = words.filter(|word| !word.is_empty());
    words.any(|word| {
        let is_type = TYPES.iter().chain(&TYPES_OF_PARTS);
        UNITS.contains(&word)
            || word.bytes().all(|it| it.is_ascii_digit())
            || is_type.into_iter().any(|(known, _)| *known == word)
    })
}

/// What a text begins with, if that is something in parentheses; texts in double quotes within may have any.
fn parenthesized(text: &str) -> Option<&str> {
    if !text.starts_with('(') {
        return None;
    }
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[..=at]);
        }
    }
    None
}

/// A literal as the engine writes it, `Int64(1)` or `Utf8("a")`, as a statement has it.
fn literal(word: &str, value: &str) -> Option<String> {
    let is_simple = { TYPES.iter() }.any(|(known, _)| *known == word) || word == "Boolean";
    let is_decimal = word.starts_with("Decimal") && value.contains("Some(");
    let is_of_unit = { LITERALS.iter() }.any(|begin| {
        let unit = word.strip_prefix(begin);
        unit.is_some_and(|unit| unit.starts_with(char::is_uppercase))
    });
    if is_decimal {
        return decimal(value);
    }
    if !is_simple && !is_of_unit {
        return None;
    }
    let first = match value.strip_prefix('"') {
        Some(_) => value,
        None => value.split(", ").next().unwrap_or(value),
    };
    let text = first.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    Some(match text {
        Some(text) => format!("'{}'", text.replace("\\\"", "\"").replace('\'', "''")),
        None => first.to_owned(),
    })
}

/// `Some(15),2,1` is 1.5.
fn decimal(value: &str) -> Option<String> {
    let (digits, rest) = value.strip_prefix("Some(")?.split_once(')')?;
    let scale: usize = rest.rsplit(',').next()?.trim().parse().ok()?;
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    Some(match fraction {
        "" => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{fraction}"),
    })
}

/// An expression of the engine's as a statement has it, columns without their tables.
pub(crate) fn expression(engines: &str) -> String {
    let words = in_sql_words(engines);
    let mut plain = String::with_capacity(words.len());
    let mut rest = words.as_str();
    let mut quotes = Quotes::default();
    while let Some(character) = rest.chars().next() {
        let at = words.len() - rest.len();
        let quoted = quotes.step(&words, at);
        let begins_name = (character.is_alphabetic() || character == '_')
            && !quoted
            && !plain.ends_with(is_of_word);
        let table = match begins_name {
            true => rest[word_length(rest)..].strip_prefix('.'),
            false => None,
        };
        match table {
            Some(behind) if behind.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                rest = behind;
            }
            _ => {
                plain.push(character);
                rest = &rest[character.len_utf8()..];
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_names_of_sql() {
        for (engines, sql) in [
            ("Utf8View", "VARCHAR"),
            ("Int64", "BIGINT"),
            ("Boolean", "BOOLEAN"),
            ("String", "VARCHAR"),
            ("Timestamp(µs)", "TIMESTAMP"),
            ("Timestamp(ns, \"+00:00\")", "TIMESTAMP"),
            ("Decimal128(20, 0)", "DECIMAL"),
            ("Decimal128", "DECIMAL"),
            ("Dictionary(Int32, Utf8)", "VARCHAR"),
            ("FixedSizeList(2 x Float64, field: 'degrees')", "POINT"),
            ("FixedSizeList(3 x Float64, field: 'degrees')", "CIRCLE"),
            ("List(Float64, field: 'degrees')", "POLYGON"),
            ("List(Int64)", "ARRAY"),
        ] {
            assert_eq!(type_name(engines), sql, "{engines}");
        }
        assert_eq!(
            type_names("Utf8View, FixedSizeList(2 x Float64, field: 'degrees'), Int64"),
            "VARCHAR, POINT, BIGINT"
        );
    }

    #[test]
    fn messages_are_told_in_words_of_sql() {
        for (engines, sql) in [
            ("no Int64 but Timestamp(µs)", "no BIGINT but TIMESTAMP"),
            ("o.ra + Int64(1)", "o.ra + 1"),
            ("a = Utf8(\"it's (1)\")", "a = 'it''s (1)'"),
            ("x < Decimal128(Some(-15),2,1)", "x < -1.5"),
            ("t > TimestampMicrosecond(5, None)", "t > 5"),
            ("b = Boolean(true)", "b = true"),
            ("of a List(Utf8)", "of a ARRAY"),
            // Words, and what is quoted, stay.
            ("the Date and Time (UTC)", "the Date and Time (UTC)"),
            ("it can't be 'Int64' here", "it can't be 'Int64' here"),
            ("myInt64 and Int64s", "myInt64 and Int64s"),
        ] {
            assert_eq!(in_sql_words(engines), sql, "{engines}");
        }
        assert_eq!(expression("meridian.sky.o.ra + Int64(1)"), "ra + 1");
        assert_eq!(
            expression("lower(o.name) || Utf8(\"a.b\")"),
            "lower(name) || 'a.b'"
        );
        assert_eq!(expression("o.ra * Float64(1.5)"), "ra * 1.5");
    }

    #[test]
    fn internal_words_are_known() {
        for told in [
            "Failed to coerce arguments",
            "Unsupported ast node in sqltorel: x",
            "got Some(1)",
        ] {
            assert!(has_internal_words(told), "{told}");
        }
        for told in [
            "'DataFusion' is no number, which is needed here",
            "a {min,max} of it has no end",
            "there is no column signal",
        ] {
            assert!(!has_internal_words(told), "{told}");
        }
    }
}
