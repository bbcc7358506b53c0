//! The KV pool as the scheduler sees it: blocks with owners, and what the prefix cache keeps of them.
//!
//! Owns: the agreement between the two halves. `BlockRefs` counts owners and hands out free blocks, lock-free and from
//! any thread; the prefix cache is one of these owners and belongs to the scheduler's thread, as does this.
//! Invariants: free + cached + used = usable blocks (all but block 0, which padding writes to and which is never
//! handed out); a block is cached iff only the prefix cache holds it; a block may be written to iff it has one owner.
//! Must not know: sequences, steps, what lies inside a block.

use std::sync::Arc;

use pagurid_lockfree::BlockRefs;

use crate::block_hash::{BlockHash, CacheScope};
use crate::error::{Error, Result};
use crate::prefix_cache::{PrefixCache, Publication};

/// Number of a block. Block 0 stands for "none".
pub type BlockId = u32;

/// Never handed out.
pub const NULL_BLOCK: BlockId = 0;

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
    refs: Arc<BlockRefs>,
    cache: Option<PrefixCache>,
}

impl BlockPool {
    /// A pool of `num_blocks` blocks, block 0 included, of `block_size` tokens each.
    pub fn new(num_blocks: usize, block_size: usize, cache: Option<PrefixCache>) -> Result<Self> {
        check_size(num_blocks, block_size)?;
        Ok(Self { block_size, refs: Arc::new(BlockRefs::new(num_blocks)), cache })
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// The half that any thread may use: to hold a block while a copy of it is under way, for example.
    pub fn refs(&self) -> &Arc<BlockRefs> {
        &self.refs
    }

    /// Blocks that can be handed out at all.
    pub fn num_usable_blocks(&self) -> usize {
        self.refs.num_blocks() - 1
    }

    /// Blocks that hold nothing.
    pub fn num_free_blocks(&self) -> usize {
        self.refs.num_free()
    }

    /// Blocks that only the prefix cache holds: their contents may be hit again.
    pub fn num_cached_blocks(&self) -> usize {
        self.cache.as_ref().map_or(0, PrefixCache::num_idle_blocks)
    }

    /// Blocks with an owner other than the prefix cache.
    pub fn num_used_blocks(&self) -> usize {
        self.num_usable_blocks() - self.num_available_blocks()
    }

    /// Blocks that `allocate` can hand out now.
    pub fn num_available_blocks(&self) -> usize {
        self.num_free_blocks() + self.num_cached_blocks()
    }

    /// The prefix cache, unless it is disabled.
    pub fn prefix_cache(&self) -> Option<&PrefixCache> {
        self.cache.as_ref()
    }

    /// Owners of `block`, the prefix cache included.
    pub fn references(&self, block: BlockId) -> u32 {
        self.refs.references(block)
    }

    /// Owners of `block`, the prefix cache not counted.
    pub fn owners(&self, block: BlockId) -> u32 {
        let is_published = self.cache.as_ref().is_some_and(|cache| cache.is_published(block));
        self.references(block) - u32::from(is_published)
    }

    /// Whether only the prefix cache holds `block`.
    pub fn is_cached(&self, block: BlockId) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.is_idle(block))
    }

    /// Appends `count` writable blocks with one owner each to `out`, or none at all if there are too few.
    #[must_use]
    pub fn allocate(&mut self, count: usize, out: &mut Vec<BlockId>) -> bool {
        // A loop, because other threads may take what was just made free.
        while !self.refs.allocate(count, out) {
            let missing = count.saturating_sub(self.refs.num_free()).max(1);
            if missing > self.num_cached_blocks() {
                return false;
            }
            for _ in 0..missing {
                let evicted = self.cache.as_mut().and_then(PrefixCache::evict);
                self.refs.release(evicted.expect("the cached blocks were counted"));
            }
        }
        true
    }

    /// Adds an owner to a block that is used or cached.
    ///
    /// # Panics
    /// If the block is free: there is nothing in it to share.
    pub fn share(&mut self, block: BlockId) {
        self.refs.share(block);
        if let Some(cache) = self.cache.as_mut()
            && cache.is_idle(block)
        {
            cache.set_busy(block);
        }
    }

    /// Takes one owner away. A published block without other owners stays cached, any other is free.
    ///
    /// # Panics
    /// If the block has no owner: nothing is freed twice.
    pub fn release(&mut self, block: BlockId) {
        let left = self.refs.release(block);
        if left == 1
            && let Some(cache) = self.cache.as_mut()
            && cache.is_published(block)
        {
            cache.set_idle(block);
        }
    }

    /// Releases the blocks of a sequence, its tail first, so that its tail is evicted first.
    pub fn release_sequence(&mut self, blocks: &[BlockId]) {
        if self.cache.is_none() {
            self.refs.release_all(blocks);
            return;
        }
        for &block in blocks.iter().rev() {
            self.release(block);
        }
    }

    /// Finds published blocks whose last other owner was another thread, which could not tell the cache.
    pub fn notice_idle(&mut self) {
        let Some(cache) = self.cache.as_mut() else { return };
        for block in 1..self.refs.num_blocks() as BlockId {
            if cache.is_published(block) && !cache.is_idle(block) && self.refs.references(block) == 1 {
                cache.set_idle(block);
            }
        }
    }

    /// Appends the published blocks of the longest known prefix to `out`; `share` each to hold them.
    ///
    /// `hashes[i]` chains over the first `i + 1` blocks of `tokens`; no more than `hashes.len()` blocks are hit.
    pub fn find_prefix(
        &self,
        hashes: &[BlockHash],
        scope: &CacheScope,
        tokens: &[u32],
        out: &mut Vec<BlockId>,
    ) -> usize {
        let Some(cache) = self.cache.as_ref() else { return 0 };
        let start = out.len();
        let mut parent = NULL_BLOCK;
        for (&hash, tokens) in hashes.iter().zip(tokens.chunks_exact(self.block_size)) {
            let Some(block) = cache.find(hash, scope, parent, tokens) else { break };
            out.push(block);
            parent = block;
        }
        out.len() - start
    }

    /// Makes a full block, owned by the caller, hittable by others: the cache becomes one more owner.
    ///
    /// `parent` is the published block before it.
    pub fn publish(
        &mut self,
        block: BlockId,
        hash: BlockHash,
        scope: &CacheScope,
        parent: BlockId,
        tokens: &[u32],
    ) -> Publication {
        let Some(cache) = self.cache.as_mut() else { return Publication::Refused };
        if cache.is_published(block) {
            // By another owner of the same block.
            return Publication::Published;
        }
        let publication = cache.publish(block, hash, scope, parent, tokens);
        if publication == Publication::Published {
            self.refs.share(block);
        }
        publication
    }

    /// Checks everything this file promises; `owners[b]`, if given, is how many owners block b should have, the prefix
    /// cache not counted. Only while no other thread changes anything.
    pub fn check_invariants(&self, owners: Option<&[u32]>) -> Result<()> {
        let all_owners = owners.map(|owners| {
            let published =
                |block| u32::from(self.cache.as_ref().is_some_and(|cache| cache.is_published(block)));
            let owners = owners.iter().enumerate();
            owners.map(|(block, &count)| count + published(block as BlockId)).collect::<Vec<_>>()
        });
        self.refs.check_invariants(all_owners.as_deref()).map_err(Error::internal)?;
        let Some(cache) = &self.cache else { return Ok(()) };
        cache.check_invariants()?;
        for block in 1..self.refs.num_blocks() as BlockId {
            let (published, idle) = (cache.is_published(block), cache.is_idle(block));
            let references = self.references(block);
            if published && (references == 0 || idle && references > 1) {
                return Err(Error::internal(format!(
                    "block {block} is published with {references} owners, idle {idle}"
                )));
            }
        }
        Ok(())
    }
}
