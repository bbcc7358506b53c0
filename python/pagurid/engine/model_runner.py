"""From a step plan to logits: on a tape that was recorded once, or op by op.

Owns: the choice between the two, and torch views of the core's buffers, made once: a step slices them and
copies nothing.
Must not know: requests, sampling.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch

from pagurid import ops
from pagurid.models import StepInputs
from pagurid.ops.recorder import CannotRecord, record

if TYPE_CHECKING:
    from torch import Tensor

    from pagurid._core import StepPlan
    from pagurid._core.kernels import Tape
    from pagurid.models import KvCache, LlamaForCausalLM

__all__ = ["ModelRunner"]

log = logging.getLogger("pagurid.engine")


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

    def record(self) -> Tape | None:
        """The step as a tape; None if it has to be computed op by op."""
        if ops.selected() != "rust":
            return None
        inputs = self._inputs(tokens=2, sequences=1, logits_rows=1)
        shapes = {name: getattr(inputs, name).to("meta") for name in StepInputs.__slots__}
        try:
            return record(lambda inputs: self._model(inputs, self._kv_cache), StepInputs(**shapes))
        except CannotRecord as error:
            log.info("steps are computed op by op: %s", error)
            return None

    @torch.inference_mode()
    def forward(self) -> Tensor:
        """The logits of the rows that the plan wants, op by op: float32 `[num_logits_rows, vocab_size]`."""
        plan = self._plan
        if copies := plan.num_block_copies:
            self._kv_cache.copy_blocks(self._block_copies[:copies])
        inputs = self._inputs(plan.num_tokens, plan.num_sequences, plan.num_logits_rows)
        return self._model(inputs, self._kv_cache)

    def _inputs(self, tokens: int, sequences: int, logits_rows: int) -> StepInputs:
        return StepInputs(
            token_ids=self._token_ids[:tokens],
            positions=self._positions[:tokens],
            slot_mapping=self._slot_mapping[:tokens],
            query_start=self._query_start[: sequences + 1],
            context_lens=self._context_lens[:sequences],
            block_tables=self._block_tables[:sequences],
            logits_rows=self._logits_rows[:logits_rows],
        )
