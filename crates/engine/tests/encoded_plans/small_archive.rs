//! A small sky for tests: two directors, a child, a match table and a replicated table over more than eight chunks.
//!
//! Made by a fixed sequence of numbers. Fluxes are multiples of 1/8 and few, so sums of them are exact in any order. There
//! are objects at the poles and on both sides of right ascension 0, sources without object (orphans) and without key, and
//! pairs across chunk edges.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ingest::{LoadRequest, Progress};

const OBJECTS: u64 = 2_000;
const SOURCES: u64 = 6_000;
/// Sources with numbers from here on have no object, or no key at all.
const ORPHANS: u64 = 5_900;

/// Loads everything into the data directory `dir/data` as database `sky`.
pub async fn load_sky(dir: &Path) {
    let mut numbers = Numbers(42);
    let objects: Vec<(f64, f64)> = (0..OBJECTS).map(|n| position(n, &mut numbers)).collect();
    let object = LoadRequest {
        key: names(&["objectId"]),
        ra: Some("ra_PS".into()),
        dec: Some("decl_PS".into()),
        ..request(dir, "Object")
    };
    load(dir, object, OBJECT_COLUMNS, &object_rows(&objects)).await;
    let gaia = LoadRequest {
        key: names(&["gaiaId"]),
        ra: Some("ra".into()),
        dec: Some("dec".into()),
        ..request(dir, "Gaia")
    };
    load(dir, gaia, GAIA_COLUMNS, &gaia_rows(&objects)).await;
    let source = LoadRequest {
        key: names(&["objectId"]),
        directors: names(&["Object"]),
        own_key: Some("sourceId".into()),
        ra: Some("ra".into()),
        dec: Some("decl".into()),
        ..request(dir, "Source")
    };
    load(
        dir,
        source,
        SOURCE_COLUMNS,
        &source_rows(&objects, &mut numbers),
    )
    .await;
    let pair = LoadRequest {
        key: names(&["objectId", "gaiaId"]),
        directors: names(&["Object", "Gaia"]),
        ..request(dir, "Pair")
    };
    load(dir, pair, PAIR_COLUMNS, &pair_rows()).await;
    let filters = "filterId,filterName\n0,u\n1,g\n2,r\n3,i\n4,\\N\n";
    load(dir, request(dir, "Filter"), FILTER_COLUMNS, filters).await;
}

const OBJECT_COLUMNS: &str = "objectId BIGINT NOT NULL,ra_PS DOUBLE NOT NULL,decl_PS DOUBLE NOT NULL,flux DOUBLE,mag FLOAT,name TEXT,class INT";
const GAIA_COLUMNS: &str = "gaiaId BIGINT NOT NULL,ra DOUBLE NOT NULL,dec DOUBLE NOT NULL,g DOUBLE";
const SOURCE_COLUMNS: &str = "sourceId BIGINT NOT NULL,objectId BIGINT,ra DOUBLE,decl DOUBLE,filterId INT NOT NULL,flux DOUBLE,taken DOUBLE NOT NULL";
const PAIR_COLUMNS: &str =
    "objectId BIGINT NOT NULL,gaiaId BIGINT NOT NULL,separation DOUBLE NOT NULL";
const FILTER_COLUMNS: &str = "filterId INT NOT NULL,filterName TEXT";

/// A linear congruential generator: the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    /// From 0 to below 1.
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn position(n: u64, numbers: &mut Numbers) -> (f64, f64) {
    let (a, b) = (numbers.next(), numbers.next());
    match n % 20 {
        0 => (a * 360.0, 90.0 - b * 0.5),
        1 => (a * 360.0, -90.0 + b * 0.5),
        2 => (359.9 + a * 0.1, b * 20.0 - 10.0),
        3 => (a * 0.1, b * 20.0 - 10.0),
        _ => (a * 360.0, (2.0 * b - 1.0).asin().to_degrees()),
    }
}

fn object_rows(objects: &[(f64, f64)]) -> String {
    let mut text = header(OBJECT_COLUMNS);
    for (n, (ra, dec)) in objects.iter().enumerate() {
        let flux = if n % 17 == 0 {
            "\\N".to_owned()
        } else {
            format!("{}", (n * 37 % 1000) as f64 / 8.0)
        };
        let mag = if n % 23 == 0 {
            "\\N".to_owned()
        } else {
            format!("{}", 15.0 + (n % 80) as f64 / 8.0)
        };
        let class = if n % 31 == 0 {
            "\\N".to_owned()
        } else {
            (n % 5).to_string()
        };
        writeln!(text, "{n},{ra},{dec},{flux},{mag},star {},{class}", n % 97).unwrap();
    }
    text
}

/// A star beside every second object, some of them in another chunk.
fn gaia_rows(objects: &[(f64, f64)]) -> String {
    let mut text = header(GAIA_COLUMNS);
    for (n, (ra, dec)) in objects.iter().enumerate().step_by(2) {
        let shift = if n % 10 == 0 { 2.0 } else { 0.001 };
        let dec = if *dec > 0.0 { dec - shift } else { dec + shift };
        writeln!(
            text,
            "{},{ra},{dec},{}",
            10_000 + n,
            14.0 + (n % 40) as f64 / 8.0
        )
        .unwrap();
    }
    text
}

fn source_rows(objects: &[(f64, f64)], numbers: &mut Numbers) -> String {
    let mut text = header(SOURCE_COLUMNS);
    for n in 0..SOURCES {
        let of = (n * 7919 % (OBJECTS - 200)) as usize;
        let (ra, dec) = (
            objects[of].0,
            (objects[of].1 + numbers.next() * 0.02 - 0.01).clamp(-90.0, 90.0),
        );
        let key = match n {
            n if n < ORPHANS => of.to_string(),
            n if n % 2 == 0 => (50_000 + n / 4).to_string(),
            _ => "\\N".to_owned(),
        };
        let flux = if n % 13 == 0 {
            "\\N".to_owned()
        } else {
            format!("{}", (n * 11 % 4000) as f64 / 8.0)
        };
        writeln!(
            text,
            "{n},{key},{ra},{dec},{},{flux},{}",
            n % 5,
            50_000.0 + n as f64 / 4.0
        )
        .unwrap();
    }
    text
}

/// Each star with its object; some pairs of which one end is in no director, or neither.
fn pair_rows() -> String {
    let mut text = header(PAIR_COLUMNS);
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

fn header(columns: &str) -> String {
    let names: Vec<&str> = columns
        .split(',')
        .filter_map(|c| c.split(' ').next())
        .collect();
    names.join(",") + "\n"
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn request(dir: &Path, table: &str) -> LoadRequest {
    LoadRequest {
        stripes: Some(8),
        sub_stripes: Some(4),
        overlap_deg: Some(2.5),
        memory: Some(64 << 20),
        threads: Some(1),
        ..LoadRequest::new(dir.join("data"), "sky", table)
    }
}

async fn load(dir: &Path, mut request: LoadRequest, columns: &str, rows: &str) {
    request.files = vec![input(dir, &format!("{}.csv", request.table), rows)];
    request.schema = Some(input(
        dir,
        &format!("{}.json", request.table),
        &schema(columns),
    ));
    ingest::load(request, Arc::new(Progress::default()))
        .await
        .unwrap();
}

fn schema(columns: &str) -> String {
    let columns: Vec<String> = columns
        .split(',')
        .filter_map(|column| column.split_once(' '))
        .map(|(name, ty)| format!(r#"{{"name": "{name}", "type": "{ty}"}}"#))
        .collect();
    format!(
        r#"{{"columns": [{}], "delimiter": ",", "null": "\\N"}}"#,
        columns.join(", ")
    )
}

fn input(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}
