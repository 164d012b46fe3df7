//! The search of neighbours against the plain double loop that asks the separation function for every pair.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a failure is the test's own message"
)]

mod common;

use common::{at, offset, positions, sizes};
use meridian_sky::neighbours::{
    Bound, Neighbour, NeighbourIndex, PairBuffer, Positions, Radii, Radius, Search, Validity,
};
use meridian_sky::{Angle, SkyError, separation_degrees};
use proptest::prelude::*;

/// Positions in degrees, some of them none.
type Rows = Vec<(f64, f64)>;

/// The columns of one side.
struct Side {
    ra: Vec<f64>,
    dec: Vec<f64>,
    bits: Vec<u8>,
}

impl Side {
    /// Every 13th row or so is NULL if `some_null`.
    fn new(rows: &Rows, some_null: bool) -> Self {
        let (ra, dec): (Vec<f64>, Vec<f64>) = rows.iter().copied().unzip();
        let mut bits = vec![0; rows.len() / 8 + 2];
        for row in (0..rows.len()).filter(|row| !some_null || row % 13 != 5) {
            bits[(row + 3) / 8] |= 1 << ((row + 3) % 8);
        }
        bits.push(0xff);
        Self { ra, dec, bits }
    }

    fn positions(&self) -> Positions<'_> {
        let positions = Positions::from_degrees(&self.ra, &self.dec);
        positions.with_validity(Validity::new(&self.bits, 3))
    }

    fn is_usual(&self) -> bool {
        let mut dec = self.dec.iter().filter(|dec| dec.is_finite());
        self.ra.iter().all(|ra| ra.is_nan() || ra.abs() <= 720.0)
            && dec.all(|dec| dec.abs() <= 90.0)
    }

    fn is_valid(&self, row: usize) -> bool {
        self.bits[(row + 3) / 8] >> ((row + 3) % 8) & 1 == 1
            && self.ra[row].is_finite()
            && self.dec[row].is_finite()
    }
}

/// The radius of each left row, and whether it is within.
#[derive(Debug, Clone)]
enum Near {
    Common(f64, Bound),
    OfRow(Vec<f64>, Bound),
}

impl Near {
    fn radii(&self) -> Radii<'_> {
        match self {
            Self::Common(radius, bound) => {
                Radii::common(Radius::new(Angle::from_degrees(*radius), *bound))
            }
            Self::OfRow(radii, bound) => Radii::of_rows(radii, None, *bound),
        }
    }

    fn holds(&self, row: usize, separation: f64) -> bool {
        let (radius, bound) = match self {
            Self::Common(radius, bound) => (*radius, bound),
            Self::OfRow(radii, bound) => (radii[row], bound),
        };
        match bound {
            Bound::Below => separation < radius,
            Bound::AtMost => separation <= radius,
        }
    }

    fn largest(&self) -> Angle {
        Angle::from_degrees(match self {
            Self::Common(radius, _) => *radius,
            Self::OfRow(radii, _) => radii.iter().fold(0.0, |a, b| a.max(*b)),
        })
    }
}

/// The partners of each left row, nearest first, then by row.
fn double_loop(left: &Side, right: &Side, near: &Near) -> Vec<Vec<(f64, u32)>> {
    let rows = 0..left.ra.len();
    rows.map(|row| {
        let mut separations = Vec::new();
        let (ra, dec) = (left.ra[row], left.dec[row]);
        let all = right.ra.len();
        separation_degrees(
            &vec![ra; all],
            &vec![dec; all],
            &right.ra,
            &right.dec,
            &mut separations,
        );
        let mut partners: Vec<(f64, u32)> = (0..all)
            .filter(|other| left.is_valid(row) && right.is_valid(*other))
            .map(|other| (separations[other], other as u32))
            .filter(|(separation, _)| near.holds(row, *separation))
            .collect();
        partners.sort_by(|a, b| a.partial_cmp(b).unwrap());
        partners
    })
    .collect()
}

/// Holds every way of asking to what the double loop finds.
fn check(left: &Side, right: &Side, near: &Near) {
    let index = NeighbourIndex::build(right.positions(), near.largest()).unwrap();
    let search = Search::new(&index, left.positions(), near.radii());
    let known = double_loop(left, right, near);
    // One more than there are: a row that is not there has no partner.
    let rows = 0..left.ra.len() as u32 + 1;
    check_counts(&search, &known, rows.clone());
    check_nearest(&search, &known, rows.clone());
    for capacity in [1, 7, 100_000] {
        check_pairs(&search, &known, rows.clone(), capacity);
    }
    // The function itself has large errors for numbers of many turns and beyond a pole: 4 √(0.1 · 36 000 · 2⁻⁵²) radians.
    let is_usual = left.is_usual() && right.is_usual();
    check_runs(&search, &known, rows, if is_usual { 0.0 } else { 2.1e-4 });
    let mut order = index.order(&left.positions());
    let in_order = search.count(order.iter().copied());
    assert_eq!(in_order, search.count(0..left.ra.len() as u32));
    let end = order.partition_point(|row| left.is_valid(*row as usize));
    assert!(order[end..].iter().all(|row| !left.is_valid(*row as usize)));
    order.sort_unstable();
    assert!(order.into_iter().eq(0..left.ra.len() as u32));
}

fn check_counts(search: &Search<'_>, known: &[Vec<(f64, u32)>], rows: std::ops::Range<u32>) {
    let (mut counts, mut any) = (vec![77], vec![true]);
    search.counts(rows.clone(), &mut counts);
    search.any(rows.clone(), &mut any);
    let expected: Vec<u64> = known.iter().map(|partners| partners.len() as u64).collect();
    assert_eq!(counts[..known.len()], expected);
    assert_eq!(counts[known.len()..], [0]);
    let expected_any: Vec<bool> = expected.iter().map(|count| *count > 0).collect();
    assert_eq!(any[..known.len()], expected_any);
    assert_eq!(search.count(rows), expected.iter().sum::<u64>());
}

fn check_nearest(search: &Search<'_>, known: &[Vec<(f64, u32)>], rows: std::ops::Range<u32>) {
    let neighbour = |(separation, right): &(f64, u32)| Neighbour {
        right: *right,
        separation: Angle::from_degrees(*separation),
    };
    let mut nearest = Vec::new();
    search.nearest(rows.clone(), &mut nearest);
    let first: Vec<Option<Neighbour>> = known.iter().map(|p| p.first().map(neighbour)).collect();
    assert_eq!(nearest[..known.len()], first);
    for most in [0, 2, 5] {
        let mut asked = 0;
        search.nearest_few(most, rows.clone(), |row, found| {
            let partners = known.get(row as usize).map_or(&[][..], |partners| partners);
            let few: Vec<Neighbour> = partners.iter().take(most).map(neighbour).collect();
            assert_eq!(found, few);
            asked += 1;
        });
        assert_eq!(asked, known.len() + 1);
    }
}

/// All pairs, by left row and then by right row.
fn pairs_of(known: &[Vec<(f64, u32)>]) -> Vec<(u32, u32, f64)> {
    let mut pairs = Vec::new();
    for (left, partners) in known.iter().enumerate() {
        pairs.extend(
            partners
                .iter()
                .map(|(separation, right)| (left as u32, *right, *separation)),
        );
    }
    pairs.sort_by_key(|(left, right, _)| (*left, *right));
    pairs
}

fn check_pairs(
    search: &Search<'_>,
    known: &[Vec<(f64, u32)>],
    rows: std::ops::Range<u32>,
    capacity: usize,
) {
    let mut plain = PairBuffer::new(capacity);
    let mut measured = PairBuffer::with_separations(capacity);
    let (mut found, mut found_measured) = (Vec::new(), Vec::new());
    let mut cursor = search.pairs(rows.clone());
    let mut measuring = search.pairs(rows);
    loop {
        let more = cursor.fill(&mut plain);
        assert!(plain.len() <= capacity && (!more || plain.len() == capacity));
        found.extend(
            plain
                .left()
                .iter()
                .copied()
                .zip(plain.right().iter().copied()),
        );
        assert!(plain.separations().is_empty());
        let more_measured = measuring.fill(&mut measured);
        let columns = measured
            .left()
            .iter()
            .zip(measured.right())
            .zip(measured.separations());
        found_measured.extend(columns.map(|((left, right), s)| (*left, *right, *s)));
        assert_eq!(more, more_measured);
        if !more {
            break;
        }
    }
    assert!(!cursor.fill(&mut plain) && plain.is_empty());
    assert!(found.is_sorted_by_key(|(left, _)| *left));
    found.sort_unstable();
    found_measured.sort_by_key(|(left, right, _)| (*left, *right));
    let expected = pairs_of(known);
    assert_eq!(found_measured, expected);
    let expected: Vec<(u32, u32)> = expected
        .iter()
        .map(|(left, right, _)| (*left, *right))
        .collect();
    assert_eq!(found, expected);
}

fn check_runs(
    search: &Search<'_>,
    known: &[Vec<(f64, u32)>],
    rows: std::ops::Range<u32>,
    least_error: f64,
) {
    let (mut found, mut separations) = (Vec::new(), Vec::new());
    search.for_each_run(rows, |partners| {
        assert!(!partners.right.is_empty());
        partners.separations(&mut separations);
        let sum: f64 = separations.iter().sum();
        assert!((partners.sum_of_separations() - sum).abs() <= 1e-12 * sum.max(1e-20));
        let pairs = partners.right.iter().zip(&separations);
        found.extend(pairs.map(|(right, separation)| (partners.left, *right, *separation)));
    });
    found.sort_by_key(|(left, right, _)| (*left, *right));
    let expected = pairs_of(known);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!((found.0, found.1), (expected.0, expected.1));
        let allowed: f64 = if expected.2 < 120.0 { 1e-11 } else { 2e-6 };
        assert!(
            (found.2 - expected.2).abs() <= allowed.max(least_error),
            "{found:?} {expected:?}"
        );
    }
}

/// Left and right rows around one place, or all over the sky, with a radius to match.
#[derive(Debug, Clone)]
struct Scene {
    left: Rows,
    right: Rows,
    radius: f64,
}

/// What becomes of a position: mostly nothing.
fn spoiled((ra, dec): (f64, f64), how: u8) -> (f64, f64) {
    match how {
        0 => (f64::NAN, dec),
        1 => (ra, f64::INFINITY),
        2 => (ra - 360.0, dec),
        3 => (ra + 36_000.0, dec),
        4 => (ra + 180.0, 180.0 - dec),
        5 => (ra, -90.0),
        _ => (ra, dec),
    }
}

/// Rows in a circle around a place, each as likely at any magnitude of distances.
fn clump(
    rows: impl Into<prop::collection::SizeRange>,
) -> impl Strategy<Value = Vec<(f64, f64, bool, u8)>> {
    prop::collection::vec(
        (
            0.0_f64..1.0,
            0.0_f64..360.0,
            prop::bool::weighted(0.2),
            0_u8..120,
        ),
        rows,
    )
}

/// Scenes around a place: `spread` radii wide, with places that are taken twice, and with spoiled positions.
fn clumps(
    right: impl Into<prop::collection::SizeRange>,
    radii: impl Strategy<Value = f64>,
) -> impl Strategy<Value = Scene> {
    (positions(), radii, 0.3_f64..6.0, clump(0..25), clump(right)).prop_map(
        |(centre, radius, spread, left, right)| {
            let placed = |rows: Vec<(f64, f64, bool, u8)>| {
                let mut placed: Rows = Vec::new();
                for (distance, direction, again, how) in rows {
                    let last = placed.last().copied().filter(|_| again);
                    let size = (spread * radius).min(180.0) * distance.sqrt();
                    let point = offset(centre, size, direction);
                    let point = (point.ra().degrees(), point.dec().degrees());
                    placed.push(last.unwrap_or(spoiled(point, how)));
                }
                placed
            };
            Scene {
                left: placed(left),
                right: placed(right),
                radius,
            }
        },
    )
}

/// Scenes all over the sky, which like poles, the seam and round degrees.
fn skies() -> impl Strategy<Value = Scene> {
    let rows = |count| prop::collection::vec((positions(), 0_u8..60), count);
    let radius = prop_oneof![
        sizes(),
        1.0_f64..60.0,
        Just(10.0),
        Just(90.0),
        Just(180.0),
        Just(0.0)
    ];
    (rows(0..20_usize), rows(0..300_usize), radius).prop_map(|(left, right, radius)| {
        let degrees = |rows: Vec<(meridian_sky::LonLat, u8)>| {
            let point = |(p, how): (meridian_sky::LonLat, u8)| {
                spoiled((p.ra().degrees(), p.dec().degrees()), how)
            };
            rows.into_iter().map(point).collect()
        };
        Scene {
            left: degrees(left),
            right: degrees(right),
            radius,
        }
    })
}

fn bounds() -> impl Strategy<Value = Bound> {
    prop_oneof![Just(Bound::Below), Just(Bound::AtMost)]
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn few_rows_of_any_kind(
        scene in prop_oneof![clumps(0..40, sizes()), skies()], bound in bounds(), some_null: bool,
    ) {
        let near = Near::Common(scene.radius, bound);
        check(&Side::new(&scene.left, some_null), &Side::new(&scene.right, some_null), &near);
    }

    /// The radius is the separation of a pair, or one step more or less.
    #[test]
    fn pairs_that_are_as_far_as_the_radius(
        scene in prop_oneof![clumps(1..60, sizes()), skies()],
        bound in bounds(), pick: (prop::sample::Index, prop::sample::Index), step in -1_i8..=1,
    ) {
        prop_assume!(!scene.left.is_empty() && !scene.right.is_empty());
        let (ra1, dec1) = *pick.0.get(&scene.left);
        let (ra2, dec2) = *pick.1.get(&scene.right);
        let mut separation = Vec::new();
        separation_degrees(&[ra1], &[dec1], &[ra2], &[dec2], &mut separation);
        prop_assume!(!separation[0].is_nan());
        let radius = match step {
            -1 => separation[0].next_down(),
            1 => separation[0].next_up(),
            _ => separation[0],
        };
        check(&Side::new(&scene.left, false), &Side::new(&scene.right, false), &Near::Common(radius, bound));
    }

    #[test]
    fn a_radius_for_each_row(
        scene in prop_oneof![clumps(0..60, sizes()), skies()],
        bound in bounds(), parts in prop::collection::vec(-0.2_f64..2.0, 25), some_null: bool,
    ) {
        let radii = parts[..scene.left.len()].iter().map(|part| match *part {
            part if part > 1.9 => f64::NAN,
            part if part > 1.8 => 0.0,
            part => part * scene.radius,
        });
        let near = Near::OfRow(radii.collect(), bound);
        check(&Side::new(&scene.left, some_null), &Side::new(&scene.right, some_null), &near);
    }
}

proptest! {
    #![proptest_config(cases(30))]

    /// Enough rows for several zones, and for circles with many rows that need no test.
    #[test]
    fn many_rows(scene in clumps(400..1000, sizes()), bound in bounds()) {
        let near = Near::Common(scene.radius, bound);
        check(&Side::new(&scene.left, true), &Side::new(&scene.right, true), &near);
    }

    /// Circles with a pole in them, touching one, or near one.
    #[test]
    fn many_rows_near_a_pole(
        mut scene in clumps(300..1000, 0.001_f64..59.0), south: bool, part in 0.0_f64..2.0, bound in bounds(),
    ) {
        let lift = |rows: &mut Rows| for (_, dec) in rows {
            let distance = 90.0 - dec.abs();
            let near_pole = 90.0 - (distance * scene.radius / 45.0).min(180.0);
            *dec = if south { -near_pole } else { near_pole };
        };
        lift(&mut scene.left);
        lift(&mut scene.right);
        // From here the circle of the radius goes through the pole, or nearly so.
        for (step, part) in [0.5, part, 1.0, 1.0, 1.0].into_iter().enumerate() {
            let dec = 90.0 - part * scene.radius + [0.0, 0.0, 0.0, 1e-13, -1e-13][step];
            scene.left.push((10.0 * step as f64, if south { -dec } else { dec }));
        }
        let near = Near::Common(scene.radius, bound);
        check(&Side::new(&scene.left, false), &Side::new(&scene.right, false), &near);
    }

    /// Both sides are the same rows.
    #[test]
    fn rows_with_themselves(
        scene in prop_oneof![clumps(50..300, sizes()), skies()], bound in bounds(), cut: prop::sample::Index,
    ) {
        let side = Side::new(&scene.right, true);
        let near = Near::Common(scene.radius, bound);
        check(&side, &side, &near);
        let index = NeighbourIndex::build(side.positions(), near.largest()).unwrap();
        let search = Search::new(&index, side.positions(), near.radii());
        let known = double_loop(&side, &side, &near);
        let pairs: usize = known.iter().map(Vec::len).sum();
        let radius = Radius::new(Angle::from_degrees(scene.radius), bound);
        let (middle, end) = (cut.index(index.parts().end + 1), index.parts().end);
        let counted = [0..middle, middle..end + 9].map(|part| index.count_own_pairs(radius, part));
        prop_assert_eq!(counted.iter().sum::<u64>(), pairs as u64);
        for (row, partners) in known.iter().enumerate() {
            let is_among = partners.iter().any(|(_, other)| *other as usize == row);
            prop_assert_eq!(search.pairs_with_itself(row as u32), is_among);
        }
    }

    /// A dense clump and rows all over the sky, so that bins are filled very unevenly.
    #[test]
    fn uneven_rows(scene in clumps(300..600, sizes()), sky in skies(), bound in bounds()) {
        let mut right = scene.right;
        right.extend(sky.right);
        let mut left = scene.left;
        left.extend(sky.left.iter().take(5));
        let near = Near::Common(scene.radius, bound);
        check(&Side::new(&left, true), &Side::new(&right, true), &near);
    }
}

#[test]
fn no_rows_have_no_pairs() {
    let none = Side::new(&Vec::new(), false);
    let one = Side::new(&vec![(10.0, 5.0)], false);
    let null = Side::new(&vec![(f64::NAN, 5.0)], false);
    for radius in [-1.0, 0.0, 1.0, 180.0, 1e300, f64::NAN] {
        let near = Near::Common(radius, Bound::AtMost);
        for (left, right) in [
            (&none, &none),
            (&none, &one),
            (&one, &none),
            (&one, &null),
            (&null, &one),
        ] {
            check(left, right, &near);
        }
        check(&one, &one, &near);
    }
}

#[test]
fn numbers_far_beyond_the_sky_have_the_separation_of_the_function() {
    let far: Rows = [1e3, -1e6, 1e9, 3e12, 1e15, 2e15, 1e300]
        .into_iter()
        .flat_map(|size| [(size, 5.0), (10.0, size), (-size, -size)])
        .chain((0..40).map(|row| (f64::from(9 * row), 0.1 * f64::from(row))))
        .collect();
    let side = Side::new(&far, false);
    let usual = Side::new(&far[21..].to_vec(), false);
    for radius in [0.0, 1e-9, 1.0, 30.0, 100.0] {
        let near = Near::Common(radius, Bound::AtMost);
        // What the double loop makes of separations that are NaN is what SQL makes of them: no pair.
        for (left, right) in [(&side, &usual), (&usual, &side), (&side, &side)] {
            let index = NeighbourIndex::build(right.positions(), near.largest()).unwrap();
            let search = Search::new(&index, left.positions(), near.radii());
            let known = double_loop(left, right, &near);
            check_counts(&search, &known, 0..left.ra.len() as u32 + 1);
            check_nearest(&search, &known, 0..left.ra.len() as u32 + 1);
            check_pairs(&search, &known, 0..left.ra.len() as u32 + 1, 5);
        }
    }
}

#[test]
fn rows_without_a_radius_have_no_partners() {
    let side = Side::new(&vec![(10.0, 5.0); 4], false);
    let index = NeighbourIndex::build(side.positions(), Angle::from_degrees(1.0)).unwrap();
    let bits = [0b0000_0101];
    let radii = Radii::of_rows(
        &[1.0, 1.0, 0.0],
        Some(Validity::new(&bits, 0)),
        Bound::AtMost,
    );
    let mut counts = Vec::new();
    Search::new(&index, side.positions(), radii).counts(0..4, &mut counts);
    assert_eq!(counts, [4, 0, 4, 0]);
}

#[test]
fn what_is_shared_between_threads_can_be() {
    fn is_send<T: Send>(_: &T) {}
    fn is_sync<T: Sync>(_: &T) {}
    let side = Side::new(&vec![(10.0, 5.0); 3], false);
    let index = NeighbourIndex::build(side.positions(), Angle::ZERO).unwrap();
    let search = Search::new(
        &index,
        side.positions(),
        Radii::common(Radius::at_most(Angle::ZERO)),
    );
    is_sync(&index);
    is_sync(&search);
    is_send(&search.pairs(0..3));
    assert_eq!((index.len(), index.is_empty()), (3, false));
    let error = SkyError::TooManyRows { given: 9, most: 8 }.to_string();
    assert!(error.contains("9 positions"), "{error}");
    let _ = at(0.0, 0.0);
}
