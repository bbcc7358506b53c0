//! `_core.BlockPool`: the pool and its prefix cache alone, for those who schedule by themselves.
//!
//! Owns: the checks that make a wrong call an exception; the pool itself trusts its caller.
//! Must not know: sequences, steps.

use std::collections::HashMap;

use pagurid_core::block_hash::{BlockHasher, CacheScope};
use pagurid_core::block_pool::{self, BlockId, NULL_BLOCK};
use pagurid_core::error::Error;
use pagurid_core::prefix_cache::{PrefixCache, Publication};
use pyo3::prelude::*;

use crate::errors::to_python;

/// `num_blocks` KV blocks with reference counts and a prefix cache. Block 0 is never handed out.
#[pyclass(module = "pagurid._core")]
pub struct BlockPool {
    pool: block_pool::BlockPool,
    hasher: Option<BlockHasher>,
    num_blocks: usize,
}

impl BlockPool {
    fn check(&self, block_ids: &[BlockId]) -> PyResult<()> {
        for &block in block_ids {
            if block == NULL_BLOCK || block as usize >= self.num_blocks {
                let message = format!("block ids must be in 1..{}, got {block}", self.num_blocks);
                return Err(to_python(&Error::invalid("block_ids", message)));
            }
        }
        Ok(())
    }

    fn check_owned(&self, block_ids: &[BlockId]) -> PyResult<()> {
        self.check(block_ids)?;
        let mut claims = HashMap::new();
        for &block in block_ids {
            let claimed = claims.entry(block).or_insert(0);
            *claimed += 1;
            let references = self.pool.owners(block);
            if *claimed > references {
                let message =
                    format!("block {block} has {references} owners, fewer than this call speaks for");
                return Err(to_python(&Error::invalid("block_ids", message)));
            }
        }
        Ok(())
    }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)] // what Python hands over arrives by value
impl BlockPool {
    #[new]
    #[pyo3(signature = (num_blocks, block_size, *, enable_prefix_caching = true, hash_bits = 128))]
    fn new(
        num_blocks: usize,
        block_size: usize,
        enable_prefix_caching: bool,
        hash_bits: u32,
    ) -> PyResult<Self> {
        let build = || {
            block_pool::check_size(num_blocks, block_size)?;
            let hasher =
                if enable_prefix_caching { Some(BlockHasher::new(block_size, hash_bits)?) } else { None };
            let cache = hasher.is_some().then(|| PrefixCache::new(num_blocks, block_size));
            let pool = block_pool::BlockPool::new(num_blocks, block_size, cache)?;
            Ok(Self { pool, hasher, num_blocks })
        };
        build().map_err(|error| to_python(&error))
    }

    #[getter]
    fn num_blocks(&self) -> usize {
        self.num_blocks
    }
    #[getter]
    fn block_size(&self) -> usize {
        self.pool.block_size()
    }
    /// blocks that can be handed out at all: all but block 0
    #[getter]
    fn num_usable_blocks(&self) -> usize {
        self.pool.num_usable_blocks()
    }
    /// blocks that hold nothing
    #[getter]
    fn num_free_blocks(&self) -> usize {
        self.pool.num_free_blocks()
    }
    /// blocks without an owner that a lookup can still hit
    #[getter]
    fn num_cached_blocks(&self) -> usize {
        self.pool.num_cached_blocks()
    }
    /// blocks with an owner
    #[getter]
    fn num_used_blocks(&self) -> usize {
        self.pool.num_used_blocks()
    }

    /// Blocks with one owner each, evicting cached ones if need be; None, and nothing taken, if there are too few.
    #[pyo3(signature = (count = 1))]
    fn allocate(&mut self, count: usize) -> Option<Vec<BlockId>> {
        let mut blocks = Vec::new();
        self.pool.allocate(count, &mut blocks).then_some(blocks)
    }

    /// One more owner for each of these blocks, which must have one.
    fn share(&mut self, block_ids: Vec<BlockId>) -> PyResult<()> {
        self.check_owned(&block_ids)?;
        for &block in &block_ids {
            self.pool.share(block);
        }
        Ok(())
    }

    /// One owner less for each block of a sequence, in the sequence's order: its tail is evicted before its head.
    fn free(&mut self, block_ids: Vec<BlockId>) -> PyResult<()> {
        self.check_owned(&block_ids)?;
        self.pool.release_sequence(&block_ids);
        Ok(())
    }

    /// Owners of a block.
    fn references(&self, block_id: BlockId) -> PyResult<u32> {
        self.check(&[block_id])?;
        Ok(self.pool.owners(block_id))
    }

    /// The cached blocks of the longest known prefix of these tokens, with one more owner each.
    fn lookup(&mut self, token_ids: Vec<u32>) -> Vec<BlockId> {
        let mut blocks = Vec::new();
        if let Some(hasher) = &self.hasher {
            let scope = CacheScope::default();
            let hashes = hasher.chain(&scope, &token_ids);
            self.pool.find_prefix(&hashes, &scope, &token_ids, &mut blocks);
            for &block in &blocks {
                self.pool.share(block);
            }
        }
        blocks
    }

    /// Makes the full blocks of a sequence hittable; `block_ids` are its blocks, computed and owned.
    ///
    /// Returns the sequence's blocks from now on: a block that the cache already held under another number is
    /// exchanged for it, and the owner's reference goes along.
    fn publish(&mut self, mut block_ids: Vec<BlockId>, token_ids: Vec<u32>) -> PyResult<Vec<BlockId>> {
        self.check_owned(&block_ids)?;
        let (Some(hasher), block_size) = (&self.hasher, self.pool.block_size()) else { return Ok(block_ids) };
        let scope = CacheScope::default();
        let hashes = hasher.chain(&scope, &token_ids);
        let mut parent = NULL_BLOCK;
        for ((block, hash), tokens) in
            block_ids.iter_mut().zip(hashes).zip(token_ids.chunks_exact(block_size))
        {
            let cache = self.pool.prefix_cache().expect("there is a hasher only with a cache");
            if cache.is_published(*block) {
                if cache.find(hash, &scope, parent, tokens) != Some(*block) {
                    let message =
                        format!("block {block} is published with other tokens or after another block");
                    return Err(to_python(&Error::invalid("block_ids", message)));
                }
            } else {
                match self.pool.publish(*block, hash, &scope, parent, tokens) {
                    Publication::Published => {}
                    Publication::Duplicate(other) => {
                        self.pool.share(other);
                        self.pool.release(*block);
                        *block = other;
                    }
                    Publication::Refused => break,
                }
            }
            parent = *block;
        }
        Ok(block_ids)
    }

    /// Raises `InternalError` naming the invariant that does not hold.
    fn check_invariants(&self) -> PyResult<()> {
        self.pool.check_invariants(None).map_err(|error| to_python(&error))
    }

    fn __repr__(&self) -> String {
        format!(
            "BlockPool(num_blocks={}, block_size={}, free={}, cached={}, used={})",
            self.num_blocks,
            self.block_size(),
            self.num_free_blocks(),
            self.num_cached_blocks(),
            self.num_used_blocks()
        )
    }
}
