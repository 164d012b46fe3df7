//! [`LonLatBox`]: a range of right ascension times a range of declination.

use std::fmt;

use crate::position::{vector_of_degrees, wrap_degrees};
use crate::separation::separation_of_degrees;
use crate::trig::{cos_degrees, sin_cos_degrees, sin_degrees};
use crate::{Angle, LonLat, SkyError, UnitVector};

/// What rounding can add to a bound that was computed in degrees: 1e-11 degrees are 36 nanoarcseconds, and at most
/// 360 · 2⁻⁵² · 100, a hundred roundings of the largest right ascension.
const ROUNDING_DEGREES: f64 = 1e-11;

/// All positions with right ascension in `[ra_min, ra_max]` and declination in `[dec_min, dec_max]`, edges included.
///
/// `ra_min > ra_max` means that the box wraps through right ascension 0. A box of all right ascensions has
/// `ra_min = 0`, `ra_max = 360`; otherwise both are in [0, 360). A box is never empty, but may be a line or a point.
/// Positions are taken by their numbers: a position at a pole is in the box if its right ascension, as given, is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LonLatBox {
    ra_min: f64,
    ra_max: f64,
    dec_min: f64,
    dec_max: f64,
}

impl LonLatBox {
    /// The whole sky.
    pub const FULL: LonLatBox = LonLatBox {
        ra_min: 0.0,
        ra_max: 360.0,
        dec_min: -90.0,
        dec_max: 90.0,
    };

    /// The box from `ra_min` eastwards to `ra_max` and from `dec_min` to `dec_max`, in degrees.
    ///
    /// Right ascensions are wrapped into [0, 360); if `ra_max - ra_min` is 360 or more, the box goes all around.
    ///
    /// # Errors
    /// A right ascension that is not finite, a declination outside of [-90, 90], `dec_min > dec_max`.
    pub fn from_degrees(
        ra_min: f64,
        dec_min: f64,
        ra_max: f64,
        dec_max: f64,
    ) -> Result<Self, SkyError> {
        for ra in [ra_min, ra_max] {
            if !ra.is_finite() {
                return Err(SkyError::RightAscension(ra));
            }
        }
        for dec in [dec_min, dec_max] {
            if !(-90.0..=90.0).contains(&dec) {
                return Err(SkyError::Declination(dec));
            }
        }
        if dec_min > dec_max {
            return Err(SkyError::BoxDeclinations { dec_min, dec_max });
        }
        Ok(Self::valid(ra_min, dec_min, ra_max, dec_max))
    }

    /// A box of finite right ascensions and of declinations that are in range, or slightly beyond a pole, and in order.
    pub(crate) fn valid(ra_min: f64, dec_min: f64, ra_max: f64, dec_max: f64) -> Self {
        let all = ra_max - ra_min >= 360.0;
        Self {
            ra_min: if all { 0.0 } else { wrap_degrees(ra_min) },
            ra_max: if all { 360.0 } else { wrap_degrees(ra_max) },
            dec_min: dec_min.clamp(-90.0, 90.0) + 0.0,
            dec_max: dec_max.clamp(-90.0, 90.0) + 0.0,
        }
    }

    /// The box that holds just one point.
    pub fn point(p: LonLat) -> Self {
        let (ra, dec) = (p.ra().degrees(), p.dec().degrees());
        Self {
            ra_min: ra,
            ra_max: ra,
            dec_min: dec,
            dec_max: dec,
        }
    }

    /// The western edge in degrees.
    pub const fn ra_min(&self) -> f64 {
        self.ra_min
    }

    /// The eastern edge in degrees; below [`Self::ra_min`] if the box wraps through right ascension 0.
    pub const fn ra_max(&self) -> f64 {
        self.ra_max
    }

    /// The southern edge in degrees.
    pub const fn dec_min(&self) -> f64 {
        self.dec_min
    }

    /// The northern edge in degrees.
    pub const fn dec_max(&self) -> f64 {
        self.dec_max
    }

    /// Whether the box holds every right ascension.
    pub fn is_all_around(&self) -> bool {
        self.ra_max >= 360.0
    }

    /// From the western to the eastern edge, in [0, 360] degrees of right ascension.
    pub fn width(&self) -> Angle {
        Angle::from_degrees(self.width_degrees())
    }

    fn width_degrees(&self) -> f64 {
        let width = self.ra_max - self.ra_min;
        if width < 0.0 { width + 360.0 } else { width }
    }

    /// From the southern to the northern edge.
    pub fn height(&self) -> Angle {
        Angle::from_degrees(self.dec_max - self.dec_min)
    }

    /// The point in the middle of both ranges.
    pub fn middle(&self) -> LonLat {
        LonLat::valid(
            self.ra_min + 0.5 * self.width_degrees(),
            0.5 * (self.dec_min + self.dec_max),
        )
    }

    /// Whether the point is in the box or on its edge.
    pub fn contains(&self, p: LonLat) -> bool {
        self.contains_degrees(p.ra().degrees(), p.dec().degrees())
    }

    /// The same for right ascension in [0, 360) and declination.
    #[inline(always)]
    pub(crate) fn contains_degrees(&self, ra: f64, dec: f64) -> bool {
        let from = ra >= self.ra_min;
        let to = ra <= self.ra_max;
        let ra_inside = if self.ra_min <= self.ra_max {
            from & to
        } else {
            from | to
        };
        ra_inside & (dec >= self.dec_min) & (dec <= self.dec_max)
    }

    /// Whether every point of `other` is in this box.
    pub fn contains_box(&self, other: &LonLatBox) -> bool {
        let dec = self.dec_min <= other.dec_min && other.dec_max <= self.dec_max;
        let ra = self.is_all_around()
            || (!other.is_all_around()
                && wrap_degrees(other.ra_min - self.ra_min) + other.width_degrees()
                    <= self.width_degrees());
        dec && ra
    }

    /// Whether the two boxes have a point in common; a pole is one point for all right ascensions.
    pub fn intersects(&self, other: &LonLatBox) -> bool {
        let dec_min = self.dec_min.max(other.dec_min);
        let dec_max = self.dec_max.min(other.dec_max);
        if dec_min > dec_max {
            return false;
        }
        dec_max >= 90.0
            || dec_min <= -90.0
            || self.ra_holds(other.ra_min)
            || other.ra_holds(self.ra_min)
    }

    fn ra_holds(&self, ra: f64) -> bool {
        let (from, to) = (ra >= self.ra_min, ra <= self.ra_max);
        if self.ra_min <= self.ra_max {
            from && to
        } else {
            from || to
        }
    }

    /// The angle from the point to the nearest point of the box: 0 inside and on the edge.
    ///
    /// Outside of the box's right ascensions the nearest point is on the nearer of the two meridians, because at each
    /// declination the distance grows with the difference in right ascension. On a meridian that is `Δα` away,
    /// `cos d = sin δ sin φ + cos δ cos φ cos Δα` is one cosine of the declination `φ`, largest at
    /// `φ* = atan2(sin δ, cos δ cos Δα)`, the foot of the perpendicular, whose length is `asin(cos δ sin Δα)`.
    pub fn separation(&self, p: LonLat) -> Angle {
        Angle::from_degrees(self.separation_of_degrees(p.ra().degrees(), p.dec().degrees()))
    }

    pub(crate) fn separation_of_degrees(&self, ra: f64, dec: f64) -> f64 {
        if self.ra_holds(ra) || dec.abs() >= 90.0 {
            return (dec - self.dec_max).max(self.dec_min - dec).max(0.0);
        }
        let (edge, offset) = self.nearer_meridian(ra);
        let (sin_offset, cos_offset) = sin_cos_degrees(offset);
        let (sin_dec, cos_dec) = sin_cos_degrees(dec);
        let foot = sin_dec.atan2(cos_dec * cos_offset).to_degrees();
        if self.dec_min <= foot && foot <= self.dec_max {
            return (cos_dec * sin_offset).min(1.0).asin().to_degrees();
        }
        let south = separation_of_degrees(ra, dec, edge, self.dec_min);
        let north = separation_of_degrees(ra, dec, edge, self.dec_max);
        south.min(north)
    }

    /// The nearer of the two edges and how far it is in right ascension, for one outside of the box.
    fn nearer_meridian(&self, ra: f64) -> (f64, f64) {
        let west = wrap_degrees(self.ra_min - ra);
        let east = wrap_degrees(ra - self.ra_max);
        if west < east {
            (self.ra_min, west)
        } else {
            (self.ra_max, east)
        }
    }

    /// The angle from the point to the farthest point of the box.
    ///
    /// What is farthest from a point is nearest to its antipode.
    pub fn largest_separation(&self, p: LonLat) -> Angle {
        Angle::from_degrees(180.0) - self.separation(p.antipode())
    }

    /// A lower bound of the angle from a point outside to the box (positive), or minus a lower bound of the angle
    /// from a point inside to the nearest point outside (zero or negative).
    pub(crate) fn signed_distance(&self, p: LonLat) -> Angle {
        if !self.contains(p) {
            return self.separation(p);
        }
        let (ra, dec) = (p.ra().degrees(), p.dec().degrees());
        // A pole has nothing behind it, and a box of all right ascensions no meridian edges.
        let north = if self.dec_max < 90.0 {
            self.dec_max - dec
        } else {
            f64::INFINITY
        };
        let south = if self.dec_min > -90.0 {
            dec - self.dec_min
        } else {
            f64::INFINITY
        };
        let mut depth = north.min(south);
        if !self.is_all_around() {
            for offset in [
                wrap_degrees(ra - self.ra_min),
                wrap_degrees(self.ra_max - ra),
            ] {
                // Beyond a quarter turn the nearest point of the edge's half circle is a pole.
                let sine = if offset < 90.0 {
                    sin_degrees(offset)
                } else {
                    1.0
                };
                depth = depth.min((cos_degrees(dec) * sine).min(1.0).asin().to_degrees());
            }
        }
        Angle::from_degrees(-depth.min(180.0))
    }

    /// A box that holds every point within `margin` of this one (which must not be negative): an envelope.
    #[must_use]
    pub fn dilated(&self, margin: Angle) -> Self {
        let margin = margin.degrees().max(0.0) + ROUNDING_DEGREES;
        let (dec_min, dec_max) = (self.dec_min - margin, self.dec_max + margin);
        let highest = self.dec_min.abs().max(self.dec_max.abs());
        let half_width = half_width_of_cap(highest, margin);
        let all = self.is_all_around() || self.width_degrees() + 2.0 * half_width >= 360.0;
        let (ra_min, ra_max) = if all {
            (0.0, 360.0)
        } else {
            let ra_min = self.ra_min - half_width;
            (ra_min, ra_min + self.width_degrees() + 2.0 * half_width)
        };
        Self::valid(ra_min, dec_min, ra_max, dec_max)
    }

    /// The box with all its numbers moved outwards by the same `margin`, whatever it is on the sky: against rounding.
    #[must_use]
    pub(crate) fn padded(&self, margin: Angle) -> Self {
        let margin = margin.degrees();
        let ra_min = self.ra_min - margin;
        let ra_max = ra_min + self.width_degrees() + 2.0 * margin;
        Self::valid(ra_min, self.dec_min - margin, ra_max, self.dec_max + margin)
    }

    /// The smallest box that holds this one and the point; a tie in right ascension grows eastwards.
    #[must_use]
    pub fn extend(&self, p: LonLat) -> Self {
        self.union(&Self::point(p))
    }

    /// A small box that holds both: of the two ways round, the one that is narrower in right ascension.
    #[must_use]
    pub fn union(&self, other: &LonLatBox) -> Self {
        let (ra_min, ra_max) = union_of_ranges(self, other);
        Self {
            ra_min,
            ra_max,
            dec_min: self.dec_min.min(other.dec_min),
            dec_max: self.dec_max.max(other.dec_max),
        }
    }

    /// A circle that holds the box: its centre and radius.
    pub(crate) fn bounding_circle(&self) -> (UnitVector, Angle) {
        let middle = self.middle();
        let centre = vector_of_degrees(middle.ra().degrees(), middle.dec().degrees());
        (centre, self.largest_separation(middle))
    }

    /// The box's four quarters: halved in right ascension and in declination.
    pub(crate) fn quarters(&self) -> [LonLatBox; 4] {
        let dec = 0.5 * (self.dec_min + self.dec_max);
        let ra = wrap_degrees(self.ra_min + 0.5 * self.width_degrees());
        let part = |ra_min, ra_max, dec_min, dec_max| LonLatBox {
            ra_min,
            ra_max,
            dec_min,
            dec_max,
        };
        // The far edge of the whole circle is 360 only as a box's own end.
        let ra_max = if self.is_all_around() {
            0.0
        } else {
            self.ra_max
        };
        [
            part(self.ra_min, ra, self.dec_min, dec),
            part(ra, ra_max, self.dec_min, dec),
            part(self.ra_min, ra, dec, self.dec_max),
            part(ra, ra_max, dec, self.dec_max),
        ]
    }
}

/// The narrower of the two ranges of right ascension that begin with one box and end with the other.
fn union_of_ranges(a: &LonLatBox, b: &LonLatBox) -> (f64, f64) {
    // To a place a rounding before it is all around, not nothing.
    let length = |from: f64, to: f64| {
        let offset = to - from;
        if offset < 0.0 { offset + 360.0 } else { offset }
    };
    // By comparisons of places: a sum of lengths is rounded, and ranges that begin alike would seem to close the circle.
    let holds = |a: &LonLatBox, b: &LonLatBox| {
        a.ra_holds(b.ra_min)
            && a.ra_holds(b.ra_max)
            && length(a.ra_min, b.ra_min) <= length(a.ra_min, b.ra_max)
            && b.width_degrees() <= a.width_degrees() + ROUNDING_DEGREES
    };
    if a.is_all_around() || b.is_all_around() {
        return (0.0, 360.0);
    }
    if holds(a, b) {
        return (a.ra_min, a.ra_max);
    }
    if holds(b, a) {
        return (b.ra_min, b.ra_max);
    }
    let starts_in = |a: &LonLatBox, b: &LonLatBox| a.ra_holds(b.ra_min);
    if starts_in(a, b) && starts_in(b, a) {
        // Each begins in the other and neither holds the other: together they close the circle.
        return (0.0, 360.0);
    }
    if starts_in(a, b) || starts_in(b, a) {
        let (first, second) = if starts_in(a, b) { (a, b) } else { (b, a) };
        return (first.ra_min, second.ra_max);
    }
    if length(a.ra_min, b.ra_max) <= length(b.ra_min, a.ra_max) {
        (a.ra_min, b.ra_max)
    } else {
        (b.ra_min, a.ra_max)
    }
}

/// Half of the range of right ascension, in degrees, of a circle of `radius` around a point at declination `dec`; 180
/// if the circle reaches a pole. Rounded up.
///
/// The meridian that touches the circle makes a right-angled triangle with the pole: `sin Δα = sin r / cos δ`.
pub(crate) fn half_width_of_cap(dec: f64, radius: f64) -> f64 {
    if dec.abs() + radius >= 90.0 - ROUNDING_DEGREES {
        return 180.0;
    }
    let ratio = sin_degrees(radius) / cos_degrees(dec);
    // The ratio and whatever is compared with it are right to 1e-14, less than 1e-12 degrees; the arc sine's slope
    // magnifies that, near 1 at most to the square root of twice its size in radians, 1e-5 degrees.
    let slope = 1.0 / (1.0 - ratio * ratio).max(0.0).sqrt().max(1e-7);
    ratio.min(1.0).asin().to_degrees() + ROUNDING_DEGREES + 1e-12 * slope
}

/// The numbers that [`crate::Region::box_degrees`] takes, separated by spaces.
impl fmt::Display for LonLatBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "box {} {} {} {}",
            self.ra_min, self.dec_min, self.ra_max, self.dec_max
        )
    }
}
