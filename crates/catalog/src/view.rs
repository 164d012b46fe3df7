//! Views: queries that are read under a name, as tables are.

use std::collections::HashSet;

use crate::catalog::check_name;
use crate::{CatalogError, Position, TableMetadata, fold_name};

/// A view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Its number.
    pub id: i64,
    /// The database's declared name.
    pub database: String,
    /// Its declared name.
    pub name: String,
    /// What it is made of.
    pub query: ViewQuery,
    /// What is said of it and of its columns. What is said of the columns of tables that they are stands behind that.
    pub metadata: TableMetadata,
    /// When it was made, UTC.
    pub created_at: String,
}

/// What a view is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewQuery {
    /// The query, in MySQL's dialect.
    pub definition: String,
    /// The database in which tables are that the definition names without one.
    pub default_database: Option<String>,
    /// The names of its columns. Columns that the query has beside these are not shown: what `*` means is settled when a view is made.
    pub columns: Vec<String>,
    /// What heads these columns in the result of the definition: their names, unless they have got others.
    pub headings: Vec<String>,
    /// Which of them are the position of a partitioned table's rows.
    pub position: Option<Position>,
}

impl View {
    /// The name with the database's.
    pub fn full_name(&self) -> String {
        full_name(&self.database, &self.name)
    }
}

impl ViewQuery {
    /// Whether it has a column of this name, without regard to case.
    pub(crate) fn has(&self, column: &str) -> bool {
        let folded = fold_name(column);
        self.columns.iter().any(|name| fold_name(name) == folded)
    }

    /// # Errors
    /// The columns have names that cannot be used, or two of them the same.
    pub(crate) fn check(&self, view: &str) -> Result<(), CatalogError> {
        let reject = |reason: String| CatalogError::BadView {
            view: view.to_owned(),
            reason,
        };
        if self.columns.is_empty() {
            return Err(reject("it has no columns".to_owned()));
        }
        let mut seen = HashSet::new();
        for name in &self.columns {
            check_name("column", name)?;
            if !seen.insert(fold_name(name)) {
                return Err(reject(format!("two of its columns are called {name}")));
            }
        }
        if self.columns.len() != self.headings.len() {
            return Err(reject("its columns are not those of its query".to_owned()));
        }
        Ok(())
    }
}

pub(crate) fn full_name(database: &str, name: &str) -> String {
    format!("{database}.{name}")
}
