//! Coverage maps: `MOC('3/1,5-8 4/77')` and `MOC(order, geometry)`, and what is asked of them.
//!
//! A map is a list of the ends of its ranges of cells, each after its beginning, at the deepest order; its type tells it apart from other lists. In
//! a result it is a text.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, ListArray, StringArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::{Result, ScalarValue, exec_err};
use datafusion::logical_expr::Expr;
use sky::healpix::Depth;
use sky::moc::Moc;
use sky::{LonLat, SkyError};

use super::constructors::unfit;
use super::geometry_function::{Arguments, GeometryFunction, as_it_is};
use super::sky_functions::{is_text, is_whole};
use super::value::{Geometries, Kind};
use crate::interrupt::check;

/// The function that makes texts of maps.
pub const MOC_TEXT: &str = "adql_moc_text";

/// What the constructor takes.
const MOC: &str =
    "the text of one, MOC('3/1,5-8 4/77'), or an order and a geometry, MOC(7, CIRCLE(10, 20, 1))";

/// The name of the items of maps.
const ITEM: &str = "moc";

/// The type of maps.
pub(super) fn moc_type() -> DataType {
    DataType::List(Arc::new(item()))
}

fn item() -> Field {
    Field::new(ITEM, DataType::Int64, false)
}

/// Whether values of a type are maps.
pub fn is_moc(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(item) if item.name() == ITEM && *item.data_type() == DataType::Int64)
}

pub(super) static FUNCTIONS: [GeometryFunction; 2] = [
    GeometryFunction {
        name: "adql_moc",
        takes: |types| match types {
            [text] if is_text(text) || *text == DataType::Null => Ok(vec![DataType::Utf8]),
            [order, geometry] if is_whole(order) && Kind::of(geometry).is_some() => {
                Ok(vec![DataType::Int64, geometry.clone()])
            }
            _ => Err(unfit("MOC", MOC, types)),
        },
        gives: |_| moc_type(),
        nullable: true,
        of: |arguments| match arguments.columns.as_slice() {
            [texts] => of_texts(arguments, texts),
            [orders, geometries] => of_geometries(arguments, orders, geometries),
            other => exec_err!("expected 1 or 2 arguments, not {}", other.len()),
        },
        simplified: as_it_is,
    },
    GeometryFunction {
        name: MOC_TEXT,
        takes: |types| match types {
            [moc] if is_moc(moc) => Ok(types.to_vec()),
            _ => Err(unfit(MOC_TEXT, "a MOC", types)),
        },
        gives: |_| DataType::Utf8,
        nullable: true,
        of: |arguments| {
            let texts = mocs(&arguments.columns[0]).map(|moc| moc.map(|moc| moc.to_string()));
            Ok(Arc::new(texts.collect::<StringArray>()))
        },
        simplified: as_it_is,
    },
];

/// The maps of a column; none where it is NULL.
fn mocs(column: &ArrayRef) -> impl Iterator<Item = Option<Moc>> {
    let lists = column.as_list::<i32>();
    (0..lists.len()).map(|row| {
        lists
            .is_valid(row)
            .then(|| Moc::of_ranges(ranges(&lists.value(row))))
    })
}

fn ranges(ends: &ArrayRef) -> Vec<Range<u64>> {
    let ends = ends.as_primitive::<Int64Type>().values();
    ends.chunks_exact(2)
        .map(|pair| pair[0].cast_unsigned()..pair[1].cast_unsigned())
        .collect()
}

fn column(mocs: impl Iterator<Item = Result<Option<Moc>>>) -> Result<ArrayRef> {
    let (mut ends, mut lengths, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for moc in mocs {
        let moc = moc?;
        known.push(moc.is_some());
        let ranges = moc.as_ref().map_or(&[][..], Moc::ranges);
        lengths.push(2 * ranges.len());
        // There are fewer than 2^62 cells.
        ends.extend(
            ranges
                .iter()
                .flat_map(|range| [range.start, range.end].map(u64::cast_signed)),
        );
    }
    let nulls = Some(NullBuffer::from(known)).filter(|nulls| nulls.null_count() > 0);
    let offsets = OffsetBuffer::from_lengths(lengths);
    let values = Arc::new(Int64Array::from(ends));
    Ok(Arc::new(ListArray::try_new(
        Arc::new(item()),
        offsets,
        values,
        nulls,
    )?))
}

/// What is NULL where something goes wrong in a row, and an error where all is constant or there are too many cells.
fn in_row(arguments: &Arguments, moc: Result<Moc, SkyError>) -> Result<Option<Moc>> {
    match moc {
        Ok(moc) => Ok(Some(moc)),
        Err(error @ (SkyError::TooManyCells { .. } | SkyError::Level { .. })) => {
            exec_err!("{error}")
        }
        Err(error) if arguments.constant => exec_err!("{error}"),
        Err(_) => Ok(None),
    }
}

fn of_texts(arguments: &Arguments, texts: &ArrayRef) -> Result<ArrayRef> {
    let texts = texts.as_string::<i32>().iter();
    column(texts.map(|text| match text {
        Some(text) => in_row(arguments, text.parse()),
        None => Ok(None),
    }))
}

fn of_geometries(
    arguments: &Arguments,
    orders: &ArrayRef,
    geometries: &ArrayRef,
) -> Result<ArrayRef> {
    let orders = orders.as_primitive::<Int64Type>();
    let shapes = Geometries::of(geometries)?;
    column((0..arguments.rows).map(|row| {
        check()?;
        let (true, Some(shape)) = (orders.is_valid(row), shapes.shape(row)) else {
            return Ok(None);
        };
        let order = orders.value(row);
        let Some(depth) = u32::try_from(order)
            .ok()
            .and_then(|order| Depth::new(order).ok())
        else {
            return exec_err!(
                "HEALPix has no order {order}; give one of 0 to {}",
                sky::healpix::MAX_DEPTH
            );
        };
        in_row(arguments, Moc::covering(depth, &shape))
    }))
}

/// What a column of points or maps has in a row.
enum PlacedShape {
    Points(Geometries),
    Mocs(Vec<Option<Moc>>),
}

impl PlacedShape {
    fn of(column: &ArrayRef) -> Result<Self> {
        Ok(match is_moc(column.data_type()) {
            true => Self::Mocs(mocs(column).collect()),
            false => Self::Points(Geometries::of(column)?),
        })
    }

    fn point(points: &Geometries, row: usize) -> Option<LonLat> {
        let numbers = points.numbers(row)?;
        LonLat::from_degrees(*numbers.first()?, *numbers.get(1)?).ok()
    }
}

/// Whether a function of two geometries takes columns of these types, of which one is a map.
pub(super) fn takes(types: &[DataType]) -> bool {
    let is_point = |given: &DataType| Kind::of(given) == Some(Kind::Point);
    match types {
        [first, second] if is_moc(second) => is_moc(first) || is_point(first),
        _ => false,
    }
}

/// 1 where a point is in a map, or where a map is all in another or has a cell of it; else 0.
pub(super) fn related(
    first: &ArrayRef,
    second: &ArrayRef,
    of_maps: fn(&Moc, &Moc) -> bool,
) -> Result<ArrayRef> {
    let one = PlacedShape::of(first)?;
    let mut last: Option<(ArrayRef, Moc)> = None;
    let lists = second.as_list::<i32>();
    let holds = (0..lists.len()).map(|row| {
        if lists.is_null(row) {
            return 0;
        }
        // A map is often the same for all rows.
        let ends = lists.value(row);
        if last.as_ref().is_none_or(|(known, _)| known != &ends) {
            let moc = Moc::of_ranges(ranges(&ends));
            last = Some((ends, moc));
        }
        let Some((_, moc)) = &last else {
            return 0;
        };
        i32::from(match &one {
            PlacedShape::Points(points) => {
                PlacedShape::point(points, row).is_some_and(|p| moc.contains(p))
            }
            PlacedShape::Mocs(others) => others[row]
                .as_ref()
                .is_some_and(|other| of_maps(other, moc)),
        })
    });
    Ok(Arc::new(holds.collect::<Int32Array>()))
}

/// Square degrees.
pub(super) fn areas(column: &ArrayRef) -> ArrayRef {
    let areas = mocs(column).map(|moc| moc.map(|moc| moc.area_square_degrees()));
    Arc::new(areas.collect::<Float64Array>())
}

/// The map that an expression is, if it is constant.
pub(crate) fn constant(expr: &Expr) -> Option<Moc> {
    match expr {
        Expr::Literal(ScalarValue::List(list), _) if is_moc(list.data_type()) => {
            let column: ArrayRef = Arc::clone(list) as ArrayRef;
            mocs(&column).next()?
        }
        Expr::Alias(alias) => constant(&alias.expr),
        _ => None,
    }
}
