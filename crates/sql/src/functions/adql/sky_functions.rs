//! Functions of positions of the IVOA's *Catalogue of ADQL User Defined Functions*, as it defines them: HEALPix cells (nested),
//! positions at other epochs, other reference frames.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::{Result, exec_err};
use sky::frame::{Frame, turned};
use sky::healpix::{self, Depth};
use sky::proper_motion::{Motion, moved};
use sky::{LonLat, SkyError};

use super::constructors::{is_number, unfit};
use super::geometry_function::{Arguments, GeometryFunction, as_it_is};
use super::value::{Geometries, GeometryBuilder, Kind};

pub(super) static FUNCTIONS: [GeometryFunction; 4] = [
    GeometryFunction {
        name: "ivo_healpix_index",
        takes: healpix_index_takes,
        gives: |_| DataType::Int64,
        nullable: true,
        of: healpix_index,
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "ivo_healpix_center",
        takes: |types| match types {
            [order, index] if is_whole(order) && is_whole(index) => Ok(vec![DataType::Int64; 2]),
            _ => Err(unfit(
                "ivo_healpix_center",
                "two whole numbers: order, index",
                types,
            )),
        },
        gives: |_| Kind::Point.data_type(),
        nullable: true,
        of: healpix_center,
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "ivo_epoch_prop_pos",
        takes: |types| {
            if types.len() == 8 && types.iter().all(is_number) {
                return Ok(vec![DataType::Float64; 8]);
            }
            Err(format!(
                "ivo_epoch_prop_pos takes eight numbers: ra, dec (degrees), parallax (mas), pmra, pmdec (mas/yr), \
                 radial_velocity (km/s), ref_epoch, out_epoch (Julian years); {} arguments were given",
                types.len()
            ))
        },
        gives: |_| Kind::Point.data_type(),
        nullable: true,
        of: epoch_prop_pos,
        simplified: as_it_is,
    },
    GeometryFunction {
        name: "ivo_geom_transform",
        takes: |types| match types {
            [from, to, geometry]
                if is_text(from) && is_text(to) && Kind::of(geometry).is_some() =>
            {
                Ok(vec![DataType::Utf8, DataType::Utf8, geometry.clone()])
            }
            _ => Err(unfit(
                "ivo_geom_transform",
                "two names of frames and a geometry",
                types,
            )),
        },
        gives: |types| types.get(2).cloned().unwrap_or(DataType::Null),
        nullable: true,
        of: geom_transform,
        simplified: as_it_is,
    },
];

pub(super) fn is_whole(data_type: &DataType) -> bool {
    data_type.is_integer() || *data_type == DataType::Null
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8
    )
}

fn healpix_index_takes(types: &[DataType]) -> Result<Vec<DataType>, String> {
    match types {
        [order, point] if is_whole(order) && Kind::of(point) == Some(Kind::Point) => {
            Ok(vec![DataType::Int64, point.clone()])
        }
        [order, ra, dec] if is_whole(order) && is_number(ra) && is_number(dec) => {
            Ok(vec![DataType::Int64, DataType::Float64, DataType::Float64])
        }
        _ => Err(unfit(
            "ivo_healpix_index",
            "an order (a whole number) and a position: ra, dec (degrees) or a point",
            types,
        )),
    }
}

fn depth(order: i64) -> Result<Depth> {
    let depth = u32::try_from(order).map(Depth::new);
    match depth {
        Ok(Ok(depth)) => Ok(depth),
        _ => exec_err!(
            "HEALPix has no order {order}; give one of 0 to {}",
            healpix::MAX_DEPTH
        ),
    }
}

/// What is NULL where something goes wrong in a row, and an error where all is constant.
fn in_row<T>(arguments: &Arguments, result: Result<T, SkyError>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if arguments.constant => exec_err!("{error}"),
        Err(_) => Ok(None),
    }
}

fn healpix_index(arguments: &Arguments) -> Result<ArrayRef> {
    let orders = arguments.columns[0].as_primitive::<Int64Type>();
    let points = match arguments.columns.as_slice() {
        [_, points] => Some(Geometries::of(points)?),
        _ => None,
    };
    let position = |row: usize| -> Option<[f64; 2]> {
        match &points {
            Some(points) => points.numbers(row)?.try_into().ok(),
            None => {
                let [ra, dec] = [1, 2].map(|at| number(&arguments.columns[at], row));
                Some([ra?, dec?])
            }
        }
    };
    let mut cells: Vec<Option<i64>> = Vec::with_capacity(arguments.rows);
    for row in 0..arguments.rows {
        let (true, Some([ra, dec])) = (orders.is_valid(row), position(row)) else {
            cells.push(None);
            continue;
        };
        let depth = depth(orders.value(row))?;
        let place = in_row(arguments, LonLat::from_degrees(ra, dec))?;
        // There are fewer than 2^62 cells.
        cells.push(place.map(|place| healpix::nested(depth, place) as i64));
    }
    Ok(Arc::new(Int64Array::from(cells)))
}

fn number(column: &ArrayRef, row: usize) -> Option<f64> {
    let column: &Float64Array = column.as_primitive::<Float64Type>();
    column.is_valid(row).then(|| column.value(row))
}

fn healpix_center(arguments: &Arguments) -> Result<ArrayRef> {
    let [orders, cells] = [0, 1].map(|at| arguments.columns[at].as_primitive::<Int64Type>());
    let mut centres = GeometryBuilder::new(Kind::Point);
    for row in 0..arguments.rows {
        if orders.is_null(row) || cells.is_null(row) {
            centres.push(None);
            continue;
        }
        let (order, cell) = (orders.value(row), cells.value(row));
        let depth = depth(order)?;
        let centre = u64::try_from(cell)
            .ok()
            .and_then(|cell| healpix::centre(depth, cell));
        // An index that comes from a row has no centre, as a position that is none has no geometry.
        if centre.is_none() && arguments.constant {
            return exec_err!(
                "HEALPix has no cell {cell} of order {order}; there are {} from 0 on",
                depth.num_cells()
            );
        }
        centres.push_position(centre);
    }
    centres.finish()
}

/// Position and epochs have to be known; what of the motion is not known is 0.
fn epoch_prop_pos(arguments: &Arguments) -> Result<ArrayRef> {
    let mut places = GeometryBuilder::new(Kind::Point);
    for row in 0..arguments.rows {
        let given = |at: usize| number(&arguments.columns[at], row);
        let (Some(ra), Some(dec), Some(from), Some(to)) = (given(0), given(1), given(6), given(7))
        else {
            if arguments.constant {
                return exec_err!(
                    "ivo_epoch_prop_pos needs ra, dec, ref_epoch and out_epoch; one of them is NULL"
                );
            }
            places.push(None);
            continue;
        };
        let motion = Motion {
            parallax: given(2).unwrap_or(0.0),
            in_longitude: given(3).unwrap_or(0.0),
            in_latitude: given(4).unwrap_or(0.0),
            radial_velocity: given(5).unwrap_or(0.0),
        };
        let place = in_row(arguments, LonLat::from_degrees(ra, dec))?;
        places.push_position(place.map(|place| moved(place, &motion, to - from)));
    }
    places.finish()
}

fn geom_transform(arguments: &Arguments) -> Result<ArrayRef> {
    let geometries = Geometries::of(&arguments.columns[2])?;
    let names = [0, 1].map(|at| arguments.columns[at].as_string::<i32>());
    let mut result = GeometryBuilder::new(geometries.kind());
    for row in 0..arguments.rows {
        let Some(numbers) = geometries.numbers(row) else {
            result.push(None);
            continue;
        };
        let [from, to] = names.map(|names| frame(names.value(row)));
        let (from, to) = (from?, to?);
        let mut turned_numbers = numbers.to_vec();
        // A circle's radius is the rest of its only corner.
        let corners = turned_numbers.chunks_exact_mut(2);
        let mut known = true;
        for corner in corners {
            match in_row(arguments, LonLat::from_degrees(corner[0], corner[1]))? {
                Some(place) => {
                    let place = turned(place, from, to);
                    corner.copy_from_slice(&[place.ra().degrees(), place.dec().degrees()]);
                }
                None => known = false,
            }
        }
        result.push(known.then_some(turned_numbers.as_slice()));
    }
    result.finish()
}

fn frame(name: &str) -> Result<Frame> {
    match Frame::named(name) {
        Some(frame) => Ok(frame),
        None => {
            let known = Frame::ALL.map(Frame::name).join(", ");
            exec_err!("there is no reference frame {name} here; there are: {known}")
        }
    }
}
