//! Positions on the sky: [`LonLat`] in degrees and [`UnitVector`] in space.

use std::fmt;

use crate::trig::sin_cos_degrees;
use crate::{Angle, SkyError};

/// A position: right ascension in [0, 360) degrees, declination in [-90, 90] degrees.
///
/// At a pole every right ascension names the same point; it is kept as given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LonLat {
    ra: f64,
    dec: f64,
}

impl LonLat {
    /// The position at `ra`, `dec` in degrees. The right ascension is wrapped into [0, 360).
    ///
    /// # Errors
    /// [`SkyError::RightAscension`] if `ra` is not finite, [`SkyError::Declination`] if `dec` is not in [-90, 90].
    #[inline]
    pub fn from_degrees(ra: f64, dec: f64) -> Result<Self, SkyError> {
        if !ra.is_finite() {
            return Err(SkyError::RightAscension(ra));
        }
        if !(-90.0..=90.0).contains(&dec) {
            return Err(SkyError::Declination(dec));
        }
        Ok(Self::valid(ra, dec))
    }

    /// A position known to be valid but for the wrap of its right ascension.
    #[inline]
    pub(crate) fn valid(ra: f64, dec: f64) -> Self {
        Self {
            ra: wrap_degrees(ra),
            // Turns -0.0 into 0.0, which nothing may produce.
            dec: dec + 0.0,
        }
    }

    /// The right ascension, in [0, 360) degrees.
    pub const fn ra(self) -> Angle {
        Angle::from_degrees(self.ra)
    }

    /// The declination, in [-90, 90] degrees.
    pub const fn dec(self) -> Angle {
        Angle::from_degrees(self.dec)
    }

    /// The point on the other side of the sky.
    #[must_use]
    pub fn antipode(self) -> Self {
        Self::valid(self.ra + 180.0, -self.dec)
    }
}

/// Right ascension and declination in degrees, separated by a space.
impl fmt::Display for LonLat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.ra, self.dec)
    }
}

/// Wraps finite degrees into [0, 360); what is not finite becomes NaN.
#[inline]
pub(crate) fn wrap_degrees(degrees: f64) -> f64 {
    if (0.0..360.0).contains(&degrees) {
        // Turns -0.0 into 0.0.
        return degrees + 0.0;
    }
    let wrapped = degrees.rem_euclid(360.0);
    // A tiny negative angle is rounded up to 360 itself.
    if wrapped >= 360.0 { 0.0 } else { wrapped + 0.0 }
}

/// A point of the unit sphere: x towards RA 0 Dec 0, y towards RA 90 Dec 0, z towards the north pole.
///
/// The length is 1 within rounding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnitVector {
    x: f64,
    y: f64,
    z: f64,
}

impl UnitVector {
    pub(crate) const fn from_components(x: f64, y: f64, z: f64) -> Self {
        Self { x, y, z }
    }

    /// The direction of a vector, or `None` for one that has none (zero or not finite).
    pub fn from_vector(vector: [f64; 3]) -> Option<Self> {
        let largest = vector.iter().fold(0.0_f64, |m, c| m.max(c.abs()));
        if largest <= 0.0 || !vector.iter().all(|c| c.is_finite()) {
            return None;
        }
        // Scaled first, so that squares neither overflow nor vanish.
        let [x, y, z] = vector.map(|c| c / largest);
        let norm = (x * x + y * y + z * z).sqrt();
        Some(Self::from_components(x / norm, y / norm, z / norm))
    }

    /// Towards RA 0, Dec 0.
    pub const fn x(self) -> f64 {
        self.x
    }

    /// Towards RA 90, Dec 0.
    pub const fn y(self) -> f64 {
        self.y
    }

    /// Towards the north pole.
    pub const fn z(self) -> f64 {
        self.z
    }

    pub(crate) const fn components(self) -> [f64; 3] {
        [self.x, self.y, self.z]
    }

    /// The cosine of the angle to another point. Poor near 0 and 180 degrees: see [`Self::separation`].
    pub fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    /// The point on the other side of the sky.
    #[must_use]
    pub fn antipode(self) -> Self {
        Self::from_components(-self.x, -self.y, -self.z)
    }

    /// The angle to another point, within 3e-16 radians from 0 to 180 degrees.
    ///
    /// `2·atan2(|a - b|, |a + b|)`: W. Kahan, *Computing Cross-Products and Rotations in 2- and 3-Dimensional
    /// Euclidean Spaces* (2016), section 13.
    pub fn separation(self, other: Self) -> Angle {
        let square = |x: f64, y: f64, z: f64| x * x + y * y + z * z;
        let difference = square(self.x - other.x, self.y - other.y, self.z - other.z);
        let sum = square(self.x + other.x, self.y + other.y, self.z + other.z);
        Angle::from_radians(2.0 * difference.sqrt().atan2(sum.sqrt()))
    }
}

impl From<LonLat> for UnitVector {
    #[inline]
    fn from(p: LonLat) -> Self {
        vector_of_degrees(p.ra, p.dec)
    }
}

/// The unit vector of a position in degrees.
#[inline(always)]
pub(crate) fn vector_of_degrees(ra: f64, dec: f64) -> UnitVector {
    let (sin_ra, cos_ra) = sin_cos_degrees(ra);
    let (sin_dec, cos_dec) = sin_cos_degrees(dec);
    UnitVector::from_components(cos_dec * cos_ra, cos_dec * sin_ra, sin_dec)
}

/// The position of a unit vector; a pole has right ascension 0.
impl From<UnitVector> for LonLat {
    fn from(v: UnitVector) -> Self {
        let ra = v.y.atan2(v.x).to_degrees();
        let dec = v.z.atan2(v.x.hypot(v.y)).to_degrees();
        LonLat::valid(ra, dec.clamp(-90.0, 90.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn right_ascension_wraps() {
        for (given, wrapped) in [
            (0.0, 0.0),
            (360.0, 0.0),
            (-0.0, 0.0),
            (-1e-20, 0.0),
            (400.0, 40.0),
            (-10.0, 350.0),
            (720.0, 0.0),
        ] {
            let ra = LonLat::from_degrees(given, 0.0).unwrap().ra().degrees();
            assert_eq!(ra.to_bits(), f64::to_bits(wrapped), "{given}");
        }
    }

    #[test]
    fn what_is_no_position_is_rejected() {
        assert_eq!(
            LonLat::from_degrees(1.0, 90.5),
            Err(SkyError::Declination(90.5))
        );
        assert_eq!(
            LonLat::from_degrees(f64::INFINITY, 0.0),
            Err(SkyError::RightAscension(f64::INFINITY))
        );
        assert!(LonLat::from_degrees(f64::NAN, 0.0).is_err());
        assert!(LonLat::from_degrees(0.0, f64::NAN).is_err());
        assert!(LonLat::from_degrees(0.0, -90.000_000_000_1).is_err());
    }

    #[test]
    fn the_axes_are_where_they_should_be() {
        let vector =
            |ra, dec| UnitVector::from(LonLat::from_degrees(ra, dec).unwrap()).components();
        assert_eq!(vector(0.0, 0.0), [1.0, 0.0, 0.0]);
        assert_eq!(vector(90.0, 0.0), [0.0, 1.0, 0.0]);
        assert_eq!(vector(180.0, 0.0), [-1.0, 0.0, 0.0]);
        assert_eq!(vector(33.0, 90.0), [0.0, 0.0, 1.0]);
        assert_eq!(vector(33.0, -90.0), [0.0, 0.0, -1.0]);
    }

    #[test]
    fn a_vector_without_direction_has_none() {
        assert_eq!(UnitVector::from_vector([0.0; 3]), None);
        assert_eq!(UnitVector::from_vector([f64::NAN, 0.0, 1.0]), None);
        assert_eq!(UnitVector::from_vector([f64::INFINITY, 0.0, 0.0]), None);
        assert_eq!(
            UnitVector::from_vector([0.0, 0.0, 1e-300]).map(UnitVector::components),
            Some([0.0, 0.0, 1.0])
        );
    }

    proptest! {
        #[test]
        fn position_and_vector_convert_both_ways(ra in 0.0_f64..360.0, dec in -90.0_f64..=90.0) {
            let p = LonLat::from_degrees(ra, dec).unwrap();
            let v = UnitVector::from(p);
            let back = LonLat::from(v);
            // Half a unit in the last place of 360 degrees is 5e-16 radians; arc tangent, sine and cosine add as much again.
            prop_assert!(v.separation(back.into()).radians() <= 1.5e-15);
            prop_assert!((v.dot(v) - 1.0).abs() <= 1e-15);
        }
    }
}
