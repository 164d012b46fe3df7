//! Tables whose chunks are small: they share files.
#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use catalog::{Catalog, Chunk, Table};
use common::{Row, Sky, load, stars, write_parquet};
use meridian_ingest::{Progress, RepartitionRequest, repartition};
use sky::{Chunker, LonLat};
use store::{OpenFile, table_dir};

async fn chunks_of(sky: &Sky, table: &str) -> (Table, Vec<Chunk>) {
    let catalog = Catalog::open(&sky.data()).await.unwrap();
    let table = sky.table(table).await;
    let chunks = catalog.chunks(table.placement).await.unwrap();
    (table, chunks)
}

/// The files of a table's current load whose names begin so.
fn files(sky: &Sky, table: &Table, prefix: &str) -> Vec<PathBuf> {
    let dir = table_dir(&sky.data(), "sky", &table.spec.name).join(table.placement.to_string());
    let entries = std::fs::read_dir(dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let begins = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(prefix)
    };
    let mut paths: Vec<PathBuf> = paths.filter(begins).collect();
    paths.sort();
    paths
}

async fn loaded(rows: &[Row]) -> Sky {
    let sky = Sky::new();
    let file = write_parquet(&sky.file("stars"), &common::batch(rows), 500);
    load(sky.director("Star", &[file])).await.unwrap();
    sky
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_table_has_one_file_for_all_chunks() {
    let rows = stars(3000, 31);
    let sky = loaded(&rows).await;
    let (table, chunks) = chunks_of(&sky, "Star").await;
    assert!(chunks.len() > 30, "{}", chunks.len());
    for (prefix, bytes) in [
        (
            "chunk_",
            chunks.iter().map(|chunk| chunk.bytes).sum::<u64>(),
        ),
        (
            "overlap_",
            chunks
                .iter()
                .filter_map(|chunk| chunk.overlap)
                .map(|it| it.bytes)
                .sum(),
        ),
    ] {
        let files = files(&sky, &table, prefix);
        assert_eq!(files.len(), 1, "{files:?}");
        assert!(files[0].ends_with(format!("{prefix}{}.mrd", chunks[0].chunk)));
        assert_eq!(std::fs::metadata(&files[0]).unwrap().len(), bytes);
    }
    assert!(chunks.iter().all(|chunk| chunk.file == chunks[0].chunk));
    let mut found: Vec<Row> = sky
        .rows("Star")
        .await
        .iter()
        .map(common::StoredRow::row)
        .collect();
    let mut expected = rows;
    found.sort_by_key(|row| row.id);
    expected.sort_by_key(|row| row.id);
    assert_eq!(found, expected);
    assert_eq!(sky.check().await, Vec::<String>::new());
}

/// One chunk of 40,000 rows among many small ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_chunk_among_small_ones_has_a_file_of_its_own() {
    let mut rows = stars(2000, 32);
    let star = rows[0].clone();
    rows.extend((0..40_000).map(|n| Row {
        id: 1_000_000 + n,
        ra: Some(100.0 + 0.0001 * n as f64),
        dec: Some(10.0),
        ..star.clone()
    }));
    let sky = loaded(&rows).await;
    let (table, chunks) = chunks_of(&sky, "Star").await;
    let mut by_file: BTreeMap<_, Vec<&Chunk>> = BTreeMap::new();
    for chunk in &chunks {
        by_file.entry(chunk.file).or_default().push(chunk);
    }
    assert_eq!(files(&sky, &table, "chunk_").len(), by_file.len());
    assert_eq!(by_file.len(), 2);
    let large = chunks.iter().find(|chunk| chunk.rows >= 40_000).unwrap();
    assert_eq!(by_file[&large.chunk], [large]);
    assert_eq!(sky.check().await, Vec::<String>::new());
}

/// Rows of one key in several chunks are rejected but for the first, after they were placed: the chunk of the lowest number has
/// no row then, and the file is named after another.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_named_after_the_first_chunk_that_has_rows() {
    let mut rows = stars(500, 33);
    let chunker = Chunker::new(common::STRIPES, common::SUB_STRIPES).unwrap();
    let chunk = |row: &Row| {
        let position = LonLat::from_degrees(row.ra.unwrap(), row.dec.unwrap()).unwrap();
        chunker.locate(position).chunk
    };
    let lowest = rows.iter().map(&chunk).min().unwrap();
    let (mut low, mut others): (Vec<Row>, Vec<Row>) =
        rows.drain(..).partition(|row| chunk(row) == lowest);
    let expected: BTreeSet<_> = others.iter().map(&chunk).collect();
    // Each has the key of a row that comes before it in the input.
    for (row, other) in low.iter_mut().zip(&others) {
        row.id = other.id;
    }
    others.extend(low);
    let sky = Sky::new();
    let file = write_parquet(&sky.file("stars"), &common::batch(&others), 5000);
    let mut request = sky.director("Star", &[file]);
    request.max_errors = 1000;
    load(request).await.unwrap();
    let (table, chunks) = chunks_of(&sky, "Star").await;
    assert_eq!(
        chunks
            .iter()
            .map(|chunk| chunk.chunk)
            .collect::<BTreeSet<_>>(),
        expected
    );
    let file = &files(&sky, &table, "chunk_")[0];
    assert!(file.ends_with(format!("chunk_{}.mrd", expected.first().unwrap())));
    assert_eq!(sky.check().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_what_is_wrong_with_a_file_of_several_chunks() {
    let sky = loaded(&stars(3000, 34)).await;
    let (table, chunks) = chunks_of(&sky, "Star").await;
    for prefix in ["chunk_", "overlap_"] {
        let path = &files(&sky, &table, prefix)[0];
        let good = std::fs::read(path).unwrap();
        for at in [good.len() / 3, good.len() - 800, good.len() - 30] {
            let mut bad = good.clone();
            bad[at] ^= 4;
            std::fs::write(path, bad).unwrap();
            let problems = sky.check().await;
            assert!(problems.len() == 1, "{problems:?}");
            assert!(problems[0].contains(prefix), "{problems:?}");
        }
        std::fs::write(path, &good).unwrap();
        let stray = path.with_file_name(format!("{prefix}{}.mrd", chunks[1].chunk));
        std::fs::copy(path, &stray).unwrap();
        let problems = sky.check().await;
        assert!(problems[0].contains("does not speak"), "{problems:?}");
        std::fs::remove_file(stray).unwrap();
    }
    let other = loaded(&stars(2990, 34)).await;
    let (other_table, _) = chunks_of(&other, "Star").await;
    let path = &files(&sky, &table, "chunk_")[0];
    std::fs::copy(&files(&other, &other_table, "chunk_")[0], path).unwrap();
    let problems = sky.check().await;
    assert!(
        problems.len() == 1 && problems[0].contains("not the file"),
        "{problems:?}"
    );
}

fn in_order(path: &Path) -> impl Future<Output = Vec<i32>> {
    let path = path.to_owned();
    async move {
        let chunks = OpenFile::open(&path).await.unwrap().chunks();
        chunks.into_iter().map(|chunk| chunk.0).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_several_chunks_are_read_when_the_sky_is_cut_anew() {
    let rows = stars(3000, 35);
    let sky = loaded(&rows).await;
    let request = RepartitionRequest {
        data_dir: sky.data(),
        database: "sky".to_owned(),
        stripes: Some(12),
        sub_stripes: Some(2),
        overlap_deg: Some(0.2),
        memory: None,
        threads: Some(2),
    };
    repartition(request, std::sync::Arc::new(Progress::default()))
        .await
        .unwrap();
    let (table, chunks) = chunks_of(&sky, "Star").await;
    let path = &files(&sky, &table, "chunk_")[0];
    let numbers: Vec<i32> = chunks.iter().map(|chunk| chunk.chunk.0).collect();
    assert_eq!(in_order(path).await, numbers);
    assert_eq!(sky.rows("Star").await.len(), rows.len());
    assert_eq!(sky.check().await, Vec::<String>::new());
}
