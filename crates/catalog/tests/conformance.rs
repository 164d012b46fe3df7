//! What every catalog must do, whatever keeps its rows.
//!
//! Each test takes a place in which any number of handles on the same catalog can be opened. The list
//! at the bottom runs all of them on each backend; a new backend is one more place in that list.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod support;

use meridian_catalog::{
    Append, Catalog, CatalogError, Change, ChangedView, Chunk, Column, ColumnChange,
    ColumnMetadata, ColumnType, DatabaseChange, Expiry, LoadId, LoadLock, NewColumns, NewDatabase,
    OtherDatabase, PartContents, Publication, Rights, ScanLane, Table, TableChange, TableMetadata,
    TableSpec, UNKNOWN_LOAD, ViewQuery,
};
use support::private_postgres::PostgresPlace;
use support::{
    chunks, contents, database, dependent, director, load, publish, query, replicated, settled,
    shown, wait_for_state, whole, words,
};
use tempfile::TempDir;

/// Where a catalog can be opened.
trait Place {
    /// Whether each handle knows of a change as soon as it is made, and not some moments later.
    const KNOWS_AT_ONCE: bool;

    /// One more handle on the same catalog, as another process would get it.
    async fn open(&self) -> Catalog;
}

/// A data directory with an SQLite file.
struct SqliteDirectory(TempDir);

impl SqliteDirectory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }
}

impl Place for SqliteDirectory {
    const KNOWS_AT_ONCE: bool = true;

    async fn open(&self) -> Catalog {
        Catalog::open_or_create(self.0.path()).await.unwrap()
    }
}

impl Place for PostgresPlace {
    const KNOWS_AT_ONCE: bool = false;

    async fn open(&self) -> Catalog {
        Catalog::open(&self.another_dir()).await.unwrap()
    }
}

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

async fn a_database_keeps_its_partitioning(place: impl Place) {
    let catalog = place.open().await;
    load(&catalog, &director("d", "t"), &chunks(1, 1))
        .await
        .unwrap();
    let other = NewDatabase {
        stripes: 85,
        ..database("D")
    };
    let running = catalog.begin_load("d", "u").await.unwrap();
    let spec = director("d", "u");
    let error = catalog
        .publish(running, &other, &spec, contents(&spec, &[]))
        .await
        .unwrap_err();
    let sentence = error.to_string();
    assert!(
        sentence.contains("exists with 18 stripes") && sentence.contains("with 85"),
        "{sentence}"
    );
    assert_eq!(catalog.table("d", "u").await.unwrap(), None);
}

/// The first load of a few rows once fixed the partitioning of a database for good.
async fn the_only_partitioned_table_may_bring_another_partitioning(place: impl Place) {
    let catalog = place.open().await;
    let object = director("d", "Object");
    load(&catalog, &object, &chunks(1, 1)).await.unwrap();
    let finer = NewDatabase {
        stripes: 85,
        ..database("d")
    };
    let running = catalog.begin_load("d", "OBJECT").await.unwrap();
    catalog
        .publish(running, &finer, &object, contents(&object, &[]))
        .await
        .unwrap();
    assert_eq!(shown(&catalog, "d", "Object").await.database.stripes, 85);
}

async fn a_database_is_repartitioned_all_at_once(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let object = director("d", "Object");
    let (old, _) = load(&catalog, &object, &chunks(3, 4)).await.unwrap();
    let source = dependent("d", "Source", &[("Object", old)]);
    let (old_source, _) = load(&catalog, &source, &chunks(2, 5)).await.unwrap();
    load(&catalog, &replicated("d", "Filter"), &whole(6))
        .await
        .unwrap();
    let finer = NewDatabase {
        stripes: 85,
        ..database("d")
    };
    let new = catalog.begin_load("d", "Object").await.unwrap();
    let new_source = catalog.begin_load("d", "Source").await.unwrap();
    let (object_chunks, source_chunks) = (chunks(6, 2), chunks(5, 2));
    let publication = |load, replaces, spec: &TableSpec, chunks| Publication {
        load,
        replaces: vec![replaces],
        spec: spec.clone(),
        contents: contents(spec, chunks),
    };
    let placed_anew = dependent("d", "Source", &[("Object", new)]);
    let both = |replaced_source| {
        [
            publication(new, old, &object, object_chunks.as_slice()),
            publication(
                new_source,
                replaced_source,
                &placed_anew,
                source_chunks.as_slice(),
            ),
        ]
    };
    // One that is left out, and one that shows another load by now: nothing changes.
    let before = reader.tables("d").await.unwrap();
    for wrong in [&both(old_source)[..1], &both(LoadId(99))[..]] {
        let error = catalog.repartition(&finer, wrong).await.unwrap_err();
        assert!(
            matches!(error, CatalogError::ChangedMeanwhile { .. }),
            "{error}"
        );
        assert_eq!(reader.tables("d").await.unwrap(), before);
    }
    catalog
        .repartition(&finer, &both(old_source))
        .await
        .unwrap();
    for (name, load) in [("Object", new), ("Source", new_source)] {
        let table = shown(&reader, "d", name).await;
        assert_eq!((table.placement, table.database.stripes), (load, 85));
        assert_eq!(superseded(&catalog, name).await.len(), 1);
    }
    assert_eq!(shown(&reader, "d", "Filter").await.database.stripes, 85);
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

/// Loads of a table that nothing shows any more.
async fn superseded(catalog: &Catalog, table: &str) -> Vec<LoadId> {
    let all = catalog.superseded_loads().await.unwrap();
    let of_table = all
        .into_iter()
        .filter(|it| it.table == table.to_lowercase());
    of_table.map(|it| it.load).collect()
}

/// One more part for a table, as it is now.
async fn append(
    catalog: &Catalog,
    table: &Table,
    chunks: &[Chunk],
    unsettled: &[String],
) -> Result<LoadId, CatalogError> {
    let (database, name) = (&table.spec.database, &table.spec.name);
    let load = catalog.begin_load(database, name).await?;
    let append = Append {
        load,
        table,
        contents: contents(&table.spec, chunks),
        unsettled,
        replaces: &[],
    };
    catalog.append(append).await.map(|()| load)
}

async fn parts_are_appended_merged_and_dropped(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let spec = director("d", "Object");
    let (first, _) = load(&catalog, &spec, &chunks(4, 3)).await.unwrap();
    let then = shown(&reader, "d", "Object").await;
    let mut parts = vec![first];
    for rows in 1..5 {
        // The table as it was: what was appended meanwhile does not matter.
        parts.push(
            append(&catalog, &then, &chunks(2, rows), &[])
                .await
                .unwrap(),
        );
    }
    let now = shown(&reader, "d", "Object").await;
    assert_eq!(now.part_numbers(), parts);
    assert_eq!(
        (now.placement, now.rows()),
        (first, 12 + 2 * (1 + 2 + 3 + 4))
    );
    assert_eq!(now.parts[1].source, "rows.csv");

    // Merged, they stand where the first of them stood, whatever is appended meanwhile.
    let merged = catalog.begin_load("d", "Object").await.unwrap();
    let later = append(&catalog, &now, &chunks(1, 1), &[]).await.unwrap();
    let three = chunks(2, 6);
    let merge = |parts: Vec<LoadId>| {
        let (catalog, now, three) = (catalog.clone(), now.clone(), three.clone());
        async move {
            let contents = contents(&now.spec, &three);
            catalog.merge_parts(merged, &now, &parts, contents).await
        }
    };
    for wrong in [vec![], vec![parts[1], parts[3]], vec![parts[2], parts[1]]] {
        let error = merge(wrong).await.unwrap_err();
        assert!(
            matches!(error, CatalogError::TableChanged { .. }),
            "{error}"
        );
    }
    merge(parts[1..4].to_vec()).await.unwrap();
    let numbers = shown(&reader, "d", "object").await.part_numbers();
    assert_eq!(numbers, [first, merged, parts[4], later]);
    assert_eq!(superseded(&catalog, "Object").await, parts[1..4]);
    let now = shown(&reader, "d", "Object").await;
    assert_eq!(now.parts[1].merged_from, parts[1..4]);
    let mut loads = parts.clone();
    loads.push(later);
    assert_eq!(Vec::from_iter(now.origins()), loads);
    let error = catalog.drop_part("d", "Object", parts[2]).await;
    let error = error.unwrap_err().to_string();
    let words = [
        format!("part {} of table", parts[2]),
        format!("merged into part {merged}, with the rows of 3 parts"),
    ];
    assert!(words.iter().all(|it| error.contains(it)), "{error}");
    // Merged once more, it still says where each row came from.
    let again = catalog.begin_load("d", "Object").await.unwrap();
    let all_but_first = [merged, parts[4], later];
    let rows = chunks(2, 10);
    let again_contents = contents(&now.spec, &rows);
    (catalog
        .merge_parts(again, &now, &all_but_first, again_contents)
        .await)
        .unwrap();
    let now = shown(&reader, "d", "Object").await;
    assert_eq!(now.parts[1].merged_from, loads[1..]);
    let later = append(&catalog, &now, &chunks(1, 1), &[]).await.unwrap();
    // Who reads the former list still finds its chunks.
    assert_eq!(reader.chunks(parts[1]).await.unwrap(), chunks(2, 1));

    catalog.drop_part("D", "object", first).await.unwrap();
    let error = catalog.drop_part("d", "Object", first).await.unwrap_err();
    assert!(matches!(error, CatalogError::NoPart { .. }), "{error}");
    catalog.drop_part("d", "Object", again).await.unwrap();
    let error = catalog.drop_part("d", "Object", later).await.unwrap_err();
    assert!(matches!(error, CatalogError::OnlyPart { .. }), "{error}");
    let left = shown(&reader, "d", "Object").await;
    assert_eq!((left.part_numbers(), left.placement), (vec![later], first));
    for part in superseded(&catalog, "object").await {
        catalog.forget(part).await.unwrap();
    }
    catalog.forget(later).await.unwrap_err();
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

async fn an_append_takes_the_place_of_the_last_parts(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let spec = director("d", "Object");
    let (first, _) = load(&catalog, &spec, &chunks(4, 3)).await.unwrap();
    let then = shown(&reader, "d", "Object").await;
    let begun = catalog.begin_loads("d", "Object", 5).await.unwrap();
    assert!(begun.is_sorted_by(|a, b| a < b) && begun.len() == 5);
    assert_eq!(
        catalog.unpublished_loads("d", "object").await.unwrap(),
        begun
    );
    let append = async |load: LoadId, rows: u64, replaces: &[LoadId]| {
        let chunks = chunks(1, rows);
        let append = Append {
            load,
            table: &then,
            contents: contents(&then.spec, &chunks),
            unsettled: &[],
            replaces,
        };
        catalog.append(append).await
    };
    append(begun[0], 1, &[]).await.unwrap();
    append(begun[1], 2, &[]).await.unwrap();
    // Not the last ones, not in their order, or not there.
    for wrong in [
        vec![begun[0]],
        vec![begun[1], begun[0]],
        vec![first, begun[1]],
        vec![begun[4]],
    ] {
        let error = append(begun[2], 9, &wrong).await.unwrap_err();
        assert!(
            matches!(error, CatalogError::TableChanged { .. }),
            "{error}"
        );
    }
    append(begun[2], 6, &begun[..2]).await.unwrap();
    let now = shown(&reader, "d", "Object").await;
    assert_eq!(now.part_numbers(), [first, begun[2]]);
    assert_eq!((now.rows(), now.placement), (12 + 6, first));
    assert_eq!(superseded(&catalog, "Object").await, begun[..2]);
    append(begun[3], 7, &[begun[2]]).await.unwrap();
    assert_eq!(
        shown(&reader, "d", "Object").await.part_numbers(),
        [first, begun[3]]
    );
    // All or none of them are forgotten.
    let error = catalog.forget_all(&[begun[4], begun[3]]).await.unwrap_err();
    assert!(matches!(error, CatalogError::StillShown { .. }), "{error}");
    assert_eq!(
        catalog.unpublished_loads("d", "Object").await.unwrap(),
        begun[4..]
    );
    catalog.forget_all(&begun[..3]).await.unwrap();
    catalog
        .forget_all(&[begun[4], LoadId(9_999_999)])
        .await
        .unwrap();
    catalog.forget_all(&[]).await.unwrap();
    assert_eq!(
        catalog.unpublished_loads("d", "Object").await.unwrap(),
        vec![]
    );
    let error = append(begun[4], 1, &[]).await.unwrap_err();
    assert!(
        matches!(&error, CatalogError::NotRunning { state, .. } if state == UNKNOWN_LOAD),
        "{error}"
    );
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

async fn parts_of_several_tables_are_appended_together_or_not_at_all(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    for name in ["Object", "Other"] {
        load(&catalog, &director("d", name), &chunks(4, 3))
            .await
            .unwrap();
    }
    let tables = [
        shown(&reader, "d", "Object").await,
        shown(&reader, "d", "Other").await,
    ];
    let more = chunks(2, 5);
    let mut loads = Vec::new();
    for table in &tables {
        loads.push(catalog.begin_load("d", &table.spec.name).await.unwrap());
    }
    let append = |at: usize| Append {
        load: loads[at],
        table: &tables[at],
        contents: contents(&tables[at].spec, &more),
        unsettled: &[],
        replaces: &[],
    };
    catalog
        .append_all(&[append(0), append(1)], &[], &[])
        .await
        .unwrap();
    for (table, load) in tables.iter().zip(&loads) {
        let now = shown(&reader, "d", &table.spec.name).await;
        assert_eq!(now.parts.last().map(|part| part.load), Some(*load));
    }
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
    // One of them has changed: none gets its part.
    let then = shown(&reader, "d", "Object").await;
    catalog.drop_table("d", "Other").await.unwrap();
    loads[0] = catalog.begin_load("d", "Object").await.unwrap();
    loads[1] = catalog.begin_load("d", "Other").await.unwrap();
    let append = |at: usize| Append {
        load: loads[at],
        table: &tables[at],
        contents: contents(&tables[at].spec, &more),
        unsettled: &[],
        replaces: &[],
    };
    let error = catalog
        .append_all(&[append(0), append(1)], &[], &[])
        .await
        .unwrap_err();
    assert!(
        matches!(error, CatalogError::TableChanged { .. }),
        "{error}"
    );
    assert_eq!(shown(&reader, "d", "Object").await, then);
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

/// A part, columns and views change in one transaction, or none of them does.
async fn columns_are_added_with_parts(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    load(&catalog, &director("d", "Object"), &chunks(4, 3))
        .await
        .unwrap();
    let then = shown(&reader, "d", "Object").await;
    let names: Vec<String> = vec!["objectId".to_owned()];
    let of_view = |columns: &[String]| ViewQuery {
        definition: format!("SELECT {} FROM Object", columns.join(", ")),
        default_database: Some("d".to_owned()),
        columns: columns.to_vec(),
        headings: columns.to_vec(),
        position: None,
    };
    (catalog
        .create_view("d", "Seen", &of_view(&names), None, false)
        .await)
        .unwrap();
    let column = |name: &str, nullable| Column {
        name: name.to_owned(),
        ty: ColumnType::Float64,
        nullable,
        declared: None,
    };
    let added = [column("later", true), column("Latest", true)];
    let mut table = then.clone();
    table.spec.columns.extend_from_slice(&added);
    let wider = [names, vec!["later".to_owned()]].concat();
    let of_column = ColumnChange {
        description: Change::Set("Later.".to_owned()),
        ..ColumnChange::default()
    };
    let said = TableChange {
        columns: [("later".to_owned(), of_column)].into(),
        ..TableChange::default()
    };
    let view = |name: &str| ChangedView {
        database: "d".to_owned(),
        name: name.to_owned(),
        query: of_view(&wider),
        said: said.clone(),
    };
    let load = catalog.begin_load("d", "Object").await.unwrap();
    let more = chunks(2, 5);
    let append = Append {
        load,
        table: &table,
        contents: contents(&table.spec, &more),
        unsettled: &[],
        replaces: &[],
    };
    let (not_null, twice) = ([column("later", false)], [column("OBJECTID", true)]);
    for (columns, name) in [
        (&not_null[..], "Seen"),
        (&twice, "Seen"),
        (&added[..1], "Seen"),
        (&added, "Other"),
    ] {
        let new = NewColumns {
            table: &then,
            columns,
        };
        let append = std::slice::from_ref(&append);
        let outcome = catalog.append_all(append, &[new], &[view(name)]).await;
        outcome.unwrap_err();
        assert_eq!(shown(&reader, "d", "Object").await, then);
        let seen = reader.view("d", "Seen").await.unwrap().unwrap();
        assert_eq!(seen.query.columns.len(), 1);
    }
    let new = NewColumns {
        table: &then,
        columns: &added,
    };
    let done = catalog.append_all(&[append], &[new], &[view("seen")]).await;
    done.unwrap();
    let now = shown(&reader, "d", "Object").await;
    assert_eq!((&now.spec, now.placement), (&table.spec, then.placement));
    assert_eq!(now.parts.last().map(|part| part.load), Some(load));
    let seen = reader.view("d", "Seen").await.unwrap().unwrap();
    assert_eq!((&seen.name[..], &seen.query), ("Seen", &of_view(&wider)));
    let description = &seen.metadata.columns["later"].description;
    assert_eq!(description.as_deref(), Some("Later."));
    // Without a part, and not twice.
    let last = [column("last", true)];
    let new = NewColumns {
        table: &now,
        columns: &last,
    };
    catalog.append_all(&[], &[new], &[]).await.unwrap();
    let error = catalog.append_all(&[], &[new], &[]).await.unwrap_err();
    assert!(
        matches!(error, CatalogError::TableChanged { .. }),
        "{error}"
    );
    let columns = shown(&reader, "d", "Object").await.spec.columns;
    assert_eq!(columns.last(), Some(&last[0]));
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

async fn an_append_to_another_table_than_it_began_with_is_rejected(place: impl Place) {
    let catalog = place.open().await;
    load(&catalog, &director("d", "t"), &chunks(4, 3))
        .await
        .unwrap();
    let then = shown(&catalog, "d", "t").await;
    load(&catalog, &director("d", "t"), &chunks(5, 3))
        .await
        .unwrap();
    let replaced = shown(&catalog, "d", "t").await;
    let error = append(&catalog, &then, &chunks(1, 1), &[])
        .await
        .unwrap_err();
    assert!(
        matches!(error, CatalogError::TableChanged { .. }),
        "{error}"
    );
    assert_eq!(shown(&catalog, "d", "t").await, replaced);
    catalog.drop_table("d", "t").await.unwrap();
    let error = append(&catalog, &replaced, &chunks(1, 1), &[])
        .await
        .unwrap_err();
    assert!(
        matches!(error, CatalogError::TableChanged { .. }),
        "{error}"
    );
}

async fn appended_keys_unsettle_match_tables(place: impl Place) {
    let catalog = place.open().await;
    let (object, _) = load(&catalog, &director("d", "Object"), &chunks(1, 1))
        .await
        .unwrap();
    let (other, _) = load(&catalog, &director("d", "Other"), &chunks(1, 1))
        .await
        .unwrap();
    let pairs = dependent("d", "Pairs", &[("Object", object), ("Other", other)]);
    load(&catalog, &pairs, &chunks(1, 1)).await.unwrap();
    let table = shown(&catalog, "d", "Object").await;
    append(&catalog, &table, &chunks(1, 1), &["pairs".to_owned()])
        .await
        .unwrap();
    let placements = |table: Table| {
        let of_each = table.spec.directors.into_iter().map(|it| it.placement);
        of_each.collect::<Vec<_>>()
    };
    let pairs = shown(&catalog, "d", "Pairs").await;
    assert_eq!(placements(pairs), [None, Some(other)]);
    assert_eq!(catalog.verify().await.unwrap(), Vec::<String>::new());
}

async fn tables_and_databases_are_dropped(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let (object, _) = load(&catalog, &director("d", "Object"), &chunks(3, 1))
        .await
        .unwrap();
    let child = dependent("d", "Source", &[("Object", object)]);
    let (source, _) = load(&catalog, &child, &chunks(2, 1)).await.unwrap();
    let error = catalog
        .drop_table("d", "OBJECT")
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("Source has its keys; drop it first"),
        "{error}"
    );
    assert_eq!(catalog.drop_table("D", "source").await.unwrap(), [source]);
    assert_eq!(reader.table("d", "Source").await.unwrap(), None);
    let error = catalog.drop_table("d", "Source").await.unwrap_err();
    assert!(matches!(error, CatalogError::NoTable { .. }), "{error}");
    assert_eq!(superseded(&reader, "source").await, [source]);
    load(&catalog, &child, &chunks(2, 1)).await.unwrap();
    catalog.drop_database("D").await.unwrap();
    assert_eq!(reader.databases().await.unwrap(), []);
    let error = catalog.drop_database("d").await.unwrap_err();
    assert!(matches!(error, CatalogError::NoDatabase { .. }), "{error}");
    assert_eq!(reader.chunks(object).await.unwrap(), chunks(3, 1));
    assert_eq!(reader.superseded_loads().await.unwrap().len(), 3);
    // The name is free, with any partitioning.
    load(&catalog, &director("D", "Object"), &chunks(1, 1))
        .await
        .unwrap();
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

async fn a_table_is_renamed(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let old = replicated("d", "Old");
    let (first, _) = load(&catalog, &old, &chunks(1, 1)).await.unwrap();
    load(&catalog, &replicated("d", "Other"), &chunks(1, 1))
        .await
        .unwrap();
    let table = shown(&catalog, "d", "Old").await;
    let publish = async |name: &str, former: &Table| {
        let begun = catalog.begin_load("d", name).await.unwrap();
        let (spec, chunks) = (replicated("d", name), chunks(1, 2));
        let contents = contents(&spec, &chunks);
        let renamed = catalog.publish_renamed(begun, former, &spec, contents);
        (begun, renamed.await)
    };
    // There is one of this name.
    let (_, error) = publish("other", &table).await;
    assert!(matches!(error, Err(CatalogError::TableChanged { .. })));
    let (second, done) = publish("New", &table).await;
    done.unwrap();
    assert_eq!(reader.table("d", "Old").await.unwrap(), None);
    let renamed = shown(&reader, "d", "new").await;
    assert_eq!(
        (renamed.id, renamed.part_numbers()),
        (table.id, vec![second])
    );
    assert_eq!(superseded(&reader, "old").await, [first]);
    // It is not what it was.
    let (_, error) = publish("Third", &table).await;
    assert!(matches!(error, Err(CatalogError::TableChanged { .. })));
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

/// The time at which a table expires stays, whatever becomes of it, until it is set anew; and only then the table goes.
async fn tables_expire(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let (object, _) = load(&catalog, &director("d", "Object"), &chunks(1, 1))
        .await
        .unwrap();
    let time = async |name: &str| shown(&reader, "d", name).await.expires_at;
    assert_eq!(time("Object").await, None);
    let (past, future) = (951_782_400, 4_107_542_400);
    let default = Expiry::by_default_at(future);
    assert!(catalog.set_expiry("D", "object", default).await.unwrap());
    assert_eq!(
        time("Object").await.as_deref(),
        Some("2100-03-01T00:00:00Z")
    );
    // It has one, and another default changes nothing.
    let later = Expiry::by_default_at(future + 1);
    let state = settled(&reader).await;
    assert!(!catalog.set_expiry("d", "Object", later).await.unwrap());
    assert_eq!(settled(&reader).await, state);
    load(&catalog, &director("d", "Object"), &chunks(2, 1))
        .await
        .unwrap();
    let table = shown(&catalog, "d", "Object").await;
    append(&catalog, &table, &chunks(1, 1), &[]).await.unwrap();
    let table = shown(&catalog, "d", "Object").await;
    assert_eq!(table.expires_at.as_deref(), Some("2100-03-01T00:00:00Z"));
    assert_ne!(table.placement, object);
    let error = catalog.drop_expired("d", "Object").await.unwrap_err();
    assert!(
        matches!(error, CatalogError::TableChanged { .. }),
        "{error}"
    );
    let begun = catalog.begin_load("d", "New").await.unwrap();
    let (spec, one) = (director("d", "New"), chunks(1, 2));
    let rows = contents(&spec, &one);
    let renamed = catalog.publish_renamed(begun, &table, &spec, rows);
    renamed.await.unwrap();
    assert_eq!(time("New").await.as_deref(), Some("2100-03-01T00:00:00Z"));
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
    // Children go before their directors.
    let placement = shown(&catalog, "d", "New").await.placement;
    let child = dependent("d", "Child", &[("New", placement)]);
    load(&catalog, &child, &chunks(1, 1)).await.unwrap();
    let expired = Expiry::at(Some(past));
    assert!(
        catalog
            .set_expiry("d", "New", expired.clone())
            .await
            .unwrap()
    );
    let error = catalog.drop_expired("d", "New").await.unwrap_err();
    assert!(
        matches!(error, CatalogError::HasDependents { .. }),
        "{error}"
    );
    let error = catalog.drop_expired("d", "Child").await.unwrap_err();
    assert!(
        matches!(error, CatalogError::TableChanged { .. }),
        "{error}"
    );
    assert!(catalog.set_expiry("d", "Child", expired).await.unwrap());
    assert!(
        catalog
            .set_expiry("d", "Child", Expiry::at(None))
            .await
            .unwrap()
    );
    assert_eq!(time("Child").await, None);
    catalog.drop_table("d", "Child").await.unwrap();
    catalog.drop_expired("d", "New").await.unwrap();
    let error = catalog.drop_expired("d", "New").await.unwrap_err();
    assert!(matches!(error, CatalogError::NoTable { .. }), "{error}");
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

/// A child is cut as the database of its director, whatever its own is, and holds nobody up.
async fn children_of_directors_elsewhere(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let (first, _) = load(&catalog, &director("sky", "Object"), &chunks(4, 3))
        .await
        .unwrap();
    let mut spec = dependent("ann", "Near", &[("Object", first)]);
    spec.directors[0].elsewhere = Some(OtherDatabase {
        name: "Sky".to_owned(),
        stripes: 18,
        sub_stripes: 10,
    });
    let finer = NewDatabase {
        stripes: 7,
        ..database("ann")
    };
    let one = chunks(2, 3);
    let settled = PartContents {
        orphan_rows: 0,
        ..contents(&spec, &one)
    };
    // Its own database is cut otherwise by its own directors, before it and after it.
    for (at, own) in ["Before", "After"].iter().enumerate() {
        let own = director("ann", own);
        let begun = catalog.begin_load("ann", &own.name).await.unwrap();
        let contents = contents(&own, &one);
        catalog
            .publish(begun, &finer, &own, contents)
            .await
            .unwrap();
        if at == 0 {
            let begun = catalog.begin_load("ann", "Near").await.unwrap();
            let ann = database("ann");
            let published = catalog.publish(begun, &ann, &spec, settled);
            published.await.unwrap();
        }
    }
    let near = shown(&reader, "ann", "near").await;
    assert_eq!((near.database.stripes, near.database.sub_stripes), (18, 10));
    assert_eq!(near.spec.directors, spec.directors);
    assert!(near.spec.refers_to("sky", "object") && !near.spec.refers_to("ann", "object"));
    assert_eq!(shown(&reader, "ann", "After").await.database.stripes, 7);
    // It is not taken for placed any more once it has keys that the director lacks.
    let placement = async || shown(&reader, "ann", "Near").await.spec.directors[0].placement;
    append(&catalog, &near, &one, &[]).await.unwrap();
    assert_eq!(placement().await, None);
    let begun = catalog.begin_load("ann", "Near").await.unwrap();
    let published = catalog.publish(begun, &finer, &spec, settled);
    published.await.unwrap();
    assert_eq!(placement().await, Some(first));
    // Nor when a part of the director is dropped.
    let object = shown(&catalog, "sky", "Object").await;
    let part = append(&catalog, &object, &one, &[]).await.unwrap();
    assert_eq!(placement().await, Some(first));
    catalog.drop_part("sky", "Object", part).await.unwrap();
    assert_eq!(placement().await, None);
    // It follows its director's name, and does not hold it up.
    let object = shown(&catalog, "sky", "Object").await;
    let begun = catalog.begin_load("sky", "Star").await.unwrap();
    let star = director("sky", "Star");
    let renamed = catalog.publish_renamed(begun, &object, &star, contents(&star, &one));
    renamed.await.unwrap();
    assert!(
        shown(&reader, "ann", "Near")
            .await
            .spec
            .refers_to("sky", "Star")
    );
    catalog.drop_table("sky", "Star").await.unwrap();
    assert!(
        shown(&reader, "ann", "Near")
            .await
            .spec
            .refers_to("sky", "Star")
    );
    let error = load(&catalog, &spec, &one).await.unwrap_err();
    assert!(error.to_string().contains("no director"), "{error}");
    let mut director = director("ann", "Before");
    director.directors = spec.directors.clone();
    assert!(load(&catalog, &director, &one).await.is_err());
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
}

/// A lookup table that was loaded first must not decide how the sky is cut.
async fn replicated_tables_do_not_fix_the_partitioning(place: impl Place) {
    let catalog = place.open().await;
    load(&catalog, &replicated("d", "Filter"), &whole(6))
        .await
        .unwrap();
    let finer = NewDatabase {
        stripes: 85,
        ..database("d")
    };
    let running = catalog.begin_load("d", "t").await.unwrap();
    catalog
        .publish(
            running,
            &finer,
            &director("d", "t"),
            contents(&director("d", "t"), &[]),
        )
        .await
        .unwrap();
    assert_eq!(shown(&catalog, "d", "Filter").await.database.stripes, 85);
    load(&catalog, &replicated("d", "Site"), &whole(2))
        .await
        .unwrap();
    assert_eq!(shown(&catalog, "d", "t").await.database.stripes, 85);
}

async fn views_come_back_and_change_the_state(place: impl Place) {
    let catalog = place.open().await;
    let query = query("SELECT ra, dec, name FROM Object");
    let make = |database, name, replace| {
        catalog.create_view(database, name, &query, Some("the bright ones"), replace)
    };
    let missing = make("demo", "Bright", false).await;
    assert!(matches!(missing, Err(CatalogError::NoDatabase { .. })));
    load(&catalog, &director("Demo", "Object"), &chunks(2, 1))
        .await
        .unwrap();
    let in_the_way = make("demo", "OBJECT", true).await;
    assert!(matches!(
        in_the_way,
        Err(CatalogError::TableInTheWay { .. })
    ));
    let before = settled(&catalog).await;
    make("demo", "Bright", false).await.unwrap();
    assert_ne!(settled(&catalog).await, before);
    let view = catalog.view("DEMO", "bRIGHT").await.unwrap().unwrap();
    assert_eq!(
        (view.full_name(), &view.query),
        ("Demo.Bright".to_owned(), &query)
    );
    assert_eq!(
        place.open().await.views().await.unwrap(),
        std::slice::from_ref(&view)
    );
    let again = make("demo", "BRIGHT", false).await;
    assert!(matches!(again, Err(CatalogError::ViewExists { .. })));
    let said = |text: &str| Change::Set(text.to_owned());
    let of_column = ColumnChange {
        unit: said("deg"),
        ..ColumnChange::default()
    };
    let of_view = TableChange {
        description: said("the bright ones"),
        columns: [("ra".to_owned(), of_column)].into(),
        ..TableChange::default()
    };
    let change = |name: &str, change: &TableChange| DatabaseChange {
        tables: [(name.to_owned(), change.clone())].into(),
        ..DatabaseChange::default()
    };
    let described = catalog.describe("demo", &change("bright", &of_view)).await;
    assert!(described.unwrap());
    let again = catalog.describe("demo", &change("bright", &of_view)).await;
    assert!(!again.unwrap());
    let missing = TableChange {
        columns: [("nothing".to_owned(), ColumnChange::default())].into(),
        ..TableChange::default()
    };
    let rejected = catalog.describe("demo", &change("bright", &missing)).await;
    assert!(rejected.is_err());
    let view = place.open().await.view("demo", "bright").await.unwrap();
    let view = view.unwrap();
    let unit = view.metadata.column("RA").and_then(|it| it.unit.as_deref());
    assert_eq!(unit, Some("deg"));
    let other = ViewQuery {
        definition: "SELECT 1 AS x".to_owned(),
        default_database: None,
        columns: vec!["x".to_owned()],
        headings: vec!["x".to_owned()],
        position: None,
    };
    let before = settled(&catalog).await;
    let replaced = catalog.create_view("demo", "BRIGHT", &other, None, true);
    replaced.await.unwrap();
    assert_ne!(settled(&catalog).await, before);
    let replaced = catalog.view("demo", "bright").await.unwrap().unwrap();
    assert_eq!(
        (replaced.name.as_str(), &replaced.query),
        ("BRIGHT", &other)
    );
    assert_eq!(replaced.metadata, view.metadata, "what was said stays");
}

async fn views_and_tables_share_their_names(place: impl Place) {
    let catalog = place.open().await;
    load(&catalog, &director("demo", "Object"), &chunks(2, 1))
        .await
        .unwrap();
    // One that was begun before the view was made finds it when it ends.
    let begun = catalog.begin_load("demo", "Bright").await.unwrap();
    let query = query("SELECT * FROM Object");
    let made = catalog.create_view("demo", "Bright", &query, None, false);
    made.await.unwrap();
    let spec = director("demo", "bright");
    let late = publish(&catalog, begun, &spec, &chunks(2, 1)).await;
    assert!(matches!(late, Err(CatalogError::ViewInTheWay { .. })));
    let early = catalog.begin_load("demo", "BRIGHT").await;
    assert!(matches!(early, Err(CatalogError::ViewInTheWay { .. })));
    for (columns, words) in [
        (vec![], "no columns"),
        (vec!["a", "A"], "two of its columns"),
        (vec!["a\nb"], "name"),
    ] {
        let columns = columns.into_iter().map(str::to_owned).collect();
        let bad = ViewQuery {
            columns,
            ..query.clone()
        };
        let rejected = catalog.create_view("demo", "Bad", &bad, None, false).await;
        let sentence = rejected.unwrap_err().to_string();
        assert!(sentence.contains(words), "{sentence}");
    }
    let mut rights = Rights::none();
    rights.add("demo", Some("Object"));
    let seen = catalog.seen_with(rights.clone().into());
    assert_eq!(seen.views().await.unwrap(), []);
    assert_eq!(seen.view("demo", "Bright").await.unwrap(), None);
    rights.add("demo", Some("Bright"));
    let seen = catalog.seen_with(rights.into());
    assert!(seen.view("demo", "Bright").await.unwrap().is_some());
    let before = settled(&catalog).await;
    catalog.drop_view("DEMO", "BRIGHT").await.unwrap();
    assert_ne!(settled(&catalog).await, before);
    let gone = catalog.drop_view("demo", "Bright").await;
    assert!(matches!(gone, Err(CatalogError::NoView { .. })));
    let made = catalog.create_view("demo", "Bright", &query, None, false);
    made.await.unwrap();
    catalog.drop_database("demo").await.unwrap();
    assert_eq!(catalog.views().await.unwrap(), []);
    assert_eq!(catalog.verify().await.unwrap(), Vec::<String>::new());
}

async fn directors_must_be_there(place: impl Place) {
    let catalog = place.open().await;
    let orphan = dependent("d", "Source", &[("Object", LoadId(1))]);
    let error = load(&catalog, &orphan, &chunks(1, 1)).await.unwrap_err();
    assert!(error.to_string().contains("no director Object"), "{error}");
    load(&catalog, &replicated("d", "Object"), &whole(1))
        .await
        .unwrap();
    let error = load(&catalog, &orphan, &chunks(1, 1)).await.unwrap_err();
    assert!(
        error.to_string().contains("Object is a replicated table"),
        "{error}"
    );
}

async fn pairs_may_be_of_children(place: impl Place) {
    let catalog = place.open().await;
    let (object, _) = load(&catalog, &director("d", "Object"), &chunks(1, 1))
        .await
        .unwrap();
    let child = dependent("d", "Source", &[("Object", object)]);
    let (source, _) = load(&catalog, &child, &chunks(1, 1)).await.unwrap();
    let pairs = dependent("d", "Pairs", &[("Source", source), ("Object", object)]);
    load(&catalog, &pairs, &chunks(1, 1)).await.unwrap();
    assert_eq!(shown(&catalog, "d", "Pairs").await.spec, pairs);
    let of_pairs = dependent("d", "More", &[("Pairs", source), ("Object", object)]);
    let error = load(&catalog, &of_pairs, &chunks(1, 1)).await.unwrap_err();
    assert!(
        error.to_string().contains("Pairs is a match table"),
        "{error}"
    );
    // No child of a child.
    let grandchild = dependent("d", "Deeper", &[("Source", source)]);
    let error = load(&catalog, &grandchild, &chunks(1, 1))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("Source is a child table"),
        "{error}"
    );
}

async fn descriptions_are_checked(place: impl Place) {
    let catalog = place.open().await;
    let rejected = [
        ("no columns", {
            let mut spec = replicated("d", "t");
            spec.columns.clear();
            spec
        }),
        ("two of its columns are called RA", {
            let mut spec = director("d", "t");
            spec.columns[3].name = "RA".to_owned();
            spec
        }),
        ("it has no column sourceId", {
            let mut spec = director("d", "t");
            spec.key = Some("sourceId".to_owned());
            spec
        }),
        ("a director needs a key", {
            let mut spec = director("d", "t");
            spec.key = None;
            spec
        }),
        ("a child table has 1 directors, not 0", {
            let mut spec = dependent("d", "t", &[("Object", LoadId(1))]);
            spec.directors.clear();
            spec
        }),
        ("cannot be the name of a column", {
            let mut spec = replicated("d", "t");
            spec.columns[0].name = "a\nb".to_owned();
            spec
        }),
    ];
    for (reason, spec) in rejected {
        let error = load(&catalog, &spec, &chunks(1, 1)).await.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    catalog.begin_load("", "t").await.unwrap_err();
    catalog.begin_load("d", " t").await.unwrap_err();
    let running = catalog.begin_load("d", "t").await.unwrap();
    for (stripes, overlap_deg) in [(0, 0.1), (1, -1.0), (1, 180.0), (1, f64::NAN)] {
        let bad = NewDatabase {
            stripes,
            overlap_deg,
            ..database("d")
        };
        let error = catalog
            .publish(
                running,
                &bad,
                &director("d", "t"),
                contents(&director("d", "t"), &[]),
            )
            .await
            .unwrap_err();
        assert!(matches!(error, CatalogError::BadDatabase { .. }), "{error}");
    }
}

/// Readers keep what they have read as long as the state stays: it must change with whatever they could see.
async fn the_state_changes_with_every_publication_and_with_nothing_else<P: Place>(place: P) {
    let (catalog, other) = (place.open().await, place.open().await);
    let mut seen = vec![settled(&catalog).await];
    let mut is_new = async |what: &str| {
        // Who has made the change knows of it at once.
        let state = settled(&other).await;
        match P::KNOWS_AT_ONCE {
            true => assert_eq!(catalog.state(), Some(state), "{what}"),
            false => wait_for_state(&catalog, state).await,
        }
        let known = seen.contains(&state);
        seen.push(state);
        !known
    };
    let spec = director("d", "Object");
    let running = other.begin_load("d", "Object").await.unwrap();
    assert!(!is_new("a load has begun").await);
    publish(&other, running, &spec, &chunks(3, 1))
        .await
        .unwrap();
    assert!(is_new("published").await);
    let table = shown(&other, "d", "Object").await;
    let given_up = other.begin_load("d", "Object").await.unwrap();
    other.abandon(given_up).await.unwrap();
    other.forget(given_up).await.unwrap();
    assert!(!is_new("given up and forgotten").await);
    let appended = append(&other, &table, &chunks(2, 1), &[]).await.unwrap();
    assert!(is_new("appended").await);
    let error = append(&other, &replaced_by(&table, LoadId(99)), &chunks(1, 1), &[]).await;
    error.unwrap_err();
    assert!(!is_new("an append was rejected").await);
    let merged = other.begin_load("d", "Object").await.unwrap();
    let five = chunks(5, 1);
    let both = [running, appended];
    let merging = other.merge_parts(merged, &table, &both, contents(&spec, &five));
    merging.await.unwrap();
    assert!(is_new("merged").await);
    append(&other, &table, &chunks(2, 1), &[]).await.unwrap();
    assert!(is_new("appended once more").await);
    other.drop_part("d", "Object", merged).await.unwrap();
    assert!(is_new("a part was dropped").await);
    catalog.tables("d").await.unwrap();
    catalog.verify().await.unwrap();
    assert!(!is_new("read").await);
    assert!(other.describe("d", &words()).await.unwrap());
    assert!(is_new("described").await);
    assert!(!other.describe("d", &words()).await.unwrap());
    other.describe("e", &words()).await.unwrap_err();
    assert!(!is_new("described as before").await);
    load(&other, &spec, &chunks(1, 1)).await.unwrap();
    assert!(is_new("replaced").await);
    other.drop_table("d", "Object").await.unwrap();
    assert!(is_new("a table was dropped").await);
    other.drop_database("d").await.unwrap();
    assert!(is_new("a database was dropped").await);
}

/// The lane of a table's scans is kept with it, in whatever state the words about it are.
async fn the_lane_of_scans_is_changed_without_a_load(place: impl Place) {
    let catalog = place.open().await;
    let spec = director("d", "Object");
    load(&catalog, &spec, &chunks(3, 1)).await.unwrap();
    let to = |scan_lane: Change<ScanLane>| {
        let table = TableChange {
            scan_lane,
            ..TableChange::default()
        };
        DatabaseChange {
            tables: [("object".to_owned(), table)].into_iter().collect(),
            ..DatabaseChange::default()
        }
    };
    for (change, is_changed, rating) in [
        (Change::Clear, false, 1),
        (Change::Set(ScanLane::Slow), true, 30),
        (Change::Set(ScanLane::Slow), false, 30),
        (Change::Keep, false, 30),
        (Change::Set(ScanLane::Fast), true, 10),
        (Change::Clear, true, 1),
        (Change::Set(ScanLane::Snail), true, 40),
    ] {
        let changed = catalog.describe("d", &to(change.clone())).await.unwrap();
        assert_eq!(changed, is_changed, "{change:?}");
        let table = shown(&catalog, "d", "Object").await;
        assert_eq!(table.spec.scan_rating, rating, "{change:?}");
        catalog.verify().await.unwrap();
    }
    // A rating between those of two lanes stays if the lane is the same.
    let rated = TableSpec {
        scan_rating: 15,
        ..spec
    };
    load(&catalog, &rated, &chunks(3, 1)).await.unwrap();
    let medium = to(Change::Set(ScanLane::Medium));
    assert!(!catalog.describe("d", &medium).await.unwrap());
}

/// Words belong to the table and the names of its columns, not to its rows.
async fn what_is_said_comes_back_and_outlives_loads(place: impl Place) {
    let catalog = place.open().await;
    let spec = director("d", "Object");
    load(&catalog, &spec, &chunks(3, 1)).await.unwrap();
    let silent = shown(&catalog, "d", "Object").await;
    assert_eq!(silent.metadata, TableMetadata::default());
    assert!(catalog.describe("D", &words()).await.unwrap());

    let said = shown(&catalog, "d", "Object").await;
    assert_eq!(said.database.description.as_deref(), Some("a survey"));
    assert_eq!(said.metadata.description.as_deref(), Some("objects"));
    assert_eq!(said.metadata.index, Some(3));
    assert_eq!(said.metadata.columns.len(), 2);
    let ra = said.metadata.column("RA").unwrap();
    assert_eq!(
        (ra.unit.as_deref(), ra.xtype.as_deref()),
        (Some("deg"), None)
    );
    assert_eq!((ra.principal, ra.index), (Some(true), Some(10)));
    assert_eq!((&said.spec, &said.parts), (&silent.spec, &silent.parts));

    // An append began before: the words are none of its business.
    append(&catalog, &silent, &chunks(2, 1), &[]).await.unwrap();
    assert_eq!(shown(&catalog, "d", "Object").await.metadata, said.metadata);

    // Files take the place of what was said, and what they are silent about stays.
    let of_file = ColumnMetadata {
        unit: Some("rad".to_owned()),
        xtype: Some("x".to_owned()),
        ..ColumnMetadata::default()
    };
    let files = TableMetadata {
        columns: [("ra".to_owned(), of_file)].into(),
        ..TableMetadata::default()
    };
    let other_names = TableSpec {
        columns: spec.columns[..4].to_vec(),
        ..director("d", "OBJECT")
    };
    let again = catalog.begin_load("d", "Object").await.unwrap();
    let few = chunks(1, 1);
    let loaded = PartContents {
        metadata: Some(&files),
        ..contents(&other_names, &few)
    };
    catalog
        .publish(again, &database("d"), &other_names, loaded)
        .await
        .unwrap();
    let replaced = shown(&catalog, "d", "Object").await;
    assert_eq!(replaced.metadata.description.as_deref(), Some("objects"));
    let ra = replaced.metadata.column("ra").unwrap();
    assert_eq!(ra.description.as_deref(), Some("right ascension"));
    assert_eq!(
        (ra.unit.as_deref(), ra.xtype.as_deref()),
        (Some("rad"), Some("x"))
    );
    assert_eq!(catalog.verify().await.unwrap(), Vec::<String>::new());
}

async fn a_description_is_all_or_nothing(place: impl Place) {
    let catalog = place.open().await;
    load(&catalog, &director("d", "Object"), &chunks(1, 1))
        .await
        .unwrap();
    load(&catalog, &replicated("d", "Filter"), &whole(1))
        .await
        .unwrap();
    let before = catalog.tables("d").await.unwrap();
    let mut no_table = words();
    no_table
        .tables
        .insert("zzz".to_owned(), TableChange::default());
    let mut no_column = words();
    let filter = TableChange {
        columns: [("zzz".to_owned(), ColumnChange::default())].into(),
        ..TableChange::default()
    };
    no_column.tables.insert("filter".to_owned(), filter);
    for change in [no_table, no_column] {
        let error = catalog.describe("d", &change).await.unwrap_err();
        assert!(
            matches!(error, CatalogError::TableChanged { .. }),
            "{error}"
        );
        assert_eq!(catalog.tables("d").await.unwrap(), before);
    }

    catalog.describe("d", &words()).await.unwrap();
    let mut cleared = words();
    cleared.description = Change::Clear;
    let object = cleared.tables.get_mut("object").unwrap();
    *object = TableChange {
        description: Change::Clear,
        utype: Change::Clear,
        index: Change::Clear,
        columns: object.columns.clone(),
        scan_lane: Change::Keep,
    };
    for column in object.columns.values_mut() {
        *column = ColumnChange {
            description: Change::Clear,
            unit: Change::Clear,
            ucd: Change::Clear,
            utype: Change::Clear,
            xtype: Change::Clear,
            principal: Change::Clear,
            index: Change::Clear,
        };
    }
    assert!(catalog.describe("d", &cleared).await.unwrap());
    assert_eq!(catalog.tables("d").await.unwrap(), before);
}

/// The table as if another load had placed it.
fn replaced_by(table: &Table, load: LoadId) -> Table {
    Table {
        placement: load,
        ..table.clone()
    }
}

/// What a reader finds after it has seen a state is never older than that state, whoever publishes meanwhile.
async fn the_state_is_never_ahead_of_what_is_read<P: Place>(place: P) {
    let reader = place.open().await;
    load(&reader, &director("d", "t"), &chunks(1, 0))
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let writer = place.open().await;
        tasks.spawn(async move {
            for rows in 1..12 {
                load(&writer, &director("d", "t"), &chunks(1, rows))
                    .await
                    .unwrap();
            }
        });
    }
    let start = std::time::Instant::now();
    let mut kept = None;
    let mut looks = 0;
    while looks < 20 || !tasks.is_empty() {
        while tasks.try_join_next().is_some() {}
        looks += 1;
        let state = reader.state();
        match &kept {
            // What was read under this state or before it is what is shown, or was replaced since the state was looked at.
            Some((of, table)) if state.is_some() && *of == state => {
                let now = shown(&reader, "d", "t").await;
                let is_kept_too_long = || now != *table && reader.state() == state;
                while !P::KNOWS_AT_ONCE && is_kept_too_long() {
                    assert!(start.elapsed().as_secs() < 120, "kept what was replaced");
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
                assert!(!is_kept_too_long(), "kept what was replaced");
            }
            _ => kept = Some((state, shown(&reader, "d", "t").await)),
        }
    }
    settled(&reader).await;
}

/// Twenty loads of five tables publish from as many handles at once: every table ends as one of its
/// loads, whole, and all its other loads are superseded.
async fn concurrent_publications_do_not_mix(place: impl Place) {
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20_u64 {
        let catalog = place.open().await;
        let spec = director("d", &format!("t{}", number % 5));
        tasks.spawn(async move {
            let count = i32::try_from(number).unwrap() + 1;
            load(&catalog, &spec, &chunks(count, number)).await.unwrap()
        });
    }
    let published = tasks.join_all().await;
    let catalog = place.open().await;
    for number in 0..5 {
        let name = format!("t{number}");
        shown(&catalog, "d", &name).await;
        assert_eq!(superseded(&catalog, &name).await.len(), 3);
    }
    // Each superseded load was named to exactly one successor.
    let mut replaced: Vec<_> = published
        .iter()
        .flat_map(|(_, replaced)| replaced)
        .collect();
    replaced.sort();
    replaced.dedup();
    assert_eq!(replaced.len(), 15);
}

/// Readers see whole states only, while another handle replaces the table again and again.
async fn readers_go_on_while_a_table_is_replaced(place: impl Place) {
    let (writer, reader) = (place.open().await, place.open().await);
    load(&writer, &director("d", "t"), &chunks(100, 1))
        .await
        .unwrap();
    let writing = tokio::spawn(async move {
        for rows in 2..30 {
            load(&writer, &director("d", "t"), &chunks(100, rows))
                .await
                .unwrap();
        }
    });
    let mut looks = 0;
    while !writing.is_finished() {
        shown(&reader, "d", "t").await;
        looks += 1;
    }
    writing.await.unwrap();
    assert!(looks > 1, "the reader waited for the writer");
    assert_eq!(shown(&reader, "d", "t").await.rows(), 2900);
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

macro_rules! conformance {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(super::SqliteDirectory::new()).await;
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    if let Some(place) = super::PostgresPlace::new().await {
                        super::$test(place).await;
                    }
                }
            )+
        }
    };
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
    a_database_keeps_its_partitioning,
    replicated_tables_do_not_fix_the_partitioning,
    the_only_partitioned_table_may_bring_another_partitioning,
    a_database_is_repartitioned_all_at_once,
    parts_are_appended_merged_and_dropped,
    an_append_takes_the_place_of_the_last_parts,
    parts_of_several_tables_are_appended_together_or_not_at_all,
    columns_are_added_with_parts,
    an_append_to_another_table_than_it_began_with_is_rejected,
    appended_keys_unsettle_match_tables,
    tables_and_databases_are_dropped,
    a_table_is_renamed,
    tables_expire,
    children_of_directors_elsewhere,
    views_come_back_and_change_the_state,
    views_and_tables_share_their_names,
    directors_must_be_there,
    pairs_may_be_of_children,
    descriptions_are_checked,
    what_is_said_comes_back_and_outlives_loads,
    the_lane_of_scans_is_changed_without_a_load,
    a_description_is_all_or_nothing,
    concurrent_publications_do_not_mix,
    the_state_changes_with_every_publication_and_with_nothing_else,
    the_state_is_never_ahead_of_what_is_read,
    readers_go_on_while_a_table_is_replaced,
    a_table_of_many_chunks,
    the_lock_tells_who_loads,
);
