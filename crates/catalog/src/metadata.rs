//! What databases, tables and columns mean: the words that describe them, and changes of these.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ScanLane, Table, UNRATED, fold_name};

/// What is said of a column. `None` is what nobody has said; a text is never empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnMetadata {
    /// What it means, in words.
    pub description: Option<String>,
    /// The unit of its values.
    pub unit: Option<String>,
    /// What it is physically, in words of UCD1+.
    pub ucd: Option<String>,
    /// Its place in a data model.
    pub utype: Option<String>,
    /// How its values are to be read (DALI 1.1).
    pub xtype: Option<String>,
    /// Whether it is one of the columns that are returned by default.
    pub principal: Option<bool>,
    /// Its place in a list of the table's columns.
    pub index: Option<i32>,
}

/// What is said of a table and its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableMetadata {
    /// What it has, in words.
    pub description: Option<String>,
    /// Its place in a data model.
    pub utype: Option<String>,
    /// Its place in a list of the database's tables.
    pub index: Option<i32>,
    /// What is said of its columns, by their folded names. Columns of which nothing is said may be left out.
    pub columns: BTreeMap<String, ColumnMetadata>,
}

impl TableMetadata {
    /// What is said of the column of this name, without regard to case.
    pub fn column(&self, name: &str) -> Option<&ColumnMetadata> {
        self.columns.get(&fold_name(name))
    }
}

/// A change of one thing that is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays what it is.
    #[default]
    Keep,
    /// Nothing is said any more.
    Clear,
    /// This is said.
    Set(T),
}

impl<T: Clone> Change<T> {
    fn apply(&self, to: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *to = None,
            Self::Set(value) => *to = Some(value.clone()),
        }
    }
}

/// A change of what is said of a column.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnChange {
    /// See [`ColumnMetadata::description`].
    pub description: Change<String>,
    /// See [`ColumnMetadata::unit`].
    pub unit: Change<String>,
    /// See [`ColumnMetadata::ucd`].
    pub ucd: Change<String>,
    /// See [`ColumnMetadata::utype`].
    pub utype: Change<String>,
    /// See [`ColumnMetadata::xtype`].
    pub xtype: Change<String>,
    /// See [`ColumnMetadata::principal`].
    pub principal: Change<bool>,
    /// See [`ColumnMetadata::index`].
    pub index: Change<i32>,
}

impl ColumnChange {
    fn apply(&self, to: &mut ColumnMetadata) {
        self.description.apply(&mut to.description);
        self.unit.apply(&mut to.unit);
        self.ucd.apply(&mut to.ucd);
        self.utype.apply(&mut to.utype);
        self.xtype.apply(&mut to.xtype);
        self.principal.apply(&mut to.principal);
        self.index.apply(&mut to.index);
    }
}

/// A change of what is said of a table and its columns.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableChange {
    /// See [`TableMetadata::description`].
    pub description: Change<String>,
    /// See [`TableMetadata::utype`].
    pub utype: Change<String>,
    /// See [`TableMetadata::index`].
    pub index: Change<i32>,
    /// The lane of its scans; cleared, they go by the bytes of its chunks.
    pub scan_lane: Change<ScanLane>,
    /// By the columns' folded names. Each column has to be there.
    pub columns: BTreeMap<String, ColumnChange>,
}

impl TableChange {
    /// The scan rating after the change. One of the wanted lane stays what it is.
    pub(crate) fn rating_of(&self, table: &Table) -> u8 {
        let before = table.spec.scan_rating;
        match &self.scan_lane {
            Change::Keep => before,
            Change::Clear => before.min(UNRATED),
            Change::Set(lane) if ScanLane::chosen(before) == Some(*lane) => before,
            Change::Set(lane) => lane.rating(),
        }
    }

    /// The metadata after the change; `None` if there is not one of the columns.
    pub(crate) fn applied_to(
        &self,
        before: &TableMetadata,
        has_column: impl Fn(&str) -> bool,
    ) -> Option<TableMetadata> {
        let mut changed = before.clone();
        self.description.apply(&mut changed.description);
        self.utype.apply(&mut changed.utype);
        self.index.apply(&mut changed.index);
        for (name, change) in &self.columns {
            if !has_column(name) {
                return None;
            }
            let column = changed.columns.entry(fold_name(name)).or_default();
            change.apply(column);
            if *column == ColumnMetadata::default() {
                changed.columns.remove(&fold_name(name));
            }
        }
        Some(changed)
    }
}

/// A change of what is said of a database and its tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseChange {
    /// What the database has, in words.
    pub description: Change<String>,
    /// By the tables' folded names. Each table has to be there.
    pub tables: BTreeMap<String, TableChange>,
}

/// What is said of a column beside what was said before, or is said of what it is: words take the places of others, silence leaves them.
pub fn combined(before: ColumnMetadata, file: &ColumnMetadata) -> ColumnMetadata {
    let ColumnMetadata {
        description,
        unit,
        ucd,
        utype,
        xtype,
        principal,
        index,
    } = file.clone();
    ColumnMetadata {
        description: description.or(before.description),
        unit: unit.or(before.unit),
        ucd: ucd.or(before.ucd),
        utype: utype.or(before.utype),
        xtype: xtype.or(before.xtype),
        principal: principal.or(before.principal),
        index: index.or(before.index),
    }
}
