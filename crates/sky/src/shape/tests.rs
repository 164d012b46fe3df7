//! Laws of shapes, and values that were worked out by hand.

use super::*;
use crate::Region;
use proptest::prelude::*;

fn point(ra: f64, dec: f64) -> Shape {
    Shape::Point(LonLat::from_degrees(ra, dec).unwrap())
}

fn circle(ra: f64, dec: f64, radius: f64) -> Shape {
    Shape::circle_degrees(ra, dec, radius).unwrap()
}

fn polygon(numbers: &[f64]) -> Shape {
    Shape::polygon_degrees(numbers).unwrap()
}

fn square(ra: f64, dec: f64, side: f64) -> Shape {
    polygon(&box_corners(ra, dec, side, side).unwrap())
}

#[test]
fn circles_lie_in_each_other_by_their_radii() {
    let outer = circle(359.5, 0.0, 2.0);
    assert!(outer.contains(&circle(0.5, 0.0, 1.0)));
    assert!(!outer.contains(&circle(0.5, 0.0, 1.1)));
    assert!(outer.intersects(&circle(3.0, 0.0, 1.6)));
    assert!(!outer.intersects(&circle(3.0, 0.0, 1.4)));
    assert!(circle(1.0, 2.0, 180.0).contains(&square(77.0, -80.0, 20.0)));
}

#[test]
fn polygons_hold_what_is_within_their_edges() {
    let big = square(0.0, 89.0, 10.0);
    assert!(big.contains(&square(120.0, 89.5, 2.0)));
    assert!(big.contains(&circle(0.0, 90.0, 3.9)));
    assert!(!big.contains(&circle(0.0, 90.0, 4.1)));
    assert!(big.intersects(&circle(0.0, 80.0, 4.1)));
    assert!(!big.intersects(&circle(0.0, 80.0, 3.9)));
    assert!(big.contains(&big));
    assert!(circle(0.0, 89.0, 7.1).contains(&big));
    assert!(!circle(0.0, 89.0, 7.0).contains(&big));
    // A cross of two: no corner of one is in the other.
    let [lying, standing] =
        [[20.0, 2.0], [2.0, 20.0]].map(|[w, h]| polygon(&box_corners(10.0, 20.0, w, h).unwrap()));
    assert!(lying.intersects(&standing) && standing.intersects(&lying));
    assert!(!lying.contains(&standing));
    assert!(!lying.intersects(&square(10.0, 40.0, 3.0)));
}

#[test]
fn a_notch_is_outside() {
    let notched = polygon(&[
        350.0, 0.0, 10.0, 0.0, 10.0, 10.0, 5.0, 10.0, 5.0, 5.0, 355.0, 5.0, 355.0, 10.0, 350.0,
        10.0,
    ]);
    assert!(!notched.contains(&point(0.0, 8.0)));
    assert!(!notched.intersects(&circle(0.0, 8.0, 2.0)));
    assert!(notched.intersects(&circle(0.0, 8.0, 4.0)));
    assert!(notched.contains(&square(0.0, 2.5, 2.0)));
    // Over the notch: its corners are inside, but not all between them.
    let bridge = polygon(&[352.0, 8.0, 8.0, 8.0, 8.0, 9.0, 352.0, 9.0]);
    assert!(!notched.contains(&bridge));
    assert!(notched.intersects(&bridge));
    assert!(!notched.intersects(&square(0.0, 8.0, 1.0)));
}

#[test]
fn areas_and_centres_are_those_of_the_sphere() {
    let sky = 360.0 * 360.0 / std::f64::consts::PI;
    assert!((circle(5.0, 5.0, 180.0).area_square_degrees() - sky).abs() < 1e-9);
    assert!((circle(5.0, 5.0, 90.0).area_square_degrees() - sky / 2.0).abs() < 1e-9);
    assert_eq!(point(1.0, 2.0).area_square_degrees(), 0.0);
    // A square second of arc.
    let second = 1.0 / 3600.0;
    for dec in [0.0, 60.0, -89.9] {
        let tiny = square(0.0, dec, second);
        let relative = tiny.area_square_degrees() / (second * second) - 1.0;
        assert!(relative.abs() < 1e-9, "{dec} {relative}");
        let off = separation(tiny.centroid(), LonLat::from_degrees(0.0, dec).unwrap());
        assert!(off.arcsec() < 1e-4, "{dec} {}", off.arcsec());
    }
}

#[test]
fn a_box_has_sides_through_the_ends_of_its_arms() {
    let corners = box_corners(0.0, 0.0, 10.0, 10.0).unwrap();
    // tan(dec) = tan(5°) cos(5°)
    let dec = (5.0_f64.to_radians().tan() * 5.0_f64.to_radians().cos())
        .atan()
        .to_degrees();
    for (corner, expected) in
        corners
            .chunks(2)
            .zip([(355.0, -dec), (5.0, -dec), (5.0, dec), (355.0, dec)])
    {
        assert!((corner[0] - expected.0).abs() < 1e-12 && (corner[1] - expected.1).abs() < 1e-12);
    }
    let tilted = square(40.0, 60.0, 20.0);
    assert!(tilted.contains(&point(40.0, 69.999_999)));
    assert!(!tilted.contains(&point(40.0, 70.000_001)));
    for (width, height) in [(0.0, 1.0), (1.0, -1.0), (180.0, 1.0), (1.0, f64::NAN)] {
        assert!(matches!(
            box_corners(0.0, 0.0, width, height),
            Err(SkyError::BoxSides { .. })
        ));
    }
}

/// A circle, box or star-shaped polygon somewhere, poles and the seam among them.
fn shapes() -> impl Strategy<Value = Shape> {
    let place = (
        prop::sample::select(vec![0.0, 0.3, 120.0, 359.7]),
        prop::sample::select(vec![-90.0, -88.0, -30.0, 0.0, 45.0, 89.5, 90.0]),
        -3.0_f64..3.0,
        -3.0_f64..3.0,
    )
        .prop_map(|(ra, dec, x, y)| (ra + x, f64::clamp(dec + y, -90.0, 90.0)));
    prop_oneof![
        place.clone().prop_map(|(ra, dec)| point(ra, dec)),
        (place.clone(), 0.0_f64..8.0).prop_map(|((ra, dec), r)| circle(ra, dec, r)),
        (place.clone(), 0.1_f64..8.0, 0.1_f64..8.0)
            .prop_map(|((ra, dec), w, h)| polygon(&box_corners(ra, dec, w, h).unwrap())),
        (place, proptest::collection::vec(0.3_f64..6.0, 5..12))
            .prop_map(|(centre, reaches)| star(centre, &reaches)),
    ]
}

/// Corners at equal turns around a centre, each at its own distance.
fn star((ra, dec): (f64, f64), reaches: &[f64]) -> Shape {
    let centre = LonLat::from_degrees(ra, dec).unwrap();
    let mut numbers = Vec::new();
    for (at, reach) in reaches.iter().enumerate() {
        let turn = std::f64::consts::TAU * at as f64 / reaches.len() as f64;
        let (sine, cosine) = turn.sin_cos();
        let corners = box_corners(
            centre.ra().degrees(),
            centre.dec().degrees(),
            2.0 * reach * sine.abs().max(1e-3),
            2.0 * reach * cosine.abs().max(1e-3),
        )
        .unwrap();
        // Of the box's corners the one in the direction of the turn: east, then north.
        let corner = match (sine > 0.0, cosine > 0.0) {
            (false, false) => 0,
            (true, false) => 1,
            (true, true) => 2,
            (false, true) => 3,
        };
        numbers.extend_from_slice(&corners[2 * corner..2 * corner + 2]);
    }
    polygon(&numbers)
}

/// Points of the neighbourhood of the shapes.
fn points_near(shape: &Shape) -> Vec<Shape> {
    let centre = shape.centroid();
    let (ra, dec) = (centre.ra().degrees(), centre.dec().degrees());
    let mut points = vec![Shape::Point(centre)];
    for step in 1..12 {
        let side = 2.0 * f64::from(step);
        let corners = box_corners(ra, dec, side, side * 0.7).unwrap();
        points.extend(corners.chunks(2).map(|corner| point(corner[0], corner[1])));
    }
    points
}

/// A box on the equator did not meet itself: rounding put each of its corners outside.
#[test]
fn a_shape_meets_itself() {
    let corners = [
        [
            0.9978083571456315,
            -0.047308214822076804,
            -0.04626462169610924,
        ],
        [
            0.9986895413799057,
            0.021881149826032023,
            -0.04626462169610924,
        ],
        [
            0.9986895413799057,
            0.021881149826032023,
            0.04626462169610924,
        ],
        [
            0.9978083571456315,
            -0.047308214822076804,
            0.04626462169610924,
        ],
    ];
    let places = corners.map(|[x, y, z]| LonLat::from(UnitVector::from_components(x, y, z)));
    let shape = Shape::Polygon(Polygon::new(&places).unwrap());
    assert!(shape.intersects(&shape));
    assert!(shape.contains(&shape));
}

proptest! {
    #[test]
    fn shapes_keep_the_laws(a in shapes(), b in shapes()) {
        prop_assert_eq!(a.intersects(&b), b.intersects(&a));
        prop_assert!(a.intersects(&a));
        if a.contains(&b) {
            prop_assert!(a.intersects(&b));
            prop_assert!(b.area_square_degrees() <= a.area_square_degrees() + 1e-9);
        }
        for p in points_near(&a).iter().chain(&points_near(&b)) {
            let (in_a, in_b) = (a.contains(p), b.contains(p));
            if in_a && in_b {
                prop_assert!(a.intersects(&b));
            }
            // Rounding can move a point at an edge to its other side.
            let clear = match &a {
                Shape::Circle(centre, radius) => {
                    let Shape::Point(p) = p else { unreachable!() };
                    (separation(*centre, *p) - *radius).arcsec().abs() > 1e-6
                }
                Shape::Polygon(polygon) => {
                    let Shape::Point(p) = p else { unreachable!() };
                    polygon.distance_to_edge(UnitVector::from(*p)).arcsec() > 1e-6
                }
                Shape::Point(_) => false,
            };
            if clear && in_b && !in_a {
                prop_assert!(!a.contains(&b));
            }
        }
    }

    /// Turning a polygon around or starting elsewhere changes nothing.
    #[test]
    fn corners_may_begin_anywhere(ra in 0.0_f64..360.0, dec in -80.0_f64..80.0, from in 0_usize..8) {
        let numbers = [0.0, 0.0, 4.0, 0.0, 4.0, 4.0, 2.0, 1.0];
        let corners: Vec<(f64, f64)> = numbers.chunks(2).map(|c| (ra + c[0], dec + c[1])).collect();
        let mut turned = corners.clone();
        turned.rotate_left(from % 4);
        if from >= 4 { turned.reverse(); }
        let flat = |corners: &[(f64, f64)]| corners.iter().flat_map(|c| [c.0, c.1]).collect::<Vec<f64>>();
        let (one, other) = (polygon(&flat(&corners)), polygon(&flat(&turned)));
        prop_assert!((one.area_square_degrees() - other.area_square_degrees()).abs() < 1e-9);
        prop_assert!(separation(one.centroid(), other.centroid()).arcsec() < 1e-6);
        for p in points_near(&one) {
            prop_assert_eq!(one.contains(&p), other.contains(&p));
        }
    }

    /// A polygon that is convex holds the points that its region holds.
    #[test]
    fn convex_polygons_are_regions(ra in 0.0_f64..360.0, dec in -90.0_f64..90.0, w in 0.01_f64..100.0, h in 0.01_f64..100.0) {
        let corners = box_corners(ra, dec, w, h).unwrap();
        let pairs: Vec<(f64, f64)> = corners.chunks(2).map(|c| (c[0], c[1])).collect();
        let (region, shape) = (Region::polygon_degrees(&pairs).unwrap(), polygon(&corners));
        for p in points_near(&shape) {
            let Shape::Point(place) = &p else { unreachable!() };
            prop_assert_eq!(region.contains(*place), shape.contains(&p));
        }
    }
}
