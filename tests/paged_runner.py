"""Runs a model over a paged KV cache without an engine: the smallest loop that can be right.

Owns: block tables of a few sequences, blocks handed out in a shuffled order so that nothing relies on
neighbours. Unlike the engine it has no queue, no prefix cache, no sampling but greedy.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from pagurid.models import KvCache, LlamaForCausalLM, StepInputs
from pagurid.ops.recorder import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PagedRunner:
    """Sequences by key; `step` computes the next tokens of some of them in one pass.

    `recorded`: on a tape instead of op by op.
    """

    def __init__(
        self,
        model: LlamaForCausalLM,
        *,
        num_blocks: int = 128,
        block_size: int = 16,
        seed: int = 0,
        recorded: bool = False,
    ) -> None:
        self.model = model
        self.kv_cache = KvCache(model.config, num_blocks, block_size)
        self._free_blocks = list(range(1, num_blocks))
        random.Random(seed).shuffle(self._free_blocks)
        self._tables: dict[str, list[int]] = {}
        self._lengths: dict[str, int] = {}
        self.tape = (
            record(lambda step: model.forward(step, self.kv_cache), meta_inputs()) if recorded else None
        )

    def step(self, work: Mapping[str, Sequence[int]], *, all_rows: bool = False) -> torch.Tensor:
        """Logits [len(work), vocab_size] of each last token, or of every token with `all_rows`."""
        block_size = self.kv_cache.block_size
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        query_start = [0]
        for key, tokens in work.items():
            table = self._tables.setdefault(key, [])
            start = self._lengths.get(key, 0)
            for position, token in enumerate(tokens, start):
                if position // block_size == len(table):
                    table.append(self._free_blocks.pop())
                token_ids.append(token)
                positions.append(position)
                slots.append(table[position // block_size] * block_size + position % block_size)
            self._lengths[key] = start + len(tokens)
            query_start.append(len(token_ids))
        width = max(len(self._tables[key]) for key in work)
        tables = [self._tables[key] + [0] * (width - len(self._tables[key])) for key in work]
        rows = range(len(token_ids)) if all_rows else [end - 1 for end in query_start[1:]]
        inputs = StepInputs(
            token_ids=_int32(token_ids),
            positions=_int32(positions),
            slot_mapping=torch.tensor(slots, dtype=torch.int64),
            query_start=_int32(query_start),
            context_lens=_int32([self._lengths[key] for key in work]),
            block_tables=_int32(tables),
            logits_rows=_int32(list(rows)),
        )
        if self.tape is None:
            return self.model.forward(inputs, self.kv_cache)
        arrays = {name: getattr(inputs, name).numpy() for name in StepInputs.__slots__}
        return torch.from_numpy(self.tape.play(**arrays))

    def greedy(self, prompts: Mapping[str, Sequence[int]], max_tokens: int) -> dict[str, list[int]]:
        """That many tokens for each prompt, all in one batch; end-of-sequence tokens do not stop it."""
        work: dict[str, Sequence[int]] = dict(prompts)
        outputs: dict[str, list[int]] = {key: [] for key in prompts}
        for _ in range(max_tokens):
            chosen = self.step(work).argmax(dim=-1).tolist()
            for key, token in zip(prompts, chosen, strict=True):
                outputs[key].append(token)
            work = {key: tokens[-1:] for key, tokens in outputs.items()}
        return outputs


def meta_inputs() -> StepInputs:
    """Inputs without content, to record with."""

    def empty(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    return StepInputs(
        token_ids=empty(3),
        positions=empty(3),
        slot_mapping=empty(3, dtype=torch.int64),
        query_start=empty(3),
        context_lens=empty(2),
        block_tables=empty(2, 5),
        logits_rows=empty(1),
    )


def _int32(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)
