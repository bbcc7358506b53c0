"""A toy language model over the step plan, for tests of `_core.Scheduler` without torch.

Owns: the model, the loop that drives a scheduler with it, and the one right answer to a prompt.
Its "KV cache" holds a hash of all tokens up to each slot, read back through the block table, and the next
token is a function of that hash: a wrong slot, block, position or chunk changes the text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pagurid import _core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EOS = 0
VOCAB_SIZE = 37
MASK = (1 << 62) - 1


def extend(prefix: int, token: int) -> int:
    """Hash of a prefix and one more token."""
    mixed = ((prefix ^ (token + 0x1E3779B97F4A7C15)) * 0x16E8FEB86659FD93) & MASK
    return mixed ^ (mixed >> 29)


def next_token(prefix: int) -> int:
    """The model's one choice; the end of sequence is rare."""
    token = (prefix >> 17) % (4 * VOCAB_SIZE)
    return EOS if token == EOS else 1 + token % (VOCAB_SIZE - 1)


def answer(prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool = False) -> list[int]:
    """What the model says after `prompt`, computed without any scheduler."""
    prefix = 0
    for token in prompt:
        prefix = extend(prefix, token)
    tokens: list[int] = []
    while len(tokens) < max_tokens and not (tokens and tokens[-1] == EOS and not ignore_eos):
        tokens.append(next_token(prefix))
        prefix = extend(prefix, tokens[-1])
    return tokens


def prompt(salt: int, length: int) -> list[int]:
    """Tokens that differ for each salt; never the end of sequence."""
    return [1 + (salt * 7 + at * (salt % 5 + 1)) % (VOCAB_SIZE - 1) for at in range(length)]


def config(**changes: Any) -> _core.SchedulerConfig:
    """Small sizes, some of them changed."""
    sizes: dict[str, Any] = {
        "num_blocks": 64,
        "block_size": 4,
        "max_model_len": 128,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 16,
        "vocab_size": VOCAB_SIZE,
        "eos_token_ids": [EOS],
    }
    return _core.SchedulerConfig(**(sizes | changes))


@dataclass
class Answer:
    """All that one sequence has given so far."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    num_deltas: int = 0


class ToyEngine:
    """A scheduler, its toy model, and a consumer that takes everything after each step."""

    def __init__(self, config: _core.SchedulerConfig, vocabulary: _core.Vocabulary | None = None) -> None:
        self.scheduler = _core.Scheduler(config, vocabulary)
        self.plan = self.scheduler.step_plan
        self.kv = [0] * (config.num_blocks * config.block_size)
        self.answers: dict[tuple[int, int], Answer] = {}
        self.metrics: dict[int, _core.RequestMetrics] = {}
        self.chunks: list[list[int]] = []

    def submit(self, prompt: Sequence[int], **params: Any) -> int:
        """Queues a greedy request."""
        return self.scheduler.submit(prompt, _core.SamplingParams(temperature=0, **params))

    def forward(self) -> NDArray[np.float32]:
        """Runs the model on the open step: logits `[num_logits_rows, VOCAB_SIZE]`."""
        plan, block_size = self.plan, self.scheduler.config.block_size
        copies = plan.block_copies[: plan.num_block_copies] * block_size
        read = [self.kv[source : source + block_size] for source in copies[:, 0]]
        for target, block in zip(copies[:, 1], read, strict=True):
            self.kv[target : target + block_size] = block
        hashes = [0] * plan.num_tokens
        starts = plan.query_start[: plan.num_sequences + 1].tolist()
        for sequence, (first, end) in enumerate(pairwise(starts)):
            table = plan.block_tables[sequence]
            for row in range(first, end):
                position, slot = int(plan.positions[row]), int(plan.slot_mapping[row])
                assert slot == table[position // block_size] * block_size + position % block_size
                before = position - 1
                previous = table[before // block_size] * block_size + before % block_size
                prefix = 0 if position == 0 else self.kv[previous]
                self.kv[slot] = hashes[row] = extend(prefix, int(plan.token_ids[row]))
            assert plan.context_lens[sequence] == plan.positions[end - 1] + 1
        self.chunks.append([end - first for first, end in pairwise(starts)])
        logits = np.zeros((plan.num_logits_rows, VOCAB_SIZE), np.float32)
        for at, row in enumerate(plan.logits_rows[: plan.num_logits_rows]):
            logits[at, next_token(hashes[row])] = 1.0
        return logits

    def step(self) -> bool:
        """Plans, runs, samples and commits one step, then takes what is ready."""
        stepped = self.scheduler.plan()
        if stepped:
            self.scheduler.sample(self.forward())
            self.scheduler.commit()
        self.take()
        return stepped

    def take(self) -> None:
        """Takes everything that is ready."""
        for request_id in self.scheduler.take_ready():
            assert request_id not in self.metrics, "nothing comes after the end"
            for delta in self.scheduler.take_output(request_id):
                got = self.answers.setdefault((request_id, delta.index), Answer())
                assert got.finish_reason is None, "a sequence ends once"
                got.text += delta.text
                got.token_ids += delta.token_ids
                got.finish_reason, got.stop_reason = delta.finish_reason, delta.stop_reason
                got.error = delta.error
                got.num_deltas += 1
                assert delta.completion_tokens == len(got.token_ids)
                if delta.metrics is not None:
                    self.metrics[request_id] = delta.metrics

    def run(self) -> int:
        """Steps until nothing is left; checks the invariants, at the end the idle one. Returns the steps."""
        steps = 0
        while self.step():
            self.scheduler.check_invariants()
            steps += 1
            assert steps < 10_000
        self.scheduler.check_invariants(idle=True)
        return steps

    def complete(self, prompt: Sequence[int], **params: Any) -> tuple[Answer, _core.RequestMetrics]:
        """One request from submit to end."""
        request_id = self.submit(prompt, **params)
        self.run()
        return self.answers[request_id, 0], self.metrics[request_id]
