//! The arc sine of small numbers, to their last digits, by operations that every machine does alike.

/// Up to this square [`stretch`] has all digits with 5 terms: angles of up to 3.58 degrees for a haversine.
pub(crate) const NEAR: f64 = 1.0 / 1_024.0;

/// Up to this one, with 2.
pub(crate) const VERY_NEAR: f64 = 1.0 / 262_144.0;

/// The coefficients of `asin(√u) / √u - 1` as a series in `u`, from u¹ on: (2n)! / (4ⁿ (n!)² (2n + 1)).
const COEFFICIENTS: [f64; 5] = [
    1.0 / 6.0,
    3.0 / 40.0,
    5.0 / 112.0,
    35.0 / 1152.0,
    63.0 / 2816.0,
];

/// `x · asin(√u) / √u` for a square of at most [`NEAR`] with 5 terms, [`VERY_NEAR`] with 2. Where x is √u, that is its arc sine.
///
/// The first term left out is u⁶·0.018 for u up to 2⁻¹⁰, and u³·0.045 for u up to 2⁻¹⁸: both are below 2⁻⁵⁸. What is added to x is
/// small, so that its rounding errors do not count.
#[inline(always)]
pub(crate) fn stretch<const TERMS: usize>(x: f64, u: f64) -> f64 {
    let mut sum = COEFFICIENTS[TERMS - 1];
    for term in (0..TERMS - 1).rev() {
        sum = sum * u + COEFFICIENTS[term];
    }
    x + x * (u * sum)
}
