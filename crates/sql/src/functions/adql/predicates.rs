//! How two geometries lie to each other, and what can be measured of one.
//!
//! A point is in a circle if their separation, to the last bit what `scisql_angSep` gives, is at most the radius: so `CONTAINS`
//! and `DISTANCE` say the same of two tables' rows, whichever way a query is asked. A geometry that is unknown contains
//! nothing and is nowhere.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int32Array, StringArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::Expr;
use sky::Shape;
use sky::moc::Moc;

use super::constructors::unfit;
use super::geometry_function::{Arguments, GeometryFunction, as_it_is};
use super::moc;
use super::parts::{self, call};
use super::value::{Geometries, GeometryBuilder, Kind};
use crate::functions::{RegionShape, SEPARATION};

/// What functions of two take, in words.
const CONTAINS: &str =
    "two geometries: CONTAINS(inner, outer); of a MOC the other is a point or a MOC";
const INTERSECTS: &str = "two geometries; of a MOC the other is a point or a MOC";

pub(super) static FUNCTIONS: [GeometryFunction; 8] = [
    GeometryFunction {
        name: "adql_contains",
        takes: |types| match moc::takes(types) {
            true => Ok(types.to_vec()),
            false => geometries("CONTAINS", types, 2, CONTAINS),
        },
        gives: |_| DataType::Int32,
        nullable: false,
        of: |arguments| related(arguments, Relation::Contains),
        simplified: |args| Ok(contained_simply(args)),
    },
    GeometryFunction {
        name: "adql_intersects",
        takes: |types| match moc::takes(types) || moc::takes(&reversed(types)) {
            true => Ok(types.to_vec()),
            false => geometries("INTERSECTS", types, 2, INTERSECTS),
        },
        gives: |_| DataType::Int32,
        nullable: false,
        of: |arguments| related(arguments, Relation::Intersects),
        // Of a point it asks what CONTAINS asks.
        simplified: |args| match args {
            [a, b] if parts::of_point(a).is_some() => {
                Ok(Some(call("adql_contains", vec![a.clone(), b.clone()])))
            }
            [a, b] if parts::of_point(b).is_some() => {
                Ok(Some(call("adql_contains", vec![b.clone(), a.clone()])))
            }
            _ => Ok(None),
        },
    },
    GeometryFunction {
        name: "adql_distance",
        takes: |types| {
            points(
                "DISTANCE",
                types,
                2,
                "two points, or four numbers: ra, dec, ra, dec (degrees)",
            )
        },
        gives: |_| DataType::Float64,
        nullable: true,
        of: distances,
        simplified: |args| Ok(distance_of_numbers(args)),
    },
    GeometryFunction {
        name: "adql_area",
        takes: |types| match types {
            [map] if moc::is_moc(map) => Ok(types.to_vec()),
            _ => geometries("AREA", types, 1, "a geometry"),
        },
        gives: |_| DataType::Float64,
        nullable: true,
        of: |arguments| {
            if moc::is_moc(arguments.columns[0].data_type()) {
                return Ok(moc::areas(&arguments.columns[0]));
            }
            let shapes = Geometries::of(&arguments.columns[0])?;
            let area = |row| shapes.shape(row).map(|shape| shape.area_square_degrees());
            Ok(Arc::new(Float64Array::from_iter(
                (0..arguments.rows).map(area),
            )))
        },
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "adql_centroid",
        takes: |types| geometries("CENTROID", types, 1, "a geometry"),
        gives: |_| Kind::Point.data_type(),
        nullable: true,
        of: |arguments| {
            let shapes = Geometries::of(&arguments.columns[0])?;
            let mut result = GeometryBuilder::new(Kind::Point);
            for row in 0..arguments.rows {
                match shapes.kind() {
                    // As it was given.
                    Kind::Point | Kind::Circle => result.push(shapes.numbers(row).map(|n| &n[..2])),
                    Kind::Polygon => result.push_position(shapes.shape(row).map(|s| s.centroid())),
                }
            }
            result.finish()
        },
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "adql_coord1",
        takes: |types| points("COORD1", types, 1, "a point"),
        gives: |_| DataType::Float64,
        nullable: true,
        of: |arguments| coordinate(arguments, 0),
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "adql_coord2",
        takes: |types| points("COORD2", types, 1, "a point"),
        gives: |_| DataType::Float64,
        nullable: true,
        of: |arguments| coordinate(arguments, 1),
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "adql_coordsys",
        takes: |types| geometries("COORDSYS", types, 1, "a geometry"),
        gives: |_| DataType::Utf8,
        nullable: true,
        of: |arguments| {
            let shapes = Geometries::of(&arguments.columns[0])?;
            let name = |row| shapes.numbers(row).map(|_| "ICRS");
            Ok(Arc::new(StringArray::from_iter(
                (0..arguments.rows).map(name),
            )))
        },
        simplified: as_it_is,
    },
];

fn reversed(types: &[DataType]) -> Vec<DataType> {
    types.iter().rev().cloned().collect()
}

fn geometries(
    function: &str,
    types: &[DataType],
    count: usize,
    wanted: &str,
) -> Result<Vec<DataType>, String> {
    of_kinds(function, types, count, wanted, |_| true)
}

pub(super) fn points(
    function: &str,
    types: &[DataType],
    count: usize,
    wanted: &str,
) -> Result<Vec<DataType>, String> {
    of_kinds(function, types, count, wanted, |kind| kind == Kind::Point)
}

fn of_kinds(
    function: &str,
    types: &[DataType],
    count: usize,
    wanted: &str,
    fits: fn(Kind) -> bool,
) -> Result<Vec<DataType>, String> {
    let kinds = types.iter().map(|given| match given {
        DataType::Null => Some(Kind::Point),
        _ => Kind::of(given).filter(|kind| fits(*kind)),
    });
    let kinds: Option<Vec<Kind>> = kinds.collect();
    match kinds {
        Some(kinds) if kinds.len() == count => Ok(kinds.into_iter().map(Kind::data_type).collect()),
        _ => Err(unfit(function, wanted, types)),
    }
}

#[derive(Clone, Copy)]
enum Relation {
    /// All of the first is in the second.
    Contains,
    Intersects,
}

impl Relation {
    fn holds(self, first: &Shape, second: &Shape) -> bool {
        match self {
            Self::Contains => second.contains(first),
            Self::Intersects => first.intersects(second),
        }
    }
}

/// 1 where the relation holds of the rows' geometries, else 0.
fn related(arguments: &Arguments, relation: Relation) -> Result<ArrayRef> {
    if let [first, second] = arguments.columns.as_slice() {
        let of_maps: fn(&Moc, &Moc) -> bool = match relation {
            Relation::Contains => |inner, outer| outer.contains_all(inner),
            Relation::Intersects => Moc::intersects,
        };
        if moc::is_moc(second.data_type()) {
            return moc::related(first, second, of_maps);
        }
        if moc::is_moc(first.data_type()) {
            return moc::related(second, first, of_maps);
        }
    }
    let [first, second] = pair(arguments)?;
    let mut last: Option<(Vec<f64>, Option<Shape>)> = None;
    let mut result = Vec::with_capacity(arguments.rows);
    for row in 0..arguments.rows {
        let (Some(of_first), Some(of_second)) = (first.numbers(row), second.numbers(row)) else {
            result.push(0);
            continue;
        };
        let holds = match in_circle(&first, of_first, &second, of_second, relation) {
            Some(inside) => inside,
            None => {
                // A polygon is often the same for all rows, and takes some time to be understood.
                if last
                    .as_ref()
                    .is_none_or(|(numbers, _)| numbers != of_second)
                {
                    last = Some((of_second.to_vec(), second.shape(row)));
                }
                let second = last.as_ref().and_then(|(_, shape)| shape.as_ref());
                match (first.shape(row), second) {
                    (Some(first), Some(second)) => relation.holds(&first, second),
                    _ => false,
                }
            }
        };
        result.push(i32::from(holds));
    }
    Ok(Arc::new(Int32Array::from(result)))
}

/// Whether a point is in a circle, if the two are that: what [`SEPARATION`] gives compared with the radius.
fn in_circle(
    first: &Geometries,
    of_first: &[f64],
    second: &Geometries,
    of_second: &[f64],
    relation: Relation,
) -> Option<bool> {
    let (point, circle) = match (first.kind(), second.kind(), relation) {
        (Kind::Point, Kind::Circle, _) => (of_first, of_second),
        (Kind::Circle, Kind::Point, Relation::Intersects) => (of_second, of_first),
        _ => return None,
    };
    let mut separation = Vec::with_capacity(1);
    sky::separation_degrees(
        &point[..1],
        &point[1..2],
        &circle[..1],
        &circle[1..2],
        &mut separation,
    );
    Some(separation.first()? <= circle.get(2)?)
}

fn pair(arguments: &Arguments) -> Result<[Geometries; 2]> {
    match arguments.columns.as_slice() {
        [first, second] => Ok([Geometries::of(first)?, Geometries::of(second)?]),
        other => exec_err!("expected 2 arguments, not {}", other.len()),
    }
}

fn distances(arguments: &Arguments) -> Result<ArrayRef> {
    let [first, second] = pair(arguments)?;
    let mut separation = Vec::with_capacity(1);
    let distances = (0..arguments.rows).map(|row| {
        let (a, b) = (first.numbers(row)?, second.numbers(row)?);
        sky::separation_degrees(&a[..1], &a[1..], &b[..1], &b[1..], &mut separation);
        separation.first().copied().filter(|x| !x.is_nan())
    });
    Ok(Arc::new(Float64Array::from_iter(distances)))
}

fn coordinate(arguments: &Arguments, which: usize) -> Result<ArrayRef> {
    let points = Geometries::of(&arguments.columns[0])?;
    let numbers = |row| points.numbers(row)?.get(which).copied();
    Ok(Arc::new(Float64Array::from_iter(
        (0..arguments.rows).map(numbers),
    )))
}

/// The distance of two points of which the numbers are known.
fn distance_of_numbers(args: &[Expr]) -> Option<Expr> {
    let [a, b] = args else {
        return None;
    };
    let ([ra1, dec1], [ra2, dec2]) = (parts::of_point(a)?, parts::of_point(b)?);
    Some(call(SEPARATION, vec![ra1, dec1, ra2, dec2]))
}

/// A point in a constant polygon that is convex is what the engine's own function asks, from which it reads where to look.
fn contained_simply(args: &[Expr]) -> Option<Expr> {
    let [inner, outer] = args else {
        return None;
    };
    let [ra, dec] = parts::of_point(inner)?;
    let (Kind::Polygon, numbers) = parts::constant(outer)? else {
        return None;
    };
    let Ok(Shape::Polygon(polygon)) = Kind::Polygon.shape(&numbers) else {
        return None;
    };
    polygon.as_convex()?;
    let mut arguments = vec![ra, dec];
    arguments.extend(numbers.into_iter().map(datafusion::logical_expr::lit));
    Some(call(RegionShape::Polygon.function(), arguments))
}
