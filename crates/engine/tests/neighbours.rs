//! Joins of rows that are near each other, as SQL asks for them, against a loop over all pairs.

#![allow(
    clippy::unwrap_used,
    reason = "a failure here is the test's own message"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use datafusion::physical_plan::displayable;
use futures::TryStreamExt;
use ingest::{LoadRequest, Progress};
use meridian_engine::{Archive, Session, SessionOptions};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// A row of any of the tables: its key, its position, a radius of its own and the object that it belongs to.
#[derive(Clone, Copy, Debug)]
struct Row {
    id: i64,
    ra: f64,
    dec: f64,
    radius: f64,
    object: i64,
}

struct Sky {
    session: Session,
    _dir: TempDir,
    objects: Vec<Row>,
    sources: Vec<Row>,
    /// Of another database, which is cut otherwise.
    stars: Vec<Row>,
    /// Replicated.
    targets: Vec<Row>,
}

/// A number that looks random, in [0, 1).
fn random(n: u64) -> f64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((n ^ (n >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Clumps at the seam, at both poles, at the edges of chunks and anywhere, and rows between them; some at the same place.
fn scattered(rows: usize, seed: u64) -> Vec<Row> {
    const CENTRES: [(f64, f64); 8] = [
        (0.0, 0.0),
        (359.99, 30.0),
        (120.0, 90.0),
        (77.0, -90.0),
        (18.0, 9.0),
        (200.0, 45.0),
        (36.0, 0.0),
        (300.0, -72.0),
    ];
    let mut all: Vec<Row> = Vec::with_capacity(rows);
    for at in 0..rows {
        let r = |k: u64| random(seed * 1_000_003 + at as u64 * 17 + k);
        let (ra, dec) = match at % 10 {
            0 => (r(1) * 360.0, (r(2) * 2.0 - 1.0).asin().to_degrees()),
            1 if at > 20 => (all[at - 7].ra, all[at - 7].dec),
            _ => {
                let (ra, dec) = CENTRES[(r(3) * 8.0) as usize];
                let (north, east) = (r(4) - 0.5, r(5) - 0.5);
                let dec = (dec + north * 0.8_f64).clamp(-90.0, 90.0);
                let wide = 1.0 / dec.to_radians().cos().max(0.002);
                ((ra + east * 0.8 * wide).rem_euclid(360.0), dec)
            }
        };
        all.push(Row {
            id: at as i64,
            ra,
            dec,
            radius: r(6) * 0.1,
            object: (r(7) * rows as f64) as i64,
        });
    }
    all
}

impl Sky {
    async fn load() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let objects = scattered(900, 1);
        let sources: Vec<Row> = (scattered(700, 2).iter())
            .map(|row| Row {
                id: row.id + 10_000,
                // Each lies near its object, across the edge of the chunk for some.
                object: row.object % 900,
                ra: objects[(row.object % 900) as usize].ra,
                dec: (objects[(row.object % 900) as usize].dec + row.radius - 0.05)
                    .clamp(-90.0, 90.0),
                ..*row
            })
            .collect();
        let stars = scattered(400, 3);
        let targets = scattered(25, 4);
        let data = dir.path().join("data");
        let file = |name: &str, rows: &[Row]| csv(dir.path(), name, rows);
        let position = |request: LoadRequest| LoadRequest {
            ra: Some("ra".into()),
            dec: Some("decl".into()),
            ..request
        };
        let request = |database: &str, table: &str, rows: &[Row]| LoadRequest {
            files: vec![file(table, rows)],
            ..LoadRequest::new(&data, database, table)
        };
        for request in [
            LoadRequest {
                key: vec!["id".into()],
                stripes: Some(20),
                sub_stripes: Some(5),
                overlap_deg: Some(0.2),
                ..position(request("sky", "Object", &objects))
            },
            LoadRequest {
                key: vec!["objectId".into()],
                directors: vec!["Object".into()],
                ..position(request("sky", "Source", &sources))
            },
            request("sky", "Target", &targets),
            LoadRequest {
                key: vec!["id".into()],
                stripes: Some(7),
                sub_stripes: Some(3),
                overlap_deg: Some(0.0),
                ..position(request("other", "Star", &stars))
            },
        ] {
            ingest::load(request, Arc::new(Progress::default()))
                .await
                .unwrap();
        }
        let archive = Archive::open(&data).await.unwrap();
        let options = SessionOptions {
            database: Some("sky".into()),
            cores: std::num::NonZeroUsize::new(2),
            ..SessionOptions::default()
        };
        Self {
            session: Session::new(archive, &options).await.unwrap(),
            _dir: dir,
            objects,
            sources,
            stars,
            targets,
        }
    }

    async fn shared() -> &'static Self {
        static SKY: OnceCell<Sky> = OnceCell::const_new();
        SKY.get_or_init(Self::load).await
    }

    /// The rows of an answer, in order, as whole numbers; NULL is -1.
    async fn ask(&self, sql: &str) -> Vec<Vec<i64>> {
        let answer = self
            .session
            .ask(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let plan = displayable(answer.plan.as_ref()).indent(true).to_string();
        assert!(plan.contains("NeighbourJoinExec"), "{sql}\n{plan}");
        assert!(!plan.contains("NestedLoopJoinExec"), "{sql}\n{plan}");
        let batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
        let mut rows: Vec<Vec<i64>> = batches.iter().flat_map(numbers).collect();
        rows.sort_unstable();
        rows
    }
}

fn csv(dir: &Path, name: &str, rows: &[Row]) -> PathBuf {
    let mut text = "id,ra,decl,radius,objectId\n".to_owned();
    for Row {
        id,
        ra,
        dec,
        radius,
        object,
    } in rows
    {
        writeln!(text, "{id},{ra:?},{dec:?},{radius:?},{object}").unwrap();
    }
    let path = dir.join(format!("{name}.csv"));
    std::fs::write(&path, text).unwrap();
    path
}

fn numbers(batch: &RecordBatch) -> Vec<Vec<i64>> {
    let columns: Vec<_> = (batch.columns().iter())
        .map(|column| cast(column, &DataType::Int64).unwrap())
        .collect();
    let value = |column: &Arc<dyn Array>, row: usize| {
        let column = column.as_primitive::<Int64Type>();
        if column.is_null(row) {
            -1
        } else {
            column.value(row)
        }
    };
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| value(column, row)).collect())
        .collect()
}

/// What the function of SQL gives.
fn degrees_between(ra1: f64, dec1: f64, ra2: f64, dec2: f64) -> f64 {
    let mut separations = Vec::new();
    sky::separation_degrees(&[ra1], &[dec1], &[ra2], &[dec2], &mut separations);
    separations[0]
}

fn separation(a: &Row, b: &Row) -> f64 {
    degrees_between(a.ra, a.dec, b.ra, b.dec)
}

/// The keys of all pairs that are wanted.
fn pairs(left: &[Row], right: &[Row], wanted: impl Fn(&Row, &Row) -> bool) -> Vec<Vec<i64>> {
    let mut all: Vec<Vec<i64>> = left
        .iter()
        .flat_map(|a| right.iter().map(move |b| (a, b)))
        .filter(|(a, b)| wanted(a, b))
        .map(|(a, b)| vec![a.id, b.id])
        .collect();
    all.sort_unstable();
    all
}

fn in_circle(row: &Row, ra: f64, dec: f64, radius: f64) -> bool {
    degrees_between(row.ra, row.dec, ra, dec) <= radius
}

const SEPARATION: &str = "scisql_angSep(a.ra, a.decl, b.ra, b.decl)";

#[tokio::test(flavor = "multi_thread")]
async fn pairs_of_a_table_with_itself_at_any_radius() {
    let sky = Sky::shared().await;
    // Zero, within the overlap, above it, above a chunk, half of the sky, all of it.
    for radius in [0.0, 1e-7, 0.05, 0.199, 0.7, 12.0, 90.0, 180.0] {
        let sql =
            format!("SELECT a.id, b.id FROM Object a, Object b WHERE {SEPARATION} <= {radius:?}");
        let expected = pairs(&sky.objects, &sky.objects, |a, b| {
            separation(a, b) <= radius
        });
        assert_eq!(sky.ask(&sql).await, expected, "{sql}");
        let count =
            format!("SELECT count(*) FROM Object a, Object b WHERE {SEPARATION} <= {radius:?}");
        assert_eq!(sky.ask(&count).await, [[expected.len() as i64]], "{count}");
    }
    // To the last bit: the radius is the separation of a pair.
    let of_a_pair = separation(&sky.objects[3], &sky.objects[5]);
    for radius in [of_a_pair.next_down(), of_a_pair, of_a_pair.next_up()] {
        for (less, within) in [("<", Some(std::cmp::Ordering::Less)), ("<=", None)] {
            let sql = format!(
                "SELECT count(*) FROM Object a JOIN Object b ON {SEPARATION} {less} {radius:?}"
            );
            let expected = pairs(&sky.objects, &sky.objects, |a, b| match within {
                Some(_) => separation(a, b) < radius,
                None => separation(a, b) <= radius,
            });
            assert_eq!(sky.ask(&sql).await, [[expected.len() as i64]], "{sql}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_the_condition_is_understood() {
    let sky = Sky::shared().await;
    for (sql, wanted) in [
        (
            "SELECT a.id, b.id FROM Object a JOIN Object b ON 0.1 > qserv_angSep(b.ra, b.decl, a.ra, a.decl) AND a.id < b.id",
            (|a, b| separation(a, b) < 0.1 && a.id < b.id) as fn(&Row, &Row) -> bool,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE a.id <> b.id AND 0.05 * 2 >= scisql_angSep(a.ra, a.decl, b.ra, b.decl)",
            |a, b| separation(a, b) <= 0.1 && a.id != b.id,
        ),
        (
            "SELECT a.id, b.id FROM Object a INNER JOIN Object b ON scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.1
             AND a.radius < b.radius WHERE b.id % 3 = 0",
            |a, b| separation(a, b) < 0.1 && a.radius < b.radius && b.id % 3 == 0,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < a.radius",
            |a, b| separation(a, b) < a.radius,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < b.radius / 2",
            |a, b| separation(a, b) < b.radius / 2.0,
        ),
        (
            "SELECT a.id, b.id FROM (SELECT id, ra AS lon, decl AS lat FROM Object WHERE id % 2 = 0) a,
             (SELECT decl, ra, id FROM Object) b WHERE scisql_angSep(a.lon, a.lat, b.ra, b.decl) < 0.2",
            |a, b| separation(a, b) < 0.2 && a.id % 2 == 0,
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.3
             AND scisql_s2PtInCircle(a.ra, a.decl, 0.0, 0.0, 0.5) = 1",
            |a, b| separation(a, b) < 0.3 && in_circle(a, 0.0, 0.0, 0.5),
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.3
             AND scisql_s2PtInCircle(b.ra, b.decl, 359.9, 30.1, 0.5) = 1",
            |a, b| separation(a, b) < 0.3 && in_circle(b, 359.9, 30.1, 0.5),
        ),
        (
            "SELECT a.id, b.id FROM Object a, Object b WHERE qserv_areaspec_circle(18.0, 9.0, 0.3)
             AND scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.3",
            |a, b| separation(a, b) < 0.3 && in_circle(a, 18.0, 9.0, 0.3) && in_circle(b, 18.0, 9.0, 0.3),
        ),
    ] {
        assert_eq!(sky.ask(sql).await, pairs(&sky.objects, &sky.objects, wanted), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_of_all_kinds_and_of_other_databases() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| separation(a, b) < 0.25;
    for (tables, left, right) in [
        ("Object a, Source b", &sky.objects, &sky.sources),
        ("Source a, Object b", &sky.sources, &sky.objects),
        ("Source a, Source b", &sky.sources, &sky.sources),
        ("Object a, other.Star b", &sky.objects, &sky.stars),
        ("other.Star a, Source b", &sky.stars, &sky.sources),
        ("Target a, Object b", &sky.targets, &sky.objects),
        ("Object a, Target b", &sky.objects, &sky.targets),
        ("Target a, Target b", &sky.targets, &sky.targets),
        ("Target a, other.Star b", &sky.targets, &sky.stars),
    ] {
        let sql = format!("SELECT a.id, b.id FROM {tables} WHERE {SEPARATION} < 0.25");
        assert_eq!(sky.ask(&sql).await, pairs(left, right, near), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_without_a_partner() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| separation(a, b) < 0.02;
    for (left_table, right_table, left, right) in [
        ("Object", "Source", &sky.objects, &sky.sources),
        ("Source", "other.Star", &sky.sources, &sky.stars),
        ("Target", "Object", &sky.targets, &sky.objects),
        ("Object", "Target", &sky.objects, &sky.targets),
    ] {
        let condition = "scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.02";
        let has = |a: &Row| right.iter().any(|b| near(a, b));
        let alone: Vec<i64> = left.iter().filter(|a| !has(a)).map(|a| a.id).collect();

        let sql = format!(
            "SELECT a.id, b.id FROM {left_table} a LEFT JOIN {right_table} b ON {condition}"
        );
        let mut expected = pairs(left, right, near);
        expected.extend(alone.iter().map(|id| vec![*id, -1]));
        expected.sort_unstable();
        assert_eq!(sky.ask(&sql).await, expected, "{sql}");

        let sql = format!(
            "SELECT a.id, b.id FROM {right_table} b RIGHT JOIN {left_table} a ON {condition}"
        );
        assert_eq!(sky.ask(&sql).await, expected, "{sql}");

        let exists = format!("(SELECT 1 FROM {right_table} b WHERE {condition})");
        let sql = format!("SELECT a.id FROM {left_table} a WHERE NOT EXISTS {exists}");
        let of = |ids: &[i64]| ids.iter().map(|id| vec![*id]).collect::<Vec<_>>();
        assert_eq!(sky.ask(&sql).await, of(&alone), "{sql}");

        let sql = format!("SELECT a.id FROM {left_table} a WHERE EXISTS {exists}");
        let some: Vec<i64> = left.iter().filter(|a| has(a)).map(|a| a.id).collect();
        assert_eq!(sky.ask(&sql).await, of(&some), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_above_and_beside_the_join() {
    let sky = Sky::shared().await;
    let near = |a: &Row, b: &Row| a.id != b.id && separation(a, b) < 0.1;
    let condition = format!("a.id <> b.id AND {SEPARATION} < 0.1");
    let all = pairs(&sky.objects, &sky.objects, near);

    let sql =
        format!("SELECT a.id, count(*) FROM Object a, Object b WHERE {condition} GROUP BY a.id");
    let counts: Vec<Vec<i64>> = (sky.objects.iter())
        .map(|a| {
            vec![
                a.id,
                sky.objects.iter().filter(|b| near(a, b)).count() as i64,
            ]
        })
        .filter(|row| row[1] > 0)
        .collect();
    assert_eq!(sky.ask(&sql).await, counts, "{sql}");

    let sql = format!("SELECT a.id, b.id FROM Object a, Object b WHERE {condition} LIMIT 10");
    let few = sky.ask(&sql).await;
    assert_eq!(few.len(), 10);
    assert!(few.iter().all(|pair| all.contains(pair)), "{few:?}");

    // A second join, on a key, beside it.
    let sql = format!(
        "SELECT a.id, s.id FROM Object a, Object b, Source s WHERE {condition} AND s.objectId = b.id"
    );
    let mut expected: Vec<Vec<i64>> = (all.iter())
        .flat_map(|pair| {
            let of = sky.sources.iter().filter(|s| s.object == pair[1]);
            of.map(|s| vec![pair[0], s.id])
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(sky.ask(&sql).await, expected, "{sql}");

    // Three near each other.
    let sql = format!(
        "SELECT a.id, b.id, c.id FROM Object a, Object b, Object c WHERE {condition}
         AND scisql_angSep(b.ra, b.decl, c.ra, c.decl) < 0.01"
    );
    let mut expected: Vec<Vec<i64>> = (all.iter())
        .flat_map(|pair| {
            let b = &sky.objects[pair[1] as usize];
            let near = sky.objects.iter().filter(move |c| separation(b, c) < 0.01);
            near.map(|c| vec![pair[0], pair[1], c.id])
        })
        .collect();
    expected.sort_unstable();
    assert_eq!(sky.ask(&sql).await, expected, "{sql}");
}

/// What must not be mistaken for a join by nearness: the answers are right, by whatever plan.
#[tokio::test(flavor = "multi_thread")]
async fn what_only_looks_like_nearness() {
    let sky = Sky::shared().await;
    for (condition, wanted) in [
        (
            "scisql_angSep(a.ra, a.decl, b.ra, b.decl) > 179.0",
            (|a, b| separation(a, b) > 179.0) as fn(&Row, &Row) -> bool,
        ),
        (
            "NOT (scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 178.5)",
            |a, b| separation(a, b) >= 178.5,
        ),
        (
            "(scisql_angSep(a.ra, a.decl, b.ra, b.decl) < 0.001 OR a.id + b.id = 200)",
            |a, b| separation(a, b) < 0.001 || a.id + b.id == 200,
        ),
        (
            "scisql_angSep(a.ra, b.decl, b.ra, a.decl) < 0.01",
            |a, b| degrees_between(a.ra, b.dec, b.ra, a.dec) < 0.01,
        ),
        (
            "scisql_angSep(a.ra, a.decl, b.ra, b.decl) < a.radius * b.radius",
            |a, b| separation(a, b) < a.radius * b.radius,
        ),
    ] {
        let sql = format!("SELECT a.id, b.id FROM Object a, Object b WHERE {condition}");
        let answer = sky.session.ask(&sql).await.unwrap();
        let batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
        let mut rows: Vec<Vec<i64>> = batches.iter().flat_map(numbers).collect();
        rows.sort_unstable();
        assert_eq!(rows, pairs(&sky.objects, &sky.objects, wanted), "{sql}");
    }
}
