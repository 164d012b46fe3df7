//! Grants: the right to read a database, a table, or a column.

use std::collections::BTreeMap;
use std::fmt;

use catalog::{Rights, fold_name};

/// The right to read a database, one table of it, or one column of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// The database's folded name.
    pub database: String,
    /// The table's folded name; `None` for all tables.
    pub table: Option<String>,
    /// The column's folded name; `None` for all columns.
    pub column: Option<String>,
}

impl Grant {
    /// Of names as they are written.
    pub fn new(database: &str, table: Option<&str>) -> Self {
        Self {
            database: fold_name(database),
            table: table.map(fold_name),
            column: None,
        }
    }

    /// The same for a column of a table.
    pub fn of_column(database: &str, table: &str, column: &str) -> Self {
        Self {
            column: Some(fold_name(column)),
            ..Self::new(database, Some(table))
        }
    }

    /// Whether taking this back takes `other` back.
    pub fn includes(&self, other: &Self) -> bool {
        (&self.database, &self.table) == (&other.database, &other.table)
            && (self.column.is_none() || self.column == other.column)
    }

    pub(crate) fn add_to(&self, rights: &mut Rights) {
        match (&self.table, &self.column) {
            (Some(table), Some(column)) => rights.add_column(&self.database, table, column),
            (table, _) => rights.add(&self.database, table.as_deref()),
        }
    }

    pub(crate) fn stored_table(&self) -> &str {
        self.table.as_deref().unwrap_or_default()
    }

    pub(crate) fn stored_column(&self) -> &str {
        self.column.as_deref().unwrap_or_default()
    }

    /// Grants in words, those of a table's columns together, as in `sky.object(dec, ra)`.
    pub fn texts(grants: &[Self]) -> Vec<String> {
        let mut columns: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
        for grant in grants {
            let of_table = columns.entry((grant.database.as_str(), grant.stored_table()));
            let of_table = of_table.or_default();
            of_table.extend(grant.column.as_deref());
        }
        let is_whole = |database: &str, table: &str| {
            let mut same = grants.iter();
            same.any(|it| {
                it.database == database && it.stored_table() == table && it.column.is_none()
            })
        };
        let mut texts = Vec::new();
        for ((database, table), mut columns) in columns {
            let name = match table {
                "" => database.to_owned(),
                table => format!("{database}.{table}"),
            };
            if !columns.is_empty() {
                columns.sort_unstable();
                texts.push(format!("{name}({})", columns.join(", ")));
            }
            if is_whole(database, table) {
                texts.push(name);
            }
        }
        texts
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Self::texts(std::slice::from_ref(self)).concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_told_by_table() {
        let column = |name| Grant::of_column("Sky", "Object", name);
        let grants = [
            column("RA"),
            column("dec"),
            Grant::new("deep", None),
            Grant::new("sky", Some("Source")),
        ];
        let texts = ["deep", "sky.object(dec, ra)", "sky.source"];
        assert_eq!(Grant::texts(&grants), texts);
        assert!(Grant::new("sky", Some("object")).includes(&grants[0]));
        assert!(!grants[0].includes(&grants[1]) && !grants[2].includes(&grants[3]));
    }
}
