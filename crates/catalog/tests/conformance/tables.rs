//! What becomes of tables, and what they refer to.

use meridian_catalog::{CatalogError, Expiry, LoadId, Table};

use crate::support::{
    chunks, contents, dependent, director, load, replicated, settled, shown, whole,
};
use crate::{Place, append, superseded};

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

conformance!(
    tables_and_databases_are_dropped,
    a_table_is_renamed,
    tables_expire,
    directors_must_be_there,
    pairs_may_be_of_children,
);
