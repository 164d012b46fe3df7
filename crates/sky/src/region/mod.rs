//! [`Region`]: a circle, a box, an ellipse or a convex polygon on the sky.
//!
//! Every region is closed: its edge belongs to it. `contains` is exact, in the sense that the same position always
//! gets the same answer whether asked alone or in a slice, and that the answer differs from the mathematical one only
//! within rounding of the edge. Everything about boxes and cells is conservative and named so.

mod circle;
mod ellipse;
mod lonlat_box;
mod polygon;
mod text;

use std::fmt;

pub use circle::Circle;
pub use ellipse::Ellipse;
pub use lonlat_box::LonLatBox;
pub(crate) use lonlat_box::half_width_of_cap;
pub use polygon::ConvexPolygon;
pub(crate) use polygon::pole_of;

use crate::position::wrap_degrees;
use crate::{Angle, LonLat, SkyError, UnitVector};

/// What conservative answers allow for: 1 microarcsecond, thousands of times the rounding of positions, distances and
/// chunk edges (below 1e-13 degrees), and far below any catalogue's accuracy.
pub(crate) const MARGIN: Angle = Angle::from_arcsec(1e-6);

/// How often [`Region::may_intersect`] quarters a box before it answers "perhaps": 6 times, so that a box is kept
/// without need only if it comes within about 1/64 of its size of the region.
const QUARTERINGS: u32 = 6;

/// A part of the sky.
#[derive(Debug, Clone, PartialEq)]
pub enum Region {
    /// All points within a radius of a centre.
    Circle(Circle),
    /// A range of right ascension times a range of declination.
    Box(LonLatBox),
    /// The points inside an elliptical cone.
    Ellipse(Ellipse),
    /// The points to the left of every one of a ring of great circles.
    Polygon(ConvexPolygon),
}

impl Region {
    /// A circle, in degrees.
    ///
    /// # Errors
    /// A centre that is not a position, a radius outside of [0, 180].
    pub fn circle_degrees(ra: f64, dec: f64, radius: f64) -> Result<Self, SkyError> {
        let centre = LonLat::from_degrees(ra, dec)?;
        Ok(Self::Circle(Circle::new(
            centre,
            Angle::from_degrees(radius),
        )?))
    }

    /// A box from `ra_min` eastwards to `ra_max`, in degrees. It wraps through right ascension 0 when
    /// `ra_min > ra_max`, and goes all around when `ra_max - ra_min` is 360 or more.
    ///
    /// # Errors
    /// See [`LonLatBox::from_degrees`].
    pub fn box_degrees(
        ra_min: f64,
        dec_min: f64,
        ra_max: f64,
        dec_max: f64,
    ) -> Result<Self, SkyError> {
        Ok(Self::Box(LonLatBox::from_degrees(
            ra_min, dec_min, ra_max, dec_max,
        )?))
    }

    /// An ellipse, all in degrees; the position angle of the major axis counts from north through east.
    ///
    /// # Errors
    /// A centre that is not a position, or what [`Ellipse::new`] rejects.
    pub fn ellipse_degrees(
        ra: f64,
        dec: f64,
        semi_major: f64,
        semi_minor: f64,
        position_angle: f64,
    ) -> Result<Self, SkyError> {
        let centre = LonLat::from_degrees(ra, dec)?;
        let [a, b, pa] = [semi_major, semi_minor, position_angle].map(Angle::from_degrees);
        Ok(Self::Ellipse(Ellipse::new(centre, a, b, pa)?))
    }

    /// A convex polygon with corners at `(ra, dec)` in degrees, in order, either way round.
    ///
    /// # Errors
    /// A corner that is not a position, or what [`ConvexPolygon::new`] rejects.
    pub fn polygon_degrees(corners: &[(f64, f64)]) -> Result<Self, SkyError> {
        let corners = corners
            .iter()
            .map(|&(ra, dec)| LonLat::from_degrees(ra, dec))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::Polygon(ConvexPolygon::new(&corners)?))
    }

    /// Whether the point is in the region or on its edge.
    pub fn contains(&self, p: LonLat) -> bool {
        match self {
            Self::Circle(circle) => circle.contains(p),
            Self::Box(b) => b.contains(p),
            Self::Ellipse(ellipse) => ellipse.contains(p),
            Self::Polygon(polygon) => polygon.contains(p),
        }
    }

    /// Puts into `out` (replacing what it held), for each position `(ra[i], dec[i])` in degrees, what [`Self::contains`] says; `false`
    /// for what
    /// is not a position (see [`LonLat::from_degrees`]). As many as the shorter slice has entries.
    pub fn contains_degrees(&self, ra: &[f64], dec: &[f64], out: &mut Vec<bool>) {
        match self {
            Self::Circle(c) => each(ra, dec, out, |ra, dec| c.contains_degrees(ra, dec)),
            Self::Box(b) => each(ra, dec, out, |ra, dec| b.contains_degrees(ra, dec)),
            Self::Ellipse(e) => each(ra, dec, out, |ra, dec| e.contains_degrees(ra, dec)),
            Self::Polygon(p) => each(ra, dec, out, |ra, dec| p.contains_degrees(ra, dec)),
        }
    }

    /// An envelope: a box that holds every point of the region.
    pub fn envelope_box(&self) -> LonLatBox {
        match self {
            Self::Circle(circle) => circle.envelope_box(),
            Self::Box(b) => *b,
            Self::Ellipse(ellipse) => ellipse.envelope_box(),
            Self::Polygon(polygon) => polygon.envelope_box(),
        }
    }

    /// Whether the region may have a point in common with the box. `false` is certain; `true` may be wrong when the box
    /// is within a microarcsecond of the region or, for ellipses and polygons, within 1/64 of its own size.
    pub fn may_intersect(&self, b: &LonLatBox) -> bool {
        match self {
            Self::Circle(circle) => circle.is_near_box(b, MARGIN),
            Self::Box(own) => own.padded(MARGIN).intersects(b),
            Self::Ellipse(ellipse) => {
                ellipse.bounding_circle().is_near_box(b, MARGIN)
                    && self.may_intersect_part(b, QUARTERINGS)
            }
            Self::Polygon(polygon) => {
                polygon.envelope_box().padded(MARGIN).intersects(b)
                    && self.may_intersect_part(b, QUARTERINGS)
            }
        }
    }

    fn may_intersect_part(&self, b: &LonLatBox, quarterings: u32) -> bool {
        let (centre, radius) = b.bounding_circle();
        let distance = self.signed_distance(centre);
        if distance > radius + MARGIN {
            return false;
        }
        if distance <= MARGIN || quarterings == 0 {
            return true;
        }
        // An edge that leaves the box outside settles most of what is left.
        if let Self::Polygon(polygon) = self
            && polygon.has_edge_before_box(b, MARGIN)
        {
            return false;
        }
        b.quarters()
            .iter()
            .any(|quarter| self.may_intersect_part(quarter, quarterings - 1))
    }

    /// Whether the box certainly lies in the region. `true` is certain; `false` may be wrong.
    pub fn surely_contains(&self, b: &LonLatBox) -> bool {
        match self {
            Self::Circle(circle) => circle.surely_contains_box(b, MARGIN),
            Self::Box(own) => own.contains_box(b),
            Self::Ellipse(_) => {
                let (centre, radius) = b.bounding_circle();
                self.signed_distance(centre) + radius + MARGIN <= Angle::ZERO
            }
            Self::Polygon(polygon) => polygon.surely_contains_box(b, MARGIN),
        }
    }

    /// A circle that holds every point of the region, within [`MARGIN`]: its centre and radius.
    pub fn bounding_circle(&self) -> (UnitVector, Angle) {
        match self {
            Self::Circle(circle) => (circle.centre().into(), circle.radius()),
            Self::Box(b) => b.bounding_circle(),
            Self::Ellipse(ellipse) => (ellipse.centre().into(), ellipse.semi_major()),
            Self::Polygon(polygon) => polygon.bounding_circle(),
        }
    }

    /// A lower bound of the angle from a point outside to the region (positive), or minus a lower bound of the angle
    /// from a point inside to the nearest point outside (zero or negative). Within [`MARGIN`].
    pub(crate) fn signed_distance(&self, p: UnitVector) -> Angle {
        match self {
            Self::Circle(circle) => circle.signed_distance(p),
            Self::Box(b) => b.signed_distance(LonLat::from(p)),
            Self::Ellipse(ellipse) => ellipse.signed_distance(p),
            Self::Polygon(polygon) => polygon.signed_distance(p),
        }
    }
}

/// Asks `inside` about every position, its right ascension wrapped. What is no position fails every comparison with an
/// envelope's edges: NaN and infinities (which wrap to NaN) always, a declination out of range because edges are in it.
#[inline(always)]
fn each(ra: &[f64], dec: &[f64], out: &mut Vec<bool>, inside: impl Fn(f64, f64) -> bool) {
    out.clear();
    out.extend(ra.iter().zip(dec).map(|(&ra, &dec)| {
        let in_range = (0.0..360.0).contains(&ra);
        inside(if in_range { ra } else { wrap_degrees(ra) }, dec)
    }));
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Circle(circle) => circle.fmt(f),
            Self::Box(b) => b.fmt(f),
            Self::Ellipse(ellipse) => ellipse.fmt(f),
            Self::Polygon(polygon) => polygon.fmt(f),
        }
    }
}
