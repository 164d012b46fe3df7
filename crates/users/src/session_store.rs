//! The sessions of browsers, which all servers of a data directory share: `sessions.sqlite` of the data directory.
//!
//! It is a file of its own, since a change of `users.sqlite` has every server look at all users again, and since no backup has it: a session
//! that has ended does not come back. A cookie is kept as its hash alone. A session that one server has begun or ended is begun or ended at
//! all of them with the next request.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sqlx::sqlite::SqliteSynchronous;
use sqlx::{Connection, SqliteConnection};

use crate::change_count::ChangeCount;
use crate::{User, UserList, UsersError, fingerprint, now, private_file};

const FILE_NAME: &str = "sessions.sqlite";
/// Sessions that are kept.
const MOST: i64 = 10_000;
/// Random bytes of a cookie.
const RANDOM: usize = 24;
const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS sessions (
    -- Of the cookie.
    hash BLOB NOT NULL PRIMARY KEY,
    user TEXT NOT NULL,
    -- The fingerprint of what is kept of the password: with another password the session is over.
    password BLOB NOT NULL,
    -- Seconds since 1970.
    ends INTEGER NOT NULL
) STRICT";

/// The sessions, and what was last read of them.
#[derive(Debug)]
pub struct SessionStore {
    path: PathBuf,
    changes: ChangeCount,
    read: Mutex<Option<Arc<ReadSessions>>>,
}

/// All sessions as they were at a count of changes.
#[derive(Debug)]
struct ReadSessions {
    changes: [u8; 4],
    by_hash: HashMap<Vec<u8>, BrowserSession>,
}

#[derive(Debug)]
struct BrowserSession {
    user: String,
    password: Vec<u8>,
    ends: i64,
}

impl SessionStore {
    /// The sessions of a data directory. No file is made before one begins.
    pub fn of(data_dir: &Path) -> Self {
        let path = data_dir.join(FILE_NAME);
        Self {
            changes: ChangeCount::of(path.clone()),
            path,
            read: Mutex::default(),
        }
    }

    /// Begins a session of a user who has logged in with a password. Returns the value of its cookie. Of too many sessions the one that ends
    /// first makes room.
    ///
    /// # Errors
    /// The file cannot be written, or the system has no random numbers.
    pub async fn begin(&self, user: &User, lasts: Duration) -> Result<String, UsersError> {
        let mut random = [0; RANDOM];
        getrandom::fill(&mut random).map_err(|_| UsersError::NoRandomness)?;
        let cookie = URL_SAFE_NO_PAD.encode(random);
        let failed = |source| self.failed(source);
        let mut connection = self.open().await?;
        let begun = connection.begin_with("BEGIN IMMEDIATE").await;
        let mut change = begun.map_err(failed)?;
        let lasts = i64::try_from(lasts.as_secs()).unwrap_or(i64::MAX);
        sqlx::query("INSERT INTO sessions (hash, user, password, ends) VALUES (?, ?, ?, ?)")
            .bind(hash(&cookie).as_slice())
            .bind(&user.name)
            .bind(password_of(user).as_slice())
            .bind(now().saturating_add(lasts))
            .execute(&mut *change)
            .await
            .map_err(failed)?;
        sqlx::query(
            "DELETE FROM sessions WHERE ends <= ?1 OR hash IN
             (SELECT hash FROM sessions ORDER BY ends DESC, rowid DESC LIMIT -1 OFFSET ?2)",
        )
        .bind(now())
        .bind(MOST)
        .execute(&mut *change)
        .await
        .map_err(failed)?;
        change.commit().await.map_err(failed)?;
        Ok(cookie)
    }

    /// Whose session a cookie is of, if it is of one that has not ended.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub async fn user<'a>(
        &self,
        cookie: &str,
        list: &'a UserList,
    ) -> Result<Option<&'a Arc<User>>, UsersError> {
        let Some(sessions) = self.sessions().await? else {
            return Ok(None);
        };
        let found = sessions.by_hash.get(hash(cookie).as_slice());
        let found = found.filter(|session| session.ends > now());
        Ok(found.and_then(|session| {
            let user = list.user(&session.user)?;
            (password_of(user).as_slice() == session.password).then_some(user)
        }))
    }

    /// Ends the session of a cookie, if it is of one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub async fn end(&self, cookie: &str) -> Result<(), UsersError> {
        if self.sessions().await?.is_none() {
            return Ok(());
        }
        let mut connection = self.open().await?;
        let ended = sqlx::query("DELETE FROM sessions WHERE hash = ?")
            .bind(hash(cookie).as_slice())
            .execute(&mut connection)
            .await;
        ended.map_err(|source| self.failed(source)).map(drop)
    }

    /// The sessions as they are now; `None` if there never was one.
    async fn sessions(&self) -> Result<Option<Arc<ReadSessions>>, UsersError> {
        // Before they are read: a later change makes the next look see another count.
        let changes = self.changes.read();
        let changes = changes.map_err(|source| UsersError::Unreadable {
            path: self.path.clone(),
            source,
        })?;
        let Some(changes) = changes else {
            return Ok(None);
        };
        let read = self.last_read().clone();
        if let Some(read) = read.filter(|read| read.changes == changes) {
            return Ok(Some(read));
        }
        let mut connection = self.open().await?;
        let rows: Vec<(Vec<u8>, String, Vec<u8>, i64)> =
            sqlx::query_as("SELECT hash, user, password, ends FROM sessions")
                .fetch_all(&mut connection)
                .await
                .map_err(|source| self.failed(source))?;
        let session = |(hash, user, password, ends)| {
            let session = BrowserSession {
                user,
                password,
                ends,
            };
            (hash, session)
        };
        let read = Arc::new(ReadSessions {
            changes,
            by_hash: rows.into_iter().map(session).collect(),
        });
        *self.last_read() = Some(Arc::clone(&read));
        Ok(Some(read))
    }

    fn last_read(&self) -> std::sync::MutexGuard<'_, Option<Arc<ReadSessions>>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) -> Result<SqliteConnection, UsersError> {
        let failed = |source| self.failed(source);
        private_file::open(&self.path, SCHEMA, SqliteSynchronous::Full, failed).await
    }

    fn failed(&self, source: sqlx::Error) -> UsersError {
        UsersError::Sessions {
            path: self.path.clone(),
            source,
        }
    }
}

/// What is kept of a cookie.
fn hash(cookie: &str) -> [u8; 32] {
    fingerprint(&[cookie])
}

/// What is kept of a user's password: who has none differs from everybody who has one.
fn password_of(user: &User) -> [u8; 32] {
    match &user.password {
        Some(password) => fingerprint(&["password", password]),
        None => fingerprint(&["none"]),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::Users;

    const HOUR: Duration = Duration::from_secs(3600);

    async fn name(store: &SessionStore, cookie: &str, users: &Users) -> Option<String> {
        let list = users.list().await.unwrap();
        let user = store.user(cookie, &list).await.unwrap();
        user.map(|user| user.name.clone())
    }

    #[tokio::test]
    async fn a_session_is_the_same_at_all_servers() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        for name in ["ann", "bob"] {
            users.add(name, Some("pw"), false).await.unwrap();
        }
        let [one, other] = [(); 2].map(|()| SessionStore::of(directory.path()));
        assert_eq!(name(&one, "x", &users).await, None);
        one.end("x").await.unwrap();
        let file = directory.path().join(FILE_NAME);
        assert!(!file.exists());
        let list = users.list().await.unwrap();
        let of = |name: &str| Arc::clone(list.user(name).unwrap());
        let ann = one.begin(&of("ann"), HOUR).await.unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        let bytes = std::fs::read(&file).unwrap();
        let has_cookie = bytes.windows(ann.len()).any(|it| it == ann.as_bytes());
        assert!(!has_cookie);
        for store in [&one, &other] {
            assert_eq!(name(store, &ann, &users).await.as_deref(), Some("ann"));
            assert_eq!(name(store, "x", &users).await, None);
        }
        let bob = other.begin(&of("bob"), HOUR).await.unwrap();
        assert_eq!(name(&one, &bob, &users).await.as_deref(), Some("bob"));
        other.end(&ann).await.unwrap();
        for store in [&one, &other] {
            assert_eq!(name(store, &ann, &users).await, None);
            assert_eq!(name(store, &bob, &users).await.as_deref(), Some("bob"));
        }
        users
            .set_password("bob", Some("pw"), crate::NativePassword::AsBefore)
            .await
            .unwrap();
        assert_eq!(name(&one, &bob, &users).await, None);
    }

    #[tokio::test]
    async fn sessions_end_with_their_time() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        users.add("ann", Some("pw"), false).await.unwrap();
        let list = users.list().await.unwrap();
        let ann = Arc::clone(list.user("ann").unwrap());
        let store = SessionStore::of(directory.path());
        let over = store.begin(&ann, Duration::ZERO).await.unwrap();
        assert_eq!(name(&store, &over, &users).await, None);
        let lasting = store.begin(&ann, HOUR).await.unwrap();
        assert_eq!(name(&store, &lasting, &users).await.as_deref(), Some("ann"));
        // What is over is removed.
        let sessions = store.sessions().await.unwrap().unwrap();
        assert_eq!(sessions.by_hash.len(), 1);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_lets_nobody_in() {
        let directory = tempfile::tempdir().unwrap();
        let users = Users::of(directory.path());
        std::fs::write(directory.path().join(FILE_NAME), [7; 4096]).unwrap();
        let store = SessionStore::of(directory.path());
        let list = users.list().await.unwrap();
        let error = store.user("x", &list).await;
        assert!(matches!(error, Err(UsersError::Sessions { .. })));
    }
}
