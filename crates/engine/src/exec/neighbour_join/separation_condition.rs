//! The condition of a neighbour join: two positions are within a radius.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, RecordBatch, RecordBatchOptions};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Schema};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use sky::Angle;
use sky::neighbours::{Bound, Positions, Radii, Radius, Validity};

/// `separation(probe, build) < radius`, or `<=`.
///
/// The join iterates over the rows of the probe side and looks up their partners among those of the build side.
#[derive(Debug, Clone)]
pub struct SeparationCondition {
    /// Right ascension and declination of probe rows, degrees, over the columns of that side.
    pub probe: [Arc<dyn PhysicalExpr>; 2],
    /// The same of build rows.
    pub build: [Arc<dyn PhysicalExpr>; 2],
    /// The radius, degrees, over the columns of the probe side.
    pub radius: Arc<dyn PhysicalExpr>,
    /// Whether a separation equal to the radius passes.
    pub bound: Bound,
    /// Which rows have a position.
    pub poles: BeyondPoles,
}

/// What a declination beyond a pole is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeyondPoles {
    /// No position: nothing is near it, as the function of the separation says.
    Nowhere,
    /// The direction that it leads to: the condition is a cover of another one, which compares the numbers.
    Direction,
}

impl SeparationCondition {
    /// Whether the radius is the same for all rows.
    pub fn has_one_radius(&self) -> bool {
        collect_columns(&self.radius).is_empty()
    }
}

/// The value of an expression without columns.
pub(crate) fn constant_value(expr: &Arc<dyn PhysicalExpr>) -> Result<ScalarValue> {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), vec![], &options)?;
    match expr.evaluate(&row)? {
        ColumnarValue::Scalar(value) => Ok(value),
        ColumnarValue::Array(values) => ScalarValue::try_from_array(&values, 0),
    }
}

impl fmt::Display for SeparationCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let less = match self.bound {
            Bound::Below => "<",
            Bound::AtMost => "<=",
        };
        let [ra, dec] = &self.probe;
        let [build_ra, build_dec] = &self.build;
        write!(
            f,
            "({ra}, {dec}) to ({build_ra}, {build_dec}) {less} {}",
            self.radius
        )
    }
}

/// The positions of a batch's rows.
pub(in crate::exec) struct RowPositions {
    ra: Float64Array,
    dec: Float64Array,
    /// Rows with both coordinates.
    valid: Option<NullBuffer>,
}

impl RowPositions {
    pub fn of(
        [ra, dec]: &[Arc<dyn PhysicalExpr>; 2],
        batch: &RecordBatch,
        poles: BeyondPoles,
    ) -> Result<Self> {
        let (ra, dec) = (degrees(ra, batch)?, degrees(dec, batch)?);
        let mut valid = NullBuffer::union(ra.nulls(), dec.nulls());
        if poles == BeyondPoles::Nowhere && dec.values().iter().any(|dec| dec.abs() > 90.0) {
            let on_the_sky = dec.values().iter().map(|dec| dec.abs() <= 90.0);
            let on_the_sky = NullBuffer::from_iter(on_the_sky);
            valid = NullBuffer::union(valid.as_ref(), Some(&on_the_sky));
        }
        Ok(Self { ra, dec, valid })
    }

    pub fn positions(&self) -> Positions<'_> {
        let positions = Positions::from_degrees(self.ra.values(), self.dec.values());
        match &self.valid {
            Some(valid) => positions.with_validity(Validity::new(valid.validity(), valid.offset())),
            None => positions,
        }
    }

    /// The positions of rows with these columns of right ascensions and declinations.
    pub fn from_columns(ra: &ArrayRef, dec: &ArrayRef) -> Self {
        let double = |column: &ArrayRef| column.as_primitive::<Float64Type>().clone();
        let (ra, dec) = (double(ra), double(dec));
        let valid = NullBuffer::union(ra.nulls(), dec.nulls());
        Self { ra, dec, valid }
    }

    /// Right ascensions and declinations, degrees.
    pub fn columns(&self) -> [Float64Array; 2] {
        [self.ra.clone(), self.dec.clone()]
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.ra.len()
    }

    /// Right ascension and declination of each row; `None` where it lacks one.
    pub fn all(&self) -> impl Iterator<Item = Option<(f64, f64)>> {
        self.ra.iter().zip(&self.dec).map(|(ra, dec)| ra.zip(dec))
    }

    /// Right ascension and declination of the rows that have both.
    pub fn known(&self) -> impl Iterator<Item = (f64, f64)> {
        let known = |row: &usize| self.valid.as_ref().is_none_or(|valid| valid.is_valid(*row));
        let rows = (0..self.ra.len()).filter(known);
        rows.map(|row| (self.ra.value(row), self.dec.value(row)))
    }
}

/// The radii of a batch's rows.
pub(super) enum RowRadii {
    /// The same radius for all. No separation is within NaN.
    Common(f64),
    Each(Float64Array),
}

impl RowRadii {
    pub fn of(near: &SeparationCondition, batch: &RecordBatch) -> Result<Self> {
        if near.has_one_radius() {
            let radius = constant_value(&near.radius)?;
            let radius = match radius.cast_to(&DataType::Float64)? {
                ScalarValue::Float64(Some(radius)) => radius,
                _ => f64::NAN,
            };
            return Ok(Self::Common(radius));
        }
        let radius = near.radius.evaluate(batch)?.into_array(batch.num_rows())?;
        Ok(Self::Each(
            cast(&radius, &DataType::Float64)?
                .as_primitive::<Float64Type>()
                .clone(),
        ))
    }

    pub fn radii(&self, bound: Bound) -> Radii<'_> {
        match self {
            Self::Common(radius) => Radii::common(Radius::new(Angle::from_degrees(*radius), bound)),
            Self::Each(radii) => {
                let valid = radii
                    .nulls()
                    .map(|valid| Validity::new(valid.validity(), valid.offset()));
                Radii::of_rows(radii.values(), valid, bound)
            }
        }
    }

    /// The largest radius; 0 if no radius is valid.
    pub fn largest(&self) -> Angle {
        let largest = match self {
            Self::Common(radius) => *radius,
            Self::Each(radii) => radii.iter().flatten().fold(0.0, f64::max),
        };
        // NaN is not above 0.
        Angle::from_degrees(if largest > 0.0 {
            largest.min(180.0)
        } else {
            0.0
        })
    }
}

fn degrees(expr: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<Float64Array> {
    let values = expr.evaluate(batch)?.into_array(batch.num_rows())?;
    Ok(cast(&values, &DataType::Float64)?
        .as_primitive::<Float64Type>()
        .clone())
}
