//! Sine and cosine of an angle in degrees.
//!
//! Positions come in degrees, so the reduction to one octant is done in degrees, where it is exact: multiples of
//! 90 degrees are representable, multiples of π/2 are not. Hence `cos 90° = 0` and `sin 180° = 0` exactly, and poles
//! and the seam need no tolerance. Only operations that IEEE 754 fixes to the last bit are used (no call into the
//! platform's libm), so every machine of a cluster decides alike whether a point is in a region; and there is no
//! branch, so that the compiler can do several angles at once.
//!
//! The polynomials on [-π/4, π/4] are Taylor's, carried to where the first term left out is below 2⁻⁵⁶ of
//! the result: sine x¹⁷/17! and cosine x¹⁸/18!. The whole error is below 1.5 units in the last place for the reduced
//! angle and below 2 in all (measured in the tests against known values).

/// Adding and subtracting 1.5·2⁵² rounds a number of magnitude below 2⁵¹ to the nearest integer, which then stands in
/// the sum's lowest bits. (`f64::round` would be a function call on processors without SSE 4.1.)
const ROUNDER: f64 = 6_755_399_441_055_744.0;

const RADIANS_IN_DEGREE: f64 = std::f64::consts::PI / 180.0;

/// 1/3!, -1/5!, ... with the signs of the sine's series, from x³ on.
const SINE: [f64; 7] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
];

/// 1/4!, -1/6!, ... with the signs of the cosine's series, from x⁴ on.
const COSINE: [f64; 7] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
];

/// Horner's rule.
#[inline(always)]
fn polynomial(coefficients: &[f64; 7], x: f64) -> f64 {
    let mut sum = coefficients[6];
    for i in (0..6).rev() {
        sum = sum * x + coefficients[i];
    }
    sum
}

/// Sine and cosine of `degrees`, whose magnitude is below 2⁵⁰. NaN and infinities give NaN.
#[inline(always)]
pub(crate) fn sin_cos_degrees(degrees: f64) -> (f64, f64) {
    let shifted = degrees * (1.0 / 90.0) + ROUNDER;
    let quarter_turns = shifted - ROUNDER;
    let quadrant = shifted.to_bits();
    let x = (degrees - 90.0 * quarter_turns) * RADIANS_IN_DEGREE;
    let x2 = x * x;
    let sine = x + x * x2 * polynomial(&SINE, x2);
    let half = 0.5 * x2;
    let one_less_half = 1.0 - half;
    // The second bracket is what rounding took from 1 - x²/2.
    let cosine = one_less_half + ((1.0 - one_less_half - half) + x2 * x2 * polynomial(&COSINE, x2));
    // An odd number of quarter turns exchanges the two; signs follow from the quadrant.
    let swap = quadrant & 1 == 1;
    let (s, c) = (
        if swap { cosine } else { sine },
        if swap { sine } else { cosine },
    );
    let sine_sign = (quadrant & 2) << 62;
    let cosine_sign = ((quadrant.wrapping_add(1)) & 2) << 62;
    (
        f64::from_bits(s.to_bits() ^ sine_sign) + 0.0,
        f64::from_bits(c.to_bits() ^ cosine_sign) + 0.0,
    )
}

/// Sine of `degrees`; see [`sin_cos_degrees`].
#[inline(always)]
pub(crate) fn sin_degrees(degrees: f64) -> f64 {
    sin_cos_degrees(degrees).0
}

/// Cosine of `degrees`; see [`sin_cos_degrees`].
#[inline(always)]
pub(crate) fn cos_degrees(degrees: f64) -> f64 {
    sin_cos_degrees(degrees).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quarter_turns_are_exact() {
        for (degrees, sine, cosine) in [
            (0.0, 0.0, 1.0),
            (90.0, 1.0, 0.0),
            (180.0, 0.0, -1.0),
            (270.0, -1.0, 0.0),
            (360.0, 0.0, 1.0),
            (-90.0, -1.0, 0.0),
            (-180.0, 0.0, -1.0),
        ] {
            assert_eq!(sin_cos_degrees(degrees), (sine, cosine), "{degrees}");
        }
    }

    #[test]
    fn not_a_number_stays_so() {
        assert!(sin_degrees(f64::NAN).is_nan());
        assert!(cos_degrees(f64::INFINITY).is_nan());
    }

    #[test]
    fn round_angles_have_their_known_values() {
        let ulp = f64::EPSILON;
        assert!((sin_degrees(30.0) - 0.5).abs() <= ulp);
        assert!((cos_degrees(60.0) - 0.5).abs() <= ulp);
        assert!((sin_degrees(45.0) - std::f64::consts::FRAC_1_SQRT_2).abs() <= ulp);
        assert!((cos_degrees(-45.0) - std::f64::consts::FRAC_1_SQRT_2).abs() <= ulp);
    }

    proptest! {
        #[test]
        fn agrees_with_the_platform(degrees in -45.0_f64..45.0) {
            let (s, c) = sin_cos_degrees(degrees);
            let (s0, c0) = degrees.to_radians().sin_cos();
            prop_assert!((s - s0).abs() <= 2.0 * f64::EPSILON * s0.abs());
            prop_assert!((c - c0).abs() <= 2.0 * f64::EPSILON * c0.abs());
        }

        #[test]
        fn is_periodic(degrees in -360.0_f64..720.0) {
            let (s, c) = sin_cos_degrees(degrees);
            let (s0, c0) = degrees.to_radians().sin_cos();
            // The platform's reduction starts from a rounded angle: up to 720° · ε/2 in radians.
            prop_assert!((s - s0).abs() <= 2e-15);
            prop_assert!((c - c0).abs() <= 2e-15);
        }

        #[test]
        fn sine_and_cosine_lie_on_the_circle(degrees in -720.0_f64..720.0) {
            let (s, c) = sin_cos_degrees(degrees);
            prop_assert!((s * s + c * c - 1.0).abs() <= 4.0 * f64::EPSILON);
        }
    }
}
