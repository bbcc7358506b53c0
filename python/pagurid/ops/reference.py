"""The ops in plain torch: what the Rust kernels must agree with, to rounding.

Owns: the meaning of each op, written to be read. Arguments are already checked.
Must not know: speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch import Tensor

    from pagurid._core.kernels import QuantizedWeight


def take_rows(x: Tensor, indices: Tensor) -> Tensor:
    return x[indices]


def linear(x: Tensor, weight: Tensor) -> Tensor:
    return F.linear(x, weight.to(torch.float32))


def quantized_linear(x: Tensor, weight: QuantizedWeight) -> Tensor:
    zero = torch.zeros(1, weight.shape[1])
    bias = torch.empty(1, weight.shape[0])
    weight.multiply(zero.data_ptr(), bias.data_ptr(), 1)
    return F.linear(x, embedding(torch.arange(weight.shape[0], dtype=torch.int32), weight)) + bias


def embedding(indices: Tensor, weight: Tensor | QuantizedWeight) -> Tensor:
    if isinstance(weight, torch.Tensor):
        return F.embedding(indices, weight).to(torch.float32)
    rows = torch.empty(len(indices), weight.shape[1])
    weight.read_rows(indices.data_ptr(), rows.data_ptr(), len(indices))
    return rows


def add_bias(x: Tensor, bias: Tensor) -> None:
    x.add_(bias)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + eps) * weight


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> Tensor:
    return rms_norm(residual.add_(x), weight, eps)


def norm_heads(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, num_heads: int, num_kv_heads: int, eps: float
) -> None:
    heads = qkv.view(len(qkv), num_heads + 2 * num_kv_heads, len(q_weight))
    q, k, _ = heads.tensor_split((num_heads, num_heads + num_kv_heads), dim=1)
    q.copy_(rms_norm(q, q_weight, eps))
    k.copy_(rms_norm(k, k_weight, eps))


def silu_mul(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


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
    block_size, head_dim = v_cache.shape[2:]
    heads = qkv.view(len(qkv), num_heads + 2 * num_kv_heads, head_dim)
    q, k, v = heads.tensor_split((num_heads, num_heads + num_kv_heads), dim=1)
    cos, sin = cos_sin[positions].unsqueeze(1).chunk(2, dim=-1)  # [T, 1, D / 2] each
    written = slot_mapping >= 0
    slots = slot_mapping[written]
    blocks, offsets = slots // block_size, slots % block_size
    k_cache[blocks, :, :, offsets] = _rotate(k, cos, sin)[written]
    v_cache[blocks, :, offsets] = v[written]
    return _rotate(q, cos, sin)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (i, i + D/2) of x [T, heads, D]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


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
    _, num_kv_heads, block_size, _ = v_cache.shape
    out = torch.zeros_like(q)
    starts, contexts = query_start.tolist(), context_lens.tolist()
    for index, context_len in enumerate(contexts):
        start, end = starts[index], starts[index + 1]
        if start == end:
            continue
        blocks = block_tables[index, : -(-context_len // block_size)]
        # [context, kv_heads, D], then each kv head beside all the q heads that share it
        k = k_cache[blocks].permute(0, 3, 1, 2).flatten(0, 1)[:context_len]
        v = v_cache[blocks].transpose(1, 2).flatten(0, 1)[:context_len]
        k, v = (part.repeat_interleave(num_heads // num_kv_heads, dim=1) for part in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[start:end], k) * scale
        last_seen = torch.arange(context_len - (end - start), context_len).unsqueeze(1)  # [rows, 1]
        scores.masked_fill_(torch.arange(context_len) > last_seen, float("-inf"))
        out[start:end] = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), v)
    return out.view(rows, num_heads * head_dim)
