//! A sky of neighbours: clumps at the poles, the seam and the edges of chunks, in tables of all kinds, and the loop over all pairs
//! that joins of them are compared with.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::physical_plan::displayable;
use futures::TryStreamExt;
use ingest::{LoadRequest, Progress};
use meridian_engine::{Archive, Session, SessionOptions};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// A row of any of the tables: its key, its position, a radius of its own and the object that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub id: i64,
    pub ra: f64,
    pub dec: f64,
    pub radius: f64,
    pub object: i64,
}

pub struct Sky {
    pub session: Session,
    /// The same, asked in MySQL's dialect.
    pub mysql: Session,
    _dir: TempDir,
    pub objects: Vec<Row>,
    pub sources: Vec<Row>,
    /// Of another database, which is cut otherwise.
    pub stars: Vec<Row>,
    /// Replicated.
    pub targets: Vec<Row>,
}

/// A number that looks random, in [0, 1).
fn random(n: u64) -> f64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((n ^ (n >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Clumps at the seam, at both poles, at the edges of chunks and anywhere, and rows between them; some at the same place.
pub fn scattered(rows: usize, seed: u64) -> Vec<Row> {
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
            dialect: sql::Dialect::Adql,
            ..SessionOptions::default()
        };
        let in_mysql = SessionOptions {
            dialect: sql::Dialect::MySql,
            ..options.clone()
        };
        Self {
            mysql: Session::new(Arc::clone(&archive), &in_mysql).await.unwrap(),
            session: Session::new(archive, &options).await.unwrap(),
            _dir: dir,
            objects,
            sources,
            stars,
            targets,
        }
    }

    pub async fn shared() -> &'static Self {
        static SKY: OnceCell<Sky> = OnceCell::const_new();
        SKY.get_or_init(Self::load).await
    }

    /// The rows of an answer, in order, as whole numbers; NULL is -1.
    pub async fn execute(&self, sql: &str) -> Vec<Vec<i64>> {
        let (batches, _) = Self::batches(&self.session, sql).await;
        let mut rows: Vec<Vec<i64>> = batches.iter().flat_map(numbers).collect();
        rows.sort_unstable();
        rows
    }

    /// The rows of an answer, in order, as doubles, and its plan; NULL is NaN.
    pub async fn ask_doubles(&self, sql: &str) -> (Vec<Vec<f64>>, String) {
        Self::doubles_of(&self.session, sql).await
    }

    /// The same, asked in MySQL's dialect.
    pub async fn ask_doubles_in_mysql(&self, sql: &str) -> (Vec<Vec<f64>>, String) {
        Self::doubles_of(&self.mysql, sql).await
    }

    async fn doubles_of(session: &Session, sql: &str) -> (Vec<Vec<f64>>, String) {
        let (batches, plan) = Self::batches(session, sql).await;
        let mut rows: Vec<Vec<f64>> = batches.iter().flat_map(doubles).collect();
        rows.sort_by(|a, b| {
            let order = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
            order.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        (rows, plan)
    }

    /// The answer to a query that is a join by nearness, and its plan.
    async fn batches(session: &Session, sql: &str) -> (Vec<RecordBatch>, String) {
        let answer = session
            .execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        let plan = displayable(answer.plan.as_ref()).indent(true).to_string();
        assert!(plan.contains("NeighbourJoinExec"), "{sql}\n{plan}");
        assert!(!plan.contains("NestedLoopJoinExec"), "{sql}\n{plan}");
        (answer.batches.try_collect().await.unwrap(), plan)
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

pub fn numbers(batch: &RecordBatch) -> Vec<Vec<i64>> {
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
pub fn degrees_between(ra1: f64, dec1: f64, ra2: f64, dec2: f64) -> f64 {
    let mut separations = Vec::new();
    sky::separation_degrees(&[ra1], &[dec1], &[ra2], &[dec2], &mut separations);
    separations[0]
}

pub fn separation(a: &Row, b: &Row) -> f64 {
    degrees_between(a.ra, a.dec, b.ra, b.dec)
}

fn doubles(batch: &RecordBatch) -> Vec<Vec<f64>> {
    let columns: Vec<_> = (batch.columns().iter())
        .map(|column| cast(column, &DataType::Float64).unwrap())
        .collect();
    let value = |column: &Arc<dyn Array>, row: usize| {
        let column = column.as_primitive::<Float64Type>();
        if column.is_null(row) {
            f64::NAN
        } else {
            column.value(row)
        }
    };
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| value(column, row)).collect())
        .collect()
}
