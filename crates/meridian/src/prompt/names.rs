//! The names that can be completed: what is loaded, and the words and functions of the dialect.

use catalog::{Catalog, CatalogError, CatalogState};
use sql::Dialect;

/// Keywords that statements use; the grammar knows many more that Meridian rejects.
const KEYWORDS: [&str; 58] = [
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "CROSS",
    "DATABASES",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "ELSE",
    "END",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FROM",
    "FULL",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "INTERSECT",
    "INTERVAL",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "NATURAL",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OUTER",
    "OVER",
    "PARTITION",
    "RIGHT",
    "ROLLUP",
    "SELECT",
    "SHOW",
    "TABLES",
    "THEN",
    "UNION",
    "USE",
    "USING",
    "VALUES",
    "WARNINGS",
    "WHEN",
    "WHERE",
    "WITH",
    "XOR",
    "DIV",
    "REGEXP",
];

/// Keywords of ADQL's alone.
const ADQL_KEYWORDS: [&str; 2] = ["TOP", "ILIKE"];

/// A table, and its columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableNames {
    /// Its database.
    pub database: String,
    /// Its name.
    pub name: String,
    /// The names of its columns.
    pub columns: Vec<String>,
}

/// All names.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// The databases.
    pub databases: Vec<String>,
    /// The tables of all databases.
    pub tables: Vec<TableNames>,
    /// The default database.
    pub database: Option<String>,
    /// The keywords of the dialect.
    pub keywords: Vec<&'static str>,
    /// Its documented functions.
    pub functions: Vec<&'static str>,
    /// The state of the catalog in which these tables were there.
    state: Option<CatalogState>,
}

impl Names {
    /// The words of a dialect, and no tables yet.
    pub fn of_dialect(dialect: Dialect) -> Self {
        let mut keywords = KEYWORDS.to_vec();
        if dialect == Dialect::Adql {
            keywords.extend(ADQL_KEYWORDS);
        }
        Self {
            keywords,
            functions: sql::functions::documented(dialect),
            ..Self::default()
        }
    }

    /// Reads the tables again if the catalog has changed.
    pub async fn refresh(&mut self, catalog: &Catalog) -> Result<(), CatalogError> {
        // Before the tables: a later change makes the next refresh read them again.
        let state = catalog.state();
        if state.is_some() && self.state == state {
            return Ok(());
        }
        let mut tables = Vec::new();
        let mut databases = Vec::new();
        for database in catalog.databases().await? {
            for table in catalog.tables(&database.name).await? {
                let columns = table.spec.columns.into_iter();
                tables.push(TableNames {
                    database: database.name.clone(),
                    name: table.spec.name,
                    columns: columns.map(|column| column.name).collect(),
                });
            }
            databases.push(database.name);
        }
        (self.databases, self.tables, self.state) = (databases, tables, state);
        Ok(())
    }

    /// The tables of the default database; of all databases if none is chosen.
    pub fn tables_here(&self) -> impl Iterator<Item = &TableNames> {
        let here = |table: &&TableNames| match &self.database {
            Some(database) => table.database.eq_ignore_ascii_case(database),
            None => true,
        };
        self.tables.iter().filter(here)
    }
}
