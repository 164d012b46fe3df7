//! What a database and a table must say of themselves before they are published.

use std::collections::HashSet;

use crate::catalog::check_name;
use crate::{CatalogError, NewColumns, NewDatabase, TableKind, TableSpec, fold_name};

impl NewDatabase {
    /// The partitioning in words, for messages.
    pub(crate) fn partitioning(&self) -> String {
        format!(
            "{} stripes, {} sub-stripes and an overlap of {} degrees",
            self.stripes, self.sub_stripes, self.overlap_deg
        )
    }

    pub(crate) fn check(&self) -> Result<(), CatalogError> {
        check_name("database", &self.name)?;
        let reason = if self.stripes == 0 || self.sub_stripes == 0 {
            "it needs at least one stripe and one sub-stripe"
        } else if !(0.0..180.0).contains(&self.overlap_deg) {
            "its overlap must be at least 0 and below 180 degrees"
        } else {
            return Ok(());
        };
        Err(CatalogError::BadDatabase {
            database: self.name.clone(),
            reason: reason.to_owned(),
        })
    }
}

impl NewColumns<'_> {
    pub(crate) fn check(&self) -> Result<(), CatalogError> {
        let mut spec = self.table.spec.clone();
        if spec.kind == TableKind::Match {
            // Its files have columns of their own behind those that are declared.
            return Err(spec.reject("columns cannot be added to a match table"));
        }
        if let Some(column) = self.columns.iter().find(|column| !column.nullable) {
            let name = &column.name;
            return Err(spec.reject(format!(
                "the column {name} cannot be added: it is NOT NULL, and rows from before do not have it"
            )));
        }
        spec.columns.extend_from_slice(self.columns);
        spec.check()
    }
}

impl TableSpec {
    /// The table's name in messages.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.database, self.name)
    }

    pub(crate) fn reject(&self, reason: impl Into<String>) -> CatalogError {
        CatalogError::BadTable {
            table: self.full_name(),
            reason: reason.into(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), CatalogError> {
        check_name("database", &self.database)?;
        check_name("table", &self.name)?;
        self.check_column_names()?;
        self.check_column_references()?;
        self.check_kind()
    }

    fn check_column_names(&self) -> Result<(), CatalogError> {
        if self.columns.is_empty() {
            return Err(self.reject("it has no columns"));
        }
        let mut seen = HashSet::new();
        for column in &self.columns {
            check_name("column", &column.name)?;
            if !seen.insert(fold_name(&column.name)) {
                let name = &column.name;
                return Err(self.reject(format!(
                    "two of its columns are called {name} (names compare without regard to case)"
                )));
            }
        }
        Ok(())
    }

    fn check_column_references(&self) -> Result<(), CatalogError> {
        let position = self.position.iter();
        let referred = (self.key.iter())
            .chain(position.flat_map(|position| [&position.ra, &position.dec]))
            .chain(self.directors.iter().map(|director| &director.key));
        for name in referred {
            if self.column(name).is_none() {
                return Err(self.reject(format!("it has no column {name}")));
            }
        }
        Ok(())
    }

    fn check_kind(&self) -> Result<(), CatalogError> {
        let kind = self.kind;
        let expected = match kind {
            TableKind::Director | TableKind::Replicated => 0,
            TableKind::Child => 1,
            TableKind::Match => 2,
        };
        let found = self.directors.len();
        if found != expected {
            return Err(self.reject(format!(
                "a {kind} table has {expected} directors, not {found}"
            )));
        }
        if kind != TableKind::Child && self.is_cut_as_elsewhere() {
            return Err(self.reject("only a child has a director in another database"));
        }
        if kind == TableKind::Director && (self.key.is_none() || self.position.is_none()) {
            return Err(self.reject("a director needs a key column and two position columns"));
        }
        Ok(())
    }
}
