//! Meridian's sky: angles, positions, regions, the chunker that cuts the sky into pieces, HTM and HEALPix numbers,
//! and the search of neighbours.
//!
//! This crate is plain mathematics. It depends on `thiserror` and `cdshealpix` alone, and knows nothing of files,
//! tables, SQL or threads.
//!
//! Invariants:
//! * Angles cross a public boundary as [`Angle`], or as `f64` degrees in functions whose name says so. Radians never do.
//! * A position has a right ascension in [0, 360) and a declination in [-90, 90]; nothing else becomes a [`LonLat`].
//! * `contains` is exact and the same for a point alone and for a slice. What is conservative says so in its name
//!   (`may_`, `surely_`, `envelope_`) or its documentation: the sets of chunks, sub-chunks, trixels and cells of a region
//!   never miss one that holds a point of the region.
//! * Functions over slices replace what their output vector held.
//!
//! ```
//! use meridian_sky::{Chunker, LonLat, Region};
//!
//! let chunker = Chunker::new(85, 12)?;
//! let star = LonLat::from_degrees(10.1, -5.2)?;
//! let cone: Region = "circle 10 -5 1.5".parse()?;
//! assert!(cone.contains(star));
//! assert!(chunker.chunks_intersecting(&cone).contains(&chunker.locate(star).chunk));
//! # Ok::<(), meridian_sky::SkyError>(())
//! ```

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::float_cmp,
        reason = "a failure is the test's own message"
    )
)]

mod angle;
mod arc_sine;
pub mod chunker;
mod error;
pub mod frame;
pub mod healpix;
pub mod htm;
pub mod moc;
pub mod neighbours;
mod orientation;
mod position;
pub mod proper_motion;
mod ranges;
mod region;
mod separation;
pub mod shape;
mod trig;

pub use angle::Angle;
pub use chunker::{ChunkId, Chunker, Location, SubChunkId, SubChunks};
pub use error::SkyError;
pub use position::{LonLat, UnitVector};
pub use region::{Circle, ConvexPolygon, Ellipse, LonLatBox, Region};
pub use separation::{separation, separation_degrees};
pub use shape::Shape;
