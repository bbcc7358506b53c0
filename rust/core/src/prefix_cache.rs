//! Which block holds which prefix: every hit confirmed, the least recently used forgotten first.
//!
//! Owns: the map from hash to block; for each published block its scope, parent and tokens; the order in which blocks
//! that nobody but the cache holds are given up. The cache is an owner like any other: it holds one reference to each
//! published block (`block_pool` takes and gives them back), so a published block is never written to.
//! Invariants: a hash names at most one block; a hit is confirmed against scope, parent and tokens, so that a
//! collision, found or forged, can never share KV; a published block's parent is published as long as it is; the tail
//! of a sequence is given up before its head.
//! One thread owns it, so nothing here is atomic. Must not know: sequences, who else holds a block.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::block_hash::{BlockHash, CacheScope};
use crate::block_pool::{BlockId, NULL_BLOCK};
use crate::error::{Error, Result};

/// The keys are hashes already, and keyed: their low half is as good as any.
#[derive(Default)]
struct LowHalf(u64);

impl Hasher for LowHalf {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("only u128 keys are hashed")
    }
    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

#[derive(Clone, Default)]
struct Entry {
    hash: [u64; 2],
    /// What the whole chain belongs to; the same for all its blocks.
    scope: CacheScope,
    parent: BlockId,
    /// Published blocks whose parent this one is.
    children: u32,
    is_published: bool,
    /// Whether only the cache holds the block: then it is in the list.
    is_idle: bool,
    previous: BlockId,
    next: BlockId,
}

/// What became of a block that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Publication {
    /// It can be hit from now on.
    Published,
    /// This other block holds the same prefix already.
    Duplicate(BlockId),
    /// Not published: another prefix has the same hash, or caching is off.
    Refused,
}

/// Hash → block, and what confirms a hit.
pub struct PrefixCache {
    block_size: usize,
    by_hash: HashMap<BlockHash, BlockId, BuildHasherDefault<LowHalf>>,
    /// By block; entry 0 is the sentinel of the list of idle blocks, the least recently used next to it.
    entries: Box<[Entry]>,
    num_idle: usize,
    /// `[num_blocks, block_size]`: the tokens of published blocks.
    tokens: Box<[u32]>,
}

impl PrefixCache {
    /// A cache for blocks 1 to `num_blocks` − 1.
    pub fn new(num_blocks: usize, block_size: usize) -> Self {
        Self {
            block_size,
            by_hash: HashMap::with_capacity_and_hasher(num_blocks, BuildHasherDefault::default()),
            entries: vec![Entry::default(); num_blocks].into_boxed_slice(),
            num_idle: 0,
            tokens: vec![0; num_blocks * block_size].into_boxed_slice(),
        }
    }

    /// Blocks that can be hit.
    pub fn num_published_blocks(&self) -> usize {
        self.by_hash.len()
    }

    /// Published blocks that nobody else holds.
    pub fn num_idle_blocks(&self) -> usize {
        self.num_idle
    }

    /// Whether `block` can be hit.
    pub fn is_published(&self, block: BlockId) -> bool {
        self.entries[block as usize].is_published
    }

    /// Whether only the cache holds `block`.
    pub fn is_idle(&self, block: BlockId) -> bool {
        self.entries[block as usize].is_idle
    }

    fn tokens_of(&self, block: BlockId) -> &[u32] {
        &self.tokens[block as usize * self.block_size..][..self.block_size]
    }

    fn holds(&self, block: BlockId, scope: &CacheScope, parent: BlockId, tokens: &[u32]) -> bool {
        let entry = &self.entries[block as usize];
        // With a parent the scope needs no look: the parent was found in it, and has it.
        entry.parent == parent
            && (parent != NULL_BLOCK || entry.scope == *scope)
            && self.tokens_of(block) == tokens
    }

    /// The block that holds exactly `tokens` after exactly `parent` (or, first of all, in exactly `scope`).
    pub fn find(
        &self,
        hash: BlockHash,
        scope: &CacheScope,
        parent: BlockId,
        tokens: &[u32],
    ) -> Option<BlockId> {
        let block = *self.by_hash.get(&hash)?;
        self.holds(block, scope, parent, tokens).then_some(block)
    }

    /// Offers `block`, which holds `tokens` after the published block `parent` (or at the root of `scope`).
    pub fn publish(
        &mut self,
        block: BlockId,
        hash: BlockHash,
        scope: &CacheScope,
        parent: BlockId,
        tokens: &[u32],
    ) -> Publication {
        debug_assert!(!self.is_published(block) && (parent == NULL_BLOCK || self.is_published(parent)));
        if let Some(&other) = self.by_hash.get(&hash) {
            let same = self.holds(other, scope, parent, tokens);
            return if same { Publication::Duplicate(other) } else { Publication::Refused };
        }
        self.by_hash.insert(hash, block);
        self.tokens[block as usize * self.block_size..][..self.block_size].copy_from_slice(tokens);
        self.entries[block as usize] = Entry {
            hash: [hash as u64, (hash >> 64) as u64],
            scope: scope.clone(),
            parent,
            is_published: true,
            ..Entry::default()
        };
        if parent != NULL_BLOCK {
            self.entries[parent as usize].children += 1;
        }
        Publication::Published
    }

    /// The last other owner has let go of a published block: the most recently used of the idle ones.
    pub fn set_idle(&mut self, block: BlockId) {
        debug_assert!(self.is_published(block) && !self.is_idle(block));
        let last = self.entries[NULL_BLOCK as usize].previous;
        let entry = &mut self.entries[block as usize];
        (entry.previous, entry.next, entry.is_idle) = (last, NULL_BLOCK, true);
        self.entries[last as usize].next = block;
        self.entries[NULL_BLOCK as usize].previous = block;
        self.num_idle += 1;
    }

    /// An idle block has an owner again.
    pub fn set_busy(&mut self, block: BlockId) {
        let entry = &mut self.entries[block as usize];
        debug_assert!(entry.is_idle);
        entry.is_idle = false;
        let (previous, next) = (entry.previous, entry.next);
        self.entries[previous as usize].next = next;
        self.entries[next as usize].previous = previous;
        self.num_idle -= 1;
    }

    /// Forgets the least recently used idle block; the caller gives the cache's reference back.
    pub fn evict(&mut self) -> Option<BlockId> {
        let block = self.entries[NULL_BLOCK as usize].next;
        if block == NULL_BLOCK {
            return None;
        }
        self.set_busy(block);
        let entry = std::mem::take(&mut self.entries[block as usize]);
        debug_assert_eq!(entry.children, 0, "the tail of a prefix goes before its head");
        self.by_hash.remove(&(u128::from(entry.hash[0]) | u128::from(entry.hash[1]) << 64));
        if entry.parent != NULL_BLOCK {
            self.entries[entry.parent as usize].children -= 1;
        }
        Some(block)
    }

    /// Checks everything this file promises.
    pub fn check_invariants(&self) -> Result<()> {
        let fail = |message: String| Err(Error::internal(message));
        let mut children = vec![0; self.entries.len()];
        let (mut published, mut idle) = (0, 0);
        for (block, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.is_published) {
            published += 1;
            idle += usize::from(entry.is_idle);
            let hash = u128::from(entry.hash[0]) | u128::from(entry.hash[1]) << 64;
            if self.by_hash.get(&hash) != Some(&(block as BlockId)) {
                return fail(format!("published block {block} is not found by its hash"));
            }
            if entry.parent != NULL_BLOCK {
                let parent = &self.entries[entry.parent as usize];
                if !parent.is_published || parent.scope != entry.scope {
                    return fail(format!("block {block} has no parent of its scope, got {}", entry.parent));
                }
                children[entry.parent as usize] += 1;
            }
        }
        if published != self.by_hash.len() {
            return fail(format!("{} hashes name {published} published blocks", self.by_hash.len()));
        }
        let mut listed = 0;
        let mut block = self.entries[NULL_BLOCK as usize].next;
        while block != NULL_BLOCK {
            let entry = &self.entries[block as usize];
            listed += 1;
            if !entry.is_idle || !entry.is_published || listed > idle {
                return fail(format!("block {block} is listed as idle: published {}", entry.is_published));
            }
            block = entry.next;
        }
        if listed != idle || idle != self.num_idle {
            return fail(format!("{idle} blocks are idle, {listed} listed, {} counted", self.num_idle));
        }
        match (0..children.len()).find(|&block| children[block] != self.entries[block].children) {
            None => Ok(()),
            Some(block) => fail(format!(
                "block {block} counts {} children but has {}",
                self.entries[block].children, children[block]
            )),
        }
    }
}
