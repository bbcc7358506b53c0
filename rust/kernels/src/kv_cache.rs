//! The shape of one layer's KV cache.
//!
//! `k_cache` is `[num_blocks, kv_heads, head_dim, block_size]`: transposed inside a block, so that one vector
//! holds one dimension of 16 keys and scores need no sums across lanes. `v_cache` is `[num_blocks, kv_heads,
//! block_size, head_dim]`.

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

    /// Where one head of one block starts, in either cache.
    #[inline(always)]
    pub(crate) fn head_at(&self, block: usize, kv_head: usize) -> usize {
        (block * self.kv_heads + kv_head) * self.head_dim * self.block_size
    }
}
