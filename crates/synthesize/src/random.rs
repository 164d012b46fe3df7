//! Streams of random numbers that depend on the seed and on what they are for, never on who asks first.
//!
//! Every thing that is drawn (positions, one band's colours, one epoch's noise) of every block of a chunk has a stream
//! of its own, so a chunk made alone has the rows that it has in the whole, and a column that nobody requested
//! can be left out without changing the others. Nothing here calls the platform's mathematical library, whose last
//! digits differ between machines.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// What a stream is drawn for. The numbers are part of what a seed means: a changed one changes the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Positions and clumps of objects.
    Position,
    /// Magnitudes in r.
    Magnitude,
    /// The colour of one band (its number in ugrizy) against r.
    Colour(u8),
    /// Which objects a band did not see.
    Missing(u8),
    /// `extendedness` and `flags`.
    Shape,
    /// Which objects vary, and how.
    Variability,
    /// The sources of one epoch.
    Source(u32),
    /// The forced sources of one epoch.
    Forced(u32),
    /// When the exposure of one epoch of a chunk was taken.
    Exposure(u32),
    /// Where the tiles of a declination band begin.
    TileBand(u32),
}

impl Purpose {
    fn number(self) -> u64 {
        match self {
            Self::Position => 1,
            Self::Magnitude => 2,
            Self::Shape => 3,
            Self::Variability => 4,
            Self::Colour(band) => 0x100 + u64::from(band),
            Self::Missing(band) => 0x200 + u64::from(band),
            Self::Source(epoch) => (1 << 32) + u64::from(epoch),
            Self::Forced(epoch) => (2 << 32) + u64::from(epoch),
            Self::Exposure(epoch) => (3 << 32) + u64::from(epoch),
            Self::TileBand(band) => (4 << 32) + u64::from(band),
        }
    }
}

/// A stream of random numbers: xoshiro256++, whose numbers are the same on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Stream(Xoshiro256PlusPlus);

impl Stream {
    /// The stream for a purpose in a block of a chunk.
    pub(crate) fn new(seed: u64, purpose: Purpose, chunk: i32, block: u64) -> Self {
        let mut state = seed;
        let parts = [
            purpose.number(),
            u64::from(chunk as u32),
            block,
            0x4D45_5249_4449_414E,
        ];
        let mut bytes = [0; 32];
        for (part, word) in parts.into_iter().zip(bytes.chunks_exact_mut(8)) {
            state = mix(state ^ mix(part));
            word.copy_from_slice(&state.to_le_bytes());
        }
        Self(Xoshiro256PlusPlus::from_seed(bytes))
    }

    /// 64 random bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in (0, 1), one of 2⁵³ equally spaced ones.
    #[inline]
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.bits() >> 11) as f64 + 0.5) * (1.0 / 9_007_199_254_740_992.0)
    }

    /// Two normal variates.
    #[inline]
    pub(crate) fn two_normals(&mut self) -> [f32; 2] {
        let bits = self.bits();
        [normal(bits as u32), normal((bits >> 32) as u32)]
    }
}

/// SplitMix64's finalizer (Steele, Lea and Flood, *Fast Splittable Pseudorandom Number Generators*, 2014).
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number in (0, 1) from 32 random bits.
#[inline]
pub(crate) fn unit(bits: u32) -> f64 {
    (f64::from(bits) + 0.5) * (1.0 / 4_294_967_296.0)
}

/// The normal variate of 32 random bits: within ±6.3, to about 1e-6.
///
/// The inverse of the normal distribution function, PPND7 of M. J. Wichura, *Algorithm AS 241: The Percentage Points of
/// the Normal Distribution*, Applied Statistics 37 (1988) 477-484. Its third branch is for tails that 32 bits do not
/// reach.
#[inline]
pub(crate) fn normal(bits: u32) -> f32 {
    let p = unit(bits);
    let q = (p - 0.5) as f32;
    if q.abs() <= 0.425 {
        let r = 0.180_625 - q * q;
        let above = ((59.109_375 * r + 159.291_13) * r + 50.434_27) * r + 3.387_132_7;
        let below = ((67.187_56 * r + 78.757_76) * r + 17.895_17) * r + 1.0;
        return q * above / below;
    }
    tail(p)
}

fn tail(p: f64) -> f32 {
    let r = libm::sqrtf(-libm::logf(p.min(1.0 - p) as f32)) - 1.6;
    let above = ((0.170_238_21 * r + 1.306_728_5) * r + 2.756_815_4) * r + 1.423_437_3;
    let below = (0.120_211_33 * r + 0.737_001_64) * r + 1.0;
    (above / below).copysign((p - 0.5) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_percentage_points() {
        let at = |p: f64| normal((p * 4_294_967_296.0) as u32);
        for (p, x) in [
            (0.5, 0.0),
            (0.975, 1.959_964),
            (0.9, 1.281_552),
            (1e-5, -4.264_891),
            (1.0 - 1e-4, 3.719_016),
        ] {
            assert!((at(p) - x).abs() < 2e-5, "{p}: {} for {x}", at(p));
        }
        assert!(normal(0) < -6.0 && normal(u32::MAX) > 6.0);
    }

    #[test]
    fn normals_have_mean_0_and_variance_1() {
        let mut stream = Stream::new(7, Purpose::Position, 0, 0);
        let (mut sum, mut squares, n) = (0.0, 0.0, 100_000);
        for _ in 0..n {
            let x = f64::from(normal(stream.bits() as u32));
            sum += x;
            squares += x * x;
        }
        assert!((sum / f64::from(n)).abs() < 0.02);
        assert!((squares / f64::from(n) - 1.0).abs() < 0.02);
    }

    #[test]
    fn streams_differ_in_every_part() {
        let first = |mut stream: Stream| stream.bits();
        let all = [
            first(Stream::new(1, Purpose::Position, 5, 0)),
            first(Stream::new(2, Purpose::Position, 5, 0)),
            first(Stream::new(1, Purpose::Magnitude, 5, 0)),
            first(Stream::new(1, Purpose::Position, 6, 0)),
            first(Stream::new(1, Purpose::Position, 5, 1)),
        ];
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one));
        }
        // A seed's meaning is fixed: these are the numbers of every machine and every release.
        assert_eq!(all[0], first(Stream::new(1, Purpose::Position, 5, 0)));
    }
}
