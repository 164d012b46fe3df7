//! [`Layout`]: where the zones of an index lie, how high they are, and from where right ascensions are counted.

use super::positions::{Positions, Sizes};
use crate::Angle;
use crate::position::wrap_degrees;

/// The height of zones where they are dense: this part of the radius. Lower zones have fewer candidates in vain, but there are
/// more of them to be looked at.
const ZONES_IN_RADIUS: f64 = 6.0;

/// Where they are not, zones are so high that a square of that height has about as many rows.
const ROWS_IN_SQUARE: f64 = 16.0;

/// There are at least so many rows to a zone, on average, so that zones take little memory.
const LEAST_ROWS_IN_ZONE: usize = 32;

/// How many fields of equal width and height the data are divided into, each way, to see how dense they are.
const FIELDS: usize = 64;

const DEGREES_AROUND: usize = 360;

/// The layout of an index, decided by what the rows' positions are like.
#[derive(Debug)]
pub(super) struct Layout {
    rows: usize,
    sizes: Sizes,
    /// The lowest and the highest declination, degrees.
    south: f64,
    north: f64,
    zones: usize,
    zones_per_degree: f64,
    /// The right ascension that others are counted from, degrees.
    origin: f64,
    /// Right ascensions from the origin on lie in [west, west + width], degrees.
    west: f64,
    width: f64,
    /// Rows in a square degree, where rows are: the mean over the rows, not over the sky. Not a number where that is no area.
    density: f64,
}

impl Layout {
    /// The layout for the rows that have a position.
    pub fn of(positions: &Positions<'_>, radius: Angle) -> Self {
        let mut layout = Self::around(positions);
        layout.density = layout.density_of(positions);
        let sparse = (ROWS_IN_SQUARE / layout.density).sqrt();
        let height = sparse.max(radius.degrees() / ZONES_IN_RADIUS);
        let most = (layout.rows / LEAST_ROWS_IN_ZONE).max(1);
        // A height of 0 or NaN (of nothing) gives the most zones or a single one: both are right.
        layout.zones = (((layout.north - layout.south) / height) as usize).clamp(1, most);
        layout.zones_per_degree = per_degree(layout.zones as f64, layout.north - layout.south);
        layout
    }

    /// What encloses the positions, as a single zone.
    fn around(positions: &Positions<'_>) -> Self {
        let (mut rows, mut sizes) = (0, Sizes::USUAL);
        let (mut south, mut north) = (90.0_f64, -90.0_f64);
        let mut is_taken = [false; DEGREES_AROUND];
        for place in (0..positions.len()).filter_map(|row| positions.get(row)) {
            rows += 1;
            sizes = sizes.and(place.sizes());
            south = south.min(place.north);
            north = north.max(place.north);
            is_taken[place.east as usize % DEGREES_AROUND] = true;
        }
        let (origin, taken) = outside_of_widest_gap(&is_taken);
        Self {
            rows,
            sizes,
            south: south.min(north),
            north,
            zones: 1,
            zones_per_degree: 0.0,
            origin,
            west: 0.5 * (DEGREES_AROUND - taken) as f64,
            width: taken as f64,
            density: f64::NAN,
        }
    }

    /// See `density`.
    fn density_of(&self, positions: &Positions<'_>) -> f64 {
        let fields_per_degree = |size: f64| per_degree(FIELDS as f64, size);
        let across = fields_per_degree(self.width);
        let up = fields_per_degree(self.north - self.south);
        let field = |offset: f64, per_degree: f64| ((offset * per_degree) as usize).min(FIELDS - 1);
        let mut counts = vec![0_u64; FIELDS * FIELDS];
        for place in (0..positions.len()).filter_map(|row| positions.get(row)) {
            let column = field(self.eastward(place.east) - self.west, across);
            counts[FIELDS * field(place.north - self.south, up) + column] += 1;
        }
        let in_field = counts.iter().map(|&n| (n * n) as f64).sum::<f64>() / self.rows as f64;
        let middle = 0.5 * (self.north + self.south);
        let cos_middle = Angle::from_degrees(middle).sin_cos().1;
        in_field * across * up / cos_middle
    }

    /// The radius, degrees, in which so many rows may be expected around a row, and some more; NaN or any number where that
    /// cannot be said.
    pub fn radius_of_rows(&self, rows: usize) -> f64 {
        const SOME_MORE: f64 = 2.0;
        (SOME_MORE * rows as f64 / (std::f64::consts::PI * self.density)).sqrt()
    }

    /// Rows with a position.
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// How large the numbers given are, at least [`Sizes::USUAL`].
    pub const fn sizes(&self) -> Sizes {
        self.sizes
    }

    /// How many zones there are: at least one.
    pub const fn zones(&self) -> usize {
        self.zones
    }

    /// The zone of a declination, degrees; the nearest one for one beyond both ends. It never falls as the declination grows.
    #[inline]
    pub fn zone(&self, north: f64) -> usize {
        let zone = (north - self.south) * self.zones_per_degree;
        (zone as usize).min(self.zones - 1)
    }

    /// The declination between zone `edge - 1` and zone `edge`, degrees, within rounding.
    pub fn edge(&self, edge: usize) -> f64 {
        if edge >= self.zones {
            return self.north;
        }
        self.south + (self.north - self.south) * (edge as f64 / self.zones as f64)
    }

    /// Whether a row's declination can be in [south, north], degrees.
    #[inline]
    pub fn overlaps(&self, south: f64, north: f64) -> bool {
        self.rows > 0 && south <= self.north && north >= self.south
    }

    /// A right ascension in [0, 360), counted from the origin: in [0, 360), within two roundings.
    #[inline]
    pub fn eastward(&self, ra: f64) -> f64 {
        wrap_degrees(ra - self.origin)
    }

    /// The least right ascension there can be, counted from the origin, degrees.
    #[inline]
    pub const fn west(&self) -> f64 {
        self.west
    }

    /// The range of right ascensions, degrees: at least 1.
    pub const fn width(&self) -> f64 {
        self.width
    }
}

/// `count / degrees`, and 0 where there is no extent.
fn per_degree(count: f64, degrees: f64) -> f64 {
    if degrees > 0.0 { count / degrees } else { 0.0 }
}

/// The middle of the longest run of degrees that are not taken, and how many degrees (at least 1) lie outside of that run.
fn outside_of_widest_gap(is_taken: &[bool; DEGREES_AROUND]) -> (f64, usize) {
    let Some(first) = is_taken.iter().position(|taken| *taken) else {
        return (0.0, DEGREES_AROUND);
    };
    let (mut start, mut widest) = (first + 1, 0);
    let mut run = 0;
    // Once around from a degree that is taken, so that the seam cuts no gap.
    for degree in first + 1..=first + DEGREES_AROUND {
        if is_taken[degree % DEGREES_AROUND] {
            run = 0;
            continue;
        }
        run += 1;
        if run > widest {
            (start, widest) = (degree + 1 - run, run);
        }
    }
    let middle = wrap_degrees(start as f64 + 0.5 * widest as f64);
    (middle, DEGREES_AROUND - widest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(ra: &[f64], dec: &[f64], radius: f64) -> Layout {
        Layout::of(
            &Positions::from_degrees(ra, dec),
            Angle::from_degrees(radius),
        )
    }

    #[test]
    fn right_ascensions_are_counted_from_the_widest_gap() {
        let across_seam = layout(&[359.5, 0.5, 2.5], &[0.0; 3], 1.0);
        assert_eq!(across_seam.origin, 181.0);
        assert_eq!(across_seam.width(), 4.0);
        assert_eq!(across_seam.eastward(359.5), 178.5);
        assert_eq!(across_seam.west(), 178.0);
        assert_eq!(layout(&[], &[], 1.0).width(), 360.0);
        let all_around: Vec<f64> = (0..360).map(f64::from).collect();
        assert_eq!(layout(&all_around, &[1.0; 360], 1.0).width(), 360.0);
        assert_eq!(layout(&[10.0], &[5.0], 1.0).width(), 1.0);
    }

    #[test]
    fn zones_cover_the_declinations_and_no_more() {
        let dec: Vec<f64> = (0..1000).map(|row| f64::from(row) * 0.01 - 5.0).collect();
        let ra = vec![20.0; 1000];
        let layout = layout(&ra, &dec, 2.0);
        assert!(
            layout.zones() > 5 && layout.zones() <= 62,
            "{}",
            layout.zones()
        );
        assert_eq!(layout.zone(-80.0), 0);
        assert_eq!(layout.zone(-5.0), 0);
        assert_eq!(layout.zone(80.0), layout.zones() - 1);
        assert_eq!(layout.edge(0), -5.0);
        assert_eq!(layout.edge(layout.zones()), 4.99);
        assert!(layout.overlaps(4.99, 6.0) && !layout.overlaps(5.0, 6.0));
    }

    #[test]
    fn a_single_place_is_a_single_zone() {
        let one = layout(&[20.0; 100], &[7.0; 100], 0.0);
        assert_eq!(
            (one.zones(), one.zone(7.0), one.edge(0), one.edge(1)),
            (1, 0, 7.0, 7.0)
        );
        assert!(!layout(&[], &[], 1.0).overlaps(-90.0, 90.0));
    }
}
