//! Looking at everything in the catalog, for `meridian check`: problems are collected, not stopped at.

use sqlx::SqliteConnection;

use super::SqliteCatalog;
use super::read::{
    ListedDatabase, chunks_of, databases, databases_unverified, loads, loads_unverified, tables_of,
};
use super::views::view_rows;
use crate::CatalogError;

/// Problems that SQLite's own check tells at most.
const MOST_PROBLEMS: usize = 20;

impl SqliteCatalog {
    /// What is wrong with the catalog, in sentences; nothing if all is right.
    ///
    /// # Errors
    /// Only where the file cannot be read at all.
    pub async fn verify(&self) -> Result<Vec<String>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let mut problems = file_problems(&mut snapshot).await?;
        note(&mut problems, databases(&mut snapshot).await);
        for listed in databases_unverified(&mut snapshot).await? {
            problems.extend(table_problems(&mut snapshot, &listed).await);
        }
        note(&mut problems, view_rows(&mut snapshot).await);
        note(&mut problems, loads(&mut snapshot).await);
        for load in loads_unverified(&mut snapshot).await? {
            note(&mut problems, chunks_of(&mut snapshot, &load).await);
        }
        Ok(problems)
    }
}

fn note<T>(problems: &mut Vec<String>, outcome: Result<T, CatalogError>) {
    problems.extend(outcome.err().map(|error| error.to_string()));
}

/// What SQLite finds wrong with its file: pages, indexes, references.
async fn file_problems(connection: &mut SqliteConnection) -> Result<Vec<String>, CatalogError> {
    let told: Vec<String> =
        sqlx::query_scalar("SELECT integrity_check FROM pragma_integrity_check")
            .fetch_all(&mut *connection)
            .await?;
    let mut problems: Vec<String> = (told.into_iter())
        .filter(|told| told != "ok")
        .take(MOST_PROBLEMS)
        .map(|told| format!("the catalog's file is damaged: {told}"))
        .collect();
    let dangling: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT \"table\" FROM pragma_foreign_key_check")
            .fetch_all(connection)
            .await?;
    let sentence =
        |table: String| format!("rows of the catalog's {table} refer to rows that are gone");
    problems.extend(dangling.into_iter().map(sentence));
    Ok(problems)
}

/// Each table by itself, so that one that is wrong does not hide the others.
async fn table_problems(connection: &mut SqliteConnection, listed: &ListedDatabase) -> Vec<String> {
    let mut problems = Vec::new();
    for table in &listed.tables {
        let name = Some(table.folded_name.as_str());
        note(&mut problems, tables_of(connection, listed, name).await);
    }
    problems
}
