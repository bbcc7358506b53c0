//! Which KV blocks are free and how many owners each of the others has, from any thread.
//!
//! Owns: the bitmap of free blocks, the reference counts, the count of free blocks that are not promised yet.
//! Invariants: a block's bit is set iff it has no owner (at rest); block 0 is never handed out. Who lowers
//! `num_free` by n is promised n set bits, because a bit is set before `num_free` grows by it; so an allocation
//! that has reserved always finds its blocks, at worst on a second pass. A bitmap has no links, hence no ABA.
//! What an owner wrote into a block before it let go is seen by the next one: set bit (Release), claim (Acquire).
//! Must not know: what lies in a block, who the owners are, prefixes, eviction.

use crate::padded::Padded;
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::sync::hint;
use crate::thread_number::thread_number;

const WORD_BITS: usize = u64::BITS as usize;

/// Parts of the bitmap that threads keep to, at most; and how small a part may be: some cache lines.
const MAX_PARTS: usize = 8;
const MIN_PART_WORDS: usize = 32;

/// The lock-free half of a block pool.
pub struct BlockRefs {
    /// One bit per block: set while it is free.
    free: Box<[AtomicU64]>,
    references: Box<[AtomicU32]>,
    /// Free blocks that no allocation has reserved.
    num_free: Padded<AtomicUsize>,
    /// Where an allocation looks first: the word, one for each part of the bitmap. A thread keeps to its part as long as
    /// it can, so that threads don't take cache lines from each other. Hints only: they may be wrong in either direction.
    hints: Box<[Padded<AtomicUsize>]>,
    /// Words of a part.
    part_words: usize,
}

impl BlockRefs {
    /// Blocks `0..num_blocks`, all free but block 0, which is never handed out.
    pub fn new(num_blocks: usize) -> Self {
        let free_in_word = |word: usize| {
            let blocks = (num_blocks - word * WORD_BITS).min(WORD_BITS);
            let bits = u64::MAX >> (WORD_BITS - blocks);
            AtomicU64::new(if word == 0 { bits & !1 } else { bits })
        };
        let words = num_blocks.div_ceil(WORD_BITS);
        let part_words = words.div_ceil(MAX_PARTS).max(MIN_PART_WORDS);
        let parts = words.div_ceil(part_words).max(1);
        Self {
            free: (0..num_blocks.div_ceil(WORD_BITS)).map(free_in_word).collect(),
            references: (0..num_blocks).map(|_| AtomicU32::new(0)).collect(),
            num_free: Padded(AtomicUsize::new(num_blocks.saturating_sub(1))),
            hints: (0..parts).map(|part| Padded(AtomicUsize::new(part * part_words))).collect(),
            part_words,
        }
    }

    /// All blocks, block 0 included.
    pub fn num_blocks(&self) -> usize {
        self.references.len()
    }

    /// Blocks that can be allocated now.
    pub fn num_free(&self) -> usize {
        // Relaxed: a glance; who needs the blocks reserves them.
        self.num_free.load(Ordering::Relaxed)
    }

    /// Owners of `block`.
    pub fn references(&self, block: u32) -> u32 {
        // Acquire pairs with the Release in `drop_reference`: who finds itself the only owner may write, and what
        // the others did with the block came before.
        self.references[block as usize].load(Ordering::Acquire)
    }

    /// Appends `count` blocks with one owner each to `out`, the lowest of the thread's part first, or none at all if there
    /// are too few.
    #[must_use]
    pub fn allocate(&self, count: usize, out: &mut Vec<u32>) -> bool {
        // Acquire pairs with the Release in `give_back`: every bit that was counted is seen below. All changes
        // are read-modify-writes, so one Acquire pairs with all earlier releases.
        let reserve = |free: usize| free.checked_sub(count);
        if self.num_free.fetch_update(Ordering::Acquire, Ordering::Relaxed, reserve).is_err() {
            return false;
        }
        out.reserve(count);
        self.claim(count, out);
        true
    }

    /// Takes `missing` set bits, which the caller has reserved.
    fn claim(&self, mut missing: usize, out: &mut Vec<u32>) {
        let (own, mut trusts_hints) = (thread_number(), true);
        while missing > 0 {
            for turn in 0..self.hints.len() {
                let part = (own + turn) % self.hints.len();
                missing = self.claim_in_part(part, trusts_hints, missing, out);
                if missing == 0 {
                    return;
                }
            }
            // Somebody took a bit ahead of us and another one was freed behind us: the promise is kept there.
            trusts_hints = false;
            hint::spin_loop();
        }
    }

    /// The same, as far as a part of the bitmap has them; returns how many are still missing.
    fn claim_in_part(&self, part: usize, trusts_hint: bool, mut missing: usize, out: &mut Vec<u32>) -> usize {
        let hint = self.hints[part].load(Ordering::Relaxed);
        let start = if trusts_hint { hint } else { part * self.part_words };
        let end = (part + 1) * self.part_words;
        let words = &self.free[..end.min(self.free.len())];
        let mut reached = start;
        for (index, word) in words.iter().enumerate().skip(start) {
            reached = index;
            // Relaxed: what counts is what the claim itself finds.
            let wanted = lowest(word.load(Ordering::Relaxed), missing);
            if wanted == 0 {
                continue;
            }
            // Acquire pairs with the Release of the bit in `set_free`. Others may have been faster with some of the
            // bits: those that were still set are ours.
            let mut claimed = word.fetch_and(!wanted, Ordering::Acquire) & wanted;
            missing -= claimed.count_ones() as usize;
            while claimed != 0 {
                let block = index * WORD_BITS + claimed.trailing_zeros() as usize;
                // Relaxed: the block is nobody's but ours until we hand it on.
                self.references[block].store(1, Ordering::Relaxed);
                out.push(block as u32);
                claimed &= claimed - 1;
            }
            if missing == 0 {
                break;
            }
        }
        let reached = if missing == 0 { reached } else { end };
        if reached != hint {
            // Only from the value seen: a free that has lowered it meanwhile knows better.
            let _ = self.hints[part].compare_exchange(hint, reached, Ordering::Relaxed, Ordering::Relaxed);
        }
        missing
    }

    /// One more owner of a block that the caller has a reference to.
    ///
    /// # Panics
    /// If the block has no owner.
    pub fn share(&self, block: u32) {
        // Relaxed, as for `Arc`: the caller's own reference keeps the block, and it hands the new one on itself.
        let add = |owners: u32| (owners > 0).then(|| owners + 1);
        let shared = self.references[block as usize].fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        assert!(shared.is_ok(), "block {block} has no owner: it cannot be shared");
    }

    /// One owner less; gives how many are left. Without any the block is free.
    ///
    /// # Panics
    /// If the block has no owner.
    pub fn release(&self, block: u32) -> u32 {
        let left = self.drop_reference(block);
        if left == 0 {
            let word = block as usize / WORD_BITS;
            self.set_free(word, 1 << (block as usize % WORD_BITS));
            self.give_back(1);
        }
        left
    }

    /// `release` for many: neighbours become free together, and all of them are counted at once.
    ///
    /// # Panics
    /// If one of the blocks has no owner.
    pub fn release_all(&self, blocks: &[u32]) {
        let (mut word, mut bits, mut freed) = (0, 0, 0);
        for &block in blocks {
            if self.drop_reference(block) > 0 {
                continue;
            }
            let its_word = block as usize / WORD_BITS;
            if its_word != word {
                self.set_free(word, bits);
                (word, bits) = (its_word, 0);
            }
            bits |= 1 << (block as usize % WORD_BITS);
            freed += 1;
        }
        if freed > 0 {
            self.set_free(word, bits);
            self.give_back(freed);
        }
    }

    fn drop_reference(&self, block: u32) -> u32 {
        let references = &self.references[block as usize];
        // Acquire pairs with the Release below: what the owners before us did with the block is done.
        let owners = references.load(Ordering::Acquire);
        assert!(owners > 0, "block {block} has no owner: it cannot be freed twice");
        if owners == 1 {
            // The only owner is the caller, and only an owner may share: nobody else changes the count now.
            references.store(0, Ordering::Relaxed);
            return 0;
        }
        let before = references.fetch_sub(1, Ordering::Release);
        if before == 1 {
            // Pairs with the Release of those who let go between our two looks.
            fence(Ordering::Acquire);
        }
        before - 1
    }

    fn set_free(&self, word: usize, bits: u64) {
        // Release pairs with the Acquire in `claim`: the new owner sees what the old ones wrote.
        let before = self.free[word].fetch_or(bits, Ordering::Release);
        let twice = before & bits;
        let block = word * WORD_BITS + twice.trailing_zeros() as usize;
        assert!(twice == 0, "block {block} has no owner: it cannot be freed twice");
        let hint = &self.hints[word / self.part_words];
        if word < hint.load(Ordering::Relaxed) {
            hint.fetch_min(word, Ordering::Relaxed);
        }
    }

    /// Counts blocks whose bits are set.
    fn give_back(&self, count: usize) {
        // Release pairs with the Acquire in `allocate`: the bits come before the promise.
        self.num_free.fetch_add(count, Ordering::Release);
    }

    /// Whether bits and counts agree, with each other and with the `owners` that each block should have.
    /// Only at rest: while nobody allocates, shares or releases.
    pub fn check_invariants(&self, owners: Option<&[u32]>) -> Result<(), String> {
        let counts: Vec<u32> = self.references.iter().map(|count| count.load(Ordering::Acquire)).collect();
        if let Some(owners) = owners
            && owners != counts
        {
            return Err(format!("the blocks have {counts:?} owners, but should have {owners:?}"));
        }
        let mut num_free = 0;
        for (block, &count) in counts.iter().enumerate() {
            let word = self.free[block / WORD_BITS].load(Ordering::Acquire);
            let is_free = word >> (block % WORD_BITS) & 1 == 1;
            if is_free != (block != 0 && count == 0) {
                return Err(format!("block {block} has {count} owners, but is_free is {is_free}"));
            }
            num_free += usize::from(is_free);
        }
        if num_free != self.num_free() {
            return Err(format!("{num_free} blocks are free, but {} are counted", self.num_free()));
        }
        Ok(())
    }
}

/// The lowest `count` set bits of `word`, or all of them.
fn lowest(word: u64, count: usize) -> u64 {
    if word.count_ones() as usize <= count {
        return word;
    }
    let rest = (0..count).fold(word, |rest, _| rest & (rest - 1));
    word ^ rest
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn allocate(blocks: &BlockRefs, count: usize) -> Vec<u32> {
        let mut out = Vec::new();
        assert!(blocks.allocate(count, &mut out));
        blocks.check_invariants(None).unwrap();
        out
    }

    #[test]
    fn blocks_are_handed_out_from_the_lowest_free_number() {
        let blocks = BlockRefs::new(200);
        assert_eq!(allocate(&blocks, 100), (1..=100).collect::<Vec<_>>());
        blocks.release_all(&[70, 3, 4, 66]);
        assert_eq!(allocate(&blocks, 6), [3, 4, 66, 70, 101, 102]);
        assert_eq!((blocks.num_free(), blocks.num_blocks()), (97, 200));
    }

    #[test]
    fn an_allocation_gets_all_or_nothing() {
        for num_blocks in [0, 1, 2, 63, 64, 65, 128, 129] {
            let blocks = BlockRefs::new(num_blocks);
            let usable = num_blocks.saturating_sub(1);
            let mut out = Vec::new();
            assert!(!blocks.allocate(usable + 1, &mut out) && out.is_empty());
            assert!(blocks.allocate(usable, &mut out) && out.len() == usable);
            assert!(blocks.allocate(0, &mut out) && !blocks.allocate(1, &mut out));
            blocks.release_all(&out);
            blocks.check_invariants(Some(&vec![0; num_blocks])).unwrap();
        }
    }

    #[test]
    fn a_block_is_free_when_its_last_owner_has_let_go() {
        let blocks = BlockRefs::new(4);
        allocate(&blocks, 2);
        blocks.share(2);
        blocks.share(2);
        blocks.check_invariants(Some(&[0, 1, 3, 0])).unwrap();
        assert_eq!((blocks.release(2), blocks.num_free()), (2, 1));
        blocks.release_all(&[1, 2, 2]);
        assert_eq!((blocks.references(2), blocks.num_free()), (0, 3));
        blocks.check_invariants(Some(&[0; 4])).unwrap();
        assert!(blocks.check_invariants(Some(&[0, 1, 0, 0])).is_err());
    }

    #[test]
    #[should_panic(expected = "block 1 has no owner: it cannot be freed twice")]
    fn a_second_free_is_refused() {
        let blocks = BlockRefs::new(4);
        allocate(&blocks, 1);
        blocks.release(1);
        blocks.release(1);
    }

    #[test]
    #[should_panic(expected = "block 2 has no owner: it cannot be shared")]
    fn a_free_block_cannot_be_shared() {
        BlockRefs::new(4).share(2);
    }
}
