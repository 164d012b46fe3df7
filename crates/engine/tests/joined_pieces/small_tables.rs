//! The same small tables twice: in a database that is cut into hundreds of chunks, and in one of two.
//!
//! Fluxes are multiples of 1/8, so that sums of them are exact in any order.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::physical_plan::displayable;
use futures::TryStreamExt;
use ingest::{LoadRequest, Progress};
use meridian_engine::{Archive, Session, SessionOptions};
use sky::{Chunker, LonLat};
use tempfile::TempDir;
use tokio::sync::OnceCell;

pub const OBJECTS: usize = 3_000;
const SOURCES: usize = 5_000;
/// Stripes and sub-stripes of the database of many chunks, and of that of two.
const FINE: (u32, u32) = (14, 3);
const COARSE: (u32, u32) = (2, 2);

pub struct Sky {
    /// In hundreds of chunks.
    pub fine: Session,
    /// In two, one for each half of the sky.
    pub coarse: Session,
    /// Where the objects are.
    pub objects: Vec<(f64, f64)>,
    _dir: TempDir,
}

impl Sky {
    pub async fn shared() -> &'static Self {
        static SKY: OnceCell<Sky> = OnceCell::const_new();
        SKY.get_or_init(Self::load).await
    }

    async fn load() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let objects: Vec<(f64, f64)> = (0..OBJECTS).map(position).collect();
        load_tables(dir.path(), "fine", FINE, &objects).await;
        load_tables(dir.path(), "coarse", COARSE, &objects).await;
        let archive = Archive::open(&dir.path().join("data")).await.unwrap();
        let session = async |database: &str| {
            let options = SessionOptions {
                database: Some(database.to_owned()),
                cores: NonZeroUsize::new(2),
                dialect: sql::Dialect::Adql,
                ..SessionOptions::default()
            };
            Session::new(Arc::clone(&archive), &options).await.unwrap()
        };
        Self {
            fine: session("fine").await,
            coarse: session("coarse").await,
            objects,
            _dir: dir,
        }
    }

    /// Both databases, with the number of the chunk of each object there.
    pub fn with_chunks(&self) -> [(&Session, Vec<i32>); 2] {
        [(&self.fine, FINE), (&self.coarse, COARSE)].map(|(session, cut)| {
            let chunker = Chunker::new(cut.0, cut.1).unwrap();
            let chunk = |(ra, dec): &(f64, f64)| {
                let position = LonLat::from_degrees(*ra, *dec).unwrap();
                chunker.locate(position).chunk.0
            };
            (session, self.objects.iter().map(chunk).collect())
        })
    }
}

/// The rows of an answer as texts, in their order, from a plan that was kept where there is one.
pub async fn rows(session: &Session, sql: &str) -> Vec<String> {
    let answer = match session.execute_cached(sql).await.unwrap() {
        Some(answer) => answer,
        None => match session.execute(sql).await {
            Ok(answer) => answer,
            Err(error) => panic!("{sql}: {error}"),
        },
    };
    let batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
    batches.iter().flat_map(texts).collect()
}

/// The plan of a query, as text.
pub async fn plan(session: &Session, sql: &str) -> String {
    let answer = session.execute(sql).await.unwrap();
    displayable(answer.plan.as_ref()).indent(false).to_string()
}

fn texts(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let columns: Vec<ArrayFormatter<'_>> = (batch.columns().iter())
        .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
        .collect();
    let text = |row: usize| {
        let values = columns.iter().map(|column| column.value(row).to_string());
        values.collect::<Vec<_>>().join("|")
    };
    (0..batch.num_rows()).map(text).collect()
}

/// A place for an object: spread evenly by the golden angle, but for some at the seam.
fn position(n: usize) -> (f64, f64) {
    let z = 1.0 - (2 * n + 1) as f64 / OBJECTS as f64;
    let ra = (n as f64 * 137.507_764_05).rem_euclid(360.0);
    match n % 50 {
        0 => (359.99, z * 80.0),
        1 => (0.01, z * 80.0),
        _ => (ra, z.asin().to_degrees()),
    }
}

async fn load_tables(dir: &Path, database: &str, cut: (u32, u32), objects: &[(f64, f64)]) {
    let data = dir.join("data");
    let request = |table: &str, text: String| {
        let path = dir.join(format!("{database}.{table}.csv"));
        std::fs::write(&path, text).unwrap();
        LoadRequest {
            files: vec![path],
            threads: Some(1),
            ..LoadRequest::new(&data, database, table)
        }
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let director = |request| LoadRequest {
        key: names(&["id"]),
        ra: Some("ra".into()),
        dec: Some("decl".into()),
        stripes: Some(cut.0),
        sub_stripes: Some(cut.1),
        overlap_deg: Some(1.0),
        ..request
    };
    for request in [
        director(request("Object", object_lines(objects))),
        director(request("Ref", ref_lines(objects))),
        LoadRequest {
            key: names(&["objectId"]),
            directors: names(&["Object"]),
            ra: Some("ra".into()),
            dec: Some("decl".into()),
            ..request("Source", source_lines(objects))
        },
        LoadRequest {
            key: names(&["objectId", "refId"]),
            directors: names(&["Object", "Ref"]),
            ..request("RefMatch", match_lines())
        },
        request("Filter", filter_lines()),
    ] {
        ingest::load(request, Arc::new(Progress::default()))
            .await
            .unwrap();
    }
}

fn object_lines(objects: &[(f64, f64)]) -> String {
    let mut text = "id,ra,decl,flag,flux\n".to_owned();
    for (n, (ra, dec)) in objects.iter().enumerate() {
        let flux = (n * 37 % 997) as f64 / 8.0;
        writeln!(text, "{n},{ra},{dec},{},{flux}", n % 7).unwrap();
    }
    text
}

/// One beside every second object, of which many are in another chunk.
fn ref_lines(objects: &[(f64, f64)]) -> String {
    let mut text = "id,ra,decl,mag\n".to_owned();
    for (n, (ra, dec)) in objects.iter().enumerate().step_by(2) {
        let dec = dec + if n % 4 == 0 { 0.7 } else { -0.7 };
        let mag = 14.0 + (n % 40) as f64 / 8.0;
        writeln!(text, "{},{ra},{},{mag}", 10_000 + n, dec.clamp(-90.0, 90.0)).unwrap();
    }
    text
}

/// Some have an object that nobody knows, or none.
fn source_lines(objects: &[(f64, f64)]) -> String {
    let mut text = "id,objectId,ra,decl,filterId,flux\n".to_owned();
    for n in 0..SOURCES {
        let of = n * 31 % (OBJECTS - 100);
        let (ra, dec) = objects[of];
        let key = match n % 100 {
            0 => String::new(),
            1 => (50_000 + n % 400).to_string(),
            _ => of.to_string(),
        };
        let (filter, flux) = (n % 6, (n * 11 % 4_000) as f64 / 8.0);
        writeln!(text, "{n},{key},{ra},{dec},{filter},{flux}").unwrap();
    }
    text
}

/// Each Ref with its object, and pairs of which one end is unknown.
fn match_lines() -> String {
    let mut text = "objectId,refId,sep\n".to_owned();
    for n in (0..OBJECTS).step_by(2) {
        writeln!(text, "{n},{},0.125", 10_000 + n).unwrap();
        if n % 60 == 0 {
            writeln!(text, "{n},{},0.25", 90_000 + n).unwrap();
            writeln!(text, "{},{},0.5", 80_000 + n, 10_000 + n).unwrap();
            writeln!(text, "{},{},1", 80_000 + n, 90_000 + n).unwrap();
        }
    }
    text
}

fn filter_lines() -> String {
    let lines = ["u", "g", "r", "i", "z"];
    let numbered = lines.iter().enumerate();
    let lines: String = numbered.map(|(n, name)| format!("{n},{name}\n")).collect();
    format!("id,name\n{lines}")
}
