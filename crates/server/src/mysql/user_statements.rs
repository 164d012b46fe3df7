//! Statements about users and groups: CREATE, ALTER and DROP USER, CREATE and DROP ROLE, SET PASSWORD, GRANT and REVOKE. All but one's own
//! password, and who may read one's own tables, are an administrator's. Groups are roles in MySQL's words. Releases of rows are an
//! administrator's, too: ALTER TABLE ... RELEASE, GRANT UNRELEASED.

use std::collections::BTreeSet;
use std::sync::Arc;

use ::users::{ANONYMOUS, Grant, Limit, User, UserList, Users, is_public};
use engine::EngineError;
use sql::ErrorCode;
use sql::mysql::UserStatement;

use super::connection::Client;
use super::new_users::add;
use super::parameters::quoted;
use super::release_statements::change_unreleased;
use super::role_statements::{
    add_roles, change_databases, check_roles, drop_roles, tables_left_by,
};
use crate::authenticator::Authenticator;
use crate::grants::{change_grants, failed, no_grantee};
use crate::{ClientError, native_password};

/// The hosts for which a grant counts.
const ALL_HOSTS: &str = "%";

impl Client {
    /// Executes a statement about users, which has this text: all of it, or nothing.
    pub(super) async fn change_users(
        &mut self,
        statement: UserStatement,
        text: &str,
    ) -> Result<(), ClientError> {
        let Some(me) = self.shared.user.clone() else {
            let sentence = "there are no users yet, and everybody may read everything: the first one is added on the command line of the server's machine, with `meridian user add NAME --admin`; see docs/users.md";
            return Err(ClientError::new(ErrorCode::READ_ONLY, sentence));
        };
        let statement = self.with_database(statement)?;
        check_rights(&me, &statement)?;
        self.check_names(&statement, text).await?;
        let shared = Arc::clone(&self.shared);
        let left = tables_left_by(&shared, &statement).await?;
        // To hash a password takes a processor for some time.
        let authenticator = Arc::clone(&self.shared.authenticator);
        let changing = async move { change(&authenticator, &me, statement).await };
        let mut changed = self.shared.query_runtime.compute(changing);
        changed.recv_one().await?;
        self.add_warnings(left);
        Ok(())
    }

    /// The statement with the connection's database where a grant or a release names none.
    fn with_database(&self, statement: UserStatement) -> Result<UserStatement, ClientError> {
        Ok(match statement {
            UserStatement::Grant {
                revoke,
                database,
                table,
                columns,
                users,
            } => UserStatement::Grant {
                revoke,
                database: Some(self.granted_database(database.as_deref())?),
                table,
                columns,
                users,
            },
            UserStatement::GrantUnreleased {
                revoke,
                database,
                table,
                users,
            } => UserStatement::GrantUnreleased {
                revoke,
                database: Some(self.granted_database(database.as_deref())?),
                table,
                users,
            },
            UserStatement::Release {
                database,
                table,
                condition,
            } => UserStatement::Release {
                database: Some(self.granted_database(database.as_deref())?),
                table,
                condition,
            },
            other => other,
        })
    }

    /// Sees that the names of what is made are free, and that what is granted or released is there.
    async fn check_names(
        &mut self,
        statement: &UserStatement,
        text: &str,
    ) -> Result<(), ClientError> {
        match statement {
            UserStatement::Create { users, .. } => {
                for (name, _) in users {
                    self.check_is_free(name, Whose::User).await?;
                }
            }
            UserStatement::CreateRole {
                roles,
                has_database: true,
                ..
            }
            | UserStatement::AlterRole {
                roles,
                has_database: true,
            } => {
                for name in roles {
                    self.check_is_free(name, Whose::Group).await?;
                }
            }
            UserStatement::Grant {
                revoke: false,
                database: Some(database),
                table,
                columns,
                ..
            } => {
                let table = table.as_deref();
                self.check_is_there(database, table, columns).await?;
            }
            UserStatement::GrantUnreleased {
                revoke: false,
                database: Some(database),
                table,
                ..
            } => {
                let table = table.as_deref();
                self.check_is_there(database, table, &[]).await?;
            }
            UserStatement::Release {
                database: Some(database),
                table,
                condition: Some(condition),
            } => {
                let archive = Arc::clone(self.shared.sessions.archive());
                let (database, table) = (database.clone(), table.clone());
                let (condition, text) = (condition.clone(), text.to_owned());
                let checking = async move {
                    let checked = engine::check_release(&archive, &database, &table, &condition);
                    let checked = Box::pin(checked).await;
                    checked.map_err(|error| in_statement(error, &text, &condition))
                };
                let mut checked = self.shared.query_runtime.compute(checking);
                checked.recv_one().await?;
            }
            _ => {}
        }
        Ok(())
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
        let granted = match (list.user(user), list.group(user)) {
            (Some(it), _) => granted_to(it),
            (None, Some(group)) => {
                let own: Vec<String> = group.database().into_iter().map(|it| it.name).collect();
                engine::granted(&group.rights(), &own, &[])
            }
            (None, None) => return Err(no_grantee(user)),
        };
        let rows = granted.into_iter();
        let rows = rows.enumerate().map(|(at, what)| {
            let row = quoted(&format!("GRANT {what} TO `{user}`@`{ALL_HOSTS}`"));
            format!("SELECT {at} AS place, {row} AS granted")
        });
        let rows = rows.collect::<Vec<_>>().join(" UNION ALL ");
        Ok(format!(
            "SELECT granted AS `Grants for {user}@{ALL_HOSTS}` FROM ({rows}) AS listed ORDER BY place"
        ))
    }

    /// The database that a grant names, or the connection's.
    fn granted_database(&self, named: Option<&str>) -> Result<String, ClientError> {
        let database = named.or(self.connection.database.as_deref());
        database.map(str::to_owned).ok_or_else(|| {
            let sentence = "no database is chosen: write it before the name, as in sky.Object, or choose one with USE";
            ClientError::new(ErrorCode::NO_DATABASE_CHOSEN, sentence)
        })
    }

    /// A user, or a group with a database, may change the tables of the database that has their name: there must be none yet.
    async fn check_is_free(&mut self, name: &str, whose: Whose) -> Result<(), ClientError> {
        let list = self.shared.authenticator.users().list().await;
        let list = list.map_err(failed)?;
        // Who is there already is told of with that.
        let is_there = match whose {
            Whose::User => namesake(&list, name).is_some(),
            Whose::Group => list.owner_of(name).is_some(),
        };
        if is_there {
            return Ok(());
        }
        match self.open(name.to_owned()).await {
            Err(error) if error.code == ErrorCode::NO_DATABASE => Ok(()),
            Err(error) => Err(error),
            Ok(_) => {
                let archive = Arc::clone(self.shared.sessions.archive());
                let found = archive.catalog().database(name).await;
                let found = found.map_err(|error| ClientError::from(EngineError::from(error)))?;
                let spelled = found.map_or_else(|| name.to_owned(), |it| it.name);
                let (who, command) = match whose {
                    Whose::User => ("a user", format!("add {name} --own-database")),
                    Whose::Group => (
                        "the members of a group",
                        format!("group database {name} --existing"),
                    ),
                };
                let sentence = format!(
                    "there is a database {spelled} already, and {who} of the name could change its tables: choose another name, or use `meridian user {command}` on the server's machine"
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
        columns: &[String],
    ) -> Result<(), ClientError> {
        self.open(database.to_owned()).await?;
        let Some(table) = table else {
            return Ok(());
        };
        let archive = Arc::clone(self.shared.sessions.archive());
        let found = archive.catalog().database(database).await;
        let found = found.map_err(|error| ClientError::from(EngineError::from(error)))?;
        // A database that is not in the catalog has tables of another kind.
        if found.is_none() && columns.is_empty() {
            return Ok(());
        }
        if let Some(shown) = archive.shown_table(database, table).await? {
            let spec = &shown.table.spec;
            // A view that cannot be read has no columns.
            let missing = columns.iter().find(|name| spec.column(name).is_none());
            return match missing {
                Some(column) if shown.trouble.is_none() => {
                    let sentence = format!(
                        "{database}.{table} has no column {column}; DESCRIBE {database}.{table} lists those that it has"
                    );
                    Err(ClientError::new(ErrorCode::NO_COLUMN, sentence))
                }
                _ => Ok(()),
            };
        }
        let sentence = format!(
            "there is no table {database}.{table}; SHOW TABLES FROM {database} lists those that there are"
        );
        Err(ClientError::new(ErrorCode::NO_TABLE, sentence))
    }
}

/// The error of a condition that is the end of a statement, with its place in that.
fn in_statement(error: EngineError, text: &str, condition: &str) -> ClientError {
    let typed = text.trim_end().trim_end_matches(';').trim_end();
    match (error, typed.strip_suffix(condition)) {
        (EngineError::Sql(error), Some(before)) => {
            error.moved(text, |byte| Some(before.len() + byte)).into()
        }
        (error, _) => error.into(),
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
        UserStatement::CreateRole { .. }
        | UserStatement::DropRole { .. }
        | UserStatement::AlterRole { .. }
        | UserStatement::GrantRole { .. } => denied(
            "only an administrator may make and drop roles and say who has them; you can let a role read the tables of your own database, and of those of your roles",
        ),
        UserStatement::Grant {
            database: Some(database),
            ..
        } if me.owns(database) && me.name != ANONYMOUS => Ok(()),
        UserStatement::Release { .. }
        | UserStatement::GrantUnreleased { .. }
        | UserStatement::ShowReleases => denied(
            "only an administrator may say which rows of a table are released, and who sees the others",
        ),
        UserStatement::Limit { .. } => {
            denied("only an administrator may say how much users may take; SHOW LIMITS tells yours")
        }
        UserStatement::Grant { .. } | UserStatement::ShowGrants { .. } => denied(
            "only an administrator may say who may read what, but for the tables of your own database and of those of your roles",
        ),
    }
}

/// Who is to have a database.
#[derive(Debug, Clone, Copy)]
enum Whose {
    User,
    Group,
}

/// What a user may do, as SHOW GRANTS tells it.
fn granted_to(user: &User) -> Vec<String> {
    let own: Vec<String> = user.own_databases().map(str::to_owned).collect();
    engine::granted(&user.rights, &own, &user.groups)
}

/// The user of this name in any case.
pub(super) fn namesake<'a>(list: &'a UserList, name: &str) -> Option<&'a Arc<User>> {
    let folded = catalog::fold_name(name);
    { list.iter() }.find(|user| catalog::fold_name(&user.name) == folded)
}

/// Changes the users. What cannot be done for one of several is done for none.
async fn change(
    authenticator: &Authenticator,
    me: &User,
    statement: UserStatement,
) -> Result<(), ClientError> {
    let (users, takes_native) = (authenticator.users(), authenticator.takes_native());
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
        } => add(users, takes_native, &list, &new, if_not_exists).await,
        UserStatement::Password { user, password } => {
            let name = user.unwrap_or_else(|| me.name.clone());
            all_are_there(std::slice::from_ref(&name))?;
            let native = native_password::kept(password.plugin, takes_native)?;
            let changed = users
                .set_password(&name, Some(&password.text), native)
                .await;
            changed.map_err(failed)
        }
        // A query tells them.
        UserStatement::ShowGrants { .. } | UserStatement::ShowReleases => Ok(()),
        UserStatement::Release {
            database,
            table,
            condition,
        } => {
            let database = database.unwrap_or_default();
            let set = users.set_release(&database, &table, condition.as_deref());
            set.await.map_err(failed)
        }
        UserStatement::Limit { user, limits } => {
            let limits = limits.into_iter().map(known_limit);
            let limits = limits.collect::<Result<Vec<_>, _>>()?;
            change_limits(users, &list, &user, &limits).await
        }
        UserStatement::GrantUnreleased {
            revoke,
            database,
            table,
            users: names,
        } => {
            let grant = Grant::new(&database.unwrap_or_default(), table.as_deref());
            change_unreleased(users, &list, names, grant, revoke).await
        }
        UserStatement::Drop {
            users: names,
            if_exists,
        } => {
            if !if_exists && !names.contains(&me.name) {
                all_are_there(&names)?;
            }
            drop_users(users, &list, me, &names).await
        }
        UserStatement::CreateRole {
            roles,
            if_not_exists,
            has_database,
        } => add_roles(users, &list, &roles, if_not_exists, has_database).await,
        UserStatement::AlterRole {
            roles,
            has_database,
        } => change_databases(users, &list, &roles, has_database).await,
        UserStatement::DropRole { roles, if_exists } => {
            drop_roles(users, &list, &roles, if_exists).await
        }
        UserStatement::GrantRole {
            revoke,
            roles,
            users: names,
        } => {
            check_roles(&list, &roles, &names)?;
            all_are_there(&names)?;
            let changed = users.change_members(&roles, &names, !revoke).await;
            changed.map_err(failed)
        }
        UserStatement::Grant {
            revoke,
            database,
            table,
            columns,
            users: names,
        } => {
            let grants = grants(&database.unwrap_or_default(), table.as_deref(), &columns);
            change_grants(users, &list, names, &grants, revoke).await
        }
    }
}

/// Removes those of some users that there are, none of whom may be `me`.
async fn drop_users(
    users: &Users,
    list: &UserList,
    me: &User,
    names: &[String],
) -> Result<(), ClientError> {
    if names.contains(&me.name) {
        let sentence = format!(
            "{0} is who you are: another administrator can drop you, or `meridian user remove {0}` on the server's machine",
            me.name
        );
        return Err(ClientError::new(ErrorCode::USER_FAILED, sentence));
    }
    let names: BTreeSet<_> = names.iter().collect();
    for name in { names }.iter().filter(|it| list.user(it).is_some()) {
        users.remove(name).await.map_err(failed)?;
    }
    Ok(())
}

/// What a statement grants.
fn grants(database: &str, table: Option<&str>, columns: &[String]) -> Vec<Grant> {
    match table {
        Some(table) if !columns.is_empty() => { columns.iter() }
            .map(|column| Grant::of_column(database, table, column))
            .collect(),
        table => vec![Grant::new(database, table)],
    }
}

/// A limit of this name, to which the value can be set.
fn known_limit((name, value): (String, Option<u64>)) -> Result<(Limit, Option<u64>), ClientError> {
    let wrong = |sentence: String| Err(ClientError::new(ErrorCode::WRONG_VALUE, sentence));
    let Some(limit) = Limit::of_name(&name) else {
        let all = Limit::ALL.map(Limit::name).join(", ");
        return wrong(format!(
            "there is no limit {name}: those that there are are {all}"
        ));
    };
    match value.map(|value| limit.check(value)) {
        Some(Err(why)) => wrong(format!("the limit {name}: {why}")),
        _ => Ok((limit, value)),
    }
}

/// Says how much a user, a group or everybody may take.
async fn change_limits(
    users: &Users,
    list: &UserList,
    user: &str,
    limits: &[(Limit, Option<u64>)],
) -> Result<(), ClientError> {
    let everybody = is_public(user);
    if !everybody && list.grants_of(user).is_none() {
        return Err(no_grantee(user));
    }
    let whose = (!everybody).then_some(user);
    users.set_limits(whose, limits).await.map_err(failed)
}

fn no_user(name: &str) -> ClientError {
    let sentence = format!(
        "there is no user {name}: an administrator adds one with CREATE USER (upper and lower case are told apart)"
    );
    ClientError::new(ErrorCode::USER_FAILED, sentence)
}
