//! Geometry made of numbers: points, circles, boxes and polygons.
//!
//! A geometry of which a part is NULL is NULL. What makes no sense (a declination beyond a pole, a polygon that crosses itself)
//! is an error where it is constant, and contains nothing where it comes from a row.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::Expr;
use sky::{Shape, SkyError, shape::box_corners};

use super::geometry_function::{Arguments, GeometryFunction, as_it_is};
use super::parts::{self, call};
use super::value::{Geometries, GeometryBuilder, Kind};

pub(super) static FUNCTIONS: [GeometryFunction; 4] = [
    GeometryFunction {
        name: "adql_point",
        takes: |types| doubles("POINT", types, 2, POINT),
        gives: |_| Kind::Point.data_type(),
        nullable: true,
        of: |arguments| built(arguments, Kind::Point, |numbers| Ok(numbers.to_vec())),
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "adql_circle",
        takes: |types| around_centre("CIRCLE", types, 1, CIRCLE),
        gives: |_| Kind::Circle.data_type(),
        nullable: true,
        of: |arguments| built(arguments, Kind::Circle, |numbers| Ok(numbers.to_vec())),
        simplified: |args| with_plain_centre("adql_circle", args),
    },
    GeometryFunction {
        name: "adql_box",
        takes: |types| around_centre("BOX", types, 2, BOX),
        gives: |_| Kind::Polygon.data_type(),
        nullable: true,
        of: |arguments| {
            built(arguments, Kind::Polygon, |numbers| match *numbers {
                [ra, dec, width, height] => box_corners(ra, dec, width, height).map(Vec::from),
                _ => Ok(vec![]),
            })
        },
        simplified: |args| with_plain_centre("adql_box", args),
    },
    GeometryFunction {
        name: super::POLYGON,
        takes: corners,
        gives: |_| Kind::Polygon.data_type(),
        nullable: true,
        of: |arguments| built(arguments, Kind::Polygon, |numbers| Ok(numbers.to_vec())),
        simplified: as_it_is,
    },
];

/// What each of them takes, in words.
pub(crate) const POINT: &str = "two numbers: POINT(ra, dec), in degrees";
pub(crate) const CIRCLE: &str =
    "a centre and a radius: CIRCLE(ra, dec, radius) or CIRCLE(point, radius), in degrees";
pub(crate) const BOX: &str = "a centre, a width and a height: BOX(ra, dec, width, height) or \
                              BOX(point, width, height), in degrees";
pub(crate) const POLYGON: &str = "three corners or more: POLYGON(ra, dec, ra, dec, ra, dec, ...) in degrees, or \
     POLYGON(point, point, point, ...)";

/// Whether a value of the type can be taken for a number.
pub(super) fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric() || *data_type == DataType::Null
}

fn doubles(
    function: &str,
    types: &[DataType],
    count: usize,
    wanted: &str,
) -> Result<Vec<DataType>, String> {
    if types.len() == count && types.iter().all(is_number) {
        return Ok(vec![DataType::Float64; count]);
    }
    Err(unfit(function, wanted, types))
}

/// Says what a function takes, where something else was given.
pub(super) fn unfit(function: &str, wanted: &str, types: &[DataType]) -> String {
    let given: Vec<&str> = types.iter().map(type_name).collect();
    let given = match given.as_slice() {
        [] => "nothing was given".to_owned(),
        [only] => format!("{only} was given"),
        _ => format!("{} were given", given.join(", ")),
    };
    format!("{function} takes {wanted}; {given}")
}

fn type_name(data_type: &DataType) -> &'static str {
    match (Kind::of(data_type), data_type) {
        (Some(Kind::Point), _) => "a point",
        (Some(Kind::Circle), _) => "a circle",
        (Some(Kind::Polygon), _) => "a polygon",
        (None, data_type) if is_number(data_type) => "a number",
        (None, DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8) => "a text",
        (None, DataType::Boolean) => "a condition",
        (None, DataType::Timestamp(..) | DataType::Date32) => "a time",
        _ => "something else",
    }
}

/// The types of a centre, given by two numbers or a point, and of more numbers.
fn around_centre(
    function: &str,
    types: &[DataType],
    more: usize,
    wanted: &str,
) -> Result<Vec<DataType>, String> {
    match types {
        [centre, rest @ ..]
            if rest.len() == more
                && Kind::of(centre) == Some(Kind::Point)
                && rest.iter().all(is_number) =>
        {
            let mut types = vec![DataType::Float64; types.len()];
            types[0] = Kind::Point.data_type();
            Ok(types)
        }
        _ => doubles(function, types, more + 2, wanted),
    }
}

fn corners(types: &[DataType]) -> Result<Vec<DataType>, String> {
    let enough = types.len() >= 3;
    if enough && types.iter().all(|t| Kind::of(t) == Some(Kind::Point)) {
        return Ok(vec![Kind::Point.data_type(); types.len()]);
    }
    if types.len() >= 6 && types.len().is_multiple_of(2) && types.iter().all(is_number) {
        return Ok(vec![DataType::Float64; types.len()]);
    }
    if types.len() > 12 {
        return Err(format!(
            "POLYGON takes {POLYGON}; {} arguments were given",
            types.len()
        ));
    }
    Err(unfit("POLYGON", POLYGON, types))
}

/// A column of geometries of a kind, made of what `numbers_of` gives for the numbers of each row.
fn built(
    arguments: &Arguments,
    kind: Kind,
    numbers_of: fn(&[f64]) -> Result<Vec<f64>, SkyError>,
) -> Result<ArrayRef> {
    let inputs = arguments
        .columns
        .iter()
        .map(Input::of)
        .collect::<Result<Vec<_>>>()?;
    let mut result = GeometryBuilder::new(kind);
    let mut numbers = Vec::new();
    for row in 0..arguments.rows {
        numbers.clear();
        if !inputs.iter().all(|input| input.add(row, &mut numbers)) {
            result.push(None);
            continue;
        }
        let geometry = numbers_of(&numbers);
        if arguments.constant {
            let checked = geometry.clone().and_then(|numbers| checked(kind, &numbers));
            if let Err(error) = checked {
                return exec_err!("{error}");
            }
        }
        // A box that makes no sense.
        result.push(geometry.ok().as_deref());
    }
    result.finish()
}

fn checked(kind: Kind, numbers: &[f64]) -> Result<Shape, SkyError> {
    match (kind, numbers) {
        (Kind::Circle, &[.., radius]) if radius > 180.0 => Err(SkyError::Radius(radius)),
        _ => kind.shape(numbers),
    }
}

/// A column of numbers or points.
enum Input<'a> {
    Numbers(&'a Float64Array),
    Points(Geometries),
}

impl<'a> Input<'a> {
    fn of(column: &'a ArrayRef) -> Result<Self> {
        Ok(match column.data_type() {
            DataType::Float64 => Self::Numbers(column.as_primitive::<Float64Type>()),
            _ => Self::Points(Geometries::of(column)?),
        })
    }

    /// Adds the numbers of a row; says whether they are known.
    fn add(&self, row: usize, numbers: &mut Vec<f64>) -> bool {
        match self {
            Self::Numbers(column) => {
                numbers.push(column.value(row));
                column.is_valid(row) && !column.value(row).is_nan()
            }
            Self::Points(points) => match points.numbers(row) {
                Some(known) => {
                    numbers.extend_from_slice(known);
                    true
                }
                None => false,
            },
        }
    }
}

/// A call whose centre is given by two numbers, where it was given by a point of which they are known.
fn with_plain_centre(function: &str, args: &[Expr]) -> Option<Expr> {
    let [centre, rest @ ..] = args else {
        return None;
    };
    if rest.len() > 2 {
        return None;
    }
    let [ra, dec] = parts::of_point(centre)?;
    let mut plain = vec![ra, dec];
    plain.extend_from_slice(rest);
    // Of a circle with a plain centre there are three, of a box four.
    let wanted = if function == "adql_circle" { 3 } else { 4 };
    (plain.len() == wanted).then(|| call(function, plain))
}
