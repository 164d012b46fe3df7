//! Making a table that consists of several parts from the beginning: one transaction, as for one part.

use super::Statements;
use super::parts::{append_part, table_named};
use super::read::loads;
use super::seal::{seal_databases, seal_loads};
use super::write::{expect_running, settle_database, show};
use crate::catalog::Append;
use crate::{CatalogError, LoadId, NewDatabase, PartContents, TableSpec};

impl Statements {
    pub async fn publish_parts(
        &self,
        database: &NewDatabase,
        spec: &TableSpec,
        parts: &[(LoadId, PartContents<'_>)],
        now: &str,
    ) -> Result<Vec<LoadId>, CatalogError> {
        let Some(((first, contents), others)) = parts.split_first() else {
            return Err(CatalogError::NoTable {
                table: spec.full_name(),
            });
        };
        let mut change = self.begin_write().await?;
        loads(&mut change).await?;
        expect_running(&mut change, *first, &spec.database, &spec.name).await?;
        let database_id = settle_database(&mut change, database, spec).await?;
        let replaced = show(&mut change, database_id, *first, spec, *contents, now).await?;
        seal_databases(&mut change).await?;
        seal_loads(&mut change, |row| {
            row.id == first.0 || replaced.contains(&LoadId(row.id))
        })
        .await?;
        for (load, contents) in others {
            let (_, table) = table_named(&mut change, &spec.database, &spec.name).await?;
            let append = Append {
                load: *load,
                table: &table,
                contents: *contents,
                unsettled: &[],
                replaces: &[],
            };
            append_part(&mut change, &append, now).await?;
        }
        self.commit_publication(change).await?;
        Ok(replaced)
    }
}
