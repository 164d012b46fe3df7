//! Groups: names to which users belong, with grants and limits that count for all of these. MySQL calls them roles.

use std::collections::BTreeSet;

use sqlx::Connection;

use catalog::{Rights, fold_name};

use crate::database::{Result, UsersFile, change, check_is_free, failed};
use crate::{Grant, Limit, Limits, UsersError};

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
    /// How much each of its members may take, and of [`Limit::GroupStored`] the group.
    pub limits: Limits,
    /// Whether it has a database, of its name, whose tables its members change.
    pub has_database: bool,
    /// For how many days a table in its database is kept, and how many bytes these tables may have: the own limits, else those of
    /// everybody.
    pub(crate) of_database: DatabaseLimits,
}

/// The limits of a group's database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatabaseLimits {
    /// Bytes of its tables.
    pub stored: Option<u64>,
    /// Days for which a table is kept.
    pub lifetime: Option<u64>,
}

/// The database of a group to which a user belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupDatabase {
    /// The name, which is the group's.
    pub name: String,
    /// Its limits.
    pub limits: DatabaseLimits,
}

impl GroupDatabase {
    /// What [`Limit::GroupStored`] limits of it.
    pub fn meaning(&self) -> String {
        format!(
            "bytes of the tables in the database of the group {}",
            self.name
        )
    }
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
            has_database: false,
            of_database: DatabaseLimits::default(),
        }
    }

    pub(crate) fn set_database_limits(&mut self, everybody: &Limits) {
        let limits = self.limits.or(everybody);
        self.of_database = DatabaseLimits {
            stored: limits.get(Limit::GroupStored),
            lifetime: limits.get(Limit::Lifetime),
        };
    }

    /// Its database, if it has one.
    pub fn database(&self) -> Option<GroupDatabase> {
        self.has_database.then(|| GroupDatabase {
            name: self.name.clone(),
            limits: self.of_database,
        })
    }

    /// What its grants come to, with its own database.
    pub fn rights(&self) -> Rights {
        let mut rights = Rights::none();
        if self.has_database {
            rights.add(&self.name, None);
        }
        for grant in &self.grants {
            grant.add_to(&mut rights);
        }
        rights
    }
}

pub(crate) async fn create(
    opened: &mut UsersFile,
    name: &str,
    has_database: bool,
    created: i64,
) -> Result<()> {
    let path = opened.path.clone();
    let begun = opened.connection.begin_with("BEGIN IMMEDIATE").await;
    let mut change = begun.map_err(failed(&path))?;
    check_is_free(&mut change, &path, name).await?;
    sqlx::query("INSERT INTO groups (name, folded, created, has_database) VALUES (?, ?, ?, ?)")
        .bind(name)
        .bind(fold_name(name))
        .bind(created)
        .bind(has_database)
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

/// Gives a group a database, or takes it away.
pub(crate) async fn set_database(opened: &mut UsersFile, name: &str, has_it: bool) -> Result<()> {
    let changed = sqlx::query("UPDATE groups SET has_database = ? WHERE name = ?")
        .bind(has_it)
        .bind(name)
        .execute(&mut opened.connection)
        .await
        .map_err(failed(&opened.path))?;
    of_group(name, changed.rows_affected())
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

#[cfg(test)]
mod tests {
    use crate::{DatabaseOwner, Grant, Limit, Users, UsersError};

    #[tokio::test]
    async fn members_own_the_database_of_their_group() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        for name in ["ann", "bob", "carl"] {
            users.add(name, None, false).await.unwrap();
        }
        users.create_group("Survey", true).await.unwrap();
        users.create_group("plain", false).await.unwrap();
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let both = names(&["Survey", "plain"]);
        let (ann, survey) = (names(&["ann"]), names(&["Survey"]));
        users.change_members(&both, &ann, true).await.unwrap();
        users
            .change_members(&survey, &names(&["bob"]), true)
            .await
            .unwrap();
        users
            .set_release("survey", "t", Some("x < 1"))
            .await
            .unwrap();
        for (of, limit, most) in [
            (None, Limit::GroupStored, 5),
            (None, Limit::Lifetime, 9),
            (Some("Survey"), Limit::Stored, 7),
        ] {
            users.set_limits(of, &[(limit, Some(most))]).await.unwrap();
        }
        let error = users
            .set_limits(Some("ann"), &[(Limit::GroupStored, Some(1))])
            .await;
        assert!(matches!(error, Err(UsersError::LimitOfGroups { .. })));

        let list = users.list().await.unwrap();
        let [ann_now, bob, carl] = ["ann", "bob", "carl"].map(|name| list.user(name).unwrap());
        for (user, is_member) in [(ann_now, true), (bob, true), (carl, false)] {
            assert_eq!(user.owns("SURVEY"), is_member);
            assert_eq!(user.rights.may_read_all_of("survey"), is_member);
            assert_eq!(
                user.releases.condition("survey", "t").is_none(),
                is_member,
                "{}",
                user.name
            );
            assert!(user.owns(&user.name) && !user.owns("plain"));
            assert_eq!(user.limits.get(Limit::GroupStored), None);
        }
        let limits = ann_now.group_database("survey").unwrap().limits;
        assert_eq!((limits.stored, limits.lifetime), (Some(5), Some(9)));
        assert_eq!(ann_now.limits.get(Limit::Stored), Some(7));
        let owner = list.owner_of("survey").unwrap();
        assert!(matches!(owner, DatabaseOwner::Group(_)));
        assert_eq!((owner.name(), owner.lifetime()), ("Survey", Some(9)));
        assert!(list.owner_of("plain").is_none() && list.owner_of("BOB").is_some());
        assert!(
            list.group("Survey")
                .unwrap()
                .rights()
                .may_read("survey", "t")
        );

        // Who leaves has nothing of it; nor has anybody when it is taken away, or with the group.
        users.change_members(&survey, &ann, false).await.unwrap();
        let list = users.list().await.unwrap();
        let ann_now = list.user("ann").unwrap();
        assert!(!ann_now.owns("survey") && !ann_now.rights.may_see_database("survey"));
        users.set_group_database("Survey", false).await.unwrap();
        let list = users.list().await.unwrap();
        let bob = list.user("bob").unwrap();
        assert!(!bob.owns("survey") && !bob.rights.may_see_database("survey"));
        assert_eq!(bob.groups, ["Survey"]);
        users.set_group_database("Survey", true).await.unwrap();
        users
            .grant("carl", &[Grant::new("survey", None)])
            .await
            .unwrap();
        users.remove_group("Survey").await.unwrap();
        let list = users.list().await.unwrap();
        assert!(list.owner_of("survey").is_none());
        assert!(!list.user("bob").unwrap().rights.may_see_database("survey"));
        assert!(list.user("carl").unwrap().rights.may_read("survey", "t"));
        let error = users.set_group_database("Survey", true).await;
        assert!(matches!(error, Err(UsersError::NoGroup { .. })));
    }
}
