"""Argument checks of the ops: what is wrong, said with the tensors' real shapes.

Owns: dtype, layout and shapes. Values inside index tensors (positions, slots, block numbers) are checked
by the kernels, who read them anyway.
Invariant: what passes can be handed to a kernel as bare addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from pagurid._core.kernels import QuantizedWeight

_FLOAT32, _INT32, _INT64 = torch.float32, torch.int32, torch.int64
_WEIGHT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MAX_HEAD_DIM = 256


def take_rows(x: Tensor, indices: Tensor) -> None:
    _check("x", x, 2)
    _check("indices", indices, 1, _INT32)


def linear(x: Tensor, weight: Tensor) -> None:
    _check("x", x, 2)
    _check("weight", weight, 2, *_WEIGHT_DTYPES)
    if x.shape[1] != weight.shape[1]:
        raise ValueError(f"linear needs x [T, in] and weight [out, in]; got {_shape(x)} and {_shape(weight)}")


def quantized_linear(x: Tensor, weight: QuantizedWeight) -> None:
    _check("x", x, 2)
    if x.shape[1] != weight.shape[1]:
        raise ValueError(
            f"quantized_linear needs x [T, in] and W [out, in]; got {_shape(x)} and {list(weight.shape)}"
        )


def embedding(indices: Tensor, weight: Tensor | QuantizedWeight) -> None:
    _check("indices", indices, 1, _INT32)
    if isinstance(weight, torch.Tensor):
        _check("weight", weight, 2, *_WEIGHT_DTYPES)


def add_bias(x: Tensor, bias: Tensor) -> None:
    _check("x", x, 2)
    _check("bias", bias, 1)
    if x.shape[1] != bias.shape[0]:
        raise ValueError(f"add_bias needs x [T, H] and bias [H]; got {_shape(x)} and {_shape(bias)}")


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> None:
    _check("x", x, 2)
    _check("weight", weight, 1)
    if x.shape[1] != weight.shape[0]:
        raise ValueError(f"rms_norm needs x [T, H] and weight [H]; got {_shape(x)} and {_shape(weight)}")


def norm_heads(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, num_heads: int, num_kv_heads: int, eps: float
) -> None:
    _check("qkv", qkv, 2)
    _check("q_weight", q_weight, 1)
    _check("k_weight", k_weight, 1)
    head_dim = q_weight.shape[0]
    if k_weight.shape[0] != head_dim or qkv.shape[1] != (num_heads + 2 * num_kv_heads) * head_dim:
        raise ValueError(
            f"norm_heads needs qkv [T, (num_heads + 2 num_kv_heads) D] = "
            f"[T, ({num_heads} + 2 * {num_kv_heads}) * D] and weights [D]; got "
            f"{_shape(qkv)}, {_shape(q_weight)} and {_shape(k_weight)}"
        )


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> None:
    rms_norm(x, weight, eps)
    _check("residual", residual, 2)
    if residual.shape != x.shape:
        raise ValueError(
            f"add_rms_norm needs x and residual of one shape [T, H]; got {_shape(x)} and {_shape(residual)}"
        )


def silu_mul(gate_up: Tensor) -> None:
    _check("gate_up", gate_up, 2)
    if gate_up.shape[1] % 2:
        raise ValueError(f"silu_mul needs gate_up [T, 2 I], an even width; got {_shape(gate_up)}")


def rope_kv_write(
    qkv: Tensor,
    cos_sin: Tensor,
    positions: Tensor,
    slot_mapping: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    num_heads: int,
    num_kv_heads: int,
) -> None:
    _check("qkv", qkv, 2)
    _check("cos_sin", cos_sin, 2)
    _check("positions", positions, 1, _INT32)
    _check("slot_mapping", slot_mapping, 1, _INT64)
    kv_heads, head_dim = _cache(k_cache, v_cache)
    rows, width = qkv.shape
    if num_kv_heads != kv_heads:
        raise ValueError(f"num_kv_heads is {num_kv_heads}, but the cache has {kv_heads}: {_shape(k_cache)}")
    if width != (num_heads + 2 * num_kv_heads) * head_dim:
        raise ValueError(
            f"rope_kv_write needs qkv [T, (num_heads + 2 num_kv_heads) head_dim] = "
            f"[T, ({num_heads} + 2 * {num_kv_heads}) * {head_dim}]; got {_shape(qkv)}"
        )
    if cos_sin.shape[1] != head_dim or head_dim % 2:
        raise ValueError(
            f"rope_kv_write needs cos_sin [max_positions, head_dim] with an even head_dim ({head_dim} in the "
            f"cache); got {_shape(cos_sin)}"
        )
    if positions.shape[0] != rows or slot_mapping.shape[0] != rows:
        raise ValueError(
            f"rope_kv_write needs one position and one slot for each of {rows} rows; got "
            f"{_shape(positions)} and {_shape(slot_mapping)}"
        )


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    query_start: Tensor,
    context_lens: Tensor,
    block_tables: Tensor,
    scale: float,
) -> None:
    _check("q", q, 3)
    _check("query_start", query_start, 1, _INT32)
    _check("context_lens", context_lens, 1, _INT32)
    _check("block_tables", block_tables, 2, _INT32)
    kv_heads, head_dim = _cache(k_cache, v_cache)
    _, num_heads, q_dim = q.shape
    if q_dim != head_dim or num_heads % kv_heads:
        raise ValueError(
            f"paged_attention needs q [T, a multiple of {kv_heads} heads, {head_dim}] for the cache "
            f"{_shape(k_cache)}; got {_shape(q)}"
        )
    sequences = context_lens.shape[0]
    if query_start.shape[0] != sequences + 1 or block_tables.shape[0] != sequences:
        raise ValueError(
            f"paged_attention needs query_start [S + 1] and block_tables [S, max_blocks] for context_lens "
            f"[S] = [{sequences}]; got {_shape(query_start)} and {_shape(block_tables)}"
        )


def _cache(k_cache: Tensor, v_cache: Tensor) -> tuple[int, int]:
    """(kv_heads, head_dim)"""
    _check("k_cache", k_cache, 4)
    _check("v_cache", v_cache, 4)
    num_blocks, kv_heads, head_dim, block_size = k_cache.shape
    if v_cache.shape != (num_blocks, kv_heads, block_size, head_dim):
        raise ValueError(
            f"k_cache is [num_blocks, kv_heads, head_dim, block_size] and v_cache has the last two swapped; "
            f"got {_shape(k_cache)} and {_shape(v_cache)}"
        )
    if not 0 < head_dim <= MAX_HEAD_DIM or not kv_heads or not block_size:
        raise ValueError(
            f"the cache needs kv_heads, head_dim and block_size above 0 and head_dim at most {MAX_HEAD_DIM}; "
            f"got {_shape(k_cache)}"
        )
    return kv_heads, head_dim


def _check(name: str, tensor: Tensor, dims: int, *dtypes: torch.dtype) -> None:
    """`dtypes`: those it may have; float32 if none is given."""
    if tensor.dtype not in (dtypes or (_FLOAT32,)):
        raise TypeError(f"{name} must be {' or '.join(map(str, dtypes or (_FLOAT32,)))}; got {tensor.dtype}")
    if tensor.dim() != dims:
        raise ValueError(f"{name} must have {dims} dimensions; got {_shape(tensor)}")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous; got {_shape(tensor)} with strides {tensor.stride()}")


def _shape(tensor: Tensor) -> str:
    return str(list(tensor.shape))
