//! Manifests: what a load has written is read without a catalog.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use catalog::{TableKind, TableSpec};
use common::{Row, Sky, StoredRow, load, stars, stored_rows, write_parquet};
use store::{DirectorIndex, MANIFEST_FILE, OpenFiles, PartManifest, arrow_schema, table_dir};

/// Stars, what was seen of them, pairs of them, and a table of names.
async fn loaded() -> Sky {
    let sky = Sky::new();
    let rows = stars(600, 21);
    let file = write_parquet(&sky.file("stars"), &common::batch(&rows), 200);
    load(sky.director("Star", std::slice::from_ref(&file)))
        .await
        .unwrap();
    let spots: Vec<Row> = (0..2000_usize)
        .map(|n| Row {
            id: n as i64,
            parent: Some(rows[n % 700 % 600].id + i64::from(n % 97 == 0)),
            ..rows[n % 600].clone()
        })
        .collect();
    let spots = write_parquet(&sky.file("spots"), &common::batch(&spots), 500);
    load(sky.child("Spot", "Star", &[spots])).await.unwrap();
    let ids = || Arc::new(rows.iter().map(|row| Some(row.id)).collect::<Int64Array>()) as ArrayRef;
    let pairs = RecordBatch::try_from_iter([("l", ids()), ("r", ids())]).unwrap();
    let mut pairs = sky.request("Pair", &[write_parquet(&sky.file("pairs"), &pairs, 500)]);
    pairs.kind = Some(TableKind::Match);
    pairs.key = vec!["l".to_owned(), "r".to_owned()];
    pairs.directors = vec!["Star".to_owned(), "Star".to_owned()];
    load(pairs).await.unwrap();
    load(sky.request("Name", &[file])).await.unwrap();
    sky
}

const TABLES: [&str; 4] = ["Star", "Spot", "Pair", "Name"];

/// The directory of the only load of a table.
fn load_dir(sky: &Sky, table: &str) -> PathBuf {
    let loads = std::fs::read_dir(table_dir(&sky.data(), "sky", table)).unwrap();
    let loads: Vec<PathBuf> = loads.map(|entry| entry.unwrap().path()).collect();
    assert_eq!(loads.len(), 1);
    loads[0].clone()
}

async fn rows_by_manifest(sky: &Sky, table: &str, overlap: bool) -> (PartManifest, Vec<StoredRow>) {
    let dir = load_dir(sky, table);
    let manifest = PartManifest::read(&dir).unwrap();
    let files = OpenFiles::new(8);
    let mut rows = Vec::new();
    for chunk in &manifest.chunks {
        let name = match overlap {
            true => chunk.overlap_file_name(),
            false => Some(chunk.file_name()),
        };
        let Some(name) = name else { continue };
        let file = files.get(&dir.join(name), chunk.chunk).await.unwrap();
        let (said, checksum) = match chunk.overlap.filter(|_| overlap) {
            Some(overlap) => (overlap.rows, overlap.checksum),
            None => (chunk.rows, chunk.checksum),
        };
        assert_eq!((file.num_rows(), file.checksum()), (said, checksum));
        if !overlap {
            chunk.expect(&file).unwrap();
        }
        rows.extend(stored_rows(&file, chunk.chunk).await);
    }
    (manifest, rows)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_is_read_without_a_catalog() {
    let sky = loaded().await;
    let mut expected = Vec::new();
    for table in TABLES {
        let known = sky.table(table).await;
        expected.push((known, sky.rows(table).await, sky.overlap(table).await));
    }
    for entry in std::fs::read_dir(sky.data()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert!(catalog::Catalog::open(&sky.data()).await.is_err());
    for (table, rows, overlap) in expected {
        let name = &table.spec.name;
        let (manifest, read) = rows_by_manifest(&sky, name, false).await;
        assert!(!rows.is_empty() && read == rows, "{name}");
        assert_eq!(rows_by_manifest(&sky, name, true).await.1, overlap);
        assert_eq!(manifest.part, table.placement);
        assert_eq!(manifest.rows, table.rows());
        assert_eq!(
            manifest.table,
            TableSpec {
                database: "sky".to_owned(),
                ..table.spec.clone()
            }
        );
        let cut = manifest.partitioning;
        assert_eq!(
            (cut.stripes, cut.sub_stripes),
            (common::STRIPES, common::SUB_STRIPES)
        );
        assert_eq!(cut.overlap_deg.to_bits(), common::OVERLAP.to_bits());
        assert_eq!(
            arrow_schema(&manifest.table.columns),
            arrow_schema(&table.spec.columns)
        );
        if matches!(table.spec.kind, TableKind::Director | TableKind::Child) {
            DirectorIndex::open(&load_dir(&sky, name).join("index")).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_compares_manifests_with_the_catalog() {
    let sky = loaded().await;
    assert_eq!(sky.check().await, Vec::<String>::new());
    let dir = load_dir(&sky, "Star");
    let good = std::fs::read(dir.join(MANIFEST_FILE)).unwrap();

    let mut other = PartManifest::read(&dir).unwrap();
    other.chunks.pop();
    other.write(&dir).unwrap();
    let problems = sky.check().await;
    assert!(
        problems.len() == 1 && problems[0].contains(MANIFEST_FILE),
        "{problems:?}"
    );

    let mut bad = good.clone();
    bad[200] ^= 1;
    std::fs::write(dir.join(MANIFEST_FILE), bad).unwrap();
    let problems = sky.check().await;
    assert!(
        problems.len() == 1 && problems[0].contains("checksum"),
        "{problems:?}"
    );

    // Loads were published before there were manifests.
    std::fs::remove_file(dir.join(MANIFEST_FILE)).unwrap();
    assert_eq!(sky.check().await, Vec::<String>::new());
}
