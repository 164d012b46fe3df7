//! A user, and all of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use catalog::{Releases, Rights, fold_name};

use crate::secret::Token;
use crate::{Grant, Group, GroupDatabase, Limit, Limits, Release, UsersError, UsersState, now};

/// The user that whoever gives no name is taken for, if there is one.
pub const ANONYMOUS: &str = "anonymous";

/// Everybody, to whom something may be granted.
pub const PUBLIC: &str = "PUBLIC";

/// Whether a name stands for everybody.
pub fn is_public(name: &str) -> bool {
    name.eq_ignore_ascii_case(PUBLIC)
}

const LONGEST_NAME: usize = 32;
/// Databases of the server's own, and everybody.
const RESERVED: [&str; 6] = [
    "public",
    "information_schema",
    "tap_schema",
    "tap_upload",
    "mysql",
    "sys",
];

/// Somebody who may log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The hash of the password; `None` if there is none, and then no password fits.
    pub password: Option<String>,
    /// See [`crate::Scramble::is_answered`].
    pub challenge: Option<[u8; 32]>,
    /// See [`crate::Scramble::is_answered_natively`]; `None` unless the password was set for `mysql_native_password`.
    pub native: Option<[u8; 20]>,
    /// Whether everything may be read, and everybody's queries ended.
    pub is_admin: bool,
    /// Seconds since 1970 at which the user was added.
    pub created: i64,
    /// The groups to which the user belongs, by name.
    pub groups: Vec<String>,
    /// The databases of these groups, of those that have one.
    pub group_databases: Vec<GroupDatabase>,
    /// What was granted, by database and table, to the user alone.
    pub grants: Vec<Grant>,
    /// The databases and tables of which the user sees rows that are not released.
    pub unreleased: Vec<Grant>,
    /// The tables of which the user sees released rows alone: none for administrators, nor of databases of the user's own or of the groups'.
    pub releases: Arc<Releases>,
    /// What the grants come to, with the user's own database and those of the groups, what the groups may read and what everybody may.
    pub rights: Arc<Rights>,
    /// How many tokens are valid.
    pub tokens: usize,
    /// The limits that were set for the user alone.
    pub own_limits: Limits,
    /// How much the user may take: the own limits, else those of the groups, else those of everybody. For administrators only the own
    /// ones count.
    pub limits: Limits,
}

impl User {
    /// The databases whose tables the user changes: the own one, and those of the groups.
    pub fn own_databases(&self) -> impl Iterator<Item = &str> {
        let of_groups = self.group_databases.iter().map(|it| it.name.as_str());
        std::iter::once(self.name.as_str()).chain(of_groups)
    }

    /// Whether a database is one of [`own_databases`](Self::own_databases).
    pub fn owns(&self, database: &str) -> bool {
        let folded = fold_name(database);
        self.own_databases().any(|own| fold_name(own) == folded)
    }

    /// The database of a group to which the user belongs, if this is one.
    pub fn group_database(&self, database: &str) -> Option<&GroupDatabase> {
        let folded = fold_name(database);
        { self.group_databases.iter() }.find(|it| fold_name(&it.name) == folded)
    }

    pub(crate) fn set_rights(&mut self, groups: &[&Group], of_everybody: &[Grant]) {
        let mut rights = match self.is_admin {
            true => Rights::All,
            false => Rights::none(),
        };
        for database in self.own_databases() {
            rights.add(database, None);
        }
        let of_groups = groups.iter().flat_map(|group| &group.grants);
        for grant in { self.grants.iter() }.chain(of_groups).chain(of_everybody) {
            grant.add_to(&mut rights);
        }
        self.rights = Arc::new(rights);
    }

    pub(crate) fn set_releases(&mut self, groups: &[&Group], all: &[Release]) {
        let mut releases = Releases::default();
        let of_groups = groups.iter().flat_map(|group| &group.unreleased);
        let lifting: Vec<&Grant> = self.unreleased.iter().chain(of_groups).collect();
        for release in all.iter().filter(|_| !self.is_admin) {
            let is_lifted = lifting.iter().any(|grant| release.is_lifted_by(grant));
            if !self.owns(&release.database) && !is_lifted {
                releases.add(&release.database, &release.table, &release.condition);
            }
        }
        self.releases = Arc::new(releases);
    }

    pub(crate) fn set_limits(&mut self, groups: &[&Group], everybody: &Limits) {
        let of_groups = Limits::widest(groups.iter().map(|group| &group.limits));
        self.limits = match self.is_admin {
            true => self.own_limits,
            false => self.own_limits.or(&of_groups).or(everybody),
        };
        // It is the group's, whoever fills its database.
        self.limits.set(Limit::GroupStored, None);
    }
}

/// Whose database it is.
#[derive(Debug, Clone, Copy)]
pub enum DatabaseOwner<'a> {
    /// A user's own.
    User(&'a User),
    /// That of a group.
    Group(&'a Group),
}

impl DatabaseOwner<'_> {
    /// The owner's name.
    pub fn name(&self) -> &str {
        match self {
            Self::User(user) => &user.name,
            Self::Group(group) => &group.name,
        }
    }

    /// For how many days a table in the database is kept; `None` without a limit.
    pub fn lifetime(&self) -> Option<u64> {
        match self {
            Self::User(user) => user.limits.get(Limit::Lifetime),
            Self::Group(group) => group.of_database.lifetime,
        }
    }
}

/// All users, as they were at one time.
#[derive(Debug)]
pub struct UserList {
    state: UsersState,
    pub(crate) users: BTreeMap<String, Arc<User>>,
    pub(crate) groups: BTreeMap<String, Group>,
    /// The limits of everybody.
    pub(crate) everybody: Limits,
    /// The conditions by which rows are released.
    pub(crate) releases: Vec<Release>,
    /// What everybody may read.
    pub(crate) public: Vec<Grant>,
    /// Users and the times of expiry, by the hashes of their tokens.
    pub(crate) tokens: HashMap<[u8; 32], (String, i64)>,
}

impl UserList {
    pub(crate) fn empty(state: UsersState) -> Self {
        Self {
            state,
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            everybody: Limits::default(),
            releases: Vec::new(),
            public: Vec::new(),
            tokens: HashMap::new(),
        }
    }

    /// The state that was read.
    pub fn state(&self) -> UsersState {
        self.state
    }

    /// Whether there are none: then nobody has to log in.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// The limits of everybody who has none of their own.
    pub fn everybody(&self) -> &Limits {
        &self.everybody
    }

    /// What every user may read, the anonymous one included.
    pub fn public(&self) -> &[Grant] {
        &self.public
    }

    /// The conditions by which rows of tables are released, by database and table.
    pub fn releases(&self) -> &[Release] {
        &self.releases
    }

    /// The users, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.users.values()
    }

    /// The groups, by name.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// The group of this name, in which upper and lower case are told apart.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The folded names of all databases that are users' or groups' own.
    pub fn own_databases(&self) -> HashSet<String> {
        let groups = self.groups().filter(|it| it.has_database);
        let names = groups.map(|it| &it.name);
        let users = self.iter().map(|it| &it.name);
        users.chain(names).map(|name| fold_name(name)).collect()
    }

    /// Whose a database is.
    pub fn owner_of(&self, database: &str) -> Option<DatabaseOwner<'_>> {
        let folded = fold_name(database);
        if let Some(user) = self.iter().find(|it| fold_name(&it.name) == folded) {
            return Some(DatabaseOwner::User(user));
        }
        let mut groups = self.groups().filter(|it| it.has_database);
        let group = groups.find(|it| fold_name(&it.name) == folded);
        group.map(DatabaseOwner::Group)
    }

    /// What was granted to a user, a group or everybody ([`PUBLIC`]); `None` if there is none of the name.
    pub fn grants_of(&self, name: &str) -> Option<&[Grant]> {
        if is_public(name) {
            return Some(&self.public);
        }
        let user = self.user(name).map(|user| user.grants.as_slice());
        user.or_else(|| Some(self.group(name)?.grants.as_slice()))
    }

    /// The user of this name, in which upper and lower case are told apart.
    pub fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// The user whom a token lets in, if it has not expired.
    pub fn of_token(&self, text: &str) -> Option<&Arc<User>> {
        if !Token::may_be(text) {
            return None;
        }
        let (name, expires) = self.tokens.get(&Token::hash(text))?;
        (*expires > now()).then(|| self.user(name)).flatten()
    }
}

pub(crate) fn check_name(name: &str) -> Result<(), UsersError> {
    let allowed = |c: char| c.is_alphanumeric() || "_-.@".contains(c);
    let length = name.chars().count();
    let is_reserved = RESERVED.contains(&fold_name(name).as_str());
    match (1..=LONGEST_NAME).contains(&length) && name.chars().all(allowed) && !is_reserved {
        true => Ok(()),
        false => Err(UsersError::BadName {
            name: name.to_owned(),
        }),
    }
}
