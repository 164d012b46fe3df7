//! What users, groups and everybody may read: how it is changed, by whatever protocol.

use std::collections::BTreeSet;

use sql::ErrorCode;
use users::{Grant, PUBLIC, UserList, Users, UsersError, is_public};

use crate::ClientError;

/// Grants to users, groups and everybody, or takes back.
pub(crate) async fn change_grants(
    users: &Users,
    list: &UserList,
    names: Vec<String>,
    grants: &[Grant],
    revoke: bool,
) -> Result<(), ClientError> {
    // Everybody has one name, however it is written.
    let one_name = |name: String| match is_public(&name) {
        true => PUBLIC.to_owned(),
        false => name,
    };
    let names: BTreeSet<String> = names.into_iter().map(one_name).collect();
    for name in &names {
        let Some(given) = list.grants_of(name) else {
            return Err(no_grantee(name));
        };
        let lacking = |grant: &&Grant| !given.iter().any(|it| grant.includes(it));
        if revoke && let Some(grant) = grants.iter().find(lacking) {
            let sentence = format!(
                "{name} has no grant to read {grant}: SHOW GRANTS FOR '{name}' tells those that there are"
            );
            return Err(ClientError::new(ErrorCode::NO_GRANT, sentence));
        }
    }
    for name in &names {
        let done = match revoke {
            true => users.revoke(name, grants).await,
            false => users.grant(name, grants).await,
        };
        done.map_err(failed)?;
    }
    Ok(())
}

/// There is nobody of a name to whom something could be granted.
pub(crate) fn no_grantee(name: &str) -> ClientError {
    let sentence = format!(
        "there is no user and no role {name}: an administrator makes them with CREATE USER and CREATE ROLE (upper and lower case are told apart)"
    );
    ClientError::new(ErrorCode::USER_FAILED, sentence)
}

/// What is said when users could not be changed.
pub(crate) fn failed(error: UsersError) -> ClientError {
    let (code, sentence) = match error {
        UsersError::Exists { name } => (
            ErrorCode::USER_FAILED,
            format!(
                "there is a user {name} already (names that differ in case alone are the same): ALTER USER changes the password"
            ),
        ),
        UsersError::BadPassword => (
            ErrorCode::BAD_PASSWORD,
            "a password has 1 to 256 bytes, none of them zero: leave IDENTIFIED BY out for a user without one".to_owned(),
        ),
        UsersError::NoMember { group, user } => (
            ErrorCode::NO_GRANT,
            format!("{user} does not have the role {group}: SHOW GRANTS FOR '{user}' tells those that there are"),
        ),
        UsersError::LimitOfGroups { .. } => (ErrorCode::WRONG_VALUE, error.to_string()),
        UsersError::NoUser { .. }
        | UsersError::NoGroup { .. }
        | UsersError::GroupExists { .. }
        | UsersError::BadName { .. } => (ErrorCode::USER_FAILED, error.to_string()),
        UsersError::NoGrant { .. } => (ErrorCode::NO_GRANT, error.to_string()),
        UsersError::NoRelease { table } => (
            ErrorCode::NO_GRANT,
            format!(
                "all rows of {table} are released already: SHOW RELEASES lists the conditions that there are"
            ),
        ),
        _ => (ErrorCode::OTHER, error.to_string()),
    };
    ClientError::new(code, sentence)
}
