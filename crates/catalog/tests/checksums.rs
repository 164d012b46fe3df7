//! Changed bytes in the catalog are errors, never other answers: the laws of its checksums.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

mod support;

use std::path::Path;
use std::time::Instant;

use meridian_catalog::{Append, Catalog, CatalogError, Chunk, Database, LoadId, Table, View};
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};
use support::{chunks, dependent, director, load, replicated, shown, whole};

const FILE: &str = "meridian.sqlite";
const TABLES: [&str; 9] = [
    "databases",
    "loads",
    "tables",
    "parts",
    "columns",
    "table_directors",
    "chunks",
    "lists",
    "views",
];

/// Two databases, tables of every kind, one of two parts, a replaced load, an abandoned one and a running one.
async fn full_catalog(dir: &Path) {
    let catalog = Catalog::open_or_create(dir).await.unwrap();
    let object = director("sky", "Object");
    load(&catalog, &object, &chunks(5, 3)).await.unwrap();
    let (placed_by, _) = load(&catalog, &object, &chunks(7, 4)).await.unwrap();
    let source = dependent("sky", "Source", &[("Object", placed_by)]);
    load(&catalog, &source, &chunks(4, 9)).await.unwrap();
    let ends = [("Object", placed_by), ("Object", placed_by)];
    load(&catalog, &dependent("sky", "Pairs", &ends), &chunks(3, 2))
        .await
        .unwrap();
    load(&catalog, &replicated("other", "Filter"), &whole(6))
        .await
        .unwrap();
    let table = shown(&catalog, "sky", "Object").await;
    let part = catalog.begin_load("sky", "Object").await.unwrap();
    let more = chunks(6, 1);
    let append = Append {
        load: part,
        table: &table,
        contents: support::contents(&object, &more),
        unsettled: &["Pairs".to_owned()],
        replaces: &[],
    };
    catalog.append(append).await.unwrap();
    let given_up = catalog.begin_load("sky", "Object").await.unwrap();
    catalog.abandon(given_up).await.unwrap();
    catalog.begin_load("sky", "Source").await.unwrap();
    catalog.describe("sky", &support::words()).await.unwrap();
    for name in ["Bright", "Dark", "Odd"] {
        let query = support::query("SELECT * FROM Object");
        let made = catalog.create_view("sky", name, &query, None, false);
        made.await.unwrap();
    }
    catalog.close().await;
}

/// Everything that can be asked of a catalog.
#[derive(Debug, PartialEq)]
struct CatalogContents {
    databases: Vec<Database>,
    tables: Vec<Table>,
    chunks: Vec<(LoadId, Vec<Chunk>, u64)>,
    leftovers: Vec<Vec<LoadId>>,
    views: Vec<View>,
}

async fn read_catalog(dir: &Path) -> Result<CatalogContents, CatalogError> {
    let catalog = Catalog::open(dir).await?;
    let answers = read_all(&catalog).await;
    catalog.close().await;
    answers
}

async fn read_all(catalog: &Catalog) -> Result<CatalogContents, CatalogError> {
    let mut answers = CatalogContents {
        databases: catalog.databases().await?,
        tables: Vec::new(),
        chunks: Vec::new(),
        leftovers: Vec::new(),
        views: catalog.views().await?,
    };
    for database in ["sky", "other"] {
        answers.tables.extend(catalog.tables(database).await?);
    }
    for table in ["Object", "Source", "Pairs"] {
        // By name as well: another way through SQLite's indexes.
        answers.tables.extend(catalog.table("sky", table).await?);
        answers
            .leftovers
            .push(catalog.unpublished_loads("sky", table).await?);
    }
    let superseded = catalog.superseded_loads().await?;
    (answers.leftovers).push(superseded.into_iter().map(|it| it.load).collect());
    for load in (1..9).map(LoadId) {
        let (chunks, count) = (
            catalog.chunks(load).await?,
            catalog.chunk_count(load).await?,
        );
        answers.chunks.push((load, chunks, count));
    }
    Ok(answers)
}

async fn problems(dir: &Path) -> Vec<String> {
    let catalog = match Catalog::open(dir).await {
        Ok(catalog) => catalog,
        Err(error) => return vec![error.to_string()],
    };
    let found = catalog.verify().await;
    catalog.close().await;
    found.unwrap_or_else(|error| vec![error.to_string()])
}

/// A connection that may write whatever it likes.
async fn vandal(dir: &Path) -> SqliteConnection {
    let url = format!("sqlite://{}", dir.join(FILE).display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    sqlx::raw_sql("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
        .execute(&mut connection)
        .await
        .unwrap();
    connection
}

async fn run(dir: &Path, sql: String) -> u64 {
    let mut connection = vandal(dir).await;
    let done = sqlx::query(AssertSqlSafe(sql.clone()))
        .execute(&mut connection)
        .await;
    connection.close().await.unwrap();
    done.unwrap_or_else(|error| panic!("{sql}: {error}"))
        .rows_affected()
}

/// Each table's columns: name and type.
async fn columns(dir: &Path, table: &str) -> Vec<(String, String)> {
    let mut connection = vandal(dir).await;
    let rows = sqlx::query("SELECT name, type FROM pragma_table_info(?)")
        .bind(table)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Changes of one value, by type: small and large ones, and the one that flips what is compared with zero.
fn changes(column: &str, ty: &str) -> Vec<String> {
    match ty {
        "TEXT" => vec![
            format!("coalesce({column}, '') || 'x'"),
            format!(
                "upper(coalesce({column}, 'a')) || substr('A', 1, {column} IS upper({column}))"
            ),
        ],
        "REAL" => vec![
            format!("coalesce({column}, 0.0) + 0.0001"),
            format!("-coalesce({column}, 3.0) - 1.0"),
        ],
        _ => vec![
            format!("coalesce({column}, 0) + 1000"),
            format!("~coalesce({column}, 0)"),
        ],
    }
}

async fn expect_noticed(dir: &Path, before: &CatalogContents, what: &str) {
    let found = problems(dir).await;
    assert!(!found.is_empty(), "check says nothing about {what}");
    if let Ok(answers) = read_catalog(dir).await {
        assert_eq!(answers, *before, "{what}");
    }
}

/// Bytes flipped in the catalog passed `meridian check`, and columns and chunks vanished from answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_changed_value_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    full_catalog(dir.path()).await;
    let before = read_catalog(dir.path()).await.unwrap();
    assert_eq!(problems(dir.path()).await, Vec::<String>::new());
    let whole = std::fs::read(dir.path().join(FILE)).unwrap();
    for table in TABLES {
        let some_row = match table {
            "columns" | "table_directors" => "(table_id, ordinal)",
            "chunks" => "(load_id, chunk_id)",
            "lists" => "name",
            _ => "rowid",
        };
        let key = some_row.trim_matches(['(', ')']);
        for (column, ty) in columns(dir.path(), table).await {
            for change in changes(&column, &ty) {
                for nth in [0, 2] {
                    let sql = format!(
                        "UPDATE {table} SET {column} = {change} \
                         WHERE {some_row} = (SELECT {key} FROM {table} LIMIT 1 OFFSET {nth})"
                    );
                    if run(dir.path(), sql.clone()).await > 0 {
                        expect_noticed(dir.path(), &before, &sql).await;
                    }
                    std::fs::write(dir.path().join(FILE), &whole).unwrap();
                }
            }
        }
        for nth in [0, 2] {
            let sql = format!(
                "DELETE FROM {table} WHERE {some_row} = (SELECT {key} FROM {table} LIMIT 1 OFFSET {nth})"
            );
            if run(dir.path(), sql.clone()).await > 0 {
                expect_noticed(dir.path(), &before, &sql).await;
            }
            std::fs::write(dir.path().join(FILE), &whole).unwrap();
        }
    }
    assert_eq!(read_catalog(dir.path()).await.unwrap(), before);
}

/// Whatever a byte of the file becomes, answers stay the same or are errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_changed_byte_changes_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    full_catalog(dir.path()).await;
    let before = read_catalog(dir.path()).await.unwrap();
    let whole = std::fs::read(dir.path().join(FILE)).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let (mut errors, mut seed) = (0, 0x9e37_79b9_7f4a_7c15_u64);
    for round in 0..600 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The file's header, then wherever there is something.
        let at = if round < 100 {
            round
        } else {
            used[(seed >> 33) as usize % used.len()]
        };
        let mut changed = whole.clone();
        changed[at] ^= 1 << (seed >> 60 & 7);
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(FILE), &changed).unwrap();
        match read_catalog(place.path()).await {
            Ok(answers) => assert_eq!(answers, before, "byte {at}"),
            Err(_) => errors += 1,
        }
        problems(place.path()).await;
    }
    assert!(errors > 100, "only {errors} of 600 changes were noticed");
}

#[tokio::test]
async fn damage_is_not_sealed_by_the_next_load() {
    let dir = tempfile::tempdir().unwrap();
    full_catalog(dir.path()).await;
    let whole = std::fs::read(dir.path().join(FILE)).unwrap();
    for sql in [
        "DELETE FROM tables WHERE name = 'Pairs'",
        "UPDATE databases SET stripes = 19 WHERE name = 'sky'",
        "UPDATE loads SET state = 'running' WHERE folded_table = 'pairs'",
    ] {
        run(dir.path(), sql.to_owned()).await;
        let catalog = Catalog::open(dir.path()).await.unwrap();
        let rejected = load(&catalog, &director("sky", "New"), &chunks(1, 1)).await;
        let sentence = rejected.unwrap_err().to_string();
        assert!(sentence.contains("does not fit its checksum"), "{sentence}");
        catalog.close().await;
        std::fs::write(dir.path().join(FILE), &whole).unwrap();
    }
}

#[tokio::test]
async fn the_table_is_named_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    full_catalog(dir.path()).await;
    run(
        dir.path(),
        "UPDATE columns SET name = 'x' WHERE name = 'dec'".to_owned(),
    )
    .await;
    let catalog = Catalog::open(dir.path()).await.unwrap();
    let sentence = catalog
        .table("sky", "object")
        .await
        .unwrap_err()
        .to_string();
    for words in ["table sky.object", "does not fit its checksum", "backup"] {
        assert!(sentence.contains(words), "{sentence}");
    }
    // What is not touched can still be requested.
    shown(&catalog, "sky", "Pairs").await;
    let found = catalog.verify().await.unwrap();
    assert_eq!(found, [sentence]);
}

/// A catalog as a program of version 2 of the catalog has made it: a table of each kind.
async fn make_version_2(dir: &Path) {
    std::fs::File::create(dir.join(FILE)).unwrap();
    let mut connection = vandal(dir).await;
    for script in [
        include_str!("../migrations/0001_catalog.sql"),
        include_str!("../migrations/0002_checksums.sql"),
        include_str!("support/version_2.sql"),
        "PRAGMA application_id = 1297237070; PRAGMA user_version = 2; PRAGMA journal_mode = wal",
    ] {
        sqlx::raw_sql(script)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection.close().await.unwrap();
}

/// The same of the first version, which had no checksums.
async fn make_version_1(dir: &Path) {
    make_version_2(dir).await;
    let mut connection = vandal(dir).await;
    sqlx::raw_sql(
        "ALTER TABLE databases DROP COLUMN checksum; ALTER TABLE tables DROP COLUMN checksum;
         ALTER TABLE loads DROP COLUMN chunk_count; ALTER TABLE loads DROP COLUMN chunks_checksum;
         ALTER TABLE loads DROP COLUMN checksum; DROP TABLE lists; PRAGMA user_version = 1",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
}

/// The same of version 3, which counted no publications, of version 4, which knew no merged parts, of version 5, in which nothing
/// was said of tables and columns, or of version 6, which had no views.
async fn make_version_3_to_6(dir: &Path, version: i64) {
    make_version_2(dir).await;
    Catalog::open(dir).await.unwrap().close().await;
    let mut connection = vandal(dir).await;
    let mut script = "DROP TABLE views; DELETE FROM lists WHERE name = 'views';
         ALTER TABLE table_directors DROP COLUMN director_database;
         ALTER TABLE table_directors DROP COLUMN stripes; ALTER TABLE table_directors DROP COLUMN sub_stripes;
         ALTER TABLE tables DROP COLUMN expires_at;"
        .to_owned();
    if version < 6 {
        script.push_str(
            "ALTER TABLE databases DROP COLUMN description; ALTER TABLE tables DROP COLUMN description;
         ALTER TABLE tables DROP COLUMN utype; ALTER TABLE tables DROP COLUMN table_index;
         ALTER TABLE columns DROP COLUMN description; ALTER TABLE columns DROP COLUMN unit;
         ALTER TABLE columns DROP COLUMN ucd; ALTER TABLE columns DROP COLUMN utype;
         ALTER TABLE columns DROP COLUMN xtype; ALTER TABLE columns DROP COLUMN principal;
         ALTER TABLE columns DROP COLUMN column_index;",
        );
    }
    if version < 5 {
        script.push_str("ALTER TABLE parts DROP COLUMN merged_from;");
    }
    if version < 4 {
        script.push_str("DROP TABLE publications;");
    }
    script.push_str(&format!("PRAGMA user_version = {version}"));
    sqlx::raw_sql(AssertSqlSafe(script))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

#[tokio::test]
async fn catalogs_of_older_versions_are_brought_up_to_date() {
    for version in [1, 2, 3, 4, 5, 6] {
        let dir = tempfile::tempdir().unwrap();
        match version {
            1 => make_version_1(dir.path()).await,
            2 => make_version_2(dir.path()).await,
            _ => make_version_3_to_6(dir.path(), version).await,
        }
        let catalog = Catalog::open(dir.path()).await.unwrap();
        assert_eq!(catalog.upgraded_from(), Some(version));
        for (name, rows, chunks, parts) in [
            ("Object", 4, 4, 1),
            ("Source", 5, 4, 2),
            ("Pairs", 2, 2, 3),
            ("Filter", 2, 1, 4),
        ] {
            let table = catalog.table("sky", name).await.unwrap().unwrap();
            assert_eq!(
                (table.rows(), table.part_numbers()),
                (rows, vec![LoadId(parts)])
            );
            assert_eq!(catalog.chunks(LoadId(parts)).await.unwrap().len(), chunks);
        }
        let source = catalog.table("sky", "Source").await.unwrap().unwrap();
        assert_eq!((source.orphan_rows(), source.null_keys()), (1, 1));
        assert_eq!(source.spec.directors[0].placement, Some(LoadId(1)));
        let object = catalog.table("sky", "Object").await.unwrap().unwrap();
        let load = catalog.begin_load("sky", "Object").await.unwrap();
        let append = Append {
            load,
            table: &object,
            contents: support::contents(&object.spec, &[]),
            unsettled: &[],
            replaces: &[],
        };
        catalog.append(append).await.unwrap();
        catalog.close().await;
        let second = Catalog::open(dir.path()).await.unwrap();
        assert_eq!(second.upgraded_from(), None);
        second.close().await;
        assert_eq!(problems(dir.path()).await, Vec::<String>::new());
    }
}

/// Checksums computed anew of what a damaged catalog says would hide the damage.
#[tokio::test]
async fn an_upgrade_hides_no_damage() {
    for (sql, damaged) in [
        (
            "UPDATE tables SET row_count = 5 WHERE name = 'Object'",
            "Object",
        ),
        (
            "UPDATE columns SET name = 'x' WHERE name = 'filterId'",
            "Filter",
        ),
        ("DELETE FROM columns WHERE name = 'b'", "Pairs"),
        (
            "UPDATE table_directors SET director_load = 4 WHERE table_id = 2",
            "Source",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        make_version_2(dir.path()).await;
        assert_eq!(run(dir.path(), sql.to_owned()).await, 1, "{sql}");
        let catalog = Catalog::open(dir.path()).await.unwrap();
        for name in ["Object", "Source", "Pairs", "Filter"] {
            let answer = catalog.table("sky", name).await;
            let is_rejected = matches!(answer, Err(CatalogError::Altered { .. }));
            assert_eq!(is_rejected, name == damaged, "{sql}: {answer:?}");
        }
        assert!(!catalog.verify().await.unwrap().is_empty());
        catalog.close().await;
    }
    let dir = tempfile::tempdir().unwrap();
    make_version_2(dir.path()).await;
    run(
        dir.path(),
        "DELETE FROM chunks WHERE load_id = 2 AND chunk_id = 397".to_owned(),
    )
    .await;
    let catalog = Catalog::open(dir.path()).await.unwrap();
    catalog.chunks(LoadId(2)).await.unwrap_err();
    catalog.chunks(LoadId(1)).await.unwrap();
}

/// Checksums are compared when a load is opened: what that costs for many chunks. The limit is ten times what it takes in
/// a debug build on a busy machine.
#[expect(clippy::print_stdout, reason = "the figures are worth reading")]
#[tokio::test]
async fn many_chunks_are_verified_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::open_or_create(dir.path()).await.unwrap();
    let (id, _) = load(&catalog, &director("sky", "Object"), &chunks(10_000, 5))
        .await
        .unwrap();
    catalog.close().await;
    let start = Instant::now();
    let catalog = Catalog::open(dir.path()).await.unwrap();
    catalog.table("sky", "Object").await.unwrap().unwrap();
    let opened = start.elapsed();
    let start = Instant::now();
    assert_eq!(catalog.chunks(id).await.unwrap().len(), 10_000);
    let read = start.elapsed();
    println!("10,000 chunks: the table in {opened:?}, its chunks in {read:?}");
    assert!(opened.as_secs() < 2 && read.as_secs() < 4);
}
