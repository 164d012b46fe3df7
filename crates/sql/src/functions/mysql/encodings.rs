//! Functions that encode, digest and spell out: sums by which bytes are told apart, base 64, addresses, sets of bits, sounds.
//!
//! Source: *MySQL 8.0 Reference Manual*, 14.8, "String Functions", and 14.13, "Encryption and Compression Functions".

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};
use sha2::{Digest as _, Sha224, Sha256, Sha384, Sha512};

use super::numbers::bits;
use super::row_function::{Arity, LONGEST_VALUE, ReturnType, RowFunction, too_long};
use super::strings::Strings;
use super::text::LONGEST;
use super::value::Value;

const ONE: Arity = Arity(1, 1);
const TWO: Arity = Arity(2, 2);

pub(super) const FUNCTIONS: &[RowFunction] = &[
    RowFunction::new("mysql_sha1", ONE, ReturnType::Text, |v| {
        let sum = digest::digest(&SHA1_FOR_LEGACY_USE_ONLY, &v[0].bytes());
        text(in_hexadecimal(sum.as_ref()))
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_sha2", TWO, ReturnType::Text, |v| {
        let bytes = v[0].bytes();
        text(match v[1].integer() {
            224 => in_hexadecimal(&Sha224::digest(bytes)),
            0 | 256 => in_hexadecimal(&Sha256::digest(bytes)),
            384 => in_hexadecimal(&Sha384::digest(bytes)),
            512 => in_hexadecimal(&Sha512::digest(bytes)),
            _ => return Ok(Value::Null),
        })
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_to_base64", ONE, ReturnType::Text, |v| {
        to_base64(&v[0].bytes())
    })
    .of_strings(Strings::AnyBytes),
    RowFunction::new("mysql_from_base64", ONE, ReturnType::Bytes, |v| {
        let letters = v[0].bytes().into_iter();
        let letters: Vec<u8> = letters.filter(|it| !it.is_ascii_whitespace()).collect();
        Ok(BASE_64.decode(letters).map_or(Value::Null, Value::Bytes))
    })
    .of_strings(Strings::AnyBytes),
    // NULL as a word, so that it can be put into a statement.
    RowFunction::new("mysql_quote", ONE, ReturnType::Text, |v| match &v[0] {
        Value::Null => text("NULL".to_owned()),
        value => text(quoted(&value.text())),
    })
    .seeing_nulls(),
    RowFunction::new("mysql_soundex", ONE, ReturnType::Text, |v| {
        text(soundex(&v[0].text()))
    }),
    RowFunction::new(
        "mysql_make_set",
        Arity(2, usize::MAX),
        ReturnType::Text,
        make_set,
    )
    .seeing_nulls(),
    RowFunction::new(
        "mysql_export_set",
        Arity(3, 5),
        ReturnType::Text,
        export_set,
    )
    .of_strings(Strings::At(&[1, 2, 3])),
    RowFunction::new("mysql_inet_aton", ONE, ReturnType::Unsigned, |v| {
        Ok(number_of_address(&v[0].text()).map_or(Value::Null, Value::Integer))
    }),
    RowFunction::new(
        "mysql_inet_ntoa",
        ONE,
        ReturnType::Text,
        |v| match u32::try_from(v[0].integer()) {
            Ok(number) => text(std::net::Ipv4Addr::from(number).to_string()),
            Err(_) => Ok(Value::Null),
        },
    )
    .of_strings(Strings::AnyBytes),
];

/// As MySQL reads it: it looks at no bits that the last letter has too many.
const BASE_64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);
/// Letters of a line of base 64.
const LINE: usize = 76;

fn text(text: String) -> Result<Value, String> {
    Ok(Value::Text(text))
}

fn in_hexadecimal(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes in base 64, in lines.
fn to_base64(bytes: &[u8]) -> Result<Value, String> {
    if bytes.len() > LONGEST_VALUE / 2 {
        return Err(too_long("TO_BASE64"));
    }
    let letters = BASE_64.encode(bytes);
    let mut lines = String::with_capacity(letters.len() + letters.len() / LINE);
    for (at, letter) in letters.chars().enumerate() {
        if at > 0 && at % LINE == 0 {
            lines.push('\n');
        }
        lines.push(letter);
    }
    text(lines)
}

/// A text as it is written in a statement.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for character in text.chars() {
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            '\0' => quoted.push_str("\\0"),
            '\u{1a}' => quoted.push_str("\\Z"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

/// How a word sounds: its first letter, and numbers of the consonants after it, four signs at least.
fn soundex(word: &str) -> String {
    /// Of A to Z; 0 is not heard.
    const SOUNDS: &[u8; 26] = b"01230120022455012623010202";
    const SHORTEST: usize = 4;
    let sound = |letter: char| match letter.to_ascii_uppercase() {
        letter @ 'A'..='Z' => char::from(SOUNDS[letter as usize - usize::from(b'A')]),
        _ => '0',
    };
    let is_letter = |c: &char| c.is_ascii_alphabetic() || *c >= '\u{c0}';
    let mut letters = word.chars().filter(is_letter);
    let Some(first) = letters.next() else {
        return String::new();
    };
    let mut heard = String::from(first.to_ascii_uppercase());
    let mut last = sound(first);
    for sound in letters.map(sound) {
        if sound != '0' && sound != last {
            heard.push(sound);
            last = sound;
        }
    }
    let missing = SHORTEST.saturating_sub(heard.chars().count());
    heard + &"0".repeat(missing)
}

/// The texts whose bit is set, from the lowest on, without those that are NULL.
fn make_set(v: &[Value]) -> Result<Value, String> {
    if v[0].is_null() {
        return Ok(Value::Null);
    }
    let set = bits(&v[0]);
    let members = v[1..].iter().enumerate();
    let members = members
        .filter(|(at, value)| *at < 64 && set >> at & 1 == 1 && !value.is_null())
        .map(|(_, value)| value.text());
    text(members.collect::<Vec<_>>().join(","))
}

/// A word for each bit that is set and another for each that is not, from the lowest on.
fn export_set(v: &[Value]) -> Result<Value, String> {
    const MOST: i128 = 64;
    let (set, on, off) = (bits(&v[0]), v[1].text(), v[2].text());
    let separator = v.get(3).map_or_else(|| ",".to_owned(), Value::text);
    let number = v.get(4).map_or(MOST, Value::integer);
    // What is negative is as good as too many.
    let number = if (0..=MOST).contains(&number) {
        number
    } else {
        MOST
    } as usize;
    let longest = on.len().max(off.len()) + separator.len();
    if number * longest > LONGEST {
        return Ok(Value::Null);
    }
    let words = (0..number).map(|at| if set >> at & 1 == 1 { &*on } else { &*off });
    text(words.collect::<Vec<_>>().join(&separator))
}

/// The number of an address of version 4, of which parts in the middle may be missing; `None` for what is none.
fn number_of_address(address: &str) -> Option<i128> {
    const PARTS: usize = 4;
    let parts: Vec<&str> = address.split('.').collect();
    let (last, first) = parts.split_last()?;
    let mut number = 0_u64;
    for part in first {
        number = number << 8 | u64::from(part_of_address(part)?);
    }
    // `127.1` is 127.0.0.1; a part alone is the number itself.
    if (2..PARTS).contains(&parts.len()) {
        number <<= 8 * (PARTS - parts.len());
    }
    let is_whole = !last.is_empty() && !address.starts_with('.');
    let number = number << 8 | u64::from(part_of_address(last).filter(|_| is_whole)?);
    Some(number.into())
}

/// A number up to 255; nothing between two points is 0.
fn part_of_address(part: &str) -> Option<u8> {
    match part {
        "" => Some(0),
        // A sign would be read as well.
        digits if digits.bytes().all(|it| it.is_ascii_digit()) => digits.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, values: &[Value]) -> Option<String> {
        let function = FUNCTIONS.iter().find(|function| function.name == name);
        let value = function.unwrap().row(values).unwrap();
        (!value.is_null()).then(|| value.text())
    }

    fn texts(values: &[&str]) -> Vec<Value> {
        values
            .iter()
            .map(|it| Value::Text((*it).to_owned()))
            .collect()
    }

    /// The digests of FIPS 180's examples.
    #[test]
    fn digests_are_those_of_the_standard() {
        let sha1 = of("mysql_sha1", &texts(&["abc"]));
        assert_eq!(
            sha1.as_deref(),
            Some("a9993e364706816aba3e25717850c26c9cd0d89d")
        );
        let sha2 = |bits: i128| {
            of(
                "mysql_sha2",
                &[Value::Text("abc".to_owned()), Value::Integer(bits)],
            )
        };
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha2(256).as_deref(), Some(sha256));
        assert_eq!(sha2(0), sha2(256));
        let sha224 = "23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7";
        assert_eq!(sha2(224).as_deref(), Some(sha224));
        assert_eq!(
            (sha2(384).unwrap().len(), sha2(512).unwrap().len()),
            (96, 128)
        );
        assert_eq!(sha2(1), None);
    }

    #[test]
    fn base_64_has_lines_and_is_read_with_or_without() {
        let bytes: Vec<u8> = (0..60).collect();
        let encoded = of("mysql_to_base64", &[Value::Bytes(bytes.clone())]).unwrap();
        let lines: Vec<usize> = encoded.lines().map(str::len).collect();
        assert_eq!(lines, [76, 4]);
        let function = FUNCTIONS
            .iter()
            .find(|it| it.name == "mysql_from_base64")
            .unwrap();
        let decoded = |text: &str| function.row(&texts(&[text])).unwrap();
        assert_eq!(decoded(&encoded), Value::Bytes(bytes));
        assert_eq!(decoded("YWJj"), Value::Bytes(b"abc".to_vec()));
        assert_eq!(decoded("YW Jj\r\n"), Value::Bytes(b"abc".to_vec()));
        for none in ["YWI", "Y*Jj", "="] {
            assert_eq!(decoded(none), Value::Null, "{none}");
        }
    }

    #[test]
    fn texts_are_quoted_for_statements() {
        assert_eq!(
            of("mysql_quote", &texts(&["Don't \\ \0\u{1a}"])).as_deref(),
            Some("'Don\\'t \\\\ \\0\\Z'")
        );
        assert_eq!(of("mysql_quote", &[Value::Null]).as_deref(), Some("NULL"));
    }

    /// The manual's examples, and what its server gives for others.
    #[test]
    fn words_are_heard() {
        for (word, sound) in [
            ("Hello", "H400"),
            ("Quadratically", "Q36324"),
            ("  a1b", "A100"),
            ("", ""),
            ("12", ""),
        ] {
            assert_eq!(
                of("mysql_soundex", &texts(&[word])).as_deref(),
                Some(sound),
                "{word}"
            );
        }
    }

    #[test]
    fn bits_are_spelled_out() {
        let set = |bits: i128, words: &[&str]| {
            let mut values = vec![Value::Integer(bits)];
            values.extend(texts(words));
            values
        };
        assert_eq!(
            of("mysql_make_set", &set(1, &["a", "b", "c"])).as_deref(),
            Some("a")
        );
        let mut values = set(1 | 4, &["hello", "nice", "world"]);
        assert_eq!(
            of("mysql_make_set", &values).as_deref(),
            Some("hello,world")
        );
        values[3] = Value::Null;
        assert_eq!(of("mysql_make_set", &values).as_deref(), Some("hello"));
        assert_eq!(of("mysql_make_set", &set(0, &["a"])).as_deref(), Some(""));
        let mut values = set(5, &["Y", "N", ","]);
        values.push(Value::Integer(4));
        assert_eq!(of("mysql_export_set", &values).as_deref(), Some("Y,N,Y,N"));
        let words = of("mysql_export_set", &set(6, &["1", "0"])).unwrap();
        assert_eq!((words.len(), &words[..7]), (127, "0,1,1,0"));
    }

    #[test]
    fn addresses_are_numbers() {
        for (address, number) in [
            ("10.0.5.9", Some("167773449")),
            ("127.1", Some("2130706433")),
            ("255.255.255.255", Some("4294967295")),
            ("7", Some("7")),
            ("1..2", Some("16777218")),
            ("1.2.3", Some("16908291")),
            ("1.2.3.4.5", Some("4328719365")),
            (" 1.2.3.4", None),
            ("256.0.0.1", None),
            ("10.0.0.", None),
            (".1", None),
            ("+1.0.0.0", None),
            ("", None),
        ] {
            assert_eq!(
                of("mysql_inet_aton", &texts(&[address])).as_deref(),
                number,
                "{address}"
            );
        }
        let address = |number: i128| of("mysql_inet_ntoa", &[Value::Integer(number)]);
        assert_eq!(address(167_773_449).as_deref(), Some("10.0.5.9"));
        assert_eq!((address(-1), address(1 << 32)), (None, None));
    }
}
