"""The numbers that one model step reads: `StepInputs`.

Owns: names, shapes and types. The engine slices them from the core's step plan without a copy.
Must not know: the scheduler, requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["StepInputs"]


@dataclass(frozen=True, slots=True)
class StepInputs:
    """T tokens of S sequences, grouped by sequence. int32, but `slot_mapping` is int64."""

    token_ids: Tensor
    """[T]"""
    positions: Tensor
    """[T]: place of each token in its sequence, from 0"""
    slot_mapping: Tensor
    """[T]: block * block_size + offset where its K and V go; −1 writes nothing"""
    query_start: Tensor
    """[S + 1]: rows query_start[s] .. query_start[s + 1] belong to sequence s"""
    context_lens: Tensor
    """[S]: tokens in the KV cache after this step"""
    block_tables: Tensor
    """[S, max_blocks_per_sequence]"""
    logits_rows: Tensor
    """[R]: rows whose logits are needed, ascending"""
