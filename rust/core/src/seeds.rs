//! Seeds for requests that bring none.
//!
//! Owns: a keyed hash of a counter, the key drawn from the operating system once: nobody can foretell the next seed, no
//! two are related, and a request costs no system call. Must not know: what is drawn with them.

use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher24;

/// What is hashed first, so that no seed is the hash of anything else under the same key.
const KIND_SEED: u64 = u64::MAX;

/// See the module. Any thread.
pub struct SeedSource {
    hasher: SipHasher24,
    counter: AtomicU64,
}

impl SeedSource {
    /// Seeds that follow from `key`.
    pub fn new(key: [u64; 2]) -> Self {
        Self { hasher: SipHasher24::new_with_keys(key[0], key[1]), counter: AtomicU64::new(0) }
    }

    /// The next one.
    pub fn next(&self) -> u64 {
        let mut hasher = self.hasher;
        hasher.write_u64(KIND_SEED);
        // Relaxed: that each number is drawn once is all that counts.
        hasher.write_u64(self.counter.fetch_add(1, Ordering::Relaxed));
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn seeds_are_distinct_and_follow_from_the_key() {
        let draw = |key| {
            let source = SeedSource::new(key);
            (0..1000).map(|_| source.next()).collect::<Vec<_>>()
        };
        let seeds = draw([1, 2]);
        assert_eq!(seeds, draw([1, 2]));
        let all: HashSet<_> = seeds.iter().chain(&draw([2, 1])).copied().collect();
        assert_eq!(all.len(), 2000);
    }
}
