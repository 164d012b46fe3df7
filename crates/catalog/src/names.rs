//! How names compare, and how they become parts of file names.

use std::fmt::Write;

/// The form in which two names are compared: every character in lower case, one by one, so that the
/// result does not depend on a character's neighbours or on the locale.
///
/// A character whose lower case is several characters or has another number of bytes in UTF-8 stays as it
/// is (`İ`, `ẞ`, `Ⱥ`, the signs of kelvin, ohm and ångström, and some two dozen more): so a statement's
/// names are folded in their places.
pub fn fold_name(name: &str) -> String {
    name.chars().map(folded).collect()
}

fn folded(character: char) -> char {
    let mut lower = character.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) if one.len_utf8() == character.len_utf8() => one,
        _ => character,
    }
}

/// A name as part of a path: folded, and every character outside `[a-z0-9_]` written as `%` and two
/// hexadecimal digits for each byte of its UTF-8.
///
/// Two names give the same path exactly when they compare equal, and the result never holds a dot, a
/// slash or anything else that a file system treats specially.
pub fn path_name(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in fold_name(name).bytes() {
        if byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' {
            path.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(path, "%{byte:02x}");
        }
    }
    path
}

/// Whether a name that somebody chose for a database, table or column can be used: it must have 1 to
/// 64 characters (MySQL's limit), none of them a control character, and no space at either end.
pub(crate) fn is_usable(name: &str) -> bool {
    let length = name.chars().count();
    (1..=64).contains(&length) && !name.chars().any(char::is_control) && name.trim() == name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fold_without_regard_to_neighbours() {
        assert_eq!(fold_name("RA_PS"), "ra_ps");
        assert_eq!(fold_name("ΟΔΟΣ"), fold_name("οδοσ"));
        assert_eq!(fold_name("Größe"), "größe");
        assert_eq!(fold_name("GRÖßE É ЖУК Ǆ"), "größe é жук ǆ");
    }

    #[test]
    fn folding_keeps_the_places_of_bytes() {
        let all: String = (0..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            .collect();
        let folded = fold_name(&all);
        assert_eq!(folded.len(), all.len());
        assert_eq!(fold_name(&folded), folded);
    }

    #[test]
    fn paths_are_plain_and_injective() {
        assert_eq!(path_name("Object"), "object");
        assert_eq!(path_name("../x y"), "%2e%2e%2fx%20y");
        assert_eq!(path_name("ä"), "%c3%a4");
        assert_ne!(path_name("a%20b"), path_name("a b"));
        assert_ne!(path_name("a.b"), path_name("a_b"));
    }

    #[test]
    fn unusable_names() {
        for name in ["", " x", "x ", "a\nb", &"x".repeat(65)] {
            assert!(!is_usable(name), "{name:?}");
        }
        for name in ["x", "Größe", "a b", &"x".repeat(64)] {
            assert!(is_usable(name), "{name:?}");
        }
    }
}
