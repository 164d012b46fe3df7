//! Releases: conditions that the rows of a table meet which everybody sees who may read it; and who sees the others.

use catalog::fold_name;

use crate::database::{Result, UsersFile, change_grantee, failed};
use crate::{Grant, UsersError};

/// The rows of a table that are released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The database's folded name.
    pub database: String,
    /// The table's folded name.
    pub table: String,
    /// The condition that they meet, in MySQL's dialect.
    pub condition: String,
}

impl Release {
    /// Whether a grant lets see the other rows.
    pub(crate) fn is_lifted_by(&self, grant: &Grant) -> bool {
        let of_table = grant.table.as_ref().is_none_or(|it| *it == self.table);
        grant.database == self.database && of_table
    }
}

/// Releases rows of a table by a condition, or, without one, all.
pub(crate) async fn set(
    opened: &mut UsersFile,
    database: &str,
    table: &str,
    condition: Option<&str>,
) -> Result<()> {
    let (database, table) = (fold_name(database), fold_name(table));
    let statement = match condition {
        Some(_) => {
            "INSERT OR REPLACE INTO releases (database, table_name, condition) VALUES (?, ?, ?)"
        }
        None => "DELETE FROM releases WHERE database = ? AND table_name = ?",
    };
    let changed = sqlx::query(statement).bind(&database).bind(&table);
    let changed = match condition {
        Some(condition) => changed.bind(condition),
        None => changed,
    };
    let changed = changed.execute(&mut opened.connection).await;
    let changed = changed.map_err(failed(&opened.path))?;
    match changed.rows_affected() {
        0 => Err(UsersError::NoRelease {
            table: format!("{database}.{table}"),
        }),
        _ => Ok(()),
    }
}

/// Lets a user or the members of a group see the rows that are not released, or no longer: all that is named, or nothing.
pub(crate) async fn change_unreleased(
    opened: &mut UsersFile,
    grantee: &str,
    grants: &[Grant],
    is_granted: bool,
) -> Result<()> {
    let path = opened.path.clone();
    let mut change = change_grantee(&mut opened.connection, &path, grantee).await?;
    for grant in grants {
        let statement = match is_granted {
            true => {
                "INSERT OR IGNORE INTO unreleased (grantee, database, table_name) VALUES (?, ?, ?)"
            }
            false => "DELETE FROM unreleased WHERE grantee = ? AND database = ? AND table_name = ?",
        };
        let changed = sqlx::query(statement)
            .bind(grantee)
            .bind(&grant.database)
            .bind(grant.stored_table())
            .execute(&mut *change)
            .await
            .map_err(failed(&path))?;
        if !is_granted && changed.rows_affected() == 0 {
            return Err(UsersError::NoGrant {
                name: grantee.to_owned(),
                grant: format!("what is not released of {grant}"),
            });
        }
    }
    change.commit().await.map_err(failed(&path))
}
