//! What a tape is made of: a kernel, its activations by number, its weights by address.

use std::sync::Arc;

use super::tensor::{Tensor, WeightTensor};
use crate::kv_cache::KvCacheShape;
use crate::quantized::{ActivationType, PackedLinear};

/// Number of an activation of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value(pub(super) usize);

impl Value {
    /// Its number.
    pub fn number(self) -> usize {
        self.0
    }
}

/// One layer's KV cache.
pub struct LayerCache {
    /// `[num_blocks, kv_heads, head_dim, block_size]`
    pub k: Tensor,
    /// `[num_blocks, kv_heads, block_size, head_dim]`
    pub v: Tensor,
    /// Of both.
    pub shape: KvCacheShape,
}

pub(super) enum Operation {
    Embedding { weight: WeightTensor, out: Value },
    QuantizedEmbedding { weight: Arc<PackedLinear>, out: Value },
    TakeLogitsRows { x: Value, out: Value },
    Linear { x: Value, weight: WeightTensor, out: Value },
    QuantizedLinear { x: Value, weight: Arc<PackedLinear>, activations: ActivationType, out: Value },
    AddBias { x: Value, bias: Tensor },
    RmsNorm { x: Value, weight: Tensor, eps: f32, out: Value },
    AddRmsNorm { x: Value, residual: Value, weight: Tensor, eps: f32, out: Value },
    NormHeads { qkv: Value, q_weight: Tensor, k_weight: Tensor, heads: Heads, eps: f32 },
    SiluMul { gate_up: Value, out: Value },
    RopeKvWrite { qkv: Value, cos_sin: Tensor, cache: Arc<LayerCache>, num_heads: usize, out: Value },
    PagedAttention { q: Value, cache: Arc<LayerCache>, num_heads: usize, scale: f32, out: Value },
}

/// Heads of a row of qkv.
#[derive(Debug, Clone, Copy)]
pub struct Heads {
    /// Of q.
    pub num_heads: usize,
    /// Of k, and of v.
    pub num_kv_heads: usize,
}
