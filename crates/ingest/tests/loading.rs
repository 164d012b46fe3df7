//! The load transaction and the values that come out of files: real catalogues, every kind of column, rejections.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Decimal128Array, DictionaryArray, Float32Array,
    Float64Array, Int64Array, LargeStringArray, RecordBatch, TimestampMicrosecondArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::datatypes::Int8Type;
use catalog::{Catalog, ColumnType, TableKind};
use common::{Row, Sky, StoredRow, Value, load, load_error, stars, write_csv, write_parquet};
use meridian_ingest::LoadRequest;

fn write(sky: &Sky, name: &str, text: &str) -> PathBuf {
    let path = sky.file(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Directories of loads under the data directory.
fn load_dirs(sky: &Sky) -> usize {
    let tables = std::fs::read_dir(sky.data().join("tables"));
    let tables = tables.into_iter().flatten().flatten();
    tables
        .map(|table| std::fs::read_dir(table.path()).unwrap().count())
        .sum()
}

/// The catalogues of the survey's own tests; they lie beside the repository where they are at all.
fn real_catalogue(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data")
        .join(name);
    path.is_dir().then_some(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn real_catalogues_load_whole() {
    let Some(dir) = real_catalogue("pt12") else {
        // Nothing to test with on this machine; the synthesised catalogues are tested everywhere.
        return;
    };
    let sky = Sky::new();
    let request = |table: &str| {
        let mut request = LoadRequest::new(sky.data(), "pt12", table);
        request.schema = Some(dir.join("tables.json"));
        request.files = vec![dir.join(format!("{table}.tsv.gz"))];
        request
    };
    let mut object = request("Object");
    (object.key, object.ra, object.dec) = (
        vec!["objectId".into()],
        Some("ra_PS".into()),
        Some("decl_PS".into()),
    );
    (object.stripes, object.sub_stripes) = (Some(85), Some(12));
    assert_eq!(load(object).await.unwrap().rows_loaded, 88);
    let mut source = request("Source");
    (source.key, source.directors) = (vec!["objectId".into()], vec!["object".into()]);
    (source.ra, source.dec) = (Some("raObject".into()), Some("declObject".into()));
    let report = load(source).await.unwrap();
    assert_eq!((report.rows_loaded, report.kind), (3339, TableKind::Child));
    // 4,529 lines: its binary column holds line ends, escaped.
    let exposures = load(request("Science_Ccd_Exposure")).await.unwrap();
    assert_eq!((exposures.rows_loaded, exposures.rows_rejected), (3304, 0));
    for (table, rows) in [
        ("Filter", 9),
        ("LeapSeconds", 38),
        ("Logs", 1000),
        ("sdqa_Metric", 53),
    ] {
        assert_eq!(
            load(request(table)).await.unwrap().rows_loaded,
            rows,
            "{table}"
        );
    }
    assert_eq!(sky.check().await, Vec::<String>::new());
    let spec = Catalog::open(&sky.data())
        .await
        .unwrap()
        .table("pt12", "source")
        .await
        .unwrap()
        .unwrap()
        .spec;
    assert_eq!(spec.key.as_deref(), Some("sourceId"));
    assert_eq!(spec.directors[0].table, "Object");
}

fn column<'a>(stored: &'a [StoredRow], name: &str) -> Vec<&'a Value> {
    stored.iter().map(|row| &row.values[name]).collect()
}

/// Three rows, with NULLs and what becomes NULL.
fn every_kind_of_column() -> RecordBatch {
    let words: DictionaryArray<Int8Type> = [Some("g"), None, Some("r")].into_iter().collect();
    let columns: [(&str, ArrayRef, bool); 10] = [
        (
            "big",
            Arc::new(UInt64Array::from(vec![Some(u64::MAX >> 1), None, Some(0)])),
            true,
        ),
        ("word", Arc::new(words), true),
        (
            "text",
            Arc::new(LargeStringArray::from(vec!["a", "", "é"])),
            false,
        ),
        (
            "bytes",
            Arc::new(BinaryArray::from(vec![b"\xff".as_slice(), b"", b"\0"])),
            false,
        ),
        (
            "yes",
            Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
            true,
        ),
        (
            "money",
            Arc::new(
                Decimal128Array::from(vec![123, -5, 0])
                    .with_precision_and_scale(10, 2)
                    .unwrap(),
            ),
            false,
        ),
        (
            "at",
            Arc::new(
                TimestampNanosecondArray::from(vec![1_500, 0, -1_000]).with_timezone("+02:00"),
            ),
            false,
        ),
        (
            "f",
            Arc::new(Float32Array::from(vec![f32::NAN, -0.0, 1.5])),
            true,
        ),
        (
            "d",
            Arc::new(Float64Array::from(vec![Some(-0.0), None, Some(f64::NAN)])),
            true,
        ),
        ("n", Arc::new(Int64Array::from(vec![1, 2, 3])), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_parquet_column() {
    let sky = Sky::new();
    let file = write_parquet(&sky.file("t.parquet"), &every_kind_of_column(), 2);
    load(sky.request("T", &[file])).await.unwrap();
    let types: Vec<ColumnType> = sky
        .table("T")
        .await
        .spec
        .columns
        .iter()
        .map(|c| c.ty)
        .collect();
    use ColumnType as T;
    let money = T::Decimal {
        precision: 10,
        scale: 2,
    };
    let expected = [
        T::UInt64,
        T::Text,
        T::Text,
        T::Binary,
        T::Boolean,
        money,
        T::Timestamp,
        T::Float32,
        T::Float64,
        T::Int64,
    ];
    assert_eq!(types, expected);
    let rows = sky.rows("T").await;
    assert_eq!(
        column(&rows, "n"),
        [&Value::Int(1), &Value::Int(2), &Value::Int(3)],
        "in the order of the input"
    );
    assert_eq!(
        column(&rows, "f"),
        [&Value::Null, &Value::Float(0.0), &Value::Float(1.5)]
    );
    assert_eq!(
        column(&rows, "d"),
        [&Value::Float(0.0), &Value::Null, &Value::Null]
    );
    let text = |t: &str| Value::Text(t.to_owned());
    assert_eq!(
        column(&rows, "word"),
        [&text("g"), &Value::Null, &text("r")]
    );
    assert_eq!(
        column(&rows, "money"),
        [&text("1.23"), &text("-0.05"), &text("0.00")]
    );
    assert_eq!(column(&rows, "at")[0], &text("1970-01-01T00:00:00.000001"));
    let Value::Float(zero) = column(&rows, "f")[1] else {
        panic!("a number")
    };
    assert!(zero.is_sign_positive());
}

#[tokio::test(flavor = "multi_thread")]
async fn parquet_values_that_the_declared_type_cannot_hold_reject_the_row() {
    let sky = Sky::new();
    let columns: [(&str, ArrayRef); 2] = [
        ("small", Arc::new(Int64Array::from(vec![1, 300, 3]))),
        ("whole", Arc::new(Float64Array::from(vec![2.0, 1.0, 2.5]))),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let file = write_parquet(&sky.file("t.parquet"), &batch, 10);
    let schema = write(
        &sky,
        "s.json",
        r#"{"columns": [{"name": "small", "type": "tinyint"}, {"name": "WHOLE", "type": "int"}]}"#,
    );
    let mut request = sky.request("T", &[file]);
    (request.schema, request.max_errors) = (Some(schema), 2);
    let report = load(request).await.unwrap();
    let examples: Vec<String> = report
        .rejected_rows
        .iter()
        .flat_map(|r| &r.examples)
        .map(|e| format!("{}: {}", e.line, e.reason))
        .collect();
    assert_eq!(report.rows_loaded, 1);
    assert!(
        examples
            .iter()
            .any(|e| e.starts_with("2: column \"small\": \"300\"")),
        "{examples:?}"
    );
    assert!(
        examples
            .iter()
            .any(|e| e.starts_with("3: column \"WHOLE\": \"2.5\"")),
        "{examples:?}"
    );
}

/// The end of the year 9999, which stands for "for ever" in many tables, made a thread of the load panic.
#[tokio::test(flavor = "multi_thread")]
async fn times_beyond_those_that_files_hold_reject_the_row() {
    let sky = Sky::new();
    let last = 253_402_207_200_000_000;
    let times = vec![
        Some(0),
        Some(last),
        Some(last + 93_599_000_000),
        None,
        Some(i64::MAX),
    ];
    let columns: [(&str, ArrayRef); 2] = [
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5]))),
        ("until", Arc::new(TimestampMicrosecondArray::from(times))),
    ];
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
            .unwrap();
    let file = write_parquet(&sky.file("t.parquet"), &batch, 10);
    let mut request = sky.request("T", &[file]);
    let sentence = load_error(request.clone()).await;
    assert!(
        sentence.contains("until") && sentence.contains("9999-12-31"),
        "{sentence}"
    );
    request.max_errors = 2;
    assert_eq!(load(request).await.unwrap().rows_loaded, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn not_null_rejects_nan_unless_made_nullable() {
    let sky = Sky::new();
    let file = write(&sky, "t.csv", "1,nan\n2,5\n");
    let schema = write(
        &sky,
        "s.json",
        r#"{"columns": [{"name": "id", "type": "int"}, {"name": "x", "type": "double NOT NULL"}]}"#,
    );
    let mut request = sky.request("T", &[file]);
    request.schema = Some(schema);
    let sentence = load_error(request.clone()).await;
    assert!(
        sentence.contains("t.csv:1") && sentence.contains("--nullable x"),
        "{sentence}"
    );
    request.nullable = vec!["X".to_owned()];
    assert_eq!(load(request.clone()).await.unwrap().rows_loaded, 2);
    (request.nullable, request.replace) = (vec!["y".to_owned()], true);
    assert!(load_error(request).await.contains("--nullable"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_load_leaves_nothing_and_a_replaced_one_goes() {
    let sky = Sky::new();
    let good = write_csv(&sky.file("good.csv"), &stars(200, 1));
    let bad = write(&sky, "bad.csv", "id,parent,ra,dec,name\n1,1,10,95,x\n");
    let sentence = load_error(sky.director("Star", std::slice::from_ref(&bad))).await;
    assert!(
        sentence.contains("bad.csv:2") && sentence.contains("95"),
        "{sentence}"
    );
    assert_eq!(load_dirs(&sky), 0);
    load(sky.director("Star", std::slice::from_ref(&good)))
        .await
        .unwrap();
    let first = sky.table("Star").await;
    let again = sky.director("Star", std::slice::from_ref(&good));
    assert!(load_error(again.clone()).await.contains("--replace"));
    assert!(
        load_error(LoadRequest {
            replace: true,
            files: vec![good.clone(), bad],
            ..again.clone()
        })
        .await
        .contains("rejected")
    );
    assert_eq!(
        (sky.table("Star").await, load_dirs(&sky)),
        (first.clone(), 1)
    );
    let other = write_csv(&sky.file("other.csv"), &stars(50, 2));
    // Somebody reads the old files: they stay until the next load.
    let reader = store::LoadDir::open(&sky.data(), "sky", "Star", first.placement).unwrap();
    let report = load(LoadRequest {
        replace: true,
        files: vec![other.clone()],
        ..again.clone()
    })
    .await
    .unwrap();
    assert!(
        report.notes.iter().any(|note| note.contains("still read")),
        "{report}"
    );
    assert_eq!((sky.table("Star").await.rows(), load_dirs(&sky)), (50, 2));
    drop(reader);
    load(LoadRequest {
        replace: true,
        files: vec![other],
        ..again
    })
    .await
    .unwrap();
    assert_eq!(load_dirs(&sky), 1);
    assert_eq!(sky.check().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_load_of_a_table_is_told_who_holds_it() {
    let sky = Sky::new();
    let file = write_csv(&sky.file("a.csv"), &stars(20, 1));
    let lock = catalog::LoadLock::acquire(&sky.data(), "SKY", "star", "loading other.csv").unwrap();
    let sentence = load_error(sky.director("Star", std::slice::from_ref(&file))).await;
    assert!(
        sentence.contains("other.csv") && sentence.contains(&std::process::id().to_string()),
        "{sentence}"
    );
    drop(lock);
    load(sky.director("Star", &[file])).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_a_database_share_its_partitioning() {
    let sky = Sky::new();
    let file = write_csv(&sky.file("a.csv"), &stars(300, 1));
    let mut request = sky.director("Star", std::slice::from_ref(&file));
    (request.stripes, request.sub_stripes, request.overlap_deg) = (None, None, None);
    let cut = load(request.clone()).await.unwrap().partitioning;
    assert!(
        cut.chosen && cut.stripes == 2 && cut.sub_stripes == 1,
        "{cut:?}"
    );
    assert!((cut.overlap_deg - 1.0 / 60.0).abs() < 1e-12);
    request.table = "Other".to_owned();
    let again = load(request.clone()).await.unwrap().partitioning;
    assert!(!again.chosen && again.stripes == 2);
    (request.table, request.stripes) = ("Third".to_owned(), Some(9));
    assert!(load_error(request).await.contains("--stripes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_without_rows_are_tables() {
    let sky = Sky::new();
    let file = write(&sky, "a.csv", "id,parent,ra,dec,name\n");
    let schema = write(
        &sky,
        "s.json",
        r#"{"columns": [{"name": "id", "type": "bigint"}, {"name": "parent", "type": "bigint"},
            {"name": "ra", "type": "double"}, {"name": "dec", "type": "double"}, {"name": "name", "type": "text"}]}"#,
    );
    let with_schema = |request: LoadRequest| LoadRequest {
        schema: Some(schema.clone()),
        allow_empty: true,
        ..request
    };
    let files = std::slice::from_ref(&file);
    for request in [
        sky.director("Star", files),
        sky.child("Spot", "Star", files),
        sky.request("Plain", files),
    ] {
        let table = request.table.clone();
        assert_eq!(
            load(with_schema(request)).await.unwrap().rows_loaded,
            0,
            "{table}"
        );
        assert_eq!(sky.rows(&table).await, Vec::new());
    }
    // A child of an empty director: every row with a key is an orphan.
    let orphan = Row {
        id: 1,
        parent: Some(5),
        ra: None,
        dec: None,
        name: None,
    };
    let spots = write_csv(&sky.file("spots.csv"), &[orphan]);
    let mut request = with_schema(sky.child("Spot", "Star", &[spots]));
    request.replace = true;
    assert_eq!(load(request).await.unwrap().counts.orphan_rows, 1);
    assert_eq!(sky.check().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn options_that_cannot_be_are_rejected_with_a_way_out() {
    let sky = Sky::new();
    let file = write_csv(&sky.file("a.csv"), &stars(30, 1));
    let files = std::slice::from_ref(&file);
    let director = || sky.director("Star", files);
    let change = |change: &dyn Fn(&mut LoadRequest)| {
        let mut request = director();
        change(&mut request);
        request
    };
    let cases: Vec<(LoadRequest, &str)> = vec![
        (
            change(&|r| r.key = vec!["idd".into()]),
            "did you mean \"id\"",
        ),
        (change(&|r| r.key = vec!["ra".into()]), "integer"),
        (
            change(&|r| r.ra = Some("name".into())),
            "two numbers of degrees",
        ),
        (change(&|r| r.dec = None), "belong together"),
        (change(&|r| r.files.clear()), "at least one"),
        (
            change(&|r| r.files = vec![sky.file("absent.csv")]),
            "absent.csv",
        ),
        (
            change(&|r| r.files = vec![sky.dir.path().to_path_buf()]),
            "directory",
        ),
        (change(&|r| r.overlap_deg = Some(-1.0)), "--overlap"),
        (change(&|r| r.stripes = Some(0)), "stripes"),
        (change(&|r| r.kind = Some(TableKind::Child)), "--director"),
        (sky.child("Spot", "Star", files), "no director \"Star\""),
        (change(&|r| r.database = "a\nb".into()), "name"),
    ];
    for (request, part) in cases {
        let sentence = load_error(request).await;
        assert!(sentence.contains(part), "{part:?} is not in: {sentence}");
    }
    let every = write(&sky, "b.csv", "id,ra,dec\n1,5,99\n2,5,-99\n");
    let all = LoadRequest {
        max_errors: 10,
        ..sky.director("Star", &[every])
    };
    assert!(load_error(all).await.contains("every one of the 2 rows"));
    let one = write(&sky, "d.csv", "id,ra,dec\n1,5,99\n2,5,9\n");
    let sentence = load_error(sky.director("Star", &[one])).await;
    assert!(sentence.starts_with("1 row was rejected"), "{sentence}");
    for (foreign, word) in [
        ("SIMPLE  =                    T", "within a header"),
        ("ARROW1", "Arrow file"),
    ] {
        let file = write(&sky, "c.fits", foreign);
        let sentence = load_error(sky.director("Star", &[file])).await;
        assert!(sentence.contains(word), "{sentence}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_load_leaves_nothing() {
    let sky = Sky::new();
    let file = write_csv(&sky.file("a.csv"), &stars(200, 1));
    let progress = Arc::new(meridian_ingest::Progress::default());
    progress.cancel();
    let error = meridian_ingest::load(sky.director("Star", &[file]), progress)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("cancelled"));
    assert_eq!(load_dirs(&sky), 0);
}
