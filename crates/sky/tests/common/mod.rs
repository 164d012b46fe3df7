//! What the property tests draw from: positions that like poles, the seam and chunk edges, and regions of every size.

#![allow(dead_code, reason = "each test file takes what it needs")]

use meridian_sky::{Angle, LonLat, Region, UnitVector};
use proptest::prelude::*;

/// A position in degrees, valid.
pub fn at(ra: f64, dec: f64) -> LonLat {
    LonLat::from_degrees(ra, dec.clamp(-90.0, 90.0)).unwrap()
}

/// Any position: all over the sky, at and near poles and the seam, and on round degrees, where edges are.
pub fn positions() -> impl Strategy<Value = LonLat> {
    let small = || (-14.0_f64..1.0).prop_map(|exponent| 10.0_f64.powf(exponent));
    prop_oneof![
        4 => (0.0_f64..360.0, -1.0_f64..1.0).prop_map(|(ra, z)| at(ra, z.asin().to_degrees())),
        1 => (0.0_f64..360.0, small()).prop_map(|(ra, d)| at(ra, 90.0 - d)),
        1 => (0.0_f64..360.0, small()).prop_map(|(ra, d)| at(ra, -90.0 + d)),
        1 => (small(), -90.0_f64..90.0).prop_map(|(d, dec)| at(d, dec)),
        1 => (small(), -90.0_f64..90.0).prop_map(|(d, dec)| at(360.0 - d, dec)),
        1 => (0..=36, -18..=18).prop_map(|(ra, dec)| at(10.0 * f64::from(ra), 5.0 * f64::from(dec))),
    ]
}

/// An angle in (0, 180] degrees, from a thousandth of a milliarcsecond to half a turn, each magnitude alike.
pub fn sizes() -> impl Strategy<Value = f64> {
    (-10.0_f64..2.2553).prop_map(|exponent| 10.0_f64.powf(exponent).min(180.0))
}

/// The point at a distance and a direction (from north through east) from another.
pub fn offset(from: LonLat, distance: f64, direction: f64) -> LonLat {
    let (sin_d, cos_d) = Angle::from_degrees(distance).sin_cos();
    let (sin_t, cos_t) = Angle::from_degrees(direction).sin_cos();
    let (sin_ra, cos_ra) = from.ra().sin_cos();
    let (sin_dec, cos_dec) = from.dec().sin_cos();
    let v = UnitVector::from(from);
    let part = |towards: f64, north: f64, east: f64| {
        cos_d * towards + sin_d * (cos_t * north + sin_t * east)
    };
    let vector = [
        part(v.x(), -sin_dec * cos_ra, -sin_ra),
        part(v.y(), -sin_dec * sin_ra, cos_ra),
        part(v.z(), cos_dec, 0.0),
    ];
    UnitVector::from_vector(vector).unwrap().into()
}

/// A region with its centre and its size in degrees.
#[derive(Debug, Clone)]
pub struct Shape {
    pub region: Region,
    pub centre: LonLat,
    pub size: f64,
}

/// Any circle.
pub fn circles() -> impl Strategy<Value = Shape> {
    (
        positions(),
        prop_oneof![8 => sizes(), 1 => Just(0.0), 1 => Just(180.0)],
    )
        .prop_map(|(centre, size)| Shape {
            region: Region::circle_degrees(centre.ra().degrees(), centre.dec().degrees(), size)
                .unwrap(),
            centre,
            size,
        })
}

/// Any box, also one that goes all around, is a line or a point.
pub fn boxes() -> impl Strategy<Value = Shape> {
    let widths = prop_oneof![8 => sizes(), 1 => Just(0.0), 1 => 180.0_f64..400.0];
    (positions(), widths, sizes()).prop_map(|(corner, width, height)| {
        let (ra, dec) = (corner.ra().degrees(), corner.dec().degrees());
        let top = (dec + height).min(90.0);
        Shape {
            region: Region::box_degrees(ra, dec, ra + width, top).unwrap(),
            centre: at(ra + 0.5 * width.min(360.0), 0.5 * (dec + top)),
            size: width.min(180.0).max(height),
        }
    })
}

/// Any ellipse.
pub fn ellipses() -> impl Strategy<Value = Shape> {
    (positions(), sizes(), 0.0_f64..=1.0, -400.0_f64..400.0).prop_map(
        |(centre, size, ratio, angle)| {
            let size = size.min(89.9);
            let (ra, dec) = (centre.ra().degrees(), centre.dec().degrees());
            Shape {
                region: Region::ellipse_degrees(ra, dec, size, size * ratio, angle).unwrap(),
                centre,
                size,
            }
        },
    )
}

/// Polygons with 3 to 8 corners on a circle around a point, either way round.
pub fn polygons() -> impl Strategy<Value = Shape> {
    let gaps = prop::collection::vec(1.0_f64..6.0, 3..9);
    (positions(), sizes(), gaps, 0.0_f64..360.0, any::<bool>()).prop_map(
        |(centre, size, gaps, start, backwards)| {
            // Corners on less than a hemisphere, and far enough apart to be told from each other.
            let size = size.clamp(1e-7, 80.0);
            let whole: f64 = gaps.iter().sum();
            let mut direction = start;
            let mut corners: Vec<(f64, f64)> = Vec::new();
            for gap in gaps {
                let corner = offset(centre, size, direction % 360.0);
                corners.push((corner.ra().degrees(), corner.dec().degrees()));
                direction += 360.0 * gap / whole;
            }
            if backwards {
                corners.reverse();
            }
            Shape {
                region: Region::polygon_degrees(&corners).unwrap(),
                centre,
                size,
            }
        },
    )
}

/// Any region.
pub fn shapes() -> impl Strategy<Value = Shape> {
    prop_oneof![circles(), boxes(), ellipses(), polygons()]
}

/// Any region, and points in it and around it.
pub fn shapes_with_points() -> impl Strategy<Value = (Shape, Vec<LonLat>)> {
    let places = prop::collection::vec((0.0_f64..1.3, 0.0_f64..360.0), 24);
    (shapes(), places).prop_map(|(shape, places)| {
        let mut points: Vec<LonLat> = places
            .into_iter()
            .map(|(distance, direction)| {
                offset(shape.centre, (shape.size * distance).min(180.0), direction)
            })
            .collect();
        points.push(shape.centre);
        if let Region::Polygon(polygon) = &shape.region {
            points.extend(polygon.corners());
        }
        if let Region::Box(b) = &shape.region {
            points.push(at(b.ra_min(), b.dec_min()));
            points.push(at(b.ra_max(), b.dec_max()));
        }
        (shape, points)
    })
}
