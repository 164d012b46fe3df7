//! Loops over squared chords, several at a time.
//!
//! The loops count places rather than zip iterators, and are no one's generic code, so that the compiler has them whole and
//! turns them into vector instructions also where it optimises each unit of a crate by itself.
#![allow(
    clippy::needless_range_loop,
    reason = "several slices are gone through at a time"
)]

use super::limits::Limits;
use crate::arc_sine;

/// How many chords are computed at a time: as many as an AVX2 register has doubles.
pub(super) const LANES: usize = 4;

/// Unit vectors, [`LANES`] of them, component by component.
pub(super) type Block = [[f64; LANES]; 3];

/// How many squared chords are near enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub near: u64,
    /// Whether one of the chords is such that the separation function must be asked, so that `near` means nothing.
    pub in_doubt: bool,
}

/// Counts the vectors near another in some of the blocks.
///
/// Signs are added up, and the least distance from the limit is kept. That is a minimum of numbers whose order the
/// compiler must not change, and so it takes the lanes of a block together, rather than blocks.
#[inline]
pub(super) fn tally(blocks: &[Block], some: &[u32], from: [f64; 3], limits: &Limits) -> Tally {
    let middle = limits.middle;
    let mut near = [0_u64; LANES];
    let mut least = [f64::INFINITY; LANES];
    for block in some {
        let squared = squared_chords_of_block(&blocks[*block as usize], from);
        for lane in 0..LANES {
            let beyond = squared[lane] - middle;
            near[lane] += beyond.to_bits() >> 63;
            least[lane] = smaller(beyond.abs(), least[lane]);
        }
    }
    let least = smaller(smaller(least[0], least[1]), smaller(least[2], least[3]));
    Tally {
        near: (near[0] + near[2]) + (near[1] + near[3]),
        in_doubt: least <= limits.doubt,
    }
}

/// Puts the squared chords from one vector to others into `out`, which has as many entries, and gives the largest.
#[inline]
pub(super) fn squared_chords(blocks: &[Block], from: [f64; 3], out: &mut [[f64; LANES]]) -> f64 {
    let out = &mut out[..blocks.len()];
    let mut largest = [0.0; LANES];
    for block in 0..blocks.len() {
        let squared = squared_chords_of_block(&blocks[block], from);
        for lane in 0..LANES {
            largest[lane] = larger(squared[lane], largest[lane]);
        }
        out[block] = squared;
    }
    larger(
        larger(largest[0], largest[1]),
        larger(largest[2], largest[3]),
    )
}

/// The squared chord from one vector to a lane of others.
#[inline]
pub(super) fn squared_chord(block: &Block, lane: usize, from: [f64; 3]) -> f64 {
    squared_chords_of_block(block, from)[lane]
}

/// Of numbers that are none of them NaN: one instruction, where [`f64::min`] is several.
#[inline(always)]
pub(super) fn smaller(a: f64, b: f64) -> f64 {
    if a < b { a } else { b }
}

#[inline(always)]
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

#[inline(always)]
fn squared_chords_of_block([x, y, z]: &Block, from: [f64; 3]) -> [f64; LANES] {
    let mut squared = [0.0; LANES];
    for lane in 0..LANES {
        let (dx, dy, dz) = (x[lane] - from[0], y[lane] - from[1], z[lane] - from[2]);
        squared[lane] = dx * dx + dy * dy + dz * dz;
    }
    squared
}

/// Up to this squared chord [`angle_of_near`] has all digits with all of its terms.
const NEAR: f64 = 4.0 * arc_sine::NEAR;

/// Up to this one, with two of them.
const VERY_NEAR: f64 = 4.0 * arc_sine::VERY_NEAR;

/// The angle of a squared chord, radians, for one of at most [`NEAR`] with 5 terms, [`VERY_NEAR`] with 2.
///
/// It is `2 asin(c/2)`.
#[inline(always)]
fn angle_of_near<const TERMS: usize>(squared_chord: f64) -> f64 {
    arc_sine::stretch::<TERMS>(squared_chord.sqrt(), 0.25 * squared_chord)
}

/// The same for any squared chord; one of more than 4, by rounding, is half a turn.
#[inline]
fn separation_of_any(squared_chord: f64) -> f64 {
    if squared_chord <= NEAR {
        return angle_of_near::<5>(squared_chord).to_degrees();
    }
    // As |a + b|² = 4 - |a - b|².
    let other = (4.0 - squared_chord).max(0.0);
    (2.0 * squared_chord.sqrt().atan2(other.sqrt())).to_degrees()
}

/// Squared chords, and the largest of them or a larger one.
#[derive(Debug, Clone, Copy)]
pub(super) struct SquaredChords<'a> {
    pub all: &'a [f64],
    pub largest: f64,
}

impl SquaredChords<'_> {
    /// Puts the separations, in degrees, into `out`, which gets as many.
    pub fn separations(self, out: &mut Vec<f64>) {
        out.clear();
        if self.largest <= NEAR {
            out.extend(self.all.iter().map(|c| angle_of_near::<5>(*c).to_degrees()));
        } else {
            out.extend(self.all.iter().map(|c| separation_of_any(*c)));
        }
    }

    /// The sum of the separations, degrees.
    pub fn sum_of_separations(self) -> f64 {
        if self.largest > NEAR {
            return self.all.iter().map(|c| separation_of_any(*c)).sum();
        }
        let angles = if self.largest <= VERY_NEAR {
            sum_of_near::<2>(self.all)
        } else {
            sum_of_near::<5>(self.all)
        };
        angles.to_degrees()
    }
}

/// The sum of the angles of squared chords, radians; see [`angle_of_near`].
#[inline]
fn sum_of_near<const TERMS: usize>(squared_chords: &[f64]) -> f64 {
    let (blocks, rest) = squared_chords.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for block in blocks {
        for lane in 0..LANES {
            sums[lane] += angle_of_near::<TERMS>(block[lane]);
        }
    }
    for lane in 0..rest.len() {
        sums[lane] += angle_of_near::<TERMS>(rest[lane]);
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separations_of_chords_are_angles() {
        for exponent in -160..=20 {
            let angle = std::f64::consts::PI * 10_f64.powf(f64::from(exponent - 20) / 10.0);
            let chord = 2.0 * (0.5 * angle).sin();
            let mut found = Vec::new();
            let seven = [chord * chord; 7];
            let squared = SquaredChords {
                all: &seven,
                largest: seven[0],
            };
            squared.separations(&mut found);
            let error = (found[0].to_radians() - angle).abs();
            // The last bit of a chord weighs more the nearer the antipode is.
            let allowed = if angle > 3.0 { 3e-8 } else { 1e-14 * angle };
            assert!(error <= allowed, "{angle} {error}");
            let sum = squared.sum_of_separations();
            assert!((sum - 7.0 * found[0]).abs() <= 1e-14 * sum);
        }
    }
}
