//! The shape of one layer's KV cache.
//!
//! `k_cache` is `[num_blocks, kv_heads, head_dim, block_size]`: transposed inside a block, so that one vector
//! holds one dimension of 16 keys and scores need no sums across lanes. `v_cache` is `[num_blocks, kv_heads,
//! block_size, head_dim]`.

use crate::InvalidArgument;
use crate::rows::check_rows;

/// Sizes of `k_cache` and `v_cache`.
#[derive(Debug, Clone, Copy)]
pub struct KvCacheShape {
    /// Blocks of the pool.
    pub num_blocks: usize,
    /// Heads of K and V.
    pub kv_heads: usize,
    /// Floats of a head.
    pub head_dim: usize,
    /// Tokens of a block.
    pub block_size: usize,
}

impl KvCacheShape {
    /// Floats in `k_cache`, and in `v_cache`.
    pub fn len(&self) -> usize {
        self.num_blocks * self.kv_heads * self.head_dim * self.block_size
    }

    /// Whether there is room for nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies blocks of `k_cache` or of `v_cache`; `pairs` [n, 2] are (from, to). All reads come first.
    pub fn copy_blocks(&self, cache: &mut [f32], pairs: &[i32]) -> Result<(), InvalidArgument> {
        if pairs.is_empty() {
            return Ok(());
        }
        check_rows(pairs, self.num_blocks)?;
        let block = self.kv_heads * self.head_dim * self.block_size;
        let at = |number: i32| number as usize * block..(number as usize + 1) * block;
        let read: Vec<f32> = pairs.chunks_exact(2).flat_map(|pair| &cache[at(pair[0])]).copied().collect();
        for (pair, copy) in pairs.chunks_exact(2).zip(read.chunks_exact(block)) {
            cache[at(pair[1])].copy_from_slice(copy);
        }
        Ok(())
    }

    /// Where one head of one block starts, in either cache.
    #[inline(always)]
    pub(crate) fn head_at(&self, block: usize, kv_head: usize) -> usize {
        (block * self.kv_heads + kv_head) * self.head_dim * self.block_size
    }
}
