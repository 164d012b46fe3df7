//! Which chunks are within a small angle of a point: where a row belongs into the overlap.

use super::intersecting::columns_of;
use super::{ChunkId, Chunker};
use crate::region::{MARGIN, half_width_of_cap};
use crate::{Angle, LonLat, LonLatBox};

impl Chunker {
    /// Puts into `out` (replacing what it held) the chunks whose box lies within `radius` of the point, sorted, the
    /// point's own chunk included.
    ///
    /// Exact but for chunks that are a microarcsecond farther than `radius`, which may be included. A negative radius
    /// counts as 0, where the point's own chunk is all, unless it is on an edge.
    pub fn chunks_within(&self, p: LonLat, radius: Angle, out: &mut Vec<ChunkId>) {
        out.clear();
        let own = self.locate(p).chunk;
        let reach = radius.max(Angle::ZERO) + MARGIN;
        if self.is_deep_inside(p, own, reach) {
            out.push(own);
            return;
        }
        let (ra, dec) = (p.ra().degrees(), p.dec().degrees());
        let half_width = half_width_of_cap(dec, reach.degrees());
        let near = LonLatBox::valid(
            ra - half_width,
            dec - reach.degrees(),
            ra + half_width,
            dec + reach.degrees(),
        );
        let last = self.num_stripes() - 1;
        let height = 180.0 / f64::from(self.num_stripes());
        let stripe_of = |dec: f64| (((dec + 90.0) / height) as u32).min(last);
        for stripe in stripe_of(near.dec_min())..=stripe_of(near.dec_max()) {
            let row = &self.stripes[stripe as usize];
            for chunk in columns_of(&near, row.chunk_width, row.chunks)
                .into_iter()
                .flatten()
            {
                let id = self.chunk_id(stripe, chunk);
                if id == own || self.box_of_chunk(stripe, chunk).separation(p) <= reach {
                    out.push(id);
                }
            }
        }
    }

    /// Whether the point is certainly farther than `reach` from every chunk but its own; costs no trigonometry.
    ///
    /// A point is `d` from a meridian that is `x` away in right ascension, with `sin d = cos δ sin x`; and `d ≥ sin d`,
    /// `sin x ≥ x - x³/6`, and the stripe's smallest cosine is at most `cos δ`. `x` is at most half a chunk's
    /// width, a quarter turn.
    #[inline]
    fn is_deep_inside(&self, p: LonLat, own: ChunkId, reach: Angle) -> bool {
        let Some((stripe, chunk)) = self.stripe_and_chunk(own) else {
            return false;
        };
        let row = &self.stripes[stripe as usize];
        let (ra, dec) = (p.ra().degrees(), p.dec().degrees());
        let south = stripe == 0 || dec - row.dec_min > reach.degrees();
        let north = stripe + 1 == self.num_stripes() || row.dec_max - dec > reach.degrees();
        if row.chunks == 1 {
            return south && north;
        }
        let west = ra - f64::from(chunk) * row.chunk_width;
        let east = f64::from(chunk + 1) * row.chunk_width - ra;
        let x = west.min(east).to_radians();
        let distance = row.smallest_cosine * x * (1.0 - x * x / 6.0);
        south && north && distance > reach.radians()
    }
}
