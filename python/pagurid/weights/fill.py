"""Fills a model's parameters from a checkpoint's tensors, each exactly once.

Owns: the rule that names and shapes must agree completely before the first byte is read (CASES D31,
D32): a parameter that no tensor fills, a tensor that no parameter takes, or a second tensor of a name is a
ModelLoadError that names it. Only a short explicit list of harmless tensors may be left unused.
Must not know: file formats.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from pagurid import ops
from pagurid.errors import ModelLoadError
from pagurid.ops import QuantizedWeight
from pagurid.weights.progress import track

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pagurid.models import LlamaForCausalLM
    from pagurid.models.llama import Linear

__all__ = ["CheckpointTensor", "QuantizedBlocks", "fill_parameters"]

_log = logging.getLogger(__name__)

_LEFTOVERS = (re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),)
"""Buffers that old checkpoints carry and that are computed from the config instead."""

_TIED_HEAD = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class CheckpointTensor:
    """One tensor of a checkpoint, not read yet. `name` is the checkpoint name, as safetensors have it."""

    name: str
    source: str
    """For messages: the file, and the name there if it is another."""
    shape: tuple[int, ...]
    read: Callable[[], Tensor]
    quantized: QuantizedBlocks | None = None
    """What `read` would dequantise, if it is a matrix that can be multiplied with as it is."""


@dataclass(frozen=True, slots=True)
class QuantizedBlocks:
    """A matrix as a GGUF file has it; `data` maps the file."""

    type_name: str
    data: NDArray[np.uint8]
    row_order: list[int] | None
    """The file's row for each row of the matrix, if they differ."""


def fill_parameters(
    model: LlamaForCausalLM,
    tensors: Sequence[CheckpointTensor],
    *,
    title: str,
    activations: Literal["int8", "int16"] | None = None,
) -> None:
    """Copies (and converts to float32) every tensor into its slot; checks all names and shapes first.

    With `activations`, layers whose tensors are all quantised stay so: they are packed instead.
    """
    slots = model.parameter_slots()
    chosen: dict[str, CheckpointTensor] = {}
    stray_head: CheckpointTensor | None = None
    for tensor in tensors:
        slot = slots.get(tensor.name)
        if slot is None:
            if tensor.name == _TIED_HEAD:
                stray_head = tensor  # the config says that the embeddings are the head: they are
                continue
            if any(pattern.fullmatch(tensor.name) for pattern in _LEFTOVERS):
                continue
            raise ModelLoadError(
                f"{tensor.source}: tensor {tensor.name} is not part of {_description(model)}"
            )
        if tensor.name in chosen:
            raise ModelLoadError(
                f"tensor {tensor.name} occurs twice: in {chosen[tensor.name].source} and in {tensor.source}"
            )
        if tensor.shape != tuple(slot.shape):
            raise ModelLoadError(
                f"{tensor.source}: tensor {tensor.name} has shape {list(tensor.shape)}, "
                f"the config asks for {list(slot.shape)}"
            )
        chosen[tensor.name] = tensor
    missing = [name for name in slots if name not in chosen]
    if missing:
        raise ModelLoadError(_missing_message(missing, title))
    packed = _layers_to_pack(model, chosen) if activations else []
    packed_names = {name for _, names in packed for name in names}
    with torch.inference_mode():
        items = [item for item in chosen.items() if item[0] not in packed_names]
        for name, tensor in track(items, title=f"Loading {title}", weight=_size_of):
            slots[name].copy_(tensor.read())
        slots.clear()  # they would keep the float weights of packed layers alive
        if activations:
            for linear, names in track(packed, title=f"Packing {title}", weight=lambda item: 1):
                _pack(linear, [chosen[name] for name in names], activations)
        if stray_head is not None and not _is_embedding(stray_head, model):
            _log.warning(
                "%s: %s differs from the embeddings but tie_word_embeddings is true: it is ignored",
                stray_head.source,
                _TIED_HEAD,
            )


def _layers_to_pack(
    model: LlamaForCausalLM, chosen: Mapping[str, CheckpointTensor]
) -> list[tuple[Linear, list[str]]]:
    return [
        (linear, list(parts))
        for linear, parts in model.linear_parts()
        if all(chosen[name].quantized is not None for name in parts)
    ]


def _pack(linear: Linear, tensors: list[CheckpointTensor], activations: Literal["int8", "int16"]) -> None:
    """Puts a layer's blocks in the place of its float weights; its bias is filled already."""
    parts = [
        (blocks.type_name, blocks.data.ctypes.data, blocks.data.nbytes, tensor.shape[0], blocks.row_order)
        for tensor in tensors
        if (blocks := tensor.quantized) is not None
    ]
    bias = None if linear.bias is None else linear.bias.data_ptr()
    linear.weight = QuantizedWeight(parts, tensors[0].shape[1], activations, bias)
    linear.bias = None


def _is_embedding(head: CheckpointTensor, model: LlamaForCausalLM) -> bool:
    rows = torch.arange(model.config.vocab_size, dtype=torch.int32)
    return torch.equal(head.read().to(torch.float32), ops.embedding(rows, model.embedding.weight))


def _size_of(item: tuple[str, CheckpointTensor]) -> int:
    size = 1
    for length in item[1].shape:
        size *= length
    return size


def _description(model: LlamaForCausalLM) -> str:
    config = model.config
    return f"a {config.architecture} of {config.num_layers} layers"


def _missing_message(missing: list[str], title: str) -> str:
    message = f"{title}: no tensor for {missing[0]}"
    if len(missing) > 1:
        message += f" and {len(missing) - 1} more parameters"
    if missing == [_TIED_HEAD]:
        message += (
            " (tie_word_embeddings is false or absent; set it to true in config.json if the head is tied)"
        )
    return message
