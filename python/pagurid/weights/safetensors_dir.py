"""The tensors of a directory in the hub's layout: `model.safetensors`, or shards with an index.

Owns: which files count. With an index these are the shards it names, and nothing else in the directory;
a shard that is absent and a tensor that its shard lacks are errors (CASES D31).
Must not know: which tensors a model needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open

from pagurid.errors import ModelLoadError
from pagurid.model_files import read_json
from pagurid.weights.checkpoint import CheckpointTensor

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["safetensors_of"]

_DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def safetensors_of(directory: Path) -> list[CheckpointTensor]:
    """All tensors of the checkpoint in `directory`; only headers are read."""
    index_file = directory / "model.safetensors.index.json"
    if not index_file.exists():
        single = directory / "model.safetensors"
        if single.exists():
            return _tensors_of(single)
        raise ModelLoadError(_nothing_there(directory))
    weight_map = read_json(index_file).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"{index_file} has no weight_map")
    tensors: list[CheckpointTensor] = []
    for shard in sorted(set(weight_map.values())):
        file = directory / shard
        if Path(shard).name != shard:
            raise ModelLoadError(f"{index_file} names {shard!r}, which is not a plain file name")
        if not file.exists():
            wanted = [name for name, where in weight_map.items() if where == shard]
            raise ModelLoadError(
                f"{file} is missing: {index_file.name} says it holds {wanted[0]} "
                f"and {len(wanted) - 1} more tensors"
            )
        in_shard = _tensors_of(file)
        present = {tensor.name for tensor in in_shard}
        for name, where in weight_map.items():
            if where == shard and name not in present:
                raise ModelLoadError(f"{file} has no tensor {name}, which {index_file.name} says it holds")
        tensors += in_shard
    return tensors


def _tensors_of(file: Path) -> list[CheckpointTensor]:
    try:
        handle: Any = safe_open(file, framework="pt")
        return [_tensor_of(handle, name, file) for name in handle.keys()]  # noqa: SIM118 (not a mapping)
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{file} is broken or incomplete: {error}; fetch it again") from None


def _tensor_of(handle: Any, name: str, file: Path) -> CheckpointTensor:
    view = handle.get_slice(name)
    if view.get_dtype() not in _DTYPES:
        raise ModelLoadError(
            f"{file}: tensor {name} is of type {view.get_dtype()}; supported: {', '.join(_DTYPES)}"
        )

    def read() -> Tensor:
        tensor: Tensor = handle.get_tensor(name)  # a view of the mapped file
        return tensor

    return CheckpointTensor(name, str(file), tuple(view.get_shape()), _DTYPES[view.get_dtype()], read)


def _nothing_there(directory: Path) -> str:
    message = f"{directory} has neither model.safetensors nor model.safetensors.index.json"
    if any(directory.glob("*.bin")) or any(directory.glob("*.pth")):
        message += (
            "; pickled checkpoints (.bin, .pth) can run code and are not loaded: convert them to safetensors"
        )
    return message
