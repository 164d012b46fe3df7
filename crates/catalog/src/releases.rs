//! Which rows of tables are released to somebody.

use std::collections::BTreeMap;

use crate::fold_name;

/// The tables of which somebody sees some rows alone, each with the condition that these meet, in MySQL's dialect. Names are folded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Releases(BTreeMap<(String, String), String>);

impl Releases {
    /// Adds the condition of a table.
    pub fn add(&mut self, database: &str, table: &str, condition: &str) {
        let names = (fold_name(database), fold_name(table));
        self.0.insert(names, condition.to_owned());
    }

    /// The condition that the visible rows of a table meet; `None` if all are visible.
    pub fn condition(&self, database: &str, table: &str) -> Option<&str> {
        if self.0.is_empty() {
            return None;
        }
        let found = self.0.get(&(fold_name(database), fold_name(table)));
        found.map(String::as_str)
    }
}
