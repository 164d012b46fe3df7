//! What the columns of a crossmatch are called.

use std::collections::HashSet;

use super::MatchJoin;

/// The column of separations.
pub const SEPARATION_COLUMN: &str = "separation";
/// What is put behind names that are not only of the left, or of the right side.
pub const SIDE_SUFFIXES: [&str; 2] = ["_1", "_2"];

/// The names of a crossmatch's columns, all different.
#[derive(Debug, PartialEq, Eq)]
pub struct MatchNames {
    /// The left side's.
    pub left: Vec<String>,
    /// The right side's.
    pub right: Vec<String>,
}

impl MatchNames {
    /// The names of both sides' columns; those that the other side has too, or that the separation has, with a suffix.
    pub fn of(left: &[String], right: &[String]) -> Self {
        let mut used = HashSet::from([SEPARATION_COLUMN.to_owned()]);
        let mut rename = |own: &[String], other: &[String], suffix: &str| {
            let shared: HashSet<&String> = other.iter().collect();
            let name = |name: &String| {
                let mut name = name.clone();
                if shared.contains(&name) || name == SEPARATION_COLUMN {
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
        let [first, second] = SIDE_SUFFIXES;
        Self {
            left: rename(left, right, first),
            right: rename(right, left, second),
        }
    }

    /// The names of the left side's columns where its rows alone are given, which have nobody's names to be told from: their `own` instead of those
    /// beside the right side's.
    pub fn left_alone(beside: &[String], own: &[String]) -> Vec<String> {
        let mut used = HashSet::new();
        let names = beside.iter().zip(own);
        let names = names.map(|(name, own)| if used.insert(own) { own } else { name });
        names.cloned().collect()
    }

    /// The names of the columns that a crossmatch gives.
    pub(crate) fn given(self, join: MatchJoin, left: &[String]) -> Vec<String> {
        if join == MatchJoin::LeftAlone {
            return Self::left_alone(&self.left, left);
        }
        let mut names = self.left;
        names.extend(self.right);
        names.push(SEPARATION_COLUMN.to_owned());
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_have_gets_a_suffix_and_all_names_differ() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let found = MatchNames::of(
            &names(&["id", "ra", "id_1", "separation"]),
            &names(&["ra", "id", "g"]),
        );
        assert_eq!(found.left, ["id_1", "ra_1", "id_1_1", "separation_1"]);
        assert_eq!(found.right, ["ra_2", "id_2", "g"]);
        let own = names(&["id", "ra", "id", "separation"]);
        let found = MatchNames::of(&own, &names(&["ra", "id", "g"]));
        let alone = ["id", "ra", "id_1_1", "separation"];
        assert_eq!(MatchNames::left_alone(&found.left, &own), alone);
        assert_eq!(found.given(MatchJoin::LeftAlone, &own), alone);
    }
}
