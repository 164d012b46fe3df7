//! The names of columns as a header has them.
//!
//! A name is a text of one card: readers take no longer one. It has printable characters of ASCII, of which a quote is written twice, and
//! no two columns of a table have one name, whatever the case of its letters (FITS Standard 4.0, sections 4.2.1 and 7.3.2).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Characters of a text in one card.
const OF_A_CARD: usize = 68;
/// Characters to which longer names are cut: as many as a column of a table has, so that the file can be loaded.
const OF_A_NAME: usize = 64;

/// The name of a column in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderName {
    pub name: String,
    /// The whole name, if there is no room for it.
    pub whole: Option<String>,
}

impl HeaderName {
    /// What is said of the column: its whole name where that is cut, and its description.
    pub fn comment<'a>(&'a self, description: Option<&'a str>) -> Option<Cow<'a, str>> {
        let description = description.filter(|text| !text.is_empty());
        match (&self.whole, description) {
            (Some(whole), Some(description)) => Some(format!("{whole}: {description}").into()),
            (Some(whole), None) => Some(whole.into()),
            (None, description) => description.map(Cow::from),
        }
    }
}

/// The names of a table's columns. Those that a header can have stay as they are; of several that would be one all but the first get a
/// number.
pub(super) fn header_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<HeaderName> {
    let plain: Vec<HeaderName> = (1..).zip(names).map(|(at, name)| plain(name, at)).collect();
    let mut taken: HashSet<String> = plain
        .iter()
        .map(|it| it.name.to_ascii_lowercase())
        .collect();
    let mut uses: HashMap<String, usize> = HashMap::new();
    let told = plain.into_iter().map(|it| {
        let used = uses.entry(it.name.to_ascii_lowercase()).or_default();
        *used += 1;
        let mut name = it.name.clone();
        // The first one has taken the name itself.
        while *used > 1 {
            let line = if it.name.ends_with('_') { "" } else { "_" };
            let suffix = format!("{line}{used}");
            name = format!("{}{suffix}", cut(&it.name, OF_A_NAME - suffix.len()));
            if taken.insert(name.to_ascii_lowercase()) {
                break;
            }
            *used += 1;
        }
        HeaderName { name, ..it }
    });
    told.collect()
}

/// The name of a column, the n-th of its table, in the characters that a header has and as many as there is room for. Other characters, one or
/// several in a row, are a line.
fn plain(name: &str, at: usize) -> HeaderName {
    let mut printable = String::new();
    for c in name.chars() {
        match c {
            ' '..='~' => printable.push(c),
            // A name that began with several could not be loaded.
            _ if printable.ends_with('_') => {}
            _ => printable.push('_'),
        }
    }
    let whole = match printable.trim() {
        // As readers call a column without a name.
        "" => format!("col{at}"),
        trimmed => trimmed.to_owned(),
    };
    match cut(&whole, OF_A_CARD) == whole {
        true => HeaderName {
            name: whole,
            whole: None,
        },
        false => HeaderName {
            name: cut(&whole, OF_A_NAME).to_owned(),
            whole: Some(whole),
        },
    }
}

/// The beginning of an ASCII text that takes at most so many characters of a card, without blanks at its end.
fn cut(text: &str, most: usize) -> &str {
    let mut room = most;
    let beyond = text.bytes().position(|byte| {
        let width = if byte == b'\'' { 2 } else { 1 };
        let left = room.checked_sub(width);
        room = left.unwrap_or_default();
        left.is_none()
    });
    text[..beyond.unwrap_or(text.len())].trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(given: &[&str]) -> Vec<String> {
        let named = header_names(given.iter().copied());
        named.into_iter().map(|it| it.name).collect()
    }

    /// Names of more than one card, and those that became `?`, were in files that astropy could not open.
    #[test]
    fn names_are_texts_of_one_card_and_distinct() {
        assert_eq!(names(&["ra", "g mag", "it's"]), ["ra", "g mag", "it's"]);
        assert_eq!(names(&["ü", "ö", "Étoile"]), ["_", "_2", "_toile"]);
        assert_eq!(
            names(&["", " x ", "\t\n", "a\nb"]),
            ["col1", "x", "_", "a_b"]
        );
        assert_eq!(names(&["größe", "grüe", "_αβ"]), ["gr_e", "gr_e_2", "_"]);
        // A number that another column has already is left out.
        let several = names(&["x", "X", "x_2", "x", "y"]);
        assert_eq!(several, ["x", "X_3", "x_2", "x_4", "y"]);
        let long = "l".repeat(100);
        let (first, second) = ("l".repeat(64), format!("{}_2", "l".repeat(62)));
        assert_eq!(names(&[&long, &long, "l"]), [first, second, "l".to_owned()]);
        let (fits, beyond) = ("q".repeat(68), "q".repeat(69));
        assert_eq!(names(&[&fits, &beyond]), [fits, "q".repeat(64)]);
        // A quote is written twice.
        let (fits, beyond) = ("'".repeat(34), "'".repeat(35));
        assert_eq!(names(&[&fits, &beyond]), [fits, "'".repeat(32)]);
    }

    #[test]
    fn a_name_that_is_cut_is_told_as_a_whole() {
        let long = "l".repeat(69);
        let named = header_names([long.as_str(), "short"].into_iter());
        let comment = |at: usize, text| named[at].comment(text).map(Cow::into_owned);
        assert_eq!(comment(0, None), Some(long.clone()));
        assert_eq!(comment(0, Some("what")), Some(format!("{long}: what")));
        assert_eq!(comment(1, Some("what")), Some("what".to_owned()));
        assert_eq!((comment(1, None), comment(1, Some(""))), (None, None));
    }

    /// Of many columns of one name each finds its number at once.
    #[test]
    fn many_columns_have_one_name() {
        let many = vec!["n"; 20_000];
        let named: HashSet<String> = names(&many).into_iter().collect();
        assert_eq!(named.len(), many.len());
    }
}
