//! Helpers of the fuzz tests of endpoints, parsers and schema files: a seeded source of randomness, inputs for a parser, and measures of leaks.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// How often anything has panicked, the server's threads included.
pub static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics from now on.
pub fn count_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Relaxed);
        usual(panic);
    }));
}

/// Chances that follow from a number.
pub struct Chance(Xoshiro256PlusPlus);

impl Chance {
    pub fn of_number(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit.max(1)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn of<'a, T: ?Sized>(&mut self, several: &[&'a T]) -> &'a T {
        several[self.below(several.len() as u64) as usize]
    }

    pub fn byte(&mut self) -> u8 {
        self.0.next_u64() as u8
    }

    pub fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.byte()).collect()
    }

    /// Bytes with some of them changed, lost, doubled or added.
    pub fn mutated(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut changed = bytes.to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(changed.len() as u64 + 1) as usize;
            match self.below(6) {
                0 if at < changed.len() => changed[at] = self.byte(),
                1 if at < changed.len() => changed[at] ^= 1 << self.below(8),
                // Numbers at the ends of their types are where lengths are counted wrongly.
                2 if at < changed.len() => {
                    changed[at] = [0, 1, 0x7f, 0x80, 0xfa, 0xfb, 0xfc, 0xfd, 0xfe, 0xff]
                        [self.below(10) as usize];
                }
                3 => changed.truncate(at),
                4 => drop(changed.splice(at..at, self.bytes(9))),
                _ => changed.extend_from_within(at..),
            }
        }
        changed
    }
}

/// Inputs of an ordinary run, for each parser.
const USUAL_INPUTS: usize = 2000;
/// The longest that an input may take: a machine that has others at work is no error.
const LONGEST_INPUT: Duration = Duration::from_secs(20);

/// Gives a parser inputs that are made of real ones, which it has to take or to reject: without a panic, and soon. `MERIDIAN_FUZZ_INPUTS` says how
/// many, `MERIDIAN_FUZZ_SEED` which is the first.
#[allow(
    clippy::print_stdout,
    reason = "how many there were is for whoever runs it"
)]
pub fn feed(parser: &str, usual: &[&[u8]], read: impl Fn(&[u8])) {
    for input in usual {
        read(input);
    }
    let count = from_environment("MERIDIAN_FUZZ_INPUTS", USUAL_INPUTS) as u64;
    let first = from_environment("MERIDIAN_FUZZ_SEED", 0) as u64;
    let (begun, mut longest) = (Instant::now(), Duration::ZERO);
    for number in first..first + count {
        let mut chance = Chance::of_number(number);
        let input = match chance.below(16) {
            0 => chance.bytes(80),
            // The beginning of one and the end of another.
            1 => {
                let (one, other) = (chance.of(usual), chance.of(usual));
                let (at, from) = (
                    chance.below(one.len() as u64 + 1),
                    chance.below(other.len() as u64 + 1),
                );
                [&one[..at as usize], &other[from as usize..]].concat()
            }
            _ => {
                let one = chance.of(usual);
                let changed = chance.mutated(one);
                chance.mutated(&changed)
            }
        };
        let what = format!("{parser}: MERIDIAN_FUZZ_SEED={number} MERIDIAN_FUZZ_INPUTS=1");
        let one = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| read(&input)));
        longest = longest.max(one.elapsed());
        assert!(outcome.is_ok(), "{what}: a panic");
        assert!(longest < LONGEST_INPUT, "{what} took {longest:?}");
    }
    println!(
        "{parser}: {count} inputs, {:.1} s, one {longest:.1?} at most",
        begun.elapsed().as_secs_f64()
    );
}

/// A number that the environment may give.
pub fn from_environment(name: &str, usual: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is {text}, which is no number")),
        Err(_) => usual,
    }
}

/// Bytes of memory that this process holds.
pub fn resident() -> u64 {
    let fields = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = fields.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Files, sockets among them, that this process has open, but for the catalog's: how many connections to it are made, up to a few,
/// and then kept, depends on how many have asked it at the same moment so far.
pub fn open_files() -> usize {
    let names = named_files();
    let others = names
        .iter()
        .filter(|name| !name.contains("/meridian.sqlite"));
    others.count()
}

/// What these are, for whoever looks for one that is left over.
pub fn named_files() -> Vec<String> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let names = open.flat_map(|file| std::fs::read_link(file.path()));
    let mut names: Vec<String> = names.map(|name| name.display().to_string()).collect();
    names.sort();
    names
}
