"""Fills a model's parameters from a checkpoint's tensors, each exactly once.

Owns: the rule that names and shapes must agree completely before the first byte is read (CASES D31,
D32): a parameter that no tensor fills, a tensor that no parameter takes, or a second tensor of a name is a
ModelLoadError that names it. Only a short explicit list of harmless tensors may be left unused.
Must not know: file formats.
"""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pagurid import ops
from pagurid.errors import ModelLoadError
from pagurid.weights.linear_weight import place_weight
from pagurid.weights.progress import track

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagurid.models import LlamaForCausalLM
    from pagurid.models.llama import Linear
    from pagurid.weights.checkpoint import CheckpointTensor
    from pagurid.weights.linear_weight import WeightTypes

__all__ = ["fill_parameters"]

_log = logging.getLogger(__name__)

_LEFTOVERS = (re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq"),)
"""Buffers that old checkpoints carry and that are computed from the config instead."""

_TIED_HEAD = "lm_head.weight"


def fill_parameters(
    model: LlamaForCausalLM,
    tensors: Sequence[CheckpointTensor],
    *,
    title: str,
    types: WeightTypes,
) -> None:
    """Puts every tensor into its place; checks all names and shapes first.

    W of linear layers becomes what `types` says; norms and biases are copied, and converted to float32.
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
    layers = [(linear, [chosen[name] for name in parts]) for linear, parts in model.linear_parts()]
    weights = {tensor.name for _, tensors in layers for tensor in tensors}
    with torch.inference_mode():
        for name, tensor in chosen.items():
            if name not in weights:
                slots[name].copy_(tensor.read())
        slots.clear()  # they would keep what `place_weight` replaces alive
        for linear, parts in track(layers, title=f"Loading {title}", weight=_size_of):
            place_weight(linear, parts, types)
        if stray_head is not None and not _is_embedding(stray_head, model):
            _log.warning(
                "%s: %s differs from the embeddings but tie_word_embeddings is true: it is ignored",
                stray_head.source,
                _TIED_HEAD,
            )


def _is_embedding(head: CheckpointTensor, model: LlamaForCausalLM) -> bool:
    weight = model.embedding.weight
    values = head.read().to(weight.dtype if isinstance(weight, Tensor) else torch.float32)
    rows = torch.arange(model.config.vocab_size, dtype=torch.int32)
    return torch.equal(values.to(torch.float32), ops.embedding(rows, weight))


def _size_of(layer: tuple[Linear, list[CheckpointTensor]]) -> int:
    return sum(math.prod(tensor.shape) for tensor in layer[1])


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
