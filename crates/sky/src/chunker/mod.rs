//! [`Chunker`]: the cut of the sky into chunks and sub-chunks, numbered as Qserv numbers them.
//!
//! The sky is cut into `S` stripes of equal height. A stripe is cut into chunks of equal width in right ascension, as
//! many as leave each about as wide as high at the stripe's edge nearest to a pole. Each stripe has `SS` sub-stripes,
//! and a chunk's part of a sub-stripe is cut into sub-chunks by the same rule. The formulas are those of the
//! `Chunker` of lsst/sphgeom, so that the numbers agree with the field's other tools:
//!
//! * `chunk_id = 2·S·stripe + chunk`,
//! * `sub_chunk_id = M·(sub-stripe within its stripe) + (sub-chunk within its chunk)`, where `M` is the largest
//!   number of sub-chunks that any sub-stripe has in one chunk.
//!
//! Boxes of chunks and sub-chunks are closed and share their edges; [`Chunker::locate`] gives a point on an edge to one
//! of them: the one to the north and to the east.

mod intersecting;
mod within;

use std::fmt;
use std::ops::Range;

use crate::{LonLat, LonLatBox, SkyError};

/// The most stripes whose chunk numbers fit into 31 bits: 2·S² ≤ 2³¹ - 1.
pub const MAX_STRIPES: u32 = 32_767;

/// The most sub-stripes in a stripe whose sub-chunk numbers fit into 31 bits: `M` is at most 2π times their number (the
/// sub-stripe at the edge of a pole's stripe, which is one chunk), so numbers stay below 2π·SS² < 2³¹.
pub const MAX_SUB_STRIPES: u32 = 16_384;

/// The most sub-stripes in all: no sub-stripe is lower than an arcsecond.
pub const MAX_ALL_SUB_STRIPES: u32 = 180 * 3600;

/// Where a stripe comes this near to a pole, in degrees (one arcsecond), it is not cut in right ascension.
const UNCUT_NEAR_POLE: f64 = 1.0 / 3600.0;

/// The number of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub i32);

/// The number of a sub-chunk within its chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubChunkId(pub i32);

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for SubChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a position lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// The chunk.
    pub chunk: ChunkId,
    /// The sub-chunk within the chunk.
    pub sub_chunk: SubChunkId,
}

/// Some of a chunk's sub-chunks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubChunks {
    /// Every one.
    All,
    /// These, sorted; at least one, and not all.
    Some(Vec<SubChunkId>),
}

impl SubChunks {
    /// Whether the sub-chunk is among them.
    pub fn contains(&self, sub_chunk: SubChunkId) -> bool {
        match self {
            Self::All => true,
            Self::Some(ids) => ids.binary_search(&sub_chunk).is_ok(),
        }
    }
}

/// A stripe: a range of declination, cut into chunks.
#[derive(Debug, Clone)]
struct Stripe {
    /// The number of chunks.
    chunks: u32,
    /// The width of a chunk in degrees of right ascension.
    chunk_width: f64,
    /// The southern and northern edge in degrees.
    dec_min: f64,
    dec_max: f64,
    /// A lower bound of the cosine of the declination anywhere in the stripe.
    smallest_cosine: f64,
}

/// A sub-stripe with all that it takes to locate a point in it.
#[derive(Debug, Clone)]
struct SubStripe {
    /// The number of the stripe's chunk 0.
    first_chunk: i32,
    /// The number of chunks in the stripe, and the width of one in degrees.
    chunks: i32,
    chunk_width: f64,
    /// The number of the first sub-chunk in each chunk.
    first_sub_chunk: i32,
    /// The number of sub-chunks in each chunk, and the width of one in degrees.
    sub_chunks: i32,
    sub_chunk_width: f64,
}

/// A cut of the sky into chunks and sub-chunks.
#[derive(Debug, Clone)]
pub struct Chunker {
    sub_stripes_per_stripe: u32,
    /// The height of a sub-stripe in degrees.
    sub_stripe_height: f64,
    stripes: Vec<Stripe>,
    sub_stripes: Vec<SubStripe>,
    /// `M`: the largest number of sub-chunks of a sub-stripe in one chunk.
    max_sub_chunks: i32,
}

impl Chunker {
    /// The cut into `stripes` stripes of `sub_stripes` sub-stripes each.
    ///
    /// # Errors
    /// [`SkyError::Partitioning`] if either is 0, or beyond [`MAX_STRIPES`], [`MAX_SUB_STRIPES`] or
    /// [`MAX_ALL_SUB_STRIPES`].
    pub fn new(stripes: u32, sub_stripes: u32) -> Result<Self, SkyError> {
        let all = u64::from(stripes) * u64::from(sub_stripes);
        let too_many = stripes > MAX_STRIPES
            || sub_stripes > MAX_SUB_STRIPES
            || all > u64::from(MAX_ALL_SUB_STRIPES);
        if all == 0 || too_many {
            return Err(SkyError::Partitioning {
                stripes,
                sub_stripes,
            });
        }
        let sub_stripe_height = 180.0 / f64::from(stripes * sub_stripes);
        let mut chunker = Self {
            sub_stripes_per_stripe: sub_stripes,
            sub_stripe_height,
            stripes: (0..stripes).map(|s| Stripe::new(s, stripes)).collect(),
            sub_stripes: Vec::with_capacity((stripes * sub_stripes) as usize),
            max_sub_chunks: 1,
        };
        for sub_stripe in 0..stripes * sub_stripes {
            let stripe = sub_stripe / sub_stripes;
            let row = chunker.cut_sub_stripe(sub_stripe, stripe);
            chunker.max_sub_chunks = chunker.max_sub_chunks.max(row.sub_chunks);
            chunker.sub_stripes.push(row);
        }
        for (sub_stripe, row) in (0..).zip(&mut chunker.sub_stripes) {
            row.first_sub_chunk = chunker.max_sub_chunks * (sub_stripe % sub_stripes as i32);
        }
        Ok(chunker)
    }

    fn cut_sub_stripe(&self, sub_stripe: u32, stripe: u32) -> SubStripe {
        let Stripe {
            chunks,
            chunk_width,
            ..
        } = self.stripes[stripe as usize];
        let height = self.sub_stripe_height;
        let dec_min = f64::from(sub_stripe) * height - 90.0;
        let dec_max = f64::from(sub_stripe + 1) * height - 90.0;
        // A sub-stripe is lower than its stripe and no nearer to a pole, so it has at least as many segments as the
        // stripe has chunks; 1 stands guard against rounding.
        let sub_chunks = (segments(dec_min, dec_max, height) / chunks).max(1);
        SubStripe {
            first_chunk: (2 * self.num_stripes() * stripe) as i32,
            chunks: chunks as i32,
            chunk_width,
            first_sub_chunk: 0,
            sub_chunks: sub_chunks as i32,
            sub_chunk_width: 360.0 / f64::from(sub_chunks * chunks),
        }
    }

    /// The number of stripes.
    pub fn num_stripes(&self) -> u32 {
        self.stripes.len() as u32
    }

    /// The number of sub-stripes in each stripe.
    pub fn num_sub_stripes(&self) -> u32 {
        self.sub_stripes_per_stripe
    }

    /// The chunk and sub-chunk of a position.
    pub fn locate(&self, p: LonLat) -> Location {
        self.locate_one(p.ra().degrees(), p.dec().degrees())
    }

    /// Puts into `out` (replacing what it held) the locations of the positions `(ra[i], dec[i])` in degrees. As many as
    /// the shorter slice has entries.
    ///
    /// Right ascensions are wrapped. The positions must be valid otherwise, as [`LonLat::from_degrees`] checks: one that
    /// is not gets a location all the same, that of some nearby or of no particular position.
    pub fn locate_degrees(&self, ra: &[f64], dec: &[f64], out: &mut Vec<Location>) {
        out.clear();
        out.extend(ra.iter().zip(dec).map(|(&ra, &dec)| {
            let in_range = (0.0..360.0).contains(&ra);
            let ra = if in_range {
                ra
            } else {
                crate::position::wrap_degrees(ra)
            };
            self.locate_one(ra, dec)
        }));
    }

    #[inline]
    fn locate_one(&self, ra: f64, dec: f64) -> Location {
        // Casts saturate: below the south pole is sub-stripe 0.
        let sub_stripe = ((dec + 90.0) / self.sub_stripe_height) as usize;
        let row = &self.sub_stripes[sub_stripe.min(self.sub_stripes.len() - 1)];
        let chunk = ((ra / row.chunk_width) as i32).min(row.chunks - 1);
        // Rounding may put a point at a chunk's edge into a neighbour's sub-chunk: keep it in its own chunk.
        let sub_chunk = (ra / row.sub_chunk_width) as i32 - chunk * row.sub_chunks;
        Location {
            chunk: ChunkId(row.first_chunk + chunk),
            sub_chunk: SubChunkId(row.first_sub_chunk + sub_chunk.clamp(0, row.sub_chunks - 1)),
        }
    }

    /// Every chunk, sorted.
    pub fn all_chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        (0..self.num_stripes()).flat_map(move |stripe| {
            let chunks = self.stripes[stripe as usize].chunks;
            (0..chunks).map(move |chunk| self.chunk_id(stripe, chunk))
        })
    }

    /// Whether there is a chunk of this number.
    pub fn is_chunk(&self, chunk: ChunkId) -> bool {
        self.stripe_and_chunk(chunk).is_some()
    }

    /// Every sub-chunk of a chunk, sorted; none if there is no such chunk.
    pub fn sub_chunks_of(&self, chunk: ChunkId) -> Vec<SubChunkId> {
        let Some((stripe, _)) = self.stripe_and_chunk(chunk) else {
            return Vec::new();
        };
        let rows = &self.sub_stripes[self.rows_of_stripe(stripe)];
        rows.iter()
            .flat_map(|row| (0..row.sub_chunks).map(|i| SubChunkId(row.first_sub_chunk + i)))
            .collect()
    }

    /// The box of a chunk, or `None` if there is no such chunk.
    ///
    /// It holds every point that [`Self::locate`] puts into the chunk, within rounding of its edges (1e-13 degrees).
    pub fn chunk_box(&self, chunk: ChunkId) -> Option<LonLatBox> {
        let (stripe, chunk) = self.stripe_and_chunk(chunk)?;
        Some(self.box_of_chunk(stripe, chunk))
    }

    /// The box of a sub-chunk, or `None` if there is no such chunk or sub-chunk.
    pub fn sub_chunk_box(&self, location: Location) -> Option<LonLatBox> {
        let (stripe, chunk) = self.stripe_and_chunk(location.chunk)?;
        let id = u32::try_from(location.sub_chunk.0).ok()?;
        let (row, column) = (
            id / self.max_sub_chunks as u32,
            id % self.max_sub_chunks as u32,
        );
        if row >= self.sub_stripes_per_stripe {
            return None;
        }
        let sub_stripe = stripe * self.sub_stripes_per_stripe + row;
        let sub_chunks = self.sub_stripes[sub_stripe as usize].sub_chunks as u32;
        (column < sub_chunks)
            .then(|| self.box_of_sub_chunk(sub_stripe, chunk * sub_chunks + column))
    }

    fn chunk_id(&self, stripe: u32, chunk: u32) -> ChunkId {
        ChunkId((2 * self.num_stripes() * stripe + chunk) as i32)
    }

    fn stripe_and_chunk(&self, chunk: ChunkId) -> Option<(u32, u32)> {
        let id = u32::try_from(chunk.0).ok()?;
        let (stripe, chunk) = (id / (2 * self.num_stripes()), id % (2 * self.num_stripes()));
        let chunks = self.stripes.get(stripe as usize)?.chunks;
        (chunk < chunks).then_some((stripe, chunk))
    }

    /// The indices of a stripe's sub-stripes.
    fn rows_of_stripe(&self, stripe: u32) -> Range<usize> {
        let n = self.sub_stripes_per_stripe as usize;
        stripe as usize * n..(stripe as usize + 1) * n
    }

    fn box_of_chunk(&self, stripe: u32, chunk: u32) -> LonLatBox {
        let row = &self.stripes[stripe as usize];
        column_box(chunk, row.chunks, row.dec_min, row.dec_max)
    }

    /// The box of a sub-chunk that is the `column`-th of its whole sub-stripe.
    fn box_of_sub_chunk(&self, sub_stripe: u32, column: u32) -> LonLatBox {
        let row = &self.sub_stripes[sub_stripe as usize];
        let dec_min = f64::from(sub_stripe) * self.sub_stripe_height - 90.0;
        let dec_max = f64::from(sub_stripe + 1) * self.sub_stripe_height - 90.0;
        column_box(
            column,
            (row.chunks * row.sub_chunks) as u32,
            dec_min,
            dec_max,
        )
    }
}

impl Stripe {
    fn new(stripe: u32, stripes: u32) -> Self {
        let height = 180.0 / f64::from(stripes);
        let dec_min = f64::from(stripe) * height - 90.0;
        let dec_max = f64::from(stripe + 1) * height - 90.0;
        let chunks = segments(dec_min, dec_max, height);
        let highest = dec_min.abs().max(dec_max.abs()).min(90.0);
        Self {
            chunks,
            chunk_width: 360.0 / f64::from(chunks),
            dec_min,
            dec_max,
            smallest_cosine: crate::trig::cos_degrees(highest),
        }
    }
}

/// The box of one of `columns` equal parts of a range of declination.
fn column_box(column: u32, columns: u32, dec_min: f64, dec_max: f64) -> LonLatBox {
    let edge = |i: u32| 360.0 * f64::from(i) / f64::from(columns);
    LonLatBox::valid(edge(column), dec_min, edge(column + 1), dec_max)
}

/// Into how many parts of equal width in right ascension the declinations `[dec_min, dec_max]` are cut, so that
/// points of two parts that are not neighbours are at least `width` degrees apart.
///
/// Two points of declination `φ` that are `w` apart differ in right ascension by `Δα` with
/// `cos w = sin²φ + cos²φ cos Δα`, hence `cos Δα = x / u` and `sin Δα = y / u` with `x = cos w - sin²φ`,
/// `u = cos²φ`, `y = √|u² - x²|`. `φ` is the declination nearest to a pole.
fn segments(dec_min: f64, dec_max: f64, width: f64) -> u32 {
    let highest = dec_min.abs().max(dec_max.abs());
    if highest > 90.0 - UNCUT_NEAR_POLE || width >= 180.0 {
        return 1;
    }
    let (sine, cosine) = highest.to_radians().sin_cos();
    let x = width.to_radians().cos() - sine * sine;
    let u = cosine * cosine;
    let y = (u * u - x * x).abs().sqrt();
    (360.0 / y.atan2(x).to_degrees().abs()).floor().max(1.0) as u32
}
