"""From a step plan to logits.

Owns: torch views of the core's buffers, made once: a step slices them and copies nothing.
Must not know: requests, sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pagurid.models import StepInputs

if TYPE_CHECKING:
    from torch import Tensor

    from pagurid._core import StepPlan
    from pagurid.models import KvCache, LlamaForCausalLM

__all__ = ["ModelRunner"]


class ModelRunner:
    """One model on one KV cache, fed by one scheduler's plan."""

    def __init__(self, model: LlamaForCausalLM, kv_cache: KvCache, plan: StepPlan) -> None:
        self._model = model
        self._kv_cache = kv_cache
        self._plan = plan
        # The arrays never move and live as long as the plan, so these views are good for ever.
        self._token_ids = torch.from_numpy(plan.token_ids)
        self._positions = torch.from_numpy(plan.positions)
        self._slot_mapping = torch.from_numpy(plan.slot_mapping)
        self._query_start = torch.from_numpy(plan.query_start)
        self._context_lens = torch.from_numpy(plan.context_lens)
        self._block_tables = torch.from_numpy(plan.block_tables)
        self._logits_rows = torch.from_numpy(plan.logits_rows)
        self._block_copies = torch.from_numpy(plan.block_copies)

    @torch.inference_mode()
    def forward(self) -> Tensor:
        """The logits of the rows that the plan wants: float32 `[num_logits_rows, vocab_size]`."""
        plan = self._plan
        tokens, sequences = plan.num_tokens, plan.num_sequences
        if copies := plan.num_block_copies:
            self._kv_cache.copy_blocks(self._block_copies[:copies])
        inputs = StepInputs(
            token_ids=self._token_ids[:tokens],
            positions=self._positions[:tokens],
            slot_mapping=self._slot_mapping[:tokens],
            query_start=self._query_start[: sequences + 1],
            context_lens=self._context_lens[:sequences],
            block_tables=self._block_tables[:sequences],
            logits_rows=self._logits_rows[: plan.num_logits_rows],
        )
        return self._model(inputs, self._kv_cache)
