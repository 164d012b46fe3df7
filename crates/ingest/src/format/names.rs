//! Columns by their names, without regard to the case of ASCII letters, however many there are.

use std::collections::HashMap;

/// The places of some names.
pub(crate) struct Names(HashMap<String, usize>);

impl Names {
    /// Of names that are equal the first one's place counts.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut places = HashMap::new();
        for (place, name) in names.into_iter().enumerate() {
            places.entry(name.to_ascii_lowercase()).or_insert(place);
        }
        Self(places)
    }

    /// Where a name stands.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.get(&name.to_ascii_lowercase()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equal_names_counts() {
        let names = Names::of(["Ra", "dec", "RA"]);
        assert_eq!(
            (names.position("ra"), names.position("DEC")),
            (Some(0), Some(1))
        );
        assert_eq!(names.position("r"), None);
    }
}
