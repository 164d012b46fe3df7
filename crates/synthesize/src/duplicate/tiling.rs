//! How copies of a patch cover the sky.
//!
//! The sky is cut into bands of declination of equal height and these into cells of equal width in right ascension, with
//! a round cap at either pole. Each cell is filled by a copy of the patch that a rotation of the sphere takes there,
//! north up; of the copy that part is used which lies in the cell. A rotation keeps every separation and every density as
//! it is (to first order it is the stretching of right ascension by the cosine of the declination, which alone would
//! shear the copies beside the poles).
//!
//! Invariant: the copy covers its whole cell, so there are neither gaps nor overlaps. For that, cells are smaller than the
//! patch by what the curvature of parallels takes, and the number of cells of a band is the smallest for which it holds.

use std::ops::Range;

use sky::{Angle, LonLatBox};

use crate::error::SynthesizeError;
use crate::random::{Purpose, Stream};

/// Heights of a band as parts of the patch's: the one that needs the fewest copies is taken. Lower bands leave more room
/// for curved edges, so that their cells can be wider.
const HEIGHTS: [f64; 6] = [0.98, 0.95, 0.9, 0.8, 0.65, 0.5];
/// A cell's edge is looked at in this many places (odd, so that the middle is one).
const EDGE_POINTS: u32 = 33;
/// The part of the patch's size by which those must be inside: what may happen between two of them.
const EDGE_MARGIN: f64 = 1e-3;
/// More copies than this are a sign of a patch too small.
const MOST_TILES: u64 = 1 << 32;

/// A point of the unit sphere as a vector: towards RA 0 Dec 0, RA 90 Dec 0, the north pole.
pub(super) type Vector = [f64; 3];

/// The vector of a position in degrees.
pub(super) fn vector(ra: f64, dec: f64) -> Vector {
    let (sin_ra, cos_ra) = Angle::from_degrees(ra).sin_cos();
    let (sin_dec, cos_dec) = Angle::from_degrees(dec).sin_cos();
    [cos_dec * cos_ra, cos_dec * sin_ra, sin_dec]
}

/// The position of a vector: right ascension in [0, 360) and declination, in degrees.
pub(super) fn position([x, y, z]: Vector) -> (f64, f64) {
    let ra = libm::atan2(y, x).to_degrees();
    let dec = libm::atan2(z, libm::sqrt(x * x + y * y)).to_degrees();
    (wrap(ra), dec)
}

fn wrap(ra: f64) -> f64 {
    let wrapped = ra.rem_euclid(360.0);
    // A tiny negative angle is rounded up to 360 itself.
    if wrapped < 360.0 { wrapped } else { 0.0 }
}

pub(super) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// A rotation of the sphere.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rotation([Vector; 3]);

impl Rotation {
    /// Takes one position to another, and north there to north: first to right ascension 0, then along that meridian, then
    /// to the other's right ascension. Both in degrees.
    fn between(from: (f64, f64), to: (f64, f64)) -> Self {
        let (s, c) = Angle::from_degrees(from.0).sin_cos();
        let west = [[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]];
        let (s, c) = Angle::from_degrees(to.1 - from.1).sin_cos();
        let north = [[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]];
        let (s, c) = Angle::from_degrees(to.0).sin_cos();
        let east = [[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]];
        Self(product(east, product(north, west)))
    }

    pub(super) fn apply(&self, v: Vector) -> Vector {
        self.0.map(|row| dot(row, v))
    }

    /// The rotation back, applied.
    pub(super) fn apply_back(&self, v: Vector) -> Vector {
        let m = &self.0;
        [0, 1, 2].map(|i| m[0][i] * v[0] + m[1][i] * v[1] + m[2][i] * v[2])
    }
}

fn product(a: [Vector; 3], b: [Vector; 3]) -> [Vector; 3] {
    a.map(|row| [0, 1, 2].map(|i| row[0] * b[0][i] + row[1] * b[1][i] + row[2] * b[2][i]))
}

/// A band of declination.
#[derive(Debug, Clone)]
struct Band {
    cells: u64,
    /// The number of the band's first tile.
    first: u64,
    /// Where its first cell begins, in degrees of right ascension.
    begin: f64,
}

/// The cut of the sky into tiles. Tile 0 is the cap at the south pole, the last that at the north pole.
#[derive(Debug, Clone)]
pub(super) struct Tiling {
    /// The middle of the patch, degrees.
    centre: (f64, f64),
    /// The radius of the caps, degrees.
    cap: f64,
    band_height: f64,
    bands: Vec<Band>,
    tiles: u64,
}

impl Tiling {
    /// The tiling with the fewest tiles. `seed` says where the cells of each band begin.
    pub(super) fn new(patch: &LonLatBox, seed: u64) -> Result<Self, SynthesizeError> {
        let outline = Outline::new(patch)?;
        let all = HEIGHTS
            .iter()
            .filter_map(|part| Self::of_height(&outline, *part, seed));
        all.min_by_key(|tiling| tiling.tiles).ok_or_else(|| {
            SynthesizeError::Options(format!(
                "a patch of {:.4} by {:.4} degrees is too small to cover the sky with copies of it: give a larger one",
                patch.width().degrees(),
                patch.height().degrees()
            ))
        })
    }

    fn of_height(outline: &Outline, part: f64, seed: u64) -> Option<Self> {
        let cap = outline.cap();
        let between_caps = 180.0 - 2.0 * cap;
        let count = (between_caps / (part * outline.height)).ceil();
        let band_height = between_caps / count;
        let mut tiling = Self {
            centre: outline.centre,
            cap,
            band_height,
            bands: Vec::new(),
            tiles: 1,
        };
        for band in 0..count as u32 {
            let cells = outline.cells(tiling.band_decs(band as usize))?;
            let share = Stream::new(seed, Purpose::TileBand(band), 0, 0).uniform();
            tiling.bands.push(Band {
                cells,
                first: tiling.tiles,
                begin: 360.0 * share,
            });
            tiling.tiles += cells;
            if tiling.tiles > MOST_TILES {
                return None;
            }
        }
        tiling.tiles += 1;
        Some(tiling)
    }

    pub(super) fn tiles(&self) -> u64 {
        self.tiles
    }

    /// The declinations of a band, in degrees.
    fn band_decs(&self, band: usize) -> [f64; 2] {
        [band, band + 1].map(|edge| self.cap - 90.0 + self.band_height * edge as f64)
    }

    /// The band of a declination between the caps.
    fn band_at(&self, dec: f64) -> usize {
        let band = ((dec + 90.0 - self.cap) / self.band_height) as usize;
        band.min(self.bands.len() - 1)
    }

    /// The tile that a position (degrees) lies in.
    pub(super) fn tile_at(&self, (ra, dec): (f64, f64)) -> u64 {
        if dec < self.cap - 90.0 {
            return 0;
        }
        if dec >= 90.0 - self.cap {
            return self.tiles - 1;
        }
        let band = &self.bands[self.band_at(dec)];
        let cell = wrap(ra - band.begin) / (360.0 / band.cells as f64);
        band.first + (cell as u64).min(band.cells - 1)
    }

    /// Takes the patch to a tile.
    pub(super) fn rotation(&self, tile: u64) -> Rotation {
        let to = if tile == 0 {
            (0.0, -90.0)
        } else if tile + 1 >= self.tiles {
            (0.0, 90.0)
        } else {
            let at = self.bands.partition_point(|band| band.first <= tile) - 1;
            let (band, [south, north]) = (&self.bands[at], self.band_decs(at));
            let cell = (tile - band.first) as f64 + 0.5;
            let ra = wrap(band.begin + cell * (360.0 / band.cells as f64));
            (ra, 0.5 * (south + north))
        };
        Rotation::between(self.centre, to)
    }

    /// Ranges of tiles that hold every tile with a point of the box, each tile once.
    pub(super) fn tiles_near(&self, b: &LonLatBox) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        if b.dec_min() < self.cap - 90.0 {
            ranges.push(0..1);
        }
        let (first, last) = (self.band_at(b.dec_min()), self.band_at(b.dec_max()));
        for band in &self.bands[first..=last] {
            let width = 360.0 / band.cells as f64;
            let begin = (wrap(b.ra_min() - band.begin) / width) as u64;
            // One more on either side, against rounding.
            let count = (b.width().degrees() / width) as u64 + 4;
            if count >= band.cells {
                ranges.push(band.first..band.first + band.cells);
                continue;
            }
            let begin = (begin + band.cells - 1) % band.cells;
            let end = begin + count;
            ranges.push(band.first + begin..band.first + end.min(band.cells));
            if end > band.cells {
                ranges.push(band.first..band.first + end - band.cells);
            }
        }
        if b.dec_max() >= 90.0 - self.cap {
            ranges.push(self.tiles - 1..self.tiles);
        }
        ranges
    }
}

/// The patch's box, a little smaller.
struct Outline {
    centre: (f64, f64),
    half_width: f64,
    height: f64,
    decs: [f64; 2],
}

impl Outline {
    fn new(patch: &LonLatBox) -> Result<Self, SynthesizeError> {
        let (width, height) = (patch.width().degrees(), patch.height().degrees());
        if width <= 0.0 || height <= 0.0 {
            return Err(SynthesizeError::Options(
                "the patch has no area: it needs rows at more than one right ascension and declination".to_owned(),
            ));
        }
        let middle = patch.middle();
        let margin = EDGE_MARGIN * height;
        Ok(Self {
            centre: (middle.ra().degrees(), middle.dec().degrees()),
            half_width: 0.5 * width * (1.0 - EDGE_MARGIN),
            height: height - 2.0 * margin,
            decs: [patch.dec_min() + margin, patch.dec_max() - margin],
        })
    }

    /// Whether a point, rotated back, is in the patch.
    fn holds(&self, rotation: &Rotation, point: (f64, f64)) -> bool {
        let (ra, dec) = position(rotation.apply_back(vector(point.0, point.1)));
        let offset = wrap(ra - self.centre.0);
        let offset = offset.min(360.0 - offset);
        offset <= self.half_width && self.decs[0] <= dec && dec <= self.decs[1]
    }

    /// The largest radius of a cap that a copy covers.
    fn cap(&self) -> f64 {
        let mut radius = 0.5 * self.height;
        let rotation = Rotation::between(self.centre, (0.0, 90.0));
        let covered =
            |radius: f64| (0..360).all(|ra| self.holds(&rotation, (f64::from(ra), 90.0 - radius)));
        while !covered(radius) {
            radius *= 0.95;
        }
        radius
    }

    /// The smallest number of cells of a band that copies cover.
    fn cells(&self, decs: [f64; 2]) -> Option<u64> {
        let rotation = Rotation::between(self.centre, (0.0, 0.5 * (decs[0] + decs[1])));
        let covered = |cells: u64| {
            let half = 180.0 / cells as f64;
            (0..EDGE_POINTS).all(|i| {
                let share = f64::from(i) / f64::from(EDGE_POINTS - 1);
                let (ra, dec) = (
                    half * (2.0 * share - 1.0),
                    decs[0] + share * (decs[1] - decs[0]),
                );
                let edges = [(ra, decs[0]), (ra, decs[1]), (half, dec), (-half, dec)];
                edges.into_iter().all(|point| self.holds(&rotation, point))
            })
        };
        // Doubled until it is enough, then halved in on.
        let mut enough = 1;
        while !covered(enough) {
            enough *= 2;
            if enough > MOST_TILES {
                return None;
            }
        }
        let mut too_few = enough / 2;
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if covered(middle) {
                enough = middle;
            } else {
                too_few = middle;
            }
        }
        Some(enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn separation(a: Vector, b: Vector) -> f64 {
        let difference = [0, 1, 2].map(|i| a[i] - b[i]);
        2.0 * (0.5 * dot(difference, difference).sqrt())
            .asin()
            .to_degrees()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn every_point_comes_from_a_point_of_the_patch(
            ra in 0.0_f64..360.0, south in -80.0_f64..75.0, width in 0.5_f64..20.0, height in 0.5_f64..10.0,
            points in prop::collection::vec((0.0_f64..360.0, -1.0_f64..=1.0), 50), seed in 0_u64..9,
        ) {
            let patch = LonLatBox::from_degrees(ra, south, ra + width, (south + height).min(90.0)).unwrap();
            let tiling = Tiling::new(&patch, seed).unwrap();
            for (ra, sine) in points {
                let point = (ra, sine.asin().to_degrees());
                let tile = tiling.tile_at(point);
                let (back_ra, back_dec) = position(tiling.rotation(tile).apply_back(vector(point.0, point.1)));
                let back = sky::LonLat::from_degrees(back_ra, back_dec).unwrap();
                prop_assert!(patch.contains(back), "{point:?} of tile {tile} from {back} of {patch:?}");
                let around = LonLatBox::from_degrees(ra - 0.1, (point.1 - 0.1).max(-90.0), ra + 0.1, (point.1 + 0.1).min(90.0));
                let near = tiling.tiles_near(&around.unwrap());
                prop_assert_eq!(near.iter().filter(|range| range.contains(&tile)).count(), 1);
            }
        }

        #[test]
        fn rotations_keep_separations_and_come_back(
            a in (0.0_f64..360.0, -90.0_f64..90.0), b in (0.0_f64..360.0, -90.0_f64..90.0),
            from in (0.0_f64..360.0, -90.0_f64..90.0), to in (0.0_f64..360.0, -90.0_f64..=90.0),
        ) {
            let rotation = Rotation::between(from, to);
            let (a, b) = (vector(a.0, a.1), vector(b.0, b.1));
            let (ra, rb) = (rotation.apply(a), rotation.apply(b));
            prop_assert!((separation(a, b) - separation(ra, rb)).abs() < 1e-6);
            prop_assert!(separation(rotation.apply_back(ra), a) < 1e-12);
            prop_assert!(separation(rotation.apply(vector(from.0, from.1)), vector(to.0, to.1)) < 1e-12);
        }
    }

    #[test]
    fn few_copies_are_wasted() {
        let patch = LonLatBox::from_degrees(10.0, -1.0, 12.0, 1.0).unwrap();
        let tiling = Tiling::new(&patch, 1).unwrap();
        // 41,253 square degrees in copies of 4.
        assert!(tiling.tiles() < 13_000, "{}", tiling.tiles());
    }
}
