//! [`Circle`]: all points within a radius of a centre (a cone).

use std::fmt;

use crate::separation::{ra_difference, square};
use crate::trig::{cos_degrees, sin_cos_degrees, sin_degrees};
use crate::{Angle, LonLat, LonLatBox, SkyError, UnitVector};

/// All points whose separation from the centre is at most the radius.
///
/// A radius of 0 holds the centre alone, one of 180 degrees the whole sky.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Circle {
    centre: LonLat,
    radius: Angle,
    cos_dec: f64,
    /// Whether the radius is beyond 90 degrees, so that the distance to the antipode is the accurate one to compare.
    wide: bool,
    /// sin²(r/2), or cos²(r/2) if `wide`.
    bound: f64,
    envelope: LonLatBox,
}

impl Circle {
    /// The circle around `centre`.
    ///
    /// # Errors
    /// [`SkyError::Radius`] if the radius is not in [0, 180] degrees.
    pub fn new(centre: LonLat, radius: Angle) -> Result<Self, SkyError> {
        let degrees = radius.degrees();
        if !(0.0..=180.0).contains(&degrees) {
            return Err(SkyError::Radius(degrees));
        }
        Ok(Self::valid(centre, radius))
    }

    pub(crate) fn valid(centre: LonLat, radius: Angle) -> Self {
        let (sine, cosine) = sin_cos_degrees(0.5 * radius.degrees());
        let wide = radius.degrees() > 90.0;
        Self {
            centre,
            radius,
            cos_dec: cos_degrees(centre.dec().degrees()),
            wide,
            bound: square(if wide { cosine } else { sine }),
            envelope: LonLatBox::point(centre).dilated(radius),
        }
    }

    /// The centre.
    pub const fn centre(&self) -> LonLat {
        self.centre
    }

    /// The radius, in [0, 180] degrees.
    pub const fn radius(&self) -> Angle {
        self.radius
    }

    /// Whether the point is in the circle or on its edge.
    pub fn contains(&self, p: LonLat) -> bool {
        self.contains_degrees(p.ra().degrees(), p.dec().degrees())
    }

    /// The same for right ascension in [0, 360) and declination. The envelope spares most points the trigonometry.
    #[inline(always)]
    pub(crate) fn contains_degrees(&self, ra: f64, dec: f64) -> bool {
        self.envelope.contains_degrees(ra, dec) && self.is_within_radius(ra, dec)
    }

    /// Compares the squared sine of half the separation; the formulas are those of [`crate::separation()`].
    #[inline(always)]
    fn is_within_radius(&self, ra: f64, dec: f64) -> bool {
        let (sin_half, cos_half) =
            sin_cos_degrees(0.5 * ra_difference(self.centre.ra().degrees(), ra));
        let parallels = self.cos_dec * cos_degrees(dec);
        let dec0 = self.centre.dec().degrees();
        if self.wide {
            let far = square(sin_degrees(0.5 * (dec + dec0))) + parallels * square(cos_half);
            far >= self.bound
        } else {
            let near = square(sin_degrees(0.5 * (dec - dec0))) + parallels * square(sin_half);
            near <= self.bound
        }
    }

    pub(crate) fn signed_distance(&self, p: UnitVector) -> Angle {
        UnitVector::from(self.centre).separation(p) - self.radius
    }

    /// Whether the circle and the box have a point within `margin` of each other.
    pub(crate) fn is_near_box(&self, b: &LonLatBox, margin: Angle) -> bool {
        b.separation(self.centre) <= self.radius + margin
    }

    /// Whether the box lies in the circle and at least `margin` from its edge.
    pub(crate) fn surely_contains_box(&self, b: &LonLatBox, margin: Angle) -> bool {
        self.radius.degrees() >= 180.0 || b.largest_separation(self.centre) <= self.radius - margin
    }

    pub(crate) const fn envelope_box(&self) -> LonLatBox {
        self.envelope
    }
}

/// `circle RA DEC RADIUS` in degrees.
impl fmt::Display for Circle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "circle {} {}", self.centre, self.radius)
    }
}
