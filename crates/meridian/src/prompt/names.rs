//! The names that can be completed: what is loaded, and the words and functions of the dialect.

use std::time::{Duration, Instant};

use catalog::{Catalog, CatalogState};
use sql::Dialect;

use crate::executor::{Executor, ServerSession};
use crate::failure::Failure;

/// How old the names of a server may be.
const LASTING: Duration = Duration::from_secs(60);
/// Columns of a server that are completed.
const MOST_COLUMNS: usize = 100_000;

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
    /// When they were asked of a server.
    asked: Option<Instant>,
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

    /// Reads the tables again if they may have changed.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn refresh(&mut self, executor: &Executor) -> Result<(), Failure> {
        match executor {
            Executor::Archive(session) => self.refresh_from(session.archive.catalog()).await,
            Executor::Server(session) => self.request(session).await,
        }
    }

    /// Asks a server for the tables, unless it was asked a moment ago.
    async fn request(&mut self, session: &ServerSession) -> Result<(), Failure> {
        if self.asked.is_some_and(|asked| asked.elapsed() < LASTING) {
            return Ok(());
        }
        // Also where it fails: the prompt does not wait each time.
        self.asked = Some(Instant::now());
        let databases = session.texts("SHOW DATABASES").await?;
        let all = format!(
            "SELECT table_schema, table_name, column_name FROM information_schema.COLUMNS \
             ORDER BY table_schema, table_name, ordinal_position LIMIT {MOST_COLUMNS}"
        );
        let mut tables: Vec<TableNames> = Vec::new();
        for row in session.texts(&all).await? {
            let Ok([Some(database), Some(name), Some(column)]) = <[_; 3]>::try_from(row) else {
                continue;
            };
            match tables.last_mut() {
                Some(last) if last.database == database && last.name == name => {
                    last.columns.push(column);
                }
                _ => tables.push(TableNames {
                    database,
                    name,
                    columns: vec![column],
                }),
            }
        }
        self.tables = tables;
        self.databases = databases.into_iter().flatten().flatten().collect();
        self.databases
            .retain(|name| !name.eq_ignore_ascii_case("information_schema"));
        Ok(())
    }

    /// Reads the tables of a catalog again if it has changed.
    async fn refresh_from(&mut self, catalog: &Catalog) -> Result<(), Failure> {
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
        let views = catalog.views().await?.into_iter();
        tables.extend(views.map(|view| TableNames {
            database: view.database,
            name: view.name,
            columns: view.query.columns,
        }));
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
