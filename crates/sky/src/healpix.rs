//! HEALPix: numbers of equal-area cells, and the cells that cover a region. A thin coat over `cdshealpix`.
//!
//! K. M. Górski and others, *HEALPix: A Framework for High-Resolution Discretization and Fast Analysis of Data
//! Distributed on the Sphere*, Astrophysical Journal 622 (2005) 759. At depth `d` there are `12·4ᵈ` cells
//! (`nside = 2ᵈ`), numbered from 0 in one of two schemes: nested, where the cell `c` has the children `4c` to `4c + 3`,
//! and ring, where numbers grow along rings from the north pole to the south pole.

use std::io::Write;
use std::ops::Range;

use cdshealpix::nested::map::fits::write::write_implicit_skymap_fits;
use cdshealpix::nested::{self, Layer};

use crate::ranges::merged;
use crate::region::MARGIN;
use crate::{Angle, LonLat, Region, SkyError, UnitVector, separation};

/// The deepest depth; its cells are about 0.4 milliarcseconds wide.
pub const MAX_DEPTH: u8 = 29;

/// When more cells than this lie on a region's edge, they are not divided further but taken whole.
const MAX_EDGE_CELLS: usize = 2_048;

/// A depth of the pixelization, 0 to [`MAX_DEPTH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Depth(u8);

impl Depth {
    /// The depth of this number, the `order` of other tools.
    ///
    /// # Errors
    /// [`SkyError::Level`] beyond [`MAX_DEPTH`].
    pub fn new(depth: u32) -> Result<Self, SkyError> {
        u8::try_from(depth)
            .ok()
            .filter(|depth| *depth <= MAX_DEPTH)
            .map(Self)
            .ok_or(SkyError::Level {
                pixels: "HEALPix",
                level: depth,
                max: u32::from(MAX_DEPTH),
            })
    }

    /// The depth's number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The number of cells of this depth.
    pub const fn num_cells(self) -> u64 {
        12 << (2 * self.0)
    }

    fn layer(self) -> &'static Layer {
        nested::get(self.0)
    }
}

/// The number of the cell that holds the point, in the nested scheme.
pub fn nested(depth: Depth, p: LonLat) -> u64 {
    depth.layer().hash(p.ra().radians(), p.dec().radians())
}

/// The number of the cell that holds the point, in the ring scheme.
pub fn ring(depth: Depth, p: LonLat) -> u64 {
    depth.layer().to_ring(nested(depth, p))
}

/// Puts into `out` (replacing what it held) the cells of the positions `(ra[i], dec[i])` in degrees, in the nested
/// scheme. As many as the shorter slice has entries.
///
/// # Errors
/// At the first that is not a position (see [`LonLat::from_degrees`]); `out` then holds the cells of those before it.
pub fn nested_degrees(
    depth: Depth,
    ra: &[f64],
    dec: &[f64],
    out: &mut Vec<u64>,
) -> Result<(), SkyError> {
    out.clear();
    out.reserve(ra.len().min(dec.len()));
    for (&ra, &dec) in ra.iter().zip(dec) {
        out.push(nested(depth, LonLat::from_degrees(ra, dec)?));
    }
    Ok(())
}

/// The same in the ring scheme.
///
/// # Errors
/// See [`nested_degrees`].
pub fn ring_degrees(
    depth: Depth,
    ra: &[f64],
    dec: &[f64],
    out: &mut Vec<u64>,
) -> Result<(), SkyError> {
    let done = nested_degrees(depth, ra, dec, out);
    let layer = depth.layer();
    out.iter_mut().for_each(|cell| *cell = layer.to_ring(*cell));
    done
}

/// The ring number of a cell given by its nested number, or `None` if there is no such cell.
pub fn ring_of_nested(depth: Depth, nested: u64) -> Option<u64> {
    (nested < depth.num_cells()).then(|| depth.layer().to_ring(nested))
}

/// The centre of the cell with this nested number, or `None` if there is no such cell.
pub fn centre(depth: Depth, nested: u64) -> Option<LonLat> {
    (nested < depth.num_cells()).then(|| centre_of(depth.0, nested))
}

fn centre_of(depth: u8, nested: u64) -> LonLat {
    let (ra, dec) = nested::get(depth).center(nested);
    position_of(ra, dec)
}

/// A position that `cdshealpix` gave in radians.
fn position_of(ra: f64, dec: f64) -> LonLat {
    LonLat::valid(ra.to_degrees(), dec.to_degrees().clamp(-90.0, 90.0))
}

/// Writes a map of the sky as FITS: a value for each cell of a depth, by its nested number.
///
/// # Errors
/// There are not as many values as a depth has cells, or the output cannot be written.
pub fn write_map(values: &[i64], out: impl Write) -> std::io::Result<()> {
    let is_whole = |depth: u8| Depth(depth).num_cells() == values.len() as u64;
    if !(0..=MAX_DEPTH).any(is_whole) {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    write_implicit_skymap_fits(out, values)
        .map_err(|error| std::io::Error::other(error.to_string()))
}

/// Cells of the depth that cover the region: sorted ranges of nested numbers that do not touch. An envelope: each of
/// the region's points is in one of them. Where the edge would need more than some thousand cells, larger ones are
/// taken whole.
pub fn ranges(depth: Depth, region: &Region) -> Vec<Range<u64>> {
    let mut inside: Vec<Range<u64>> = Vec::new();
    let mut edge: Vec<u64> = Vec::new();
    let mut at = 0;
    let mut candidates: Vec<u64> = (0..12).collect();
    loop {
        let shift = 2 * (depth.0 - at);
        for cell in candidates.drain(..) {
            match side_of(region, at, cell) {
                Side::Outside => {}
                Side::Inside => inside.push(cell << shift..(cell + 1) << shift),
                Side::Edge => edge.push(cell),
            }
        }
        if at == depth.0 || edge.len() > MAX_EDGE_CELLS {
            inside.extend(edge.iter().map(|cell| cell << shift..(cell + 1) << shift));
            return merged(inside);
        }
        candidates.extend(edge.drain(..).flat_map(|cell| 4 * cell..4 * cell + 4));
        at += 1;
    }
}

enum Side {
    Inside,
    Edge,
    Outside,
}

/// Compares the circle around a cell with the region.
fn side_of(region: &Region, depth: u8, cell: u64) -> Side {
    let (centre, reach) = circle_around(depth, cell);
    let distance = region.signed_distance(UnitVector::from(centre));
    if distance > reach {
        Side::Outside
    } else if distance + reach < Angle::ZERO {
        Side::Inside
    } else {
        Side::Edge
    }
}

/// Centre and radius of a circle that holds a cell.
///
/// The farthest points of a cell from its centre are corners (so for every cell of the depths 0 to 6, on a grid of 17 × 17
/// points of each).
pub(crate) fn circle_around(depth: u8, cell: u64) -> (LonLat, Angle) {
    let centre = centre_of(depth, cell);
    let corners = nested::get(depth).vertices(cell);
    let reach = corners
        .map(|(ra, dec)| separation(centre, position_of(ra, dec)))
        .into_iter()
        .fold(Angle::ZERO, Angle::max)
        + MARGIN;
    (centre, reach)
}
