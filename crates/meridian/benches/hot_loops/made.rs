//! What the loops work on: positions, fluxes and keys from fixed seeds, the same on every machine.

use std::f64::consts::TAU;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use sky::{ChunkId, Chunker, LonLat, LonLatBox};

/// As many rows as the program handles at a time.
pub const BATCH: usize = store::ROWS_PER_BLOCK;

/// The partitioning of the LSST database papers.
pub fn chunker() -> Chunker {
    Chunker::new(85, 12).unwrap()
}

/// A chunk away from the seam and the poles.
pub fn chunk() -> ChunkId {
    let inside = LonLat::from_degrees(53.0, -28.0).unwrap();
    chunker().locate(inside).chunk
}

/// The box of [`chunk`].
pub fn chunk_box() -> LonLatBox {
    chunker().chunk_box(chunk()).unwrap()
}

/// The middle of [`chunk`]: right ascension and declination in degrees.
pub fn middle_of_chunk() -> (f64, f64) {
    let middle = chunk_box().middle();
    (middle.ra().degrees(), middle.dec().degrees())
}

/// Positions as columns, in degrees.
pub struct Positions {
    pub ra: Vec<f64>,
    pub dec: Vec<f64>,
}

impl Positions {
    /// Uniform over the sphere.
    pub fn over_the_sky(count: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let sky = (0..count).map(|_| {
            let ra = 360.0 * random.uniform();
            (ra, (2.0 * random.uniform() - 1.0).asin().to_degrees())
        });
        let (ra, dec) = sky.unzip();
        Self { ra, dec }
    }

    /// Uniform in right ascension and declination over [`chunk`].
    pub fn over_a_chunk(count: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (ra, dec) = middle_of_chunk();
        let (width, height) = (
            chunk_box().width().degrees(),
            chunk_box().height().degrees(),
        );
        let mut around = |middle, size| middle + size * (random.uniform() - 0.5);
        let positions = (0..count).map(|_| (around(ra, width), around(dec, height)));
        let (ra, dec) = positions.unzip();
        Self { ra, dec }
    }

    /// The same positions, each moved by up to `distance` degrees in both coordinates.
    pub fn moved(&self, distance: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut moved = |degrees: &f64| degrees + distance * (2.0 * random.uniform() - 1.0);
        Self {
            ra: self.ra.iter().map(&mut moved).collect(),
            dec: self.dec.iter().map(&mut moved).collect(),
        }
    }

    /// The positions one by one.
    pub fn points(&self) -> Vec<LonLat> {
        let columns = self.ra.iter().zip(&self.dec);
        columns
            .map(|(ra, dec)| LonLat::from_degrees(*ra, *dec).unwrap())
            .collect()
    }
}

/// Fluxes in erg/s/cm²/Hz of magnitudes between 18 and 27, with noise as of a star of magnitude 27: the last digits of
/// each are random, as measured ones are, and some are negative.
pub fn noisy_fluxes(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    let flux = |magnitude: f64| 10_f64.powf(-0.4 * (magnitude + 48.6));
    (0..count)
        .map(|_| {
            let star = flux(18.0 + 9.0 * random.uniform());
            (star + flux(27.0) * random.normal()) as f32
        })
        .collect()
}

/// Different keys in random order: those of a survey, of which about a third of the numbers are in use.
pub fn keys(count: usize, seed: u64) -> Vec<i64> {
    const FIRST: i64 = 433_327_840_428_032;
    let mut random = Random::new(seed);
    let mut keys: Vec<i64> = (0..count as i64)
        .map(|number| FIRST + 3 * number + random.below(3) as i64)
        .collect();
    random.shuffle(&mut keys);
    keys
}

/// Random numbers: xoshiro256++, whose numbers are the same on every machine.
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number in (0, 1), one of 2⁵³ equally spaced ones.
    pub fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
    }

    /// A whole number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.uniform() * end as f64) as usize
    }

    /// A normal variate: G. E. P. Box and M. E. Muller, Annals of Mathematical Statistics 29 (1958) 610.
    pub fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (TAU * self.uniform()).cos()
    }

    /// Puts values into random order.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for end in (2..=values.len()).rev() {
            values.swap(end - 1, self.below(end));
        }
    }
}
