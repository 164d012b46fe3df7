//! Changes bytes by chance, and tells what readers make of them.

use std::panic::UnwindSafe;
use std::time::Duration;

use meridian_ingest::IngestError;

use crate::measured::{LONGEST, peak, taken};

/// Chances that follow from a number (splitmix64).
pub struct Chance(pub u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below another.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    /// Bytes with some of them changed, lost, doubled or added; often near the end, where Parquet has its footer.
    pub fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let length = changed.len();
            let near_end = self.below(3) == 0;
            let at = if near_end {
                length.saturating_sub(1 + self.below(700))
            } else {
                self.below(length)
            };
            match self.below(7) {
                0 if at < length => changed[at] = self.next() as u8,
                1 if at < length => changed[at] ^= 1 << self.below(8),
                2 if at < length => changed[at] = [0, 1, 0x7f, 0x80, 0xfe, 0xff][self.below(6)],
                3 => changed.truncate(at.max(length / 2)),
                4 => drop(changed.splice(at..at, [0xff; 5])),
                5 => drop(changed.splice(at..(at + 9).min(length), [])),
                _ => {
                    let end = (at + 50).min(length);
                    changed.extend_from_within(at.min(end)..end);
                }
            }
        }
        changed
    }
}

/// What mutated files of a format came to.
#[derive(Default)]
pub struct Outcomes {
    whole: usize,
    longest: Duration,
}

impl Outcomes {
    /// Reads a file, of which `what` tells how it is made again, and `name` how an error calls it.
    pub fn add(
        &mut self,
        (what, name): (&str, &str),
        read: impl FnOnce() -> Result<(usize, usize), IngestError> + UnwindSafe,
    ) {
        let begun = taken();
        let outcome = std::panic::catch_unwind(read);
        let outcome = outcome.unwrap_or_else(|_| Err(IngestError::Internal));
        self.longest = self.longest.max(taken() - begun);
        match outcome {
            Ok(_) => self.whole += 1,
            Err(IngestError::Internal) => fail(&format!("a reader panics over {what}")),
            Err(error) => {
                let told = error.to_string();
                if !told.contains(name) {
                    fail(&format!("{what} is told as {told}"));
                }
            }
        }
        if self.longest >= LONGEST {
            fail(&format!("{what} took {:?}", self.longest));
        }
    }

    /// Prints what they came to.
    pub fn tell(&self, format: &str, count: usize, before: u64) {
        let (whole, longest) = (self.whole, self.longest);
        let grown = peak().saturating_sub(before) >> 20;
        println!("{format}: {whole} of {count} can be read, {longest:.1?} at most, {grown} MiB");
    }
}

/// Fails a test that has silenced panics.
fn fail(sentence: &str) -> ! {
    drop(std::panic::take_hook());
    panic!("{sentence}");
}
