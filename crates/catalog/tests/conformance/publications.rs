//! Loads become visible as a whole, or not at all.

use meridian_catalog::{CatalogError, LoadId, LoadLock, NewDatabase};

use crate::support::{
    chunks, contents, database, dependent, director, load, publish, replicated, shown, whole,
};
use crate::{Place, superseded};

async fn an_empty_catalog_has_nothing(place: impl Place) {
    let catalog = place.open().await;
    assert_eq!(catalog.databases().await.unwrap(), []);
    assert_eq!(catalog.database("demo").await.unwrap(), None);
    assert_eq!(catalog.tables("demo").await.unwrap(), []);
    assert_eq!(catalog.table("demo", "Object").await.unwrap(), None);
    assert_eq!(catalog.chunks(LoadId(1)).await.unwrap(), []);
    assert_eq!(
        catalog.unpublished_loads("demo", "Object").await.unwrap(),
        []
    );
}

async fn what_is_published_comes_back(place: impl Place) {
    let catalog = place.open().await;
    let spec = director("Demo", "Object");
    let (id, published) = load(&catalog, &spec, &chunks(50, 10)).await.unwrap();
    assert_eq!(published, []);

    let table = shown(&catalog, "Demo", "Object").await;
    assert_eq!(table.spec, spec);
    assert_eq!(
        (table.part_numbers(), table.rows(), table.bytes()),
        (vec![id], 500, 20_000)
    );
    assert_eq!(NewDatabase::from(&table.database), database("Demo"));
    assert_eq!(catalog.chunks(id).await.unwrap(), chunks(50, 10));
    assert_eq!(catalog.chunk_count(id).await.unwrap(), 50);
    assert_eq!(
        catalog.databases().await.unwrap(),
        std::slice::from_ref(&table.database)
    );
    assert_eq!(catalog.tables("Demo").await.unwrap(), [table]);
    assert_eq!(
        catalog.unpublished_loads("Demo", "Object").await.unwrap(),
        []
    );
}

async fn all_kinds_come_back(place: impl Place) {
    let catalog = place.open().await;
    let (object, _) = load(&catalog, &director("d", "Object"), &chunks(3, 1))
        .await
        .unwrap();
    let (reference, _) = load(&catalog, &director("d", "Ref"), &chunks(3, 1))
        .await
        .unwrap();
    let child = dependent("d", "Source", &[("Object", object)]);
    let pairs = dependent("d", "Pairs", &[("Object", object), ("Ref", reference)]);
    load(&catalog, &child, &chunks(3, 4)).await.unwrap();
    load(&catalog, &pairs, &chunks(2, 4)).await.unwrap();
    load(&catalog, &replicated("d", "Filter"), &whole(6))
        .await
        .unwrap();

    let tables = catalog.tables("d").await.unwrap();
    let names: Vec<_> = tables
        .iter()
        .map(|table| table.spec.name.as_str())
        .collect();
    assert_eq!(names, ["Filter", "Object", "Pairs", "Ref", "Source"]);
    assert_eq!(shown(&catalog, "d", "Source").await.spec, child);
    assert_eq!(shown(&catalog, "d", "Pairs").await.spec, pairs);
    assert_eq!(
        shown(&catalog, "d", "Filter").await.spec,
        replicated("d", "Filter")
    );
}

async fn names_compare_without_regard_to_case(place: impl Place) {
    let catalog = place.open().await;
    load(&catalog, &director("Größe", "Object"), &chunks(1, 1))
        .await
        .unwrap();
    let table = shown(&catalog, "GRÖSSE".replace("SS", "ß").as_str(), "OBJECT").await;
    assert_eq!(
        (table.database.name.as_str(), table.spec.name.as_str()),
        ("Größe", "Object")
    );

    // A second table of the same name in other letters is the same table, replaced; the database
    // keeps the spelling with which it was made.
    let (_, published) = load(&catalog, &director("gRÖßE", "oBJECT"), &chunks(2, 1))
        .await
        .unwrap();
    assert_eq!(published, table.part_numbers());
    let again = shown(&catalog, "größe", "object").await;
    assert_eq!(
        (again.database.name.as_str(), again.spec.name.as_str()),
        ("Größe", "oBJECT")
    );
    assert_eq!(again.id, table.id);
    assert_eq!(catalog.databases().await.unwrap().len(), 1);
}

async fn a_replacement_is_all_or_nothing(place: impl Place) {
    let (writer, reader) = (place.open().await, place.open().await);
    let (first, _) = load(&writer, &director("d", "t"), &chunks(20, 3))
        .await
        .unwrap();
    let before = shown(&reader, "d", "t").await;

    let second = writer.begin_load("d", "t").await.unwrap();
    assert_eq!(shown(&reader, "d", "t").await, before);
    let mut spec = director("d", "t");
    spec.columns.pop();
    let published = publish(&writer, second, &spec, &chunks(30, 2))
        .await
        .unwrap();
    assert_eq!(published, [first]);

    let after = shown(&reader, "d", "t").await;
    assert_eq!(
        (after.id, after.part_numbers(), after.rows()),
        (before.id, vec![second], 60)
    );
    assert_eq!(after.placement, second);
    assert_eq!(after.spec, spec);
    // Who read the table before the replacement still finds its chunks.
    assert_eq!(reader.chunks(first).await.unwrap(), chunks(20, 3));
    assert_eq!(superseded(&reader, "t").await, [first]);
    writer.forget(first).await.unwrap();
    assert_eq!(superseded(&reader, "t").await, []);
    assert_eq!(reader.chunks(first).await.unwrap(), []);
}

async fn a_rejected_publication_changes_nothing(place: impl Place) {
    let catalog = place.open().await;
    load(&catalog, &director("d", "t"), &chunks(2, 3))
        .await
        .unwrap();
    let before = shown(&catalog, "d", "t").await;

    let running = catalog.begin_load("d", "t").await.unwrap();
    let twice = [chunks(1, 1), chunks(1, 1)].concat();
    publish(&catalog, running, &director("d", "t"), &twice)
        .await
        .unwrap_err();
    assert_eq!(shown(&catalog, "d", "t").await, before);
    assert_eq!(
        catalog.unpublished_loads("d", "t").await.unwrap(),
        [running]
    );
    publish(&catalog, running, &director("d", "t"), &chunks(1, 1))
        .await
        .unwrap();
}

async fn a_killed_load_leaves_nothing_visible(place: impl Place) {
    let killed = {
        let doomed = place.open().await;
        doomed.begin_load("d", "t").await.unwrap()
    };
    let catalog = place.open().await;
    assert_eq!(catalog.databases().await.unwrap(), []);
    assert_eq!(catalog.table("d", "t").await.unwrap(), None);
    assert_eq!(catalog.unpublished_loads("d", "t").await.unwrap(), [killed]);

    catalog.forget(killed).await.unwrap();
    catalog.forget(killed).await.unwrap();
    assert_eq!(catalog.unpublished_loads("d", "t").await.unwrap(), []);
    let next = catalog.begin_load("d", "t").await.unwrap();
    assert!(
        next > killed,
        "a number of a forgotten load must not come again"
    );
}

async fn loads_end_once(place: impl Place) {
    let catalog = place.open().await;
    let spec = director("d", "t");
    let (done, _) = load(&catalog, &spec, &chunks(1, 1)).await.unwrap();
    let given_up = catalog.begin_load("d", "t").await.unwrap();
    catalog.abandon(given_up).await.unwrap();
    catalog.abandon(given_up).await.unwrap();
    assert_eq!(
        catalog.unpublished_loads("d", "t").await.unwrap(),
        [given_up]
    );

    let sentence = |error: CatalogError| error.to_string();
    for (id, state) in [
        (done, "published"),
        (given_up, "abandoned"),
        (LoadId(99), "unknown"),
    ] {
        let error = publish(&catalog, id, &spec, &chunks(1, 1))
            .await
            .unwrap_err();
        let expected = format!("load {id} is {state}, not running: begin a new load");
        assert_eq!(sentence(error), expected);
    }
    catalog.abandon(done).await.unwrap_err();
    let error = catalog.forget(done).await.unwrap_err();
    assert!(matches!(error, CatalogError::StillShown { .. }), "{error}");
    shown(&catalog, "d", "t").await;
}

async fn a_load_is_published_as_what_it_was_begun_for(place: impl Place) {
    let catalog = place.open().await;
    let running = catalog.begin_load("d", "t").await.unwrap();
    let error = publish(&catalog, running, &director("d", "u"), &chunks(1, 1))
        .await
        .unwrap_err();
    assert!(matches!(error, CatalogError::OtherTable { .. }), "{error}");
    let mut elsewhere = director("d", "t");
    elsewhere.database = "e".to_owned();
    let error = catalog
        .publish(
            running,
            &database("d"),
            &elsewhere,
            contents(&elsewhere, &[]),
        )
        .await
        .unwrap_err();
    assert!(matches!(error, CatalogError::OtherTable { .. }), "{error}");
}

/// The scale to plan for: a table of 20,000 chunks. The limits are ten times what it takes in a debug
/// build on two cores, so that they fail for a change of kind (a statement for each chunk on a slow
/// path, a missing index), not for a busy machine.
#[expect(clippy::print_stdout, reason = "the figures are worth reading")]
async fn a_table_of_many_chunks(place: impl Place) {
    let catalog = place.open().await;
    let many = chunks(20_000, 5);
    let running = catalog.begin_load("d", "t").await.unwrap();
    let start = std::time::Instant::now();
    publish(&catalog, running, &director("d", "t"), &many)
        .await
        .unwrap();
    let publishing = start.elapsed();
    let start = std::time::Instant::now();
    let back = catalog.chunks(running).await.unwrap();
    let reading = start.elapsed();
    assert_eq!(back, many);
    let start = std::time::Instant::now();
    catalog.table("d", "t").await.unwrap();
    let looking = start.elapsed();
    println!(
        "20,000 chunks: published in {publishing:?}, read in {reading:?}; a table in {looking:?}"
    );
    assert!(publishing.as_secs() < 10 && reading.as_secs() < 5 && looking.as_secs() < 1);
}

/// What the load lock's holder finds unpublished is nobody's any more. The lock is of the catalog, not of a handle.
async fn the_lock_tells_who_loads(place: impl Place) {
    let (catalog, other) = (place.open().await, place.open().await);
    let (dir, elsewhere) = (catalog.data_dir(), other.data_dir());
    let lock = LoadLock::acquire(dir, "d", "t", "loading t.csv").unwrap();
    let load = catalog.begin_load("d", "t").await.unwrap();
    for from in [dir, elsewhere] {
        let rejected = LoadLock::acquire(from, "D", "T", "loading u.csv").unwrap_err();
        assert!(
            rejected.to_string().contains("(loading t.csv, since 20"),
            "{rejected}"
        );
        LoadLock::acquire(from, "d", "u", "loading u.csv").unwrap();
    }
    drop(lock);
    let _next = LoadLock::acquire(elsewhere, "d", "t", "loading u.csv").unwrap();
    assert_eq!(other.unpublished_loads("d", "t").await.unwrap(), [load]);
    assert!(LoadLock::acquire(dir, "d", "t", "loading v.csv").is_err());
}

conformance!(
    an_empty_catalog_has_nothing,
    what_is_published_comes_back,
    all_kinds_come_back,
    names_compare_without_regard_to_case,
    a_replacement_is_all_or_nothing,
    a_rejected_publication_changes_nothing,
    a_killed_load_leaves_nothing_visible,
    loads_end_once,
    a_load_is_published_as_what_it_was_begun_for,
    a_table_of_many_chunks,
    the_lock_tells_who_loads,
);
