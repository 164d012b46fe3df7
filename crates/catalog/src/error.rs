//! What can go wrong with the catalog, in sentences that say what to do.

use std::io;
use std::path::PathBuf;

use crate::{Holder, LoadId};

/// The state of a load that is not there, in [`CatalogError::NotRunning`].
pub const UNKNOWN_LOAD: &str = "unknown";

/// Why an operation of the catalog failed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The directory holds no catalog.
    #[error(
        "{} holds no Meridian data: load a table into it with `meridian load`, or name another directory with --data",
        dir.display()
    )]
    NoCatalog {
        /// The directory that was named.
        dir: PathBuf,
    },
    /// A backup is being restored into the directory, or that has not ended.
    #[error(
        "a backup is being restored into {}, or that was ended before its end: complete it with `meridian restore PLACE --data {}`, or name another directory with --data",
        dir.display(), dir.display()
    )]
    BeingRestored {
        /// The directory that was named.
        dir: PathBuf,
    },
    /// The catalog's file belongs to another application.
    #[error(
        "{} is an SQLite database, but not a Meridian catalog: name another directory with --data",
        path.display()
    )]
    NotACatalog {
        /// The file that is in the way.
        path: PathBuf,
    },
    /// The catalog was written by a later version of Meridian.
    #[error(
        "{} was written by a newer Meridian (catalog version {found}; this one knows up to {known}): use that one",
        path.display()
    )]
    Newer {
        /// The catalog's file.
        path: PathBuf,
        /// The version found in it.
        found: i64,
        /// The highest version known here.
        known: i64,
    },
    /// The catalog was written by an earlier version of Meridian, in a directory that cannot be written.
    #[error(
        "{} was written by an older Meridian (catalog version {found}) and cannot be brought up to date, because this user \
         may not write it or its directory: run `meridian check` once as a user who may",
        path.display()
    )]
    Older {
        /// The catalog's file.
        path: PathBuf,
        /// The version found in it.
        found: i64,
    },
    /// Something was to be changed in a directory that cannot be written.
    #[error(
        "{} cannot be changed: this user may not write it or its directory, or the file system is mounted read-only",
        path.display()
    )]
    ReadOnly {
        /// The catalog's file.
        path: PathBuf,
    },
    /// The catalog's log holds changes that cannot be read without writing.
    #[error(
        "{} holds changes that are not in the catalog yet, and cannot be read where nothing can be written: run \
         `meridian check` once as a user who may write the directory",
        path.display()
    )]
    UnreadableLog {
        /// The log.
        path: PathBuf,
    },
    /// The file system said no.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The metadata database said no (disk full, damaged file, locked for too long).
    #[error("the catalog could not be read or written: {}", in_words(.0))]
    Backend(#[from] sqlx::Error),
    /// Text that was to name a database in PostgreSQL.
    #[error("this is no address of a catalog in PostgreSQL: {reason}")]
    BadAddress {
        /// What is wrong with it.
        reason: String,
    },
    /// The file that names the catalog's database says nothing that can be understood.
    #[error(
        "{} does not say where the catalog is: restore it from a backup, or remove it and make it anew with `meridian catalog init`",
        path.display()
    )]
    BadAddressFile {
        /// The file.
        path: PathBuf,
    },
    /// A catalog was to be made where there is one.
    #[error(
        "{} has a catalog already: `meridian catalog copy` takes it to another database",
        dir.display()
    )]
    CatalogExists {
        /// The data directory.
        dir: PathBuf,
    },
    /// A schema was to be made that is there.
    #[error(
        "the database has a schema {schema} already, of another data directory or of something else: choose another one with \
         --schema, or drop it if nobody needs it"
    )]
    SchemaInUse {
        /// The schema.
        schema: String,
    },
    /// The schema holds no catalog.
    #[error(
        "there is no catalog at {address}, which meridian.catalog in the data directory names: restore that schema from a backup"
    )]
    NoSchema {
        /// The database and the schema.
        address: String,
    },
    /// The schema holds the catalog of another data directory.
    #[error(
        "the catalog at {address} is that of another data directory: its schema was made anew, or meridian.catalog was changed"
    )]
    OtherArchive {
        /// The database and the schema.
        address: String,
    },
    /// Somebody has the catalog open that was to be copied.
    #[error(
        "the catalog of {} is open: stop the servers, loads and other commands of this data directory, then try again",
        dir.display()
    )]
    StillOpen {
        /// The data directory.
        dir: PathBuf,
    },
    /// The catalog is being taken to another database.
    #[error("the catalog of {} is being copied: try again when that is done", dir.display())]
    BeingCopied {
        /// The data directory.
        dir: PathBuf,
    },
    /// The catalog was to be copied to where it is.
    #[error("the catalog is at {place} already")]
    IsThere {
        /// Where it is.
        place: String,
    },
    /// A copy does not have what was copied.
    #[error("the copy of the catalog's {table} is not like the original: nothing was changed")]
    BadCopy {
        /// The table of the catalog.
        table: &'static str,
    },
    /// Something does not fit its checksum in what was to be copied, or in the copy.
    #[error("the catalog was not copied: {problem}")]
    CopyOfDamage {
        /// What does not fit.
        problem: String,
    },
    /// PostgreSQL does not answer.
    #[error("the catalog at {address} cannot be reached: {}", in_words(error))]
    Unreachable {
        /// The database and the schema.
        address: String,
        /// What went wrong.
        error: sqlx::Error,
    },
    /// The connection was lost during a commit.
    #[error(
        "the connection to the catalog was lost while a change was being committed, which may have been made or not: look at it \
         with `meridian tables` before you try again"
    )]
    Unsure,
    /// The session that held this process's load locks has ended.
    #[error(
        "the connection to PostgreSQL that held the load locks was lost, and others may have changed the tables since: nothing \
         was changed; try again"
    )]
    LockLost,
    /// Another process is loading the same table.
    #[error(
        "table {database}.{table} is being loaded by {holder}: wait until that load has ended, or stop it"
    )]
    Locked {
        /// The database's name.
        database: String,
        /// The table's name.
        table: String,
        /// Who holds the lock.
        holder: Box<Holder>,
    },
    /// A name that cannot be used.
    #[error(
        "{name:?} cannot be the name of a {what}: a name has 1 to 64 characters, no control characters, and no spaces around it"
    )]
    BadName {
        /// What was to be named: database, table or column.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A database's partitioning makes no sense.
    #[error("database {database} cannot be made: {reason}")]
    BadDatabase {
        /// The database's name.
        database: String,
        /// What is wrong.
        reason: String,
    },
    /// A table's description contradicts itself or the catalog.
    #[error("table {table} cannot be published: {reason}")]
    BadTable {
        /// The table, as `database.table`.
        table: String,
        /// What is wrong.
        reason: String,
    },
    /// The database exists with another partitioning.
    #[error(
        "database {database} exists with {there}, but the load was made with {asked}: load again with the database's own values"
    )]
    DatabaseDiffers {
        /// The database's name.
        database: String,
        /// The partitioning that it has.
        there: String,
        /// The partitioning that was requested.
        asked: String,
    },
    /// A table of a database was loaded while the database was repartitioned.
    #[error(
        "the tables of database {database} were changed while it was repartitioned: nothing is changed by that; repartition it \
         again when no load is running"
    )]
    ChangedMeanwhile {
        /// The database's name.
        database: String,
    },
    /// A table was dropped, replaced or changed in another way while it was worked on.
    #[error(
        "table {table} was replaced, dropped or changed meanwhile: nothing is changed by this; try again"
    )]
    TableChanged {
        /// The table, as `database.table`.
        table: String,
    },
    /// There is no table of that name.
    #[error("there is no table {table}: `meridian tables` lists those that there are")]
    NoTable {
        /// The table, as `database.table`.
        table: String,
    },
    /// There is no view of that name.
    #[error("there is no view {view}: `meridian view list` lists those that there are")]
    NoView {
        /// The view, as `database.view`.
        view: String,
    },
    /// A view was to be made where there is one.
    #[error(
        "there is a view {view} already: replace it with --replace or CREATE OR REPLACE VIEW, or drop it first"
    )]
    ViewExists {
        /// The view, as `database.view`.
        view: String,
    },
    /// A view was to have the name of a table.
    #[error("{table} is a table: give the view another name")]
    TableInTheWay {
        /// The table, as `database.table`.
        table: String,
    },
    /// A table was to have the name of a view.
    #[error(
        "{view} is a view: give the table another name, or drop the view first (`meridian view drop`, DROP VIEW)"
    )]
    ViewInTheWay {
        /// The view, as `database.view`.
        view: String,
    },
    /// A view that contradicts itself.
    #[error("view {view} cannot be made: {reason}; give columns names with AS")]
    BadView {
        /// The view, as `database.view`.
        view: String,
        /// What is wrong.
        reason: String,
    },
    /// There is no database of that name.
    #[error("there is no database {database}: `meridian tables` lists those that there are")]
    NoDatabase {
        /// The database's name.
        database: String,
    },
    /// A table was to be dropped on which others depend.
    #[error("table {table} cannot be dropped: {} its keys; drop {} first", has_keys(dependents), if dependents.len() == 1 { "it" } else { "them" })]
    HasDependents {
        /// The table, as `database.table`.
        table: String,
        /// The tables of its database that have its keys.
        dependents: Vec<String>,
    },
    /// A part was to be dropped that is not there.
    #[error("table {table} has no part {part}: it has {}", numbers(parts))]
    NoPart {
        /// The table, as `database.table`.
        table: String,
        /// The number that was named.
        part: LoadId,
        /// The numbers of its parts.
        parts: Vec<LoadId>,
    },
    /// A part was to be dropped that was merged with others.
    #[error(
        "part {part} of table {table} cannot be dropped alone: it was merged into part {into}, with the rows of {} parts; drop part \
         {into} with all of them, or load the table anew without those of part {part}",
        merged_from.len()
    )]
    MergedPart {
        /// The table, as `database.table`.
        table: String,
        /// The number that was named.
        part: LoadId,
        /// The part that has its rows.
        into: LoadId,
        /// The parts that it was merged from.
        merged_from: Vec<LoadId>,
    },
    /// The only part of a table was to be dropped.
    #[error("part {part} is the only one of table {table}: drop the table")]
    OnlyPart {
        /// The table, as `database.table`.
        table: String,
        /// The part.
        part: LoadId,
    },
    /// A load was to be published or abandoned that is not in progress.
    #[error("load {load} is {state}, not running: begin a new load")]
    NotRunning {
        /// The load.
        load: LoadId,
        /// The state it is in, or [`UNKNOWN_LOAD`].
        state: String,
    },
    /// A load was begun for another table than the one it is to be published as.
    #[error("load {load} was begun for table {begun}: it cannot be published as {asked}")]
    OtherTable {
        /// The load.
        load: LoadId,
        /// The table it was begun for.
        begun: String,
        /// The table that was requested.
        asked: String,
    },
    /// A load was to be forgotten on which a visible table stands.
    #[error(
        "load {load} is what table {table} shows: it cannot be forgotten before the table is replaced"
    )]
    StillShown {
        /// The load.
        load: LoadId,
        /// The table, as `database.table`.
        table: String,
    },
    /// A word that is no table kind.
    #[error("{0:?} is no kind of table: the kinds are director, child, match and replicated")]
    UnknownTableKind(String),
    /// A word that is no column type.
    #[error("{0:?} is no column type that this catalog knows")]
    UnknownColumnType(String),
    /// Something in the catalog does not fit the checksum that was written with it.
    #[error(
        "{what} in the catalog does not fit its checksum: it is damaged; restore the catalog from a backup, \
         or load into a new data directory (`meridian check` tells all that is wrong)"
    )]
    Altered {
        /// What does not fit, as a noun.
        what: String,
    },
    /// The catalog holds a value that it cannot have written.
    #[error(
        "the catalog holds an impossible value ({0}): restore it from a backup, or load the table again"
    )]
    Damaged(String),
}

/// "Source has", "Source and RefMatch have".
fn has_keys(tables: &[String]) -> String {
    match tables {
        [only] => format!("{only} has"),
        [rest @ .., last] => format!("{} and {last} have", rest.join(", ")),
        [] => "others have".to_owned(),
    }
}

fn numbers(parts: &[LoadId]) -> String {
    let numbers: Vec<String> = parts.iter().map(LoadId::to_string).collect();
    numbers.join(", ")
}

/// What a metadata database says went wrong, without the driver's own wrapping.
fn in_words(error: &sqlx::Error) -> String {
    match error.as_database_error() {
        Some(from_database) => from_database.message().to_owned(),
        None => error.to_string(),
    }
}

impl CatalogError {
    /// For `map_err` on a file operation: what was tried on which path.
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}
