"""The ops on the Rust kernels: outputs are allocated here, everything else is an address.

Owns: which numbers a kernel gets. Arguments are already checked, which the kernels rely on.
Must not know: how kernels work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from pagurid._core import kernels

if TYPE_CHECKING:
    from torch import Tensor

    from pagurid._core.kernels import QuantizedWeight


_DTYPE_NAMES: dict[torch.dtype, Literal["float32", "float16", "bfloat16"]] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}


def take_rows(x: Tensor, indices: Tensor) -> Tensor:
    rows, width = x.shape
    out = torch.empty((indices.shape[0], width))
    kernels.take_rows(
        x.data_ptr(),
        indices.data_ptr(),
        out.data_ptr(),
        rows,
        width,
        indices.shape[0],
        _DTYPE_NAMES[x.dtype],
    )
    return out


def linear(x: Tensor, weight: Tensor) -> Tensor:
    rows, in_features = x.shape
    out_features = weight.shape[0]
    out = torch.empty((rows, out_features))
    kernels.linear(
        x.data_ptr(),
        weight.data_ptr(),
        out.data_ptr(),
        rows,
        in_features,
        out_features,
        _DTYPE_NAMES[weight.dtype],
    )
    return out


def quantized_linear(x: Tensor, weight: QuantizedWeight) -> Tensor:
    rows = x.shape[0]
    out = torch.empty((rows, weight.shape[0]))
    weight.multiply(x.data_ptr(), out.data_ptr(), rows)
    return out


def embedding(indices: Tensor, weight: Tensor | QuantizedWeight) -> Tensor:
    if isinstance(weight, torch.Tensor):
        return take_rows(weight, indices)
    rows = indices.shape[0]
    out = torch.empty((rows, weight.shape[1]))
    weight.read_rows(indices.data_ptr(), out.data_ptr(), rows)
    return out


def add_bias(x: Tensor, bias: Tensor) -> None:
    rows, width = x.shape
    kernels.add_bias(x.data_ptr(), bias.data_ptr(), rows, width)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    rows, width = x.shape
    out = torch.empty_like(x)
    kernels.rms_norm(x.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    rows, width = x.shape
    out = torch.empty_like(x)
    kernels.add_rms_norm(
        x.data_ptr(), residual.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, eps
    )
    return out


def norm_heads(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, num_heads: int, num_kv_heads: int, eps: float
) -> None:
    rows, head_dim = qkv.shape[0], q_weight.shape[0]
    kernels.norm_heads(
        qkv.data_ptr(), q_weight.data_ptr(), k_weight.data_ptr(), rows, num_heads, num_kv_heads, head_dim, eps
    )


def silu_mul(gate_up: Tensor) -> Tensor:
    rows, width = gate_up.shape
    out = torch.empty((rows, width // 2))
    kernels.silu_mul(gate_up.data_ptr(), out.data_ptr(), rows, width // 2)
    return out


def rope_kv_write(
    qkv: Tensor,
    cos_sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> Tensor:
    num_blocks, _, head_dim, block_size = k_cache.shape
    rows = qkv.shape[0]
    q = torch.empty((rows, num_heads, head_dim))
    kernels.rope_kv_write(
        qkv.data_ptr(),
        cos_sin.data_ptr(),
        positions.data_ptr(),
        slot_mapping.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        q.data_ptr(),
        rows,
        cos_sin.shape[0],
        num_heads,
        num_blocks,
        num_kv_heads,
        head_dim,
        block_size,
    )
    return q


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    block_tables: Tensor,
    scale: float,
) -> Tensor:
    rows, num_heads, head_dim = q.shape
    num_blocks, num_kv_heads, _, block_size = k_cache.shape
    sequences, max_blocks = block_tables.shape
    out = torch.empty((rows, num_heads * head_dim))
    kernels.paged_attention(
        q.data_ptr(),
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        query_start.data_ptr(),
        context_lens.data_ptr(),
        block_tables.data_ptr(),
        out.data_ptr(),
        rows,
        num_heads,
        sequences,
        max_blocks,
        num_blocks,
        num_kv_heads,
        head_dim,
        block_size,
        scale,
    )
    return out
