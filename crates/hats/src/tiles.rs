//! The cells whose rows become files: as large as they can be with at most so many rows.

use arrow::array::{Array, Int64Array};
use sky::healpix::MAX_DEPTH;

/// The deepest order of a file's cell: cells of 3.4 arcminutes.
pub const MAX_ORDER: u8 = 10;
/// The order of the map of the sky.
pub const MAP_ORDER: u8 = 6;

/// A cell whose rows are a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tile {
    /// Its order.
    pub order: u8,
    /// Its number, nested.
    pub cell: u64,
    /// How many rows it has.
    pub rows: u64,
}

impl Tile {
    /// The path of its file below `dataset`.
    pub fn path(&self) -> String {
        let dir = self.cell / 10_000 * 10_000;
        format!("Norder={}/Dir={dir}/Npix={}.parquet", self.order, self.cell)
    }
}

/// Rows by the cells of the deepest order.
#[derive(Debug)]
pub(crate) struct Counts {
    order: u8,
    cells: Vec<u64>,
    unplaced: u64,
}

impl Counts {
    /// No rows, by cells of an order.
    pub fn new(order: u8) -> Self {
        let cells = 12_usize << (2 * order);
        Self {
            order,
            cells: vec![0; cells],
            unplaced: 0,
        }
    }

    /// Counts rows by the numbers of their cells at the deepest depth of HEALPix; NULL is a row without a position.
    pub fn add(&mut self, numbers: &Int64Array) {
        let shift = 2 * (MAX_DEPTH - self.order);
        self.unplaced += numbers.null_count() as u64;
        for number in numbers.iter().flatten() {
            let cell = usize::try_from(number >> shift).ok();
            if let Some(count) = cell.and_then(|cell| self.cells.get_mut(cell)) {
                *count += 1;
            }
        }
    }

    /// The tiles of which none has more rows than said, unless it is of the deepest order.
    pub fn into_tiling(self, most_rows: u64) -> Tiling {
        let mut tiles = Vec::new();
        for cell in 0..12 {
            self.divide(0, cell, most_rows, &mut tiles);
        }
        let map_order = self.order.min(MAP_ORDER);
        let width = 1_usize << (2 * (self.order - map_order));
        let map = self.cells.chunks(width);
        let map = map.map(|cells| cells.iter().sum::<u64>() as i64).collect();
        Tiling {
            tiles,
            unplaced: self.unplaced,
            map_order,
            map,
        }
    }

    fn divide(&self, order: u8, cell: u64, most_rows: u64, tiles: &mut Vec<Tile>) {
        let shift = 2 * (self.order - order);
        let within = (cell as usize) << shift..(cell as usize + 1) << shift;
        let rows = self.cells[within].iter().sum::<u64>();
        if rows == 0 {
            return;
        }
        if rows <= most_rows || order == self.order {
            tiles.push(Tile { order, cell, rows });
            return;
        }
        for child in 4 * cell..4 * cell + 4 {
            self.divide(order + 1, child, most_rows, tiles);
        }
    }
}

/// How a table is cut into tiles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tiling {
    /// The tiles, in the order of the sky.
    pub tiles: Vec<Tile>,
    /// Rows without a position, which are in none.
    pub unplaced: u64,
    /// The order of the map.
    pub map_order: u8,
    /// How many rows there are in each cell of that order.
    pub map: Vec<i64>,
}

impl Tiling {
    /// Rows of all tiles.
    pub fn rows(&self) -> u64 {
        self.tiles.iter().map(|tile| tile.rows).sum()
    }

    /// The share of the sky that the cells of the map with rows are.
    pub fn sky_fraction(&self) -> f64 {
        let with_rows = self.map.iter().filter(|rows| **rows > 0).count();
        with_rows as f64 / self.map.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiling(numbers: &[Option<i64>], order: u8, most_rows: u64) -> Tiling {
        let mut counts = Counts::new(order);
        counts.add(&Int64Array::from(numbers.to_vec()));
        counts.into_tiling(most_rows)
    }

    /// The number, at the deepest depth, of a point in a cell.
    fn within(order: u8, cell: i64) -> Option<i64> {
        Some((cell << (2 * (MAX_DEPTH - order))) + 1)
    }

    #[test]
    fn cells_are_divided_until_they_have_few_rows() {
        let numbers = [
            within(2, 0),
            within(2, 1),
            within(2, 1),
            within(2, 190),
            None,
        ];
        let tile = |order, cell, rows| Tile { order, cell, rows };
        let found = tiling(&numbers, 3, 2);
        assert_eq!(found.tiles, [tile(2, 0, 1), tile(2, 1, 2), tile(0, 11, 1)]);
        assert_eq!((found.unplaced, found.rows()), (1, 4));
        assert_eq!((found.map_order, found.map.len()), (3, 768));
        assert_eq!(found.map.iter().sum::<i64>(), 4);
        // Rows that share a cell of the deepest order cannot be parted.
        assert_eq!(tiling(&numbers, 2, 1).tiles[1], tile(2, 1, 2));
        assert_eq!(
            tiling(&numbers, 0, 1).tiles,
            [tile(0, 0, 3), tile(0, 11, 1)]
        );
        assert_eq!(tiling(&[None], 4, 1).tiles, []);
    }

    #[test]
    fn files_are_in_directories_of_ten_thousand_cells() {
        let path = |order, cell| {
            Tile {
                order,
                cell,
                rows: 1,
            }
            .path()
        };
        assert_eq!(path(1, 47), "Norder=1/Dir=0/Npix=47.parquet");
        assert_eq!(path(6, 12_345), "Norder=6/Dir=10000/Npix=12345.parquet");
    }
}
