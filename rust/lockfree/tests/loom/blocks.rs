//! Allocating, sharing and releasing blocks.

use pagurid_lockfree::BlockRefs;

use crate::race::race;
use crate::tracked::Tracked;

/// Blocks with contents: whoever writes a block must come after all who had it before.
struct Pool {
    blocks: BlockRefs,
    contents: Vec<Tracked<u32>>,
    /// Allocated at the start.
    held: Vec<u32>,
}

impl Pool {
    fn new(num_blocks: usize, num_held: usize) -> Self {
        let contents = (0..num_blocks).map(|_| Tracked::default()).collect();
        let pool = Self { blocks: BlockRefs::new(num_blocks), contents, held: Vec::new() };
        let held = pool.allocate(num_held);
        Self { held, ..pool }
    }

    /// Block 1 with two owners; there is no other.
    fn with_a_shared_block() -> Self {
        let pool = Self::new(2, 1);
        pool.blocks.share(1);
        pool
    }

    /// Allocates and writes the blocks; none if there are too few.
    fn allocate(&self, count: usize) -> Vec<u32> {
        let mut held = Vec::new();
        let allocated = self.blocks.allocate(count, &mut held);
        assert_eq!(held.len(), if allocated { count } else { 0 });
        for &block in &held {
            assert_eq!(self.blocks.references(block), 1);
            self.contents[block as usize].write(|content| *content = block);
        }
        held
    }

    /// Reads the block and lets go of it; gives it if that was the last owner.
    fn release(&self, block: u32) -> Vec<u32> {
        self.contents[block as usize].read(|&content| assert_eq!(content, block));
        if self.blocks.release(block) == 0 { vec![block] } else { Vec::new() }
    }

    fn release_first(&self) -> Vec<u32> {
        self.release(self.held[0]);
        Vec::new()
    }

    /// `held` are all the blocks that have an owner.
    fn assert_held(&self, held: &[u32]) {
        let mut owners = vec![0; self.contents.len()];
        for &block in held {
            owners[block as usize] += 1;
        }
        assert!(owners.iter().all(|&owners| owners < 2), "handed out twice: {held:?}");
        self.blocks.check_invariants(Some(&owners)).unwrap();
    }
}

#[test]
fn alloc_vs_free_vs_alloc_hands_out_no_block_twice() {
    race(
        || Pool::new(3, 1),
        [|pool: &Pool| pool.allocate(1), Pool::release_first, |pool| pool.allocate(1)],
        |pool, results| {
            let mut held = results.concat();
            assert!(!held.is_empty(), "one block was free all along");
            pool.assert_held(&held);
            held.extend(pool.allocate(2 - held.len()));
            pool.assert_held(&held);
            assert_eq!(pool.blocks.num_free(), 0, "none is lost");
        },
    );
}

#[test]
fn free_vs_a_reserved_alloc_the_new_owner_sees_what_the_old_one_did() {
    // The allocation may reserve the other block and then claim the one that is freed.
    race(
        || Pool::new(3, 1),
        [|pool: &Pool| pool.allocate(1), Pool::release_first],
        |pool, results| {
            assert_eq!(results[0].len(), 1);
            pool.assert_held(&results[0]);
        },
    );
}

#[test]
fn alloc_two_vs_alloc_two_gets_all_or_nothing() {
    let both = |pool: &Pool| {
        let held = pool.allocate(2);
        pool.blocks.release_all(&held);
        held
    };
    race(
        || Pool::new(4, 0),
        [both, both],
        |pool, results| {
            assert!(!results.concat().is_empty(), "one of them had enough");
            pool.assert_held(&[]);
        },
    );
}

#[test]
fn alloc_across_two_words_vs_free_finds_its_blocks_on_a_second_pass() {
    race(
        || {
            let pool = Pool::new(66, 65);
            // Free are one block in the second word and, soon, one in the first.
            pool.release(65);
            pool
        },
        [
            |pool: &Pool| pool.allocate(1),
            |pool| {
                pool.release_first();
                pool.allocate(1)
            },
        ],
        |pool, results| {
            assert_eq!(results.concat().len(), 2);
            pool.assert_held(&[results.concat(), pool.held[1..64].to_vec()].concat());
        },
    );
}

#[test]
fn release_vs_release_vs_alloc_the_last_owner_frees_once() {
    race(
        Pool::with_a_shared_block,
        [
            |pool: &Pool| (pool.release(1), Vec::new()),
            |pool| (pool.release(1), Vec::new()),
            |pool| (Vec::new(), pool.allocate(1)),
        ],
        |pool, results| {
            let (freed, held): (Vec<_>, Vec<_>) = results.into_iter().unzip();
            assert_eq!(freed.concat(), [1], "exactly one was the last");
            pool.assert_held(&held.concat());
        },
    );
}

#[test]
fn share_vs_release_keeps_the_block_until_the_last() {
    race(
        Pool::with_a_shared_block,
        [
            |pool: &Pool| pool.release(1),
            |pool| {
                pool.blocks.share(1);
                assert_eq!(pool.release(1), [], "we have another one");
                pool.release(1)
            },
        ],
        |pool, freed| {
            assert_eq!(freed.concat(), [1], "exactly one was the last");
            pool.assert_held(&[]);
            assert_eq!(pool.allocate(1), [1]);
        },
    );
}
