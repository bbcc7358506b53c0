"""The operations models are made of, registered with torch as `torch.ops.pagurid.*`.

Owns: names, signatures and argument checks of the ops, and which implementation runs: the Rust kernels,
the plain torch reference they are tested against, or the recorder, which computes nothing and writes down
what the Rust kernels will do. All take contiguous float32 tensors on the CPU; the weights of
`linear` and `embedding` may be float16 or bfloat16, too, and are widened.
Invariant: with the Rust kernels a row's result has the same bits whatever the batch, the chunking, the
block numbers or the thread count.
Must not know: models, the scheduler.

`k_cache` is `[num_blocks, kv_heads, head_dim, block_size]` (K is transposed inside a block), `v_cache`
`[num_blocks, kv_heads, block_size, head_dim]`. Index tensors are int32, but `slot_mapping` is int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch.library import Library

from pagurid._core.kernels import QuantizedWeight
from pagurid.ops import checks, reference, rust
from pagurid.ops.recorder import recorder

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from torch import Tensor

__all__ = [
    "QuantizedWeight",
    "embedding",
    "take_rows",
    "linear",
    "quantized_linear",
    "add_bias",
    "rms_norm",
    "add_rms_norm",
    "norm_heads",
    "silu_mul",
    "rope_kv_write",
    "paged_attention",
    "select",
    "selected",
]

_implementations = {"rust": rust, "reference": reference}
_selected = rust
_selected_name: Literal["rust", "reference"] = "rust"


def select(name: Literal["rust", "reference"]) -> None:
    """Chooses what computes the ops from now on, in the whole process."""
    global _selected, _selected_name
    if name not in _implementations:
        raise ValueError(f"kernels must be one of {', '.join(_implementations)}; got {name!r}")
    _selected, _selected_name = _implementations[name], name


def selected() -> Literal["rust", "reference"]:
    """The implementation that runs now."""
    return _selected_name


def _op(name: str) -> Callable[..., Any]:
    """The op of this name: checks its arguments and hands them to whoever computes or records it."""
    check = getattr(checks, name)

    def op(*arguments: Any) -> Any:
        check(*arguments)
        return getattr(recorder() or _selected, name)(*arguments)

    return op


def quantized_linear(x: Tensor, weight: QuantizedWeight) -> Tensor:
    """x [T, in], weight [out, in] → [T, out] = x weightᵀ + bias; x is rounded as the weight says.

    The reference does not round x. Not registered with torch, whose signatures know no such weight.
    """
    return _quantized_linear(x, weight)  # type: ignore[no-any-return]


def embedding(indices: Tensor, weight: Tensor | QuantizedWeight) -> Tensor:
    """indices [T] (int32), weight [V, H] → [T, H] float32: the weight's rows, widened."""
    return _embedding(indices, weight)  # type: ignore[no-any-return]


_quantized_linear, _embedding = _op("quantized_linear"), _op("embedding")

# `define` and `impl` cost a call about 3 µs; the `custom_op` decorator would cost ten times that.
_library = Library("pagurid", "DEF")  # type: ignore[no-untyped-call]
for _schema in (
    "take_rows(Tensor x, Tensor indices) -> Tensor",
    "linear(Tensor x, Tensor weight) -> Tensor",
    "add_bias(Tensor(a!) x, Tensor bias) -> ()",
    "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor",
    "add_rms_norm(Tensor x, Tensor(a!) residual, Tensor weight, float eps) -> Tensor",
    "norm_heads(Tensor(a!) qkv, Tensor q_weight, Tensor k_weight, int num_heads, int num_kv_heads, "
    "float eps) -> ()",
    "silu_mul(Tensor gate_up) -> Tensor",
    "rope_kv_write(Tensor qkv, Tensor cos_sin, Tensor positions, Tensor slot_mapping, "
    "Tensor(a!) k_cache, Tensor(b!) v_cache, int num_heads, int num_kv_heads) -> Tensor",
    "paged_attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor query_start, "
    "Tensor context_lens, Tensor block_tables, float scale) -> Tensor",
):
    _name = _schema.partition("(")[0]
    _library.define(_schema)  # type: ignore[no-untyped-call]
    for _key in ("CPU", "Meta"):  # meta tensors are what the recorder is given
        _library.impl(_name, _op(_name), _key)  # type: ignore[no-untyped-call]

take_rows = torch.ops.pagurid.take_rows.default
"""x [T, H], indices [R] (int32) → [R, H] = x[indices]"""
linear = torch.ops.pagurid.linear.default
"""x [T, in], weight [out, in] → [T, out] = x weightᵀ, with the bits that a widened weight would give"""
add_bias = torch.ops.pagurid.add_bias.default
"""x [T, H] += bias [H]"""
rms_norm = torch.ops.pagurid.rms_norm.default
"""x [T, H], weight [H], eps → [T, H] = x / sqrt(mean(x²) + eps) * weight"""
add_rms_norm = torch.ops.pagurid.add_rms_norm.default
"""x [T, H], residual [T, H], weight [H], eps → [T, H] = rms_norm(residual + x); residual += x in place"""
norm_heads = torch.ops.pagurid.norm_heads.default
"""Each head of q and of k in qkv [T, (num_heads + 2 num_kv_heads) D] becomes its rms_norm, in place.

qkv, q_weight [D], k_weight [D], num_heads, num_kv_heads, eps.
"""
silu_mul = torch.ops.pagurid.silu_mul.default
"""gate_up [T, 2 I], gate first → [T, I] = silu(gate) * up"""
rope_kv_write = torch.ops.pagurid.rope_kv_write.default
"""Rotates q and k, writes k and v into the cache; returns q.

qkv [T, (num_heads + 2 num_kv_heads) D], cos_sin [max_positions, D] (cos half | sin half, for NeoX pairs:
element i of a head turns with element i + D/2), positions [T], slot_mapping [T] (block * block_size +
offset; −1 writes nothing), k_cache, v_cache, num_heads, num_kv_heads → rotated q [T, num_heads, D].
"""
paged_attention = torch.ops.pagurid.paged_attention.default
"""Causal attention of new tokens over the KV cache.

q [T, num_heads, D], k_cache, v_cache, query_start [S + 1] (rows query_start[s] .. query_start[s + 1] are of
sequence s), context_lens [S] (tokens in the cache, these rows' included), block_tables [S, max_blocks],
scale → [T, num_heads D]. The last row of a sequence sees all its context_lens tokens, the one before it one
fewer, and so on.
"""
