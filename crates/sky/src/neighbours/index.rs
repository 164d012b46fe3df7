//! [`NeighbourIndex`]: the right side of a spatial join, in zones of declination and in each by right ascension.
//!
//! Zones: J. Gray, M. Nieto-Santisteban and A. Szalay, *The Zones Algorithm for Finding Points-Near-a-Point or
//! Cross-Matching Spatial Datasets*, MSR-TR-2006-52. Each zone is cut into bins of equal width in right ascension, about one
//! for each of its rows, so that a right ascension is found without a search. Right ascensions are counted from the middle
//! of the widest gap in the data, so that only data all around have a seam.

use std::ops::Range;

use super::chords::{Block, LANES};
use super::layout::Layout;
use super::positions::{Place, Positions, Sizes};
use crate::position::vector_of_degrees;
use crate::trig::sin_cos_degrees;
use crate::{Angle, SkyError};

/// The most rows of an index: numbers of places, with the padding of zones, are to fit into 32 bits.
pub(super) const MOST_ROWS: usize = 1 << 31;

/// Bins with more rows than this are kept sorted, and searched.
const MOST_UNSORTED: usize = 16;

/// What fills up a zone: a vector farther from the sphere than any chord is long.
const PADDING: f64 = 8.0;

/// The row number of padding, which is in no pair.
const NO_ROW: u32 = u32::MAX;

/// Positions arranged so that those near a given one are found quickly, whatever the radius.
///
/// Rows without a position are not in it. It takes 44 bytes a row, at most 10 more for bins and zones, and 8
/// more while it is built.
#[derive(Debug)]
pub struct NeighbourIndex {
    pub(super) layout: Layout,
    /// Sine and cosine of the declinations between zones (and at both ends): one more than there are zones.
    pub(super) edge_z: Vec<f64>,
    pub(super) edge_cos: Vec<f64>,
    /// The reciprocal of that cosine, or a large number at a pole.
    pub(super) edge_per_cos: Vec<f64>,
    pub(super) zones: Zones,
    /// The first place of each bin, zone by zone; each zone has one more, its end. Zones begin at multiples of [`LANES`].
    bins: Vec<u32>,
    /// Unit vectors by place.
    blocks: Vec<Block>,
    /// As given, degrees; by place, like the rows.
    ra: Vec<f64>,
    dec: Vec<f64>,
    rows: Vec<u32>,
    len: usize,
}

/// Less than the cosine of any declination but ±90 degrees, which is 0 and not to be divided by.
const LEAST_COSINE: f64 = 1e-30;

/// `1 / cosine`, and a large number at a pole.
#[inline(always)]
pub(super) fn reciprocal_of_cosine(cosine: f64) -> f64 {
    1.0 / cosine.max(LEAST_COSINE)
}

/// Adding 2⁵² to a number from 0 to 2³² rounds it to a whole one, which then stands in the sum's lowest bits. (A conversion
/// would be several instructions, none of them on several numbers at a time.)
const ROUNDER: f64 = 4_503_599_627_370_496.0;

/// Where the bins of each zone are.
#[derive(Debug, Default)]
pub(super) struct Zones {
    first_bin: Vec<u32>,
    /// The number of a zone's last bin, counted from its first.
    last: Vec<f64>,
    /// Bins in a degree of right ascension.
    bins_per_degree: Vec<f64>,
    /// The least right ascension of the layout.
    west: f64,
}

impl Zones {
    fn push(&mut self, first_bin: u32, bins: u32, width: f64) {
        self.first_bin.push(first_bin);
        self.last.push(f64::from(bins - 1));
        self.bins_per_degree.push(f64::from(bins) / width);
    }

    fn len(&self) -> usize {
        self.first_bin.len()
    }

    /// The entries of a zone in `bins`: one for each of its bins, and its end.
    fn bins_of(&self, zone: usize) -> Range<usize> {
        let first = self.first_bin[zone] as usize;
        first..first + self.last[zone] as usize + 2
    }

    /// The bin of a right ascension that is counted from the layout's origin; the nearest one for one beyond the zone's ends.
    /// It never falls as the right ascension grows.
    #[inline(always)]
    pub fn bin(&self, zone: usize, eastward: f64) -> u32 {
        let bin = (eastward - self.west) * self.bins_per_degree[zone];
        let bin = bin.max(0.0).min(self.last[zone]);
        self.first_bin[zone] + (bin + ROUNDER).to_bits() as u32
    }
}

impl NeighbourIndex {
    /// The index of the rows that have a position.
    ///
    /// It answers for every radius, and best for those of about `radius` (with a radius for each row, the largest of them).
    ///
    /// # Errors
    /// [`SkyError::TooManyRows`] for more than 2³¹ rows.
    pub fn build(positions: Positions<'_>, radius: Angle) -> Result<Self, SkyError> {
        if positions.len() > MOST_ROWS {
            return Err(SkyError::TooManyRows {
                given: positions.len(),
                most: MOST_ROWS,
            });
        }
        let layout = Layout::of(&positions, radius);
        let mut index = Self::empty(layout);
        let cells = index.cut_into_bins(&positions);
        let order = index.place_rows(&cells);
        index.sort_full_bins(order, &positions);
        Ok(index)
    }

    fn empty(layout: Layout) -> Self {
        let edges = (0..=layout.zones()).map(|edge| sin_cos_degrees(layout.edge(edge)));
        let (edge_z, edge_cos): (Vec<f64>, Vec<f64>) = edges.unzip();
        let west = layout.west();
        Self {
            len: layout.rows(),
            layout,
            edge_z,
            edge_per_cos: edge_cos.iter().copied().map(reciprocal_of_cosine).collect(),
            edge_cos,
            zones: Zones {
                west,
                ..Zones::default()
            },
            bins: Vec::new(),
            blocks: Vec::new(),
            ra: Vec::new(),
            dec: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// How many rows have a position.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no row has a position.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What can be divided for [`Self::count_own_pairs`]: somewhat more numbers than there are rows.
    pub fn parts(&self) -> Range<usize> {
        0..self.rows.len()
    }

    /// The position of a place, or `None` where it is padding.
    #[inline]
    pub(super) fn position(&self, place: usize) -> Option<Place> {
        let (ra, dec) = (self.ra[place], self.dec[place]);
        (!ra.is_nan()).then(|| Place::of(ra, dec))
    }

    /// The unit vector of a place.
    #[inline]
    pub(super) fn vector(&self, place: usize) -> [f64; 3] {
        let [x, y, z] = &self.blocks[place / LANES];
        let lane = place % LANES;
        [x[lane], y[lane], z[lane]]
    }

    /// The left rows in an order in which neighbours are requested one after the other, so that their partners are still in the
    /// processor's caches; those without a position come last.
    ///
    /// For many left rows in no order this is worth its time, some 20 nanoseconds a row.
    pub fn order(&self, left: &Positions<'_>) -> Vec<u32> {
        let nowhere = self.bins.len() as u32;
        let cell = |row: usize| {
            let place = left.get(row)?;
            let zone = self.layout.zone(place.north);
            Some(self.zones.bin(zone, self.layout.eastward(place.east)))
        };
        let cells: Vec<u32> = (0..left.len())
            .map(|row| cell(row).unwrap_or(nowhere))
            .collect();
        let mut next = vec![0_u32; self.bins.len() + 1];
        for cell in &cells {
            next[*cell as usize] += 1;
        }
        let mut place = 0;
        for cell in &mut next {
            place += std::mem::replace(cell, place);
        }
        let mut order = vec![0; cells.len()];
        for (row, cell) in cells.iter().enumerate() {
            let next = &mut next[*cell as usize];
            order[*next as usize] = row as u32;
            *next += 1;
        }
        order
    }

    pub(super) const fn sizes(&self) -> Sizes {
        self.layout.sizes()
    }

    /// Cuts the zones into bins, counts the rows of each into `bins`, and gives the cell (a bin's place in `bins`) of each row
    /// that has a position.
    fn cut_into_bins(&mut self, positions: &Positions<'_>) -> Vec<(u32, u32)> {
        let mut counts = vec![0_u32; self.layout.zones()];
        let mut cells = Vec::with_capacity(self.len);
        for row in 0..positions.len() {
            if let Some(place) = positions.get(row) {
                let zone = self.layout.zone(place.north);
                counts[zone] += 1;
                cells.push((zone as u32, row as u32));
            }
        }
        let mut first_bin = 0;
        for count in counts {
            let bins = count.max(1);
            self.zones.push(first_bin, bins, self.layout.width());
            first_bin += bins + 1;
        }
        self.bins = vec![0; first_bin as usize];
        for (cell, row) in &mut cells {
            if let Some(place) = positions.get(*row as usize) {
                let eastward = self.layout.eastward(place.east);
                *cell = self.zones.bin(*cell as usize, eastward);
                self.bins[*cell as usize] += 1;
            }
        }
        cells
    }

    /// Turns the counts of `bins` into places, and gives the row of each place.
    fn place_rows(&mut self, cells: &[(u32, u32)]) -> Vec<u32> {
        let mut place = 0;
        for zone in 0..self.zones.len() {
            for bin in &mut self.bins[self.zones.bins_of(zone)] {
                // From here to the end of the loop below, a bin has the place of its next row.
                place += std::mem::replace(bin, place);
            }
            place = place.next_multiple_of(LANES as u32);
        }
        let mut order = vec![NO_ROW; place as usize];
        for (cell, row) in cells {
            let next = &mut self.bins[*cell as usize];
            order[*next as usize] = *row;
            *next += 1;
        }
        // Now each bin has its end, which is the beginning of the next; a zone's last entry was no bin.
        for zone in 0..self.zones.len() {
            let bins = self.zones.bins_of(zone);
            self.bins[bins.clone()].rotate_right(1);
            self.bins[bins.start] = match zone {
                0 => 0,
                _ => self.bins[bins.start - 1].next_multiple_of(LANES as u32),
            };
        }
        order
    }

    /// Sorts the rows of bins that are to be searched, and fills in the columns.
    fn sort_full_bins(&mut self, mut order: Vec<u32>, positions: &Positions<'_>) {
        let eastward = |row: &u32| {
            positions
                .get(*row as usize)
                .map_or(0.0, |place| self.layout.eastward(place.east))
        };
        for ends in self.bins.windows(2) {
            let bin = ends[0] as usize..ends[1] as usize;
            if bin.len() > MOST_UNSORTED {
                // Where a zone ends, the next one's padding may be taken for a bin; it is too short for this.
                order[bin].sort_by(|a, b| eastward(a).total_cmp(&eastward(b)));
            }
        }
        self.blocks = vec![[[PADDING; LANES]; 3]; order.len() / LANES];
        self.ra = vec![f64::NAN; order.len()];
        self.dec = vec![f64::NAN; order.len()];
        for (place, row) in order.iter().enumerate() {
            // Padding has no row, and so no position.
            if let Some(position) = positions.get(*row as usize) {
                self.put(place, &position);
            }
        }
        self.rows = order;
    }

    /// Fills in the columns of a place.
    #[inline]
    fn put(&mut self, place: usize, position: &Place) {
        let vector = vector_of_degrees(position.east, position.north).components();
        for (lanes, component) in self.blocks[place / LANES].iter_mut().zip(vector) {
            lanes[place % LANES] = component;
        }
        self.ra[place] = position.ra;
        self.dec[place] = position.dec;
    }

    /// A place before which, in its zone, all right ascensions are less than the one whose bin this is: the first such or an
    /// earlier one.
    #[inline]
    pub(super) fn place_before(&self, bin: u32, eastward: f64) -> usize {
        let (start, end) = self.places_of_bin(bin);
        if end - start <= MOST_UNSORTED {
            return start;
        }
        self.search(start..end, |other| other < eastward)
    }

    /// A place from which on, in its zone, all right ascensions are larger than the one whose bin this is: the first such or a
    /// later one.
    #[inline]
    pub(super) fn place_after(&self, bin: u32, eastward: f64) -> usize {
        let (start, end) = self.places_of_bin(bin);
        if end - start <= MOST_UNSORTED {
            return end;
        }
        self.search(start..end, |other| other <= eastward)
    }

    #[inline(always)]
    fn places_of_bin(&self, bin: u32) -> (usize, usize) {
        let ends = &self.bins[bin as usize..bin as usize + 2];
        (ends[0] as usize, ends[1] as usize)
    }

    /// The first place of a sorted bin for whose right ascension the condition does not hold.
    #[cold]
    fn search(&self, bin: Range<usize>, is_before: impl Fn(f64) -> bool) -> usize {
        let (mut start, mut end) = (bin.start, bin.end);
        while start < end {
            let middle = usize::midpoint(start, end);
            let place = Place::of(self.ra[middle], self.dec[middle]);
            if is_before(self.layout.eastward(place.east)) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// All places of a zone, without its padding.
    #[inline]
    pub(super) fn places_of(&self, zone: usize) -> Range<usize> {
        let bins = self.zones.bins_of(zone);
        self.bins[bins.start] as usize..self.bins[bins.end - 1] as usize
    }

    #[inline]
    pub(super) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The vectors of all places in the blocks that these are in, padding included.
    #[inline]
    pub(super) fn blocks_of(&self, places: &Range<usize>) -> &[Block] {
        &self.blocks[places.start / LANES..places.end.div_ceil(LANES)]
    }

    #[inline]
    pub(super) fn rows(&self, places: Range<usize>) -> &[u32] {
        &self.rows[places]
    }

    /// Right ascensions and declinations of places, as given; NaN for padding.
    #[inline]
    pub(super) fn columns(&self, places: Range<usize>) -> (&[f64], &[f64]) {
        (&self.ra[places.clone()], &self.dec[places])
    }

    /// Right ascension and declination of a place, as given.
    #[inline]
    pub(super) fn degrees(&self, place: usize) -> (f64, f64) {
        (self.ra[place], self.dec[place])
    }
}
