//! Who may enter, and what they may read: users, their passwords, tokens and grants, and groups of users.
//!
//! They are in a file of their own in the data directory, `users.sqlite`, which only its owner can read; and the sessions of
//! browsers in another, `sessions.sqlite`, and how often logins have failed in `failed_logins.sqlite`. May depend on `catalog`, whose
//! [`Rights`](catalog::Rights) are what a user's grants come to; knows of no protocol, but for the challenges that MySQL's clients answer.
//!
//! Invariants: a password is kept as hashes alone; a change is there as a whole or not at all; a file that is there and cannot be read
//! lets nobody in.

mod change_count;
mod daily;
mod database;
mod error;
mod failed_logins;
mod grant;
mod group;
mod limits;
mod list;
mod private_file;
mod release;
mod secret;
mod session_store;
mod user;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use change_count::ChangeCount;
pub use daily::DailyUsage;
pub use error::UsersError;
pub use failed_logins::{FailedLoginState, FailedLoginStore, FailedLogins};
pub use grant::Grant;
pub use group::{DatabaseLimits, Group, GroupDatabase};
pub use limits::{Limit, Limits};
pub use release::Release;
pub use secret::{NO_USER, NativePassword, Scramble, Token, fingerprint, verify_password};
pub use session_store::SessionStore;
pub use user::{ANONYMOUS, DatabaseOwner, PUBLIC, User, UserList, is_public};

const FILE_NAME: &str = "users.sqlite";

/// The users of a data directory. Nothing is opened, and no file is made, before somebody asks.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    changes: ChangeCount,
}

/// A state of the users; while it stays the same, so do they. `None` if there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsersState(Option<[u8; 4]>);

impl Users {
    /// The users of a data directory.
    pub fn of(data_dir: &Path) -> Self {
        let path = data_dir.join(FILE_NAME);
        Self {
            changes: ChangeCount::of(path.clone()),
            path,
        }
    }

    /// The state in which they are now. It takes a microsecond.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn state(&self) -> Result<UsersState, UsersError> {
        let changes = self.changes.read();
        changes
            .map(UsersState)
            .map_err(|source| UsersError::Unreadable {
                path: self.path.clone(),
                source,
            })
    }

    /// All users with their grants and tokens.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub async fn list(&self) -> Result<UserList, UsersError> {
        // Before they are read: a later change makes the next look see another state.
        let state = self.state()?;
        match state {
            UsersState(None) => Ok(UserList::empty(state)),
            UsersState(Some(_)) => list::list(&self.path, state).await,
        }
    }

    /// Adds a user, with a password or with none, of which nothing is kept for `mysql_native_password`.
    ///
    /// # Errors
    /// There is one of the name, or the name or the password cannot be used.
    pub async fn add(
        &self,
        name: &str,
        password: Option<&str>,
        is_admin: bool,
    ) -> Result<(), UsersError> {
        let native = NativePassword::NotKept;
        self.add_with(name, password, native, is_admin).await
    }

    /// The same, where something may be kept for `mysql_native_password`.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub async fn add_with(
        &self,
        name: &str,
        password: Option<&str>,
        native: NativePassword,
        is_admin: bool,
    ) -> Result<(), UsersError> {
        user::check_name(name)?;
        let secret = password.map(secret::Secret::of).transpose()?;
        let secret = secret.as_ref().map(|secret| (secret, native));
        let mut connection = database::open(&self.path).await?;
        database::add(&mut connection, name, secret, is_admin, now()).await
    }

    /// Gives a user another password, or none.
    ///
    /// # Errors
    /// There is no such user, or the password cannot be used.
    pub async fn set_password(
        &self,
        name: &str,
        password: Option<&str>,
        native: NativePassword,
    ) -> Result<(), UsersError> {
        let secret = password.map(secret::Secret::of).transpose()?;
        let secret = secret.as_ref().map(|secret| (secret, native));
        let mut connection = database::open_existing(&self.path, name).await?;
        database::set_password(&mut connection, name, secret).await
    }

    /// Removes a user with all grants and tokens.
    ///
    /// # Errors
    /// There is no such user.
    pub async fn remove(&self, name: &str) -> Result<(), UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        database::remove(&mut connection, name).await
    }

    /// Makes a group, to which nobody belongs yet. With a database its members change the tables of the database of its name: whether there
    /// is another's of that name is for the caller to know.
    ///
    /// # Errors
    /// There is a user or a group of the name, or it cannot be used; or there are no users.
    pub async fn create_group(&self, name: &str, has_database: bool) -> Result<(), UsersError> {
        user::check_name(name)?;
        if !self.path.exists() {
            return Err(UsersError::Nobody);
        }
        let mut connection = database::open_existing(&self.path, name).await?;
        group::create(&mut connection, name, has_database, now()).await
    }

    /// Gives a group a database, or takes it away, which leaves its tables. Whether there is another's of that name is for the caller to
    /// know.
    ///
    /// # Errors
    /// There is no such group.
    pub async fn set_group_database(&self, name: &str, has_it: bool) -> Result<(), UsersError> {
        if !self.path.exists() {
            let name = name.to_owned();
            return Err(UsersError::NoGroup { name });
        }
        let mut connection = database::open_existing(&self.path, name).await?;
        group::set_database(&mut connection, name, has_it).await
    }

    /// Removes a group with its grants and limits. Its members stay users.
    ///
    /// # Errors
    /// There is no such group.
    pub async fn remove_group(&self, name: &str) -> Result<(), UsersError> {
        if !self.path.exists() {
            let name = name.to_owned();
            return Err(UsersError::NoGroup { name });
        }
        let mut connection = database::open_existing(&self.path, name).await?;
        group::remove(&mut connection, name).await
    }

    /// Takes users into groups, or out of them: all, or none.
    ///
    /// # Errors
    /// There is no such user or group; or one who shall be taken out does not belong to it.
    pub async fn change_members(
        &self,
        groups: &[String],
        users: &[String],
        belong: bool,
    ) -> Result<(), UsersError> {
        let first = users.first().map_or("", String::as_str);
        let mut connection = database::open_existing(&self.path, first).await?;
        group::change_members(&mut connection, groups, users, belong).await
    }

    /// Lets a user, a group, or everybody ([`PUBLIC`]), read databases, tables or columns. What is granted already stays so.
    ///
    /// # Errors
    /// There is no such user or group.
    pub async fn grant(&self, name: &str, grants: &[Grant]) -> Result<(), UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        database::grant(&mut connection, grantee(name), grants).await
    }

    /// Takes grants back: all of them, or none if one was never given. That of a table takes those of its columns along.
    ///
    /// # Errors
    /// There is no such user or group, or it does not have one of these grants.
    pub async fn revoke(&self, name: &str, grants: &[Grant]) -> Result<(), UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        database::revoke(&mut connection, grantee(name), grants).await
    }

    /// Releases the rows of a table that meet a condition, or, without one, all. Whether it can be evaluated is for the caller to know.
    ///
    /// # Errors
    /// There are no users; or without a condition there was none.
    pub async fn set_release(
        &self,
        database: &str,
        table: &str,
        condition: Option<&str>,
    ) -> Result<(), UsersError> {
        if !self.path.exists() {
            return Err(UsersError::Nobody);
        }
        let mut connection = database::open(&self.path).await?;
        release::set(&mut connection, database, table, condition).await
    }

    /// Lets a user or the members of a group see the rows of databases or tables that are not released, or no longer.
    ///
    /// # Errors
    /// There is no such user or group, or it could not see them.
    pub async fn change_unreleased(
        &self,
        name: &str,
        grants: &[Grant],
        is_granted: bool,
    ) -> Result<(), UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        if is_public(name) {
            return Err(UsersError::NoUser {
                name: name.to_owned(),
            });
        }
        release::change_unreleased(&mut connection, name, grants, is_granted).await
    }

    /// Sets limits of a user or of each member of a group, or of everybody who has none of their own; `None` takes one away.
    ///
    /// # Errors
    /// There is no such user or group, or there are no users; or a limit is one of groups, and the name a user's.
    pub async fn set_limits(
        &self,
        name: Option<&str>,
        limits: &[(Limit, Option<u64>)],
    ) -> Result<(), UsersError> {
        if name.is_none() && !self.path.exists() {
            return Err(UsersError::Nobody);
        }
        let mut connection = database::open_existing(&self.path, name.unwrap_or_default()).await?;
        database::set_limits(&mut connection, name, limits).await
    }

    /// Makes a token, which is valid for so many seconds.
    ///
    /// # Errors
    /// There is no such user.
    pub async fn make_token(&self, name: &str, seconds: u64) -> Result<Token, UsersError> {
        let token = Token::random()?;
        let mut connection = database::open_existing(&self.path, name).await?;
        let expires = now().saturating_add(seconds.min(i64::MAX as u64) as i64);
        database::add_token(&mut connection, name, &token, now(), expires).await?;
        Ok(token)
    }

    /// Takes all tokens of a user back. Returns how many there were.
    ///
    /// # Errors
    /// There is no such user.
    pub async fn revoke_tokens(&self, name: &str) -> Result<u64, UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        database::remove_tokens(&mut connection, name).await
    }
}

/// The name under which the grants of a user, a group or everybody are stored.
fn grantee(name: &str) -> &str {
    match is_public(name) {
        true => database::EVERYBODY,
        false => name,
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn grant(database: &str, table: Option<&str>) -> Grant {
        Grant::new(database, table)
    }

    #[tokio::test]
    async fn users_are_added_changed_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        assert!(users.list().await.unwrap().is_empty());
        assert!(matches!(
            users.grant("ann", &[]).await,
            Err(UsersError::NoUser { .. })
        ));
        assert!(!directory.path().join(FILE_NAME).exists());
        users.add("ann", Some("pw"), false).await.unwrap();
        let mode = directory.path().join(FILE_NAME).metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        for again in ["ann", "ANN"] {
            let error = users.add(again, None, false).await.unwrap_err();
            assert!(matches!(error, UsersError::Exists { .. }), "{error}");
        }
        let before = users.state().unwrap();
        users
            .grant("ann", &[grant("Sky", None), grant("deep", Some("Star"))])
            .await
            .unwrap();
        users.grant("ann", &[grant("sky", None)]).await.unwrap();
        assert_ne!(users.state().unwrap(), before);
        let list = users.list().await.unwrap();
        let ann = list.user("ann").unwrap();
        assert_eq!(ann.grants.len(), 2);
        assert!(ann.rights.may_read("SKY", "x") && ann.rights.may_read("deep", "star"));
        assert!(!ann.rights.may_read("deep", "Epoch") && ann.rights.may_read("ann", "mine"));
        let error = users
            .revoke("ann", &[grant("sky", None), grant("x", None)])
            .await;
        assert!(matches!(error, Err(UsersError::NoGrant { .. })));
        assert_eq!(
            users
                .list()
                .await
                .unwrap()
                .user("ann")
                .unwrap()
                .grants
                .len(),
            2
        );
        users.revoke("ann", &[grant("sky", None)]).await.unwrap();
        let list = users.list().await.unwrap();
        assert!(!list.user("ann").unwrap().rights.may_read("sky", "x"));
        users.remove("ann").await.unwrap();
        assert!(users.list().await.unwrap().is_empty());
        users.add("ann", None, true).await.unwrap();
        let list = users.list().await.unwrap();
        assert!(list.user("ann").unwrap().grants.is_empty());
        assert!(list.user("ann").unwrap().rights.may_read("any", "thing"));
    }

    #[tokio::test]
    async fn passwords_and_tokens_are_verified() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        users.add("ann", Some("right"), false).await.unwrap();
        users.add("bob", None, false).await.unwrap();
        let token = users.make_token("bob", 60).await.unwrap();
        let old = users.make_token("bob", 0).await.unwrap();
        let list = users.list().await.unwrap();
        let ann = list.user("ann").unwrap();
        assert!(verify_password(ann.password.as_deref(), "right"));
        assert!(!verify_password(ann.password.as_deref(), "wrong"));
        assert!(!verify_password(
            list.user("bob").unwrap().password.as_deref(),
            ""
        ));
        assert_eq!(list.of_token(token.text()).unwrap().name, "bob");
        assert!(list.of_token(old.text()).is_none());
        assert!(list.of_token("mrd_x").is_none());
        let native = NativePassword::AsBefore;
        users
            .set_password("ann", Some("new"), native)
            .await
            .unwrap();
        let list = users.list().await.unwrap();
        assert!(verify_password(
            list.user("ann").unwrap().password.as_deref(),
            "new"
        ));
        assert_eq!(users.revoke_tokens("bob").await.unwrap(), 2);
        let list = users.list().await.unwrap();
        assert!(list.of_token(token.text()).is_none());
    }

    #[tokio::test]
    async fn what_native_clients_need_is_kept_only_where_that_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        users.add("ann", Some("pw"), false).await.unwrap();
        let native = NativePassword::Kept;
        users
            .add_with("bob", Some("pw"), native, false)
            .await
            .unwrap();
        users.add_with("carl", None, native, false).await.unwrap();
        let kept = async || {
            let list = users.list().await.unwrap();
            { list.iter() }
                .filter_map(|user| user.native)
                .collect::<Vec<_>>()
        };
        assert_eq!(kept().await, [secret::Secret::of("pw").unwrap().native]);
        for (name, native) in [
            ("ann", NativePassword::AsBefore),
            ("bob", NativePassword::AsBefore),
        ] {
            users.set_password(name, Some("new"), native).await.unwrap();
        }
        assert_eq!(kept().await, [secret::Secret::of("new").unwrap().native]);
        users.set_password("ann", Some("a"), native).await.unwrap();
        users.set_password("carl", Some("c"), native).await.unwrap();
        assert_eq!(kept().await.len(), 3);
        let native = NativePassword::NotKept;
        users.set_password("ann", Some("a"), native).await.unwrap();
        let native = NativePassword::Kept;
        users.set_password("bob", None, native).await.unwrap();
        assert_eq!(kept().await, [secret::Secret::of("c").unwrap().native]);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE_NAME), [7; 4096]).unwrap();
        assert!(Users::of(directory.path()).list().await.is_err());
    }

    #[tokio::test]
    async fn names_that_cannot_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        for name in [
            "",
            "a b",
            "a/b",
            "information_schema",
            "a'",
            &"x".repeat(33),
        ] {
            let error = users.add(name, None, false).await.unwrap_err();
            assert!(
                matches!(error, UsersError::BadName { .. }),
                "{name}: {error}"
            );
        }
        assert!(users.add("ann", Some(""), false).await.is_err());
    }
    #[tokio::test]
    async fn members_have_what_their_groups_have() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        let error = users.create_group("team", false).await.unwrap_err();
        assert!(matches!(error, UsersError::Nobody), "{error}");
        for name in ["ann", "bob"] {
            users.add(name, None, false).await.unwrap();
        }
        users.create_group("team", false).await.unwrap();
        users.create_group("wide", false).await.unwrap();
        for taken in ["Team", "ANN"] {
            assert!(users.create_group(taken, false).await.is_err(), "{taken}");
        }
        assert!(users.add("TEAM", None, false).await.is_err());
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let (team, both) = (names(&["team"]), names(&["ann", "bob"]));
        users.change_members(&team, &both, true).await.unwrap();
        users.change_members(&team, &both, true).await.unwrap();
        let error = users
            .change_members(&team, &names(&["ann", "carl"]), false)
            .await;
        assert!(matches!(error, Err(UsersError::NoMember { .. })));
        let error = users
            .change_members(&team, &names(&["ann", "carl"]), true)
            .await;
        assert!(matches!(error, Err(UsersError::NoUser { .. })));
        let wide = names(&["wide"]);
        users.change_members(&wide, &both[..1], true).await.unwrap();
        let grants = [
            grant("sky", Some("Object")),
            Grant::of_column("deep", "Star", "RA"),
        ];
        users.grant("team", &grants).await.unwrap();
        for (of, most) in [(Some("team"), 5), (Some("wide"), 9), (None, 7)] {
            users
                .set_limits(of, &[(Limit::Rows, Some(most))])
                .await
                .unwrap();
        }
        let list = users.list().await.unwrap();
        let (ann, bob) = (list.user("ann").unwrap(), list.user("bob").unwrap());
        assert_eq!(ann.groups, ["team", "wide"]);
        assert!(bob.rights.may_read("sky", "object") && !bob.rights.may_read("sky", "x"));
        assert!(bob.rights.columns("deep", "Star").unwrap().has("ra"));
        assert!(!bob.rights.may_read_whole("deep", "Star") && bob.grants.is_empty());
        assert_eq!(ann.limits.get(Limit::Rows), Some(9));
        assert_eq!(bob.limits.get(Limit::Rows), Some(5));
        users
            .change_members(&team, &both[1..], false)
            .await
            .unwrap();
        users.remove("ann").await.unwrap();
        let list = users.list().await.unwrap();
        assert!(!list.user("bob").unwrap().rights.may_read("sky", "object"));
        assert!(list.groups().all(|group| group.members.is_empty()));
        users.remove_group("team").await.unwrap();
        users.create_group("team", false).await.unwrap();
        let list = users.list().await.unwrap();
        let team = list.group("team").unwrap();
        assert!(team.grants.is_empty() && team.limits == Limits::default());
    }

    /// A file as the versions before made them: it is read as it is, and brought up to date by the first change.
    #[tokio::test]
    async fn files_of_former_versions_are_read_and_migrated() {
        for version in 1..=6 {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join(FILE_NAME);
            database::make_former(&path, version).await;
            let users = Users::of(directory.path());
            for _ in 0..2 {
                let list = users.list().await.unwrap();
                let rights = &list.user("ann").unwrap().rights;
                assert!(rights.may_read_all_of("sky") && rights.may_read_whole("deep", "star"));
                assert_eq!(rights.may_read("open", "t"), version >= 3);
                assert_eq!(list.public().len(), usize::from(version >= 3));
                assert_eq!(rights.may_read("wide", "t"), version >= 4);
                assert_eq!(list.releases().len(), usize::from(version >= 5));
                assert!(list.user("ann").unwrap().group_databases.is_empty());
                assert_eq!(list.user("ann").unwrap().native, None);
                let rows = list.user("ann").unwrap().own_limits.get(Limit::Rows);
                assert_eq!(rows, (version >= 2).then_some(8));
                // The second time of the newest version.
                if list.group("team").is_none() {
                    users.create_group("team", false).await.unwrap();
                }
            }
            assert!(users.list().await.unwrap().group("team").is_some());
            users.revoke("ann", &[grant("sky", None)]).await.unwrap();
        }
    }
    #[tokio::test]
    async fn rows_are_released_to_who_has_no_right_to_all() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        assert!(users.set_release("sky", "t", Some("x < 1")).await.is_err());
        for (name, is_admin) in [
            ("ann", false),
            ("bob", false),
            ("carl", false),
            ("boss", true),
        ] {
            users.add(name, None, is_admin).await.unwrap();
        }
        users.create_group("team", false).await.unwrap();
        let names = |name: &str| vec![name.to_owned()];
        let (team, carl) = (names("team"), names("carl"));
        users.change_members(&team, &carl, true).await.unwrap();
        for (database, table) in [("Sky", "T"), ("sky", "u"), ("ann", "mine")] {
            let set = users.set_release(database, table, Some("x < 1"));
            set.await.unwrap();
        }
        let of = |grant| [grant];
        let one = of(grant("sky", Some("T")));
        users.change_unreleased("ann", &one, true).await.unwrap();
        let all = of(grant("SKY", None));
        users.change_unreleased("team", &all, true).await.unwrap();
        let list = users.list().await.unwrap();
        let hidden = |name: &str| {
            let releases = &list.user(name).unwrap().releases;
            [("sky", "t"), ("sky", "U"), ("ann", "mine")]
                .map(|(d, t)| releases.condition(d, t).is_some())
        };
        assert_eq!(hidden("ann"), [false, true, false]);
        assert_eq!(hidden("bob"), [true, true, true]);
        assert_eq!(hidden("carl"), [false, false, true]);
        assert_eq!(hidden("boss"), [false, false, false]);
        assert!(users.change_unreleased("PUBLIC", &all, true).await.is_err());
        assert!(users.change_unreleased("bob", &all, false).await.is_err());
        users.change_unreleased("ann", &one, false).await.unwrap();
        users.set_release("sky", "u", None).await.unwrap();
        assert!(users.set_release("sky", "u", None).await.is_err());
        let list = users.list().await.unwrap();
        let ann = &list.user("ann").unwrap().releases;
        assert_eq!(ann.condition("sky", "t"), Some("x < 1"));
        assert_eq!(
            (ann.condition("sky", "u"), list.releases().len()),
            (None, 2)
        );
    }
}
