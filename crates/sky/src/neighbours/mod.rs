//! Pairs of positions within a radius: the loops of a spatial join.
//!
//! The right side becomes a [`NeighbourIndex`], of its own rows or of the left side's. A [`Search`] asks it for the partners of left
//! rows: how many there are ([`Search::counts`]), the pairs ([`Search::pairs`]), the nearest few ([`Search::nearest`]),
//! whether there is one at all ([`Search::any`]), or all of them in slices to compute with ([`Search::for_each_run`]).
//!
//! Which pairs are within the radius is what [`crate::separation_degrees`] says, to the last bit, for every radius and every
//! position. The function gives the same for both orders of its operands (differences are squared, sums and
//! products commute), so it does not matter which side a query names first.
//!
//! Left rows are requested by number, so that a caller can divide them among threads, stop between two slices of them, or take
//! them in the order in which their partners lie together in memory ([`NeighbourIndex::order`]). Nothing here knows of threads;
//! everything can be sent to one, and an index and a search can be used by several at a time.
//!
//! ```
//! use meridian_sky::neighbours::{NeighbourIndex, Positions, Radii, Radius, Search};
//! use meridian_sky::Angle;
//!
//! let (ra, dec) = ([10.0, 10.001, 200.0], [5.0, 5.0, 5.0]);
//! let stars = Positions::from_degrees(&ra, &dec);
//! let radius = Angle::from_arcsec(10.0);
//! let index = NeighbourIndex::build(stars, radius)?;
//! let search = Search::new(&index, stars, Radii::common(Radius::below(radius)));
//! let mut counts = Vec::new();
//! search.counts(0..3, &mut counts);
//! assert_eq!(counts, [2, 2, 1]);
//! # Ok::<(), meridian_sky::SkyError>(())
//! ```

mod chords;
mod count;
mod fold;
mod index;
mod layout;
mod limits;
mod nearest;
mod pairs;
mod positions;
mod windows;

pub use fold::Partners;
pub use index::NeighbourIndex;
pub use limits::{Bound, Radii, Radius};
pub use nearest::Neighbour;
pub use pairs::{PairBuffer, PairCursor};
pub use positions::{Positions, Validity};

use crate::separation::separation_of_degrees;
use limits::Limits;
use windows::Probe;

/// Left rows, the index of the right ones, and how near a pair has to be.
///
/// A left row beyond the end of its columns is one without a position.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    index: &'a NeighbourIndex,
    left: Positions<'a>,
    radii: Radii<'a>,
    /// The limits for usual positions, where all left rows have the same radius.
    common: Option<Limits>,
}

impl<'a> Search<'a> {
    /// The search for partners of `left` rows. Where both sides are the same rows, give their positions here as well.
    pub fn new(index: &'a NeighbourIndex, left: Positions<'a>, radii: Radii<'a>) -> Self {
        let common = radii
            .shared()
            .and_then(|radius| Limits::new(radius, index.sizes()));
        Self {
            index,
            left,
            radii,
            common,
        }
    }

    /// Whether a left row is within its radius of a position like its own: it has one, and its radius admits 0.
    ///
    /// Where both sides are the same rows, this tells whether a row is among its own partners, and so what to take from
    /// its count for a condition such as `a.id <> b.id`.
    pub fn pairs_with_itself(&self, row: u32) -> bool {
        self.probe(row).is_some()
    }

    /// A left row that can have partners.
    #[inline]
    fn probe(&self, row: u32) -> Option<Probe> {
        let place = self.left.get(row as usize)?;
        let sizes = self.index.sizes();
        let limits = if self.radii.shared().is_some() && place.sizes().are_within(sizes) {
            self.common?
        } else {
            let radius = self.radii.get(row as usize)?;
            Limits::new(radius, sizes.and(place.sizes()))?
        };
        Some(Probe::new(row, place, limits))
    }

    /// The separation of a probe and a place of the index, degrees: what the SQL function gives.
    #[inline]
    fn separation(&self, probe: &Probe, place: usize) -> f64 {
        let (ra, dec) = self.index.degrees(place);
        separation_of_degrees(probe.place.ra, probe.place.dec, ra, dec)
    }

    /// Whether a probe and a place of the index are a pair, asked of the function. Padding never is.
    #[cold]
    fn is_pair(&self, probe: &Probe, place: usize) -> bool {
        probe.limits.radius.admits(self.separation(probe, place))
    }
}
