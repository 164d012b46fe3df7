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
    }
}

/// The file with the number of publications, and what it has of changes that were begun and ended.
fn publications(dir: &Path) -> (std::path::PathBuf, [u64; 2]) {
    let path = dir.join("meridian.publications");
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(&bytes[..8], b"MRDNPUB1");
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (path, [number(8), number(16)])
}

fn write_publications(path: &Path, numbers: [u64; 2]) {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    let bytes: Vec<u8> = b"MRDNPUB1".iter().copied().chain(numbers).collect();
    std::fs::write(path, bytes).unwrap();
}

/// A writer that was killed around its commit leaves a number of a change of which nobody knows whether it is committed.
#[tokio::test]
async fn a_number_that_a_killed_writer_left_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(1, 1))
        .await
        .unwrap();
    let before = catalog.state().unwrap();
    let (path, numbers) = publications(dir.path());
    assert_eq!(numbers, [1, 1]);
    // Before the commit; and after it, where the row is ahead of the file.
    for left in [[2, 1], [1, 0]] {
        write_publications(&path, left);
        assert_eq!(catalog.state(), None, "{left:?}");
        // Whoever opens the catalog settles it, and so does whoever has it open and reads.
        let other = Catalog::open(dir.path()).await.unwrap();
        assert_eq!(other.state(), Some(before), "{left:?}");
        assert_eq!(catalog.state(), Some(before), "{left:?}");
        write_publications(&path, left);
        let end = std::time::Instant::now() + Duration::from_secs(20);
        while catalog.state().is_none() {
            assert!(std::time::Instant::now() < end, "{left:?}");
            catalog.tables("d").await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(catalog.state(), Some(before), "{left:?}");
    }
    // After a power failure both numbers may be those of an earlier change.
    write_publications(&path, [0, 0]);
    Catalog::open(dir.path()).await.unwrap();
    assert_eq!(publications(dir.path()).1, [1, 1]);
    load(&catalog, &director("d", "t"), &chunks(1, 2))
        .await
        .unwrap();
    assert_eq!(publications(dir.path()).1, [2, 2]);
}

/// While a change is being committed, the number says that nothing is known, and opening the catalog waits for nobody.
#[tokio::test]
async fn a_writer_at_work_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(1, 1))
        .await
        .unwrap();
    let (path, _) = publications(dir.path());
    let mut writer = plain_connection(dir.path()).await;
    let locked = writer.begin_with("BEGIN IMMEDIATE").await.unwrap();
    write_publications(&path, [2, 1]);
    let start = std::time::Instant::now();
    let other = Catalog::open(dir.path()).await.unwrap();
    assert_eq!(shown(&other, "d", "t").await.rows(), 1);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert_eq!((other.state(), publications(dir.path()).1), (None, [2, 1]));
    locked.rollback().await.unwrap();
}

/// A copy without the file, a foreign file in its place, one that is cut off.
#[tokio::test]
async fn a_number_that_is_not_there_is_unknown_and_made() {
    let dir = tempfile::tempdir().unwrap();
    drop(Catalog::open_or_create(dir.path()).await.unwrap());
    let (path, _) = publications(dir.path());
    for content in [None, Some(&b"MRDNPUB1"[..]), Some(&[b'x'; 24])] {
        std::fs::remove_file(&path).unwrap();
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let catalog = Catalog::open(dir.path()).await.unwrap();
        assert!(catalog.state().is_some(), "{content:?}");
        load(&catalog, &director("d", "t"), &chunks(1, 1))
            .await
            .unwrap();
        assert!(catalog.state().is_some(), "{content:?}");
    }
}

/// The state is asked for each statement.
#[expect(clippy::print_stdout, reason = "the figure is worth reading")]
#[tokio::test]
async fn looking_at_the_state_takes_microseconds() {
    const LOOKS: u32 = 10_000;
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    let start = std::time::Instant::now();
    for _ in 0..LOOKS {
        catalog.state().unwrap();
    }
    let each = start.elapsed() / LOOKS;
    println!("a look at the state takes {each:?}");
    // Ten times what it takes in a debug build on a busy machine; a query takes as long as that at the very least.
    assert!(each < Duration::from_micros(100), "{each:?}");
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
        let reopened = Catalog::open(dir.path()).await.unwrap();
        assert!(reopened.state().is_some(), "round {round}");
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
