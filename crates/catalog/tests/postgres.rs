//! What only a catalog in PostgreSQL has to do: belong to one data directory, and bear that connections are lost.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod support;

use std::time::{Duration, Instant};

use meridian_catalog::{
    Catalog, CatalogError, LoadId, LoadLock, PartLease, PartRemoval, PostgresAddress, copy_catalog,
    copy_to_postgres, copy_to_sqlite,
};
use sqlx::{AssertSqlSafe, PgConnection};
use support::private_postgres::PostgresPlace;
use support::{
    chunks, dependent, director, load, publish, replicated, settled, shown, wait_for_state, whole,
    words,
};

async fn run(connection: &mut PgConnection, statement: String) {
    sqlx::raw_sql(AssertSqlSafe(statement))
        .execute(connection)
        .await
        .unwrap();
}

/// Ends the sessions of a schema that have this name, as an administrator or a restart does.
async fn end_sessions(place: &PostgresPlace, kind: &str) {
    let name = format!("meridian {}{kind}", place.schema);
    let mut connection = place.server.connect(&place.schema).await;
    let ended: Vec<bool> = sqlx::query_scalar(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
    )
    .bind(&name)
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert!(!ended.is_empty());
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let count: i64 =
            sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1")
                .bind(&name)
                .fetch_one(&mut connection)
                .await
                .unwrap();
        // The pool connects again by itself; what holds locks does not.
        if kind.is_empty() || count == 0 {
            return;
        }
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_is_of_one_data_directory() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let address = place.server.address(&place.schema);
    let again = Catalog::create_in_postgres(place.first_dir(), &address).await;
    assert!(matches!(again, Err(CatalogError::CatalogExists { .. })));

    // Another directory does not get it, and nothing is left there that counts.
    let other = tempfile::tempdir().unwrap();
    let taken = Catalog::create_in_postgres(other.path(), &address).await;
    assert!(
        matches!(taken, Err(CatalogError::SchemaInUse { .. })),
        "{taken:?}"
    );
    assert!(matches!(
        Catalog::open(other.path()).await,
        Err(CatalogError::NoCatalog { .. })
    ));

    // A process that was killed before the file got its name: the next attempt finds the same schema.
    let file = place.first_dir().join("meridian.catalog");
    std::fs::rename(&file, place.first_dir().join("meridian.catalog.new")).unwrap();
    Catalog::create_in_postgres(place.first_dir(), &address)
        .await
        .unwrap();
    let catalog = Catalog::open(place.first_dir()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(2, 1))
        .await
        .unwrap();

    // The schema is made anew for another directory: this one does not take it for its own.
    let mut connection = place.server.connect(&place.schema).await;
    run(
        &mut connection,
        format!("DROP SCHEMA {} CASCADE", place.schema),
    )
    .await;
    let missing = Catalog::open(place.first_dir()).await.unwrap_err();
    assert!(
        matches!(missing, CatalogError::NoSchema { .. }),
        "{missing}"
    );
    let new = tempfile::tempdir().unwrap();
    Catalog::create_in_postgres(new.path(), &address)
        .await
        .unwrap();
    let foreign = Catalog::open(place.first_dir()).await.unwrap_err();
    assert!(
        matches!(foreign, CatalogError::OtherArchive { .. }),
        "{foreign}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_with_tables_does_not_get_an_empty_catalog() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    drop(Catalog::open_or_create(dir.path()).await.unwrap());
    let address = place.server.address(&place.server.new_schema());
    let error = Catalog::create_in_postgres(dir.path(), &address)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("meridian catalog copy"),
        "{error}"
    );
}

#[tokio::test]
async fn a_database_that_is_not_there_is_told_without_its_password() {
    let dir = tempfile::tempdir().unwrap();
    let password = dir.path().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let nowhere = dir.path().display();
    let url = format!("postgres://me@localhost/db?host={nowhere}");
    let address = PostgresAddress::new(&url, None, Some(&password)).unwrap();
    let data = dir.path().join("data");
    let error = Catalog::create_in_postgres(&data, &address)
        .await
        .unwrap_err();
    let told = format!("{error} {error:?} {address:?}");
    assert!(matches!(error, CatalogError::Unreachable { .. }), "{error}");
    assert!(!told.contains("secret"), "{told}");
    let written = std::fs::read_to_string(data.join("meridian.catalog.new")).unwrap();
    assert!(!written.contains("secret"), "{written}");
}

/// The session that holds the locks is gone, and somebody else may have had them: nothing is published in the belief that they are held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_published_without_the_locks() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let (dir, elsewhere) = (place.another_dir(), place.another_dir());
    let catalog = Catalog::open(&dir).await.unwrap();
    let lock = LoadLock::acquire(&dir, "d", "t", "loading").unwrap();
    let running = catalog.begin_load("d", "t").await.unwrap();
    end_sessions(&place, " locks").await;

    // Whoever comes next finds what we have begun, and may remove it.
    let next = LoadLock::acquire(&elsewhere, "d", "t", "loading").unwrap();
    let spec = director("d", "t");
    let error = publish(&catalog, running, &spec, &chunks(3, 1)).await;
    assert!(matches!(error, Err(CatalogError::LockLost)), "{error:?}");
    assert_eq!(catalog.table("d", "t").await.unwrap(), None);
    drop(next);

    // With the lost lock all goes on.
    drop(lock);
    let _lock = LoadLock::acquire(&dir, "d", "t", "loading").unwrap();
    publish(&catalog, running, &spec, &chunks(3, 1))
        .await
        .unwrap();
    shown(&catalog, "d", "t").await;
}

/// While the database does not answer for the schema no state is known, so that no plan is kept; and what was changed until it
/// answers again is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_state_is_unknown_while_nobody_hears_of_changes() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let reader = Catalog::open(&place.another_dir()).await.unwrap();
    let writer = Catalog::open(&place.another_dir()).await.unwrap();
    load(&writer, &director("d", "t"), &chunks(1, 1))
        .await
        .unwrap();
    let before = settled(&reader).await;
    let mut connection = place.server.connect(&place.schema).await;
    let schema = &place.schema;
    run(
        &mut connection,
        format!("ALTER SCHEMA {schema} RENAME TO {schema}_away"),
    )
    .await;
    let give_up = Instant::now() + Duration::from_secs(60);
    while reader.state().is_some() {
        assert!(Instant::now() < give_up, "the state is still known");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    run(
        &mut connection,
        format!("ALTER SCHEMA {schema}_away RENAME TO {schema}"),
    )
    .await;
    end_sessions(&place, "").await;
    load(&writer, &director("d", "u"), &chunks(1, 1))
        .await
        .unwrap();
    let after = settled(&writer).await;
    wait_for_state(&reader, after).await;
    assert_ne!(before, after);
    assert_eq!(reader.tables("d").await.unwrap().len(), 2);
}

/// Every kind of row is covered by a checksum, as in SQLite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_were_altered_are_noticed() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let catalog = Catalog::open(&place.another_dir()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(5, 2))
        .await
        .unwrap();
    let query = support::query("SELECT 1");
    catalog
        .create_view("d", "v", &query, None, false)
        .await
        .unwrap();
    assert_eq!(catalog.verify().await.unwrap(), Vec::<String>::new());
    let mut connection = place.server.connect(&place.schema).await;
    for (there, back) in [
        (
            "UPDATE databases SET overlap_deg = overlap_deg * 2",
            "UPDATE databases SET overlap_deg = overlap_deg / 2",
        ),
        (
            "UPDATE tables SET scan_rating = 2",
            "UPDATE tables SET scan_rating = 1",
        ),
        (
            "UPDATE parts SET row_count = row_count + 1",
            "UPDATE parts SET row_count = row_count - 1",
        ),
        (
            "UPDATE columns SET nullable = 1 - nullable",
            "UPDATE columns SET nullable = 1 - nullable",
        ),
        (
            "UPDATE chunks SET checksum = checksum + 1 WHERE chunk_id = 3",
            "UPDATE chunks SET checksum = checksum - 1 WHERE chunk_id = 3",
        ),
        (
            "UPDATE loads SET pid = pid + 1",
            "UPDATE loads SET pid = pid - 1",
        ),
        (
            "UPDATE views SET definition = 'SELECT 2'",
            "UPDATE views SET definition = 'SELECT 1'",
        ),
        (
            "UPDATE lists SET checksum = checksum + 1",
            "UPDATE lists SET checksum = checksum - 1",
        ),
    ] {
        run(&mut connection, there.to_owned()).await;
        assert_ne!(
            catalog.verify().await.unwrap(),
            Vec::<String>::new(),
            "{there}"
        );
        run(&mut connection, back.to_owned()).await;
        assert_eq!(
            catalog.verify().await.unwrap(),
            Vec::<String>::new(),
            "{back}"
        );
    }
}

/// All that a catalog tells of two databases.
async fn all_of(catalog: &Catalog) -> String {
    let mut text = String::new();
    for database in catalog.databases().await.unwrap() {
        text += &format!("{database:?}\n");
        for table in catalog.tables(&database.name).await.unwrap() {
            text += &format!("{table:?}\n");
            for part in &table.parts {
                text += &format!("{:?}\n", catalog.chunks(part.load).await.unwrap());
            }
            let name = &table.spec.name;
            let unpublished = catalog.unpublished_loads(&database.name, name).await;
            text += &format!("{:?}\n", unpublished.unwrap());
        }
    }
    text += &format!("{:?}\n", catalog.views().await.unwrap());
    text + &format!("{:?}\n", catalog.superseded_loads().await.unwrap())
}

/// A catalog in SQLite with something of each kind, whose highest load is forgotten.
async fn fill(dir: &std::path::Path) -> LoadId {
    let catalog = Catalog::open_or_create(dir).await.unwrap();
    let (object, _) = load(&catalog, &director("d", "Object"), &chunks(40, 3))
        .await
        .unwrap();
    let child = dependent("d", "Source", &[("Object", object)]);
    load(&catalog, &child, &chunks(7, 1)).await.unwrap();
    load(&catalog, &replicated("e", "Filter"), &whole(6))
        .await
        .unwrap();
    load(&catalog, &replicated("e", "Filter"), &whole(7))
        .await
        .unwrap();
    catalog.describe("d", &words()).await.unwrap();
    let query = support::query("SELECT 'é'");
    catalog
        .create_view("d", "v", &query, Some("a view"), false)
        .await
        .unwrap();
    let given_up = catalog.begin_load("d", "Object").await.unwrap();
    catalog.abandon(given_up).await.unwrap();
    let last = catalog.begin_load("d", "Object").await.unwrap();
    catalog.abandon(last).await.unwrap();
    catalog.forget(last).await.unwrap();
    catalog.close().await;
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_catalog_is_copied_there_and_back() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let dir = data.path();
    let last = fill(dir).await;
    let address = place.server.address(&place.server.new_schema());

    let open = Catalog::open(dir).await.unwrap();
    let all = all_of(&open).await;
    let refused = copy_to_postgres(dir, &address).await.unwrap_err();
    assert!(
        matches!(refused, CatalogError::StillOpen { .. }),
        "{refused}"
    );
    drop(open);
    let rows = copy_to_postgres(dir, &address).await.unwrap();
    assert!(rows > 50, "{rows}");
    assert!(!dir.join("meridian.sqlite").exists());
    let again = copy_to_postgres(dir, &address).await.unwrap_err();
    assert!(matches!(again, CatalogError::IsThere { .. }), "{again}");

    let copied = Catalog::open(dir).await.unwrap();
    assert_eq!(all_of(&copied).await, all);
    assert_eq!(copied.verify().await.unwrap(), Vec::<String>::new());
    // No number is used again, though the load that had it is forgotten.
    let next = copied.begin_load("d", "Object").await.unwrap();
    assert!(next > last);
    copied.abandon(next).await.unwrap();
    copied.forget(next).await.unwrap();
    load(&copied, &director("d", "New"), &chunks(3, 1))
        .await
        .unwrap();
    let all = all_of(&copied).await;

    // A copy for a backup is made beside whoever has it open.
    let backup = tempfile::tempdir().unwrap();
    copy_catalog(dir, &backup.path().join("meridian.sqlite"))
        .await
        .unwrap();
    let backed_up = Catalog::open(backup.path()).await.unwrap();
    assert_eq!(all_of(&backed_up).await, all);

    let refused = copy_to_sqlite(dir).await.unwrap_err();
    assert!(
        matches!(refused, CatalogError::StillOpen { .. }),
        "{refused}"
    );
    drop(copied);
    copy_to_sqlite(dir).await.unwrap();
    assert!(!dir.join("meridian.catalog").exists());
    let back = Catalog::open(dir).await.unwrap();
    assert_eq!(all_of(&back).await, all);
    assert_eq!(back.verify().await.unwrap(), Vec::<String>::new());
    assert!(back.begin_load("d", "Object").await.unwrap() > next);
}

/// A copy that was killed when the schema was full, before it counted: the old place counts, and a second copy has what changed since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_killed_is_made_anew() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let data = tempfile::tempdir().unwrap();
    let dir = data.path();
    fill(dir).await;
    let address = place.server.address(&place.server.new_schema());
    copy_to_postgres(dir, &address).await.unwrap();
    let rename = |from: &str, to: &str| std::fs::rename(dir.join(from), dir.join(to)).unwrap();
    rename("meridian.catalog", "meridian.catalog.new");
    rename("meridian.sqlite.copied", "meridian.sqlite");
    let catalog = Catalog::open(dir).await.unwrap();
    load(&catalog, &director("d", "New"), &chunks(3, 1))
        .await
        .unwrap();
    catalog.drop_view("d", "v").await.unwrap();
    let all = all_of(&catalog).await;
    catalog.close().await;
    drop(catalog);
    copy_to_postgres(dir, &address).await.unwrap();
    let copied = Catalog::open(dir).await.unwrap();
    assert_eq!(all_of(&copied).await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_catalog_is_not_copied() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let catalog = Catalog::open(place.first_dir()).await.unwrap();
    load(&catalog, &director("d", "t"), &chunks(5, 2))
        .await
        .unwrap();
    drop(catalog);
    let mut connection = place.server.connect(&place.schema).await;
    run(
        &mut connection,
        "UPDATE chunks SET row_count = 3".to_owned(),
    )
    .await;
    let error = copy_to_sqlite(place.first_dir()).await.unwrap_err();
    assert!(
        matches!(error, CatalogError::CopyOfDamage { .. }),
        "{error}"
    );
    run(
        &mut connection,
        "UPDATE chunks SET row_count = 2".to_owned(),
    )
    .await;
    copy_to_sqlite(place.first_dir()).await.unwrap();
}

/// Of two front ends the one keeps what the other would remove; and nobody begins to read what is being removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_is_kept_while_somebody_has_a_lease() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let (here, there) = (place.another_dir(), place.another_dir());
    let catalog = Catalog::open(&here).await.unwrap();
    let load = catalog.begin_load("d", "t").await.unwrap();
    let other = catalog.begin_load("d", "u").await.unwrap();
    let (first, second) = (
        PartLease::take(&here, load).unwrap().unwrap(),
        PartLease::take(&here, load).unwrap().unwrap(),
    );
    assert!(PartRemoval::begin(&there, load).unwrap().is_none());
    assert!(PartRemoval::begin(&here, load).unwrap().is_none());
    assert!(PartRemoval::begin(&there, other).unwrap().is_some());
    drop(first);
    assert!(PartRemoval::begin(&there, load).unwrap().is_none());
    drop(second);

    // A removal that was not done leaves the part as it was.
    let removal = PartRemoval::begin(&there, load).unwrap().unwrap();
    assert!(PartLease::take(&here, load).unwrap().is_none());
    drop(removal);
    drop(PartLease::take(&here, load).unwrap().unwrap());
    PartRemoval::begin(&there, load).unwrap().unwrap().finish();
    assert!(PartLease::take(&here, load).unwrap().is_none());
    // Somebody else may finish it, who was killed after that.
    PartRemoval::begin(&here, load).unwrap().unwrap().finish();
    catalog.abandon(load).await.unwrap();
    catalog.forget(load).await.unwrap();
    assert!(PartLease::take(&here, load).unwrap().is_none());
}

/// A front end that is gone keeps nothing for longer than its term; one that was only slow has its leases again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_of_dead_front_ends_end() {
    let Some(place) = PostgresPlace::new().await else {
        return;
    };
    let (here, there) = (place.another_dir(), place.another_dir());
    let catalog = Catalog::open(&here).await.unwrap();
    let mut connection = place.server.connect(&place.schema).await;
    for ended in [
        // Its term is over.
        "UPDATE readers SET expires_at = now() - interval '1 second'",
        // It was a process of this machine that is no more.
        "UPDATE readers SET began = began - 1",
    ] {
        let removed = catalog.begin_load("d", "t").await.unwrap();
        let kept = catalog.begin_load("d", "u").await.unwrap();
        let _lost = PartLease::take(&here, removed).unwrap().unwrap();
        let _kept = PartLease::take(&here, kept).unwrap().unwrap();
        // It renews its row now and then.
        let removal = loop {
            run(&mut connection, ended.to_owned()).await;
            if let Some(removal) = PartRemoval::begin(&there, removed).unwrap() {
                break removal;
            }
        };
        removal.finish();
        let third = catalog.begin_load("d", "v").await.unwrap();
        let _third = PartLease::take(&here, third).unwrap().unwrap();
        for held in [kept, third] {
            assert!(PartRemoval::begin(&there, held).unwrap().is_none());
        }
    }
}
