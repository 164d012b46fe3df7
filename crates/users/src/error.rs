//! What can go wrong, in sentences that say what to do.

use std::io;
use std::path::PathBuf;

use crate::Limit;

/// Why an operation on the users failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// The file is there and cannot be read.
    #[error("{} cannot be read: {source}; nobody can log in until it can", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is there and has nothing in it, as a full disk may leave it.
    #[error(
        "{} is empty: the users that were in it are lost, and nobody can log in. Restore it from a backup; or remove it, if there never was a user",
        path.display()
    )]
    Emptied {
        /// The file.
        path: PathBuf,
    },
    /// SQLite fails.
    #[error("the users in {} cannot be read or changed: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: sqlx::Error,
    },
    /// SQLite fails at the sessions of browsers.
    #[error(
        "the sessions of browsers in {} cannot be read or changed: {source}; without the file nobody has one",
        path.display()
    )]
    Sessions {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        source: sqlx::Error,
    },
    /// The file is of a newer program.
    #[error(
        "{} is of a newer version of this program, {found} where this one knows {known}: use the newer one",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version known here.
        known: i64,
    },
    /// There is no such user.
    #[error("there is no user {name}: `meridian user list` tells those that there are")]
    NoUser {
        /// The name that was given.
        name: String,
    },
    /// There is nobody at all.
    #[error(
        "there are no users yet, and everybody may read and take everything: `meridian user add` adds one"
    )]
    Nobody,
    /// There is one already.
    #[error(
        "there is a user {name} already (names that differ in case alone are the same): `meridian user passwd` changes the password"
    )]
    Exists {
        /// The user's name.
        name: String,
    },
    /// There is a group of the name.
    #[error(
        "there is a group {name} already (users and groups share their names, and names that differ in case alone are the same)"
    )]
    GroupExists {
        /// The group's name.
        name: String,
    },
    /// There is no such group.
    #[error("there is no group {name}: `meridian user group list` tells those that there are")]
    NoGroup {
        /// The name that was given.
        name: String,
    },
    /// The limit is one of groups, and the name a user's.
    #[error(
        "the limit {limit} is one of groups, and {name} is a user: give it a group, or with --everybody all groups that have none of their own"
    )]
    LimitOfGroups {
        /// The limit.
        limit: Limit,
        /// The user.
        name: String,
    },
    /// The user does not belong to the group.
    #[error("{user} does not belong to {group}: `meridian user group show {group}` tells who does")]
    NoMember {
        /// The group.
        group: String,
        /// The user.
        user: String,
    },
    /// The name cannot be used.
    #[error(
        "{name:?} cannot be the name of a user or a group: it has 1 to 32 letters, digits, `_`, `-`, `.` or `@`, and is no name of a database of the server's own"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// The password cannot be used.
    #[error(
        "a password has 1 to 256 bytes, none of them zero: for a user without one give --no-password"
    )]
    BadPassword,
    /// The user does not have this grant.
    #[error(
        "{name} has no grant to read {grant}: `meridian user show {name}` tells those that there are"
    )]
    NoGrant {
        /// The user.
        name: String,
        /// What was to be taken back.
        grant: String,
    },
    /// All rows of the table are released.
    #[error(
        "there is no condition on the rows of {table}: `meridian release` without a table lists those that there are"
    )]
    NoRelease {
        /// The table.
        table: String,
    },
    /// The operating system has no random numbers.
    #[error("the operating system has no random numbers")]
    NoRandomness,
}
