//! The angular separation of two positions, accurate at every distance.
//!
//! With `h = sin²(Δδ/2) + cos δ₁ cos δ₂ sin²(Δα/2)` (the haversine; R. W. Sinnott, *Virtues of the Haversine*, Sky and
//! Telescope 68 (1984) 159) the separation is `2 asin √h`, which is poor near the antipode. The cosine's
//! counterpart has no cancellation either:
//!
//! `1 - h = sin²((δ₁ + δ₂)/2) + cos δ₁ cos δ₂ cos²(Δα/2)`
//!
//! (from `cos²(Δδ/2) - cos δ₁ cos δ₂ = sin²((δ₁ + δ₂)/2)`), so `2 atan2(√h, √(1-h))` has a small relative error from
//! no distance at all to the antipode, where the distance to the antipode is what is accurate.
//!
//! Near pairs, of which a catalogue's neighbours are, need only the first half of that and a short series for the arc sine, which
//! a processor does for several pairs at once.

use crate::arc_sine::{self, NEAR};
use crate::trig::{cos_degrees, sin_cos_degrees, sin_degrees};
use crate::{Angle, LonLat};

/// Pairs that are computed together: their haversines stay at hand.
const AT_A_TIME: usize = 64;

/// The angle between two positions, in [0, 180] degrees, accurate from below microarcseconds to the antipode.
pub fn separation(a: LonLat, b: LonLat) -> Angle {
    Angle::from_degrees(separation_of_degrees(
        a.ra().degrees(),
        a.dec().degrees(),
        b.ra().degrees(),
        b.dec().degrees(),
    ))
}

/// Puts into `out` (replacing what it held) the separations in degrees of the positions `(ra1[i], dec1[i])` and `(ra2[i], dec2[i])`, in degrees.
///
/// As many as the shortest slice has entries. What is not finite gives NaN.
pub fn separation_degrees(
    ra1: &[f64],
    dec1: &[f64],
    ra2: &[f64],
    dec2: &[f64],
    out: &mut Vec<f64>,
) {
    let len = [ra1.len(), dec1.len(), ra2.len(), dec2.len()];
    let len = len.into_iter().min().unwrap_or(0);
    out.clear();
    out.resize(len, 0.0);
    for at in (0..len).step_by(AT_A_TIME) {
        let some = at..len.min(at + AT_A_TIME);
        let (ra1, dec1) = (&ra1[some.clone()], &dec1[some.clone()]);
        let (ra2, dec2) = (&ra2[some.clone()], &dec2[some.clone()]);
        let out = &mut out[some];
        for pair in 0..out.len() {
            out[pair] = haversine(
                ra_difference(ra1[pair], ra2[pair]),
                dec2[pair] - dec1[pair],
                cos_degrees(dec1[pair]) * cos_degrees(dec2[pair]),
            );
        }
        finish(out, |pair| {
            far_separation(ra1[pair], dec1[pair], ra2[pair], dec2[pair])
        });
    }
}

/// Puts into `out`, which is as long, the separations in degrees of one position from others, in degrees: bit by bit those of
/// [`separation_degrees`].
pub(crate) fn separations_from(ra: f64, dec: f64, ras: &[f64], decs: &[f64], out: &mut [f64]) {
    let (ras, decs) = (&ras[..out.len()], &decs[..out.len()]);
    let cosine = cos_degrees(dec);
    for pair in 0..out.len() {
        out[pair] = haversine(
            ra_difference(ra, ras[pair]),
            decs[pair] - dec,
            cosine * cos_degrees(decs[pair]),
        );
    }
    finish(out, |pair| far_separation(ra, dec, ras[pair], decs[pair]));
}

/// Turns haversines into separations, degrees; `far` gives those of pairs that are not near.
#[inline(always)]
fn finish(haversines: &mut [f64], far: impl Fn(usize) -> f64) {
    // Comparing with NaN is false.
    let all_near = haversines.iter().fold(true, |all, h| all & (*h <= NEAR));
    if all_near {
        for value in haversines {
            *value = near_separation(*value);
        }
        return;
    }
    for (pair, value) in haversines.iter_mut().enumerate() {
        *value = if *value <= NEAR {
            near_separation(*value)
        } else {
            far(pair)
        };
    }
}

/// `to - from` for right ascensions in [0, 360), the shorter way round: in [-180, 180] degrees.
///
/// Taking 360 from the larger one first is exact for a point just west of the seam, so that the difference of points
/// on either side of it is as accurate as elsewhere.
#[inline(always)]
pub(crate) fn ra_difference(from: f64, to: f64) -> f64 {
    let difference = to - from;
    if difference > 180.0 {
        (to - 360.0) - from
    } else if difference < -180.0 {
        to - (from - 360.0)
    } else {
        difference
    }
}

/// Degrees in, degrees out.
#[inline]
pub(crate) fn separation_of_degrees(ra1: f64, dec1: f64, ra2: f64, dec2: f64) -> f64 {
    let parallels = cos_degrees(dec1) * cos_degrees(dec2);
    let near = haversine(ra_difference(ra1, ra2), dec2 - dec1, parallels);
    if near <= NEAR {
        near_separation(near)
    } else {
        far_separation(ra1, dec1, ra2, dec2)
    }
}

/// `sin²(Δδ/2) + cos δ₁ cos δ₂ sin²(Δα/2)`; `parallels` is the product of the cosines.
#[inline(always)]
fn haversine(ra_difference: f64, dec_difference: f64, parallels: f64) -> f64 {
    square(sin_degrees(0.5 * dec_difference)) + parallels * square(sin_degrees(0.5 * ra_difference))
}

/// The separation of a haversine of at most [`NEAR`], degrees.
#[inline(always)]
fn near_separation(haversine: f64) -> f64 {
    (2.0 * arc_sine::stretch::<5>(haversine.sqrt(), haversine)).to_degrees()
}

/// The separation of positions that are not near, degrees.
fn far_separation(ra1: f64, dec1: f64, ra2: f64, dec2: f64) -> f64 {
    let (sin_half, cos_half) = sin_cos_degrees(0.5 * ra_difference(ra1, ra2));
    let parallels = cos_degrees(dec1) * cos_degrees(dec2);
    let near = square(sin_degrees(0.5 * (dec2 - dec1))) + parallels * square(sin_half);
    let far = square(sin_degrees(0.5 * (dec2 + dec1))) + parallels * square(cos_half);
    (2.0 * near.sqrt().atan2(far.sqrt())).to_degrees()
}

#[inline(always)]
pub(crate) fn square(x: f64) -> f64 {
    x * x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Computed with 60 digits from the binary values of the positions (mpmath, `2 atan2(|a - b|, |a + b|)`).
    const KNOWN: [[f64; 5]; 12] = [
        [
            10.0,
            20.0,
            10.0,
            20.00000000000091,
            9.094_947_017_729_282e-13,
        ],
        [10.0, 20.0, 10.000000001, 20.0, 9.396_926_985_364_245e-10],
        [
            0.0,
            0.0,
            2.2737367544323206e-13,
            0.0,
            2.273_736_754_432_320_6e-13,
        ],
        [359.9999999, -5.0, 1e-7, -5.0, 1.992_389_620_176_791e-7],
        [
            266.4168,
            -29.0078,
            266.4169,
            -29.0077,
            0.000_132_847_465_632_183_53,
        ],
        [
            10.0,
            89.999999,
            190.0,
            89.999999,
            1.999_999_994_950_485_4e-6,
        ],
        [1.0, 1.0, 2.0, 2.0, 1.413_962_280_317_459_6],
        [0.0, 0.0, 90.0, 0.0, 90.0],
        [200.5, -60.0, 201.5, 60.0, 120.002_519_133_810_07],
        [123.456, 45.678, 321.0, -12.25, 143.400_210_719_418_5],
        [10.0, 20.0, 190.0000001, -20.0, 179.999_999_906_030_74],
        [10.0, 20.0, 190.0, -20.00000000001, 179.999_999_999_99],
    ];

    #[test]
    fn known_separations() {
        for [ra1, dec1, ra2, dec2, known] in KNOWN {
            let found = separation_of_degrees(ra1, dec1, ra2, dec2);
            assert!((found - known).abs() <= 1e-15 * known, "{found} {known}");
        }
    }

    #[test]
    fn nothing_and_half_a_turn() {
        let at = |ra, dec| LonLat::from_degrees(ra, dec).unwrap();
        assert_eq!(separation(at(123.4, 56.7), at(123.4, 56.7)).degrees(), 0.0);
        assert_eq!(
            separation(at(10.0, 20.0), at(190.0, -20.0)).degrees(),
            180.0
        );
        assert_eq!(separation(at(0.0, 90.0), at(77.0, 90.0)).degrees(), 0.0);
        assert_eq!(separation(at(45.0, -90.0), at(12.0, 90.0)).degrees(), 180.0);
    }

    #[test]
    fn slices_end_with_the_shortest_and_replace() {
        let mut out = vec![7.0; 5];
        separation_degrees(
            &[0.0, 1.0, 2.0],
            &[0.0; 3],
            &[0.0, 2.0],
            &[0.0; 9],
            &mut out,
        );
        assert_eq!(out, [0.0, 1.0]);
        separation_degrees(&[f64::NAN], &[0.0], &[0.0], &[0.0], &mut out);
        assert!(out[0].is_nan());
    }

    proptest! {
        #[test]
        fn agrees_with_vectors(
            ra1 in 0.0_f64..360.0, dec1 in -90.0_f64..=90.0,
            ra2 in 0.0_f64..360.0, dec2 in -90.0_f64..=90.0,
        ) {
            let at = |ra, dec| LonLat::from_degrees(ra, dec).unwrap();
            let (a, b) = (at(ra1, dec1), at(ra2, dec2));
            let vectors = crate::UnitVector::from(a).separation(b.into());
            prop_assert!((separation(a, b) - vectors).degrees().abs() <= 1e-13);
            prop_assert_eq!(separation(a, b), separation(b, a));
            let mut out = Vec::new();
            separation_degrees(&[ra1], &[dec1], &[ra2], &[dec2], &mut out);
            prop_assert_eq!(out[0], separation(a, b).degrees());
        }

        /// Every way of computing it gives the same to the last bit, on both sides of where a near pair becomes a far one.
        #[test]
        fn all_ways_give_the_same(
            ra in 0.0_f64..360.0, dec in -90.0_f64..=90.0,
            others in proptest::collection::vec((-5.0_f64..5.0, -5.0_f64..5.0), 0..200),
        ) {
            let decs: Vec<f64> = others.iter().map(|(_, d)| (dec + d).clamp(-90.0, 90.0)).collect();
            let ras: Vec<f64> = others.iter().map(|(r, _)| (ra + r).rem_euclid(360.0)).collect();
            let mut from_one = vec![0.0; ras.len()];
            separations_from(ra, dec, &ras, &decs, &mut from_one);
            let (same_ra, same_dec) = (vec![ra; ras.len()], vec![dec; ras.len()]);
            let mut slices = Vec::new();
            separation_degrees(&ras, &decs, &same_ra, &same_dec, &mut slices);
            for at in 0..ras.len() {
                let one = separation_of_degrees(ra, dec, ras[at], decs[at]);
                prop_assert_eq!(from_one[at].to_bits(), one.to_bits());
                prop_assert_eq!(slices[at].to_bits(), one.to_bits());
                let far = far_separation(ra, dec, ras[at], decs[at]);
                prop_assert!((far - one).abs() <= 4.0 * f64::EPSILON * one);
            }
        }
    }
}
