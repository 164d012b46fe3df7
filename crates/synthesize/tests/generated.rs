//! What a generated catalogue promises: exact counts, unique keys, true densities, clumps, chunks that can be made alone.
#![allow(clippy::unwrap_used, reason = "a failure is the test's own message")]

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{Float32Type, Float64Type, Int8Type, Int32Type, Int64Type};
use meridian_synthesize::{
    Band, Catalogue, Compression, Extent, GenerateOptions, GeneratedCatalogue, PERIODIC_FLAG,
    Progress, SynthesizeError, TRANSIENT_FLAG, WriteOptions, find_chunks, write_parquet,
};
use proptest::prelude::*;
use sky::{Chunker, LonLat, separation};

fn options(objects: u64, region: &str, stripes: u32) -> GenerateOptions {
    let extent = Extent::new(Some(objects), None, Some(region.parse().unwrap())).unwrap();
    GenerateOptions::new(extent, stripes)
}

/// All rows of a table, or of one chunk of it.
fn rows(catalogue: &Arc<GeneratedCatalogue>, table: usize, chunk: Option<usize>) -> RecordBatch {
    let all = 0..catalogue.chunks().len();
    let chunks = chunk.map_or(all, |chunk| chunk..chunk + 1);
    let batches: Vec<RecordBatch> = chunks
        .flat_map(|chunk| catalogue.clone().batches(table, chunk))
        .collect::<Result<_, _>>()
        .unwrap();
    concat_batches(&catalogue.tables()[table].schema, &batches).unwrap()
}

fn doubles<'a>(rows: &'a RecordBatch, name: &str) -> &'a [f64] {
    rows[name].as_primitive::<Float64Type>().values()
}

fn keys<'a>(rows: &'a RecordBatch, name: &str) -> &'a [i64] {
    rows[name].as_primitive::<Int64Type>().values()
}

fn fluxes<'a>(rows: &'a RecordBatch, name: &str) -> &'a [f32] {
    rows[name].as_primitive::<Float32Type>().values()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn counts_are_exact_keys_unique_and_rows_in_their_chunks(
        objects in 1_u64..3_000,
        stripes in 1_u32..40,
        seed in 0_u64..100,
        region in prop::sample::select(vec![
            "box 0 -90 360 90", "box 350 -10 10 10", "box 0 80 360 90", "circle 30 -89 3", "circle 359 60 4",
            "polygon 10 10 20 10 15 20", "box 5 0 5.001 0.001",
        ]),
    ) {
        let mut options = options(objects, region, stripes);
        options.seed = seed;
        options.epochs = 2;
        options.forced_epochs = 1;
        let within = options.extent.region.clone();
        let catalogue = Arc::new(GeneratedCatalogue::new(options).unwrap());
        let object = rows(&catalogue, 0, None);
        prop_assert_eq!(object.num_rows() as u64, objects);
        let distinct: HashSet<i64> = keys(&object, "objectId").iter().copied().collect();
        prop_assert_eq!(distinct.len() as u64, objects);
        let source = rows(&catalogue, 1, None);
        let sources: HashSet<i64> = keys(&source, "sourceId").iter().copied().collect();
        prop_assert_eq!(sources.len() as u64, 2 * objects);
        prop_assert!(keys(&source, "objectId").iter().all(|key| distinct.contains(key)));
        let forced = rows(&catalogue, 2, None);
        let pairs = keys(&forced, "objectId").iter().zip(keys(&forced, "exposureId"));
        prop_assert_eq!(pairs.collect::<HashSet<_>>().len() as u64, objects);
        let chunker = Chunker::new(stripes, 1).unwrap();
        for chunk in 0..catalogue.chunks().len() {
            let alone = rows(&catalogue, 0, Some(chunk));
            prop_assert_eq!(alone.num_rows() as u64, catalogue.rows(0, chunk));
            for (ra, dec) in doubles(&alone, "ra_PS").iter().zip(doubles(&alone, "decl_PS")) {
                prop_assert!((0.0..360.0).contains(ra));
                let position = LonLat::from_degrees(*ra, *dec).unwrap();
                prop_assert_eq!(chunker.locate(position).chunk, catalogue.chunks()[chunk]);
                prop_assert!(within.contains(position));
            }
        }
    }
}

#[test]
fn a_chunk_alone_has_the_rows_that_it_has_in_the_whole() {
    let make = |seed| {
        let mut options = options(20_000, "box 355 -8 6 8", 45);
        (options.seed, options.forced_epochs) = (seed, 3);
        Arc::new(GeneratedCatalogue::new(options).unwrap())
    };
    let (whole, again, other) = (make(1), make(1), make(2));
    let middle = whole.chunks().len() / 2;
    for table in 0..3 {
        let all: Vec<RecordBatch> = (0..whole.chunks().len())
            .map(|chunk| rows(&whole, table, Some(chunk)))
            .collect();
        assert_eq!(rows(&again, table, Some(middle)), all[middle]);
        assert_ne!(rows(&other, table, Some(middle)), all[middle]);
        assert_eq!(
            all.iter().map(RecordBatch::num_rows).sum::<usize>() as u64 % 20_000,
            0
        );
    }
}

#[test]
fn blocks_of_a_large_chunk_are_as_good_as_one() {
    // 100,000 objects in one chunk are two blocks; sources repeat the objects of both in every epoch.
    let mut options = options(100_000, "circle 10 10 0.5", 2);
    options.epochs = 2;
    let catalogue = Arc::new(GeneratedCatalogue::new(options).unwrap());
    assert_eq!(catalogue.chunks().len(), 1);
    let (object, source) = (rows(&catalogue, 0, None), rows(&catalogue, 1, None));
    let first = keys(&object, "objectId")[0];
    let expected: Vec<i64> = (0..2).flat_map(|_| first..first + 100_000).collect();
    assert_eq!(keys(&source, "objectId"), expected);
    let (ra, dec) = (doubles(&object, "ra_PS"), doubles(&object, "decl_PS"));
    for (row, (source_ra, source_dec)) in (doubles(&source, "ra").iter())
        .zip(doubles(&source, "decl"))
        .enumerate()
    {
        let at = LonLat::from_degrees(ra[row % 100_000], dec[row % 100_000]).unwrap();
        let seen = LonLat::from_degrees(*source_ra, *source_dec).unwrap();
        assert!(separation(at, seen).arcsec() < 1.0);
    }
}

#[test]
fn density_is_the_same_at_the_equator_and_beside_a_pole() {
    let catalogue = GeneratedCatalogue::new(options(412_530 * 5, "box 0 -90 360 90", 20)).unwrap();
    let catalogue = Arc::new(catalogue);
    let object = rows(&catalogue, 0, None);
    let positions = || {
        doubles(&object, "ra_PS")
            .iter()
            .zip(doubles(&object, "decl_PS"))
    };
    // Caps of 5 degrees have 78.49 square degrees: 3924 objects at 50 in each; clumps of 50 make counts scatter by 5 times
    // the square root of a tenth of the number, plus the square root of the rest.
    for (ra, dec) in [(0.0, 90.0), (77.0, -90.0), (359.0, 0.0), (180.0, 45.0)] {
        let centre = LonLat::from_degrees(ra, dec).unwrap();
        let inside = positions()
            .filter(|(ra, dec)| {
                separation(centre, LonLat::from_degrees(**ra, **dec).unwrap()).degrees() < 5.0
            })
            .count();
        assert!(
            (inside as f64 / 3924.0 - 1.0).abs() < 0.15,
            "{inside} at {ra} {dec}"
        );
    }
}

#[test]
fn a_tenth_stands_in_clumps() {
    // So sparse that two objects within 0.03 degrees are of one clump.
    let catalogue =
        Arc::new(GeneratedCatalogue::new(options(60_000, "box 0 -40 200 40", 20)).unwrap());
    let object = rows(&catalogue, 0, None);
    let mut positions: Vec<(f64, f64)> = (doubles(&object, "decl_PS").iter().copied())
        .zip(doubles(&object, "ra_PS").iter().copied())
        .collect();
    positions.sort_by(|a, b| a.0.total_cmp(&b.0));
    let near = |a: (f64, f64), b: (f64, f64)| {
        let at = |(dec, ra)| LonLat::from_degrees(ra, dec).unwrap();
        separation(at(a), at(b)).degrees() < 0.01
    };
    let has_neighbours = |row: &usize| {
        let here = positions[*row];
        let around = positions[row.saturating_sub(200)..(row + 200).min(positions.len())].iter();
        around.filter(|other| near(here, **other)).count() > 3
    };
    let clumped = (0..positions.len())
        .step_by(7)
        .filter(has_neighbours)
        .count();
    let share = clumped as f64 / (positions.len() / 7) as f64;
    assert!((share - 0.1).abs() < 0.02, "{share}");
}

#[test]
fn photometry_leaves_rows_to_the_published_cuts() {
    let catalogue =
        Arc::new(GeneratedCatalogue::new(options(400_000, "box 0 -10 4 10", 45)).unwrap());
    let object = rows(&catalogue, 0, None);
    let magnitude = |flux: f32| -2.5 * f64::from(flux).log10() - 48.6;
    let share = |count: usize| count as f64 / 400_000.0;
    let (i, z) = (fluxes(&object, "iFlux_PS"), fluxes(&object, "zFlux_PS"));
    let red = (0..i.len()).filter(|row| magnitude(i[*row]) - magnitude(z[*row]) > 2.0);
    let red = share(red.count());
    assert!((1e-5..1e-3).contains(&red), "{red}");
    let faint = share(
        z.iter()
            .filter(|z| (25.0..26.0).contains(&magnitude(**z)))
            .count(),
    );
    assert!((0.3..0.4).contains(&faint), "{faint}");
    for (band, missing) in [
        ("u", 0.1),
        ("g", 0.02),
        ("r", 0.0),
        ("i", 0.0),
        ("z", 0.01),
        ("y", 0.05),
    ] {
        for name in [format!("{band}Flux_PS"), format!("{band}Flux_PS_Sigma")] {
            let nulls = share(object[name.as_str()].null_count());
            assert!((nulls - missing).abs() < 0.003, "{name}: {nulls}");
        }
    }
}

#[test]
fn variable_objects_are_found_by_their_scatter() {
    let mut options = options(20_000, "circle 10 10 0.3", 20);
    options.epochs = 40;
    options.bands = Band::parse_list("r").unwrap();
    let catalogue = Arc::new(GeneratedCatalogue::new(options).unwrap());
    let (object, source) = (rows(&catalogue, 0, None), rows(&catalogue, 1, None));
    let first = keys(&object, "objectId")[0];
    let (flux, error) = (fluxes(&source, "psfFlux"), fluxes(&source, "psfFluxErr"));
    let mean = fluxes(&object, "rFlux_PS");
    // The reduced χ² of each object's sources about its mean flux.
    let mut chi2 = vec![0.0; 20_000];
    for (row, key) in keys(&source, "objectId").iter().enumerate() {
        let at = (key - first) as usize;
        chi2[at] += f64::from((flux[row] - mean[at]) / error[row]).powi(2) / 40.0;
    }
    let flags = object["flags"].as_primitive::<Int32Type>().values();
    let of_class = |class: i32| (0..20_000).filter(move |at| flags[*at] & class != 0);
    let (periodic, transient) = (
        of_class(PERIODIC_FLAG).count(),
        of_class(TRANSIENT_FLAG).count(),
    );
    assert!(
        (300..500).contains(&periodic) && (15..75).contains(&transient),
        "{periodic} {transient}"
    );
    let varies = PERIODIC_FLAG | TRANSIENT_FLAG;
    let false_alarms = (0..20_000)
        .filter(|at| flags[*at] & varies == 0 && chi2[*at] > 2.5)
        .count();
    assert!(false_alarms < 5, "{false_alarms}");
    let found = of_class(PERIODIC_FLAG).filter(|at| chi2[*at] > 2.5).count();
    assert!(
        found as f64 > 0.5 * periodic as f64,
        "{found} of {periodic}"
    );
    assert!(of_class(TRANSIENT_FLAG).any(|at| chi2[at] > 100.0));
    assert!(
        source["filterId"]
            .as_primitive::<Int8Type>()
            .values()
            .iter()
            .all(|band| *band == 2)
    );
}

#[test]
fn columns_can_be_left_out_without_changing_the_others() {
    let mut few = options(1_000, "circle 10 10 1", 20);
    few.columns = Some(vec!["zFlux_PS".into(), "OBJECTID".into(), "flags".into()]);
    let few = rows(&Arc::new(GeneratedCatalogue::new(few).unwrap()), 0, None);
    let all = rows(
        &Arc::new(GeneratedCatalogue::new(options(1_000, "circle 10 10 1", 20)).unwrap()),
        0,
        None,
    );
    assert_eq!(few.num_columns(), 3);
    for name in ["objectId", "zFlux_PS", "flags"] {
        assert_eq!(&few[name], &all[name]);
    }
    assert_eq!(all.num_columns(), 17);
}

#[test]
fn what_cannot_be_made_is_rejected_in_words() {
    let rejected = |change: fn(&mut GenerateOptions)| {
        let mut options = options(1_000, "circle 10 10 1", 20);
        change(&mut options);
        GeneratedCatalogue::new(options).unwrap_err().to_string()
    };
    assert!(rejected(|o| o.tables = Some(vec!["Objekt".into()])).contains("Object, Source"));
    assert!(rejected(|o| o.tables = Some(vec!["ForcedSource".into()])).contains("--forced-epochs"));
    assert!(rejected(|o| o.columns = Some(vec!["flux".into()])).contains("uFlux_PS"));
    assert!(rejected(|o| o.extent.objects = 1 << 60).contains("keys"));
    assert!(rejected(|o| o.epochs = 1 << 24).contains("too many"));
    let catalogue = GeneratedCatalogue::new(options(1_000, "circle 10 10 1", 20)).unwrap();
    let error = find_chunks(&catalogue, &[sky::ChunkId(1)]).unwrap_err();
    let first = catalogue.chunks()[0].to_string();
    assert!(error.to_string().contains(&first), "{error}");
}

fn write(
    catalogue: &Arc<GeneratedCatalogue>,
    dir: &std::path::Path,
    chunks: Option<Vec<usize>>,
    replace: bool,
) -> Result<u64, SynthesizeError> {
    let options = WriteOptions {
        dir: dir.to_path_buf(),
        chunks,
        compression: Compression::Zstd,
        threads: 2,
        replace,
    };
    let tables = write_parquet(catalogue, &options, &Progress::default())?;
    Ok(tables.iter().map(|table| table.files).sum())
}

#[test]
fn files_are_the_same_whoever_writes_them() {
    let catalogue = Arc::new(GeneratedCatalogue::new(options(5_000, "box 0 -5 10 5", 45)).unwrap());
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = write(&catalogue, whole.path(), None, false).unwrap();
    assert_eq!(files as usize, 2 * catalogue.chunks().len());
    for chunk in 0..catalogue.chunks().len() {
        assert_eq!(
            write(&catalogue, parts.path(), Some(vec![chunk]), false).unwrap(),
            2
        );
    }
    for table in ["Object", "Source"] {
        for entry in std::fs::read_dir(whole.path().join(table)).unwrap() {
            let path = entry.unwrap().path();
            let other = parts.path().join(table).join(path.file_name().unwrap());
            assert!(
                std::fs::read(&path).unwrap() == std::fs::read(other).unwrap(),
                "{path:?}"
            );
        }
    }
    let in_the_way = write(&catalogue, whole.path(), None, false).unwrap_err();
    assert!(in_the_way.to_string().contains("--replace"), "{in_the_way}");
    assert!(write(&catalogue, whole.path(), Some(vec![0]), false).is_err());
    // Of a larger catalogue nothing may stay.
    let smaller = Arc::new(GeneratedCatalogue::new(options(500, "box 0 -1 1 1", 45)).unwrap());
    let files = write(&smaller, whole.path(), None, true).unwrap();
    let left = std::fs::read_dir(whole.path().join("Object"))
        .unwrap()
        .count();
    assert_eq!(left as u64 * 2, files);
}

#[test]
fn a_cancelled_run_leaves_no_half_file() {
    let catalogue = Arc::new(GeneratedCatalogue::new(options(5_000, "box 0 -5 10 5", 45)).unwrap());
    let dir = tempfile::tempdir().unwrap();
    let progress = Progress::default();
    progress.cancel();
    let options = WriteOptions {
        dir: dir.path().to_path_buf(),
        chunks: None,
        compression: Compression::None,
        threads: 2,
        replace: false,
    };
    let outcome = write_parquet(&catalogue, &options, &progress);
    assert!(matches!(outcome, Err(SynthesizeError::Cancelled)));
    assert_eq!(
        std::fs::read_dir(dir.path().join("Object"))
            .unwrap()
            .count(),
        0
    );
}
