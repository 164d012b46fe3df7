//! Helpers of the fuzz tests of both endpoints, and of schema files: a seeded source of randomness, and measures of leaks.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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
