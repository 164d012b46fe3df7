//! Sky geometry in SQL: angular separation and point-in-region.
//!
//! Positions, radii and sides are in degrees; the axes of an ellipse are in arcseconds (as in scisql), its position angle in
//! degrees east of north. As in scisql, a point or region that is partly NULL is not inside (0), and a separation with a
//! NULL part is NULL. So is one with a declination beyond a pole. A region that makes no sense (a negative radius, a polygon that is not convex) is an error where it is
//! constant and contains nothing where it comes from a row.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use sky::{Region, SkyError};

use super::{aliases, real::keep_where};

/// Name of the angular separation function.
pub const SEPARATION: &str = "scisql_angsep";
/// Name of the function that gives a convex polygon as one value.
pub(crate) const POLYGON_TEXT: &str = "scisql_s2cpolytobin";

/// The geometry functions.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let mut functions = vec![Arc::new(ScalarUDF::new_from_impl(Separation::new()))];
    functions.push(Arc::new(ScalarUDF::new_from_impl(PolygonText::new())));
    functions.extend(
        RegionShape::ALL.map(|shape| Arc::new(ScalarUDF::new_from_impl(PointInRegion::new(shape)))),
    );
    functions
}

/// `angSep(ra1, dec1, ra2, dec2)`: the angle between two positions, in degrees.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Separation {
    aliases: Vec<String>,
    signature: Signature,
}

impl Separation {
    fn new() -> Self {
        Self {
            aliases: aliases("angsep", &["qserv_"]),
            signature: Signature::exact(vec![DataType::Float64; 4], Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Separation {
    fn name(&self) -> &str {
        SEPARATION
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let [ra1, dec1, ra2, dec2] = doubles(&arrays)?;
        let mut degrees = Vec::with_capacity(ra1.len());
        sky::separation_degrees(
            ra1.values(),
            dec1.values(),
            ra2.values(),
            dec2.values(),
            &mut degrees,
        );
        for (degrees, (dec1, dec2)) in degrees
            .iter_mut()
            .zip(dec1.values().iter().zip(dec2.values()))
        {
            // Where the directions that such declinations lead to lie is no answer.
            if dec1.abs() > 90.0 || dec2.abs() > 90.0 {
                *degrees = f64::NAN;
            }
        }
        let nulls = [ra1, dec1, ra2, dec2].iter().fold(None, |all, column| {
            NullBuffer::union(all.as_ref(), column.nulls())
        });
        let result = keep_where(&Float64Array::new(degrees.into(), nulls), |x| !x.is_nan());
        if args
            .args
            .iter()
            .all(|a| matches!(a, ColumnarValue::Scalar(_)))
        {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &result, 0,
            )?));
        }
        Ok(ColumnarValue::Array(result))
    }
}

fn doubles<const N: usize>(arrays: &[ArrayRef]) -> Result<[&Float64Array; N]> {
    let columns: Vec<&Float64Array> = arrays
        .iter()
        .map(|a| a.as_primitive::<Float64Type>())
        .collect();
    match columns.try_into() {
        Ok(columns) => Ok(columns),
        Err(columns) => exec_err!("expected {N} arguments, not {}", columns.len()),
    }
}

/// The shapes a point can be tested against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RegionShape {
    /// Centre and radius.
    Circle,
    /// Lowest and highest right ascension and declination; wraps through RA 0 where the first is the larger.
    Box,
    /// Centre, semi-major and semi-minor axis in arcseconds, position angle in degrees.
    Ellipse,
    /// Vertices of a convex polygon.
    Polygon,
}

impl RegionShape {
    /// All of them.
    pub const ALL: [RegionShape; 4] = [Self::Circle, Self::Box, Self::Ellipse, Self::Polygon];

    /// The name of the function that tests a point against this shape.
    pub fn function(self) -> &'static str {
        match self {
            Self::Circle => "scisql_s2ptincircle",
            Self::Box => "scisql_s2ptinbox",
            Self::Ellipse => "scisql_s2ptinellipse",
            Self::Polygon => "scisql_s2ptincpoly",
        }
    }

    /// The name of the restriction that applies this shape to every partitioned table of a statement.
    pub fn restriction(self) -> &'static str {
        match self {
            Self::Circle => "qserv_areaspec_circle",
            Self::Box => "qserv_areaspec_box",
            Self::Ellipse => "qserv_areaspec_ellipse",
            Self::Polygon => "qserv_areaspec_poly",
        }
    }

    /// How many numbers describe the shape; `None` for a polygon, which takes pairs.
    pub fn arity(self) -> Option<usize> {
        match self {
            Self::Circle => Some(3),
            Self::Box => Some(4),
            Self::Ellipse => Some(5),
            Self::Polygon => None,
        }
    }

    /// Says how the numbers are to be given, where `count` of them is wrong.
    pub fn check_arity(self, function: &str, count: usize) -> Result<(), String> {
        let wanted = match self.arity() {
            Some(arity) if arity == count => return Ok(()),
            None if count >= 6 && count.is_multiple_of(2) => return Ok(()),
            _ => match self {
                Self::Circle => "3 numbers for the circle: ra, dec, radius (degrees)",
                Self::Box => "4 numbers for the box: ra_min, dec_min, ra_max, dec_max (degrees)",
                Self::Ellipse => {
                    "5 numbers for the ellipse: ra, dec (degrees), semi-major and semi-minor axis (arcseconds), position angle (degrees)"
                }
                Self::Polygon => {
                    "at least 3 vertices for the polygon: ra, dec, ra, dec, ra, dec, ... (degrees)"
                }
            },
        };
        Err(format!("{function} takes {wanted}; {count} were given"))
    }

    /// The region that the numbers describe.
    pub fn region(self, numbers: &[f64]) -> Result<Region, SkyError> {
        match (self, numbers) {
            (Self::Circle, &[ra, dec, radius]) => Region::circle_degrees(ra, dec, radius),
            (Self::Box, &[ra_min, dec_min, ra_max, dec_max]) => {
                Region::box_degrees(ra_min, dec_min, ra_max, dec_max)
            }
            (Self::Ellipse, &[ra, dec, major, minor, angle]) => {
                Region::ellipse_degrees(ra, dec, major / 3600.0, minor / 3600.0, angle)
            }
            (_, numbers) => {
                let vertices: Vec<(f64, f64)> =
                    numbers.chunks_exact(2).map(|v| (v[0], v[1])).collect();
                Region::polygon_degrees(&vertices)
            }
        }
    }
}

/// `s2PtInCircle(ra, dec, ...)` and its kin: 1 if the point is inside, else 0.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PointInRegion {
    shape: RegionShape,
    aliases: Vec<String>,
    signature: Signature,
}

impl PointInRegion {
    fn new(shape: RegionShape) -> Self {
        let plain = shape.function().trim_start_matches("scisql_");
        Self {
            shape,
            aliases: aliases(plain, &["qserv_"]),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for PointInRegion {
    fn name(&self) -> &str {
        self.shape.function()
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        match self
            .shape
            .check_arity(self.name(), arg_types.len().saturating_sub(2))
        {
            Ok(()) => Ok(vec![DataType::Float64; arg_types.len()]),
            Err(sentence) => {
                let constant = match self.shape {
                    RegionShape::Polygon => "; or a constant that scisql_s2CPolyToBin gives",
                    _ => "",
                };
                plan_err!("{sentence}, after the point's ra and dec{constant}")
            }
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int32)
    }

    fn return_field_from_args(
        &self,
        _: datafusion::logical_expr::ReturnFieldArgs,
    ) -> Result<arrow::datatypes::FieldRef> {
        Ok(Arc::new(arrow::datatypes::Field::new(
            self.name(),
            DataType::Int32,
            false,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (point, region) = args.args.split_at(2);
        let point = ColumnarValue::values_to_arrays(&[point[0].clone(), point[1].clone()])?;
        let [ra, dec] = doubles(&point)?;
        // A scalar point stands for all rows.
        let (ra, dec) = (spread(ra, args.number_rows), spread(dec, args.number_rows));
        let constants: Option<Vec<&ScalarValue>> = region
            .iter()
            .map(|value| match value {
                ColumnarValue::Scalar(scalar) => Some(scalar),
                ColumnarValue::Array(_) => None,
            })
            .collect();
        let inside = match constants {
            Some(constants) => inside_constant(self.shape, &constants, &ra, &dec)?,
            None => inside_each(self.shape, region, &ra, &dec, args.number_rows)?,
        };
        Ok(ColumnarValue::Array(Arc::new(Int32Array::from(inside))))
    }
}

/// `s2CPolyToBin(ra, dec, ra, dec, ra, dec, ...)`: a convex polygon as one value, for a variable and then `s2PtInCPoly`.
///
/// It is a text of its coordinates: what scisql packs into bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PolygonText {
    aliases: Vec<String>,
    signature: Signature,
}

impl PolygonText {
    fn new() -> Self {
        Self {
            aliases: aliases(POLYGON_TEXT.trim_start_matches("scisql_"), &[]),
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for PolygonText {
    fn name(&self) -> &str {
        POLYGON_TEXT
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        let count = arg_types.len();
        match RegionShape::Polygon.check_arity(self.name(), count) {
            Ok(()) => Ok(vec![DataType::Float64; count]),
            Err(sentence) => plan_err!("{sentence}"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let is_constant = args.args.iter().all(is_constant);
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let columns: Vec<&Float64Array> = { arrays.iter() }
            .map(|column| column.as_primitive::<Float64Type>())
            .collect();
        let mut numbers = Vec::with_capacity(columns.len());
        let rows = columns.first().map_or(0, |column| column.len());
        let mut texts = Vec::with_capacity(rows);
        for row in 0..rows {
            if columns.iter().any(|column| column.is_null(row)) {
                texts.push(None);
                continue;
            }
            numbers.clear();
            numbers.extend(columns.iter().map(|column| column.value(row)));
            texts.push(match RegionShape::Polygon.region(&numbers) {
                Ok(_) => Some(text_of(&numbers)),
                Err(error) if is_constant => return exec_err!("{}: {error}", self.name()),
                Err(_) => None,
            });
        }
        let texts: ArrayRef = Arc::new(StringArray::from(texts));
        match is_constant {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &texts, 0,
            )?)),
            false => Ok(ColumnarValue::Array(texts)),
        }
    }
}

fn text_of(numbers: &[f64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(f64::to_string).collect();
    numbers.join(" ")
}

/// The coordinates that [`PolygonText`] has written down; `None` if a text is none of its.
pub(crate) fn vertices_of(text: &str) -> Option<Vec<f64>> {
    let numbers = text.split(' ').map(|it| it.parse::<f64>().ok());
    let numbers = numbers.map(|it| it.filter(|it| it.is_finite()));
    let numbers: Vec<f64> = numbers.collect::<Option<_>>()?;
    let is_polygon = RegionShape::Polygon.check_arity("", numbers.len()).is_ok();
    is_polygon.then_some(numbers)
}

fn spread(column: &Float64Array, rows: usize) -> Float64Array {
    if column.len() == rows {
        return column.clone();
    }
    let value = (!column.is_empty() && column.is_valid(0)).then(|| column.value(0));
    Float64Array::from(vec![value; rows])
}

fn inside_constant(
    shape: RegionShape,
    constants: &[&ScalarValue],
    ra: &Float64Array,
    dec: &Float64Array,
) -> Result<Vec<i32>> {
    let numbers: Option<Vec<f64>> = constants
        .iter()
        .map(|scalar| match scalar {
            ScalarValue::Float64(number) => *number,
            _ => None,
        })
        .collect();
    let Some(numbers) = numbers else {
        return Ok(vec![0; ra.len()]);
    };
    let region = match shape.region(&numbers) {
        Ok(region) => region,
        Err(error) => return exec_err!("{}: {error}", shape.function()),
    };
    let mut contained = Vec::with_capacity(ra.len());
    region.contains_degrees(ra.values(), dec.values(), &mut contained);
    let known = NullBuffer::union(ra.nulls(), dec.nulls());
    Ok(contained
        .iter()
        .enumerate()
        .map(|(row, &inside)| i32::from(inside && known.as_ref().is_none_or(|k| k.is_valid(row))))
        .collect())
}

fn inside_each(
    shape: RegionShape,
    region: &[ColumnarValue],
    ra: &Float64Array,
    dec: &Float64Array,
    rows: usize,
) -> Result<Vec<i32>> {
    let arrays: Vec<ArrayRef> = region
        .iter()
        .map(|value| value.to_array(rows))
        .collect::<Result<_>>()?;
    let columns: Vec<&Float64Array> = arrays
        .iter()
        .map(|a| a.as_primitive::<Float64Type>())
        .collect();
    let mut numbers = vec![0.0; columns.len()];
    let mut contained = Vec::with_capacity(1);
    Ok((0..rows)
        .map(|row| {
            if ra.is_null(row) || dec.is_null(row) || columns.iter().any(|c| c.is_null(row)) {
                return 0;
            }
            for (number, column) in numbers.iter_mut().zip(&columns) {
                *number = column.value(row);
            }
            let Ok(region) = shape.region(&numbers) else {
                return 0;
            };
            contained.clear();
            region.contains_degrees(&[ra.value(row)], &[dec.value(row)], &mut contained);
            i32::from(contained == [true])
        })
        .collect())
}
