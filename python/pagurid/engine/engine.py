"""`Engine`: everything that serves one model, stepped by whoever calls `step`.

Owns: loading, the KV pool, the scheduler, and one step from plan to commit. An exception in a step ends the
requests of that step and no others.
Invariant: `step` is called from one thread; the rest of the scheduler is safe from any.
Must not know: threads, event loops, transports.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias, get_args

import torch

from pagurid._core import Scheduler, SchedulerConfig, kernels
from pagurid.config import Dtype
from pagurid.engine.kv_pool_size import kv_pool_blocks
from pagurid.engine.memory_use import MemoryUse
from pagurid.engine.model_runner import ModelRunner
from pagurid.errors import ConfigError, InvalidRequest
from pagurid.machine_memory import peak_memory_bytes
from pagurid.models import KvCache
from pagurid.pull import NAMED_MODELS, resolve_model
from pagurid.weights import load_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pagurid.config import EngineConfig

__all__ = ["Engine", "Prompt"]

Prompt: TypeAlias = "str | Sequence[int] | Sequence[Mapping[str, Any]]"
"""A text to continue, token ids, or the messages of a chat (`{"role": …, "content": …}`)."""

log = logging.getLogger("pagurid.engine")


class Engine:
    """Raises ConfigError or ModelLoadError, in one line, if it cannot be."""

    def __init__(self, config: EngineConfig) -> None:
        if config.dtype not in get_args(Dtype):
            raise ConfigError(f"--dtype is {config.dtype!r}; expected one of {', '.join(get_args(Dtype))}")
        self.config = config
        _set_threads(config)
        loaded = load_model(
            resolve_model(config.model),
            max_model_len=config.max_model_len,
            kernels=config.kernels,
            quantization=config.quantization,
            dtype=config.dtype,
        )
        self.model_config = loaded.config
        self.tokenizer = loaded.tokenizer
        self.served_model_name = config.served_model_name or (
            config.model if config.model in NAMED_MODELS else loaded.name
        )
        self.max_model_len = config.max_model_len or loaded.config.max_position_embeddings
        bytes_per_block = KvCache.bytes_per_block_of(loaded.config, config.block_size)
        num_blocks = kv_pool_blocks(config, bytes_per_block=bytes_per_block, max_model_len=self.max_model_len)
        try:
            scheduler_config = SchedulerConfig(
                num_blocks=num_blocks,
                block_size=config.block_size,
                max_model_len=self.max_model_len,
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                vocab_size=loaded.config.vocab_size,
                eos_token_ids=sorted(loaded.tokenizer.eos_token_ids),
                max_queued_requests=config.max_queued_requests,
                scheduling_policy=config.scheduling_policy,
                priority_ageing_ms=config.priority_ageing_ms,
                step_time_target_ms=config.step_time_target_ms,
                max_queue_wait_ms=config.max_queue_wait_ms,
                preemption_victim=config.preemption_victim,
                isolate_tenants=config.isolate_tenants,
                enable_prefix_caching=config.enable_prefix_caching,
                kv_bytes_per_block=bytes_per_block,
                cost_per_hour=config.cost_per_hour,
            )
        except (InvalidRequest, OverflowError) as error:
            raise ConfigError(str(error)) from None
        self.scheduler = Scheduler(scheduler_config, loaded.tokenizer.vocabulary())
        self.kv_cache = KvCache(loaded.config, num_blocks, config.block_size)
        self._weights_bytes = loaded.model.weights_bytes
        self.runner = ModelRunner(loaded.model, self.kv_cache, self.scheduler.step_plan)
        self.tape = None if config.enforce_eager else self.runner.record()
        self.last_error: str | None = None
        log.info("%s: %s", self.served_model_name, self.memory())

    def memory(self) -> MemoryUse:
        """Now."""
        return MemoryUse(
            weights_bytes=self._weights_bytes,
            kv_pool_bytes=self.kv_cache.num_blocks * self.kv_cache.bytes_per_block,
            process_peak_bytes=peak_memory_bytes(),
        )

    def step(self) -> bool:
        """Plans, computes and commits one step; False if there was nothing to do."""
        scheduler = self.scheduler
        if not scheduler.plan():
            return False
        try:
            if self.tape is not None:
                scheduler.play(self.tape)
            else:
                scheduler.sample(self.runner.forward().numpy())
        except Exception as error:
            log.exception("a step failed")
            self.last_error = f"{type(error).__name__}: {error}"
            scheduler.abort_step(f"a model step failed: {self.last_error}")
        except BaseException:
            # Ctrl-C in the middle of a step: no step may be left open, or there would never be another.
            scheduler.abort_step("interrupted")
            raise
        else:
            scheduler.commit()
        return True

    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids of a text, of a chat's messages, or of token ids. Raises InvalidRequest."""
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, add_special_tokens=True)
        if not isinstance(prompt, list | tuple):
            raise InvalidRequest(
                f"prompt: expected a text, token ids or messages, got {type(prompt).__name__}", param="prompt"
            )
        if prompt and all(isinstance(item, dict) for item in prompt):
            return self.tokenizer.encode(self.tokenizer.render_chat(prompt))
        if not all(type(item) is int for item in prompt):
            raise InvalidRequest("prompt: expected every token id to be an integer", param="prompt")
        return list(prompt)


def _set_threads(config: EngineConfig) -> None:
    """One pool computes: torch's own threads would fight ours for the cores."""
    if config.kernels == "reference":
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        return
    torch.set_num_threads(1)
    if config.threads is not None:
        try:
            kernels.set_num_threads(config.threads)
        except ValueError as error:
            raise ConfigError(f"--threads: {error}") from None
