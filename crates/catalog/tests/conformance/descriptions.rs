//! What is said of tables and columns, and the lanes of their scans.

use meridian_catalog::{
    CatalogError, Change, ColumnChange, ColumnMetadata, DatabaseChange, LoadId, NewDatabase,
    PartContents, ScanLane, TableChange, TableMetadata, TableSpec,
};

use crate::support::{
    chunks, contents, database, dependent, director, load, replicated, shown, whole, words,
};
use crate::{Place, append};

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

conformance!(
    descriptions_are_checked,
    what_is_said_comes_back_and_outlives_loads,
    the_lane_of_scans_is_changed_without_a_load,
    a_description_is_all_or_nothing,
);
