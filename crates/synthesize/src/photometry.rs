//! Magnitudes, colours and fluxes of made-up objects.
//!
//! Counts rise exponentially towards the faint end, as a deep survey sees them; colours are those of an average field
//! with enough scatter that cuts for rare objects find some. Fluxes are in erg/s/cm²/Hz, as in the LSST tables:
//! `m_AB = -2.5 log10(flux) - 48.6`.

use crate::error::SynthesizeError;
use crate::random::{Stream, unit};

/// The bright end of the magnitudes in r.
const BRIGHT_LIMIT: f64 = 16.0;

/// log10 of the number of objects grows by 0.3 for each magnitude, that is by 10^3.3 over the 11 magnitudes to the faint
/// end at 27: this is what it grows by, less one.
const COUNTS_SPAN: f64 = 1_994.262_314_968_879_6;
const COUNTS_STEEPNESS: f64 = 0.3 * std::f64::consts::LN_10;

/// log2 of the flux falls by this for each magnitude: 0.4 log2(10).
const LOG2_PER_MAGNITUDE: f64 = 0.4 * std::f64::consts::LOG2_10;

/// The flux of magnitude 0 in AB.
const ZERO_POINT: f64 = 48.6;

/// A band of the survey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Band(u8);

/// The bands in the order of their numbers.
const NAMES: [char; 6] = ['u', 'g', 'r', 'i', 'z', 'y'];
/// Mean and scatter of each band's magnitude less that of r. i - z is 0.15 ± 0.47, so that `i - z > 2` finds a few
/// objects in a hundred thousand.
const COLOUR_MEAN: [f64; 6] = [2.0, 0.7, 0.0, -0.35, -0.5, -0.6];
const COLOUR_SCATTER: [f32; 6] = [0.6, 0.35, 0.0, 0.25, 0.4, 0.4];
/// The part of the objects that a band did not see, in 65,536ths: 10 %, 2 %, 0, 0, 1 %, 5 %.
const MISSING: [u16; 6] = [6554, 1311, 0, 0, 655, 3277];

impl Band {
    /// u, g, r, i, z, y.
    pub const ALL: [Band; 6] = [Band(0), Band(1), Band(2), Band(3), Band(4), Band(5)];

    /// The bands of a text such as `ugrizy`, in its order.
    ///
    /// # Errors
    /// No band, one that does not exist, one twice.
    pub fn parse_list(text: &str) -> Result<Vec<Band>, SynthesizeError> {
        let mut bands = Vec::new();
        for name in text.chars() {
            let number = NAMES.iter().position(|known| *known == name);
            let band = number.ok_or_else(|| SynthesizeError::UnknownBand(name.to_string()))?;
            let band = Band(band as u8);
            if bands.contains(&band) {
                return Err(SynthesizeError::BandTwice(name));
            }
            bands.push(band);
        }
        if bands.is_empty() {
            return Err(SynthesizeError::UnknownBand(text.to_owned()));
        }
        Ok(bands)
    }

    /// The number by which a `filterId` names the band: 0 for u to 5 for y.
    pub fn number(self) -> u8 {
        self.0
    }

    /// The band's letter.
    pub fn name(self) -> char {
        NAMES[usize::from(self.0)]
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The part of the objects that the band did not see, in 65,536ths.
    pub(crate) fn missing(self) -> u16 {
        MISSING[self.index()]
    }
}

/// A magnitude in r for each of `count` objects, as log2 of the flux.
pub(crate) fn red_log2_fluxes(stream: &mut Stream, count: usize) -> Vec<f64> {
    let magnitude = |uniform: f64| {
        BRIGHT_LIMIT + libm::log(1.0 + uniform * COUNTS_SPAN) * (1.0 / COUNTS_STEEPNESS)
    };
    (0..count)
        .map(|_| log2_flux(magnitude(stream.uniform())))
        .collect()
}

/// The fluxes of objects in a band from log2 of those in r.
pub(crate) fn band_fluxes(stream: &mut Stream, band: Band, red: &[f64]) -> Vec<f32> {
    let mean = COLOUR_MEAN[band.index()];
    let scatter = COLOUR_SCATTER[band.index()];
    let mut log2 = red.to_vec();
    if scatter > 0.0 {
        for pair in log2.chunks_mut(2) {
            for (value, normal) in pair.iter_mut().zip(stream.two_normals()) {
                *value -= (mean + f64::from(scatter * normal)) * LOG2_PER_MAGNITUDE;
            }
        }
    }
    log2.iter().map(|value| exp2(*value) as f32).collect()
}

/// The error of a mean flux over the survey: 10 % at the faint limit, 0.5 % for the bright.
pub(crate) fn mean_flux_error(flux: f32) -> f32 {
    0.1 * (flux * LIMIT_FLUX).sqrt() + 0.005 * flux
}

/// The error of one detection: 10 % at the faint limit, 2 % for the bright.
pub(crate) fn source_flux_error(flux: f32) -> f32 {
    0.1 * (flux * LIMIT_FLUX).sqrt() + 0.02 * flux
}

/// The error of a flux measured in one exposure at a given place: the sky's noise, a fifth of the flux of magnitude 24.5,
/// and 2 % of the flux.
pub(crate) fn forced_flux_error(flux: f32) -> f32 {
    let (sky, relative) = (SKY_NOISE, 0.02 * flux);
    sky * (1.0 + (relative / sky) * (relative / sky)).sqrt()
}

/// A fifth of the flux of magnitude 24.5: 10^(-(24.5 + 48.6)/2.5) / 5.
const SKY_NOISE: f32 = 1.150_88e-30;

/// The flux of magnitude 27, the faint limit: 10^(-(27 + 48.6)/2.5).
const LIMIT_FLUX: f32 = 5.754_399e-31;

/// log2 of the flux of a magnitude in AB.
pub(crate) fn log2_flux(magnitude: f64) -> f64 {
    -(magnitude + ZERO_POINT) * LOG2_PER_MAGNITUDE
}

/// By what a flux is multiplied when an object grows brighter by so many magnitudes.
pub(crate) fn flux_ratio(brighter: f64) -> f32 {
    exp2(brighter * LOG2_PER_MAGNITUDE) as f32
}

/// 2^x for |x| < 1000, to 1e-8: a power of two times Taylor's series of degree 7, whose next term is below 6e-9 where
/// |x| ≤ 1/2. Without a branch or a call, so that the compiler does several at once.
#[inline]
pub(crate) fn exp2(x: f64) -> f64 {
    // Adding and subtracting 1.5·2⁵² rounds to the nearest integer, which then stands in the sum's lowest bits.
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    let shifted = x + ROUNDER;
    let f = (x - (shifted - ROUNDER)) * std::f64::consts::LN_2;
    let mut sum = 1.0 / 5_040.0;
    for coefficient in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * f + coefficient;
    }
    let power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    sum * power
}

/// Marks for `count` objects whether a band saw them; `None` if it saw all.
pub(crate) fn seen(stream: &mut Stream, band: Band, count: usize) -> Option<Vec<bool>> {
    let missing = band.missing();
    if missing == 0 {
        return None;
    }
    let mut seen = Vec::with_capacity(count + 3);
    while seen.len() < count {
        let bits = stream.bits();
        seen.extend((0..4).map(|lane| (bits >> (16 * lane)) as u16 >= missing));
    }
    seen.truncate(count);
    Some(seen)
}

/// Seven in ten objects are extended, one in five has one of twelve flags.
pub(crate) fn extendedness_and_flags(bits: u64) -> (f32, i32) {
    let extended = if unit(bits as u32) < 0.7 { 1.0 } else { 0.0 };
    let high = (bits >> 32) as u32;
    let flagged = (high >> 16) < 13_107;
    let flag = 1 << (((high & 0xFFFF) * 12) >> 16);
    (extended, if flagged { flag } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn powers_of_two_agree_with_the_platform() {
        for x in [-101.7, -0.5, 0.0, 0.499_999, 0.5, 1.0, 17.25] {
            let expected = f64::exp2(x);
            assert!((exp2(x) / expected - 1.0).abs() < 1e-8, "{x}");
        }
    }

    #[test]
    fn constants_are_what_they_say() {
        let flux = |magnitude: f64| exp2(log2_flux(magnitude));
        assert!((flux(27.0) / f64::from(LIMIT_FLUX) - 1.0).abs() < 1e-6);
        assert!((flux(24.5) / 5.0 / f64::from(SKY_NOISE) - 1.0).abs() < 1e-3);
        assert!((flux(27.0) - 10_f64.powf((27.0 + 48.6) / -2.5)).abs() < 1e-38);
        assert!((COUNTS_SPAN + 1.0 - 10_f64.powf(3.3)).abs() < 1e-9);
    }

    #[test]
    fn magnitudes_lie_between_the_limits_and_rise_to_the_faint() {
        let mut stream = Stream::new(1, Purpose::Magnitude, 0, 0);
        let all = red_log2_fluxes(&mut stream, 100_000);
        let faint = all.iter().filter(|x| **x < log2_flux(26.0)).count();
        assert!(
            all.iter()
                .all(|x| *x >= log2_flux(27.0 + 1e-9) && *x <= log2_flux(BRIGHT_LIMIT - 1e-9))
        );
        // 1 - 10^-0.3 of them are in the last magnitude.
        assert!((faint as f64 / 1e5 - 0.499).abs() < 0.01, "{faint}");
    }

    #[test]
    fn bands_are_read_from_text() {
        let names =
            |text| Band::parse_list(text).map(|b| b.iter().map(|b| b.name()).collect::<String>());
        assert_eq!(names("gri").unwrap(), "gri");
        assert!(names("ugq").is_err_and(|e| e.to_string().contains("q")));
        assert!(names("gg").is_err() && names("").is_err());
    }
}
