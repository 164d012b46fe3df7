//! Functions of regular expressions, whose language is that of the crate `regex`. Places are counted in characters from 1.

use std::cell::RefCell;

use regex::{Captures, Regex, RegexBuilder};

use super::row_function::{Arity, LONGEST_VALUE, ReturnType, RowFunction, too_long};
use super::strings::Strings;
use super::value::Value;

pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::new("mysql_regexp_like", Arity(2, 3), ReturnType::Integer, |v| {
        let expression = compiled(&v[1], v.get(2))?;
        let found = match &v[0] {
            Value::Text(text) => expression.is_match(text),
            other => expression.is_match(&other.text()),
        };
        Ok(Value::Integer(found.into()))
    })
    .of_strings(Strings::Texts),
    RowFunction::new(
        "mysql_regexp_replace",
        Arity(3, 6),
        ReturnType::Text,
        replace,
    ),
    RowFunction::new(
        "mysql_regexp_substr",
        Arity(2, 5),
        ReturnType::Text,
        substring,
    ),
    RowFunction::new(
        "mysql_regexp_instr",
        Arity(2, 6),
        ReturnType::Integer,
        place,
    )
    .of_strings(Strings::Texts),
];

/// Bytes that a compiled expression may take.
const MOST_BYTES: usize = 2 << 20;
/// Compiled expressions that a thread keeps.
const KEPT: usize = 8;

thread_local! {
    /// Those of the last rows, the last one first.
    static COMPILED: RefCell<Vec<(String, String, Regex)>> = const { RefCell::new(Vec::new()) };
}

/// `REGEXP_REPLACE(text, pattern, replacement[, from[, occurrence[, match type]]])`; occurrence 0 is all of them.
fn replace(v: &[Value]) -> Result<Value, String> {
    let expression = compiled(&v[1], v.get(5))?;
    let (text, replacement) = (v[0].text(), v[2].text());
    let from = start(&text, v.get(3))?;
    let wanted = v.get(4).map_or(0, Value::integer);
    let mut replaced = text[..from].to_owned();
    let mut end = from;
    for (at, found) in matches(&expression, &text, from).enumerate() {
        let occurrence = at as i128 + 1;
        if wanted > 0 && occurrence != wanted {
            continue;
        }
        let whole = found.get_match();
        replaced.push_str(&text[end..whole.start()]);
        put_replacement(&replacement, &found, &mut replaced)?;
        end = whole.end();
        if replaced.len() > LONGEST_VALUE {
            return Err(too_long("REGEXP_REPLACE"));
        }
        if occurrence == wanted {
            break;
        }
    }
    replaced.push_str(&text[end..]);
    Ok(Value::Text(replaced))
}

/// `REGEXP_SUBSTR(text, pattern[, from[, occurrence[, match type]]])`; NULL where nothing matches.
fn substring(v: &[Value]) -> Result<Value, String> {
    let expression = compiled(&v[1], v.get(4))?;
    let text = v[0].text();
    let found = occurrence(&expression, &text, v.get(2), v.get(3))?;
    Ok(found.map_or(Value::Null, |(start, end)| {
        Value::Text(text[start..end].to_owned())
    }))
}

/// `REGEXP_INSTR(text, pattern[, from[, occurrence[, after[, match type]]]])`: the place of a match, or the one after it; 0 without one.
fn place(v: &[Value]) -> Result<Value, String> {
    let expression = compiled(&v[1], v.get(5))?;
    let text = v[0].text();
    let found = occurrence(&expression, &text, v.get(2), v.get(3))?;
    let after = match v.get(4).map_or(0, Value::integer) {
        0 => false,
        1 => true,
        other => {
            return Err(format!(
                "the fifth argument of REGEXP_INSTR is 0 for the place of the match or 1 for the one after it, not {other}"
            ));
        }
    };
    let place = found.map_or(0, |(start, end)| {
        let bytes = if after { end } else { start };
        text[..bytes].chars().count() as i128 + 1
    });
    Ok(Value::Integer(place))
}

/// Where the wanted match begins and ends.
fn occurrence(
    expression: &Regex,
    text: &str,
    from: Option<&Value>,
    wanted: Option<&Value>,
) -> Result<Option<(usize, usize)>, String> {
    let from = start(text, from)?;
    let wanted = wanted.map_or(1, Value::integer).max(1);
    let before = usize::try_from(wanted - 1).unwrap_or(usize::MAX);
    let found = matches(expression, text, from).nth(before);
    Ok(found.map(|found| {
        let whole = found.get_match();
        (whole.start(), whole.end())
    }))
}

/// The byte at which the search begins.
fn start(text: &str, from: Option<&Value>) -> Result<usize, String> {
    let from = from.map_or(1, Value::integer);
    let characters = usize::try_from(from - 1).ok();
    let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    characters
        .and_then(|characters| ends.into_iter().nth(characters))
        .ok_or_else(|| {
            format!("a search for a pattern cannot begin at character {from} of its text")
        })
}

/// The matches from a byte on. What is before it is seen by `^` and `\b`.
fn matches<'t>(
    expression: &'t Regex,
    text: &'t str,
    from: usize,
) -> impl Iterator<Item = Captures<'t>> {
    let mut next = Some(from);
    let mut last_end = None;
    std::iter::from_fn(move || {
        loop {
            let found = expression.captures_at(text, next?)?;
            let whole = found.get_match();
            let is_empty = whole.start() == whole.end();
            // Behind an empty match the search goes on one character later.
            next = match is_empty {
                false => Some(whole.end()),
                true => {
                    let after = text[whole.end()..].chars().next();
                    after.map(|character| whole.end() + character.len_utf8())
                }
            };
            // An empty match right behind another is none.
            if is_empty && last_end == Some(whole.end()) {
                continue;
            }
            last_end = Some(whole.end());
            return Some(found);
        }
    })
}

/// Appends the replacement of a match, in which `$1` is its first group and a backslash takes the meaning of the next character.
fn put_replacement(replacement: &str, found: &Captures<'_>, to: &mut String) -> Result<(), String> {
    let mut rest = replacement.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\\' => to.extend(rest.next()),
            '$' => {
                let mut group: Option<usize> = None;
                while let Some(digit) = rest.peek().and_then(|next| next.to_digit(10)) {
                    let longer = group.unwrap_or(0) * 10 + digit as usize;
                    if group.is_some() && longer >= found.len() {
                        break;
                    }
                    group = Some(longer);
                    rest.next();
                }
                let Some(number) = group.filter(|number| *number < found.len()) else {
                    return Err(format!(
                        "the replacement '{replacement}' names a group that the pattern does not have; a dollar sign itself is written \\\\$"
                    ));
                };
                to.push_str(found.get(number).map_or("", |group| group.as_str()));
            }
            other => to.push(other),
        }
    }
    Ok(())
}

/// The expression, compiled. Rows of a statement mostly have the same.
fn compiled(pattern: &Value, match_type: Option<&Value>) -> Result<Regex, String> {
    let pattern = pattern.text();
    let match_type = match_type.map_or_else(String::new, Value::text);
    COMPILED.with_borrow_mut(|kept| {
        let at = kept
            .iter()
            .position(|(known, types, _)| *known == pattern && *types == match_type);
        if let Some(at) = at {
            kept[..=at].rotate_right(1);
            return Ok(kept[0].2.clone());
        }
        let expression = compile(&pattern, &match_type)?;
        kept.insert(0, (pattern, match_type, expression.clone()));
        kept.truncate(KEPT);
        Ok(expression)
    })
}

fn compile(pattern: &str, match_type: &str) -> Result<Regex, String> {
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(MOST_BYTES).dfa_size_limit(MOST_BYTES);
    for letter in match_type.chars() {
        match letter {
            'c' => builder.case_insensitive(false),
            'i' => builder.case_insensitive(true),
            'm' => builder.multi_line(true),
            'n' => builder.dot_matches_new_line(true),
            'u' => builder.crlf(false),
            other => {
                return Err(format!(
                    "a match type has the letters c, i, m, n and u, not {other}"
                ));
            }
        };
    }
    builder.build().map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            "the pattern takes more than 2 MiB of memory: repeat less in it".to_owned()
        }
        other => {
            let text = other.to_string();
            let why = text.lines().last().unwrap_or_default();
            let why = why.trim_start_matches("error: ");
            let known = REASONS.iter().find(|(theirs, _)| why.contains(theirs));
            let why = known.map_or(why, |(_, ours)| ours);
            format!("the pattern '{pattern}' cannot be read: {why}")
        }
    })
}

/// What the library says of a pattern, and what people are told; [`crate::ErrorCode`] knows these sentences.
const REASONS: [(&str, &str); 9] = [
    ("unclosed group", "its parentheses do not match"),
    ("unopened group", "its parentheses do not match"),
    (
        "escape sequence",
        "it has a backslash before a character that needs none and means nothing with it",
    ),
    (
        "invalid repetition count range",
        "the maximum of a {min,max} is below its minimum",
    ),
    ("repetition quantifier", "a {min,max} of it has no numbers"),
    ("counted repetition", "a {min,max} of it has no end"),
    (
        "unclosed character class",
        "a bracket [ of it is not closed",
    ),
    (
        "invalid character class range",
        "a range of characters goes from a later to an earlier one",
    ),
    (
        "not supported",
        "look-around and back references are not built in patterns",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &[Value]) -> Result<Value, String> {
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        (function.unwrap().of)(arguments)
    }

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    #[test]
    fn matches_are_replaced() {
        let replaced = |arguments: &[Value]| match call("mysql_regexp_replace", arguments) {
            Ok(Value::Text(text)) => text,
            other => panic!("{other:?}"),
        };
        let [whole, pattern] = [text("abc def ghi"), text("([a-z])[a-z]+")];
        for (more, expected) in [
            (vec![text("X")], "X X X"),
            (vec![text("<$1>")], "<a> <d> <g>"),
            (vec![text("$10")], "a0 d0 g0"),
            (vec![text("\\$1")], "$1 $1 $1"),
            (vec![text("X"), Value::Integer(5)], "abc X X"),
            (
                vec![text("X"), Value::Integer(1), Value::Integer(3)],
                "abc def X",
            ),
            (
                vec![text("X"), Value::Integer(1), Value::Integer(4)],
                "abc def ghi",
            ),
        ] {
            let arguments: Vec<Value> = [whole.clone(), pattern.clone()]
                .into_iter()
                .chain(more)
                .collect();
            assert_eq!(replaced(&arguments), expected, "{arguments:?}");
        }
        assert_eq!(replaced(&[text("äb"), text("x*"), text("-")]), "-ä-b-");
        assert_eq!(replaced(&[text("axb"), text("x*"), text("-")]), "-a-b-");
        assert_eq!(
            replaced(&[
                text("aA"),
                text("A"),
                text(""),
                Value::Integer(1),
                Value::Integer(0),
                text("i")
            ]),
            ""
        );
        assert!(call("mysql_regexp_replace", &[text("a"), text("a"), text("$1")]).is_err());
    }

    #[test]
    fn texts_are_like_patterns() {
        let like = |arguments: &[&str]| {
            let arguments: Vec<Value> = arguments.iter().map(|it| text(it)).collect();
            call("mysql_regexp_like", &arguments)
        };
        for (arguments, expected) in [
            (&["abc", "^a"][..], 1),
            (&["abc", "B"], 0),
            (&["abc", "B", "i"], 1),
            (&["abc", "B", "ic"], 0),
            (&["a\nb", "^b"], 0),
            (&["a\nb", "^b", "m"], 1),
            (&["a\nb", "a.b"], 0),
            (&["a\nb", "a.b", "n"], 1),
            (&["abc", "b", "u"], 1),
        ] {
            assert_eq!(
                like(arguments),
                Ok(Value::Integer(expected)),
                "{arguments:?}"
            );
        }
        let like_integer = call("mysql_regexp_like", &[Value::Integer(12), text("^1")]);
        assert_eq!(like_integer, Ok(Value::Integer(1)));
    }

    /// Where the library's words change, its sentences have no longer the codes that programs go by.
    #[test]
    fn mistakes_in_patterns_have_their_codes() {
        for (pattern, number) in [
            ("(", 3691),
            (")", 3691),
            ("\\é", 3689),
            ("\\", 3689),
            ("a{2,1}", 3693),
            ("a{x}", 3692),
            ("a{1", 3692),
            ("[a", 3696),
            ("[b-a]", 3697),
            ("(?=a)", 3690),
            ("(a)\\1", 3690),
            ("*", 3688),
            ("a{9999}{999}", 3700),
        ] {
            let error = call("mysql_regexp_like", &[text("a"), text(pattern)]).unwrap_err();
            let code = crate::ErrorCode::of_message(&error);
            assert_eq!(code.number, number, "{pattern}: {error}");
        }
        let error = call("mysql_regexp_like", &[text("a"), text("a"), text("x")]).unwrap_err();
        assert_eq!(crate::ErrorCode::of_message(&error).number, 1210, "{error}");
    }

    #[test]
    fn matches_are_found() {
        let whole = text("sé1 sé22");
        let pattern = text("[0-9]+");
        let found = |name, more: &[Value]| {
            let arguments = [&[whole.clone(), pattern.clone()], more].concat();
            call(name, &arguments).unwrap()
        };
        let [one, two] = [1, 2].map(Value::Integer);
        assert_eq!(found("mysql_regexp_substr", &[]), text("1"));
        assert_eq!(
            found("mysql_regexp_substr", &[one.clone(), two.clone()]),
            text("22")
        );
        assert_eq!(
            found("mysql_regexp_substr", &[Value::Integer(9)]),
            Value::Null
        );
        assert_eq!(found("mysql_regexp_instr", &[]), Value::Integer(3));
        assert_eq!(
            found("mysql_regexp_instr", &[one.clone(), two, one]),
            Value::Integer(9)
        );
        for (from, pattern) in [(10, "a"), (0, "a"), (1, "("), (1, "a{9999}{999}")] {
            let arguments = [whole.clone(), text(pattern), Value::Integer(from)];
            assert!(call("mysql_regexp_instr", &arguments).is_err(), "{pattern}");
        }
    }
}
