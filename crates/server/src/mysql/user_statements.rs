//! Statements about users: CREATE, ALTER and DROP USER, SET PASSWORD, GRANT and REVOKE. All but one's own password, and who may read one's
//! own tables, are an administrator's.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::users::{ANONYMOUS, Grant, User, UserList, Users, UsersError, is_public};
use engine::EngineError;
use sql::ErrorCode;
use sql::mysql::UserStatement;

use super::connection::Client;
use super::parameters::quoted;
use crate::ClientError;

/// The hosts for which a grant counts.
const ALL_HOSTS: &str = "%";

impl Client {
    /// Executes a statement about users: all of it, or nothing.
    pub(super) async fn change_users(
        &mut self,
        statement: UserStatement,
    ) -> Result<(), ClientError> {
        let Some(me) = self.shared.user.clone() else {
            let sentence = "there are no users yet, and everybody may read everything: the first one is added on the command line of the server's machine, with `meridian user add NAME --admin`; see docs/users.md";
            return Err(ClientError::new(ErrorCode::READ_ONLY, sentence));
        };
        let statement = match statement {
            UserStatement::Grant {
                revoke,
                database,
                table,
                users,
            } => UserStatement::Grant {
                revoke,
                database: Some(self.granted_database(database.as_deref())?),
                table,
                users,
            },
            other => other,
        };
        check_rights(&me, &statement)?;
        match &statement {
            UserStatement::Create { users, .. } => {
                for (name, _) in users {
                    self.check_is_free(name).await?;
                }
            }
            UserStatement::Grant {
                revoke: false,
                database: Some(database),
                table,
                ..
            } => self.check_is_there(database, table.as_deref()).await?,
            _ => {}
        }
        // To hash a password takes a processor for some time.
        let authenticator = Arc::clone(&self.shared.authenticator);
        let changing = async move { change(authenticator.users(), &me, statement).await };
        self.shared.query_runtime.compute(changing).recv_one().await
    }

    /// The statement that lists what a user may do.
    pub(super) async fn grants_of(&mut self, user: &str) -> Result<String, ClientError> {
        let own = "SHOW GRANTS".to_owned();
        let Some(me) = &self.shared.user else {
            return Ok(own);
        };
        if me.name == user {
            return Ok(own);
        }
        if !me.is_admin {
            let sentence = "only an administrator may see what others may read; SHOW GRANTS tells what you may";
            return Err(ClientError::new(ErrorCode::ACCESS_DENIED, sentence));
        }
        let authenticator = Arc::clone(&self.shared.authenticator);
        let list = authenticator.users().list().await.map_err(failed)?;
        let Some(listed) = list.user(user) else {
            return Err(no_user(user));
        };
        let rows = engine::granted(&listed.rights, user)
            .into_iter()
            .map(|what| {
                let row = quoted(&format!("GRANT {what} TO `{user}`@`{ALL_HOSTS}`"));
                format!("SELECT {row} AS `Grants for {user}@{ALL_HOSTS}`")
            });
        let rows = rows.collect::<Vec<_>>().join(" UNION ALL ");
        // USAGE is first, and then the database of the user's own.
        Ok(format!("{rows} ORDER BY 1 DESC"))
    }

    /// The database that a grant names, or the connection's.
    fn granted_database(&self, named: Option<&str>) -> Result<String, ClientError> {
        let database = named.or(self.connection.database.as_deref());
        database.map(str::to_owned).ok_or_else(|| {
            let sentence = "no database is chosen: write it before the name, as in GRANT SELECT ON sky.Object, or choose one with USE";
            ClientError::new(ErrorCode::NO_DATABASE_CHOSEN, sentence)
        })
    }

    /// A user may change the tables of the database that has their name: there must be none yet.
    async fn check_is_free(&mut self, name: &str) -> Result<(), ClientError> {
        let list = self.shared.authenticator.users().list().await;
        // Who is there already is told of with that.
        if namesake(&list.map_err(failed)?, name).is_some() {
            return Ok(());
        }
        match self.open(name.to_owned()).await {
            Err(error) if error.code == ErrorCode::NO_DATABASE => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                let sentence = format!(
                    "there is a database {name} already, and a user of the name could change its tables: choose another name, or use `meridian user add {name} --own-database` on the server's machine"
                );
                Err(ClientError::new(ErrorCode::USER_FAILED, sentence))
            }
        }
    }

    /// Whether there is what is to be granted: who mistypes a name is told.
    async fn check_is_there(
        &mut self,
        database: &str,
        table: Option<&str>,
    ) -> Result<(), ClientError> {
        self.open(database.to_owned()).await?;
        let Some(table) = table else {
            return Ok(());
        };
        let archive = Arc::clone(self.shared.sessions.archive());
        let catalog = archive.catalog();
        let unreadable = |error| ClientError::from(EngineError::from(error));
        // A database that is not in the catalog has tables of another kind.
        if catalog
            .database(database)
            .await
            .map_err(unreadable)?
            .is_none()
            || catalog
                .table(database, table)
                .await
                .map_err(unreadable)?
                .is_some()
            || archive.view(database, table).await?.is_some()
        {
            return Ok(());
        }
        let sentence = format!(
            "there is no table {database}.{table}; SHOW TABLES FROM {database} lists those that there are"
        );
        Err(ClientError::new(ErrorCode::NO_TABLE, sentence))
    }
}

/// Who is no administrator may change their own password, if they have one: who has none shares the name with others, or uses tokens. And
/// they may say who reads the tables of their own database.
fn check_rights(me: &User, statement: &UserStatement) -> Result<(), ClientError> {
    let denied = |sentence: &str| Err(ClientError::new(ErrorCode::ACCESS_DENIED, sentence));
    match statement {
        _ if me.is_admin => Ok(()),
        UserStatement::Password { user, .. } if user.as_ref().is_none_or(|it| *it == me.name) => {
            match me.password {
                Some(_) => Ok(()),
                None => denied(
                    "you have no password that could be changed: an administrator can give you one",
                ),
            }
        }
        UserStatement::Password { .. } => {
            denied("only an administrator may change the passwords of others")
        }
        UserStatement::Create { .. } | UserStatement::Drop { .. } => {
            denied("only an administrator may add and remove users")
        }
        UserStatement::Grant {
            database: Some(database),
            ..
        } if catalog::fold_name(database) == catalog::fold_name(&me.name)
            && me.name != ANONYMOUS =>
        {
            Ok(())
        }
        UserStatement::Grant { .. } | UserStatement::ShowGrants { .. } => denied(
            "only an administrator may say who may read what, but for the tables of your own database",
        ),
    }
}

/// The user of this name in any case.
fn namesake<'a>(list: &'a UserList, name: &str) -> Option<&'a Arc<User>> {
    let folded = catalog::fold_name(name);
    { list.iter() }.find(|user| catalog::fold_name(&user.name) == folded)
}

/// Changes the users. What cannot be done for one of several is done for none.
async fn change(users: &Users, me: &User, statement: UserStatement) -> Result<(), ClientError> {
    let list = users.list().await.map_err(failed)?;
    let all_are_there = |names: &[String]| match names.iter().find(|it| list.user(it).is_none()) {
        Some(name) if is_public(name) => {
            let sentence =
                "PUBLIC is everybody, and no user: only GRANT and REVOKE are for everybody";
            Err(ClientError::new(ErrorCode::USER_FAILED, sentence))
        }
        Some(name) => Err(no_user(name)),
        None => Ok(()),
    };
    match statement {
        UserStatement::Create {
            users: new,
            if_not_exists,
        } => add(users, &list, &new, if_not_exists).await,
        UserStatement::Password { user, password } => {
            let name = user.unwrap_or_else(|| me.name.clone());
            all_are_there(std::slice::from_ref(&name))?;
            let changed = users.set_password(&name, Some(&password)).await;
            changed.map_err(failed)
        }
        // A query tells them.
        UserStatement::ShowGrants { .. } => Ok(()),
        UserStatement::Drop {
            users: names,
            if_exists,
        } => {
            if names.contains(&me.name) {
                let sentence = format!(
                    "{0} is who you are: another administrator can drop you, or `meridian user remove {0}` on the server's machine",
                    me.name
                );
                return Err(ClientError::new(ErrorCode::USER_FAILED, sentence));
            }
            if !if_exists {
                all_are_there(&names)?;
            }
            let names: BTreeSet<_> = names.iter().collect();
            for name in { names }.iter().filter(|it| list.user(it).is_some()) {
                users.remove(name).await.map_err(failed)?;
            }
            Ok(())
        }
        UserStatement::Grant {
            revoke,
            database,
            table,
            users: names,
        } => {
            let (everybody, mut names): (Vec<_>, Vec<_>) =
                names.into_iter().partition(|name| is_public(name));
            all_are_there(&names)?;
            names.extend(everybody.into_iter().take(1));
            let names: BTreeSet<_> = names.iter().collect();
            let grants = [Grant::new(&database.unwrap_or_default(), table.as_deref())];
            let has = |name: &str| match is_public(name) {
                true => list.public().contains(&grants[0]),
                false => { list.user(name) }.is_some_and(|user| user.grants.contains(&grants[0])),
            };
            if revoke && let Some(name) = names.iter().find(|name| !has(name)) {
                let sentence = format!(
                    "{name} has no grant to read {}: SHOW GRANTS FOR '{name}' tells those that there are",
                    grants[0]
                );
                return Err(ClientError::new(ErrorCode::NO_GRANT, sentence));
            }
            for name in names {
                let done = match revoke {
                    true => users.revoke(name, &grants).await,
                    false => users.grant(name, &grants).await,
                };
                done.map_err(failed)?;
            }
            Ok(())
        }
    }
}

/// Adds users; takes those back that it has added if one cannot be.
async fn add(
    users: &Users,
    list: &UserList,
    new: &[(String, Option<String>)],
    if_not_exists: bool,
) -> Result<(), ClientError> {
    let mut added: Vec<&str> = Vec::new();
    for (name, password) in new {
        let done = match namesake(list, name) {
            Some(_) if if_not_exists => continue,
            Some(other) => Err(UsersError::Exists {
                name: other.name.clone(),
            }),
            None => users.add(name, password.as_deref(), false).await,
        };
        if let Err(error) = done {
            for name in added {
                users.remove(name).await.map_err(failed)?;
            }
            return Err(failed(error));
        }
        added.push(name);
    }
    Ok(())
}

fn no_user(name: &str) -> ClientError {
    let sentence = format!(
        "there is no user {name}: an administrator adds one with CREATE USER (upper and lower case are told apart)"
    );
    ClientError::new(ErrorCode::USER_FAILED, sentence)
}

fn failed(error: UsersError) -> ClientError {
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
        UsersError::NoUser { .. } | UsersError::BadName { .. } => {
            (ErrorCode::USER_FAILED, error.to_string())
        }
        UsersError::NoGrant { .. } => (ErrorCode::NO_GRANT, error.to_string()),
        _ => (ErrorCode::OTHER, error.to_string()),
    };
    ClientError::new(code, sentence)
}
