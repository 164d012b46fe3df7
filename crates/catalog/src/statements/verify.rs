//! Looking at everything in the catalog, for `meridian check`: problems are collected, not stopped at.

use super::Statements;
use super::query::Transaction;
use super::read::{
    ListedDatabase, chunks_of, databases, databases_unverified, loads, loads_unverified, tables_of,
};
use super::views::view_rows;
use crate::CatalogError;

impl Statements {
    /// What is wrong with the catalog, in sentences; nothing if all is right.
    ///
    /// # Errors
    /// Only where the file cannot be read at all.
    pub async fn verify(&self) -> Result<Vec<String>, CatalogError> {
        let mut snapshot = self.begin_read().await?;
        let mut problems = self.backend.file_problems(&mut snapshot).await?;
        problems.extend(problems_in(&mut snapshot).await?);
        Ok(problems)
    }
}

/// What does not fit its checksum, in sentences.
pub(crate) async fn problems_in(
    snapshot: &mut Transaction<'_>,
) -> Result<Vec<String>, CatalogError> {
    let mut problems = Vec::new();
    note(&mut problems, databases(snapshot).await);
    for listed in databases_unverified(snapshot).await? {
        problems.extend(table_problems(snapshot, &listed).await);
    }
    note(&mut problems, view_rows(snapshot).await);
    note(&mut problems, loads(snapshot).await);
    for load in loads_unverified(snapshot).await? {
        note(&mut problems, chunks_of(snapshot, &load).await);
    }
    Ok(problems)
}

fn note<T>(problems: &mut Vec<String>, outcome: Result<T, CatalogError>) {
    problems.extend(outcome.err().map(|error| error.to_string()));
}

/// Each table by itself, so that one that is wrong does not hide the others.
async fn table_problems(connection: &mut Transaction<'_>, listed: &ListedDatabase) -> Vec<String> {
    let mut problems = Vec::new();
    for table in &listed.tables {
        let name = Some(table.folded_name.as_str());
        note(&mut problems, tables_of(connection, listed, name).await);
    }
    problems
}
