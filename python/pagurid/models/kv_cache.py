"""The KV pool's memory: `KvCache`.

Owns: one tensor for K and one for V over all layers and blocks. What lies inside a block is the
kernels' business: K is transposed there, `[head_dim, block_size]`, because that is faster on a CPU.
Invariant: block 0 belongs to nobody. Memory starts zeroed and is only touched when first written.
Must not know: who owns which block.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from pagurid.models.config import ModelConfig

__all__ = ["KvCache"]


class KvCache:
    """`k` is `[layers, num_blocks, kv_heads, head_dim, block_size]`, `v` has the last two swapped."""

    def __init__(
        self,
        config: ModelConfig,
        num_blocks: int,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.bytes_per_block = self.bytes_per_block_of(config, block_size, dtype)
        shape = (config.num_layers, num_blocks, config.num_kv_heads)
        self.k = _untouched_zeros((*shape, config.head_dim, block_size), dtype, device)
        self.v = _untouched_zeros((*shape, block_size, config.head_dim), dtype, device)
        self._layers = list(
            zip(self.k.unbind(), self.v.unbind(), strict=True)
        )  # views: once, not in each step

    @staticmethod
    def bytes_per_block_of(
        config: ModelConfig, block_size: int = 16, dtype: torch.dtype = torch.float32
    ) -> int:
        """What one block costs over all layers, K and V: known before the pool's size is."""
        slot_bytes = config.num_kv_heads * config.head_dim * dtype.itemsize
        return 2 * config.num_layers * block_size * slot_bytes

    def layer(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of one layer, as the kernels take them."""
        return self._layers[index]

    def copy_blocks(self, pairs: torch.Tensor) -> None:
        """Copies blocks in all layers: `pairs` is int32 `[n, 2]` (from, to); all reads come first."""
        sources, targets = pairs.to(torch.int64).unbind(1)
        for cache in (self.k, self.v):
            cache[:, targets] = cache[:, sources]


def _untouched_zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> torch.Tensor:
    """Zeros that cost nothing on a CPU until they are written to: torch's own writes them all."""
    if torch.device(device).type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    size = math.prod(shape) * dtype.itemsize
    return torch.from_numpy(np.zeros(size, dtype=np.uint8)).view(dtype).view(shape)
