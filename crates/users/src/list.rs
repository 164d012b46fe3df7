//! Reading the file as a whole.

use std::path::Path;
use std::sync::Arc;

use catalog::Rights;
use sqlx::{Connection, Row, SqliteConnection};

use crate::database::{
    EVERYBODY, Result, WITH_GROUP_DATABASES, WITH_GROUPS, WITH_NATIVE_PASSWORDS, WITH_RELEASES,
    connect, failed,
};
use crate::{Grant, Group, Limit, Limits, Release, User, UserList, UsersState, now};

/// Grants of users, before there were groups, and of everybody.
const FORMER_GRANTS: &str = "SELECT user, database, table_name, '' FROM grants";
const FORMER_PUBLIC: &str = "SELECT '', database, table_name, '' FROM public_grants";
const GRANTS: &str =
    "SELECT grantee, database, table_name, column_name FROM grants ORDER BY 1, 2, 3, 4";

/// Reads all users.
pub(crate) async fn list(path: &Path, state: UsersState) -> Result<UserList> {
    let mut opened = connect(path, true).await?;
    let version = opened.version;
    let mut reading = opened.connection.begin().await.map_err(failed(path))?;
    let mut list = UserList::empty(state);
    let read = read(&mut reading, &mut list, version).await;
    read.map_err(failed(path))?;
    Ok(list)
}

type Read<T> = std::result::Result<T, sqlx::Error>;

async fn read(reading: &mut SqliteConnection, list: &mut UserList, version: i64) -> Read<()> {
    let mut users = read_users(reading, version).await?;
    let mut groups: Vec<Group> = Vec::new();
    if version >= WITH_GROUPS {
        groups = read_groups(reading, version).await?;
    }
    for (grantee, grant) in read_grants(reading, version).await? {
        if grantee == EVERYBODY {
            list.public.push(grant);
        } else if let Some(user) = users.iter_mut().find(|it| it.name == grantee) {
            user.grants.push(grant);
        } else if let Some(group) = groups.iter_mut().find(|it| it.name == grantee) {
            group.grants.push(grant);
        }
    }
    if version >= WITH_RELEASES {
        list.releases = read_releases(reading).await?;
        for (grantee, grant) in read_unreleased(reading).await? {
            if let Some(user) = users.iter_mut().find(|it| it.name == grantee) {
                user.unreleased.push(grant);
            } else if let Some(group) = groups.iter_mut().find(|it| it.name == grantee) {
                group.unreleased.push(grant);
            }
        }
    }
    let tokens: Vec<(Vec<u8>, String, i64)> =
        sqlx::query_as("SELECT hash, user, expires FROM tokens")
            .fetch_all(&mut *reading)
            .await?;
    for (hash, user, expires) in tokens {
        if let Some(owner) = users.iter_mut().find(|it| it.name == user)
            && let Ok(hash) = hash.try_into()
        {
            owner.tokens += usize::from(expires > now());
            list.tokens.insert(hash, (user, expires));
        }
    }
    for (of, limit, value) in read_limits(reading).await? {
        let limits = if of == EVERYBODY {
            Some(&mut list.everybody)
        } else if let Some(user) = users.iter_mut().find(|it| it.name == of) {
            Some(&mut user.own_limits)
        } else {
            let group = groups.iter_mut().find(|it| it.name == of);
            group.map(|group| &mut group.limits)
        };
        if let Some(limits) = limits {
            limits.set(limit, value);
        }
    }
    for group in &mut groups {
        group.set_database_limits(&list.everybody);
    }
    for mut user in users {
        let of: Vec<&Group> = { groups.iter() }
            .filter(|group| group.members.contains(&user.name))
            .collect();
        user.groups = of.iter().map(|group| group.name.clone()).collect();
        user.group_databases = of.iter().filter_map(|group| group.database()).collect();
        user.set_rights(&of, &list.public);
        user.set_releases(&of, &list.releases);
        user.set_limits(&of, &list.everybody);
        list.users.insert(user.name.clone(), Arc::new(user));
    }
    list.groups = { groups.into_iter() }
        .map(|group| (group.name.clone(), group))
        .collect();
    Ok(())
}

/// Whether the file has a table: one that is just made, or of a former version, may not.
async fn has_table(connection: &mut SqliteConnection, name: &str) -> Read<bool> {
    let found: i64 = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = ?")
        .bind(name)
        .fetch_one(connection)
        .await?;
    Ok(found > 0)
}

async fn read_users(reading: &mut SqliteConnection, version: i64) -> Read<Vec<User>> {
    let mut users: Vec<User> = Vec::new();
    let statement = match version >= WITH_NATIVE_PASSWORDS {
        true => {
            "SELECT name, password, challenge, native, is_admin, created FROM users ORDER BY name"
        }
        false => {
            "SELECT name, password, challenge, NULL AS native, is_admin, created FROM users ORDER BY name"
        }
    };
    for row in sqlx::query(statement).fetch_all(reading).await? {
        let challenge: Option<Vec<u8>> = row.try_get("challenge")?;
        let native: Option<Vec<u8>> = row.try_get("native")?;
        users.push(User {
            name: row.try_get("name")?,
            password: row.try_get("password")?,
            challenge: challenge.and_then(|bytes| bytes.try_into().ok()),
            native: native.and_then(|bytes| bytes.try_into().ok()),
            is_admin: row.try_get("is_admin")?,
            created: row.try_get("created")?,
            groups: Vec::new(),
            group_databases: Vec::new(),
            grants: Vec::new(),
            unreleased: Vec::new(),
            releases: Arc::default(),
            rights: Arc::new(Rights::none()),
            tokens: 0,
            own_limits: Limits::default(),
            limits: Limits::default(),
        });
    }
    Ok(users)
}

async fn read_groups(reading: &mut SqliteConnection, version: i64) -> Read<Vec<Group>> {
    let statement = match version >= WITH_GROUP_DATABASES {
        true => "SELECT name, created, has_database FROM groups ORDER BY name",
        false => "SELECT name, created, 0 FROM groups ORDER BY name",
    };
    let rows: Vec<(String, i64, bool)> = sqlx::query_as(statement).fetch_all(&mut *reading).await?;
    let mut groups: Vec<Group> = { rows.into_iter() }
        .map(|(name, created, has_database)| Group {
            has_database,
            ..Group::new(name, created)
        })
        .collect();
    let members: Vec<(String, String)> = sqlx::query_as("SELECT of_group, user FROM members")
        .fetch_all(reading)
        .await?;
    for (group, user) in members {
        if let Some(group) = groups.iter_mut().find(|it| it.name == group) {
            group.members.insert(user);
        }
    }
    Ok(groups)
}

async fn read_grants(reading: &mut SqliteConnection, version: i64) -> Read<Vec<(String, Grant)>> {
    let mut statements = vec![GRANTS];
    if version < WITH_GROUPS {
        statements = vec![FORMER_GRANTS];
        if has_table(reading, "public_grants").await? {
            statements.push(FORMER_PUBLIC);
        }
    }
    let mut grants = Vec::new();
    for statement in statements {
        let rows: Vec<(String, String, String, String)> =
            sqlx::query_as(statement).fetch_all(&mut *reading).await?;
        let named = |name: String| (!name.is_empty()).then_some(name);
        grants.extend(rows.into_iter().map(|(grantee, database, table, column)| {
            let (table, column) = (named(table), named(column));
            let grant = Grant {
                database,
                table,
                column,
            };
            (grantee, grant)
        }));
    }
    Ok(grants)
}

async fn read_releases(reading: &mut SqliteConnection) -> Read<Vec<Release>> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("SELECT database, table_name, condition FROM releases ORDER BY 1, 2")
            .fetch_all(reading)
            .await?;
    let releases = rows
        .into_iter()
        .map(|(database, table, condition)| Release {
            database,
            table,
            condition,
        });
    Ok(releases.collect())
}

async fn read_unreleased(reading: &mut SqliteConnection) -> Read<Vec<(String, Grant)>> {
    let rows: Vec<(String, String, String)> =
        sqlx::query_as("SELECT grantee, database, table_name FROM unreleased ORDER BY 1, 2, 3")
            .fetch_all(reading)
            .await?;
    let grants = rows.into_iter().map(|(grantee, database, table)| {
        let table = (!table.is_empty()).then_some(table);
        (grantee, Grant::new(&database, table.as_deref()))
    });
    Ok(grants.collect())
}

async fn read_limits(reading: &mut SqliteConnection) -> Read<Vec<(String, Limit, Option<u64>)>> {
    if !has_table(reading, "limits").await? {
        return Ok(Vec::new());
    }
    let rows: Vec<(String, String, i64)> = sqlx::query_as("SELECT user, name, value FROM limits")
        .fetch_all(reading)
        .await?;
    let known = rows.into_iter().filter_map(|(of, name, value)| {
        let limit = Limit::of_name(&name)?;
        Some((of, limit, u64::try_from(value).ok()))
    });
    Ok(known.collect())
}
