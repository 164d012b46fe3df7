//! Geometry made of numbers: points, circles, boxes and polygons.
//!
//! A geometry of which a part is NULL is NULL. What makes no sense (a declination beyond a pole, a radius below 0, a polygon that crosses
//! itself) is an error where it is constant, and NULL where it comes from a row. Right ascensions are wrapped into [0, 360).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::Expr;
use sky::{LonLat, SkyError, shape::box_corners};

use super::geometry_function::{Arguments, GeometryFunction, as_it_is};
use super::moc::is_moc;
use super::parts::{self, call};
use super::value::{Geometries, GeometryBuilder, Kind, is_radius};

/// The function of a circle's radius that is NULL where it is none.
pub(crate) const RADIUS: &str = "adql_radius";

pub(super) static FUNCTIONS: [GeometryFunction; 5] = [
    GeometryFunction {
        name: "adql_point",
        takes: |types| doubles("POINT", types, 2, POINT),
        gives: |_| Kind::Point.data_type(),
        nullable: true,
        of: |arguments| {
            built(arguments, Kind::Point, check_position, |numbers| {
                Ok(numbers.to_vec())
            })
        },
        simplified: |args| checked_parts(args, check_position).map(|()| None),
    },
    GeometryFunction {
        name: "adql_circle",
        takes: |types| around_centre("CIRCLE", types, 1, CIRCLE),
        gives: |_| Kind::Circle.data_type(),
        nullable: true,
        of: |arguments| {
            built(arguments, Kind::Circle, check_circle, |numbers| {
                Ok(numbers.to_vec())
            })
        },
        simplified: |args| {
            checked_parts(args, check_circle)?;
            Ok(with_plain_centre("adql_circle", args))
        },
    },
    GeometryFunction {
        name: "adql_box",
        takes: |types| around_centre("BOX", types, 2, BOX),
        gives: |_| Kind::Polygon.data_type(),
        nullable: true,
        of: |arguments| {
            built(
                arguments,
                Kind::Polygon,
                check_box,
                |numbers| match *numbers {
                    [ra, dec, width, height] => box_corners(ra, dec, width, height).map(Vec::from),
                    _ => Ok(vec![]),
                },
            )
        },
        simplified: |args| {
            checked_parts(args, check_box)?;
            Ok(with_plain_centre("adql_box", args))
        },
    },
    GeometryFunction {
        name: super::POLYGON,
        takes: corners,
        gives: |_| Kind::Polygon.data_type(),
        nullable: true,
        of: |arguments| {
            built(arguments, Kind::Polygon, check_corners, |numbers| {
                Ok(numbers.to_vec())
            })
        },
        simplified: |args| checked_parts(args, check_corners).map(|()| None),
    },
    GeometryFunction {
        name: RADIUS,
        takes: |types| doubles("RADIUS", types, 1, "a number of degrees"),
        gives: |_| DataType::Float64,
        nullable: true,
        of: |arguments| {
            let given = arguments.columns[0].as_primitive::<Float64Type>();
            let radii = given
                .iter()
                .map(|radius| radius.filter(|it| is_radius(*it)));
            Ok(Arc::new(radii.collect::<Float64Array>()))
        },
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
        (None, map) if is_moc(map) => "a MOC",
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

/// Checks what is known of the numbers of a geometry before there are rows.
type Check = fn(&[Option<f64>]) -> Result<(), SkyError>;

/// A column of geometries of a kind, made of what `numbers_of` gives for the numbers of each row.
fn built(
    arguments: &Arguments,
    kind: Kind,
    check: Check,
    numbers_of: fn(&[f64]) -> Result<Vec<f64>, SkyError>,
) -> Result<ArrayRef> {
    let inputs = arguments
        .columns
        .iter()
        .map(Input::of)
        .collect::<Result<Vec<_>>>()?;
    // A plan that is kept gets its constants late.
    let known = inputs.iter().zip(&arguments.constants);
    let known: Vec<Option<f64>> = known
        .map(|(input, constant)| input.first_number().filter(|_| *constant))
        .collect();
    if let Err(error) = check(&known) {
        return exec_err!("{error}");
    }
    let mut result = GeometryBuilder::new(kind);
    let mut numbers = Vec::new();
    for row in 0..arguments.rows {
        numbers.clear();
        if !inputs.iter().all(|input| input.add(row, &mut numbers)) {
            result.push(None);
            continue;
        }
        match numbers_of(&numbers).and_then(|numbers| kind.kept(numbers)) {
            Ok(numbers) => result.push(Some(&numbers)),
            Err(error) if arguments.constant => return exec_err!("{error}"),
            Err(_) => result.push(None),
        }
    }
    result.finish()
}

/// Checks the parts of a geometry that are constant, where others come from rows.
fn checked_parts(args: &[Expr], check: Check) -> Result<()> {
    let numbers: Vec<Option<f64>> = args.iter().map(constant_number).collect();
    match check(&numbers) {
        Ok(()) => Ok(()),
        Err(error) => plan_err!("{error}"),
    }
}

fn constant_number(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Literal(ScalarValue::Float64(number), _) => *number,
        _ => None,
    }
}

fn check_circle(parts: &[Option<f64>]) -> Result<(), SkyError> {
    match *parts {
        [.., Some(radius)] if !is_radius(radius) => Err(SkyError::Radius(radius)),
        [ra, dec, _] => check_position(&[ra, dec]),
        _ => Ok(()),
    }
}

fn check_box(parts: &[Option<f64>]) -> Result<(), SkyError> {
    if let [.., width, height] = *parts {
        // Sides that make a box somewhere do so everywhere.
        box_corners(0.0, 0.0, width.unwrap_or(1.0), height.unwrap_or(1.0))?;
    }
    match *parts {
        [ra, dec, _, _] => check_position(&[ra, dec]),
        _ => Ok(()),
    }
}

fn check_corners(parts: &[Option<f64>]) -> Result<(), SkyError> {
    parts.chunks_exact(2).try_for_each(check_position)
}

/// Checks what is known of a right ascension and a declination.
fn check_position(parts: &[Option<f64>]) -> Result<(), SkyError> {
    match *parts {
        [ra, dec] => LonLat::from_degrees(ra.unwrap_or(0.0), dec.unwrap_or(0.0)).map(drop),
        _ => Ok(()),
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

    /// The number of the first row.
    fn first_number(&self) -> Option<f64> {
        match self {
            Self::Numbers(column) => column.iter().next().flatten(),
            Self::Points(_) => None,
        }
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
