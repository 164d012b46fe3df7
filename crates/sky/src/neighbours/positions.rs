//! [`Positions`]: the columns of one side of a spatial join, and where each of their rows lies on the sky.

use crate::position::wrap_degrees;

/// A bit for each row, set where the row has a value: as Arrow keeps it, the lowest bit of a byte first.
#[derive(Debug, Clone, Copy)]
pub struct Validity<'a> {
    bits: &'a [u8],
    offset: usize,
}

impl<'a> Validity<'a> {
    /// The bits from number `offset` on are those of the rows from 0 on. Rows beyond the last bit have no value.
    pub const fn new(bits: &'a [u8], offset: usize) -> Self {
        Self { bits, offset }
    }

    #[inline]
    fn is_valid(self, row: usize) -> bool {
        let bit = self.offset + row;
        self.bits
            .get(bit / 8)
            .is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
    }
}

/// A column of numbers, some of which may be missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    values: &'a [f64],
    validity: Option<Validity<'a>>,
}

impl<'a> Column<'a> {
    pub const fn new(values: &'a [f64], validity: Option<Validity<'a>>) -> Self {
        Self { values, validity }
    }

    /// The value of a row, or `None` where it is NULL or beyond the end.
    #[inline]
    pub fn get(self, row: usize) -> Option<f64> {
        let value = self.values.get(row).copied()?;
        self.validity
            .is_none_or(|validity| validity.is_valid(row))
            .then_some(value)
    }
}

/// Right ascensions and declinations of rows, in degrees.
///
/// A row whose right ascension or declination is NULL or not finite has no position, and so no partner. Every other row
/// has one, also beyond [0, 360) and [-90, 90]: the separation of such positions is that of the directions which the
/// angles lead to. (Far beyond, each pair is decided by [`crate::separation_degrees`], which is slow but right.)
#[derive(Debug, Clone, Copy)]
pub struct Positions<'a> {
    ra: &'a [f64],
    dec: &'a [f64],
    validity: Option<Validity<'a>>,
}

impl<'a> Positions<'a> {
    /// As many rows as the shorter slice has entries.
    pub const fn from_degrees(ra: &'a [f64], dec: &'a [f64]) -> Self {
        Self {
            ra,
            dec,
            validity: None,
        }
    }

    /// Of these rows, those alone have a position whose bit is set.
    #[must_use]
    pub const fn with_validity(mut self, validity: Validity<'a>) -> Self {
        self.validity = Some(validity);
        self
    }

    /// How many rows there are, with a position or without.
    pub const fn len(&self) -> usize {
        if self.ra.len() < self.dec.len() {
            self.ra.len()
        } else {
            self.dec.len()
        }
    }

    /// Whether there is no row.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The position of a row, or `None` where it has none or is beyond the end.
    #[inline]
    pub(super) fn get(&self, row: usize) -> Option<Place> {
        let (ra, dec) = (*self.ra.get(row)?, *self.dec.get(row)?);
        if !(ra.is_finite() && dec.is_finite()) {
            return None;
        }
        self.validity
            .is_none_or(|validity| validity.is_valid(row))
            .then(|| Place::of(ra, dec))
    }
}

/// A finite position: as it was given, and where that is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    /// As given, degrees: what the separation is computed from.
    pub ra: f64,
    /// As given, degrees.
    pub dec: f64,
    /// The right ascension of the same direction, in [0, 360).
    pub east: f64,
    /// The declination of the same direction, in [-90, 90].
    pub north: f64,
}

impl Place {
    #[inline]
    pub fn of(ra: f64, dec: f64) -> Self {
        let (east, north) = if (-90.0..=90.0).contains(&dec) {
            (wrap_degrees(ra), dec)
        } else {
            over_the_poles(ra, dec)
        };
        Self {
            ra,
            dec,
            east,
            north,
        }
    }

    /// How large the numbers given are.
    #[inline]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            magnitude: self.ra.abs().max(self.dec.abs()),
            beyond_pole: self.dec.abs() > 90.0,
        }
    }
}

/// How large the numbers of positions are: what the errors of their separations depend on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sizes {
    /// The largest magnitude of any number, degrees.
    pub magnitude: f64,
    /// Whether a declination is beyond a pole.
    pub beyond_pole: bool,
}

impl Sizes {
    /// Those of positions in [0, 360) × [-90, 90].
    pub const USUAL: Self = Self {
        magnitude: 360.0,
        beyond_pole: false,
    };

    /// The sizes of both.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self {
            magnitude: self.magnitude.max(other.magnitude),
            beyond_pole: self.beyond_pole | other.beyond_pole,
        }
    }

    /// Whether these are no larger.
    #[inline]
    pub fn are_within(self, other: Self) -> bool {
        self.magnitude <= other.magnitude && self.beyond_pole <= other.beyond_pole
    }
}

/// Where a declination beyond a pole leads to: down the meridian on the other side.
#[cold]
fn over_the_poles(ra: f64, dec: f64) -> (f64, f64) {
    let turn = dec.rem_euclid(360.0);
    if turn <= 90.0 {
        (wrap_degrees(ra), turn)
    } else if turn <= 270.0 {
        (wrap_degrees(wrap_degrees(ra) + 180.0), 180.0 - turn)
    } else {
        (wrap_degrees(ra), turn - 360.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_on_the_sky() {
        for (ra, dec, east, north) in [
            (10.0, 20.0, 10.0, 20.0),
            (-10.0, -90.0, 350.0, -90.0),
            (730.0, 90.0, 10.0, 90.0),
            (10.0, 100.0, 190.0, 80.0),
            (190.0, -100.0, 10.0, -80.0),
            (10.0, 350.0, 10.0, -10.0),
            (10.0, 375.0, 10.0, 15.0),
            (10.0, 180.0, 190.0, 0.0),
        ] {
            let place = Place::of(ra, dec);
            assert_eq!((place.east, place.north), (east, north), "{ra} {dec}");
        }
    }

    #[test]
    fn rows_without_a_position_have_no_place() {
        let (ra, dec) = (
            [1.0, f64::NAN, 3.0, 4.0, 5.0],
            [0.0, 0.0, f64::INFINITY, 0.0],
        );
        let positions = Positions::from_degrees(&ra, &dec);
        let placed = |positions: Positions<'_>| -> Vec<bool> {
            (0..6).map(|row| positions.get(row).is_some()).collect()
        };
        assert_eq!(positions.len(), 4);
        assert_eq!(placed(positions), [true, false, false, true, false, false]);
        let bits = [0b0100_0000, 0b0000_0011];
        let masked = positions.with_validity(Validity::new(&bits, 6));
        assert_eq!(placed(masked), [true, false, false, true, false, false]);
        let masked = positions.with_validity(Validity::new(&bits, 7));
        assert_eq!(placed(masked), [false; 6]);
    }
}
