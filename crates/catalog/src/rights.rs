//! What a user may see.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Position, Table, TableSpec, View, fold_name};

/// The databases, tables and columns that may be read, or all of them. Names are folded.
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
    Listed(BTreeMap<String, Columns>),
}

/// The columns of a table that may be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Columns {
    /// All, and those that come later.
    All,
    /// Those of these folded names.
    Listed(BTreeSet<String>),
}

impl Columns {
    /// Whether a column may be read.
    pub fn has(&self, column: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(columns) => columns.contains(&fold_name(column)),
        }
    }

    fn has_position(&self, position: &Position) -> bool {
        self.has(&position.ra) && self.has(&position.dec)
    }
}

impl Rights {
    /// The right to read nothing.
    pub fn none() -> Self {
        Self::Listed(BTreeMap::new())
    }

    /// Adds the right to read a database, or one table of it.
    pub fn add(&mut self, database: &str, table: Option<&str>) {
        match (table, self.tables_of(database)) {
            (None, Some(tables)) => *tables = Tables::All,
            (Some(table), Some(Tables::Listed(listed))) => {
                listed.insert(fold_name(table), Columns::All);
            }
            (Some(_), Some(Tables::All)) | (_, None) => {}
        }
    }

    /// Adds the right to read a column of a table.
    pub fn add_column(&mut self, database: &str, table: &str, column: &str) {
        let Some(Tables::Listed(listed)) = self.tables_of(database) else {
            return;
        };
        let columns = listed.entry(fold_name(table));
        let none = || Columns::Listed(BTreeSet::new());
        if let Columns::Listed(columns) = columns.or_insert_with(none) {
            columns.insert(fold_name(column));
        }
    }

    /// The tables of a database to which some are to be added; `None` where all may be read.
    fn tables_of(&mut self, database: &str) -> Option<&mut Tables> {
        let Self::Listed(databases) = self else {
            return None;
        };
        let tables = databases.entry(fold_name(database));
        Some(tables.or_insert_with(|| Tables::Listed(BTreeMap::new())))
    }

    /// Whether something of a database may be read.
    pub fn may_see_database(&self, database: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(databases) => databases.contains_key(&fold_name(database)),
        }
    }

    /// Whether a table may be read, or some of its columns.
    pub fn may_read(&self, database: &str, table: &str) -> bool {
        self.columns(database, table).is_some()
    }

    /// The columns of a table that may be read; `None` if nothing of it may.
    pub fn columns(&self, database: &str, table: &str) -> Option<&Columns> {
        let Self::Listed(databases) = self else {
            return Some(&Columns::All);
        };
        match databases.get(&fold_name(database))? {
            Tables::All => Some(&Columns::All),
            Tables::Listed(tables) => tables.get(&fold_name(table)),
        }
    }

    /// Whether all columns of a table may be read.
    pub fn may_read_whole(&self, database: &str, table: &str) -> bool {
        self.columns(database, table) == Some(&Columns::All)
    }

    /// A table as it is shown to somebody of these rights: without the columns that they may not read, nor what is said of these.
    /// `None` if nothing of it is.
    pub fn seen_table(&self, mut table: Table) -> Option<Table> {
        let columns = self.columns(&table.spec.database, &table.spec.name)?;
        if *columns != Columns::All {
            show_columns(&mut table.spec, columns);
            table.metadata.columns.retain(|name, _| columns.has(name));
        }
        (!table.spec.columns.is_empty()).then_some(table)
    }

    /// A view as it is shown to somebody of these rights; `None` if it is not.
    pub fn seen_view(&self, mut view: View) -> Option<View> {
        let columns = self.columns(&view.database, &view.name)?;
        // What heads a column in the query stands at the same place of another list.
        let named = view.query.columns.into_iter().zip(view.query.headings);
        (view.query.columns, view.query.headings) =
            named.filter(|(name, _)| columns.has(name)).unzip();
        view.metadata.columns.retain(|name, _| columns.has(name));
        let position = view.query.position.take();
        view.query.position = position.filter(|it| columns.has_position(it));
        (!view.query.columns.is_empty()).then_some(view)
    }

    /// Whether all tables of a database may be read, those that there are not included.
    pub fn may_read_all_of(&self, database: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(databases) => databases.get(&fold_name(database)) == Some(&Tables::All),
        }
    }
}

/// Takes the other columns out of a description, and the roles that they have.
fn show_columns(spec: &mut TableSpec, columns: &Columns) {
    spec.columns.retain(|column| columns.has(&column.name));
    let (key, position) = (spec.key.take(), spec.position.take());
    spec.key = key.filter(|key| columns.has(key));
    spec.position = position.filter(|it| columns.has_position(it));
    spec.directors.retain(|director| columns.has(&director.key));
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
    #[test]
    fn columns_that_are_not_listed_are_not_seen() {
        let mut rights = Rights::none();
        rights.add_column("Sky", "Object", "RA");
        rights.add_column("sky", "object", "mag");
        assert!(rights.may_read("sky", "Object") && !rights.may_read_whole("sky", "Object"));
        let columns = rights.columns("SKY", "OBJECT").unwrap();
        assert!(columns.has("ra") && columns.has("MAG") && !columns.has("dec"));
        assert!(rights.columns("sky", "Source").is_none());
        rights.add("sky", Some("object"));
        rights.add_column("sky", "object", "ra");
        assert!(rights.may_read_whole("sky", "Object"));
        let mut all = Rights::All;
        all.add_column("sky", "object", "ra");
        assert!(all.may_read_whole("sky", "Object"));
    }
}
