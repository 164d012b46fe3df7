//! A cover of the sky around some positions, in which their partners can be.

use std::collections::HashMap;

use sky::{Angle, ChunkId, Chunker, LonLat, LonLatBox, Region};

use crate::coverage::SubChunkSet;

/// Positions in cells of this many degrees, or of the radius if that is larger, share a box. It is the size of small sub-chunks, so that
/// few rows are read in vain, and large enough that a piece of a chunk has only some dozens of boxes.
const CELL_DEGREES: f64 = 0.25;

/// Everything within a radius of some positions, covered by boxes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SearchCover {
    /// `None`: the whole sky.
    boxes: Option<Vec<LonLatBox>>,
}

impl SearchCover {
    /// The cover of positions (right ascension and declination in degrees, of any size): everything within `radius`.
    pub fn of(positions: impl Iterator<Item = (f64, f64)>, radius: Angle) -> Self {
        let cell = CELL_DEGREES.max(radius.degrees());
        let mut cells: HashMap<Cell, Extent> = HashMap::new();
        // Rows come sub-chunk by sub-chunk: the next one is usually in the same cell.
        let mut current: Option<(Cell, Extent)> = None;
        for (ra, dec) in positions {
            if !ra.is_finite() || !dec.is_finite() {
                // An invalid position has no partners.
                continue;
            }
            let Ok(position) = LonLat::from_degrees(ra, dec) else {
                // Beyond a pole the separation means a direction for which there is no box.
                return Self { boxes: None };
            };
            let number = |degrees: f64| (degrees / cell).floor() as i32;
            let (ra, dec) = (position.ra().degrees(), position.dec().degrees());
            let key = (number(ra), number(dec));
            let here = Extent::point(ra, dec);
            match &mut current {
                Some((held, extent)) if *held == key => *extent = extent.and(here),
                _ => put(&mut cells, current.replace((key, here))),
            }
        }
        put(&mut cells, current);
        let boxes = cells.into_values().map(|extent| {
            let held = extent.to_box()?;
            Some(held.dilated(radius))
        });
        Self {
            boxes: boxes.collect(),
        }
    }

    /// Whether a box can intersect the cover.
    pub fn may_hold(&self, held: &LonLatBox) -> bool {
        match &self.boxes {
            Some(boxes) => boxes.iter().any(|near| near.intersects(held)),
            None => true,
        }
    }

    /// The sub-chunks that intersect the cover; `None`: all.
    pub fn sub_chunks(&self, chunker: &Chunker) -> Option<HashMap<ChunkId, SubChunkSet>> {
        let mut found: HashMap<ChunkId, SubChunkSet> = HashMap::new();
        for near in self.boxes.as_ref()? {
            for (chunk, set) in chunker.sub_chunks_intersecting(&Region::Box(*near)) {
                let set = SubChunkSet::from(set);
                found
                    .entry(chunk)
                    .and_modify(|held| *held = held.union(&set))
                    .or_insert(set);
            }
        }
        Some(found)
    }
}

/// The indexes of a cell, by right ascension and declination.
type Cell = (i32, i32);

fn put(cells: &mut HashMap<Cell, Extent>, extent: Option<(Cell, Extent)>) {
    if let Some((cell, extent)) = extent {
        cells
            .entry(cell)
            .and_modify(|held| *held = held.and(extent))
            .or_insert(extent);
    }
}

/// The bounds of some positions in a cell, degrees. No cell crosses right ascension 0.
#[derive(Debug, Clone, Copy)]
struct Extent {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Extent {
    const fn point(ra: f64, dec: f64) -> Self {
        Self {
            west: ra,
            east: ra,
            south: dec,
            north: dec,
        }
    }

    #[inline]
    fn and(self, other: Self) -> Self {
        Self {
            west: self.west.min(other.west),
            east: self.east.max(other.east),
            south: self.south.min(other.south),
            north: self.north.max(other.north),
        }
    }

    fn to_box(self) -> Option<LonLatBox> {
        LonLatBox::from_degrees(self.west, self.south, self.east, self.north).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn anywhere() -> impl Strategy<Value = (f64, f64)> {
        let dec = prop_oneof![4 => -90.0..=90.0f64, 1 => 89.0..=90.0f64, 1 => -90.0..=-89.5f64];
        let ra = prop_oneof![4 => 0.0..360.0f64, 1 => 359.9..360.0f64, 1 => 0.0..0.1f64];
        (ra, dec)
    }

    proptest! {
        #[test]
        fn every_partner_is_in_a_sub_chunk_that_is_read(
            places in prop::collection::vec(anywhere(), 1..20),
            which in any::<prop::sample::Index>(),
            radius in prop_oneof![Just(0.0), 0.0..0.01f64, 0.0..3.0f64, 0.0..180.0f64],
            turn in 0.0..360.0f64,
            share in 0.0..=1.0f64,
        ) {
            let search_cover = SearchCover::of(places.iter().copied(), Angle::from_degrees(radius));
            let (ra, dec) = *which.get(&places);
            // A position at most the radius away.
            let (ra, dec) = step(ra, dec, turn, radius * share);
            let partner = LonLat::from_degrees(ra, dec).unwrap();
            let chunker = Chunker::new(20, 5).unwrap();
            let place = chunker.locate(partner);
            let read = search_cover.sub_chunks(&chunker).unwrap();
            prop_assert!(read.get(&place.chunk).is_some_and(|set| set.contains(place.sub_chunk)));
            prop_assert!(search_cover.may_hold(&LonLatBox::point(partner)));
        }
    }

    /// A step of so many degrees in a direction (from north through east) along a great circle. By vectors: an arc sine of the
    /// declination would be wrong by a hundredth of a milliarcsecond near a pole.
    fn step(ra: f64, dec: f64, turn: f64, by: f64) -> (f64, f64) {
        let (sin_ra, cos_ra) = ra.to_radians().sin_cos();
        let (sin_dec, cos_dec) = dec.to_radians().sin_cos();
        let (sin_turn, cos_turn) = turn.to_radians().sin_cos();
        let (sin_by, cos_by) = by.to_radians().sin_cos();
        let here = [cos_dec * cos_ra, cos_dec * sin_ra, sin_dec];
        let north = [-sin_dec * cos_ra, -sin_dec * sin_ra, cos_dec];
        let east = [-sin_ra, cos_ra, 0.0];
        let [x, y, z] = std::array::from_fn(|i| {
            here[i] * cos_by + (north[i] * cos_turn + east[i] * sin_turn) * sin_by
        });
        let ra = y.atan2(x).to_degrees().rem_euclid(360.0);
        (ra, z.atan2(x.hypot(y)).to_degrees().clamp(-90.0, 90.0))
    }

    #[test]
    fn positions_that_are_none_are_near_nothing_and_such_beyond_a_pole_near_anything() {
        let chunker = Chunker::new(20, 5).unwrap();
        let radius = Angle::from_degrees(1.0);
        let none = SearchCover::of([(f64::NAN, 0.0)].into_iter(), radius);
        assert_eq!(none.sub_chunks(&chunker), Some(HashMap::new()));
        let beyond = SearchCover::of([(0.0, 91.0)].into_iter(), radius);
        assert_eq!(beyond.sub_chunks(&chunker), None);
        assert!(beyond.may_hold(&LonLatBox::point(LonLat::from_degrees(0.0, 0.0).unwrap())));
    }
}
