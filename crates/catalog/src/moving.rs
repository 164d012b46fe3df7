//! Copies of the catalog: into another database, which keeps it from then on, or into a file for a backup.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::CatalogError;
use crate::backend::CatalogBackend;
use crate::opened::Alone;
use crate::postgres::{AddressFile, PostgresAddress, PostgresCatalog};
use crate::sqlite::{FILE_NAME, SqliteCatalog};
use crate::statements::{Transaction, copy_all, problems_in};

/// The name that a catalog in SQLite gets when it was copied into PostgreSQL.
pub const COPIED_FILE: &str = "meridian.sqlite.copied";

/// Where the catalog of a data directory is, in words.
pub fn catalog_place(data_dir: &Path) -> Result<String, CatalogError> {
    let sqlite = data_dir.join(FILE_NAME);
    match AddressFile::read(data_dir)? {
        Some(file) => Ok(file.address.to_string()),
        None if sqlite.is_file() => Ok(sqlite.display().to_string()),
        None => Err(CatalogError::NoCatalog {
            dir: data_dir.to_owned(),
        }),
    }
}

/// Takes the catalog of a data directory from SQLite into PostgreSQL. Gives how many rows it has.
///
/// The rows are read again in the new place, and compared with their checksums, before the new place counts. A process that is killed leaves the
/// old place, or the new one.
///
/// # Errors
/// Somebody has the catalog open, it is damaged or in PostgreSQL already, or the schema is there.
pub async fn copy_to_postgres(
    data_dir: &Path,
    address: &PostgresAddress,
) -> Result<usize, CatalogError> {
    if !data_dir.join(FILE_NAME).is_file() || AddressFile::read(data_dir)?.is_some() {
        let place = catalog_place(data_dir)?;
        return Err(CatalogError::IsThere { place });
    }
    let _alone = Alone::in_dir(data_dir)?;
    let source = SqliteCatalog::open(data_dir).await?;
    let mut from = source.begin_write().await?;
    let file = PostgresCatalog::prepare(data_dir, address).await?;
    let target = PostgresCatalog::of_file(data_dir, file)?;
    let mut to = target.begin_write().await?;
    let rows = copy_whole(&mut from, &mut to).await?;
    to.commit().await?;
    // From here on the copy counts.
    AddressFile::establish(data_dir)?;
    drop(from);
    source.close().await;
    set_aside(data_dir)?;
    Ok(rows)
}

/// Takes the catalog of a data directory from PostgreSQL into SQLite. The schema stays as it is.
///
/// # Errors
/// As for [`copy_to_postgres`].
pub async fn copy_to_sqlite(data_dir: &Path) -> Result<usize, CatalogError> {
    let Some(file) = AddressFile::read(data_dir)? else {
        let place = catalog_place(data_dir)?;
        return Err(CatalogError::IsThere { place });
    };
    let _alone = Alone::in_dir(data_dir)?;
    let source = PostgresCatalog::of_file(data_dir, file)?;
    source.expect_alone(data_dir).await?;
    let path = new_file(data_dir);
    remove_database(&path)?;
    let from = source.begin_write().await?;
    let rows = copy_into_file(from, &path).await?;
    // One that does not count, since a copy was killed.
    remove_database(&data_dir.join(FILE_NAME))?;
    remove_publications(data_dir)?;
    let renamed = fs::rename(&path, data_dir.join(FILE_NAME));
    renamed.map_err(CatalogError::io("rename", &path))?;
    sync_dir(data_dir)?;
    // From here on the copy counts.
    AddressFile::remove(data_dir)?;
    Ok(rows)
}

/// Copies the catalog of a data directory, as it is at one moment, into an SQLite file that is new, in a directory of its own.
///
/// # Errors
/// The catalog cannot be read, or the file cannot be written.
pub async fn copy_catalog(data_dir: &Path, to: &Path) -> Result<(), CatalogError> {
    match AddressFile::read(data_dir)? {
        None => crate::copy_database(&data_dir.join(FILE_NAME), to).await,
        Some(file) => {
            let source = PostgresCatalog::of_file(data_dir, file)?;
            copy_into_file(source.begin_read().await?, to).await?;
            Ok(())
        }
    }
}

async fn copy_into_file(
    mut from: Transaction<'static>,
    path: &Path,
) -> Result<usize, CatalogError> {
    let target = SqliteCatalog::create_at(path).await?;
    let mut to = target.begin_write().await?;
    let rows = copy_whole(&mut from, &mut to).await?;
    to.commit().await?;
    target.close().await;
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(CatalogError::io("write", path))?;
    Ok(rows)
}

/// Copies all rows, and sees that what is there now fits its checksums.
async fn copy_whole(
    from: &mut Transaction<'_>,
    to: &mut Transaction<'_>,
) -> Result<usize, CatalogError> {
    if let Some(problem) = problems_in(from).await?.into_iter().next() {
        return Err(CatalogError::CopyOfDamage { problem });
    }
    let rows = copy_all(from, to).await?;
    match problems_in(to).await?.into_iter().next() {
        None => Ok(rows),
        Some(problem) => Err(CatalogError::CopyOfDamage { problem }),
    }
}

fn new_file(data_dir: &Path) -> PathBuf {
    data_dir.join(format!("{FILE_NAME}.new"))
}

/// Removes a database that nobody needs, with what SQLite keeps beside it.
fn remove_database(path: &Path) -> Result<(), CatalogError> {
    for ending in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        remove_if_there(Path::new(&name))?;
    }
    Ok(())
}

/// Gives the catalog in SQLite a name under which it does not look like one.
fn set_aside(data_dir: &Path) -> Result<(), CatalogError> {
    let path = data_dir.join(FILE_NAME);
    fs::rename(&path, data_dir.join(COPIED_FILE)).map_err(CatalogError::io("rename", &path))?;
    remove_database(&path)?;
    remove_publications(data_dir)?;
    sync_dir(data_dir)
}

fn remove_publications(data_dir: &Path) -> Result<(), CatalogError> {
    remove_if_there(&data_dir.join(crate::sqlite::PUBLICATIONS_FILE))
}

fn remove_if_there(path: &Path) -> Result<(), CatalogError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(CatalogError::io("remove", path)(error))
        }
        _ => Ok(()),
    }
}

fn sync_dir(dir: &Path) -> Result<(), CatalogError> {
    File::open(dir)
        .and_then(|dir| dir.sync_all())
        .map_err(CatalogError::io("write", dir))
}
