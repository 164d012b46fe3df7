//! What must hold for HTM trixels and HEALPix cells.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a failure is the test's own message"
)]

mod common;

use std::collections::BTreeSet;
use std::ops::Range;

use common::{at, positions, shapes_with_points};
use meridian_sky::{Region, SkyError, UnitVector, healpix, htm};
use proptest::prelude::*;

fn holds(ranges: &[Range<u64>], id: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= id);
    after > 0 && ranges[after - 1].contains(&id)
}

/// Sorted, not empty, and with gaps between.
fn are_tidy(ranges: &[Range<u64>]) -> bool {
    ranges.iter().all(|range| range.start < range.end)
        && ranges.windows(2).all(|pair| pair[0].end < pair[1].start)
}

fn level(level: u32) -> htm::Level {
    htm::Level::new(level).unwrap()
}

fn depth(depth: u32) -> healpix::Depth {
    healpix::Depth::new(depth).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_trixel_is_a_quarter_of_its_parent(p in positions(), n in 1_u32..=24) {
        let vector = UnitVector::from(p);
        prop_assert_eq!(htm::id(level(n), vector) >> 2, htm::id(level(n - 1), vector));
        let id = htm::id_at(level(n), p);
        prop_assert_eq!(id >> 2, htm::id_at(level(n - 1), p));
        prop_assert!((8 << (2 * n)..16 << (2 * n)).contains(&id));
        let mut out = vec![1, 2, 3];
        htm::ids_degrees(level(n), &[p.ra().degrees()], &[p.dec().degrees()], &mut out);
        prop_assert_eq!(out, vec![id]);
        let middle = htm::centre(level(n), id).unwrap();
        prop_assert_eq!(htm::id(level(n), middle), id);
        prop_assert!(middle.separation(vector).degrees() < 100.0 / f64::from(1 << n));
        prop_assert_eq!(htm::centre(level(n), id >> (2 * n + 1)), None);
        prop_assert_eq!(htm::centre(level(n), id << 1), None);
    }

    #[test]
    fn a_cell_is_a_quarter_of_its_parent(p in positions(), n in 1_u32..=29) {
        let id = healpix::nested(depth(n), p);
        prop_assert_eq!(id >> 2, healpix::nested(depth(n - 1), p));
        prop_assert!(id < depth(n).num_cells());
        let ring = healpix::ring(depth(n), p);
        prop_assert_eq!(healpix::ring_of_nested(depth(n), id), Some(ring));
        let centre = healpix::centre(depth(n), id).unwrap();
        prop_assert_eq!(healpix::nested(depth(n), centre), id);
        let (ra, dec) = ([p.ra().degrees()], [p.dec().degrees()]);
        let mut out = vec![1, 2, 3];
        prop_assert!(healpix::nested_degrees(depth(n), &ra, &dec, &mut out).is_ok());
        prop_assert_eq!(&out, &[id]);
        prop_assert!(healpix::ring_degrees(depth(n), &ra, &dec, &mut out).is_ok());
        prop_assert_eq!(&out, &[ring]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn trixels_of_a_region_hold_its_points((shape, points) in shapes_with_points(), n in 0_u32..=24) {
        let ranges = htm::ranges(level(n), &shape.region);
        prop_assert!(are_tidy(&ranges));
        for p in points.into_iter().filter(|&p| shape.region.contains(p)) {
            prop_assert!(holds(&ranges, htm::id(level(n), p.into())), "{p}");
            prop_assert!(holds(&ranges, htm::id_at(level(n), p)), "{p}");
        }
    }

    #[test]
    fn cells_of_a_region_hold_its_points((shape, points) in shapes_with_points(), n in 0_u32..=29) {
        let ranges = healpix::ranges(depth(n), &shape.region);
        prop_assert!(are_tidy(&ranges));
        prop_assert!(ranges.last().is_none_or(|last| last.end <= depth(n).num_cells()));
        for p in points.into_iter().filter(|&p| shape.region.contains(p)) {
            prop_assert!(holds(&ranges, healpix::nested(depth(n), p)), "{p}");
        }
    }
}

#[test]
fn the_whole_sky_is_one_range() {
    for text in ["circle 5 5 180", "box 0 -90 360 90"] {
        let sky: Region = text.parse().unwrap();
        for n in [0, 7, 24] {
            let trixels = 8 << (2 * n)..16 << (2 * n);
            let cells = 0..depth(n).num_cells();
            assert_eq!(htm::ranges(level(n), &sky), std::slice::from_ref(&trixels));
            assert_eq!(
                healpix::ranges(depth(n), &sky),
                std::slice::from_ref(&cells)
            );
        }
    }
}

/// A cover holds few cells that no point of the region is in: against those that a fine grid over a cone finds.
#[test]
fn covers_are_tight() {
    let cone: Region = "circle 33 44 1".parse().unwrap();
    let steps = || (-150..=150).map(|i| f64::from(i) / 150.0);
    let points: Vec<_> = steps()
        .flat_map(|x| steps().map(move |y| at(33.0 + 1.4 * x, 44.0 + y)))
        .filter(|&p| cone.contains(p))
        .collect();
    let size = |ranges: Vec<Range<u64>>| ranges.iter().map(|r| r.end - r.start).sum::<u64>();
    let trixels: BTreeSet<u64> = points
        .iter()
        .map(|&p| htm::id(level(9), p.into()))
        .collect();
    let cells: BTreeSet<u64> = points
        .iter()
        .map(|&p| healpix::nested(depth(9), p))
        .collect();
    let (needed, taken) = (
        trixels.len() as f64,
        size(htm::ranges(level(9), &cone)) as f64,
    );
    assert!(
        (needed..1.1 * needed).contains(&taken),
        "{taken} of {needed}"
    );
    let (needed, taken) = (
        cells.len() as f64,
        size(healpix::ranges(depth(9), &cone)) as f64,
    );
    assert!(
        (needed..1.25 * needed).contains(&taken),
        "{taken} of {needed}"
    );
}

#[test]
fn a_tiny_region_needs_few_numbers() {
    let tiny: Region = "circle 33 44 1e-8".parse().unwrap();
    assert!(htm::ranges(level(20), &tiny).len() <= 4);
    assert!(healpix::ranges(depth(20), &tiny).len() <= 4);
}

/// Values of the hpgeom package.
#[test]
fn known_cells() {
    for (n, ra, dec, nested, ring) in [
        (0, 44.0, 0.0, 4, 4),
        (3, 266.4168, -29.0078, 450, 583),
        (10, 0.0, 90.0, 1_048_575, 0),
        (10, 123.4, -89.99, 9_437_184, 12_582_909),
        (
            29,
            83.633212,
            22.01446,
            1_701_909_093_809_658_268,
            1_081_139_610_387_249_942,
        ),
        (12, 359.9999999, 41.9, 55_924_095, 33_448_019),
    ] {
        assert_eq!(healpix::nested(depth(n), at(ra, dec)), nested);
        assert_eq!(healpix::ring(depth(n), at(ra, dec)), ring);
    }
}

#[test]
fn what_is_no_level_or_position_is_rejected() {
    assert!(matches!(
        htm::Level::new(25),
        Err(SkyError::Level {
            level: 25,
            max: 24,
            ..
        })
    ));
    assert!(matches!(
        healpix::Depth::new(30),
        Err(SkyError::Level {
            level: 30,
            max: 29,
            ..
        })
    ));
    let mut out = Vec::new();
    htm::ids_degrees(level(3), &[0.0, f64::NAN, 0.0], &[0.0, 0.0, 91.0], &mut out);
    assert_eq!(out[1..], [0, 0]);
    let rejected = healpix::nested_degrees(depth(3), &[0.0, 1.0], &[0.0, 91.0], &mut out);
    assert_eq!(rejected, Err(SkyError::Declination(91.0)));
    assert_eq!(out.len(), 1);
    assert_eq!(healpix::centre(depth(0), 12), None);
    assert_eq!(healpix::ring_of_nested(depth(0), 12), None);
}
