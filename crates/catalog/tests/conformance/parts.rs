//! Parts of tables: appended, merged, dropped, with new columns.

use meridian_catalog::{
    Append, CatalogError, Change, ChangedView, Column, ColumnChange, ColumnType, LoadId,
    NewColumns, NewDatabase, PartContents, Table, TableChange, UNKNOWN_LOAD, ViewQuery,
};

use crate::support::{chunks, contents, database, dependent, director, load, shown};
use crate::{Place, append, superseded};

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
    // Whoever has placed rows by the parts that were replaced finds that their rows are there.
    assert!(then.origins().is_subset(&now.origins()));
    assert_eq!(now.parts[1].merged_from, begun[..3]);
    append(begun[3], 7, &[begun[2]]).await.unwrap();
    let now = shown(&reader, "d", "Object").await;
    assert_eq!(now.part_numbers(), [first, begun[3]]);
    assert_eq!(now.parts[1].origins(), begun[..4]);
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

async fn a_table_has_several_parts_from_the_beginning(place: impl Place) {
    let (catalog, reader) = (place.open().await, place.open().await);
    let spec = director("d", "Object");
    let begun = catalog.begin_loads("d", "Object", 3).await.unwrap();
    let of_part = [chunks(4, 3), chunks(2, 5), chunks(1, 7)];
    let all: Vec<(LoadId, PartContents<'_>)> = (begun.iter().zip(&of_part))
        .map(|(load, chunks)| (*load, contents(&spec, chunks)))
        .collect();
    // None of them is shown if one cannot be.
    let other = catalog.begin_load("d", "Other").await.unwrap();
    for wrong in [other, LoadId(9_999_999), begun[0]] {
        let mut parts = all.clone();
        parts[2].0 = wrong;
        let outcome = catalog.publish_parts(&database("d"), &spec, &parts).await;
        outcome.unwrap_err();
        assert_eq!(reader.table("d", "Object").await.unwrap(), None);
        assert_eq!(reader.databases().await.unwrap(), []);
    }
    let outcome = catalog.publish_parts(&database("d"), &spec, &[]).await;
    assert!(
        matches!(outcome, Err(CatalogError::NoTable { .. })),
        "{outcome:?}"
    );
    let replaced = catalog.publish_parts(&database("d"), &spec, &all).await;
    assert_eq!(replaced.unwrap(), []);
    let shown_now = shown(&reader, "d", "Object").await;
    assert_eq!(shown_now.spec, spec);
    assert_eq!(shown_now.part_numbers(), begun);
    assert_eq!((shown_now.placement, shown_now.rows()), (begun[0], 29));
    for (load, chunks) in begun.iter().zip(&of_part) {
        assert_eq!(&reader.chunks(*load).await.unwrap(), chunks);
    }
    assert_eq!(
        reader.unpublished_loads("d", "Object").await.unwrap(),
        vec![]
    );
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());

    // They take the place of all parts that the table has.
    let later = catalog.begin_loads("d", "Object", 2).await.unwrap();
    let parts = [(later[0], all[1].1), (later[1], all[0].1)];
    let replaced = catalog.publish_parts(&database("d"), &spec, &parts).await;
    assert_eq!(replaced.unwrap(), begun);
    let shown_now = shown(&reader, "d", "Object").await;
    assert_eq!(shown_now.part_numbers(), later);
    assert_eq!((shown_now.placement, shown_now.rows()), (later[0], 22));
    assert_eq!(superseded(&catalog, "Object").await, begun);
    assert_eq!(reader.verify().await.unwrap(), Vec::<String>::new());
    // Another cut than the database has is rejected, whichever part brings it.
    let more = catalog.begin_loads("d", "Second", 2).await.unwrap();
    let second = director("d", "Second");
    let parts = [(more[0], all[0].1), (more[1], all[1].1)];
    let otherwise = NewDatabase {
        stripes: database("d").stripes + 1,
        ..database("d")
    };
    let outcome = catalog.publish_parts(&otherwise, &second, &parts).await;
    outcome.unwrap_err();
    assert_eq!(reader.table("d", "Second").await.unwrap(), None);
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

conformance!(
    parts_are_appended_merged_and_dropped,
    an_append_takes_the_place_of_the_last_parts,
    parts_of_several_tables_are_appended_together_or_not_at_all,
    a_table_has_several_parts_from_the_beginning,
    columns_are_added_with_parts,
    an_append_to_another_table_than_it_began_with_is_rejected,
    appended_keys_unsettle_match_tables,
);
