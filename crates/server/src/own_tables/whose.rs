//! Whose tables they are, and who else may read them.

use sql::ErrorCode;
use users::{Grant, User};

use super::OwnTable;
use crate::ClientError;
use crate::grants::{change_grants, failed};

impl OwnTable {
    /// Lets users, groups and everybody read the table, or takes that back.
    ///
    /// # Errors
    /// There is none of a name, or it has no such grant that could be taken back: then nothing is changed.
    pub(crate) async fn share(&self, names: Vec<String>, revoke: bool) -> Result<(), ClientError> {
        let users = self.authenticator.users();
        let list = users.list().await.map_err(failed)?;
        let grant = Grant::new(&self.database, Some(&self.table));
        change_grants(users, &list, names, &[grant], revoke).await
    }
}

/// The error that a table is in nobody's database whose tables the user changes.
pub(super) fn not_own(user: &User, table: &str) -> ClientError {
    let own: Vec<String> = { user.own_databases() }
        .map(|database| format!("`{database}`.{table}"))
        .collect();
    let sentence = match own.as_slice() {
        [own] => {
            format!("you may change tables of your own database alone: write it as in {own}")
        }
        all => format!(
            "you may change tables of your own database and of those of your groups alone: write it as in {}",
            all.join(" or ")
        ),
    };
    ClientError::new(ErrorCode::TABLE_DENIED, sentence)
}
