//! When requests are due that do not wait for answers.

use std::time::Duration;

use clap::ValueEnum;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::positions::unit;

/// How requests follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// At equal distances.
    Fixed,
    /// Each independent of the others, as those of many people are.
    Poisson,
}

/// The times at which requests are due, counted from the start of the run, in order.
#[derive(Debug)]
pub struct Schedule {
    due: Vec<Duration>,
}

impl Schedule {
    /// `rate` requests a second on average for `length`; half-open: none is due at the end itself.
    pub fn new(arrivals: Arrivals, rate: f64, length: Duration, seed: u64) -> Self {
        let mut stream = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut gaps = 0.0;
        let due = (0_u32..)
            .map(|number| match arrivals {
                Arrivals::Fixed => f64::from(number) / rate,
                Arrivals::Poisson => {
                    gaps -= unit(&mut stream).ln();
                    gaps / rate
                }
            })
            .map(Duration::from_secs_f64)
            .take_while(|due| *due < length)
            .collect();
        Self { due }
    }

    /// When the request with a number is due; none beyond the last.
    pub fn due(&self, number: u64) -> Option<Duration> {
        self.due.get(usize::try_from(number).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(arrivals: Arrivals, rate: f64, seconds: u64) -> Vec<Duration> {
        let schedule = Schedule::new(arrivals, rate, Duration::from_secs(seconds), 5);
        (0..).map_while(|number| schedule.due(number)).collect()
    }

    #[test]
    fn fixed_times_are_equally_far_apart() {
        let expected = [0, 250, 500, 750].map(Duration::from_millis);
        assert_eq!(times(Arrivals::Fixed, 4.0, 1), expected);
    }

    #[test]
    fn gaps_of_poisson_times_have_the_mean_and_spread_of_an_exponential() {
        let due = times(Arrivals::Poisson, 1000.0, 100);
        // Five standard deviations of a count of 100,000.
        assert!(due.len().abs_diff(100_000) < 1_600, "{}", due.len());
        let gaps: Vec<f64> = due
            .windows(2)
            .map(|two| (two[1] - two[0]).as_secs_f64())
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02);
        // e^-1 of them are longer than the mean.
        let longer = gaps.iter().filter(|gap| **gap > mean).count() as f64 / gaps.len() as f64;
        assert!((longer - (-1.0_f64).exp()).abs() < 0.01, "{longer}");
    }
}
