//! Groups: names to which users belong, with grants and limits that count for all of these. MySQL calls them roles.

use std::collections::BTreeSet;

use sqlx::Connection;

use catalog::{Rights, fold_name};

use crate::database::{Result, UsersFile, change, check_is_free, failed};
use crate::{Grant, Limits, UsersError};

/// A group of users. It shares the space of names with users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The name.
    pub name: String,
    /// Seconds since 1970 at which the group was made.
    pub created: i64,
    /// The users that belong to it.
    pub members: BTreeSet<String>,
    /// What was granted to it.
    pub grants: Vec<Grant>,
    /// The databases and tables of which its members see rows that are not released.
    pub unreleased: Vec<Grant>,
    /// How much each of its members may take.
    pub limits: Limits,
}

impl Group {
    pub(crate) fn new(name: String, created: i64) -> Self {
        Self {
            name,
            created,
            members: BTreeSet::new(),
            grants: Vec::new(),
            unreleased: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// What its grants come to.
    pub fn rights(&self) -> Rights {
        let mut rights = Rights::none();
        for grant in &self.grants {
            grant.add_to(&mut rights);
        }
        rights
    }
}

pub(crate) async fn create(opened: &mut UsersFile, name: &str, created: i64) -> Result<()> {
    let path = opened.path.clone();
    let begun = opened.connection.begin_with("BEGIN IMMEDIATE").await;
    let mut change = begun.map_err(failed(&path))?;
    check_is_free(&mut change, &path, name).await?;
    sqlx::query("INSERT INTO groups (name, folded, created) VALUES (?, ?, ?)")
        .bind(name)
        .bind(fold_name(name))
        .bind(created)
        .execute(&mut *change)
        .await
        .map_err(failed(&path))?;
    change.commit().await.map_err(failed(&path))
}

pub(crate) async fn remove(opened: &mut UsersFile, name: &str) -> Result<()> {
    let path = opened.path.clone();
    let begun = opened.connection.begin_with("BEGIN IMMEDIATE").await;
    let mut change = begun.map_err(failed(&path))?;
    let removed = sqlx::query("DELETE FROM groups WHERE name = ?")
        .bind(name)
        .execute(&mut *change)
        .await
        .map_err(failed(&path))?;
    of_group(name, removed.rows_affected())?;
    for of_it in [
        "DELETE FROM limits WHERE user = ?",
        "DELETE FROM grants WHERE grantee = ?",
        "DELETE FROM unreleased WHERE grantee = ?",
    ] {
        sqlx::query(of_it)
            .bind(name)
            .execute(&mut *change)
            .await
            .map_err(failed(&path))?;
    }
    change.commit().await.map_err(failed(&path))
}

/// Turns a change of no row into the error that there is no such group.
fn of_group(name: &str, changed: u64) -> Result<()> {
    match changed {
        0 => Err(UsersError::NoGroup {
            name: name.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Takes users into groups, and out of them: all, or none if one of the names is nobody's.
pub(crate) async fn change_members(
    opened: &mut UsersFile,
    groups: &[String],
    users: &[String],
    belong: bool,
) -> Result<()> {
    let path = opened.path.clone();
    let Some(first) = users.first() else {
        return Ok(());
    };
    let mut change = change(&mut opened.connection, &path, first).await?;
    for group in groups {
        let found: i64 = sqlx::query_scalar("SELECT count(*) FROM groups WHERE name = ?")
            .bind(group)
            .fetch_one(&mut *change)
            .await
            .map_err(failed(&path))?;
        of_group(group, found as u64)?;
        for user in users {
            let statement = match belong {
                true => {
                    "INSERT INTO members (of_group, user) SELECT ?1, name FROM users WHERE name = ?2
                     ON CONFLICT DO UPDATE SET user = excluded.user"
                }
                false => "DELETE FROM members WHERE of_group = ?1 AND user = ?2",
            };
            let changed = sqlx::query(statement)
                .bind(group)
                .bind(user)
                .execute(&mut *change)
                .await
                .map_err(failed(&path))?;
            match (changed.rows_affected(), belong) {
                (0, true) => return Err(UsersError::NoUser { name: user.clone() }),
                (0, false) => {
                    return Err(UsersError::NoMember {
                        group: group.clone(),
                        user: user.clone(),
                    });
                }
                _ => {}
            }
        }
    }
    change.commit().await.map_err(failed(&path))
}
