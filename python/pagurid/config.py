"""How an engine is set up: one frozen dataclass, the same for the Python API and the command line.

Owns: the options and their defaults. Names are vLLM's where it has one.
Must not know: torch, the server.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

__all__ = ["DEFAULT_MODEL", "Dtype", "EngineConfig", "Quantization", "engine_config"]

DEFAULT_MODEL = "smollm2"

Dtype: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
Quantization: TypeAlias = Literal["auto", "int16", "int8", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Everything that is fixed while an engine lives.

    `None` means: chosen from the model and the machine when the engine starts.
    """

    model: str = DEFAULT_MODEL
    """`smollm2`, a directory with safetensors, or a .gguf file."""
    served_model_name: str | None = None
    """The name clients use; the model's own by default."""
    max_model_len: int | None = None
    """Longest prompt + answer in tokens; the model's context by default."""
    max_num_seqs: int = 64
    """Most sequences in one step."""
    max_num_batched_tokens: int = 256
    """Most tokens in one step: the budget that prompts are cut into chunks by."""
    block_size: int = 16
    """Tokens per KV block."""
    num_gpu_blocks_override: int | None = None
    """Size of the KV pool in blocks; from `kv_cache_memory_bytes` by default."""
    kv_cache_memory_bytes: int | None = None
    """Size of the KV pool in bytes; a quarter of the free memory, at most 4 GiB, by default."""
    enable_prefix_caching: bool = True
    max_queued_requests: int = 1024
    """Requests that may wait; one more is refused with `queue_full`."""
    scheduling_policy: Literal["fcfs", "priority", "fair"] = "fcfs"
    """Who is served first: by arrival; by the requests' priority, with ageing; the tenant that got least."""
    priority_ageing_ms: float = 10_000.0
    """Under the `priority` policy: so long a wait makes up for one level."""
    step_time_target_ms: float | None = None
    """Prompts are cut into chunks small enough that a step with running answers takes about so long."""
    max_queue_wait_ms: float | None = None
    """A request that would probably wait longer is refused with `queue_full`."""
    preemption_victim: Literal["least_waste", "youngest"] = "least_waste"
    """Who gives KV blocks back when they run out; `youngest`, for comparison, admits without foresight."""
    isolate_tenants: bool = False
    """Tenants never share computed prefixes, nor learn of each other's by how fast an answer begins."""
    dtype: Dtype = "auto"
    """What the float weights of linear layers are kept in: as the file has them (`auto`), or converted when
    they are loaded. Norms, biases, activations and sums are float32 with any. Says nothing about quantised
    weights, unless `quantization` is `none`: then they are dequantised to this (`auto`: float32)."""
    quantization: Quantization = "auto"
    """How the quantised weights of a GGUF file are multiplied with: as they are, with activations rounded to
    int16 (`auto`: as good as float32) or int8 (faster, less exact); or dequantised to `dtype` (`none`)."""
    threads: int | None = None
    """CPU threads that compute; the cores this process may use by default."""
    kernels: Literal["rust", "reference"] = "rust"
    """`reference` computes everything in plain torch: slow, for comparison."""
    enforce_eager: bool = False
    """Computes each step op by op in Python instead of playing it as it was recorded once: for debugging."""
    cost_per_hour: float | None = None
    """Price of this machine per hour, in any currency; gives every answer its cost."""


def engine_config(config: EngineConfig | str | None, options: dict[str, Any]) -> EngineConfig:
    """From a config, a model's name, options, or a config with options that change it."""
    if isinstance(config, EngineConfig):
        return dataclasses.replace(config, **options)
    if config is not None:
        options = {"model": config, **options}
    return EngineConfig(**options)
