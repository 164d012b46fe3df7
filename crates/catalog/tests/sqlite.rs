//! What is peculiar to the SQLite backend: its file, its versions, its processes.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod support;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use meridian_catalog::{Catalog, CatalogError, LoadLock};
use sqlx::{Connection, SqliteConnection};
use support::{chunks, director, load, shown};

/// Tells the test binary, started again by one of its tests, of which file to request the locks.
#[cfg(target_os = "linux")]
const LOCKER_FILE: &str = "MERIDIAN_CATALOG_TEST_LOCKED";

/// Tells the test binary, started again by one of its tests, in which directory to play the loader.
const LOADER_DIRECTORY: &str = "MERIDIAN_CATALOG_TEST_DIRECTORY";

async fn plain_connection(dir: &Path) -> SqliteConnection {
    let url = format!(
        "sqlite://{}?mode=rwc",
        dir.join("meridian.sqlite").display()
    );
    SqliteConnection::connect(&url).await.unwrap()
}

/// A copy of a data directory without SQLite's log lacked the tables that were loaded last, for as long as anybody had the
/// catalog open.
#[tokio::test]
async fn a_closed_catalog_is_whole_without_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let reader = Catalog::open_or_create(dir.path()).await.unwrap();
    let writer = Catalog::open(dir.path()).await.unwrap();
    let spec = director("sky", "Object");
    load(&writer, &spec, &chunks(3, 10)).await.unwrap();
    writer.close().await;
    writer.close().await;
    let copy = tempfile::tempdir().unwrap();
    let file = "meridian.sqlite";
    std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
    let copied = Catalog::open(copy.path()).await.unwrap();
    assert_eq!(shown(&copied, "sky", "Object").await.spec, spec);
    assert_eq!(shown(&reader, "sky", "Object").await.spec, spec);
}

#[tokio::test]
async fn the_state_changes_with_every_change_and_with_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    let mut seen = vec![catalog.state().unwrap()];
    let others = [
        Catalog::open(dir.path()).await.unwrap(),
        Catalog::open(dir.path()).await.unwrap(),
    ];
    for round in 0..40 {
        let other = &others[round % 2];
        load(
            other,
            &director("sky", &format!("Object{round}")),
            &chunks(3, 10),
        )
        .await
        .unwrap();
        let state = catalog.state().unwrap();
        assert!(!seen.contains(&state), "round {round}");
        assert_eq!(catalog.tables("sky").await.unwrap().len(), round + 1);
        assert_eq!(other.state(), Some(state));
        seen.push(state);
    }
}

#[tokio::test]
async fn a_change_is_seen_that_was_made_while_nobody_had_the_catalog_open() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for round in 0..5 {
        let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
        catalog.tables("sky").await.unwrap();
        let state = catalog.state().unwrap();
        assert!(!seen.contains(&state), "round {round}");
        seen.push(state);
        load(
            &catalog,
            &director("sky", &format!("Object{round}")),
            &chunks(3, 10),
        )
        .await
        .unwrap();
        catalog.close().await;
        assert_eq!(catalog.state(), None);
    }
}

/// Asks for the test below, as another process, for the wal-index's locks; fails if it gets them. Does nothing by itself.
#[cfg(target_os = "linux")]
#[test]
fn locker_process() {
    let Some(wal_index) = std::env::var_os(LOCKER_FILE) else {
        return;
    };
    let wal_index = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(wal_index)
        .unwrap();
    let asked = rustix::fs::fcntl_lock(
        &wal_index,
        rustix::fs::FlockOperation::NonBlockingLockExclusive,
    );
    assert_eq!(asked, Err(rustix::io::Errno::AGAIN));
}

/// SQLite's locks tell other processes that the wal-index is in use; without them they would truncate it under us.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn looking_at_the_state_leaves_the_locks_of_sqlite_alone() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    catalog.databases().await.unwrap();
    let wal_index = dir.path().join("meridian.sqlite-shm");
    let rejected_to_another_process = || {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "locker_process"])
            .env(LOCKER_FILE, &wal_index)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap()
            .success()
    };
    assert!(
        rejected_to_another_process(),
        "SQLite holds no lock on its wal-index"
    );
    for round in 0..3 {
        catalog.state().unwrap();
        let other = Catalog::open(dir.path()).await.unwrap();
        other.state().unwrap();
        other.close().await;
        assert!(
            rejected_to_another_process(),
            "the locks are lost, round {round}"
        );
    }
    // It can tell: a descriptor of the file that is closed takes the locks along.
    drop(std::fs::File::open(&wal_index).unwrap());
    assert!(!rejected_to_another_process());
}

#[tokio::test]
async fn opening_what_is_not_there_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for missing in [dir.path().to_owned(), dir.path().join("no/such")] {
        let error = Catalog::open(&missing).await.unwrap_err();
        assert!(
            error.to_string().contains("holds no Meridian data"),
            "{error}"
        );
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    Catalog::open_or_create(&dir.path().join("new/place"))
        .await
        .unwrap();
    Catalog::open(&dir.path().join("new/place")).await.unwrap();
}

#[tokio::test]
async fn a_foreign_database_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut foreign = plain_connection(dir.path()).await;
    sqlx::query("CREATE TABLE notes (t TEXT)")
        .execute(&mut foreign)
        .await
        .unwrap();
    for opened in [
        Catalog::open(dir.path()).await,
        Catalog::open_or_create(dir.path()).await,
    ] {
        let error = opened.unwrap_err();
        assert!(matches!(error, CatalogError::NotACatalog { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_newer_catalog_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    drop(Catalog::open_or_create(dir.path()).await.unwrap());
    let mut later = plain_connection(dir.path()).await;
    sqlx::query("PRAGMA user_version = 1000")
        .execute(&mut later)
        .await
        .unwrap();
    let error = Catalog::open(dir.path()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("newer Meridian (catalog version 1000"),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_that_is_no_database_gives_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("meridian.sqlite"), [b'x'; 5000]).unwrap();
    let error = Catalog::open(dir.path()).await.unwrap_err();
    assert!(error.to_string().contains("not a database"), "{error}");
}

/// A crash between the making of the file and the end of the first migration leaves an empty
/// database, which the next start fills.
#[tokio::test]
async fn an_unfinished_creation_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("meridian.sqlite"), []).unwrap();
    let catalog = Catalog::open(dir.path()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(1, 1))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_can_create_the_same_catalog_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let dir = dir.path().to_owned();
        tasks.spawn(async move { Catalog::open_or_create(&dir).await.map(drop) });
    }
    for opened in tasks.join_all().await {
        opened.unwrap();
    }
}

/// A reader in the middle of a transaction of its own neither waits for a publication nor makes it
/// wait.
#[tokio::test]
async fn a_reader_with_an_open_snapshot_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(10, 1))
        .await
        .unwrap();
    let mut reader = plain_connection(dir.path()).await;
    let mut snapshot = reader.begin().await.unwrap();
    let count = "SELECT count(*) FROM chunks";
    let before: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut *snapshot)
        .await
        .unwrap();
    load(&catalog, &director("d", "t"), &chunks(10, 2))
        .await
        .unwrap();
    let after: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut *snapshot)
        .await
        .unwrap();
    assert_eq!((before, after), (10, 10));
}

/// Plays the loader for the test below: replaces a table for ever. Does nothing by itself.
#[tokio::test]
async fn loader_process() {
    let Some(dir) = std::env::var_os(LOADER_DIRECTORY) else {
        return;
    };
    let dir = Path::new(&dir);
    let _lock = LoadLock::acquire(dir, "d", "t", "being killed").unwrap();
    let catalog = Catalog::open_or_create(dir).await.unwrap();
    for rows in 0.. {
        load(&catalog, &director("d", "t"), &chunks(500, rows))
            .await
            .unwrap();
    }
}

fn start_loader(dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loader_process"])
        .env(LOADER_DIRECTORY, dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills a loading process at many moments while we read: what is shown is always whole, the lock is
/// free at once, and what the process left is found.
#[tokio::test]
async fn a_killed_process_leaves_a_whole_state() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(500, 0))
        .await
        .unwrap();
    for round in 0..12 {
        let mut loader = start_loader(dir.path());
        let first = shown(&catalog, "d", "t").await.placement;
        while shown(&catalog, "d", "t").await.placement == first {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rejected = LoadLock::acquire(dir.path(), "d", "t", "")
            .unwrap_err()
            .to_string();
        assert!(
            rejected.contains(&format!("process {}", loader.id())),
            "{rejected}"
        );
        // Successive rounds end at moments that drift through a publication.
        tokio::time::sleep(Duration::from_micros(1700 * round)).await;
        loader.kill().unwrap();
        loader.wait().unwrap();
        let _lock = LoadLock::acquire(dir.path(), "d", "t", "cleaning up").unwrap();
        let table = shown(&catalog, "d", "t").await;
        assert_eq!(catalog.chunk_count(table.placement).await.unwrap(), 500);
        let unpublished = catalog.unpublished_loads("d", "t").await.unwrap();
        assert!(unpublished.len() <= 1, "{unpublished:?}");
        let superseded = catalog.superseded_loads().await.unwrap();
        let superseded: Vec<_> = superseded.into_iter().map(|it| it.load).collect();
        for left in [unpublished, superseded].concat() {
            catalog.forget(left).await.unwrap();
        }
    }
}
