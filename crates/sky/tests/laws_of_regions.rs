//! What must hold for every region.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    reason = "a failure is the test's own message"
)]

mod common;

use common::{
    at, boxes, circles, ellipses, offset, polygons, positions, shapes, shapes_with_points, sizes,
};
use meridian_sky::{Angle, LonLat, LonLatBox, Region, SkyError, UnitVector, separation};
use proptest::prelude::*;

/// Positions computed through vectors, as the tests make them, are off by a few roundings of a unit vector.
const SLACK: f64 = 1e-13;

/// The box of a region that is one.
fn box_of(region: &Region) -> LonLatBox {
    match region {
        Region::Box(b) => *b,
        other => other.envelope_box(),
    }
}

/// Points of a box: a grid over it, edges included.
fn grid(b: &LonLatBox, n: u32) -> Vec<LonLat> {
    let step = |i: u32, from: f64, length: f64| from + length * f64::from(i) / f64::from(n);
    let mut points = Vec::new();
    for i in 0..=n {
        for j in 0..=n {
            let ra = step(i, b.ra_min(), b.width().degrees());
            let dec = step(j, b.dec_min(), b.height().degrees());
            points.push(at(ra, dec.clamp(b.dec_min(), b.dec_max())));
        }
    }
    points
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_slice_gets_the_same_answers((shape, points) in shapes_with_points(), turns in -2_i32..3) {
        let ra: Vec<f64> = points.iter().map(|p| p.ra().degrees() + 360.0 * f64::from(turns)).collect();
        let dec: Vec<f64> = points.iter().map(|p| p.dec().degrees()).collect();
        let mut out = vec![true; 3];
        shape.region.contains_degrees(&ra, &dec, &mut out);
        let alone: Vec<bool> = ra
            .iter()
            .zip(&dec)
            .map(|(&ra, &dec)| shape.region.contains(LonLat::from_degrees(ra, dec).unwrap()))
            .collect();
        prop_assert_eq!(out, alone);
    }

    #[test]
    fn the_envelope_holds_the_region((shape, points) in shapes_with_points()) {
        let envelope = shape.region.envelope_box();
        for p in points {
            prop_assert!(!shape.region.contains(p) || envelope.contains(p), "{p}");
        }
    }

    #[test]
    fn text_reads_back(shape in shapes()) {
        prop_assert_eq!(shape.region.to_string().parse::<Region>(), Ok(shape.region));
    }

    #[test]
    fn a_box_with_a_common_point_may_intersect((shape, points) in shapes_with_points(), other in boxes()) {
        let b = box_of(&other.region);
        for p in points.into_iter().chain(grid(&b, 3)) {
            let common = shape.region.contains(p) && b.contains(p);
            prop_assert!(!common || shape.region.may_intersect(&b), "{p}");
        }
    }

    #[test]
    fn a_small_box_around_a_point_of_the_region_may_intersect(
        (shape, points) in shapes_with_points(),
        size in sizes(),
    ) {
        for p in points.into_iter().filter(|&p| shape.region.contains(p)) {
            let b = LonLatBox::point(p).dilated(Angle::from_degrees(size.min(10.0)));
            prop_assert!(shape.region.may_intersect(&b), "{p}");
        }
    }

    #[test]
    fn a_box_surely_contained_is_contained(shape in shapes(), other in boxes(), scale in 0.0_f64..1.0) {
        // A box of the region's own surroundings, since one from anywhere is hardly ever inside.
        let inner = LonLatBox::point(shape.centre).dilated(Angle::from_degrees(shape.size * scale));
        for b in [inner, box_of(&other.region)] {
            if shape.region.surely_contains(&b) {
                for p in grid(&b, 4) {
                    prop_assert!(shape.region.contains(p), "{b} {p}");
                }
            }
        }
    }

    #[test]
    fn a_circle_holds_what_is_near(shape in circles(), distance in 0.0_f64..2.0, direction in 0.0_f64..360.0) {
        let p = offset(shape.centre, (shape.size * distance).min(180.0), direction);
        let gap = separation(shape.centre, p).degrees() - shape.size;
        if gap.abs() > 1e-15 * shape.size + 1e-14 * shape.size.powi(2) / 180.0 {
            prop_assert_eq!(shape.region.contains(p), gap < 0.0, "{}", gap);
        }
    }

    #[test]
    fn a_round_ellipse_is_a_circle(centre in positions(), size in 1e-9_f64..89.0, angle in 0.0_f64..360.0,
                                   distance in 0.0_f64..2.0, direction in 0.0_f64..360.0) {
        let (ra, dec) = (centre.ra().degrees(), centre.dec().degrees());
        let ellipse = Region::ellipse_degrees(ra, dec, size, size, angle).unwrap();
        let circle = Region::circle_degrees(ra, dec, size).unwrap();
        let p = offset(centre, size * distance, direction);
        if (separation(centre, p).degrees() - size).abs() > SLACK {
            prop_assert_eq!(ellipse.contains(p), circle.contains(p));
        }
    }

    /// The definition by foci, computed from unit vectors, against the one by the cone.
    #[test]
    fn an_ellipse_is_where_the_distances_to_the_foci_add_up(
        centre in positions(), major in 0.01_f64..89.0, ratio in 0.01_f64..1.0, angle in 0.0_f64..360.0,
        distance in 0.0_f64..1.2, direction in 0.0_f64..360.0,
    ) {
        let minor = major * ratio;
        let region = Region::ellipse_degrees(centre.ra().degrees(), centre.dec().degrees(), major, minor, angle);
        let cosine = |degrees: f64| Angle::from_degrees(degrees).sin_cos().1;
        let gamma = (cosine(major) / cosine(minor)).min(1.0).acos().to_degrees();
        let foci = [offset(centre, gamma, angle), offset(centre, gamma, angle + 180.0)];
        let p = offset(centre, major * distance, direction);
        let sum: f64 = foci.iter().map(|&focus| separation(focus, p).degrees()).sum();
        // The arc cosine knows a small γ only to the square root of a rounding.
        if (sum - 2.0 * major).abs() > 1e-5 {
            prop_assert_eq!(region.unwrap().contains(p), sum < 2.0 * major, "{}", sum - 2.0 * major);
        }
    }

    #[test]
    fn an_ellipse_reaches_just_as_far_as_its_axes(shape in ellipses(), end in 0..4) {
        let Region::Ellipse(ellipse) = &shape.region else { return Ok(()) };
        let axis = if end % 2 == 0 { ellipse.semi_major() } else { ellipse.semi_minor() }.degrees();
        prop_assume!(ellipse.semi_minor().degrees() > 1e-9 && axis < 89.0);
        let direction = (ellipse.position_angle().degrees() + 90.0 * f64::from(end)) % 360.0;
        let slack = 1e-6 * axis + SLACK;
        prop_assert!(shape.region.contains(offset(shape.centre, (axis - slack).max(0.0), direction)));
        prop_assert!(!shape.region.contains(offset(shape.centre, axis + slack, direction)));
    }

    #[test]
    fn a_polygon_holds_its_corners_and_centre_but_not_what_is_beyond(shape in polygons(), direction in 0.0_f64..360.0) {
        let Region::Polygon(polygon) = &shape.region else { return Ok(()) };
        for &corner in polygon.corners() {
            prop_assert!(polygon.contains(corner), "{corner}");
        }
        let sum = polygon.corners().iter().fold([0.0; 3], |[x, y, z], &corner| {
            let v = UnitVector::from(corner);
            [x + v.x(), y + v.y(), z + v.z()]
        });
        prop_assert!(polygon.contains(UnitVector::from_vector(sum).unwrap().into()));
        prop_assert!(!polygon.contains(offset(shape.centre, shape.size * 1.001, direction)));
        prop_assert!(!polygon.contains(shape.centre.antipode()));
    }

    #[test]
    fn a_polygon_is_the_same_from_any_corner_either_way_round(shape in polygons(), start in 0_usize..8,
                                                             distance in 0.0_f64..1.0, direction in 0.0_f64..360.0) {
        let Region::Polygon(polygon) = &shape.region else { return Ok(()) };
        let mut corners: Vec<(f64, f64)> =
            polygon.corners().iter().map(|c| (c.ra().degrees(), c.dec().degrees())).collect();
        let n = corners.len();
        corners.rotate_left(start % n);
        let turned = Region::polygon_degrees(&corners).unwrap();
        corners.reverse();
        corners.push(corners[0]);
        let reversed = Region::polygon_degrees(&corners).unwrap();
        let p = offset(shape.centre, shape.size * distance, direction);
        prop_assert_eq!(turned.contains(p), shape.region.contains(p));
        prop_assert_eq!(reversed.contains(p), shape.region.contains(p));
    }

    #[test]
    fn a_dent_makes_a_polygon_not_convex(centre in positions(), size in 0.001_f64..60.0, turn in 0.0_f64..360.0) {
        let directions = [0.0, 90.0, 180.0, 270.0];
        let corner = |i: usize, distance: f64| {
            let p = offset(centre, distance, (turn + directions[i]) % 360.0);
            (p.ra().degrees(), p.dec().degrees())
        };
        let dented = [corner(0, size), corner(1, size), corner(2, size), corner(3, -0.2 * size)];
        let crossed = [corner(0, size), corner(2, size), corner(1, size), corner(3, size)];
        for corners in [dented, crossed] {
            let rejected = Region::polygon_degrees(&corners);
            let not_convex = matches!(rejected, Err(SkyError::PolygonNotConvex { .. }));
            prop_assert!(not_convex, "{rejected:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Against the smallest of the distances to a fine grid on the box.
    #[test]
    fn distance_to_a_box_is_that_of_its_nearest_point(shape in boxes(), p in positions()) {
        let b = box_of(&shape.region);
        let found = b.separation(p).degrees();
        let nearest = grid(&b, 60).into_iter().map(|q| separation(p, q).degrees()).fold(f64::INFINITY, f64::min);
        let farthest = grid(&b, 60).into_iter().map(|q| separation(p, q).degrees()).fold(0.0, f64::max);
        // No grid point is nearer, and the nearest is off by at most half a step each way.
        let step = (b.width().degrees() + b.height().degrees()) / 120.0;
        prop_assert!(found <= nearest + SLACK, "{found} {nearest}");
        prop_assert!(found >= nearest - step - SLACK, "{found} {nearest}");
        prop_assert_eq!(b.contains(p), found <= 0.0 && b.contains(p));
        let largest = b.largest_separation(p).degrees();
        prop_assert!(largest >= farthest - SLACK && largest <= farthest + step + SLACK, "{largest} {farthest}");
    }

    #[test]
    fn a_dilated_box_holds_what_is_within_the_margin(shape in boxes(), margin in sizes(),
                                                      direction in 0.0_f64..360.0, share in 0.0_f64..=1.0) {
        let b = box_of(&shape.region);
        let dilated = b.dilated(Angle::from_degrees(margin));
        prop_assert!(dilated.contains_box(&b));
        for corner in grid(&b, 2) {
            let near = offset(corner, margin * share, direction);
            prop_assert!(dilated.contains(near) || dilated.separation(near).degrees() < SLACK, "{near}");
        }
    }

    #[test]
    fn a_union_holds_both(first in boxes(), second in boxes()) {
        let (a, b) = (box_of(&first.region), box_of(&second.region));
        let (ab, ba) = (a.union(&b), b.union(&a));
        prop_assert!(ab.width().degrees() - ba.width().degrees() < 1e-9);
        for p in grid(&a, 4).into_iter().chain(grid(&b, 4)) {
            // The grid's own points may be a rounding outside of the box.
            prop_assert!(ab.contains(p) || ab.separation(p).degrees() < SLACK, "{p} {ab}");
        }
        prop_assert!(ab.width() <= Angle::from_degrees(360.0));
    }

    #[test]
    fn bounds_of_positions_hold_them_all(points in prop::collection::vec(positions(), 1..20)) {
        let bounds = points.iter().fold(LonLatBox::point(points[0]), |bounds, &p| bounds.extend(p));
        for p in points {
            prop_assert!(bounds.contains(p));
        }
    }

    #[test]
    fn boxes_intersect_as_numbers_do(first in boxes(), second in boxes()) {
        let (a, b) = (box_of(&first.region), box_of(&second.region));
        prop_assert_eq!(a.intersects(&b), b.intersects(&a));
        let common = grid(&a, 8).into_iter().any(|p| a.contains(p) && b.contains(p));
        prop_assert!(!common || a.intersects(&b));
        if a.contains_box(&b) {
            prop_assert!(a.intersects(&b));
            prop_assert!(grid(&b, 4).into_iter().all(|p| a.contains(p) || a.separation(p).degrees() < SLACK));
        }
    }
}

#[test]
fn boxes_through_the_seam() {
    let region: Region = "box 350 -1 10 1".parse().unwrap();
    for (ra, inside) in [
        (350.0, true),
        (359.9, true),
        (0.0, true),
        (10.0, true),
        (10.1, false),
        (349.9, false),
    ] {
        assert_eq!(region.contains(at(ra, 0.0)), inside, "{ra}");
    }
    for (given, same) in [
        ("box -10 -1 10 1", "box 350 -1 10 1"),
        ("box 350 -1 370 1", "box 350 -1 10 1"),
    ] {
        assert_eq!(
            given.parse::<Region>().unwrap(),
            same.parse::<Region>().unwrap()
        );
    }
    let to_the_seam: Region = "box 350 -1 360 1".parse().unwrap();
    assert!(to_the_seam.contains(at(0.0, 0.0)) && !to_the_seam.contains(at(0.1, 0.0)));
    let all: Region = "box 5 -1 365 1".parse().unwrap();
    assert!(all.contains(at(4.0, 0.0)) && all.contains(at(6.0, 0.0)));
}

#[test]
fn the_whole_sky_and_single_points() {
    let everything: Region = "circle 12 34 180".parse().unwrap();
    let point: Region = "circle 12 34 0".parse().unwrap();
    let ellipse: Region = "ellipse 12 34 0 0 77".parse().unwrap();
    for (ra, dec) in [
        (12.0, 34.0),
        (192.0, -34.0),
        (0.0, 90.0),
        (0.0, -90.0),
        (300.0, 1.0),
    ] {
        let p = at(ra, dec);
        assert!(everything.contains(p));
        assert_eq!(point.contains(p), (ra, dec) == (12.0, 34.0));
        assert_eq!(ellipse.contains(p), (ra, dec) == (12.0, 34.0));
    }
    assert_eq!(everything.envelope_box(), LonLatBox::FULL);
}

#[test]
fn no_region_holds_what_is_no_position() {
    for text in [
        "circle 0 0 180",
        "box 0 -90 360 90",
        "ellipse 0 0 89 89 0",
        "polygon 0 0 90 0 0 90",
    ] {
        let region: Region = text.parse().unwrap();
        let mut out = Vec::new();
        let ra = [f64::NAN, 1.0, f64::INFINITY, 1.0, 1.0, 1.0];
        let dec = [0.0, f64::NAN, 0.0, 90.5, -91.0, 0.5];
        region.contains_degrees(&ra, &dec, &mut out);
        assert_eq!(out, [false, false, false, false, false, true], "{text}");
    }
}

#[test]
fn polygons_that_cannot_be() {
    let rejected = |corners: &[(f64, f64)]| Region::polygon_degrees(corners).unwrap_err();
    assert!(matches!(
        rejected(&[]),
        SkyError::PolygonCorners { given: 0, .. }
    ));
    assert!(matches!(
        rejected(&[(0.0, 0.0), (1.0, 1.0)]),
        SkyError::PolygonCorners { .. }
    ));
    let on_the_equator = rejected(&[(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]);
    assert!(
        matches!(on_the_equator, SkyError::PolygonCorners { given: 3, .. }),
        "{on_the_equator}"
    );
    let point = rejected(&[(5.0, 5.0); 4]);
    assert!(
        matches!(
            point,
            SkyError::PolygonCorners {
                given: 4,
                distinct: 1
            }
        ),
        "{point}"
    );
    assert!(matches!(
        rejected(&[(0.0, 0.0), (0.0, 91.0), (1.0, 1.0)]),
        SkyError::Declination(_)
    ));
    let too_large = rejected(&[(0.0, -10.0), (120.0, -10.0), (240.0, -10.0), (240.0, -10.1)]);
    assert!(
        matches!(
            too_large,
            SkyError::PolygonNotConvex { .. } | SkyError::PolygonTooLarge
        ),
        "{too_large}"
    );
}

/// A polygon around a pole has every right ascension, and the pole itself.
#[test]
fn a_polygon_around_a_pole() {
    let region: Region = "polygon 0 80 120 80 240 80".parse().unwrap();
    let envelope = region.envelope_box();
    assert!(region.contains(at(77.0, 90.0)) && region.contains(at(300.0, 86.0)));
    assert!(envelope.is_all_around() && envelope.dec_max() >= 90.0);
    assert!((79.99..80.0).contains(&envelope.dec_min()));
}

/// The envelope of a detector's field is no wider than the field, wherever it lies: it tells which chunks are read.
#[test]
fn small_polygons_have_small_envelopes() {
    for number in 0..20_000 {
        let dec = f64::from(number % 171) - 85.0;
        let (ra, side) = (f64::from(number) * 137.508 % 360.0, 0.25);
        let (east, north) = (ra + side / dec.to_radians().cos(), dec + side);
        let corners = [(ra, dec), (east, dec), (east, north), (ra, north)];
        let corners = corners.map(|(ra, dec)| (ra % 360.0, dec));
        let envelope = Region::polygon_degrees(&corners).unwrap().envelope_box();
        let width = envelope.width().degrees();
        assert!(
            (width - (east - ra)).abs() < 1e-9,
            "{ra} {dec}: {width} wide"
        );
        // Edges bulge towards the pole.
        let height = envelope.height().degrees();
        assert!(
            (side..side + 0.01).contains(&height),
            "{ra} {dec}: {height} high"
        );
    }
}

/// Corners that lie on an edge, as cut-outs of images have them, do not make a polygon concave.
#[test]
fn corners_on_an_edge_do_no_harm() {
    let square = [(10.0, 10.0), (12.0, 10.0), (12.0, 12.0), (10.0, 12.0)];
    let plain = Region::polygon_degrees(&square).unwrap();
    let on_meridian = [
        square[0],
        square[1],
        (12.0, 10.7),
        (12.0, 11.3),
        square[2],
        square[2],
        square[3],
    ];
    let richer = Region::polygon_degrees(&on_meridian).unwrap();
    for (ra, dec) in [
        (11.0, 11.0),
        (12.0, 10.7),
        (12.1, 11.0),
        (11.0, 12.0),
        (11.0, 9.99),
        (11.0, 10.0005),
    ] {
        assert_eq!(
            plain.contains(at(ra, dec)),
            richer.contains(at(ra, dec)),
            "{ra} {dec}"
        );
    }
}
