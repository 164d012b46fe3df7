//! What a catalogue of copies promises: separations as they are, no gaps, unique keys, children beside their directors.
#![allow(clippy::unwrap_used, reason = "a failure is the test's own message")]

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Float64Type, Int64Type};
use meridian_synthesize::{
    Catalogue, ChildFiles, DirectorFiles, DuplicateOptions, Patch, PatchCopies, SynthesizeError,
};
use parquet::arrow::ArrowWriter;
use sky::{LonLat, Region, separation};

const RA: f64 = 359.0;
const DEC: f64 = 20.0;
const SIDE: usize = 40;

/// A patch of 2 by 2 degrees: a lattice of objects, each with one close companion, and two sources for each of them.
fn write_patch(dir: &Path) {
    let (mut ra, mut dec) = (Vec::new(), Vec::new());
    for i in 0..SIDE * SIDE {
        let (x, y) = (i % SIDE, i / SIDE);
        let at = (
            RA + 2.0 * x as f64 / SIDE as f64,
            DEC + 2.0 * y as f64 / SIDE as f64,
        );
        ra.extend([at.0 % 360.0, (at.0 + 0.001) % 360.0]);
        dec.extend([at.1, at.1 + 0.001]);
    }
    let count = ra.len() as i64;
    let names: Vec<String> = (0..count).map(|i| format!("star {i}")).collect();
    let object = RecordBatch::try_from_iter([
        (
            "id",
            Arc::new(Int64Array::from_iter_values(1000..1000 + count)) as _,
        ),
        ("RA", Arc::new(Float64Array::from(ra.clone())) as _),
        ("Dec", Arc::new(Float64Array::from(dec.clone())) as _),
        ("name", Arc::new(StringArray::from(names)) as _),
    ]);
    // Sources to either side; the last one is an orphan, and one has no position.
    let twice = |values: &[f64], step: f64| {
        let both = values
            .iter()
            .flat_map(move |v| [Some(v - step), Some(v + step)]);
        let mut all: Vec<Option<f64>> = both.collect();
        all[7] = None;
        all.push(Some(0.0));
        Float64Array::from(all)
    };
    let parents = (0..count).flat_map(|i| [1000 + i, 1000 + i]).chain([7]);
    let source = RecordBatch::try_from_iter([
        (
            "sid",
            Arc::new(Int32Array::from_iter_values(0..2 * count as i32 + 1)) as _,
        ),
        ("id", Arc::new(Int64Array::from_iter_values(parents)) as _),
        ("ra", Arc::new(twice(&ra, 0.0)) as _),
        ("dec", Arc::new(twice(&dec, 0.0005)) as _),
    ]);
    for (name, rows) in [
        ("object.parquet", object.unwrap()),
        ("source.parquet", source.unwrap()),
    ] {
        let file = File::create(dir.join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }
}

fn options(dir: &Path, region: &str) -> DuplicateOptions {
    DuplicateOptions {
        director: DirectorFiles {
            name: "Object".to_owned(),
            files: vec![dir.join("object.parquet")],
            key: "ID".to_owned(),
            position: ["ra".to_owned(), "dec".to_owned()],
        },
        children: vec![ChildFiles {
            name: "Source".to_owned(),
            files: vec![dir.join("source.parquet")],
            key: "id".to_owned(),
            position: Some(["ra".to_owned(), "dec".to_owned()]),
            own_key: Some("sid".to_owned()),
        }],
        patch: None,
        region: region.parse::<Region>().unwrap(),
        seed: 1,
    }
}

fn made(options: DuplicateOptions, stripes: u32) -> Result<PatchCopies, SynthesizeError> {
    PatchCopies::new(Patch::read(options)?, stripes)
}

fn rows(catalogue: &Arc<PatchCopies>, table: usize) -> RecordBatch {
    let batches: Vec<RecordBatch> = (0..catalogue.chunks().len())
        .flat_map(|chunk| catalogue.clone().batches(table, chunk))
        .collect::<Result<_, _>>()
        .unwrap();
    concat_batches(&catalogue.tables()[table].schema, &batches).unwrap()
}

/// The position of each key.
fn places(rows: &RecordBatch, key: &str, ra: &str, dec: &str) -> BTreeMap<i64, Option<LonLat>> {
    let keys = rows[key].as_primitive::<Int64Type>();
    let (ra, dec) = (
        rows[ra].as_primitive::<Float64Type>(),
        rows[dec].as_primitive::<Float64Type>(),
    );
    let at = |row: usize| {
        ra.is_valid(row)
            .then(|| LonLat::from_degrees(ra.value(row), dec.value(row)).unwrap())
    };
    let places: BTreeMap<_, _> = (0..rows.num_rows())
        .map(|row| (keys.value(row), at(row)))
        .collect();
    assert_eq!(places.len(), rows.num_rows(), "keys are unique");
    places
}

const PATCH_ROWS: i64 = 2 * (SIDE * SIDE) as i64;

#[test]
fn separations_are_kept_at_every_declination() {
    let dir = tempfile::tempdir().unwrap();
    write_patch(dir.path());
    let at = |ra: f64, dec: f64| LonLat::from_degrees(ra, dec).unwrap();
    let true_separation = |row: i64| {
        let dec = DEC + 2.0 * ((row / 2) as usize / SIDE) as f64 / SIDE as f64;
        separation(at(0.0, dec), at(0.001, dec + 0.001)).arcsec()
    };
    for region in [
        "circle 0 0 3",
        "circle 200 60 3",
        "circle 359 85 3",
        "circle 0 90 3",
        "circle 0 -90 3",
    ] {
        let catalogue = Arc::new(made(options(dir.path(), region), 20).unwrap());
        let objects = places(&rows(&catalogue, 0), "id", "RA", "Dec");
        let mut pairs = 0;
        for (key, place) in &objects {
            // A companion on the other side of the region's or the tile's edge is not there.
            let companion = objects.get(&(key + 1)).filter(|_| key % 2 == 0);
            if let (Some(a), Some(Some(b))) = (place, companion) {
                let expected = true_separation(key % PATCH_ROWS);
                assert!(
                    (separation(*a, *b).arcsec() - expected).abs() < 1e-6,
                    "{region}: {key}"
                );
                pairs += 1;
            }
        }
        // 28.3 square degrees at 400 · 2 / cos(21°) objects each, in the mean.
        let density = objects.len() as f64 / 28.27;
        assert!((density / 857.0 - 1.0).abs() < 0.05, "{region}: {density}");
        assert!(
            pairs as f64 > 0.45 * objects.len() as f64,
            "{region}: {pairs}"
        );
    }
}

#[test]
fn rows_do_not_depend_on_how_the_sky_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    write_patch(dir.path());
    let make = |stripes: u32, seed: u64| {
        let mut options = options(dir.path(), "box 350 40 30 90");
        options.seed = seed;
        let catalogue = Arc::new(made(options, stripes).unwrap());
        let objects = places(&rows(&catalogue, 0), "id", "RA", "Dec");
        (objects, places(&rows(&catalogue, 1), "sid", "ra", "dec"))
    };
    let (coarse, fine, other) = (make(3, 1), make(40, 1), make(40, 2));
    assert_eq!(coarse, fine);
    assert_ne!(fine.0, other.0);
    let sparse = other.0.len() as f64 / fine.0.len() as f64;
    assert!((sparse - 1.0).abs() < 0.05, "{sparse}");
}

#[test]
fn children_stay_beside_their_directors() {
    let dir = tempfile::tempdir().unwrap();
    write_patch(dir.path());
    let catalogue = made(options(dir.path(), "circle 0 88 4"), 20).unwrap();
    let notes = catalogue.notes().join("; ");
    assert!(notes.contains("1 rows of Source are left out"), "{notes}");
    let catalogue = Arc::new(catalogue);
    let (object, source) = (rows(&catalogue, 0), rows(&catalogue, 1));
    let objects = places(&object, "id", "RA", "Dec");
    let sources = places(&source, "sid", "ra", "dec");
    assert_eq!(source.num_rows(), 2 * object.num_rows());
    let parents = source["id"].as_primitive::<Int64Type>().values();
    let own = source["sid"].as_primitive::<Int64Type>().values();
    let mut without_place = HashSet::new();
    for (parent, key) in parents.iter().zip(own) {
        match sources[key] {
            Some(place) => {
                let apart = separation(objects[parent].unwrap(), place).degrees();
                assert!((apart - 0.0005).abs() < 1e-9, "{apart}");
            }
            None => {
                without_place.insert(key % (2 * PATCH_ROWS + 1));
            }
        }
    }
    assert!(without_place.len() <= 1);
    // What is not moved is copied: the name tells which row of the patch a copy is of.
    let names = object["name"].as_string::<i32>();
    let keys = object["id"].as_primitive::<Int64Type>();
    for row in 0..object.num_rows() {
        assert_eq!(
            names.value(row),
            format!("star {}", keys.value(row) % PATCH_ROWS)
        );
    }
}

#[test]
fn a_patch_that_cannot_be_used_is_rejected_in_words() {
    let dir = tempfile::tempdir().unwrap();
    write_patch(dir.path());
    let rejected = |change: fn(&mut DuplicateOptions)| {
        let mut options = options(dir.path(), "circle 0 0 1");
        change(&mut options);
        made(options, 20).unwrap_err().to_string()
    };
    assert!(rejected(|o| o.director.key = "nokey".into()).contains("it has id, RA, Dec, name"));
    assert!(rejected(|o| o.director.key = "name".into()).contains("integer"));
    assert!(
        rejected(|o| o.director.files = vec!["nowhere.parquet".into()]).contains("cannot open")
    );
    assert!(
        rejected(|o| o.patch = sky::LonLatBox::from_degrees(100.0, 0.0, 101.0, 1.0).ok())
            .contains("--patch")
    );
    assert!(
        rejected(|o| o.patch = sky::LonLatBox::from_degrees(0.0, 20.0, 0.0, 20.0).ok())
            .contains("no area")
    );
}
