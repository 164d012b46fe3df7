//! Which chunks and sub-chunks a region needs.

use std::ops::Range;

use super::{ChunkId, Chunker, SubChunkId, SubChunks};
use crate::region::MARGIN;
use crate::{LonLatBox, Region};

impl Chunker {
    /// The chunks that may hold a point of the region, sorted: an envelope.
    ///
    /// No chunk that holds a point of the region is missing. An ellipse counts as the circle around it and a polygon as
    /// the box around it, as in lsst/sphgeom, whose sets these are but for chunks within a microarcsecond of the
    /// region. [`Self::sub_chunks_intersecting`] looks closer and may leave out some of these chunks.
    pub fn chunks_intersecting(&self, region: &Region) -> Vec<ChunkId> {
        let outline = match region {
            Region::Ellipse(ellipse) => &Region::Circle(ellipse.bounding_circle()),
            Region::Polygon(polygon) => &Region::Box(polygon.envelope_box()),
            Region::Circle(_) | Region::Box(_) => region,
        };
        let near = self.chunks_near(outline);
        near.filter(|&(stripe, chunk)| outline.may_intersect(&self.box_of_chunk(stripe, chunk)))
            .map(|(stripe, chunk)| self.chunk_id(stripe, chunk))
            .collect()
    }

    /// The chunks and their sub-chunks that may hold a point of the region, sorted: an envelope, tighter than
    /// [`Self::chunks_intersecting`].
    ///
    /// No sub-chunk that holds a point of the region is missing. See [`Region::may_intersect`] for what may be there
    /// without need.
    pub fn sub_chunks_intersecting(&self, region: &Region) -> Vec<(ChunkId, SubChunks)> {
        let envelope = region.envelope_box().padded(MARGIN);
        let near = self.chunks_near(region);
        near.filter_map(|(stripe, chunk)| {
            let sub_chunks = self.sub_chunks_in(region, &envelope, stripe, chunk)?;
            Some((self.chunk_id(stripe, chunk), sub_chunks))
        })
        .collect()
    }

    /// Stripes and chunks whose boxes meet the region's envelope, in order.
    fn chunks_near(&self, region: &Region) -> impl Iterator<Item = (u32, u32)> + '_ {
        let envelope = region.envelope_box().padded(MARGIN);
        let rows = self.sub_stripes_of(&envelope);
        let per_stripe = self.sub_stripes_per_stripe;
        (rows.start / per_stripe..(rows.end - 1) / per_stripe + 1).flat_map(move |stripe| {
            let row = &self.stripes[stripe as usize];
            let [first, second] = columns_of(&envelope, row.chunk_width, row.chunks);
            first.chain(second).map(move |chunk| (stripe, chunk))
        })
    }

    /// The sub-stripes that meet the envelope's declinations: at least one.
    fn sub_stripes_of(&self, envelope: &LonLatBox) -> Range<u32> {
        let last = self.sub_stripes.len() as u32 - 1;
        let index = |dec: f64| (((dec + 90.0) / self.sub_stripe_height) as u32).min(last);
        index(envelope.dec_min())..index(envelope.dec_max()) + 1
    }

    fn sub_chunks_in(
        &self,
        region: &Region,
        envelope: &LonLatBox,
        stripe: u32,
        chunk: u32,
    ) -> Option<SubChunks> {
        let chunk_box = self.box_of_chunk(stripe, chunk);
        if region.surely_contains(&chunk_box) {
            return Some(SubChunks::All);
        }
        if !region.may_intersect(&chunk_box) {
            return None;
        }
        let rows = self.rows_of_stripe(stripe);
        let all: i32 = self.sub_stripes[rows.clone()]
            .iter()
            .map(|row| row.sub_chunks)
            .sum();
        let near = self.sub_stripes_of(envelope);
        let (start, end) = (
            near.start.max(rows.start as u32),
            near.end.min(rows.end as u32),
        );
        let mut found = Vec::new();
        for sub_stripe in start..end {
            self.push_sub_chunks(region, envelope, sub_stripe, chunk, &mut found);
        }
        match found.len() {
            0 => None,
            n if n == all as usize => Some(SubChunks::All),
            _ => Some(SubChunks::Some(found)),
        }
    }

    fn push_sub_chunks(
        &self,
        region: &Region,
        envelope: &LonLatBox,
        sub_stripe: u32,
        chunk: u32,
        found: &mut Vec<SubChunkId>,
    ) {
        let row = &self.sub_stripes[sub_stripe as usize];
        let columns = (row.chunks * row.sub_chunks) as u32;
        let first = chunk * row.sub_chunks as u32;
        let own = first..first + row.sub_chunks as u32;
        for near in columns_of(envelope, row.sub_chunk_width, columns) {
            for column in near.start.max(own.start)..near.end.min(own.end) {
                if region.may_intersect(&self.box_of_sub_chunk(sub_stripe, column)) {
                    found.push(SubChunkId(row.first_sub_chunk + (column - first) as i32));
                }
            }
        }
    }
}

/// Which of `count` columns of `width` degrees of right ascension meet the box: two ranges in order, either of which may
/// be empty.
pub(super) fn columns_of(b: &LonLatBox, width: f64, count: u32) -> [Range<u32>; 2] {
    let index = |ra: f64| ((ra / width) as u32).min(count - 1);
    let (first, last) = (index(b.ra_min()), index(b.ra_max()));
    if b.ra_min() <= b.ra_max() {
        [first..last + 1, 0..0]
    } else if last >= first {
        [0..count, 0..0]
    } else {
        [0..last + 1, first..count]
    }
}
