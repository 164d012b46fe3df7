//! [`Angle`]: a plain angle that knows its unit.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use crate::trig;

/// An angle of any sign and size, finite or not.
///
/// It is kept in degrees, the unit in which catalogues and people give it, so that `from_degrees(x).degrees() == x`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Angle {
    degrees: f64,
}

impl Angle {
    /// No angle at all.
    pub const ZERO: Angle = Angle { degrees: 0.0 };

    /// An angle of so many degrees.
    pub const fn from_degrees(degrees: f64) -> Self {
        Self { degrees }
    }

    /// An angle of so many arcseconds.
    pub const fn from_arcsec(arcsec: f64) -> Self {
        Self {
            degrees: arcsec / 3600.0,
        }
    }

    /// An angle of so many radians.
    pub const fn from_radians(radians: f64) -> Self {
        Self {
            degrees: radians.to_degrees(),
        }
    }

    /// The angle in degrees.
    pub const fn degrees(self) -> f64 {
        self.degrees
    }

    /// The angle in arcseconds.
    pub const fn arcsec(self) -> f64 {
        self.degrees * 3600.0
    }

    /// The angle in radians.
    pub const fn radians(self) -> f64 {
        self.degrees.to_radians()
    }

    /// Sine and cosine; exact at multiples of 90 degrees.
    pub fn sin_cos(self) -> (f64, f64) {
        trig::sin_cos_degrees(self.degrees)
    }

    /// The smaller of two angles.
    pub fn min(self, other: Self) -> Self {
        Self::from_degrees(self.degrees.min(other.degrees))
    }

    /// The larger of two angles.
    pub fn max(self, other: Self) -> Self {
        Self::from_degrees(self.degrees.max(other.degrees))
    }
}

/// Degrees, as many digits as it takes to read the same angle back.
impl fmt::Display for Angle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.degrees, f)
    }
}

impl Add for Angle {
    type Output = Angle;
    fn add(self, other: Angle) -> Angle {
        Angle::from_degrees(self.degrees + other.degrees)
    }
}

impl Sub for Angle {
    type Output = Angle;
    fn sub(self, other: Angle) -> Angle {
        Angle::from_degrees(self.degrees - other.degrees)
    }
}

impl Neg for Angle {
    type Output = Angle;
    fn neg(self) -> Angle {
        Angle::from_degrees(-self.degrees)
    }
}

impl Mul<f64> for Angle {
    type Output = Angle;
    fn mul(self, factor: f64) -> Angle {
        Angle::from_degrees(self.degrees * factor)
    }
}

impl Div<f64> for Angle {
    type Output = Angle;
    fn div(self, divisor: f64) -> Angle {
        Angle::from_degrees(self.degrees / divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_convert() {
        assert_eq!(Angle::from_degrees(1.1).degrees(), 1.1);
        assert_eq!(Angle::from_arcsec(1800.0).degrees(), 0.5);
        assert_eq!(Angle::from_degrees(0.5).arcsec(), 1800.0);
        assert_eq!(Angle::from_radians(std::f64::consts::PI).degrees(), 180.0);
        assert_eq!(Angle::from_degrees(180.0).radians(), std::f64::consts::PI);
    }

    #[test]
    fn arithmetic_is_that_of_numbers() {
        let (a, b) = (Angle::from_degrees(30.0), Angle::from_degrees(12.0));
        assert_eq!((a + b).degrees(), 42.0);
        assert_eq!((a - b).degrees(), 18.0);
        assert_eq!((-a).degrees(), -30.0);
        assert_eq!((a * 2.0).degrees(), 60.0);
        assert_eq!((a / 2.0).degrees(), 15.0);
        assert!(b < a);
        assert_eq!(a.min(b), b);
        assert_eq!(a.max(b), a);
        assert_eq!(a.to_string(), "30");
    }
}
