"""What W of a linear layer becomes: quantised blocks packed, a view of the mapped file, or a copy.

Owns: the choice, by `--dtype` and `--quantization` (`WeightTypes`), and converting. A layer stays quantised
if all its tensors are and may; else it has the one type asked for, or the one of all its tensors, or float32.
Must not know: file formats, which tensors belong to a layer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from pagurid.errors import ModelLoadError
from pagurid.ops import QuantizedWeight

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from pagurid.models.llama import Linear
    from pagurid.weights.checkpoint import CheckpointTensor

__all__ = ["WeightTypes", "place_weight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightTypes:
    """What linear layers are kept in."""

    dtype: torch.dtype | None = None
    """Of weights that are not quantised or do not stay so; None: the file's, float32 if it has several."""
    activations: Literal["int8", "int16"] | None = None
    """What quantised weights that stay so are multiplied with; None: they don't, but are dequantised."""

    def memory_bytes(self, tensors: Iterable[CheckpointTensor]) -> int:
        """What a model of these tensors takes, mapped files included."""
        return sum(map(self._bytes_of, tensors))

    def _bytes_of(self, tensor: CheckpointTensor) -> int:
        if self.activations is not None and tensor.quantized is not None:
            return tensor.quantized.data.nbytes
        is_matrix = len(tensor.shape) == 2
        dtype = self.dtype_of([tensor]) if is_matrix else torch.float32
        return math.prod(tensor.shape) * dtype.itemsize

    def dtype_of(self, tensors: Iterable[CheckpointTensor]) -> torch.dtype:
        """Of a layer that does not stay quantised."""
        if self.dtype is not None:
            return self.dtype
        dtypes = {tensor.dtype for tensor in tensors}
        return dtypes.pop() if len(dtypes) == 1 else torch.float32


def place_weight(linear: Linear, tensors: Sequence[CheckpointTensor], types: WeightTypes) -> None:
    """Puts W of these tensors, one below the other, into the layer, whose bias is filled already."""
    if types.activations is not None and all(tensor.quantized is not None for tensor in tensors):
        _pack(linear, tensors, types.activations)
        return
    dtype = types.dtype_of(tensors)
    if len(tensors) == 1:
        linear.weight = _converted(tensors[0], dtype).contiguous()
        return
    weight = torch.empty(sum(tensor.shape[0] for tensor in tensors), tensors[0].shape[1], dtype=dtype)
    start = 0
    for tensor in tensors:
        weight[start : start + tensor.shape[0]] = _converted(tensor, dtype)
        start += tensor.shape[0]
    linear.weight = weight


def _converted(tensor: CheckpointTensor, dtype: torch.dtype) -> Tensor:
    """A view of the mapped file if that has this type."""
    values = tensor.read()
    converted = values.to(dtype)
    if dtype is torch.float16 and values.dtype is not dtype and not converted.isfinite().all():
        raise ModelLoadError(
            f"{tensor.source}: tensor {tensor.name} holds numbers of up to {values.abs().max().item():g}, "
            "float16 ends at 65504; use --dtype bfloat16 or float32"
        )
    return converted


def _pack(linear: Linear, tensors: Sequence[CheckpointTensor], activations: Literal["int8", "int16"]) -> None:
    parts = [
        (blocks.type_name, blocks.data.ctypes.data, blocks.data.nbytes, tensor.shape[0], blocks.row_order)
        for tensor in tensors
        if (blocks := tensor.quantized) is not None
    ]
    bias = None if linear.bias is None else linear.bias.data_ptr()
    linear.weight = QuantizedWeight(parts, tensors[0].shape[1], activations, bias)
    linear.bias = None
