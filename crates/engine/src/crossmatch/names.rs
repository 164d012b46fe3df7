//! What the columns of a crossmatch are called.

use std::collections::HashSet;

/// The names of a crossmatch's columns, all different.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutputNames {
    pub left: Vec<String>,
    pub right: Vec<String>,
}

/// What is put behind names that are not only of the left, or of the right side.
pub(super) const SUFFIXES: [&str; 2] = ["_1", "_2"];

impl OutputNames {
    /// The names of both sides' columns; those that the other side has too, or that are `taken`, with a suffix.
    pub fn of(left: &[String], right: &[String], taken: &str) -> Self {
        let mut used = HashSet::from([taken.to_owned()]);
        let mut rename = |own: &[String], other: &[String], suffix: &str| {
            let shared: HashSet<&String> = other.iter().collect();
            let name = |name: &String| {
                let mut name = name.clone();
                if shared.contains(&name) || name == taken {
                    name.push_str(suffix);
                }
                // As where one table has both an x and an x_1.
                while !used.insert(name.clone()) {
                    name.push_str(suffix);
                }
                name
            };
            own.iter().map(name).collect()
        };
        let [first, second] = SUFFIXES;
        Self {
            left: rename(left, right, first),
            right: rename(right, left, second),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_have_gets_a_suffix_and_all_names_differ() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = OutputNames::of(
            &names(&["id", "ra", "id_1", "separation"]),
            &names(&["ra", "id", "g"]),
            "separation",
        );
        assert_eq!(found.left, ["id_1", "ra_1", "id_1_1", "separation_1"]);
        assert_eq!(found.right, ["ra_2", "id_2", "g"]);
    }
}
