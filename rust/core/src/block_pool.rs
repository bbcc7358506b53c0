//! The KV pool's blocks: who owns how many references, which are free, which are cached.
//!
//! Owns: the reference counts, the free list and the eviction order. One thread (the scheduler's) owns the pool,
//! so nothing here is atomic.
//! Invariants: free + cached + used = usable blocks (all but block 0, which padding writes to and which is never
//! handed out); a block is used iff it has references; cached iff it has none but carries a published prefix;
//! cached blocks are evicted least recently used first, and the tail of a sequence before its head.
//! Must not know: sequences, steps, what lies inside a block.

use crate::error::{Error, Result};
use crate::prefix_cache::{BlockHash, PrefixCache, Publication};

/// Number of a block. Block 0 stands for "none".
pub type BlockId = u32;

/// Never handed out; the sentinel of the eviction list.
pub const NULL_BLOCK: BlockId = 0;

#[derive(Clone, Copy, Default)]
struct Block {
    references: u32,
    /// Neighbours in the eviction list while the block is cached.
    previous: BlockId,
    next: BlockId,
}

/// Whether a pool can have this size.
pub fn check_size(num_blocks: usize, block_size: usize) -> Result<()> {
    if num_blocks < 2 {
        let message =
            format!("num_blocks must be at least 2 (block 0 is never handed out), got {num_blocks}");
        return Err(Error::invalid("num_blocks", message));
    }
    if block_size == 0 {
        return Err(Error::invalid("block_size", "block_size must be at least 1, got 0"));
    }
    let fits = num_blocks.checked_mul(block_size).is_some_and(|slots| i32::try_from(slots).is_ok());
    if !fits {
        let message = format!("num_blocks × block_size must be below 2^31, got {num_blocks} × {block_size}");
        return Err(Error::invalid("num_blocks", message));
    }
    Ok(())
}

/// `num_blocks` KV blocks with reference counts and, if enabled, a prefix cache.
pub struct BlockPool {
    block_size: usize,
    blocks: Box<[Block]>,
    free: Vec<BlockId>,
    num_cached: usize,
    cache: Option<PrefixCache>,
}

impl BlockPool {
    /// A pool of `num_blocks` blocks, block 0 included, of `block_size` tokens each.
    pub fn new(num_blocks: usize, block_size: usize, cache: Option<PrefixCache>) -> Result<Self> {
        check_size(num_blocks, block_size)?;
        Ok(Self {
            block_size,
            blocks: vec![Block::default(); num_blocks].into_boxed_slice(),
            // Popped from the end: low numbers first.
            free: (1..num_blocks as BlockId).rev().collect(),
            num_cached: 0,
            cache,
        })
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Blocks that can be handed out at all.
    pub fn num_usable_blocks(&self) -> usize {
        self.blocks.len() - 1
    }

    /// Blocks that hold nothing.
    pub fn num_free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Blocks without an owner whose contents may be hit again.
    pub fn num_cached_blocks(&self) -> usize {
        self.num_cached
    }

    /// Blocks with an owner.
    pub fn num_used_blocks(&self) -> usize {
        self.num_usable_blocks() - self.num_available_blocks()
    }

    /// Blocks that `allocate` can hand out now.
    pub fn num_available_blocks(&self) -> usize {
        self.free.len() + self.num_cached
    }

    /// The prefix cache, unless it is disabled.
    pub fn prefix_cache(&self) -> Option<&PrefixCache> {
        self.cache.as_ref()
    }

    /// Owners of `block`.
    pub fn references(&self, block: BlockId) -> u32 {
        self.blocks[block as usize].references
    }

    /// Appends `count` writable blocks with one owner each to `out`, or none at all if there are too few.
    #[must_use]
    pub fn allocate(&mut self, count: usize, out: &mut Vec<BlockId>) -> bool {
        if count > self.num_available_blocks() {
            return false;
        }
        for _ in 0..count {
            let block = self.free.pop().unwrap_or_else(|| self.evict());
            self.blocks[block as usize].references = 1;
            out.push(block);
        }
        true
    }

    /// Adds an owner to a block that is used or cached.
    ///
    /// # Panics
    /// If the block is free: there is nothing in it to share.
    pub fn share(&mut self, block: BlockId) {
        if self.blocks[block as usize].references == 0 {
            assert!(self.is_published(block), "block {block} is free: it cannot be shared");
            self.unlink(block);
        }
        self.blocks[block as usize].references += 1;
    }

    /// Takes one owner away. A published block without owners stays cached, any other is free.
    ///
    /// # Panics
    /// If the block has no owner: nothing is freed twice.
    pub fn free(&mut self, block: BlockId) {
        let entry = &mut self.blocks[block as usize];
        assert!(entry.references > 0, "block {block} has no owner: it cannot be freed twice");
        entry.references -= 1;
        if entry.references == 0 {
            if self.is_published(block) {
                self.link_most_recent(block);
            } else {
                self.free.push(block);
            }
        }
    }

    /// Frees the blocks of a sequence, its tail first, so that its tail is evicted first.
    pub fn free_sequence(&mut self, blocks: &[BlockId]) {
        for &block in blocks.iter().rev() {
            self.free(block);
        }
    }

    /// Appends the published blocks of the longest known prefix to `out`; `share` each to hold them.
    ///
    /// `hashes[i]` chains over the first `i + 1` blocks of `tokens`; no more than `hashes.len()` blocks are hit.
    pub fn find_prefix(&self, hashes: &[BlockHash], tokens: &[u32], out: &mut Vec<BlockId>) -> usize {
        let Some(cache) = self.cache.as_ref() else { return 0 };
        let start = out.len();
        let mut parent = NULL_BLOCK;
        for (&hash, tokens) in hashes.iter().zip(tokens.chunks_exact(self.block_size)) {
            let Some(block) = cache.find(hash, parent, tokens) else { break };
            out.push(block);
            parent = block;
        }
        out.len() - start
    }

    /// Makes a full block, owned by the caller, hittable by others. `parent` is the published block before it.
    pub fn publish(
        &mut self,
        block: BlockId,
        parent: BlockId,
        hash: BlockHash,
        tokens: &[u32],
    ) -> Publication {
        debug_assert!(self.blocks[block as usize].references > 0);
        match self.cache.as_mut() {
            Some(cache) => cache.publish(block, parent, hash, tokens),
            None => Publication::Refused,
        }
    }

    fn is_published(&self, block: BlockId) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.is_published(block))
    }

    /// The least recently used cached block, emptied.
    fn evict(&mut self) -> BlockId {
        let block = self.blocks[NULL_BLOCK as usize].next;
        debug_assert_ne!(block, NULL_BLOCK, "the caller has counted the blocks");
        self.unlink(block);
        if let Some(cache) = self.cache.as_mut() {
            cache.unpublish(block);
        }
        block
    }

    fn link_most_recent(&mut self, block: BlockId) {
        let last = self.blocks[NULL_BLOCK as usize].previous;
        self.blocks[block as usize].previous = last;
        self.blocks[block as usize].next = NULL_BLOCK;
        self.blocks[last as usize].next = block;
        self.blocks[NULL_BLOCK as usize].previous = block;
        self.num_cached += 1;
    }

    fn unlink(&mut self, block: BlockId) {
        let Block { previous, next, .. } = self.blocks[block as usize];
        self.blocks[previous as usize].next = next;
        self.blocks[next as usize].previous = previous;
        self.num_cached -= 1;
    }

    /// Checks everything this file promises; `owners[b]`, if given, is how many owners block b should have.
    pub fn check_invariants(&self, owners: Option<&[u32]>) -> Result<()> {
        let mut seen = vec![false; self.blocks.len()];
        let mut visit = |block: BlockId, place: &str| {
            if block == NULL_BLOCK || std::mem::replace(&mut seen[block as usize], true) {
                return Err(Error::internal(format!(
                    "block {block} is listed twice or never to be listed ({place})"
                )));
            }
            if self.references(block) != 0 {
                let references = self.references(block);
                return Err(Error::internal(format!("block {block} is {place} but has {references} owners")));
            }
            Ok(())
        };
        for &block in &self.free {
            visit(block, "free")?;
            if self.is_published(block) {
                return Err(Error::internal(format!("block {block} is free but published")));
            }
        }
        let mut cached = 0;
        let mut block = self.blocks[NULL_BLOCK as usize].next;
        while block != NULL_BLOCK {
            visit(block, "cached")?;
            if !self.is_published(block) {
                return Err(Error::internal(format!("block {block} is cached but not published")));
            }
            cached += 1;
            block = self.blocks[block as usize].next;
        }
        let used = (1..self.blocks.len()).filter(|&block| self.references(block as BlockId) > 0).count();
        if cached != self.num_cached || self.free.len() + cached + used != self.num_usable_blocks() {
            return Err(Error::internal(format!(
                "free {} + cached {cached} (counted {}) + used {used} is not the pool's {} blocks",
                self.free.len(),
                self.num_cached,
                self.num_usable_blocks(),
            )));
        }
        if let Some(owners) = owners {
            for (block, &expected) in owners.iter().enumerate() {
                let references = self.references(block as BlockId);
                if references != expected {
                    return Err(Error::internal(format!(
                        "block {block} counts {references} references but has {expected} owners"
                    )));
                }
            }
        }
        match &self.cache {
            Some(cache) => cache.check_invariants(),
            None => Ok(()),
        }
    }
}
