//! Who may enter, and what they may read: users, their passwords, tokens and grants.
//!
//! They are in a file of their own in the data directory, `users.sqlite`, which only its owner can read. May depend on `catalog`, whose
//! [`Rights`](catalog::Rights) are what a user's grants come to; knows of no protocol, but for the challenge that MySQL's clients answer.
//!
//! Invariants: a password is kept as hashes alone; a change is there as a whole or not at all; a file that is there and cannot be read
//! lets nobody in.

mod database;
mod error;
mod limits;
mod secret;
mod user;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use database::Grant;
pub use error::UsersError;
pub use limits::{Limit, Limits};
pub use secret::{NO_USER, Scramble, Token, fingerprint, verify_password};
pub use user::{ANONYMOUS, PUBLIC, User, UserList, is_public};

const FILE_NAME: &str = "users.sqlite";
/// Where SQLite counts the changes of a file (its file format, section 1.3.7), 4 bytes.
const CHANGES_AT: u64 = 24;

/// The users of a data directory. Nothing is opened, and no file is made, before somebody asks.
#[derive(Debug)]
pub struct Users {
    path: PathBuf,
    /// The file, once it was there.
    file: Mutex<Option<File>>,
}

/// A state of the users; while it stays the same, so do they. `None` if there is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsersState(Option<[u8; 4]>);

impl Users {
    /// The users of a data directory.
    pub fn of(data_dir: &Path) -> Self {
        Self {
            path: data_dir.join(FILE_NAME),
            file: Mutex::default(),
        }
    }

    /// The state in which they are now. It takes a microsecond.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn state(&self) -> Result<UsersState, UsersError> {
        let failed = |source| UsersError::Unreadable {
            path: self.path.clone(),
            source,
        };
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            match File::open(&self.path) {
                Ok(opened) => *file = Some(opened),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    return Ok(UsersState(None));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        let mut changes = [0; 4];
        if let Some(file) = file.as_ref() {
            match file.read_exact_at(&mut changes, CHANGES_AT) {
                // Somebody is making it.
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {}
                other => other.map_err(failed)?,
            }
        }
        Ok(UsersState(Some(changes)))
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
            UsersState(Some(_)) => database::list(&self.path, state).await,
        }
    }

    /// Adds a user, with a password or with none.
    ///
    /// # Errors
    /// There is one of the name, or the name or the password cannot be used.
    pub async fn add(
        &self,
        name: &str,
        password: Option<&str>,
        is_admin: bool,
    ) -> Result<(), UsersError> {
        user::check_name(name)?;
        let secret = password.map(secret::Secret::of).transpose()?;
        let mut connection = database::open(&self.path).await?;
        database::add(&mut connection, name, secret.as_ref(), is_admin, now()).await
    }

    /// Gives a user another password, or none.
    ///
    /// # Errors
    /// There is no such user, or the password cannot be used.
    pub async fn set_password(&self, name: &str, password: Option<&str>) -> Result<(), UsersError> {
        let secret = password.map(secret::Secret::of).transpose()?;
        let mut connection = database::open_existing(&self.path, name).await?;
        database::set_password(&mut connection, name, secret.as_ref()).await
    }

    /// Removes a user with all grants and tokens.
    ///
    /// # Errors
    /// There is no such user.
    pub async fn remove(&self, name: &str) -> Result<(), UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        database::remove(&mut connection, name).await
    }

    /// Lets a user, or everybody ([`PUBLIC`]), read databases or tables. What is granted already stays so.
    ///
    /// # Errors
    /// There is no such user.
    pub async fn grant(&self, name: &str, grants: &[Grant]) -> Result<(), UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        if is_public(name) {
            return database::change_public(&mut connection, grants, true).await;
        }
        database::grant(&mut connection, name, grants).await
    }

    /// Takes grants back: all of them, or none if one was never given.
    ///
    /// # Errors
    /// There is no such user, or it does not have one of these grants.
    pub async fn revoke(&self, name: &str, grants: &[Grant]) -> Result<(), UsersError> {
        let mut connection = database::open_existing(&self.path, name).await?;
        if is_public(name) {
            return database::change_public(&mut connection, grants, false).await;
        }
        database::revoke(&mut connection, name, grants).await
    }

    /// Sets limits of a user, or of everybody who has none of their own; `None` takes one away.
    ///
    /// # Errors
    /// There is no such user, or there are no users.
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
        users.set_password("ann", Some("new")).await.unwrap();
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
}
