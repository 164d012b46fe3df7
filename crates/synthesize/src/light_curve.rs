//! Which objects vary, and how: most are constant, one in 50 is periodic, one in 500 flares up once.
//!
//! The share of each class is exact in the mean. Object's `flags` tell the class ([`PERIODIC_FLAG`], [`TRANSIENT_FLAG`]),
//! so that what a query finds from the fluxes can be held against it.

use crate::photometry::flux_ratio;
use crate::random::{Stream, unit};

/// Bit of Object's `flags` that a periodic object has.
pub const PERIODIC_FLAG: i32 = 1 << 12;
/// Bit of Object's `flags` that a transient has.
pub const TRANSIENT_FLAG: i32 = 1 << 13;

/// Of 32 random bits, the parts that make an object periodic (2 %) or transient (0.2 %).
const PERIODIC_BELOW: u32 = 85_899_346;
const TRANSIENT_BELOW: u32 = PERIODIC_BELOW + 8_589_935;

/// The first night of the survey and its length, in days (MJD, TAI).
pub(crate) const FIRST_NIGHT: f64 = 49_553.0;
pub(crate) const SURVEY_DAYS: f64 = 3_652.0;

/// A transient rises within some 10 days and fades within some 50, to 1/e.
const RISE_DAYS: f64 = 10.0;
const DECAY_DAYS: f64 = 50.0;

/// How the flux of one object changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum LightCurve {
    /// Rises fast and falls slowly, as RR Lyrae stars (periods of 0.3 to 0.9 days) and Cepheids (2 to 50 days) do.
    Pulsating {
        period: f64,
        /// From the faintest to the brightest, in magnitudes.
        amplitude: f64,
        phase: f64,
    },
    /// Constant but for one deep and one shallow eclipse in each period of 0.5 to 10 days.
    Eclipsing { period: f64, depth: f64, phase: f64 },
    /// Brighter by `brightening` magnitudes on the day of its peak, and as it was long before and after.
    Transient { peak: f64, brightening: f64 },
}

impl LightCurve {
    /// The light curve of an object: `None` if it is constant.
    pub(crate) fn draw(stream: &mut Stream) -> Option<Self> {
        let bits = stream.bits();
        let class = bits as u32;
        if class >= TRANSIENT_BELOW {
            return None;
        }
        let kind = unit((bits >> 32) as u32);
        let (a, b, phase) = (stream.uniform(), stream.uniform(), stream.uniform());
        if class >= PERIODIC_BELOW {
            return Some(Self::Transient {
                peak: FIRST_NIGHT + SURVEY_DAYS * a,
                brightening: 3.0 + 3.0 * b,
            });
        }
        let log_between = |low: f64, high: f64| low * libm::pow(high / low, a);
        let amplitude = 0.4 + 0.8 * b;
        Some(if kind < 0.5 {
            Self::Pulsating {
                period: log_between(0.3, 0.9),
                amplitude,
                phase,
            }
        } else if kind < 0.7 {
            Self::Pulsating {
                period: log_between(2.0, 50.0),
                amplitude,
                phase,
            }
        } else {
            Self::Eclipsing {
                period: log_between(0.5, 10.0),
                depth: amplitude,
                phase,
            }
        })
    }

    /// The bit of `flags` for the class.
    pub(crate) fn flag(self) -> i32 {
        match self {
            Self::Pulsating { .. } | Self::Eclipsing { .. } => PERIODIC_FLAG,
            Self::Transient { .. } => TRANSIENT_FLAG,
        }
    }

    /// What the object's flux is multiplied by at a time (MJD).
    pub(crate) fn factor(self, time: f64) -> f32 {
        match self {
            Self::Pulsating {
                period,
                amplitude,
                phase,
            } => flux_ratio(amplitude * pulse(fraction(time / period + phase))),
            Self::Eclipsing {
                period,
                depth,
                phase,
            } => flux_ratio(-depth * eclipse(fraction(time / period + phase))),
            Self::Transient { peak, brightening } => {
                let days = time - peak;
                let scale = if days < 0.0 { -RISE_DAYS } else { DECAY_DAYS };
                1.0 + (flux_ratio(brightening) - 1.0) * libm::exp(-days / scale) as f32
            }
        }
    }
}

fn fraction(turns: f64) -> f64 {
    turns - turns.floor()
}

/// From faintest (-1/2) to brightest (1/2) in the first fifth of the phase, and back in the rest: mean 0.
fn pulse(phase: f64) -> f64 {
    const RISE: f64 = 0.2;
    if phase < RISE {
        phase / RISE - 0.5
    } else {
        0.5 - (phase - RISE) / (1.0 - RISE)
    }
}

/// 1 in the middle of the deep eclipse, 0.4 in that of the shallow one, 0 between; each takes a tenth of the phase.
fn eclipse(phase: f64) -> f64 {
    const HALF_LENGTH: f64 = 0.05;
    let dip = |middle: f64| (1.0 - (phase - middle).abs() / HALF_LENGTH).max(0.0);
    dip(0.25) + 0.4 * dip(0.75)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Purpose;

    #[test]
    fn shares_are_as_documented() {
        let mut stream = Stream::new(1, Purpose::Variability, 0, 0);
        let n = 500_000;
        let drawn: Vec<_> = (0..n)
            .filter_map(|_| LightCurve::draw(&mut stream))
            .collect();
        let transients = drawn.iter().filter(|c| c.flag() == TRANSIENT_FLAG).count();
        let periodic = drawn.len() - transients;
        assert!(
            (periodic as f64 / f64::from(n) - 0.02).abs() < 0.001,
            "{periodic}"
        );
        assert!(
            (transients as f64 / f64::from(n) - 0.002).abs() < 0.0004,
            "{transients}"
        );
    }

    #[test]
    fn curves_repeat_dip_and_fade() {
        let star = LightCurve::Pulsating {
            period: 0.5,
            amplitude: 1.0,
            phase: 0.0,
        };
        assert!((star.factor(100.0) - star.factor(100.5)).abs() < 1e-6);
        assert!((star.factor(100.1) / star.factor(100.0) - 2.511_886).abs() < 1e-4);
        let binary = LightCurve::Eclipsing {
            period: 1.0,
            depth: 1.0,
            phase: 0.0,
        };
        assert!((binary.factor(10.0) - 1.0).abs() < 1e-6);
        assert!((binary.factor(10.25) - 0.398_107).abs() < 1e-4);
        let nova = LightCurve::Transient {
            peak: 50_000.0,
            brightening: 5.0,
        };
        assert!((nova.factor(50_000.0) - 100.0).abs() < 1e-3);
        assert!((nova.factor(49_000.0) - 1.0).abs() < 1e-6);
        assert!((nova.factor(50_050.0) - 37.4).abs() < 0.1);
    }
}
