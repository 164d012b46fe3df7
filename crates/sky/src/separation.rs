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

use crate::trig::{cos_degrees, sin_cos_degrees, sin_degrees};
use crate::{Angle, LonLat};

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
    let first = ra1.iter().zip(dec1);
    let second = ra2.iter().zip(dec2);
    out.clear();
    out.extend(
        first
            .zip(second)
            .map(|((&ra1, &dec1), (&ra2, &dec2))| separation_of_degrees(ra1, dec1, ra2, dec2)),
    );
}

/// Degrees in, degrees out. Any finite right ascensions.
#[inline]
pub(crate) fn separation_of_degrees(ra1: f64, dec1: f64, ra2: f64, dec2: f64) -> f64 {
    let (sin_half, cos_half) = sin_cos_degrees(0.5 * (ra2 - ra1));
    let parallels = cos_degrees(dec1) * cos_degrees(dec2);
    let near = square(sin_degrees(0.5 * (dec2 - dec1))) + parallels * square(sin_half);
    let far = square(sin_degrees(0.5 * (dec2 + dec1))) + parallels * square(cos_half);
    (2.0 * near.sqrt().atan2(far.sqrt())).to_degrees()
}

#[inline(always)]
pub(crate) fn square(x: f64) -> f64 {
    x * x
}
