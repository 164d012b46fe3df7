//! `meridian.catalog`: the file of a data directory that names the PostgreSQL database with its catalog.

use std::fmt;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnectOptions;

use crate::CatalogError;
use crate::access::writable_file;

/// The file's name.
pub(crate) const FILE_NAME: &str = "meridian.catalog";
/// The schema that is meant where none is named.
pub const DEFAULT_SCHEMA: &str = "meridian";
/// PostgreSQL's names have 63 bytes; the channel of notifications is named after the schema.
const MOST_BYTES: usize = 40;
/// What a session may wait for a lock, as SQLite's writers wait for each other, and leave a transaction idle.
const PATIENCE: &str = "60s";

/// Where in PostgreSQL a catalog is. It has no password: that is in a file, in PGPASSWORD or in `.pgpass`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PostgresAddress {
    /// As in `postgres://user@host/database`.
    url: String,
    schema: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password_file: Option<PathBuf>,
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct AddressFile {
    #[serde(flatten)]
    pub address: PostgresAddress,
    /// What tells the data directory, which the catalog knows too: so no directory gets the catalog of another.
    pub archive: String,
}

impl PostgresAddress {
    /// Of a URL without a password.
    ///
    /// # Errors
    /// It is none, or has a password; or PostgreSQL would have to quote the schema's name.
    pub fn new(
        url: &str,
        schema: Option<&str>,
        password_file: Option<&Path>,
    ) -> Result<Self, CatalogError> {
        let bad = |reason: &str| CatalogError::BadAddress {
            reason: reason.to_owned(),
        };
        let rest = (url.strip_prefix("postgres://")).or_else(|| url.strip_prefix("postgresql://"));
        let rest = rest.ok_or_else(|| bad("it must be as postgres://user@host/database"))?;
        if has_password(rest) {
            return Err(bad(
                "a password must not be in it, where lists of processes show it: put it into a file and name that with \
                 --password-file, or into ~/.pgpass or the variable PGPASSWORD of each process",
            ));
        }
        // What the parser says of a text may repeat the text.
        PgConnectOptions::from_str(url)
            .map_err(|_| bad("it must be as postgres://user@host/database"))?;
        let schema = schema.unwrap_or(DEFAULT_SCHEMA);
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let starts_well = schema.starts_with(|first: char| first.is_ascii_lowercase());
        if !starts_well || schema.len() > MOST_BYTES || !schema.bytes().all(is_plain) {
            return Err(bad(
                "the name of a schema begins with a small letter and has up to 40 small letters, digits and underscores",
            ));
        }
        let absolute =
            |path: &Path| std::path::absolute(path).map_err(CatalogError::io("find", path));
        Ok(Self {
            url: url.to_owned(),
            schema: schema.to_owned(),
            password_file: password_file.map(absolute).transpose()?,
        })
    }

    /// The schema.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The channel of its notifications.
    pub(crate) fn channel(&self) -> String {
        format!("{}_publications", self.schema)
    }

    /// How a connection is made, and what holds in each.
    pub(super) fn options(&self) -> Result<PgConnectOptions, CatalogError> {
        let options =
            PgConnectOptions::from_str(&self.url).map_err(|_| CatalogError::BadAddress {
                reason: "it must be as postgres://user@host/database".to_owned(),
            })?;
        let options = match &self.password_file {
            None => options,
            Some(file) => {
                let mut password = String::new();
                fs::File::open(file)
                    .and_then(|mut file| file.read_to_string(&mut password))
                    .map_err(CatalogError::io("read the password file", file))?;
                options.password(password.trim_end_matches(['\r', '\n']))
            }
        };
        // What is committed must survive a failure of power; a process that stops in the middle must not keep others waiting; and a
        // machine that is gone is noticed, so that its locks end.
        let name = format!("meridian {}", self.schema);
        Ok(options.application_name(&name).options([
            ("search_path", self.schema.as_str()),
            ("synchronous_commit", "on"),
            ("default_transaction_isolation", "read committed"),
            ("lock_timeout", PATIENCE),
            ("idle_in_transaction_session_timeout", PATIENCE),
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "3"),
        ]))
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (schema {})", self.url, self.schema)
    }
}

/// Whether what follows `postgres://` has a password, before the host or among the parameters.
fn has_password(rest: &str) -> bool {
    let (place, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = place.split('/').next().unwrap_or_default();
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let is_password = |parameter: &str| {
        parameter
            .split('=')
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("password"))
    };
    user.contains(':') || parameters.split('&').any(is_password)
}

impl AddressFile {
    /// What the file of a data directory says; `None` if there is none.
    pub(crate) fn read(data_dir: &Path) -> Result<Option<Self>, CatalogError> {
        read_at(&data_dir.join(FILE_NAME))
    }

    /// Writes a file beside that of a data directory, under which name it does not count yet.
    pub(crate) fn prepare(&self, data_dir: &Path) -> Result<(), CatalogError> {
        let path = prepared(data_dir);
        let write = || {
            let text = serde_json::to_string_pretty(self)? + "\n";
            let mut file = writable_file().create(true).truncate(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(CatalogError::io("write", &path))
    }

    /// What was prepared before and never came to count.
    pub(crate) fn prepared(data_dir: &Path) -> Result<Option<Self>, CatalogError> {
        read_at(&prepared(data_dir))
    }

    /// Has what was prepared count from now on.
    pub(crate) fn establish(data_dir: &Path) -> Result<(), CatalogError> {
        let path = data_dir.join(FILE_NAME);
        fs::rename(prepared(data_dir), &path)
            .and_then(|()| fs::File::open(data_dir)?.sync_all())
            .map_err(CatalogError::io("write", &path))
    }

    /// Removes the file: the catalog is in SQLite from now on.
    pub(crate) fn remove(data_dir: &Path) -> Result<(), CatalogError> {
        let path = data_dir.join(FILE_NAME);
        fs::remove_file(&path)
            .and_then(|()| fs::File::open(data_dir)?.sync_all())
            .map_err(CatalogError::io("remove", &path))
    }
}

fn prepared(data_dir: &Path) -> PathBuf {
    data_dir.join(format!("{FILE_NAME}.new"))
}

fn read_at(path: &Path) -> Result<Option<AddressFile>, CatalogError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CatalogError::io("read", path)(error)),
    };
    let found: AddressFile =
        serde_json::from_str(&text).map_err(|_| CatalogError::BadAddressFile {
            path: path.to_owned(),
        })?;
    // Somebody may have changed it.
    let PostgresAddress { url, schema, .. } = &found.address;
    PostgresAddress::new(url, Some(schema), None)?;
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_refused_and_not_repeated() {
        for url in [
            "postgres://me:secret@host/db",
            "postgresql://me:secret@host:5432/db?sslmode=require",
            "postgres://me@host/db?password=secret",
            "postgres://me@host/db?sslmode=disable&Password=secret",
            "postgres:secret",
            "mysql://me:secret@host/db",
            "postgres://me@host:secret/db",
        ] {
            let error = PostgresAddress::new(url, None, None).unwrap_err();
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for url in [
            "postgres://me@host/db",
            "postgres://me@[::1]:5432/db?sslmode=disable",
            "postgres://host/db",
        ] {
            PostgresAddress::new(url, None, None).unwrap();
        }
    }

    #[test]
    fn names_of_schemas_need_no_quotes() {
        for (schema, is_good) in [
            ("meridian", true),
            ("m2_x", true),
            ("", false),
            ("2m", false),
            ("_m", false),
            ("M", false),
            ("a-b", false),
            ("a\"b", false),
        ] {
            let made = PostgresAddress::new("postgres://h/d", Some(schema), None);
            assert_eq!(made.is_ok(), is_good, "{schema}");
        }
    }
}
