//! Releases of rows by SQL: the list of their conditions, and who sees the other rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::users::{Grant, UserList, Users, is_public};
use sql::ErrorCode;

use super::connection::Client;
use super::parameters::quoted;
use crate::ClientError;
use crate::grants::{failed, no_grantee};

impl Client {
    /// The statement that lists the conditions by which rows are released, and who sees the other rows beside administrators.
    pub(super) async fn releases(&mut self) -> Result<String, ClientError> {
        if self.shared.user.as_ref().is_some_and(|me| !me.is_admin) {
            let sentence = "only an administrator may see by which conditions rows are released";
            return Err(ClientError::new(ErrorCode::ACCESS_DENIED, sentence));
        }
        let authenticator = Arc::clone(&self.shared.authenticator);
        let list = authenticator.users().list().await.map_err(failed)?;
        let rows = list.releases().iter().map(|release| {
            let grantees = seeing_all_of(&list, &release.database, &release.table);
            let [database, table, condition, grantees] = [
                &release.database,
                &release.table,
                &release.condition,
                &grantees.join(", "),
            ]
            .map(|text| quoted(text));
            format!(
                "SELECT {database} AS `Database`, {table} AS `Table`, {condition} AS `Released_where`, {grantees} AS `Others_seen_by`"
            )
        });
        let rows: Vec<String> = rows.collect();
        let none = "SELECT '' AS `Database`, '' AS `Table`, '' AS `Released_where`, '' AS `Others_seen_by`";
        Ok(match rows.is_empty() {
            true => format!("SELECT * FROM ({none}) AS listed WHERE 1 = 0"),
            false => format!(
                "SELECT * FROM ({}) AS listed ORDER BY `Database`, `Table`",
                rows.join(" UNION ALL ")
            ),
        })
    }
}

/// The names of the users and groups who see all rows of a table, whatever is released, but for administrators.
fn seeing_all_of(list: &UserList, database: &str, table: &str) -> Vec<String> {
    let one = Grant::new(database, Some(table));
    let sees = |unreleased: &[Grant]| unreleased.iter().any(|grant| grant.includes(&one));
    let users = { list.iter() }.filter(|user| sees(&user.unreleased));
    let groups = { list.groups() }.filter(|group| sees(&group.unreleased));
    let mut names: Vec<String> = users.map(|user| user.name.clone()).collect();
    names.extend(groups.map(|group| group.name.clone()));
    names.sort();
    names
}

/// Lets users and groups see rows that are not released, or no longer.
pub(super) async fn change_unreleased(
    users: &Users,
    list: &UserList,
    names: Vec<String>,
    grant: Grant,
    revoke: bool,
) -> Result<(), ClientError> {
    let names: BTreeSet<String> = names.into_iter().collect();
    for name in &names {
        if is_public(name) {
            let sentence = "PUBLIC is everybody: ALTER TABLE ... RELEASE says which rows everybody sees who may read a table";
            return Err(ClientError::new(ErrorCode::USER_FAILED, sentence));
        }
        let of_user = list.user(name).map(|user| &user.unreleased);
        let of_group = list.group(name).map(|group| &group.unreleased);
        let Some(given) = of_user.or(of_group) else {
            return Err(no_grantee(name));
        };
        if revoke && !given.contains(&grant) {
            let sentence = format!(
                "{name} has no grant to see what is not released of {grant}: SHOW RELEASES tells who sees what"
            );
            return Err(ClientError::new(ErrorCode::NO_GRANT, sentence));
        }
    }
    for name in &names {
        let grant = std::slice::from_ref(&grant);
        let changed = users.change_unreleased(name, grant, !revoke).await;
        changed.map_err(failed)?;
    }
    Ok(())
}
