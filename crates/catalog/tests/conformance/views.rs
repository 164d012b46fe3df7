//! Views.

use meridian_catalog::{
    CatalogError, Change, ColumnChange, DatabaseChange, Rights, TableChange, ViewQuery,
};

use crate::Place;
use crate::support::{chunks, director, load, publish, query, settled};

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

conformance!(
    views_come_back_and_change_the_state,
    views_and_tables_share_their_names,
);
