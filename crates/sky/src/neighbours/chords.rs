//! Loops over squared chords, several at a time.
//!
//! The loops count places rather than zip iterators, and are no one's generic code, so that the compiler has them whole and
//! turns them into vector instructions also where it optimises each unit of a crate by itself.
#![allow(
    clippy::needless_range_loop,
    reason = "several slices are gone through at a time"
)]

use super::limits::Limits;

/// How many chords are computed at a time: as many as an AVX2 register has doubles.
pub(super) const LANES: usize = 4;

/// Unit vectors, [`LANES`] of them, component by component.
pub(super) type Block = [[f64; LANES]; 3];

/// How many squared chords are below two limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Surely within the radius.
    pub surely: u64,
    /// Those, and the ones that must be asked.
    pub possibly: u64,
}

/// Counts the vectors near another.
#[inline]
pub(super) fn tally(blocks: &[Block], from: [f64; 3], limits: &Limits) -> Tally {
    let (surely_below, possibly_to) = (limits.surely, limits.possibly);
    let mut surely = [0_u64; LANES];
    let mut possibly = [0_u64; LANES];
    for block in blocks {
        let squared = squared_chords_of_block(block, from);
        for lane in 0..LANES {
            surely[lane] += u64::from(squared[lane] < surely_below);
            possibly[lane] += u64::from(squared[lane] <= possibly_to);
        }
    }
    Tally {
        surely: surely[0] + surely[1] + surely[2] + surely[3],
        possibly: possibly[0] + possibly[1] + possibly[2] + possibly[3],
    }
}

/// Puts the squared chords from one vector to others into `out`, which has as many entries.
#[inline]
pub(super) fn squared_chords(blocks: &[Block], from: [f64; 3], out: &mut [[f64; LANES]]) {
    let out = &mut out[..blocks.len()];
    for block in 0..blocks.len() {
        out[block] = squared_chords_of_block(&blocks[block], from);
    }
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

/// Below this squared chord [`separation_of_near`] has all digits.
const NEAR: f64 = 1.0 / 256.0;

/// The coefficients of `asin(√u) / √u` as a series in `u`: (2n)! / (4ⁿ (n!)² (2n + 1)).
const ARC_SINE: [f64; 8] = [
    1.0,
    1.0 / 6.0,
    3.0 / 40.0,
    5.0 / 112.0,
    35.0 / 1152.0,
    63.0 / 2816.0,
    231.0 / 13_312.0,
    143.0 / 10_240.0,
];

/// The angle of a squared chord, degrees, for one of at most [`NEAR`].
///
/// `2 asin(c/2) = c · asin(√u)/√u` with `u = c²/4 < 2⁻¹⁰`. The first term left out is u⁸·0.012, below 2⁻⁸⁶.
#[inline(always)]
fn separation_of_near(squared_chord: f64) -> f64 {
    let u = 0.25 * squared_chord;
    let mut sum = ARC_SINE[7];
    for term in (0..7).rev() {
        sum = sum * u + ARC_SINE[term];
    }
    squared_chord.sqrt() * sum * const { 180.0 / std::f64::consts::PI }
}

/// The same for any squared chord; one of more than 4, by rounding, is half a turn.
#[inline]
fn separation_of_any(squared_chord: f64) -> f64 {
    if squared_chord <= NEAR {
        return separation_of_near(squared_chord);
    }
    // As |a + b|² = 4 - |a - b|².
    let other = (4.0 - squared_chord).max(0.0);
    (2.0 * squared_chord.sqrt().atan2(other.sqrt())).to_degrees()
}

/// Puts the separations of squared chords, in degrees, into `out`, which gets as many.
pub(super) fn separations(squared_chords: &[f64], out: &mut Vec<f64>) {
    out.clear();
    if all_near(squared_chords) {
        out.extend(squared_chords.iter().map(|c| separation_of_near(*c)));
    } else {
        out.extend(squared_chords.iter().map(|c| separation_of_any(*c)));
    }
}

/// The sum of the separations of squared chords, degrees.
pub(super) fn sum_of_separations(squared_chords: &[f64]) -> f64 {
    if !all_near(squared_chords) {
        return squared_chords.iter().map(|c| separation_of_any(*c)).sum();
    }
    let (blocks, rest) = squared_chords.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for block in blocks {
        for lane in 0..LANES {
            sums[lane] += separation_of_near(block[lane]);
        }
    }
    let rest: f64 = rest.iter().map(|c| separation_of_near(*c)).sum();
    sums.iter().sum::<f64>() + rest
}

#[inline]
fn all_near(squared_chords: &[f64]) -> bool {
    // Without an early end, so that it is done several at a time.
    squared_chords
        .iter()
        .fold(true, |all, c| all & (*c <= NEAR))
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
            separations(&[chord * chord], &mut found);
            let error = (found[0].to_radians() - angle).abs();
            // The last bit of a chord weighs more the nearer the antipode is.
            let allowed = if angle > 3.0 { 3e-8 } else { 1e-14 * angle };
            assert!(error <= allowed, "{angle} {error}");
            let sum = sum_of_separations(&[chord * chord; 7]);
            assert!((sum - 7.0 * found[0]).abs() <= 1e-14 * sum);
        }
    }
}
