"""A GGUF file: its metadata, and its tensors under the checkpoint names that the model knows.

Owns: the names, undoing the row order that GGUF gives q and k of the Llama family (CASES D34), and
dequantising to float32 through the `gguf` library, one tensor at a time. Floats are views of the mapped file.
Must not know: which tensors a model needs, what the tokenizer metadata mean.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from torch import Tensor

from pagurid.errors import ModelLoadError
from pagurid.models.registry import architecture_of_gguf
from pagurid.weights.checkpoint import CheckpointTensor, QuantizedBlocks

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pagurid.models import ModelConfig

__all__ = ["GgufFile"]

_FLOATS = {Kind.F32: torch.float32, Kind.F16: torch.float16, Kind.BF16: torch.bfloat16}
_QUANTIZED = (
    Kind.Q4_0,
    Kind.Q4_1,
    Kind.Q5_0,
    Kind.Q5_1,
    Kind.Q8_0,
    Kind.Q4_K,
    Kind.Q5_K,
    Kind.Q6_K,
)
_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
ROPE_FACTORS = "rope_freqs.weight"
"""Not a parameter but a part of the config: what each rotary frequency is divided by."""


class _Reader(gguf.GGUFReader):
    """The library's reader at three times its speed: a plain view of the file slices faster than a memmap."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, np.asarray(value) if name == "data" else value)


class GgufFile:
    """Opened: metadata are read, tensors are mapped into memory and not read yet."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            # Copy on write: a view of it that torch takes without a word, and never the file's own bytes.
            self._reader = _Reader(file, "c")
            self.metadata: Mapping[str, Any] = {
                key: field.contents() for key, field in self._reader.fields.items()
            }
        except OSError as error:
            raise ModelLoadError(f"cannot read {file}: {error.strerror or error}") from None
        except Exception as error:  # the library raises whatever a broken file leads it to
            raise ModelLoadError(
                f"{file} is broken, incomplete or not GGUF: {error or type(error).__name__}; fetch it again"
            ) from None
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if self.metadata.get("split.count", 1) > 1:
            raise ModelLoadError(f"{file} is one part of a split model; merge the parts into one file first")

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """As torch has it, rows first; GGUF has it reversed. ModelLoadError if there is no such tensor."""
        if name not in self._tensors:
            raise ModelLoadError(f"{self.file} has no tensor {name}")
        return tuple(int(length) for length in reversed(self._tensors[name].shape))

    def read(self, name: str) -> Tensor:
        """The tensor, rows in the file's order: floats as a view of the file, all else in float32."""
        tensor = self._tensors[name]
        if (dtype := _FLOATS.get(tensor.tensor_type)) is not None:
            return torch.from_numpy(tensor.data.view(np.uint8)).view(dtype).view(self.shape(name))
        return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type)).view(self.shape(name))

    def tensors(self, config: ModelConfig) -> list[CheckpointTensor]:
        """All but the rope factors, under checkpoint names; names that have none stay as they are."""
        interleaved = architecture_of_gguf(
            self.metadata["general.architecture"], file=str(self.file)
        ).gguf_interleaves_rope
        heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads} if interleaved else {}
        checkpoint: list[CheckpointTensor] = []
        for name, tensor in self._tensors.items():
            if name == ROPE_FACTORS:
                continue
            if tensor.tensor_type not in (*_FLOATS, *_QUANTIZED):
                raise ModelLoadError(
                    f"{self.file}: tensor {name} is of type {tensor.tensor_type.name}; "
                    f"supported: {', '.join(kind.name for kind in (*_FLOATS, *_QUANTIZED))}"
                )
            read = partial(self.read, name)
            row_order: list[int] | None = None
            checkpoint_name = _TOP.get(name, name)
            if (match := _LAYER_NAME.fullmatch(name)) and match[2] in _LAYER:
                checkpoint_name = f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"
                if match[2] in heads:
                    read = partial(self._read_half_split, name, heads[match[2]])
                    row_order = _half_split(torch.arange(self.shape(name)[0]), heads[match[2]]).tolist()
            source = f"{self.file} ({name})"
            quantized = None
            if tensor.tensor_type in _QUANTIZED and len(self.shape(name)) == 2:
                quantized = QuantizedBlocks(tensor.tensor_type.name, tensor.data, row_order)
            dtype = _FLOATS.get(tensor.tensor_type, torch.float32)
            checkpoint.append(
                CheckpointTensor(checkpoint_name, source, self.shape(name), dtype, read, quantized)
            )
        return checkpoint

    def _read_half_split(self, name: str, num_heads: int) -> Tensor:
        return _half_split(self.read(name), num_heads)


def _half_split(tensor: Tensor, num_heads: int) -> Tensor:
    """Rows of each head from pairs side by side (0, 1), (2, 3), … to halves (0, d/2), (1, d/2 + 1), …

    `tensor` is [num_heads * head_dim, …].
    """
    pairs = tensor.view(num_heads, -1, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)
