//! Who is served, and what each sees: the users of the data directory, their logins, and the archive and the sessions of each.
//!
//! While there are no users nobody has to log in, and everybody sees everything. From the first user on, everybody has to; a change that
//! another process makes to the users is there with the next statement.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::users::{ANONYMOUS, Scramble, User, UserList, Users, UsersError, UsersState};
use catalog::Rights;
use engine::Archive;
use sql::ErrorCode;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

use crate::ClientError;
use crate::listener::Peer;
use crate::queries::{ServerTables, UserTables};
use crate::sessions::Sessions;

/// How long whoever failed to log in waits for the answer.
const FAILURE_DELAY: Duration = Duration::from_millis(500);
/// Passwords that are verified at a time: each takes 19 MiB.
const VERIFIED_AT_ONCE: usize = 2;
/// Passwords that are known to be right, so that the requests of a client cost nothing after the first.
const MOST_VERIFIED: usize = 10_000;

/// Somebody who is served.
#[derive(Debug)]
pub(crate) struct Visitor {
    /// `None` while there are no users.
    pub(crate) user: Option<Arc<User>>,
    /// What there is for them.
    pub(crate) archive: Arc<Archive>,
    /// Their sessions.
    pub(crate) sessions: Arc<Sessions>,
    state: UsersState,
}

/// How one gets in.
#[derive(Debug)]
pub(crate) enum Entrance {
    /// There are no users.
    Open(Arc<Visitor>),
    /// One of these.
    Users(Arc<UserList>),
}

/// Decides who is served.
#[derive(Debug)]
pub(crate) struct Visitors {
    users: Users,
    archive: Arc<Archive>,
    sessions: Arc<Sessions>,
    tables: Arc<ServerTables>,
    list: Mutex<Option<Arc<UserList>>>,
    known: Mutex<HashMap<String, Arc<Visitor>>>,
    /// Hashes of names and passwords that were right for the users as they are now.
    verified: Mutex<HashSet<[u8; 32]>>,
    verifying: Semaphore,
}

impl Visitors {
    /// Of an archive that is seen as a whole, and its sessions.
    pub(crate) fn new(
        users: Users,
        archive: Arc<Archive>,
        sessions: Arc<Sessions>,
        tables: Arc<ServerTables>,
    ) -> Self {
        Self {
            users,
            archive,
            sessions,
            tables,
            list: Mutex::default(),
            known: Mutex::default(),
            verified: Mutex::default(),
            verifying: Semaphore::new(VERIFIED_AT_ONCE),
        }
    }

    /// How one gets in now.
    ///
    /// # Errors
    /// The users cannot be read: then nobody gets in.
    pub(crate) async fn entrance(&self) -> Result<Entrance, ClientError> {
        let list = self.list().await?;
        Ok(match list.is_empty() {
            true => Entrance::Open(self.everybody(&list)),
            false => Entrance::Users(list),
        })
    }

    async fn list(&self) -> Result<Arc<UserList>, ClientError> {
        let state = self.users.state().map_err(unreadable)?;
        if let Some(list) = lock(&self.list).as_ref()
            && list.state() == state
        {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(self.users.list().await.map_err(unreadable)?);
        lock(&self.verified).clear();
        *lock(&self.list) = Some(Arc::clone(&list));
        Ok(list)
    }

    /// Whether a visitor is still who they were, with the same rights.
    pub(crate) fn is_current(&self, visitor: &Visitor) -> bool {
        self.users.state().is_ok_and(|state| state == visitor.state)
    }

    /// The visitor of a user's name, who has logged in before.
    ///
    /// # Errors
    /// There is no such user any more, or the users cannot be read.
    pub(crate) async fn of(&self, name: &str) -> Result<Arc<Visitor>, ClientError> {
        match self.entrance().await? {
            Entrance::Open(visitor) => Ok(visitor),
            Entrance::Users(list) => match list.user(name) {
                Some(user) => Ok(self.admit(&list, user)),
                None => {
                    let sentence = format!("{name} is no user here any more");
                    Err(ClientError::new(ErrorCode::LOGIN_DENIED, sentence))
                }
            },
        }
    }

    /// A visitor who sees nothing: for what is served to everybody.
    pub(crate) fn nobody(&self, list: &UserList) -> Arc<Visitor> {
        self.seen("", None, Arc::new(Rights::none()), list.state())
    }

    fn everybody(&self, list: &UserList) -> Arc<Visitor> {
        Arc::new(Visitor {
            user: None,
            archive: Arc::clone(&self.archive),
            sessions: Arc::clone(&self.sessions),
            state: list.state(),
        })
    }

    /// The visitor of a user who has proved to be that.
    fn admit(&self, list: &UserList, user: &Arc<User>) -> Arc<Visitor> {
        let rights = Arc::clone(&user.rights);
        self.seen(&user.name, Some(Arc::clone(user)), rights, list.state())
    }

    fn seen(
        &self,
        name: &str,
        user: Option<Arc<User>>,
        rights: Arc<Rights>,
        state: UsersState,
    ) -> Arc<Visitor> {
        let mut known = lock(&self.known);
        let before = known.get(name).cloned();
        if let Some(before) = &before
            && before.state == state
        {
            return Arc::clone(before);
        }
        let is_admin = user.as_ref().is_some_and(|user| user.is_admin);
        // Sessions have plans and outlive changes of other users.
        let same = before.filter(|before| {
            let was_admin = before.user.as_ref().is_some_and(|user| user.is_admin);
            before.archive.catalog().rights() == &rights && was_admin == is_admin
        });
        let (archive, sessions) = match same {
            Some(before) => (Arc::clone(&before.archive), Arc::clone(&before.sessions)),
            None => {
                let archive = self.archive.seen_with(rights);
                let tables = match is_admin {
                    true => Arc::clone(&self.tables) as _,
                    false => Arc::new(UserTables::new(Arc::clone(&self.tables), name)) as _,
                };
                let sessions = self.sessions.seen_with(Arc::clone(&archive), tables);
                (archive, Arc::new(sessions))
            }
        };
        let visitor = Arc::new(Visitor {
            user,
            archive,
            sessions,
            state,
        });
        known.insert(name.to_owned(), Arc::clone(&visitor));
        visitor
    }

    /// Lets a client of MySQL's in that has answered a challenge.
    pub(crate) fn answered(
        &self,
        list: &UserList,
        name: &str,
        scramble: &[u8],
        response: &[u8],
    ) -> Option<Arc<Visitor>> {
        let user = list.user(name)?;
        let challenge = user.challenge.as_ref()?;
        Scramble(scramble)
            .is_answered(challenge, response)
            .then(|| self.admit(list, user))
    }

    /// Lets whoever names nobody in, if there is a user for that.
    pub(crate) fn anonymous(&self, list: &UserList) -> Option<Arc<Visitor>> {
        let user = list.user(ANONYMOUS)?;
        user.password.is_none().then(|| self.admit(list, user))
    }

    /// Lets somebody in by a token, or by a name and a password, of which the latter may be a token as well.
    pub(crate) async fn log_in(
        &self,
        list: &UserList,
        name: &str,
        password: &str,
    ) -> Option<Arc<Visitor>> {
        if let Some(user) = list.of_token(password) {
            return Some(self.admit(list, user));
        }
        let user = list.user(name);
        let key = ::users::fingerprint(&[name, password]);
        if let Some(user) = user
            && lock(&self.verified).contains(&key)
        {
            return Some(self.admit(list, user));
        }
        let _one = self.verifying.acquire().await.ok()?;
        // It takes as long where there is no such user.
        let hash = user.and_then(|user| user.password.clone());
        let password = password.to_owned();
        let verified =
            spawn_blocking(move || ::users::verify_password(hash.as_deref(), &password)).await;
        let user = user.filter(|_| verified.unwrap_or(false))?;
        let mut known = lock(&self.verified);
        if known.len() >= MOST_VERIFIED {
            known.clear();
        }
        known.insert(key);
        drop(known);
        Some(self.admit(list, user))
    }

    /// Lets somebody in by a token alone.
    pub(crate) fn of_token(&self, list: &UserList, token: &str) -> Option<Arc<Visitor>> {
        list.of_token(token).map(|user| self.admit(list, user))
    }
}

/// Writes a failed login into the log, and keeps whoever tries waiting.
pub(crate) async fn failed_login(name: &str, peer: Peer) {
    // A name is up to whoever sends it.
    let name: String = name.chars().take(64).collect();
    warn!(user = name, address = %peer, "a login failed");
    sleep(FAILURE_DELAY).await;
}

fn unreadable(error: UsersError) -> ClientError {
    warn!(%error, "the users cannot be read");
    let sentence =
        "nobody can log in, as the users of this server cannot be read: its log says why";
    ClientError::new(ErrorCode::LOGIN_DENIED, sentence)
}

/// A panic in another thread leaves these whole, because every change is a single operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
