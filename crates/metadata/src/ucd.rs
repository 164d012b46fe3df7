//! UCDs: whether a text says what a column is physically in words that other programs know.
//!
//! Source: *An IVOA Standard for Unified Content Descriptors* 1.1 (Derriere et al., IVOA Recommendation 2005) for the syntax;
//! *UCDList* 1.6 (2024-12-18, in the public domain) for the words, which `ucd_words.txt` has with the letter of each: P may only be the
//! first word, S only a later one, all others (Q, E for photometry, C for colours, V for vectors) both.

use std::collections::HashMap;
use std::sync::LazyLock;

/// Where a word may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    First,
    Later,
    Both,
}

/// A word of the list, as it is written there.
struct Word {
    written: &'static str,
    place: Place,
}

/// The words by their lower case: a UCD has no case.
static WORDS: LazyLock<HashMap<String, Word>> = LazyLock::new(|| {
    let lines = include_str!("ucd_words.txt").lines();
    let words = lines.filter_map(|line| line.split_once(' '));
    let word = |(letter, written): (&str, &'static str)| {
        let place = match letter {
            "P" => Place::First,
            "S" => Place::Later,
            _ => Place::Both,
        };
        (written.to_ascii_lowercase(), Word { written, place })
    };
    words.map(word).collect()
});

/// The namespace of the list, which need not be written.
const IVOA: &str = "ivoa";

/// What is wrong with a UCD, as a sentence without a point at its end; `None` if nothing is.
pub fn check_ucd(text: &str) -> Option<String> {
    let mut problems = text.split(';').enumerate();
    problems.find_map(|(at, word)| check_word(text, word, at == 0))
}

fn check_word(text: &str, word: &str, is_first: bool) -> Option<String> {
    if word.trim() != word {
        return Some(format!("{text:?} is no UCD: it has blanks"));
    }
    let (namespace, name) = word.split_once(':').unwrap_or((IVOA, word));
    let is_atom = |atom: &str| {
        atom.starts_with(|c: char| c.is_ascii_alphanumeric()) && { atom.chars() }
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    if !is_atom(namespace) || !name.split('.').all(is_atom) {
        return Some(match word {
            "" => format!("{text:?} is no UCD: a word is missing"),
            _ => format!("{text:?} is no UCD: {word:?} is no word, such as pos.eq.ra"),
        });
    }
    if !namespace.eq_ignore_ascii_case(IVOA) {
        // Words of others are for others to know.
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let Some(known) = WORDS.get(&lower) else {
        return Some(format!("UCD1+ has no word {word:?}, which is in {text:?}"));
    };
    match (known.place, is_first) {
        (Place::First, false) => Some(format!(
            "in {text:?} the word {word:?} may only be the first"
        )),
        (Place::Later, true) => Some(format!(
            "in {text:?} the word {word:?} may not be the first: it goes behind another one"
        )),
        _ if name != lower && name != known.written => Some(format!(
            "in {text:?} write {:?} for {word:?}",
            known.written
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucds_of_catalogues_are_known() {
        assert_eq!(WORDS.len(), 568);
        for ucd in [
            "pos.eq.ra;meta.main",
            "meta.id;meta.main",
            "phot.mag;em.opt.V",
            "phot.mag;em.opt.v",
            "stat.error;phot.flux;em.opt.R",
            "phot.color;em.opt.B;em.opt.V",
            "time.epoch",
            "ivoa:meta.id",
            "rubin:own.word",
        ] {
            assert_eq!(check_ucd(ucd), None, "{ucd}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        for (ucd, told) in [
            ("", "a word is missing"),
            ("pos.eq.ra;", "a word is missing"),
            ("pos.eq.ra; meta.main", "it has blanks"),
            ("pos..ra", "\"pos..ra\" is no word"),
            ("pos.eq.röntgen", "is no word"),
            ("pos.eq.rah", "UCD1+ has no word \"pos.eq.rah\""),
            ("meta.main;pos.eq.ra", "\"meta.main\" may not be the first"),
            ("meta.id;meta", "\"meta\" may only be the first"),
            (
                "POS.EQ.RA;meta.main",
                "write \"pos.eq.ra\" for \"POS.EQ.RA\"",
            ),
            ("POS_EQ_RA_MAIN", "UCD1+ has no word"),
        ] {
            let sentence = check_ucd(ucd).unwrap_or_default();
            assert!(sentence.contains(told), "{ucd}: {sentence}");
        }
    }
}
