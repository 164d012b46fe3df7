//! [`ConvexPolygon`]: the points to the left of every one of a ring of great circles.

use std::cmp::Ordering;
use std::fmt;

use crate::orientation::orientation;
use crate::position::vector_of_degrees;
use crate::{Angle, LonLat, LonLatBox, SkyError, UnitVector};

/// How far a corner may lie off the edge that its neighbours make and still count as on it: 1e-13 of a radian, several
/// hundred roundings of a coordinate and 0.02 microarcseconds on the sky. Corners that a computation put on an edge
/// end up a few roundings to either side.
const STRAIGHT: f64 = 1e-13;

/// What rounding may add to the scalar product of an edge's pole and a point. The pole is the normalized product of the
/// sum and the difference of two unit vectors, which are orthogonal, so that nothing cancels in its length: it is right to
/// some 8 roundings of 2⁻⁵³, the scalar product adds 3, and this is three times as many.
const POLE_ERROR: f64 = 4e-15;

/// All points in a convex polygon or on its edge. Edges are arcs of great circles shorter than half a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvexPolygon {
    /// As given.
    corners: Vec<LonLat>,
    /// Anti-clockwise as seen from inside looking out to the east on the left; only those where the polygon turns.
    vertices: Vec<UnitVector>,
    /// The poles of the edges' great circles, as vectors and as positions: `inward[i]` belongs to the edge from vertex
    /// `i` to the next one.
    inward: Vec<(UnitVector, LonLat)>,
    envelope: LonLatBox,
}

impl ConvexPolygon {
    /// The polygon with these corners, given in order, either way round. Repeated corners, a closing corner equal to the
    /// first, and corners in the middle of an edge do no harm.
    ///
    /// # Errors
    /// [`SkyError::PolygonCorners`] if fewer than three are left, [`SkyError::PolygonNotConvex`] if the polygon turns
    /// both ways, crosses itself or winds more than once, [`SkyError::PolygonTooLarge`] if it does not fit into half of
    /// the sky.
    pub fn new(corners: &[LonLat]) -> Result<Self, SkyError> {
        let mut ring: Vec<(usize, UnitVector)> = Vec::with_capacity(corners.len());
        for (i, &corner) in corners.iter().enumerate() {
            ring.push((i + 1, UnitVector::from(corner)));
        }
        drop_straight_corners(&mut ring);
        if ring.len() < 3 {
            return Err(SkyError::PolygonCorners {
                given: corners.len(),
                distinct: ring.len(),
            });
        }
        if orientation(ring[0].1, ring[1].1, ring[2].1) == Ordering::Less {
            ring.reverse();
        }
        check_convex(&ring)?;
        let vertices: Vec<UnitVector> = ring.into_iter().map(|(_, v)| v).collect();
        let inward = edges(&vertices)
            .map(|(a, b)| {
                let pole = pole_of(a, b).ok_or(SkyError::PolygonTooLarge)?;
                Ok((pole, LonLat::from(pole)))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let envelope = envelope_of(&vertices);
        Ok(Self {
            corners: corners.to_vec(),
            vertices,
            inward,
            envelope,
        })
    }

    /// The corners as given.
    pub fn corners(&self) -> &[LonLat] {
        &self.corners
    }

    /// Whether the point is in the polygon or on its edge.
    pub fn contains(&self, p: LonLat) -> bool {
        self.contains_degrees(p.ra().degrees(), p.dec().degrees())
    }

    /// The same for right ascension in [0, 360) and declination. The envelope spares most points the trigonometry, and
    /// the edges' poles nearly all others the exact orientation.
    #[inline]
    pub(crate) fn contains_degrees(&self, ra: f64, dec: f64) -> bool {
        if !self.envelope.contains_degrees(ra, dec) {
            return false;
        }
        let p = vector_of_degrees(ra, dec);
        self.inward.iter().enumerate().all(|(i, (pole, _))| {
            let height = pole.dot(p);
            height > POLE_ERROR || (height >= -POLE_ERROR && self.is_left_of_edge(i, p))
        })
    }

    #[cold]
    fn is_left_of_edge(&self, edge: usize, p: UnitVector) -> bool {
        let (a, b) = (
            self.vertices[edge],
            self.vertices[(edge + 1) % self.vertices.len()],
        );
        orientation(a, b, p) != Ordering::Less
    }

    /// The largest of the signed distances to the edges' great circles, positive outside.
    pub(crate) fn signed_distance(&self, p: UnitVector) -> Angle {
        let lowest = self
            .inward
            .iter()
            .map(|(pole, _)| pole.dot(p))
            .fold(1.0, f64::min);
        Angle::from_radians((-lowest).clamp(-1.0, 1.0).asin())
    }

    /// Whether the box is inside every edge, and at least `margin` away from it.
    ///
    /// A box is inside an edge if none of its points is a quarter turn or more from the edge's pole.
    pub(crate) fn surely_contains_box(&self, b: &LonLatBox, margin: Angle) -> bool {
        let limit = Angle::from_degrees(90.0) - margin;
        self.inward
            .iter()
            .all(|&(_, pole)| b.largest_separation(pole) <= limit)
    }

    /// Whether the box is outside of one edge, and at least `margin` away from it.
    pub(crate) fn has_edge_before_box(&self, b: &LonLatBox, margin: Angle) -> bool {
        let limit = Angle::from_degrees(90.0) + margin;
        self.inward
            .iter()
            .any(|&(_, pole)| b.separation(pole) > limit)
    }

    /// The circle around the middle of the vertices that holds them all, and with them the polygon.
    pub(crate) fn bounding_circle(&self) -> (UnitVector, Angle) {
        let sum = self
            .vertices
            .iter()
            .fold([0.0; 3], |[x, y, z], v| [x + v.x(), y + v.y(), z + v.z()]);
        let centre = UnitVector::from_vector(sum).unwrap_or(self.vertices[0]);
        let radius = self
            .vertices
            .iter()
            .map(|v| v.separation(centre))
            .fold(Angle::ZERO, Angle::max);
        (centre, radius)
    }

    pub(crate) const fn envelope_box(&self) -> LonLatBox {
        self.envelope
    }
}

/// Each vertex with the next one, the last with the first.
fn edges(vertices: &[UnitVector]) -> impl Iterator<Item = (UnitVector, UnitVector)> {
    let next = vertices.iter().cycle().skip(1);
    vertices.iter().copied().zip(next.copied())
}

/// The point a quarter turn to the left of the great circle from `a` to `b`, if they have only one.
///
/// `(b - a) × (b + a) = 2 a × b`, and the difference of near vectors is exact.
pub(crate) fn pole_of(a: UnitVector, b: UnitVector) -> Option<UnitVector> {
    let ([ax, ay, az], [bx, by, bz]) = (a.components(), b.components());
    let (dx, dy, dz) = (bx - ax, by - ay, bz - az);
    let (sx, sy, sz) = (bx + ax, by + ay, bz + az);
    // The cross product of the sum with the difference, which is twice that of a with b.
    UnitVector::from_vector([sy * dz - sz * dy, sz * dx - sx * dz, sx * dy - sy * dx])
}

/// Removes corners that repeat their neighbour or lie on the edge between their neighbours.
fn drop_straight_corners(ring: &mut Vec<(usize, UnitVector)>) {
    let mut i = 0;
    let mut kept_in_a_row = 0;
    while ring.len() >= 3 && kept_in_a_row < ring.len() {
        i %= ring.len();
        let previous = ring[(i + ring.len() - 1) % ring.len()].1;
        let next = ring[(i + 1) % ring.len()].1;
        if is_straight(previous, ring[i].1, next) {
            ring.remove(i);
            kept_in_a_row = 0;
            i = (i + ring.len() - 1) % ring.len();
        } else {
            kept_in_a_row += 1;
            i += 1;
        }
    }
    if ring.len() == 2 && ring[0].1 == ring[1].1 {
        ring.pop();
    }
}

/// Whether `b` repeats `a` or `c` or lies on the arc between them.
fn is_straight(a: UnitVector, b: UnitVector, c: UnitVector) -> bool {
    if a == b || b == c {
        return true;
    }
    let Some(pole) = pole_of(a, c) else {
        return false;
    };
    let off = pole.dot(b).abs();
    // Between the two: nearer to both than they are to each other.
    let whole = a.separation(c);
    off <= STRAIGHT && a.separation(b) <= whole && b.separation(c) <= whole
}

/// Every corner must lie to the left of every edge; that also rules out stars and crossings.
fn check_convex(ring: &[(usize, UnitVector)]) -> Result<(), SkyError> {
    let n = ring.len();
    for i in 0..n {
        let (a, b) = (ring[i].1, ring[(i + 1) % n].1);
        for step in 2..n {
            let (corner, c) = ring[(i + step) % n];
            if orientation(a, b, c) != Ordering::Greater {
                return Err(SkyError::PolygonNotConvex { corner });
            }
        }
    }
    Ok(())
}

/// Bounds of the vertices, of the edges' northernmost and southernmost points, and of the poles inside.
fn envelope_of(vertices: &[UnitVector]) -> LonLatBox {
    let mut bounds = LonLatBox::point(LonLat::from(vertices[0]));
    let (mut dec_min, mut dec_max) = (bounds.dec_min(), bounds.dec_max());
    for (a, b) in edges(vertices) {
        // Vertices in order, so that each edge takes the shorter way round.
        bounds = bounds.union(&edge_range(a, b));
        let Some(pole) = pole_of(a, b) else { continue };
        if let Some(dec) = extreme_declination(a, b, pole) {
            dec_min = dec_min.min(dec);
            dec_max = dec_max.max(dec);
        }
        let dec = LonLat::from(a).dec().degrees();
        dec_min = dec_min.min(dec);
        dec_max = dec_max.max(dec);
    }
    let holds = |z: f64| {
        let pole = UnitVector::from_components(0.0, 0.0, z);
        edges(vertices).all(|(a, b)| orientation(a, b, pole) != Ordering::Less)
    };
    let (south, north) = (holds(-1.0), holds(1.0));
    let all_around = south || north;
    let dec_min = if south { -90.0 } else { dec_min };
    let dec_max = if north { 90.0 } else { dec_max };
    let (ra_min, ra_max) = if all_around {
        (0.0, 360.0)
    } else {
        (bounds.ra_min(), bounds.ra_min() + bounds.width().degrees())
    };
    LonLatBox::valid(ra_min, dec_min, ra_max, dec_max).dilated(Angle::ZERO)
}

/// The right ascensions of an edge that does not pass through a pole: the shorter way round.
fn edge_range(a: UnitVector, b: UnitVector) -> LonLatBox {
    LonLatBox::point(LonLat::from(a)).union(&LonLatBox::point(LonLat::from(b)))
}

/// The declination at which the great circle from `a` to `b` turns, in degrees, if it does so between them.
///
/// With the pole `n` the circle is farthest from the equator at `±(-n_x n_z, -n_y n_z, n_x² + n_y²)`, in the plane of
/// `n` and the axis; the arc passes it if its ends lie on different sides of that plane.
fn extreme_declination(a: UnitVector, b: UnitVector, pole: UnitVector) -> Option<f64> {
    let [nx, ny, nz] = pole.components();
    let side = |v: UnitVector| v.y() * nx - v.x() * ny;
    let (before, after) = (side(a), side(b));
    let extreme = (nx * nx + ny * ny).sqrt().atan2(nz.abs()).to_degrees();
    if before > 0.0 && after < 0.0 {
        Some(extreme)
    } else if before < 0.0 && after > 0.0 {
        Some(-extreme)
    } else {
        None
    }
}

/// `polygon RA DEC RA DEC RA DEC ...` in degrees.
impl fmt::Display for ConvexPolygon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("polygon")?;
        self.corners
            .iter()
            .try_for_each(|corner| write!(f, " {corner}"))
    }
}
