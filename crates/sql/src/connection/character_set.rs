//! Character sets of clients that do not speak UTF-8. Their statements are converted when they arrive, and what they receive when it is
//! sent; nothing between knows of it.
//!
//! Names, numbers and default collations: *MySQL 8.0 Reference Manual*, 12.10 "Supported Character Sets and Collations".

use std::borrow::Cow;

use encoding_rs::{
    Encoding, ISO_8859_2, KOI8_R, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1256,
    WINDOWS_1257,
};

/// A character set in which a character is one byte, and the first 128 are those of ASCII.
#[derive(Debug, PartialEq, Eq)]
pub struct CharacterSet {
    /// MySQL's name of it.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    /// Its default collation.
    pub collation: &'static str,
    /// The number of its default collation, which stands for the character set in the protocol.
    pub number: u8,
    /// The numbers of its other collations, by which clients may name it too.
    others: &'static [u8],
    /// Nothing for ASCII.
    encoding: Option<&'static Encoding>,
}

const fn set(
    name: &'static str,
    description: &'static str,
    (collation, number): (&'static str, u8),
    others: &'static [u8],
    encoding: Option<&'static Encoding>,
) -> CharacterSet {
    CharacterSet {
        name,
        description,
        collation,
        number,
        others,
        encoding,
    }
}

/// All of them. What MySQL calls latin1 is the Windows code page 1252.
pub static CHARACTER_SETS: [CharacterSet; 8] = [
    set("ascii", "US ASCII", ("ascii_general_ci", 11), &[65], None),
    set(
        "cp1250",
        "Windows Central European",
        ("cp1250_general_ci", 26),
        &[34, 44, 66, 99],
        Some(WINDOWS_1250),
    ),
    set(
        "cp1251",
        "Windows Cyrillic",
        ("cp1251_general_ci", 51),
        &[14, 23, 50, 52],
        Some(WINDOWS_1251),
    ),
    set(
        "cp1256",
        "Windows Arabic",
        ("cp1256_general_ci", 57),
        &[67],
        Some(WINDOWS_1256),
    ),
    set(
        "cp1257",
        "Windows Baltic",
        ("cp1257_general_ci", 59),
        &[29, 58],
        Some(WINDOWS_1257),
    ),
    set(
        "koi8r",
        "KOI8-R Relcom Russian",
        ("koi8r_general_ci", 7),
        &[74],
        Some(KOI8_R),
    ),
    set(
        "latin1",
        "cp1252 West European",
        ("latin1_swedish_ci", 8),
        &[5, 15, 31, 47, 48, 49, 94],
        Some(WINDOWS_1252),
    ),
    set(
        "latin2",
        "ISO 8859-2 Central European",
        ("latin2_general_ci", 9),
        &[2, 21, 27, 77],
        Some(ISO_8859_2),
    ),
];

impl CharacterSet {
    /// The character set of a name, in any case.
    pub fn named(name: &str) -> Option<&'static Self> {
        CHARACTER_SETS
            .iter()
            .find(|it| it.name.eq_ignore_ascii_case(name))
    }

    /// The character set of a collation's number.
    pub fn of_collation(number: u8) -> Option<&'static Self> {
        CHARACTER_SETS
            .iter()
            .find(|it| it.number == number || it.others.contains(&number))
    }

    /// Bytes of it as text. A byte that is no character, which there is in few sets, becomes U+FFFD.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Cow<'a, str> {
        match self.encoding {
            Some(encoding) => encoding.decode_without_bom_handling(bytes).0,
            None => {
                let sign = |&byte: &u8| match byte {
                    0..0x80 => byte.into(),
                    _ => char::REPLACEMENT_CHARACTER,
                };
                match std::str::from_utf8(bytes) {
                    Ok(text) if bytes.is_ascii() => Cow::Borrowed(text),
                    _ => Cow::Owned(bytes.iter().map(sign).collect()),
                }
            }
        }
    }

    /// Text in it; a query mark for each character that it does not have, as MySQL does.
    pub fn encode<'a>(&self, text: &'a str) -> Cow<'a, [u8]> {
        if text.is_ascii() {
            return Cow::Borrowed(text.as_bytes());
        }
        let mut bytes = Vec::with_capacity(text.len());
        let mut buffer = [0; 4];
        for character in text.chars() {
            let text: &str = character.encode_utf8(&mut buffer);
            let encoded = self.encoding.map(|encoding| encoding.encode(text));
            match encoded {
                _ if text.len() == 1 => bytes.extend_from_slice(text.as_bytes()),
                Some((encoded, _, false)) => bytes.extend_from_slice(&encoded),
                _ => bytes.push(b'?'),
            }
        }
        Cow::Owned(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_of_two_sets() {
        let mut numbers: Vec<u8> = CHARACTER_SETS
            .iter()
            .flat_map(|set| set.others.iter().chain([&set.number]).copied())
            .collect();
        let all = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), all);
        // Those of UTF-8 and of bytes.
        for number in [33, 45, 46, 63, 83, 192, 255] {
            assert!(CharacterSet::of_collation(number).is_none());
        }
    }

    #[test]
    fn what_is_decoded_is_encoded_again() {
        for set in &CHARACTER_SETS {
            for byte in 0..=u8::MAX {
                let bytes = [byte];
                let text = set.decode(&bytes);
                assert_eq!(text.chars().count(), 1, "{} {byte:x}", set.name);
                if text != "\u{fffd}" {
                    assert_eq!(*set.encode(&text), bytes, "{}", set.name);
                }
            }
        }
    }

    #[test]
    fn characters_that_a_set_lacks_are_query_marks() {
        let encoded = |set: &str, text| {
            let set = CharacterSet::named(set).unwrap();
            set.encode(text).into_owned()
        };
        assert_eq!(encoded("LATIN1", "Åé€☄x"), b"\xc5\xe9\x80?x");
        assert_eq!(encoded("latin2", "Łé€"), b"\xa3\xe9?");
        assert_eq!(encoded("ascii", "é1"), b"?1");
        assert_eq!(encoded("koi8r", "Ж"), b"\xf6");
    }
}
