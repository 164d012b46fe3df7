//! What a user may see.

use std::collections::{BTreeMap, BTreeSet};

use crate::fold_name;

/// The databases and tables that may be read, or all of them. Names are folded.
///
/// A [`Catalog`](crate::Catalog) that was made for rights knows of nothing else, so whoever asks it cannot see too much by mistake.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Rights {
    /// Everything.
    All,
    /// What is listed, which can be nothing.
    Listed(BTreeMap<String, Tables>),
}

/// The tables of a database that may be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Tables {
    /// All, and those that come later.
    All,
    /// Those of these folded names.
    Listed(BTreeSet<String>),
}

impl Rights {
    /// The right to read nothing.
    pub fn none() -> Self {
        Self::Listed(BTreeMap::new())
    }

    /// Adds the right to read a database, or one table of it.
    pub fn add(&mut self, database: &str, table: Option<&str>) {
        let Self::Listed(databases) = self else {
            return;
        };
        let tables = databases
            .entry(fold_name(database))
            .or_insert_with(|| Tables::Listed(BTreeSet::new()));
        match (table, tables) {
            (None, tables) => *tables = Tables::All,
            (Some(table), Tables::Listed(listed)) => {
                listed.insert(fold_name(table));
            }
            (Some(_), Tables::All) => {}
        }
    }

    /// Whether something of a database may be read.
    pub fn may_see_database(&self, database: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(databases) => databases.contains_key(&fold_name(database)),
        }
    }

    /// Whether a table may be read.
    pub fn may_read(&self, database: &str, table: &str) -> bool {
        let Self::Listed(databases) = self else {
            return true;
        };
        match databases.get(&fold_name(database)) {
            None => false,
            Some(Tables::All) => true,
            Some(Tables::Listed(tables)) => tables.contains(&fold_name(table)),
        }
    }

    /// Whether all tables of a database may be read, those that there are not included.
    pub fn may_read_all_of(&self, database: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(databases) => databases.get(&fold_name(database)) == Some(&Tables::All),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_listed_is_not_seen() {
        let mut rights = Rights::none();
        assert!(!rights.may_see_database("sky") && !rights.may_read("sky", "Object"));
        rights.add("Sky", Some("Object"));
        assert!(rights.may_see_database("SKY") && rights.may_read("sky", "OBJECT"));
        assert!(!rights.may_read("sky", "Source") && !rights.may_read_all_of("sky"));
        rights.add("sky", None);
        rights.add("sky", Some("Object"));
        assert!(rights.may_read("sky", "Source") && rights.may_read_all_of("sky"));
        assert!(!rights.may_see_database("deep"));
        assert!(Rights::All.may_read("deep", "Star"));
    }
}
