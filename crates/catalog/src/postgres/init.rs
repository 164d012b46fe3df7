//! Making the schema of a catalog, and seeing that a schema is the one that a data directory means.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use super::{AddressFile, PostgresAddress, PostgresCatalog, Shared, io};
use crate::access::make_directories;
use crate::statements::{Transaction, seal_all, seal_views};
use crate::{CatalogError, sqlite};

/// The version of the first step.
const FIRST: i64 = 9;

/// The steps from an empty schema to the present version; step `n` leads to version `FIRST + n`. A step that was released is never
/// changed: a new one is added, with one of SQLite's, so that both have the same version.
const MIGRATIONS: [&str; 2] = [
    include_str!("../../migrations/postgres/0009_catalog.sql"),
    include_str!("../../migrations/postgres/0010_expiry.sql"),
];

const LATEST: i64 = FIRST + MIGRATIONS.len() as i64 - 1;

const _: () = assert!(
    LATEST == sqlite::LATEST,
    "each step of the catalog's schema is written for SQLite and for PostgreSQL"
);

impl PostgresCatalog {
    /// Makes a catalog for a data directory that has none, and the directory if need be.
    ///
    /// # Errors
    /// The directory has a catalog, or the schema holds one or anything else.
    pub(crate) async fn create(
        data_dir: &Path,
        address: &PostgresAddress,
    ) -> Result<(), CatalogError> {
        make_directories(data_dir).map_err(CatalogError::io("make directory", data_dir))?;
        let there = [sqlite::FILE_NAME, super::address::FILE_NAME];
        if there.iter().any(|name| data_dir.join(name).exists()) {
            return Err(CatalogError::CatalogExists {
                dir: data_dir.to_owned(),
            });
        }
        Self::prepare(data_dir, address).await?;
        AddressFile::establish(data_dir)
    }

    /// Makes the schema of a catalog and the file that names it, which does not count yet. Repeated after a crash, it gives the same one.
    pub(crate) async fn prepare(
        data_dir: &Path,
        address: &PostgresAddress,
    ) -> Result<AddressFile, CatalogError> {
        let before = AddressFile::prepared(data_dir).ok().flatten();
        let file = match before.filter(|it| it.address == *address) {
            Some(before) => before,
            None => AddressFile {
                address: address.clone(),
                archive: random_name()?,
            },
        };
        file.prepare(data_dir)?;
        let (options, made) = (address.options()?, file.clone());
        io::run(async move {
            let mut connection = options.connect().await.map_err(|error| {
                let address = made.address.to_string();
                CatalogError::Unreachable { address, error }
            })?;
            make_schema(&mut connection, &made).await?;
            Ok(connection.close().await?)
        })
        .await?;
        Ok(file)
    }
}

/// Makes the schema and what is in it in one transaction. One that was made for the same data directory is left alone.
async fn make_schema(
    connection: &mut PgConnection,
    file: &AddressFile,
) -> Result<(), CatalogError> {
    let schema = file.address.schema();
    let encoding: String = sqlx::query_scalar("SHOW server_encoding")
        .fetch_one(&mut *connection)
        .await?;
    if encoding != "UTF8" {
        return Err(CatalogError::BadAddress {
            reason: format!("its database has the encoding {encoding}, and a catalog needs UTF8"),
        });
    }
    let mut change = connection.begin().await?;
    // Who makes the same schema at the same time waits.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 9))")
        .bind(schema)
        .execute(&mut *change)
        .await?;
    if is_there(&mut change, schema).await? {
        let kept = archive_of(&mut change).await?;
        if kept.is_some_and(|(_, archive)| archive == file.archive) {
            return Ok(());
        }
        return Err(CatalogError::SchemaInUse {
            schema: schema.to_owned(),
        });
    }
    // The name of a schema has small letters, digits and underscores alone.
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {schema}")))
        .execute(&mut *change)
        .await?;
    for step in MIGRATIONS {
        sqlx::raw_sql(step).execute(&mut *change).await?;
    }
    sqlx::query("INSERT INTO meridian (id, version, archive) VALUES (1, $1, $2)")
        .bind(LATEST)
        .bind(&file.archive)
        .execute(&mut *change)
        .await?;
    let mut change = Transaction::Postgres(change);
    seal_all(&mut change).await?;
    seal_views(&mut change, |_| false).await?;
    Ok(change.commit().await?)
}

async fn is_there(connection: &mut PgConnection, schema: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)")
        .bind(schema)
        .fetch_one(connection)
        .await
}

/// The version and the archive of the catalog in the session's schema; `None` if it is none.
async fn archive_of(connection: &mut PgConnection) -> Result<Option<(i64, String)>, sqlx::Error> {
    let is_one: bool = sqlx::query_scalar("SELECT to_regclass('meridian') IS NOT NULL")
        .fetch_one(&mut *connection)
        .await?;
    if !is_one {
        return Ok(None);
    }
    sqlx::query_as("SELECT version, archive FROM meridian")
        .fetch_optional(connection)
        .await
}

/// Sees that the schema has the catalog of this data directory, of a version that is known here.
pub(super) async fn expect_ours(
    shared: &Shared,
    connection: &mut PgConnection,
) -> Result<(), CatalogError> {
    let address = shared.file.address.to_string();
    match archive_of(connection).await? {
        Some((_, archive)) if archive != shared.file.archive => {
            Err(CatalogError::OtherArchive { address })
        }
        Some((found, _)) if found > LATEST => Err(CatalogError::Newer {
            path: address.into(),
            found,
            known: LATEST,
        }),
        Some((found, _)) if found < LATEST => bring_up_to_date(connection).await,
        Some(_) => Ok(()),
        None => Err(CatalogError::NoSchema { address }),
    }
}

/// Runs the steps that are missing in one transaction.
async fn bring_up_to_date(connection: &mut PgConnection) -> Result<(), CatalogError> {
    let mut change = connection.begin().await?;
    // Who does the same waits, and finds nothing to do.
    let found: i64 = sqlx::query_scalar("SELECT version FROM meridian FOR UPDATE")
        .fetch_one(&mut *change)
        .await?;
    let done = usize::try_from(found + 1 - FIRST).unwrap_or_default();
    for step in MIGRATIONS.iter().skip(done) {
        sqlx::raw_sql(*step).execute(&mut *change).await?;
    }
    sqlx::query("UPDATE meridian SET version = $1")
        .bind(LATEST)
        .execute(&mut *change)
        .await?;
    change.commit().await?;
    tracing::info!(version = found, "the catalog is brought up to date");
    Ok(())
}

/// A name that no other data directory has.
fn random_name() -> Result<String, CatalogError> {
    let source = Path::new("/dev/urandom");
    let mut bytes = [0; 16];
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(CatalogError::io("read", source))?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}
