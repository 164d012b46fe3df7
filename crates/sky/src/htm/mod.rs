//! Hierarchical triangular mesh: numbers of trixels, and the trixels that cover a region.
//!
//! The octahedron's eight faces are the trixels of level 0, numbered 8 (S0) to 15 (N3); each is quartered at the
//! middles of its edges, and the quarter `i` of trixel `t` has the number `4t + i`, 0 to 2 at the corners and 3 in
//! the middle. After P. Z. Kunszt, A. S. Szalay, A. R. Thakar, *The Hierarchical Triangular Mesh* (2001), numbered as
//! lsst/sphgeom's `HtmPixelization` does, which also decides to which trixel a point on an edge belongs: the first of the
//! quarters 0, 1, 2, 3 that holds it.

mod cover;

use std::cmp::Ordering;

use crate::orientation::orientation;
use crate::{LonLat, SkyError, UnitVector};

pub use cover::ranges;

/// The deepest level; its trixels are about 0.02 arcseconds wide.
pub const MAX_LEVEL: u8 = 24;

/// A level of the mesh, 0 to [`MAX_LEVEL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

impl Level {
    /// The level of this number.
    ///
    /// # Errors
    /// [`SkyError::Level`] beyond [`MAX_LEVEL`].
    pub fn new(level: u32) -> Result<Self, SkyError> {
        u8::try_from(level)
            .ok()
            .filter(|level| *level <= MAX_LEVEL)
            .map(Self)
            .ok_or(SkyError::Level {
                pixels: "HTM",
                level,
                max: u32::from(MAX_LEVEL),
            })
    }

    /// The level's number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// The number of the trixel that holds the point.
pub fn id(level: Level, p: UnitVector) -> u64 {
    let root = root_of(p);
    let mut trixel = Trixel::root(root);
    let mut id = 8 + root as u64;
    for _ in 0..level.0 {
        let quarter = trixel.descend(p);
        id = 4 * id + quarter;
    }
    id
}

/// The middle of a trixel; `None` for what is no trixel's number at this level.
pub fn centre(level: Level, id: u64) -> Option<UnitVector> {
    let bits = 2 * u32::from(level.0);
    let root = usize::try_from((id >> bits).checked_sub(8)?).ok()?;
    let mut trixel = Trixel(*ROOTS.get(root)?);
    for depth in (0..u32::from(level.0)).rev() {
        let quarter = (id >> (2 * depth)) & 3;
        trixel = trixel.quarter(&trixel.middles(), quarter as usize);
    }
    let [a, b, c] = trixel.0;
    UnitVector::from_vector([
        a.x() + b.x() + c.x(),
        a.y() + b.y() + c.y(),
        a.z() + b.z() + c.z(),
    ])
}

/// The number of the trixel that holds the position.
///
/// The same as [`id`] of its vector but for points within rounding of a trixel's edge. The vector is computed from
/// radians, as lsst/sphgeom computes it, rather than by our own sines, which are exact on the meridians of RA 90, 180 and
/// 270: so rounding puts a point of such a meridian on the same side of it there and here.
pub fn id_at(level: Level, p: LonLat) -> u64 {
    let (sin_ra, cos_ra) = p.ra().radians().sin_cos();
    let (sin_dec, cos_dec) = p.dec().radians().sin_cos();
    let vector = UnitVector::from_components(cos_ra * cos_dec, sin_ra * cos_dec, sin_dec);
    id(level, vector)
}

/// Puts into `out` (replacing what it held) the trixels of the positions `(ra[i], dec[i])` in degrees, as [`id_at`] finds
/// them; 0, which is no trixel's number, for what is not a position. As many as the shorter slice has entries.
pub fn ids_degrees(level: Level, ra: &[f64], dec: &[f64], out: &mut Vec<u64>) {
    out.clear();
    out.extend(ra.iter().zip(dec).map(|(&ra, &dec)| {
        let position = LonLat::from_degrees(ra, dec);
        position.map_or(0, |p| id_at(level, p))
    }));
}

/// A spherical triangle, corners anti-clockwise as seen from outside.
#[derive(Debug, Clone, Copy)]
struct Trixel([UnitVector; 3]);

const X: UnitVector = UnitVector::from_components(1.0, 0.0, 0.0);
const Y: UnitVector = UnitVector::from_components(0.0, 1.0, 0.0);
const Z: UnitVector = UnitVector::from_components(0.0, 0.0, 1.0);
const NEG_X: UnitVector = UnitVector::from_components(-1.0, 0.0, 0.0);
const NEG_Y: UnitVector = UnitVector::from_components(0.0, -1.0, 0.0);
const NEG_Z: UnitVector = UnitVector::from_components(0.0, 0.0, -1.0);

/// S0 to S3, N0 to N3.
const ROOTS: [[UnitVector; 3]; 8] = [
    [X, NEG_Z, Y],
    [Y, NEG_Z, NEG_X],
    [NEG_X, NEG_Z, NEG_Y],
    [NEG_Y, NEG_Z, X],
    [X, Z, NEG_Y],
    [NEG_Y, Z, NEG_X],
    [NEG_X, Z, Y],
    [Y, Z, X],
];

/// The index in [`ROOTS`] of the face that holds the point. The equator belongs to the north; a meridian between two
/// faces to the one that follows it eastwards, but the meridian of RA 90 to the second face.
fn root_of(p: UnitVector) -> usize {
    let east = |first: usize, second: usize| if p.x() > 0.0 { first } else { second };
    let quadrant = if p.y() > 0.0 {
        east(0, 1)
    } else if p.y() < 0.0 {
        if p.x() < 0.0 { 2 } else { 3 }
    } else if p.x() >= 0.0 {
        0
    } else {
        2
    };
    if p.z() < 0.0 { quadrant } else { 7 - quadrant }
}

impl Trixel {
    fn root(root: usize) -> Self {
        Self(ROOTS[root])
    }

    /// The middles of the edges, each opposite to the corner of the same index.
    fn middles(&self) -> [UnitVector; 3] {
        let [a, b, c] = self.0;
        [middle(b, c), middle(c, a), middle(a, b)]
    }

    /// Becomes its quarter that holds the point, which is in this trixel, and tells which that is. The middle of the
    /// edge from corner 1 to corner 2 is computed only when it matters.
    fn descend(&mut self, p: UnitVector) -> u64 {
        let left = |from, to| orientation(p, from, to) != Ordering::Less;
        let [v0, v1, v2] = self.0;
        let (b, c) = (middle(v2, v0), middle(v0, v1));
        if left(c, b) {
            self.0 = [v0, c, b];
            return 0;
        }
        let a = middle(v1, v2);
        if left(a, c) {
            self.0 = [v1, a, c];
            1
        } else if left(b, a) {
            self.0 = [v2, b, a];
            2
        } else {
            self.0 = [a, b, c];
            3
        }
    }

    fn quarter(&self, middles: &[UnitVector; 3], quarter: usize) -> Self {
        let [a, b, c] = *middles;
        Self(match quarter {
            0 => [self.0[0], c, b],
            1 => [self.0[1], a, c],
            2 => [self.0[2], b, a],
            _ => [a, b, c],
        })
    }
}

fn middle(a: UnitVector, b: UnitVector) -> UnitVector {
    let (x, y, z) = (a.x() + b.x(), a.y() + b.y(), a.z() + b.z());
    let norm = (x * x + y * y + z * z).sqrt();
    UnitVector::from_components(x / norm, y / norm, z / norm)
}
