//! Positions of rows: right ascension wrapped, bad ones found, and their bounds.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type};
use catalog::{Chunk, Column, Position};

use crate::error::IngestError;
use crate::mysql_type;
use crate::row_errors::{RowErrors, class};

const FULL_CIRCLE: f64 = 360.0;

/// The numbers of the two position columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PositionColumns {
    pub ra: usize,
    pub dec: usize,
}

impl PositionColumns {
    /// Finds the columns by name and checks that they can hold a position.
    pub(crate) fn find(columns: &[Column], position: &Position) -> Result<Self, IngestError> {
        let find = |role: &str, name: &str| {
            let at = find_column(columns, role, name)?;
            if columns[at].ty.is_float() {
                return Ok(at);
            }
            Err(IngestError::Options(format!(
                "{role} {name:?} is of type {}: a position must be FLOAT or DOUBLE degrees; declare it so in a --schema",
                mysql_type::shown(columns[at].ty)
            )))
        };
        let (ra, dec) = (find("--ra", &position.ra)?, find("--dec", &position.dec)?);
        if ra == dec {
            return Err(IngestError::Options(
                "--ra and --dec name the same column".to_owned(),
            ));
        }
        Ok(Self { ra, dec })
    }
}

/// The number of a named column, without regard to case.
pub(crate) fn find_column(
    columns: &[Column],
    role: &str,
    name: &str,
) -> Result<usize, IngestError> {
    let found = columns
        .iter()
        .position(|c| c.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        IngestError::no_such_column(role, name, columns.iter().map(|c| c.name.as_str()))
    })
}

/// Positions of a batch in degrees; NaN where a row has none.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    pub ra: Vec<f64>,
    pub dec: Vec<f64>,
}

impl Positions {
    /// Reads the positions of columns whose values are in range.
    pub(crate) fn read(arrays: &[ArrayRef], columns: PositionColumns) -> Result<Self, IngestError> {
        Ok(Self {
            ra: degrees(&arrays[columns.ra])?,
            dec: degrees(&arrays[columns.dec])?,
        })
    }

    /// Whether the row has a position.
    pub(crate) fn has(&self, row: usize) -> bool {
        !self.ra[row].is_nan() && !self.dec[row].is_nan()
    }
}

/// NULL is NaN here, which no column holds.
fn degrees(array: &ArrayRef) -> Result<Vec<f64>, IngestError> {
    let array = cast(array, &DataType::Float64)?;
    let floats = array.as_primitive::<Float64Type>();
    if floats.null_count() == 0 {
        return Ok(floats.values().to_vec());
    }
    Ok(floats.iter().map(|v| v.unwrap_or(f64::NAN)).collect())
}

/// Rows from which on their positions say something about their unit.
const ROWS_FOR_A_UNIT: u64 = 3;
/// The longest right ascension in radians, a little more than a circle.
const RADIANS: f64 = 6.3;
/// The largest declination in radians: that of a pole, if it was rounded to three digits after the point or more.
const RADIANS_OF_POLE: f64 = std::f64::consts::FRAC_PI_2 + 0.0005;
/// The longest right ascension in hours.
const HOURS: f64 = 24.0;
/// In hours the sky is fifteen times narrower than in degrees: so much higher than wide is no patch in degrees.
const HIGHER_THAN_WIDE: f64 = 1.5;

/// A sentence where the positions of all rows lie as positions in radians or hours do; they were taken for degrees.
pub(crate) fn unit_note(chunks: &[Chunk], rows: u64) -> Option<String> {
    let bounds: Vec<[f64; 4]> = chunks.iter().filter_map(|chunk| chunk.bounds).collect();
    let goes_through_0 = |bounds: &[f64; 4]| bounds[0] > bounds[2];
    if rows < ROWS_FOR_A_UNIT || bounds.is_empty() || bounds.iter().any(goes_through_0) {
        return None;
    }
    let least = |at: usize| bounds.iter().map(|b| b[at]).fold(f64::INFINITY, f64::min);
    let most = |at: usize| {
        bounds
            .iter()
            .map(|b| b[at])
            .fold(f64::NEG_INFINITY, f64::max)
    };
    let (west, south, east, north) = (least(0), least(1), most(2), most(3));
    let unit = if east <= RADIANS && south >= -RADIANS_OF_POLE && north <= RADIANS_OF_POLE {
        "radians"
    } else if east <= HOURS && north - south > HIGHER_THAN_WIDE * (east - west) {
        "hours"
    } else {
        return None;
    };
    Some(format!(
        "all right ascensions lie from {west:.4} to {east:.4} and all declinations from {south:.4} to {north:.4}, as positions in {unit} do; \
         they were taken for degrees. If they are in {unit}, load them again with --replace --position-unit {unit}; \
         --position-unit degrees says that they are in degrees"
    ))
}

/// Wraps the right ascensions of a batch into [0, 360) as they will be stored, and rejects rows whose position
/// cannot be one. With `required`, a row without position is rejected, too. Gives the positions as stored.
pub(crate) fn validate_positions(
    arrays: &mut [ArrayRef],
    columns: PositionColumns,
    required: bool,
    row_errors: &mut RowErrors<'_>,
) -> Result<Positions, IngestError> {
    arrays[columns.ra] = wrapped(&arrays[columns.ra]);
    let positions = Positions::read(arrays, columns)?;
    for row in 0..positions.ra.len() {
        let (ra, dec) = (positions.ra[row], positions.dec[row]);
        // Not "dec < -90 || dec > 90": a missing one is looked at below.
        let bad_dec = dec.abs() > 90.0;
        if bad_dec {
            row_errors.reject(row, class::DECLINATION.to_owned(), || {
                format!("the declination {dec} is outside [-90, 90] degrees")
            });
        } else if ra.is_infinite() {
            row_errors.reject(row, class::RIGHT_ASCENSION.to_owned(), || {
                "the right ascension is infinite".to_owned()
            });
        } else if required && !positions.has(row) {
            row_errors.reject(row, class::NO_POSITION.to_owned(), || {
                "the row has no position: its right ascension or declination is NULL or NaN"
                    .to_owned()
            });
        }
    }
    Ok(positions)
}

fn wrapped(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            let inside = values
                .values()
                .iter()
                .all(|v| (0.0..FULL_CIRCLE as f32).contains(v));
            if inside {
                return array.clone();
            }
            let wrapped: Float32Array = values.unary(|v| {
                // Rounding to 32 bits may reach 360 again.
                let ra = wrap(f64::from(v)) as f32;
                if ra >= FULL_CIRCLE as f32 { 0.0 } else { ra }
            });
            Arc::new(wrapped)
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            let inside = values
                .values()
                .iter()
                .all(|v| (0.0..FULL_CIRCLE).contains(v));
            if inside {
                return array.clone();
            }
            let wrapped: Float64Array = values.unary(wrap);
            Arc::new(wrapped)
        }
        _ => array.clone(),
    }
}

/// Into [0, 360); what is not finite stays as it is.
fn wrap(ra: f64) -> f64 {
    if !ra.is_finite() || (0.0..FULL_CIRCLE).contains(&ra) {
        return ra;
    }
    let wrapped = ra.rem_euclid(FULL_CIRCLE);
    // The remainder of a tiny negative number rounds to 360.
    if wrapped >= FULL_CIRCLE {
        0.0
    } else {
        wrapped + 0.0
    }
}

/// The bounds of positions that come by, row by row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    ra: [f64; 2],
    /// The least right ascension from 180 on and the greatest below 180: the box through RA 0.
    through_zero: [f64; 2],
    dec: [f64; 2],
}

const NOTHING: [f64; 2] = [f64::INFINITY, f64::NEG_INFINITY];

impl Default for Bounds {
    fn default() -> Self {
        Self {
            ra: NOTHING,
            through_zero: NOTHING,
            dec: NOTHING,
        }
    }
}

fn extend(range: &mut [f64; 2], value: f64) {
    // `min` and `max` pass over NaN: a row without position extends nothing.
    range[0] = range[0].min(value);
    range[1] = range[1].max(value);
}

impl Bounds {
    /// Takes in one position with `ra` in [0, 360); NaN in either is no position.
    #[inline]
    pub(crate) fn add(&mut self, ra: f64, dec: f64) {
        if ra.is_nan() || dec.is_nan() {
            return;
        }
        extend(&mut self.ra, ra);
        if ra < 180.0 {
            self.through_zero[1] = self.through_zero[1].max(ra);
        } else {
            self.through_zero[0] = self.through_zero[0].min(ra);
        }
        extend(&mut self.dec, dec);
    }

    /// Takes in what another has seen.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in [
            (&mut self.ra, other.ra),
            (&mut self.through_zero, other.through_zero),
            (&mut self.dec, other.dec),
        ] {
            mine[0] = mine[0].min(theirs[0]);
            mine[1] = mine[1].max(theirs[1]);
        }
    }

    /// `[ra_min, dec_min, ra_max, dec_max]`, the narrower of the box that does and the one that does not go through
    /// RA 0 (then `ra_min > ra_max`); `None` if no position came by. Every bound is some row's own value.
    pub(crate) fn to_box(self) -> Option<[f64; 4]> {
        if self.dec[0] > self.dec[1] {
            return None;
        }
        let [dec_min, dec_max] = self.dec;
        let [east, west] = self.through_zero;
        let both_sides = east.is_finite() && west.is_finite();
        let wraps = both_sides && west + FULL_CIRCLE - east < self.ra[1] - self.ra[0];
        let [ra_min, ra_max] = if wraps { [east, west] } else { self.ra };
        Some([ra_min, dec_min, ra_max, dec_max])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn right_ascension_wraps() {
        for (ra, expected) in [
            (400.0, 40.0),
            (-10.0, 350.0),
            (360.0, 0.0),
            (-1e-20, 0.0),
            (720.5, 0.5),
        ] {
            assert_eq!(wrap(ra).to_bits(), f64::to_bits(expected), "{ra}");
        }
        assert!(wrap(-0.0).is_sign_positive() || wrap(-0.0) == 0.0);
        let array: ArrayRef =
            Arc::new(Float32Array::from(vec![Some(-1e-12f32), Some(725.0), None]));
        let wrapped = wrapped(&array);
        let values = wrapped.as_primitive::<Float32Type>();
        assert_eq!((values.value(0), values.value(1)), (0.0, 5.0));
        assert!(values.is_null(2));
    }

    fn holds(bounds: [f64; 4], ra: f64, dec: f64) -> bool {
        let [ra_min, dec_min, ra_max, dec_max] = bounds;
        let inside = if ra_min <= ra_max {
            (ra_min..=ra_max).contains(&ra)
        } else {
            ra >= ra_min || ra <= ra_max
        };
        inside && (dec_min..=dec_max).contains(&dec)
    }

    proptest! {
        #[test]
        fn bounds_hold_every_position(
            centre in 0.0..360.0f64, width in 0.0..200.0f64,
            points in proptest::collection::vec((0.0..1.0f64, -90.0..=90.0f64), 0..20),
        ) {
            let positions: Vec<(f64, f64)> =
                points.iter().map(|(t, dec)| (wrap(centre + (t - 0.5) * width), *dec)).collect();
            let (mut bounds, mut halves) = (Bounds::default(), [Bounds::default(); 2]);
            for (i, (ra, dec)) in positions.iter().enumerate() {
                bounds.add(*ra, *dec);
                halves[i % 2].add(*ra, *dec);
            }
            halves[0].add(f64::NAN, 1.0);
            let [mut merged, other] = halves;
            merged.merge(&other);
            prop_assert_eq!(merged.to_box(), bounds.to_box());
            match bounds.to_box() {
                None => prop_assert!(positions.is_empty()),
                Some(bounds) => {
                    for (ra, dec) in positions {
                        prop_assert!(holds(bounds, ra, dec), "{bounds:?} {ra} {dec}");
                    }
                    let extent = (bounds[2] - bounds[0]).rem_euclid(360.0);
                    prop_assert!(width >= 170.0 || extent <= width + 1e-9, "{bounds:?}");
                }
            }
        }
    }
}
