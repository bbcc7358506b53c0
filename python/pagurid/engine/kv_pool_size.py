"""How many KV blocks an engine gets.

Owns: the default share of the free memory, and refusing a pool that could not serve one request or fit.
Must not know: the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pagurid.errors import ConfigError
from pagurid.machine_memory import available_memory_bytes
from pagurid.memory_size import format_bytes

if TYPE_CHECKING:
    from pagurid.config import EngineConfig

__all__ = ["kv_pool_blocks"]

DEFAULT_LIMIT_BYTES = 4 << 30
DEFAULT_SHARE = 4
"""A quarter of what is free: weights are loaded, activations are small, the rest of the machine lives on."""


def kv_pool_blocks(config: EngineConfig, *, bytes_per_block: int, max_model_len: int) -> int:
    """The number of blocks, block 0 included, which nobody gets. Raises ConfigError."""
    if config.block_size < 1:
        raise ConfigError(f"block_size is {config.block_size}; a block holds at least 1 token")
    if config.num_gpu_blocks_override is not None:
        if config.num_gpu_blocks_override < 2:
            raise ConfigError(
                f"--num-gpu-blocks-override is {config.num_gpu_blocks_override}; at least 2 are needed"
            )
        _refuse_more_than_there_is(
            config.num_gpu_blocks_override * bytes_per_block,
            f"--num-gpu-blocks-override {config.num_gpu_blocks_override}",
        )
        return config.num_gpu_blocks_override
    wanted = 1 + -(-max_model_len // config.block_size)
    if config.kv_cache_memory_bytes is not None:
        pool_bytes, source = config.kv_cache_memory_bytes, "--kv-cache-memory gives"
        _refuse_more_than_there_is(pool_bytes, f"--kv-cache-memory {format_bytes(pool_bytes)}")
    else:
        available = available_memory_bytes()
        share = DEFAULT_LIMIT_BYTES if available is None else available // DEFAULT_SHARE
        pool_bytes, source = min(DEFAULT_LIMIT_BYTES, share), "a quarter of the free memory is"
    blocks = pool_bytes // bytes_per_block
    if blocks < wanted:
        raise ConfigError(
            f"too little memory for the KV cache: one request of {max_model_len} tokens needs "
            f"{format_bytes(wanted * bytes_per_block)}, {source} {format_bytes(pool_bytes)}; "
            "lower --max-model-len or raise --kv-cache-memory"
        )
    return blocks


def _refuse_more_than_there_is(pool_bytes: int, option: str) -> None:
    """The pool takes memory block by block: without this it would be killed in the middle of its work."""
    available = available_memory_bytes()
    if available is not None and pool_bytes > available:
        raise ConfigError(
            f"{option} is too much: the KV pool would take {format_bytes(pool_bytes)}, "
            f"{format_bytes(available)} are free beside the weights"
        )
