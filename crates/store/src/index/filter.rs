//! Which keys an index does not have, told from memory: a blocked Bloom filter.
//!
//! Where a table has many parts, a key is in one of their indexes, and the filters of the others say so without a page being
//! looked at. A key sets and tests bits of one block, which is a line of the processor's cache (Putze, Sanders, Singler: Cache-,
//! hash- and space-efficient Bloom filters, 2007).

use xxhash_rust::xxh3::xxh3_64;

/// Bits for each key: of keys that are not there, about one in two hundred passes.
const BITS_PER_KEY: u64 = 12;
/// Words of a block.
const WORDS: usize = 8;
/// Bits that a key sets in its block.
const PROBES: u32 = 6;

/// Says of every key that it has that it may have it, and of few others.
#[derive(Debug)]
pub(super) struct KeyFilter {
    blocks: Vec<[u64; WORDS]>,
}

impl KeyFilter {
    /// A filter with room for so many keys.
    pub(super) fn new(keys: u64) -> Self {
        let bits = keys.saturating_mul(BITS_PER_KEY);
        let blocks = bits.div_ceil(64 * WORDS as u64).max(1);
        Self {
            blocks: vec![[0; WORDS]; usize::try_from(blocks).unwrap_or(usize::MAX)],
        }
    }

    pub(super) fn insert(&mut self, key: i64) {
        let (block, bits) = self.place(key);
        for (word, bit) in probes(bits) {
            self.blocks[block][word] |= bit;
        }
    }

    /// Whether the key may be there; if not, it is not.
    pub(super) fn may_have(&self, key: i64) -> bool {
        let (block, bits) = self.place(key);
        let block = &self.blocks[block];
        probes(bits).all(|(word, bit)| block[word] & bit != 0)
    }

    /// The block of a key, and what chooses the bits in it.
    fn place(&self, key: i64) -> (usize, u64) {
        let hash = xxh3_64(&key.to_le_bytes());
        let block = (u128::from(hash) * self.blocks.len() as u128) >> 64;
        // The upper bits have chosen the block.
        (block as usize, hash.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// Words of a block, each with a bit in it.
fn probes(bits: u64) -> impl Iterator<Item = (usize, u64)> {
    (0..PROBES).map(move |probe| {
        let nine = bits >> (9 * probe) & 511;
        ((nine >> 6) as usize, 1 << (nine & 63))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_passes_and_little_else() {
        for keys in [0_i64, 1, 7, 1000, 40_000] {
            let mut filter = KeyFilter::new(keys as u64);
            let key = |number: i64| number * 4_294_967_311 % 1_000_003 - 500_000;
            (0..keys).for_each(|number| filter.insert(key(number)));
            assert!((0..keys).all(|number| filter.may_have(key(number))));
            let others = keys..keys + 20_000;
            let passed = others.filter(|number| filter.may_have(key(*number)));
            let passed = passed.count();
            assert!(passed < 300, "{passed} of 20,000 beside {keys} keys");
        }
    }

    #[test]
    fn extremes() {
        let mut filter = KeyFilter::new(2);
        filter.insert(i64::MIN);
        filter.insert(i64::MAX);
        assert!(filter.may_have(i64::MIN) && filter.may_have(i64::MAX));
        assert!(!KeyFilter::new(u64::from(u16::MAX)).may_have(0));
    }
}
