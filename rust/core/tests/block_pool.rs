//! The block pool and its prefix cache against a naive model: lists, full token prefixes, no hashes.

use std::collections::{BTreeMap, BTreeSet};

use pagurid_core::block_hash::{BlockHasher, CacheScope};
use pagurid_core::block_pool::{BlockId, BlockPool, NULL_BLOCK};
use pagurid_core::prefix_cache::{PrefixCache, Publication};
use proptest::prelude::*;

const NUM_BLOCKS: usize = 9;
const BLOCK_SIZE: usize = 2;

fn pool(hash_bits: u32) -> (BlockPool, BlockHasher) {
    let cache = PrefixCache::new(NUM_BLOCKS, BLOCK_SIZE);
    let pool = BlockPool::new(NUM_BLOCKS, BLOCK_SIZE, Some(cache)).unwrap();
    (pool, BlockHasher::new(BLOCK_SIZE, hash_bits).unwrap())
}

/// What the pool should be, kept in the plainest way.
struct Model {
    owners: BTreeMap<BlockId, u32>,
    free: BTreeSet<BlockId>,
    /// Least recently used first.
    cached: Vec<BlockId>,
    /// All tokens up to the end of each published block.
    contents: BTreeMap<BlockId, Vec<u32>>,
}

impl Model {
    fn new() -> Self {
        let free = (1..NUM_BLOCKS as BlockId).collect();
        Self { owners: BTreeMap::new(), free, cached: Vec::new(), contents: BTreeMap::new() }
    }

    fn allocated(&mut self, blocks: &[BlockId]) {
        // As many as are missing are given up, the least recently used first; which of the free ones are taken is free.
        for block in self.cached.drain(..blocks.len().saturating_sub(self.free.len())) {
            self.contents.remove(&block);
            self.free.insert(block);
        }
        for &block in blocks {
            assert!(self.free.remove(&block), "block {block} is free, or was the least recently used");
            self.owners.insert(block, 1);
        }
    }

    fn shared(&mut self, block: BlockId) {
        self.cached.retain(|&other| other != block);
        *self.owners.entry(block).or_insert(0) += 1;
    }

    fn freed(&mut self, block: BlockId) {
        let owners = self.owners.get_mut(&block).unwrap();
        *owners -= 1;
        if *owners == 0 {
            self.owners.remove(&block);
            if self.contents.contains_key(&block) {
                self.cached.push(block);
            } else {
                self.free.insert(block);
            }
        }
    }

    fn check(&self, pool: &BlockPool) {
        let mut owners = vec![0; NUM_BLOCKS];
        self.owners.iter().for_each(|(&block, &count)| owners[block as usize] = count);
        pool.check_invariants(Some(&owners)).unwrap();
        assert_eq!(pool.num_free_blocks(), self.free.len());
        assert_eq!(pool.num_cached_blocks(), self.cached.len());
        assert_eq!(pool.num_used_blocks(), self.owners.len());
        assert_eq!(pool.prefix_cache().unwrap().num_published_blocks(), self.contents.len());
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// A sequence with these tokens: hit, allocate, publish.
    Start(Vec<u32>),
    /// Another owner for all blocks of a sequence.
    Fork(prop::sample::Index),
    /// A sequence ends.
    End(prop::sample::Index),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => prop::collection::vec(0..2_u32, 1..12).prop_map(Op::Start),
        1 => any::<prop::sample::Index>().prop_map(Op::Fork),
        3 => any::<prop::sample::Index>().prop_map(Op::End),
    ]
}

fn run(ops: Vec<Op>, hash_bits: u32) {
    let (mut pool, hasher) = pool(hash_bits);
    let mut model = Model::new();
    let mut sequences: Vec<Vec<BlockId>> = Vec::new();
    for op in ops {
        match op {
            Op::Start(tokens) => {
                let hashes = hasher.chain(&CacheScope::default(), &tokens);
                let mut blocks = Vec::new();
                let hits = pool.find_prefix(&hashes, &CacheScope::default(), &tokens, &mut blocks);
                for (at, &block) in blocks.iter().enumerate() {
                    assert_eq!(
                        model.contents[&block],
                        tokens[..(at + 1) * BLOCK_SIZE],
                        "a hit is the same prefix"
                    );
                    pool.share(block);
                    model.shared(block);
                }
                let missing = tokens.len().div_ceil(BLOCK_SIZE) - hits;
                let fits = missing <= model.free.len() + model.cached.len();
                assert_eq!(pool.allocate(missing, &mut blocks), fits, "all or nothing");
                if fits {
                    model.allocated(&blocks[hits..]);
                    publish(&mut pool, &mut model, &hashes, &tokens, &mut blocks, hits);
                } else {
                    assert_eq!(blocks.len(), hits);
                }
                sequences.push(blocks);
            }
            Op::Fork(index) if !sequences.is_empty() => {
                let blocks = index.get(&sequences).clone();
                for &block in &blocks {
                    pool.share(block);
                    model.shared(block);
                }
                sequences.push(blocks);
            }
            Op::End(index) if !sequences.is_empty() => {
                let blocks = sequences.swap_remove(index.index(sequences.len()));
                pool.release_sequence(&blocks);
                blocks.iter().rev().for_each(|&block| model.freed(block));
            }
            Op::Fork(_) | Op::End(_) => {}
        }
        model.check(&pool);
    }
    for blocks in sequences {
        pool.release_sequence(&blocks);
    }
    assert_eq!(pool.num_used_blocks(), 0);
    pool.check_invariants(Some(&[0; NUM_BLOCKS])).unwrap();
}

fn publish(
    pool: &mut BlockPool,
    model: &mut Model,
    hashes: &[u128],
    tokens: &[u32],
    blocks: &mut [BlockId],
    hits: usize,
) {
    for at in hits..hashes.len() {
        let prefix = &tokens[..(at + 1) * BLOCK_SIZE];
        let parent = if at == 0 { NULL_BLOCK } else { blocks[at - 1] };
        let known = model.contents.iter().find(|(_, contents)| *contents == prefix).map(|(&block, _)| block);
        match pool.publish(blocks[at], hashes[at], &CacheScope::default(), parent, &prefix[at * BLOCK_SIZE..])
        {
            Publication::Published => {
                assert_eq!(known, None);
                model.contents.insert(blocks[at], prefix.to_vec());
            }
            Publication::Duplicate(other) => {
                assert_eq!(known, Some(other));
                pool.share(other);
                model.shared(other);
                pool.release(blocks[at]);
                model.freed(blocks[at]);
                blocks[at] = other;
            }
            // A collision: this block and what follows stays private.
            Publication::Refused => break,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), ..ProptestConfig::default() })]

    #[test]
    fn the_pool_is_the_model(ops in prop::collection::vec(op(), 1..60)) {
        run(ops, 128);
    }

    /// D17: with hashes of 0 to 3 bits nearly everything collides, and nothing wrong is ever shared.
    #[test]
    fn d17_collisions_never_share(ops in prop::collection::vec(op(), 1..60), hash_bits in 0..4_u32) {
        run(ops, hash_bits);
    }
}

#[test]
fn d17_the_same_block_under_another_parent_is_no_hit() {
    for hash_bits in [128, 0] {
        let (mut pool, hasher) = pool(hash_bits);
        let mut blocks = Vec::new();
        assert!(pool.allocate(2, &mut blocks));
        let tokens = [1, 2, 7, 8];
        let hashes = hasher.chain(&CacheScope::default(), &tokens);
        assert_eq!(
            pool.publish(blocks[0], hashes[0], &CacheScope::default(), NULL_BLOCK, &tokens[..2]),
            Publication::Published
        );
        pool.publish(blocks[1], hashes[1], &CacheScope::default(), blocks[0], &tokens[2..]);
        for other in [[3, 4, 7, 8], [7, 8, 1, 2]] {
            assert_eq!(
                pool.find_prefix(
                    &hasher.chain(&CacheScope::default(), &other),
                    &CacheScope::default(),
                    &other,
                    &mut Vec::new()
                ),
                0
            );
        }
    }
}

#[test]
fn the_tail_is_evicted_before_the_head() {
    let (mut pool, hasher) = pool(128);
    let tokens: Vec<u32> = (0..16).collect();
    let hashes = hasher.chain(&CacheScope::default(), &tokens);
    let mut blocks = Vec::new();
    assert!(pool.allocate(8, &mut blocks));
    for at in 0..8 {
        let parent = if at == 0 { NULL_BLOCK } else { blocks[at - 1] };
        pool.publish(blocks[at], hashes[at], &CacheScope::default(), parent, &tokens[at * 2..][..2]);
    }
    pool.release_sequence(&blocks);
    assert_eq!((pool.num_free_blocks(), pool.num_cached_blocks()), (0, 8));
    let mut taken = Vec::new();
    assert!(pool.allocate(3, &mut taken));
    assert_eq!(pool.find_prefix(&hashes, &CacheScope::default(), &tokens, &mut Vec::new()), 5);
}

#[test]
#[should_panic(expected = "cannot be freed twice")]
fn d20_freeing_twice_is_refused() {
    let (mut pool, _) = pool(128);
    let mut blocks = Vec::new();
    assert!(pool.allocate(1, &mut blocks));
    pool.release(blocks[0]);
    pool.release(blocks[0]);
}

#[test]
fn sizes_are_checked() {
    for (num_blocks, block_size, param) in
        [(1, 16, "num_blocks"), (2, 0, "block_size"), (1 << 30, 16, "num_blocks")]
    {
        let error = BlockPool::new(num_blocks, block_size, None).err().unwrap();
        assert_eq!(error.param, Some(param), "{error}");
    }
}
