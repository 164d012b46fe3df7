//! Statements about roles, which are groups of users: CREATE, ALTER and DROP ROLE, and what becomes of a role's database.

use std::collections::BTreeSet;

use ::users::{UserList, Users};
use catalog::CatalogError;
use engine::EngineError;
use sql::mysql::UserStatement;
use sql::{ErrorCode, Warning};

use crate::grants::failed;
use crate::{ClientError, Shared};

/// The warnings that the tables of roles which are dropped, or lose their databases, stay.
pub(super) async fn tables_left_by(
    shared: &Shared,
    statement: &UserStatement,
) -> Result<Vec<Warning>, ClientError> {
    let (UserStatement::DropRole { roles, .. }
    | UserStatement::AlterRole {
        roles,
        has_database: false,
    }) = statement
    else {
        return Ok(Vec::new());
    };
    let list = shared.authenticator.users().list().await;
    let list = list.map_err(failed)?;
    let catalog = shared.sessions.archive().catalog();
    let mut warnings = Vec::new();
    for role in roles {
        if !list.group(role).is_some_and(|group| group.has_database) {
            continue;
        }
        let failed = |error: CatalogError| ClientError::from(EngineError::from(error));
        if catalog.database(role).await.map_err(failed)?.is_none() {
            continue;
        }
        let tables = catalog.tables(role).await.map_err(failed)?.len();
        if tables > 0 {
            let sentence = format!(
                "the tables of {role} ({tables}) stay in the database {role}, which administrators alone change from now on: `meridian drop database --db {role}` on the server's machine removes them"
            );
            warnings.push(Warning {
                code: ErrorCode::OTHER,
                sentence,
            });
        }
    }
    Ok(warnings)
}

/// Whether there are the roles that are given, and those who get them are no roles.
pub(super) fn check_roles(
    list: &UserList,
    roles: &[String],
    names: &[String],
) -> Result<(), ClientError> {
    if let Some(role) = roles.iter().find(|it| list.group(it).is_none()) {
        return Err(no_role(role));
    }
    match names.iter().find(|it| list.group(it).is_some()) {
        Some(role) => {
            let sentence = format!(
                "{role} is a role itself: roles belong to users alone, so grant the users of {role} the other role, too"
            );
            Err(ClientError::new(ErrorCode::NOT_SUPPORTED, sentence))
        }
        None => Ok(()),
    }
}

/// Gives groups databases, or takes these away.
pub(super) async fn change_databases(
    users: &Users,
    list: &UserList,
    roles: &[String],
    has_database: bool,
) -> Result<(), ClientError> {
    check_roles(list, roles, &[])?;
    for role in roles {
        let set = users.set_group_database(role, has_database).await;
        set.map_err(failed)?;
    }
    Ok(())
}

/// Removes groups.
pub(super) async fn drop_roles(
    users: &Users,
    list: &UserList,
    roles: &[String],
    if_exists: bool,
) -> Result<(), ClientError> {
    let missing = roles.iter().find(|it| list.group(it).is_none());
    if let Some(role) = missing.filter(|_| !if_exists) {
        return Err(no_role(role));
    }
    let roles: BTreeSet<_> = roles.iter().collect();
    for role in { roles }.iter().filter(|it| list.group(it).is_some()) {
        users.remove_group(role).await.map_err(failed)?;
    }
    Ok(())
}

/// Makes groups; takes those back that it has made if one cannot be.
pub(super) async fn add_roles(
    users: &Users,
    list: &UserList,
    roles: &[String],
    if_not_exists: bool,
    has_database: bool,
) -> Result<(), ClientError> {
    let mut added: Vec<&str> = Vec::new();
    for role in roles {
        let folded = catalog::fold_name(role);
        let mut groups = list.groups();
        let is_there = groups.any(|group| catalog::fold_name(&group.name) == folded);
        if is_there && if_not_exists {
            continue;
        }
        if let Err(error) = users.create_group(role, has_database).await {
            for name in added {
                users.remove_group(name).await.map_err(failed)?;
            }
            return Err(failed(error));
        }
        added.push(role);
    }
    Ok(())
}

fn no_role(name: &str) -> ClientError {
    let sentence = format!(
        "there is no role {name}: an administrator makes one with CREATE ROLE (upper and lower case are told apart)"
    );
    ClientError::new(ErrorCode::USER_FAILED, sentence)
}
