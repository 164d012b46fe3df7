//! [`Moc`]: a part of the sky as a set of HEALPix cells.
//!
//! P. Fernique and others, *MOC: Multi-Order Coverage map* 2.0 (IVOA Recommendation 2022). Cells are in the nested scheme and positions in the ICRS.

use std::fmt;
use std::ops::Range;

use crate::healpix::{self, Depth, MAX_DEPTH};
use crate::ranges::merged;
use crate::{Angle, LonLat, Shape, SkyError};

/// The longest edge of a shape, in widths of the cells that are looked at along it: each costs some work.
const LONGEST_EDGE: f64 = 4_000.0;

/// Cells along the edge of a shape at most. (Of the longest edge there are some two for each width.)
const MOST_EDGE_CELLS: usize = 16_000;

/// By how many depths deeper than its own the edge of a shape is looked at, so that few cells are taken that only are near it.
const DEEPER: u8 = 2;

/// A set of cells: sorted ranges of numbers at [`MAX_DEPTH`] that do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Moc {
    ranges: Vec<Range<u64>>,
}

impl Moc {
    /// The cells of ranges of numbers at [`MAX_DEPTH`].
    pub fn of_ranges(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let some = ranges.into_iter().filter(|range| range.start < range.end);
        Self {
            ranges: merged(some.collect()),
        }
    }

    /// Cells of a depth that cover a shape: each of its points is in one. Some that are only near its edge, by less than half of
    /// their size, may be among them.
    ///
    /// # Errors
    /// [`SkyError::TooManyCells`] where its edge has more of them than there is time for.
    pub fn covering(depth: Depth, shape: &Shape) -> Result<Self, SkyError> {
        if let Shape::Point(p) = shape {
            let cell = healpix::nested(depth, *p);
            return Ok(Self::of_ranges([numbers(depth.get(), cell)]));
        }
        let too_many = || SkyError::TooManyCells { depth: depth.get() };
        let deepest = (depth.get() + DEEPER).min(MAX_DEPTH);
        // A cell's area is a twelfth of the sky's, divided by four as often as it is deep.
        let width = (std::f64::consts::PI / 3.0).sqrt().to_degrees() / f64::from(1_u32 << deepest);
        if shape.edge_length().degrees() > LONGEST_EDGE * width {
            return Err(too_many());
        }
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut cells: Vec<u64> = (0..12).collect();
        for at in 0..=deepest {
            let mut edge = Vec::new();
            for cell in cells {
                let (centre, reach) = healpix::circle_around(at, cell);
                let around = Shape::Circle(centre, reach);
                if !shape.intersects(&around) {
                    continue;
                }
                if at == deepest || shape.contains(&around) {
                    found.push(numbers(at, cell));
                } else {
                    edge.push(cell);
                }
            }
            if edge.len() > MOST_EDGE_CELLS {
                return Err(too_many());
            }
            cells = edge
                .into_iter()
                .flat_map(|cell| 4 * cell..4 * cell + 4)
                .collect();
        }
        Ok(Self::of_ranges(found).degraded(depth.get()))
    }

    /// The cells of a depth that have cells of these.
    fn degraded(self, depth: u8) -> Self {
        let shift = 2 * (MAX_DEPTH - depth);
        let whole = |range: &Range<u64>| {
            range.start >> shift << shift..(((range.end - 1) >> shift) + 1) << shift
        };
        Self::of_ranges(self.ranges.iter().map(whole))
    }

    /// The numbers of cells at [`MAX_DEPTH`].
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether a point is in one of the cells.
    pub fn contains(&self, p: LonLat) -> bool {
        let Ok(depth) = Depth::new(u32::from(MAX_DEPTH)) else {
            return false;
        };
        let cell = healpix::nested(depth, p);
        let behind = self.ranges.partition_point(|range| range.end <= cell);
        self.ranges
            .get(behind)
            .is_some_and(|range| range.contains(&cell))
    }

    /// Whether all cells of another set are among these.
    pub fn contains_all(&self, other: &Self) -> bool {
        other.ranges.iter().all(|range| {
            let at = self.ranges.partition_point(|own| own.end < range.end);
            (self.ranges.get(at))
                .is_some_and(|own| own.start <= range.start && range.end <= own.end)
        })
    }

    /// Whether the sets have a cell in common.
    pub fn intersects(&self, other: &Self) -> bool {
        other.ranges.iter().any(|range| {
            let at = self.ranges.partition_point(|own| own.end <= range.start);
            self.ranges.get(at).is_some_and(|own| own.start < range.end)
        })
    }

    /// Its area in square degrees.
    pub fn area_square_degrees(&self) -> f64 {
        let cells: u64 = self
            .ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        let all = 12.0 * 4_f64.powi(i32::from(MAX_DEPTH));
        let sky = 4.0 * std::f64::consts::PI;
        (cells as f64 / all * sky).to_degrees().to_degrees()
    }

    /// At most so many circles (12 at least), of larger cells where there are more, that hold all its points.
    pub fn circles(&self, most: usize) -> Vec<(LonLat, Angle)> {
        let cells_of = |depth: u8| {
            let degraded = self.clone().degraded(depth);
            let shift = 2 * (MAX_DEPTH - depth);
            let count: u64 = (degraded.ranges.iter())
                .map(|range| (range.end - range.start) >> shift)
                .sum();
            (count <= most as u64).then(|| -> Vec<u64> {
                let cells = degraded.ranges.iter();
                cells
                    .flat_map(|range| range.start >> shift..range.end >> shift)
                    .collect()
            })
        };
        // Of deeper cells there are never fewer.
        let mut best = (0, cells_of(0).unwrap_or_default());
        for depth in 1..=MAX_DEPTH {
            match cells_of(depth) {
                Some(cells) => best = (depth, cells),
                None => break,
            }
        }
        let (depth, cells) = best;
        let circle = |cell| healpix::circle_around(depth, cell);
        cells.into_iter().map(circle).collect()
    }
}

/// The numbers at [`MAX_DEPTH`] of what is in a cell.
fn numbers(depth: u8, cell: u64) -> Range<u64> {
    let shift = 2 * (MAX_DEPTH - depth);
    cell << shift..(cell + 1) << shift
}

/// In ASCII, as section 4.3.2 has it: `3/1,5-8 4/77`.
impl fmt::Display for Moc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut of_depth: Vec<Vec<u64>> = vec![Vec::new(); usize::from(MAX_DEPTH) + 1];
        for range in &self.ranges {
            let mut at = range.start;
            while at < range.end {
                // The largest cell that begins here and ends within.
                let aligned = (at.trailing_zeros() / 2).min(u32::from(MAX_DEPTH));
                let room = (range.end - at).ilog2() / 2;
                let larger = aligned.min(room);
                let depth = usize::from(MAX_DEPTH) - larger as usize;
                of_depth[depth].push(at >> (2 * larger));
                at += 1 << (2 * larger);
            }
        }
        let mut space = "";
        for (depth, cells) in of_depth.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
            write!(f, "{space}{depth}/")?;
            space = " ";
            let mut comma = "";
            for run in cells.chunk_by(|a, b| a + 1 == *b) {
                match run {
                    [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                    [only] => write!(f, "{comma}{only}")?,
                    [] => {}
                }
                comma = ",";
            }
        }
        Ok(())
    }
}

/// From ASCII; the text of no cells is empty, or has the number of an order alone.
impl std::str::FromStr for Moc {
    type Err = SkyError;

    fn from_str(text: &str) -> Result<Self, SkyError> {
        let wrong = |word: &str| SkyError::Moc(word.to_owned());
        let mut depth: Option<Depth> = None;
        let mut ranges = Vec::new();
        let words = text.split(|c: char| c.is_whitespace() || c == ',');
        for word in words.filter(|word| !word.is_empty()) {
            let cells = match word.split_once('/') {
                Some((order, cells)) => {
                    let order = order.parse().map_err(|_| wrong(word))?;
                    depth = Some(Depth::new(order)?);
                    cells
                }
                None => word,
            };
            if cells.is_empty() {
                continue;
            }
            let depth = depth.ok_or_else(|| wrong(word))?;
            let (first, last) = cells.split_once('-').unwrap_or((cells, cells));
            let number = |digits: &str| digits.parse::<u64>().map_err(|_| wrong(word));
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= depth.num_cells() {
                return Err(wrong(word));
            }
            ranges.push(numbers(depth.get(), first).start..numbers(depth.get(), last).end);
        }
        Ok(Self::of_ranges(ranges))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moc(text: &str) -> Moc {
        text.parse().unwrap()
    }

    #[test]
    fn texts_are_cells_of_several_orders() {
        for (text, again) in [
            ("1/1,3-4 2/4 25 12-14,21 3/62", "1/1,3-4 2/21,25"),
            ("0/0-11", "0/0-11"),
            ("1/0-47", "0/0-11"),
            ("1/0,1,2,3", "0/0"),
            ("29/3458764513820540927", "29/3458764513820540927"),
            ("", ""),
            ("5/", ""),
            ("3/10\n\t11 4/", "3/10-11"),
        ] {
            let shown = moc(text).to_string();
            assert!(shown.starts_with(again.trim_end()), "{text}: {shown}");
            assert_eq!(moc(&shown), moc(text), "{text}");
        }
        for text in [
            "x", "1", "1/x", "30/0", "1/48", "1/5-3", "1/-1", "1/2/3", "-1/0", "1/1.5",
        ] {
            assert!(text.parse::<Moc>().is_err(), "{text}");
        }
    }

    #[test]
    fn areas_are_of_equal_cells() {
        let sky = 41_252.961_249_419_27;
        assert!((moc("0/0-11").area_square_degrees() / sky - 1.0).abs() < 1e-14);
        assert!((moc("1/7").area_square_degrees() / sky * 48.0 - 1.0).abs() < 1e-14);
        assert!(moc("").area_square_degrees() < 1e-300);
    }

    fn shapes() -> impl Strategy<Value = Shape> {
        let circle = (0.0..360.0, -90.0..90.0, 0.0..180.0);
        let circle = circle.prop_map(|(ra, dec, r): (f64, f64, f64)| {
            Shape::circle_degrees(ra, dec, r * r / 180.0).unwrap()
        });
        let triangle = prop::array::uniform6(-40.0_f64..40.0);
        let triangle = triangle.prop_filter_map("no triangle", |n| Shape::polygon_degrees(&n).ok());
        prop_oneof![circle, triangle]
    }

    proptest! {
        /// Of cells one by one.
        #[test]
        fn sets_are_sets(
            a in prop::collection::vec(0_u64..192, 0..60),
            b in prop::collection::vec(0_u64..192, 0..60),
        ) {
            let of = |cells: &[u64]| Moc::of_ranges(cells.iter().map(|cell| numbers(2, *cell)));
            let (one, two) = (of(&a), of(&b));
            prop_assert_eq!(one.contains_all(&two), b.iter().all(|cell| a.contains(cell)));
            prop_assert_eq!(one.intersects(&two), b.iter().any(|cell| a.contains(cell)));
            prop_assert_eq!(moc(&one.to_string()), one.clone());
            let depth = Depth::new(2).unwrap();
            for cell in 0..192 {
                let centre = healpix::centre(depth, cell).unwrap();
                prop_assert_eq!(one.contains(centre), a.contains(&cell));
                let circles = one.circles(12);
                prop_assert!(circles.len() <= 12);
                if one.contains(centre) {
                    let near = |(middle, reach): &(LonLat, Angle)| crate::separation(*middle, centre) <= *reach;
                    prop_assert!(circles.iter().any(near));
                }
            }
        }

        /// Points of a shape are in its cover, and the cover ends near its edge.
        #[test]
        fn shapes_are_covered(shape in shapes(), order in 0_u32..6) {
            let depth = Depth::new(order).unwrap();
            let cover = Moc::covering(depth, &shape).unwrap();
            // A cell, and what is beside the edge.
            let size = Angle::from_degrees(130.0 / f64::from(1 << order));
            for n in 0..600 {
                let z = 1.0 - (f64::from(n) + 0.5) / 300.0;
                let place = LonLat::from_degrees(f64::from(n) * 137.507_764, z.asin().to_degrees()).unwrap();
                let point = Shape::Point(place);
                if shape.contains(&point) {
                    prop_assert!(cover.contains(place));
                }
                if cover.contains(place) {
                    prop_assert!(shape.intersects(&Shape::Circle(place, size)));
                }
            }
        }
    }

    #[test]
    fn covers_with_too_many_cells_are_rejected() {
        let circle = Shape::circle_degrees(10.0, 20.0, 30.0).unwrap();
        let deep = Depth::new(20).unwrap();
        assert!(matches!(
            Moc::covering(deep, &circle),
            Err(SkyError::TooManyCells { .. })
        ));
        let small = Shape::circle_degrees(10.0, 20.0, 1e-6).unwrap();
        assert!(Moc::covering(Depth::new(29).unwrap(), &small).is_ok());
        let point = Shape::circle_degrees(10.0, 20.0, 0.0).unwrap();
        assert!(Moc::covering(Depth::new(29).unwrap(), &point).is_ok());
    }
}
