//! Skies to match: an archive with tables of all kinds, and small ones without.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use ingest::{LoadRequest, Progress};
use meridian_engine::exec::{CrossmatchExec, MatchRule, MatchSelection, MatchSide, Unmatched};
use meridian_engine::{Archive, Session, SessionOptions};
use sky::Angle;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::{doubles, numbers};

pub const MUTUAL: MatchSelection = MatchSelection::Mutual;
pub const NEAREST: MatchSelection = MatchSelection::Nearest(1);

/// A position, degrees.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub ra: f64,
    pub dec: f64,
}

impl Place {
    /// What the function of SQL gives.
    pub fn degrees_to(self, ra: f64, dec: f64) -> f64 {
        let mut separations = Vec::new();
        sky::separation_degrees(&[self.ra], &[self.dec], &[ra], &[dec], &mut separations);
        separations[0]
    }
}

/// A row of any of the tables: its key, its position if it has one, and the object that it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub id: i64,
    pub place: Option<Place>,
    pub object: i64,
}

/// The separation of two rows, degrees; none if one has no position.
pub fn separation(a: &Row, b: &Row) -> Option<f64> {
    let b = b.place?;
    Some(a.place?.degrees_to(b.ra, b.dec))
}

/// A number that looks random, in [0, 1).
fn random(n: u64) -> f64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((n ^ (n >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
}

/// Where clumps are: at the seam, at both poles, at the edges of chunks and anywhere.
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

/// Somewhere within `size` degrees of a centre.
fn in_clump(centre: usize, size: f64, north: f64, east: f64) -> Place {
    let (ra, dec) = CENTRES[centre];
    let dec = (dec + (north - 0.5) * size).clamp(-90.0, 90.0);
    let wide = 1.0 / dec.to_radians().cos().max(0.002);
    let ra = (ra + (east - 0.5) * size * wide).rem_euclid(360.0);
    Place { ra, dec }
}

/// Clumps and rows between them; every tenth row at the place of another of `seeds`.
fn scattered(rows: usize, first: i64, seed: u64, seeds: &[Row]) -> Vec<Row> {
    let row = |at: usize| {
        let r = |k: u64| random(seed * 1_000_003 + at as u64 * 17 + k);
        let place = match at % 10 {
            0 => Place {
                ra: r(1) * 360.0,
                dec: (r(2) * 2.0 - 1.0).asin().to_degrees(),
            },
            1 if !seeds.is_empty() => seeds[(r(8) * seeds.len() as f64) as usize]
                .place
                .unwrap_or(Place { ra: 1.0, dec: 1.0 }),
            _ => in_clump((r(3) * 8.0) as usize, 0.8, r(4), r(5)),
        };
        Row {
            id: first + at as i64,
            place: Some(place),
            object: (r(7) * rows as f64) as i64,
        }
    };
    (0..rows).map(row).collect()
}

/// Every so manieth row without a position.
fn with_gaps(mut rows: Vec<Row>, every: usize) -> Vec<Row> {
    rows.iter_mut()
        .step_by(every)
        .for_each(|row| row.place = None);
    rows
}

pub struct MatchSky {
    pub session: Session,
    _dir: TempDir,
    pub objects: Vec<Row>,
    pub sources: Vec<Row>,
    /// Of another database, which is cut otherwise.
    pub stars: Vec<Row>,
    /// Replicated.
    pub targets: Vec<Row>,
}

impl MatchSky {
    /// What stands for NULL where keys are expected.
    pub const NULL: i64 = -1;

    pub async fn shared() -> &'static Self {
        static SKY: OnceCell<MatchSky> = OnceCell::const_new();
        SKY.get_or_init(Self::load).await
    }

    async fn load() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut objects = scattered(500, 0, 1, &[]);
        let copies: Vec<Option<Place>> = objects.iter().map(|row| row.place).collect();
        // Some twice at the same place.
        for at in (100..500).step_by(23) {
            objects[at].place = copies[at - 100];
        }
        let sources: Vec<Row> = scattered(400, 10_000, 2, &objects)
            .into_iter()
            .map(|row| Row {
                object: row.object % 500,
                ..row
            })
            .collect();
        // A child may lie far from its object, and nowhere.
        let sources = with_gaps(sources, 37);
        let stars = scattered(300, 20_000, 3, &objects);
        let targets = with_gaps(scattered(40, 40_000, 4, &objects), 9);
        let archive = archive(dir.path(), [&objects, &sources, &targets, &stars]).await;
        let options = SessionOptions {
            database: Some("sky".into()),
            cores: std::num::NonZeroUsize::new(2),
            dialect: sql::Dialect::Adql,
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

    /// The rows of a table.
    pub fn rows_of(&self, table: &str) -> &[Row] {
        match table {
            "Object" => &self.objects,
            "Source" => &self.sources,
            "Target" => &self.targets,
            "other.Star" => &self.stars,
            other => panic!("no table {other}"),
        }
    }

    async fn batches(&self, sql: &str) -> Vec<RecordBatch> {
        let answer = self.session.execute(sql).await;
        let answer = answer.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let batches: Result<Vec<_>, _> = answer.batches.try_collect().await;
        batches.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// The first column of an answer, in order.
    pub async fn keys(&self, sql: &str) -> Vec<i64> {
        let batches = self.batches(sql).await;
        let mut keys: Vec<i64> = batches.iter().flat_map(|b| numbers(b, 0)).collect();
        keys.sort_unstable();
        keys
    }

    /// The first two columns of an answer, in order.
    pub async fn pairs(&self, sql: &str) -> Vec<(i64, i64)> {
        let batches = self.batches(sql).await;
        let of = |b: &RecordBatch| numbers(b, 0).into_iter().zip(numbers(b, 1));
        let mut pairs: Vec<(i64, i64)> = batches.iter().flat_map(of).collect();
        pairs.sort_unstable();
        pairs
    }

    /// Two columns of keys and one of doubles, as they come.
    pub async fn separations(&self, sql: &str) -> Vec<(i64, i64, f64)> {
        let mut all = Vec::new();
        for batch in self.batches(sql).await {
            let keys = numbers(&batch, 0).into_iter().zip(numbers(&batch, 1));
            all.extend(keys.zip(doubles(&batch, 2)).map(|((l, r), s)| (l, r, s)));
        }
        all
    }
}

async fn archive(dir: &Path, [objects, sources, targets, stars]: [&[Row]; 4]) -> Arc<Archive> {
    let data = dir.join("data");
    let request = |database: &str, table: &str, rows: &[Row]| LoadRequest {
        files: vec![csv(dir, table, rows)],
        ..LoadRequest::new(&data, database, table)
    };
    let position = |request: LoadRequest| LoadRequest {
        ra: Some("ra".into()),
        dec: Some("decl".into()),
        ..request
    };
    for request in [
        LoadRequest {
            key: vec!["id".into()],
            stripes: Some(20),
            sub_stripes: Some(5),
            overlap_deg: Some(0.2),
            ..position(request("sky", "Object", objects))
        },
        LoadRequest {
            key: vec!["objectId".into()],
            directors: vec!["Object".into()],
            ..position(request("sky", "Source", sources))
        },
        request("sky", "Target", targets),
        LoadRequest {
            key: vec!["id".into()],
            stripes: Some(7),
            sub_stripes: Some(3),
            overlap_deg: Some(0.0),
            ..position(request("other", "Star", stars))
        },
    ] {
        ingest::load(request, Arc::new(Progress::default()))
            .await
            .unwrap();
    }
    Archive::open(&data).await.unwrap()
}

fn csv(dir: &Path, name: &str, rows: &[Row]) -> PathBuf {
    let mut text = "id,ra,decl,objectId\n".to_owned();
    for Row { id, place, object } in rows {
        match place {
            Some(Place { ra, dec }) => writeln!(text, "{id},{ra:?},{dec:?},{object}").unwrap(),
            None => writeln!(text, "{id},,,{object}").unwrap(),
        }
    }
    let path = dir.join(format!("{name}.csv"));
    std::fs::write(&path, text).unwrap();
    path
}

/// Few rows, a radius in degrees.
#[derive(Debug)]
pub struct Small {
    pub left: Vec<Row>,
    pub right: Vec<Row>,
    pub radius: f64,
}

/// A small sky: rows on a grid in a clump or two, so that many are equally far and some at the same place, and some nowhere.
pub fn small(seed: u64) -> Small {
    let r = |k: u64| random(seed * 7_919 + k);
    let size = [0.001, 0.1, 5.0, 360.0][(r(1) * 4.0) as usize];
    let steps = 1.0 + (r(2) * 6.0).floor();
    let rows = |count: f64, salt: u64| -> Vec<Row> {
        let row = |at: u64| {
            let r = |k: u64| random(seed * 7_919 + salt * 104_729 + at * 31 + k);
            let on_grid = |share: f64| (share * steps).floor() / steps;
            let centre = (random(seed) * 8.0) as usize + usize::from(r(1) < 0.2);
            let place = in_clump(centre % 8, size, on_grid(r(2)), on_grid(r(3)));
            Row {
                id: (salt * 1000 + at) as i64,
                place: (r(4) > 0.1).then_some(place),
                object: 0,
            }
        };
        (0..count as u64).map(row).collect()
    };
    // Either may be empty.
    let (left, right) = (rows(r(3) * 25.0, 1), rows(r(4) * 25.0, 2));
    let radius = match (r(5) * 5.0) as usize {
        0 => 0.0,
        1 => 180.0,
        // Exactly that of a pair, which is within.
        2 => {
            let pair = left.first().zip(right.first());
            let pair = pair.and_then(|(l, r)| separation(l, r));
            pair.unwrap_or(size / steps)
        }
        _ => size / steps * r(6) * 3.0,
    };
    Small {
        left,
        right,
        radius,
    }
}

fn batch(rows: &[Row]) -> RecordBatch {
    let column = |of: fn(Place) -> f64| -> ArrayRef {
        let values = rows.iter().map(|row| row.place.map(of));
        Arc::new(values.collect::<Float64Array>())
    };
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id)));
    RecordBatch::try_from_iter([
        ("id", keys),
        ("ra", column(|place| place.ra)),
        ("dec", column(|place| place.dec)),
    ])
    .unwrap()
}

fn side(rows: &[Row], rows_of_a_batch: usize) -> MatchSide {
    let whole = batch(rows);
    let starts = (0..rows.len()).step_by(rows_of_a_batch);
    let batches = starts.map(|at| whole.slice(at, rows_of_a_batch.min(rows.len() - at)));
    let plan = MemorySourceConfig::try_new_exec(&[batches.collect()], whole.schema(), None);
    let column =
        |name: &str, at: usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(name, at)) };
    MatchSide {
        plan: plan.unwrap(),
        position: [column("ra", 1), column("dec", 2)],
    }
}

/// The pairs that the operator gives of a small sky.
pub async fn run(sky: &Small, wanted: MatchSelection, spread: bool) -> Vec<(i64, i64)> {
    let rule = MatchRule {
        radius: Angle::from_degrees(sky.radius),
        wanted,
        unmatched: Unmatched::Dropped,
    };
    let rivals = (!spread && wanted == MUTUAL).then(|| side(&sky.left, 7));
    let mut matched = CrossmatchExec::new(side(&sky.left, 5), side(&sky.right, 4), rivals, rule);
    if spread {
        matched = matched.spread();
    }
    let context = SessionContext::new().task_ctx();
    let batches: Vec<RecordBatch> = matched
        .execute(0, context)
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let of = |b: &RecordBatch| numbers(b, 0).into_iter().zip(numbers(b, 3));
    let mut pairs: Vec<(i64, i64)> = batches.iter().flat_map(of).collect();
    pairs.sort_unstable();
    pairs
}
