"""One tensor of a checkpoint, whatever the file's format: `CheckpointTensor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["CheckpointTensor", "QuantizedBlocks"]


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """Not read yet. `name` is the checkpoint name, as safetensors have it."""

    name: str
    source: str
    """For messages: the file, and the name there if it is another."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    """Of what `read` gives."""
    read: Callable[[], Tensor]
    """A view of the mapped file where that has the numbers so, in this order."""
    quantized: QuantizedBlocks | None = None
    """What `read` would dequantise, if it is a matrix that can be multiplied with as it is."""


@dataclass(frozen=True, slots=True)
class QuantizedBlocks:
    """A matrix as a GGUF file has it; `data` maps the file."""

    type_name: str
    data: NDArray[np.uint8]
    row_order: list[int] | None
    """The file's row for each row of the matrix, if they differ."""
