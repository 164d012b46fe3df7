//! [`Polygon`]: corners joined by great circles, convex or not.

use std::cmp::Ordering;

use super::arc::{Arc, cross};
use crate::orientation::orientation;
use crate::region::{MARGIN, pole_of};
use crate::{Angle, ConvexPolygon, LonLat, SkyError, UnitVector};

/// The widest a polygon that is not convex may be: all its corners within less than this of one point.
const WIDEST: Angle = Angle::from_degrees(90.0);

/// All points inside of a ring of great-circle arcs, or on it. The inside is the smaller part of the sky.
#[derive(Debug, Clone, PartialEq)]
pub struct Polygon {
    /// Anti-clockwise, without repetitions.
    vertices: Vec<UnitVector>,
    /// A point from which all vertices are less than a quarter turn away, and how far they are.
    centre: UnitVector,
    reach: Angle,
    /// The same polygon, if it is convex.
    convex: Option<ConvexPolygon>,
}

impl Polygon {
    /// The polygon with these corners in order, either way round. Repeated corners and a closing one do no harm.
    ///
    /// # Errors
    /// [`SkyError::PolygonCorners`] if fewer than three different corners are left or all are on one great circle,
    /// [`SkyError::PolygonTooLarge`] if it does not fit into half of the sky, [`SkyError::PolygonCrossesItself`].
    pub fn new(corners: &[LonLat]) -> Result<Self, SkyError> {
        let mut vertices: Vec<UnitVector> = corners.iter().copied().map(UnitVector::from).collect();
        vertices.dedup();
        while vertices.len() > 1 && vertices.first() == vertices.last() {
            vertices.pop();
        }
        let too_few = SkyError::PolygonCorners {
            given: corners.len(),
            distinct: vertices.len(),
        };
        if vertices.len() < 3 {
            return Err(too_few);
        }
        let convex = match ConvexPolygon::new(corners) {
            Ok(convex) => Some(convex),
            Err(SkyError::PolygonNotConvex { .. } | SkyError::PolygonTooLarge) => None,
            Err(error) => return Err(error),
        };
        let centre = centre_of(&vertices, convex.is_some()).ok_or(SkyError::PolygonTooLarge)?;
        let reach = reach_of(centre, &vertices);
        if convex.is_none() {
            check_crossings(&vertices)?;
        }
        let mut polygon = Self {
            vertices,
            centre,
            reach,
            convex,
        };
        let turned = polygon.signed_area();
        if turned.abs() < f64::MIN_POSITIVE {
            return Err(too_few);
        }
        if turned < 0.0 {
            polygon.vertices.reverse();
        }
        Ok(polygon)
    }

    /// The same polygon as a region, if it is convex: it holds the same points.
    pub fn as_convex(&self) -> Option<&ConvexPolygon> {
        self.convex.as_ref()
    }

    /// Centre and radius of a circle that holds the polygon.
    pub fn bounding_circle(&self) -> (LonLat, Angle) {
        (self.centre.into(), self.reach + MARGIN)
    }

    /// Whether the point is in the polygon or on its edge.
    pub fn contains(&self, p: LonLat) -> bool {
        match &self.convex {
            Some(convex) => convex.contains(p),
            None => self.winds_around(p.into()),
        }
    }

    pub(super) fn holds(&self, p: UnitVector) -> bool {
        match &self.convex {
            Some(convex) => convex.contains(p.into()),
            None => self.winds_around(p),
        }
    }

    /// Whether the edges wind around a point, or it is on one.
    ///
    /// The winding number, after D. Sunday, *Inclusion of a Point in a Polygon* (2001): seen from the centre (in the
    /// gnomonic projection) arcs are straight, so edges that cross the ray from the point to a direction on the horizon are
    /// counted with their sense. Which side of a line a point lies on is decided exactly, hence so is the whole.
    fn winds_around(&self, p: UnitVector) -> bool {
        if self.centre.separation(p) > self.reach + MARGIN {
            return false;
        }
        let horizon = across(self.centre);
        let is_above = |v: UnitVector| orientation(p, horizon, v) != Ordering::Less;
        let mut windings = 0;
        for edge in self.edges() {
            if edge.holds(p) {
                return true;
            }
            let side = orientation(edge.from, edge.to, p);
            match (is_above(edge.from), is_above(edge.to)) {
                (false, true) if side == Ordering::Greater => windings += 1,
                (true, false) if side == Ordering::Less => windings -= 1,
                _ => {}
            }
        }
        windings != 0
    }

    pub(super) fn edges(&self) -> impl Iterator<Item = Arc> {
        edges(&self.vertices)
    }

    pub(super) fn vertices(&self) -> &[UnitVector] {
        &self.vertices
    }

    /// The angle from a point to the nearest edge.
    pub(super) fn distance_to_edge(&self, p: UnitVector) -> Angle {
        self.edges()
            .map(|edge| edge.distance(p))
            .fold(Angle::from_degrees(180.0), Angle::min)
    }

    /// The angle from a point to the farthest point of the polygon.
    pub(super) fn largest_distance(&self, p: UnitVector) -> Angle {
        if self.holds(p.antipode()) {
            return Angle::from_degrees(180.0);
        }
        self.edges()
            .map(|edge| edge.largest_distance(p))
            .fold(Angle::ZERO, Angle::max)
    }

    pub(super) fn is_on_edge(&self, p: UnitVector) -> bool {
        self.edges().any(|edge| edge.holds(p))
    }

    /// Its area in steradians.
    pub(super) fn area(&self) -> f64 {
        self.signed_area().abs()
    }

    /// The sum of the triangles between the centre and the edges, in steradians; positive if anti-clockwise.
    ///
    /// `tan(E/2) = a·(b×c) / (1 + a·b + b·c + c·a)`: F. Eriksson, *On the Measure of Solid Angles*, Mathematics Magazine
    /// 63 (1990) 184. The product is that of differences, which are exact for near vectors.
    fn signed_area(&self) -> f64 {
        let a = self.centre;
        self.edges()
            .map(|Arc { from: b, to: c }| {
                let volume = triple(a, b, c);
                2.0 * volume.atan2(1.0 + a.dot(b) + b.dot(c) + c.dot(a))
            })
            .sum()
    }

    /// The direction of the integral of the positions over the polygon, which is half the sum over the edges of the edge's
    /// length times its pole (Stokes).
    pub(super) fn centroid(&self) -> UnitVector {
        let mut sum = [0.0; 3];
        for Arc { from, to } in self.edges() {
            let Some(pole) = pole_of(from, to) else {
                continue;
            };
            let length = from.separation(to).radians();
            for (part, component) in sum.iter_mut().zip(pole.components()) {
                *part += length * component;
            }
        }
        UnitVector::from_vector(sum).unwrap_or(self.centre)
    }
}

fn edges(vertices: &[UnitVector]) -> impl Iterator<Item = Arc> {
    let next = vertices.iter().cycle().skip(1);
    vertices
        .iter()
        .zip(next)
        .map(|(&from, &to)| Arc { from, to })
}

/// `a·(b×c)`.
fn triple(a: UnitVector, b: UnitVector, c: UnitVector) -> f64 {
    let (a_, b_, c_) = (a.components(), b.components(), c.components());
    let [px, py, pz] = [0, 1, 2].map(|i| b_[i] - a_[i]);
    let [qx, qy, qz] = [0, 1, 2].map(|i| c_[i] - a_[i]);
    a_[0] * (py * qz - pz * qy) + a_[1] * (pz * qx - px * qz) + a_[2] * (px * qy - py * qx)
}

/// A point from which all vertices are less than a quarter turn away, if one is found: in the middle of the vertices, or where
/// the polygon faces. Of a convex polygon the first lies inside, and need not be so near.
fn centre_of(vertices: &[UnitVector], convex: bool) -> Option<UnitVector> {
    let sum = |vectors: &mut dyn Iterator<Item = [f64; 3]>| {
        let sum = vectors.fold([0.0; 3], |sum, v| [0, 1, 2].map(|i| sum[i] + v[i]));
        UnitVector::from_vector(sum)
    };
    let middle = sum(&mut vertices.iter().map(|v| v.components()));
    if convex {
        return middle;
    }
    let facing = sum(&mut edges(vertices).map(|edge| cross(edge.from, edge.to)));
    let candidates = [middle, facing, facing.map(UnitVector::antipode)];
    candidates
        .into_iter()
        .flatten()
        .find(|&centre| reach_of(centre, vertices) + MARGIN < WIDEST)
}

fn reach_of(centre: UnitVector, vertices: &[UnitVector]) -> Angle {
    vertices
        .iter()
        .map(|v| v.separation(centre))
        .fold(Angle::ZERO, Angle::max)
}

/// A point a quarter turn away.
fn across(centre: UnitVector) -> UnitVector {
    let [x, y, z] = centre.components().map(f64::abs);
    let axis = if x <= y && x <= z {
        UnitVector::from_components(1.0, 0.0, 0.0)
    } else if y <= z {
        UnitVector::from_components(0.0, 1.0, 0.0)
    } else {
        UnitVector::from_components(0.0, 0.0, 1.0)
    };
    UnitVector::from_vector(cross(centre, axis)).unwrap_or(axis)
}

fn check_crossings(vertices: &[UnitVector]) -> Result<(), SkyError> {
    let all: Vec<Arc> = edges(vertices).collect();
    for (at, edge) in all.iter().enumerate() {
        if all[at + 1..].iter().any(|other| edge.crosses(*other)) {
            return Err(SkyError::PolygonCrossesItself);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn polygon(corners: &[(f64, f64)]) -> Result<Polygon, SkyError> {
        let corners: Vec<LonLat> = corners
            .iter()
            .map(|&(ra, dec)| LonLat::from_degrees(ra, dec).unwrap())
            .collect();
        Polygon::new(&corners)
    }

    fn at(ra: f64, dec: f64) -> LonLat {
        LonLat::from_degrees(ra, dec).unwrap()
    }

    /// An L across RA 0.
    const L: [(f64, f64); 6] = [
        (358.0, 0.0),
        (2.0, 0.0),
        (2.0, 1.0),
        (0.0, 1.0),
        (0.0, 3.0),
        (358.0, 3.0),
    ];

    #[test]
    fn what_is_not_convex_has_a_notch() {
        let mut reversed = L;
        reversed.reverse();
        for corners in [L, reversed] {
            let l = polygon(&corners).unwrap();
            assert!(l.as_convex().is_none());
            for (ra, dec) in [
                (359.0, 2.0),
                (1.0, 0.5),
                (359.0, 0.5),
                (0.0, 1.0),
                (2.0, 0.0),
            ] {
                assert!(l.contains(at(ra, dec)), "{ra} {dec}");
            }
            for (ra, dec) in [
                (1.0, 2.0),
                (3.0, 0.5),
                (179.0, -2.0),
                (1.0, -0.5),
                (359.0, 3.5),
            ] {
                assert!(!l.contains(at(ra, dec)), "{ra} {dec}");
            }
            // 4 by 1 and 2 by 2 degrees near the equator.
            assert!((l.area().to_degrees().to_degrees() - 8.0).abs() < 0.01);
        }
    }

    #[test]
    fn a_star_around_the_pole_is_no_polygon_but_a_cross_is_one() {
        let star = [
            (0.0, 80.0),
            (144.0, 80.0),
            (288.0, 80.0),
            (72.0, 80.0),
            (216.0, 80.0),
        ];
        assert_eq!(polygon(&star), Err(SkyError::PolygonCrossesItself));
        let cross: Vec<(f64, f64)> = (0..8)
            .map(|i| (f64::from(i) * 45.0, if i % 2 == 0 { 80.0 } else { 89.0 }))
            .collect();
        let cross = polygon(&cross).unwrap();
        assert!(cross.contains(at(123.0, 90.0)));
        assert!(cross.contains(at(0.0, 81.0)));
        assert!(!cross.contains(at(45.0, 85.0)));
    }

    #[test]
    fn what_is_no_polygon_is_rejected() {
        assert!(matches!(
            polygon(&[(0.0, 0.0), (1.0, 0.0), (1.0, 0.0), (0.0, 0.0)]),
            Err(SkyError::PolygonCorners { .. })
        ));
        assert!(matches!(
            polygon(&[(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]),
            Err(SkyError::PolygonCorners { .. })
        ));
        let half = [(0.0, -40.0), (90.0, 10.0), (180.0, -40.0), (270.0, 10.0)];
        assert_eq!(polygon(&half), Err(SkyError::PolygonTooLarge));
    }

    #[test]
    fn an_octant_is_an_eighth_of_the_sky() {
        let octant = polygon(&[(0.0, 0.0), (90.0, 0.0), (12.0, 90.0)]).unwrap();
        assert!((octant.area() - std::f64::consts::PI / 2.0).abs() < 1e-14);
        let middle = LonLat::from(octant.centroid());
        assert!((middle.ra().degrees() - 45.0).abs() < 1e-12);
        assert!(
            (middle.dec().degrees() - (1.0_f64 / 2.0_f64.sqrt()).atan().to_degrees()).abs() < 1e-12
        );
    }

    proptest! {
        /// Of a polygon that is convex the winding number says what its edges' sides say.
        #[test]
        fn both_ways_to_be_inside_agree(
            ra in 0.0_f64..360.0, dec in -90.0_f64..90.0, size in 0.001_f64..60.0,
            turns in proptest::collection::btree_set(0_u32..360, 3..9),
            (x, y) in (-1.5_f64..1.5, -1.5_f64..1.5),
        ) {
            let centre = UnitVector::from(at(ra, dec));
            let east = across(centre);
            let north = UnitVector::from_vector(cross(centre, east)).unwrap();
            let place = |x: f64, y: f64| {
                let (c, e, n) = (centre.components(), east.components(), north.components());
                let size = size.to_radians().tan();
                let vector = [0, 1, 2].map(|i| c[i] + size * (x * e[i] + y * n[i]));
                LonLat::from(UnitVector::from_vector(vector).unwrap())
            };
            let corners: Vec<LonLat> = turns.iter()
                .map(|turn| f64::from(*turn).to_radians().sin_cos())
                .map(|(s, c)| place(c, s))
                .collect();
            let polygon = Polygon::new(&corners).unwrap();
            prop_assume!(polygon.as_convex().is_some());
            let p = UnitVector::from(place(x, y));
            // Right at an edge a corner that lies straight may be left out of one of them.
            prop_assume!(polygon.distance_to_edge(p) > MARGIN);
            prop_assert_eq!(polygon.winds_around(p), polygon.contains(p.into()));
            let middle = polygon.centroid();
            prop_assert!(polygon.holds(middle));
        }
    }
}
