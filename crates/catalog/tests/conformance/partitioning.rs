//! How databases are cut, and by which of their tables.

use meridian_catalog::{
    CatalogError, Change, ChangedView, LoadId, NewDatabase, OtherDatabase, PartContents,
    Publication, TableChange, TableSpec,
};

use crate::support::{
    chunks, contents, database, dependent, director, load, query, replicated, settled, shown, whole,
};
use crate::{Place, append, superseded};

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

/// A release takes the place of a director, its children and what hangs on nothing, with the views of them: all of it or nothing.
async fn tables_and_views_are_replaced_all_at_once(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let (object, note) = (director("d", "Object"), replicated("d", "Note"));
    let (old, _) = load(&catalog, &object, &chunks(3, 4)).await.unwrap();
    let part = shown(&catalog, "d", "Object").await;
    let part = append(&catalog, &part, &chunks(2, 2), &[]).await.unwrap();
    let source = dependent("d", "Source", &[("Object", old)]);
    let (old_source, _) = load(&catalog, &source, &chunks(2, 5)).await.unwrap();
    let (old_note, _) = load(&catalog, &note, &whole(6)).await.unwrap();
    load(&catalog, &replicated("d", "Filter"), &whole(2))
        .await
        .unwrap();
    let made = query("SELECT RA, `dec`, name FROM Object");
    let made = catalog.create_view("d", "Bright", &made, Some("the bright ones"), false);
    made.await.unwrap();

    let new = catalog.begin_load("d", "Object").await.unwrap();
    let new_source = catalog.begin_load("d", "Source").await.unwrap();
    let new_note = catalog.begin_load("d", "Note").await.unwrap();
    let placed_anew = dependent("d", "Source", &[("Object", new)]);
    let (few, many, one) = (chunks(2, 5), chunks(6, 2), whole(1));
    let publication = |load, replaces: &[LoadId], spec: &TableSpec, chunks| Publication {
        load,
        replaces: replaces.to_vec(),
        spec: spec.clone(),
        contents: contents(spec, chunks),
    };
    let all = |of_object: &[LoadId], note_load| {
        [
            publication(new, of_object, &object, many.as_slice()),
            publication(new_source, &[old_source], &placed_anew, few.as_slice()),
            publication(note_load, &[old_note], &note, one.as_slice()),
        ]
    };
    let view = |name: &str| ChangedView {
        database: "D".to_owned(),
        name: name.to_owned(),
        query: query("SELECT RA, `dec`, name FROM Object WHERE price > 1"),
        said: TableChange {
            scan_lane: Change::Keep,
            utype: Change::Set("caom:Observation".to_owned()),
            ..TableChange::default()
        },
    };
    let state_of = async || {
        let tables = reader.tables("d").await.unwrap();
        (tables, reader.views().await.unwrap())
    };

    // A part more or less than was known, a load that is published already, a view that is not there, one that cannot be: nothing changes,
    // though what is wrong comes after what is right, and the loads are still running.
    let before = state_of().await;
    let parts = [old, part];
    let mut bad = view("Bright");
    bad.query.columns.clear();
    let [first, second, _] = all(&parts, new_note);
    let missing = publication(new_note, &[old_note], &replicated("d", "Absent"), &one);
    for (wrong, views) in [
        (all(&[old], new_note).to_vec(), vec![view("Bright")]),
        (all(&[part, old], new_note).to_vec(), vec![]),
        (all(&parts, old_note).to_vec(), vec![view("Bright")]),
        (vec![first, second, missing], vec![]),
        (all(&parts, new_note).to_vec(), vec![view("Dim")]),
        (all(&parts, new_note).to_vec(), vec![view("Bright"), bad]),
    ] {
        assert!(catalog.replace_all(&wrong, &views).await.is_err());
        assert_eq!(state_of().await, before);
    }
    let error = catalog.replace_all(&all(&[old], new_note), &[]).await;
    assert!(
        matches!(&error, Err(CatalogError::TableChanged { table }) if table == "d.Object"),
        "{error:?}"
    );

    let known = settled(&catalog).await;
    let (whole_release, views) = (all(&parts, new_note), [view("Bright")]);
    catalog.replace_all(&whole_release, &views).await.unwrap();
    assert_ne!(settled(&catalog).await, known);
    for (name, load, rows, superseded_loads) in [
        ("Object", new, 12, 2),
        ("Source", new_source, 10, 1),
        ("Note", new_note, 1, 1),
    ] {
        let table = shown(&reader, "d", name).await;
        assert_eq!((table.placement, table.part_numbers()), (load, vec![load]));
        assert_eq!(table.parts[0].rows, rows);
        assert_eq!(superseded(&catalog, name).await.len(), superseded_loads);
    }
    // How the sky is cut, other tables, and what was said of the view stay.
    let filter = shown(&reader, "d", "Filter").await;
    assert_eq!((filter.database.stripes, filter.parts[0].rows), (18, 2));
    let shown_view = reader.view("d", "bright").await.unwrap().unwrap();
    assert_eq!(shown_view.query, view("Bright").query);
    let said = (&shown_view.metadata.description, &shown_view.metadata.utype);
    assert_eq!(said.0.as_deref(), Some("the bright ones"));
    assert_eq!(said.1.as_deref(), Some("caom:Observation"));
    // What is published is not published twice.
    let twice = catalog.replace_all(&all(&parts, new_note), &[]).await;
    assert!(twice.is_err());
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

conformance!(
    a_database_keeps_its_partitioning,
    replicated_tables_do_not_fix_the_partitioning,
    the_only_partitioned_table_may_bring_another_partitioning,
    a_database_is_repartitioned_all_at_once,
    tables_and_views_are_replaced_all_at_once,
    children_of_directors_elsewhere,
);
