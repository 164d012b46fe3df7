//! Who is served, and what each sees: the users of the data directory, their logins, and the archive and the sessions of each.
//!
//! While there are no users nobody has to log in, and everybody sees everything. From the first user on, everybody has to; a change that
//! another process makes to the users is there with the next statement.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::users::{ANONYMOUS, Scramble, Token, User, UserList, Users, UsersError, UsersState};
use catalog::{Releases, Rights, fold_name};
use engine::Archive;
use sql::ErrorCode;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tracing::warn;

use crate::ClientError;
use crate::audit::{self, AuditLog};
use crate::listener::Peer;
use crate::login_throttle::LoginThrottle;
use crate::oidc::{self, Oidc, OidcOptions};
use crate::own_tables::ExpiringTables;
use crate::queries::{ServerTables, UserTables};
use crate::query_runtime::QueryRuntime;
use crate::sessions::Sessions;
use crate::usage::{Usage, Usages};

/// How long whoever failed to log in waits for the answer.
const FAILURE_DELAY: Duration = Duration::from_millis(500);
/// Passwords that are verified at a time: each takes 19 MiB.
const VERIFIED_AT_ONCE: usize = 2;
/// Passwords of one address that may wait to be verified, and those of all: they are others' waiting time.
const MOST_WAITING_OF_ADDRESS: usize = 8;
const MOST_WAITING: usize = 64;
/// Passwords that are known to be right, so that the requests of a client cost nothing after the first.
const MOST_VERIFIED: usize = 10_000;

/// Somebody who is served, with what they see.
#[derive(Debug)]
pub(crate) struct Principal {
    /// `None` while there are no users.
    pub(crate) user: Option<Arc<User>>,
    /// What there is for them.
    pub(crate) archive: Arc<Archive>,
    /// Their sessions.
    pub(crate) sessions: Arc<Sessions>,
    /// What they take and may take.
    pub(crate) usage: Arc<Usage>,
    state: UsersState,
}

/// Whether clients have to log in.
#[derive(Debug)]
pub(crate) enum LoginPolicy {
    /// No: there are no users, and all clients are the same principal.
    Open(Arc<Principal>),
    /// Yes, as one of these.
    Required(Arc<UserList>),
}

/// Authenticates clients.
#[derive(Debug)]
pub(crate) struct Authenticator {
    users: Users,
    /// Whether only this machine reaches the server, or its operator trusts the network.
    is_trusted: bool,
    audit: Option<AuditLog>,
    archive: Arc<Archive>,
    sessions: Arc<Sessions>,
    tables: Arc<ServerTables>,
    list: Mutex<Option<Arc<UserList>>>,
    known: Mutex<HashMap<String, Arc<Principal>>>,
    usages: Usages,
    /// How many guesses there are.
    throttle: LoginThrottle,
    /// Whether clients log in by `mysql_native_password`.
    takes_native: bool,
    /// The identity provider, if there is one.
    oidc: Option<Oidc>,
    /// Tables that expire soon, as they were last looked up.
    expiring: Mutex<ExpiringTables>,
    /// Hashes of names and passwords that were right, with what is stored of these passwords: another password is another hash.
    verified: Mutex<HashSet<[u8; 32]>>,
    verifying: Semaphore,
    /// Where they are verified.
    query_runtime: Arc<QueryRuntime>,
    /// How many passwords wait, by the host that sent them.
    waiting: Mutex<HashMap<String, usize>>,
}

impl Authenticator {
    /// Of an archive that is seen as a whole, and its sessions.
    pub(crate) fn new(
        users: Users,
        throttle: LoginThrottle,
        is_trusted: bool,
        archive: Arc<Archive>,
        sessions: Arc<Sessions>,
        tables: Arc<ServerTables>,
        query_runtime: Arc<QueryRuntime>,
    ) -> Self {
        Self {
            users,
            query_runtime,
            is_trusted,
            audit: None,
            archive,
            sessions,
            tables,
            list: Mutex::default(),
            known: Mutex::default(),
            usages: Usages::default(),
            throttle,
            takes_native: false,
            oidc: None,
            expiring: Mutex::default(),
            verified: Mutex::default(),
            verifying: Semaphore::new(VERIFIED_AT_ONCE),
            waiting: Mutex::default(),
        }
    }

    /// Writes a failed login into the logs, and keeps whoever tries waiting.
    pub(crate) async fn failed_login(&self, protocol: &'static str, name: &str, peer: Peer) {
        self.note_failed_login(protocol, name, peer);
        sleep(FAILURE_DELAY).await;
    }

    /// Writes a failed login into the logs.
    pub(crate) fn note_failed_login(&self, protocol: &'static str, name: &str, peer: Peer) {
        // A name is up to whoever sends it.
        let name: String = name.chars().take(64).collect();
        warn!(user = name, address = %peer, "a login failed");
        if let Some(audit) = &self.audit {
            let denied = Some(ErrorCode::LOGIN_DENIED);
            audit.add(&audit::login(protocol, &name, peer, denied));
        }
    }

    /// The user of a session that was begun with a password.
    pub(crate) fn of_session(&self, list: &UserList, user: &Arc<User>) -> Arc<Principal> {
        self.admit(list, user)
    }

    /// The user of a token of the identity provider, if there is a provider. The user's groups that follow the provider are those of the
    /// token from then on.
    ///
    /// # Errors
    /// Why the token lets nobody in.
    pub(crate) async fn of_provider(
        &self,
        list: &UserList,
        token: &str,
    ) -> Result<Arc<Principal>, String> {
        let no_provider = || "the token is none of this server's".to_owned();
        let oidc = self.oidc.as_ref().ok_or_else(no_provider)?;
        let told = oidc.verify(token).await?;
        let nobody = || {
            format!(
                "the token is right, and {:?} is no user here: ask the operator",
                told.name
            )
        };
        let user = list.user(&told.name).ok_or_else(nobody)?;
        let is_in = |group: &String| user.groups.contains(group);
        let wrong = { oidc.groups().iter() }
            .filter(|group| is_in(group) != told.groups.contains(*group))
            .filter(|group| list.group(group).is_some());
        let wrong: Vec<String> = wrong.cloned().collect();
        if wrong.is_empty() || !oidc.is_newest(&told) {
            return Ok(self.admit(list, user));
        }
        let (leave, enter): (Vec<_>, Vec<_>) = wrong.into_iter().partition(is_in);
        let failed = |error: UsersError| {
            warn!(user = told.name, %error, "the groups of a user do not follow the identity provider");
            "the groups of the user cannot be changed: the server's log says why".to_owned()
        };
        let users = [told.name.clone()];
        for (groups, belong) in [(leave, false), (enter, true)] {
            if !groups.is_empty() {
                let changed = self.users.change_members(&groups, &users, belong).await;
                changed.map_err(failed)?;
            }
        }
        let list = self.list().await.map_err(|error| error.sentence)?;
        let user = list.user(&told.name).ok_or_else(nobody)?;
        Ok(self.admit(&list, user))
    }

    /// What users take.
    pub(crate) fn usages(&self) -> &Usages {
        &self.usages
    }

    /// The same that writes into an audit log, if there is one.
    pub(crate) fn audited(self, audit: Option<AuditLog>) -> Self {
        Self { audit, ..self }
    }

    /// The same that goes on to count what users take.
    pub(crate) fn counting(self, usages: Usages) -> Self {
        Self { usages, ..self }
    }

    /// The same that takes `mysql_native_password`, or not.
    pub(crate) fn taking_native(self, takes_native: bool) -> Self {
        Self {
            takes_native,
            ..self
        }
    }

    /// Whether clients log in by `mysql_native_password`.
    pub(crate) fn takes_native(&self) -> bool {
        self.takes_native
    }

    /// How many guesses of passwords there are.
    pub(crate) fn throttle(&self) -> &LoginThrottle {
        &self.throttle
    }

    /// The same that takes the tokens of an identity provider, if there is one.
    pub(crate) fn with_provider(self, options: Option<OidcOptions>) -> Self {
        Self {
            oidc: options.map(Oidc::new),
            ..self
        }
    }

    /// Notes which tables expire soon.
    pub(crate) fn set_expiring(&self, tables: ExpiringTables) {
        *lock(&self.expiring) = tables;
    }

    /// Tables of a user, and of the user's groups, that expire soon, each with its time.
    pub(crate) fn expiring_of(&self, user: &User) -> Vec<(String, String)> {
        let expiring = lock(&self.expiring);
        let of = |database: &str| expiring.get(&fold_name(database)).cloned();
        user.own_databases().filter_map(of).flatten().collect()
    }

    /// Writes into the audit log that a table of a user's was removed.
    pub(crate) fn audit_expiry(&self, user: &str, table: &str, rows: u64) {
        if let Some(audit) = &self.audit {
            audit.add(&audit::expiry(user, table, rows));
        }
    }

    /// The audit log, if there is one.
    pub(crate) fn audit(&self) -> Option<&AuditLog> {
        self.audit.as_ref()
    }

    /// Waits, but not for long, until the audit log is written.
    pub(crate) async fn flush_audit(self: &Arc<Self>, patience: Duration) {
        let authenticator = Arc::clone(self);
        let written = spawn_blocking(move || {
            if let Some(audit) = &authenticator.audit {
                audit.flush(patience);
            }
        });
        let _ = written.await;
    }

    /// The users.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// Whether clients have to log in now.
    ///
    /// # Errors
    /// The users cannot be read: then nobody can.
    pub(crate) async fn login_policy(&self) -> Result<LoginPolicy, ClientError> {
        let list = self.list().await?;
        // A server that others reach does not open when its last user goes.
        Ok(match list.is_empty() && self.is_trusted {
            true => LoginPolicy::Open(self.everybody(&list)),
            false => LoginPolicy::Required(list),
        })
    }

    /// Whether a client at this address may send a password without TLS.
    pub(crate) fn may_log_in_clear(&self, peer: Peer) -> bool {
        self.is_trusted || peer.address().is_none_or(|address| address.is_loopback())
    }

    async fn list(&self) -> Result<Arc<UserList>, ClientError> {
        let state = self.users.state().map_err(unreadable)?;
        if let Some(list) = lock(&self.list).as_ref()
            && list.state() == state
        {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(self.users.list().await.map_err(unreadable)?);
        *lock(&self.list) = Some(Arc::clone(&list));
        Ok(list)
    }

    /// Whether a principal is still who they were, with the same rights.
    pub(crate) fn is_current(&self, principal: &Principal) -> bool {
        self.users
            .state()
            .is_ok_and(|state| state == principal.state)
    }

    /// The principal of a user's name, who has logged in before.
    ///
    /// # Errors
    /// There is no such user any more, or the users cannot be read.
    pub(crate) async fn of(&self, name: &str) -> Result<Arc<Principal>, ClientError> {
        match self.login_policy().await? {
            LoginPolicy::Open(principal) => Ok(principal),
            LoginPolicy::Required(list) => match list.user(name) {
                Some(user) => Ok(self.admit(&list, user)),
                None => {
                    let sentence = format!("{name} is no user here any more");
                    Err(ClientError::new(ErrorCode::LOGIN_DENIED, sentence))
                }
            },
        }
    }

    /// A principal who sees nothing: for what is served to everybody.
    pub(crate) fn nobody(&self, list: &UserList) -> Arc<Principal> {
        let rights = Arc::new(Rights::none());
        self.seen("", None, rights, Arc::default(), list.state())
    }

    fn everybody(&self, list: &UserList) -> Arc<Principal> {
        Arc::new(Principal {
            user: None,
            archive: Arc::clone(&self.archive),
            sessions: Arc::clone(&self.sessions),
            usage: Arc::default(),
            state: list.state(),
        })
    }

    /// The principal of a user who has proved to be that.
    fn admit(&self, list: &UserList, user: &Arc<User>) -> Arc<Principal> {
        let rights = Arc::clone(&user.rights);
        let releases = Arc::clone(&user.releases);
        let (name, user) = (&user.name, Some(Arc::clone(user)));
        self.seen(name, user, rights, releases, list.state())
    }

    fn seen(
        &self,
        name: &str,
        user: Option<Arc<User>>,
        rights: Arc<Rights>,
        releases: Arc<Releases>,
        state: UsersState,
    ) -> Arc<Principal> {
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
            let catalog = before.archive.catalog();
            let sees_the_same = (catalog.rights(), catalog.releases()) == (&rights, &releases);
            sees_the_same && was_admin == is_admin
        });
        let (archive, sessions) = match same {
            Some(before) => (Arc::clone(&before.archive), Arc::clone(&before.sessions)),
            None => {
                let archive = self.archive.seen_with(rights, releases);
                let tables = match is_admin {
                    true => Arc::clone(&self.tables) as _,
                    false => Arc::new(UserTables::new(Arc::clone(&self.tables), name)) as _,
                };
                let sessions = self.sessions.seen_with(Arc::clone(&archive), tables);
                (archive, Arc::new(sessions))
            }
        };
        let limits = user.as_ref().map(|user| user.limits).unwrap_or_default();
        let principal = Arc::new(Principal {
            usage: self.usages.of(name, &limits),
            user,
            archive,
            sessions,
            state,
        });
        known.insert(name.to_owned(), Arc::clone(&principal));
        principal
    }

    /// The user of a client of MySQL's that has answered a challenge. A wrong answer is no failed login yet: the client may have a token.
    ///
    /// # Errors
    /// Too many logins have failed.
    pub(crate) fn answered(
        &self,
        list: &UserList,
        name: &str,
        (scramble, response): (&[u8], &[u8]),
        peer: Peer,
    ) -> Result<Option<Arc<Principal>>, ClientError> {
        self.throttle.check(peer, name)?;
        let user = list.user(name);
        Ok(user.and_then(|user| {
            let challenge = user.challenge.as_ref()?;
            Scramble(scramble)
                .is_answered(challenge, response)
                .then(|| self.admit(list, user))
        }))
    }

    /// The user of a client that has answered by `mysql_native_password`, if the password was set for it.
    ///
    /// # Errors
    /// Too many logins have failed.
    pub(crate) fn answered_natively(
        &self,
        list: &UserList,
        name: &str,
        (scramble, response): (&[u8], &[u8]),
        peer: Peer,
    ) -> Result<Option<Arc<Principal>>, ClientError> {
        self.throttle.check(peer, name)?;
        let user = list.user(name).filter(|_| self.takes_native);
        Ok(user.and_then(|user| {
            let kept = user.native.as_ref()?;
            Scramble(scramble)
                .is_answered_natively(kept, response)
                .then(|| self.admit(list, user))
        }))
    }

    /// The user of clients that do not log in, if there is one.
    pub(crate) fn anonymous(&self, list: &UserList) -> Option<Arc<Principal>> {
        let user = list.user(ANONYMOUS)?;
        user.password.is_none().then(|| self.admit(list, user))
    }

    /// The user of a name and a password, or of a token that is given as the password; `None` if they are wrong.
    ///
    /// # Errors
    /// So many passwords wait to be verified that this one is not; or too many logins have failed.
    pub(crate) async fn log_in(
        &self,
        list: &UserList,
        name: &str,
        password: &str,
        peer: Peer,
    ) -> Result<Option<Arc<Principal>>, ClientError> {
        if let Some(user) = list.of_token(password) {
            return Ok(Some(self.admit(list, user)));
        }
        if self.oidc.is_some() && oidc::may_be_token(password) {
            let found = self.of_provider(list, password).await.ok();
            // The name has to be that of the token, or none.
            return Ok(found.filter(|it| {
                let user = it.user.as_ref().map(|user| user.name.as_str());
                name.is_empty() || user == Some(name)
            }));
        }
        // A right password is refused as well: else a guess would tell that it is right.
        self.throttle.check(peer, name)?;
        let user = list.user(name);
        let hash = user.and_then(|user| user.password.clone());
        let key = ::users::fingerprint(&[name, password, hash.as_deref().unwrap_or_default()]);
        if let Some(user) = user
            && lock(&self.verified).contains(&key)
        {
            return Ok(Some(self.admit(list, user)));
        }
        let _waiting = LoginTurn::begin(&self.waiting, peer.host())?;
        let Ok(_one) = self.verifying.acquire().await else {
            return Ok(None);
        };
        // It takes as long where there is no such user.
        let tried = password.to_owned();
        let verify = move || ::users::verify_password(hash.as_deref(), &tried);
        let verified = self.query_runtime.compute_aside(verify).await;
        let Some(user) = user.filter(|_| verified.unwrap_or(false)) else {
            if !Token::may_be(password) {
                self.throttle.failed(peer, name);
            }
            return Ok(None);
        };
        let mut known = lock(&self.verified);
        if known.len() >= MOST_VERIFIED {
            known.clear();
        }
        known.insert(key);
        drop(known);
        Ok(Some(self.admit(list, user)))
    }

    /// The user of a token.
    pub(crate) fn of_token(&self, list: &UserList, token: &str) -> Option<Arc<Principal>> {
        list.of_token(token).map(|user| self.admit(list, user))
    }
}

/// A password that waits to be verified, or is.
struct LoginTurn<'a> {
    by_host: &'a Mutex<HashMap<String, usize>>,
    host: String,
}

impl<'a> LoginTurn<'a> {
    fn begin(
        by_host: &'a Mutex<HashMap<String, usize>>,
        host: String,
    ) -> Result<Self, ClientError> {
        let mut waiting = lock(by_host);
        let of_host = waiting.get(&host).copied().unwrap_or_default();
        if of_host >= MOST_WAITING_OF_ADDRESS || waiting.values().sum::<usize>() >= MOST_WAITING {
            let sentence = "too many logins at once: passwords wait to be verified; try again in a second, or use a token";
            return Err(ClientError::new(ErrorCode::TOO_MANY_CONNECTIONS, sentence));
        }
        waiting.insert(host.clone(), of_host + 1);
        drop(waiting);
        Ok(Self { by_host, host })
    }
}

impl Drop for LoginTurn<'_> {
    fn drop(&mut self) {
        let mut waiting = lock(self.by_host);
        if let Some(of_host) = waiting.get_mut(&self.host) {
            *of_host -= 1;
            if *of_host == 0 {
                waiting.remove(&self.host);
            }
        }
    }
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
