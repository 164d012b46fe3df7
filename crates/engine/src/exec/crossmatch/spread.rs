//! Rows from anywhere on the sky, taken by cells, so that what is read around those of a cell is a small part of the sky.

use std::collections::BTreeMap;

use arrow::array::UInt32Array;
use sky::Angle;

use crate::exec::neighbour_join::separation_condition::RowPositions;

/// The least height and width of a cell, degrees: some usual chunks, so that few are read for several cells.
const CELL_DEGREES: f64 = 10.0;
/// A cell is so many times as large as the radius at least, so that most of what is read around it lies in it.
const RADII_OF_A_CELL: f64 = 2.0;

/// The rows of each cell, by their numbers, which keep their order; those without a position are a cell of their own.
pub(super) fn cells(places: &RowPositions, radius: Angle) -> impl Iterator<Item = UInt32Array> {
    let size = CELL_DEGREES.max(radius.degrees() * RADII_OF_A_CELL);
    // A number that is no position goes to whatever cell: NaN to the first one, and large ones to the last.
    let number = |degrees: f64| (degrees / size).floor() as i32;
    let mut cells: BTreeMap<Option<(i32, i32)>, Vec<u32>> = BTreeMap::new();
    for (row, place) in places.all().enumerate() {
        let cell = place.map(|(ra, dec)| (number(dec), number(ra)));
        cells.entry(cell).or_default().push(row as u32);
    }
    cells.into_values().map(UInt32Array::from)
}
