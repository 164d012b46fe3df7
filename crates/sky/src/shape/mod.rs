//! [`Shape`]: a point, a circle or any polygon, and how two of them lie to each other.
//!
//! Shapes are what queries are about; a [`Region`](crate::Region) is what rows are looked for in. All shapes are closed: what
//! touches intersects, and a shape contains itself.

mod arc;
mod polygon;

pub use polygon::Polygon;

use crate::{Angle, LonLat, SkyError, UnitVector, separation};

/// A point, or a part of the sky.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// One position.
    Point(LonLat),
    /// All points within a radius, of 0 or more, of a centre.
    Circle(LonLat, Angle),
    /// All points inside of a ring of arcs.
    Polygon(Polygon),
}

impl Shape {
    /// A circle, in degrees. A radius of 180 or more is the whole sky.
    ///
    /// # Errors
    /// A centre that is not a position, a radius that is negative or NaN.
    pub fn circle_degrees(ra: f64, dec: f64, radius: f64) -> Result<Self, SkyError> {
        if radius.is_nan() || radius < 0.0 {
            return Err(SkyError::Radius(radius));
        }
        let centre = LonLat::from_degrees(ra, dec)?;
        Ok(Self::Circle(centre, Angle::from_degrees(radius.min(180.0))))
    }

    /// A polygon, in degrees: `[ra, dec, ra, dec, ...]`.
    ///
    /// # Errors
    /// A corner that is no position, or what [`Polygon::new`] rejects.
    pub fn polygon_degrees(numbers: &[f64]) -> Result<Self, SkyError> {
        let corners = numbers
            .chunks_exact(2)
            .map(|corner| LonLat::from_degrees(corner[0], corner[1]))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::Polygon(Polygon::new(&corners)?))
    }

    /// Whether all of another shape lies in this one.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Point(p), Self::Point(q)) => separation(*p, *q) <= Angle::ZERO,
            (Self::Point(p), Self::Circle(centre, radius)) => {
                *radius <= Angle::ZERO && separation(*p, *centre) <= Angle::ZERO
            }
            (Self::Point(_), Self::Polygon(_)) => false,
            (Self::Circle(centre, radius), Self::Point(p)) => separation(*p, *centre) <= *radius,
            (Self::Circle(centre, radius), Self::Circle(other, inner)) => {
                is_all(*radius) || separation(*centre, *other) + *inner <= *radius
            }
            (Self::Circle(centre, radius), Self::Polygon(polygon)) => {
                polygon.largest_distance(UnitVector::from(*centre)) <= *radius
            }
            (Self::Polygon(polygon), Self::Point(p)) => polygon.contains(*p),
            (Self::Polygon(polygon), Self::Circle(centre, radius)) => {
                polygon.contains(*centre)
                    && *radius < Angle::from_degrees(90.0)
                    && polygon.distance_to_edge(UnitVector::from(*centre)) >= *radius
            }
            (Self::Polygon(outer), Self::Polygon(inner)) => holds_polygon(outer, inner),
        }
    }

    /// Whether two shapes have a point in common.
    pub fn intersects(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Point(_), _) => other.contains(self),
            (_, Self::Point(_)) => self.contains(other),
            (Self::Circle(a, of_a), Self::Circle(b, of_b)) => separation(*a, *b) <= *of_a + *of_b,
            (Self::Circle(centre, radius), Self::Polygon(polygon))
            | (Self::Polygon(polygon), Self::Circle(centre, radius)) => {
                polygon.contains(*centre)
                    || polygon.distance_to_edge(UnitVector::from(*centre)) <= *radius
            }
            (Self::Polygon(a), Self::Polygon(b)) => {
                holds_corner_of(a, b) || holds_corner_of(b, a) || have_crossing_edges(a, b)
            }
        }
    }

    /// Its area in square degrees.
    pub fn area_square_degrees(&self) -> f64 {
        let steradians = match self {
            Self::Point(_) => 0.0,
            Self::Circle(_, radius) => {
                // 2π (1 - cos r)
                let (half, _) = (*radius * 0.5).sin_cos();
                4.0 * std::f64::consts::PI * half * half
            }
            Self::Polygon(polygon) => polygon.area(),
        };
        steradians.to_degrees().to_degrees()
    }

    /// How long its edge is.
    pub fn edge_length(&self) -> Angle {
        match self {
            Self::Point(_) => Angle::ZERO,
            Self::Circle(_, radius) => {
                let (sine, _) = radius.sin_cos();
                Angle::from_radians(2.0 * std::f64::consts::PI * sine)
            }
            Self::Polygon(polygon) => {
                let lengths = polygon.edges().map(|edge| edge.from.separation(edge.to));
                lengths.fold(Angle::ZERO, |sum, length| sum + length)
            }
        }
    }

    /// The centre of its area.
    pub fn centroid(&self) -> LonLat {
        match self {
            Self::Point(p) => *p,
            Self::Circle(centre, _) => *centre,
            Self::Polygon(polygon) => polygon.centroid().into(),
        }
    }
}

fn is_all(radius: Angle) -> bool {
    radius >= Angle::from_degrees(180.0)
}

fn holds_corner_of(a: &Polygon, b: &Polygon) -> bool {
    b.vertices()
        .iter()
        .any(|vertex| holds_or_touches(a, *vertex))
}

/// Whether a corner of another polygon is in this one or on its edge. A corner that both share is on an edge, on whichever side
/// rounding puts it.
fn holds_or_touches(polygon: &Polygon, corner: UnitVector) -> bool {
    polygon.holds(corner) || polygon.is_on_edge(corner)
}

fn have_crossing_edges(a: &Polygon, b: &Polygon) -> bool {
    a.edges()
        .any(|edge| b.edges().any(|other| edge.crosses(other)))
}

/// All corners inside, and no edge leaves on its way: none crosses an edge, none has its middle outside, and no corner of the
/// outer polygon, as that of a notch, is within the inner one.
fn holds_polygon(outer: &Polygon, inner: &Polygon) -> bool {
    inner
        .vertices()
        .iter()
        .all(|vertex| holds_or_touches(outer, *vertex))
        && !have_crossing_edges(outer, inner)
        && (outer.as_convex().is_some()
            || (inner
                .edges()
                .all(|edge| outer.holds(edge.middle()) || is_near_edge(outer, edge.middle()))
                && !outer
                    .vertices()
                    .iter()
                    .any(|vertex| inner.holds(*vertex) && !is_near_edge(inner, *vertex))))
}

/// Whether a point that was computed is on an edge, within rounding.
fn is_near_edge(polygon: &Polygon, p: UnitVector) -> bool {
    polygon.distance_to_edge(p) <= crate::region::MARGIN
}

/// The corners `[ra, dec, ra, dec, ...]` of the box of a width and a height around a centre, all in degrees.
///
/// A cross stands at the centre, its arms along the parallel's and the meridian's great circles, half of the width and of the
/// height long to each side. The box's sides are the great circles through the ends of the arms at right angles to them
/// (ADQL 2.1; STC 1.33, 4.5.1.5).
///
/// # Errors
/// [`SkyError::BoxSides`] unless both are more than 0 and less than 180 degrees; a centre that is no position.
pub fn box_corners(ra: f64, dec: f64, width: f64, height: f64) -> Result<[f64; 8], SkyError> {
    let fits = |side: f64| side > 0.0 && side < 180.0;
    if !fits(width) || !fits(height) {
        return Err(SkyError::BoxSides { width, height });
    }
    let centre = LonLat::from_degrees(ra, dec)?;
    let (sin_ra, cos_ra) = centre.ra().sin_cos();
    let (sin_dec, cos_dec) = centre.dec().sin_cos();
    let [forth, east, north] = [
        [cos_dec * cos_ra, cos_dec * sin_ra, sin_dec],
        [-sin_ra, cos_ra, 0.0],
        [-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec],
    ];
    // Seen from the centre, in the gnomonic projection, the box is a rectangle.
    let half_tangent = |side: f64| {
        let (sine, cosine) = Angle::from_degrees(0.5 * side).sin_cos();
        sine / cosine
    };
    let (x, y) = (half_tangent(width), half_tangent(height));
    let mut corners = [0.0; 8];
    for (corner, (x, y)) in corners
        .chunks_exact_mut(2)
        .zip([(-x, -y), (x, -y), (x, y), (-x, y)])
    {
        let vector = [0, 1, 2].map(|i| forth[i] + x * east[i] + y * north[i]);
        let place = UnitVector::from_vector(vector).map_or(centre, LonLat::from);
        corner.copy_from_slice(&[place.ra().degrees(), place.dec().degrees()]);
    }
    Ok(corners)
}

#[cfg(test)]
mod tests;
